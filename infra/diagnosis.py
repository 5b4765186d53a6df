"""What is wrong, odd or worth knowing, wherever it was found: errors and warnings of a plan, findings in a machine's output, breaches of a policy."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from math import log10
from typing import Any, Literal

from infra.offers import Offer, in_words

_MOST_DIGITS = 20
_LONGEST_KEY = 120

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, order=True)
class Diagnosis:
    """`path` is where the value stands (`models[0].tensorParallelSize`, a file, a node), `code` a stable CamelCase name.

    `message` is one sentence that gives both numbers; `offers` are changes of the stack document that mend it, `remedy` is what else can be done.
    `error`: it does not work; `warning`: it works worse than it could; `info`: worth knowing.
    """

    path: str
    code: str
    message: str
    severity: Severity = "error"
    remedy: str = ""
    offers: tuple[Offer, ...] = field(default=(), compare=False)

    @classmethod
    def warning(cls, path: str, code: str, message: str, *, remedy: str = "", offers: tuple[Offer, ...] = ()) -> Diagnosis:
        return cls(path, code, message, severity="warning", remedy=remedy, offers=offers)

    @classmethod
    def info(cls, path: str, code: str, message: str, *, remedy: str = "") -> Diagnosis:
        return cls(path, code, message, severity="info", remedy=remedy)

    def at(self, path: str) -> Diagnosis:
        """The same, seen at `path`."""
        return replace(self, path=path)

    def placed(self, **places: str) -> Diagnosis:
        """With offers whose paths begin at a model or its pool completed to paths of the document."""
        return replace(self, offers=tuple(offer.placed(**places) for offer in self.offers)) if self.offers else self

    @property
    def sentence(self) -> str:
        """The message with what is offered and its remedy, for people."""
        ways = " ".join(filter(None, (in_words(self.offers), self.remedy)))
        if not ways:
            return self.message
        end = "" if self.message.endswith((".", "?", "!")) else "."
        return f"{self.message}{end} {ways}"

    def as_json(self) -> dict[str, str]:
        """For a list whose name gives the severity: `errors`, `warnings`."""
        return {"code": self.code, "path": self.path, "message": self.sentence}

    def as_finding(self) -> dict[str, str]:
        """For a list of mixed severity: `findings`."""
        return {"code": self.code, "path": self.path, "severity": self.severity, "message": self.sentence}

    def __str__(self) -> str:
        return f"{self.path}: {self.sentence}" if self.path else self.sentence


def in_order(diagnoses: Iterable[Diagnosis]) -> tuple[Diagnosis, ...]:
    """Without doubles, sorted by path; numbers in a path count as numbers (models[2] before models[10])."""
    return tuple(sorted(set(diagnoses), key=lambda one: (_natural(one.path), one.code, one.message)))


def _natural(path: str) -> list[Any]:
    """Texts and numbers by turns, so that each is compared with its own kind."""
    return [int(part[:_MOST_DIGITS]) if part.isdecimal() else part for part in re.split(r"(\d+)", path)]


def shown(value: Any, most: int = 60) -> str:
    """A value of the input as a message echoes it: as Python writes it, cut to about `most` characters whatever its size."""
    if isinstance(value, str):
        return repr(value) if len(value) <= most else f"{value[: most // 2]!r}... ({len(value):,} characters)"
    if isinstance(value, int) and value.bit_length() > 4 * most:
        return f"a number of {int(value.bit_length() * log10(2)) + 1:,} digits"
    text = _BRIEFLY.repr(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


class _Briefly(reprlib.Repr):
    """Looks at a few entries of anything large."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxother = 3, 60

    def repr_str(self, x: str, level: int) -> str:
        return shown(x, 40)

    def repr_int(self, x: int, level: int) -> str:
        return repr(x) if x.bit_length() <= 240 else shown(x)


_BRIEFLY = _Briefly()


def below(path: str, key: object) -> str:
    """The path of an entry of a mapping: `models[0].env` and `A` as models[0].env.A; a key that no one could read is quoted or cut."""
    name = (
        key if isinstance(key, str) and len(key) <= _LONGEST_KEY and key.isprintable() and key.strip() == key != "" else shown(key)
    )
    return f"{path}.{name}" if path else str(name)


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """` Did you mean "x"?` with the nearest known names, or the empty string where none is near."""
    if not isinstance(word, str) or len(word) > _LONGEST_KEY:
        return ""
    candidates = list(known)
    by_lower = {name.lower(): name for name in candidates}
    near = [by_lower[match] for match in get_close_matches(word.lower(), by_lower, n=3, cutoff=0.6)]
    return f" Did you mean {' or '.join(repr(n) for n in near)}?" if near else ""

"""What is wrong, odd or worth knowing, wherever it was found: errors and warnings of a plan, findings in a machine's output, breaches of a policy."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Literal

from infra.offers import Offer, in_words

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
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", path)]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` Did you mean "x"?` with the nearest known names, or the empty string where none is near."""
    candidates = list(known)
    by_lower = {name.lower(): name for name in candidates}
    near = [by_lower[match] for match in get_close_matches(word.lower(), by_lower, n=3, cutoff=0.6)]
    return f" Did you mean {' or '.join(repr(n) for n in near)}?" if near else ""

"""Ways out of what is wrong: changes of the stack document, in words and as values, so that each can be put in and tried before it is said."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final


class _LeftOut:
    """The value of a key that is taken out."""

    def __repr__(self) -> str:
        return "LEFT_OUT"


LEFT_OUT: Final = _LeftOut()
MOST_NODES_OFFERED = 1_000
MODEL, POOL = "model", "pool"  # first steps of a path that is completed where the model and its pool are known


@dataclass(frozen=True)
class Change:
    """One value of the stack document: `path` as in an error (`models[0].replicas`), and what is written there; LEFT_OUT takes the key out."""

    path: str
    value: Any


@dataclass(frozen=True)
class Offer:
    """One way out: `words` complete a sentence (`use 4`), and `changes` together are what a user would write.

    Of several offers of one `kind` only the first that works is said: 27 CPUs, or else 26.
    """

    words: str
    changes: tuple[Change, ...]
    kind: str = ""

    @classmethod
    def of(cls, words: str, *changes: tuple[str, Any], kind: str = "") -> Offer:
        return cls(words, tuple(Change(path, value) for path, value in changes), kind)

    def placed(self, **places: str) -> Offer:
        """The same where MODEL and POOL stand for these paths (`models[0]`, `nodePools[0]`)."""
        return replace(self, changes=tuple(Change(_placed(change.path, places), change.value) for change in self.changes))

    def applied(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """A copy of the document with the changes."""
        changed = deepcopy(dict(document))
        for change in self.changes:
            _write(changed, steps_of(change.path), change.value)
        return changed


def _placed(path: str, places: Mapping[str, str]) -> str:
    first, dot, rest = path.partition(".")
    return f"{places.get(first, first)}{dot}{rest}"


def steps_of(path: str) -> list[str | int]:
    """`models[0].replicas` as ["models", 0, "replicas"]."""
    return [int(index) if index else name for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path)]


def _write(document: Any, steps: Sequence[str | int], value: Any) -> None:
    place = document
    for step, following in pairwise(steps):
        if isinstance(place, dict) and not isinstance(place.get(step), dict | list):
            place[step] = [] if isinstance(following, int) else {}
        place = place[step]
    if value is not LEFT_OUT:
        place[steps[-1]] = value
    elif isinstance(place, list):
        del place[int(steps[-1])]
    else:
        place.pop(steps[-1], None)


def in_words(offers: Iterable[Offer]) -> str:
    """All offers as one sentence: `Use 2 or 4, or keep 8 with enableExpertParallel: true.`; empty without any."""
    text = verb = ""
    for offer in first_of_each_kind(offers):
        plain = re.fullmatch(r"(use) (\S+)", offer.words)
        if not text:
            text = offer.words[:1].upper() + offer.words[1:]
        elif plain and verb == plain[1]:
            text += f" or {plain[2]}"
        else:
            text += f", or {offer.words}"
        verb = plain[1] if plain else ""
    return f"{text}." if text else ""


def first_of_each_kind(offers: Iterable[Offer]) -> Iterator[Offer]:
    kinds: set[str] = set()
    for offer in offers:
        if offer.kind not in kinds:
            yield offer
        if offer.kind:
            kinds.add(offer.kind)


def more_nodes(count: int) -> Offer:
    return Offer.of(f"give the pool {count} nodes", (f"{POOL}.nodes", count), (f"{POOL}.nodeNames", LEFT_OUT))


def beside_each_other() -> Offer:
    """Several pods of a model on one node, which takes no further node."""
    return Offer.of("write podAntiAffinity: preferred", (f"{MODEL}.podAntiAffinity", "preferred"))

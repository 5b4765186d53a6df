"""What every reader of a tool's output returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from infra.diagnosis import Diagnosis
from infra.outputs.links import GpuLinks

# One line of the input with its number (from 1).
Line = tuple[int, str]


@dataclass(frozen=True, kw_only=True)
class Report:
    """One output of one tool.

    `fields` is its JSON form without `kind`; `links` is there where the output shows how GPUs are linked; `notes` name what could
    not be read; `cut` that lines or rows at the end are missing.
    """

    kind: str
    first_line: int
    fields: Mapping[str, Any]
    links: GpuLinks | None = None
    notes: tuple[str, ...] = ()
    findings: tuple[Diagnosis, ...] = ()
    cut: bool = False
    host: str | None = None
    command: str | None = None

    def on(self, host: str | None, command: str | None = None) -> Report:
        return replace(self, host=host, command=command or self.command)


@dataclass
class Notes:
    """Collects what could not be read, each sentence once, no more than a person reads."""

    most: int = 12
    sentences: list[str] = field(default_factory=list)
    more: int = 0

    def add(self, sentence: str) -> None:
        if sentence in self.sentences:
            return
        if len(self.sentences) < self.most:
            self.sentences.append(sentence)
        else:
            self.more += 1

    def all(self) -> tuple[str, ...]:
        return (*self.sentences, f"and {self.more} more of the kind") if self.more else tuple(self.sentences)

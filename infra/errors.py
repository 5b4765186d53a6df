"""What can be wrong with an input or a plan: a code, the path of the value, and one sentence with the way out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches


@dataclass(frozen=True, order=True)
class Problem:
    """One error or warning.

    `path` is where the value stands in the stack file (`models[0].tensorParallelSize`), `code` a stable CamelCase name,
    `message` one sentence that gives both numbers and what to do.
    """

    path: str
    code: str
    message: str

    def as_json(self) -> dict[str, str]:
        return {"code": self.code, "path": self.path, "message": self.message}

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def in_order(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Problems without doubles, sorted by path; numbers in a path count as numbers (models[2] before models[10])."""
    return tuple(sorted(set(problems), key=lambda problem: (_natural(problem.path), problem.code, problem.message)))


def _natural(path: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", path)]


class NumawiseError(Exception):
    """Base of all errors that a command prints as sentences; `exit_status` is the command's."""

    exit_status = 2

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = in_order(problems)
        super().__init__("\n".join(map(str, self.problems)))

    @classmethod
    def one(cls, code: str, path: str, message: str) -> NumawiseError:
        return cls([Problem(path=path, code=code, message=message)])


class ConfigError(NumawiseError):
    """The input is not what it has to be (unknown key, wrong type, wrong unit, unknown name)."""


class PlanError(NumawiseError):
    """The input is well-formed, but cannot be planned."""


class CheckError(NumawiseError):
    """The cluster contradicts the plan; found before anything is touched."""

    exit_status = 1


class MissingError(NumawiseError):
    """Something that the command needs is missing or unreachable: a kubeconfig, a plugin, a cloud account."""

    exit_status = 3


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` Did you mean "x"?` with the nearest known names, or the empty string where none is near."""
    candidates = list(known)
    by_lower = {name.lower(): name for name in candidates}
    near = [by_lower[match] for match in get_close_matches(word.lower(), by_lower, n=3, cutoff=0.6)]
    return f" Did you mean {' or '.join(repr(n) for n in near)}?" if near else ""

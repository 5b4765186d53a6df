"""The exceptions that a command prints as sentences."""

from __future__ import annotations

from collections.abc import Iterable

from infra.diagnosis import Diagnosis, in_order


class NumawiseError(Exception):
    """Base of all errors that a command prints as sentences; `exit_status` is the command's."""

    exit_status = 2

    def __init__(self, problems: Iterable[Diagnosis]) -> None:
        self.problems = in_order(problems)
        super().__init__("\n".join(map(str, self.problems)))

    @classmethod
    def one(cls, code: str, path: str, message: str) -> NumawiseError:
        return cls([Diagnosis(path=path, code=code, message=message)])


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

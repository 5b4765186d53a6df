"""The toolchain's one kind of error: something that it needs is missing, unreachable or broken."""

from __future__ import annotations

from infra.diagnosis import Diagnosis
from infra.errors import MissingError


class ToolchainError(MissingError):
    """A program that could not be found, fetched or built; one sentence with the remedy. Exit status 3."""

    def __init__(self, code: str, path: str, message: str) -> None:
        super().__init__([Diagnosis(path=path, code=code, message=message)])

"""Reads config.json's fields, each under its several names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, overload

from infra.diagnosis import Diagnosis, did_you_mean, shown

LARGEST_VALUE = 10**9
LARGEST_LAYER_COUNT = 4096


class ConfigFields:
    """config.json's fields under their several names; a wrong type or an absent needed field becomes a Diagnosis."""

    def __init__(self, values: Mapping[str, Any], path: str, problems: list[Diagnosis]) -> None:
        self.values = values
        self.path = path
        self.problems = problems

    def at(self, name: str) -> str:
        """The path of a field in the input."""
        return f"{self.path}.{name}" if self.path else name

    def problem(self, name: str, message: str, *, code: str = "InvalidValue") -> None:
        self.problems.append(Diagnosis(path=self.at(name), code=code, message=message))

    @overload
    def integer(self, *names: str, default: int, minimum: int = 0, maximum: int = LARGEST_VALUE) -> int: ...

    @overload
    def integer(
        self, *names: str, default: None = None, required: bool = False, minimum: int = 0, maximum: int = LARGEST_VALUE
    ) -> int | None: ...

    def integer(
        self,
        *names: str,
        default: int | None = None,
        required: bool = False,
        minimum: int = 0,
        maximum: int = LARGEST_VALUE,
    ) -> int | None:
        """The first of the fields that is there, or the default; one value in a list of equal ones counts as that value."""
        for name in names:
            value = self.values.get(name)
            if isinstance(value, list) and value and all(item == value[0] for item in value):
                value = value[0]
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                self.problem(name, f"is {shown(value)}; a whole number, as in config.json, is expected.")
                return default
            if not minimum <= value <= maximum:
                self.problem(name, f"is {value}; a number from {minimum} to {maximum} is expected.")
                return default
            return value
        if required:
            near = did_you_mean(names[0], self.values)
            self.problem(
                names[0], f"is missing; the plan needs it from config.json ({' or '.join(names)}).{near}", code="MissingField"
            )
        return default

    def required_integer(self, name: str) -> int:
        """The field, at least 1; where it is not there, a problem and 1."""
        return self.integer(name, required=True, minimum=1) or 1

    def boolean(self, *names: str, default: bool = False) -> bool:
        for name in names:
            value = self.values.get(name)
            if isinstance(value, bool):
                return value
            if value is not None:
                self.problem(name, f"is {shown(value)}; true or false is expected.")
                return default
        return default

    def sequence(self, name: str) -> Sequence[Any] | None:
        value = self.values.get(name)
        if value is None or (isinstance(value, Sequence) and not isinstance(value, str)):
            return value
        self.problem(name, f"is {shown(value)}; a list is expected.")
        return None

    def mapping(self, *names: str) -> Mapping[str, Any] | None:
        for name in names:
            value = self.values.get(name)
            if isinstance(value, Mapping):
                return value
            if value is not None:
                self.problem(name, f"is {shown(value)}; a map is expected.")
        return None

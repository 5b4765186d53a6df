"""Reads plain YAML values field by field: every unknown key and wrong type becomes one Diagnosis, all of them found in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from infra.diagnosis import Diagnosis, did_you_mean

T = TypeVar("T")


def type_name(value: object) -> str:
    """What YAML calls the type of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int):
        return "an integer"
    if isinstance(value, float):
        return "a number"
    if isinstance(value, str):
        return "a text"
    return "a list" if isinstance(value, Sequence) else "a map" if isinstance(value, Mapping) else type(value).__name__


class Reader:
    """One map at `path`. Each method takes one key; `finish` reports the keys that nobody took.

    A required key that is absent, or a value of the wrong type, is added to `problems` and read as None (or the default), so that
    reading goes on and finds the rest. A null value counts as absent.
    """

    def __init__(self, value: object, path: str, problems: list[Diagnosis], *, code: str = "InvalidValue") -> None:
        self.path = path
        self.problems = problems
        self.code = code
        self.values: Mapping[str, Any] = {}
        self.taken: set[str] = set()
        if isinstance(value, Mapping):
            self.values = {str(key): item for key, item in value.items()}
        else:
            self.problem("", f"is {type_name(value)}; a map of fields is expected.")

    def at(self, key: str) -> str:
        if not key:
            return self.path
        return f"{self.path}.{key}" if self.path else key

    def problem(self, key: str, message: str, *, code: str | None = None) -> None:
        self.problems.append(Diagnosis(path=self.at(key), code=code or self.code, message=message))

    def has(self, key: str) -> bool:
        return self.values.get(key) is not None

    def raw(self, key: str, *, required: bool = False) -> Any:
        self.taken.add(key)
        value = self.values.get(key)
        if value is None and required:
            self.problem(
                key, f"is missing{did_you_mean(key, set(self.values) - self.taken) or '; it is needed here.'}", code="MissingField"
            )
        return value

    def _typed(self, key: str, required: bool, accept: Callable[[Any], bool], expected: str) -> Any:
        value = self.raw(key, required=required)
        if value is None or accept(value):
            return value
        self.problem(key, f"is {type_name(value)} ({value!r}); {expected} is expected.")
        return None

    def text(self, key: str, *, required: bool = False) -> str | None:
        return self._typed(key, required, lambda v: isinstance(v, str), "a text")

    def boolean(self, key: str) -> bool | None:
        return self._typed(key, False, lambda v: isinstance(v, bool), "true or false")

    def integer(self, key: str, *, required: bool = False, minimum: int | None = None) -> int | None:
        value = self._typed(key, required, lambda v: isinstance(v, int) and not isinstance(v, bool), "a whole number")
        if value is not None and minimum is not None and value < minimum:
            self.problem(key, f"is {value}; at least {minimum} is expected.")
            return None
        return value

    def number(self, key: str, *, required: bool = False, minimum: float | None = None) -> float | None:
        value = self._typed(key, required, lambda v: isinstance(v, int | float) and not isinstance(v, bool), "a number")
        if value is not None and minimum is not None and value < minimum:
            self.problem(key, f"is {value}; at least {minimum} is expected.")
            return None
        return value

    def one_of(self, key: str, choices: Iterable[str], *, required: bool = False) -> str | None:
        value = self.text(key, required=required)
        known = tuple(choices)
        if value is not None and value not in known:
            self.problem(key, f"is {value!r}; one of {', '.join(known)} is expected.{did_you_mean(value, known)}")
            return None
        return value

    def sequence(self, key: str, *, required: bool = False) -> Sequence[Any]:
        value = self._typed(key, required, lambda v: isinstance(v, Sequence) and not isinstance(v, str), "a list")
        return () if value is None else value

    def texts(self, key: str) -> tuple[str, ...]:
        return self._items(key, lambda v: isinstance(v, str), "a text")

    def integers(self, key: str) -> tuple[int, ...]:
        return self._items(key, lambda v: isinstance(v, int) and not isinstance(v, bool), "a whole number")

    def _items(self, key: str, accept: Callable[[Any], bool], expected: str) -> tuple[Any, ...]:
        items = []
        for index, item in enumerate(self.sequence(key)):
            if accept(item):
                items.append(item)
            else:
                self.problem(f"{key}[{index}]", f"is {type_name(item)} ({item!r}); {expected} is expected.")
        return tuple(items)

    def parsed(self, key: str, parse: Callable[[Any], T], *, required: bool = False) -> T | None:
        """The value through `parse`, whose ValueError becomes the problem."""
        value = self.raw(key, required=required)
        if value is None:
            return None
        try:
            return parse(value)
        except ValueError as error:
            self.problem(key, f"{error}.")
            return None

    def child(self, key: str) -> Reader | None:
        """A nested map, or None where it is absent."""
        value = self.raw(key)
        return None if value is None else Reader(value, self.at(key), self.problems, code=self.code)

    def children(self, key: str, *, required: bool = False) -> list[Reader]:
        return [
            Reader(item, f"{self.at(key)}[{index}]", self.problems, code=self.code)
            for index, item in enumerate(self.sequence(key, required=required))
        ]

    def finish(self) -> None:
        """Reports every key that was not read."""
        for key in sorted(set(self.values) - self.taken):
            self.problem(key, f"is no field here.{did_you_mean(key, self.taken)}", code="UnknownField")

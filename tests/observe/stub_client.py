"""A cluster that answers from a table of paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from infra.observe.client import Client


class StubClient(Client):
    """`objects`: path -> object. Lists are empty but for those given; every other path is not there."""

    def __init__(self, objects: Mapping[str, Any], lists: Mapping[str, list[Any]] | None = None) -> None:
        self._objects, self._lists = objects, lists or {}

    def patient(self, seconds: float = 0) -> Client:
        return self

    def get(self, path: str, **_: Any) -> Any:
        return {"gitVersion": "v1.37.2"} if path == "/version" else self._objects[path]

    def find(self, path: str, **_: Any) -> Any:
        return self._objects.get(path)

    def list(self, path: str, **_: Any) -> Iterator[dict[str, Any]]:
        return iter(self._lists.get(path, []))

"""Entries of the catalog's files: facts, and where they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from pydantic import ConfigDict, Field

from infra.catalog.reading import has_field, parse_yaml, read, type_name
from infra.config.base import Texts, Wire
from infra.diagnosis import Diagnosis, did_you_mean, shown
from infra.errors import ConfigError

Confidence = Literal["high", "medium", "low"]
SCHEMA_VERSION = 1
DATA = Path(__file__).parent / "data"

AnyEntry = TypeVar("AnyEntry", bound="Entry")
Item = TypeVar("Item")


class Fact(Wire):
    """A part of an entry. In code its fields are named as in Python, in YAML as there."""

    model_config = ConfigDict(validate_by_name=True)


class Entry(Fact):
    """One entry of a catalog file, and where its facts come from."""

    id: str = Field(description="Unique in the file.")
    sources: Texts = Field(default=(), description="Ids of the file's `sources`.")
    confidence: Confidence = Field(description="high, medium or low: how far the facts are trusted.")
    unverified: Texts = Field(default=(), description="Fields that are trusted less than the rest, as paths: memory.torchGib.")
    note: str = Field(default="", description="What a reader of the file has to know.")

    @property
    def citations(self) -> Mapping[str, str]:
        """The names of sources, by where they stand in the entry."""
        return {f"sources[{index}]": source for index, source in enumerate(self.sources)}


def document_of(path: Path) -> Mapping[str, Any]:
    """The top level of a catalog file, its schema version checked."""
    document = parse_yaml(path.read_bytes(), path.name)
    if not isinstance(document, Mapping):
        raise ConfigError.one("InvalidValue", path.name, f"is {type_name(document)}; a map of fields is expected.")
    version = document.get("schemaVersion")
    if version != SCHEMA_VERSION:
        raise ConfigError.one("InvalidValue", f"{path.name}.schemaVersion", f"is {version}; this program reads {SCHEMA_VERSION}.")
    return document


class Entries(Mapping[str, Item], Generic[AnyEntry, Item]):
    """The entries of a catalog file by id; `resolve(entry, path, problems)` makes what is handed out of an entry.

    An entry is validated when it is asked for, and then kept: most commands want one shape of a hundred, and the others would cost more than the plan.
    Whole files are validated by `problems`: in the tests, and by `doctor` for files that were changed where they are installed.
    """

    def __init__(
        self, path: Path, key: str, model: type[AnyEntry], resolve: Callable[[AnyEntry, str, list[Diagnosis]], Item | None]
    ) -> None:
        document = document_of(path)
        self._path = f"{path.name}.{key}"
        self._model, self._resolve = model, resolve
        self._sources = document.get("sources") or {}
        self._known: dict[str, Item] = {}
        self._places: dict[str, tuple[int, Any]] = {}
        self._faults = [
            Diagnosis(f"{path.name}.{other}", "UnknownField", f"is no field here.{did_you_mean(other, (key,))}")
            for other in document
            if other not in ("schemaVersion", "sources", key)
        ]
        entries = document.get(key)
        if not isinstance(entries, list):
            raise ConfigError.one("InvalidValue", self._path, f"is {type_name(entries)}; a list is expected.")
        for index, raw in enumerate(entries):
            name = raw.get("id") if isinstance(raw, Mapping) else None
            if not isinstance(name, str):
                self._read(index, raw, self._faults)
            elif name in self._places:
                self._faults.append(Diagnosis(f"{self._path}[{index}].id", "InvalidValue", f"{name} stands there twice."))
            else:
                self._places[name] = (index, raw)

    def _read(self, index: int, raw: Any, problems: list[Diagnosis]) -> Item | None:
        path = f"{self._path}[{index}]"
        entry = read(self._model, raw, path, problems)
        if entry is None:
            return None
        for where, source in entry.citations.items():
            if source not in self._sources:
                problems.append(Diagnosis(f"{path}.{where}", "InvalidValue", f"{shown(source)} is not among the file's sources."))
        for position, field in enumerate(entry.unverified):
            if not has_field(self._model, field):
                problems.append(
                    Diagnosis(f"{path}.unverified[{position}]", "InvalidValue", f"{shown(field)} is no field of an entry.")
                )
        return self._resolve(entry, path, problems)

    def __getitem__(self, name: str) -> Item:
        if name not in self._known:
            index, raw = self._places[name]
            problems: list[Diagnosis] = []
            item = self._read(index, raw, problems)
            if problems or item is None:
                raise ConfigError(problems)
            self._known[name] = item
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def problems(self) -> list[Diagnosis]:
        """Everything that is wrong with the file."""
        found = list(self._faults)
        for index, raw in self._places.values():
            self._read(index, raw, found)
        return found


def as_it_is(entry: AnyEntry, path: str, problems: list[Diagnosis]) -> AnyEntry:
    """The entry itself, where nothing has to be made of it."""
    return entry

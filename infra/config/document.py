"""Reads YAML into plain values of bounded size, so that whatever looks at them afterwards ends soon."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

import yaml

from infra.config.base import path_of
from infra.diagnosis import Diagnosis, below, shown
from infra.errors import ConfigError

# A stack of 500 pools and 1,000 models has about 30,000 values in 1 MB.
LARGEST_FILE = 8 * 2**20
MOST_VALUES = 100_000  # entries of mappings and lists, those behind each alias counted anew
DEEPEST = 64
_SURELY_FEW = 100_000  # characters: fewer values than are allowed
_LARGEST_NUMBER = 2**64 - 1

# A key or index, and the link of what it stands in; None is the document itself.
_Link = tuple[Any, str | int] | None


class _UniqueKeyLoader(yaml.CSafeLoader):
    """Refuses a key that stands twice: plain YAML would keep the last one silently. Merged mappings (<<) give way to keys of their own."""

    merged = 0  # entries taken over by merges so far


def _unique_mapping(loader: _UniqueKeyLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    mapping: dict[Any, Any] = {}
    merges: list[yaml.Node] = []
    for key_node, value_node in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            merges.append(value_node)
            continue
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str | int | float | bool | None):
            raise yaml.constructor.ConstructorError(None, None, "a key has to be a plain word", key_node.start_mark)
        if key in mapping:
            raise yaml.constructor.ConstructorError(None, None, f"the key {shown(key)} stands twice", key_node.start_mark)
        mapping[key] = loader.construct_object(value_node, deep=True)
    for merge in merges:
        sources = merge.value if isinstance(merge, yaml.SequenceNode) else [merge]
        for source in sources:
            entries = loader.construct_object(source, deep=True)
            if not isinstance(entries, dict):
                raise yaml.constructor.ConstructorError(None, None, "<< takes a mapping or a list of mappings", source.start_mark)
            loader.merged += len(entries)
            if loader.merged > MOST_VALUES:
                raise yaml.constructor.ConstructorError(None, None, f"{_too_many()}, those merged by <<", source.start_mark)
            for key, value in entries.items():
                mapping.setdefault(key, value)
    return mapping


_UniqueKeyLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _unique_mapping)


def read_yaml(path: Path) -> Any:
    """The document of a YAML or JSON file, within the bounds of this module; ConfigError in one sentence where it cannot be read."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
        text = content.decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError.one("FileNotFound", str(path), f"there is no such file{_files_beside(path)}") from None
    except UnicodeDecodeError:
        raise ConfigError.one("NotText", str(path), "is no UTF-8 text; a stack file is YAML") from None
    except OSError as error:
        raise ConfigError.one("FileUnreadable", str(path), f"cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError.one("FileUnreadable", shown(str(path)), f"cannot be read: {error}") from None
    if len(content) > LARGEST_FILE:
        raise ConfigError.one("TooLarge", str(path), f"is larger than {LARGEST_FILE // 2**20} MiB, the most that is read")
    try:
        if len(text) > _SURELY_FEW:
            _refuse_too_many(text)
        document = yaml.load(text, Loader=_UniqueKeyLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        what = getattr(error, "problem", None) or str(error).split("\n", 1)[0]
        raise ConfigError.one("NotYaml", where, f"is no valid YAML: {what}") from None
    except RecursionError:
        raise ConfigError.one("TooDeep", str(path), f"is nested more than {DEEPEST} levels deep; write it flatter") from None
    except (ValueError, OverflowError) as error:
        raise ConfigError.one("NotYaml", str(path), f"is no valid YAML: {shown(str(error))[1:-1]}") from None
    if problem := out_of_bounds(document, str(path)):
        raise ConfigError([problem])
    return document


def _refuse_too_many(text: str) -> None:
    """Counts what the file holds before it is put together, which takes ten times as long and as much memory."""
    nodes = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        nodes += isinstance(event, yaml.NodeEvent)
        if nodes > 2 * MOST_VALUES + 1:
            raise yaml.MarkedYAMLError(problem=_too_many(), problem_mark=event.start_mark)


def _files_beside(path: Path) -> str:
    stacks = sorted(p.name.removeprefix("Pulumi.").removesuffix(".yaml") for p in path.parent.glob("Pulumi.*.yaml"))
    return f"; stacks here: {', '.join(stacks)}" if stacks else ""


def out_of_bounds(document: Any, source: str) -> Diagnosis | None:
    """What is wrong with the size of a document, if anything."""
    for number, (link, depth, _) in enumerate(_values(document)):
        if depth > DEEPEST:
            return Diagnosis(_path(link), "TooDeep", f"is nested more than {DEEPEST} levels deep in {source}; write it flatter")
        if number > MOST_VALUES:
            return Diagnosis(
                source,
                "TooLarge",
                f"{_too_many()}, each alias (*) counted with all that it stands for; write fewer, or divide the stack",
            )
    return None


def _too_many() -> str:
    return f"has more than {MOST_VALUES:,} values"


def unfit_values(document: Any) -> Iterator[Diagnosis]:
    """Values that YAML knows and JSON does not, and numbers and texts that no field holds. The document has to be within bounds."""
    for link, _, value in _values(document):
        if isinstance(value, Mapping):
            for key in value:
                if not isinstance(key, str):
                    yield Diagnosis(
                        below(_path(link), key), "WrongType", f"{shown(key)} is no string to YAML; write the key in quotes"
                    )
        elif message := _unfit(value):
            yield Diagnosis(_path(link), "WrongType", message)


def _unfit(value: Any) -> str:
    if isinstance(value, str):
        return (
            "" if value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value) else f"{shown(value)} holds half a character"
        )
    if value is None or isinstance(value, bool | list):
        return ""
    if isinstance(value, int):
        return f"{shown(value)} is out of range: a number of at most 64 bits is expected" if abs(value) > _LARGEST_NUMBER else ""
    if isinstance(value, float):
        return "" if isfinite(value) else f"{value} is no finite number"
    return f"{shown(value)} is a {type(value).__name__} to YAML; write it in quotes"


def _values(document: Any) -> Iterator[tuple[_Link, int, Any]]:
    """(where, depth, value) of the document and all below it, in order."""
    yield None, 0, document
    open_values = [_entries(None, document)]
    while open_values:
        entry = next(open_values[-1], None)
        if entry is None:
            open_values.pop()
            continue
        yield entry[0], len(open_values), entry[1]
        open_values.append(_entries(*entry))


def _entries(link: _Link, value: Any) -> Iterator[tuple[_Link, Any]]:
    if isinstance(value, Mapping):
        return (((link, key), item) for key, item in value.items())
    if isinstance(value, list):
        return (((link, index), item) for index, item in enumerate(value))
    return iter(())


def _path(link: _Link) -> str:
    steps = []
    while link is not None:
        link, step = link
        steps.append(step)
    return path_of(reversed(steps))

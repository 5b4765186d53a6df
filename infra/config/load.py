"""Reads a stack file into a StackConfig; every problem that can be found in one pass, each with its path."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from infra.config.base import path_of
from infra.config.cluster import StackConfig
from infra.diagnosis import Diagnosis, did_you_mean
from infra.errors import ConfigError

CLUSTER_KEY = "numawise:cluster"
_WANTED = {
    "model_type": "mapping",
    "dict_type": "mapping",
    "tuple_type": "list",
    "int_type": "whole number",
    "int_from_float": "whole number",
    "float_type": "number",
    "string_type": "string",
    "bool_type": "boolean (true or false)",
}
STACKS_FOLDER = Path("stacks")


class _UniqueKeyLoader(yaml.CSafeLoader):
    """Refuses a key that stands twice: plain YAML would keep the last one silently."""


def _unique_mapping(loader: _UniqueKeyLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    loader.flatten_mapping(node)
    mapping: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str | int | float | bool | None):
            raise yaml.constructor.ConstructorError(None, None, "a key has to be a plain word", key_node.start_mark)
        if key in mapping:
            raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} stands twice", key_node.start_mark)
        mapping[key] = loader.construct_object(value_node, deep=True)
    return mapping


_UniqueKeyLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _unique_mapping)


def read_yaml(path: Path) -> Any:
    """The document of a YAML file; ConfigError in one sentence where it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError.one("FileNotFound", str(path), f"there is no such file{_files_beside(path)}") from None
    except UnicodeDecodeError:
        raise ConfigError.one("NotText", str(path), "is no UTF-8 text; a stack file is YAML") from None
    except OSError as error:
        raise ConfigError.one("FileUnreadable", str(path), f"cannot be read: {error.strerror}") from None
    try:
        return yaml.load(text, Loader=_UniqueKeyLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        what = getattr(error, "problem", None) or str(error).split("\n", 1)[0]
        raise ConfigError.one("NotYaml", where, f"is no valid YAML: {what}") from None
    except (RecursionError, ValueError) as error:
        raise ConfigError.one("NotYaml", str(path), f"is no valid YAML: {error}") from None


def _files_beside(path: Path) -> str:
    stacks = sorted(p.name.removeprefix("Pulumi.").removesuffix(".yaml") for p in path.parent.glob("Pulumi.*.yaml"))
    return f"; stacks here: {', '.join(stacks)}" if stacks else ""


def names_a_stack(text: str) -> bool:
    """Whether this can be STACK or ORGANIZATION/PROJECT/STACK: no part is empty or a way through folders."""
    return not {"", ".", ".."} & {part.strip() for part in text.split("/")}


def stack_file(stack: str, *, root: Path = Path()) -> Path:
    """The path of a stack's file."""
    name = stack.rpartition("/")[2]
    return root / STACKS_FOLDER / f"Pulumi.{name}.yaml"


def load_stack_file(path: Path) -> StackConfig:
    """A stack file or a bare cluster document, validated; ConfigError with all its problems."""
    return parse_cluster_document(cluster_document(read_yaml(path), source=str(path)))


def cluster_document(document: Any, *, source: str) -> Any:
    """The cluster document of a stack file's content; a bare cluster document is returned as it is."""
    if document is None:
        raise ConfigError.one("EmptyFile", source, "is empty; it needs config: numawise:cluster: (see stacks/Pulumi.local.yaml)")
    if not isinstance(document, Mapping):
        raise ConfigError.one("WrongType", source, f"is a {_yaml_type(document)}; a stack file is a mapping")
    if "nodePools" in document or not ({"config", "environment", "encryptionsalt", "secretsprovider"} & set(document)):
        return document
    config = document.get("config") or {}
    if isinstance(config, Mapping) and CLUSTER_KEY in config:
        cluster = config[CLUSTER_KEY]
        if isinstance(cluster, Mapping) and set(cluster) == {"secure"}:
            raise ConfigError.one(
                "SecureInDocument",
                CLUSTER_KEY,
                "is encrypted as a whole; store it in clear (pulumi config set --path) and keep secrets in keys of their own",
            )
        return cluster
    if "environment" in document:
        raise ConfigError.one(
            "DocumentFromEnvironment",
            CLUSTER_KEY,
            f"stands in an ESC environment, not in {source}; run `pulumi config get numawise:cluster > FILE` and pass --config FILE",
        )
    raise ConfigError.one(
        "NoClusterDocument", CLUSTER_KEY, f"is missing in {source}; it holds nodePools and models (see stacks/Pulumi.local.yaml)"
    )


def parse_cluster_document(document: Any) -> StackConfig:
    """A cluster document as a StackConfig; ConfigError with all problems that can be found in one pass."""
    problems = list(_secure_values(document, ""))
    if problems:
        raise ConfigError(problems)
    if not isinstance(document, Mapping):
        raise ConfigError.one(
            "WrongType", CLUSTER_KEY, f"is a {_yaml_type(document)}; it has to be a mapping with nodePools and models"
        )
    try:
        return StackConfig.model_validate(document)
    except ValidationError as error:
        details = error.errors(include_url=False)
        # A list whose entries are all wrong counts as too short for pydantic; the entries' own problems say more.
        locations = [detail["loc"] for detail in details]
        raise ConfigError(
            _problem(detail, document)
            for detail in details
            if detail["type"] != "too_short" or not any(loc[: len(detail["loc"])] == detail["loc"] != loc for loc in locations)
        ) from None
    except RecursionError:
        raise ConfigError.one("WrongType", CLUSTER_KEY, "is nested too deeply") from None


def _secure_values(value: Any, path: str) -> Iterator[Diagnosis]:
    if isinstance(value, Mapping):
        if set(value) == {"secure"}:
            yield Diagnosis(
                path=path,
                code="SecureInDocument",
                message="is a secret inside the cluster document and would stand in the state in clear; make it a key of its own "
                "(pulumi config set --secret numawise:hubToken) or name an existing Secret",
            )
            return
        for key, item in value.items():
            yield from _secure_values(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _secure_values(item, f"{path}[{index}]")


def _problem(detail: Any, document: Any) -> Diagnosis:
    """One pydantic error in our words; the location is walked along the document to leave pydantic's own steps out."""
    location, owner = _real_location(detail["loc"], document)
    path, kind, value = path_of(location), detail["type"], detail.get("input")
    context = detail.get("ctx") or {}
    if kind == "extra_forbidden":
        known = _fields_of(owner) if owner else ()
        remedy = did_you_mean(str(location[-1]), known) or f" Known here: {', '.join(sorted(known))}." if known else ""
        return Diagnosis(path=path, code="UnknownKey", message=f"is no known key.{remedy}")
    if kind == "missing":
        return Diagnosis(path=path, code="MissingKey", message="is missing")
    if kind == "value_error":
        return Diagnosis(path=path, code="InvalidValue", message=str(context.get("error", detail["msg"])))
    if kind == "literal_error":
        allowed = [word.strip(" '") for word in str(context.get("expected", "")).replace(" or ", ", ").split(",")]
        return Diagnosis(
            path=path,
            code="InvalidValue",
            message=f"{value!r} is not one of {', '.join(allowed)}.{did_you_mean(str(value), allowed)}",
        )
    if kind in ("greater_than_equal", "greater_than", "less_than_equal", "less_than"):
        return Diagnosis(
            path=path, code="InvalidValue", message=f"{value!r} is out of range: {detail['msg'].removeprefix('Input should be ')}"
        )
    if kind == "too_short":
        return Diagnosis(
            path=path,
            code="InvalidValue",
            message=f"has {context.get('actual_length')} entries; it needs at least {context.get('min_length')}",
        )
    wanted = _WANTED.get(kind) or detail["msg"].removeprefix("Input should be a valid ").removeprefix("Input should be ")
    return Diagnosis(path=path, code="WrongType", message=f"{_shown(value)} is a {_yaml_type(value)}; it has to be a {wanted}")


def _real_location(location: Sequence[str | int], document: Any) -> tuple[list[str | int], type[BaseModel] | None]:
    real: list[str | int] = []
    value, owner = document, StackConfig
    model: Any = StackConfig
    for index, part in enumerate(location):
        last = index == len(location) - 1
        inside = (isinstance(part, int) and isinstance(value, list) and part < len(value)) or (
            isinstance(part, str) and isinstance(value, Mapping) and (part in value or last)
        )
        if not inside:
            continue
        real.append(part)
        if isinstance(model, type) and issubclass(model, BaseModel):
            owner = model
        model = _annotation_below(model, part)
        if isinstance(value, list) and isinstance(part, int):
            value = value[part]
        else:
            value = value.get(part) if isinstance(value, Mapping) else None
    return real or list(location), owner


def _annotation_below(model: Any, part: str | int) -> Any:
    if isinstance(part, str) and isinstance(model, type) and issubclass(model, BaseModel):
        for name, field in model.model_fields.items():
            if part in (field.alias, name):
                return _model_in(field.annotation)
        return None
    return model


def _model_in(annotation: Any) -> Any:
    """The wire model inside tuple[...], X | None and the like, or None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (tuple, Union, types.UnionType):
        return next((found for argument in get_args(annotation) if (found := _model_in(argument))), None)
    return None


def _fields_of(model: type[BaseModel]) -> tuple[str, ...]:
    return tuple(field.alias or name for name, field in model.model_fields.items())


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _yaml_type(value: Any) -> str:
    if value is None:
        return "null"
    for kind, name in (
        (bool, "boolean"),
        (int, "number"),
        (float, "number"),
        (str, "string"),
        (Mapping, "mapping"),
        (list, "list"),
    ):
        if isinstance(value, kind):
            return name
    return type(value).__name__

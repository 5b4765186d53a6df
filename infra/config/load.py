"""Reads a stack file into a StackConfig; every problem that can be found in one pass, each with its path."""

from __future__ import annotations

import re
import types
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from infra.config.base import FieldError, path_of
from infra.config.cluster import StackConfig
from infra.config.document import out_of_bounds, read_yaml, unfit_values
from infra.diagnosis import Diagnosis, below, did_you_mean, shown
from infra.errors import ConfigError

CLUSTER_KEY = "numawise:cluster"
SECRET_KEYS = ("apiKey", "hubToken")  # beside the document, each numawise:NAME
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
MOST_OF_A_KIND = 20  # problems of one code in one section


def names_a_stack(text: str) -> bool:
    """Whether this can be STACK or ORGANIZATION/PROJECT/STACK: no part is empty or a way through folders."""
    return not {"", ".", ".."} & {part.strip() for part in text.split("/")}


def stack_file(stack: str, *, root: Path = Path()) -> Path:
    """The path of a stack's file."""
    name = stack.rpartition("/")[2]
    return root / STACKS_FOLDER / f"Pulumi.{name}.yaml"


def load_stack_file(path: Path) -> StackConfig:
    """A stack file or a bare cluster document, validated; ConfigError with all its problems."""
    content = read_yaml(path)
    keys = content.get("config") if isinstance(content, Mapping) else None
    unknown = list(unknown_keys(keys)) if isinstance(keys, Mapping) else []
    try:
        config = parse_cluster_document(cluster_document(content, source=str(path)))
    except ConfigError as error:
        raise ConfigError([*error.problems, *unknown]) from None
    if unknown:
        raise ConfigError(unknown)
    return config


def unknown_keys(keys: Iterable[object]) -> Iterator[Diagnosis]:
    """Keys of ours in a stack's configuration that nothing reads: a secret under a wrong name would never reach a pod."""
    known = [CLUSTER_KEY, *(f"numawise:{name}" for name in SECRET_KEYS)]
    strange = [key for key in keys if isinstance(key, str) and key.startswith("numawise:") and key not in known]
    for key in strange[:MOST_OF_A_KIND]:
        hint = (
            did_you_mean(key.removeprefix("numawise:"), [name.removeprefix("numawise:") for name in known])
            or f" Known are {', '.join(known)}."
        )
        yield Diagnosis(below("", key).removeprefix("."), "UnknownKey", f"is no known key of the stack's configuration.{hint}")


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
    if problem := out_of_bounds(document, CLUSTER_KEY):
        raise ConfigError([problem])
    problems = list(_secure_values(document, ""))
    if problems:
        raise ConfigError(problems)
    if not isinstance(document, Mapping):
        raise ConfigError.one(
            "WrongType", CLUSTER_KEY, f"is a {_yaml_type(document)}; it has to be a mapping with nodePools and models"
        )
    unfit = {problem.path: problem for problem in unfit_values(document)}
    try:
        config = StackConfig.model_validate(document)
    except ValidationError as error:
        found = [_problem(detail, document) for detail in _worth_telling(error.errors(include_url=False))]
        raise ConfigError(_first([*found, *(unfit[path] for path in unfit.keys() - {problem.path for problem in found})])) from None
    except RecursionError:
        raise ConfigError.one("WrongType", CLUSTER_KEY, "is nested too deeply") from None
    if unfit:
        raise ConfigError(_first([*unfit.values()]))
    return config


def _worth_telling(details: Sequence[Any]) -> Iterator[Any]:
    """Without what another error says better: a list whose entries are all wrong counts as too short for pydantic."""
    above = {detail["loc"][:length] for detail in details for length in range(len(detail["loc"]))}
    return (detail for detail in details if detail["type"] != "too_short" or detail["loc"] not in above)


def _first(problems: Sequence[Diagnosis]) -> Iterator[Diagnosis]:
    """The problems, of each kind at each place no more than a person reads, and how many there are besides."""
    told: Counter[tuple[str, str]] = Counter()
    for problem in problems:
        place = (re.sub(r"(\.[^.]*|\[\d+\])$", "", problem.path) if "." in problem.path else CLUSTER_KEY, problem.code)
        told[place] += 1
        if told[place] <= MOST_OF_A_KIND:
            yield problem
    for (path, code), number in told.items():
        if number > MOST_OF_A_KIND:
            yield Diagnosis(path, code, f"has {number - MOST_OF_A_KIND:,} more problems of this kind")


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
            yield from _secure_values(item, below(path, key))
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
        remedy = did_you_mean(location[-1], known) or f" Known here: {', '.join(sorted(known))}." if known else ""
        return Diagnosis(path=path, code="UnknownKey", message=f"is no known key.{remedy}")
    if kind == "missing":
        return Diagnosis(path=path, code="MissingKey", message="is missing")
    if kind == "value_error":
        error = context.get("error")
        if isinstance(error, FieldError):
            path = below(path, error.field)
        return Diagnosis(path=path, code="InvalidValue", message=str(error or detail["msg"]))
    if kind == "literal_error":
        allowed = [word.strip(" '") for word in str(context.get("expected", "")).replace(" or ", ", ").split(",")]
        return Diagnosis(
            path=path,
            code="InvalidValue",
            message=f"{shown(value)} is not one of {', '.join(allowed)}.{did_you_mean(value, allowed)}",
        )
    if kind in ("greater_than_equal", "greater_than", "less_than_equal", "less_than"):
        return Diagnosis(
            path=path,
            code="InvalidValue",
            message=f"{shown(value)} is out of range: {detail['msg'].removeprefix('Input should be ')}",
        )
    if kind == "too_short":
        return Diagnosis(
            path=path,
            code="InvalidValue",
            message=f"has {context.get('actual_length')} entries; it needs at least {context.get('min_length')}",
        )
    wanted = _WANTED.get(kind) or detail["msg"].removeprefix("Input should be a valid ").removeprefix("Input should be ")
    return Diagnosis(path=path, code="WrongType", message=f"{shown(value)} is a {_yaml_type(value)}; it has to be a {wanted}")


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

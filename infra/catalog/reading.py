"""Reads the catalog's YAML through its pydantic models; what is wrong becomes one Diagnosis each, all of them found in one pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from infra.config.base import path_of
from infra.diagnosis import Diagnosis, did_you_mean, shown
from infra.errors import ConfigError

_WANTED = {
    "model_type": "a map of fields",
    "dict_type": "a map of fields",
    "tuple_type": "a list",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "a text",
    "bool_type": "true or false",
}

AnyModel = TypeVar("AnyModel", bound=BaseModel)


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


def parse_yaml(text: str | bytes, name: str) -> Any:
    """YAML through libyaml (the pure Python loader costs ten times as much); ConfigError names the line."""
    try:
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise ConfigError([Diagnosis(path=name, code="InvalidYaml", message=" ".join(str(error).split()))]) from None


def read(model: type[AnyModel], raw: object, path: str, problems: list[Diagnosis]) -> AnyModel | None:
    """`raw` as a `model`; what is wrong is added to `problems`, and a null value counts as absent.

    What is wrong is then left out, so that rules over several fields still see the rest; None where that is too little.
    """
    told: list[Diagnosis] = []
    value = raw
    while True:
        try:
            entry = model.model_validate(value, by_alias=True, by_name=False)
        except ValidationError as error:
            details = error.errors(include_url=False)
            nulls = [d["loc"] for d in details if d["loc"] and d["input"] is None and d["type"] != "extra_forbidden"]
            if not nulls and not told:
                told = [_problem(detail, path, value, model) for detail in details]
            wrong = nulls or [d["loc"] for d in details if d["loc"] and d["type"] != "missing"]
            if not wrong:
                entry = None
            else:
                value = _without(value, wrong)
                continue
        problems += told
        return entry


def read_whole(model: type[AnyModel], document: Mapping[str, Any], name: str) -> AnyModel:
    """The content of a file that is one record, without what all files have; ConfigError with everything that is wrong."""
    problems: list[Diagnosis] = []
    content = {key: value for key, value in document.items() if key not in ("schemaVersion", "sources")}
    record = read(model, content, name, problems)
    if record is None or problems:
        raise ConfigError(problems)
    return record


def _problem(detail: Any, path: str, document: Any, model: type[BaseModel]) -> Diagnosis:
    """One pydantic error in the catalog's words."""
    location, kind, value = detail["loc"], detail["type"], detail.get("input")
    where = path_of((path, *location)) if path else path_of(location)
    context = detail.get("ctx") or {}
    code, message = "InvalidValue", f"{detail['msg']}."
    if kind in ("extra_forbidden", "missing"):
        owner = _at(document, location[:-1])
        fields = _fields_at(model, location[:-1])
        given = set(map(str, owner)) if isinstance(owner, Mapping) else set()
        if kind == "extra_forbidden":
            code, message = "UnknownField", f"is no field here.{did_you_mean(location[-1], fields)}"
        else:
            near = did_you_mean(location[-1], given - set(fields))
            code, message = "MissingField", f"is missing.{near}" if near else "is missing; it is needed here."
    elif kind in _WANTED:
        echo = "" if kind in ("model_type", "dict_type") else f" ({shown(value)})"
        message = f"is {type_name(value)}{echo}; {_WANTED[kind]} is expected."
    elif kind == "greater_than_equal":
        least = str(context["ge"]).removesuffix(".0")
        message = f"is {value}; at least {least} is expected."
    elif kind == "less_than_equal":
        message = f"is {value}; at most {context['le']} is expected."
    elif kind == "literal_error":
        known = [word.strip(" '") for word in str(context["expected"]).replace(" or ", ", ").split(",")]
        message = f"is {shown(value)}; one of {', '.join(known)} is expected.{did_you_mean(value, known)}"
    elif kind == "value_error":
        message = f"{context['error']}."
    return Diagnosis(path=where, code=code, message=message)


def _at(document: Any, location: Sequence[str | int]) -> Any:
    for part in location:
        document = document[part]
    return document


def _fields_at(model: Any, location: Sequence[str | int]) -> tuple[str, ...]:
    """The field names, as they are written, of the model at `location` inside `model`."""
    for part in location:
        if isinstance(part, str):
            model = next(_inner(field.annotation) for field in model.model_fields.values() if field.alias == part)
    return tuple(field.alias or name for name, field in model.model_fields.items())


def _inner(annotation: Any) -> Any:
    """What stands inside tuple[...] and X | None: a model, or the annotation itself."""
    for argument in get_args(annotation):
        found = _inner(argument)
        if isinstance(found, type) and issubclass(found, BaseModel):
            return found
    return annotation


def _without(document: Any, locations: Sequence[Sequence[str | int]]) -> Any:
    """A copy without the values at these places; positions in lists are taken from the end, so that the others stay true."""
    document = deepcopy(document)
    for location in sorted(locations, key=lambda loc: [(isinstance(part, str), part) for part in loc], reverse=True):
        *above, last = location
        owner: Any = _at(document, above)
        if isinstance(owner, dict) and last not in owner:  # a problem of a mapping's key
            last = above[-1]
            owner = _at(document, above[:-1])
        del owner[last]
    return document


def has_field(model: type[BaseModel], path: str) -> bool:
    """Whether `memory.torchGib` names a field of an entry; what lies below a free map is not known."""
    inside: Any = model
    for part in path.split("."):
        name = part.partition("[")[0]
        if not (isinstance(inside, type) and issubclass(inside, BaseModel)):
            return get_origin(inside) in (dict, Mapping)
        inside = next((_inner(field.annotation) for field in inside.model_fields.values() if field.alias == name), None)
        if inside is None:
            return False
    return True

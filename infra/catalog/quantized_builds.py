"""Quantised builds of known models: a hub name that ends in a known scheme, before it the name of a model of the catalog."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

from pydantic import Field

from infra.catalog.entries import DATA, Entries, Entry, as_it_is
from infra.catalog.types import Model
from infra.config.base import Texts


class Scheme(Entry):
    """How publishers name one kind of quantised build, and its usual quantization_config."""

    suffix: str = Field(description="Regular expression of the end of a hub name, in any case.")
    organizations: Texts = Field(default=(), description="Publishers that mean this by it; left out: all others.")
    config: dict[str, Any] = Field(description="quantization_config of config.json.")
    dtype: str | None = Field(default=None, description="torch_dtype where it is not the base's.")

    def base_of(self, name: str) -> str | None:
        """The name of the unquantised model, without its organisation; None where `name` is no such build."""
        organization, _, short = name.rpartition("/")
        if self.organizations and organization.lower() not in {known.lower() for known in self.organizations}:
            return None
        found = re.search(rf"(?:{self.suffix})$", short, re.IGNORECASE)
        return short[: found.start()] if found and found.start() else None


@cache
def schemes() -> Entries[Scheme, Scheme]:
    """All schemes, in the order in which they are tried."""
    return Entries(DATA / "quantized_builds.yaml", "schemes", Scheme, as_it_is)


# What in a hub name says that its weights are not the publisher's own: schemes, their bit widths, and formats of other engines.
_MARKS = re.compile(
    r"(?<![a-z0-9])((?:nv|mx)?(?:fp|int)\d+|w\d+a\d+|awq|gptq|bnb|\d+ ?bit|gguf|ggml|exl\d|mlx|q\d[a-z0-9_]*)(?![a-z0-9])"
)


def marks_of(name: str) -> frozenset[str]:
    """The words of a hub name that tell how its weights are stored: {"fp8"} of Qwen/Qwen3-8B-FP8, empty where nothing says so."""
    return frozenset(_MARKS.findall(name.rpartition("/")[2].lower()))


def scheme_of(name: str) -> Scheme | None:
    """The scheme that a hub name ends in, whatever stands before it."""
    return next((scheme for scheme in schemes().values() if scheme.base_of(name) is not None), None)


def quantized_build(name: str, find: Callable[[str], tuple[Model, ...]]) -> Model | None:
    """The model that `name` is a quantised build of, with the scheme's usual quantization_config.

    `find` gives the catalog's models of a name. None where the base is not known, is ambiguous, or is quantised itself.
    """
    scheme = scheme_of(name)
    base = None if scheme is None else scheme.base_of(name)
    found = find(base) if base else ()
    if scheme is None or len(found) != 1 or "quantization_config" in found[0].config:
        return None
    config = {**found[0].config, "quantization_config": dict(scheme.config)}
    if scheme.dtype is not None:
        config["torch_dtype"] = scheme.dtype
    return found[0].model_copy(
        update={
            "id": name,
            "aliases": (),
            "config": config,
            "published_parameters": None,
            "confidence": scheme.confidence,
            "unverified": ("config.quantization_config",),
            "note": f"the usual {scheme.id} build of {found[0].id}; its own config.json was not read",
        }
    )

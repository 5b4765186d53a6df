"""What each platform's installer writes into the kubelet configuration of its nodes: the base below every drop-in of ours."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import Field, model_validator

from infra.catalog.entries import DATA, Entries, Entry, as_it_is
from infra.config.base import Texts


class PlatformEntry(Entry):
    """One platform; `id` is the `platform` of its node pools."""

    written_by: str = Field(description="What writes the base file, as it is called.")
    base: dict[str, Any] | None = Field(
        default=None,
        description="The KubeletConfiguration fields of a worker that matter to a plan or that a drop-in could contradict.",
    )
    same_as: str | None = Field(default=None, description="The platform whose base holds here too, instead of `base`.")
    varies: Texts = Field(
        default=(), description="Fields that it sets by machine, cluster or version, so that no value can be recorded."
    )

    @model_validator(mode="after")
    def _one_base(self) -> PlatformEntry:
        if (self.base is None) == (self.same_as is None):
            raise ValueError("give base or sameAs, one of the two")
        return self


@cache
def platforms() -> Entries[PlatformEntry, PlatformEntry]:
    """All platforms by id."""
    return Entries(DATA / "platforms.yaml", "platforms", PlatformEntry, as_it_is)


def base_of(platform: str) -> Mapping[str, Any]:
    """The recorded kubelet configuration of a platform's nodes, without apiVersion and kind."""
    entry = platforms()[platform]
    return base_of(entry.same_as) if entry.same_as is not None else entry.base or {}


def varying_of(platform: str) -> tuple[str, ...]:
    """Fields that its installer sets to values which nobody can know before the node is there."""
    entry = platforms()[platform]
    return varying_of(entry.same_as) if entry.same_as is not None else tuple(entry.varies)

"""What a stack consists of, as data: parts, and the objects of each. Render says what; the components add identity, order and options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.kinds import kind_of
from infra.render.manifest import Manifest


@dataclass(frozen=True, kw_only=True)
class Wait:
    """How long the engine waits for an object, in seconds, and what it takes for ready."""

    create_seconds: int
    update_seconds: int
    delete_seconds: int = 600
    explain: bool = True  # where the provider's wait fails, the workload's pods and events say why
    program: bool = (
        False  # the program itself waits for the workload, or for the one that this object belongs to: the provider does not
    )


@dataclass(frozen=True, kw_only=True)
class Object:
    """One object of a part. Its resource is named PART-`name`, or `resource_name` where it outlives the part's name."""

    manifest: Manifest
    name: str
    retain: bool = False  # destroy leaves it: something of others may lie in it
    wait: Wait | None = None
    patch: bool = False  # fields that we add to an object that is not ours; never created or deleted
    resource_name: str = ""
    earlier_names: tuple[str, ...] = ()  # under which the state may hold the resource
    released: bool = False  # what it patched is gone: kept as it was, and forgotten without a call
    secret_keys: tuple[str, ...] = ()  # of a Secret: the keys whose values the engine alone holds


@dataclass(frozen=True, kw_only=True)
class Part:
    """Objects that belong together, shown as one component: `facts` are what an operator decides on, at most ten."""

    token: str  # numawise:gpu:DevicePlugin
    name: str
    facts: Mapping[str, Any]
    children: tuple[Object, ...]
    after: tuple[str, ...] = ()  # keys of the parts that have to be there first

    @property
    def key(self) -> str:
        """`DevicePlugin:h100`: what `after` of other parts names."""
        return key_of_part(self.token, self.name)

    def resource_name(self, child: Object) -> str:
        """What the engine knows an object of this part by."""
        return child.resource_name or f"{self.name}-{child.name}"


def key_of_part(token: str, name: str) -> str:
    return f"{token.rpartition(':')[2]}:{name}"


def child(manifest: Manifest, *, name: str = "", **options: Any) -> Object:
    """An object named by its kind."""
    return Object(manifest=manifest, name=name or manifest["kind"].lower(), **options)


def in_apply_order(children: tuple[Object, ...]) -> tuple[Object, ...]:
    """Accounts and ConfigMaps before what uses them; the order of the table of kinds, else as given."""
    return tuple(sorted(children, key=lambda one: kind_of(one.manifest).order))

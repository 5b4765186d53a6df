"""A manifest as a typed resource of pulumi_kubernetes; a kind without a type becomes a CustomResource."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes

from infra.kinds import Kind, key_of, kind_of
from infra.render.manifest import Manifest

_FORCE = "pulumi.com/patchForce"


def apply(
    name: str, manifest: Manifest, opts: pulumi.ResourceOptions, *, patch: bool = False, adopt: Collection[str] = ()
) -> pulumi.CustomResource:
    """One resource for one object. Only top-level keywords are snake_case; what is nested stays as Kubernetes writes it.

    `patch`: fields of an object that is not ours. `adopt` are the objects (Kind/namespace/name) whose fields are taken from whoever set
    them: with server-side apply the first update of somebody else's object would end in a conflict.
    """
    content: dict[str, Any] = dict(manifest)
    if str(key_of(manifest)) in adopt:
        metadata = manifest["metadata"]
        content["metadata"] = {**metadata, "annotations": {**metadata.get("annotations", {}), _FORCE: "true"}}
    api_version, kind = content.pop("apiVersion"), content.pop("kind")
    row = kind_of(manifest)
    if not row.builtin:
        return kubernetes.apiextensions.CustomResource(name, api_version=api_version, kind=kind, opts=opts, **content)
    typed = _type_of(row, patch=patch)
    return typed(name, opts=opts, **{_snake_case(key): value for key, value in content.items()})


def _type_of(row: Kind, *, patch: bool = False) -> type[pulumi.CustomResource]:
    """`kubernetes.rbac.v1.Role` of rbac.authorization.k8s.io/v1. Attribute access is lazy: only the modules of the kinds that a stack uses are imported."""
    group = getattr(kubernetes, row.group.split(".")[0] or "core")
    return getattr(getattr(group, row.version), f"{row.kind}Patch" if patch else row.kind)


def _snake_case(key: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", key).lower()

"""Forms that earlier releases gave a model's pods and that change nothing of what the pods do: a running workload keeps them until its next real change.

A new pod template restarts every pod of a model, which takes minutes and its caches: no new release is worth that where nothing else has changed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from infra.diagnosis import Diagnosis
from infra.kinds import ObjectKey, key_of
from infra.plan.model import ClusterPlan, ModelPlan
from infra.render import names
from infra.render.labels import CHECKSUM, CREDENTIALS_CHECKSUM
from infra.render.manifest import Manifest
from infra.render.part import Part, key_of_part
from infra.render.serving.model import MODEL_TOKEN, pod_templates
from infra.units import parse_quantity

_BLOCK_SIZE = "--block-size"


@dataclass(frozen=True, kw_only=True)
class Live:
    """One pod template as it runs. `ready`: whether a replica of the workload serves with it."""

    template: Mapping[str, Any]
    ready: bool


EarlierForm = Callable[[ModelPlan, dict[str, Any], Live], str]
"""Puts it into a planned template where the live one has it, and says what it has put there; empty where it has done nothing."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A workload as it is declared while it keeps earlier forms."""

    key: ObjectKey
    manifest: Manifest
    why: Diagnosis


def _gate_checksum(model: ModelPlan, planned: dict[str, Any], live: Live) -> str:
    """Of the gate's files, which each container reads when it starts."""
    found = (live.template.get("metadata", {}).get("annotations") or {}).get(CHECKSUM)
    if found is None:
        return ""
    _annotate(planned, CHECKSUM, found)
    return f"the annotation {CHECKSUM}"


def _block_size(model: ModelPlan, planned: dict[str, Any], live: Live) -> str:
    """The default that was stated on NVIDIA: the running server took it, and the plan counts with the same.

    A server that never became ready may have failed for it: the size rules out attention backends.
    """
    main, running = _main_container(planned), _main_container(live.template)
    expected = [_BLOCK_SIZE, str(model.memory.estimate.block_size)]
    words = list(running.get("args") or ())
    place = words.index(_BLOCK_SIZE) if _BLOCK_SIZE in words else len(words)
    if model.resources.vendor != "nvidia" or _BLOCK_SIZE in main["args"] or words[place : place + 2] != expected or not live.ready:
        return ""
    main["args"] = [*main["args"][:place], *expected, *main["args"][place:]]
    return " ".join(expected)


EARLIER_FORMS: tuple[EarlierForm, ...] = (_gate_checksum, _block_size)


def kept_workloads(
    plan: ClusterPlan, parts: Iterable[Part], live: Mapping[ObjectKey, Mapping[str, Any]], *, credentials: str
) -> tuple[Kept, ...]:
    """Models whose pods differ from the plan by earlier forms alone.

    `live`: what this stack's own manager has set of each workload, with its status. `credentials`: the checksum that the engine puts
    on every template, empty where the stack holds no secrets.
    """
    models = {key_of_part(MODEL_TOKEN, names.identity(plan, model)): (index, model) for index, model in enumerate(plan.models)}
    return tuple(
        kept
        for part in parts
        if part.key in models
        for child in part.children
        if pod_templates(child.manifest) and (running := live.get(key_of(child.manifest))) is not None
        if (kept := _kept(*models[part.key], child.manifest, running, credentials)) is not None
    )


def with_kept(parts: Iterable[Part], kept: Sequence[Kept]) -> tuple[Part, ...]:
    """The parts with the kept workloads in place of the planned ones."""
    manifests = {one.key: one.manifest for one in kept}
    return tuple(
        replace(
            part,
            children=tuple(
                replace(child, manifest=manifests.get(key_of(child.manifest), child.manifest)) if not child.patch else child
                for child in part.children
            ),
        )
        for part in parts
    )


def _kept(index: int, model: ModelPlan, planned: Manifest, running: Mapping[str, Any], credentials: str) -> Kept | None:
    manifest, ready = copy.deepcopy(planned), bool(running["status"].get("readyReplicas"))
    said: dict[str, None] = {}
    try:
        for template, live in zip(pod_templates(manifest), pod_templates(dict(running)), strict=True):
            for form in EARLIER_FORMS:
                if words := form(model, template, Live(template=live, ready=ready)):
                    said[words] = None
        same = bool(said) and _what_pods_are(manifest, credentials) == _what_pods_are(running, "")
    except (KeyError, ValueError):  # of a shape that no release gave it
        return None
    if not same:
        return None
    message = f"keeps {' and '.join(said)} of an earlier release until its next change: its pods run on, and do the same without"
    return Kept(key=key_of(planned), manifest=manifest, why=Diagnosis.info(f"models[{index}]", "KeepsEarlierForm", message))


def _annotate(template: dict[str, Any], key: str, value: str) -> None:
    """Anew: the templates of a group may share what they have in common."""
    metadata = template["metadata"]
    template["metadata"] = {**metadata, "annotations": {**metadata.get("annotations", {}), key: value}}


def _main_container(template: Mapping[str, Any]) -> dict[str, Any]:
    return next((one for one in template["spec"]["containers"] if one.get("name") == names.MAIN_CONTAINER), {})


def _what_pods_are(manifest: Mapping[str, Any], credentials: str) -> Any:
    """All of a workload whose change makes new pods, with the checksum of the stack's secrets on each template, in a form that compares."""
    spec = copy.deepcopy({key: manifest["spec"].get(key) for key in ("template", "leaderWorkerTemplate", "networkConfig")})
    for template in pod_templates({"spec": {key: value for key, value in spec.items() if value is not None}}):
        if credentials:
            _annotate(template, CREDENTIALS_CHECKSUM, credentials)
    return _comparable(spec)


def _comparable(value: Any, *, quantity: bool = False) -> Any:
    """Quantities as numbers: the API server writes them its own way."""
    if isinstance(value, Mapping):
        return {
            name: {resource: _comparable(amount, quantity=True) for resource, amount in inner.items()}
            if name in ("limits", "requests") and isinstance(inner, Mapping)
            else _comparable(inner, quantity=name == "sizeLimit")
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [_comparable(inner) for inner in value]
    return parse_quantity(value) if quantity else value

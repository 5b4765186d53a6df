"""The pod of a model: volumes, security, affinity, and the containers beside the server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from infra.plan.model import ClusterPlan, ModelPlan, PoolPlan
from infra.render import names
from infra.render.labels import HOSTNAME, KUBELET_CONFIG, selector
from infra.render.manifest import image_pull_secrets, tolerations
from infra.render.nodes import node_selector
from infra.render.serving.container import GRACE_SECONDS, equal_resources, main_container, restricted_container
from infra.render.serving.gate import gate_items
from infra.units import format_bytes

APPLICATION = "vllm"
# The user of vLLM's CUDA image, in the group that may write there; any other image takes it as a user without a name.
_USER, _GROUP = 2000, 0


def pod_spec(plan: ClusterPlan, model: ModelPlan, *, secrets: tuple[str, ...]) -> dict[str, Any]:
    """The pod as a Deployment would have it."""
    pool = plan.pool(model.node_pool)
    security: dict[str, Any] = {
        "runAsNonRoot": True,
        "runAsUser": _USER,
        "runAsGroup": _GROUP,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if model.resources.vendor == "amd" and pool.device_plugin.device_groups:
        # /dev/kfd and /dev/dri/renderD* belong to groups whose numbers differ from host to host.
        security["supplementalGroups"] = list(pool.device_plugin.device_groups)
    pod: dict[str, Any] = {
        "serviceAccountName": names.workload(model),
        "automountServiceAccountToken": False,
        "imagePullSecrets": image_pull_secrets(plan),
        # A Service called vllm would give the server VLLM_PORT=tcp://..., which it reads as its own.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": security,
        "nodeSelector": node_selector(pool),
        "tolerations": tolerations([pool]),
        "affinity": _affinity(model, pool),
        "containers": [main_container(model, secrets), *(_companion(model, container) for container in model.resources.sidecars)],
        "volumes": [
            {"name": names.MODELS_VOLUME, "persistentVolumeClaim": _claim(model)},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": format_bytes(model.resources.shared_memory_bytes)}},
            {"name": "cache", "emptyDir": {}},
            {"name": "gate", "configMap": {"name": names.gate(model), "items": gate_items(model)}},
        ],
    }
    if model.resources.init_containers:
        pod["initContainers"] = [_companion(model, container) for container in model.resources.init_containers]
    return {key: value for key, value in pod.items() if value not in ({}, [])}


def _claim(model: ModelPlan) -> dict[str, Any]:
    """Read-only for the whole pod, unless a container beside the server mounts it to write; the server's own mount is read-only in any case."""
    beside = (*model.resources.init_containers, *model.resources.sidecars)
    mounts = [mount for container in beside for mount in container.get("volumeMounts") or ()]
    written = any(mount.get("name") == names.MODELS_VOLUME and mount.get("readOnly") is not True for mount in mounts)
    claim: dict[str, Any] = {"claimName": model.engine.storage.existing_claim}
    return claim if written else {**claim, "readOnly": True}


def _affinity(model: ModelPlan, pool: PoolPlan) -> dict[str, Any]:
    affinity: dict[str, Any] = {}
    if pool.nodes.names_given:
        # The pod waits for a node that runs its own plan's kubelet configuration, instead of being refused by one that does not.
        configured = {"key": KUBELET_CONFIG, "operator": "In", "values": [pool.kubelet.config_hash]}
        affinity["nodeAffinity"] = {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [configured]}]}
        }
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": selector(APPLICATION, model.name)}}
    if model.placement.pod_anti_affinity == "required":
        affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    elif model.placement.pod_anti_affinity == "preferred":
        affinity["podAntiAffinity"] = {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]
        }
    return affinity


def _companion(model: ModelPlan, container: Mapping[str, Any]) -> dict[str, Any]:
    """A user's init container or sidecar: within restricted Pod Security, without GPUs, and Guaranteed where it gives limits."""
    companion: dict[str, Any] = json.loads(json.dumps(container))
    companion["securityContext"] = {**restricted_container(), **companion.get("securityContext", {})}
    resources = companion.get("resources") or {}
    if resources.get("limits") and not resources.get("requests"):
        companion["resources"] = {**resources, **equal_resources(resources["limits"])}
    if model.resources.vendor == "nvidia" and model.resources.resource_name not in (resources.get("limits") or {}):
        # An NVIDIA image without a GPU request would see every GPU of the machine.
        others = [entry for entry in companion.get("env", ()) if entry.get("name") != "NVIDIA_VISIBLE_DEVICES"]
        companion["env"] = [*others, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    return companion

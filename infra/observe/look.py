"""Looks at a cluster once, read only, and returns a ClusterObservation."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from infra.errors import MissingError
from infra.kinds import ObjectKey
from infra.observe.client import ApiError, Client
from infra.observe.leader_worker_sets import observe_group_controller
from infra.observe.model import ClusterObservation, ObservedNode, ObservedPlugin, ObservedPod
from infra.observe.node_fit import Taint, matches
from infra.plan.model import ClusterPlan
from infra.units import format_millicpu, parse_millicpu

# Part of the image names of the device plugins of both vendors, their operators' and the clouds' copies included.
_PLUGIN_IMAGES = ("k8s-device-plugin", "nvidia-gpu-device-plugin", "amdgpu-device-plugin")
_AT_A_TIME = 16
OBSERVED_KUBELET_CONFIG = (
    "numawise.dev/observed-kubelet-config"  # node annotation: the kubelet's configuration (what configz answers) as JSON
)


def observe(plan: ClusterPlan, client: Client, wanted: Iterable[ObjectKey]) -> ClusterObservation:
    """Lists nodes, pods, claims and the objects that the plan would create; MissingError where the cluster is unreachable."""
    version = _version(client)
    raw_nodes = list(client.list("/api/v1/nodes"))
    planned = _planned(plan, raw_nodes)
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        nodes = tuple(pool.map(lambda raw: _node(client, raw, raw["metadata"]["name"] in planned), raw_nodes))
        found = dict(zip(wanted := tuple(wanted), pool.map(lambda key: _labels(client, key), wanted), strict=True))
    names = {plan.namespace.name, plan.system_namespace, *(model.namespace for model in plan.models)}
    namespaces = {
        name: labels
        for name in sorted(names)
        if (labels := _labels(client, ObjectKey(kind="Namespace", namespace="", name=name))) is not None
    }
    pods = tuple(pod for raw in client.list("/api/v1/pods") if (pod := _pod(raw, planned)) is not None)
    return ClusterObservation(
        server_version=version,
        nodes=nodes,
        pods=pods,
        objects={key: labels for key, labels in found.items() if labels is not None},
        namespaces=namespaces,
        claims=_claims(client, {(m.namespace, m.engine.storage.existing_claim) for m in plan.models}),
        secrets=_secrets(client, {(m.namespace, m.engine.credentials_secret) for m in plan.models if m.engine.credentials_secret}),
        device_plugins=tuple(_plugins(client)),
        group_controller=observe_group_controller(client)
        if any(model.parallelism.pods_per_replica > 1 for model in plan.models)
        else None,
    )


def _planned(plan: ClusterPlan, nodes: Iterable[Mapping[str, Any]]) -> set[str]:
    """The nodes of the plan: by name, or all that a pool's selector matches."""
    names = {name for pool in plan.node_pools if pool.nodes.names_given for name in pool.nodes.names}
    selectors = [pool.nodes.selector for pool in plan.node_pools if not pool.nodes.names_given and pool.nodes.selector]
    for raw in nodes:
        labels = raw["metadata"].get("labels") or {}
        if any(matches(selector, labels) for selector in selectors):
            names.add(raw["metadata"]["name"])
    return names


def _version(client: Client) -> str:
    answer = client.get("/version")
    if not isinstance(answer, Mapping):
        message = f"{client.server} answers no version; is it the address of an API server?"
        raise MissingError.one("NoApiServer", "connection.kubeconfig", message)
    return answer.get("gitVersion", "")


def _labels(client: Client, key: ObjectKey) -> Mapping[str, str] | None:
    found = client.find(key.path)
    return None if found is None else found["metadata"].get("labels") or {}


def _node(client: Client, raw: Mapping[str, Any], planned: bool) -> ObservedNode:
    status = raw.get("status") or {}
    ready = next((c for c in status.get("conditions") or () if c["type"] == "Ready"), {})
    kubelet, why = (
        _configuration(client, raw["metadata"]) if planned and ready.get("status") == "True" else (None, "the node is not Ready")
    )
    return ObservedNode(
        name=raw["metadata"]["name"],
        labels=raw["metadata"].get("labels") or {},
        annotations=raw["metadata"].get("annotations") or {},
        ready=ready.get("status") == "True",
        ready_message=ready.get("message", "the kubelet has not reported"),
        unschedulable=bool((raw.get("spec") or {}).get("unschedulable")),
        taints=tuple(
            Taint(key=taint["key"], effect=taint["effect"], value=taint.get("value") or "")
            for taint in (raw.get("spec") or {}).get("taints") or ()
        ),
        kubelet_version=(status.get("nodeInfo") or {}).get("kubeletVersion", ""),
        capacity=status.get("capacity") or {},
        allocatable=status.get("allocatable") or {},
        kubelet=kubelet,
        kubelet_unreadable=why,
    )


def _configuration(client: Client, metadata: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, str]:
    """The annotation, where somebody who may read the kubelet wrote what it runs; else the kubelet itself."""
    try:
        observed = json.loads((metadata.get("annotations") or {})[OBSERVED_KUBELET_CONFIG])
        if isinstance(observed, dict):
            return observed, ""
    except (KeyError, TypeError, ValueError):
        pass
    return _configz(client, metadata["name"])


def _configz(client: Client, node: str) -> tuple[Mapping[str, Any] | None, str]:
    try:
        # Without patience: the API server answers 5xx, or nothing, for a kubelet that it cannot reach.
        return client.patient(0).get(f"/api/v1/nodes/{node}/proxy/configz")["kubeletconfig"], ""
    except (MissingError, KeyError, TypeError) as error:
        return None, str(error)


def _pod(raw: Mapping[str, Any], planned: set[str]) -> ObservedPod | None:
    spec, status = raw["spec"], raw.get("status") or {}
    if spec.get("nodeName") not in planned or status.get("phase") in ("Succeeded", "Failed"):
        return None
    owner = next(iter(raw["metadata"].get("ownerReferences") or ()), {})
    return ObservedPod(
        namespace=raw["metadata"]["namespace"],
        name=raw["metadata"]["name"],
        node=spec["nodeName"],
        labels=raw["metadata"].get("labels") or {},
        qos_class=status.get("qosClass", ""),
        owner_kind=owner.get("kind", ""),
        requests=_summed_requests(spec),
    )


def _summed_requests(spec: Mapping[str, Any]) -> dict[str, str]:
    totals: dict[str, int] = {}
    for container in spec.get("containers") or ():
        for resource, quantity in ((container.get("resources") or {}).get("requests") or {}).items():
            totals[resource] = totals.get(resource, 0) + parse_millicpu(quantity)
    return {resource: format_millicpu(total) for resource, total in totals.items()}


def _claims(client: Client, wanted: set[tuple[str, str]]) -> dict[tuple[str, str], tuple[str, ...]]:
    claims: dict[tuple[str, str], tuple[str, ...]] = {}
    for namespace, name in sorted(wanted):
        found = client.find(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}")
        if found is not None:
            claims[namespace, name] = tuple(
                (found.get("status") or {}).get("accessModes") or found["spec"].get("accessModes") or ()
            )
    return claims


def _secrets(client: Client, wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], tuple[str, ...] | None]:
    found: dict[tuple[str, str], tuple[str, ...] | None] = {}
    for namespace, name in sorted(wanted):
        try:
            secret = client.find(f"/api/v1/namespaces/{namespace}/secrets/{name}")
        except ApiError as error:
            if error.status != 403:
                raise
            found[namespace, name] = None
            continue
        if secret is not None:
            found[namespace, name] = tuple(sorted(secret.get("data") or {}))
    return found


def _plugins(client: Client) -> Iterable[ObservedPlugin]:
    for raw in client.list("/apis/apps/v1/daemonsets"):
        spec = raw["spec"]["template"]["spec"]
        for container in spec.get("containers") or ():
            if any(part in container.get("image", "") for part in _PLUGIN_IMAGES):
                metadata = raw["metadata"]
                yield ObservedPlugin(
                    key=ObjectKey(kind="DaemonSet", namespace=metadata["namespace"], name=metadata["name"]),
                    image=container["image"],
                    labels=metadata.get("labels") or {},
                    pod={key: spec[key] for key in ("nodeSelector", "affinity", "tolerations") if spec.get(key)},
                )
                break

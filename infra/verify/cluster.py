"""Compares the running cluster with the plan: nodes, pods, and each pod's slot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.diagnosis import Diagnosis
from infra.errors import NumawiseError
from infra.observe.client import Client
from infra.observe.kubelet_difference import kubelet_differences
from infra.observe.look import observe
from infra.observe.model import ClusterObservation, ObservedNode
from infra.observe.refused import REJECTED, is_refused
from infra.outputs.kubelet_state import parse_cpu_manager_state, parse_memory_manager_state, read_device_checkpoint
from infra.plan.model import ClusterPlan, ModelPlan, PoolPlan
from infra.render import labels, names
from infra.units import parse_millicpu
from infra.verify.node_files import NodeFiles, read_node_files
from infra.verify.placement import NodeState, PlacedPod, RunningPod, place


@dataclass(frozen=True, kw_only=True)
class NodeCheck:
    """What was compared on one node: each check True, False, or None where it could not be read."""

    node: str
    pool: str
    checks: Mapping[str, bool | None]


@dataclass(frozen=True, kw_only=True)
class Verification:
    nodes: tuple[NodeCheck, ...]
    pods: tuple[PlacedPod, ...]
    findings: tuple[Diagnosis, ...]

    @property
    def ok(self) -> bool:
        return not any(finding.severity == "error" for finding in self.findings)


def verify_cluster(plan: ClusterPlan, client: Client, *, owner: Mapping[str, str]) -> Verification:
    """Reads nodes, pods and the kubelets' state files, and compares. Makes and deletes one short-lived pod a node."""
    seen = observe(plan, client, ())
    planned = tuple(sorted({node for pool in plan.node_pools for node in pool.nodes.names if seen.node(node) is not None}))
    files = read_node_files(client, planned, plan.system_namespace, images=plan.images, labels=owner)
    states, unreadable = parse_states(files)
    findings = list(unreadable)
    checks: list[NodeCheck] = []
    placed: list[PlacedPod] = []
    for pool in plan.node_pools:
        for name in pool.nodes.names:
            check, found = check_node(pool, name, seen, states.get(name))
            checks.append(check)
            findings += found
    for model in plan.models:
        pods, refused = running_pods(client, model)
        findings += refused + missing_pods(model, pods)
        model_pods, found = place(plan.pool(model.node_pool), model, pods, states)
        placed += model_pods
        findings += found
    return Verification(nodes=tuple(checks), pods=tuple(placed), findings=tuple(findings))


def parse_states(files: Mapping[str, NodeFiles]) -> tuple[dict[str, NodeState], list[Diagnosis]]:
    """The state files parsed; what could not be read is an error finding, since nothing is verified without them."""
    states: dict[str, NodeState] = {}
    findings: list[Diagnosis] = []
    for node, entry in files.items():
        if entry.why:
            findings.append(
                _error(
                    "NodeUnread",
                    f"nodes.{node}",
                    f"the kubelet's state on {node} could not be read: {entry.why}.",
                    f"kubectl get events -A --field-selector involvedObject.kind=Pod | grep {node}",
                )
            )
            continue
        parsed: dict[str, Any] = {}
        for key, name, parse in (
            ("cpus", "cpu_manager_state", parse_cpu_manager_state),
            ("memory", "memory_manager_state", parse_memory_manager_state),
            ("devices", "device-plugins/kubelet_internal_checkpoint", read_device_checkpoint),
        ):
            try:
                parsed[key] = parse(entry.texts[name], source=f"{node}:{name}") if name in entry.texts else None
            except NumawiseError as error:
                parsed[key] = None
                findings += [_error(p.code, p.path, p.message) for p in error.problems]
        states[node] = NodeState(node=node, **parsed)
    return states, findings


def check_node(pool: PoolPlan, name: str, seen: ClusterObservation, state: NodeState | None) -> tuple[NodeCheck, list[Diagnosis]]:
    """The four checks of one node."""
    node = seen.node(name)
    if node is None:
        finding = _error(
            "UnknownNode",
            f"nodes.{name}",
            f"{name} is no node of the cluster.",
            "Correct nodeNames, or add the node: kubectl get nodes",
        )
        return NodeCheck(
            node=name, pool=pool.name, checks={"kubelet": False, "labels": False, "devices": False, "topology": False}
        ), [finding]
    findings = [*_kubelet(pool, node), *_labels(pool, node), *_devices(pool, node), *_topology(pool, node, state)]
    failed = {finding.code for finding in findings if finding.severity == "error"}
    checks: dict[str, bool | None] = {
        "kubelet": None if node.kubelet is None else "KubeletDiffers" not in failed,
        "labels": "LabelsDiffer" not in failed,
        "devices": "DevicesDiffer" not in failed,
        "topology": None if state is None else "TopologyDiffers" not in failed,
    }
    return NodeCheck(node=name, pool=pool.name, checks=checks), findings


def _kubelet(pool: PoolPlan, node: ObservedNode) -> list[Diagnosis]:
    path = f"nodes.{node.name}"
    if node.kubelet is None:
        return [
            _error(
                "KubeletUnread",
                path,
                f"configz of {node.name} could not be read: {node.kubelet_unreadable}.",
                f"kubectl get --raw /api/v1/nodes/{node.name}/proxy/configz",
            )
        ]
    differences = kubelet_differences(pool.kubelet.drop_in, node.kubelet)
    if not differences:
        return []
    return [
        _error(
            "KubeletDiffers",
            path,
            f"the kubelet of {node.name} has drifted: {'; '.join(differences)}.",
            f"Write {names.kubelet_drop_in(pool)} again (python -m infra render) and restart the drained kubelet.",
        )
    ]


def _labels(pool: PoolPlan, node: ObservedNode) -> list[Diagnosis]:
    wanted = {labels.KUBELET_CONFIG: pool.kubelet.config_hash, labels.POOL: pool.name}
    wrong = [
        f"{key} is {node.labels.get(key, 'not set')}, planned {value}"
        for key, value in wanted.items()
        if node.labels.get(key) != value
    ]
    if not wrong:
        return []
    command = " ".join(f"{key}={value}" for key, value in wanted.items())
    return [
        _error(
            "LabelsDiffer",
            f"nodes.{node.name}",
            f"labels of {node.name}: {'; '.join(wrong)}.",
            f"pulumi up --refresh, or kubectl label --overwrite node {node.name} {command}",
        )
    ]


def _devices(pool: PoolPlan, node: ObservedNode) -> list[Diagnosis]:
    allocatable = parse_millicpu(node.allocatable.get(pool.hardware.resource_name, "0")) // 1000
    if allocatable == pool.allocatable.gpus:
        return []
    return [
        _error(
            "DevicesDiffer",
            f"nodes.{node.name}",
            f"{node.name} offers {allocatable} {pool.hardware.resource_name}, planned {pool.allocatable.gpus}.",
            f"Look at its device plugin's log: kubectl get pods -A --field-selector spec.nodeName={node.name}",
        )
    ]


def _topology(pool: PoolPlan, node: ObservedNode, state: NodeState | None) -> list[Diagnosis]:
    path, found = f"nodes.{node.name}", []
    cpus = parse_millicpu(node.capacity.get("cpu", "0")) // 1000
    planned = sum(len(numa.cpus) for numa in pool.hardware.numa_nodes)
    if cpus != planned:
        found.append(f"{cpus} CPUs, planned {planned}")
    known = {numa.id for numa in pool.hardware.numa_nodes}
    if state is not None and state.memory is not None and state.memory.nodes and set(state.memory.nodes) != known:
        found.append(f"NUMA nodes {sorted(state.memory.nodes)} in memory_manager_state, planned {sorted(known)}")
    if state is not None and state.devices is not None:
        seen = {
            numa
            for containers in state.devices.allocations.values()
            for held in containers.values()
            for numa in held.get(pool.hardware.resource_name, {})
        }
        if seen - known:
            found.append(f"devices on NUMA nodes {sorted(seen)}, planned {sorted(known)} (-1: the plugin reports none)")
    if not found:
        return []
    return [
        _error(
            "TopologyDiffers",
            path,
            f"{node.name} is not {pool.hardware.node_shape}: {'; '.join(found)}.",
            "Take the node's own facts over: python -m infra shape",
        )
    ]


def running_pods(client: Client, model: ModelPlan) -> tuple[list[RunningPod], list[Diagnosis]]:
    """The model's pods that run, and a finding for each one that a kubelet refused."""
    selector = ",".join(f"{key}={value}" for key, value in labels.selector("vllm", model.name).items())
    pods: list[RunningPod] = []
    findings: list[Diagnosis] = []
    for raw in client.list(f"/api/v1/namespaces/{model.namespace}/pods", query={"labelSelector": selector}):
        metadata, status = raw["metadata"], raw.get("status") or {}
        if status.get("phase") == "Failed":
            if is_refused(raw):
                findings.append(
                    _error(
                        "PodRefused",
                        f"pods.{metadata['name']}",
                        f"the kubelet of {raw['spec'].get('nodeName')} refused {metadata['name']}: {status.get('reason', '')}: {status['message'].removeprefix(REJECTED)}",
                        f"kubectl -n {model.namespace} delete pod {metadata['name']}",
                    )
                )
            continue
        if metadata.get("deletionTimestamp") or not raw["spec"].get("nodeName"):
            continue
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ())
        pods.append(
            RunningPod(
                name=metadata["name"],
                uid=metadata["uid"],
                node=raw["spec"]["nodeName"],
                qos_class=status.get("qosClass", ""),
                ready=ready,
            )
        )
    return pods, findings


def missing_pods(model: ModelPlan, pods: list[RunningPod]) -> list[Diagnosis]:
    """A finding where fewer pods are Ready than planned."""
    planned, ready = model.placement.replicas * model.parallelism.pods_per_replica, sum(pod.ready for pod in pods)
    if ready >= planned:
        return []
    return [
        _error(
            "PodsMissing",
            f"models.{model.name}",
            f"{ready} of {planned} pods of {model.name} are Ready.",
            f"kubectl -n {model.namespace} describe deployment {names.workload(model)}",
        )
    ]


def _error(code: str, path: str, message: str, remedy: str = "") -> Diagnosis:
    return Diagnosis(code=code, path=path, severity="error", message=message, remedy=remedy)

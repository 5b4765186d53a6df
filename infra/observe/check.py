"""check(plan, observation): what the cluster contradicts, found before anything is touched."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from infra.diagnosis import Diagnosis, did_you_mean
from infra.errors import CheckError
from infra.observe.kubelet_difference import kubelet_differences
from infra.observe.kubelet_drop_in import remedy
from infra.observe.leader_worker_sets import check_group_controller
from infra.observe.model import ClusterObservation, ObservedNode, ObservedPlugin
from infra.observe.node_fit import daemon_runs_on
from infra.observe.secrets import named_secrets
from infra.observe.taints import unnamed_taints
from infra.plan.model import ClusterPlan, PoolPlan
from infra.units import format_gib, parse_bytes, parse_millicpu

_LEVELS = ("privileged", "baseline", "restricted")
_POD_SECURITY_LABEL = "pod-security.kubernetes.io/enforce"


@dataclass(frozen=True, kw_only=True)
class Ownership:
    """By what an object or a node says that it is this stack's (made by infra/render/labels.py).

    `node_annotation`: the key under which the engine notes whose labels a node has, and this stack's value.
    """

    labels: Mapping[str, str]
    node_annotation: tuple[str, str]
    adopt: tuple[str, ...] = ()  # Kind/namespace/name of objects that this stack takes over

    def holds(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(key) == value for key, value in self.labels.items())


def check(plan: ClusterPlan, observation: ClusterObservation, ownership: Ownership) -> tuple[Diagnosis, ...]:
    """Warnings; raises CheckError with all contradictions, sorted by path."""
    problems = [
        *_version(plan, observation),
        *_nodes(plan, observation, ownership),
        *_namespaces(plan, observation),
        *_claims(plan, observation),
        *_foreign_objects(plan, observation, ownership),
        *_foreign_device_plugins(plan, observation, ownership),
        *_foreign_pods(plan, observation, ownership),
        *unnamed_taints(plan, observation),
        *named_secrets(plan, observation),
        *check_group_controller(plan, observation),
    ]
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors:
        raise CheckError(errors)
    return tuple(sorted(problems))


def _minor(version: str) -> str:
    match = re.match(r"v?(\d+\.\d+)", version)
    return match[1] if match else version


def _version(plan: ClusterPlan, seen: ClusterObservation) -> Iterator[Diagnosis]:
    server = _minor(seen.server_version)
    if server and server != plan.kubernetes_version:
        yield Diagnosis.warning(
            "kubernetesVersion",
            "ServerVersionDiffers",
            f"is {plan.kubernetes_version}, but the API server runs {seen.server_version}; set the version that the kubelets run",
        )


def _nodes(plan: ClusterPlan, seen: ClusterObservation, ownership: Ownership) -> Iterator[Diagnosis]:
    known = [node.name for node in seen.nodes]
    for pool_index, pool in enumerate(plan.node_pools):
        if not pool.nodes.names_given:
            yield Diagnosis(
                f"nodePools[{pool_index}].nodeNames",
                "NodesNotNamed",
                f"is missing: the plan counts {len(pool.nodes.names)} nodes, and existing nodes need their names, or a nodeSelector that finds them, before "
                "anything is declared on them",
            )
            continue
        for node_index, name in enumerate(pool.nodes.names):
            path = f"nodePools[{pool_index}].nodeNames[{node_index}]"
            node = seen.node(name)
            if node is None:
                have = (
                    f" The cluster has: {', '.join(known[:10])}{' ...' if len(known) > 10 else ''}."
                    if known
                    else " The cluster has no nodes."
                )
                yield Diagnosis.warning(
                    path, "UnknownNode", f"{name} is no node of the cluster.{did_you_mean(name, known) or have}"
                )
            else:
                yield from _node(plan, pool, node, path, ownership)


def _node(plan: ClusterPlan, pool: PoolPlan, node: ObservedNode, path: str, ownership: Ownership) -> Iterator[Diagnosis]:
    key, ours = ownership.node_annotation
    theirs = node.annotations.get(key, ours)
    if theirs != ours:
        yield Diagnosis(
            path,
            "NodeOfAnotherStack",
            f"the labels of {node.name} are {theirs}'s, this stack's would be {ours}'s; a node belongs to one stack: take it out of one of the two "
            "stack files and update that stack, or destroy it",
        )
    if not node.ready:
        yield Diagnosis.warning(
            path, "NodeNotReady", f"{node.name} is not Ready ({node.ready_message}); pods planned there will not start"
        )
    if node.unschedulable:
        yield Diagnosis.warning(
            path,
            "NodeCordoned",
            f"{node.name} is cordoned; run `kubectl uncordon {node.name}` or pods planned there will not start",
        )
    if node.kubelet_version and _minor(node.kubelet_version) != plan.kubernetes_version:
        yield Diagnosis(
            path,
            "KubeletVersionDiffers",
            f"{node.name} runs kubelet {node.kubelet_version}, planned {plan.kubernetes_version}; set kubernetesVersion to "
            f'"{_minor(node.kubelet_version)}" or upgrade the node',
        )
    yield from _shape(pool, node, path)
    if node.kubelet is None:
        if node.ready:
            yield Diagnosis.warning(
                path,
                "KubeletUnread",
                f"the configuration of {node.name}'s kubelet could not be read ({node.kubelet_unreadable}); admission is not proven there",
            )
        return
    differences = kubelet_differences(pool.kubelet.drop_in, node.kubelet)
    if differences:
        advice = remedy(pool, node, path.split(".")[0], plan.kubernetes_version)
        yield Diagnosis(
            path,
            "KubeletDiffers",
            f"the kubelet of {node.name} does not run the planned configuration: {'; '.join(differences)}. {advice}",
        )


def _shape(pool: PoolPlan, node: ObservedNode, path: str) -> Iterator[Diagnosis]:
    cpus = sum(len(numa_node.cpus) for numa_node in pool.hardware.numa_nodes)
    if "cpu" in node.capacity and parse_millicpu(node.capacity["cpu"]) != cpus * 1000:
        yield Diagnosis(
            path,
            "ShapeContradicted",
            f"{node.name} has {node.capacity['cpu']} CPUs, {pool.hardware.node_shape} has {cpus}; give the node's own facts as topology: (python -m infra shape)",
        )
    memory_bytes = sum(numa_node.memory_bytes for numa_node in pool.hardware.numa_nodes)
    if "memory" in node.capacity and parse_bytes(node.capacity["memory"]) < memory_bytes:
        yield Diagnosis(
            path,
            "ShapeContradicted",
            f"{node.name} has {format_gib(parse_bytes(node.capacity['memory']))}, less than the {format_gib(memory_bytes)} of {pool.hardware.node_shape}; "
            "give the node's own facts as topology: (python -m infra shape)",
        )
    gpus = sum(len(numa_node.gpus) for numa_node in pool.hardware.numa_nodes)
    reported = int(parse_millicpu(node.capacity.get(pool.hardware.resource_name, "0")) / 1000)
    if reported and reported != gpus:
        yield Diagnosis(
            path,
            "ShapeContradicted",
            f"{node.name} reports {reported} {pool.hardware.resource_name}, {pool.hardware.node_shape} has {gpus}; check the shape, or the node's devices",
        )
    if pool.hardware.product_label is not None:
        key, wanted = pool.hardware.product_label
        value = node.labels.get(key)
        if value is not None and value != wanted:
            yield Diagnosis(
                path,
                "ShapeContradicted",
                f"{node.name} is labelled {key}={value}, {pool.hardware.sku} is {wanted}; name the SKU that the node has",
            )


def _namespaces(plan: ClusterPlan, seen: ClusterObservation) -> Iterator[Diagnosis]:
    for path, name, created in _named_namespaces(plan):
        labels = seen.namespaces.get(name)
        if labels is None and not created:
            yield Diagnosis(path, "NoNamespace", f"{name} does not exist; create it, or write {{name: {name}, create: true}}")
        level = (labels or {}).get(_POD_SECURITY_LABEL, plan.namespace.pod_security)
        if level in _LEVELS and _LEVELS.index(level) > _LEVELS.index(plan.namespace.pod_security) and not created:
            yield Diagnosis(
                path,
                "PodSecurityTooStrict",
                f"{name} enforces Pod Security {level}, the planned pods need {plan.namespace.pod_security}; use another namespace or relabel it",
            )


def _named_namespaces(plan: ClusterPlan) -> Iterator[tuple[str, str, bool]]:
    yield "namespace", plan.namespace.name, plan.namespace.create
    for index, model in enumerate(plan.models):
        if model.namespace != plan.namespace.name:
            yield f"models[{index}].namespace", model.namespace, False


def _claims(plan: ClusterPlan, seen: ClusterObservation) -> Iterator[Diagnosis]:
    for index, model in enumerate(plan.models):
        path, claim = f"models[{index}].storage.existingClaim", model.engine.storage.existing_claim
        modes = seen.claims.get((model.namespace, claim))
        pods = model.placement.replicas * model.parallelism.pods_per_replica + model.placement.max_surge
        if modes is None:
            if model.namespace in seen.namespaces:
                yield Diagnosis(
                    path,
                    "NoClaim",
                    f"there is no claim {claim} in namespace {model.namespace}; create it, or name the one that holds the weights",
                )
        elif pods > 1 and not {"ReadWriteMany", "ReadOnlyMany"} & set(modes):
            yield Diagnosis(
                path,
                "ClaimNotShared",
                f"{claim} is {', '.join(modes)}, and up to {pods} pods mount it on several nodes; use a ReadWriteMany or ReadOnlyMany claim, or 1 replica without surge",
            )


def _foreign_objects(plan: ClusterPlan, seen: ClusterObservation, ownership: Ownership) -> Iterator[Diagnosis]:
    adopted = set(ownership.adopt)
    # Nodes are the cluster's; we only add labels to them. Namespaces of others are used, not taken.
    for key, labels in sorted(seen.objects.items(), key=lambda item: str(item[0])):
        if key.kind == "Node" or ownership.holds(labels) or str(key) in adopted:
            continue
        yield Diagnosis(
            str(key),
            "ForeignObject",
            f"exists and is not this stack's; Pulumi would take it over and delete it with the stack. Add {str(key)!r} to adopt: in numawise:cluster if that is wanted, or rename one of the two",
        )
    existing = {str(key) for key in seen.objects}
    for index, entry in enumerate(ownership.adopt):
        if entry not in existing:
            yield Diagnosis.warning(f"adopt[{index}]", "NothingToAdopt", f"{entry} is no object of this plan that exists")


def _foreign_device_plugins(plan: ClusterPlan, seen: ClusterObservation, ownership: Ownership) -> Iterator[Diagnosis]:
    for plugin in seen.device_plugins:
        vendor = "amd" if "amd" in plugin.image or "rocm" in plugin.image else "nvidia"
        if ownership.holds(plugin.labels):
            continue
        for index, pool in enumerate(plan.node_pools):
            if pool.hardware.vendor != vendor or pool.device_plugin.mode != "managed":
                continue
            shared = [node.name for name in pool.nodes.names if (node := seen.node(name)) and _runs_on(plugin, pool, node)]
            if shared:
                yield Diagnosis(
                    f"nodePools[{index}].devicePlugin.mode",
                    "TwoDevicePlugins",
                    f"is managed, but {plugin.key} ({plugin.image}) runs on {shared[0]}{f' and {len(shared) - 1} more' if len(shared) > 1 else ''} already; two "
                    "plugins of one vendor fight over the socket: write mode: existing, or keep that one off the pool's nodes by its node selector",
                )


def _runs_on(plugin: ObservedPlugin, pool: PoolPlan, node: ObservedNode) -> bool:
    return daemon_runs_on(plugin.pod, name=node.name, labels={**node.labels, **pool.nodes.labels}, taints=node.taints)


def _foreign_pods(plan: ClusterPlan, seen: ClusterObservation, ownership: Ownership) -> Iterator[Diagnosis]:
    for pool_index, pool in enumerate(plan.node_pools):
        nodes, declared = set(pool.nodes.names), {tenant.name for tenant in pool.co_tenants}
        for pod in seen.pods:
            if pod.node not in nodes or ownership.holds(pod.labels) or any(pod.name.startswith(name) for name in declared):
                continue
            gpus = int(parse_millicpu(pod.requests.get(pool.hardware.resource_name, "0")) / 1000)
            if gpus:
                yield Diagnosis(
                    f"nodePools[{pool_index}]",
                    "ForeignGpuPod",
                    f"pod {pod.namespace}/{pod.name} on {pod.node} holds {gpus} {pool.hardware.resource_name} that the plan counts as free; move it, or declare it under coTenants",
                )
            elif pod.qos_class == "Guaranteed" and parse_millicpu(pod.requests.get("cpu", "0")) >= 1000:
                yield Diagnosis.warning(
                    f"nodePools[{pool_index}].coTenants",
                    "UndeclaredCoTenant",
                    f"pod {pod.namespace}/{pod.name} on {pod.node} is Guaranteed with {pod.requests['cpu']} CPUs and may hold exclusive ones; declare it, so that the plan counts it",
                )

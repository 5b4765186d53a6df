"""A model as Kubernetes objects: Deployment or LeaderWorkerSet, Service, PodDisruptionBudget, NetworkPolicy, ServiceAccount and the gate's ConfigMap."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from infra.agents.source import source_of
from infra.errors import PlanError
from infra.plan.model import ClusterPlan, ModelPlan, PoolPlan
from infra.render import names
from infra.render.labels import CHECKSUM, HOSTNAME, KUBELET_CONFIG, labels, selector
from infra.render.leader_worker_set import LEADER, leader_worker_set
from infra.render.manifest import Manifest, checksum, config_map, metadata, service_account, tolerations
from infra.render.nodes import node_selector
from infra.render.vllm_container import GRACE_SECONDS, equal_resources, main_container, restricted_container
from infra.units import format_bytes

_APPLICATION = "vllm"
# The user of vLLM's CUDA image, in the group that may write there; any other image takes it as a user without a name.
_USER, _GROUP = 2000, 0


def vllm(plan: ClusterPlan, model: ModelPlan, *, secrets: Iterable[str] = ()) -> tuple[Manifest, ...]:
    """All objects of a model in apply order. `secrets`: which of `api-key` and `hub-token` the stack holds."""
    if model.pods_per_replica > 1 and model.data_parallel_size > 1:
        raise PlanError.one(
            "DataParallelOverNodes",
            f"models[{plan.models.index(model)}].dataParallelSize",
            f"is {model.data_parallel_size} over {model.pods_per_replica} pods a replica; write more replicas with dataParallelSize 1 instead",
        )
    account = service_account(names.workload(model), model.namespace, _labels(plan, model))
    gate_map = config_map(names.gate(model), model.namespace, _labels(plan, model), gate_files(plan, model))
    budget = pod_disruption_budget(plan, model)
    return (
        account,
        gate_map,
        network_policy(plan, model),
        *((budget,) if budget else ()),
        workload(plan, model, secrets=tuple(secrets)),
        service(plan, model),
    )


def _labels(plan: ClusterPlan, model: ModelPlan) -> dict[str, str]:
    return labels(stack=plan.stack, name=_APPLICATION, instance=model.name, component="inference-server")


def credentials_metadata(plan: ClusterPlan, model: ModelPlan) -> dict[str, Any]:
    """Metadata of the Secret with the model's API key and hub token. The values are the component's alone and never rendered."""
    return metadata(names.credentials(model), _labels(plan, model), namespace=model.namespace)


def secret_commands(plan: ClusterPlan, secrets: Iterable[str]) -> str:
    """How to make the Secrets by hand: their values are the engine's alone."""
    lines = [
        "# Secrets are made by the engine and never rendered. Applying the rendered objects by hand, make them first (values in place of the dots):"
    ]
    for model in plan.models:
        values = " ".join(f"--from-literal={key}=..." for key in secrets)
        lines.append(f"kubectl create secret generic {names.credentials(model)} --namespace {model.namespace} {values}")
    return "\n".join(lines) + "\n"


def endpoint(model: ModelPlan) -> dict[str, Any]:
    """Where the model answers inside the cluster."""
    return {
        "namespace": model.namespace,
        "service": names.service(model),
        "port": names.HTTP_PORT,
        "servedModelName": model.served_model_name,
        "url": f"http://{names.service(model)}.{model.namespace}.svc:{names.HTTP_PORT}/v1",
    }


def gate_files(plan: ClusterPlan, model: ModelPlan) -> dict[str, str]:
    """The gate and what it compares with. Under a policy that promises no alignment it only warns."""
    pool = plan.pool(model.node_pool)
    strict = pool.kubelet.get("topologyManagerPolicy") in ("restricted", "single-numa-node")
    binding = model.rank_binding
    slots = sorted({(slot.numa_nodes, slot.memory_numa) for group in model.slots for slot in group.slots})
    expected = {
        "model": model.name,
        "mode": "enforce" if strict else "warn",
        "vendor": model.vendor,
        "gpus": model.gpus_per_pod,
        "cpus": model.cpu,
        "exclusiveCpus": pool.kubelet.get("cpuManagerPolicy") == "static" and model.qos_class == "Guaranteed",
        "slots": [{"numaNodes": list(numa_nodes), "memoryNuma": list(memory_numa)} for numa_nodes, memory_numa in slots],
        "rankBinding": None if binding is None else {"numaNodeOfRank": list(binding.numa_node_of_rank)},
    }
    files = {"gate.py": source_of("gate"), "plan.json": json.dumps(expected, indent=1) + "\n"}
    if binding is not None:
        files["numactl.py"] = source_of("numactl")
    return files


def workload(plan: ClusterPlan, model: ModelPlan, *, secrets: tuple[str, ...] = ()) -> Manifest:
    """A Deployment where a replica is one pod, a LeaderWorkerSet where it is several."""
    pool, all_labels = plan.pool(model.node_pool), _labels(plan, model)
    object_metadata = metadata(names.workload(model), all_labels, namespace=model.namespace)
    template = {
        "metadata": {"labels": dict(all_labels), "annotations": {CHECKSUM: checksum(gate_files(plan, model))}},
        "spec": _pod(model, pool, secrets),
    }
    if model.pods_per_replica > 1:
        return leader_worker_set(model, object_metadata, template)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": object_metadata,
        "spec": {
            "replicas": model.replicas,
            "revisionHistoryLimit": 3,
            "progressDeadlineSeconds": model.progress_deadline_seconds,
            "selector": {"matchLabels": selector(_APPLICATION, model.name)},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": model.max_surge, "maxUnavailable": model.max_unavailable},
            },
            "template": template,
        },
    }


def pod_templates(manifest: Manifest) -> tuple[dict[str, Any], ...]:
    """The pod templates of a workload: one of a Deployment, the leader's and the workers' of a LeaderWorkerSet."""
    spec = manifest["spec"]
    group = spec.get("leaderWorkerTemplate")
    return (spec["template"],) if group is None else (group["leaderTemplate"], group["workerTemplate"])


def _serving_pods(model: ModelPlan) -> dict[str, str]:
    """Selects the pods that answer: of a replica over several pods, the leader."""
    return {**selector(_APPLICATION, model.name), **(LEADER if model.pods_per_replica > 1 else {})}


def _pod(model: ModelPlan, pool: PoolPlan, secrets: tuple[str, ...]) -> dict[str, Any]:
    security: dict[str, Any] = {
        "runAsNonRoot": True,
        "runAsUser": _USER,
        "runAsGroup": _GROUP,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if model.vendor == "amd" and pool.device_plugin.device_groups:
        # /dev/kfd and /dev/dri/renderD* belong to groups whose numbers differ from host to host.
        security["supplementalGroups"] = list(pool.device_plugin.device_groups)
    pod: dict[str, Any] = {
        "serviceAccountName": names.workload(model),
        "automountServiceAccountToken": False,
        # A Service called vllm would give the server VLLM_PORT=tcp://..., which it reads as its own.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": security,
        "nodeSelector": node_selector(pool),
        "tolerations": tolerations([pool]),
        "affinity": _affinity(model, pool),
        "containers": [main_container(model, secrets), *(_companion(model, container) for container in model.sidecars)],
        "volumes": [
            {"name": "models", "persistentVolumeClaim": {"claimName": model.storage.existing_claim, "readOnly": True}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": format_bytes(model.shared_memory_bytes)}},
            {"name": "cache", "emptyDir": {}},
            {"name": "gate", "configMap": {"name": names.gate(model), "items": _gate_items(model)}},
        ],
    }
    if model.init_containers:
        pod["initContainers"] = [_companion(model, container) for container in model.init_containers]
    return {key: value for key, value in pod.items() if value not in ({}, [])}


def _gate_items(model: ModelPlan) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = [{"key": name, "path": name} for name in ("gate.py", "plan.json")]
    if model.rank_binding is not None:
        items.append({"key": "numactl.py", "path": "bin/numactl", "mode": 0o555})
    return items


def _affinity(model: ModelPlan, pool: PoolPlan) -> dict[str, Any]:
    affinity: dict[str, Any] = {}
    if pool.node_names_given:
        # The pod waits for a node that runs its own plan's kubelet configuration, instead of being refused by one that does not.
        configured = {"key": KUBELET_CONFIG, "operator": "In", "values": [pool.kubelet_config_hash]}
        affinity["nodeAffinity"] = {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [configured]}]}
        }
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": selector(_APPLICATION, model.name)}}
    if model.pod_anti_affinity == "required":
        affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    elif model.pod_anti_affinity == "preferred":
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
    if model.vendor == "nvidia" and model.resource_name not in (resources.get("limits") or {}):
        # An NVIDIA image without a GPU request would see every GPU of the machine.
        others = [entry for entry in companion.get("env", ()) if entry.get("name") != "NVIDIA_VISIBLE_DEVICES"]
        companion["env"] = [*others, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    return companion


def service(plan: ClusterPlan, model: ModelPlan) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(names.service(model), _labels(plan, model), namespace=model.namespace),
        "spec": {
            "type": "ClusterIP",
            "selector": _serving_pods(model),
            "ports": [{"name": "http", "port": names.HTTP_PORT, "targetPort": "http", "protocol": "TCP", "appProtocol": "http"}],
        },
    }


def pod_disruption_budget(plan: ClusterPlan, model: ModelPlan) -> Manifest | None:
    """None for a single replica: a budget could only block the drain that a kubelet rollout needs."""
    if model.replicas < 2:
        return None
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(names.workload(model), _labels(plan, model), namespace=model.namespace),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": _serving_pods(model)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def network_policy(plan: ClusterPlan, model: ModelPlan) -> Manifest:
    """Lets the API port in and closes the ports by which vLLM's own processes talk, but to the pods of the same model."""
    pods = {"matchLabels": selector(_APPLICATION, model.name)}
    peers = [{"from": [{"podSelector": pods}]}] if model.pods_per_replica > 1 else []
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(names.workload(model), _labels(plan, model), namespace=model.namespace),
        "spec": {
            "podSelector": pods,
            "policyTypes": ["Ingress"],
            "ingress": [{"ports": [{"port": "http", "protocol": "TCP"}]}, *peers],
        },
    }

"""A model as a part: Deployment or LeaderWorkerSet, Service, PodDisruptionBudget, NetworkPolicy, ServiceAccount, Secret and the gate's ConfigMap."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from infra.kinds import ObjectKey
from infra.plan.model import ClusterPlan, ModelPlan
from infra.render import names
from infra.render.device_plugins import PLUGIN_TOKEN
from infra.render.guard import GUARD_PART
from infra.render.labels import labels, selector
from infra.render.manifest import Manifest, config_map, metadata, service_account
from infra.render.namespaces import NAMESPACES_PART
from infra.render.nodes import POOL_TOKEN
from infra.render.part import Object, Part, Wait, child, in_apply_order, key_of_part
from infra.render.serving.gate import gate_files
from infra.render.serving.leader_worker_set import LEADER, leader_worker_set
from infra.render.serving.pod import APPLICATION, pod_spec
from infra.units import format_bytes

MODEL_TOKEN = "numawise:serving:VllmDeployment"


def model_part(plan: ClusterPlan, model: ModelPlan, *, stack: str, secrets: tuple[str, ...] = ()) -> Part:
    """All objects of a model. `secrets`: which of `api-key` and `hub-token` the stack holds; their values are the engine's alone."""
    all_labels = labels(stack=stack, name=APPLICATION, instance=model.name, component="inference-server")
    return Part(
        token=MODEL_TOKEN,
        name=names.identity(plan, model),
        facts=_facts(model),
        children=in_apply_order(tuple(_children(plan, model, all_labels, secrets))),
        after=(NAMESPACES_PART, GUARD_PART, key_of_part(POOL_TOKEN, model.node_pool), key_of_part(PLUGIN_TOKEN, model.node_pool)),
    )


def _facts(model: ModelPlan) -> dict[str, Any]:
    return {
        "model": model.identity.model,
        "image": model.engine.image,
        "replicas": model.placement.replicas,
        "tensorParallelSize": model.parallelism.tensor_parallel_size,
        "pipelineParallelSize": model.parallelism.pipeline_parallel_size,
        "gpusPerPod": model.parallelism.gpus_per_pod,
        "maxModelLen": model.memory.max_model_len,
        "gpuMemoryUtilization": model.memory.gpu_memory_utilization,
        "resources": {"cpu": str(model.resources.cpu), "memory": format_bytes(model.resources.memory_bytes)},
        "numaNodes": sorted({",".join(map(str, slot.numa_nodes)) for group in model.placement.slots for slot in group.slots}),
    }


def _children(plan: ClusterPlan, model: ModelPlan, all_labels: dict[str, str], secrets: tuple[str, ...]) -> Iterable[Object]:
    wait = Wait(
        create_seconds=model.times.create_timeout_seconds,
        update_seconds=model.times.update_timeout_seconds,
        explain=False,
        program=True,
    )
    yield child(service_account(names.workload(model), model.namespace, all_labels))
    if secrets and model.engine.credentials_secret is None:
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata(names.credentials(model), all_labels, namespace=model.namespace),
        }
        yield child(secret, secret_keys=secrets)
    yield child(config_map(names.gate(model), model.namespace, all_labels, gate_files(plan, model)))
    yield child(network_policy(model, all_labels))
    if model.placement.replicas > 1:
        yield child(pod_disruption_budget(model, all_labels))
    # No checksum of the gate's files: each container reads those of the day it starts, and no new gate is worth a restart.
    template = {
        "metadata": {"labels": dict(all_labels)},
        "spec": pod_spec(plan, model, secrets=secrets),
    }
    object_metadata = metadata(names.workload(model), all_labels, namespace=model.namespace)
    if model.parallelism.pods_per_replica > 1:
        group = leader_worker_set(model, object_metadata, template)
        yield child(group, wait=wait)
    else:
        yield child(deployment(model, object_metadata, template), wait=wait)
    yield child(service(model, all_labels), wait=wait)


def deployment(model: ModelPlan, object_metadata: dict[str, Any], template: dict[str, Any]) -> Manifest:
    """A replica is one pod."""
    placement = model.placement
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": object_metadata,
        "spec": {
            "replicas": placement.replicas,
            "revisionHistoryLimit": 3,
            "progressDeadlineSeconds": model.times.progress_deadline_seconds,
            "selector": {"matchLabels": selector(APPLICATION, model.name)},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": placement.max_surge, "maxUnavailable": placement.max_unavailable},
            },
            "template": template,
        },
    }


def pod_templates(manifest: Manifest) -> tuple[dict[str, Any], ...]:
    """The pod templates of a workload: one of a Deployment, the leader's and the workers' of a LeaderWorkerSet; none of other objects."""
    spec = manifest.get("spec", {})
    group = spec.get("leaderWorkerTemplate")
    if group is not None:
        return group["leaderTemplate"], group["workerTemplate"]
    return (spec["template"],) if "template" in spec else ()


def endpoints(plan: ClusterPlan) -> dict[str, dict[str, Any]]:
    """Key of a model's part -> where the model answers."""
    return {key_of_part(MODEL_TOKEN, names.identity(plan, model)): endpoint(model) for model in plan.models}


def workloads(plan: ClusterPlan) -> dict[ObjectKey, ModelPlan]:
    """The object that runs each model, in the plan's order."""
    return {ObjectKey(kind=_kind(model), namespace=model.namespace, name=names.workload(model)): model for model in plan.models}


def identities(plan: ClusterPlan) -> dict[ObjectKey, str]:
    """The name of each model's part by the object that runs it."""
    return {key: names.identity(plan, model) for key, model in workloads(plan).items()}


def _kind(model: ModelPlan) -> str:
    return "LeaderWorkerSet" if model.parallelism.pods_per_replica > 1 else "Deployment"


def endpoint(model: ModelPlan) -> dict[str, Any]:
    """Where the model answers inside the cluster."""
    return {
        "namespace": model.namespace,
        "service": names.service(model),
        "port": names.HTTP_PORT,
        "servedModelName": model.identity.served_model_name,
        "url": f"http://{names.service(model)}.{model.namespace}.svc:{names.HTTP_PORT}/v1",
    }


def _serving_pods(model: ModelPlan) -> dict[str, str]:
    """Selects the pods that answer: of a replica over several pods, the leader."""
    return {**selector(APPLICATION, model.name), **(LEADER if model.parallelism.pods_per_replica > 1 else {})}


def service(model: ModelPlan, all_labels: dict[str, str]) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(names.service(model), all_labels, namespace=model.namespace),
        "spec": {
            "type": "ClusterIP",
            "selector": _serving_pods(model),
            "ports": [{"name": "http", "port": names.HTTP_PORT, "targetPort": "http", "protocol": "TCP", "appProtocol": "http"}],
        },
    }


def pod_disruption_budget(model: ModelPlan, all_labels: dict[str, str]) -> Manifest:
    """For several replicas: with a single one a budget could only block the drain that a kubelet rollout needs.

    Of a group every pod counts: evicting a worker costs the whole replica, and while its pods are missing no other one may go.
    """
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(names.workload(model), all_labels, namespace=model.namespace),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": selector(APPLICATION, model.name)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def network_policy(model: ModelPlan, all_labels: dict[str, str]) -> Manifest:
    """Lets the API port in and closes the ports by which vLLM's own processes talk, but to the pods of the same model."""
    pods = {"matchLabels": selector(APPLICATION, model.name)}
    peers = [{"from": [{"podSelector": pods}]}] if model.parallelism.pods_per_replica > 1 else []
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(names.workload(model), all_labels, namespace=model.namespace),
        "spec": {
            "podSelector": pods,
            "policyTypes": ["Ingress"],
            "ingress": [{"ports": [{"port": "http", "protocol": "TCP"}]}, *peers],
        },
    }


def secret_commands(plan: ClusterPlan, secrets: Iterable[str]) -> str:
    """How to make the Secrets by hand: their values are the engine's alone."""
    lines = [
        "# Secrets are made by the engine and never rendered. Applying the rendered objects by hand, make them first (values in place of the dots):"
    ]
    for model in plan.models:
        values = " ".join(f"--from-literal={key}=..." for key in secrets)
        lines.append(f"kubectl create secret generic {names.credentials(model)} --namespace {model.namespace} {values}")
    return "\n".join(lines) + "\n"

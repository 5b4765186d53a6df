"""Cluster documents drawn at random, of small machines so that hundreds plan in seconds; the same seed gives the same document."""

from __future__ import annotations

from random import Random
from typing import Any, get_args

from infra.config.pools import Platform

# A small dense model by the facts of its config.json, so that every accelerator holds it whole and by shards.
SMALL_MODEL = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "num_hidden_layers": 16,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 6144,
    "vocab_size": 151936,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": True,
}
SKUS = ("h100-sxm5-80gb", "l40s", "a100-sxm4-40gb", "mi300x")
# Those whose kubelet configuration is the plan's in every field; gke and aks decide the reservations themselves.
PLATFORMS = ("existing", "existing", "existing", "kubeadm", "eks", "rke2")
ALL_PLATFORMS = get_args(Platform)


def drawn_document(seed: int, *, platforms: tuple[str, ...] = PLATFORMS) -> dict[str, Any]:
    """A cluster document that is valid to its wire models; the plan may still refuse it."""
    draw = Random(seed)
    pools = [_pool(draw, f"pool-{index}", draw.choice(platforms)) for index in range(draw.choice((1, 1, 1, 2)))]
    return {
        "namespace": {"name": "inference", "create": draw.random() < 0.3},
        "nodePools": pools,
        "models": [_model(draw, f"model-{index}", pools) for index in range(draw.choice((1, 1, 2, 2, 3)))],
    }


def _pool(draw: Random, name: str, platform: str) -> dict[str, Any]:
    sku, numa_nodes, threads = draw.choice(SKUS), draw.choice((1, 2, 2, 2, 4)), draw.choice((1, 2, 2))
    cores, gpus = draw.choice((16, 24, 32)), draw.choice((1, 2, 2, 4))
    topology: dict[str, Any] = {
        "sku": sku,
        "threadsPerCore": threads,
        "numaNodes": [
            {
                "cpus": _cpus(node, cores, numa_nodes, threads),
                "memory": f"{draw.choice((128, 192, 256)) if numa_nodes < 4 else 128}Gi",
                "gpus": list(range(node * gpus, (node + 1) * gpus)),
                "distances": [10 if other == node else 21 for other in range(numa_nodes)],
            }
            for node in range(numa_nodes)
        ],
    }
    if sku != "h100-sxm5-80gb" and draw.random() < 0.1:
        topology |= {"virtualMachine": True, "numaInGuest": False}
    count = draw.choice((1, 2, 3))
    nodes = {"nodeNames": [f"{name}-{letter}" for letter in "abc"[:count]]} if draw.random() < 0.7 else {"nodes": count}
    return {
        "name": name,
        "platform": platform,
        "topology": topology,
        **nodes,
        "kubelet": _kubelet(draw),
        "taints": draw.choice(([], [{"key": "gpu", "effect": "NoSchedule"}])),
        "devicePlugin": {"mode": draw.choice(("managed", "managed", "existing")), "deviceGroups": [44] if sku == "mi300x" else []},
        "coTenants": [_co_tenant(draw, index) for index in range(draw.choice((0, 0, 1, 2)))],
    }


def _cpus(node: int, cores: int, numa_nodes: int, threads: int) -> str:
    """As Linux numbers them on x86: the first threads of all cores, then the second ones."""
    spans = [(thread * cores * numa_nodes + node * cores) for thread in range(threads)]
    return ",".join(f"{first}-{first + cores - 1}" for first in spans)


def _kubelet(draw: Random) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if draw.random() < 0.5:
        fields["topologyManagerPolicy"] = draw.choice(("single-numa-node", "restricted", "best-effort", "none"))
    if draw.random() < 0.25:
        fields["topologyManagerScope"] = draw.choice(("pod", "container"))
    if draw.random() < 0.25:
        fields["memoryManagerPolicy"] = draw.choice(("Static", "None"))
    if draw.random() < 0.1:
        fields["cpuManagerPolicy"] = draw.choice(("static", "none"))
    if draw.random() < 0.1:
        fields["maxPods"] = draw.choice((16, 30))
    return fields


def _co_tenant(draw: Random, index: int) -> dict[str, Any]:
    return {
        "name": f"tenant-{index}",
        "perNode": draw.choice((1, 1, 2)),
        "cpu": draw.choice(("250m", "1", "2")),
        "memory": draw.choice(("256Mi", "1Gi")),
        "qosClass": draw.choice(("Guaranteed", "Burstable", "BestEffort")),
    }


def _model(draw: Random, name: str, pools: list[dict[str, Any]]) -> dict[str, Any]:
    pool = draw.choice(pools)
    topology = pool["topology"]
    of_node = len(topology["numaNodes"][0]["gpus"])
    gpus = of_node * len(topology["numaNodes"])
    model: dict[str, Any] = {
        "name": name,
        "nodePool": pool["name"],
        "modelConfig": SMALL_MODEL,
        "maxModelLen": 2048,
        "replicas": draw.choice((1, 1, 2)),
        "podAntiAffinity": draw.choice(("required", "preferred", "none", "none")),
        "storage": {"existingClaim": "models"},
    }
    if draw.random() < 0.8:
        model["tensorParallelSize"] = draw.choice([size for size in (1, 2, 4, 8) if size <= gpus])
        if draw.random() < 0.1:
            model |= {"tensorParallelSize": gpus, "pipelineParallelSize": 2}
    if draw.random() < 0.5:
        size = model.get("tensorParallelSize", 1)
        model["resources"] = {
            "cpu": str((size + 2 + draw.choice((0, 1, 2))) * topology["threadsPerCore"]),
            "memory": f"{12 * size + 24}Gi",
        }
    if draw.random() < 0.3:
        model["strategy"] = draw.choice(({"maxSurge": 1, "maxUnavailable": 0}, {"maxSurge": 0, "maxUnavailable": 1}))
    for key, most in (("initContainers", 2), ("sidecars", 2)):
        if draw.random() < 0.35:
            model[key] = [
                _container(draw, f"{key[:4].lower()}-{index}", init=key == "initContainers")
                for index in range(draw.randint(1, most))
            ]
    return model


def _container(draw: Random, name: str, *, init: bool) -> dict[str, Any]:
    """Mostly one that leaves the pod Guaranteed; its requests are left out, partly given or given."""
    limits = {"cpu": draw.choice(("100m", "500m", "1", "2")), "memory": draw.choice(("64Mi", "1Gi"))}
    requests = draw.choice(({}, {}, {"cpu": limits["cpu"]}, dict(limits), {"memory": limits["memory"]}))
    resources = {"limits": limits, **({"requests": requests} if requests else {})}
    container: dict[str, Any] = {"name": name, "image": "busybox:1.37", "resources": resources}
    if init and draw.random() < 0.5:
        container["restartPolicy"] = "Always"
    return container

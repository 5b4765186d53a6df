"""A large cluster to plan, for `make bench`: python -m tests.plan.large_cluster POOLS MODELS NODES.

Pools take turns among five shapes, models among eight of the catalog with several contexts, replica counts and policies, so that pools are partly
alike, as in a real cluster.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from typing import Any

from infra.config.load import parse_cluster_document
from infra.plan.cluster import plan_stack

SHAPES = ("dgx-h100", "dgx-h200", "azure-nd96isr_h100_v5", "azure-nd96isr_mi300x_v5", "gcp-a3-highgpu-8g")
MODELS = (
    "meta-llama/Llama-3.1-8B-Instruct",
    "meta-llama/Llama-3.3-70B-Instruct",
    "Qwen/Qwen3-8B",
    "Qwen/Qwen2.5-72B-Instruct",
    "meta-llama/Meta-Llama-3-70B-Instruct",
)
CONTEXTS = (4096, 8192)
POLICIES: tuple[dict[str, Any], ...] = ({}, {}, {"maxPods": 60}, {"kubeReserved": {"memory": "2Gi"}}, {})


def document(pools: int, models: int, nodes: int) -> dict[str, Any]:
    """A cluster document with so many pools, models and nodes in all."""
    return {
        "namespace": "inference",
        "nodePools": [
            {"name": f"pool-{i}", "nodeShape": SHAPES[i % 5], "nodes": nodes // pools, "kubelet": POLICIES[(i // 5) % 5]}
            for i in range(pools)
        ],
        "models": [
            {
                "name": f"model-{i}",
                "nodePool": f"pool-{i % pools}",
                "model": MODELS[(i // 3) % 5],
                "replicas": 1 + i % 3,
                "maxModelLen": CONTEXTS[(i // 7) % 2],
                "storage": {"existingClaim": "models"},
            }
            for i in range(models)
        ],
    }


def measure(pools: int, models: int, nodes: int) -> dict[str, Any]:
    """CPU seconds from document to plan, and peak memory of this process."""
    given = document(pools, models, nodes)
    began = time.process_time()
    plan = plan_stack(parse_cluster_document(given))
    seconds = time.process_time() - began
    if len(plan.models) != models:
        raise AssertionError(f"{len(plan.models)} models planned of {models}")
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"pools": pools, "models": models, "nodes": nodes, "cpuSeconds": round(seconds, 3), "peakMib": round(peak_mib)}


if __name__ == "__main__":
    print(json.dumps(measure(*map(int, sys.argv[1:4]))))

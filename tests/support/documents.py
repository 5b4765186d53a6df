"""Cluster documents that tests change in one place."""

from __future__ import annotations

from typing import Any

import yaml

from infra.config.cluster import StackConfig
from infra.config.load import parse_cluster_document

SMALL = """
namespace: inference
nodePools:
  - name: h100
    nodeShape: dgx-h100
    nodeNames: [gpu-a, gpu-b]
models:
  - name: llama-70b
    nodePool: h100
    model: meta-llama/Meta-Llama-3-70B-Instruct
    replicas: 2
    tensorParallelSize: 4
    maxModelLen: 4096
    gpuMemoryUtilization: 0.9
    resources: {cpu: "32", memory: 128Gi}
    sharedMemory: 16Gi
    storage: {existingClaim: pvc-llama-models, modelPath: Meta-Llama-3-70B-Instruct}
"""


def small_document() -> dict[str, Any]:
    """A valid cluster document: one pool of two DGX H100, one model."""
    return yaml.safe_load(SMALL)


def with_change(path: str, value: Any) -> dict[str, Any]:
    """The small document with one value set; `path` as in an error message: models[0].replicas."""
    document = small_document()
    steps = path.replace("[", ".").replace("]", "").split(".")
    place: Any = document
    for step in steps[:-1]:
        place = place[int(step)] if isinstance(place, list) else place.setdefault(step, {})
    last = steps[-1]
    if isinstance(place, list):
        place[int(last)] = value
    else:
        place[last] = value
    return document


def small_config() -> StackConfig:
    """The small document, validated."""
    return parse_cluster_document(small_document())

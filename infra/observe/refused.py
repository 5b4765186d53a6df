"""Pods that a kubelet refused. Their Deployment makes the next one at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# What a kubelet writes before its reason into each pod that it refuses, whatever the reason (rejectPod, pkg/kubelet/kubelet.go,
# 1.33 to 1.37). infra/agents/guard.py, which may import nothing, has its own copy; a test compares the two.
REJECTED = "Pod was rejected: "

_MEANINGS = {
    "TopologyAffinityError": "the kubelet's topology manager found no NUMA nodes that hold all its resources",
    "UnexpectedAdmissionError": "a resource manager of the kubelet failed; often the device plugin is not registered or a device is gone",
    "SMTAlignmentError": "its CPU count is no multiple of the threads of a core (full-pcpus-only)",
    "NodeAffinity": "the node's labels changed after scheduling",
    "Evicted": "the node is short of memory, disk or process ids",
    "NodeShutdown": "the node shuts down",
}


def is_refused(pod: Mapping[str, Any]) -> bool:
    """Whether a kubelet refused the pod. One that was admitted and failed later (evicted, ended at shutdown) is none."""
    status = pod.get("status") or {}
    return status.get("phase") == "Failed" and (status.get("message") or "").startswith(REJECTED)


def meaning(reason: str) -> str:
    """What a refusal's reason means; empty for one that speaks for itself in its message."""
    if reason.startswith("OutOf"):
        return f"{reason.removeprefix('OutOf')} ran out there"
    return _MEANINGS.get(reason, "")

"""What the API server fills in of spec.resources before a kubelet sees the pod (podutil.DefaultPodLevelResources, apis/core/v1/defaults.go)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from infra.kubelet.configuration.versions import VersionRules
from infra.kubelet.pods import Pod, aggregate
from infra.kubelet.resource_names import HUGEPAGES_PREFIX, is_pod_level_resource


def with_pod_level_defaults(pod: Pod, rules: VersionRules, *, fixed: bool) -> Pod:
    """The pod with requests and limits of the pod level completed from those of its containers; the same pod where it names none.

    `fixed`: as since 1.37 (gate PodLevelResourcesFixDefaulting); before, requests were filled in only where there were limits, and limits of
    CPU and memory not at all.
    """
    if not pod.pod_requests and not pod.pod_limits:
        return pod
    requests, limits, int64 = dict(pod.pod_requests or {}), dict(pod.pod_limits or {}), dict(pod.pod_int64)
    container_limits = aggregate([c.limits for c in pod.containers], pod.init_containers, requests=False)
    for name, amount in container_limits.items():
        if name.startswith(HUGEPAGES_PREFIX) and not (rules.pod_level_covers_only_named and name in requests):
            limits.setdefault(name, amount)
    if fixed or limits:
        container_requests = aggregate([c.requests for c in pod.containers], pod.init_containers, requests=True)
        for name, amount in container_requests.items():
            if name in ("cpu", "memory") and name not in requests:
                requests[name], int64[name] = amount, _whole_number(pod, name, amount)
        for name, amount in limits.items():
            if is_pod_level_resource(name) and name not in requests:
                requests[name], int64[name] = amount, pod.pod_limits_int64.get(name, _whole_number(pod, name, amount))
    if fixed:
        for name, amount in requests.items():
            limited = all(name in container.limits for container in pod.all_containers)
            if is_pod_level_resource(name) and name not in limits and name in container_limits and limited:
                limits[name] = max(amount, container_limits[name])
    return replace(pod, pod_requests=requests, pod_limits=limits, pod_int64=int64)


def _whole_number(pod: Pod, name: str, total: int) -> int | None:
    """A sum over containers as an int64; None where one of the amounts is none (a sum with a decimal inside is a decimal)."""
    amounts: list[Mapping[str, int | None]] = [container.int64 for container in pod.all_containers if name in container.requests]
    return None if any(amount[name] is None for amount in amounts) else total // 1000

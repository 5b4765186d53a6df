"""What the API server would refuse of a pod, so that no kubelet ever sees it (apis/core/validation, the parts on resources)."""

from __future__ import annotations

import re

from infra.diagnosis import shown
from infra.kubelet.configuration.versions import VersionRules
from infra.kubelet.pods import Container, Pod, ResourceList, aggregate, whole
from infra.kubelet.quantity import parse_quantity
from infra.kubelet.resource_names import (
    HUGEPAGES_PREFIX,
    is_extended_resource,
    is_native_resource,
    is_pod_level_resource,
    is_qualified_name,
)

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_RESTART_POLICIES = ("Always", "Never", "OnFailure")


def pod_errors(pod: Pod, rules: VersionRules, *, pod_level: bool, container_restarts: bool = True) -> list[str]:
    """Why the API server would refuse the pod, each with its path; empty for a valid pod.

    `pod_level`, `container_restarts`: the feature gates PodLevelResources and ContainerRestartRules.
    """
    errors: list[str] = []
    if not pod.name or len(pod.name) > 253 or not _DNS_SUBDOMAIN.fullmatch(pod.name):
        errors.append(f"metadata.name: {shown(pod.name)} is no lowercase RFC 1123 subdomain; write it like my-pod-0")
    if not pod.containers:
        errors.append("spec.containers: Required value; a pod needs at least one container")
    names: set[str] = set()
    for group, containers in (("containers", pod.containers), ("initContainers", pod.init_containers)):
        for index, container in enumerate(containers):
            path = f"spec.{group}[{index}]"
            if container.name in names:
                errors.append(
                    f"{path}.name: Duplicate value {shown(container.name)}; give every container of the pod a name of its own"
                )
            names.add(container.name)
            errors += _container_errors(container, path)
            if not container_restarts and container.restart_policy not in (
                None,
                *(("Always",) if group == "initContainers" else ()),
            ):
                errors.append(
                    f"{path}.restartPolicy: {shown(container.restart_policy)} needs the feature gate ContainerRestartRules; "
                    "without it only init containers have one, and it is Always"
                )
    if pod_level and pod.pod_requests is not None and pod.pod_limits is not None:
        errors += _requirement_errors(pod.pod_requests, pod.pod_limits, "spec.resources", level=True)
        errors += _consistency_errors(pod, pod.pod_requests, pod.pod_limits, only_named=rules.pod_level_covers_only_named)
    if pod.has_overhead:
        errors += _requirement_errors({}, pod.overhead, "spec.overhead", level=False)
    return errors


def _container_errors(container: Container, path: str) -> list[str]:
    errors = []
    if len(container.name) > 63 or not _DNS_LABEL.fullmatch(container.name):
        errors.append(f"{path}.name: {shown(container.name)} is no lowercase RFC 1123 label; write it like my-name")
    if container.restart_policy is not None and container.restart_policy not in _RESTART_POLICIES:
        errors.append(
            f"{path}.restartPolicy: Unsupported value {shown(container.restart_policy)}; supported: Always, Never, OnFailure"
        )
    return errors + _requirement_errors(container.requests, container.limits, f"{path}.resources", level=False)


def _plainly_valid(requests: ResourceList, limits: ResourceList) -> bool:
    """Whether the requirements are of the usual kind and right; all others take the long way."""
    for name, amount in limits.items():
        request = requests.get(name, 0)
        if name == "cpu" or name == "memory":
            if not 0 <= request <= amount:
                return False
        elif request != amount or amount < 0 or amount % 1000 or not is_extended_resource(name):
            return False
    return all(name in limits or ((name == "cpu" or name == "memory") and amount >= 0) for name, amount in requests.items())


def _requirement_errors(requests: ResourceList, limits: ResourceList, path: str, *, level: bool) -> list[str]:
    if not level and _plainly_valid(requests, limits):
        return []
    errors = []
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            here = f"{path}.{kind}[{name}]"
            problem = _name_error(name, level=level)
            if problem:
                errors.append(f"{here}: {problem}")
            if amount < 0:
                errors.append(f"{here}: must be greater than or equal to 0")
            if is_extended_resource(name) and amount % 1000:
                errors.append(f"{here}: must be an integer; devices come whole")
            if name.startswith(HUGEPAGES_PREFIX) and not _divisible(name, amount):
                errors.append(f"{here}: is no multiple of the page size")
    for name, amount in requests.items():
        limit = limits.get(name)
        overcommit = is_native_resource(name) and not name.startswith(HUGEPAGES_PREFIX)
        if limit is None:
            if not overcommit:
                errors.append(f"{path}.limits: Limit must be set for {name}, which cannot be overcommitted")
        elif amount != limit and not overcommit:
            errors.append(f"{path}.requests: {name} must be equal to its limit")
        elif amount > limit:
            errors.append(f"{path}.requests: {name} must be less than or equal to its limit")
    both = {*requests, *limits}
    if any(name.startswith(HUGEPAGES_PREFIX) for name in both) and not both & {"cpu", "memory"}:
        errors.append(f"{path}: HugePages require cpu or memory")
    return errors


def _name_error(name: str, *, level: bool) -> str | None:
    if not is_qualified_name(name):
        return f"{shown(name)} is no qualified name"
    if "/" not in name:
        if name not in _STANDARD and not name.startswith((HUGEPAGES_PREFIX, f"requests.{HUGEPAGES_PREFIX}")):
            return "must be a standard resource type or fully qualified"
        if not level and name not in ("cpu", "memory", "ephemeral-storage") and not name.startswith(HUGEPAGES_PREFIX):
            return "must be a standard resource for containers"
    if level:
        return None if is_pod_level_resource(name) else "Unsupported value at pod level; supported: cpu, hugepages-, memory"
    if not is_native_resource(name) and not is_extended_resource(name):
        return "doesn't follow extended resource name standard"
    return None


_STANDARD = {
    *("cpu", "memory", "ephemeral-storage", "storage", "requests.cpu", "requests.memory", "requests.ephemeral-storage"),
    *("limits.cpu", "limits.memory", "limits.ephemeral-storage", "requests.storage", "pods", "resourcequotas", "services"),
    *("replicationcontrollers", "secrets", "configmaps", "persistentvolumeclaims", "services.nodeports", "services.loadbalancers"),
}


def _divisible(name: str, amount: int) -> bool:
    try:
        size = parse_quantity(name.removeprefix(HUGEPAGES_PREFIX))
    except ValueError:
        return False
    return size.nano > 0 and size.nano % 10**9 == 0 and whole(amount) % size.value == 0


def _consistency_errors(pod: Pod, requests: ResourceList, limits: ResourceList, *, only_named: bool) -> list[str]:
    errors = []
    for name, amount in aggregate([c.requests for c in pod.containers], pod.init_containers, requests=True).items():
        if amount > requests.get(name, amount if only_named else 0):
            errors.append(f"spec.resources.requests[{name}]: must be greater than or equal to aggregate container requests")
    for name, amount in aggregate([c.limits for c in pod.containers], pod.init_containers, requests=False).items():
        if only_named and name.startswith(HUGEPAGES_PREFIX) and name in limits and amount > limits[name]:
            errors.append(f"spec.resources.limits[{name}]: must be greater than or equal to aggregate container limits")
    for index, container in enumerate(pod.containers):
        for name, amount in container.limits.items():
            if name in limits and amount > limits[name]:
                errors.append(f"spec.containers[{index}].resources.limits[{name}]: must be less than or equal to pod limits")
    return errors

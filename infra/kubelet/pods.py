"""A pod as the kubelet gets it from the API server: defaulted, with its QoS class and what it requests in total."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.diagnosis import shown
from infra.errors import ConfigError
from infra.kubelet.quantity import parse_json_quantity
from infra.kubelet.resource_names import is_pod_level_resource

GUARANTEED, BURSTABLE, BEST_EFFORT = "Guaranteed", "Burstable", "BestEffort"
SYSTEM_CRITICAL_PRIORITY = 2_000_000_000
_MILLI = 10**6

# Amounts are thousandths: the API server rounds every quantity up to them.
ResourceList = dict[str, int]


@dataclass(frozen=True, slots=True)
class Container:
    """One container. `int64` holds the requests that Kubernetes can give as an int64, which is all the memory manager takes."""

    name: str
    requests: ResourceList
    limits: ResourceList
    int64: dict[str, int | None]
    is_init: bool
    restart_policy: str | None
    is_sidecar: bool = False  # an init container that stays: restartPolicy Always

    @property
    def has_guaranteed_resources(self) -> bool:
        """CPU and memory requested, and equal to the limits."""
        requests, limits = self.requests, self.limits
        return all(requests.get(name, 0) and requests[name] == limits.get(name, 0) for name in ("cpu", "memory"))


@dataclass(frozen=True)
class Pod:
    """A pod; `init_containers` and `containers` in order. `pod_level` is spec.resources, None where it is not set."""

    name: str
    init_containers: tuple[Container, ...]
    containers: tuple[Container, ...]
    pod_requests: ResourceList | None
    pod_limits: ResourceList | None
    pod_int64: dict[str, int | None]  # of pod_requests
    pod_limits_int64: dict[str, int | None]
    overhead: ResourceList
    has_overhead: bool
    priority: int | None
    all_containers: tuple[Container, ...] = field(init=False)  # init containers first: the order of admission
    has_pod_level_resources: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "all_containers", self.init_containers + self.containers)
        named = [*(self.pod_requests or ()), *(self.pod_limits or ())]
        object.__setattr__(self, "has_pod_level_resources", any(map(is_pod_level_resource, named)))

    @classmethod
    def from_dict(cls, document: Any, path: str = "pod") -> Pod:
        """The pod of a case, with the defaults of the API server; ConfigError names the path of what is wrong."""
        if not isinstance(document, Mapping):
            raise _wrong(path, document, "an object")
        name = document.get("name") or ""
        if not isinstance(name, str):
            raise _wrong(f"{path}.name", name, "a string")
        priority = document.get("priority")
        if priority is not None and (type(priority) is not int or not -(2**31) <= priority < 2**31):
            raise _wrong(f"{path}.priority", priority, "a 32-bit integer")
        level = document.get("resources")
        requests = limits = None
        int64: dict[str, int | None] = {}
        limits_int64: dict[str, int | None] = {}
        if level is not None:
            if not isinstance(level, Mapping):
                raise _wrong(f"{path}.resources", level, 'an object with "requests" and "limits"')
            requests, int64 = _resource_list(level.get("requests"), f"{path}.resources.requests")
            limits, limits_int64 = _resource_list(level.get("limits"), f"{path}.resources.limits")
        overhead, _ = _resource_list(document.get("overhead"), f"{path}.overhead")
        return cls(
            name=name,
            init_containers=_containers(document, "initContainers", path, is_init=True),
            containers=_containers(document, "containers", path, is_init=False),
            pod_requests=requests,
            pod_limits=limits,
            pod_int64=int64,
            pod_limits_int64=limits_int64,
            overhead=overhead,
            has_overhead=document.get("overhead") is not None,
            priority=priority,
        )

    @property
    def is_critical(self) -> bool:
        return self.priority is not None and self.priority >= SYSTEM_CRITICAL_PRIORITY

    def preempts(self, other: Pod) -> bool:
        """Whether the kubelet may evict `other` for this pod."""
        if self.is_critical and not other.is_critical:
            return True
        return self.priority is not None and other.priority is not None and self.priority > other.priority

    def qos(self, *, pod_level: bool, empty_level_counts: bool) -> str:
        """The QoS class; `pod_level`: whether the gate PodLevelResources is on, `empty_level_counts`: PodLevelResourcesFixKubeletQOSClass is off."""
        if pod_level and (self.has_pod_level_resources or (empty_level_counts and self.pod_requests is not None)):
            return _qos_of(self.pod_requests or {}, self.pod_limits or {})
        found: str | None = None
        for container in self.all_containers:
            qos = _qos_of(container.requests, container.limits)
            if qos == BURSTABLE or (found is not None and qos != found):
                return BURSTABLE
            found = qos
        return found or BEST_EFFORT

    def total_requests(self, *, pod_level: bool, overhead: bool = True) -> ResourceList:
        """What the node has to have free: sidecars and containers together, or the widest moment of the init containers."""
        total = aggregate([c.requests for c in self.containers], self.init_containers, requests=True)
        if pod_level and self.pod_requests:
            total.update((name, amount) for name, amount in self.pod_requests.items() if is_pod_level_resource(name))
        if overhead:
            for name, amount in self.overhead.items():
                total[name] = total.get(name, 0) + amount
        return total

    def total_limits(self) -> ResourceList:
        """Limits of the pod as a whole, without overhead (resourcehelper.PodLimits)."""
        total = aggregate([c.limits for c in self.containers], self.init_containers, requests=False)
        if self.has_pod_level_resources:
            total.update((name, amount) for name, amount in (self.pod_limits or {}).items() if is_pod_level_resource(name))
        return total


def aggregate(app: list[ResourceList], init: tuple[Container, ...], *, requests: bool) -> ResourceList:
    """Sum of the containers and sidecars, or the widest moment of the init containers, per resource."""
    total: ResourceList = {}
    for resources in app:
        for name, amount in resources.items():
            total[name] = total.get(name, 0) + amount
    if not init:
        return total
    sidecars: ResourceList = {}
    widest: ResourceList = {}
    for container in init:
        resources = container.requests if requests else container.limits
        moment = sidecars
        if container.is_sidecar:
            for name, amount in resources.items():
                total[name] = total.get(name, 0) + amount
                sidecars[name] = sidecars.get(name, 0) + amount
        else:
            moment = dict(sidecars)
            for name, amount in resources.items():
                moment[name] = moment.get(name, 0) + amount
        for name, amount in moment.items():
            widest[name] = max(amount, widest.get(name, amount))
    for name, amount in widest.items():
        total[name] = max(amount, total.get(name, amount))
    return total


def whole(milli: int) -> int:
    """Thousandths as whole units, rounded up (Quantity.Value)."""
    return -(-milli // 1000)


def _qos_of(requests: ResourceList, limits: ResourceList) -> str:
    if not requests and not limits:
        return BEST_EFFORT
    found: str | None = None
    for name in ("cpu", "memory"):
        request, limit = requests.get(name, 0), limits.get(name, 0)
        if request != limit:
            return BURSTABLE
        qos = GUARANTEED if request else BEST_EFFORT
        if found is not None and qos != found:
            return BURSTABLE
        found = qos
    assert found is not None
    return found


def _containers(document: Mapping[str, Any], key: str, path: str, *, is_init: bool) -> tuple[Container, ...]:
    listed = document.get(key)
    if listed is None:
        return ()
    if not isinstance(listed, list | tuple):
        raise _wrong(f"{path}.{key}", listed, "a list of containers")
    found = []
    for index, entry in enumerate(listed):
        here = f"{path}.{key}[{index}]"
        if not isinstance(entry, Mapping):
            raise _wrong(here, entry, "an object")
        name, policy = entry.get("name") or "", entry.get("restartPolicy")
        if not isinstance(name, str):
            raise _wrong(f"{here}.name", name, "a string")
        if policy is not None and not isinstance(policy, str):
            raise _wrong(f"{here}.restartPolicy", policy, "a string")
        limits, limits_int64 = _resource_list(entry.get("limits"), f"{here}.limits")
        given = entry.get("requests")
        if given:
            requests, int64 = _resource_list(given, f"{here}.requests")
            requests, int64 = {**limits, **requests}, {**limits_int64, **int64}
        else:
            requests, int64 = dict(limits), limits_int64
        found.append(Container(name, requests, limits, int64, is_init, policy, is_init and policy == "Always"))
    return tuple(found)


def _resource_list(value: Any, path: str) -> tuple[ResourceList, dict[str, int | None]]:
    if not value and not isinstance(value, int | float | str):
        if isinstance(value, list):
            raise _wrong(path, value, 'quantities by resource, like {"cpu": "4"}')
        return {}, {}
    if not isinstance(value, Mapping):
        raise _wrong(path, value, 'quantities by resource, like {"cpu": "4"}')
    amounts: ResourceList = {}
    int64: dict[str, int | None] = {}
    for name, amount in value.items():
        try:
            # A float is read as it is written: 1000000000.0 has a fraction, and no int64 for Kubernetes.
            text = repr(amount) if type(amount) is float else amount
            quantity = parse_json_quantity(text)
        except ValueError as error:
            raise _wrong(f"{path}.{name}", amount, f"a quantity: {error}") from None
        # Rounding up to thousandths leaves the form of the number as it was; finer ones are no int64 either way.
        amounts[name], int64[name] = quantity.milli, quantity.int64
    return amounts, int64


def _wrong(path: str, value: object, expected: str) -> ConfigError:
    error = ConfigError.one("BadCase", path, f"{shown(value)} is not {expected}.")
    assert isinstance(error, ConfigError)
    return error

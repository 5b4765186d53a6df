"""A kind of pods as admission and the scheduler see it: containers with requests and limits, and how many have to run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from infra.units import parse_bytes, parse_millicpu

MAIN_CONTAINER = "vllm"


@dataclass(frozen=True, kw_only=True)
class PodShape:
    """What admission needs to know of a model's pods, which are all equal.

    `cpu` and `memory_bytes` are the main container's requests and limits; where the stack file gives no CPUs (`cpu_given` False) the
    decision may raise `cpu`. `copies` pods have to run at once (replicas times pods per replica), `surge` more may during an update;
    where the stack file says nothing of it (`may_surge`) the decision may let one more run; with `must_surge` an update waits for it. `standby` pods
    are described and do not run: admission is proven as if they could start, and no room is kept for them. `anti_affinity` keeps them off each other's
    nodes. `init_containers` and `sidecars` are Kubernetes containers. `binds_ranks`: the server has flags that bind its ranks to NUMA nodes.
    """

    gpus: int
    cpu: int
    memory_bytes: int
    copies: int
    resource_name: str = "nvidia.com/gpu"
    cpu_given: bool = False
    surge: int = 0
    may_surge: bool = False
    must_surge: bool = False
    standby: int = 0
    anti_affinity: Literal["required", "preferred", "none"] = "required"
    init_containers: tuple[Mapping[str, Any], ...] = ()
    sidecars: tuple[Mapping[str, Any], ...] = ()
    binds_ranks: bool = True

    @cached_property
    def pod(self) -> dict[str, Any]:
        """The pod as the kubelet admits it: containers with requests and limits, no name."""
        sizes = {"cpu": str(self.cpu), "memory": str(self.memory_bytes), self.resource_name: str(self.gpus)}
        main = {"name": MAIN_CONTAINER, "requests": sizes, "limits": sizes}
        pod: dict[str, Any] = {"containers": [main, *(_container(c, n) for n, c in enumerate(self.sidecars))]}
        if self.init_containers:
            pod["initContainers"] = [_container(c, n) for n, c in enumerate(self.init_containers)]
        return pod

    @cached_property
    def requests(self) -> tuple[int, int]:
        """Effective requests of the whole pod for the scheduler: thousandths of a CPU, bytes of memory."""
        return pod_requests(self.pod)

    @cached_property
    def memory_of_all_containers(self) -> int:
        """Bytes of all containers together, init containers too: more than the kubelet can ever pin for the pod at a time."""
        containers = (*self.pod.get("initContainers", ()), *self.pod["containers"])
        return sum(parse_bytes({**(c.get("limits") or {}), **(c.get("requests") or {})}.get("memory", 0)) for c in containers)

    @property
    def not_guaranteed(self) -> tuple[tuple[str, str], ...]:
        """Containers that cost the pod its QoS class Guaranteed: (path below the model, name).

        Every container needs CPU and memory limits, and requests that are left out or equal; one that does not unpins all of them.
        """
        lists = (("initContainers", self.init_containers), ("sidecars", self.sidecars))
        return tuple(
            (f"{field}[{index}].resources", made["name"])
            for field, containers in lists
            for index, made in enumerate(_container(c, n) for n, c in enumerate(containers))
            if not _is_guaranteed(made)
        )

    @property
    def container_count(self) -> int:
        return 1 + len(self.sidecars) + len(self.init_containers)

    def with_cpu(self, cpu: int) -> PodShape:
        return self if cpu == self.cpu else replace(self, cpu=cpu)


def _container(container: Mapping[str, Any], index: int) -> dict[str, Any]:
    resources = container.get("resources")
    resources = resources if isinstance(resources, Mapping) else {}
    made: dict[str, Any] = {"name": str(container.get("name") or f"container-{index}")}
    for kind in ("requests", "limits"):
        if isinstance(resources.get(kind), Mapping):
            made[kind] = {str(name): str(value) for name, value in resources[kind].items()}
    if container.get("restartPolicy") is not None:
        made["restartPolicy"] = container["restartPolicy"]
    return made


def _is_guaranteed(container: Mapping[str, Any]) -> bool:
    limits, requests = container.get("limits") or {}, container.get("requests") or {}
    for name, parse in (("cpu", parse_millicpu), ("memory", parse_bytes)):
        try:
            limit = parse(limits.get(name, 0))
            if limit <= 0 or parse(requests.get(name, limits[name])) != limit:
                return False
        except ValueError:
            return False
    return True


def pod_requests(pod: Mapping[str, Any]) -> tuple[int, int]:
    """What the scheduler counts for a pod: the larger of all that run together and the largest moment of the init phase.

    Restartable init containers (sidecars) keep running and are added to the init containers after them and to the app containers.
    """
    return _peak(pod, "cpu", parse_millicpu), _peak(pod, "memory", parse_bytes)


def _peak(pod: Mapping[str, Any], resource: str, parse: Callable[[Any], int]) -> int:
    def request(container: Mapping[str, Any]) -> int:
        return parse({**(container.get("limits") or {}), **(container.get("requests") or {})}.get(resource, 0))

    restartable = peak = 0
    for container in pod.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            restartable += request(container)
            peak = max(peak, restartable)
        else:
            peak = max(peak, restartable + request(container))
    return max(peak, restartable + sum(request(container) for container in pod.get("containers") or ()))

"""The device manager: which devices are free, the hints for them, and which ones a container gets (devicemanager/manager.go).

A set of devices of one resource is an int with bit i for the device that the plugin lists at position i.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from infra.kubelet.faults import AllocationError
from infra.kubelet.machine import Device, Machine
from infra.kubelet.managers.hints import UNSATISFIABLE, MaskSpace, ProviderHints, ResourceHints, masks_with_devices, positions
from infra.kubelet.pods import Container, Pod, whole


class DeviceResource:
    """The devices of one resource as the plugin reported them."""

    __slots__ = (
        "_groups",
        "all",
        "anywhere",
        "device_nodes",
        "has_topology",
        "healthy",
        "ids",
        "nodes_of",
        "space",
        "without_topology",
    )

    def __init__(self, devices: Sequence[Device], machine: Machine, space: MaskSpace, *, device_nodes_only: bool) -> None:
        latest = {device.id: device for device in devices}
        listed = list(latest.values())
        position = {node.id: index for index, node in enumerate(sorted(machine.numa_nodes, key=lambda node: node.id))}
        self.space = space
        self.ids = [device.id for device in listed]
        self.all = (1 << len(listed)) - 1
        self.healthy = sum(1 << index for index, device in enumerate(listed) if device.healthy)
        self.nodes_of = [sum({1 << position[node] for node in device.numa if node in position}) for device in listed]
        self.has_topology = any(device.numa for device in listed)
        # Devices without any NUMA id do not bind a later container that reuses them; those with an unknown id forbid every mask.
        self.anywhere = sum(1 << index for index, device in enumerate(listed) if not device.numa)
        self.without_topology = self.anywhere
        nodes = 0
        for mask in self.nodes_of:
            nodes |= mask
        self.device_nodes = nodes if nodes and device_nodes_only else space.full
        groups: dict[int, int] = {}
        for index, mask in enumerate(self.nodes_of):
            groups[mask] = groups.get(mask, 0) | 1 << index
        self._groups = tuple(groups.items())

    def hints(self, available: int, reusable: int, requested: int) -> ResourceHints:
        """Masks over the NUMA nodes that have such devices, as generateDeviceTopologyHints makes them."""
        space = self.space
        inside = space.submasks(self.device_nodes) & ~1
        narrowest = space.narrowest(self._reaching(self.all, requested) & inside) or self.device_nodes.bit_count()
        bound = reusable & ~self.anywhere
        possible = self._reaching(available, requested - bound.bit_count()) & inside
        for index in positions(bound):
            possible &= space.touching(self.nodes_of[index])
        return ResourceHints(possible, possible & space.by_count[narrowest])

    def _reaching(self, devices: int, wanted: int) -> int:
        groups = tuple((nodes, (members & devices).bit_count()) for nodes, members in self._groups)
        return masks_with_devices(groups, self.space.count, wanted)


@dataclass(slots=True)
class DeviceState:
    """Devices in use by resource, and what each pod's containers hold."""

    allocated: dict[str, int]
    containers: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)

    def copy(self) -> DeviceState:
        return DeviceState(dict(self.allocated), dict(self.containers))


class DeviceManager:
    """All device plugins of a node. Plugins prefer devices in listing order (GetPreferredAllocation) where `ordered`."""

    def __init__(
        self, devices: Mapping[str, Sequence[Device]], machine: Machine, space: MaskSpace, *, device_nodes_only: bool = True
    ) -> None:
        self.resources = {
            name: DeviceResource(devices[name], machine, space, device_nodes_only=device_nodes_only) for name in sorted(devices)
        }

    def initial_state(self) -> DeviceState:
        return DeviceState(dict.fromkeys(self.resources, 0))

    def capacity(self) -> dict[str, tuple[int, int]]:
        """Per resource: all devices, and the healthy ones (allocatable)."""
        return {name: (len(resource.ids), resource.healthy.bit_count()) for name, resource in self.resources.items()}

    # Hints
    def container_hints(self, state: DeviceState, container: Container, reusable: Mapping[str, int]) -> ProviderHints | None:
        hints: ProviderHints = {}
        for name, limit in container.limits.items():
            resource = self.resources.get(name)
            if resource is not None:
                hints[name] = self._hints(state, name, resource, whole(limit), reusable.get(name, 0))
        return hints or None

    def pod_hints(self, state: DeviceState, pod: Pod) -> ProviderHints | None:
        if not self.resources:
            return None
        limits = pod.total_limits()
        hints: ProviderHints = {}
        for name, resource in self.resources.items():
            if name in limits:
                hints[name] = self._hints(state, name, resource, whole(limits[name]), 0)
        return hints or None

    @staticmethod
    def _hints(state: DeviceState, name: str, resource: DeviceResource, requested: int, reusable: int) -> ResourceHints | None:
        if not resource.has_topology:
            return None
        available = resource.healthy & ~state.allocated[name]
        if (available | reusable).bit_count() < requested:
            return UNSATISFIABLE
        return resource.hints(available, reusable, requested)

    # Allocation
    def allocate_container(
        self, state: DeviceState, uid: str, container: Container, nodes: int | None, reusable: dict[str, int], *, ordered: bool
    ) -> None:
        """Gives the container its devices; `reusable` (what earlier init containers held) is updated."""
        for name, limit in container.limits.items():
            resource = self.resources.get(name)
            if resource is None:
                continue
            wanted = whole(limit)
            held = state.containers.get(uid, {}).get(container.name, {}).get(name)
            if held is not None and held.bit_count() != wanted:
                raise AllocationError(
                    f'pod "{uid}" container "{container.name}" changed request for resource "{name}" '
                    f"from {held.bit_count()} to {wanted}"
                )
            if not resource.healthy:
                raise AllocationError(f"no healthy devices present; cannot allocate unhealthy devices {name}")
            if held is not None or wanted == 0:
                continue
            devices = self._choose(state, name, resource, wanted, reusable.get(name, 0), nodes, ordered=ordered)
            state.allocated[name] |= devices
            state.containers.setdefault(uid, {}).setdefault(container.name, {})[name] = devices
        mine = state.containers.get(uid, {}).get(container.name, {})
        for name, devices in mine.items():
            if container.is_init and not container.is_sidecar:
                reusable[name] = reusable.get(name, 0) | devices
            else:
                reusable[name] = reusable.get(name, 0) & ~devices

    @staticmethod
    def _choose(
        state: DeviceState, name: str, resource: DeviceResource, wanted: int, reusable: int, nodes: int | None, *, ordered: bool
    ) -> int:
        taken = _first(reusable, wanted)
        needed = wanted - taken.bit_count()
        if needed == 0:
            return taken
        available = resource.healthy & ~state.allocated[name] & ~taken
        if available.bit_count() < needed:
            raise AllocationError(
                f"requested number of devices unavailable for {name}. Requested: {needed}, Available: {available.bit_count()}"
            )
        aligned = 0
        if nodes is not None and resource.has_topology:
            for index in positions(available):
                if resource.nodes_of[index] & nodes:
                    aligned |= 1 << index
        if needed <= aligned.bit_count():
            return taken | _first(aligned, needed)
        taken |= aligned
        needed -= aligned.bit_count()
        rest = available & ~aligned
        if ordered or nodes is None or not resource.has_topology:
            return taken | _first(rest, needed)
        elsewhere = _first(rest & ~resource.without_topology, needed)
        return taken | elsewhere | _first(rest & resource.without_topology, needed - elsewhere.bit_count())

    def missing(self, state: DeviceState, uid: str, container: Container) -> bool:
        """Whether the start of a container still has devices to allocate (the pod scope with pod-level resources leaves them)."""
        held = state.containers.get(uid, {}).get(container.name, {})
        return any(name in self.resources and limit and name not in held for name, limit in container.limits.items())

    def release(self, state: DeviceState, uid: str) -> None:
        """Frees what a pod held."""
        for container in state.containers.pop(uid, {}).values():
            for name, devices in container.items():
                state.allocated[name] &= ~devices

    def ids(self, state: DeviceState, uid: str, container: str) -> dict[str, list[str]]:
        """The device ids of a container by resource, sorted as text."""
        held = state.containers.get(uid, {}).get(container, {})
        return {name: sorted(self.resources[name].ids[index] for index in positions(devices)) for name, devices in held.items()}


def _first(devices: int, count: int) -> int:
    """The first `count` of the devices in listing order."""
    chosen = 0
    while devices and count > 0:
        lowest = devices & -devices
        chosen |= lowest
        devices ^= lowest
        count -= 1
    return chosen

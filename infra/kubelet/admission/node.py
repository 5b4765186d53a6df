"""The start of a kubelet: configuration and machine become a node with its managers, or a refusal with stage and reason.

Stages in the kubelet's order: load, validate, reservedSystemCPUs, kubeReserved, systemReserved, evictionHard, topologymanager,
cpumanager, memorymanager, nodeAllocatable. It stops at the first that fails.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infra.diagnosis import did_you_mean, shown
from infra.errors import ConfigError
from infra.kubelet.admission.node_fit import NodeAllocatable
from infra.kubelet.admission.reservation import (
    allocatable_of,
    amount_text,
    capacity_of,
    eviction_memory,
    reservation_of,
    reserved_resources,
    whole_units,
)
from infra.kubelet.configuration.decode import Configuration, load
from infra.kubelet.configuration.fields import FIELDS
from infra.kubelet.configuration.validate import one_of, parse_cpu_set, validation_errors
from infra.kubelet.configuration.versions import cpu_option_gate, topology_option_gate
from infra.kubelet.faults import AllocationError, KubeletHangs, KubeletRefuses
from infra.kubelet.machine import Device, Machine
from infra.kubelet.managers.cpu import CPUManagerOptions, StaticCPUManager, reserve_cpus
from infra.kubelet.managers.cpu_topology import CPUTopology, CPUTopologyError, cpu_list, discover
from infra.kubelet.managers.devices import DeviceManager
from infra.kubelet.managers.hints import mask_space, positions
from infra.kubelet.managers.memory import StaticMemoryManager
from infra.kubelet.managers.pod_level import PodLevelTreatment
from infra.kubelet.managers.topology import DEFAULT_MAX_NUMA_NODES, NONE, SINGLE_NUMA_NODE, TopologyPolicy, topology_policy
from infra.kubelet.quantity import NANO, round_up
from infra.kubelet.resource_names import is_extended_resource

_EXCLUSIVE_OPTIONS = (
    ("full-pcpus-only", "distribute-cpus-across-cores"),
    ("distribute-cpus-across-numa", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"),
)
_TRUE, _FALSE = ("1", "t", "T", "TRUE", "true", "True"), ("0", "f", "F", "FALSE", "false", "False")


@dataclass(frozen=True, slots=True)
class Node:
    """A started kubelet's fixed parts. Amounts: cpu in thousandths, everything else in whole units."""

    configuration: Configuration
    numa_ids: tuple[int, ...]
    capacity: Mapping[str, int]
    allocatable: NodeAllocatable
    reservation: Mapping[str, int]
    policy: TopologyPolicy | None
    devices: DeviceManager
    cpus: StaticCPUManager | None
    memory: StaticMemoryManager | None
    pod_level_resources: bool
    pod_level_fixed_defaults: bool
    empty_pod_level_counts: bool
    pod_level_managers: bool

    def ids(self, nodes: int) -> tuple[int, ...]:
        """The ids of a mask of NUMA nodes."""
        return tuple(self.numa_ids[position] for position in positions(nodes))


def start_node(
    machine: Machine, document: Mapping[str, Any], devices: Mapping[str, Sequence[Device]], *, kubernetes_version: str = "1.37"
) -> Node:
    """Starts a kubelet; KubeletRefuses where it would stop, ConfigError for a device resource that no plugin could register."""
    configuration = load(document, kubernetes_version=kubernetes_version)
    errors = validation_errors(configuration)
    if errors:
        raise KubeletRefuses("validate", tuple(errors))
    specific_cpus = _reserved_system_cpus(machine, configuration)
    capacity = capacity_of(machine)
    kube, system = dict(configuration["kubeReserved"] or {}), dict(configuration["systemReserved"] or {})
    if specific_cpus:
        # reservedSystemCPUs takes the place of both CPU reservations.
        kube.pop("cpu", None)
        system["cpu"] = str(specific_cpus.bit_count())
    rounded = configuration.rules.rounds_reserved_cpus
    reservation = reservation_of(
        capacity,
        reserved_resources(kube, "kubeReserved", rounded=rounded),
        reserved_resources(system, "systemReserved", rounded=rounded),
        eviction_memory(configuration["evictionHard"], capacity["memory"]),
    )
    policy = _topology_manager(machine, configuration)
    gates = configuration.gates
    pod_level, managers = gates["PodLevelResources"], gates["PodLevelResources"] and gates["PodLevelResourceManagers"]
    space = _space(machine)
    device_manager = DeviceManager(devices, machine, space, device_nodes_only=configuration.rules.device_hints_on_device_nodes_only)
    treatment = PodLevelTreatment(managed=managers, skipped=_skips_pod_level(configuration))
    cpus = _cpu_manager(machine, configuration, reservation, specific_cpus, treatment)
    memory = _memory_manager(machine, configuration, reservation, treatment)
    over = [
        f"{name}: the reservation of {amount_text(name, amount)} is larger than the capacity of {amount_text(name, capacity[name])}"
        for name, amount in reservation.items()
        if amount > capacity[name]
    ]
    if over:
        raise KubeletRefuses("nodeAllocatable", ("invalid Node Allocatable configuration. " + " ".join(over),))
    for name in devices:
        if not is_extended_resource(name):
            raise ConfigError.one(
                "BadCase", f"devices.{name}", f"{shown(name)} is no extended resource; write it like nvidia.com/gpu."
            )
    numa_ids = tuple(sorted(node.id for node in machine.numa_nodes))
    max_pods, per_core = configuration["maxPods"], configuration["podsPerCore"]
    pods = min(machine.cpu_count * per_core, max_pods) if per_core > 0 else max_pods
    return Node(
        configuration=configuration,
        numa_ids=numa_ids,
        capacity={
            **{name: whole_units(name, amount) for name, amount in capacity.items()},
            **{name: count for name, (count, _) in device_manager.capacity().items()},
            "pods": pods,
        },
        allocatable=allocatable_of(capacity, reservation, device_manager, pods),
        reservation={name: whole_units(name, amount) for name, amount in reservation.items()},
        policy=policy,
        devices=device_manager,
        cpus=cpus,
        memory=memory,
        pod_level_resources=pod_level,
        pod_level_fixed_defaults=gates["PodLevelResourcesFixDefaulting"],
        empty_pod_level_counts=not gates["PodLevelResourcesFixKubeletQOSClass"],
        pod_level_managers=managers,
    )


def _skips_pod_level(configuration: Configuration) -> bool:
    rules, gates = configuration.rules, configuration.gates
    on = gates["PodLevelResources"]
    if on and gates["PodLevelResourceManagers"]:
        return False
    return rules.managers_skip_pod_level and (on or rules.managers_skip_pod_level_where_off)


def _space(machine: Machine) -> Any:
    try:
        return mask_space(len(machine.numa_nodes))
    except KubeletHangs as hang:
        raise KubeletRefuses("topologymanager", (str(hang),)) from None


# Managers
def _reserved_system_cpus(machine: Machine, configuration: Configuration) -> int:
    text = configuration["reservedSystemCPUs"]
    if not text:
        return 0
    topology = _discover(machine, "reservedSystemCPUs")
    cpus = parse_cpu_set(text)
    outside = cpus & ~topology.all_cpus
    if outside or text.startswith("-"):
        raise KubeletRefuses(
            "reservedSystemCPUs",
            (
                f"reservedSystemCPUs: {text} names CPUs {cpu_list(outside)}, which this machine does not have; it has {cpu_list(topology.all_cpus)}",
            ),
        )
    return cpus


def _discover(machine: Machine, stage: str) -> CPUTopology:
    try:
        return discover(machine)
    except CPUTopologyError as error:
        raise KubeletRefuses(stage, (str(error),)) from None


def _boolean(options: Mapping[str, str], name: str, stage: str, path: str) -> bool:
    text = options.get(name)
    if text is None or text in _FALSE:
        return False
    if text not in _TRUE:
        raise KubeletRefuses(stage, (f'{path}.{name}: {shown(text)} must be "true" or "false" (a string)',))
    return True


def _topology_manager(machine: Machine, configuration: Configuration) -> TopologyPolicy | None:
    name, stage, path = configuration["topologyManagerPolicy"], "topologymanager", "topologyManagerPolicyOptions"
    if name == NONE:
        return None
    options, stages = configuration[path] or {}, configuration.rules.topology_options
    for option in options:
        if option not in stages:
            raise KubeletRefuses(stage, (f"{path}.{option}: is no option of the topology manager.{did_you_mean(option, stages)}",))
        gate = topology_option_gate(option, configuration.rules.version)
        if gate and not configuration.gates[gate]:
            raise KubeletRefuses(stage, (f"{path}.{option}: needs the feature gate {gate}",))
    closest = _boolean(options, "prefer-closest-numa-nodes", stage, path)
    most = DEFAULT_MAX_NUMA_NODES
    text = options.get("max-allowable-numa-nodes")
    if text is not None:
        if not re.fullmatch(r"[+-]?\d+", text, re.ASCII):
            raise KubeletRefuses(
                stage, (f"{path}.max-allowable-numa-nodes: {shown(text)} must be an integer of at least 8, as a string",)
            )
        most = int(text)
        if most < DEFAULT_MAX_NUMA_NODES:
            raise KubeletRefuses(
                stage,
                (
                    f'{path}: the minimum value of "max-allowable-numa-nodes" should not be less than {DEFAULT_MAX_NUMA_NODES}, '
                    f"and it is {most}; leave it out",
                ),
            )
    if closest and any(node.distances is None for node in machine.numa_nodes):
        raise KubeletRefuses(
            stage, (f"{path}.prefer-closest-numa-nodes: this machine does not report distances of its NUMA nodes",)
        )
    count = len(machine.numa_nodes)
    if count > most:
        raise KubeletRefuses(
            stage,
            (
                f"topologyManagerPolicy: {name} is unsupported on machines with more than {most} NUMA Nodes, and this one has {count}; "
                f'set {path}.max-allowable-numa-nodes: "{count}" or merge NUMA nodes in the firmware',
            ),
        )
    _space(machine)
    return topology_policy(machine, name, configuration["topologyManagerScope"], closest=closest)


def _cpu_manager(
    machine: Machine, configuration: Configuration, reservation: Mapping[str, int], specific: int, pod_level: PodLevelTreatment
) -> StaticCPUManager | None:
    stage, path = "cpumanager", "cpuManagerPolicyOptions"
    topology = _discover(machine, stage)
    policy, options = configuration["cpuManagerPolicy"], configuration[path] or {}
    if policy == "none":
        if options:
            raise KubeletRefuses(
                stage, (f"{path}: {', '.join(sorted(options))}: cpuManagerPolicy none takes no options; use static",)
            )
        return None
    if policy != "static":
        raise KubeletRefuses(stage, (one_of("cpuManagerPolicy", policy, FIELDS["cpuManagerPolicy"].values),))
    if "cpu" not in reservation:
        raise KubeletRefuses(
            stage,
            ("cpuManagerPolicy: static needs a CPU reservation greater than zero; set reservedSystemCPUs or kubeReserved.cpu",),
        )
    parsed = _cpu_options(configuration, options)
    if parsed.align_by_socket:
        if configuration["topologyManagerPolicy"] == SINGLE_NUMA_NODE:
            raise KubeletRefuses(
                stage,
                (
                    "topologyManagerPolicy: single-numa-node is incompatible with CPUManager align-by-socket policy option; "
                    "use restricted, or leave align-by-socket out",
                ),
            )
        if topology.socket_count > topology.cpu_numa_count:
            raise KubeletRefuses(
                stage,
                (
                    f"{path}.align-by-socket: is not compatible with a machine of {topology.socket_count} sockets "
                    f"and {topology.cpu_numa_count} NUMA nodes",
                ),
            )
    count = round_up(reservation["cpu"], NANO)
    try:
        reserved = reserve_cpus(topology, specific, count, parsed, configuration.rules)
    except (AllocationError, KubeletHangs) as error:
        raise KubeletRefuses(stage, (f"{error}; the machine has {topology.cpu_count} CPUs",)) from None
    return StaticCPUManager(topology, _space(machine), reserved, parsed, configuration.rules, pod_level)


def _cpu_options(configuration: Configuration, options: Mapping[str, str]) -> CPUManagerOptions:
    stage, path = "cpumanager", "cpuManagerPolicyOptions"
    values: dict[str, bool] = {}
    stages = configuration.rules.cpu_options
    for name in options:
        if name not in stages:
            raise KubeletRefuses(stage, (f"{path}.{name}: is no option of the CPU manager.{did_you_mean(name, stages)}",))
        gate = cpu_option_gate(name, configuration.rules.version)
        if gate and not configuration.gates[gate]:
            raise KubeletRefuses(stage, (f"{path}.{name}: needs the feature gate {gate}",))
        values[name] = _boolean(options, name, stage, path)
    for one, other in _EXCLUSIVE_OPTIONS:
        if values.get(one) and values.get(other):
            raise KubeletRefuses(stage, (f"{path}: static policy options {one} and {other} can not be used at the same time",))
    return CPUManagerOptions(**{name.replace("-", "_"): value for name, value in values.items()})


def _memory_manager(
    machine: Machine, configuration: Configuration, reservation: Mapping[str, int], pod_level: PodLevelTreatment
) -> StaticMemoryManager | None:
    stage, policy = "memorymanager", configuration["memoryManagerPolicy"]
    if policy == "None":
        return None
    if policy != "Static":
        raise KubeletRefuses(stage, (one_of("memoryManagerPolicy", policy, FIELDS["memoryManagerPolicy"].values),))
    reservations: list[dict[str, Any]] = configuration["reservedMemory"] or []
    position = {node.id: index for index, node in enumerate(sorted(machine.numa_nodes, key=lambda node: node.id))}
    totals: dict[str, int] = {}
    reserved: dict[int, dict[str, int]] = {}
    for index, entry in enumerate(reservations):
        node = entry["numaNode"]
        if node not in position:
            raise KubeletRefuses(
                stage,
                (
                    f"reservedMemory[{index}]: the reserved memory configuration references a NUMA node {node} "
                    f"that does not exist on this machine; it has {', '.join(map(str, sorted(position)))}",
                ),
            )
        for name, quantity in (entry["limits"] or {}).items():
            totals[name] = totals.get(name, 0) + quantity.nano
            if quantity.int64 is not None:
                reserved.setdefault(position[node], {})[name] = quantity.int64 % 2**64
    for name in sorted({*totals, *(name for name in reservation if name == "memory" or name.startswith("hugepages-"))}):
        if totals.get(name, 0) != reservation.get(name, 0):
            raise KubeletRefuses(stage, (_mismatch(configuration, name, totals.get(name, 0), reservation.get(name, 0)),))
    for index, entry in enumerate(reservations):
        for name, quantity in (entry["limits"] or {}).items():
            if quantity.int64 is None:
                raise KubeletRefuses(
                    stage,
                    (
                        f"reservedMemory[{index}].limits.{name}: the kubelet cannot take this number as whole bytes; "
                        f"write {amount_text(name, quantity.value * NANO)}, or {quantity.value}",
                    ),
                )
    if not any(amounts.get("memory") for amounts in reserved.values()):
        raise KubeletRefuses(
            stage,
            (
                "reservedMemory: [memorymanager] you should specify the system reserved memory: "
                "policy Static needs some on at least one NUMA node",
            ),
        )
    return StaticMemoryManager(machine, _space(machine), reserved, configuration.rules, pod_level)


def _mismatch(configuration: Configuration, name: str, given: int, needed: int) -> str:
    parts = []
    for field in ("kubeReserved", "systemReserved"):
        text = (configuration[field] or {}).get(name)
        if text:
            parts.append(f"{field} {text}")
    threshold = configuration["evictionHard"].get("memory.available")
    if threshold and name == "memory":
        parts.append(f"evictionHard {threshold}")
    return (
        f'reservedMemory: the total amount "{amount_text(name, given)}" of type "{name}" is not equal to the value '
        f'"{amount_text(name, needed)}" determined by Node Allocatable feature; '
        f"it must be {amount_text(name, needed)} = {' + '.join(parts) or 'no reservation at all'}"
    )

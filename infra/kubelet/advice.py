"""What a kubelet would do badly without saying so: fields it ignores, policies without effect, admission that takes seconds.

Refusals are errors of the start; these are warnings about configurations that start. Each names the field, the numbers and a remedy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from infra.diagnosis import Diagnosis, did_you_mean, shown
from infra.kubelet.admission.node import Node, start_node
from infra.kubelet.admission.reservation import EVICTION_SIGNALS
from infra.kubelet.configuration.decode import Configuration, load
from infra.kubelet.configuration.fields import FIELDS
from infra.kubelet.configuration.flags import flag_meant
from infra.kubelet.machine import Device, Machine
from infra.kubelet.managers.cpu_topology import cpu_list
from infra.kubelet.managers.topology import BEST_EFFORT, NONE, RESTRICTED, SINGLE_NUMA_NODE
from infra.offers import POOL, Offer

# The kubelet merges about three million combinations of hints a second (v1.37.2, one core of a current server).
_SECONDS_PER_COMBINATION = 3e-7
_NOTICEABLE_SECONDS = 0.1
_DISK_SIGNALS = ("nodefs.available", "nodefs.inodesFree", "imagefs.available")


def advise(
    machine: Machine, document: Mapping[str, Any], devices: Mapping[str, Sequence[Device]], *, kubernetes_version: str = "1.37"
) -> list[Diagnosis]:
    """Warnings for a configuration with which the kubelet starts on this machine; KubeletRefuses where it does not start."""
    configuration = load(document, kubernetes_version=kubernetes_version)
    node = start_node(machine, document, devices, kubernetes_version=kubernetes_version)
    return [
        *_ignored_fields(configuration),
        *_void_settings(configuration, document),
        *_eviction(configuration, document, machine),
        *_reserved_cpus(configuration, node),
        *_reserved_memory(configuration, node),
        *_policy_without_effect(configuration, machine, devices),
        *_admission_time(configuration, machine, devices),
        *_loops_and_crashes(configuration, node, machine),
    ]


def _warn(code: str, path: str, message: str, *offers: Offer) -> Diagnosis:
    return Diagnosis.warning(path, code, message, offers=offers)


def _write(field: str, value: Any, words: str) -> Offer:
    """A field of the pool's `kubelet:` with another value."""
    return Offer.of(words, (f"{POOL}.kubelet.{field}", value))


def suggest_field(name: str) -> str:
    """` Did you mean ...?` for a name that is no field of the configuration: flags, other case, near spellings."""
    flag = flag_meant(name)
    if flag is None:
        return did_you_mean(name, FIELDS)
    if flag.name == name.lstrip("-").replace("_", "-"):
        return f" --{flag.name} is a flag; the field is {shown(flag.field)}."
    return f" Did you mean {shown(flag.field)}?"


def _ignored_fields(c: Configuration) -> Iterator[Diagnosis]:
    for name in c.unknown:
        if name in c.rules.unknown_fields:
            yield _warn(
                "FieldOfLaterVersion", name, f"is not known to the kubelet of {c.rules.version}, which ignores it; leave it out."
            )
        else:
            yield _warn(
                "IgnoredField",
                name,
                f"is no field of KubeletConfiguration, and the kubelet ignores it silently.{suggest_field(name)}",
            )


def _void_settings(c: Configuration, document: Mapping[str, Any]) -> Iterator[Diagnosis]:
    if c["topologyManagerPolicy"] == NONE:
        for name in ("topologyManagerPolicyOptions", "topologyManagerScope"):
            if document.get(name):
                yield _warn("NoEffect", name, "has no effect with topologyManagerPolicy none; choose a policy or leave it out.")
    options = c["topologyManagerPolicyOptions"] or {}
    if c["topologyManagerPolicy"] == SINGLE_NUMA_NODE and options.get("prefer-closest-numa-nodes") in (
        "true",
        "1",
        "t",
        "T",
        "True",
    ):
        yield _warn(
            "NoEffect",
            "topologyManagerPolicyOptions.prefer-closest-numa-nodes",
            "has no effect with single-numa-node, which never looks at two nodes; use restricted or leave it out.",
        )
    if c["memoryManagerPolicy"] == "None" and c["reservedMemory"]:
        yield _warn("NoEffect", "reservedMemory", "has no effect with memoryManagerPolicy None; set it to Static or leave it out.")
    if c["reservedSystemCPUs"]:
        for name in ("kubeReserved", "systemReserved"):
            cpu = (c[name] or {}).get("cpu")
            if cpu:
                yield _warn(
                    "NoEffect",
                    f"{name}.cpu",
                    f"{cpu} counts for nothing, since reservedSystemCPUs {c['reservedSystemCPUs']} takes its place; leave one of them out.",
                )


def _eviction(c: Configuration, document: Mapping[str, Any], machine: Machine) -> Iterator[Diagnosis]:
    hard = c["evictionHard"]
    threshold = hard.get("memory.available")
    if document.get("evictionHard") is not None:
        missing = [signal for signal in _DISK_SIGNALS if signal not in hard]
        if missing:
            yield _warn(
                "NoDiskEviction",
                "evictionHard",
                f"leaves out {', '.join(missing)}, which are then off, and the disk may fill; add them (10%, 5%, 15% are the "
                "defaults) or set mergeDefaultEvictionSettings: true.",
            )
        if threshold is None:
            yield _warn(
                "NoMemoryEviction",
                "evictionHard",
                "leaves out memory.available, which is then off.",
                _write("evictionHard", {**hard, "memory.available": "100Mi"}, "write 100Mi, the default"),
            )
    if threshold in ("0%", "100%"):
        yield _warn(
            "NoMemoryEviction",
            "evictionHard.memory.available",
            f"{threshold} switches the threshold off.",
            _write("evictionHard", {**hard, "memory.available": "100Mi"}, "write 100Mi, the default"),
        )
    elif threshold and threshold.endswith("%") and c["memoryManagerPolicy"] == "Static":
        yield _warn(
            "PercentEviction",
            "evictionHard.memory.available",
            f"{threshold} of this machine's {machine.memory_capacity_bytes} bytes has to stand in reservedMemory to the byte, and a "
            "machine with another MemTotal will not start.",
            _write("evictionHard", {**hard, "memory.available": "500Mi"}, "write a quantity such as 500Mi"),
        )
    periods = c["evictionSoftGracePeriod"] or {}
    for signal in c["evictionSoft"] or {}:
        if signal not in EVICTION_SIGNALS:
            yield Diagnosis(
                f"evictionSoft.{signal}", "StopsAtStart", f"is no eviction signal.{did_you_mean(signal, EVICTION_SIGNALS)}"
            )
        elif signal not in periods:
            yield Diagnosis(
                f"evictionSoft.{signal}",
                "StopsAtStart",
                f"needs evictionSoftGracePeriod.{signal}, or the kubelet stops.",
                offers=(_write("evictionSoftGracePeriod", {**periods, signal: "1m30s"}, "write 1m30s"),),
            )


def _reserved_cpus(c: Configuration, node: Node) -> Iterator[Diagnosis]:
    if node.cpus is None:
        return
    reserved, lost = node.cpus.reserved, node.cpus.reserved_cores & ~node.cpus.reserved
    if node.cpus.options.full_pcpus_only and lost:
        yield _warn(
            "HalfReservedCores",
            "reservedSystemCPUs",
            f"takes {cpu_list(reserved)} and leaves the siblings {cpu_list(lost)}, which full-pcpus-only can give to nobody: "
            f"{lost.bit_count()} CPUs are lost.",
            _write(
                "reservedSystemCPUs",
                cpu_list(node.cpus.reserved_cores),
                f"reserve whole cores: {cpu_list(node.cpus.reserved_cores)}",
            ),
        )
    if c["reservedSystemCPUs"] and not node.cpus.options.strict_cpu_reservation:
        yield _warn(
            "SharedReservedCPUs",
            "reservedSystemCPUs",
            f"{c['reservedSystemCPUs']} are kept from exclusive use, but ordinary pods run on them too; to keep them free set "
            'cpuManagerPolicyOptions.strict-cpu-reservation: "true" (after a drain, with cpu_manager_state removed).',
        )
    if node.cpus.options.align_by_socket and node.cpus.topology.socket_count == node.cpus.topology.cpu_numa_count:
        yield _warn(
            "NoEffect",
            "cpuManagerPolicyOptions.align-by-socket",
            f"has no effect on {node.cpus.topology.socket_count} sockets of one NUMA node each; leave it out.",
        )


def _reserved_memory(c: Configuration, node: Node) -> Iterator[Diagnosis]:
    if node.memory is None:
        return
    left = dict(zip(node.numa_ids, node.memory.allocatable["memory"], strict=True))
    if len(set(left.values())) > 1:
        smallest = min(left, key=lambda i: left[i])
        yield _warn(
            "UnevenMemory",
            "reservedMemory",
            f"leaves {left[smallest]} bytes on NUMA node {smallest} and up to {max(left.values())} on others; a pod sized for the larger "
            "is refused on the smaller. Split the reservation evenly (the sum has to stay the same).",
        )
    if not c.gates["PodLevelResourceManagers"] and c.gates["PodLevelResources"]:
        yield _warn(
            "PodLevelResourcesNotPinned",
            "memoryManagerPolicy",
            "Static does not pin pods that have spec.resources (nor does the CPU manager); give resources per container.",
        )


def _policy_without_effect(c: Configuration, machine: Machine, devices: Mapping[str, Sequence[Device]]) -> Iterator[Diagnosis]:
    policy = c["topologyManagerPolicy"]
    if policy == NONE:
        return
    ids = {node.id for node in machine.numa_nodes}
    blind = [name for name, listed in devices.items() if listed and not any(device.numa for device in listed)]
    for name in blind:
        yield _warn(
            "DevicesWithoutTopology",
            f"devices.{name}",
            f"none of {len(devices[name])} devices has a NUMA node, so topologyManagerPolicy {policy} does not align them with "
            "anything; on a virtual machine expose virtual NUMA nodes to the guest.",
        )
    for name, listed in devices.items():
        stray = sorted({node for device in listed for node in device.numa if node not in ids})
        if stray:
            yield _warn(
                "UnknownNumaNode",
                f"devices.{name}",
                f"devices name NUMA node {', '.join(map(str, stray))}, which this machine does not have ({', '.join(map(str, sorted(ids)))}); "
                f"{policy} finds no place for them{'' if policy == BEST_EFFORT else ' and refuses their pods'}. Use best-effort or mend the plugin.",
            )
    with_topology = [name for name, listed in devices.items() if any(device.numa for device in listed)]
    if c["cpuManagerPolicy"] == "none" and c["memoryManagerPolicy"] == "None" and not with_topology:
        yield _warn(
            "NoEffect",
            "topologyManagerPolicy",
            f"{policy} aligns nothing: cpuManagerPolicy none, memoryManagerPolicy None and no device with a NUMA node give no hints. "
            "Set cpuManagerPolicy: static.",
        )


def admission_seconds(c: Configuration, machine: Machine, devices: Mapping[str, Sequence[Device]]) -> float:
    """About how long the kubelet takes to merge the hints of one container that asks for everything."""
    if c["topologyManagerPolicy"] not in (BEST_EFFORT, RESTRICTED):
        return 0.0
    masks = 2 ** len(machine.numa_nodes) - 1
    combinations = 1.0
    if c["cpuManagerPolicy"] == "static":
        combinations *= masks
    if c["memoryManagerPolicy"] == "Static":
        combinations *= masks
    for listed in devices.values():
        nodes = {node for device in listed for node in device.numa}
        combinations *= max(1, 2 ** len(nodes) - 1)
    return combinations * _SECONDS_PER_COMBINATION


def _admission_time(c: Configuration, machine: Machine, devices: Mapping[str, Sequence[Device]]) -> Iterator[Diagnosis]:
    seconds, count = admission_seconds(c, machine, devices), len(machine.numa_nodes)
    if seconds > _NOTICEABLE_SECONDS:
        yield _warn(
            "SlowAdmission",
            "topologyManagerPolicy",
            f"{c['topologyManagerPolicy']} on {count} NUMA nodes merges every combination of hints, about {seconds:.2g} s for a container with "
            "all resources, and no other pod is admitted meanwhile; use single-numa-node, memoryManagerPolicy None, or fewer NUMA "
            "nodes (NPS1, SNC off).",
        )
    if count > 8 and c["topologyManagerPolicy"] != NONE:
        yield _warn(
            "ManyNumaNodes",
            "topologyManagerPolicyOptions.max-allowable-numa-nodes",
            f"lets the kubelet enumerate 2^{count} sets of NUMA nodes for each request; 8 is the recommended maximum.",
        )


def _loops_and_crashes(c: Configuration, node: Node, machine: Machine) -> Iterator[Diagnosis]:
    if node.cpus is not None:
        options, topology = node.cpus.options, node.cpus.topology
        uneven = node.cpus.reserved_cores != node.cpus.reserved or not topology.uniform_cores
        if options.distribute_cpus_across_numa and options.full_pcpus_only and uneven:
            yield _warn(
                "MayLoopForEver",
                "cpuManagerPolicyOptions.distribute-cpus-across-numa",
                f"together with full-pcpus-only can make the kubelet loop for ever where a NUMA node has less than one core of "
                f"{topology.cpus_per_core} CPUs left over; reserve whole cores ({cpu_list(node.cpus.reserved_cores)}) or drop one of them.",
            )
    if node.memory is not None and node.memory.partial:
        missing = dict.fromkeys(sorted(node.memory.partial), node.memory.partial)
        yield _warn(
            "MayCrash",
            "memoryManagerPolicy",
            f"Static crashes on a Guaranteed pod that asks for {', '.join(missing)}, which not every one of {len(machine.numa_nodes)} NUMA "
            "nodes has; give every node the same page sizes (a count of 0 will do).",
        )

"""Compares what the kubelets gave to each pod with the planned slots. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.agents.alignment import Expected, Held, fitting, halves, reserved
from infra.diagnosis import Diagnosis
from infra.outputs.kubelet_state import CpuManagerState, DeviceCheckpoint, MemoryManagerState
from infra.plan.model import ModelPlan, PoolPlan, Slot
from infra.render import names
from infra.render.serving.expected import expected_placement
from infra.units import format_cpu_list


@dataclass(frozen=True, kw_only=True)
class NodeState:
    """The kubelet's state files of one node, parsed; None where a file is missing."""

    node: str
    cpus: CpuManagerState | None
    memory: MemoryManagerState | None
    devices: DeviceCheckpoint | None


@dataclass(frozen=True, kw_only=True)
class RunningPod:
    """One pod of a model, as the API server and its node's state files show it."""

    name: str
    uid: str
    node: str
    qos_class: str
    ready: bool


@dataclass(frozen=True, kw_only=True)
class PlacedPod:
    """What one pod holds, and the planned slot that it fills (None: none)."""

    pod: str
    model: str
    node: str
    numa_nodes: tuple[int, ...]
    gpus: tuple[str, ...]  # device ids as the plugin names them
    gpus_per_numa_node: Mapping[int, int]
    cpus: tuple[int, ...]
    memory_numa: tuple[int, ...]
    qos_class: str
    slot: int | None
    ok: bool


def place(
    pool: PoolPlan, model: ModelPlan, pods: Sequence[RunningPod], states: Mapping[str, NodeState]
) -> tuple[tuple[PlacedPod, ...], tuple[Diagnosis, ...]]:
    """Each pod with its slot, and a finding for each pod that fills none, or fills one wrongly.

    Slots of a node are taken one by one: two pods never fill the same one. What counts is alignment, by the rule of infra/agents/alignment.py: a pod
    that lies as any proven place does, there or on NUMA nodes built alike, takes a free slot of its node; without required anti-affinity it may be there
    beyond them.
    """
    placed: list[PlacedPod] = []
    findings: list[Diagnosis] = []
    expected = expected_placement(pool, model)
    free: dict[str, list[tuple[int, Slot]]] = {}
    taken: defaultdict[str, Counter[int]] = defaultdict(Counter)  # GPUs by NUMA node that earlier pods of the node hold
    for pod in sorted(pods, key=lambda p: (p.node, p.name)):
        slots = free.setdefault(pod.node, list(enumerate(_slots_of_node(model, pod.node))))
        held = _held(pool, model, pod, states.get(pod.node))
        given = _given(pool, held)
        wrong = _faults(model, held, given, expected)
        there = sum((taken[pod.node], Counter(given.gpus)), Counter[int]())
        # GPUs of which more are held than there are: files of different moments, or another machine than the plan's.
        proven = bool(fitting(given, expected)) and all(count <= expected.built[numa][1] for numa, count in there.items())
        exact = [(index, slot) for index, slot in slots if set(held.numa_nodes) <= set(slot.numa_nodes)]
        match = next((free for free in exact or slots if proven), None)
        taken[pod.node].update(held.gpus_per_numa_node)
        welcome = match is not None or (proven and model.placement.pod_anti_affinity != "required")
        if match is not None:
            slots.remove(match)
        elif not wrong and not welcome:
            wrong.append(_no_slot(pool, model, held, [slot for _, slot in slots]))
        placed.append(_with_slot(held, match[0] if match else None, ok=welcome and not wrong))
        findings += wrong
    return tuple(placed), tuple(findings)


def _slots_of_node(model: ModelPlan, node: str) -> tuple[Slot, ...]:
    named = [group for group in model.placement.slots if node in group.node_names]
    # Groups without names: the nodes are interchangeable, and any group's slots may be the node's.
    return (
        named[0].slots if named else tuple(slot for group in model.placement.slots if not group.node_names for slot in group.slots)
    )


def _held(pool: PoolPlan, model: ModelPlan, pod: RunningPod, state: NodeState | None) -> PlacedPod:
    cpus: tuple[int, ...] = ()
    by_numa: dict[int, tuple[str, ...]] = {}
    memory: tuple[int, ...] = ()
    if state is not None:
        if state.cpus is not None:
            cpus = state.cpus.assignments.get(pod.uid, {}).get(names.MAIN_CONTAINER, ())
        if state.devices is not None:
            by_numa = dict(
                state.devices.allocations.get(pod.uid, {}).get(names.MAIN_CONTAINER, {}).get(pool.hardware.resource_name, {})
            )
        if state.memory is not None:
            blocks = state.memory.assignments.get(pod.uid, {}).get(names.MAIN_CONTAINER, ())
            memory = tuple(sorted({numa for block in blocks for numa in block.numa_nodes}))
    cpu_nodes = {node.id for node in pool.hardware.numa_nodes if set(node.cpus) & set(cpus)}
    gpu_nodes = {numa for numa, ids in by_numa.items() if ids}
    return PlacedPod(
        pod=pod.name,
        model=model.name,
        node=pod.node,
        numa_nodes=tuple(sorted(cpu_nodes | gpu_nodes | set(memory))),
        gpus=tuple(sorted(device for ids in by_numa.values() for device in ids)),
        gpus_per_numa_node={numa: len(ids) for numa, ids in sorted(by_numa.items()) if ids},
        cpus=cpus,
        memory_numa=memory,
        qos_class=pod.qos_class,
        slot=None,
        ok=False,
    )


def _with_slot(held: PlacedPod, slot: int | None, *, ok: bool) -> PlacedPod:
    return PlacedPod(**{**held.__dict__, "slot": slot, "ok": ok})


def _given(pool: PoolPlan, held: PlacedPod) -> Held:
    mine = frozenset(held.cpus)
    return Held(
        gpus=held.gpus_per_numa_node,
        cpus=mine,
        cpu_nodes=frozenset(node.id for node in pool.hardware.numa_nodes if mine.intersection(node.cpus)),
        memory_nodes=frozenset(held.memory_numa),
    )


def _faults(model: ModelPlan, held: PlacedPod, given: Held, expected: Expected) -> list[Diagnosis]:
    """What no slot would excuse: reserved CPUs, half cores, another QoS class."""
    path = f"pods.{held.pod}"
    found: list[Diagnosis] = []
    recreate = f"Recreate it: kubectl -n {model.namespace} delete pod {held.pod}"
    if held.qos_class != model.resources.qos_class:
        found.append(
            Diagnosis(
                code="QosClassDiffers",
                path=path,
                severity="error",
                message=f"{held.pod} is {held.qos_class}, planned {model.resources.qos_class}.",
                remedy=f"Look for containers that something added: kubectl -n {model.namespace} get pod {held.pod} -o yaml",
            )
        )
    kept_back = reserved(given, expected)
    if kept_back:
        found.append(
            Diagnosis(
                code="ReservedCpusUsed",
                path=path,
                severity="error",
                message=f"{held.pod} holds the reserved CPUs {format_cpu_list(kept_back)}.",
                remedy=recreate,
            )
        )
    lonely = halves(given, expected)
    if lonely:
        found.append(
            Diagnosis(
                code="HalfCores",
                path=path,
                severity="error",
                message=f"{held.pod} holds CPUs {format_cpu_list(lonely)} without their siblings on the same core.",
                remedy=recreate,
            )
        )
    return found


def _no_slot(pool: PoolPlan, model: ModelPlan, held: PlacedPod, free: Sequence[Slot]) -> Diagnosis:
    has = (
        f"{sum(held.gpus_per_numa_node.values())} GPUs on NUMA {_counts(held.gpus_per_numa_node)}, {len(held.cpus)} "
        f"exclusive CPUs "
        f"on NUMA {format_cpu_list(n.id for n in pool.hardware.numa_nodes if set(n.cpus) & set(held.cpus)) or '-'}"
    )
    wanted = " or ".join(
        f"NUMA {format_cpu_list(slot.numa_nodes)} with {len(slot.gpus)} GPUs, {slot.cpu_count} CPUs" for slot in free
    )
    return Diagnosis(
        code="NoSlot",
        path=f"pods.{held.pod}",
        severity="error",
        message=f"{held.pod} on {held.node} holds {has}; free slots there: {wanted or 'none'}.",
        remedy=f"Check the node's kubelet configuration, then recreate the pod: kubectl -n {model.namespace} delete pod {held.pod}",
    )


def _counts(per_node: Mapping[int, int]) -> str:
    return ", ".join(f"{numa}: {count}" for numa, count in sorted(per_node.items())) or "-"

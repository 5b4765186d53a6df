"""Each running pod fills exactly one planned slot, or a finding says why not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infra.outputs.kubelet_state import CpuManagerState, DeviceCheckpoint, MemoryBlock, MemoryManagerState
from infra.plan.model import ModelPlan, PoolPlan, Slot, SlotGroup
from infra.units import parse_cpu_list
from infra.verify.placement import NodeState, RunningPod, place
from tests.support.builders import changed, model_plan, pool_plan

CORES = tuple(tuple((cpu, cpu + 112) for cpu in range(first, first + 56)) for first in (0, 56))


def pool() -> PoolPlan:
    plan = pool_plan("h100")
    return changed(
        plan, numa_nodes=tuple(changed(numa, cores=cores) for numa, cores in zip(plan.hardware.numa_nodes, CORES, strict=True))
    )


def model(slots: Sequence[Slot] | None = None) -> ModelPlan:
    two = slots or tuple(
        Slot(numa_nodes=(numa,), gpus=gpus, cpu_count=32, cpus_example=(), memory_numa=(numa,))
        for numa, gpus in ((0, (0, 1, 2, 3)), (1, (4, 5, 6, 7)))
    )
    return changed(model_plan("llama-70b", pool()), slots=(SlotGroup(nodes=2, slots=tuple(two), node_names=("gpu-a", "gpu-b")),))


def pod(name: str, *, node: str = "gpu-a", qos_class: str = "Guaranteed") -> RunningPod:
    return RunningPod(name=name, uid=f"uid-{name}", node=node, qos_class=qos_class, ready=True)


def state(
    cpus: Mapping[str, str], gpus: Mapping[str, Mapping[int, int]], memory: Mapping[str, int], node: str = "gpu-a"
) -> NodeState:
    """What a kubelet would have written: CPUs, GPU counts by NUMA node and the memory node of each pod."""
    return NodeState(
        node=node,
        cpus=CpuManagerState(
            policy="static", assignments={f"uid-{name}": {"vllm": parse_cpu_list(text)} for name, text in cpus.items()}
        ),
        devices=DeviceCheckpoint(
            allocations={
                f"uid-{name}": {
                    "vllm": {"nvidia.com/gpu": {numa: tuple(f"{name}-{numa}-{i}" for i in range(n)) for numa, n in counts.items()}}
                }
                for name, counts in gpus.items()
            },
            registered={},
        ),
        memory=MemoryManagerState(
            policy="Static",
            assignments={
                f"uid-{name}": {"vllm": (MemoryBlock(numa_nodes=(numa,), resource="memory", size_bytes=1),)}
                for name, numa in memory.items()
            },
        ),
    )


NODE_0, NODE_1 = "1-16,113-128", "57-72,169-184"


def test_two_pods_of_a_node_fill_its_two_slots_whichever_came_first() -> None:
    seen = state({"a": NODE_1, "b": NODE_0}, {"a": {1: 4}, "b": {0: 4}}, {"a": 1, "b": 0})
    placed, findings = place(pool(), model(), [pod("a"), pod("b")], {"gpu-a": seen})
    assert findings == ()
    assert [(p.pod, p.slot, p.ok, p.numa_nodes) for p in placed] == [("a", 1, True, (1,)), ("b", 0, True, (0,))]


def test_two_pods_never_fill_the_same_slot() -> None:
    seen = state({"a": NODE_0, "b": "17-32,129-144"}, {"a": {0: 4}, "b": {0: 4}}, {"a": 0, "b": 0})
    placed, findings = place(pool(), model(), [pod("a"), pod("b")], {"gpu-a": seen})
    assert [p.ok for p in placed] == [True, False]
    assert [f.code for f in findings] == ["NoSlot"]


def test_gpus_over_two_nodes_fill_no_slot_and_the_finding_tells_the_counts() -> None:
    seen = state({"a": NODE_0}, {"a": {0: 2, 1: 2}}, {"a": 0})
    placed, findings = place(pool(), model(), [pod("a")], {"gpu-a": seen})
    assert not placed[0].ok
    assert "4 GPUs on NUMA 0: 2, 1: 2" in findings[0].message


def test_memory_on_another_node_than_planned_fills_no_slot() -> None:
    seen = state({"a": NODE_0}, {"a": {0: 4}}, {"a": 1})
    assert [f.code for f in place(pool(), model(), [pod("a")], {"gpu-a": seen})[1]] == ["NoSlot"]


def test_a_reserved_cpu_is_a_finding() -> None:
    seen = state({"a": "0-15,112-127"}, {"a": {0: 4}}, {"a": 0})
    placed, findings = place(pool(), model(), [pod("a")], {"gpu-a": seen})
    assert not placed[0].ok
    assert [f.code for f in findings] == ["ReservedCpusUsed"]
    assert "0,112" in findings[0].message


def test_half_a_core_is_a_finding_that_names_the_lonely_cpus() -> None:
    seen = state({"a": "1-32"}, {"a": {0: 4}}, {"a": 0})
    findings = place(pool(), model(), [pod("a")], {"gpu-a": seen})[1]
    assert [f.code for f in findings] == ["HalfCores"]
    assert "1-32" in findings[0].message


def test_another_qos_class_is_a_finding() -> None:
    seen = state({"a": NODE_0}, {"a": {0: 4}}, {"a": 0})
    findings = place(pool(), model(), [pod("a", qos_class="Burstable")], {"gpu-a": seen})[1]
    assert [f.code for f in findings] == ["QosClassDiffers"]


def test_a_pod_in_the_shared_pool_fills_no_slot() -> None:
    seen = state({}, {"a": {0: 4}}, {"a": 0})
    findings = place(pool(), model(), [pod("a")], {"gpu-a": seen})[1]
    assert "0 exclusive CPUs" in findings[0].message


def test_a_node_without_state_files_is_no_pass() -> None:
    placed, findings = place(pool(), model(), [pod("a")], {})
    assert not placed[0].ok
    assert findings


PLACES = tuple(
    Slot(numa_nodes=(numa,), gpus=gpus, cpu_count=32, cpus_example=(), memory_numa=(numa,))
    for numa, gpus in ((0, (0, 1, 2, 3)), (1, (4, 5, 6, 7)))
)


def test_a_pod_in_another_proven_place_takes_the_free_slot_of_its_node() -> None:
    plan = changed(model(PLACES[:1]), places=PLACES, pod_anti_affinity="required")
    seen = state({"a": NODE_1}, {"a": {1: 4}}, {"a": 1})
    placed, findings = place(pool(), plan, [pod("a")], {"gpu-a": seen})
    assert findings == () and [(p.slot, p.ok) for p in placed] == [(0, True)]


def test_the_scheduler_may_put_two_pods_on_a_node_where_nothing_keeps_them_apart() -> None:
    seen = state({"a": NODE_0, "b": NODE_1}, {"a": {0: 4}, "b": {1: 4}}, {"a": 0, "b": 1})
    for affinity, ok in (("none", True), ("preferred", True), ("required", False)):
        plan = changed(model(PLACES[:1]), places=PLACES, pod_anti_affinity=affinity)
        placed, findings = place(pool(), plan, [pod("a"), pod("b")], {"gpu-a": seen})
        assert [p.ok for p in placed] == [True, ok]
        assert (findings == ()) == ok


def only_numa_0() -> ModelPlan:
    """One pod a node, planned on NUMA node 0."""
    return model([Slot(numa_nodes=(0,), gpus=(0, 1, 2, 3), cpu_count=32, cpus_example=(), memory_numa=(0,))])


def test_an_equal_numa_node_stands_for_the_planned_one() -> None:
    seen = state({"a": NODE_1}, {"a": {1: 4}}, {"a": 1})
    placed, findings = place(pool(), only_numa_0(), [pod("a")], {"gpu-a": seen})
    assert findings == ()
    assert (placed[0].slot, placed[0].ok, placed[0].numa_nodes) == (0, True, (1,))


def test_an_equal_numa_node_does_not_stand_for_it_with_memory_elsewhere() -> None:
    seen = state({"a": NODE_1}, {"a": {1: 4}}, {"a": 0})
    assert [f.code for f in place(pool(), only_numa_0(), [pod("a")], {"gpu-a": seen})[1]] == ["NoSlot"]


def test_a_numa_node_with_fewer_gpus_is_no_equal_one() -> None:
    small = pool()
    numa = (small.hardware.numa_nodes[0], changed(small.hardware.numa_nodes[1], gpus=(4, 5)))
    seen = state({"a": NODE_1}, {"a": {1: 4}}, {"a": 1})
    uneven = changed(small, numa_nodes=numa)
    assert [f.code for f in place(uneven, only_numa_0(), [pod("a")], {"gpu-a": seen})[1]] == ["NoSlot"]


def without_memory_manager() -> ModelPlan:
    return model([Slot(numa_nodes=(0,), gpus=(0, 1, 2, 3), cpu_count=32, cpus_example=())])


def test_without_a_memory_manager_memory_decides_nothing() -> None:
    for cpus, numa in ((NODE_0, 0), (NODE_1, 1)):
        seen = state({"a": cpus}, {"a": {numa: 4}}, {})
        assert place(pool(), without_memory_manager(), [pod("a")], {"gpu-a": seen})[1] == ()


def test_a_pod_without_cpus_gpus_and_a_free_slot_is_told_with_dashes() -> None:
    (finding,) = place(pool(), model(), [pod("a", node="elsewhere")], {})[1]
    assert finding.message == ("a on elsewhere holds 0 GPUs on NUMA -, 0 exclusive CPUs on NUMA -; free slots there: none.")


def test_a_pod_with_half_its_gpus_is_told_what_it_holds_and_what_was_free() -> None:
    seen = state({"a": NODE_0}, {"a": {0: 2}}, {"a": 0})
    (finding,) = place(pool(), model(), [pod("a")], {"gpu-a": seen})[1]
    assert finding.message == (
        "a on gpu-a holds 2 GPUs on NUMA 0: 2, 32 exclusive CPUs on NUMA 0; free slots there: "
        "NUMA 0 with 4 GPUs, 32 CPUs or NUMA 1 with 4 GPUs, 32 CPUs."
    )


def test_slots_of_other_nodes_are_not_this_nodes() -> None:
    own, of_any = (
        Slot(numa_nodes=(numa,), gpus=gpus, cpu_count=32, cpus_example=(), memory_numa=(numa,))
        for numa, gpus in ((0, (0, 1, 2, 3)), (1, (4, 5, 6, 7)))
    )
    groups = (SlotGroup(nodes=1, slots=(own,), node_names=("gpu-a",)), SlotGroup(nodes=1, slots=(of_any,)))
    planned = model_plan("llama-70b", pool(), slots=groups)
    messages = {
        node: place(pool(), planned, [pod("a", node=node)], {})[1][0].message.rsplit(": ", 1)[1] for node in ("gpu-a", "gpu-b")
    }
    assert messages == {"gpu-a": "NUMA 0 with 4 GPUs, 32 CPUs.", "gpu-b": "NUMA 1 with 4 GPUs, 32 CPUs."}

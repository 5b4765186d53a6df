"""The one rule of a right placement, and that the gate in the pod and verify outside come to the same verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infra.agents import gate
from infra.agents.alignment import Expected, Held, Place, fits, half_cores
from infra.agents.source import source_of
from infra.outputs.kubelet_state import CpuManagerState, DeviceCheckpoint, MemoryBlock, MemoryManagerState
from infra.plan.model import ModelPlan, PoolPlan, Slot, SlotGroup
from infra.render.serving.expected import expected_placement
from infra.render.serving.gate import gate_files
from infra.units import parse_cpu_list
from infra.verify.placement import NodeState, RunningPod, place
from tests.agents.test_gate import Machine
from tests.support.builders import changed, cluster_plan, model_plan, pool_plan

ALIKE = dict.fromkeys(range(4), (56, 2))


def held(gpus: dict[int, int], cpu_nodes: set[int], memory: set[int] = frozenset(), cpus: int = 32) -> Held:  # type: ignore[assignment]
    return Held(gpus=gpus, cpus=frozenset(range(cpus)), cpu_nodes=frozenset(cpu_nodes), memory_nodes=frozenset(memory))


def expected(**changes: Any) -> Expected:
    return Expected(**{"places": (), "cpu_count": 32, "built": ALIKE, **changes})


ONE = Place(numa_nodes=(0,), memory_nodes=(0,), gpus=((0, 2),))
TWO = Place(numa_nodes=(0, 1), memory_nodes=(0, 1), gpus=((0, 2), (1, 2)))
SPILLED = Place(numa_nodes=(0, 1), gpus=((0, 2),))


@pytest.mark.parametrize(
    ("place", "given", "right"),
    [
        (ONE, held({0: 2}, {0}, {0}), True),
        (ONE, held({3: 2}, {3}, {3}), True),
        (ONE, held({3: 2}, {2}, {3}), False),
        (ONE, held({3: 2}, {3}, {2}), False),
        (ONE, held({3: 2}, {3}, {2, 3}), False),
        (ONE, held({3: 2}, {3}, set()), False),
        (ONE, held({0: 1, 1: 1}, {0}, {0}), False),
        (ONE, held({0: 2}, {0}, {0}, cpus=30), False),
        (TWO, held({0: 2, 1: 2}, {0, 1}, {0, 1}), True),
        (TWO, held({1: 2, 3: 2}, {1, 3}, {1, 3}), True),
        (TWO, held({1: 2, 3: 2}, {1}, {1, 3}), True),
        (TWO, held({1: 2, 3: 2}, {1, 2, 3}, {1, 3}), False),
        (TWO, held({0: 3, 1: 1}, {0, 1}, {0, 1}), False),
        (TWO, held({0: 2, 1: 2}, {0, 1}, {0}), False),
        (SPILLED, held({0: 2}, {0, 1}, {0, 1, 2, 3}), True),
        (SPILLED, held({2: 2}, {1, 2}, {0, 1, 2, 3}), True),
        (SPILLED, held({2: 2}, {2}, {0, 1, 2, 3}), True),
        (SPILLED, held({2: 2}, {1, 2, 3}, {0}), False),
    ],
)
def test_a_set_of_numa_nodes_as_large_and_built_alike_is_right(place: Place, given: Held, right: bool) -> None:
    assert fits(given, place, expected()) is right


def test_numa_nodes_that_are_built_otherwise_do_not_stand_for_each_other() -> None:
    for built in ({0: (56, 2), 1: (48, 2)}, {0: (56, 2), 1: (56, 4)}, {0: (56, 2)}):
        assert fits(held({0: 2}, {0}, {0}), ONE, expected(built=built))
        assert not fits(held({1: 2}, {1}, {1}), ONE, expected(built=built))


def test_cpus_that_are_not_exclusive_decide_nothing() -> None:
    assert fits(held({1: 2}, {0, 1, 2, 3}, {1}, cpus=224), ONE, expected(cpu_count=None))


def test_half_cores_are_named() -> None:
    assert half_cores({0, 4, 1}, [(0, 4), (1, 5)]) == [1]


def test_the_gate_is_shipped_as_one_file_with_the_rule_in_it() -> None:
    text = source_of("gate")
    assert "from infra" not in text
    assert text.count("def fitting(") == 1
    assert text.count("from __future__") == 1
    compile(text, "gate.py", "exec")


CORES = tuple(tuple((cpu, cpu + 112) for cpu in range(first, first + 56)) for first in (0, 56))
NODE_0, NODE_1 = "1-16,113-128", "57-72,169-184"


def planned() -> tuple[PoolPlan, ModelPlan]:
    """A pod of four GPUs and 32 CPUs, proven on NUMA node 0 alone."""
    pool = pool_plan("h100")
    numa = tuple(changed(node, cores=cores) for node, cores in zip(pool.hardware.numa_nodes, CORES, strict=True))
    pool = changed(pool, numa_nodes=numa)
    slot = Slot(numa_nodes=(0,), gpus=(0, 1, 2, 3), cpu_count=32, cpus_example=(), memory_numa=(0,))
    return pool, changed(
        model_plan("llama-70b", pool), slots=(SlotGroup(nodes=1, slots=(slot,), node_names=("gpu-a",)),), places=()
    )


@pytest.mark.parametrize(
    ("cpus", "gpus", "memory", "right"),
    [
        (NODE_0, range(4), "0", True),
        (NODE_1, range(4, 8), "1", True),
        (NODE_1, range(4), "0", False),
        (NODE_0, range(4), "1", False),
        (NODE_1, range(4, 8), "0-1", False),
        (NODE_0, range(2, 6), "0", False),
        ("0-15,112-127", range(4), "0", False),
        ("1-32", range(4), "0", False),
        ("1-15,113-127", range(4), "0", False),
        (NODE_0, range(3), "0", False),
    ],
)
def test_the_gate_and_verify_come_to_the_same_verdict(tmp_path: Path, cpus: str, gpus: range, memory: str, right: bool) -> None:
    pool, model = planned()
    plan = json.loads(gate_files(cluster_plan(node_pools=(pool,), models=(model,)), model)["plan.json"])
    machine = Machine(tmp_path, cpus=cpus, memory=memory).nvidia(list(gpus))
    for core in (core for cores in CORES for core in cores):
        for cpu in core:
            machine.write(f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", f"{core[0]},{core[1]}\n")
    try:
        gate.prepare(plan, ["vllm"], {}, tmp_path, lambda _: None)
        passes = True
    except gate.GateError:
        passes = False
    by_numa = {numa: tuple(f"g{i}" for i in gpus if i // 4 == numa) for numa in (0, 1)}
    blocks = (MemoryBlock(numa_nodes=parse_cpu_list(memory), resource="memory", size_bytes=1),)
    state = NodeState(
        node="gpu-a",
        cpus=CpuManagerState(policy="static", assignments={"u": {"vllm": parse_cpu_list(cpus)}}),
        memory=MemoryManagerState(policy="Static", assignments={"u": {"vllm": blocks}}),
        devices=DeviceCheckpoint(allocations={"u": {"vllm": {"nvidia.com/gpu": by_numa}}}, registered={}),
    )
    pod = RunningPod(name="a", uid="u", node="gpu-a", qos_class="Guaranteed", ready=True)
    (placed,), _ = place(pool, model, [pod], {"gpu-a": state})
    assert (passes, placed.ok) == (right, right)


def test_what_the_gate_reads_of_its_plan_is_what_verify_takes() -> None:
    pool, model = planned()
    plan = json.loads(gate_files(cluster_plan(node_pools=(pool,), models=(model,)), model)["plan.json"])
    cores = tuple(core for cores in CORES for core in cores)
    assert gate.expected_of(plan, cores, {}, True) == expected_placement(pool, model)


def test_a_plan_of_an_earlier_release_is_read(tmp_path: Path) -> None:
    old = {"mode": "enforce", "vendor": "nvidia", "gpus": 4, "cpus": 32, "exclusiveCpus": True, "rankBinding": None}
    old["slots"] = [{"numaNodes": [0], "memoryNuma": [0]}]
    machine = Machine(tmp_path, cpus=NODE_1, memory="1").nvidia(range(4, 8))
    assert gate.prepare(old, ["vllm"], {}, machine.root, lambda _: None) == ["vllm"]
    crossed = Machine(tmp_path / "b", cpus=NODE_0, memory="1").nvidia(range(4, 8))
    with pytest.raises(gate.GateError, match="GPUs lie on NUMA nodes 1, CPUs on 0"):
        gate.prepare(old, ["vllm"], {}, crossed.root, lambda _: None)

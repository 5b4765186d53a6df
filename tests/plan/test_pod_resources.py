"""CPU, memory and /dev/shm of a pod, and the deadlines of its start."""

from __future__ import annotations

from fractions import Fraction

import pytest

from infra.errors import PlanError
from infra.plan.pod_resources import MachineShare, PodNeeds, decide_pod_resources
from infra.plan.startup import startup_budget
from infra.units import GIB

NUMA_OF_DGX_H100 = MachineShare(cpus=108, memory_bytes=1000 * GIB, gpus=4, threads_per_core=2)
LLAMA_70B = PodNeeds(gpus=4, checkpoint_bytes=141_107_412_992)


def codes(error: pytest.ExceptionInfo[PlanError]) -> list[str]:
    return [problem.code for problem in error.value.problems]


@pytest.mark.parametrize(("gpus", "floor"), [(1, 6), (2, 8), (4, 12), (8, 20)])
def test_the_floor_is_two_cores_and_one_a_gpu_twice_as_many_cpus_with_smt(gpus: int, floor: int) -> None:
    share = MachineShare(cpus=floor, memory_bytes=1000 * GIB, gpus=gpus)
    assert decide_pod_resources(PodNeeds(gpus=gpus, checkpoint_bytes=GIB), share).cpu == floor
    short = MachineShare(cpus=floor - 2, memory_bytes=1000 * GIB, gpus=gpus)
    with pytest.raises(PlanError, match=f"= {floor} CPUs; the share of .* is {floor - 2} of the {floor - 2} free CPUs") as error:
        decide_pod_resources(PodNeeds(gpus=gpus, checkpoint_bytes=GIB), short)
    assert codes(error) == ["CpuDoesNotFit"]


def test_without_smt_the_floor_counts_once() -> None:
    share = MachineShare(cpus=6, memory_bytes=1000 * GIB, gpus=4, threads_per_core=1)
    assert decide_pod_resources(LLAMA_70B, share).cpu == 6


def test_data_parallel_ranks_have_an_engine_core_each_and_a_coordinator() -> None:
    assert PodNeeds(gpus=8, checkpoint_bytes=1, data_parallel_size=8, api_servers=8).floor_cores == 25
    assert PodNeeds(gpus=8, checkpoint_bytes=1).floor_cores == 10


def test_four_gpus_of_an_h100_node_get_four_cores_a_gpu_and_leave_the_rest() -> None:
    assert decide_pod_resources(LLAMA_70B, NUMA_OF_DGX_H100).cpu == 32


def test_cpus_are_whole_cores_of_the_fair_share() -> None:
    share = MachineShare(cpus=46, memory_bytes=400 * GIB, gpus=4)
    cpu = decide_pod_resources(PodNeeds(gpus=3, checkpoint_bytes=GIB), share).cpu
    assert cpu == 24 and cpu % 2 == 0
    tight = decide_pod_resources(PodNeeds(gpus=1, checkpoint_bytes=GIB), MachineShare(cpus=27, memory_bytes=400 * GIB, gpus=4))
    assert tight.cpu == 6


def test_all_pods_of_a_numa_node_fit_beside_each_other() -> None:
    for gpus in (1, 2, 4):
        for cpus in range(12, 120, 7):
            share = MachineShare(cpus=cpus, memory_bytes=333 * GIB, gpus=4)
            try:
                decided = decide_pod_resources(PodNeeds(gpus=gpus, checkpoint_bytes=90 * 10**9), share)
            except PlanError:
                continue
            pods = 4 // gpus
            assert decided.cpu * pods <= cpus and decided.memory_bytes * pods <= share.memory_bytes


def test_shared_memory_lies_inside_the_memory_limit() -> None:
    decided = decide_pod_resources(LLAMA_70B, NUMA_OF_DGX_H100)
    assert decided.shared_memory_bytes == 16 * GIB
    # 4 workers of 4, front end 8, /dev/shm 16, shards 8, then the rest of the checkpoint as page cache
    assert decided.memory_bytes == (16 + 8 + 16 + 8 + 124) * GIB


def test_page_cache_is_cut_to_the_share_but_never_the_need() -> None:
    share = MachineShare(cpus=108, memory_bytes=60 * GIB, gpus=4)
    decided = decide_pod_resources(LLAMA_70B, share)
    assert decided.memory_bytes == 60 * GIB
    assert any("12 GiB of 124 GiB fit the share" in reason for reason in decided.reasons)
    with pytest.raises(PlanError, match=r"= 48 GiB; the share of 4 GPUs is 47 GiB"):
        decide_pod_resources(LLAMA_70B, MachineShare(cpus=108, memory_bytes=47 * GIB, gpus=4))


def test_offloaded_weights_are_needed_in_full() -> None:
    plain = decide_pod_resources(LLAMA_70B, MachineShare(cpus=108, memory_bytes=90 * GIB, gpus=4))
    needs = PodNeeds(gpus=4, checkpoint_bytes=LLAMA_70B.checkpoint_bytes, cpu_offload_bytes=40 * GIB)
    offloading = decide_pod_resources(needs, MachineShare(cpus=108, memory_bytes=90 * GIB, gpus=4))
    assert plain.memory_bytes == offloading.memory_bytes == 90 * GIB
    with pytest.raises(PlanError, match="offloaded weights"):
        decide_pod_resources(needs, MachineShare(cpus=108, memory_bytes=80 * GIB, gpus=4))


def test_overrides_that_cannot_work_are_all_reported_with_their_path() -> None:
    with pytest.raises(PlanError) as error:
        decide_pod_resources(LLAMA_70B, NUMA_OF_DGX_H100, cpu=111, memory_bytes=8 * GIB, path="models[0]")
    assert [(p.code, p.path) for p in error.value.problems] == [
        ("CpuDoesNotFit", "models[0].resources.cpu"),
        ("PartialCore", "models[0].resources.cpu"),
        ("MemoryTooSmall", "models[0].resources.memory"),
    ]


def test_a_cpu_override_below_the_floor_works_with_a_warning() -> None:
    decided = decide_pod_resources(LLAMA_70B, NUMA_OF_DGX_H100, cpu=8, path="models[0]")
    assert decided.cpu == 8
    assert [warning.code for warning in decided.warnings] == ["BelowCpuFloor"]


def test_overrides_that_work_are_kept() -> None:
    decided = decide_pod_resources(LLAMA_70B, NUMA_OF_DGX_H100, cpu=32, memory_bytes=128 * GIB, shared_memory_bytes=16 * GIB)
    assert (decided.cpu, decided.memory_bytes, decided.shared_memory_bytes, decided.warnings) == (32, 128 * GIB, 16 * GIB, ())


def test_more_gpus_than_the_share_has_are_refused() -> None:
    with pytest.raises(PlanError, match=r"asks for 8 GPUs; .* have 4"):
        decide_pod_resources(PodNeeds(gpus=8, checkpoint_bytes=1), NUMA_OF_DGX_H100)


def test_every_number_has_one_reason() -> None:
    reasons = decide_pod_resources(LLAMA_70B, NUMA_OF_DGX_H100).reasons
    assert [reason.split()[0] for reason in reasons] == ["cpu", "memory", "the", "/dev/shm"]


def test_the_startup_budget_covers_loading_with_its_margin() -> None:
    start = startup_budget(140_000_000_000, storage_bytes_per_second=200_000_000)
    assert start.load_seconds == 700
    assert start.budget_seconds == 1350  # 700 x 1.5 + 300
    assert start.budget_seconds >= 1050
    assert start.budget_seconds < start.progress_deadline_seconds < start.update_timeout_seconds


@pytest.mark.parametrize("speed", [50e6, 200e6, 1e9, 12e9])
@pytest.mark.parametrize("weights", [10**9, 16 * 10**9, 140 * 10**9, 700 * 10**9])
def test_deadlines_are_in_order_at_any_speed(weights: int, speed: float) -> None:
    start = startup_budget(weights, storage_bytes_per_second=speed, replicas=5, replicas_at_a_time=2)
    assert start.budget_seconds >= Fraction(3, 2) * start.load_seconds
    assert start.progress_deadline_seconds > start.budget_seconds
    assert start.progress_deadline_seconds + 30 <= start.create_timeout_seconds < start.progress_deadline_seconds + 90
    assert start.update_timeout_seconds >= 3 * start.progress_deadline_seconds


def test_an_unmeasured_storage_is_said_to_be_so() -> None:
    start = startup_budget(140_000_000_000)
    assert start.load_seconds == 700 and "not stated" in start.reasons[0]


def test_a_progress_deadline_below_the_budget_is_an_error() -> None:
    with pytest.raises(
        PlanError, match=r"models\[1\].progressDeadlineSeconds: 600 s is not above the startup budget of 1800 s"
    ) as error:
        startup_budget(10**9, budget_seconds=1800, progress_deadline_seconds=600, path="models[1]")
    assert codes(error) == ["DeadlineBelowBudget"]

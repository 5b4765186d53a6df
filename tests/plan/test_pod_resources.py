"""CPU, memory and /dev/shm of a pod, and the deadlines of its start."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infra.errors import PlanError
from infra.plan.pod_resources import MachineShare, PodNeeds, decide_pod_resources
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


SHARE = MachineShare(cpus=64, memory_bytes=256 * GIB, gpus=4)


@pytest.mark.parametrize(
    ("cpus", "threads", "gpus", "share"),
    [
        (64, 2, 1, 16),
        (64, 2, 3, 48),
        (66, 2, 1, 16),
        (70, 2, 1, 16),
        (72, 2, 1, 18),
        (67, 1, 1, 16),
        (68, 1, 1, 17),
        (64, 4, 2, 32),
        (70, 4, 2, 32),
    ],
)
def test_whole_cores_in_proportion_to_the_gpus(cpus: int, threads: int, gpus: int, share: int) -> None:
    assert MachineShare(cpus=cpus, memory_bytes=0, gpus=4, threads_per_core=threads).cpus_for(gpus) == share


def test_whole_gib_in_proportion_to_the_gpus() -> None:
    share = MachineShare(cpus=0, memory_bytes=10 * GIB - 1, gpus=4)
    assert [share.memory_for(gpus) // GIB for gpus in (1, 2, 4)] == [2, 4, 9]
    assert share.memory_for(1) % GIB == 0


@pytest.mark.parametrize(("servers", "data", "cores"), [(1, 1, 6), (2, 1, 7), (1, 2, 8), (4, 4, 13)])
def test_the_floor_of_four_gpus(servers: int, data: int, cores: int) -> None:
    assert PodNeeds(gpus=4, checkpoint_bytes=1, api_servers=servers, data_parallel_size=data).floor_cores == cores


@pytest.mark.parametrize(("gpus", "fits"), [(0, False), (1, True), (4, True), (5, False)])
def test_a_pod_has_some_gpus_of_its_share(gpus: int, fits: bool) -> None:
    needs = PodNeeds(gpus=gpus, checkpoint_bytes=1)
    if fits:
        assert decide_pod_resources(needs, SHARE).cpu > 0
    else:
        with pytest.raises(PlanError, match=f"asks for {gpus} GPUs; the NUMA nodes of this share have 4. Use at most 4 a pod"):
            decide_pod_resources(needs, SHARE)


@pytest.mark.parametrize(
    ("gpus", "share", "cpu", "sentence"),
    [
        (1, SHARE, 8, "cpu 8: whole cores, 4 a GPU (x 2 threads); vLLM's floor for 1 GPU is 3 physical cores (x 2 threads) = 6 CPUs, and the share of 1 GPU would be 16."),
        (2, SHARE, 16, "cpu 16: whole cores, 4 a GPU (x 2 threads); vLLM's floor for 2 GPUs is 4 physical cores (x 2 threads) = 8 CPUs, and the share of 2 GPUs would be 32."),
        (1, MachineShare(cpus=28, memory_bytes=256 * GIB, gpus=4), 6,
         "cpu 6: the share of 1 GPU of the 28 free CPUs, in whole cores; vLLM's floor for 1 GPU is 3 physical cores (x 2 threads) = 6 CPUs."),
        (1, MachineShare(cpus=32, memory_bytes=256 * GIB, gpus=4), 8,
         "cpu 8: whole cores, 4 a GPU (x 2 threads); vLLM's floor for 1 GPU is 3 physical cores (x 2 threads) = 6 CPUs, and the share of 1 GPU would be 8."),
        (1, MachineShare(cpus=20, memory_bytes=256 * GIB, gpus=4, threads_per_core=1), 4,
         "cpu 4: whole cores, 4 a GPU; vLLM's floor for 1 GPU is 3 physical cores = 3 CPUs, and the share of 1 GPU would be 5."),
    ],
)  # fmt: skip
def test_cpus_and_why(gpus: int, share: MachineShare, cpu: int, sentence: str) -> None:
    decided = decide_pod_resources(PodNeeds(gpus=gpus, checkpoint_bytes=GIB), share)
    assert decided.cpu == cpu and decided.reasons[0] == sentence


def test_many_api_servers_raise_the_cpus_above_four_a_gpu() -> None:
    assert decide_pod_resources(PodNeeds(gpus=1, checkpoint_bytes=GIB, api_servers=3), SHARE).cpu == 10


@pytest.mark.parametrize(
    ("cpu", "codes_found", "remedy"),
    [(6, [], ""), (4, ["BelowCpuFloor"], ""), (7, ["PartialCore"], "Use 8, or turn"), (64, [], ""), (65, ["PartialCore"], "Use 66, or turn"), (66, [], "")],
)  # fmt: skip
def test_cpus_that_are_given(cpu: int, codes_found: list[str], remedy: str) -> None:
    needs = PodNeeds(gpus=1, checkpoint_bytes=GIB)
    if codes_found in ([], ["BelowCpuFloor"]):
        decided = decide_pod_resources(needs, SHARE, cpu=cpu)
        assert (decided.cpu, [warning.code for warning in decided.warnings]) == (cpu, codes_found)
        assert decided.reasons[0].startswith(f"cpu {cpu}: given; vLLM's floor for 1 GPU is 3 physical cores")
    else:
        with pytest.raises(PlanError) as error:
            decide_pod_resources(needs, SHARE, cpu=cpu)
        assert sorted(codes(error)) == sorted(codes_found) and remedy in str(error.value)
        assert {problem.path for problem in error.value.problems} == {"resources.cpu"}


@pytest.mark.parametrize("whole_cores", [True, False])
def test_single_threads_are_refused_only_where_the_plan_may_turn_whole_cores_on(whole_cores: bool) -> None:
    share, needs = replace(SHARE, whole_cores=whole_cores), PodNeeds(gpus=1, checkpoint_bytes=GIB)
    if whole_cores:
        with pytest.raises(PlanError, match="7 CPUs are not whole cores"):
            decide_pod_resources(needs, share, cpu=7)
    else:
        assert decide_pod_resources(needs, share, cpu=7).cpu == 7


@pytest.mark.parametrize(
    ("needs", "shm_gib", "minimum_gib"),
    [
        (PodNeeds(gpus=1, checkpoint_bytes=1), 2, 4 + 8 + 2 + 1),
        (PodNeeds(gpus=1, checkpoint_bytes=GIB), 2, 4 + 8 + 2 + 1),
        (PodNeeds(gpus=2, checkpoint_bytes=0), 8, 8 + 8 + 8),
        (PodNeeds(gpus=2, checkpoint_bytes=GIB, api_servers=3), 8, 8 + 24 + 8 + 1),
        (PodNeeds(gpus=2, checkpoint_bytes=GIB, data_parallel_size=2), 8, 8 + 16 + 8 + 1),
        (PodNeeds(gpus=1, checkpoint_bytes=GIB, cpu_offload_bytes=3 * GIB, kv_offload_bytes=5 * GIB), 2, 15 + 8),
    ],
)
def test_memory_that_a_pod_needs(needs: PodNeeds, shm_gib: int, minimum_gib: int) -> None:
    decided = decide_pod_resources(needs, SHARE)
    assert (decided.shared_memory_bytes, decided.memory_bytes) == (shm_gib * GIB, minimum_gib * GIB)
    assert f"= {minimum_gib} GiB, and room for cached weights." in decided.reasons[1]
    assert ("offloaded weights and cache (pinned, never reclaimed)" in decided.reasons[1]) is (needs.cpu_offload_bytes > 0)
    assert "0 GiB of it fit, the whole checkpoint." in decided.reasons[2]


@pytest.mark.parametrize(
    ("checkpoint_gib", "memory_gib", "sentence"),
    [
        (20, 22 + 12, "12 GiB of it fit, the whole checkpoint."),  # 8 GiB of it are the window of loading
        (50, 22 + 42, "42 GiB of it fit, the whole checkpoint."),
        (51, 64, "42 GiB of 43 GiB fit the share of 1 GPU; the rest is read again after eviction."),
    ],
)
def test_the_page_cache_takes_what_the_share_leaves(checkpoint_gib: int, memory_gib: int, sentence: str) -> None:
    decided = decide_pod_resources(PodNeeds(gpus=1, checkpoint_bytes=checkpoint_gib * GIB), SHARE)
    assert decided.memory_bytes == memory_gib * GIB
    assert decided.reasons[2].endswith(sentence)


def test_a_share_of_exactly_the_need_is_enough() -> None:
    needs = PodNeeds(gpus=1, checkpoint_bytes=GIB)
    at, below = (MachineShare(cpus=64, memory_bytes=gib * GIB, gpus=1) for gib in (15, 14))
    assert decide_pod_resources(needs, at).memory_bytes == 15 * GIB
    with pytest.raises(PlanError, match="= 15 GiB; the share of 1 GPU is 14 GiB of 14 GiB") as error:
        decide_pod_resources(needs, below)
    assert codes(error) == ["MemoryDoesNotFit"]


@pytest.mark.parametrize(
    ("given_gib", "code", "message"),
    [
        (22, None, ""),
        (21.9, "MemoryTight", "21.9 GiB leaves less than 8 GiB to load shards; expect slow loading"),
        (14, "MemoryTight", "14 GiB leaves less than 8 GiB to load shards"),
        (13.9, "MemoryTooSmall", "13.9 GiB cannot hold 12 GiB processes + 2 GiB /dev/shm + 8 GiB shards being loaded = 22 GiB"),
        (256, None, ""),
        (257, None, ""),
    ],
)
def test_memory_that_is_given(given_gib: float, code: str | None, message: str) -> None:
    needs, given = PodNeeds(gpus=1, checkpoint_bytes=100 * GIB), round(given_gib * GIB)
    if code in (None, "MemoryTight"):
        decided = decide_pod_resources(needs, SHARE, memory_bytes=given)
        assert decided.memory_bytes == given and decided.reasons[1].startswith(
            f"memory {given_gib:g} GiB: given; it has to hold 12 GiB"
        )
        assert [warning.code for warning in decided.warnings] == ([] if code is None else [code])
        assert all(message in warning.message and warning.path == "resources.memory" for warning in decided.warnings)
    else:
        with pytest.raises(PlanError) as error:
            decide_pod_resources(needs, SHARE, memory_bytes=given)
        assert codes(error) == [code] and message in str(error.value)


def test_pinned_memory_counts_to_what_must_be_given() -> None:
    needs = PodNeeds(gpus=1, checkpoint_bytes=GIB, kv_offload_bytes=10 * GIB)
    assert decide_pod_resources(needs, SHARE, memory_bytes=24 * GIB).memory_bytes == 24 * GIB
    with pytest.raises(PlanError, match="23 GiB cannot hold"):
        decide_pod_resources(needs, SHARE, memory_bytes=23 * GIB)


def test_shared_memory_and_why() -> None:
    one, two = (decide_pod_resources(PodNeeds(gpus=gpus, checkpoint_bytes=GIB), SHARE).reasons[-1] for gpus in (1, 2))
    assert one.startswith("/dev/shm 2 GiB: one GPU needs no collective") and two.startswith("/dev/shm 8 GiB: 4 GiB a GPU")
    given = decide_pod_resources(PodNeeds(gpus=1, checkpoint_bytes=GIB), SHARE, shared_memory_bytes=5 * GIB + GIB // 2)
    assert given.shared_memory_bytes == 5 * GIB + GIB // 2 and given.reasons[-1].startswith("/dev/shm 5.5 GiB: given;")
    assert given.memory_bytes == 19 * GIB, "12 for processes, 5.5 and 1, in whole GiB"

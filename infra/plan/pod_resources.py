"""CPU, memory and /dev/shm of a vLLM pod from the share of the machine that its GPUs entitle it to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from infra.diagnosis import Diagnosis
from infra.errors import PlanError
from infra.offers import MODEL, POOL, Offer
from infra.units import GIB

# Twice the workers' floor: a core for the worker's launch thread and one for its copies, plus tokenisers of the API server, without
# taking the machine.
CORES_A_GPU = 4
WORKER_BYTES = 4 * GIB  # resident Python, torch and CUDA or HIP runtime of a worker, with torch.compile at work
FRONT_END_BYTES = 8 * GIB  # API server with tokenisers and chat templates, and the engine core with its scheduler
LOADING_WINDOW_BYTES = 8 * GIB  # mapped pages of the shards that are being copied just now
SHARED_MEMORY_BYTES_A_GPU = 4 * GIB  # message queues, NCCL's or RCCL's SHM transport, multimodal inputs between processes
SINGLE_GPU_SHARED_MEMORY_BYTES = 2 * GIB


@dataclass(frozen=True, kw_only=True)
class MachineShare:
    """What the NUMA nodes of a pod's GPUs have for pods, after the kubelet's reservations and known co-tenants.

    `cpus` and `memory_bytes` are free for all GPU pods on those nodes, `gpus` their GPUs. `threads_per_core` 1 without SMT. `whole_cores`: the plan may turn
    full-pcpus-only on, which refuses single threads.
    """

    cpus: int
    memory_bytes: int
    gpus: int
    threads_per_core: int = 2
    whole_cores: bool = True

    def cpus_for(self, gpus: int) -> int:
        """Whole cores in proportion to the GPUs, as logical CPUs."""
        fair = self.cpus * gpus // self.gpus
        return fair - fair % self.threads_per_core

    def memory_for(self, gpus: int) -> int:
        """Whole GiB in proportion to the GPUs."""
        return self.memory_bytes * gpus // self.gpus // GIB * GIB


@dataclass(frozen=True, kw_only=True)
class PodNeeds:
    """What the model asks of the host, a pod.

    `checkpoint_bytes` is what the pod reads from storage; `cpu_offload_bytes` weights kept in host memory (cpu_offload_gb, all
    workers together), `kv_offload_bytes` pinned cache in host memory. `api_servers` and `data_parallel_size` are those inside this
    pod.
    """

    gpus: int
    checkpoint_bytes: int
    cpu_offload_bytes: int = 0
    kv_offload_bytes: int = 0
    api_servers: int = 1
    data_parallel_size: int = 1

    @property
    def floor_cores(self) -> int:
        """vLLM's floor of physical cores (its documentation, configuration/optimization): one an API server, an engine core and a
        worker, and one for the coordinator of data parallel ranks."""
        return self.api_servers + self.data_parallel_size + self.gpus + (1 if self.data_parallel_size > 1 else 0)


@dataclass(frozen=True, kw_only=True)
class PodResources:
    """Requests and limits at once (Guaranteed). `shared_memory_bytes` is the sizeLimit of the in-memory /dev/shm and lies inside
    `memory_bytes`."""

    cpu: int
    memory_bytes: int
    shared_memory_bytes: int
    reasons: tuple[str, ...]
    warnings: tuple[Diagnosis, ...] = ()


def decide_pod_resources(
    needs: PodNeeds,
    share: MachineShare,
    *,
    cpu: int | None = None,
    memory_bytes: int | None = None,
    shared_memory_bytes: int | None = None,
    path: str = "",
) -> PodResources:
    """CPU, memory and shm of one pod; `cpu`, `memory_bytes`, `shared_memory_bytes` are the user's own and are checked instead of
    decided.

    `path` is the model's place in the stack file. PlanError lists everything that cannot work.
    """
    problems: list[Diagnosis] = []
    warnings: list[Diagnosis] = []
    if needs.gpus < 1 or needs.gpus > share.gpus:
        raise PlanError(
            [
                Diagnosis(
                    path=path,
                    code="TooManyGpus",
                    message=f"the pod asks for {needs.gpus} GPUs; the NUMA nodes of this share have {share.gpus}",
                    offers=(Offer.of(f"use at most {share.gpus} a pod", ("model.tensorParallelSize", share.gpus)),),
                )
            ]
        )
    decided_cpu, cpu_reason = _cpu(needs, share, cpu, path, problems, warnings)
    shm, shm_reason = _shared_memory(needs, shared_memory_bytes)
    decided_memory, memory_reasons = _memory(needs, share, shm, memory_bytes, path, problems, warnings)
    if problems:
        raise PlanError(problems)
    return PodResources(
        cpu=decided_cpu,
        memory_bytes=decided_memory,
        shared_memory_bytes=shm,
        reasons=(cpu_reason, *memory_reasons, shm_reason),
        warnings=tuple(warnings),
    )


def _cpu(
    needs: PodNeeds, share: MachineShare, cpu: int | None, path: str, problems: list[Diagnosis], warnings: list[Diagnosis]
) -> tuple[int, str]:
    threads, where = share.threads_per_core, f"{path}.resources.cpu" if path else "resources.cpu"
    floor = needs.floor_cores * threads
    fair = share.cpus_for(needs.gpus)
    smt = f" (x {threads} threads)" if threads > 1 else ""
    floor_text = f"vLLM's floor for {_gpus(needs.gpus)} is {needs.floor_cores} physical cores{smt} = {floor} CPUs"
    if cpu is not None:
        if share.whole_cores and cpu % threads:
            problems.append(
                Diagnosis(
                    path=where,
                    code="PartialCore",
                    message=f"{cpu} CPUs are not whole cores of {threads} threads: full-pcpus-only refuses them (SMTAlignmentError)",
                    offers=tuple(_whole_cores(cpu, threads)),
                )
            )
        if cpu < floor:
            warnings.append(
                Diagnosis.warning(
                    path=where,
                    code="BelowCpuFloor",
                    message=f"{cpu} CPUs are below the floor: {floor_text}; expect GPU workers to wait for the CPU",
                    offers=(cpu_offer(floor, "ask for {}"),),
                )
            )
        return cpu, f"cpu {cpu}: given; {floor_text}."
    if fair < floor:
        problems.append(
            Diagnosis(
                path=where,
                code="CpuDoesNotFit",
                message=f"{floor_text}; the share of {_gpus(needs.gpus)} is {fair} of the {share.cpus} free CPUs",
                offers=() if fair < threads else (cpu_offer(fair, "run below the floor with resources.cpu {}"),),
                remedy="Put fewer pods on the machine, or reserve fewer CPUs.",
            )
        )
        return floor, ""
    wanted = max(floor, CORES_A_GPU * needs.gpus * threads)
    decided = min(wanted, fair)
    if decided == wanted:
        return decided, (
            f"cpu {decided}: whole cores, {CORES_A_GPU} a GPU{smt}; {floor_text}, and the share of {_gpus(needs.gpus)} would be {fair}."
        )
    return decided, f"cpu {decided}: the share of {_gpus(needs.gpus)} of the {share.cpus} free CPUs, in whole cores; {floor_text}."


def _whole_cores(cpu: int, threads: int) -> Iterator[Offer]:
    above = cpu + -cpu % threads
    yield from (cpu_offer(cpus) for cpus in (above, above - threads) if cpus > 0)
    off = {"full-pcpus-only": "false", "strict-cpu-reservation": "true"}
    yield Offer.of("turn full-pcpus-only off in cpuManagerPolicyOptions", (f"{POOL}.kubelet.cpuManagerPolicyOptions", off))


def cpu_offer(cpus: int, words: str = "use {}") -> Offer:
    return Offer.of(words.format(cpus), (f"{MODEL}.resources.cpu", str(cpus)), kind="cpu")


def memory_offer(size_bytes: int, words: str = "use {}") -> Offer:
    """Whole GiB, as they are written."""
    size = f"{size_bytes // GIB}Gi"
    return Offer.of(words.format(size), (f"{MODEL}.resources.memory", size), kind="memory")


def _shared_memory(needs: PodNeeds, given: int | None) -> tuple[int, str]:
    if given is not None:
        return given, f"/dev/shm {_gib(given)}: given; what is written there counts to the container's memory."
    if needs.gpus == 1:
        return SINGLE_GPU_SHARED_MEMORY_BYTES, (
            f"/dev/shm {_gib(SINGLE_GPU_SHARED_MEMORY_BYTES)}: one GPU needs no collective, only the queues between API server and engine;"
            " the container runtime's 64 MiB are too small for those."
        )
    size = SHARED_MEMORY_BYTES_A_GPU * needs.gpus
    return size, (
        f"/dev/shm {_gib(size)}: {_gib(SHARED_MEMORY_BYTES_A_GPU)} a GPU for message queues and the collective library's SHM transport;"
        " it is memory-backed, so it lies inside the memory limit."
    )


def _memory(
    needs: PodNeeds,
    share: MachineShare,
    shm: int,
    given: int | None,
    path: str,
    problems: list[Diagnosis],
    warnings: list[Diagnosis],
) -> tuple[int, tuple[str, ...]]:
    where = f"{path}.resources.memory" if path else "resources.memory"
    processes = WORKER_BYTES * needs.gpus + FRONT_END_BYTES * max(needs.api_servers, needs.data_parallel_size)
    pinned = needs.cpu_offload_bytes + needs.kv_offload_bytes
    window = min(needs.checkpoint_bytes, LOADING_WINDOW_BYTES)
    minimum = ceil((processes + pinned + window + shm) / GIB) * GIB
    parts = f"{_gib(processes)} processes + {_gib(shm)} /dev/shm + {_gib(window)} shards being loaded"
    if pinned:
        parts += f" + {_gib(pinned)} offloaded weights and cache (pinned, never reclaimed)"
    if given is not None:
        if given < shm + processes + pinned:
            problems.append(
                Diagnosis(
                    path=where,
                    code="MemoryTooSmall",
                    message=f"{_gib(given)} cannot hold {parts} = {_gib(minimum)}; the container would be killed for memory",
                    offers=(memory_offer(minimum),),
                )
            )
        elif given < minimum:
            warnings.append(
                Diagnosis.warning(
                    path=where,
                    code="MemoryTight",
                    message=f"{_gib(given)} leaves less than {_gib(window)} to load shards; expect slow loading",
                    offers=(memory_offer(minimum),),
                )
            )
        return given, (f"memory {_gib(given)}: given; it has to hold {parts} = {_gib(minimum)}.",)
    fair = share.memory_for(needs.gpus)
    if fair < minimum:
        problems.append(
            Diagnosis(
                path=where,
                code="MemoryDoesNotFit",
                message=f"the pod needs {parts} = {_gib(minimum)}; the share of {_gpus(needs.gpus)} is {_gib(fair)} of {_gib(share.memory_bytes)}",
                offers=tuple(_less_memory(needs, minimum, minimum - shm, fair)),
                remedy="Put fewer pods on the machine, or offload less.",
            )
        )
        return minimum, ()
    cache = ceil(max(0, needs.checkpoint_bytes - window) / GIB) * GIB
    decided = min(minimum + cache, fair)
    page_cache = (
        "the page cache of the weights counts to the container's limit but is reclaimed first, so it is a wish and no need: "
        + (
            f"{_gib(decided - minimum)} of it fit, the whole checkpoint"
            if decided == minimum + cache
            else f"{_gib(decided - minimum)} of {_gib(cache)} fit the share of {_gpus(needs.gpus)}; the rest is read again after eviction"
        )
        + "."
    )
    return decided, (f"memory {_gib(decided)}: {parts} = {_gib(minimum)}, and room for cached weights.", page_cache)


def _less_memory(needs: PodNeeds, minimum: int, without_shm: int, fair: int) -> Iterator[Offer]:
    """All the same as much as is needed, where other pods need less; or less /dev/shm."""
    yield memory_offer(minimum)
    left = (fair - without_shm) // GIB
    if left >= 1 and needs.gpus > 0:
        yield Offer.of(f"use sharedMemory {left}Gi", (f"{MODEL}.sharedMemory", f"{left}Gi"))


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / GIB:.1f}".removesuffix(".0") + " GiB"


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"

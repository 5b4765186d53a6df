"""Sizes one model on one pool: parallelism, memory, and what each of its pods asks of the machine."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from infra.catalog.confidence import model_warnings
from infra.catalog.engine_releases import EngineRelease, engine_release, flag_spans
from infra.catalog.names import find_model
from infra.catalog.types import Vendor
from infra.catalog.vendors import vendors
from infra.config.models import Model
from infra.diagnosis import Diagnosis
from infra.errors import NumawiseError, PlanError
from infra.offers import Offer
from infra.plan.aiter import aiter_reasons, uses_aiter
from infra.plan.architecture.partition import ParallelSizes
from infra.plan.architecture.reading import architecture_of, from_config_json
from infra.plan.architecture.types import Architecture
from infra.plan.engine import engine_problems, engine_variables, engine_warnings
from infra.plan.engine_version import ServedEngine, served_engine
from infra.plan.hardware import PoolHardware
from infra.plan.memory.block_size import block_size_refusal, stated_block_size
from infra.plan.memory.estimate import estimate_memory
from infra.plan.memory.options import EngineOptions, options_of_engine_args
from infra.plan.memory.profile import engine_memory
from infra.plan.memory.reasons import memory_reasons
from infra.plan.memory.types import MemoryEstimate
from infra.plan.memory.weights import weights_bytes_per_rank
from infra.plan.parallelism.choice import ParallelismChoice, choose
from infra.plan.parallelism.rank import MemoryVerdict
from infra.plan.parallelism.sizes import Machines, SizeConstraints
from infra.plan.pod_resources import PodNeeds, PodResources, cpu_offer, decide_pod_resources
from infra.plan.pod_shape import PodShape
from infra.plan.startup import StartupBudget, startup_budget
from infra.plan.strategy import replicas_at_a_time
from infra.units import GIB, format_millicpu, parse_bytes, parse_millicpu

DEFAULT_CONTEXT, SHORTEST_CONTEXT = 4096, 2048  # tokens: for a model that names no positions; below this a server is of little use
DEFAULT_SEQUENCES = 256
MEMORY_FIELDS = ("dtype", "quantization", "kvCacheDtype")  # what the memory model calls fields of a model


@dataclass(frozen=True, kw_only=True)
class SizedModel:
    """A model with its sizes; what the pool's decision does not change."""

    path: str
    model: Model
    hardware: PoolHardware
    architecture: Architecture
    choice: ParallelismChoice
    memory: MemoryEstimate
    gpu_memory_utilization: float
    max_model_len: int
    block_size: int | None
    resources: PodResources
    startup: StartupBudget
    engine: ServedEngine
    variables: Mapping[str, str]
    pod_shape: PodShape
    reasons: tuple[str, ...]
    warnings: tuple[Diagnosis, ...]


class EqualModels:
    """size_model() for one plan, with a memory: models that differ in names alone, on equal pools, are sized once."""

    def __init__(self) -> None:
        self._known: dict[Hashable, SizedModel] = {}

    def size(self, model: Model, path: str, hardware: PoolHardware) -> SizedModel:
        """As size_model(); what cannot be sized raises anew, with its own paths."""
        pool = hardware.pool.model_dump_json(include={"kubelet", "co_tenants"})
        key = (model.model_dump_json(exclude={"name", "node_pool"}), hardware.shape, len(hardware.pool.names_of_nodes), pool)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = size_model(model, path, hardware)
        return replace(
            known,
            path=path,
            model=model,
            hardware=hardware,
            warnings=tuple(replace(warning, path=path + warning.path.removeprefix(known.path)) for warning in known.warnings),
        )


def size_model(model: Model, path: str, hardware: PoolHardware) -> SizedModel:
    """The sizes of a model on machines of a pool; ConfigError or PlanError with all that is wrong with it."""
    try:
        return _size_model(model, path, hardware)
    except NumawiseError as error:
        raise type(error)(
            problem.at(f"{path}.{problem.path}") if problem.path in MEMORY_FIELDS else problem for problem in error.problems
        ) from None


def served_model(model: Model, path: str, vendor: Vendor) -> tuple[ServedEngine, Architecture]:
    """What can be told of a model whatever it is served on. PlanError with all that is wrong with its engine's version, flags and
    variables, and with its own facts."""
    problems: list[Diagnosis] = []
    engine = architecture = None
    try:
        engine = served_engine(model, path, vendor)
        problems += engine_problems(model, path, engine_release(engine.version), own_image=engine.own)
    except NumawiseError as error:
        problems += error.problems
    try:
        architecture = _architecture(model, path)
    except NumawiseError as error:
        problems += error.problems
    if problems or engine is None or architecture is None:
        raise PlanError(problems)
    return engine, architecture


def _size_model(model: Model, path: str, hardware: PoolHardware) -> SizedModel:
    engine, architecture = served_model(model, path, hardware.accelerator.vendor)
    release = engine_release(engine.version)
    if model.block_size is not None:
        refusal = block_size_refusal(architecture, hardware.accelerator, model.block_size)
        if refusal is not None:
            raise PlanError([replace(refusal, path=f"{path}.blockSize")])
    utilization = model.gpu_memory_utilization or min(
        vendors()[hardware.accelerator.vendor].gpu_memory_utilization, engine_memory(engine.version).gpu_memory_utilization
    )
    sizer = _Sizer(model=model, architecture=architecture, hardware=hardware, utilization=utilization, version=engine.version)
    max_model_len, length_reason, choice = sizer.choose(path)
    _check_split(model, choice, release, path)
    memory = sizer.estimate(max_model_len, choice.size.parallel)
    memory_sentences = memory_reasons(memory)
    if not memory.fits:
        raise PlanError.one(
            "DoesNotFit", path, f"{model.model or model.name} does not fit {hardware.accelerator.id}: {'; '.join(memory_sentences)}"
        )
    checkpoint_bytes = _checkpoint_bytes(architecture)
    resources = _resources(model, path, hardware, choice, checkpoint_bytes)
    budget = startup_budget(
        checkpoint_bytes,
        storage_bytes_per_second=model.storage.read_bytes_per_second,
        replicas=max(model.replicas, 1),
        replicas_at_a_time=replicas_at_a_time(model.strategy),
        budget_seconds=model.startup.budget_seconds,
        progress_deadline_seconds=model.progress_deadline_seconds,
        path=path,
    )
    variables, variable_reasons = engine_variables(model, release, choice.data_parallel_size, budget.budget_seconds)
    return SizedModel(
        path=path,
        model=model,
        hardware=hardware,
        architecture=architecture,
        choice=choice,
        memory=memory,
        gpu_memory_utilization=utilization,
        max_model_len=max_model_len,
        block_size=stated_block_size(
            hardware.accelerator, given=model.block_size, expected=memory.block_size, aiter=uses_aiter(model.env)
        ),
        resources=resources,
        startup=budget,
        engine=engine,
        variables=variables,
        pod_shape=replace(_pod_shape(model, hardware, choice, resources), binds_ranks="numa-bind" in release.flags),
        reasons=(
            *choice.reasons,
            length_reason,
            *memory_sentences,
            *aiter_reasons(architecture, hardware.accelerator, release, model.env),
            *resources.reasons,
            *budget.reasons,
            *variable_reasons,
        ),
        warnings=(
            *engine.warnings,
            *engine_warnings(model, path),
            *_fact_warnings(model, path),
            *resources.warnings,
            *choice.warnings,
        ),
    )


def _architecture(model: Model, path: str) -> Architecture:
    if model.model_config_json is not None:
        return from_config_json(model.model_config_json, name=model.model or model.name, path=f"{path}.modelConfig")
    return architecture_of(find_model(model.model or "", f"{path}.model"))


def _check_split(model: Model, choice: ParallelismChoice, release: EngineRelease, path: str) -> None:
    """PlanError for a split that this release has no flags for."""
    if choice.data_parallel_size > 1 and choice.pods_per_replica > 1:
        raise PlanError([_data_parallel_over_nodes(model, choice, f"{path}.dataParallelSize")])
    wanted = {
        "nnodes": (choice.pods_per_replica > 1, f"a replica takes {choice.pods_per_replica} pods"),
        "data-parallel-size": (choice.data_parallel_size > 1, f"data parallel size {choice.data_parallel_size}"),
        "enable-expert-parallel": (choice.expert_parallel, "experts spread over the ranks"),
    }
    for flag, (needed, why) in wanted.items():
        if needed and flag not in release.flags:
            raise PlanError.one(
                "VersionTooOld",
                f"{path}.vllmVersion",
                f"vLLM {release.version} does not have --{flag}, and {why}; {flag_spans().of(flag)} do. Use one of them",
            )


def _fact_warnings(model: Model, path: str) -> tuple[Diagnosis, ...]:
    """Of a model whose facts are the catalog's."""
    return () if model.model_config_json is not None else model_warnings(find_model(model.model or ""), f"{path}.model")


def _checkpoint_bytes(architecture: Architecture) -> int:
    """What a pod reads from storage: the checkpoint's files once, in their own form whatever the engine makes of them while it loads."""
    return sum(weights_bytes_per_rank(architecture, quantization=None, dtype=architecture.dtype))


@dataclass(frozen=True, kw_only=True)
class _Sizer:
    """Chooses the split of one model on one pool; each question about memory goes through `estimate`."""

    model: Model
    architecture: Architecture
    hardware: PoolHardware
    utilization: float
    version: str

    def estimate(self, max_model_len: int, sizes: ParallelSizes) -> MemoryEstimate:
        model = self.model
        options = EngineOptions(
            vllm_version=self.version,
            gpu_memory_utilization=self.utilization,
            max_model_len=max_model_len,
            max_num_seqs=model.max_num_seqs,
            max_num_batched_tokens=model.max_num_batched_tokens,
            block_size=model.block_size,
            dtype=model.dtype,
            quantization=model.quantization,
            kv_cache_dtype=model.kv_cache_dtype,
            **options_of_engine_args(model.engine_args),
        )
        return estimate_memory(self.architecture, self.hardware.accelerator, sizes, options)

    def choose(self, path: str) -> tuple[int, str, ParallelismChoice]:
        """The context, why it is that, and the split: the user's context, or the longest of the model's that fits for certain."""
        given, longest = self.model.max_model_len, self.architecture.max_position_embeddings
        if given is not None:
            if longest and given > longest and not _allows_longer(self.model):
                raise PlanError([_context_too_long(given, longest, self.architecture.name, f"{path}.maxModelLen")])
            return given, f"context {given}: given.", self._split(given, path)
        lengths = _halvings(longest or DEFAULT_CONTEXT)
        for length in lengths:
            last = length == lengths[-1]
            try:
                choice = self._split(length, path)
            except PlanError:
                if last:
                    raise
                continue
            whole = length == longest
            return (
                length,
                f"context {length}: "
                + (
                    "all positions of the model."
                    if whole
                    else f"of the model's {longest} positions, the longest halving that fits."
                ),
                choice,
            )
        raise AssertionError("a context was tried")

    def _split(self, max_model_len: int, path: str) -> ParallelismChoice:
        model, pool = self.model, self.hardware.pool
        # Without NUMA ids of the devices the policy sees CPUs and memory alone, and does not bound the GPUs of a pod.
        single = pool.kubelet.get("topologyManagerPolicy") == "single-numa-node" and self.hardware.reports_numa
        constraints = SizeConstraints(
            tensor_parallel_size=model.tensor_parallel_size,
            pipeline_parallel_size=model.pipeline_parallel_size,
            data_parallel_size=model.data_parallel_size,
            expert_parallel=True if model.enable_expert_parallel else None,
            quantization=model.quantization,
            replicas=max(model.replicas, 1),
            pods_per_node=1 if model.pod_anti_affinity == "required" else None,
            gpus_per_numa_node_limit=self.hardware.largest_numa_gpus if single else None,
            max_num_seqs=model.max_num_seqs or DEFAULT_SEQUENCES,
        )
        return choose(
            self.architecture,
            Machines(shape=self.hardware.shape, accelerator=self.hardware.accelerator, nodes=len(pool.names_of_nodes)),
            lambda sizes: self._verdict(max_model_len, sizes),
            constraints,
            objective=model.objective,
            path=path,
        )

    def _verdict(self, max_model_len: int, sizes: ParallelSizes) -> MemoryVerdict:
        memory = self.estimate(max_model_len, sizes)
        return MemoryVerdict(
            fits=memory.fits,
            concurrency=memory.concurrency.expected,
            largest_max_model_len=memory.largest_max_model_len,
            reason="; ".join(check.failure for check in memory.checks if not check.holds_low),
            tokens=memory.tokens.expected,
        )


def _data_parallel_over_nodes(model: Model, choice: ParallelismChoice, path: str) -> Diagnosis:
    data, replicas = choice.data_parallel_size, model.replicas * choice.data_parallel_size
    return Diagnosis(
        path=path,
        code="DataParallelOverNodes",
        message=f"is {data} over {choice.pods_per_replica} pods a replica, which cannot be rolled out",
        offers=(
            Offer.of(
                f"write replicas: {replicas} with dataParallelSize 1", ("model.replicas", replicas), ("model.dataParallelSize", 1)
            ),
            Offer.of("use 1", ("model.dataParallelSize", 1)),
        ),
    )


def _context_too_long(given: int, longest: int, name: str, path: str) -> Diagnosis:
    return Diagnosis(
        path=path,
        code="ContextTooLong",
        message=f"{given} is longer than the {longest} positions of {name}; vLLM refuses it",
        offers=tuple(Offer.of(f"use {length}", ("model.maxModelLen", length), kind="length") for length in _halvings(longest)),
        remedy="Or give hf-overrides with rope scaling.",
    )


def _allows_longer(model: Model) -> bool:
    return "hf-overrides" in model.engine_args or model.env.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") == "1"


def _halvings(longest: int) -> tuple[int, ...]:
    """The model's context and its halves, down to SHORTEST_CONTEXT."""
    lengths = [longest]
    while lengths[-1] // 2 >= SHORTEST_CONTEXT:
        lengths.append(lengths[-1] // 2)
    return tuple(lengths)


def _resources(model: Model, path: str, hardware: PoolHardware, choice: ParallelismChoice, checkpoint_bytes: int) -> PodResources:
    given = model.resources
    cpu: int | None = None
    if given.cpu is not None:
        millicpu = parse_millicpu(given.cpu)
        if millicpu % 1000:
            threads, above = hardware.shape.threads_per_core or 1, -(-millicpu // 1000)
            whole = above + -above % threads
            raise PlanError(
                [
                    Diagnosis(
                        path=f"{path}.resources.cpu",
                        code="FractionalCpu",
                        message=f"{format_millicpu(millicpu)} is no whole number of CPUs: the kubelet pins only whole ones, the pod would run in the shared pool",
                        offers=tuple(cpu_offer(cpus) for cpus in dict.fromkeys((whole, above, whole - threads)) if cpus > 0),
                    )
                ]
            )
        cpu = millicpu // 1000
    offload = model.engine_args.get("cpu-offload-gb", 0)
    kv_offload = model.engine_args.get("kv-offloading-size", 0)
    needs = PodNeeds(
        gpus=choice.gpus_per_pod,
        checkpoint_bytes=checkpoint_bytes,
        cpu_offload_bytes=int(_number(offload) * GIB) * choice.gpus_per_pod,
        kv_offload_bytes=int(_number(kv_offload) * GIB),
        api_servers=int(_number(model.engine_args.get("api-server-count", 1))) or 1,
        data_parallel_size=choice.data_parallel_size,
    )
    return decide_pod_resources(
        needs,
        hardware.share_for(choice.gpus_per_pod),
        cpu=cpu,
        memory_bytes=None if given.memory is None else parse_bytes(given.memory),
        shared_memory_bytes=None if model.shared_memory is None else parse_bytes(model.shared_memory),
        path=path,
    )


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def _pod_shape(model: Model, hardware: PoolHardware, choice: ParallelismChoice, resources: PodResources) -> PodShape:
    strategy = model.strategy
    return PodShape(
        gpus=choice.gpus_per_pod,
        cpu=resources.cpu,
        memory_bytes=resources.memory_bytes,
        copies=model.replicas * choice.pods_per_replica,
        resource_name=hardware.accelerator.resource_name,
        cpu_given=model.resources.cpu is not None,
        surge=0 if strategy is None else strategy.max_surge * choice.pods_per_replica,
        may_surge=strategy is None and choice.pods_per_replica == 1,
        must_surge=strategy is not None and strategy.max_unavailable == 0,
        standby=0 if model.replicas else choice.pods_per_replica,
        anti_affinity=model.pod_anti_affinity,
        init_containers=model.init_containers,
        sidecars=model.sidecars,
    )

"""plan_stack(): from a validated stack file to a ClusterPlan, or PlanError with everything that is wrong, sorted by path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from infra.catalog.confidence import hardware_warnings
from infra.catalog.vendors import vendors
from infra.config.cluster import StackConfig
from infra.diagnosis import Diagnosis, did_you_mean, in_order, shown
from infra.errors import NumawiseError, PlanError
from infra.plan.effects import keys_without_effect
from infra.plan.equal_pools import EqualPools
from infra.plan.hardware import PoolHardware, hardware_of
from infra.plan.images import mirrored, pinned
from infra.plan.model import (
    Allocatable,
    ClusterPlan,
    CoTenantPlan,
    DevicePluginPlan,
    EnginePlan,
    HardwarePlan,
    ImagesPlan,
    MemoryPlan,
    ModelIdentity,
    ModelPlan,
    NamespacePlan,
    NodesPlan,
    ParallelismPlan,
    PlacementPlan,
    PoolPlan,
    ResourcesPlan,
    RolloutPlan,
    RolloutWave,
    StoragePlan,
    TaintPlan,
    TimesPlan,
)
from infra.plan.pool.decision import PodDecision, PoolDecision
from infra.plan.pool.messages import PodNames, PoolNames
from infra.plan.pool.requirements import PoolRequirements
from infra.plan.service_names import NamedModel, service_name_problems
from infra.plan.sizing import EqualModels, SizedModel, served_model
from infra.plan.strategy import strategy_of
from infra.plan.trial import Outcome, Trials


def plan_stack(config: StackConfig) -> ClusterPlan:
    """The plan of one stack. Pure: reads nothing but the catalog's own files; the same input gives the same plan.

    PlanError with all that is wrong. What an error or a warning offers has been put in and planned.
    """
    known = _Known()
    planned = _plan(config, known)
    trials = Trials(config, planned, lambda changed: _plan(changed, known))
    if planned.plan is None:
        raise PlanError(trials.tried(planned.problems))
    return replace(planned.plan, warnings=in_order(trials.tried(planned.plan.warnings)))


class _Known:
    """What is decided already and holds for every plan of this stack."""

    def __init__(self) -> None:
        self.models, self.pools = EqualModels(), EqualPools()


@dataclass(frozen=True, kw_only=True)
class _Planned(Outcome):
    plan: ClusterPlan | None


def _plan(config: StackConfig, known: _Known) -> _Planned:
    problems: list[Diagnosis] = []
    warnings: list[Diagnosis] = []
    _check_names(config, problems)
    hardware = _hardware(config, problems)
    warnings += [warning for item in hardware.values() for warning in hardware_warnings(item.shape, item.accelerator, item.path)]
    sized: dict[int, SizedModel] = {}
    for index, model in enumerate(config.models):
        pool = hardware.get(model.node_pool)
        if pool is None:
            # Without a machine, what the model itself has wrong can still be told.
            with _collected(problems):
                served_model(model, f"models[{index}]", "nvidia")
            continue
        path = f"models[{index}]"
        with _collected(problems, model=path, pool=pool.path):
            sized[index] = known.models.size(model, path, pool)
            warnings += (warning.placed(model=path, pool=pool.path) for warning in sized[index].warnings)
    warnings += _device_group_warnings(config, hardware)
    warnings += keys_without_effect(config)
    pools: list[PoolPlan] = []
    models: dict[int, ModelPlan] = {}
    for index, pool in enumerate(config.node_pools):
        if pool.name not in hardware:
            continue
        mine = {number: size for number, size in sized.items() if config.models[number].node_pool == pool.name}
        with _collected(problems):
            requirements = PoolRequirements(
                shape=hardware[pool.name].shape,
                nodes=len(pool.names_of_nodes),
                kubernetes_version=config.kubernetes_version,
                user_kubelet=pool.kubelet,
                pods=tuple(size.pod_shape for size in mine.values()),
                co_tenants=pool.co_tenants,
                resource_name=hardware[pool.name].accelerator.resource_name,
                platform=pool.platform,
            )
            pods = tuple(PodNames(size.model.name, size.path) for size in mine.values())
            decision = known.pools.decide(requirements, PoolNames(path=f"nodePools[{index}]", pods=pods))
            warnings += decision.warnings
            pools.append(_pool_plan(hardware[pool.name], decision, mirror=config.images.mirror))
            decided = zip(mine.items(), decision.pods, strict=True)
            models |= {number: _model_plan(config, size, pod) for (number, size), pod in decided}
    problems += service_name_problems(_named(config, sized))
    if problems:
        return _Planned(problems=problems, warnings=warnings, plan=None)
    plan = ClusterPlan(
        kubernetes_version=config.kubernetes_version,
        namespace=NamespacePlan(
            name=config.namespace.name, create=config.namespace.create, pod_security=config.namespace.pod_security
        ),
        system_namespace=config.system_namespace,
        images=ImagesPlan(
            guard=pinned("rollout-agent", mirror=config.images.mirror),
            node_reader=pinned("node-reader", mirror=config.images.mirror),
            pull_secrets=config.images.pull_secrets,
        ),
        node_pools=tuple(pools),
        models=tuple(models[number] for number in sorted(models)),
        warnings=in_order(warnings),
    )
    return _Planned(problems=(), warnings=plan.warnings, plan=plan)


def _named(config: StackConfig, sized: Mapping[int, SizedModel]) -> tuple[NamedModel, ...]:
    """All models; one that could not be sized counts as one of a single pod."""
    return tuple(
        NamedModel(
            path=f"models[{index}]",
            name=model.name,
            namespace=model.namespace or config.namespace.name,
            replicas=model.replicas,
            pods_per_replica=sized[index].choice.pods_per_replica if index in sized else 1,
        )
        for index, model in enumerate(config.models)
    )


@contextmanager
def _collected(problems: list[Diagnosis], **places: str) -> Iterator[None]:
    try:
        yield
    except NumawiseError as error:
        problems.extend(problem.placed(**places) for problem in error.problems)


def _hardware(config: StackConfig, problems: list[Diagnosis]) -> dict[str, PoolHardware]:
    found: dict[str, PoolHardware] = {}
    for index, pool in enumerate(config.node_pools):
        with _collected(problems):
            found[pool.name] = hardware_of(pool, f"nodePools[{index}]")
    return found


def _check_names(config: StackConfig, problems: list[Diagnosis]) -> None:
    """Names that must be unique, and references that must lead somewhere."""
    pools = [pool.name for pool in config.node_pools]
    for index, name in enumerate(pools):
        if name in pools[:index]:
            problems.append(
                Diagnosis(
                    path=f"nodePools[{index}].name",
                    code="DuplicateName",
                    message=f"{name} is the name of nodePools[{pools.index(name)}] too",
                )
            )
    nodes: dict[str, str] = {}
    for index, pool in enumerate(config.node_pools):
        for number, node in enumerate(pool.node_names):
            path = f"nodePools[{index}].nodeNames[{number}]"
            if node in nodes:
                problems.append(
                    Diagnosis(
                        path=path, code="NodeInTwoPools", message=f"{node} stands in {nodes[node]} too; a node belongs to one pool"
                    )
                )
            nodes[node] = path
    seen: dict[tuple[str, str], int] = {}
    for index, model in enumerate(config.models):
        key = (model.namespace or config.namespace.name, model.name)
        if key in seen:
            problems.append(
                Diagnosis(
                    path=f"models[{index}].name",
                    code="DuplicateName",
                    message=f"{model.name} is the name of models[{seen[key]}] in namespace {key[0]} too",
                )
            )
        seen[key] = index
        if model.node_pool not in pools:
            problems.append(
                Diagnosis(
                    path=f"models[{index}].nodePool",
                    code="UnknownPool",
                    message=f"{shown(model.node_pool)} is no pool of this stack.{did_you_mean(model.node_pool, pools) or ' Pools: ' + ', '.join(pools) + '.'}",
                )
            )


def _device_group_warnings(config: StackConfig, hardware: Mapping[str, PoolHardware]) -> Iterator[Diagnosis]:
    """Models run as a user without rights of their own: on AMD they open /dev/kfd as members of the host's groups."""
    for index, pool in enumerate(config.node_pools):
        known = hardware.get(pool.name)
        serves = any(model.node_pool == pool.name for model in config.models)
        if known is not None and known.accelerator.vendor == "amd" and serves and not pool.device_plugin.device_groups:
            yield Diagnosis.warning(
                path=f"nodePools[{index}].devicePlugin.deviceGroups",
                code="NoDeviceGroups",
                message="is not given: /dev/kfd and /dev/dri usually belong to the groups render and video, whose numbers differ from host to host; "
                "give the numbers (getent group render video on a node) unless everyone may open them there",
            )


def _waves(nodes: Sequence[str], max_unavailable: int, canary: bool) -> tuple[RolloutWave, ...]:
    """One node first where a canary is wanted, then as many at a time as may be unavailable."""
    first = [tuple(nodes[:1])] if canary and len(nodes) > 1 else []
    rest = nodes[1:] if first else nodes
    groups = first + [tuple(rest[start : start + max_unavailable]) for start in range(0, len(rest), max_unavailable)]
    return tuple(RolloutWave(wave=number, nodes=group) for number, group in enumerate(groups))


def _pool_plan(hardware: PoolHardware, decision: PoolDecision, *, mirror: str | None) -> PoolPlan:
    pool, plugin = hardware.pool, hardware.pool.device_plugin
    return PoolPlan(
        name=pool.name,
        platform=pool.platform,
        hardware=_hardware_plan(hardware, decision),
        nodes=NodesPlan(
            names=pool.names_of_nodes,
            names_given=bool(pool.node_names),
            selector=pool.node_selector,
            labels=pool.labels,
            taints=tuple(TaintPlan(key=taint.key, value=taint.value, effect=taint.effect) for taint in pool.taints),
        ),
        kubelet=decision.kubelet,
        allocatable=Allocatable(
            cpu=decision.allocatable_cpu, memory_bytes=decision.allocatable_memory_bytes, gpus=decision.allocatable_gpus
        ),
        idle_gpus=decision.idle_gpus,
        stranded_gpus=decision.stranded_gpus,
        rollout=RolloutPlan(
            max_unavailable=pool.rollout.max_unavailable,
            canary=pool.rollout.canary,
            waves=_waves(pool.names_of_nodes, pool.rollout.max_unavailable, pool.rollout.canary),
        ),
        device_plugin=DevicePluginPlan(
            mode=plugin.mode,
            pass_device_specs=plugin.pass_device_specs,
            image=pinned(vendors()[hardware.accelerator.vendor].device_plugin_pin, mirror=mirror),
            device_groups=plugin.device_groups,
        ),
        co_tenants=tuple(
            CoTenantPlan(
                name=tenant.name, per_node=tenant.per_node, cpu=tenant.cpu, memory=tenant.memory, qos_class=tenant.qos_class
            )
            for tenant in pool.co_tenants
        ),
        reasons=decision.reasons,
    )


def _hardware_plan(hardware: PoolHardware, decision: PoolDecision) -> HardwarePlan:
    shape, accelerator = hardware.shape, hardware.accelerator
    label = accelerator.label_value
    return HardwarePlan(
        node_shape=shape.id,
        vendor=accelerator.vendor,
        sku=accelerator.id,
        resource_name=accelerator.resource_name,
        product_label=None if label is None else (accelerator.label_key, label),
        threads_per_core=shape.threads_per_core or 1,
        numa_nodes=tuple(
            replace(node, cores=known.cores or ()) for node, known in zip(decision.numa_nodes, shape.numa_nodes, strict=True)
        ),
        reports_numa=hardware.reports_numa,
    )


def _model_plan(config: StackConfig, size: SizedModel, decided: PodDecision) -> ModelPlan:
    model, choice = size.model, size.choice
    strategy = strategy_of(model.strategy, decided.shape, size.startup, replicas=model.replicas)
    return ModelPlan(
        identity=ModelIdentity(
            name=model.name,
            namespace=model.namespace or config.namespace.name,
            node_pool=model.node_pool,
            model=model.model or model.name,
            served_model_name=model.model or model.name,
        ),
        parallelism=ParallelismPlan(
            tensor_parallel_size=choice.tensor_parallel_size,
            pipeline_parallel_size=choice.pipeline_parallel_size,
            data_parallel_size=choice.data_parallel_size,
            enable_expert_parallel=choice.expert_parallel,
            pods_per_replica=choice.pods_per_replica,
            gpus_per_pod=choice.gpus_per_pod,
        ),
        memory=MemoryPlan(
            gpu_memory_utilization=size.gpu_memory_utilization,
            max_model_len=size.max_model_len,
            block_size=size.block_size,
            estimate=size.memory,
        ),
        resources=_resources_plan(size, decided, config.images.mirror),
        engine=EnginePlan(
            image=mirrored(size.engine.image, config.images.mirror),
            vllm_version=size.engine.version,
            args=_further_arguments(size),
            env=size.variables,
            storage=StoragePlan(
                existing_claim=model.storage.existing_claim,
                mount_path=model.storage.mount_path,
                model_path=model.storage.model_path,
            ),
            credentials_secret=model.credentials.existing_secret if model.credentials else None,
        ),
        placement=PlacementPlan(
            replicas=model.replicas,
            pod_anti_affinity=model.pod_anti_affinity,
            max_surge=strategy.max_surge,
            max_unavailable=strategy.max_unavailable,
            slots=decided.slots,
            places=decided.places,
            rank_binding=decided.binding,
        ),
        times=TimesPlan(
            startup_budget_seconds=size.startup.budget_seconds,
            progress_deadline_seconds=size.startup.progress_deadline_seconds,
            create_timeout_seconds=size.startup.create_timeout_seconds,
            update_timeout_seconds=size.startup.update_timeout_seconds,
        ),
        reasons=(*size.reasons, strategy.reason, *decided.reasons),
    )


def _resources_plan(size: SizedModel, decided: PodDecision, mirror: str | None) -> ResourcesPlan:
    model, accelerator, pod = size.model, size.hardware.accelerator, decided.shape
    return ResourcesPlan(
        vendor=accelerator.vendor,
        resource_name=accelerator.resource_name,
        cpu=pod.cpu,
        memory_bytes=pod.memory_bytes,
        shared_memory_bytes=size.resources.shared_memory_bytes,
        qos_class="Guaranteed",
        init_containers=_mirrored_containers(model.init_containers, mirror),
        sidecars=_mirrored_containers(model.sidecars, mirror),
    )


def _mirrored_containers(containers: Sequence[Mapping[str, Any]], mirror: str | None) -> tuple[Mapping[str, Any], ...]:
    return tuple(
        {**container, "image": mirrored(container["image"], mirror)} if "image" in container else container
        for container in containers
    )


def _further_arguments(size: SizedModel) -> dict[str, Any]:
    """The user's flags, and those of fields that the server has to be told about only where they are given."""
    model = size.model
    fields = {
        "max-num-seqs": model.max_num_seqs,
        "max-num-batched-tokens": model.max_num_batched_tokens,
        "dtype": model.dtype,
        "quantization": model.quantization,
        "kv-cache-dtype": model.kv_cache_dtype,
    }
    return {**model.engine_args, **{flag: value for flag, value in fields.items() if value is not None}}

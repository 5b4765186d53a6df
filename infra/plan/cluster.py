"""plan_stack(): from a validated stack file to a ClusterPlan, or PlanError with everything that is wrong, sorted by path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from infra.catalog.load import pins
from infra.catalog.machine import shape_warnings
from infra.config.cluster import StackConfig
from infra.diagnosis import Diagnosis, did_you_mean, in_order
from infra.errors import NumawiseError, PlanError
from infra.plan.equal_pools import EqualPools
from infra.plan.hardware import PoolHardware, hardware_of
from infra.plan.model import (
    ClusterPlan,
    DevicePluginPlan,
    ModelPlan,
    PoolPlan,
    RolloutWave,
)
from infra.plan.pool.decision import PodDecision, PoolDecision
from infra.plan.pool.messages import PodNames, PoolNames
from infra.plan.pool.requirements import PoolRequirements
from infra.plan.sizing import EqualModels, SizedModel

NEWEST_PROVEN = "1.37"  # the kubelet whose admission code the simulator follows and is held against
DEVICE_PLUGIN_PINS = {"nvidia": "nvidia-device-plugin", "amd": "amd-device-plugin"}


def plan_stack(config: StackConfig, *, stack: str) -> ClusterPlan:
    """The plan of one stack. Pure: reads nothing but the catalog's own files; the same input gives the same plan."""
    problems: list[Diagnosis] = []
    warnings: list[Diagnosis] = []
    _check_names(config, problems)
    hardware = _hardware(config, problems)
    warnings += [warning for item in hardware.values() for warning in shape_warnings(item.shape, f"{item.path}.nodeShape")]
    sized: dict[int, SizedModel] = {}
    equal_models = EqualModels()
    for index, model in enumerate(config.models):
        pool = hardware.get(model.node_pool)
        if pool is None:
            continue
        with _collected(problems):
            sized[index] = equal_models.size(model, f"models[{index}]", pool)
            warnings += sized[index].warnings
    if config.kubernetes_version != NEWEST_PROVEN:
        warnings.append(
            Diagnosis.warning(
                path="kubernetesVersion",
                code="AdmissionNotProven",
                message=f"is {config.kubernetes_version}: admission is proven against the kubelet of {NEWEST_PROVEN}, and older ones differ in places",
            )
        )
    warnings += _device_group_warnings(config, hardware)
    pools: list[PoolPlan] = []
    equal_pools = EqualPools()
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
            decision = equal_pools.decide(requirements, PoolNames(path=f"nodePools[{index}]", pods=pods))
            warnings += decision.warnings
            pools.append(_pool_plan(hardware[pool.name], decision))
            decided = zip(mine.items(), decision.pods, strict=True)
            models |= {number: _model_plan(config, size, pod) for (number, size), pod in decided}
    if problems:
        raise PlanError(problems)
    return ClusterPlan(
        stack=stack,
        kubernetes_version=config.kubernetes_version,
        connection=config.connection,
        adopt=config.adopt,
        namespace=config.namespace.name,
        create_namespace=config.namespace.create,
        pod_security=config.namespace.pod_security,
        system_namespace=config.system_namespace,
        node_feature_discovery=config.shared_components.node_feature_discovery,
        node_pools=tuple(pools),
        models=tuple(models[number] for number in sorted(models)),
        warnings=in_order(warnings),
    )


@contextmanager
def _collected(problems: list[Diagnosis]) -> Iterator[None]:
    try:
        yield
    except NumawiseError as error:
        problems.extend(error.problems)


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
                    message=f"{model.node_pool!r} is no pool of this stack.{did_you_mean(model.node_pool, pools) or ' Pools: ' + ', '.join(pools) + '.'}",
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


def _pool_plan(hardware: PoolHardware, decision: PoolDecision) -> PoolPlan:
    pool, shape, accelerator = hardware.pool, hardware.shape, hardware.accelerator
    names = pool.names_of_nodes
    label = accelerator.label_value
    return PoolPlan(
        name=pool.name,
        platform=pool.platform,
        node_shape=shape.id,
        vendor=accelerator.vendor,
        sku=accelerator.id,
        resource_name=accelerator.resource_name,
        product_label=None if label is None else (accelerator.label_key, label),
        nodes=names,
        node_names_given=bool(pool.node_names),
        node_selector=pool.node_selector,
        labels=pool.labels,
        taints=pool.taints,
        threads_per_core=shape.threads_per_core or 1,
        numa_nodes=tuple(
            replace(node, cores=known.cores or ()) for node, known in zip(decision.numa_nodes, shape.numa_nodes, strict=True)
        ),
        kubelet=decision.kubelet.fields,
        kubelet_config_hash=decision.kubelet.config_hash,
        allocatable_cpu=decision.allocatable_cpu,
        allocatable_memory_bytes=decision.allocatable_memory_bytes,
        allocatable_gpus=decision.allocatable_gpus,
        idle_gpus=decision.idle_gpus,
        stranded_gpus=decision.stranded_gpus,
        rollout=pool.rollout,
        rollout_waves=_waves(names, pool.rollout.max_unavailable, pool.rollout.canary),
        device_plugin=DevicePluginPlan(
            mode=pool.device_plugin.mode,
            pass_device_specs=pool.device_plugin.pass_device_specs,
            image=pins()[DEVICE_PLUGIN_PINS[accelerator.vendor]].pinned_reference,
            device_groups=pool.device_plugin.device_groups,
        ),
        co_tenants=pool.co_tenants,
        reasons=decision.reasons,
    )


def _model_plan(config: StackConfig, size: SizedModel, decided: PodDecision) -> ModelPlan:
    model, choice, hardware = size.model, size.choice, size.hardware
    pod = decided.shape
    engine_args = dict(model.engine_args)
    for flag, value in (
        ("max-num-seqs", model.max_num_seqs),
        ("max-num-batched-tokens", model.max_num_batched_tokens),
        ("dtype", model.dtype),
        ("quantization", model.quantization),
        ("kv-cache-dtype", model.kv_cache_dtype),
    ):
        if value is not None:
            engine_args[flag] = value
    return ModelPlan(
        name=model.name,
        node_pool=model.node_pool,
        namespace=model.namespace or config.namespace.name,
        model=model.model or model.name,
        served_model_name=model.model or model.name,
        replicas=model.replicas,
        tensor_parallel_size=choice.tensor_parallel_size,
        pipeline_parallel_size=choice.pipeline_parallel_size,
        data_parallel_size=choice.data_parallel_size,
        enable_expert_parallel=choice.expert_parallel,
        pods_per_replica=choice.pods_per_replica,
        gpus_per_pod=choice.gpus_per_pod,
        resource_name=hardware.accelerator.resource_name,
        vendor=hardware.accelerator.vendor,
        image=size.image,
        vllm_version=size.vllm_version,
        gpu_memory_utilization=size.gpu_memory_utilization,
        max_model_len=size.max_model_len,
        block_size=size.block_size,
        engine_args=engine_args,
        env=model.env,
        cpu=pod.cpu,
        memory_bytes=pod.memory_bytes,
        shared_memory_bytes=size.resources.shared_memory_bytes,
        init_containers=model.init_containers,
        sidecars=model.sidecars,
        qos_class="Guaranteed",
        storage=model.storage,
        pod_anti_affinity=model.pod_anti_affinity,
        max_surge=size.max_surge,
        max_unavailable=size.max_unavailable,
        startup_budget_seconds=size.startup.budget_seconds,
        progress_deadline_seconds=size.startup.progress_deadline_seconds,
        create_timeout_seconds=size.startup.create_timeout_seconds,
        update_timeout_seconds=size.startup.update_timeout_seconds,
        rank_binding=decided.binding,
        memory=size.memory.as_json(),
        slots=decided.slots,
        places=decided.places,
        reasons=(*size.reasons, *decided.reasons),
    )

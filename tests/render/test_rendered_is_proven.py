"""What is proven is what is rendered: a kubelet admits the rendered pods as it admits the pods of the proof, and the gate agrees with each place.

Stacks are drawn at random; on every pool's machine pods start, end and start again in random orders, as far as a scheduler would let them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from infra.agents import gate
from infra.catalog.machine import devices_of, machine_of
from infra.catalog.types import NodeShape
from infra.config.cluster import StackConfig
from infra.config.load import parse_cluster_document
from infra.config.pools import CoTenant
from infra.errors import NumawiseError
from infra.kinds import key_of
from infra.kubelet import Device, Kubelet, Machine, PodResult
from infra.plan import cluster
from infra.plan.daemons import PLATFORM_PODS, node_overhead
from infra.plan.equal_pools import EqualPools
from infra.plan.model import ClusterPlan, ModelPlan, PoolPlan
from infra.plan.placement import NodeCapacity, tolerates
from infra.plan.pod_shape import PodShape
from infra.plan.pool.decision import PoolDecision
from infra.plan.pool.messages import PoolNames
from infra.plan.pool.requirements import PoolRequirements
from infra.render import names
from infra.render.parts import manifests_of, stack_parts
from infra.render.serving.model import pod_templates
from infra.units import parse_bytes, parse_millicpu
from tests.support.drawn_stacks import drawn_document

EVENTS = 24


@dataclass(frozen=True)
class Planned:
    """A plan, and of each pool the shape of its machines and the pods as they were proven."""

    plan: ClusterPlan
    shapes: Mapping[str, NodeShape]
    proven: Mapping[str, Sequence[PodShape]]


def planned(config: StackConfig, monkeypatch: pytest.MonkeyPatch) -> Planned:
    decided: list[tuple[NodeShape, PoolDecision]] = []  # in the order of the pools; then those of trials of what warnings offer

    class Recorded(EqualPools):
        def decide(self, requirements: PoolRequirements, names: PoolNames) -> PoolDecision:
            decided.append((requirements.shape, decision := super().decide(requirements, names)))
            return decision

    with monkeypatch.context() as patch:
        patch.setattr(cluster, "EqualPools", Recorded)
        plan = cluster.plan_stack(config)
    by_name = dict(zip((pool.name for pool in config.node_pools), decided, strict=False))
    return Planned(
        plan=plan,
        shapes={name: shape for name, (shape, _) in by_name.items()},
        proven={name: [pod.shape for pod in decision.pods] for name, (_, decision) in by_name.items()},
    )


def as_admitted(template: Mapping[str, Any]) -> dict[str, Any]:
    """The pod of a rendered template as the kubelet simulator takes it; requests that are left out follow the limits, as the API server has it."""
    spec = template["spec"]
    pod: dict[str, Any] = {key: [_container(one) for one in spec.get(key, ())] for key in ("initContainers", "containers")}
    return pod | {key: spec[key] for key in ("resources", "overhead", "priority") if key in spec}


def _container(container: Mapping[str, Any]) -> dict[str, Any]:
    given = {key: container[key] for key in ("name", "restartPolicy") if key in container}
    return {**given, **container.get("resources", {})}


@dataclass
class Node:
    """One machine twice: a kubelet that admits the proven pods, and one that admits the rendered ones."""

    pool: PoolPlan
    proven: Kubelet
    rendered: Kubelet
    cpus: dict[int, set[int]]
    numa_of_gpu: dict[str, int]

    @classmethod
    def of(cls, pool: PoolPlan, shape: NodeShape, *, more_memory: float) -> Node:
        machine, devices = machine_of(shape), devices_of(shape, pool.hardware.resource_name)
        for node in machine["numa"]:
            node["memory_bytes"] = int(node["memory_bytes"] * more_memory)
        machine["memory_capacity_bytes"] = sum(node["memory_bytes"] for node in machine["numa"])
        listed = {name: [Device.from_dict(device) for device in found] for name, found in devices.items()}
        kubelet = Kubelet.start(Machine.from_dict(machine), pool.kubelet.fields, listed)
        return cls(
            pool=pool,
            proven=kubelet,
            rendered=kubelet.copy(),
            cpus={node["id"]: {cpu for core in node["cpus"] for cpu in core} for node in machine["numa"]},
            numa_of_gpu={device["id"]: (device["numa"] or [-1])[0] for found in devices.values() for device in found},
        )

    def start(self, name: str, proven: Mapping[str, Any], rendered: Mapping[str, Any]) -> PodResult:
        """Starts a pod on both; AssertionError where they differ."""
        first = self.proven.admit({"name": name, **proven})
        second = self.rendered.admit({"name": name, **rendered})
        assert second == first, f"{name} as it is rendered: {second}, as it was proven: {first}"
        return second

    def end(self, name: str) -> None:
        assert self.proven.remove(name) and self.rendered.remove(name)

    def gate_findings(self, expected: dict[str, Any], result: PodResult) -> list[str]:
        """What the gate in the main container would say of its place, and where it would not bind the ranks."""
        main = next(container for container in result.containers if container.name == names.MAIN_CONTAINER)
        cpus = sorted(main.cpus or self.rendered.shared_cpus or set().union(*self.cpus.values()))
        memory = list(main.memory_numa) or sorted(self.cpus)
        gpus = [(device, self.numa_of_gpu[device]) for device in main.devices[self.pool.hardware.resource_name]]
        found = gate.findings(expected, cpus, memory, gpus, self.cpus)
        if not found and expected["rankBinding"]:
            nodes = gate.numa_nodes_of_ranks(expected, sorted(gpus, key=lambda gpu: int(gpu[0][3:])), cpus, memory, self.cpus)
            assert len(nodes) == expected["gpus"]
        return found


def room_for_models(node: Node, tenants: Sequence[CoTenant]) -> NodeCapacity:
    """What a scheduler that sees all co-tenants and DaemonSets has left for models."""
    there, overhead = node.rendered.allocatable, node_overhead()
    requesting = [tenant for tenant in tenants if tenant.qos_class != "BestEffort"]
    return NodeCapacity(
        millicpu=there["cpu"] - overhead.millicpu - sum(parse_millicpu(t.cpu) * t.per_node for t in requesting),
        memory_bytes=there["memory"] - overhead.memory_bytes - sum(parse_bytes(t.memory) * t.per_node for t in requesting),
        gpus=there[node.pool.hardware.resource_name],
        pods=there["pods"] - overhead.pods - sum(t.per_node for t in tenants),
    )


def others(plan: ClusterPlan, pool: PoolPlan, tenants: Sequence[CoTenant]) -> dict[str, dict[str, Any]]:
    """Pods beside the models: co-tenants, our own as they are rendered, and the platform's by their allowance."""
    found: dict[str, dict[str, Any]] = {}
    for tenant in tenants:
        sizes = {"cpu": tenant.cpu, "memory": tenant.memory}
        given = {"Guaranteed": {"limits": sizes}, "Burstable": {"requests": sizes}, "BestEffort": {}}[tenant.qos_class]
        found |= {f"{tenant.name}-{index}": {"containers": [{"name": "c", **given}]} for index in range(tenant.per_node)}
    for manifest in manifests_of(stack_parts(plan, stack="test")):
        key = key_of(manifest)
        if key.namespace == plan.system_namespace and (key.kind != "DaemonSet" or key.name == names.device_plugin(pool)):
            found |= {f"{key.name}-{index}": as_admitted(template) for index, template in enumerate(pod_templates(manifest))}
    share = {
        "cpu": f"{PLATFORM_PODS.millicpu // PLATFORM_PODS.pods}m",
        "memory": str(PLATFORM_PODS.memory_bytes // PLATFORM_PODS.pods),
    }
    return found | {f"platform-{index}": {"containers": [{"name": "c", "requests": share}]} for index in range(PLATFORM_PODS.pods)}


def run(given: Planned, config: StackConfig, draw: Random) -> int:
    """Random events on a machine of each pool; how many pods of models were started."""
    started = 0
    for index, pool in enumerate(given.plan.node_pools):
        tenants = config.node_pools[index].co_tenants
        node = Node.of(pool, given.shapes[pool.name], more_memory=draw.choice((1.0, 1.05)))
        shapes, capacity = given.proven[pool.name], room_for_models(node, tenants)
        beside, models = others(given.plan, pool, tenants), given.plan.models_of(pool.name)
        templates = [templates_of(given.plan, model) for model in models]
        gates = [gate_plan(given.plan, model) for model in models]
        running: list[tuple[str, int]] = []  # name, index of its shape; -1: beside the models
        for number in range(EVENTS + len(beside)):
            if running and draw.random() < 0.35:
                name, _ = running.pop(draw.randrange(len(running)))
                node.end(name)
                continue
            load = [sum(kind == shape for _, kind in running) for shape in range(len(shapes))]
            startable = [
                shape
                for shape, one in enumerate(shapes)
                if load[shape] < one.copies + one.surge and may_stand(shapes, capacity, with_one(load, shape))
            ]
            waiting = [name for name in beside if name not in {other for other, _ in running}]
            if startable and (not waiting or draw.random() < 0.6):
                shape = draw.choice(startable)
                name, expected = f"{models[shape].name}-{number}", gates[shape]
                result = node.start(name, shapes[shape].pod, as_admitted(draw.choice(templates[shape])))
                assert (result.admitted, result.qos) == (True, "Guaranteed"), f"{name}: {result.reason} {result.message}"
                assert not any(container.start_error for container in result.containers)
                findings = node.gate_findings(expected, result)
                # Where the gate only warns: GPUs that tell no NUMA node, and places that come of one mixture of models after
                # another.
                mixed = not may_stand(shapes, capacity, tuple(one.copies + one.surge for one in shapes))
                open_place = expected["mode"] == "warn" and (mixed or not pool.hardware.reports_numa)
                assert not findings or open_place, f"the gate refuses {name}: {'; '.join(findings)}"
                running.append((name, shape))
                started += 1
            elif waiting:
                name = draw.choice(waiting)
                result = node.start(name, beside[name], beside[name])
                assert result.admitted, f"{name}: {result.reason} {result.message}"
                running.append((name, -1))
    return started


def with_one(load: Sequence[int], shape: int) -> tuple[int, ...]:
    return tuple(count + (index == shape) for index, count in enumerate(load))


def may_stand(shapes: Sequence[PodShape], capacity: NodeCapacity, load: tuple[int, ...]) -> bool:
    return capacity.holds(shapes, load) and tolerates(shapes, load)


def templates_of(plan: ClusterPlan, model: ModelPlan) -> list[dict[str, Any]]:
    found = [
        template
        for manifest in manifests_of(stack_parts(plan, stack="test"))
        if manifest["metadata"].get("namespace") == model.namespace and manifest["metadata"]["name"] == names.workload(model)
        for template in pod_templates(manifest)
    ]
    assert found
    return found


def gate_plan(plan: ClusterPlan, model: ModelPlan) -> dict[str, Any]:
    (found,) = (
        manifest["data"]["plan.json"]
        for manifest in manifests_of(stack_parts(plan, stack="test"))
        if manifest["kind"] == "ConfigMap" and manifest["metadata"]["name"] == names.gate(model)
    )
    return json.loads(found)


def admitted_as_proven(seeds: range, monkeypatch: pytest.MonkeyPatch, *, stacks: int) -> None:
    """So many stacks that plan, of the first seeds."""
    done = started = 0
    for seed in seeds:
        config = parse_cluster_document(drawn_document(seed))
        try:
            given = planned(config, monkeypatch)
        except NumawiseError:
            continue
        try:
            started += run(given, config, Random(seed))
        except AssertionError as error:
            raise AssertionError(f"drawn_document({seed}): {error}") from None
        done += 1
        if done == stacks:
            break
    assert done == stacks, f"only {done} of {len(seeds)} drawn stacks plan"
    assert started > 4 * stacks, "hardly a pod was started"


def test_forty_drawn_stacks_are_admitted_as_they_were_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    admitted_as_proven(range(100), monkeypatch, stacks=40)


@pytest.mark.soak
def test_hundreds_of_drawn_stacks_are_admitted_as_they_were_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    admitted_as_proven(range(1_000, 3_000), monkeypatch, stacks=600)

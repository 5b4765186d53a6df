"""The kubelet configuration that a plan derives, on the cases that people met in kubernetes/kubernetes and elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infra.catalog.types import NumaNode
from infra.config.pools import CoTenant
from infra.errors import PlanError
from infra.plan.pool.decision import PoolDecision
from infra.units import MIB, parse_bytes, parse_cpu_list
from tests.support.gpu_pools import decide, node_shape, pod_shape

SMALL: dict[str, Any] = {"numa_nodes": 2, "cpus": 48, "memory": "96Gi", "gpus": 4, "name": "small"}
RESERVED: dict[str, Any] = {"kubeReserved": {"memory": "10240Mi"}, "evictionHard": {"memory.available": "100Mi"}}
MI300X: dict[str, Any] = {"memory": "1Ti", "name": "inline"}


def problems(*args, **fields) -> dict[str, str]:
    with pytest.raises(PlanError) as raised:
        decide(*args, **fields)
    found = raised.value.problems
    assert list(found) == sorted(found)
    return {problem.path: problem.sentence for problem in found}


def reserved(decision: PoolDecision) -> dict[int, int]:
    return {entry["numaNode"]: parse_bytes(entry["limits"]["memory"]) for entry in decision.kubelet.fields["reservedMemory"]}


def codes(decision: PoolDecision) -> set[str]:
    return {warning.code for warning in decision.warnings}


# The stack of the embedded cluster


def test_four_gpus_on_a_dgx_h100_keep_to_one_numa_node():
    decision = decide(node_shape(), pod_shape(copies=2), nodes=2, kubelet={"topologyManagerPolicy": "single-numa-node"})
    assert decision.kubelet.fields["topologyManagerPolicy"] == "single-numa-node"
    assert decision.kubelet.fields["cpuManagerPolicy"] == "static"
    assert decision.kubelet.fields["memoryManagerPolicy"] == "Static"
    assert decision.kubelet.fields["cpuManagerPolicyOptions"] == {"full-pcpus-only": "true", "strict-cpu-reservation": "true"}
    assert parse_cpu_list(decision.kubelet.fields["reservedSystemCPUs"]) == (0, 56, 112, 168)
    assert decision.allocatable_cpu == 220
    assert decision.allocatable_gpus == 8
    (group,) = decision.pods[0].slots
    (slot,) = group.slots
    assert (group.nodes, slot.numa_nodes, slot.gpus, slot.cpu_count, slot.memory_numa) == (2, (0,), (0, 1, 2, 3), 32, (0,))
    assert not set(slot.cpus_example) & {0, 56, 112, 168}
    assert decision.pods[0].binding is None
    assert (decision.idle_gpus, decision.stranded_gpus) == (8, 0)
    assert not decision.warnings


def test_eight_gpus_over_two_numa_nodes_get_cpus_on_both():
    decision = decide(node_shape(**MI300X), pod_shape(gpus=8, cpu=None, memory=None), resource_name="nvidia.com/gpu")
    assert decision.kubelet.fields["topologyManagerPolicy"] == "restricted"
    assert decision.kubelet.fields["memoryManagerPolicy"] == "None"
    assert "reservedMemory" not in decision.kubelet.fields
    assert decision.kubelet.fields["cpuManagerPolicyOptions"]["distribute-cpus-across-numa"] == "true"
    assert decision.pods[0].shape.cpu == 116
    binding = decision.pods[0].binding
    assert binding is not None
    assert binding.numa_node_of_rank == (0, 0, 0, 0, 1, 1, 1, 1)
    assert binding.cpus_per_numa_node == {0: 58, 1: 58}
    assert binding.memory_nodes == (0, 1)
    (slot,) = decision.pods[0].slots[0].slots
    assert (slot.numa_nodes, slot.gpus, slot.cpu_count) == ((0, 1), tuple(range(8)), 116)
    assert any("single-numa-node" in reason and "8 GPUs need 2 NUMA nodes" in reason for reason in decision.reasons)
    assert any("116 CPUs instead of 20" in reason for reason in decision.pods[0].reasons)
    assert not decision.warnings


def test_given_cpus_of_one_numa_node_leave_half_of_the_ranks_unbound_and_say_so():
    decision = decide(node_shape(**MI300X), pod_shape(gpus=8, cpu=32, memory="256Gi"))
    assert decision.kubelet.fields["topologyManagerPolicy"] == "best-effort"
    assert decision.pods[0].binding is None
    assert "RanksNotBound" in codes(decision)
    (warning,) = [warning for warning in decision.warnings if warning.code == "RanksNotBound"]
    assert "32 on NUMA node 0" in warning.message and "Ask for 116 CPUs" in warning.sentence


def test_single_numa_node_with_eight_gpus_is_refused_with_both_numbers():
    found = problems(node_shape(), pod_shape(gpus=8, cpu=None, memory=None), kubelet={"topologyManagerPolicy": "single-numa-node"})
    message = found["models[0].tensorParallelSize"]
    assert message.startswith(
        "8 GPUs need 2 NUMA nodes of dgx-h100 (4 each); single-numa-node admits 1. Use 4, or write topologyManagerPolicy: restricted."
    )


def test_restricted_needs_as_many_numa_nodes_for_cpus_as_for_gpus():
    found = problems(node_shape(), pod_shape(gpus=8, cpu=32), kubelet={"topologyManagerPolicy": "restricted"})
    assert "8 GPUs need 2, 32 CPUs need 1" in found["models[0].resources.cpu"]
    assert "Ask for 116 CPUs" in found["models[0].resources.cpu"]


def test_restricted_with_pinned_memory_hangs_on_memory_that_the_catalog_does_not_promise():
    settings = {"topologyManagerPolicy": "restricted", "memoryManagerPolicy": "Static"}
    found = problems(node_shape(memory="1Ti"), pod_shape(gpus=8, cpu=120, memory="1050Gi"), kubelet=settings)
    assert (
        "1050.0 GiB of memory need 2 NUMA nodes with the memory that is stated, and 1 with the 5 % more"
        in found["models[0].resources.memory"]
    )


@pytest.mark.parametrize(("memory", "pod"), [("1Ti", "1200Gi"), ("512Gi", "700Gi"), ("512Gi", "540Gi")])
def test_memory_that_needs_two_numa_nodes_at_both_ends_of_its_range_is_admitted(memory, pod):
    settings = {"topologyManagerPolicy": "restricted", "memoryManagerPolicy": "Static"}
    decision = decide(node_shape(memory=memory), pod_shape(gpus=8, cpu=120, memory=pod), kubelet=settings)
    assert [slot.memory_numa for group in decision.pods[0].slots for slot in group.slots] == [(0, 1)]


# Reservations


def test_reserved_memory_that_forgets_the_eviction_threshold_is_refused_with_each_summand():
    settings = {
        "memoryManagerPolicy": "Static",
        "kubeReserved": {"memory": "1Gi"},
        "systemReserved": {"memory": "512Mi"},
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1536Mi"}}],
    }
    message = problems(node_shape(), pod_shape(), kubelet=settings)["nodePools[0].kubelet.reservedMemory"]
    assert "sums to 1536Mi, must be 1636Mi = kubeReserved 1024Mi + systemReserved 512Mi + evictionHard 100Mi (default)" in message
    del settings["reservedMemory"]
    assert sum(reserved(decide(node_shape(), pod_shape(), kubelet=settings)).values()) == 1636 * MIB
    settings |= {"memoryManagerPolicy": "None", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1536Mi"}}]}
    decision = decide(node_shape(), pod_shape(), kubelet=settings)
    assert "reservedMemory" not in decision.kubelet.fields and "WithoutEffect" in codes(decision)


@pytest.mark.parametrize("kube", [{"memory": "1229Mi"}, {"memory": "1288699904"}, {"memory": "1258496Ki", "cpu": "1"}])
def test_a_reservation_that_the_user_gives_is_kept_and_adds_up(kube):
    decision = decide(node_shape(), pod_shape(), kubelet={"kubeReserved": kube})
    assert sum(reserved(decision).values()) == 1329 * MIB
    assert decision.kubelet.fields["kubeReserved"] == kube
    assert "systemReserved" not in decision.kubelet.fields


def test_an_eviction_map_keeps_the_signals_that_it_leaves_out():
    decision = decide(node_shape(), pod_shape(), kubelet={"evictionHard": {"memory.available": "500Mi"}})
    assert decision.kubelet.fields["evictionHard"] == {
        "memory.available": "500Mi",
        "nodefs.available": "10%",
        "nodefs.inodesFree": "5%",
        "imagefs.available": "15%",
        "imagefs.inodesFree": "5%",
    }
    total = sum(parse_bytes(decision.kubelet.fields[name]["memory"]) for name in ("kubeReserved", "systemReserved")) + 500 * MIB
    assert sum(reserved(decision).values()) == total


def test_a_percentage_and_pinned_memory_do_not_go_together():
    percent = {"evictionHard": {"memory.available": "5%"}}
    found = problems(node_shape(), pod_shape(), kubelet={**percent, "memoryManagerPolicy": "Static"})
    assert "Write 100Mi." in found["nodePools[0].kubelet.evictionHard.memory.available"]
    assert (
        decide(node_shape(), pod_shape(), kubelet={**percent, "memoryManagerPolicy": "None"}).kubelet.fields["evictionHard"][
            "memory.available"
        ]
        == "5%"
    )
    decision = decide(node_shape(), pod_shape(), kubelet=percent)
    assert decision.kubelet.fields["memoryManagerPolicy"] == "None"
    assert any("percentage" in reason for reason in decision.reasons)


def two_replicas(memory: str, copies: int = 2, **fields):
    return pod_shape(cpu=16, memory=memory, copies=copies, anti_affinity="none", **fields)


def test_a_reservation_on_one_numa_node_leaves_no_room_for_the_second_of_two_equal_pods():
    fixed = {**RESERVED, "memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "10340Mi"}}]}
    message = problems(node_shape(**SMALL), two_replicas("88Gi"), kubelet=fixed)["nodePools[0].kubelet.reservedMemory"]
    assert "85.9 GiB (10340Mi reserved)" in message and "96.0 GiB (0Mi reserved)" in message and "88.0 GiB" in message
    assert "5170Mi on NUMA node 0 and 5170Mi on NUMA node 1" in message


def test_the_plan_splits_the_reservation_so_that_equal_pods_fit():
    decision = decide(node_shape(**SMALL), two_replicas("88Gi"), kubelet={**RESERVED, "memoryManagerPolicy": "Static"})
    assert reserved(decision) == {0: 5170 * MIB, 1: 5170 * MIB}
    assert all(node.allocatable_memory_bytes >= parse_bytes("88Gi") for node in decision.numa_nodes)
    assert [slot.numa_nodes for slot in decision.pods[0].slots[0].slots] == [(0,), (1,)]
    assert [slot.numa_nodes for slot in decision.pods[0].places] == [(0,), (1,)]


def test_pods_that_no_split_makes_fit_are_refused():
    found = problems(node_shape(**SMALL), two_replicas("92Gi"), kubelet={**RESERVED, "memoryManagerPolicy": "Static"})
    assert len(found) == 1


@pytest.mark.parametrize("fixed", [True, False])
def test_one_such_pod_fits_either_way(fixed):
    settings = {**RESERVED, "memoryManagerPolicy": "Static"}
    if fixed:
        settings["reservedMemory"] = [{"numaNode": 0, "limits": {"memory": "10340Mi"}}]
    decision = decide(node_shape(**SMALL), two_replicas("88Gi", copies=1), kubelet=settings)
    assert sum(reserved(decision).values()) == 10340 * MIB


def test_a_pod_that_needs_a_whole_numa_node_gets_the_reservation_out_of_its_way():
    decision = decide(node_shape(**SMALL), two_replicas("92Gi", copies=1), kubelet={**RESERVED, "memoryManagerPolicy": "Static"})
    assert reserved(decision) == {0: 10340 * MIB}
    assert decision.kubelet.fields["topologyManagerPolicy"] == "single-numa-node"


def test_unequal_numa_nodes_keep_equal_room():
    decision = decide(node_shape(memories=("96Gi", "92Gi"), cpus=48), pod_shape(cpu=16, memory="64Gi"))
    assert sum(reserved(decision).values()) == (1465 + 1024 + 100) * MIB
    assert set(reserved(decision)) == {0}


# CPUs


def test_reserved_cpus_outside_the_machine_are_listed():
    shape = node_shape(cpus=32, threads=1, name="sixty-four")
    found = problems(shape, pod_shape(cpu=16), kubelet={"reservedSystemCPUs": "60-67"})
    assert "(64, 65, 66, 67)" in found["nodePools[0].kubelet.reservedSystemCPUs"]


def test_a_reservation_of_half_a_cpu_costs_one():
    shape = node_shape(cpus=32, threads=1, name="sixty-four")
    decision = decide(shape, pod_shape(cpu=16), kubelet={"kubeReserved": {"cpu": "500m", "memory": "1Gi"}})
    assert "reservedSystemCPUs" not in decision.kubelet.fields
    assert sum(len(node.reserved_cpus) for node in decision.numa_nodes) == 1


def test_odd_cpus_turn_whole_cores_off_or_are_refused():
    decision = decide(node_shape(), pod_shape(cpu=33))
    assert "full-pcpus-only" not in decision.kubelet.fields["cpuManagerPolicyOptions"]
    assert any("no whole physical cores" in reason for reason in decision.reasons)
    found = problems(node_shape(), pod_shape(cpu=33), kubelet={"cpuManagerPolicyOptions": {"full-pcpus-only": True}})
    assert list(found) == ["models[0].resources.cpu"]


def test_a_guaranteed_co_tenant_with_one_cpu_is_admitted_in_every_order():
    agent = CoTenant.model_validate({"name": "log-agent", "cpu": "1", "memory": "256Mi", "qosClass": "Guaranteed", "perNode": 2})
    decision = decide(node_shape(), pod_shape(copies=2, anti_affinity="none"), co_tenants=(agent,))
    assert "full-pcpus-only" not in decision.kubelet.fields["cpuManagerPolicyOptions"]
    assert decision.kubelet.fields["topologyManagerPolicy"] == "single-numa-node"


def test_a_co_tenant_takes_its_share_of_the_node():
    agent = CoTenant.model_validate({"name": "cache", "cpu": "8", "memory": "900Gi", "qosClass": "Burstable", "perNode": 2})
    found = problems(node_shape(), pod_shape(memory="300Gi"), co_tenants=(agent,))
    assert "one pod needs 300.0 GiB memory" in found["models[0].resources.memory"]


# Scopes, init containers and sidecars

SIXTY_FOUR: dict[str, Any] = {"cpus": 64, "threads": 1, "memory": "512Gi", "name": "two-sixty-four"}
TWO_EACH: dict[str, Any] = {
    "reservedSystemCPUs": "0,1,64,65",
    "topologyManagerPolicy": "single-numa-node",
    "topologyManagerScope": "pod",
}


def sidecar(cpu: str, memory: str = "1Gi") -> dict[str, Any]:
    sizes = {"cpu": cpu, "memory": memory}
    return {"name": "log-shipper", "restartPolicy": "Always", "resources": {"requests": sizes, "limits": sizes}}


@pytest.mark.parametrize(("main", "extra", "admitted"), [(62, "1", False), (61, "1", True), (62, "500m", True)])
def test_pod_scope_adds_native_sidecars(main, extra, admitted):
    pod = pod_shape(cpu=main, init_containers=(sidecar(extra),))
    if admitted:
        assert decide(node_shape(**SIXTY_FOUR), pod, kubelet=TWO_EACH).kubelet.fields["topologyManagerScope"] == "pod"
    else:
        assert problems(node_shape(**SIXTY_FOUR), pod, kubelet=TWO_EACH)


def test_pod_scope_adds_memory_and_container_scope_does_not():
    shape = node_shape(memory="232Gi", cpus=64, name="small")
    pod = pod_shape(cpu=16, memory="200Gi", sidecars=({"name": "cache", "resources": sidecar("2", "40Gi")["resources"]},))
    strict = {"topologyManagerPolicy": "single-numa-node", "memoryManagerPolicy": "Static"}
    assert problems(shape, pod, kubelet={**strict, "topologyManagerScope": "pod"})
    assert decide(shape, pod, kubelet={**strict, "topologyManagerScope": "container"})


def test_a_sidecar_that_breaks_guaranteed_is_refused():
    broken = {"name": "exporter", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
    found = problems(node_shape(), pod_shape(sidecars=(broken,)))
    assert "Burstable" in found["models[0].sidecars[0].resources"]


# Several pods on a node


def test_four_gpu_and_smaller_pods_do_not_share_a_strict_pool():
    pods = (
        pod_shape(gpus=4, cpu=16, memory="64Gi", anti_affinity="none"),
        pod_shape(gpus=1, cpu=4, memory="16Gi", copies=4, anti_affinity="none"),
    )
    message = problems(node_shape(), *pods, kubelet={"topologyManagerPolicy": "single-numa-node"})
    text = message["nodePools[0].kubelet.topologyManagerPolicy"]
    assert "after start of" in text and "refuses a pod of m0" in text and "end of" in text
    decision = decide(node_shape(), *pods)
    assert decision.kubelet.fields["topologyManagerPolicy"] == "best-effort"
    assert "AlignmentNotAssured" in codes(decision)
    assert any(reason.startswith("not single-numa-node") for reason in decision.reasons)


def test_equal_pods_fill_a_strict_node_in_any_order():
    decision = decide(node_shape(), pod_shape(gpus=1, cpu=8, memory="64Gi", copies=8, anti_affinity="none"))
    assert decision.kubelet.fields["topologyManagerPolicy"] == "single-numa-node"
    assert sorted(slot.gpus for slot in decision.pods[0].slots[0].slots) == [(gpu,) for gpu in range(8)]


def test_three_of_four_gpus_strand_the_fourth():
    decision = decide(node_shape(), pod_shape(gpus=3, cpu=16, copies=2, anti_affinity="none"))
    assert (decision.idle_gpus, decision.stranded_gpus) == (2, 2)
    assert "StrandedGpus" in codes(decision)


def test_a_pool_that_is_too_small_says_how_many_nodes_it_takes():
    found = problems(node_shape(), pod_shape(copies=3), nodes=2)
    assert "give the pool 3 nodes" in found["models[0].replicas"]


def test_a_pod_that_is_too_large_says_what_a_node_has():
    found = problems(node_shape(), pod_shape(memory="3000Gi"))
    assert "one pod needs 3000.0 GiB memory" in found["models[0].resources.memory"]


def test_ten_thousand_equal_nodes_are_planned_like_one():
    many = decide(node_shape(), pod_shape(copies=10_000), nodes=10_000)
    one = decide(node_shape(), pod_shape(), nodes=1)
    assert many.kubelet == one.kubelet
    assert [(group.nodes, group.slots) for group in many.pods[0].slots] == [(10_000, one.pods[0].slots[0].slots)]
    assert many.idle_gpus == 40_000


# Hardware


def test_more_than_eight_numa_nodes_need_the_option():
    shape = node_shape(numa_nodes=16, cpus=16, memory="128Gi", gpus=1, name="sixteen")
    decision = decide(shape, pod_shape(gpus=1, cpu=8, memory="32Gi"))
    assert decision.kubelet.fields["topologyManagerPolicyOptions"] == {"max-allowable-numa-nodes": "16"}
    found = problems(
        shape,
        pod_shape(gpus=1, cpu=8, memory="32Gi"),
        kubelet={"topologyManagerPolicy": "single-numa-node", "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "true"}},
    )
    assert list(found) == ["nodePools[0].kubelet.topologyManagerPolicyOptions"]
    eight = node_shape(numa_nodes=8, cpus=16, memory="128Gi", gpus=1, name="eight")
    assert "topologyManagerPolicyOptions" not in decide(eight, pod_shape(gpus=1, cpu=8, memory="32Gi")).kubelet.fields


def test_dozens_of_empty_numa_nodes_are_left_to_no_policy():
    """GB200 shows 34 NUMA nodes, two of them with CPUs and GPUs."""
    two = node_shape(numa_nodes=2, cpus=72, memory="480Gi", gpus=2, threads=1, distances=False)
    empty = tuple(NumaNode(id=node, cpus=(), cores=(), memory_bytes=0, gpus=()) for node in range(2, 34))
    shape = replace(two, numa_nodes=two.numa_nodes + empty, id="gb200-tray")
    decision = decide(shape, pod_shape(gpus=4, cpu=None, memory=None))
    assert decision.kubelet.fields["topologyManagerPolicy"] == "none"
    assert any("34 NUMA nodes" in reason for reason in decision.reasons)
    found = problems(shape, pod_shape(gpus=4, cpu=None, memory=None), kubelet={"topologyManagerPolicy": "restricted"})
    assert any("2^34" in message for message in found.values())


def test_a_virtual_machine_that_hides_numa_has_a_policy_without_effect():
    decision = decide(node_shape(hides_numa=True), pod_shape(gpus=8, cpu=32), kubelet={"topologyManagerPolicy": "single-numa-node"})
    assert "PolicyWithoutEffect" in codes(decision)


def test_unknown_hardware_says_what_is_missing():
    shape = replace(node_shape(), numa_nodes=(), threads_per_core=None, id="aws-p5en.48xlarge")
    found = problems(shape, pod_shape())
    assert "numaNodes, threadsPerCore of aws-p5en.48xlarge" in found["nodePools[0].nodeShape"]


# Spelling


@pytest.mark.parametrize(
    ("field", "wrong", "right"),
    [
        ("cpuManagerPolicy", "Static", "static"),
        ("memoryManagerPolicy", "static", "Static"),
        ("topologyManagerPolicy", "single-numa", "single-numa-node"),
        ("topologyManagerScope", "Pod", "pod"),
    ],
)
def test_wrong_spellings_get_the_right_one(field, wrong, right):
    assert (
        f"Did you mean {right!r}?" in problems(node_shape(), pod_shape(), kubelet={field: wrong})[f"nodePools[0].kubelet.{field}"]
    )


@pytest.mark.parametrize(
    ("wrong", "right"), [("reservedCpus", "reservedSystemCPUs"), ("topologyManagerpolicy", "topologyManagerPolicy")]
)
def test_fields_that_a_kubelet_would_ignore_are_refused(wrong, right):
    assert right in problems(node_shape(), pod_shape(), kubelet={wrong: "0"})[f"nodePools[0].kubelet.{wrong}"]


def test_all_problems_of_one_pass_come_together():
    found = problems(
        node_shape(), pod_shape(), kubelet={"cpuManagerPolicy": "Static", "nonsense": 1, "maxPods": "many", "kubeReserved": 4}
    )
    assert set(found) == {f"nodePools[0].kubelet.{name}" for name in ("cpuManagerPolicy", "nonsense", "maxPods", "kubeReserved")}


def test_what_the_user_sets_is_kept():
    settings = {"maxPods": 200, "cpuManagerPolicy": "static", "containerLogMaxSize": "50Mi", "reservedSystemCPUs": "0-1,112-113"}
    decision = decide(node_shape(), pod_shape(), kubelet=settings)
    assert {name: decision.kubelet.fields[name] for name in settings} == settings
    assert decision.kubelet.fields["kubeReserved"]["memory"] == f"{255 + 11 * 200}Mi"


# Platforms


def test_what_a_platform_cannot_express_is_an_error_with_the_way_out():
    found = problems(
        node_shape(), pod_shape(), kubelet={"memoryManagerPolicy": "Static", "topologyManagerPolicy": "restricted"}, platform="aks"
    )
    assert list(found) == ["nodePools[0].kubelet.memoryManagerPolicy"]
    assert "aks has no setting for it" in found["nodePools[0].kubelet.memoryManagerPolicy"]


@pytest.mark.parametrize(
    ("platform", "fields"),
    [
        ("aks", {"cpuManagerPolicy": "static", "topologyManagerPolicy": "single-numa-node"}),
        (
            "gke",
            {
                "cpuManagerPolicy": "static",
                "topologyManagerPolicy": "single-numa-node",
                "topologyManagerScope": "container",
                "memoryManagerPolicy": "None",
            },
        ),
    ],
)
def test_a_managed_platform_gets_only_its_own_fields(platform, fields):
    decision = decide(node_shape(), pod_shape(), platform=platform)
    assert decision.kubelet.fields == fields
    assert "ReservationsOfPlatform" in codes(decision)
    assert decision.allocatable_cpu == 223


@pytest.mark.parametrize(
    ("platform", "written_out"),
    [
        ("aks", {"memoryManagerPolicy": "None"}),
        ("aks", {"topologyManagerScope": "container", "reservedMemory": [], "cpuManagerPolicyOptions": {}}),
        ("aks", {"evictionHard": {"memory.available": "100Mi"}, "enforceNodeAllocatable": ["pods"]}),
        ("gke", {"reservedSystemCPUs": "", "evictionHard": {"nodefs.available": "10%"}}),
    ],
)
def test_what_a_platform_has_anyway_may_be_written_out(platform, written_out):
    written = decide(node_shape(), pod_shape(), platform=platform, kubelet=written_out)
    assert written == decide(node_shape(), pod_shape(), platform=platform)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("memoryManagerPolicy", "Static"),
        ("topologyManagerScope", "pod"),
        ("evictionHard", {"memory.available": "750Mi"}),
        ("kubeReserved", {}),
        ("enforceNodeAllocatable", ["none"]),
    ],
)
def test_another_value_than_the_platforms_own_is_refused(field, value):
    found = problems(node_shape(), pod_shape(), platform="aks", kubelet={field: value})
    assert list(found) == [f"nodePools[0].kubelet.{field}"]


def test_karpenter_and_eks_take_a_whole_configuration():
    assert (
        decide(node_shape(), pod_shape(), platform="eks").kubelet.fields
        == decide(node_shape(), pod_shape(), platform="karpenter").kubelet.fields
    )
    assert not decide(node_shape(), pod_shape(), platform="eks").warnings


# What the kubelet does badly without saying so


def test_a_soft_threshold_without_its_period_would_stop_the_kubelet():
    found = problems(node_shape(), pod_shape(), kubelet={"evictionSoft": {"memory.available": "1Gi"}})
    assert "needs evictionSoftGracePeriod" in found["nodePools[0].kubelet.evictionSoft.memory.available"]


def test_half_cores_that_the_user_reserves_are_warned_of():
    decision = decide(node_shape(), pod_shape(), kubelet={"reservedSystemCPUs": "0,56"})
    (warning,) = decision.warnings
    assert (warning.code, warning.path) == ("HalfReservedCores", "nodePools[0].kubelet.reservedSystemCPUs")
    assert "Reserve whole cores: 0,56,112,168" in warning.sentence


def test_half_cores_and_distribution_never_meet_whole_cores_only():
    decision = decide(node_shape(), pod_shape(gpus=8, cpu=None, memory=None), kubelet={"reservedSystemCPUs": "0,56"})
    options = decision.kubelet.fields["cpuManagerPolicyOptions"]
    assert options["distribute-cpus-across-numa"] == "true" and "full-pcpus-only" not in options
    assert "MayLoopForEver" not in codes(decision)


def test_a_virtual_machine_with_amd_devices_is_planned_without_a_strict_policy():
    vm = node_shape(hides_numa=True, name="vm-mi300x")
    pod = pod_shape(gpus=8, cpu=32, resource_name="amd.com/gpu")
    assert decide(vm, pod, resource_name="amd.com/gpu").kubelet.fields["topologyManagerPolicy"] == "best-effort"
    found = problems(vm, pod, resource_name="amd.com/gpu", kubelet={"topologyManagerPolicy": "restricted"})
    assert "reports NUMA node -1" in found["nodePools[0].kubelet.topologyManagerPolicy"]


def test_admission_that_takes_seconds_is_warned_of():
    shape = node_shape(numa_nodes=8, cpus=16, memory="128Gi", gpus=1, name="eight")
    decision = decide(
        shape,
        pod_shape(gpus=1, cpu=8, memory="32Gi"),
        kubelet={"topologyManagerPolicy": "restricted", "memoryManagerPolicy": "Static"},
    )
    assert "SlowAdmission" in codes(decision)


@pytest.mark.parametrize(("agents", "shared"), [(1, False), (3, True)])
def test_single_threads_that_a_co_tenant_leaves_to_a_pod_are_warned_of(agents, shared):
    """Twelve of the fourteen free CPUs of a NUMA node; of three agents one may end and leave a thread between the others."""
    agent = CoTenant.model_validate({"name": "agent", "cpu": "1", "memory": "256Mi", "qosClass": "Guaranteed", "perNode": agents})
    shape = node_shape(cpus=16, memory="256Gi", name="small")
    decision = decide(shape, pod_shape(cpu=12, memory="64Gi"), co_tenants=(agent,))
    assert ("CoresShared" in codes(decision)) == shared


def test_places_are_all_that_the_scheduler_and_restarts_can_bring_about():
    alone = decide(node_shape(), pod_shape(copies=2), nodes=2)
    assert [slot.numa_nodes for slot in alone.pods[0].places] == [(0,)]
    free = decide(node_shape(), pod_shape(copies=2, anti_affinity="none"), nodes=2)
    assert [slot.numa_nodes for slot in free.pods[0].slots[0].slots] == [(0,)]
    assert [(slot.numa_nodes, slot.gpus) for slot in free.pods[0].places] == [((0,), (0, 1, 2, 3)), ((1,), (4, 5, 6, 7))]
    assert any("in others a pod comes to lie on NUMA node 1" in reason for reason in free.pods[0].reasons)


def test_best_effort_with_pinned_memory_can_still_refuse():
    """Two pods that hold memory on one NUMA node each leave no single node for a large one, and memory of both may not be mixed."""
    cache = CoTenant.model_validate({"name": "cache", "cpu": "2", "memory": "200Gi", "qosClass": "Guaranteed", "perNode": 2})
    shape, pod = node_shape(memory="512Gi", name="half"), pod_shape(gpus=1, cpu=8, memory="400Gi")
    found = problems(
        shape, pod, co_tenants=(cache,), kubelet={"topologyManagerPolicy": "best-effort", "memoryManagerPolicy": "Static"}
    )
    assert any(
        "UnexpectedAdmissionError" in message and "memoryManagerPolicy: None, which admits all pods" in message
        for message in found.values()
    )
    assert decide(shape, pod, co_tenants=(cache,), kubelet={"topologyManagerPolicy": "best-effort", "memoryManagerPolicy": "None"})

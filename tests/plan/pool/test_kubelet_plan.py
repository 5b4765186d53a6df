"""A pool's kubelet configuration: what is left out has the kubelet's own defaults."""

from __future__ import annotations

from typing import Any

import pytest

from infra.plan.model.kubelet import KubeletPlan, default_of
from infra.units import GIB, MIB


def test_a_field_that_is_left_out_has_the_kubelets_default():
    nothing = KubeletPlan(fields={})
    assert nothing.topology_manager_policy == "none"
    assert nothing.topology_manager_scope == "container"
    assert nothing.cpu_manager_policy == "none"
    assert nothing.cpu_manager_policy_options == {}
    assert nothing.memory_manager_policy == "None"
    assert nothing.reserved_memory is None
    assert (nothing.aligns, nothing.pins_cpus, nothing.pins_memory) == (False, False, False)
    assert nothing.value_of("maxPods") == default_of("maxPods") == 110
    assert default_of("evictionHard")["memory.available"] == "100Mi"


def test_what_is_given_holds_and_null_counts_as_left_out():
    given = KubeletPlan(fields={"maxPods": 0, "topologyManagerScope": "pod", "cpuManagerPolicy": None, "evictionHard": {}})
    assert given.value_of("maxPods") == 0
    assert given.topology_manager_scope == "pod"
    assert given.cpu_manager_policy == "none"
    assert given.value_of("evictionHard") == {}


@pytest.mark.parametrize(
    ("policy", "aligns"), [("none", False), ("best-effort", False), ("restricted", True), ("single-numa-node", True)]
)
def test_only_the_strict_policies_align(policy, aligns):
    assert KubeletPlan(fields={"topologyManagerPolicy": policy}).aligns == aligns


def test_static_managers_pin():
    static = KubeletPlan(
        fields={
            "cpuManagerPolicy": "static",
            "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
            "memoryManagerPolicy": "Static",
        }
    )
    assert static.pins_cpus and static.pins_memory
    assert static.cpu_manager_policy_options == {"full-pcpus-only": "true"}


@pytest.mark.parametrize(
    ("entries", "by_node"),
    [
        (None, {}),
        ([{"numaNode": 1, "limits": {"memory": "1Gi"}}], {1: GIB}),
        ([{"numaNode": 0, "limits": {"memory": "1Gi"}}, {"numaNode": 0, "limits": {"memory": "5Mi"}}], {0: GIB + 5 * MIB}),
        ([{"numaNode": None, "limits": {"memory": "1Mi"}}, {"limits": {"memory": "2Mi"}}], {0: 3 * MIB}),
        ([{"numaNode": 2, "limits": None}, {"numaNode": 3, "limits": {"hugepages-1Gi": "4"}}], {2: 0, 3: 0}),
    ],
)
def test_reserved_memory_adds_up_by_numa_node(entries: list[dict[str, Any]] | None, by_node: dict[int, int]):
    pinned = KubeletPlan(fields={"memoryManagerPolicy": "Static", "reservedMemory": entries})
    assert pinned.reserved_memory == by_node
    assert KubeletPlan(fields={"memoryManagerPolicy": "None", "reservedMemory": entries}).reserved_memory is None


def test_the_hash_changes_with_the_configuration_and_with_nothing_else():
    first = KubeletPlan(fields={"a": 1, "b": {"c": "x"}}).config_hash
    assert first == KubeletPlan(fields={"b": {"c": "x"}, "a": 1}).config_hash
    assert first != KubeletPlan(fields={"a": 1, "b": {"c": "y"}}).config_hash
    assert first == "c3ae429d9d61"  # a label of running nodes: another one would drain them all

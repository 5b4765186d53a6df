"""Reservations: whole cores on each NUMA node, memory that adds up to the byte, and the names of fields."""

from __future__ import annotations

from typing import Any

import pytest

from infra.catalog.types import NodeShape
from infra.diagnosis import Diagnosis
from infra.kubelet.configuration.fields import FIELDS
from infra.plan.model.kubelet import KubeletPlan, default_of
from infra.plan.pool.fields import read_user_fields
from infra.plan.pool.platforms import PlatformFields, kube_reserved_millicpu
from infra.plan.pool.reserve import Reservations, reserve, reserved_cores
from infra.units import MIB, parse_cpu_list
from tests.support.gpu_pools import node_shape


def reserved(user: dict[str, Any], shape: NodeShape) -> tuple[Reservations, list[Diagnosis]]:
    return reserve(KubeletPlan(fields=user), shape, "k")


def test_the_first_core_of_each_numa_node_is_reserved_with_all_its_threads():
    assert reserved_cores(node_shape()) == ((0, 112), (56, 168))
    reservations, problems = reserved({}, node_shape(numa_nodes=4, cpus=24, threads=1))
    assert not problems
    assert parse_cpu_list(reservations.fields["reservedSystemCPUs"]) == (0, 24, 48, 72)


def test_the_default_reservation_follows_a_public_rule():
    reservations, _ = reserved({}, node_shape())
    assert reservations.fields["kubeReserved"] == {"memory": "1465Mi"}
    assert reservations.fields["systemReserved"] == {"memory": "1Gi"}
    assert reservations.memory_bytes == (1465 + 1024 + 100) * MIB
    assert reserved({"maxPods": 32}, node_shape())[0].fields["kubeReserved"] == {"memory": f"{255 + 11 * 32}Mi"}


@pytest.mark.parametrize(
    ("threshold", "total"), [("100Mi", 1124), ("1Gi", 2048), ("0%", 1024), ("0", 1024), ("100%", 1024), ("5%", None)]
)
def test_the_memory_threshold_is_a_summand(threshold, total):
    user = {"kubeReserved": {"memory": "1Gi"}, "evictionHard": {"memory.available": threshold}}
    reservations, problems = reserved(user, node_shape())
    assert not problems
    assert reservations.memory_bytes == (None if total is None else total * MIB)


@pytest.mark.parametrize(
    ("user", "path"),
    [
        ({"kubeReserved": {"memory": "1GB"}}, "k.kubeReserved.memory"),
        ({"systemReserved": {"memory": "-1Gi"}}, "k.systemReserved.memory"),
        ({"kubeReserved": {"cpu": "10%"}}, "k.kubeReserved.cpu"),
        ({"evictionHard": {"memory.available": "many"}}, "k.evictionHard.memory.available"),
        ({"evictionHard": {"memory.available": "-1Mi"}}, "k.evictionHard.memory.available"),
        ({"reservedSystemCPUs": "3-1"}, "k.reservedSystemCPUs"),
        ({"reservedSystemCPUs": "0-223"}, "k.reservedSystemCPUs"),
        ({"reservedSystemCPUs": "220-225"}, "k.reservedSystemCPUs"),
    ],
)
def test_what_is_no_quantity_or_cpu_list_is_told_with_its_path(user, path):
    assert [problem.path for problem in reserved(user, node_shape())[1]] == [path]


@pytest.mark.parametrize(
    ("text", "told"),
    [("220-224", "names 1 CPUs that dgx-h100 does not have (224)"), ("0,224-239", "names 16 CPUs"), ("0,224-240", "names 17 CPUs")],
)
def test_of_many_cpus_outside_the_machine_sixteen_are_told(text, told):
    (problem,) = reserved({"reservedSystemCPUs": text}, node_shape())[1]
    assert told in problem.message
    assert ("239, ...)" in problem.message) == (told == "names 17 CPUs")
    assert problem.message.endswith("its 224 CPUs are 0-223.")


@pytest.mark.parametrize(
    ("user", "words"),
    [
        ({}, "reservedSystemCPUs 0,56,112,168: the first physical core of each NUMA node with CPUs (4 of 224 CPUs)"),
        ({"kubeReserved": {"cpu": "500m"}, "systemReserved": {"cpu": "1"}}, "kubeReserved and systemReserved keep 1.5 CPUs as the stack file says"),
        ({"reservedSystemCPUs": "0,1,112"}, "reservedSystemCPUs takes single threads of 1 physical cores (1,113 first)"),
        ({"evictionHard": {"nodefs.available": "5%"}}, "evictionHard keeps the kubelet's defaults for memory.available, nodefs.inodesFree,"),
    ],
)  # fmt: skip
def test_reservations_say_why(user, words):
    reservations, problems = reserved(user, node_shape())
    assert not problems
    assert sum(reason.startswith(words) for reason in reservations.reasons) == 1


def test_whole_cores_and_complete_maps_need_no_reason():
    complete = dict.fromkeys(default_of("evictionHard"), "5%") | {"memory.available": "1Gi"}
    user = {"reservedSystemCPUs": "0,112", "evictionHard": complete, "kubeReserved": {"memory": "1Gi"}}
    reservations, _ = reserved(user, node_shape())
    assert reservations.reasons == ()
    assert reservations.sum_in_words == "kubeReserved 1024Mi + evictionHard 1024Mi"


def test_numbers_and_booleans_become_the_strings_that_a_kubelet_reads():
    fields, problems = read_user_fields(
        {"cpuManagerPolicyOptions": {"full-pcpus-only": True}, "kubeReserved": {"cpu": 1, "memory": None}, "maxPods": None}, "k"
    )
    assert not problems
    assert fields == {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}, "kubeReserved": {"cpu": "1"}}


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_every_field_refuses_a_value_of_another_kind(name):
    wrong = 5 if FIELDS[name].kind.form in ("string", "duration", "boolean") else "text"
    fields, problems = read_user_fields({name: wrong}, "k")
    assert not fields
    assert [problem.path for problem in problems] == [f"k.{name}"]


@pytest.mark.parametrize(("cpus", "millicpu"), [(1, 60), (2, 70), (4, 80), (8, 90), (96, 310), (224, 630)])
def test_the_clouds_rule_for_reserved_cpus(cpus, millicpu):
    assert kube_reserved_millicpu(cpus) == millicpu


def test_platforms_that_take_a_whole_configuration_lack_nothing():
    assert not PlatformFields.of("eks").unavailable
    assert "reservedMemory" in PlatformFields.of("gke").unavailable
    assert {"memoryManagerPolicy", "topologyManagerScope"} <= PlatformFields.of("aks").unavailable - PlatformFields.of(
        "gke"
    ).unavailable

"""A drop-in over any base file starts a kubelet that reserves what the fields alone reserve."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import yaml

from infra.catalog.platforms import base_of, platforms
from infra.config.pools import Platform
from infra.errors import ConfigError
from infra.kubelet import Kubelet, KubeletRefuses, Machine
from infra.kubelet.configuration.decode import load
from infra.kubelet.configuration.drop_in import drop_in_of
from infra.kubelet.configuration.fields import FIELDS, HEADER
from infra.kubelet.configuration.merge import effective_configuration, merged
from infra.kubelet.configuration.validate import validation_errors
from tests.support.gpu_pools import decide, node_shape, pod_shape

MACHINE = Machine.from_dict(
    {
        "numa": [
            {"id": node, "cpus": [[2 * node, 2 * node + 1], [4 + 2 * node, 5 + 2 * node]], "memory_bytes": 64 * 2**30}
            for node in (0, 1)
        ]
    }
)
PINNED: dict[str, Any] = {
    "cpuManagerPolicy": "static",
    "memoryManagerPolicy": "Static",
    "topologyManagerPolicy": "restricted",
    "kubeReserved": {"memory": "1Gi"},
    "evictionHard": {"memory.available": "100Mi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1124Mi"}}],
}
LISTED = {**PINNED, "reservedSystemCPUs": "0-1"}
COUNTED = {**PINNED, "kubeReserved": {"memory": "1Gi", "cpu": "2"}}
BASES: list[dict[str, Any]] = [
    {"systemReservedCgroup": "/system", "kubeReservedCgroup": "/runtime"},
    {"systemReserved": {"memory": "1Gi", "cpu": "500m"}, "kubeReserved": {"memory": "3Gi", "cpu": "1", "ephemeral-storage": "1Gi"}},
    {"systemReservedCgroup": "/system.slice", "enforceNodeAllocatable": ["pods", "system-reserved-compressible"]},
    {
        "kubeReservedCgroup": "/k",
        "systemReservedCgroup": "/s",
        "enforceNodeAllocatable": ["pods", "kube-reserved", "system-reserved"],
    },
    {"evictionHard": {"memory.available": "750Mi", "pid.available": "2000"}},
    {"reservedMemory": [{"numaNode": 1, "limits": {"memory": "3Gi"}}], "memoryManagerPolicy": "Static"},
    {"cpuManagerPolicy": "none", "topologyManagerPolicy": "none", "failSwapOn": False},
]


def started(document: Any) -> Kubelet:
    return Kubelet.start(MACHINE, document, {})


@pytest.mark.parametrize("fields", [LISTED, COUNTED], ids=["listed", "counted"])
@pytest.mark.parametrize("base", BASES, ids=lambda base: "+".join(base))
def test_a_base_changes_nothing_of_what_is_reserved(base: dict[str, Any], fields: dict[str, Any]) -> None:
    alone, over = started(fields), started(merged(base, drop_in_of(fields), kubernetes_version="1.37"))
    assert (over.allocatable["cpu"], over.allocatable["memory"]) == (alone.allocatable["cpu"], alone.allocatable["memory"])
    assert over.reserved_cpus == alone.reserved_cpus
    assert over.allocatable_memory_bytes == alone.allocatable_memory_bytes


@pytest.mark.parametrize("base", [BASES[0], BASES[1], BASES[2]], ids=["cgroups", "summands", "enforcement"])
def test_the_fields_alone_would_stop_the_kubelet_there(base: dict[str, Any]) -> None:
    with pytest.raises(KubeletRefuses):
        started(merged(base, LISTED, kubernetes_version="1.37"))


def test_what_the_user_sets_stays() -> None:
    given = {**LISTED, "enforceNodeAllocatable": ["none"], "systemReserved": {"memory": "5Mi"}}
    drop_in = drop_in_of(given)
    assert {name: drop_in[name] for name in given} == given
    assert drop_in_of({"maxPods": 5}) == {"maxPods": 5}


def test_a_merge_of_documents_is_that_of_files() -> None:
    for base in BASES:
        text = effective_configuration(
            base=yaml.safe_dump({**HEADER, **base}), drop_ins={"90.conf": yaml.safe_dump({**HEADER, **LISTED})}
        )
        assert merged(base, LISTED, kubernetes_version="1.37") == text.document


# The recorded bases


def test_every_platform_has_a_recorded_base() -> None:
    assert set(platforms()) == set(get_args(Platform))
    with pytest.raises((KeyError, ConfigError)):
        base_of("nowhere")


@pytest.mark.parametrize("platform", get_args(Platform))
@pytest.mark.parametrize("version", ["1.33", "1.35", "1.37"])
def test_a_recorded_base_starts_a_kubelet(platform: str, version: str) -> None:
    assert set(base_of(platform)) <= set(FIELDS)
    assert set(platforms()[platform].varies) <= set(FIELDS)
    given = {**base_of(platform)}
    if given.get("enableSystemLogQuery"):
        given["featureGates"] = {"NodeLogQuery": True}  # set by the platform by version
    assert validation_errors(load(given, kubernetes_version=version)) == []


@pytest.mark.parametrize("platform", get_args(Platform))
def test_a_plan_of_every_platform_starts_over_its_base(platform: str) -> None:
    decision = decide(node_shape(), pod_shape(copies=2), platform=platform, nodes=2)
    effective = decision.kubelet.effective
    for name in ("systemReservedCgroup", "kubeReservedCgroup"):
        assert not (effective.get(name) and effective.get("reservedSystemCPUs"))
    told = [reason for reason in decision.reasons if reason.startswith("The nodes' own kubelet configuration is taken to be")]
    assert len(told) == (platform != "existing")
    assert not told or platforms()[platform].written_by in told[0]


def test_the_room_for_pods_is_the_platforms() -> None:
    openshift, eks = (decide(node_shape(), pod_shape(), platform=platform).kubelet for platform in ("openshift", "eks"))
    assert openshift.fields["kubeReserved"]["memory"] == f"{255 + 11 * 250}Mi"
    assert eks.fields["kubeReserved"]["memory"] == f"{255 + 11 * 110}Mi"
    assert eks.drop_in["systemReservedCgroup"] == eks.drop_in["kubeReservedCgroup"] == ""
    assert "systemReservedCgroup" not in eks.fields

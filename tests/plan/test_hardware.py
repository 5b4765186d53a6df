"""What a machine of a pool has for pods before the kubelet's reservations are decided."""

from __future__ import annotations

from typing import Any

import pytest

from infra.catalog.load import shapes
from infra.config.pools import NodePool
from infra.errors import ConfigError, PlanError
from infra.plan.hardware import PoolHardware, hardware_of
from infra.units import GIB


def hardware(
    *nodes: tuple[str, str, list[int]], threads: int = 2, tenants: list[dict[str, Any]] | None = None, **topology: Any
) -> PoolHardware:
    """An inline machine: CPUs, memory and GPUs of each NUMA node."""
    numa = [{"cpus": cpus, "memory": memory, "gpus": gpus} for cpus, memory, gpus in nodes]
    pool = {
        "name": "p",
        "topology": {"sku": "h100-sxm5-80gb", "threadsPerCore": threads, "numaNodes": numa, **topology},
        "nodeNames": ["a"],
        "coTenants": tenants or [],
    }
    return hardware_of(NodePool.model_validate(pool), "nodePools[0]")


TWO = (("0-9,20-29", "100Gi", [0, 1]), ("10-19,30-39", "200Gi", [2, 3]))
UNEVEN = (("0-9,20-29", "100Gi", [0]), ("10-19,30-39", "200Gi", [1, 2, 3]))
SIZED = (("0-9,20-29", "100Gi", [0, 1]), ("10-17,30-37", "200Gi", [2, 3]))


@pytest.mark.parametrize(
    ("found", "gpus", "cpus", "memory_gib", "share_gpus"),
    [
        (hardware(*TWO), 1, 18, 97, 2),  # a core less, 97 % of the memory
        (hardware(*TWO), 2, 18, 97, 2),
        (hardware(*TWO), 3, 36, 97 + 194, 4),
        (hardware(*UNEVEN), 1, 18, 97, 1),
        (hardware(*UNEVEN), 2, 18, 194, 3),
        (hardware(*SIZED), 1, 14, 194, 2),  # of equally good nodes the one with fewer CPUs
        (hardware(("0-9", "100Gi", [0, 1]), ("10-19", "200Gi", [2, 3]), threads=1), 2, 9, 97, 2),
        (hardware(("0", "100Gi", [0]), threads=1), 1, 0, 97, 1),
    ],
)
def test_the_share_of_the_numa_nodes_of_a_pod(found: PoolHardware, gpus: int, cpus: int, memory_gib: int, share_gpus: int) -> None:
    share = found.share_for(gpus)
    assert (share.cpus, share.gpus) == (cpus, share_gpus)
    assert share.memory_bytes == memory_gib * GIB


def tenant(cpu: str, qos: str = "Guaranteed", per_node: int = 1, memory: str = "1Gi") -> dict[str, Any]:
    return {"name": "t", "cpu": cpu, "memory": memory, "qosClass": qos, "perNode": per_node}


@pytest.mark.parametrize(
    ("tenants", "cpus", "memory_gib"),
    [
        ([], 18, 97),
        ([tenant("2")], 16, 96),
        ([tenant("1")], 16, 96),  # whole cores are left
        ([tenant("1500m")], 16, 96),
        ([tenant("2001m")], 14, 96),
        ([tenant("2", "Burstable")], 18, 96),
        ([tenant("2", per_node=3)], 12, 94),
        ([tenant("1"), tenant("1")], 16, 95),
        ([tenant("100", memory="500Gi")], 0, 0),
    ],
)
def test_tenants_take_theirs_first(tenants: list[dict[str, Any]], cpus: int, memory_gib: int) -> None:
    share = hardware(*TWO, tenants=tenants).share_for(1)
    assert (share.cpus, share.memory_bytes) == (cpus, memory_gib * GIB)


def test_what_the_device_plugin_can_tell() -> None:
    assert hardware(*UNEVEN).largest_numa_gpus == 3
    assert hardware(*TWO).reports_numa
    assert not hardware(*TWO, numaInGuest=False).reports_numa and hardware(*TWO, numaInGuest=True).reports_numa
    assert hardware(*TWO).share_for(1).threads_per_core == 2


def test_a_shape_comes_from_the_catalog_by_name() -> None:
    known = hardware_of(NodePool.model_validate({"name": "p", "nodeShape": "dgx-h100", "nodes": 1}), "nodePools[3]")
    assert (known.shape.id, known.accelerator.id, known.path) == ("dgx-h100", "h100-sxm5-80gb", "nodePools[3]")
    with pytest.raises(ConfigError, match=r"nodePools\[3\].nodeShape"):
        hardware_of(NodePool.model_validate({"name": "p", "nodeShape": "dgx-h1000", "nodes": 1}), "nodePools[3]")


def test_a_shape_whose_numa_nodes_nobody_knows_is_refused() -> None:
    unknown = next(shape.id for shape in shapes().values() if shape.missing)
    with pytest.raises(PlanError, match=r"nodePools\[0\].nodeShape: the catalog does not know"):
        hardware_of(NodePool.model_validate({"name": "p", "nodeShape": unknown, "nodes": 1}), "nodePools[0]")

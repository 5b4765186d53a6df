"""Reads one accelerator of accelerators.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra.catalog.provenance import read_provenance
from infra.catalog.reader import Reader
from infra.catalog.types import Accelerator, AcceleratorMemory, Fabric, PartitionMode

FABRIC_KINDS = ("nvlink-switch", "nvlink-pairs", "xgmi-mesh", "xgmi-partial", "pcie")
RESOURCE_NAMES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
LABEL_KEYS = {"nvidia": "nvidia.com/gpu.product", "amd": "amd.com/gpu.product-name"}


def read_accelerator(reader: Reader, sources: Mapping[str, str]) -> Accelerator | None:
    """One accelerator, or None where a needed field is missing; problems are added to the reader's."""
    name = reader.text("id", required=True)
    vendor = reader.one_of("vendor", tuple(RESOURCE_NAMES), required=True)
    driver_name = reader.text("driverName", required=True)
    architecture = reader.text("architecture", required=True)
    label, labels = reader.text("labelValue"), reader.texts("otherLabelValues")
    aliases, pci_ids = reader.texts("aliases"), reader.texts("pciIds")
    compute_units = reader.integer("computeUnits", minimum=1)
    fp8, fp4 = reader.text("fp8"), reader.text("fp4")
    memory, fabric = _memory(reader.child("memory")), _fabric(reader.child("fabric"))
    if fabric is None:
        reader.problem("fabric", "is missing or has no kind.", code="MissingField")
    modes = tuple(mode for mode in map(_partition_mode, reader.children("partitionModes")) if mode is not None)
    provenance = read_provenance(reader, sources)
    if name is None or vendor is None or driver_name is None or architecture is None or fabric is None:
        return None
    return Accelerator(
        id=name,
        vendor=vendor,  # type: ignore[arg-type]
        driver_name=driver_name,
        resource_name=RESOURCE_NAMES[vendor],
        label_key=LABEL_KEYS[vendor],
        label_value=label,
        label_values=tuple(dict.fromkeys(value for value in (label, *labels) if value)),
        aliases=aliases,
        pci_ids=pci_ids,
        architecture=architecture,
        compute_capability=_compute_capability(architecture),
        compute_units=compute_units,
        memory=memory,
        fabric=fabric,
        fp8=fp8,
        fp4=fp4,
        partition_modes=modes,
        provenance=provenance,
    )


def _compute_capability(architecture: str) -> tuple[int, int] | None:
    digits = architecture.removeprefix("sm_")
    return (int(digits[:-1]), int(digits[-1])) if architecture.startswith("sm_") and digits.isdigit() else None


def _memory(reader: Reader | None) -> AcceleratorMemory:
    if reader is None:
        return AcceleratorMemory()
    span = reader.parsed("torchRangeGib", _span)
    memory = AcceleratorMemory(
        marketing_gb=reader.integer("marketingGb", minimum=1),
        torch_gib=reader.number("torchGib", minimum=1),
        torch_range_gib=span,
        torch_vf_gib=reader.number("torchVfGib", minimum=1),
        smi_mib=reader.integer("smiMib", minimum=1),
        bandwidth_gbs=reader.number("bandwidthGbs", minimum=1),
    )
    reader.finish()
    return memory


def _span(value: Any) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2 or any(isinstance(v, bool) or not isinstance(v, int | float) for v in value):
        raise ValueError(f"{value!r} is no pair [low, high] of numbers")
    if value[0] > value[1]:
        raise ValueError(f"low {value[0]} is above high {value[1]}")
    return float(value[0]), float(value[1])


def _fabric(reader: Reader | None) -> Fabric | None:
    if reader is None:
        return None
    kind = reader.one_of("kind", FABRIC_KINDS, required=True)
    fabric = Fabric(
        kind=kind or "pcie",  # type: ignore[arg-type]
        links=reader.integer("links", minimum=1),
        link_gbs=reader.number("linkGbs", minimum=0),
        domain_size=reader.integer("domainSize", minimum=1),
        pcie_generation=reader.integer("pcieGeneration", minimum=1),
        pcie_gbs=reader.number("pcieGbs", minimum=0),
    )
    reader.finish()
    return fabric if kind else None


def _partition_mode(reader: Reader) -> PartitionMode | None:
    compute = reader.one_of("compute", ("SPX", "DPX", "TPX", "QPX", "CPX"), required=True)
    memory = reader.one_of("memory", ("NPS1", "NPS2", "NPS4", "NPS8"), required=True)
    devices, memory_gib = reader.integer("devices", required=True, minimum=1), reader.number("memoryGib", minimum=0)
    reader.finish()
    if compute is None or memory is None or devices is None:
        return None
    return PartitionMode(compute=compute, memory=memory, devices=devices, memory_gib=memory_gib)

"""What differs between vendors of accelerators, a row each: names in Kubernetes, pinned artefacts, defaults."""

from __future__ import annotations

from functools import cache

from pydantic import Field

from infra.catalog.entries import DATA, Entries, Entry, as_it_is
from infra.config.base import Texts, Utilization


class VendorFacts(Entry):
    """One vendor; `id` is the `vendor` of its accelerators."""

    resource_name: str = Field(description="The extended resource that its device plugin offers.")
    product_label: str = Field(description="The node label whose value names the accelerator.")
    fabric_name: str = Field(description="What it calls the links between its devices.")
    device_plugin_pin: str = Field(description="The device plugin's image, an id of pins.yaml.")
    engine_pin: str = Field(description="vLLM's image, an id of pins.yaml.")
    gpu_memory_utilization: Utilization = Field(description="Share of the device's memory where the stack file gives none.")
    visibility_variables: Texts = Field(
        description="Variables by which its runtime hides devices from a process; the device plugin decides that here."
    )
    hidden_numa_node: int | None = Field(
        default=None,
        description="The NUMA node that its device plugin reports where the kernel knows none; left out: it reports no topology then.",
    )


@cache
def vendors() -> Entries[VendorFacts, VendorFacts]:
    """All vendors by id."""
    return Entries(DATA / "vendors.yaml", "vendors", VendorFacts, as_it_is)

"""The base of all wire models: camelCase on the wire, frozen, and unknown keys are refused."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from infra.units import parse_bytes, parse_cpu_list, parse_millicpu, parse_quantity


class Wire(BaseModel):
    """A section of the stack file."""

    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_name=False, validate_by_alias=True, extra="forbid", frozen=True, strict=True
    )


def _dns_label(value: str) -> str:
    if (
        len(value) > 63
        or not value
        or not all(c.isascii() and (c.islower() or c.isdigit() or c == "-") for c in value)
        or value[0] == "-"
        or value[-1] == "-"
    ):
        raise ValueError(
            f"{value!r} is no DNS label; use at most 63 of a-z, 0-9 and -, beginning and ending with a letter or digit"
        )
    return value


def _dns_subdomain(value: str) -> str:
    if len(value) > 253:
        raise ValueError(f"the name has {len(value)} characters; Kubernetes allows 253")
    for part in value.split("."):
        _dns_label(part)
    return value


def _quantity_text(value: Any) -> Any:
    """Numbers are quantities too (`cpu: 32`); what is no quantity at all is refused with the right spelling."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if isinstance(value, str):
        if parse_quantity(value) < 0:
            raise ValueError(f"{value} is negative")
        return value.strip()
    return value


def _cpu_quantity(value: str) -> str:
    parse_millicpu(value)
    return value


def _memory_quantity(value: str) -> str:
    number = parse_quantity(value)
    if 0 < number < 2**20:
        raise ValueError(f"{value} is {parse_bytes(value)} bytes; write memory with a unit, for example {value.rstrip('mKki')}Gi")
    return value


def _cpu_list(value: str) -> str:
    parse_cpu_list(value)
    return value


def _utilization(value: float) -> float:
    if not 0 < value <= 1:
        remedy = f"; for {value:g} percent write {value / 100:g}" if 1 < value <= 100 else ""
        raise ValueError(f"{value:g} is no share of the GPU's memory; it lies above 0 and at most at 1{remedy}")
    return value


DnsLabel = Annotated[str, AfterValidator(_dns_label)]
DnsSubdomain = Annotated[str, AfterValidator(_dns_subdomain)]
CpuQuantity = Annotated[
    str, BeforeValidator(_quantity_text), AfterValidator(_cpu_quantity), Field(json_schema_extra={"type": ["string", "number"]})
]
MemoryQuantity = Annotated[
    str, BeforeValidator(_quantity_text), AfterValidator(_memory_quantity), Field(json_schema_extra={"type": ["string", "number"]})
]
CpuList = Annotated[str, AfterValidator(_cpu_list)]
Utilization = Annotated[float, Field(strict=False), AfterValidator(_utilization)]
PositiveInt = Annotated[int, Field(ge=1)]
NonNegativeInt = Annotated[int, Field(ge=0)]

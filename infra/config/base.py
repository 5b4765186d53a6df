"""The base of all wire models: camelCase on the wire, frozen, and unknown keys are refused."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from infra.diagnosis import below, shown
from infra.units import parse_bytes, parse_cpu_list, parse_millicpu, parse_quantity


class Wire(BaseModel):
    """A section of the stack file."""

    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_name=False, validate_by_alias=True, extra="forbid", frozen=True, strict=True
    )


class FieldError(ValueError):
    """What is wrong with one field of a section, found where several fields are looked at together; `field` as the wire names it."""

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        super().__init__(message)


def path_of(location: Iterable[str | int]) -> str:
    """(`models`, 0, `replicas`) as `models[0].replicas`."""
    path = ""
    for part in location:
        path = f"{path}[{part}]" if isinstance(part, int) and not isinstance(part, bool) else below(path, part)
    return path


def valid_dns_label(value: str) -> str:
    if (
        len(value) > 63
        or not value
        or not all(c.isascii() and (c.islower() or c.isdigit() or c == "-") for c in value)
        or value[0] == "-"
        or value[-1] == "-"
    ):
        raise ValueError(
            f"{shown(value)} is no DNS label; use at most 63 of a-z, 0-9 and -, beginning and ending with a letter or digit"
        )
    return value


def _dns_subdomain(value: str) -> str:
    if len(value) > 253:
        raise ValueError(f"the name has {len(value)} characters; Kubernetes allows 253")
    for part in value.split("."):
        valid_dns_label(part)
    return value


LAST_CPU = 8191  # of NR_CPUS, at most 8,192 on x86-64; Arm allows fewer
_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
_LONGEST_IMAGE = 512  # a repository of 255, a tag of 128, a digest of 71 characters, and what divides them
_IMAGE = re.compile(
    r"(?:[a-zA-Z0-9.-]+(?::\d+)?/)?[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?",
    re.ASCII,
)


def _label_key(value: str) -> str:
    """A qualified name, as of labels, annotations and taints (apimachinery's IsQualifiedName)."""
    prefix, slash, name = value.rpartition("/")
    if slash:
        _dns_subdomain(prefix)
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{shown(value)} is no label key; use at most 63 of letters, digits, -, _ and ., beginning and ending with a letter or digit, after an optional "
            "prefix such as example.com/"
        )
    return value


def _label_value(value: str) -> str:
    if value and not _NAME.fullmatch(value):
        raise ValueError(
            f"{shown(value)} is no label value; use at most 63 of letters, digits, -, _ and ., beginning and ending with a letter or digit"
        )
    return value


def valid_image(value: str) -> str:
    if len(value) > _LONGEST_IMAGE or not _IMAGE.fullmatch(value):
        raise ValueError(
            f"{shown(value)} is no image; write it like vllm/vllm-openai:v0.11.0 or registry.example/team/vllm@sha256:..."
        )
    return value


_REGISTRY = re.compile(
    r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?(?::\d{1,5})?(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*", re.ASCII
)


def _registry(value: str) -> str:
    if len(value) > _LONGEST_IMAGE or not _REGISTRY.fullmatch(value):
        raise ValueError(
            f"{shown(value)} is no registry; write it like registry.example or registry.example:5000/mirror, without scheme and tag"
        )
    return value


def valid_environment_name(value: str) -> str:
    if not isinstance(value, str) or not value or "=" in value or not all(" " <= c <= "~" for c in value):
        raise ValueError(f"{shown(value)} is no name of an environment variable; use printable ASCII characters without =")
    return value


def _environment_value(value: str) -> str:
    if "\0" in value:
        raise ValueError("holds a NUL character, which no environment variable can")
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


def _cpu_list(value: Any) -> Any:
    """YAML reads a single CPU as a number, and 0-3,8 as text: only text is a list of CPUs."""
    if isinstance(value, list | Mapping):
        return value
    if not isinstance(value, str):
        raise ValueError(f'{shown(value)} is no CPU list; write it in quotes, like "0-55,112-167"')
    cpus = parse_cpu_list(value)
    if cpus and cpus[-1] > LAST_CPU:
        raise ValueError(f"{shown(value)} names CPU {cpus[-1]}; the kernel knows CPUs 0 to {LAST_CPU} at most")
    return value


def _utilization(value: float) -> float:
    if not 0 < value <= 1:
        remedy = f"; for {value:g} percent write {value / 100:g}" if 1 < value <= 100 else ""
        raise ValueError(f"{value:g} is no share of the GPU's memory; it lies above 0 and at most at 1{remedy}")
    return value


def _bytes_per_second(value: Any) -> Any:
    """A number or a quantity, in bytes: 200M, 2Gi, 1.5e9."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return value
    speed = float(parse_quantity(str(value)))
    if not SLOWEST_READ <= speed <= FASTEST_READ:
        raise ValueError(f"{shown(value)} is {speed:g} bytes a second; storage reads 1M to 10T of them: write it like 200M or 2Gi")
    return speed


SLOWEST_READ, FASTEST_READ = 1e6, 1e13  # bytes a second

DnsLabel = Annotated[str, AfterValidator(valid_dns_label)]
DnsSubdomain = Annotated[str, AfterValidator(_dns_subdomain)]
CpuQuantity = Annotated[
    str, BeforeValidator(_quantity_text), AfterValidator(_cpu_quantity), Field(json_schema_extra={"type": ["string", "number"]})
]
MemoryQuantity = Annotated[
    str, BeforeValidator(_quantity_text), AfterValidator(_memory_quantity), Field(json_schema_extra={"type": ["string", "number"]})
]
CpuList = Annotated[str, BeforeValidator(_cpu_list)]
Utilization = Annotated[float, Field(strict=False), AfterValidator(_utilization)]
# Kubernetes holds counts and seconds as int32.
PositiveInt = Annotated[int, Field(ge=1, le=2**31 - 1)]
NonNegativeInt = Annotated[int, Field(ge=0, le=2**31 - 1)]
BytesPerSecond = Annotated[float, BeforeValidator(_bytes_per_second), Field(json_schema_extra={"type": ["string", "number"]})]
# YAML knows lists only; what is read is a tuple.
Indices = Annotated[tuple[NonNegativeInt, ...], Field(strict=False)]
Groups = Annotated[tuple[Indices, ...], Field(strict=False)]
Texts = Annotated[tuple[str, ...], Field(strict=False)]
LabelKey = Annotated[str, AfterValidator(_label_key)]
LabelValue = Annotated[str, AfterValidator(_label_value)]
Labels = dict[LabelKey, LabelValue]
Image = Annotated[str, AfterValidator(valid_image)]
Registry = Annotated[str, AfterValidator(_registry)]
Environment = dict[Annotated[str, AfterValidator(valid_environment_name)], Annotated[str, AfterValidator(_environment_value)]]

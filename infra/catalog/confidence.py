"""Warnings for what the catalog knows, but not for certain: each fact that a plan rests on, with the command that verifies it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from infra.catalog.types import Accelerator, Model, NodeShape
from infra.diagnosis import Diagnosis

_TORCH_MEMORY = (
    "`python3 -c 'import torch; print(torch.cuda.get_device_properties(0).total_memory / 2**30)'` in a pod there prints the GiB"
)
_PLACEMENT_FACTS = ("numaNodes", "threadsPerCore", "memory", "linkDomains", "numaInGuest")


class Trusted(Protocol):
    """An entry, as far as it says how sure it is."""

    @property
    def id(self) -> str: ...
    @property
    def confidence(self) -> str: ...
    @property
    def unverified(self) -> tuple[str, ...]: ...


def hardware_warnings(shape: NodeShape, accelerator: Accelerator, pool_path: str) -> tuple[Diagnosis, ...]:
    """Of a pool's machines and their accelerator; `pool_path` is nodePools[0]."""
    where = f"{pool_path}.topology.sku" if shape.id == "inline" else f"{pool_path}.nodeShape"
    return (*shape_warnings(shape, where), *accelerator_warnings(accelerator, where, shape=shape))


def shape_warnings(shape: NodeShape, path: str = "nodeShape") -> tuple[Diagnosis, ...]:
    """Facts by which the plan places pods."""
    verify = f"compare a node's own outputs by `python -m infra topology FILE --expect {shape.id}` before you rely on the placement"
    return tuple(_warnings(shape, path, dict.fromkeys(_PLACEMENT_FACTS, verify)))


def accelerator_warnings(accelerator: Accelerator, path: str, *, shape: NodeShape | None = None) -> tuple[Diagnosis, ...]:
    """Facts by which the plan sizes models: the memory that torch sees, and the links; with a `shape` also how its devices are divided and labelled."""
    topology = f"`python -m infra topology FILE{'' if shape is None or shape.id == 'inline' else f' --expect {shape.id}'}` shows the links of a node"
    used = {"memory.torchGib": _TORCH_MEMORY, "memory.torchRangeGib": _TORCH_MEMORY, "fabric": topology}
    if shape is not None and shape.virtual_machine:
        used["memory.torchVfGib"] = _TORCH_MEMORY
    if shape is not None and shape.partition is not None:
        used["partitionModes"] = _TORCH_MEMORY
    if shape is not None:
        used["labelValue"] = f"`kubectl get nodes -L {accelerator.label_key}` prints the label"
    return tuple(_warnings(accelerator, path, used))


def model_warnings(model: Model, path: str) -> tuple[Diagnosis, ...]:
    """Facts by which the plan counts weights and cache."""
    verify = "compare with its page: `python -m infra fit --config config.json` takes the config.json that stands there"
    return tuple(_warnings(model, path, {"config": verify, "visionParameters": verify}))


def _warnings(entry: Trusted, path: str, used: Mapping[str, str]) -> Iterator[Diagnosis]:
    """One warning for the facts of `used` (with what verifies each) that are not verified, or for all of an entry of low confidence."""
    weak = [name for name in entry.unverified if any(_overlap(name, fact) for fact in used)]
    if not weak and entry.confidence != "low":
        return
    facts = ", ".join(weak) or "all facts"
    verify = _unique(how for fact, how in used.items() if not weak or any(_overlap(name, fact) for name in weak))
    yield Diagnosis.warning(
        path=path,
        code="UnverifiedFacts",
        message=f"{facts} of {entry.id} {'is' if len(weak) == 1 else 'are'} not verified in the catalog (confidence {entry.confidence}): "
        f"{'; '.join(verify)}",
    )


def _overlap(name: str, fact: str) -> bool:
    """Whether one of two paths lies inside the other: `memory` and `memory.torchGib`, `numaNodes[0].cpus` and `numaNodes`."""
    shorter, longer = sorted((_parts(name), _parts(fact)), key=len)
    return longer[: len(shorter)] == shorter


def _parts(path: str) -> list[str]:
    return [part.partition("[")[0] for part in path.split(".")]


def _unique(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))

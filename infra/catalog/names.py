"""Finds an accelerator, a node shape or a model by the names that people and machines use for it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from infra.catalog.hub_models import fetched_model
from infra.catalog.load import accelerators, models, shapes
from infra.catalog.quantized_builds import marks_of, quantized_build
from infra.catalog.types import Accelerator, AcceleratorMemory, Model, NodeShape
from infra.diagnosis import Diagnosis, did_you_mean, shown
from infra.errors import ConfigError

_NOISE = frozenset({"nvidia", "amd", "instinct", "gpu", "tesla", "oam", "radeon", "accelerator", "card"})


def find_accelerator(name: str, path: str = "sku") -> Accelerator:
    """The accelerator called so: catalog id, driver name, node label value, PCI id, or a common name that fits one only.

    ConfigError lists the candidates of an ambiguous name, or the nearest names of an unknown one.
    """
    found = _accelerator(name)
    if isinstance(found, Accelerator):
        return found
    if found:
        candidates = ", ".join(f"{item.id} ({item.driver_name})" for item in found)
        raise _error(path, "AmbiguousAccelerator", f"{shown(name)} may be any of {candidates}; write one of these ids.")
    shared = re.match(r"(.+?)-(?:MIG-.+|SHARED)$", name.strip(), re.IGNORECASE)
    if shared is not None and isinstance(_accelerator(shared[1]), Accelerator):
        raise _error(
            path,
            "SharedDevice",
            f"{shown(name)} is the node label of a MIG slice or of a time-sliced device; the plan places whole devices. Write {shown(shared[1])}, and turn sharing off there.",
        )
    near = did_you_mean(name, _accelerator_names())
    raise _error(
        path,
        "UnknownAccelerator",
        f"no accelerator is called {shown(name)}.{near} Known: {', '.join(accelerators())}.",
    )


@lru_cache(maxsize=1024)
def _accelerator(name: str) -> Accelerator | tuple[Accelerator, ...]:
    wanted = _plain(name)
    known = tuple(accelerators().values())
    for names_of in (_ids, _driver_names, _labels, _aliases, _pci_ids):
        exact = [item for item in known if wanted in map(_plain, names_of(item))]
        if len(exact) == 1:
            return exact[0]
        if exact:
            return tuple(exact)
    tokens = _tokens(name)
    if not tokens:
        return ()
    for names_of in (_driver_names, _all_names):
        fitting = [item for item in known if any(_covers(_tokens(candidate), tokens) for candidate in names_of(item))]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            return tuple(fitting)
    return ()


def _ids(item: Accelerator) -> tuple[str, ...]:
    return (item.id,)


def _driver_names(item: Accelerator) -> tuple[str, ...]:
    return (item.driver_name,)


def _labels(item: Accelerator) -> tuple[str, ...]:
    return item.label_values


def _aliases(item: Accelerator) -> tuple[str, ...]:
    return item.aliases


def _pci_ids(item: Accelerator) -> tuple[str, ...]:
    return item.pci_ids


def _all_names(item: Accelerator) -> tuple[str, ...]:
    size = item.memory.marketing_gb
    sized = () if size is None else (f"{item.driver_name} {size}GB",)
    return (item.id, item.driver_name, *item.aliases, *item.label_values, *sized)


def _accelerator_names() -> list[str]:
    return [name for item in accelerators().values() for name in (item.id, item.driver_name, *item.aliases)]


def _plain(name: str) -> str:
    return " ".join(name.lower().split())


def _tokens(name: str) -> frozenset[str]:
    text = re.sub(r"(\d)\s+(gb|gib)\b", r"\1\2", name.lower().replace("_", " "))
    text = re.sub(r"(\d)gib\b", r"\1gb", text)
    return frozenset(token for token in re.split(r"[^a-z0-9.:]+", text) if token and token not in _NOISE)


def _covers(candidate: frozenset[str], wanted: frozenset[str]) -> bool:
    return all(
        token in candidate or (token.isalpha() and len(token) >= 3 and any(_is_stem(token, c) for c in candidate))
        for token in wanted
    )


def _is_stem(token: str, candidate: str) -> bool:
    return candidate.startswith(token) and candidate[len(token) :].isdigit()


def accelerator_of(shape: NodeShape, path: str = "sku") -> Accelerator:
    """The accelerator of a shape as one device of the shape sees it.

    An AMD partition mode divides the card's memory; a virtual function of a virtual machine has a little less than the card.
    """
    card = find_accelerator(shape.accelerator, path)
    if shape.partition is not None:
        for mode in card.partition_modes:
            if mode.name == shape.partition.upper():
                return with_memory(card, AcceleratorMemory(marketing_gb=card.memory.marketing_gb, torch_gib=mode.memory_gib))
    if shape.virtual_machine and card.memory.torch_vf_gib is not None:
        changes = {"torch_gib": card.memory.torch_vf_gib, "torch_range_gib": None}
        return with_memory(card, card.memory.model_copy(update=changes))
    return card


def with_memory(accelerator: Accelerator, memory: AcceleratorMemory) -> Accelerator:
    """The same device with other memory, which no longer rests on what the catalog says of the card's."""
    unverified = tuple(name for name in accelerator.unverified if name.split(".")[0] != "memory")
    return accelerator.model_copy(update={"memory": memory, "unverified": unverified})


def find_shape(name: str, path: str = "nodeShape") -> NodeShape:
    """The node shape called so: catalog id, instance type or alias, in any case."""
    known = shapes()
    if name in known:
        return known[name]
    wanted = _plain(name)
    fitting = [shape for shape in known.values() if wanted in {_plain(text) for text in _shape_names(shape)}]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise _error(
            path, "AmbiguousShape", f"{shown(name)} may be any of {', '.join(s.id for s in fitting)}; write one of these ids."
        )
    near = did_you_mean(name, [text for shape in known.values() for text in (shape.id, *shape.aliases)])
    raise _error(
        path,
        "UnknownShape",
        f"no node shape is called {shown(name)}.{near} Or give the machine's facts inline as `topology:` (sku, threadsPerCore, numaNodes).",
    )


def _shape_names(shape: NodeShape) -> Iterable[str]:
    yield from (shape.id, *shape.aliases)
    if shape.instance_type is not None:
        yield from (shape.instance_type, f"{shape.provider} {shape.instance_type}")


def find_model(name: str, path: str = "model") -> Model:
    """The model called so on the hub, with or without its organisation, in any case; also the usual quantised build of a known model."""
    fitting = _models_called(name)
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise _error(
            path,
            "AmbiguousModel",
            f"{shown(name)} may be any of {', '.join(m.id for m in fitting)}; write it with its organisation.",
        )
    fetched = fetched_model(name.strip())
    if fetched is not None:
        return fetched
    build = quantized_build(name.strip("/ "), _models_called)
    if build is not None:
        return build
    raise _error(
        path,
        "UnknownModel",
        f"no model of the catalog is called {shown(name)}.{_near_models(name)} Or take its config.json from the hub (--from-hub), "
        "or give the fields of its config.json as `modelConfig:` (in the stack file; for `fit` in a file for --config).",
    )


def is_known_model(name: str) -> bool:
    """Whether the model's own config.json is known: an entry of the catalog, or a file that was fetched from the hub."""
    return bool(_models_called(name)) or fetched_model(name.strip()) is not None


def _models_called(name: str) -> tuple[Model, ...]:
    """By the exact name first; then by letters and digits alone, since people write llama-3-1-8b, llama_3.1_8b and llama 3.1 8b."""
    return _model_index().get(_plain(name.strip("/")), ()) or _model_index().get(_bare(name.strip("/")), ())


def _near_models(name: str) -> str:
    """Names that may be meant. A hint never leads to other weights: a quantised build is answered with builds of its kind alone."""
    wanted = marks_of(name)
    known = [model for model in models() if marks_of(model) == wanted]
    short = {model.rpartition("/")[2]: model for model in known}
    begin = [model for text, model in short.items() if _bare(text).startswith(_bare(name.rpartition("/")[2]))]
    if begin:
        return f" Did you mean {' or '.join(repr(model) for model in begin[:3])}?"
    return did_you_mean(name, known) or did_you_mean(name.rpartition("/")[2], short)


@lru_cache(maxsize=1)
def _model_index() -> Mapping[str, tuple[Model, ...]]:
    index: dict[str, tuple[Model, ...]] = {}
    for model in models().values():
        for text in _model_names(model):
            if model not in index.get(text, ()):
                index[text] = (*index.get(text, ()), model)
    return index


def _model_names(model: Model) -> Iterable[str]:
    for name in (model.id, *model.aliases):
        for text in (name, name.rpartition("/")[2]):
            yield _plain(text)
            yield _bare(text)


def _bare(name: str) -> str:
    """Letters and digits and the slash, with one space for all that stands between them."""
    return re.sub(r"[^a-z0-9/]+", " ", name.lower()).strip()


def _error(path: str, code: str, message: str) -> ConfigError:
    return ConfigError([Diagnosis(path=path, code=code, message=message)])

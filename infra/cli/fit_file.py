"""What `fit --config FILE` reads: a config.json, a map with modelConfig, or a stack file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra.catalog.names import find_shape
from infra.catalog.reading import type_name
from infra.config.document import read_yaml, unfit_values
from infra.config.load import CLUSTER_KEY
from infra.diagnosis import Diagnosis, did_you_mean, shown
from infra.errors import ConfigError
from infra.plan.engine_version import split_image, version_of_tag

# a model's fields in the stack file, and what the estimate calls them
_SIZES = {
    "tensorParallelSize": "tensor_parallel_size",
    "pipelineParallelSize": "pipeline_parallel_size",
    "maxModelLen": "max_model_len",
    "maxNumSeqs": "max_num_seqs",
    "maxNumBatchedTokens": "max_num_batched_tokens",
    "blockSize": "block_size",
}
_TEXTS = {"dtype": "dtype", "quantization": "quantization", "kvCacheDtype": "kv_cache_dtype"}


@dataclass(frozen=True, kw_only=True)
class ModelFile:
    """The model of a file: its config.json's fields (None: a catalog model by `name`), its sizes, and the GPU that the file names."""

    name: str
    config: Mapping[str, Any] | None
    options: dict[str, Any] = field(default_factory=dict)
    gpu: str | None = None


def read_model_file(file: str, wanted: str | None) -> ModelFile:
    """The model that `file` describes; of several in a stack file the one called `wanted`. ConfigError where there is none."""
    document = read_yaml(Path(file))
    if unfit := list(unfit_values(document)):
        raise ConfigError(problem.at(f"{file}.{problem.path}" if problem.path else file) for problem in unfit[:20])
    if not isinstance(document, Mapping):
        raise ConfigError.one(
            "InvalidValue", file, f"holds {type_name(document)}; a config.json or a map with modelConfig is expected."
        )
    if "hidden_size" in document or "text_config" in document or "model_type" in document:
        return ModelFile(name=wanted or Path(file).stem, config=document)
    cluster = _cluster(document)
    if cluster is not None:
        return _of_stack(cluster, file, wanted)
    if "modelConfig" not in document:
        raise ConfigError.one(
            "MissingField",
            f"{file}.modelConfig",
            "is missing; give config.json's fields under modelConfig, or name a config.json itself."
            + did_you_mean("modelConfig", [str(key) for key in document]),
        )
    return _of_model(document, file, wanted, gpu=_text(document, "gpu") or _text(document, "sku"))


def _cluster(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    inner = document.get("config")
    if isinstance(inner, Mapping) and isinstance(inner.get(CLUSTER_KEY), Mapping):
        return inner[CLUSTER_KEY]
    if isinstance(document.get(CLUSTER_KEY), Mapping):
        return document[CLUSTER_KEY]
    return document if "models" in document or "nodePools" in document else None


def _of_stack(cluster: Mapping[str, Any], file: str, wanted: str | None) -> ModelFile:
    given = cluster.get("models") or []
    if not isinstance(given, list):
        raise ConfigError.one("InvalidValue", f"{file}.models", f"is {type_name(given)}; a list of models is expected.")
    models = [item for item in given if isinstance(item, Mapping)]
    names = [str(item.get("name", "")) for item in models]
    for index, item in enumerate(given):
        if not isinstance(item, Mapping):
            continue
        if (wanted is None and len(models) == 1) or (wanted is not None and wanted in (item.get("name"), item.get("model"))):
            return _of_model(item, f"{file}.models[{index}]", None, gpu=_gpu_of_pool(cluster, item.get("nodePool"), file))
    raise ConfigError.one(
        "UnknownModel",
        f"{file}.models",
        f"has {', '.join(names) or 'no models'}; choose one with --model NAME.{did_you_mean(wanted or '', names)}",
    )


def _gpu_of_pool(cluster: Mapping[str, Any], name: object, file: str) -> str | None:
    """The accelerator of a model's pool: its shape's, or the inline topology's sku."""
    pools = cluster.get("nodePools")
    for index, pool in enumerate(pools if isinstance(pools, list) else []):
        if not isinstance(pool, Mapping) or pool.get("name") != name:
            continue
        topology, shape = pool.get("topology"), _text(pool, "nodeShape")
        if isinstance(topology, Mapping):
            return _text(topology, "sku")
        return None if shape is None else find_shape(shape, f"{file}.nodePools[{index}].nodeShape").accelerator
    return None


def _of_model(item: Mapping[str, Any], path: str, wanted: str | None, gpu: str | None = None) -> ModelFile:
    problems: list[Diagnosis] = []
    options: dict[str, Any] = {}
    for key, name in _SIZES.items():
        value = item.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            problems.append(
                Diagnosis(
                    path=f"{path}.{key}",
                    code="InvalidValue",
                    message=f"is {shown(value)}; a whole number of at least 1 is expected.",
                )
            )
        else:
            options[name] = value
    for key, name in _TEXTS.items():
        if item.get(key) is not None:
            options[name] = str(item[key])
    version = item.get("vllmVersion") or _version_of_image(item)
    if version is not None:
        options["vllm_version"] = str(version)
    utilization = item.get("gpuMemoryUtilization")
    if utilization is not None:
        if isinstance(utilization, bool) or not isinstance(utilization, int | float) or not 0 < utilization <= 1:
            problems.append(
                Diagnosis(
                    path=f"{path}.gpuMemoryUtilization",
                    code="InvalidValue",
                    message=f"is {shown(utilization)}; more than 0 and at most 1 is expected, for example 0.9.",
                )
            )
        else:
            options["gpu_memory_utilization"] = float(utilization)
    if item.get("enableExpertParallel"):
        options["expert_parallel"] = True
    config, name = item.get("modelConfig"), wanted or _text(item, "model") or _text(item, "name") or Path(path).stem
    if config is not None and not isinstance(config, Mapping):
        problems.append(
            Diagnosis(
                path=f"{path}.modelConfig",
                code="InvalidValue",
                message=f"is {type_name(config)}; a map with config.json's fields is expected.",
            )
        )
    if problems:
        raise ConfigError(problems)
    return ModelFile(name=name, config=config, options=options, gpu=gpu)


def _version_of_image(item: Mapping[str, Any]) -> str | None:
    image = _text(item, "image")
    return None if image is None else version_of_tag(split_image(image)[1])


def _text(item: Mapping[str, Any], key: str) -> str | None:
    value = item.get(key)
    return value if isinstance(value, str) else None

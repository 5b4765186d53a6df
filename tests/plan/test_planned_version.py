"""A model of another vLLM version is planned and rendered as that version takes it."""

from __future__ import annotations

from typing import Any

import pytest

from infra.catalog.engine_releases import engine_release, known_releases
from infra.errors import NumawiseError, PlanError
from infra.plan.model import ModelPlan
from infra.render.serving.container import environment, vllm_command
from tests.plan.test_cluster import plan, with_change


def planned(**changes: Any) -> ModelPlan:
    document = with_change("models[0].replicas", 1)
    document["models"][0] |= changes
    return plan(document).models[0]


@pytest.mark.parametrize("version", known_releases())
def test_every_flag_and_variable_of_a_pod_is_one_of_its_version(version: str) -> None:
    model = planned(vllmVersion=version)
    release = engine_release(version)
    flags = {word[2:] for word in vllm_command(model) if word.startswith("--")}
    assert flags <= release.flags
    variables = {entry["name"] for entry in environment(model, ("api-key", "hub-token")) if entry["name"].startswith("VLLM_")}
    assert variables <= release.variables
    assert model.engine.image.endswith(f":v{version}")


@pytest.mark.parametrize(("version", "utilization"), [("0.33.0", 0.92), ("0.20.0", 0.92), ("0.19.1", 0.90), ("0.8.5", 0.90)])
def test_the_default_utilisation_is_that_of_the_version(version: str, utilization: float) -> None:
    document = with_change("models[0].vllmVersion", version)
    document["models"][0].pop("gpuMemoryUtilization", None)
    assert plan(document).models[0].memory.gpu_memory_utilization == utilization


def test_memory_is_that_of_the_version() -> None:
    old, new = (planned(image=f"vllm/vllm-openai:v{version}").memory.estimate for version in ("0.11.0", "0.33.0"))
    assert (old.engine.graphs_in_budget, new.engine.graphs_in_budget) == (False, True)
    assert old.vllm_version == "0.11.0"


def test_ranks_are_bound_by_versions_that_can_alone() -> None:
    sizes = {"tensorParallelSize": 8, "resources": {}}
    old, new = (planned(vllmVersion=version, **sizes) for version in ("0.19.1", "0.20.0"))
    assert old.placement.rank_binding is None and new.placement.rank_binding is not None
    assert any("has no --numa-bind; 0.20.0 and later do" in reason for reason in old.reasons)


def test_the_startup_budget_counts_the_files_as_they_are() -> None:
    plain, quantised = (planned(quantization=name, startup={}).times for name in (None, "fp8"))
    assert plain.startup_budget_seconds == quantised.startup_budget_seconds


@pytest.mark.parametrize("speed", ["2G", 2_000_000_000, 2e9, "2e9"])
def test_the_startup_budget_counts_with_the_storage_that_is_there(speed: Any) -> None:
    storage = {"existingClaim": "models", "mountPath": "/models"}
    slow, fast = (planned(storage=storage | more, startup={}).times for more in ({}, {"readBytesPerSecond": speed}))
    loading = (slow.startup_budget_seconds - 300) / (fast.startup_budget_seconds - 300)
    assert 8 < loading <= 10.5


def test_several_api_servers_wait_as_long_as_the_startup_may_take() -> None:
    model = planned(engineArgs={"api-server-count": 4})
    assert model.engine.env["VLLM_ENGINE_READY_TIMEOUT_S"] == str(model.times.startup_budget_seconds)
    assert "VLLM_ENGINE_READY_TIMEOUT_S" not in planned().engine.env


@pytest.mark.parametrize(
    ("changes", "path", "code"),
    [
        ({"vllmVersion": "0.34.0"}, "models[0].vllmVersion", "UnknownVersion"),
        (
            {"image": "vllm/vllm-openai:v0.11.0", "engineArgs": {"shutdown-timeout": 5}},
            "models[0].engineArgs.shutdown-timeout",
            "UnknownFlag",
        ),
        ({"env": {"VLLM_USE_V1": "1"}}, "models[0].env.VLLM_USE_V1", "UnknownVariable"),
        ({"maxNumSeqs": 64, "maxNumBatchedTokens": 32}, "models[0].maxNumBatchedTokens", "BatchBelowSequences"),
        ({"vllmVersion": "0.7.3", "dataParallelSize": 2}, "models[0].dataParallelSize", "UnknownFlag"),
    ],
)
def test_what_a_version_does_not_take_is_an_error(changes: dict[str, Any], path: str, code: str) -> None:
    with pytest.raises(PlanError) as error:
        planned(**changes)
    assert [(problem.path, problem.code) for problem in error.value.problems] == [(path, code)]


@pytest.mark.parametrize(
    ("changes", "path", "said"),
    [
        ({"model": "Qwen/Qwen3-8B-FP8", "quantization": "awq"}, "quantization", "vLLM refuses any other method than fp8"),
        ({"quantization": "gptq"}, "quantization", "needs a checkpoint that is quantised so"),
        ({"dtype": "bf17"}, "dtype", "one of auto"),
        ({"kvCacheDtype": "fp9"}, "kvCacheDtype", "Known: auto"),
    ],
)
def test_what_the_memory_model_refuses_is_told_at_the_models_field(changes: dict[str, Any], path: str, said: str) -> None:
    with pytest.raises(NumawiseError) as error:
        planned(**changes)
    assert {problem.path for problem in error.value.problems} == {f"models[0].{path}"}
    assert all(said in problem.message for problem in error.value.problems)

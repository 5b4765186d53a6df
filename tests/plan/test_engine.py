"""Engine arguments and environment of a model that a server would not take, or that the plan decides."""

from __future__ import annotations

from typing import Any

import pytest

from infra.catalog.engine_releases import engine_release
from infra.config.models import Model
from infra.diagnosis import Diagnosis
from infra.plan.engine import engine_problems, engine_variables, engine_warnings


def model(**changes: Any) -> Model:
    document = {
        "name": "m",
        "nodePool": "p",
        "model": "org/m",
        "storage": {"existingClaim": "c", "mountPath": "/m", "modelPath": "m"},
    }
    return Model.model_validate(document | changes)


def problems_of(model: Model, path: str = "models[0]", version: str = "0.33.0", own_image: bool = False) -> list[Diagnosis]:
    return list(engine_problems(model, path, engine_release(version), own_image=own_image))


@pytest.mark.parametrize(
    ("flag", "value", "code", "message"),
    [
        ("enable-prefix-caching", True, None, ""),
        ("seed", 1, None, ""),
        ("max_logprobs", 1, None, ""),
        ("--seed", 1, "FlagWithDashes", "is written without dashes: seed"),
        ("tensor-parallel-size", 4, "FlagOfField", "is decided by a field of its own; write tensorParallelSize: 4"),
        ("tensor_parallel_size", 4, "FlagOfField", "write tensorParallelSize: 4"),
        ("api-key", "x", "SecretInClear", "run pulumi config set --secret numawise:apiKey"),
        ("port", 8000, "FlagOfPlacement", "follows from the placement; leave it out"),
        ("swap-space", 4, "RemovedFlag", "is no flag of vLLM 0.33.0; write kv-offloading-size"),
        ("enable-metrics", True, "RemovedFlag", "is no flag of vLLM 0.33.0; leave it out"),
        (
            "enable-prefix-cachin",
            True,
            "UnknownFlag",
            "the server would exit with its usage text. Did you mean 'enable-prefix-caching'",
        ),
        ("no-enable-prefix-caching", True, "UnknownFlag", "Write enable-prefix-caching: false."),
    ],
)
def test_flags(flag: str, value: object, code: str | None, message: str) -> None:
    problems = problems_of(model(engineArgs={flag: value}))
    assert [problem.code for problem in problems] == ([] if code is None else [code])
    assert all(message in problem.message and problem.path == f"models[0].engineArgs.{flag}" for problem in problems)


def test_an_image_of_ones_own_may_have_flags_of_its_own() -> None:
    assert [p.code for p in problems_of(model(engineArgs={"my-flag": 1}))] == ["UnknownFlag"]
    own = model(engineArgs={"my-flag": 1, "--port": 1}, env={"VLLM_OWN": "1"})
    assert [p.code for p in problems_of(own, own_image=True)] == ["FlagWithDashes", "FlagOfPlacement"]


@pytest.mark.parametrize(
    ("version", "flag", "value", "code", "message"),
    [
        ("0.33.0", "shutdown-timeout", 5, None, ""),
        ("0.18.0", "shutdown-timeout", 5, None, ""),
        ("0.17.1", "shutdown-timeout", 5, "UnknownFlag", "is no flag of vLLM 0.17.1, but of 0.18.0 to 0.33.0; leave it out"),
        ("0.10.0", "disable-log-requests", True, None, ""),
        ("0.33.0", "disable-log-requests", True, "RemovedFlag", "write enable-log-requests: false"),
        ("0.6.6", "speculative-model", "x", None, ""),
        ("0.33.0", "speculative-model", "x", "UnknownFlag", "of 0.6.0 to 0.8.2; leave it out"),
        ("0.33.0", "disable-log-stats", False, "FlagWithoutNegation", "has no --no-disable-log-stats"),
        ("0.8.5", "enforce-eager", False, "FlagWithoutNegation", "vLLM 0.8.5 has no --no-enforce-eager"),
        ("0.33.0", "enforce-eager", False, None, ""),
        ("0.8.5", "swap-space", 4, None, ""),
    ],
)
def test_flags_follow_the_version(version: str, flag: str, value: object, code: str | None, message: str) -> None:
    for own_image in (False, True):
        problems = problems_of(model(engineArgs={flag: value}), version=version, own_image=own_image)
        assert [problem.code for problem in problems] == ([] if code is None else [code])
        assert all(message in problem.message for problem in problems)


@pytest.mark.parametrize(
    ("version", "name", "message"),
    [
        ("0.33.0", "VLLM_USE_V1", "is not read by vLLM 0.33.0, but by 0.6.4 to 0.11.0; leave it out"),
        ("0.11.0", "VLLM_USE_V1", None),
        ("0.33.0", "VLLM_ATTENTION_BACKEND", "but by 0.6.0 to 0.14.1; write engineArgs attention-backend: NAME"),
        ("0.14.1", "VLLM_ATTENTION_BACKEND", None),
        ("0.33.0", "VLLM_LOGGING_LEVL", "it would change nothing. Did you mean 'VLLM_LOGGING_LEVEL'"),
        ("0.13.0", "VLLM_ENGINE_READY_TIMEOUT_S", "but by 0.14.0 to 0.33.0"),
        ("0.33.0", "NCCL_DEBUG", None),
        ("0.33.0", "MY_VLLM_THING", None),
    ],
)
def test_variables_follow_the_version(version: str, name: str, message: str | None) -> None:
    problems = problems_of(model(env={name: "1"}), version=version)
    assert [problem.code for problem in problems] == ([] if message is None else ["UnknownVariable"])
    assert all(message is not None and message in problem.message for problem in problems)


@pytest.mark.parametrize(
    ("version", "field", "value", "known"),
    [
        ("0.6.6", "enableExpertParallel", True, False),
        ("0.8.0", "enableExpertParallel", True, True),
        ("0.8.2", "dataParallelSize", 2, False),
        ("0.8.3", "dataParallelSize", 2, True),
        ("0.6.0", "maxNumSeqs", 2, True),
        ("0.6.0", "gpuMemoryUtilization", 0.5, True),
    ],
)
def test_fields_follow_the_version(version: str, field: str, value: object, known: bool) -> None:
    problems = problems_of(model(**{field: value}), version=version)
    assert [(problem.code, problem.path) for problem in problems] == ([] if known else [("UnknownFlag", f"models[0].{field}")])


@pytest.mark.parametrize(("batched", "sequences", "refused"), [(8, 8, False), (8, 9, True), (None, 9, False), (8, None, False)])
def test_a_batch_holds_a_token_of_each_sequence(batched: int | None, sequences: int | None, refused: bool) -> None:
    problems = problems_of(model(maxNumBatchedTokens=batched, maxNumSeqs=sequences))
    assert [str(problem) for problem in problems] == (
        ["models[0].maxNumBatchedTokens: is 8, below maxNumSeqs 9: vLLM refuses that. Use at least 9"] if refused else []
    )


@pytest.mark.parametrize(
    ("version", "changes", "data_parallel", "budget", "variable", "reason"),
    [
        ("0.33.0", {}, 1, 3000, None, ""),
        ("0.33.0", {}, 2, 3000, "3000", "the startup budget: with data parallel 2"),
        ("0.14.0", {"engineArgs": {"api-server-count": 3}}, 1, 300, "300", "with 3 API servers"),
        ("0.13.0", {}, 2, 3000, None, "gives its engines up after 600 s, and the startup budget is 3000 s"),
        ("0.13.0", {}, 2, 600, None, ""),
        ("0.33.0", {"env": {"VLLM_ENGINE_READY_TIMEOUT_S": "9"}}, 2, 3000, "9", ""),
        ("0.33.0", {"engineArgs": {"api-server-count": 1}}, 1, 3000, None, ""),
    ],
)
def test_servers_beside_the_engine_wait_for_it(
    version: str, changes: dict[str, Any], data_parallel: int, budget: int, variable: str | None, reason: str
) -> None:
    variables, reasons = engine_variables(model(**changes), engine_release(version), data_parallel, budget)
    assert variables.get("VLLM_ENGINE_READY_TIMEOUT_S") == variable
    assert reason in "".join(reasons) and bool(reason) == bool(reasons)


@pytest.mark.parametrize(
    ("name", "value", "code", "message"),
    [
        ("VLLM_LOGGING_LEVEL", "DEBUG", None, ""),
        ("CUDA_VISIBLE_DEVICES", "0", "DeviceVisibility", "fights the device plugin"),
        ("HF_TOKEN", "x", "SecretInClear", "run pulumi config set --secret numawise:hubToken"),
        ("VLLM_API_KEY", "x", "SecretInClear", "run pulumi config set --secret numawise:apiKey"),
        ("VLLM_PORT", "8000", "InternalPort", "between its own processes"),
        ("VLLM_HOST_IP", "10.0.0.1", "FixedAddress", "is set from status.podIP"),
        ("NCCL_SOCKET_IFNAME", "eth0,eth1", None, ""),
        ("NCCL_SOCKET_IFNAME", "^lo,^docker0", None, ""),
        ("NCCL_SOCKET_IFNAME", "^lo, ^docker0", None, ""),
        ("NCCL_SOCKET_IFNAME", "^lo,docker0", "InvalidValue", "'^lo,docker0' excludes all of its names, also those without ^"),
        ("NCCL_IB_HCA", "^mlx5_0,mlx5_1", None, ""),
    ],
)
def test_environment(name: str, value: str, code: str | None, message: str) -> None:
    problems = problems_of(model(env={name: value}))
    assert [problem.code for problem in problems] == ([] if code is None else [code])
    assert all(message in problem.message and problem.path == f"models[0].env.{name}" for problem in problems)


@pytest.mark.parametrize(
    ("name", "allowed"), [("A", True), ("_a1", True), ("1A", False), ("A-B", False), ("A\n", False), ("Ä", False)]
)
def test_names_of_variables(name: str, allowed: bool) -> None:
    unchecked = model().model_copy(update={"env": {name: "x"}})
    assert [problem.code for problem in problems_of(unchecked)] == ([] if allowed else ["InvalidValue"])


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("NCCL_P2P_DISABLE", "1", "PeerToPeerDisabled"),
        ("NCCL_P2P_DISABLE", "0", None),
        ("NCCL_P2P_DISABLE", "", None),
        ("NCCL_NET_GDR_LEVEL", "PHB", "CollectiveOverride"),
        ("NCCL_DEBUG", "INFO", None),
    ],
)
def test_variables_that_work_but_not_as_meant(name: str, value: str, code: str | None) -> None:
    warnings = list(engine_warnings(model(env={name: value}), "models[0]"))
    assert [(warning.code, warning.path) for warning in warnings] == ([] if code is None else [(code, f"models[0].env.{name}")])

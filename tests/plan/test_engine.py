"""Engine arguments and environment of a model that a server would not take, or that the plan decides."""

from __future__ import annotations

from typing import Any

import pytest

from infra.config.models import Model
from infra.plan.engine import engine_problems, engine_warnings


def model(**changes: Any) -> Model:
    document = {
        "name": "m",
        "nodePool": "p",
        "model": "org/m",
        "storage": {"existingClaim": "c", "mountPath": "/m", "modelPath": "m"},
    }
    return Model.model_validate(document | changes)


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
    problems = list(engine_problems(model(engineArgs={flag: value}), "models[0]"))
    assert [problem.code for problem in problems] == ([] if code is None else [code])
    assert all(message in problem.message and problem.path == f"models[0].engineArgs.{flag}" for problem in problems)


def test_an_image_of_ones_own_may_have_flags_of_its_own() -> None:
    assert [p.code for p in engine_problems(model(engineArgs={"my-flag": 1}), "m")] == ["UnknownFlag"]
    own = model(engineArgs={"my-flag": 1, "--port": 1}, image="registry.example/own@sha256:" + "0" * 64)
    assert [p.code for p in engine_problems(own, "m")] == ["FlagWithDashes", "FlagOfPlacement"]


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
    problems = list(engine_problems(model(env={name: value}), "models[0]"))
    assert [problem.code for problem in problems] == ([] if code is None else [code])
    assert all(message in problem.message and problem.path == f"models[0].env.{name}" for problem in problems)


@pytest.mark.parametrize(
    ("name", "allowed"), [("A", True), ("_a1", True), ("1A", False), ("A-B", False), ("A\n", False), ("Ä", False)]
)
def test_names_of_variables(name: str, allowed: bool) -> None:
    unchecked = model().model_copy(update={"env": {name: "x"}})
    assert [problem.code for problem in engine_problems(unchecked, "m")] == ([] if allowed else ["InvalidValue"])


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

from __future__ import annotations

from typing import Any

import pytest

from infra.plan.model import StoragePlan
from infra.render.serving.container import GRACE_SECONDS, environment, flag, main_container, probes, vllm_command
from tests.support.builders import changed, model_plan, pool_plan, whole_node_model

H100 = pool_plan("h100")
LLAMA = model_plan("llama-70b", H100)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (True, ["--x"]),
        (False, ["--no-x"]),
        (None, []),
        (0.9, ["--x", "0.9"]),
        (0.925, ["--x", "0.925"]),
        (1e-05, ["--x", "1e-05"]),
        (4096, ["--x", "4096"]),
        ("auto", ["--x", "auto"]),
        (["a", "b"], ["--x", "a", "b"]),
        ([0, 1], ["--x", "0", "1"]),
        ({"b": 1, "a": [True, None]}, ["--x", '{"a":[true,null],"b":1}']),
    ],
)
def test_a_flag_is_written_as_vllm_reads_it(value: Any, words: list[str]) -> None:
    assert flag("x", value) == words


def test_the_command_serves_the_claims_folder_with_every_planned_number() -> None:
    assert vllm_command(LLAMA) == [
        *("vllm", "serve", "/models/Meta-Llama-3-70B-Instruct"),
        *("--served-model-name", "meta-llama/Meta-Llama-3-70B-Instruct"),
        *("--port", "8000"),
        *("--tensor-parallel-size", "4"),
        *("--pipeline-parallel-size", "1"),
        *("--gpu-memory-utilization", "0.9"),
        *("--max-model-len", "4096"),
        *("--distributed-executor-backend", "mp"),
        *("--shutdown-timeout", "90"),
    ]


def test_a_claim_whose_root_is_the_model_is_served_as_it_is() -> None:
    storage = StoragePlan(existing_claim="weights", mount_path="/models/", model_path=None)
    assert vllm_command(changed(LLAMA, storage=storage))[2] == "/models/"


def test_sizes_that_matter_only_sometimes_are_given_only_then() -> None:
    words = vllm_command(changed(LLAMA, data_parallel_size=2, enable_expert_parallel=True, block_size=32))
    assert words[words.index("--data-parallel-size") + 1] == "2"
    assert words[words.index("--block-size") + 1] == "32"
    assert "--enable-expert-parallel" in words
    assert "--distributed-executor-backend" not in vllm_command(changed(LLAMA, tensor_parallel_size=1, gpus_per_pod=1))


@pytest.mark.parametrize(("version", "known"), [("0.17.1", False), ("0.18.0", True), ("v0.33.0", True), ("0.33.0+rocm7", True)])
def test_requests_in_flight_are_drained_where_the_version_can(version: str, known: bool) -> None:
    assert ("--shutdown-timeout" in vllm_command(changed(LLAMA, vllm_version=version))) is known


def test_a_further_engine_argument_stands_once_and_wins() -> None:
    words = vllm_command(changed(LLAMA, args={"shutdown_timeout": 5, "enable-prefix-caching": False}))
    assert words.count("--shutdown-timeout") == 1
    assert words[words.index("--shutdown-timeout") + 1] == "5"
    assert "--no-enable-prefix-caching" in words


def test_shutdown_fits_into_the_grace_period() -> None:
    container = main_container(LLAMA, ())
    drain = int(vllm_command(LLAMA)[-1])
    assert container["lifecycle"]["preStop"]["sleep"]["seconds"] + drain < GRACE_SECONDS


@pytest.mark.parametrize("budget", [1, 10, 1055, 1056, 7200])
def test_the_startup_probe_lasts_as_long_as_the_budget_and_no_period_longer(budget: int) -> None:
    startup = probes(budget)["startupProbe"]
    lasts = startup["failureThreshold"] * startup["periodSeconds"]
    assert budget <= lasts < budget + startup["periodSeconds"]


def test_liveness_is_patient_with_a_busy_server() -> None:
    liveness = probes(600)["livenessProbe"]
    assert liveness["timeoutSeconds"] >= 5
    assert liveness["failureThreshold"] >= 3
    assert "initialDelaySeconds" not in liveness


def variables(model: Any, secrets: tuple[str, ...] = ()) -> dict[str, Any]:
    entries = environment(model, secrets)
    assert len({entry["name"] for entry in entries}) == len(entries)
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in entries}


@pytest.mark.parametrize("model", [LLAMA, whole_node_model("qwen-72b", pool_plan("mi300x", vendor="amd"))])
def test_no_variable_decides_which_devices_are_visible(model: Any) -> None:
    assert not {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"} & set(
        variables(model)
    )


def test_a_read_only_claim_goes_with_an_offline_hub_and_a_writable_cache() -> None:
    container, values = main_container(LLAMA, ()), variables(LLAMA)
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert mounts["models"]["readOnly"] is True
    assert values["HF_HUB_OFFLINE"] == "1"
    assert values["HF_HOME"].startswith(mounts["cache"]["mountPath"] + "/")
    assert not mounts["cache"].get("readOnly")


def test_bound_ranks_are_spawned_since_vllm_binds_no_forked_worker() -> None:
    assert "VLLM_WORKER_MULTIPROC_METHOD" not in variables(LLAMA)
    assert variables(whole_node_model("m", H100))["VLLM_WORKER_MULTIPROC_METHOD"] == "spawn"


def test_cuda_counts_gpus_by_address_as_the_gate_does() -> None:
    assert variables(LLAMA)["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert "CUDA_DEVICE_ORDER" not in variables(model_plan("m", pool_plan("mi300x", vendor="amd")))


def test_peer_to_peer_is_left_on_and_gdr_level_to_the_library() -> None:
    assert [name for name in variables(LLAMA) if name.startswith("NCCL_")] == ["NCCL_DEBUG"]


def test_the_users_variables_win() -> None:
    values = variables(changed(LLAMA, env={"NCCL_DEBUG": "INFO", "NUMAWISE_GATE": "warn", "VLLM_HOST_IP": "10.0.0.1"}))
    assert (values["NCCL_DEBUG"], values["NUMAWISE_GATE"], values["VLLM_HOST_IP"]) == ("INFO", "warn", "10.0.0.1")


def test_the_pods_own_address_is_told_by_the_kubelet() -> None:
    assert variables(LLAMA)["VLLM_HOST_IP"]["fieldRef"]["fieldPath"] == "status.podIP"


def test_credentials_are_referred_to_never_written() -> None:
    assert "VLLM_API_KEY" not in variables(LLAMA)
    values = variables(LLAMA, ("api-key", "hub-token"))
    assert values["VLLM_API_KEY"] == {"secretKeyRef": {"name": "llama-70b-credentials", "key": "api-key"}}
    assert values["HF_TOKEN"] == {"secretKeyRef": {"name": "llama-70b-credentials", "key": "hub-token"}}


def test_a_named_secret_gives_both_variables_and_either_may_be_missing_there() -> None:
    values = variables(changed(LLAMA, credentials_secret="vllm-keys"))
    for variable, key in (("VLLM_API_KEY", "api-key"), ("HF_TOKEN", "hub-token")):
        assert values[variable] == {"secretKeyRef": {"name": "vllm-keys", "key": key, "optional": True}}

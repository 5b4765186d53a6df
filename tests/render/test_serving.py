from __future__ import annotations

import json
from typing import Any

import pytest

from infra.agents import gate
from infra.plan.model import ClusterPlan, ModelPlan, Slot
from infra.render.serving.gate import gate_files
from infra.render.serving.model import endpoint, model_part
from tests.support.builders import STACK, changed, cluster_plan, model_plan, pool_plan, whole_node_model

PLAN = cluster_plan()
LLAMA, QWEN = PLAN.models


def manifests(plan: ClusterPlan, model: ModelPlan, **options: Any) -> tuple[dict[str, Any], ...]:
    return tuple(child.manifest for child in model_part(plan, model, stack=STACK, **options).children)


def of(model: ModelPlan, plan: ClusterPlan | None = None, **options: Any) -> dict[str, dict[str, Any]]:
    plan = plan or changed(PLAN, models=(model,))
    return {manifest["kind"]: manifest for manifest in manifests(plan, model, **options)}


def pod(model: ModelPlan, plan: ClusterPlan | None = None) -> dict[str, Any]:
    return of(model, plan)["Deployment"]["spec"]["template"]["spec"]


def test_a_model_is_these_objects_in_this_order() -> None:
    kinds = [manifest["kind"] for manifest in manifests(PLAN, LLAMA)]
    assert kinds == ["ServiceAccount", "ConfigMap", "NetworkPolicy", "PodDisruptionBudget", "Deployment", "Service"]


def test_a_single_replica_has_no_budget_that_could_only_block_a_drain() -> None:
    assert "PodDisruptionBudget" not in of(QWEN)
    assert of(LLAMA)["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1


def test_the_pod_waits_for_a_node_with_its_own_plans_kubelet() -> None:
    term = pod(LLAMA)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0]
    assert term["matchExpressions"] == [
        {"key": "numawise.dev/kubelet-config", "operator": "In", "values": [PLAN.pool("h100").kubelet.config_hash]}
    ]
    assert pod(LLAMA)["nodeSelector"] == {"numawise.dev/pool": "h100"}


def test_nodes_without_names_carry_no_label_of_ours_to_wait_for() -> None:
    pool = pool_plan("h100", names_given=False, selector={"cloud/pool": "gpu"})
    spec = pod(LLAMA, cluster_plan(node_pools=(pool,), models=(LLAMA,)))
    assert "nodeAffinity" not in spec["affinity"]
    assert spec["nodeSelector"] == {"cloud/pool": "gpu"}


def test_anti_affinity_is_by_hostname_and_as_strict_as_planned() -> None:
    required = pod(LLAMA)["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]
    assert required["topologyKey"] == "kubernetes.io/hostname"
    labels = of(LLAMA)["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert required["labelSelector"]["matchLabels"].items() <= labels.items()
    preferred = pod(changed(LLAMA, pod_anti_affinity="preferred"))["affinity"]["podAntiAffinity"]
    assert set(preferred) == {"preferredDuringSchedulingIgnoredDuringExecution"}
    assert "podAntiAffinity" not in pod(changed(LLAMA, pod_anti_affinity="none"))["affinity"]


def test_shared_memory_lies_in_memory_with_the_planned_limit() -> None:
    spec = pod(LLAMA)
    volume = next(volume for volume in spec["volumes"] if volume["name"] == "shm")
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": "16Gi"}
    assert {"name": "shm", "mountPath": "/dev/shm"} in spec["containers"][0]["volumeMounts"]


def test_the_pod_keeps_to_restricted_pod_security() -> None:
    spec = pod(LLAMA)
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 2000,
        "runAsGroup": 0,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert spec["containers"][0]["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert not any("hostPath" in volume for volume in spec["volumes"])
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)


def test_an_amd_pod_gets_the_hosts_device_groups_where_they_are_known() -> None:
    assert "supplementalGroups" not in pod(QWEN)["securityContext"]
    pool = PLAN.pool("mi300x")
    grouped = changed(pool, device_plugin=changed(pool.device_plugin, device_groups=(44, 109)))
    assert pod(QWEN, cluster_plan(node_pools=(grouped,), models=(QWEN,)))["securityContext"]["supplementalGroups"] == [44, 109]


def test_a_service_link_could_not_become_vllms_own_port() -> None:
    assert pod(LLAMA)["enableServiceLinks"] is False


def test_sidecars_stay_within_restricted_security_and_without_gpus() -> None:
    sidecar = {"name": "logs", "image": "fluent/fluent-bit:4.0", "resources": {"limits": {"cpu": "500m", "memory": "128Mi"}}}
    initial = {"name": "warm", "image": "busybox:1.37", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    spec = pod(changed(LLAMA, sidecars=(sidecar,), init_containers=(initial,)))
    assert spec["containers"][1]["resources"]["requests"] == sidecar["resources"]["limits"]
    for container in (spec["containers"][1], spec["initContainers"][0]):
        assert container["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert "env" not in sidecar, "the plan's own containers are not touched"


def test_a_sidecars_own_security_settings_are_kept() -> None:
    sidecar = {
        "name": "s",
        "image": "i",
        "securityContext": {"runAsUser": 1000, "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}},
    }
    context = pod(changed(LLAMA, sidecars=(sidecar,)))["containers"][1]["securityContext"]
    assert context["runAsUser"] == 1000
    assert context["capabilities"] == {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}
    assert context["allowPrivilegeEscalation"] is False


def test_the_gate_gets_the_places_and_reads_what_render_writes() -> None:
    expected = json.loads(gate_files(PLAN, QWEN)["plan.json"])
    assert expected["places"] == [{"numaNodes": [0, 1], "gpus": [[0, 4], [1, 4]], "memoryNuma": []}]
    assert expected["rankBinding"] == {"numaNodeOfRank": [0, 0, 0, 0, 1, 1, 1, 1]}
    assert (expected["gpus"], expected["cpus"], expected["exclusiveCpus"], expected["mode"]) == (8, 48, True, "enforce")
    cpus = [*range(1, 13), *range(57, 69), *range(113, 125), *range(169, 181)]
    gpus = [(f"0000:{index:02x}:00.0", index // 4) for index in range(8)]
    numa_cpus = {0: {*range(56), *range(112, 168)}, 1: {*range(56, 112), *range(168, 224)}}
    assert gate.findings(expected, cpus, [0, 1], gpus, numa_cpus) == []


def test_the_gate_only_warns_under_a_policy_that_promises_no_alignment() -> None:
    pool = pool_plan("h100", policy="best-effort")
    assert json.loads(gate_files(cluster_plan(node_pools=(pool,), models=(LLAMA,)), LLAMA)["plan.json"])["mode"] == "warn"


def test_neither_the_gate_nor_more_proven_places_restart_the_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    before = of(LLAMA)
    more = changed(LLAMA, places=(Slot(numa_nodes=(1,), gpus=(4, 5, 6, 7), cpu_count=32, cpus_example=(), memory_numa=(1,)),))
    monkeypatch.setattr("infra.render.serving.gate.source_of", lambda agent: f"# another {agent}")
    after = of(more)
    assert after["ConfigMap"]["data"]["gate.py"] != before["ConfigMap"]["data"]["gate.py"]
    assert after["ConfigMap"]["data"]["plan.json"] != before["ConfigMap"]["data"]["plan.json"]
    assert after["Deployment"] == before["Deployment"]


def test_the_gate_is_the_entry_of_the_main_container_from_its_config_map() -> None:
    objects, spec = of(LLAMA), pod(LLAMA)
    container = spec["containers"][0]
    volume = next(volume for volume in spec["volumes"] if volume["name"] == "gate")
    mount = next(mount for mount in container["volumeMounts"] if mount["name"] == "gate")
    assert volume["configMap"]["name"] == objects["ConfigMap"]["metadata"]["name"]
    assert container["command"] == ["python3", f"{mount['mountPath']}/gate.py"]
    assert {"name": "NUMAWISE_PLAN", "value": f"{mount['mountPath']}/plan.json"} in container["env"]
    assert set(objects["ConfigMap"]["data"]) == {"gate.py", "plan.json"} == {item["key"] for item in volume["configMap"]["items"]}


def test_a_model_with_bound_ranks_brings_a_numactl_for_images_without_one() -> None:
    volume = next(volume for volume in pod(QWEN)["volumes"] if volume["name"] == "gate")
    assert {"key": "numactl.py", "path": "bin/numactl", "mode": 0o555} in volume["configMap"]["items"]
    assert of(QWEN)["ConfigMap"]["data"]["numactl.py"].startswith("#!/usr/bin/env python3\n")


def test_a_service_finds_the_pods_and_no_others() -> None:
    spec = of(LLAMA)["Service"]["spec"]
    labels = of(LLAMA)["Deployment"]["spec"]["template"]["metadata"]["labels"]
    others = of(QWEN)["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert spec["selector"].items() <= labels.items()
    assert not spec["selector"].items() <= others.items()
    port = spec["ports"][0]
    assert port["targetPort"] in {port["name"] for port in pod(LLAMA)["containers"][0]["ports"]}


def test_a_service_name_begins_with_a_letter_even_if_the_models_does_not() -> None:
    model = changed(LLAMA, name="7b-chat")
    assert of(model)["Service"]["metadata"]["name"] == "vllm-7b-chat"
    assert endpoint(model)["service"] == "vllm-7b-chat"


OVER_NODES = changed(LLAMA, pods_per_replica=2, pipeline_parallel_size=2)


def test_a_replica_over_several_nodes_is_a_group_that_restarts_as_one() -> None:
    spec = of(OVER_NODES)["LeaderWorkerSet"]["spec"]
    assert (spec["replicas"], spec["leaderWorkerTemplate"]["size"]) == (2, 2)
    assert spec["leaderWorkerTemplate"]["restartPolicy"] == "RecreateGroupAfterStart"
    assert spec["rolloutStrategy"]["rollingUpdateConfiguration"] == {"maxUnavailable": 1, "maxSurge": 0}
    assert "Deployment" not in of(OVER_NODES)


def test_leader_and_workers_form_one_engine_and_only_the_leader_serves() -> None:
    group = of(OVER_NODES)["LeaderWorkerSet"]["spec"]["leaderWorkerTemplate"]
    leader, worker = (group[name]["spec"]["containers"][0] for name in ("leaderTemplate", "workerTemplate"))
    common = ["--nnodes", "2", "--master-addr", "$(LWS_LEADER_ADDRESS)", "--master-port", "29501", "--node-rank"]
    assert leader["args"][-8:] == [*common, "0"]
    assert worker["args"][-9:] == [*common, "$(LWS_WORKER_INDEX)", "--headless"]
    assert leader["args"][:-8] == worker["args"][:-9]
    assert "readinessProbe" in leader
    assert not {"startupProbe", "readinessProbe", "livenessProbe", "ports"} & set(worker)
    assert worker["resources"] == leader["resources"]


def test_the_controllers_headless_services_do_not_have_the_name_of_the_models_own() -> None:
    spec = of(OVER_NODES)["LeaderWorkerSet"]["spec"]
    assert spec["networkConfig"] == {"subdomainPolicy": "UniquePerReplica"}


def test_a_worker_ends_after_its_leader_within_the_grace_period() -> None:
    template = of(OVER_NODES)["LeaderWorkerSet"]["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]
    shell, option, line = template["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    program, file, address, port, seconds = line.removeprefix("exec ").split()
    assert (shell, option, program, address) == ("sh", "-c", "python3", '"$LWS_LEADER_ADDRESS"')
    assert port in template["containers"][0]["args"]
    assert float(seconds) < template["terminationGracePeriodSeconds"]
    gate = next(volume for volume in template["volumes"] if volume["name"] == "gate")["configMap"]
    mount = next(mount for mount in template["containers"][0]["volumeMounts"] if mount["name"] == "gate")
    path = file.removeprefix(f"{mount['mountPath']}/")
    key = next(item["key"] for item in gate["items"] if item["path"] == path)
    assert of(OVER_NODES)["ConfigMap"]["data"][key].startswith('"""Before a worker')
    assert "leader.py" not in of(LLAMA)["ConfigMap"]["data"]


def test_a_groups_service_finds_leaders_alone_its_budget_counts_every_pod_and_its_pods_may_talk() -> None:
    objects = of(OVER_NODES)
    leader = {"leaderworkerset.sigs.k8s.io/worker-index": "0"}
    assert leader.items() <= objects["Service"]["spec"]["selector"].items()
    budget = objects["PodDisruptionBudget"]["spec"]
    assert budget["selector"] == objects["NetworkPolicy"]["spec"]["podSelector"]
    assert budget["maxUnavailable"] == 1
    pods = objects["NetworkPolicy"]["spec"]["podSelector"]
    assert {"from": [{"podSelector": pods}]} in objects["NetworkPolicy"]["spec"]["ingress"]
    assert len(of(LLAMA)["NetworkPolicy"]["spec"]["ingress"]) == 1


def test_models_over_a_whole_node_ask_for_all_gpus() -> None:
    model = whole_node_model("m", pool_plan("h100"))
    resources = pod(model)["containers"][0]["resources"]
    assert resources["limits"] == {"cpu": "48", "memory": "256Gi", "nvidia.com/gpu": "8"}
    assert resources["requests"] == resources["limits"]


def test_a_changed_engine_argument_changes_the_deployment_alone() -> None:
    before, after = of(LLAMA), of(changed(LLAMA, max_model_len=8192))
    assert [kind for kind in before if before[kind] != after[kind]] == ["Deployment"]


def test_the_rollout_is_the_planned_one() -> None:
    spec = of(model_plan("m", pool_plan("h100"), max_surge=1, max_unavailable=0))["Deployment"]["spec"]
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert spec["progressDeadlineSeconds"] == 1300


@pytest.mark.parametrize(
    ("field", "mounts", "read_only"),
    [
        ("init_containers", [{"name": "models", "mountPath": "/m"}], False),
        ("init_containers", [{"name": "models", "mountPath": "/m", "readOnly": False}], False),
        ("init_containers", [{"name": "models", "mountPath": "/m", "readOnly": True}], True),
        ("init_containers", [{"name": "cache", "mountPath": "/c"}], True),
        ("init_containers", None, True),
        ("sidecars", [{"name": "models", "mountPath": "/m"}], False),
    ],
)
def test_the_claim_can_be_written_by_what_mounts_it_to_write(
    field: str, mounts: list[dict[str, Any]] | None, read_only: bool
) -> None:
    container = {"name": "fetch", "image": "busybox:1.37"} | ({} if mounts is None else {"volumeMounts": mounts})
    spec = pod(changed(LLAMA, **{field: (container,)}))
    volume = next(volume for volume in spec["volumes"] if volume["name"] == "models")
    assert volume["persistentVolumeClaim"].get("readOnly", False) is read_only
    server = next(mount for mount in spec["containers"][0]["volumeMounts"] if mount["name"] == "models")
    assert server["readOnly"] is True

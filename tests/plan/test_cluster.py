"""From a stack file to a plan: the local stack's facts, what is refused with which words, and that equal nodes cost nothing."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.config.load import load_stack_file, parse_cluster_document, stack_file
from infra.diagnosis import Diagnosis
from infra.errors import NumawiseError, PlanError
from infra.kubelet.configuration.versions import SUPPORTED
from infra.plan.cluster import plan_stack
from infra.plan.model import ClusterPlan
from infra.report.plan import plan_as_json, plan_as_markdown
from infra.report.plan_text import plan_as_text
from infra.units import GIB, parse_bytes, parse_cpu_list
from tests.support.documents import small_document, with_change

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def local() -> ClusterPlan:
    return plan_stack(load_stack_file(stack_file("local", root=ROOT)))


def plan(document: dict[str, Any]) -> ClusterPlan:
    return plan_stack(parse_cluster_document(document))


def problems_of(document: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(NumawiseError) as caught:
        plan(document)
    said: dict[str, str] = {}
    for problem in caught.value.problems:
        said[problem.path] = f"{said.get(problem.path, '')} {problem.sentence}".strip()
    return said


def test_the_llama_pods_get_one_numa_node_as_the_stack_file_says(local: ClusterPlan) -> None:
    model = local.models[0]
    assert (model.parallelism.tensor_parallel_size, model.parallelism.pipeline_parallel_size, model.parallelism.gpus_per_pod) == (
        4,
        1,
        4,
    )
    assert (model.resources.cpu, model.resources.memory_bytes, model.resources.shared_memory_bytes) == (32, 128 * GIB, 16 * GIB)
    assert (model.memory.gpu_memory_utilization, model.memory.max_model_len, model.resources.qos_class) == (0.9, 4096, "Guaranteed")
    assert (model.placement.max_surge, model.placement.max_unavailable) == (0, 1)
    assert [(group.nodes, [slot.numa_nodes for slot in group.slots]) for group in model.placement.slots] == [(2, [(0,)])]
    assert model.placement.rank_binding is None
    pool = local.pool("h100")
    assert pool.kubelet.fields["topologyManagerPolicy"] == "single-numa-node"
    assert pool.kubelet.fields["memoryManagerPolicy"] == "Static"


def test_reserved_memory_adds_up_to_the_byte(local: ClusterPlan) -> None:
    kubelet = local.pool("h100").kubelet.fields
    listed = sum(parse_bytes(entry["limits"]["memory"]) for entry in kubelet["reservedMemory"])
    parts = (kubelet["kubeReserved"]["memory"], kubelet["systemReserved"]["memory"], kubelet["evictionHard"]["memory.available"])
    assert listed == sum(map(parse_bytes, parts))


def test_the_eight_gpu_pod_is_restricted_and_each_rank_has_cpus_on_its_node(local: ClusterPlan) -> None:
    pool, model = local.pool("mi300x"), local.models[1]
    assert pool.kubelet.fields["topologyManagerPolicy"] == "restricted"
    assert pool.kubelet.fields["cpuManagerPolicyOptions"]["distribute-cpus-across-numa"] == "true"
    assert any("single-numa-node admits 1" in reason for reason in pool.reasons)
    assert model.resources.cpu > 112, "only then do CPUs need both NUMA nodes"
    binding = model.placement.rank_binding
    assert binding is not None
    assert binding.numa_node_of_rank == (0, 0, 0, 0, 1, 1, 1, 1)
    assert set(binding.memory_nodes) == {0, 1}
    slot = model.placement.slots[0].slots[0]
    for node in pool.hardware.numa_nodes:
        mine = set(slot.cpus_example) & set(node.cpus)
        assert len(mine) == binding.cpus_per_numa_node[node.id] >= 8
        assert not mine & set(node.reserved_cpus)
        assert all(mine.issuperset(core) or not mine & set(core) for core in node.cores), "whole cores"


def test_every_model_number_has_a_reason(local: ClusterPlan) -> None:
    for model in local.models:
        words = " ".join(model.reasons)
        for topic in (
            "tensor parallel",
            "context",
            "cpu",
            "memory",
            "/dev/shm",
            "startup budget",
            "progressDeadlineSeconds",
            "strategy",
        ):
            assert topic in words, topic


def test_the_json_form_holds_the_contract(local: ClusterPlan) -> None:
    document = json.loads(json.dumps(plan_as_json(local, stack="local")))
    pool, model = document["nodePools"][0], document["models"][0]
    assert set(pool) >= {
        "name",
        "platform",
        "nodeShape",
        "nodes",
        "kubelet",
        "allocatable",
        "numaNodes",
        "idleGpus",
        "strandedGpus",
        "rollout",
    }
    assert set(pool["allocatable"]) == {"cpu", "memoryBytes", "gpus"}
    assert set(pool["numaNodes"][0]) == {"id", "cpus", "reservedCpus", "allocatableMemoryBytes", "gpus"}
    assert pool["allocatable"] == {"cpu": 220, "memoryBytes": pool["allocatable"]["memoryBytes"], "gpus": 8}
    assert model["resources"] == {"cpu": "32", "memory": "128Gi"}
    assert set(model) >= {
        "name", "nodePool", "replicas", "tensorParallelSize", "pipelineParallelSize", "podsPerReplica", "gpusPerPod", "resources", "sharedMemoryBytes",
        "qosClass", "strategy", "startupBudgetSeconds", "progressDeadlineSeconds", "updateTimeoutSeconds", "memory", "slots", "reasons",
    }  # fmt: skip
    assert set(model["slots"][0]["slots"][0]) >= {"numaNodes", "gpus", "cpuCount", "cpusExample"}
    assert len(parse_cpu_list(model["slots"][0]["slots"][0]["cpusExample"])) == 32
    assert model["updateTimeoutSeconds"] > model["progressDeadlineSeconds"] > model["startupBudgetSeconds"]
    assert pool["rollout"] == [{"wave": 0, "nodes": ["gpu-a"]}, {"wave": 1, "nodes": ["gpu-b"]}]


def test_the_same_input_gives_the_same_plan(local: ClusterPlan) -> None:
    assert plan_stack(load_stack_file(stack_file("local", root=ROOT))) == local


def test_text_and_markdown_name_every_model_and_pool(local: ClusterPlan) -> None:
    texts = (
        plan_as_text(local, stack="local"),
        plan_as_text(local, stack="local", explain=True),
        plan_as_markdown(local, stack="local"),
    )
    for text in texts:
        assert all(name in text for name in ("h100", "mi300x", "llama-70b", "qwen-72b"))
        assert "inline" not in text.replace("say it inline", "")


def test_the_text_is_a_screenful_and_tells_where_the_reasons_are(local: ClusterPlan) -> None:
    lines = plan_as_text(local, stack="local").splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 160
    text = "\n".join(lines)
    for said in (
        "pool h100: 2 x dgx-h100 (gpu-a, gpu-b), each 8 x h100-sxm5-80gb",
        "pool mi300x: 1 x given topology (gpu-c)",
        "topology manager single-numa-node by container, memory manager Static, reserved CPUs 0,56,112,168",
        "GPUs left in the pool: 8 idle, 0 of them stranded",
        "2 replicas, tensor parallel 4",
        "32 CPUs, 128Gi memory, 16Gi /dev/shm; context 4,096; KV cache per GPU",
        "on 2 nodes: NUMA 0 with GPUs 0-3",
        "maxSurge 0, maxUnavailable 1",
    ):
        assert said in text
    assert lines[-1].endswith("--explain.") and "because" not in text


def test_the_explained_text_has_every_reason_and_field(local: ClusterPlan) -> None:
    text = plan_as_text(local, stack="local", explain=True)
    assert all(f"because {reason}" in text for part in (*local.node_pools, *local.models) for reason in part.reasons)
    assert all(f"    {field}: " in text for pool in local.node_pools for field in pool.kubelet.fields)
    assert "--explain" not in text


@pytest.mark.parametrize("explain", [False, True])
def test_warnings_stand_in_both_texts(local: ClusterPlan, explain: bool) -> None:
    plan = replace(local, warnings=(Diagnosis.warning("models[0]", "X", "is odd"),))
    assert "\nwarning: models[0]: is odd\n" in plan_as_text(plan, stack="local", explain=explain)


def test_many_rollout_waves_are_counted() -> None:
    document = small_document()
    document["nodePools"][0] = {"name": "h100", "nodeShape": "dgx-h100", "nodes": 1000}
    text = plan_as_text(plan_stack(parse_cluster_document(document)), stack="x", explain=True)
    assert "and 992 more rollout waves of at most 1 node" in text and len(text.splitlines()) < 80


def test_what_is_wrong_with_a_model_is_told_though_its_pool_is_unknown() -> None:
    document = with_change("models[0].nodePool", "h1000")
    document["models"][0] |= {"model": "meta-llama/Nothing", "engineArgs": {"max-nm-seqs": 1}}
    with pytest.raises(PlanError) as caught:
        plan_stack(parse_cluster_document(document))
    paths = [problem.path for problem in caught.value.problems]
    assert paths == ["models[0].engineArgs.max-nm-seqs", "models[0].model", "models[0].nodePool"]


def test_wrong_flags_and_an_unknown_model_are_told_together() -> None:
    document = with_change("models[0].model", "meta-llama/Nothing")
    document["models"][0]["engineArgs"] = {"max-nm-seqs": 1}
    with pytest.raises(PlanError) as caught:
        plan_stack(parse_cluster_document(document))
    assert [problem.path for problem in caught.value.problems] == ["models[0].engineArgs.max-nm-seqs", "models[0].model"]


@pytest.mark.parametrize("field", ["dtype", "quantization", "kvCacheDtype"])
def test_a_field_of_a_model_is_named_with_its_whole_path(field: str) -> None:
    with pytest.raises(NumawiseError) as caught:
        plan_stack(parse_cluster_document(with_change(f"models[0].{field}", "float7")))
    assert [problem.path for problem in caught.value.problems] == [f"models[0].{field}"]


@pytest.mark.parametrize("size", [10**6, 2**31 - 1])
@pytest.mark.parametrize(
    "field", ["tensorParallelSize", "pipelineParallelSize", "dataParallelSize", "replicas", "maxNumSeqs", "blockSize"]
)
def test_a_huge_number_is_answered_soon(field: str, size: int) -> None:
    began = time.process_time()
    with contextlib.suppress(NumawiseError):
        plan_stack(parse_cluster_document(with_change(f"models[0].{field}", size)))
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("section", "path", "said"),
    [
        ({"authentication": {"webhok": {"enabled": True}}}, "authentication.webhok", "Did you mean 'webhook'"),
        ({"authentication": {"webhook": {"cacheTtl": "2m"}}}, "authentication.webhook.cacheTtl", "Did you mean 'cacheTTL'"),
        ({"authorization": {"mod": "Webhook"}}, "authorization.mod", "Did you mean 'mode'"),
        ({"logging": {"formt": "json"}}, "logging.formt", "Did you mean 'format'"),
        ({"logging": {"options": {"jsn": {}}}}, "logging.options.jsn", "Did you mean 'json'"),
        (
            {"logging": {"vmodule": [{"filePatern": "a", "verbosity": 3}]}},
            "logging.vmodule[0].filePatern",
            "Did you mean 'filePattern'",
        ),
        ({"reservedMemory": [{"numaNod": 0, "limits": {"memory": "1Gi"}}]}, "reservedMemory[0].numaNod", "Did you mean 'numaNode'"),
        ({"reservedMemory": [{"numaNode": 0, "limit": {"memory": "1Gi"}}]}, "reservedMemory[0].limit", "Did you mean 'limits'"),
        ({"registerWithTaints": [{"key": "a", "efect": "NoSchedule"}]}, "registerWithTaints[0].efect", "Did you mean 'effect'"),
        (
            {"shutdownGracePeriodByPodPriority": [{"prioritty": 1}]},
            "shutdownGracePeriodByPodPriority[0].prioritty",
            "Did you mean 'priority'",
        ),
        ({"crashLoopBackOff": {"x": 1}}, "crashLoopBackOff.x", "Known: maxContainerRestartPeriod"),
        ({"tracing": {"endpont": "a:1"}}, "tracing.endpont", "Did you mean 'endpoint'"),
    ],
)
def test_a_misspelt_field_in_a_section_of_the_kubelet_is_named(section: dict[str, object], path: str, said: str) -> None:
    with pytest.raises(NumawiseError) as caught:
        plan_stack(parse_cluster_document(with_change("nodePools[0].kubelet", section)))
    [problem] = [problem for problem in caught.value.problems if problem.path == f"nodePools[0].kubelet.{path}"]
    assert said in problem.message


@pytest.mark.parametrize(
    ("path", "value", "where", "said"),
    [
        ("nodePools[0].nodeShape", "dgx-h10", "nodePools[0].nodeShape", "Did you mean"),
        ("models[0].model", "meta-llama/Meta-Llama-3-70B-Instrct", "models[0].model", "Did you mean"),
        ("models[0].nodePool", "h1000", "models[0].nodePool", "Did you mean 'h100'"),
        ("models[0].tensorParallelSize", 3, "models[0].tensorParallelSize", "64"),
        ("models[0].tensorParallelSize", 16, "models[0].tensorParallelSize", "8"),
        ("models[0].maxModelLen", 9000, "models[0].maxModelLen", "8192"),
        ("models[0].resources", {"cpu": "31", "memory": "128Gi"}, "models[0].resources.cpu", "32"),
        ("models[0].resources", {"cpu": "1500m", "memory": "128Gi"}, "models[0].resources.cpu", "Use 2"),
        ("models[0].resources", {"cpu": "32", "memory": "8Gi"}, "models[0].resources.memory", "48 GiB"),
        ("models[0].progressDeadlineSeconds", 100, "models[0].progressDeadlineSeconds", "above the startup budget"),
        (
            "models[0].engineArgs",
            {"tensor-parallel-size": 4},
            "models[0].engineArgs.tensor-parallel-size",
            "write tensorParallelSize: 4",
        ),
        (
            "models[0].engineArgs",
            {"disable-log-requests": True},
            "models[0].engineArgs.disable-log-requests",
            "enable-log-requests: false",
        ),
        (
            "models[0].engineArgs",
            {"enable-prefix-cachin": True},
            "models[0].engineArgs.enable-prefix-cachin",
            "enable-prefix-caching",
        ),
        ("models[0].engineArgs", {"api-key": "x"}, "models[0].engineArgs.api-key", "pulumi config set --secret"),
        ("models[0].env", {"CUDA_VISIBLE_DEVICES": "0"}, "models[0].env.CUDA_VISIBLE_DEVICES", "device plugin"),
        ("models[0].blockSize", 20, "models[0].blockSize", "Use 16"),
        ("models[0].env", {"HF_TOKEN": "x"}, "models[0].env.HF_TOKEN", "numawise:hubToken"),
        (
            "nodePools[0].kubelet",
            {"topologyManagerPolicy": "single-numa"},
            "nodePools[0].kubelet.topologyManagerPolicy",
            "single-numa-node",
        ),
        ("nodePools[0].kubelet", {"cpuManagerPolicy": "Static"}, "nodePools[0].kubelet.cpuManagerPolicy", "static"),
        ("nodePools[0].kubelet", {"reservedCpus": "0"}, "nodePools[0].kubelet.reservedCpus", "reservedSystemCPUs"),
        ("nodePools[0].kubelet", {"reservedSystemCPUs": "0,500"}, "nodePools[0].kubelet.reservedSystemCPUs", "500"),
    ],
)
def test_what_cannot_work_is_refused_with_path_numbers_and_way_out(path: str, value: Any, where: str, said: str) -> None:
    problems = problems_of(with_change(path, value))
    assert where in problems, problems
    assert said in problems[where]


def test_eight_gpus_do_not_fit_one_numa_node_and_the_error_says_what_does() -> None:
    document = with_change("nodePools[0].kubelet", {"topologyManagerPolicy": "single-numa-node"})
    document["models"][0]["tensorParallelSize"] = 8
    document["models"][0]["resources"] = {}
    problems = problems_of(document)
    assert any("4" in message and "single-numa-node" in message for message in problems.values()), problems


def test_more_replicas_than_places_are_an_error() -> None:
    problems = problems_of(with_change("models[0].replicas", 3))
    assert any(path.startswith("models[0]") and "3" in message and "2" in message for path, message in problems.items()), problems


def test_errors_of_pools_and_models_come_together() -> None:
    document = with_change("nodePools[0].kubelet", {"reservedCpus": "0"})
    document["models"][0]["engineArgs"] = {"api-key": "x"}
    assert set(problems_of(document)) >= {"nodePools[0].kubelet.reservedCpus", "models[0].engineArgs.api-key"}


def test_a_node_stands_in_one_pool_only() -> None:
    document = small_document()
    document["nodePools"].append({**document["nodePools"][0], "name": "other"})
    assert "a node belongs to one pool" in problems_of(document)["nodePools[1].nodeNames[0]"]


@pytest.mark.parametrize("version", SUPPORTED)
def test_every_supported_version_is_planned_without_a_reservation_about_it(version: str) -> None:
    assert not [
        warning for warning in plan(with_change("kubernetesVersion", version)).warnings if warning.path == "kubernetesVersion"
    ]


def test_decided_sizes_fit_and_stay_in_one_numa_node_where_they_can() -> None:
    document = small_document()
    for key in ("tensorParallelSize", "resources", "sharedMemory", "maxModelLen", "gpuMemoryUtilization"):
        del document["models"][0][key]
    model = plan(document).models[0]
    assert model.memory.estimate.fits
    assert model.parallelism.gpus_per_pod <= 4
    assert all(len(slot.numa_nodes) == 1 for group in model.placement.slots for slot in group.slots)


def test_ten_thousand_nodes_give_the_plan_of_one() -> None:
    def of(nodes: int) -> ClusterPlan:
        document = small_document()
        del document["nodePools"][0]["nodeNames"]
        document["nodePools"][0]["nodes"] = nodes
        document["models"][0]["replicas"] = nodes
        return plan(document)

    one, many = of(1), of(10_000)
    assert one.node_pools[0].kubelet == many.node_pools[0].kubelet
    assert len(many.models[0].placement.slots) <= 2, "equal nodes are grouped"
    assert sum(group.nodes * len(group.slots) for group in many.models[0].placement.slots) == 10_000


def test_planning_does_not_import_pulumi() -> None:
    script = "import sys; from infra.__main__ import main; main(['plan', '-s', 'local', '--format', 'json']); sys.exit('pulumi' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0


def _virtual_machine(policy: str) -> dict[str, Any]:
    document = small_document()
    pool = document["nodePools"][0]
    del pool["nodeShape"]
    numa_nodes = [
        {"cpus": "0-31,64-95", "memory": "512Gi", "gpus": [0, 1, 2, 3]},
        {"cpus": "32-63,96-127", "memory": "512Gi", "gpus": [4, 5, 6, 7]},
    ]
    pool["topology"] = {
        "sku": "h100-sxm5-80gb",
        "threadsPerCore": 2,
        "virtualMachine": True,
        "numaInGuest": False,
        "numaNodes": numa_nodes,
    }
    pool["kubelet"] = {"topologyManagerPolicy": policy}
    document["models"][0] |= {"tensorParallelSize": 8, "resources": {"cpu": "32", "memory": "128Gi"}}
    return document


def test_where_devices_have_no_numa_id_the_policy_does_not_bound_the_gpus_and_the_plan_warns() -> None:
    made = plan(_virtual_machine("single-numa-node"))
    assert made.models[0].parallelism.gpus_per_pod == 8
    assert any("NUMA" in warning.message and warning.path.startswith("nodePools[0]") for warning in made.warnings), made.warnings


@pytest.mark.parametrize(("groups", "codes"), [([], ["NoDeviceGroups"]), ([44, 109], [])])
def test_an_amd_pool_without_device_groups_is_warned_of(groups: list[int], codes: list[str]) -> None:
    document = small_document()
    pool = document["nodePools"][0]
    pool["nodeShape"] = "azure-nd96isr_mi300x_v5"
    pool["devicePlugin"] = {"deviceGroups": groups}
    assert [w.code for w in plan(document).warnings if w.path == "nodePools[0].devicePlugin.deviceGroups"] == codes


def test_a_null_numa_node_is_read_as_the_kubelet_reads_it() -> None:
    entries = [{"numaNode": 0, "limits": {"memory": "2589Mi"}}, {"numaNode": None, "limits": {}}]
    pool = plan(with_change("nodePools[0].kubelet", {"reservedMemory": entries})).node_pools[0]
    without_reservation = 1080184274944 - pool.hardware.numa_nodes[0].allocatable_memory_bytes
    assert without_reservation == 2589 * 2**20, "null is node 0, as in Go"


def test_data_parallel_over_pods_is_refused_by_the_plan_with_both_numbers() -> None:
    document = small_document()
    del document["models"][0]["resources"]
    document["models"][0] |= {"tensorParallelSize": 8, "pipelineParallelSize": 1, "dataParallelSize": 2, "replicas": 1}
    said = problems_of(document)["models[0].dataParallelSize"]
    assert said.startswith("is 2 over 2 pods a replica, which cannot be rolled out. Write replicas: 2 with dataParallelSize 1")

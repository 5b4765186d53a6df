"""No key of the stack file without effect: what changes neither the plan nor an object of the stack says so, and what to do by hand.

The keys are taken from the wire models, so that a new one is covered by itself; where its type does not tell another valid value, VALUES has to.
"""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel

from infra.config.cluster import StackConfig
from infra.config.load import load_stack_file, parse_cluster_document, stack_file
from infra.config.pools import Platform
from infra.errors import NumawiseError
from infra.plan import effects
from infra.plan.cluster import plan_stack
from infra.plan.model import ClusterPlan, RolloutPlan
from infra.render.parts import stack_parts
from tests.support.documents import with_change

ROOT = Path(__file__).resolve().parents[2]
CODE = "NoEffectYet"

# Every key stands in one of them; a key has an effect where it has one in any.
DOCUMENTS = {
    "nvidia": """
        connection: {kubeconfig: {stack: org/clusters/prod, output: kubeconfig}, context: prod}
        adopt: [ConfigMap/inference/vllm]
        kubernetesVersion: "1.37"
        namespace: {name: inference, create: true, podSecurity: restricted}
        systemNamespace: numawise-system
        sharedComponents: {nodeFeatureDiscovery: existing}
        images: {mirror: registry.example/mirror, pullSecrets: [pull]}
        nodePools:
          - name: h100
            platform: existing
            nodeShape: dgx-h100
            nodeNames: [gpu-a, gpu-b, gpu-c]
            nodeSelector: {cloud/pool: gpu}
            nodes: 3
            labels: {team: a}
            taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]
            kubelet: {maxPods: 110}
            rollout: {maxUnavailable: 1, canary: true, allowDowntime: false, revert: false, generation: 1, drain: {force: false, deleteEmptyDirData: false}}
            devicePlugin: {mode: managed, passDeviceSpecs: true}
            coTenants: [{name: agent, perNode: 1, cpu: "2", memory: 256Mi, qosClass: Guaranteed}]
        models:
          - name: llama-8b
            nodePool: h100
            namespace: inference
            model: meta-llama/Llama-3.1-8B-Instruct
            replicas: 2
            tensorParallelSize: 2
            pipelineParallelSize: 1
            dataParallelSize: 1
            enableExpertParallel: false
            gpuMemoryUtilization: 0.9
            maxModelLen: 4096
            maxNumSeqs: 64
            maxNumBatchedTokens: 4096
            blockSize: 16
            dtype: auto
            kvCacheDtype: auto
            image: docker.io/vllm/vllm-openai:v0.33.0
            resources: {cpu: "16", memory: 64Gi}
            credentials: {existingSecret: vllm-keys}
            sharedMemory: 8Gi
            storage: {existingClaim: models, mountPath: /models, modelPath: llama}
            podAntiAffinity: required
            strategy: {maxSurge: 0, maxUnavailable: 1}
            initContainers: [{name: warm, image: "busybox:1.37", resources: {limits: {cpu: "2", memory: 64Mi}}}]
            sidecars: [{name: logs, image: "busybox:1.37", resources: {limits: {cpu: "2", memory: 64Mi}}}]
            startup: {budgetSeconds: 1200}
            progressDeadlineSeconds: 2400
            engineArgs: {enable-prefix-caching: true}
            env: {NCCL_DEBUG: INFO}
        monitoring: {enabled: false}
        """,
    "amd": """
        namespace: inference
        nodePools:
          - name: mi300x
            topology:
              sku: mi300x
              threadsPerCore: 2
              sockets: 2
              virtualMachine: false
              numaInGuest: true
              partition: SPX_NPS1
              linkDomains: [[0, 1, 2, 3]]
              switchGroups: [[0, 1], [2, 3]]
              numaNodes:
                - {cpus: "0-15,32-47", memory: 512Gi, gpus: [0, 1], nics: [mlx5_0], distances: [10, 32], hugepages: {1Gi: 0}, socket: 0}
                - {cpus: "16-31,48-63", memory: 512Gi, gpus: [2, 3], nics: [mlx5_1], distances: [32, 10], hugepages: {1Gi: 0}, socket: 1}
            nodes: 2
            devicePlugin: {deviceGroups: [44, 109]}
        models:
          - name: qwen
            nodePool: mi300x
            vllmVersion: 0.33.0
            modelConfig: {architectures: [Qwen3MoeForCausalLM], model_type: qwen3_moe, num_hidden_layers: 48, hidden_size: 2048, num_attention_heads: 32,
                num_key_value_heads: 4, head_dim: 128, intermediate_size: 6144, vocab_size: 151936, max_position_embeddings: 40960, torch_dtype: bfloat16,
                num_experts: 128, num_experts_per_tok: 8, moe_intermediate_size: 768}
            objective: throughput
            storage: {existingClaim: models}
        """,
    "PCIe cards that are aligned by socket": """
        namespace: inference
        nodePools:
          - name: l40s
            topology:
              sku: l40s
              threadsPerCore: 2
              sockets: 2
              linkDomains: []
              switchGroups: [[0, 1], [2, 3]]
              numaNodes:
                - {cpus: "0-7,32-39", memory: 256Gi, gpus: [0, 1], distances: [10, 21, 21, 11]}
                - {cpus: "8-15,40-47", memory: 256Gi, gpus: [2, 3], distances: [21, 10, 11, 21]}
                - {cpus: "16-23,48-55", memory: 256Gi, gpus: [4, 5], distances: [21, 11, 10, 21]}
                - {cpus: "24-31,56-63", memory: 256Gi, gpus: [6, 7], distances: [11, 21, 21, 10]}
            nodes: 1
            kubelet: {topologyManagerPolicy: best-effort, featureGates: {CPUManagerPolicyAlphaOptions: true}, cpuManagerPolicyOptions: {align-by-socket: "true"}}
        models:
          - {name: m, nodePool: l40s, model: Qwen/Qwen3-8B, tensorParallelSize: 4, resources: {cpu: "24"}, podAntiAffinity: none, storage: {existingClaim: models}}
        """,
    "a virtual machine of four NUMA nodes": """
        namespace: inference
        nodePools:
          - name: mi300x
            topology:
              sku: mi300x
              threadsPerCore: 1
              virtualMachine: true
              numaNodes:
                - {cpus: 0-15, memory: 256Gi, gpus: [0, 1], distances: [10, 21, 21, 11]}
                - {cpus: 16-31, memory: 256Gi, gpus: [2, 3], distances: [21, 10, 21, 21]}
                - {cpus: 32-47, memory: 256Gi, gpus: [4, 5], distances: [21, 21, 10, 21]}
                - {cpus: 48-63, memory: 256Gi, gpus: [6, 7], distances: [11, 21, 21, 10]}
            nodes: 1
            kubelet: {topologyManagerPolicy: best-effort}
            devicePlugin: {deviceGroups: [44, 109]}
        models:
          - {name: m, nodePool: mi300x, model: Qwen/Qwen3-8B, tensorParallelSize: 4, resources: {cpu: "24"}, podAntiAffinity: none, storage: {existingClaim: models}}
        """,
    "a pool without models": """
        namespace: inference
        nodePools:
          - {name: a, nodeShape: dgx-h100, nodes: 1}
          - {name: b, nodeShape: dgx-h100, nodes: 1}
        models:
          - {name: m, nodePool: b, model: Qwen/Qwen3-8B, storage: {existingClaim: models}}
        """,
}
# Read by the components, apart from the plan: how the cluster is reached, and what of it is taken over.
APART = ("connection.", "adopt")
# Other valid values, where a key's type does not tell one.
VALUES: dict[str, list[Any]] = {
    "namespace.name": ["other"],
    "systemNamespace": ["other"],
    "images.mirror": ["registry.example/other"],
    "images.pullSecrets": [["other"]],
    "nodePools[].name": ["other"],
    "nodePools[].nodeShape": ["dgx-h200"],
    "nodePools[].topology.sku": ["mi325x", "a10"],
    "nodePools[].topology.linkDomains": [[[0, 1], [2, 3]], [[0, 1, 2, 3], [4, 5, 6, 7]]],
    "nodePools[].topology.switchGroups": [[[0, 2], [1, 3]]],
    "nodePools[].topology.partition": ["DPX_NPS1"],
    "nodePools[].topology.numaNodes[].cpus": ["0-14,32-46", "0-6,32-38"],
    "nodePools[].topology.numaNodes[].memory": ["400Gi"],
    "nodePools[].topology.numaNodes[].gpus": [[1, 0]],
    "nodePools[].topology.numaNodes[].nics": [["mlx5_9"]],
    "nodePools[].topology.numaNodes[].distances": [[10, 20], [10, 11, 21, 21]],
    "nodePools[].topology.numaNodes[].hugepages": [{"1Gi": 100}],
    "nodePools[].nodeNames": [["gpu-a", "gpu-b", "gpu-x"]],
    "nodePools[].nodeSelector": [{"cloud/pool": "other"}],
    "nodePools[].labels": [{"team": "b"}],
    "nodePools[].taints[].key": ["dedicated"],
    "nodePools[].taints[].value": ["other"],
    "nodePools[].kubelet": [{"maxPods": 60}],
    "nodePools[].devicePlugin.deviceGroups": [[44]],
    "nodePools[].coTenants[].name": ["other"],
    "nodePools[].coTenants[].cpu": ["4"],
    "nodePools[].coTenants[].memory": ["512Mi"],
    "models[].name": ["other"],
    "models[].nodePool": ["a"],
    "models[].namespace": ["other"],
    "models[].model": ["Qwen/Qwen3-8B"],
    "models[].modelConfig": [{**yaml.safe_load(DOCUMENTS["amd"])["models"][0]["modelConfig"], "num_hidden_layers": 40}],
    "models[].gpuMemoryUtilization": [0.8],
    "models[].maxModelLen": [2048],
    "models[].blockSize": [32],
    "models[].dtype": ["float16"],
    "models[].quantization": ["fp8"],
    "models[].kvCacheDtype": ["fp8"],
    "models[].vllmVersion": ["0.32.0"],
    "models[].storage.readBytesPerSecond": [2_000_000_000],
    "models[].image": ["docker.io/vllm/vllm-openai:v0.32.0"],
    "models[].resources.cpu": ["32"],
    "models[].resources.memory": ["80Gi"],
    "models[].sharedMemory": ["9Gi"],
    "models[].storage.existingClaim": ["other"],
    "models[].credentials.existingSecret": ["other"],
    "models[].storage.mountPath": ["/other"],
    "models[].storage.modelPath": ["other"],
    "models[].initContainers": [[]],
    "models[].sidecars": [[]],
    "models[].engineArgs": [{"enable-prefix-caching": False}],
    "models[].env": [{"NCCL_DEBUG": "WARN"}],
}


@lru_cache
def _as_json(name: str) -> str:
    return json.dumps(yaml.safe_load(DOCUMENTS[name]))


def document(name: str) -> dict[str, Any]:
    return json.loads(_as_json(name))


def keys(model: type[BaseModel] = StackConfig, above: str = "") -> Iterator[tuple[str, Any]]:
    """(path, annotation) of every key that is no section; [] stands for any index."""
    for name, field in model.model_fields.items():
        path = f"{above}.{field.alias or name}" if above else str(field.alias or name)
        section, many = section_in(field.annotation)
        if section is None:
            yield path, field.annotation
        else:
            yield from keys(section, f"{path}[]" if many else path)


def section_in(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """The wire model inside an annotation, and whether there is a list of them."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    found = [section for argument in get_args(annotation) if (section := section_in(argument)[0]) is not None]
    return (found[0] if found else None), get_origin(annotation) is tuple


def other_values(path: str, annotation: Any, current: Any) -> list[Any]:
    """Valid values of a key beside the current one, from VALUES or from the key's type."""
    if path in VALUES:
        return VALUES[path]
    if get_origin(annotation) in (Union, types.UnionType):
        annotation = next(argument for argument in get_args(annotation) if argument is not type(None))
    if annotation is bool:
        return [value for value in (True, False) if value is not current]
    if get_origin(annotation) is Literal:
        return [value for value in get_args(annotation) if value != current]
    if int in (annotation, *get_args(annotation)):
        return [(current or 0) + 1, (current or 1) * 2]
    return []


def place(raw: Any, path: str) -> tuple[Any, str] | None:
    """The section that holds a key and the key's name there, at the first entry of each list; None where the document has no such section."""
    *above, name = path.split(".")
    for step in above:
        raw = raw.get(step.removesuffix("[]")) if isinstance(raw, dict) else None
        if step.endswith("[]"):
            raw = raw[0] if raw else None
    return (raw, name) if isinstance(raw, dict) else None


def _mirror_distances(raw: Any, distances: list[int]) -> None:
    """Distances hold both ways: those of the first NUMA node to the others are theirs to it."""
    for node, distance in zip(raw["nodePools"][0]["topology"]["numaNodes"][1:], distances[1:], strict=False):
        node["distances"] = [distance, *node["distances"][1:]]


@lru_cache(maxsize=256)
def planned(text: str) -> ClusterPlan:
    return plan_stack(parse_cluster_document(json.loads(text)))


def differ(one: ClusterPlan, other: ClusterPlan) -> bool:
    """Whether two plans decide differently, or come to other objects; what a plan only repeats or nobody carries out is left aside."""
    return _decided(one) != _decided(other) or stack_parts(one, stack="test") != stack_parts(other, stack="test")


def _decided(plan: ClusterPlan) -> ClusterPlan:
    nothing = RolloutPlan(max_unavailable=1, canary=False, waves=())
    return replace(plan, warnings=(), node_pools=tuple(replace(pool, platform="", rollout=nothing) for pool in plan.node_pools))


def warned(plan: ClusterPlan, path: str) -> bool:
    at = path.replace("[]", "[0]")
    return any(warning.code == CODE and warning.path == at for warning in plan.warnings)


def default_of(path: str) -> Any:
    section: Any = StackConfig
    *above, name = path.replace("[]", "").split(".")
    for step in above:
        section = section_in(next(field.annotation for field in section.model_fields.values() if field.alias == step))[0]
    field = next(field for field in section.model_fields.values() if field.alias == name)
    return field.get_default(call_default_factory=True)


KEYS = {path: annotation for path, annotation in keys() if not path.startswith(APART)}


@pytest.mark.parametrize("path", KEYS)
def test_every_key_has_an_effect_or_says_that_it_has_none(path: str) -> None:
    default, counts = (
        default_of(path),
        {},
    )  # value -> whether it changes something in one of the documents, or nothing is to be said of it
    for name in DOCUMENTS:
        found = place(raw := document(name), path)
        if found is None:
            continue
        plan = planned(json.dumps(raw))
        section, key = found
        for value in other_values(path, KEYS[path], section.get(key, default)):
            if counts.get(repr(value)):
                continue
            section[key] = value
            if path.endswith(".distances"):
                _mirror_distances(raw, value)
            try:
                other = planned(json.dumps(raw))
            except NumawiseError:
                continue
            changes, told = differ(plan, other), warned(other, path)
            assert not (changes and told), f"{path}: {value!r} changes the plan, and a warning says that it has no effect"
            assert changes or not told or value != default, f"{path}: {value!r} is the default and needs no warning"
            counts[repr(value)] = changes or told or value == default
    assert counts, f"{path}: give another valid value in VALUES, and the key in one of DOCUMENTS"
    # Each word of a choice is judged by itself; of numbers and texts one that counts is enough.
    choice = KEYS[path] is bool or get_origin(KEYS[path]) is Literal
    silent = [value for value, counted in counts.items() if not counted]
    assert not silent or (not choice and len(silent) < len(counts)), (
        f"{path}: {', '.join(silent)} changes nothing and nothing says so"
    )


def without_effect(raw: dict[str, Any]) -> dict[str, str]:
    return {warning.path: warning.message for warning in plan_stack(parse_cluster_document(raw)).warnings if warning.code == CODE}


@pytest.mark.parametrize(
    ("path", "value", "by_hand"),
    [
        ("monitoring.enabled", True, "by a PodMonitor of your own"),
        ("sharedComponents.nodeFeatureDiscovery", "managed", "install its Helm chart and write nodeFeatureDiscovery: existing"),
        ("nodePools[0].rollout.maxUnavailable", 2, "one wave of the plan after the other"),
        ("nodePools[0].rollout.canary", False, "change one node by hand"),
        ("nodePools[0].rollout.drain", {"force": True, "deleteEmptyDirData": True}, "`kubectl drain NODE --ignore-daemonsets --"),
    ],
)
def test_the_warning_names_the_key_and_what_to_do_by_hand(path: str, value: Any, by_hand: str) -> None:
    found = without_effect(with_change(path, value))
    assert len(found) == (len(value) if isinstance(value, dict) else 1)
    for where, message in found.items():
        assert where.startswith(path)
        assert message.startswith("has no effect yet: ")
        assert by_hand in message


def test_nodes_that_somebody_else_has_to_make_are_told() -> None:
    plan = plan_stack(parse_cluster_document(with_change("nodePools[0].platform", "eks")))
    [told] = [warning for warning in plan.warnings if warning.code == "NodesNotMade"]
    assert told.path == "nodePools[0].platform"
    assert "no node of eks is made yet: make them, and give them the pool's kubelet drop-in as spec.kubelet.config" in told.message


def test_each_pool_is_told_by_its_own_index() -> None:
    raw = document("a pool without models")
    raw["nodePools"][1]["rollout"] = {"generation": 2}
    assert list(without_effect(raw)) == ["nodePools[1].rollout.generation"]


def test_defaults_that_are_written_out_give_no_warning() -> None:
    raw = document("nvidia")
    assert raw["nodePools"][0]["rollout"]["drain"] == {"force": False, "deleteEmptyDirData": False}
    assert without_effect(raw) == {}


def test_the_stack_of_this_checkout_uses_no_key_without_effect() -> None:
    plan = plan_stack(load_stack_file(stack_file("local", root=ROOT)))
    assert not [warning for warning in plan.warnings if warning.code == CODE]


def test_every_key_that_is_said_to_do_nothing_is_one_of_the_stack_file() -> None:
    assert set(effects.BY_HAND) <= {path for path, _ in keys()}
    assert set(effects.PLATFORMS) <= set(get_args(Platform))

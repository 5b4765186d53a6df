"""What a person gets to read for a stack file that is wrong: the path, what is wrong and the way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.config.load import cluster_document, load_stack_file, parse_cluster_document
from infra.errors import ConfigError
from tests.support.documents import small_document, with_change


def problems_of(document: object) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        parse_cluster_document(document)
    return {problem.path: problem.message for problem in caught.value.problems}


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("namespce", "x", "Did you mean 'namespace'"),
        ("nodePools[0].nodess", 2, "Did you mean 'nodes'"),
        ("models[0].storage.mountpath", "/m", "Did you mean 'mountPath'"),
        ("models[0].tensorParallelSize", "4", "'4' is a string; it has to be a whole number"),
        ("models[0].tensorParallelSize", 4.5, "4.5 is a number; it has to be a whole number"),
        ("models[0].tensorParallelSize", True, "True is a boolean; it has to be a whole number"),
        ("models[0].replicas", 0, "0 is out of range: greater than or equal to 1"),
        ("models[0].gpuMemoryUtilization", 90, "for 90 percent write 0.9"),
        ("models[0].gpuMemoryUtilization", 0, "lies above 0"),
        ("models[0].resources.memory", "128GB", "write 128G"),
        ("models[0].resources.memory", "128 Gi", "write 128Gi"),
        ("models[0].resources.memory", "128GiB", "write 128Gi"),
        ("models[0].resources.memory", 128, "write memory with a unit, for example 128Gi"),
        ("models[0].resources.cpu", "-1", "-1 is negative"),
        ("models[0].resources.cpu", "many", "write it like 4, 500m"),
        ("models[0].podAntiAffinity", "requird", "Did you mean 'required'?"),
        ("models[0].name", "Llama_70B", "is no DNS label"),
        ("models[0].storage.modelPath", "/abs", "relative to mountPath"),
        ("models[0].strategy", {"maxSurge": 0, "maxUnavailable": 0}, "no update could ever begin"),
        ("nodePools[0].platform", "eck", "Did you mean 'eks'?"),
        ("nodePools[0].topology", {"sku": "h100", "numaNodes": [{"cpus": "0-3", "memory": "1Gi"}]}, "give the hardware once"),
        ("nodePools[0].nodes", 3, "nodes is 3, but nodeNames has 2 names"),
        ("nodePools[0].nodeNames", ["gpu-a", "gpu-a"], "names gpu-a twice"),
        ("nodePools[0].nodeNames", "gpu-a", "it has to be a list"),
        ("kubernetesVersion", 1.37, 'write it in quotes: "1.37"'),
        ("kubernetesVersion", "1.29", "is not one of 1.33"),
        ("connection", {"kubeconfig": {"secure": "v1:abc"}}, "is a secret inside the cluster document"),
        ("adopt", ["vllm"], "write Kind/namespace/name"),
        ("nodePools[0].labels", {"a b": "c"}, "'a b' is no label key"),
        ("nodePools[0].labels", {"Example.com/a": "c"}, "is no DNS label"),
        ("nodePools[0].nodeSelector", {"a": "x/y"}, "'x/y' is no label value"),
        ("nodePools[0].labels", {"a": "x" * 64}, "(64 characters)"),
        ("nodePools[0].taints", [{"key": "gpu key", "effect": "NoSchedule"}], "'gpu key' is no label key"),
        ("models[0].image", "", "is no image"),
        ("models[0].sidecars", [{"name": "a", "imagee": "b"}], "Did you mean 'image'?"),
        ("models[0].sidecars", [{"name": "a"}], "has no image"),
        ("models[0].sidecars", [{"name": "A", "image": "b"}], "is no DNS label"),
        ("models[0].sidecars", [{"name": "a", "image": "b", "env": "A=b"}], "its env has to be a list"),
        ("models[0].sidecars", [{"name": "a", "image": "b", "env": None}], "its env has to be a list"),
        ("models[0].sidecars", [{"name": "a", "image": "b", "env": ["A=b"]}], "a list of mappings"),
        ("models[0].sidecars", [{"name": "a", "image": "b", "env": [{"value": "b"}]}], "no name of an environment variable"),
        ("models[0].sidecars", [{"name": "a", "image": "b", "args": [1]}], "a list of strings"),
        ("models[0].initContainers", [{"name": "a", "image": "b", "securityContext": "x"}], "has to be a mapping"),
        ("models[0].image", "vllm/vllm-openai:", "is no image"),
        ("models[0].env", {"A=B": "x"}, "no name of an environment variable"),
        ("models[0].env", {"A": "x\0y"}, "NUL"),
        ("models[0].startup", {"budgetSeconds": 2**31}, "2147483647"),
        ("models[0].sharedMemory", "1e999", "largest quantity of Kubernetes"),
        ("nodePools", [], "needs at least 1"),
        ("nodePools[0]", 3, "3 is a number; it has to be a mapping"),
    ],
)
def test_a_wrong_value_is_named_with_its_path_and_the_way_out(path: str, value: object, said: str) -> None:
    problems = problems_of(with_change(path, value))
    assert any(where.startswith(path.rsplit(".", 1)[0].split("[")[0]) and said in message for where, message in problems.items()), (
        problems
    )


def test_all_problems_are_found_in_one_pass() -> None:
    document = with_change("models[0].replicas", 0)
    document["nodePools"][0]["nodess"] = 1
    document["namespce"] = "x"
    assert set(problems_of(document)) == {"models[0].replicas", "nodePools[0].nodess", "namespce"}


def test_a_valid_document_is_read_as_written() -> None:
    config = parse_cluster_document(small_document())
    assert config.namespace.name == "inference"
    assert not config.namespace.create
    assert config.node_pools[0].names_of_nodes == ("gpu-a", "gpu-b")
    assert config.models[0].resources.cpu == "32"


def test_nodes_that_are_only_counted_get_the_names_of_the_plan() -> None:
    document = small_document()
    del document["nodePools"][0]["nodeNames"]
    document["nodePools"][0]["nodes"] = 3
    assert parse_cluster_document(document).node_pools[0].names_of_nodes == ("h100-0", "h100-1", "h100-2")


def test_a_bare_document_and_a_stack_file_are_the_same() -> None:
    bare = small_document()
    stack = {"config": {"numawise:cluster": bare, "numawise:apiKey": {"secure": "v1:x"}}, "encryptionsalt": "v1:y"}
    assert cluster_document(bare, source="f") == cluster_document(stack, source="f") == bare


def test_a_document_from_an_environment_says_how_to_get_it() -> None:
    with pytest.raises(ConfigError, match="pulumi config get numawise:cluster > FILE"):
        cluster_document({"environment": ["prod"]}, source="Pulumi.prod.yaml")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"- a\n", "a stack file is a mapping"),
        (b"a: [\n", "is no valid YAML"),
        (b"a: 1\na: 2\n", "the key 'a' stands twice"),
        (b"\xff\xfe\x00", "is no UTF-8 text"),
        (b"config: {}\n", "is missing"),
        (b"config: {numawise:cluster: {secure: abc}}\n", "encrypted as a whole"),
        (b"? [a]\n: 1\n", "a key has to be a plain word"),
        (b"a: !!python/object:os.system {}\n", "is no valid YAML"),
    ],
)
def test_a_file_that_is_no_stack_file_is_told_in_one_sentence(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "Pulumi.x.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        load_stack_file(path)


def test_a_missing_stack_names_the_stacks_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.prod.yaml").write_text("a: 1")
    with pytest.raises(ConfigError, match="stacks here: prod"):
        load_stack_file(tmp_path / "Pulumi.prd.yaml")


def test_what_kubernetes_takes_is_taken() -> None:
    document = small_document()
    document["nodePools"][0]["labels"] = {"example.com/team": "ml-1", "zone": "", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    document["models"][0]["env"] = {"VLLM_LOGGING_LEVEL": "", "with.dot-and-dash": "a=b"}
    images = ("vllm", "vllm/vllm-openai", "registry.example:5000/a_b/c__d/e-f:v0.11.0", f"rocm/vllm:x@sha256:{'0a' * 32}")
    for image in images:
        document["models"][0]["image"] = image
        assert parse_cluster_document(document).models[0].image == image

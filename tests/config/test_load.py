"""What a person gets to read for a stack file that is wrong: the path, what is wrong and the way out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infra.config.load import SECRET_KEYS, cluster_document, load_stack_file, names_a_stack, parse_cluster_document, stack_file
from infra.config.schema import schema_text, stack_file_schema
from infra.errors import ConfigError
from infra.render.names import SECRETS
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
        ("models[0].replicas", -1, "-1 is out of range: greater than or equal to 0"),
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
        ("nodePools[0].nodes", 3, "is 3, but nodeNames has 2 names"),
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
    document = with_change("models[0].replicas", -1)
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


def test_what_is_left_out_has_these_values() -> None:
    """One of the three places for defaults; the others are the catalog and the stack file."""
    pool = {"name": "a", "nodeShape": "dgx-h100", "nodes": 1, "taints": [{"key": "k", "effect": "NoSchedule"}]}
    pool["coTenants"] = [{"name": "agent", "cpu": "1", "memory": "1Gi"}]
    model = {"name": "m", "nodePool": "a", "model": "x", "storage": {"existingClaim": "c"}, "strategy": {}}
    config = parse_cluster_document({"namespace": "n", "nodePools": [pool], "models": [model]})
    [pool_read], [model_read] = config.node_pools, config.models
    assert (config.kubernetes_version, config.system_namespace, config.adopt) == ("1.37", "numawise-system", ())
    assert (config.namespace.create, config.namespace.pod_security) == (False, "restricted")
    assert config.shared_components.node_feature_discovery == "existing" and not config.monitoring.enabled
    assert (pool_read.platform, pool_read.node_names, pool_read.kubelet, pool_read.labels) == ("existing", (), {}, {})
    assert pool_read.taints[0].value == ""
    rollout = pool_read.rollout
    assert (rollout.max_unavailable, rollout.canary, rollout.generation) == (1, True, 1)
    assert not (rollout.allow_downtime or rollout.revert or rollout.drain.force or rollout.drain.delete_empty_dir_data)
    assert (pool_read.device_plugin.mode, pool_read.device_plugin.pass_device_specs) == ("managed", True)
    assert (pool_read.co_tenants[0].per_node, pool_read.co_tenants[0].qos_class) == (1, "Burstable")
    assert (model_read.replicas, model_read.objective, model_read.pod_anti_affinity) == (1, "throughput", "required")
    assert not model_read.enable_expert_parallel and model_read.storage.mount_path == "/models"
    assert model_read.strategy is not None and (model_read.strategy.max_surge, model_read.strategy.max_unavailable) == (0, 1)


@pytest.mark.parametrize("entry", ["Namespace/inference", "ConfigMap/inference/vllm"])
def test_an_adopted_object_has_two_or_three_parts(entry: str) -> None:
    assert parse_cluster_document(with_change("adopt", [entry])).adopt == (entry,)
    for wrong in (entry.split("/")[0], f"{entry}/a/b"):
        assert "names no object" in problems_of(with_change("adopt", [wrong]))["adopt"]


@pytest.mark.parametrize(
    ("path", "least", "most"),
    [
        ("models[0].replicas", 0, 2**31 - 1),
        ("models[0].blockSize", 1, 2**31 - 1),
        ("models[0].strategy.maxSurge", 0, 2**31 - 1),
        ("nodePools[0].rollout.generation", 1, 2**31 - 1),
        ("models[0].gpuMemoryUtilization", 0.0001, 1),
    ],
)
def test_a_number_is_taken_up_to_its_bounds_and_not_beyond(path: str, least: float, most: float) -> None:
    for value in (least, most):
        parse_cluster_document(with_change(path, value))
    assert path in problems_of(with_change(path, 0 if 0 < least < 1 else least - 1))
    assert path in problems_of(with_change(path, most * 1.5 if least < 1 and least > 0 else most + 1))


@pytest.mark.parametrize(
    ("value", "told"),
    [(1.5, "for 1.5 percent write 0.015"), (100, "for 100 percent write 1"), (101, "at most at 1"), (-1, "at most at 1")],
)
def test_a_utilization_beyond_one_may_be_meant_in_percent(value: float, told: str) -> None:
    message = problems_of(with_change("models[0].gpuMemoryUtilization", value))["models[0].gpuMemoryUtilization"]
    assert message.endswith(told)


@pytest.mark.parametrize(("length", "taken"), [(1, True), (63, True), (64, False), (0, False)])
def test_a_label_has_at_most_63_characters(length: int, taken: bool) -> None:
    document = with_change("nodePools[0].name", "a" * length)
    document["models"][0]["nodePool"] = "a" * (length or 1)
    if taken:
        assert parse_cluster_document(document).node_pools[0].name == "a" * length
        parse_cluster_document(with_change("nodePools[0].labels", {"a" * length: "b" * length}))
    else:
        assert "is no DNS label" in problems_of(document)["nodePools[0].name"]


@pytest.mark.parametrize("name", ["-a", "a-", "A", "a_b", "ä"])
def test_a_dns_label_begins_and_ends_with_a_letter_or_digit(name: str) -> None:
    assert "is no DNS label" in problems_of(with_change("systemNamespace", name))["systemNamespace"]


def test_a_node_name_has_at_most_253_characters() -> None:
    longest = ".".join(["a" * 63] * 3 + ["a" * 61])
    assert len(longest) == 253
    document = with_change("nodePools[0].nodeNames", [longest])
    assert parse_cluster_document(document).node_pools[0].node_names == (longest,)
    [message] = problems_of(with_change("nodePools[0].nodeNames", [f"{longest}a"])).values()
    assert message == "the name has 254 characters; Kubernetes allows 253"


def test_a_label_value_may_have_63_characters_and_a_longer_one_is_shown_short() -> None:
    parse_cluster_document(with_change("nodePools[0].labels", {"k": "a" * 63}))
    assert f"'{'a' * 30}'... (64 characters)" in str(problems_of(with_change("nodePools[0].labels", {"k": "a" * 64})))


@pytest.mark.parametrize(("length", "echo"), [(60, repr("a" * 60)), (61, f"{'a' * 30!r}... (61 characters)")])
def test_a_wrong_value_is_shown_up_to_60_characters(length: int, echo: str) -> None:
    message = problems_of(with_change("models[0].replicas", "a" * length))["models[0].replicas"]
    assert message == f"{echo} is a string; it has to be a whole number"


@pytest.mark.parametrize(("value", "taken"), [("0", True), ("1048575", False), ("1048576", True), (2**20, True), ("1023Ki", False)])
def test_memory_below_a_mebibyte_lacks_its_unit(value: object, taken: bool) -> None:
    document = with_change("models[0].sharedMemory", value)
    if taken:
        parse_cluster_document(document)
    else:
        assert "write memory with a unit" in problems_of(document)["models[0].sharedMemory"]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (5, "5 is no CPU list; write it in quotes"),
        (None, "None is no CPU list"),
        ([0, 1], "is a list; it has to be a string"),
        ("0-", "'0-'"),
    ],
)
def test_cpus_of_a_numa_node_are_a_list_in_quotes(value: object, told: str) -> None:
    topology = {"sku": "l4", "threadsPerCore": 1, "numaNodes": [{"cpus": value, "memory": "8Gi", "gpus": [0]}]}
    document = small_document()
    del document["nodePools"][0]["nodeShape"]
    document["nodePools"][0]["topology"] = topology
    assert told in problems_of(document)["nodePools[0].topology.numaNodes[0].cpus"]


@pytest.mark.parametrize(
    ("value", "name"),
    [(None, "null"), (True, "boolean"), (1.5, "number"), ("x", "string"), ({}, "mapping"), ([], "list")],
)
def test_types_have_their_names_in_yaml(value: object, name: str) -> None:
    path, wanted = ("models[0].dtype", "string") if name != "string" else ("models[0].replicas", "whole number")
    if value is None:
        path, wanted = "nodePools[0].nodeNames", "list"
    assert problems_of(with_change(path, value))[path].endswith(f"is a {name}; it has to be a {wanted}")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("prod", True),
        ("org/project/prod", True),
        ("a/b", True),
        ("", False),
        ("a//b", False),
        ("../b", False),
        (".", False),
        (" ", False),
    ],
)
def test_a_stack_is_named_without_ways_through_folders(text: str, names: bool) -> None:
    assert names_a_stack(text) is names
    if names:
        assert stack_file(text, root=Path("r")) == Path(f"r/stacks/Pulumi.{text.split('/')[-1]}.yaml")


def test_a_syntax_error_has_its_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a: 1\nb: }\n")
    with pytest.raises(ConfigError) as caught:
        load_stack_file(path)
    assert caught.value.problems[0].path.startswith(f"{path}:2:4")


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_stack_file(tmp_path)
    deep = tmp_path / "deep.yaml"
    deep.write_text("a: " + "[" * 5000 + "]" * 5000)
    with pytest.raises(ConfigError, match="is no valid YAML"):
        load_stack_file(deep)


@pytest.mark.parametrize("document", [{"config": {"a": 1}}, {"encryptionsalt": "x"}, {"config": None}, {"secretsprovider": "x"}])
def test_a_stack_file_without_a_cluster_is_told_so(document: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"numawise:cluster: is missing in Pulumi.x.yaml"):
        cluster_document(document, source="Pulumi.x.yaml")


def test_a_secret_is_found_wherever_it_stands() -> None:
    document = with_change("models[0].env", {"A": {"secure": "v1:x"}})
    document["nodePools"][0]["taints"] = [{"key": "a", "effect": {"secure": "v1:y"}}]
    document["connection"] = {"kubeconfig": {"secure": "a", "other": "b"}}
    assert set(problems_of(document)) == {"models[0].env.A", "nodePools[0].taints[0].effect"}


def test_a_document_that_is_no_mapping_is_one_sentence() -> None:
    assert problems_of([1])["numawise:cluster"] == "is a list; it has to be a mapping with nodePools and models"


def test_an_unknown_key_without_a_near_name_lists_what_is_known() -> None:
    assert problems_of(with_change("models[0].strategy", {"zzz": 1}))["models[0].strategy.zzz"] == (
        "is no known key. Known here: maxSurge, maxUnavailable."
    )


def test_entries_that_are_all_wrong_do_not_make_the_list_too_short_besides() -> None:
    document = small_document()
    del document["nodePools"][0]["nodeShape"]
    document["nodePools"][0]["topology"] = {"sku": "l4", "numaNodes": [{"cpus": "0", "memory": "8Gi", "gpu": [0]}]}
    assert set(problems_of(document)) == {"nodePools[0].topology.numaNodes[0].gpu"}
    document["nodePools"][0]["topology"]["numaNodes"] = []
    assert set(problems_of(document)) == {"nodePools[0].topology.numaNodes"}


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("models[0].storage", {"existingClaim": "c", "mountPath": "m"}, "it has to be absolute"),
        ("models[0].storage", {"existingClaim": "c", "modelPath": "a/../b"}, "stays below it"),
        ("models[0].model", None, "name the model"),
        ("nodePools[0].nodeShape", None, "give the hardware once"),
        ("nodePools[0].nodeNames", [], "give nodeNames, or nodes"),
    ],
)
def test_what_does_not_go_together_is_told(path: str, value: object, told: str) -> None:
    assert told in str(problems_of(with_change(path, value)))
    parse_cluster_document(with_change("models[0].strategy", {"maxSurge": 1, "maxUnavailable": 0}))
    parse_cluster_document(with_change("nodePools[0].nodes", 2))


def test_the_schema_of_the_editor_describes_a_topology_as_the_catalog_has_it() -> None:
    from infra.catalog.shapes import ShapeEntry

    definitions = stack_file_schema()["$defs"]
    inline, entry = definitions["InlineTopology"], ShapeEntry.model_json_schema()
    assert inline["additionalProperties"] is False and set(inline["required"]) == {"sku", "numaNodes"}
    for name, field in inline["properties"].items():
        assert field["description"] == entry["properties"][name]["description"]
    nodes = definitions["InlineNumaNode"]["properties"]
    assert set(nodes) == set(entry["$defs"]["NumaNode"]["properties"])
    assert nodes["memory"]["type"] == ["string", "number"] and nodes["gpus"]["anyOf"][0]["items"]["minimum"] == 0
    assert definitions["StackConfig"]["properties"]["namespace"] == {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/Namespace"}]}
    committed = Path(__file__).resolve().parents[2] / "stacks/schema.json"
    assert committed.read_text() == schema_text(), "run python -m infra schema > stacks/schema.json"


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("numawise:hubTokn", "Did you mean 'hubToken'"),
        ("numawise:apikey", "Did you mean 'apiKey'"),
        ("numawise:clusters", "Did you mean 'cluster'"),
        ("numawise:nodePools", "Known are numawise:cluster, numawise:apiKey, numawise:hubToken"),
    ],
)
def test_a_key_of_ours_beside_the_document_that_nothing_reads_is_an_error(tmp_path: Path, key: str, hint: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(json.dumps({"config": {"numawise:cluster": with_change("namespce", "x"), key: {"secure": "v1:x"}}}))
    with pytest.raises(ConfigError) as caught:
        load_stack_file(path)
    problems = {problem.path: problem.message for problem in caught.value.problems}
    assert hint in problems[key] and "namespce" in problems


def test_secrets_and_keys_of_others_may_stand_beside_the_document(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    keys = {f"numawise:{name}": {"secure": "v1:x"} for name in SECRET_KEYS} | {
        "aws:region": "eu-west-1",
        "pulumi:disable-default-providers": ["*"],
    }
    path.write_text(json.dumps({"config": {"numawise:cluster": small_document(), **keys}}))
    assert load_stack_file(path).models[0].name == "llama-70b"


def test_each_secret_of_the_stack_reaches_a_key_of_the_credentials() -> None:
    assert tuple(SECRETS) == SECRET_KEYS

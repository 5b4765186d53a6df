"""Documents that are too large, too deep or hold what no field can: each ends at once with a path and a short sentence."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.config.document import MOST_VALUES, read_yaml
from infra.config.load import MOST_OF_A_KIND, load_stack_file, parse_cluster_document
from infra.errors import ConfigError
from tests.support.documents import SMALL, small_document, with_change


def problems_of(document: Any) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        parse_cluster_document(document)
    return {problem.path: problem.message for problem in caught.value.problems}


def read(tmp_path: Path, text: str) -> str:
    """The whole answer to a stack file of this text, within two seconds."""
    path = tmp_path / "Pulumi.x.yaml"
    path.write_text(text, encoding="utf-8")
    began = time.process_time()
    with pytest.raises(ConfigError) as caught:
        load_stack_file(path)
    assert time.process_time() - began < 2
    return str(caught.value)


def bomb(levels: int = 9, aliases: int = 9) -> str:
    names = [f"n{level}" for level in range(levels + 1)]
    lines = ["n0: &n0 [x, y, z]"]
    lines += [f"{name}: &{name} [{', '.join(f'*{before}' for _ in range(aliases))}]" for before, name in pairwise(names)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "text",
    [
        bomb(),
        SMALL + "    modelConfig:\n" + "".join(f"      {line}\n" for line in bomb().splitlines()),
        SMALL + "    engineArgs:\n" + "".join(f"      {line}\n" for line in bomb(30, 2).splitlines()),
        bomb().replace("[", "[[").replace("]", "]]"),
        "a: [" + "1," * 300_000 + "]",
        "".join(f"k{index}: v\n" for index in range(150_000)),
        "a: &a {" + ", ".join(f"k{index}: v" for index in range(10_000)) + "}\nb: {<<: [" + "*a, " * 5_000 + "]}",
        '{"a": [' + "{}," * 200_000 + "{}]}",
    ],
)
def test_more_values_than_anybody_writes_are_refused_before_they_are_looked_at(tmp_path: Path, text: str) -> None:
    answer = read(tmp_path, text)
    assert f"has more than {MOST_VALUES:,} values" in answer and len(answer) < 400


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: &a [*a]\n", "recursive"),
        ("a: &a {b: *a}\n", "recursive"),
        ("a: " + "[" * 900 + "]" * 900, "nested more than 64 levels"),
        ("a: " + "[" * 100_000, "nesting depth"),
        ("".join(" " * depth + "a:\n" for depth in range(3000)), "nesting depth"),
        (SMALL + "    modelConfig: " + '{"a": ' * 70 + "1" + "}" * 70 + "\n", "nested more than 64 levels"),
        ("a: {<<: 3}\n", "<< takes a mapping"),
        ("a: {<<: [{b: 1}, 3]}\n", "<< takes a mapping"),
        ("a: {<<: *b}\n", "undefined alias"),
        ("a: 2026-13-45\n", "is no valid YAML"),
        ("a: " + "9" * 5000, "is no valid YAML"),
        ("# " + "x" * (8 * 2**20), "is larger than 8 MiB"),
    ],
)
def test_what_has_no_end_or_no_meaning_is_one_short_sentence(tmp_path: Path, text: str, said: str) -> None:
    answer = read(tmp_path, text)
    assert said in answer and len(answer) < 800


def test_a_file_without_an_end_is_not_read_to_it() -> None:
    with pytest.raises(ConfigError, match="is larger than 8 MiB"):
        read_yaml(Path("/dev/zero"))


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000])
def test_a_name_that_no_file_has_is_an_error_of_the_input(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_yaml(Path(name))


def test_a_merged_mapping_gives_way_to_keys_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a: &a {x: 1, y: 2}\nb: &b {y: 3, z: 4}\nc: {y: 5, <<: [*a, *b]}\nd: {<<: *a}\n", encoding="utf-8")
    document = read_yaml(path)
    assert document["c"] == {"x": 1, "y": 5, "z": 4}
    assert document["d"] == {"x": 1, "y": 2}


def test_one_model_may_be_written_after_another(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(SMALL.replace("- name: llama", "- &m\n    name: llama") + "  - {<<: *m, name: other}\n", encoding="utf-8")
    assert [model.name for model in load_stack_file(path).models] == ["llama-70b", "other"]


def test_of_many_unknown_keys_the_first_are_told_and_the_others_counted() -> None:
    document = small_document() | {f"key{index}": 1 for index in range(20_000)}
    began = time.process_time()
    problems = problems_of(document)
    assert time.process_time() - began < 2
    assert len(problems) == MOST_OF_A_KIND + 1
    assert problems["numawise:cluster"] == f"has {20_000 - MOST_OF_A_KIND:,} more problems of this kind"


def test_other_sections_are_told_beside_one_with_many_problems() -> None:
    document = with_change("models[0].env", {f"a {index}=": "x" for index in range(1000)})
    document["nodePools"][0]["nodess"] = 1
    problems = problems_of(document)
    assert "nodePools[0].nodess" in problems and "models[0].env" in problems and len(problems) == MOST_OF_A_KIND + 2


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (float("nan"), "nan is no finite number"),
        (float("inf"), "inf is no finite number"),
        (yaml.safe_load("2026-01-31"), "is a date to YAML; write it in quotes"),
        (yaml.safe_load("2026-01-31 12:00:00"), "is a datetime to YAML"),
        (b"\x00\xff", "is a bytes to YAML"),
        ({1, 2}, "is a set to YAML"),
        (10**30, "at most 64 bits"),
        pytest.param(16**5000, "a number of 6,021 digits is out of range", id="huge"),
        ("half \ud83d", "holds half a character"),
        ({3: 4}, "3 is no string to YAML; write the key in quotes"),
        ({True: 4}, "True is no string to YAML"),
        ({None: 4}, "None is no string to YAML"),
    ],
)
@pytest.mark.parametrize("place", ["models[0].modelConfig.x", "models[0].engineArgs.x", "nodePools[0].kubelet.x"])
def test_a_value_that_json_does_not_know_is_named_wherever_it_stands(place: str, value: object, said: str) -> None:
    problems = problems_of(with_change(place, value))
    assert any(path.startswith(place) and said in message for path, message in problems.items()), problems


LONG = "x" * 100_000


@pytest.mark.parametrize(
    "path",
    [
        "models[0].name", "models[0].namespace", "models[0].replicas", "models[0].gpuMemoryUtilization", "models[0].image",
        "models[0].resources.cpu", "models[0].resources.memory", "models[0].sharedMemory", "models[0].podAntiAffinity",
        "models[0].storage.existingClaim", "models[0].storage.mountPath", "models[0].storage.modelPath", "models[0].storage", "nodePools[0].platform",
        "nodePools[0].nodeNames", "nodePools[0].labels", "nodePools[0].taints", "kubernetesVersion", "namespace", "images.mirror", "connection.context.x",
        LONG, f"models[0].{LONG}", f"nodePools[0].{LONG}",
    ],
    ids=lambda path: path[:40],
)  # fmt: skip
@pytest.mark.parametrize(
    "value", [LONG, [LONG], {LONG: LONG}, pytest.param(16**5000, id="huge"), [[16**5000]]], ids=lambda value: type(value).__name__
)
def test_a_value_is_echoed_in_a_line_whatever_its_size(path: str, value: object) -> None:
    for where, message in problems_of(with_change(path, value)).items():
        assert len(where) < 200 and len(message) < 600, (where, message)


@pytest.mark.parametrize(
    ("path", "value", "where", "said"),
    [
        ("models[0].resources.cpu", 0, "models[0].resources.cpu", "cannot serve"),
        ("models[0].resources.cpu", "0m", "models[0].resources.cpu", "cannot serve"),
        ("models[0].resources.memory", "0Gi", "models[0].resources.memory", "cannot serve"),
        *(
            ("models[0].storage.mountPath", mount, "models[0].storage.mountPath", "is '/")
            for mount in (
                "/", "//", "/dev/shm", "/dev/shm/", "/dev/shm/models", "/dev", "/proc", "/sys/kernel", "/etc/numawise", "/usr", "/opt/rocm", "/var", "/models/../etc",
                "/models//x", "/./models", "/cache", "/models:ro", "/mod\nels", "/" + "x" * 4096,
            )
        ),
        ("models[0].storage.mountPath", "models", "models[0].storage.mountPath", "has to be absolute"),
        ("models[0].storage.modelPath", "../x", "models[0].storage.modelPath", "relative to mountPath"),
        ("models[0].storage.modelPath", "", "models[0].storage.modelPath", "a path of at most"),
        ("models[0].strategy", {"maxSurge": 0, "maxUnavailable": 0}, "models[0].strategy.maxUnavailable", "no update could ever begin"),
        ("nodePools[0].taints", [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule", "value": "b"}], "nodePools[0].taints[1]", "a second NoSchedule taint of a"),
        ("nodePools[0].nodes", 3, "nodePools[0].nodes", "is 3, but nodeNames has 2 names"),
        ("nodePools[0].nodes", 10**7, "nodePools[0].nodes", "less than or equal to 100000"),
        ("nodePools[0].nodeNames", ["a", "a"], "nodePools[0].nodeNames", "names a twice"),
        ("nodePools[0].topology", {"sku": "h100", "numaNodes": [{"cpus": "0-99999", "memory": "1Gi"}]}, "nodePools[0].topology.numaNodes[0].cpus", "CPUs 0 to 8191"),
        ("models[0].model", None, "models[0].model", "name the model"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_work_is_named_at_its_own_path(path: str, value: object, where: str, said: str) -> None:
    assert said in problems_of(with_change(path, value))[where]


@pytest.mark.parametrize(
    "mount", ["/models", "/models/", "/opt/models", "/var/lib/models", "/data/a.b/c", "/development", "/etcetera", "/mnt/ä"]
)
def test_a_folder_of_its_own_takes_the_weights(mount: str) -> None:
    parse_cluster_document(with_change("models[0].storage.mountPath", mount))


def test_taints_differ_by_key_or_effect() -> None:
    taints = [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"}, {"key": "b", "effect": "NoSchedule"}]
    assert len(parse_cluster_document(with_change("nodePools[0].taints", taints)).node_pools[0].taints) == 3


def test_nodes_are_counted_over_all_pools() -> None:
    document = small_document()
    document["nodePools"] += [{"name": f"p{index}", "nodeShape": "dgx-h100", "nodes": 60_000} for index in range(2)]
    assert "makes 120,002 nodes of the stack" in problems_of(document)["nodePools[2].nodes"]

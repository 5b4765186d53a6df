from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.errors import ConfigError
from infra.plan.model import ClusterPlan
from infra.render import files
from infra.render.files import INDEX, as_yaml, write_files
from infra.render.parts import manifests_of, stack_parts
from tests.support.builders import STACK, cluster_plan, pool_plan

PLAN = cluster_plan(create=True)


def rendered_files(plan: ClusterPlan, *, secrets: tuple[str, ...] = ()) -> dict[str, str]:
    return files.rendered_files(plan, stack=STACK, secrets=secrets)


def objects(rendered: dict[str, str]) -> list[dict[str, Any]]:
    return [yaml.safe_load(content) for name, content in rendered.items() if name.endswith(".yaml")]


def test_every_object_has_a_file_of_its_own_and_reads_back_unchanged() -> None:
    rendered = {(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]): o for o in objects(rendered_files(PLAN))}
    expected = {
        (o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]): o for o in manifests_of(stack_parts(PLAN, stack=STACK))
    }
    assert rendered == expected


def test_the_order_of_file_names_is_an_order_to_apply_in() -> None:
    names = list(rendered_files(PLAN))
    assert names == sorted(names)
    ordered = [yaml.safe_load(content) for name, content in rendered_files(PLAN).items() if name.endswith(".yaml")]
    assert [manifest["kind"] for manifest in ordered[:2]] == ["Namespace", "Namespace"]
    seen: set[tuple[str, str]] = set()
    for manifest in ordered:
        seen.add((manifest["kind"], manifest["metadata"]["name"]))
        pod = manifest.get("spec", {}).get("template", {}).get("spec", {})
        wanted = [("ConfigMap", volume["configMap"]["name"]) for volume in pod.get("volumes", []) if "configMap" in volume]
        wanted += [("ServiceAccount", pod["serviceAccountName"])] if pod else []
        assert set(wanted) <= seen, f"{manifest['kind']} {manifest['metadata']['name']} comes before what its pods need"


def test_rendering_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    write_files(rendered_files(PLAN), tmp_path / "a")
    write_files(rendered_files(PLAN), tmp_path / "b")
    for path in sorted((tmp_path / "a").rglob("*")):
        if path.is_file():
            assert path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes()


def test_a_second_run_changes_nothing(tmp_path: Path) -> None:
    first = write_files(rendered_files(PLAN), tmp_path)
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.yaml")}
    second = write_files(rendered_files(PLAN), tmp_path)
    assert first.changed == len(rendered_files(PLAN))
    assert (second.changed, second.removed) == (0, ())
    assert times == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.yaml")}


def test_what_is_no_longer_rendered_is_removed_and_what_is_not_ours_stays(tmp_path: Path) -> None:
    write_files(rendered_files(PLAN), tmp_path)
    (tmp_path / "kustomization.yaml").write_text("resources: []\n")
    outcome = write_files(rendered_files(cluster_plan(models=PLAN.models[:1])), tmp_path)
    assert all("qwen-72b" in name or "namespace-inference" in name for name in outcome.removed)
    assert len(outcome.removed) == 6
    assert not list(tmp_path.glob("*qwen*"))
    assert (tmp_path / "kustomization.yaml").read_text() == "resources: []\n"


def test_a_stale_file_that_somebody_edited_stays(tmp_path: Path) -> None:
    write_files(rendered_files(PLAN), tmp_path)
    edited = next(tmp_path.glob("*deployment-qwen-72b.yaml"))
    edited.write_text("mine now\n")
    assert edited.name not in write_files(rendered_files(cluster_plan(models=PLAN.models[:1])), tmp_path).removed
    assert edited.read_text() == "mine now\n"


def test_a_foreign_file_of_the_same_name_is_not_overwritten(tmp_path: Path) -> None:
    name = next(iter(rendered_files(PLAN)))
    (tmp_path / name).write_text("somebody else's\n")
    with pytest.raises(ConfigError, match=rf"--out: {tmp_path} holds {name}, which render did not write"):
        write_files(rendered_files(PLAN), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_file_where_a_folder_is_wanted_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(ConfigError, match="is a file; name a folder"):
        write_files({}, tmp_path / "out")


@pytest.mark.parametrize("index", ["{", "[]", '{"../outside.txt": "x"}', '{"/etc/hosts": "x"}'])
def test_a_broken_or_foreign_index_removes_nothing_outside(tmp_path: Path, index: str) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (tmp_path / "outside.txt").write_text("x")
    (folder / INDEX).write_text(index)
    assert write_files(rendered_files(PLAN), folder).removed == ()
    assert (tmp_path / "outside.txt").exists()


@pytest.mark.parametrize("text", ["12e45678", "0o17", "1_000", "9be04417aa21", "123", "yes", "no", "null", "1.37", "", "a: b"])
def test_strings_stay_strings_for_every_yaml_reader(text: str) -> None:
    written = as_yaml({"value": text})
    assert yaml.safe_load(written) == {"value": text}
    if text[:1].isdigit():
        assert "'" in written, "other readers take more spellings for numbers than PyYAML does"


def test_node_labels_are_commands_and_no_objects() -> None:
    text = rendered_files(PLAN)["node-labels.txt"]
    assert (
        f"kubectl label node gpu-a --overwrite numawise.dev/kubelet-config={PLAN.pool('h100').kubelet.config_hash} numawise.dev/pool=h100\n"
        in text
    )
    assert text.count("kubectl label node") == 3
    assert not [o for o in objects(rendered_files(PLAN)) if o["kind"] == "Node"]


def test_secrets_are_commands_without_values_and_only_where_there_are_some() -> None:
    assert "secrets.txt" not in rendered_files(PLAN)
    text = rendered_files(PLAN, secrets=("api-key",))["secrets.txt"]
    assert "kubectl create secret generic llama-70b-credentials --namespace inference --from-literal=api-key=...\n" in text


def test_kubectl_finds_nothing_but_objects_in_the_folder(tmp_path: Path) -> None:
    """`kubectl apply -f DIR` reads every .yaml, .yml and .json file, hidden ones too."""
    write_files(rendered_files(PLAN, secrets=("api-key",)), tmp_path)
    for path in (path for path in tmp_path.iterdir() if path.suffix in (".yaml", ".yml", ".json")):
        assert {"apiVersion", "kind", "metadata"} <= set(yaml.safe_load(path.read_text()))


def test_nodes_planned_by_count_alone_have_no_label_command() -> None:
    plan = cluster_plan(node_pools=(pool_plan("h100", names_given=False),), models=())
    lines = rendered_files(plan)["node-labels.txt"].splitlines()
    assert not [line for line in lines if line.startswith("kubectl")]


def test_a_pool_without_names_and_selector_says_which_label_its_nodes_need() -> None:
    plan = cluster_plan(node_pools=(pool_plan("h100", names_given=False, selector={}),), models=())
    assert (
        "# Pool h100 is planned by count alone (2 nodes): each of its nodes needs numawise.dev/pool=h100"
        in rendered_files(plan)["node-labels.txt"]
    )


def test_the_kubelet_drop_in_is_one_that_the_kubelet_reads() -> None:
    name = "kubelet/90-numawise-h100.conf"
    document = yaml.safe_load(rendered_files(PLAN)[name])
    assert (document["apiVersion"], document["kind"]) == ("kubelet.config.k8s.io/v1beta1", "KubeletConfiguration")
    assert {key: document[key] for key in document if key not in ("apiVersion", "kind")} == dict(PLAN.pool("h100").kubelet.drop_in)


def test_three_foreign_files_are_named_and_more_are_others(tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / name).write_text("mine")
    rendered = dict.fromkeys("abcd", "x")
    with pytest.raises(ConfigError, match="holds a, b, c and others, which render"):
        write_files(rendered, tmp_path)
    with pytest.raises(ConfigError, match="holds a, b, c, which render"):
        write_files(dict.fromkeys("abc", "x"), tmp_path)


def test_a_foreign_file_with_the_very_content_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    assert write_files({"a": "x"}, tmp_path).changed == 0
    assert write_files({}, tmp_path).removed == ("a",)


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "sub").write_text("a file where a folder is needed")
    with pytest.raises(ConfigError, match="sub cannot be written"):
        write_files({"sub/a": "x"}, tmp_path)


def test_an_empty_rendering_leaves_an_empty_index(tmp_path: Path) -> None:
    write_files({}, tmp_path / "new" / "folder")
    assert (tmp_path / "new" / "folder" / INDEX).read_text() == "{}\n"


def test_the_index_names_each_file_with_its_hash_a_line_each(tmp_path: Path) -> None:
    write_files({"b": "", "a": ""}, tmp_path)
    empty = hashlib.sha256(b"").hexdigest()
    assert (tmp_path / INDEX).read_text() == f'{{\n "a": "{empty}",\n "b": "{empty}"\n}}\n'


def test_secrets_without_models_need_no_commands() -> None:
    assert "secrets.txt" not in rendered_files(cluster_plan(models=()), secrets=("api-key",))


def test_file_names_tell_depth_and_kind_and_the_namespace_where_there_is_one() -> None:
    names = list(rendered_files(PLAN))
    assert "10-namespace-inference.yaml" in names
    assert "21-numawise-system-serviceaccount-numawise-guard.yaml" in names
    assert "25-numawise-system-daemonset-nvidia-device-plugin-h100.yaml" in names
    assert "36-inference-deployment-llama-70b.yaml" in names

"""The whole program, from the stack's configuration to its outputs, against a cluster that is a test's own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml

from components import program
from components.settings import load_settings
from infra.diagnosis import Diagnosis
from infra.errors import CheckError
from infra.kinds import ObjectKey
from infra.render.labels import CHECKSUM, CREDENTIALS_CHECKSUM
from infra.render.serving.earlier_forms import Kept
from tests.support.declare import kubeconfig_in
from tests.support.documents import small_document, with_change
from tests.support.monitor import Run, run_program


@pytest.fixture
def quiet_cluster(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The look at the cluster finds nothing; keeps the clients that it was given."""
    seen: list[Any] = []

    def look(settings: Any, plan: Any, client: Any, before: Any) -> program.Found:
        seen.append(client)
        return program.Found(plan=plan)

    monkeypatch.setattr(program, "look_at_cluster", look)
    return seen


def deploy(document: Mapping[str, Any] | None, *, secret_keys: tuple[str, ...] = (), **config: str) -> Run:
    values = {f"numawise:{key}": value for key, value in config.items()}
    if document is not None:
        values["numawise:cluster"] = json.dumps(document)
    return run_program(program.deploy, config=values, secret_keys=secret_keys)


def connected(folder: Path, document: dict[str, Any] | None = None) -> dict[str, Any]:
    path = kubeconfig_in(folder).kubeconfig
    return {**(document or small_document()), "connection": {"kubeconfig": path}}


def test_a_stack_exports_its_plan_endpoints_models_and_pools(tmp_path: Path, quiet_cluster: list[Any]) -> None:
    outputs = deploy(connected(tmp_path)).stack_outputs
    assert set(outputs) == {"plan", "endpoints", "models", "nodePools", "cluster", "releasedNodes"}
    assert outputs["endpoints"]["llama-70b"] == {
        "namespace": "inference",
        "service": "llama-70b",
        "port": 8000,
        "servedModelName": outputs["endpoints"]["llama-70b"]["servedModelName"],
        "url": "http://llama-70b.inference.svc:8000/v1",
    }
    assert outputs["models"]["llama-70b"]["tensorParallelSize"] == 4
    assert outputs["nodePools"]["h100"]["kubelet"]["cpuManagerPolicy"] == "static"
    assert outputs["plan"]["stack"] == "local"
    assert len(quiet_cluster) == 1


def refused(document: Mapping[str, Any] | None, **options: Any) -> str:
    with pytest.raises(pulumi.RunError) as caught:
        deploy(document, **options)
    return str(caught.value)


def test_all_problems_of_the_document_come_at_once_as_sentences() -> None:
    document = with_change("models[0].replicas", -1) | {"surprise": 1}
    text = refused(document)
    assert text.startswith("2 problems:\n")
    assert "models[0].replicas:" in text
    assert "surprise: is no known key" in text


def test_a_plan_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    text = refused(connected(tmp_path, with_change("models[0].tensorParallelSize", 3)))
    assert "models[0].tensorParallelSize" in text


def test_no_document_names_the_key_and_the_file() -> None:
    text = refused(None)
    assert "numawise:cluster: is missing in stacks/Pulumi.local.yaml" in text


def test_a_secret_inside_the_document_is_refused(tmp_path: Path) -> None:
    text = refused(connected(tmp_path), secret_keys=("numawise:cluster",))
    assert "numawise:cluster: holds a secret; make it a key of its own" in text


def test_a_missing_kubeconfig_names_the_path_and_the_way_out(tmp_path: Path) -> None:
    document = {**small_document(), "connection": {"kubeconfig": str(tmp_path / "nowhere")}}
    text = refused(document)
    assert f"connection.kubeconfig: there is no file {tmp_path}/nowhere" in text
    assert "make up" in text


def test_kubeconfig_is_never_taken_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig_in(tmp_path).kubeconfig))
    assert "connection: is missing" in refused(small_document())


def test_what_contradicts_the_cluster_ends_the_program_before_anything_is_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def contradict(settings: Any, plan: Any, client: Any, before: Any) -> None:
        raise CheckError.one("UnknownNode", "nodePools[0].nodeNames[0]", "gpu-a is no node of the cluster.")

    monkeypatch.setattr(program, "look_at_cluster", contradict)
    assert "nodePools[0].nodeNames[0]: gpu-a is no node of the cluster." in refused(connected(tmp_path))


def test_secrets_of_the_stack_reach_the_models_secret(tmp_path: Path, quiet_cluster: list[Any]) -> None:
    run = deploy(connected(tmp_path), secret_keys=("numawise:apiKey",), apiKey="open sesame")
    secret = run.one("core/v1:Secret", "llama-70b-secret")
    assert secret.inputs["stringData"] == {"api-key": "open sesame"}
    assert "stringData" in secret.secret_inputs


def test_another_stacks_kubeconfig_is_looked_at_and_handed_on_as_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet_cluster: list[Any]
) -> None:
    text = Path(str(kubeconfig_in(tmp_path).kubeconfig)).read_text()
    document = {**small_document(), "connection": {"kubeconfig": {"stack": "org/infra/prod"}}}
    run = run_program(program.deploy, config={"numawise:cluster": json.dumps(document)}, stack_outputs={"kubeconfig": text})
    provider = run.one("providers:kubernetes", "kubernetes")
    assert provider.inputs["kubeconfig"] == text
    assert "kubeconfig" in provider.secret_inputs
    assert len(quiet_cluster) == 1
    assert "not-a-real-token" not in json.dumps([r.inputs for r in run.resources if r is not provider])


def test_a_kubeconfig_that_is_exported_as_an_object_is_handed_on_as_text(tmp_path: Path, quiet_cluster: list[Any]) -> None:
    content = yaml.safe_load(Path(str(kubeconfig_in(tmp_path).kubeconfig)).read_text())
    document = {**small_document(), "connection": {"kubeconfig": {"stack": "org/infra/prod"}}}
    run = run_program(program.deploy, config={"numawise:cluster": json.dumps(document)}, stack_outputs={"kubeconfig": content})
    provider = run.one("providers:kubernetes", "kubernetes")
    assert json.loads(provider.inputs["kubeconfig"]) == content
    assert quiet_cluster[0].server == "https://127.0.0.1:1"


@pytest.mark.parametrize("content", [7, ["a"], "no: kubeconfig", "a: [", {"contexts": 5}])
def test_an_output_that_is_no_kubeconfig_is_a_sentence(quiet_cluster: list[Any], content: Any) -> None:
    document = {**small_document(), "connection": {"kubeconfig": {"stack": "org/infra/prod"}}}
    with pytest.raises(pulumi.RunError, match=r"connection\..*output kubeconfig of stack org/infra/prod"):
        run_program(program.deploy, config={"numawise:cluster": json.dumps(document)}, stack_outputs={"kubeconfig": content})


def test_a_contradicted_cluster_of_another_stack_ends_the_program_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def contradict(settings: Any, plan: Any, client: Any, before: Any) -> None:
        raise CheckError.one("UnknownNode", "nodePools[0].nodeNames[0]", "gpu-a is no node of the cluster.")

    monkeypatch.setattr(program, "look_at_cluster", contradict)
    text = Path(str(kubeconfig_in(tmp_path).kubeconfig)).read_text()
    document = {**small_document(), "connection": {"kubeconfig": {"stack": "org/infra/prod"}}}
    with pytest.raises(pulumi.RunError, match="gpu-a is no node"):
        run_program(program.deploy, config={"numawise:cluster": json.dumps(document)}, stack_outputs={"kubeconfig": text})


def test_a_workload_that_keeps_earlier_forms_is_declared_with_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    template = {"metadata": {"labels": {}, "annotations": {CHECKSUM: "1"}}, "spec": {"containers": []}}
    key = ObjectKey(kind="Deployment", namespace="inference", name="llama-70b")
    metadata = {"name": key.name, "namespace": key.namespace, "labels": {}}
    manifest = {"apiVersion": "apps/v1", "kind": key.kind, "metadata": metadata, "spec": {"template": template}}
    kept = Kept(key=key, manifest=manifest, why=Diagnosis.info("models[0]", "KeepsEarlierForm", "keeps"))
    monkeypatch.setattr(program, "look_at_cluster", lambda settings, plan, client, before: program.Found(plan=plan, kept=(kept,)))
    run = deploy(connected(tmp_path), secret_keys=("numawise:apiKey",), apiKey="open sesame")
    declared = run.one("apps/v1:Deployment", "llama-70b-deployment").inputs["spec"]["template"]
    assert set(declared["metadata"]["annotations"]) == {CHECKSUM, CREDENTIALS_CHECKSUM}
    assert declared["spec"] == {"containers": []}


def test_the_checksum_that_workloads_are_compared_by_is_the_one_that_they_carry(
    tmp_path: Path, quiet_cluster: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    known: list[str] = []

    def settings() -> Any:
        loaded = load_settings()
        known.append(loaded.credentials)
        return loaded

    monkeypatch.setattr(program, "load_settings", settings)
    keys = {"apiKey": "open sesame", "hubToken": "hf_not_one"}
    run = deploy(connected(tmp_path), secret_keys=tuple(f"numawise:{key}" for key in keys), **keys)
    annotations = run.one("apps/v1:Deployment", "llama-70b-deployment").inputs["spec"]["template"]["metadata"]["annotations"]
    assert known == [annotations[CREDENTIALS_CHECKSUM]]
    deploy(connected(tmp_path))
    assert known[1] == ""

"""What the manager says and refuses without a cluster."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tools.cluster import cluster as cluster_module
from tools.cluster import host
from tools.cluster.__main__ import main
from tools.cluster.content import claim_manifests, reported_since
from tools.cluster.control_plane import certificate_requests, commands, kubeconfig
from tools.cluster.layout import Layout, node_address, pod_prefix

PROGRAMS = {name: Path("/programs") / name for name in cluster_module.PROGRAM_NAMES}


def test_every_node_has_an_identity_of_its_own() -> None:
    requests = {request["name"]: request for request in certificate_requests(["gpu-a", "gpu-b"])}
    assert requests["node-gpu-b"]["user"] == "system:node:gpu-b"
    assert requests["node-gpu-b"]["groups"] == ["system:nodes"]
    assert requests["node-gpu-b"]["ips"] == ["172.30.1.2"]
    assert [request["name"] for request in requests.values() if "system:masters" in request.get("groups", [])] == ["admin"]


def test_the_api_server_authorizes_nodes_and_restricts_them(tmp_path: Path) -> None:
    words = commands(Layout(tmp_path), PROGRAMS)["kube-apiserver"]
    assert "--authorization-mode=Node,RBAC" in words
    assert "--enable-admission-plugins=NodeRestriction,PodSecurity" in words
    assert "--kubelet-preferred-address-types=InternalIP" in words


def test_all_command_lines_carry_the_state_folder(tmp_path: Path) -> None:
    for name, words in commands(Layout(tmp_path), PROGRAMS).items():
        assert any(str(tmp_path) in word for word in words), name


def test_addresses_of_nodes_and_their_pods_do_not_overlap() -> None:
    assert node_address(0) == "172.30.1.1"
    assert node_address(249) == "172.30.1.250"
    assert {pod_prefix(index) for index in (0, 249)} == {"10.244.1.0/24", "10.244.250.0/24"}


def test_two_state_folders_have_different_control_groups(tmp_path: Path) -> None:
    assert Layout(tmp_path / "a").control_group("gpu-a") != Layout(tmp_path / "b").control_group("gpu-a")


def test_the_kubeconfig_has_the_context_that_stacks_name() -> None:
    document = json.loads(kubeconfig("https://127.0.0.1:1", "ca", "crt", "key"))
    assert document["current-context"] == "numawise-local"
    assert document["contexts"][0]["context"] == {"cluster": "numawise-local", "user": "numawise-local"}


def test_a_claim_and_its_volume_name_each_other() -> None:
    (_, volume), (path, claim) = claim_manifests({"namespace": "inference", "name": "models", "storage": "1Ti"})
    assert path == "/api/v1/namespaces/inference/persistentvolumeclaims/models"
    assert claim["spec"]["volumeName"] == volume["metadata"]["name"]
    assert volume["spec"]["claimRef"]["name"] == "models"
    assert volume["spec"]["accessModes"] == claim["spec"]["accessModes"] == ["ReadWriteMany"]


def test_without_root_it_says_how_to_use_another_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(host.os, "geteuid", lambda: 1000)
    assert main(["--state", str(tmp_path), "down"]) == 3
    said = capsys.readouterr().err
    assert "needs root" in said and "cluster of your own" in said and said.count("\n") == 1


def test_another_system_than_linux_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(host.platform, "system", lambda: "Darwin")
    assert main(["--state", str(tmp_path), "down"]) == 3
    assert "needs Linux, this is Darwin" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["up", "--nodes", "/nonexistent.json"], 2, "cannot be read"),
        (["up"], 2, "give a machine set with --nodes FILE"),
        (["node", "restart", "gpu-a"], 2, "no cluster was started here"),
        (["enter", "--"], 2, "give a command after --"),
        (["status"], 1, ""),
    ],
)
def test_commands_without_a_cluster_say_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], status: int, message: str
) -> None:
    assert main(["--state", str(tmp_path / "state"), *words]) == status
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err


def test_the_inotify_limit_is_raised_only_where_it_is_too_low(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "max_user_instances"
    monkeypatch.setattr(host, "INOTIFY_INSTANCES", limit)
    said: list[str] = []
    limit.write_text("128\n")
    host.allow_watches(said.append)
    assert limit.read_text() == "4096" and "from 128 to 4096" in said[0]
    limit.write_text("65536\n")
    host.allow_watches(said.append)
    assert limit.read_text() == "65536\n" and len(said) == 1


def test_the_last_reason_of_a_kubelet_counts_and_not_its_harmless_errors() -> None:
    log = "\n".join(
        [
            'E1129 22:08:26.435633     544 run.go:72] "command failed" err="an older reason"',
            'I1129 22:18:08.000000     125 server.go:545] "Kubelet version" kubeletVersion="v1.37.2"',
            'E1129 22:18:08.134560     125 server.go:1332] "Failed to set rlimit on max file handles"',
            'E1129 22:18:08.167505     125 kubelet.go:1850] "Failed to start ContainerManager" err="the expected machine state is different"',
            'E1129 22:18:09.134560     126 server.go:1332] "Failed to set rlimit on max file handles"',
        ]
    )
    (reason,) = cluster_module.why_ended(log)
    assert "the expected machine state is different" in reason
    assert len(cluster_module.why_ended(log.splitlines()[2])) == 1
    assert cluster_module.why_ended("") == []


def test_only_a_report_of_the_running_kubelet_counts() -> None:
    def stamp(seconds: float) -> str:
        return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    started = float(int(time.time())) + 0.4
    assert not reported_since(stamp(started - 1), started)
    assert not reported_since(stamp(started), started)
    assert reported_since(stamp(started + 1), started)
    assert reported_since(stamp(started - 60), started - 60)

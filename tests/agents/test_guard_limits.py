"""The guard at its limits: seconds of a storm, of a pause and of forgetting; its loop, its calls and its usage."""

from __future__ import annotations

import json
import ssl
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from infra.agents import guard

NOW = 1_800_000_000.0
LABEL = "numawise.dev/kubelet-config"
PLAN = {
    "label": LABEL,
    "stack": "local",
    "fieldManager": "numawise-local",
    "namespaces": ["inference", "chat"],
    "nodes": {"gpu-a": {"resource": "nvidia.com/gpu", "devices": 8, "labels": {LABEL: "abc"}}},
}


def pod(age: float, name: str = "p") -> dict[str, Any]:
    created = datetime.fromtimestamp(NOW - age, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "metadata": {"namespace": "inference", "name": name, "creationTimestamp": created},
        "spec": {"nodeName": "gpu-a"},
        "status": {"phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected: no CPUs"},
    }


def node(*, labelled: bool, note: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "metadata": {
            "labels": {LABEL: "abc"} if labelled else {},
            "annotations": {} if note is None else {guard.PAUSED: json.dumps(note)},
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"nvidia.com/gpu": "8"}},
    }


def changes(pods: list[dict[str, Any]], of: dict[str, Any]) -> Any:
    return guard.decide(PLAN, {"gpu-a": of}, pods, NOW)[0]


@pytest.mark.parametrize(("age", "storm"), [(60, True), (61, False)])
def test_a_storm_counts_the_pods_of_the_last_sixty_seconds(age: int, storm: bool) -> None:
    assert bool(changes([pod(age)] * 3, node(labelled=True))) == storm


@pytest.mark.parametrize(("quiet", "storms"), [(3600, 6), (3601, 1)])
def test_a_node_is_forgiven_after_more_than_an_hour(quiet: int, storms: int) -> None:
    change = changes([pod(1)] * 3, node(labelled=True, note={"until": NOW - quiet, "storms": 5}))
    assert json.loads(change["gpu-a"]["patch"]["annotations"][guard.PAUSED])["storms"] == storms


def test_the_first_pause_lasts_a_minute() -> None:
    note = json.loads(changes([pod(1)] * 3, node(labelled=True))["gpu-a"]["patch"]["annotations"][guard.PAUSED])
    assert note == {"until": NOW + 60, "storms": 1, "reason": "OutOfcpu"}


@pytest.mark.parametrize(("until", "back"), [(NOW, True), (NOW + 1, False)])
def test_the_label_comes_back_in_the_second_in_which_the_pause_ends(until: float, back: bool) -> None:
    assert bool(changes([], node(labelled=False, note={"until": until, "storms": 1}))) == back


class Calls:
    """Two refused pods on a node that is left alone."""

    def __init__(self, pods: int) -> None:
        self.pods = [pod(1, f"p{i}") for i in range(pods)]

    def call(self, method: str, path: str, *_: Any) -> Any:
        return node(labelled=False)

    def failed_pods(self, namespace: str, stack: str) -> Any:
        return self.pods if namespace == "inference" else []


@pytest.mark.parametrize(("pods", "sentence"), [(1, []), (2, ["deleted 1 refused pod"]), (3, ["deleted 2 refused pods"])])
def test_deleted_pods_are_counted(pods: int, sentence: list[str]) -> None:
    messages: list[str] = []
    guard.run_once(PLAN, Calls(pods), NOW, messages.append)
    assert messages == sentence


def test_without_a_plan_it_tells_its_usage(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["guard.py"], ["guard.py", "a", "b"]):
        monkeypatch.setattr(sys, "argv", arguments)
        assert guard.main() == 2
        assert capsys.readouterr().err == "numawise guard: usage: guard.py PLAN.json\n"


class Stopped(Exception):
    pass


def test_its_loop_looks_every_five_seconds_and_goes_on_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            raise Stopped

    def fail(*_: Any) -> None:
        raise OSError("timed out")

    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    monkeypatch.setattr(sys, "argv", ["guard.py", str(tmp_path / "plan.json")])
    monkeypatch.setattr(guard, "in_cluster", lambda: None)
    monkeypatch.setattr(guard, "run_once", fail)
    monkeypatch.setattr(guard.time, "sleep", sleep)
    with pytest.raises(Stopped):
        guard.main()
    assert slept == [5, 5]
    assert capsys.readouterr().err.splitlines() == [
        "numawise guard: watching 1 nodes and namespaces inference, chat",
        *["numawise guard: the API server could not be asked: timed out"] * 2,
    ]


@pytest.mark.parametrize(("host", "url"), [("10.0.0.1", "https://10.0.0.1:443/x"), ("fd00::1", "https://[fd00::1]:443/x")])
def test_it_calls_the_api_server_of_its_pod_with_its_token_and_a_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, url: str
) -> None:
    (tmp_path / "token").write_text("secret\n")
    monkeypatch.setattr(guard, "_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(ssl, "create_default_context", lambda cafile: cafile)
    seen: list[Any] = []

    class Response:
        def __enter__(self) -> Response:
            return self

        def __exit__(self, *_: Any) -> None:
            pass

        def read(self) -> bytes:
            return b"{}"

    def urlopen(request: Any, *, timeout: float, context: Any) -> Response:
        seen.append((request.full_url, request.get_header("Authorization"), timeout, context))
        return Response()

    monkeypatch.setattr(guard.urllib.request, "urlopen", urlopen)
    assert guard.in_cluster().call("GET", "/x") == {}
    assert seen == [(url, "Bearer secret", 30, str(tmp_path / "ca.crt"))]

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from infra.agents import guard
from infra.observe import refused
from infra.plan.model import ClusterPlan
from infra.render.guard import guard_part
from infra.render.manifest import Manifest
from tests.support.builders import STACK, cluster_plan, pool_plan

NOW = 1_800_000_000.0


def refusal_guard(plan: ClusterPlan) -> tuple[Manifest, ...]:
    return tuple(child.manifest for child in guard_part(plan, stack=STACK).children)


LABEL = "numawise.dev/kubelet-config"
PLAN = json.loads(next(m for m in refusal_guard(cluster_plan()) if m["kind"] == "ConfigMap")["data"]["plan.json"])


def at(seconds: float) -> str:
    return datetime.fromtimestamp(NOW + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(
    number: int,
    *,
    node: str = "gpu-a",
    age: float = 1,
    reason: str = "TopologyAffinityError",
    phase: str = "Failed",
    message: str = "Pod was rejected: no locality",
) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "inference", "name": f"llama-{number}", "creationTimestamp": at(-age)},
        "spec": {"nodeName": node},
        "status": {"phase": phase, "reason": reason, "message": message},
    }


def node(
    name: str = "gpu-a", *, labelled: bool = True, note: Any = None, is_ready: bool = True, devices: int = 8
) -> dict[str, Any]:
    labels = {"kubernetes.io/hostname": name, **PLAN["nodes"][name]["labels"]}
    if not labelled:
        del labels[LABEL]
    annotations = {} if note is None else {guard.PAUSED: note if isinstance(note, str) else json.dumps(note)}
    return {
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "status": {"conditions": [{"type": "Ready", "status": str(is_ready)}], "allocatable": {"nvidia.com/gpu": str(devices)}},
    }


def decide(pods: list[dict[str, Any]], *nodes: dict[str, Any], now: float = NOW) -> tuple[Any, Any, Any]:
    return guard.decide(PLAN, {n["metadata"]["name"]: n for n in nodes or (node(),)}, pods, now)


def test_a_storm_takes_the_node_out_of_the_models_reach_and_keeps_one_pod_as_evidence() -> None:
    changes, deletions, messages = decide([pod(i, age=10 - i) for i in range(5)])
    assert changes["gpu-a"]["patch"]["labels"] == {LABEL: None}
    assert deletions == [("inference", f"llama-{i}") for i in range(4)]
    assert messages == ["gpu-a refused 5 pods in 60 s (TopologyAffinityError): no model pod goes there for 60 s"]


def test_two_refusals_are_no_storm() -> None:
    changes, deletions, messages = decide([pod(0, age=3), pod(1, age=1)])
    assert (changes, messages) == ({}, [])
    assert deletions == [("inference", "llama-0")]


def test_refusals_of_long_ago_are_no_storm() -> None:
    changes, deletions, _ = decide([pod(i, age=61 + i) for i in range(10)])
    assert changes == {}
    assert len(deletions) == 9


@pytest.mark.parametrize(
    "other",
    [
        {"reason": "Evicted", "message": "The node was low on resource: memory."},
        {"reason": "Terminated", "message": "Pod was terminated in response to imminent node shutdown."},
        {"message": ""},
        {"message": None},
        {"phase": "Running"},
    ],
)
def test_pods_that_failed_otherwise_are_none_of_its_business(other: Any) -> None:
    assert decide([pod(i, **other) for i in range(5)]) == ({}, [], [])


@pytest.mark.parametrize(
    "reason", ["OutOfnvidia.com/gpu", "UnexpectedAdmissionError", "SMTAlignmentError", "NodeShutdown", "Unheard"]
)
def test_every_refusal_of_a_kubelet_counts_whatever_its_reason(reason: str) -> None:
    assert "gpu-a" in decide([pod(i, reason=reason) for i in range(3)])[0]


def test_a_paused_node_is_not_paused_again_but_its_pods_are_cleaned_up() -> None:
    changes, deletions, messages = decide([pod(i) for i in range(4)], node(labelled=False, note={"until": NOW + 50, "storms": 1}))
    assert (changes, messages) == ({}, [])
    assert len(deletions) == 3


def test_the_label_comes_back_once_the_delay_is_over_and_the_devices_are_there() -> None:
    note = {"until": NOW - 1, "storms": 2}
    changes, _, messages = decide([], node(labelled=False, note=note))
    assert changes == {"gpu-a": {"labels": PLAN["nodes"]["gpu-a"]["labels"]}}
    assert messages == ["gpu-a is Ready with 8 nvidia.com/gpu: model pods may go there again"]


@pytest.mark.parametrize("state", [{"is_ready": False}, {"devices": 7}, {"devices": 0}])
def test_a_node_without_all_its_devices_stays_out_of_reach(state: dict[str, Any]) -> None:
    assert decide([], node(labelled=False, note={"until": NOW - 1, "storms": 1}, **state))[0] == {}
    assert decide([], node(labelled=False, note={"until": NOW + 1, "storms": 1}))[0] == {}


def test_a_label_that_somebody_else_took_off_is_left_off() -> None:
    assert decide([], node(labelled=False))[0] == {}
    assert decide([], node(labelled=False, note="no JSON"))[0] == {}


@pytest.mark.parametrize(("storms", "delay"), [(0, 60), (1, 120), (3, 480), (4, 900), (60, 900)])
def test_the_delay_doubles_with_every_storm_up_to_a_quarter_of_an_hour(storms: int, delay: int) -> None:
    changes, _, _ = decide([pod(i) for i in range(3)], node(note={"until": NOW - 100, "storms": storms}))
    assert json.loads(changes["gpu-a"]["patch"]["annotations"][guard.PAUSED]) == {
        "until": NOW + delay,
        "storms": storms + 1,
        "reason": "TopologyAffinityError",
    }


def test_a_node_that_kept_quiet_for_an_hour_begins_anew() -> None:
    changes, _, _ = decide([pod(i) for i in range(3)], node(note={"until": NOW - 3601, "storms": 9}))
    assert json.loads(changes["gpu-a"]["patch"]["annotations"][guard.PAUSED])["storms"] == 1


def test_a_storm_on_one_node_leaves_the_others_alone() -> None:
    changes, _, _ = decide([pod(i) for i in range(3)], node("gpu-a"), node("gpu-b"))
    assert list(changes) == ["gpu-a"]


def test_nodes_that_are_not_the_stacks_or_gone_are_left_alone() -> None:
    changes, deletions, _ = decide([pod(i, node="elsewhere") for i in range(3)])
    assert changes == {}
    assert len(deletions) == 2
    assert guard.decide(PLAN, {}, [pod(i) for i in range(3)], NOW)[0] == {}


@pytest.fixture
def server() -> Iterator[Any]:
    """A tiny API server: three nodes, refused pods, and a record of what was asked."""
    asked: list[tuple[str, str, Any, str]] = []
    pods = [pod(i) for i in range(4)]

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            asked.append((self.command, self.path, body, self.headers.get("Content-Type", "")))
            name = self.path.split("?")[0].rsplit("/", 1)[-1]
            missing = name == "gpu-c" or (self.command == "DELETE" and name == "llama-1")
            answer = {"items": pods} if name == "pods" else node("gpu-b" if name == "gpu-b" else "gpu-a")
            text = json.dumps({} if missing else answer).encode()
            self.send_response(404 if missing else 200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_PATCH = do_DELETE = _answer

        def log_message(self, format: str, *args: Any) -> None:
            pass

    running = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield guard.Api(f"http://127.0.0.1:{running.server_port}", lambda: "token", None), asked
    running.shutdown()
    thread.join()
    running.server_close()


def test_a_round_takes_the_label_off_before_it_deletes(server: Any) -> None:
    api, asked = server
    messages: list[str] = []
    guard.run_once(PLAN, api, NOW, messages.append)
    changing = [(method, path, kind) for method, path, _, kind in asked if method != "GET"]
    assert changing[0] == ("PATCH", "/api/v1/nodes/gpu-a?fieldManager=numawise-guard", "application/merge-patch+json")
    assert [path for _, path, _ in changing[1:]] == [f"/api/v1/namespaces/inference/pods/llama-{i}" for i in range(3)]
    patched = next(body for method, _, body, _ in asked if method == "PATCH")
    assert patched["metadata"]["labels"] == {LABEL: None}
    assert messages[-1] == "deleted 3 refused pods"


def test_the_label_is_put_back_under_the_engines_name(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the next update of the stack owns it, and meets no conflict where its value changes."""
    api, asked = server
    labels = PLAN["nodes"]["gpu-a"]["labels"]
    monkeypatch.setattr(guard, "decide", lambda *_: ({"gpu-a": {"labels": labels}}, [], []))
    guard.run_once(PLAN, api, NOW, lambda _: None)
    method, path, body, kind = asked[-1]
    assert (method, path) == ("PATCH", "/api/v1/nodes/gpu-a?fieldManager=numawise-local")
    assert kind == "application/apply-patch+yaml"
    assert body == {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-a", "labels": labels}}


def test_it_asks_only_for_failed_pods_of_its_own_stack(server: Any) -> None:
    api, asked = server
    guard.run_once(PLAN, api, NOW, lambda _: None)
    (path,) = [path for _, path, _, _ in asked if "/pods?" in path]
    assert path.endswith("pods?fieldSelector=status.phase%3DFailed&labelSelector=numawise.dev%2Fstack%3Dlocal")


def test_it_may_do_what_it_does_and_no_more() -> None:
    objects = refusal_guard(cluster_plan())
    (cluster_role,) = [m for m in objects if m["kind"] == "ClusterRole"]
    assert cluster_role["rules"] == [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"], "resourceNames": ["gpu-a", "gpu-b", "gpu-c"]}
    ]
    (role,) = [m for m in objects if m["kind"] == "Role"]
    assert role["metadata"]["namespace"] == "inference"
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "delete"]}]


def test_it_has_the_token_that_its_calls_need() -> None:
    spec = next(m for m in refusal_guard(cluster_plan()) if m["kind"] == "Deployment")["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is True


def test_no_guard_where_no_kubelet_would_refuse_for_topology() -> None:
    pool = pool_plan("h100", policy="best-effort")
    assert refusal_guard(cluster_plan(node_pools=(pool,), models=cluster_plan().models[:1])) == ()
    assert refusal_guard(cluster_plan(models=())) == ()


def test_it_runs_wherever_there_is_room_even_among_gpu_nodes_alone() -> None:
    spec = next(m for m in refusal_guard(cluster_plan()) if m["kind"] == "Deployment")["spec"]["template"]["spec"]
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in spec["tolerations"]
    assert {"key": "amd.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in spec["tolerations"]
    assert "@sha256:" in spec["containers"][0]["image"]


def test_it_tells_refused_pods_as_the_rest_of_the_program_does() -> None:
    assert guard.REJECTED == refused.REJECTED
    for phase in ("Failed", "Running", "Succeeded"):
        for message in ("Pod was rejected: no locality", "The node was low on resource: memory.", "", None):
            pod = {"status": {"phase": phase, "message": message}}
            assert guard.refused(pod) == refused.is_refused(pod), pod

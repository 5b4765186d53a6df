"""The kubelets' state files come from short-lived pods, which are deleted come what may."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from infra.errors import MissingError
from infra.observe.client import ApiError, Client
from infra.plan.model import ImagesPlan
from infra.verify import node_files
from infra.verify.node_files import NodeFiles, read_node_files, split_files

PODS = "/api/v1/namespaces/numawise-system/pods"
LOG = "=== numawise cpu_manager_state\n{a}\n\n=== numawise memory_manager_state\n\n=== numawise device-plugins/kubelet_internal_checkpoint\n{b}\n"


class OnePod:
    """An API server that makes one pod, whose status is the next of `phases` at each look (the last one stays)."""

    def __init__(self, *phases: Any, log: Any = LOG, refused: bool = False) -> None:
        self.phases, self.log, self.refused = list(phases), log, refused
        self.made: list[dict[str, Any]] = []
        self.deleted: list[tuple[str, Any]] = []

    def request(self, method: str, path: str, *, body: Any = None) -> Any:
        if method == "DELETE":
            self.deleted.append((path, body))
            return {}
        assert (method, path) == ("POST", PODS)
        if self.refused:
            raise ApiError(403, "violates PodSecurity")
        self.made.append(body)
        return {"metadata": {"name": "numawise-verify-x"}}

    def get(self, path: str, *, query: Any = None) -> Any:
        if path.endswith("/log"):
            assert query == {"container": "read"}
            if isinstance(self.log, Exception):
                raise self.log
            return self.log
        assert path == f"{PODS}/numawise-verify-x"
        return {"status": self.phases.pop(0) if len(self.phases) > 1 else self.phases[0]}


IMAGES = ImagesPlan(guard="python:3.14", node_reader="busybox:1.37")


def read(server: OnePod, nodes: Sequence[str] = ("gpu-a",)) -> dict[str, NodeFiles]:
    return read_node_files(cast(Client, server), tuple(nodes), "numawise-system", images=IMAGES, labels={"owner": "us"})


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that only sleeping moves: the list of all sleeps."""
    slept: list[float] = []
    monkeypatch.setattr(node_files.time, "sleep", slept.append)
    monkeypatch.setattr(node_files.time, "monotonic", lambda: sum(slept))
    return slept


def test_a_pod_that_ends_gives_each_file_that_is_there_and_is_deleted_at_once(clock: list[float]) -> None:
    server = OnePod(None, {"phase": "Running"}, {"phase": "Succeeded"})
    assert read(server) == {
        "gpu-a": NodeFiles(node="gpu-a", texts={"cpu_manager_state": "{a}", "device-plugins/kubelet_internal_checkpoint": "{b}"})
    }
    assert clock == [0.2, 0.2]
    ((path, body),) = server.deleted
    assert (path, body["gracePeriodSeconds"]) == (f"{PODS}/numawise-verify-x", 0)


def test_the_pod_is_bound_to_its_node_reads_only_and_cannot_stay() -> None:
    server = OnePod({"phase": "Succeeded"})
    read(server)
    (pod,) = server.made
    spec, (container,) = pod["spec"], pod["spec"]["containers"]
    assert pod["metadata"] == {"generateName": "numawise-verify-", "namespace": "numawise-system", "labels": {"owner": "us"}}
    assert (spec["nodeName"], spec["restartPolicy"], spec["activeDeadlineSeconds"]) == ("gpu-a", "Never", 120)
    assert (spec["automountServiceAccountToken"], spec["tolerations"]) == (False, [{"operator": "Exists"}])
    assert spec["volumes"] == [{"name": "kubelet", "hostPath": {"path": "/var/lib/kubelet", "type": "Directory"}}]
    assert container["volumeMounts"] == [{"name": "kubelet", "mountPath": "/kubelet", "readOnly": True}]
    assert container["securityContext"] == {
        "runAsUser": 0,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    for name in ("cpu_manager_state", "memory_manager_state", "device-plugins/kubelet_internal_checkpoint"):
        assert f"echo '=== numawise {name}'; cat '/kubelet/{name}' 2>/dev/null; echo" in container["command"][2]


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"phase": "Failed", "message": "no such image", "reason": "X"}, "the reader pod failed: no such image"),
        ({"phase": "Failed", "reason": "DeadlineExceeded"}, "the reader pod failed: DeadlineExceeded"),
        ({"phase": "Failed", "containerStatuses": "y" * 300}, f'the reader pod failed: "{"y" * 199}'),
    ],
)
def test_a_pod_that_fails_gives_the_reason_and_is_deleted(status: Any, why: str) -> None:
    server = OnePod(status)
    assert read(server)["gpu-a"] == NodeFiles(node="gpu-a", texts={}, why=why)
    assert len(server.deleted) == 1


def test_a_pod_that_does_not_end_is_waited_for_two_minutes_and_deleted(clock: list[float]) -> None:
    server = OnePod({"phase": "Pending"})
    assert read(server)["gpu-a"].why == "the reader pod did not end within 120 s"
    assert sum(clock) == pytest.approx(120, abs=0.3)
    assert len(server.deleted) == 1


def test_at_the_second_minute_it_looks_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []
    monkeypatch.setattr(node_files.time, "monotonic", lambda: 40 * len(looks))
    monkeypatch.setattr(node_files.time, "sleep", looks.append)
    read(OnePod({"phase": "Pending"}))
    assert len(looks) == 3


def test_sixteen_nodes_are_read_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    widths: list[int] = []

    class Pool(ThreadPoolExecutor):
        def __init__(self, width: int) -> None:
            widths.append(width)
            super().__init__(1)

    monkeypatch.setattr(node_files, "ThreadPoolExecutor", Pool)
    read(OnePod({"phase": "Succeeded"}))
    assert widths == [16]


@pytest.mark.parametrize("failure", [ApiError(500, "log gone"), MissingError.one("ClusterUnreachable", "connection", "log gone")])
def test_a_log_that_cannot_be_read_is_the_reason_and_the_pod_is_deleted(failure: Exception) -> None:
    server = OnePod({"phase": "Succeeded"}, log=failure)
    assert "log gone" in read(server)["gpu-a"].why
    assert len(server.deleted) == 1


def test_a_pod_that_is_refused_is_not_deleted() -> None:
    server = OnePod(refused=True)
    why = read(server)["gpu-a"].why
    assert why.startswith("the reader pod was refused: ") and "violates PodSecurity" in why
    assert server.deleted == []


def test_every_node_is_read() -> None:
    assert list(read(OnePod({"phase": "Succeeded"}), ["a", "b", "c"])) == ["a", "b", "c"]


def test_what_stands_before_the_first_mark_is_no_file() -> None:
    assert split_files("noise\n=== numawise a\n 1 \n 2\n=== numawise b\n \n") == {"a": "1 \n 2"}
    assert split_files("noise") == {}

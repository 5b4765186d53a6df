"""An embedded cluster in a temporary folder, for tests against real kubelets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tools.cluster.api import Api, ApiError
from tools.cluster.layout import Layout
from tools.toolchain import binary

ROOT = Path(__file__).resolve().parents[2]
UP_SECONDS = 300
GIB = 1 << 30

SINGLE_NUMA_STATIC = {
    "cpuManagerPolicy": "static",
    "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
    "reservedSystemCPUs": "0,8,16,24",
    "topologyManagerPolicy": "single-numa-node",
    "memoryManagerPolicy": "Static",
    "kubeReserved": {"memory": "1Gi"},
    "systemReserved": {"memory": "1Gi"},
    "evictionHard": {"memory.available": "100Mi"},
    "reservedMemory": [
        {"numaNode": 0, "limits": {"memory": "1124Mi"}},
        {"numaNode": 1, "limits": {"memory": "1024Mi"}},
    ],
}


def two_socket_node(name: str, **other: Any) -> dict[str, Any]:
    """A node of a machine set: 2 NUMA nodes of 8 cores with 2 threads (CPU n and n + 16), 64 GiB and 4 GPUs."""
    numa = [
        {
            "id": socket,
            "socket": socket,
            "cpus": [[core, core + 16] for core in range(8 * socket, 8 * socket + 8)],
            "memory_bytes": 64 * GIB,
            "distances": [10, 21] if socket == 0 else [21, 10],
        }
        for socket in (0, 1)
    ]
    return {
        "name": name,
        "machine": {"numa": numa},
        "devices": {"nvidia.com/gpu": [{"id": f"GPU-{name}-{index}", "numa": [index // 4]} for index in range(8)]},
        "labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
        "kubelet": SINGLE_NUMA_STATIC,
    } | other


@dataclass(frozen=True)
class EmbeddedCluster:
    """A cluster by its state folder; commands are those of `python -m tools.cluster`."""

    layout: Layout

    def run(self, *words: str, seconds: float = UP_SECONDS, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs a command of the manager and returns it with its output; with `check` it has to succeed."""
        done = subprocess.run(
            [sys.executable, "-m", "tools.cluster", "--state", str(self.layout.root), *words],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"tools.cluster {' '.join(words)}: status {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def up(self, machines: dict[str, Any], *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        self.layout.root.mkdir(parents=True, exist_ok=True)
        path = self.layout.root / "given.json"
        path.write_text(json.dumps(machines))
        return self.run("up", "--nodes", str(path), *words, check=check)

    @property
    def api(self) -> Api:
        return Api(layout=self.layout, endpoint=self.layout.endpoint.read_text())

    def api_as(self, identity: str) -> Api:
        """The API server as another identity of the cluster, such as node-gpu-a."""
        return Api(layout=self.layout, endpoint=self.layout.endpoint.read_text(), user=identity)

    def kubectl(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"KUBECONFIG": str(self.layout.kubeconfig)}
        return subprocess.run(
            [binary("kubectl"), *words], env=environment, capture_output=True, text=True, timeout=120, check=check
        )

    def create_pod(self, manifest: dict[str, Any], namespace: str = "inference") -> None:
        """Creates a pod; a namespace that is just made has no service account yet, so that is waited for."""
        wait_for(lambda: self.api.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/default"))
        self.api.request("POST", f"/api/v1/namespaces/{namespace}/pods", manifest)

    def pod(self, name: str, namespace: str = "inference") -> dict[str, Any]:
        return self.api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")

    def delete_pod(self, name: str, namespace: str = "inference") -> None:
        try:
            self.api.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}?gracePeriodSeconds=1")
        except ApiError as error:
            if error.status != 404:
                raise
        wait_for(lambda: self.pod(name, namespace) is None)

    def wait_for_pod(self, name: str, check: Callable[[dict[str, Any]], Any], namespace: str = "inference") -> dict[str, Any]:
        """The pod once the check holds of it."""
        wait_for(
            lambda: (pod := self.pod(name, namespace)) is not None and check(pod),
            describe=lambda: json.dumps(self.pod(name, namespace)),
        )
        return self.pod(name, namespace)


def wait_for(check: Callable[[], Any], *, seconds: float = 60, describe: Callable[[], str] = lambda: "") -> Any:
    """What check returns, once that is true. AssertionError after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        found = check()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not reached within {seconds:.0f} s {describe()}")
        time.sleep(0.2)


def is_ready(pod: dict[str, Any]) -> bool:
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in pod["status"].get("conditions", []))


def has_phase(phase: str) -> Callable[[dict[str, Any]], bool]:
    return lambda pod: pod["status"].get("phase") == phase


def pod_manifest(
    name: str,
    *,
    image: str = "vllm/vllm-openai:v0.11.0",
    cpu: int = 2,
    memory: str = "4Gi",
    gpus: int = 0,
    command: Sequence[str] = (),
    restart_policy: str = "Always",
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A Guaranteed pod that restricted Pod Security lets in."""
    resources: dict[str, Any] = {"cpu": str(cpu), "memory": memory} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    container: dict[str, Any] = {
        "name": "main",
        "image": image,
        "ports": [{"containerPort": 8000}],
        "resources": {"requests": resources, "limits": resources},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    if command:
        container["command"] = list(command)
    elif restart_policy == "Always":
        container["readinessProbe"] = {"httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 1}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {
            "restartPolicy": restart_policy,
            "terminationGracePeriodSeconds": 1,
            "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
        }
        | spec,
    }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """Two nodes, gpu-a and gpu-b, with single-numa-node and Static memory; ended after the module."""
    embedded = EmbeddedCluster(Layout(tmp_path_factory.mktemp("cluster")))
    try:
        embedded.up({"nodes": [two_socket_node("gpu-a"), two_socket_node("gpu-b")]})
        yield embedded
    finally:
        embedded.run("down", "--wipe")

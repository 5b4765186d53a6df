"""Where the cluster keeps its things, and the addresses inside its network namespace."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

CONTEXT = "numawise-local"
API_HOST = "172.30.0.1"
API_PORT = 6443
API_URL = f"https://{API_HOST}:{API_PORT}"
SERVICE_RANGE = "10.96.0.0/16"
API_SERVICE = "10.96.0.1"
DNS_SERVICE = "10.96.0.10"
POD_RANGE = "10.244.0.0/16"
NODE_RANGE = "172.30.0.0/16"
ETCD_URL = "http://127.0.0.1:2379"
MAX_NODES = 250


def node_address(index: int) -> str:
    """InternalIP of the node at this place of the machine set (from 0)."""
    return f"172.30.1.{index + 1}"


def pod_prefix(index: int) -> str:
    return f"10.244.{index + 1}.0/24"


@dataclass(frozen=True)
class Layout:
    """Paths below the state folder."""

    root: Path

    @property
    def kubeconfig(self) -> Path:
        return self.root / "kubeconfig"

    @property
    def pki(self) -> Path:
        return self.root / "pki"

    @property
    def etcd(self) -> Path:
        return self.root / "etcd"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def records(self) -> Path:
        return self.root / "processes"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def machine_set(self) -> Path:
        """The machine set that the cluster was last started with."""
        return self.root / "machines.json"

    @property
    def endpoint(self) -> Path:
        """The API server's address outside the namespace, written by the anchor."""
        return self.root / "endpoint"

    @property
    def shared(self) -> Path:
        """Content of the ReadWriteMany volumes, one folder a claim."""
        return self.root / "volumes"

    def node(self, name: str) -> Path:
        return self.root / "nodes" / name

    def log(self, process: str) -> Path:
        return self.logs / f"{process}.log"

    def node_log(self, name: str) -> Path:
        return self.node(name) / "kubelet.log"

    def control_group(self, node: str) -> str:
        """A control group name that no other checkout uses."""
        return f"numawise-{hashlib.sha256(str(self.root).encode()).hexdigest()[:10]}-{node}"

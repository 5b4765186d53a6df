"""Command lines of etcd and the control plane, and the identities of all parts."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.cluster.errors import ClusterError
from tools.cluster.layout import (
    API_HOST,
    API_PORT,
    API_SERVICE,
    API_URL,
    CONTEXT,
    ETCD_URL,
    NODE_RANGE,
    POD_RANGE,
    SERVICE_RANGE,
    Layout,
    node_address,
)

KUBELET_CLIENT = "kube-apiserver-kubelet-client"


def certificate_requests(nodes: Sequence[str]) -> list[dict[str, Any]]:
    """Every identity of the cluster, as `simnode pki` takes it."""
    api_names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost"]
    requests: list[dict[str, Any]] = [
        {"name": "admin", "user": "cluster-owner", "groups": ["system:masters"]},
        {"name": "apiserver", "user": "kube-apiserver", "dns": api_names, "ips": [API_HOST, API_SERVICE, "127.0.0.1"]},
        {"name": "apiserver-kubelet-client", "user": KUBELET_CLIENT},
        {"name": "controller-manager", "user": "system:kube-controller-manager"},
        {"name": "scheduler", "user": "system:kube-scheduler"},
    ]
    for index, name in enumerate(nodes):
        requests.append(
            {
                "name": f"node-{name}",
                "user": f"system:node:{name}",
                "groups": ["system:nodes"],
                "dns": [name],
                "ips": [node_address(index)],
            }
        )
    return requests


def make_certificates(layout: Layout, simnode: Path, nodes: Sequence[str]) -> None:
    layout.pki.mkdir(parents=True, exist_ok=True, mode=0o700)
    requests = layout.pki / "requests.json"
    requests.write_text(json.dumps(certificate_requests(nodes)))
    made = subprocess.run([simnode, "pki", "-dir", layout.pki, "-requests", requests], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise ClusterError(f"certificates in {layout.pki}: {made.stderr.strip()}")


def kubeconfig(server: str, ca: str, certificate: str, key: str, *, context: str = CONTEXT) -> str:
    """A kubeconfig with one context that names the files of an identity; JSON, which is YAML."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": context,
        "clusters": [{"name": context, "cluster": {"server": server, "certificate-authority": ca}}],
        "users": [{"name": context, "user": {"client-certificate": certificate, "client-key": key}}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
    }
    return json.dumps(document, indent=1) + "\n"


def write_private(path: Path, text: str) -> None:
    """Writes a file that only its owner reads, and leaves it alone where nothing changes."""
    if path.exists() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".new")
    temporary.touch(mode=0o600)
    temporary.write_text(text)
    temporary.replace(path)


def component_kubeconfig(layout: Layout, name: str) -> Path:
    path = layout.pki / f"{name}.kubeconfig"
    pki = layout.pki
    write_private(path, kubeconfig(API_URL, str(pki / "ca.crt"), str(pki / f"{name}.crt"), str(pki / f"{name}.key")))
    return path


def anchor_command(layout: Layout, simnode: Path, listen: str) -> list[str]:
    return [
        str(simnode),
        "anchor",
        f"-listen={listen}",
        f"-addresses={NODE_RANGE},{POD_RANGE},{SERVICE_RANGE}",
        f"-target={API_HOST}:{API_PORT}",
        f"-service={API_SERVICE}:443",
        f"-ready-file={layout.endpoint}",
    ]


def commands(layout: Layout, programs: Mapping[str, Path]) -> dict[str, list[str]]:
    """Command line by process name, in starting order. Ports are those of the namespace, so they are always free."""
    pki = layout.pki
    return {
        "etcd": [
            str(programs["etcd"]),
            f"--data-dir={layout.etcd}",
            f"--listen-client-urls={ETCD_URL}",
            f"--advertise-client-urls={ETCD_URL}",
            "--listen-peer-urls=http://127.0.0.1:2380",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ],
        "kube-apiserver": [
            str(programs["kube-apiserver"]),
            f"--etcd-servers={ETCD_URL}",
            f"--bind-address={API_HOST}",
            f"--advertise-address={API_HOST}",
            f"--secure-port={API_PORT}",
            f"--client-ca-file={pki}/ca.crt",
            f"--tls-cert-file={pki}/apiserver.crt",
            f"--tls-private-key-file={pki}/apiserver.key",
            f"--kubelet-certificate-authority={pki}/ca.crt",
            f"--kubelet-client-certificate={pki}/apiserver-kubelet-client.crt",
            f"--kubelet-client-key={pki}/apiserver-kubelet-client.key",
            "--kubelet-preferred-address-types=InternalIP",
            f"--service-account-key-file={pki}/sa.pub",
            f"--service-account-signing-key-file={pki}/sa.key",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction,PodSecurity",
            "--allow-privileged=true",
        ],
        "kube-controller-manager": [
            str(programs["kube-controller-manager"]),
            f"--kubeconfig={component_kubeconfig(layout, 'controller-manager')}",
            f"--service-account-private-key-file={pki}/sa.key",
            f"--root-ca-file={pki}/ca.crt",
            "--use-service-account-credentials",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
        ],
        "kube-scheduler": [
            str(programs["kube-scheduler"]),
            f"--kubeconfig={component_kubeconfig(layout, 'scheduler')}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
        ],
    }

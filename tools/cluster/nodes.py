"""A node's folder: its description for simnode, the kubelet's base configuration, its identity."""

from __future__ import annotations

import json
import shutil
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.cluster.control_plane import kubeconfig, write_private
from tools.cluster.errors import InputError
from tools.cluster.layout import API_URL, DNS_SERVICE, Layout, node_address, pod_prefix
from tools.cluster.machines import Node

DROP_IN_DIR = "/etc/kubernetes/kubelet.conf.d"
STATE_FILES = {
    "cpu_manager_state": "cpu_manager_state",
    "memory_manager_state": "memory_manager_state",
    "kubelet_internal_checkpoint": "device-plugins/kubelet_internal_checkpoint",
}
# Images whose containers really run, from the programs of this machine; all others get a stand-in.
PROCESS_IMAGES = (
    "docker.io/library/python",
    "docker.io/library/busybox",
    "docker.io/library/alpine",
    "docker.io/library/debian",
    "docker.io/library/ubuntu",
)
# The user that an image names; vLLM's CUDA image runs as 2000. Others count as root, as an image without a USER line.
IMAGE_USERS = {"docker.io/vllm/vllm-openai": 2000}


def base_configuration(node: Node, index: int) -> dict[str, Any]:
    """The base KubeletConfiguration, as a cluster's owner gives it before any rollout; the machine set's fields on top."""
    address = node_address(index)
    configuration: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": "/etc/kubernetes/pki/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": "/etc/kubernetes/pki/node.crt",
        "tlsPrivateKeyFile": "/etc/kubernetes/pki/node.key",
        "address": address,
        "healthzBindAddress": address,
        "clusterDNS": [DNS_SERVICE],
        "clusterDomain": "cluster.local",
        "cgroupDriver": "cgroupfs",
        "containerRuntimeEndpoint": "unix:///run/sim/cri.sock",
        "resolvConf": "/etc/resolv.conf",
        "failCgroupV1": False,
        "failSwapOn": False,
        "cgroupRoot": "/",
        "enforceNodeAllocatable": [],
    }
    if node.taints:
        configuration["registerWithTaints"] = [dict(taint) for taint in node.taints]
    return configuration | dict(node.kubelet)


def description(
    layout: Layout, node: Node, index: int, kubelet: Path, machine: Mapping[str, Any], shared: list[dict[str, str]]
) -> dict[str, Any]:
    """node.json, which simnode reads at every start of the node."""
    return {
        "name": node.name,
        "ip": node_address(index),
        "pod_prefix": pod_prefix(index),
        "machine": dict(machine),
        "devices": dict(node.devices),
        "device_registration_delay_ms": node.device_registration_delay_ms,
        "api_server": API_URL,
        "kubelet_binary": str(kubelet),
        "kubelet_flags": [
            "--config=/var/lib/kubelet/config.yaml",
            f"--config-dir={DROP_IN_DIR}",
            "--kubeconfig=/etc/kubernetes/kubelet.conf",
            f"--hostname-override={node.name}",
            f"--node-ip={node_address(index)}",
            "--v=2",
        ],
        "system_uuid": str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{layout.root}/{node.name}")),
        "python_prefix": sys.base_prefix,
        "shared_folders": shared,
        "images": {"process": list(PROCESS_IMAGES), "users": IMAGE_USERS},
    }


def write_node(layout: Layout, node: Node, index: int, kubelet: Path, shared: list[dict[str, str]]) -> None:
    """Writes a node's folder. A changed MemTotal of an earlier reboot stays until the machine set gives another machine."""
    folder = layout.node(node.name)
    folder.mkdir(parents=True, exist_ok=True)
    given = folder / "machine.given.json"
    machine: Mapping[str, Any] = node.machine
    if given.exists() and json.loads(given.read_text()) == machine and (folder / "node.json").exists():
        machine = json.loads((folder / "node.json").read_text())["machine"]
    given.write_text(json.dumps(machine if machine is node.machine else node.machine))
    (folder / "node.json").write_text(json.dumps(description(layout, node, index, kubelet, machine, shared), indent=1))
    etc, pki = folder / "etc/kubernetes", folder / "etc/kubernetes/pki"
    pki.mkdir(parents=True, exist_ok=True)
    for source, target in (("ca.crt", "ca.crt"), (f"node-{node.name}.crt", "node.crt"), (f"node-{node.name}.key", "node.key")):
        shutil.copyfile(layout.pki / source, pki / target)
        (pki / target).chmod(0o600)
    inside = "/etc/kubernetes/pki"
    write_private(
        etc / "kubelet.conf",
        kubeconfig(API_URL, f"{inside}/ca.crt", f"{inside}/node.crt", f"{inside}/node.key", context=node.name),
    )
    write_configuration(layout, node, index)


def write_configuration(layout: Layout, node: Node, index: int) -> bool:
    """Writes the base configuration; whether it changed."""
    path = layout.node(node.name) / "var/lib/kubelet/config.yaml"
    text = json.dumps(base_configuration(node, index), indent=1) + "\n"
    if path.exists() and path.read_text() == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return True


def configuration_text(layout: Layout, name: str) -> str:
    """The base configuration as it stands in the node's folder; empty where there is none yet."""
    path = layout.node(name) / "var/lib/kubelet/config.yaml"
    return path.read_text() if path.exists() else ""


def remove_manager_states(layout: Layout, name: str) -> None:
    """Removes what the CPU and memory managers wrote down: a kubelet with other policies or reservations refuses to start on it."""
    for key in ("cpu_manager_state", "memory_manager_state"):
        (layout.node(name) / "var/lib/kubelet" / STATE_FILES[key]).unlink(missing_ok=True)


def with_mem_total(machine: Mapping[str, Any], mem_total_bytes: int) -> dict[str, Any]:
    """The machine after a change of MemTotal: the difference spread evenly over the NUMA nodes in whole KiB, the rest on the first."""
    if mem_total_bytes <= 0 or mem_total_bytes % 1024:
        raise InputError(f"--mem-total {mem_total_bytes}: give a positive multiple of 1024 bytes; the kernel counts memory in KiB")
    numa = [dict(node) for node in machine["numa"]]
    total = sum(node["memory_bytes"] for node in numa)
    share, rest = divmod((mem_total_bytes - total) // 1024, len(numa))
    for index, node in enumerate(numa):
        node["memory_bytes"] += 1024 * (share + (rest if index == 0 else 0))
        if node["memory_bytes"] < 0:
            raise InputError(
                f"--mem-total {mem_total_bytes}: NUMA node {node['id']} would have {node['memory_bytes']} bytes; give more"
            )
    return {key: value for key, value in machine.items() if key != "memory_capacity_bytes"} | {"numa": numa}


def reboot_with(layout: Layout, name: str, mem_total_bytes: int) -> None:
    """Changes the machine of a node that is off."""
    path = layout.node(name) / "node.json"
    document = json.loads(path.read_text())
    document["machine"] = with_mem_total(document["machine"], mem_total_bytes)
    path.write_text(json.dumps(document, indent=1))


def state_files(layout: Layout, name: str) -> dict[str, Any]:
    """The kubelet's state files of a node by name, decoded; None for one that is not there."""
    folder = layout.node(name) / "var/lib/kubelet"
    found: dict[str, Any] = {}
    for key, relative in STATE_FILES.items():
        try:
            found[key] = json.loads((folder / relative).read_text())
        except FileNotFoundError:
            found[key] = None
    return found

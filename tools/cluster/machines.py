"""The machine set: which nodes the cluster has, checked. Its form stands in README.md."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.cluster.errors import InputError
from tools.cluster.layout import MAX_NODES

NODE_KEYS = frozenset({"name", "machine", "devices", "labels", "taints", "kubelet", "deviceRegistrationDelayMs"})
SET_KEYS = frozenset({"nodes", "namespaces", "claims"})
NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")
DEFAULT_NAMESPACES = ({"name": "inference", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},)
DEFAULT_CLAIMS = ({"namespace": "inference", "name": "pvc-llama-models", "storage": "4Ti"},)


@dataclass(frozen=True)
class Node:
    """One node as the machine set gives it. `machine`, `devices`, `kubelet` keep their JSON form."""

    name: str
    machine: Mapping[str, Any]
    devices: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, str], ...] = ()
    kubelet: Mapping[str, Any] = field(default_factory=dict)
    device_registration_delay_ms: int = 0

    def device_counts(self) -> dict[str, int]:
        """Healthy devices by resource: what the node's status has to say before it is ready for use."""
        return {name: sum(device.get("healthy", True) for device in devices) for name, devices in self.devices.items()}


@dataclass(frozen=True)
class MachineSet:
    nodes: tuple[Node, ...]
    namespaces: tuple[Mapping[str, Any], ...] = DEFAULT_NAMESPACES
    claims: tuple[Mapping[str, Any], ...] = DEFAULT_CLAIMS


def read_machine_set(path: Path) -> MachineSet:
    """Reads and checks a machine set. Raises InputError with the path of what is wrong."""
    try:
        document = json.loads(path.read_text())
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); give a machine set with --nodes FILE") from None
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error})") from None
    return machine_set(document, str(path))


def machine_set(document: Any, where: str) -> MachineSet:
    """A machine set from its JSON form."""
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), list) or not document["nodes"]:
        raise InputError(f"{where}: needs a list `nodes` with at least one node")
    refuse_unknown(document, SET_KEYS, where)
    if len(document["nodes"]) > MAX_NODES:
        raise InputError(f"{where}: {len(document['nodes'])} nodes; one embedded cluster holds {MAX_NODES}")
    nodes = tuple(read_node(entry, f"{where}: nodes[{index}]") for index, entry in enumerate(document["nodes"]))
    names = [node.name for node in nodes]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{where}: node {name} is given {names.count(name)} times; each needs a name of its own")
    namespaces = tuple(document.get("namespaces", DEFAULT_NAMESPACES))
    claims = tuple(document.get("claims", DEFAULT_CLAIMS))
    known = {namespace["name"] for namespace in namespaces}
    for claim in claims:
        if claim["namespace"] not in known:
            raise InputError(
                f"{where}: claim {claim['name']} is in namespace {claim['namespace']}, which is not among {sorted(known)}"
            )
    return MachineSet(nodes=nodes, namespaces=namespaces, claims=claims)


def read_node(entry: Any, where: str) -> Node:
    if not isinstance(entry, dict):
        raise InputError(f"{where}: has to be an object")
    refuse_unknown(entry, NODE_KEYS, where)
    name = entry.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InputError(f"{where}.name: {name!r} is not a node name (lower-case letters, digits, - and ., at most 63)")
    machine = entry.get("machine")
    if not isinstance(machine, dict) or not isinstance(machine.get("numa"), list):
        raise InputError(f"{where}.machine: needs `numa`, a list of NUMA nodes")
    for index, numa in enumerate(machine["numa"]):
        for key in ("id", "cpus", "memory_bytes"):
            if key not in numa:
                raise InputError(f"{where}.machine.numa[{index}]: lacks {key}")
    for resource, devices in entry.get("devices", {}).items():
        for index, device in enumerate(devices):
            if "id" not in device:
                raise InputError(f"{where}.devices[{resource}][{index}]: lacks id")
    return Node(
        name=name,
        machine=machine,
        devices=entry.get("devices", {}),
        labels=entry.get("labels", {}),
        taints=tuple(entry.get("taints", ())),
        kubelet=entry.get("kubelet", {}),
        device_registration_delay_ms=entry.get("deviceRegistrationDelayMs", 0),
    )


def refuse_unknown(entry: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    unknown = sorted(set(entry) - known)
    if unknown:
        raise InputError(f"{where}: unknown key {unknown[0]!r}; known are {', '.join(sorted(known))}")

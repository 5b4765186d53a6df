"""Cases: a machine, a configuration, devices and pods in; what the kubelet does out. The JSON form of `python -m infra admit`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from time import perf_counter
from typing import Any

from infra.errors import ConfigError, NumawiseError
from infra.kubelet.admission.kubelet import ContainerResult, Kubelet, PodResult
from infra.kubelet.admission.node import start_node
from infra.kubelet.faults import KubeletHangs, KubeletRefuses
from infra.kubelet.machine import Device, Machine
from infra.kubelet.managers.cpu_topology import cpu_list
from infra.kubelet.managers.hints import ProviderHints, masks_of
from infra.kubelet.managers.topology import TopologyHint
from infra.kubelet.pods import Pod
from infra.kubelet.quantity import NANO, format_quantity

_PANIC, _HANG = "KubeletPanic", "KubeletHangs"


def simulate_case(case: Any) -> dict[str, Any]:
    """One case; a case that cannot be read, and one in which the kubelet itself would hang, is answered with `error`."""
    identifier = case.get("id", "") if isinstance(case, Mapping) else ""
    result: dict[str, Any] = {"id": identifier, "config_errors": [], "pods": []}
    begin = perf_counter()
    try:
        _run(case, result)
    except KubeletRefuses as refusal:
        result.update(config_stage=refusal.stage, config_errors=list(refusal.errors))
    except KubeletHangs as hang:
        result["error"] = str(hang)
    except NumawiseError as error:
        result["error"] = f"bad case: {error}"
    result["ms"] = round((perf_counter() - begin) * 1000, 3)
    return result


def _run(case: Any, result: dict[str, Any]) -> None:
    if not isinstance(case, Mapping):
        raise ConfigError.one("BadCase", "", f"a case is an object with machine, kubelet, devices and pods, not {case!r:.60}.")
    machine = Machine.from_dict(case.get("machine"))
    configuration = case.get("kubelet") or {}
    if not isinstance(configuration, Mapping):
        raise ConfigError.one("BadCase", "kubelet", f"{configuration!r:.60} is not a KubeletConfiguration.")
    devices = _devices(case.get("devices"))
    steps = _steps(case.get("pods"))
    node = start_node(machine, configuration, devices, kubernetes_version=str(case.get("kubernetesVersion") or "1.37"))
    kubelet = Kubelet(
        node, hold_start=case.get("holdStart") is True, ordered_devices=(case.get("deviceAllocation") or "ordered") != "arbitrary"
    )
    result["node"] = _node(kubelet)
    hints: list[dict[str, Any]] = []
    if case.get("debug") is True:
        kubelet.trace = lambda container, given, merged, admit: hints.extend(_hints(kubelet, container, given, merged, admit=admit))
    for name, pod in steps:
        if pod is None:
            result["pods"].append({"name": name, "removed": kubelet.remove(name), "admitted": False, "containers": []})
            continue
        hints.clear()
        outcome = kubelet.admit(pod)
        if outcome.reason == _HANG:
            raise KubeletHangs(outcome.message)
        result["pods"].append(pod_result(outcome, kubelet))
        if hints:
            result["pods"][-1]["hints"] = list(hints)
        if outcome.reason == _PANIC:
            return


def _devices(document: Any) -> dict[str, list[Device]]:
    if document is None:
        return {}
    if not isinstance(document, Mapping):
        raise ConfigError.one("BadCase", "devices", f"{document!r:.60} is not a map of resources to lists of devices.")
    devices = {}
    for name, listed in document.items():
        if listed is not None and not isinstance(listed, list | tuple):
            raise ConfigError.one("BadCase", f"devices.{name}", f"{listed!r:.60} is not a list of devices.")
        devices[name] = [Device.from_dict(device, f"devices.{name}[{index}]") for index, device in enumerate(listed or ())]
    return devices


def _steps(document: Any) -> list[tuple[str, Pod | None]]:
    if document is not None and not isinstance(document, list | tuple):
        raise ConfigError.one("BadCase", "pods", f"{document!r:.60} is not a list of pods.")
    steps: list[tuple[str, Pod | None]] = []
    for index, entry in enumerate(document or ()):
        if isinstance(entry, Mapping) and entry.get("remove") is True:
            steps.append((str(entry.get("name") or ""), None))
        else:
            pod = Pod.from_dict(entry, f"pods[{index}]")
            steps.append((pod.name, pod))
    return steps


def pod_result(outcome: PodResult, kubelet: Kubelet) -> dict[str, Any]:
    """A pod's result in the form of a case."""
    found: dict[str, Any] = {"name": outcome.name, "admitted": outcome.admitted}
    if not outcome.admitted:
        found.update(reason=outcome.reason, message=outcome.message)
        if outcome.handler:
            found["handler"] = outcome.handler
    if outcome.qos:
        found["qos"] = outcome.qos
    found["containers"] = [_container(container) for container in outcome.containers]
    if outcome.pod_cpus:
        found["pod_cpus"] = _list(outcome.pod_cpus)
    if kubelet.shared_cpus_mask:
        found["shared_cpus"] = cpu_list(kubelet.shared_cpus_mask)
    if outcome.preempted:
        found["preempted"] = list(outcome.preempted)
    return found


def _container(container: ContainerResult) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": container.name,
        "cpus": _list(container.cpus),
        "memory_numa": list(container.memory_numa),
        "devices": {name: list(ids) for name, ids in container.devices.items()},
        "topology": None if container.topology is None else list(container.topology),
        "preferred": container.preferred,
    }
    if container.start_error is not None:
        found["start_error"] = container.start_error
    return found


def _hints(
    kubelet: Kubelet, container: str, given: list[ProviderHints | None], merged: TopologyHint, *, admit: bool
) -> list[dict[str, Any]]:
    """What each manager proposed at one merge, and what the policy made of it (`debug` in a case)."""
    ids = kubelet.node.ids
    found: list[dict[str, Any]] = []
    for provider, hints in zip(("device", "cpu", "memory"), given, strict=True):
        proposed = {
            resource: None
            if hint is None
            else [
                {"numa": list(ids(mask)), "preferred": bool(hint.preferred >> mask & 1)}
                for mask in sorted(masks_of(hint.possible), key=lambda mask: (mask.bit_count(), ids(mask)))
            ]
            for resource, hint in (hints or {}).items()
        }
        found.append({"container": container, "provider": provider, **({"hints": proposed} if proposed else {})})
    nodes = None if merged.nodes is None else list(ids(merged.nodes))
    found.append(
        {"container": container, "provider": "merged", "merged": {"numa": nodes, "preferred": merged.preferred}, "admit": admit}
    )
    return found


def _list(cpus: frozenset[int]) -> str:
    return cpu_list(sum(1 << cpu for cpu in cpus))


def _node(kubelet: Kubelet) -> dict[str, Any]:
    node = kubelet.node
    found: dict[str, Any] = {
        "capacity": {name: _text(name, amount) for name, amount in node.capacity.items()},
        "allocatable": {name: _text(name, amount) for name, amount in kubelet.allocatable.items()},
        "reservation": {name: _text(name, amount) for name, amount in node.reservation.items()},
    }
    if node.cpus:
        found["reserved_cpus"] = cpu_list(node.cpus.reserved)
    return found


@lru_cache(maxsize=4096)
def _text(name: str, amount: int) -> str:
    if name == "cpu":
        return format_quantity(amount * 10**6, binary=False)
    return format_quantity(amount * NANO, binary=name == "memory" or name.startswith("hugepages-"))

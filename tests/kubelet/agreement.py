"""What is compared between the simulator and the kubelet's own code, and the recorded answers of the latter."""

from __future__ import annotations

import collections
import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

from tests.kubelet.generate import generate

FIXTURES = Path(__file__).with_name("fixtures")
BEHAVIOURS = FIXTURES / "behaviours.json.gz"
CORNERS = FIXTURES / "corners.json.gz"
ANSWERS = FIXTURES / "answers.json.gz"

# How many cases of each kind are recorded, from seed 0 up.
RECORDED = {"ordinary": 1500, "odd": 1500, "mutated": 1500}


def outcome(case: dict[str, Any], result: dict[str, Any], *, placement: bool = True) -> list[Any] | None:
    """A result in the form that is compared; None where there was no answer.

    Device ids are the plugin's choice: devices are compared by how many come from which NUMA nodes (`placement`), or by number.
    """
    if result.get("error"):
        return None
    if result.get("config_errors"):
        return ["refuses to start"]
    nodes = {
        (resource, device["id"]): sorted(device.get("numa") or [])
        for resource, devices in (case.get("devices") or {}).items()
        for device in devices
    }
    pods = []
    for pod in result.get("pods") or ():
        if "removed" in pod:
            continue
        if not pod.get("admitted"):
            pods.append([pod.get("name"), pod.get("reason")])
            continue
        containers = []
        for container in pod.get("containers") or ():
            devices = []
            for resource, ids in sorted((container.get("devices") or {}).items()):
                places = collections.Counter(json.dumps(nodes.get((resource, i), "unknown")) for i in ids)
                if ids:
                    devices.append([resource, sorted(places.items()) if placement else len(ids)])
            containers.append(
                [
                    container.get("name"),
                    container.get("cpus") or "",
                    container.get("memory_numa") or [],
                    container.get("topology") or [],
                    devices,
                ]
            )
        pods.append([pod.get("name"), containers])
    return json.loads(json.dumps(pods))


def without_placement(answer: list[Any]) -> list[Any]:
    """A recorded outcome with devices by number only."""
    plain = json.loads(json.dumps(answer))
    for pod in plain:
        if isinstance(pod, list) and isinstance(pod[1], list):
            for container in pod[1]:
                container[4] = [[resource, sum(n for _, n in places)] for resource, places in container[4]]
    return plain


def with_vague_shortages(case: dict[str, Any], answer: list[Any]) -> list[Any]:
    """An outcome in which a pod that asks for several kinds of devices or huge pages lacks "one of them".

    The kubelet goes through them in the random order of a map, and names the first that does not suffice.
    """
    several = set()
    for pod in case["pods"]:
        containers = [*pod.get("containers", ()), *pod.get("initContainers", ())]
        if len({name for c in containers for kind in ("requests", "limits") for name in c.get(kind) or () if _is_scalar(name)}) > 1:
            several.add(pod.get("name"))
    vague = [
        [pod[0], "OutOf one of several"]
        if isinstance(pod, list) and pod[0] in several and isinstance(pod[1], str) and _is_scalar(pod[1].removeprefix("OutOf"))
        else pod
        for pod in answer
    ]
    return json.loads(json.dumps(vague))


def _is_scalar(name: str) -> bool:
    return "/" in name or name.startswith("hugepages-")


def agrees(case: dict[str, Any], result: dict[str, Any], answers: list[list[Any]]) -> bool:
    """Whether a result is one of the kubelet's answers.

    The kubelet itself picks at random which of an init container's devices a later container reuses. Where the recording saw it vary,
    devices need only agree in number.
    """
    ours = outcome(case, result)
    if ours is None:
        return False
    if ours in answers or with_vague_shortages(case, ours) in [with_vague_shortages(case, answer) for answer in answers]:
        return True
    plain = outcome(case, result, placement=False)
    return (
        len(answers) > 1
        and plain is not None
        and with_vague_shortages(case, plain) in [with_vague_shortages(case, without_placement(answer)) for answer in answers]
    )


def digest(case: dict[str, Any]) -> str:
    """A short fingerprint of a case, so that a changed generator is noticed."""
    return hashlib.sha256(json.dumps(case, sort_keys=True).encode()).hexdigest()[:8]


def read(path: Path) -> Any:
    return json.loads(gzip.decompress(path.read_bytes()))


def write(path: Path, document: Any) -> None:
    path.write_bytes(gzip.compress(json.dumps(document, separators=(",", ":")).encode(), mtime=0))


def behaviours() -> list[dict[str, Any]]:
    """Cases after the kubelet's own unit tests: {"case", "answers"}."""
    return read(BEHAVIOURS)


def corners() -> list[dict[str, Any]]:
    """Cases at the edges of single fields, quantities and machines: {"case", "answers"}."""
    return read(CORNERS)


def recorded(kind: str) -> list[tuple[dict[str, Any], list[list[Any]]]]:
    """Generated cases of a kind with the kubelet's answers; cases that the kubelet's code did not answer in time are left out."""
    found = []
    for seed, fingerprint, answers in read(ANSWERS)[kind]:
        case = generate(kind, seed)
        if digest(case) != fingerprint:
            raise AssertionError(
                f"{case['id']} is not the case that was recorded; run python -m tests.kubelet.record --oracle PATH"
            )
        found.append((case, answers))
    return found

"""What is compared between the simulator and the kubelet's own code, and the recorded answers of the latter."""

from __future__ import annotations

import collections
import gzip
import hashlib
import json
import random
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from infra.kubelet.configuration.fields import FIELDS
from infra.kubelet.configuration.versions import NEWEST
from tests.kubelet.generate import generate
from tests.kubelet.generate_fields import field_case
from tests.kubelet.generate_pods import crowded_case, pinned_case

Answers = list[list[Any]]

# One folder a Kubernetes minor whose kubelet was asked.
FIXTURES = Path(__file__).with_name("fixtures") / NEWEST
BEHAVIOURS = FIXTURES / "behaviours.json.gz"
CORNERS = FIXTURES / "corners.json.gz"
ANSWERS = FIXTURES / "answers.json.gz"
MERGES = FIXTURES / "merges.json.gz"
CATALOGUE = FIXTURES / "fields.json.gz"

# The kubelet checks these against the cgroup version of the host, here that of the recording machine.
_HOST_FIELDS = ("failCgroupV1", "singleProcessOOMKill")
# Which cases of each kind are recorded: seeds from 0 up, and some cases of each field of the configuration.
RECORDED: dict[str, list[Any]] = {
    "ordinary": list(range(1500)),
    "odd": list(range(1500)),
    "mutated": list(range(1500)),
    "crowded": list(range(1200)),
    "pinned": list(range(1000)),
    "field": [f"{name}/{index}" for name in sorted(FIELDS) if name not in _HOST_FIELDS for index in range(24)],
}


def outcome(case: dict[str, Any], result: dict[str, Any], *, placement: bool = True) -> list[Any] | None:
    """A result in the form that is compared; None where there was no answer. Of crowded and pinned cases it holds more.

    Device ids are the plugin's choice: devices are compared by how many come from which NUMA nodes (`placement`), or by number.
    """
    if result.get("error"):
        return None
    if result.get("config_errors"):
        # What is compared of a case about one field is also the stage of the start that refuses it.
        return [f"refuses at {_stage(result)}" if str(case.get("id", "")).startswith("field/") else "refuses to start"]
    nodes = {
        (resource, device["id"]): sorted(device.get("numa") or [])
        for resource, devices in (case.get("devices") or {}).items()
        for device in devices
    }
    detailed = str(case.get("id", "")).startswith(("crowded/", "pinned/"))
    pods: list[Any] = (
        [{name: result["node"].get(name) for name in ("capacity", "allocatable", "reserved_cpus")}] if detailed else []
    )
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
            if detailed:
                containers[-1] += [container.get("preferred"), container.get("start_error")]
        pods.append([pod.get("name"), containers])
        if detailed:
            pods.append({name: pod.get(name) for name in ("qos", "pod_cpus", "preempted")})
    return json.loads(json.dumps(pods))


def _stage(result: dict[str, Any]) -> str:
    stage = str(result["config_stage"])
    return "load" if stage == "featureGates" else stage


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


def case_of(kind: str, seed: int | str) -> dict[str, Any]:
    """The case of a seed, of any kind; the seed of a case about a field is the field's name and a number."""
    rng = random.Random(f"{kind}/{seed}")
    if kind == "field":
        return {"id": f"field/{seed}", **field_case(str(seed).split("/")[0], rng)}
    make = {"crowded": crowded_case, "pinned": pinned_case}.get(kind)
    return {"id": f"{kind}/{seed}", **make(rng)} if make else generate(kind, int(seed))


def digest(case: Any) -> str:
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


def recorded(kind: str, *, every: int = 1) -> list[tuple[dict[str, Any], Answers]]:
    """Generated cases of a kind (or every n-th) with the kubelet's answers; cases that its code did not answer in time are left out."""
    found = []
    for seed, fingerprint, answers in recorded_answers().get(kind, [])[::every]:
        case = case_of(kind, seed)
        if digest(case) != fingerprint:
            raise AssertionError(f"{case['id']} is not the case that was recorded; run `make record`")
        found.append((case, answers))
    return found


@lru_cache(maxsize=1)
def recorded_answers() -> dict[str, list[tuple[Any, str, Answers]]]:
    """Seed, digest of the case and answers, by kind."""
    return read(ANSWERS)


def compared_groups() -> Iterator[tuple[str, list[tuple[dict[str, Any], Answers]]]]:
    """All that the kubelet of the newest minor answered, by group; those of the older minors are asked the same."""
    for group, entries in (("behaviours", behaviours()), ("corners", corners())):
        yield group, [(entry["case"], entry["answers"]) for entry in entries]
    for kind in RECORDED:
        yield kind, recorded(kind)


def fingerprint(entries: list[tuple[dict[str, Any], Answers]]) -> str:
    """Of the newest minor's answers, so that a recording of an older minor that was compared with others is noticed."""
    return digest([[case["id"], answers] for case, answers in entries])


def differences_of(minor: str) -> Path:
    """The answers of an older minor's kubelet where they are not the newest one's (no answers where it gave none in time)."""
    return FIXTURES.with_name(minor) / "differences.json.gz"


def recorded_of(minor: str, group: str, entries: list[tuple[dict[str, Any], Answers]]) -> list[tuple[dict[str, Any], Answers]]:
    """A group's cases, asked of a minor's kubelet: those that it answered."""
    found = read(differences_of(minor))[group]
    if found["compared_with"] != fingerprint(entries):
        raise AssertionError(f"{minor} was recorded beside other answers of {NEWEST} to {group}; run `make record`")
    answered = [({**case, "kubernetesVersion": minor}, found["answers"].get(case["id"], answers)) for case, answers in entries]
    return [(case, answers) for case, answers in answered if answers]

"""The rules. Each takes a Pulumi type token and the properties as declared, and yields one sentence for each breach."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from infra.diagnosis import Diagnosis
from infra.units import parse_millicpu, parse_quantity

Properties = Mapping[str, Any]
Check = Callable[[str, Properties], Iterator[str]]

GPU_RESOURCES = ("nvidia.com/", "amd.com/")
_VISIBILITY = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
_SECRET_WORDS = ("TOKEN", "PASSWORD", "SECRET", "API_KEY", "PRIVATE_KEY")


@dataclass(frozen=True, kw_only=True)
class Rule:
    name: str
    description: str
    check: Check


def pod_spec(kind: str, properties: Properties) -> Mapping[str, Any]:
    """The pod specification of a workload or a pod; empty for anything else."""
    if not kind.startswith("kubernetes:"):
        return {}
    spec = properties.get("spec") or {}
    if kind.endswith(":Pod"):
        return spec
    if kind.endswith(":CronJob"):
        spec = (spec.get("jobTemplate") or {}).get("spec") or {}
    return ((spec.get("template") or {}).get("spec")) or {}


def containers_of(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()


def gpus_of(container: Mapping[str, Any]) -> int:
    limits = (container.get("resources") or {}).get("limits") or {}
    return sum(int(parse_quantity(amount)) for name, amount in limits.items() if name.startswith(GPU_RESOURCES))


def _pinned_images(kind: str, properties: Properties) -> Iterator[str]:
    for container in containers_of(pod_spec(kind, properties)):
        image = str(container.get("image", ""))
        tag = image.rsplit("/", 1)[-1].partition(":")[2]
        if "@sha256:" not in image and tag in ("", "latest", "main", "nightly"):
            yield f"container {container.get('name')} runs {image or 'no image'}; pin it by version or digest, or a restarted pod may be another program"


def _guaranteed(kind: str, properties: Properties) -> Iterator[str]:
    spec = pod_spec(kind, properties)
    if not any(map(gpus_of, containers_of(spec))):
        return
    for container in containers_of(spec):
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        for name in ("cpu", "memory"):
            if name not in limits:
                yield f"container {container.get('name')} of a GPU pod has no {name} limit; without one in every container the pod is not Guaranteed and nothing is pinned"
            elif str(requests.get(name, limits[name])) != str(limits[name]):
                yield f"container {container.get('name')} of a GPU pod requests {requests[name]} {name} of a limit of {limits[name]}; make them equal, or nothing is pinned"
        if gpus_of(container) and "cpu" in limits and parse_millicpu(limits["cpu"]) % 1000:
            yield f"container {container.get('name')} asks for {limits['cpu']} CPUs; only whole CPUs become exclusive"


def _device_visibility(kind: str, properties: Properties) -> Iterator[str]:
    for container in containers_of(pod_spec(kind, properties)):
        for entry in container.get("env") or ():
            name, value = entry.get("name"), entry.get("value")
            if name in _VISIBILITY:
                yield f"container {container.get('name')} sets {name}; the device plugin decides which devices a container sees"
            if name == "NVIDIA_VISIBLE_DEVICES" and value == "all":
                yield f"container {container.get('name')} sets NVIDIA_VISIBLE_DEVICES=all and would see GPUs of other pods; write void"


def _shared_memory(kind: str, properties: Properties) -> Iterator[str]:
    spec = pod_spec(kind, properties)
    in_memory = {v.get("name") for v in spec.get("volumes") or () if (v.get("emptyDir") or {}).get("medium") == "Memory"}
    for container in containers_of(spec):
        mounted = {m.get("mountPath") for m in container.get("volumeMounts") or () if m.get("name") in in_memory}
        if gpus_of(container) > 1 and "/dev/shm" not in mounted:
            yield f"container {container.get('name')} has {gpus_of(container)} GPUs and the default /dev/shm of 64 MiB; mount an emptyDir with medium Memory there"


def _privileges(kind: str, properties: Properties) -> Iterator[str]:
    """A DaemonSet may need the host; what serves requests does not."""
    if kind.endswith(":DaemonSet"):
        return
    spec = pod_spec(kind, properties)
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(field):
            yield f"the pod sets {field}; only DaemonSets may share the host's namespaces"
    for volume in spec.get("volumes") or ():
        if "hostPath" in volume:
            yield f"volume {volume.get('name')} is a hostPath; only DaemonSets may mount the host's files"
    for container in containers_of(spec):
        if (container.get("securityContext") or {}).get("privileged"):
            yield f"container {container.get('name')} is privileged; only DaemonSets may be"


def _plain_secrets(kind: str, properties: Properties) -> Iterator[str]:
    for container in containers_of(pod_spec(kind, properties)):
        for entry in container.get("env") or ():
            if entry.get("value") and any(word in str(entry.get("name", "")).upper() for word in _SECRET_WORDS):
                yield f"container {container.get('name')} has {entry['name']} in clear; refer to a Secret by valueFrom.secretKeyRef"


def _rollouts_that_move(kind: str, properties: Properties) -> Iterator[str]:
    if not kind.endswith(":Deployment"):
        return
    rolling = ((properties.get("spec") or {}).get("strategy") or {}).get("rollingUpdate") or {}
    if str(rolling.get("maxSurge", "25%")) in ("0", "0%") and str(rolling.get("maxUnavailable", "25%")) in ("0", "0%"):
        yield "maxSurge and maxUnavailable are both 0: no update could ever begin"
    if any(map(gpus_of, containers_of(pod_spec(kind, properties)))) and not rolling:
        yield "a GPU Deployment without rollingUpdate surges by a quarter, and the new pods wait for GPUs that the old ones hold; set maxSurge and maxUnavailable"


def _budgets_that_let_drain(kind: str, properties: Properties) -> Iterator[str]:
    spec = properties.get("spec") or {}
    if kind.endswith(":PodDisruptionBudget") and (
        str(spec.get("maxUnavailable")) in ("0", "0%") or str(spec.get("minAvailable")) == "100%"
    ):
        yield "the budget allows no disruption at all: a node with such a pod can never be drained"


RULES = (
    Rule(name="pinned-images", description="Images are pinned by version or digest.", check=_pinned_images),
    Rule(name="guaranteed-gpu-pods", description="GPU pods are Guaranteed with whole CPUs.", check=_guaranteed),
    Rule(name="no-device-visibility", description="No variable decides which devices are visible.", check=_device_visibility),
    Rule(name="shared-memory", description="Containers with several GPUs have /dev/shm in memory.", check=_shared_memory),
    Rule(name="no-privileges", description="Only DaemonSets reach the host.", check=_privileges),
    Rule(name="no-plain-secrets", description="Secrets come from Secret objects.", check=_plain_secrets),
    Rule(name="rollouts-move", description="A Deployment's update can begin and end.", check=_rollouts_that_move),
    Rule(name="budgets-let-drain", description="A disruption budget never blocks a drain for good.", check=_budgets_that_let_drain),
)


def breaches(resource: str, kind: str, properties: Properties) -> tuple[Diagnosis, ...]:
    """All breaches of one resource: the path is how it is named to the reader, the code the rule's name."""
    return tuple(Diagnosis(resource, rule.name, message) for rule in RULES for message in rule.check(kind, properties))

"""Why a workload does not become ready: its pods and events as sentences. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from infra.observe.refused import REJECTED, is_refused, meaning

_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError")
_SHOWN = 6


def causes(pods: Iterable[Mapping[str, Any]], events: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """One sentence a cause, equal ones counted; what the scheduler, the kubelet and the containers say, in that order of the pods."""
    pods, events = tuple(pods), tuple(events)
    found = Counter(sentence for pod in pods for sentence in _causes_of_pod(pod, events))
    if not pods:
        failed = [e for e in events if e.get("reason") in ("FailedCreate", "FailedScheduling", "FailedMount")]
        found.update(f"no pod was made: {_text(event)}" for event in failed[-1:])
    lines = [f"{sentence}{f' ({count} pods)' if count > 1 else ''}" for sentence, count in found.most_common(_SHOWN)]
    if len(found) > _SHOWN:
        lines.append(f"and {len(found) - _SHOWN} other causes")
    return tuple(lines)


def _causes_of_pod(pod: Mapping[str, Any], events: tuple[Mapping[str, Any], ...]) -> Iterator[str]:
    status, node = pod.get("status") or {}, (pod.get("spec") or {}).get("nodeName", "")
    if status.get("phase") == "Failed":
        yield _end_of_pod(pod, node)
        return
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            yield f"not scheduled: {condition.get('message', condition.get('reason', 'no reason given'))}"
            return
    statuses = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    told = False
    for container in statuses:
        for sentence in _causes_of_container(container, node):
            told = True
            # A container that a probe keeps ending says nothing of it itself; the kubelet's event does.
            probe = _last_event(pod, events, reason="Unhealthy")
            yield f"{sentence}{f' ({probe})' if probe else ''}"
    if told or status.get("phase") not in ("Pending", "Running"):
        return
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or ())
    if not ready:
        last = _last_event(pod, events)
        state = "runs but is not ready" if status.get("phase") == "Running" else "has not started"
        yield f"{state} on {node or 'no node'}{f': {last}' if last else ''}"


def _end_of_pod(pod: Mapping[str, Any], node: str) -> str:
    """A failed pod: refused by its kubelet, or ended after it had been admitted."""
    status = pod["status"]
    reason, message = status.get("reason", "no reason given"), (status.get("message") or "").strip()
    if not is_refused(pod):
        return f"ended on {node}: {reason}{f': {message}' if message else ''}"
    sentence = f"refused by the kubelet of {node}: {reason} ({message.removeprefix(REJECTED).strip()})"
    return f"{sentence}: {meaning(reason)}" if meaning(reason) else sentence


def _causes_of_container(container: Mapping[str, Any], node: str) -> Iterator[str]:
    name, waiting = container.get("name"), (container.get("state") or {}).get("waiting") or {}
    reason, message = waiting.get("reason", ""), waiting.get("message", "").strip()
    ended = (container.get("lastState") or {}).get("terminated") or (container.get("state") or {}).get("terminated") or {}
    if reason in _IMAGE:
        yield f"image {container.get('image')} of container {name} cannot be pulled on {node}: {message or reason}"
    elif ended and ended.get("exitCode"):
        why = (
            "was killed for memory (OOMKilled)"
            if ended.get("reason") == "OOMKilled"
            else f"ended with exit code {ended['exitCode']}"
        )
        last = (ended.get("message") or "").strip().splitlines()
        yield f"container {name} {why}, {container.get('restartCount', 0)} restarts{f': {last[-1]}' if last else ''}"
    elif reason and reason not in ("ContainerCreating", "PodInitializing"):
        yield f"container {name} waits: {reason}{f': {message}' if message else ''}"


def _last_event(pod: Mapping[str, Any], events: tuple[Mapping[str, Any], ...], *, reason: str = "") -> str:
    """The newest warning about the pod, of one reason if given; empty where there is none."""
    identity = pod.get("metadata") or {}
    about = [
        event
        for event in events
        if event.get("type") == "Warning"
        and (event.get("involvedObject") or {}).get("name") == identity.get("name")
        and reason in ("", event.get("reason"))
    ]
    about.sort(key=lambda event: event.get("lastTimestamp") or event.get("eventTime") or "")
    return _text(about[-1]) if about else ""


def _text(event: Mapping[str, Any]) -> str:
    return f"{event.get('reason', '')}: {(event.get('message') or '').strip()}"

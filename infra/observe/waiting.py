"""The wait for one workload, as a state that is given one look after the other: done, failed with the causes, or still waiting. No clock of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from infra.kinds import ObjectKey
from infra.observe.causes import causes
from infra.observe.hopeless import RULES, Situation
from infra.observe.node_fit import matches
from infra.observe.rollouts import Raw, Rollouts, has_given_up, is_rolled_out, ready_replicas

TELL_SECONDS = 30
_NO_CAUSE = "its replicas are not ready, and no pod or event tells why; look at the controller manager"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """`failed`: the causes, one a line. `tell`: what it waits for, once in TELL_SECONDS. With neither and not `done` it goes on."""

    done: bool = False
    failed: tuple[str, ...] = ()
    tell: str = ""


@dataclass(kw_only=True, eq=False)
class Waiting:
    """Of one workload from `since` (seconds of the caller's clock) for `timeout_seconds` at most."""

    key: ObjectKey
    timeout_seconds: float
    since: float
    _told: float = field(init=False)
    _standing: dict[str, float] = field(default_factory=dict, init=False)  # name of a hopeless cause -> since when it stands

    def __post_init__(self) -> None:
        self._told = self.since

    @property
    def name(self) -> str:
        return f"{self.key.namespace}/{self.key.name}"

    def quick(self, seen: Rollouts) -> Outcome:
        """From the workloads alone."""
        workload = seen.workloads.get(self.key)
        return Outcome(done=workload is None or is_rolled_out(workload))

    def look(self, seen: Rollouts, now: float, events: Callable[[], Iterable[Raw]]) -> Outcome:
        """From a look with pods; `events` of the workload's namespace are asked for only where they are told."""
        outcome = self.quick(seen)
        if outcome.done:
            return outcome
        workload, pods = seen.workloads[self.key], seen.newest_pods_of(self.key)
        situation = Situation(workload=workload, pods=pods, leaving=_leaving(seen, pods), events=tuple(events()))
        hopeless = self._hopeless(situation, now)
        if hopeless:
            return Outcome(failed=hopeless)
        if has_given_up(workload) or now - self.since > self.timeout_seconds:
            return Outcome(failed=causes(pods, self._own_events(situation)) or (_NO_CAUSE,))
        if now - self._told < TELL_SECONDS:
            return Outcome()
        self._told = now
        return Outcome(tell=self._line(situation, seen.pods_of(self.key), now))

    def _hopeless(self, situation: Situation, now: float) -> tuple[str, ...]:
        for rule in RULES:
            found = tuple(dict.fromkeys(rule.found(situation)))
            if not found:
                self._standing.pop(rule.name, None)
                continue
            since = self._standing.setdefault(rule.name, now)
            if now - since >= rule.patience_seconds:
                return tuple(f"{sentence}; waiting cannot help: {rule.why}" for sentence in found)
        return ()

    def _line(self, situation: Situation, all_pods: tuple[Raw, ...], now: float) -> str:
        """One line: how many are ready, and which pod waits for what."""
        ready = ready_replicas(situation.workload)
        text = f"{self.name}: {ready} of {situation.workload['spec'].get('replicas', 1)} ready after {now - self.since:.0f} s"
        events = self._own_events(situation)
        waiting = [(pod["metadata"]["name"], told) for pod in situation.pods for told in causes([pod], events)]
        if waiting:
            name, cause = waiting[0]
            more = f" (and {len(waiting) - 1} more)" if len(waiting) > 1 else ""
            behind = (
                f"; {', '.join(situation.leaving[:2])} is about to leave" if situation.leaving and "not scheduled" in cause else ""
            )
            return f"{text}; pod {name}: {cause}{more}{behind}"
        going = [pod["metadata"]["name"] for pod in all_pods if pod not in situation.pods]
        if going:
            return f"{text}; waits until {', '.join(going[:3])} {'is' if len(going) == 1 else 'are'} gone"
        cause = causes((), events) if not situation.pods else ()
        return f"{text}; {cause[0] if cause else 'its controller has not made the next pod yet'}"

    def _own_events(self, situation: Situation) -> tuple[Raw, ...]:
        return tuple(e for e in situation.events if (e.get("involvedObject") or {}).get("name", "").startswith(self.key.name))


def _leaving(seen: Rollouts, pods: Iterable[Raw]) -> tuple[str, ...]:
    """Pods of the stack that are about to leave a node that these pods may use; any node where there is no pod yet."""
    selectors = [(pod.get("spec") or {}).get("nodeSelector") or {} for pod in pods] or [{}]
    nodes = [name for name, labels in seen.nodes.items() if any(matches(selector, labels) for selector in selectors)]
    return seen.leaving(nodes)

"""Waits until every replica of each workload's newest template is ready, tells every half minute which pod waits for what, and ends where waiting is hopeless.

The provider's own wait does none of this: it can end before the newest template is rolled out (pulumi-kubernetes 4.25.0, provider/pkg/await/deployment.go,
compares a ReplicaSet's ready pods with what that ReplicaSet wants at the moment), it names no cause, and a pod without room costs its whole timeout.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Mapping
from typing import Any

import pulumi

from components.room import Room
from infra.errors import NumawiseError
from infra.kinds import ObjectKey
from infra.observe.client import Client
from infra.observe.rollouts import Raw, Rollouts, look_at_rollouts
from infra.observe.waiting import Outcome, Waiting

_SHORTEST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 8.0
_BETWEEN_PODS_SECONDS = 4.0


class RolloutWaits:
    """The waits of one program: one look at a time for all of them, in a thread, so that the hooks of other workloads are served meanwhile."""

    def __init__(self, client: Callable[[], Client | None], labels: Mapping[str, str], room: Room) -> None:
        self.room = room
        self._client = client
        self._labels = labels
        self._outputs: list[pulumi.Output[Any]] = []
        self._waiting: dict[Waiting, asyncio.Future[None]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._failed: list[str] = []

    def when_ready(
        self, resource: pulumi.CustomResource, key: ObjectKey, value: Any, *, timeout_seconds: float
    ) -> pulumi.Output[Any]:
        """`value` once the workload is ready or has failed, which `verdict` tells. Previews do not wait."""

        async def wait(_: Any) -> Any:
            if not pulumi.runtime.is_dry_run() and self._client() is not None:
                await self.room.restore(key)
                await self.wait_for(key, timeout_seconds)
            return value

        # Its properties, unlike its id, are unknown where the engine saw it fail: that failure is told already.
        output = pulumi.Output.from_input(getattr(resource, "metadata", resource.urn)).apply(wait)
        self._outputs.append(output)
        return output

    def verdict(self) -> pulumi.Output[None]:
        """Ends the program where a workload failed, once all waits have ended: the causes of each have been logged by then."""

        def judge(_: Any) -> None:
            if self._failed:
                count = len(self._failed)
                raise pulumi.RunError(
                    f"{count} workload{'s' if count > 1 else ''} did not become ready: {', '.join(self._failed)}; the causes stand above"
                )

        return pulumi.Output.all(*self._outputs).apply(judge)

    async def wait_for(self, key: ObjectKey, timeout_seconds: float) -> None:
        """Returns when the workload is ready or has failed."""
        waiting = Waiting(key=key, timeout_seconds=timeout_seconds, since=time.monotonic())
        self._waiting[waiting] = asyncio.get_running_loop().create_future()
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        await self._waiting[waiting]

    async def _look(self) -> None:
        pause, pods_at = _SHORTEST_PAUSE_SECONDS, time.monotonic() + _BETWEEN_PODS_SECONDS
        while self._waiting:
            cluster, with_pods = self._client(), time.monotonic() >= pods_at
            assert cluster is not None
            try:
                seen = await asyncio.to_thread(look_at_rollouts, cluster, self._labels, pods=with_pods)
                if with_pods:
                    pods_at = time.monotonic() + _BETWEEN_PODS_SECONDS
                for waiting in list(self._waiting):
                    self._settle(waiting, await self._outcome(cluster, waiting, seen, with_pods=with_pods))
            except NumawiseError as error:
                for waiting in list(self._waiting):
                    self._settle(waiting, Outcome(failed=(f"whether it is ready could not be asked: {error}",)))
            pause = min(pause * 1.1, _LONGEST_PAUSE_SECONDS)
            await asyncio.sleep(pause if self._waiting else 0)

    async def _outcome(self, cluster: Client, waiting: Waiting, seen: Rollouts, *, with_pods: bool) -> Outcome:
        if not with_pods:
            return waiting.quick(seen)
        events = functools.cache(functools.partial(_events_of, cluster, waiting.key.namespace))
        return await asyncio.to_thread(waiting.look, seen, time.monotonic(), events)

    def _settle(self, waiting: Waiting, outcome: Outcome) -> None:
        if outcome.tell:
            pulumi.log.info(outcome.tell)
        for line in outcome.failed:
            pulumi.log.error(f"{waiting.name}: {line}")
        if outcome.failed:
            self._failed.append(waiting.name)
        if outcome.failed or outcome.done:
            self._waiting.pop(waiting).set_result(None)


def _events_of(cluster: Client, namespace: str) -> tuple[Raw, ...]:
    return tuple(cluster.list(f"/api/v1/namespaces/{namespace}/events"))

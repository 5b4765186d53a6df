"""Gives room: scales down what has to go before what needs its GPUs starts, once an update, and brings back what an unfinished update scaled down."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import pulumi

from infra.kinds import ObjectKey, key_of
from infra.observe.client import Client
from infra.observe.rollouts import Raw, Rollouts, has_ended, look_at_rollouts
from infra.observe.room import ROOM_GIVEN, Giving, RoomPlan
from infra.observe.waiting import TELL_SECONDS

# Before each apply the provider takes over what a manager of this name set (pulumi-kubernetes 4.25.0, provider/pkg/await/await.go,
# fixCSAFieldManagers): so no conflict is left behind, and the annotation goes with the next apply.
_MANAGER = "pulumi-resource-kubernetes"
_PAUSE_SECONDS = 1.0
_BEYOND_GRACE_SECONDS = 120


class Room:
    """Of one program. `plan` is what the look at the cluster decided; nothing happens in a preview, and nothing before a workload that
    needs room is really created or updated."""

    def __init__(self, plan: RoomPlan, labels: Mapping[str, str], client: Callable[[], Client]) -> None:
        self._plan, self._labels, self._client = plan, labels, client
        self._pools: dict[str, asyncio.Task[None]] = {}
        self.hook = pulumi.ResourceHook("numawise-room", self._before)

    async def _before(self, change: pulumi.ResourceHookArgs) -> None:
        inputs = change.new_inputs or {}
        pool = self._plan.taking.get(key_of(inputs))
        if pool is not None:
            await self.give(pool)

    async def restore(self, key: ObjectKey) -> None:
        """Brings a workload back to its planned replicas where an unfinished update had scaled it down; first the others give room."""
        one = next((one for one in self._plan.restoring if one.key == key), None)
        if one is None:
            return
        await self.give(one.pool)
        patch = {"metadata": {"annotations": {ROOM_GIVEN: None}}, "spec": {"replicas": one.planned}}
        await asyncio.to_thread(self._patch, key, patch)

    async def give(self, pool: str) -> None:
        """Returns once everything that has to give room on the pool has: all that ask wait for the same."""
        if pool not in self._pools:
            self._pools[pool] = asyncio.ensure_future(self._give(pool))
        await asyncio.shield(self._pools[pool])

    async def _give(self, pool: str) -> None:
        giving = self._plan.on(pool)
        for one in giving:
            pulumi.log.info(
                f"{one.key.namespace}/{one.key.name}: scaled to {one.remaining} replicas, gives {one.gpus} GPUs of {pool}"
            )
            patch = {"metadata": {"annotations": {ROOM_GIVEN: str(one.replicas)}}, "spec": {"replicas": one.remaining}}
            await asyncio.to_thread(self._patch, one.key, patch)
        began = told = time.monotonic()
        while giving:
            seen = await asyncio.to_thread(self._seen)
            remaining = {one.key: pods for one in giving if (pods := _too_many(one, seen))}
            if not remaining:
                return
            now = time.monotonic()
            names = ", ".join(pod["metadata"]["name"] for pods in remaining.values() for pod in pods)
            grace = max(pod["spec"].get("terminationGracePeriodSeconds", 30) for pods in remaining.values() for pod in pods)
            if now - began > grace + _BEYOND_GRACE_SECONDS:
                text = f"pods that have to go are still there after {now - began:.0f} s, {grace} s of which are their grace: {names}; see `kubectl describe pod`"
                pulumi.log.error(f"{pool}: {text}")
                raise pulumi.RunError(text)
            if now - told >= TELL_SECONDS:
                told = now
                pulumi.log.info(f"{pool}: waits {now - began:.0f} s for {names} to go")
            await asyncio.sleep(_PAUSE_SECONDS)

    def _seen(self) -> Rollouts:
        return look_at_rollouts(self._client(), self._labels, pods=True)

    def _patch(self, key: ObjectKey, patch: Mapping[str, Any]) -> None:
        self._client().request(
            "PATCH", key.path, query={"fieldManager": _MANAGER}, body=patch, content_type="application/merge-patch+json"
        )


def _too_many(one: Giving, seen: Rollouts) -> tuple[Raw, ...]:
    """Pods of a workload that still hold what it gives: those that are ending first."""
    workload = seen.workloads.get(one.key)
    if workload is None:
        return ()
    size = ((workload["spec"].get("leaderWorkerTemplate") or {}).get("size", 1)) * one.remaining
    pods = [pod for pod in seen.pods_of(one.key) if not has_ended(pod)]
    pods.sort(key=lambda pod: "deletionTimestamp" not in pod["metadata"])
    return tuple(pods[: max(len(pods) - size, 0)])

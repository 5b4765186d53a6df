"""Waits until every replica of a Deployment's newest template is ready: the provider's own wait can end before that.

The provider compares a ReplicaSet's ready pods with what that ReplicaSet wants at the moment. In an update that goes back to an earlier template, one pod
after the other, that is one of one for a while (pulumi-kubernetes 4.25.0, provider/pkg/await/deployment.go).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import pulumi
from pulumi_kubernetes.apps.v1 import Deployment

from components.hooks import read_causes
from infra.errors import NumawiseError
from infra.observe.client import Client, growing_pauses


def when_rolled_out(
    deployment: Deployment,
    manifest: Mapping[str, Any],
    value: Any,
    *,
    client: Callable[[], Client | None],
    timeout_seconds: int,
) -> pulumi.Output[Any]:
    """`value` once all replicas are ready; ends the program with the cause where the Deployment gives up. Previews do not wait."""

    async def wait(_: Any) -> Any:
        cluster = client()
        if not pulumi.runtime.is_dry_run() and cluster is not None:
            try:
                await wait_until_rolled_out(cluster, manifest, timeout_seconds)
            except NumawiseError as error:
                identity = manifest["metadata"]
                raise pulumi.RunError(
                    f"{identity['namespace']}/{identity['name']}: whether it is rolled out could not be asked: {error}"
                ) from None
        return value

    # Its properties, unlike its id, are unknown where the engine saw it fail: that failure is told already, and a second one would
    # end the program before the hooks of other workloads have spoken.
    return pulumi.Output.from_input(deployment.metadata).apply(wait)


async def wait_until_rolled_out(cluster: Client, manifest: Mapping[str, Any], timeout_seconds: int) -> None:
    """A thread for each look and none in between: there are few, and the error hooks of other workloads need them too."""
    namespace, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
    deadline, pauses = time.monotonic() + timeout_seconds, growing_pauses()
    while True:
        found = await asyncio.to_thread(cluster.find, f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}")
        if found is None or is_rolled_out(found):
            return
        if has_given_up(found) or time.monotonic() > deadline:
            lines = await asyncio.to_thread(read_causes, lambda: cluster, manifest) or ("its replicas are not ready",)
            raise pulumi.RunError("\n".join(f"{namespace}/{name}: {line}" for line in lines))
        await asyncio.sleep(next(pauses))


def is_rolled_out(deployment: Mapping[str, Any]) -> bool:
    """All wanted replicas are of the newest template and available, and no old one is left."""
    wanted, status = deployment["spec"].get("replicas", 1), deployment.get("status") or {}
    return (
        status.get("observedGeneration", 0) >= deployment["metadata"]["generation"]
        and status.get("updatedReplicas", 0) == wanted
        and status.get("availableReplicas", 0) == wanted
        and status.get("replicas", 0) == wanted
    )


def has_given_up(deployment: Mapping[str, Any]) -> bool:
    """The controller saw no progress within progressDeadlineSeconds."""
    conditions = (deployment.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Progressing" and condition["status"] == "False" for condition in conditions)

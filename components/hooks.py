"""The error hook of all workloads: a failed wait says nothing of the cause, the workload's pods and events do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pulumi

from infra.errors import NumawiseError
from infra.observe.causes import causes
from infra.observe.client import Client
from infra.render.labels import SELECTOR_KEYS


def explain_hook(client: Callable[[], Client | None]) -> pulumi.ErrorHook:
    """One for the program. It logs why the workload is not ready and never retries: the wait has had its time."""

    async def explain(failure: pulumi.ErrorHookArgs) -> bool:
        workload = failure.new_inputs or failure.old_inputs or {}
        if failure.failed_operation == "delete":
            return False
        try:
            # The hook is served by the program's own event loop: a blocking call would hold up every other resource.
            lines = await asyncio.to_thread(read_causes, client, workload)
        except NumawiseError as error:
            lines = (f"the cluster could not be asked: {error}",)
        identity = workload.get("metadata", {})
        for line in lines or ("no pod or event tells why; look at the controller manager and the quota of the namespace",):
            pulumi.log.error(f"{identity.get('namespace')}/{identity.get('name')}: {line}")
        return False

    return pulumi.ErrorHook("numawise-explain", explain)


def read_causes(client: Callable[[], Client | None], workload: Mapping[str, Any]) -> tuple[str, ...]:
    """Why the workload of a manifest is not ready, one sentence a cause; () where the cluster is not known yet."""
    cluster = client()
    if cluster is None:
        return ()
    namespace, name = workload["metadata"]["namespace"], workload["metadata"]["name"]
    labels = workload["metadata"]["labels"]
    selector = ",".join(f"{key}={labels[key]}" for key in SELECTOR_KEYS)
    pods = cluster.list(f"/api/v1/namespaces/{namespace}/pods", query={"labelSelector": selector})
    events = [
        event
        for event in cluster.list(f"/api/v1/namespaces/{namespace}/events")
        if (event.get("involvedObject") or {}).get("name", "").startswith(name)
    ]
    return causes(pods, events)


def node_exists_hook(client: Callable[[], Client | None]) -> pulumi.ResourceHook:
    """Before the labels of a node are applied: an apply for a node that has left the cluster meanwhile would make a Node that no machine stands for."""

    async def exists(args: pulumi.ResourceHookArgs) -> None:
        name = ((args.new_inputs or {}).get("metadata") or {}).get("name", "")
        cluster = client()
        if cluster is not None and await asyncio.to_thread(cluster.find, f"/api/v1/nodes/{name}") is None:
            raise RuntimeError(f"{name} is no node of the cluster any more: its labels are left alone; run the update again")

    return pulumi.ResourceHook("numawise-node-exists", exists)

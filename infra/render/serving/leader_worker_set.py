"""A replica over several machines: a LeaderWorkerSet whose pods run vLLM's own multi-node mode (no Ray)."""

from __future__ import annotations

from typing import Any

from infra.plan.model import ModelPlan
from infra.render.manifest import Manifest

# The LeaderWorkerSet controller numbers a group's pods by this label and gives each the leader's address and its own number.
LEADER = {"leaderworkerset.sigs.k8s.io/worker-index": "0"}
_LEADER_ADDRESS, _POD_NUMBER = "$(LWS_LEADER_ADDRESS)", "$(LWS_WORKER_INDEX)"


def leader_worker_set(model: ModelPlan, object_metadata: dict[str, Any], template: dict[str, Any]) -> Manifest:
    """`template`: the pod as a Deployment would have it. Kind and fields of leaderworkerset.x-k8s.io/v1 (kubernetes-sigs/lws)."""
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": object_metadata,
        "spec": {
            "replicas": model.placement.replicas,
            # A worker's engine waits for the leader's, so both have to start at the same time.
            "startupPolicy": "LeaderCreated",
            "rolloutStrategy": {
                "type": "RollingUpdate",
                "rollingUpdateConfiguration": {
                    "maxUnavailable": model.placement.max_unavailable,
                    "maxSurge": model.placement.max_surge,
                },
            },
            "leaderWorkerTemplate": {
                "size": model.parallelism.pods_per_replica,
                # Ranks that lost a peer do not come back by themselves.
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": _with_main_container(template, lambda main: _join(main, model, ["--node-rank", "0"])),
                "workerTemplate": _with_main_container(
                    template, lambda main: _without_server(_join(main, model, ["--node-rank", _POD_NUMBER, "--headless"]))
                ),
            },
        },
    }


def _with_main_container(template: dict[str, Any], change: Any) -> dict[str, Any]:
    main, *others = template["spec"]["containers"]
    return {**template, "spec": {**template["spec"], "containers": [change(main), *others]}}


def _join(container: dict[str, Any], model: ModelPlan, words: list[str]) -> dict[str, Any]:
    group = ["--nnodes", str(model.parallelism.pods_per_replica), "--master-addr", _LEADER_ADDRESS]
    return {**container, "args": [*container["args"], *group, *words]}


def _without_server(container: dict[str, Any]) -> dict[str, Any]:
    """Workers answer no HTTP: what is wrong with one, the leader's health tells."""
    return {key: value for key, value in container.items() if not key.endswith("Probe") and key not in ("ports", "lifecycle")}

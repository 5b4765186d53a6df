"""A replica over several machines: a LeaderWorkerSet whose pods run vLLM's own multi-node mode (no Ray)."""

from __future__ import annotations

from typing import Any

from infra.plan.model import ModelPlan
from infra.render import names
from infra.render.manifest import Manifest
from infra.render.serving.container import DRAIN_SECONDS, PRE_STOP_SECONDS

# The LeaderWorkerSet controller numbers a group's pods by this label and gives each the leader's address and its own number.
LEADER = {"leaderworkerset.sigs.k8s.io/worker-index": "0"}
# Where the ranks of a group meet: vLLM's own default, written out since the workers' end waits for it.
_MASTER_PORT = 29501
_LEADER_ADDRESS, _POD_NUMBER = "$(LWS_LEADER_ADDRESS)", "$(LWS_WORKER_INDEX)"


def leader_worker_set(model: ModelPlan, object_metadata: dict[str, Any], template: dict[str, Any]) -> Manifest:
    """`template`: the pod as a Deployment would have it. Kind and fields of leaderworkerset.x-k8s.io/v1 (kubernetes-sigs/lws)."""
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": object_metadata,
        "spec": {
            "replicas": model.placement.replicas,
            # Otherwise the controller makes one headless Service of the set's name, which the model's own Service has: then
            # the update fails, or the leader's address does not resolve before the leader is ready.
            "networkConfig": {"subdomainPolicy": "UniquePerReplica"},
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
                # Ranks that lost a peer do not come back by themselves. A group of which a pod still waits for its node is
                # not made anew.
                "restartPolicy": "RecreateGroupAfterStart",
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
    group = [
        "--nnodes",
        str(model.parallelism.pods_per_replica),
        "--master-addr",
        _LEADER_ADDRESS,
        "--master-port",
        str(_MASTER_PORT),
    ]
    return {**container, "args": [*container["args"], *group, *words]}


def _without_server(container: dict[str, Any]) -> dict[str, Any]:
    """Workers answer no HTTP: what is wrong with one, the leader's health tells. They end after their leader, which still answers with them."""
    worker = {key: value for key, value in container.items() if not key.endswith("Probe") and key != "ports"}
    # A hook's words are not expanded as args are, so a shell reads the leader's address from the environment.
    wait = f'exec python3 {names.GATE_MOUNT}/leader.py "$LWS_LEADER_ADDRESS" {_MASTER_PORT} {PRE_STOP_SECONDS + DRAIN_SECONDS}'
    worker["lifecycle"] = {"preStop": {"exec": {"command": ["sh", "-c", wait]}}}
    return worker

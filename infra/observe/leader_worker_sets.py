"""Whether a cluster runs what a model over several nodes needs: the LeaderWorkerSet controller, in a version that knows the fields that we set."""

from __future__ import annotations

from collections.abc import Iterator

from infra.catalog.load import pins
from infra.diagnosis import Diagnosis
from infra.kinds import ObjectKey, kind_named
from infra.observe.client import ApiError, Client
from infra.observe.model import ClusterObservation, ObservedGroupController
from infra.plan.model import ClusterPlan

_KIND = kind_named("LeaderWorkerSet")
# The controller completes and checks its objects by this webhook; its own certificate rotation looks for the name
# (sigs.k8s.io/lws, pkg/cert).
_WEBHOOK = ObjectKey(kind="MutatingWebhookConfiguration", namespace="", name="lws-mutating-webhook-configuration")
_RESTART_POLICY = "RecreateGroupAfterStart"


def observe_group_controller(client: Client) -> ObservedGroupController | None:
    """The definition of LeaderWorkerSet as the cluster has it; None where it may not be read."""
    try:
        definition = client.find(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{_KIND.plural}.{_KIND.group}")
        webhook = client.find(f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{_WEBHOOK.name}")
    except ApiError:
        return None
    served = next((v for v in ((definition or {}).get("spec") or {}).get("versions", ()) if v["name"] == _KIND.version), None)
    if definition is None or served is None or not served.get("served"):
        return ObservedGroupController(defined=False, restart_policies=(), runs=webhook is not None)
    schema = (served.get("schema") or {}).get("openAPIV3Schema") or {}
    for key in ("spec", "leaderWorkerTemplate", "restartPolicy"):
        schema = (schema.get("properties") or {}).get(key) or {}
    return ObservedGroupController(defined=True, restart_policies=tuple(schema.get("enum") or ()), runs=webhook is not None)


def check_group_controller(plan: ClusterPlan, seen: ClusterObservation) -> Iterator[Diagnosis]:
    """Of each model over several nodes: what its LeaderWorkerSet lacks in this cluster."""
    controller = seen.group_controller
    if controller is None:
        return
    release = pins()["leader-worker-set"].version
    install = f"kubectl apply --server-side -f https://github.com/kubernetes-sigs/lws/releases/download/{release}/manifests.yaml"
    for index, model in enumerate(plan.models):
        pods = model.parallelism.pods_per_replica
        if pods == 1:
            continue
        path = f"models[{index}]"
        needs = f"a replica of {model.name} spans {pods} nodes"
        if not controller.defined:
            yield Diagnosis(
                path,
                "NoLeaderWorkerSet",
                f"{needs}, and this cluster does not know {_KIND.kind} ({_KIND.api_version}); install its controller ({install}), or choose sizes that fit one node",
            )
        elif controller.restart_policies and _RESTART_POLICY not in controller.restart_policies:
            yield Diagnosis(
                path,
                "LeaderWorkerSetTooOld",
                f"{needs} with restartPolicy {_RESTART_POLICY}, and this cluster's {_KIND.kind} knows {', '.join(controller.restart_policies)}; "
                f"update its controller to {release} or newer ({install})",
            )
        elif not controller.runs:
            yield Diagnosis.warning(
                path,
                "NoLeaderWorkerSetController",
                f"{needs}; this cluster knows {_KIND.kind}, but there is no {_WEBHOOK.kind} {_WEBHOOK.name}: without its controller no pod is made ({install})",
            )

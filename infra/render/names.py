"""The only maker of object names. Names are plain strings: no object takes another's name as a Pulumi output."""

from __future__ import annotations

from infra.plan.model import ClusterPlan, ModelPlan, PoolPlan
from infra.plan.service_names import service_name
from infra.render.labels import label_value

# Several stacks may share a cluster: what is cluster-scoped carries the stack, what a pool or model owns carries its name.
GATE_MOUNT = "/etc/numawise"
HTTP_PORT = 8000
GUARD = "numawise-guard"
MAIN_CONTAINER = "vllm"
MODELS_VOLUME = "models"  # the claim with the weights: what init containers mount to write there
# Secret of the stack -> its key in a model's credentials Secret.
SECRETS = {"apiKey": "api-key", "hubToken": "hub-token"}


def device_plugin(pool: PoolPlan) -> str:
    """DaemonSet, ConfigMap and ServiceAccount of the pool's device plugin."""
    return f"{pool.hardware.vendor}-device-plugin-{pool.name}"


def workload(model: ModelPlan) -> str:
    """Deployment, ServiceAccount, PodDisruptionBudget and NetworkPolicy of a model."""
    return model.name


def service(model: ModelPlan) -> str:
    return service_name(model.name)


def gate(model: ModelPlan) -> str:
    """The ConfigMap with the gate and its part of the plan."""
    return f"{model.name}-gate"


def credentials(model: ModelPlan) -> str:
    """The Secret with the API key and the hub token of a model."""
    return f"{model.name}-credentials"


def kubelet_drop_in(pool: PoolPlan) -> str:
    """The kubelet reads only files that end in .conf, in the order of their names; ours comes late."""
    return f"90-numawise-{pool.name}.conf"


def identity(plan: ClusterPlan, model: ModelPlan) -> str:
    """A model's name within the stack: two namespaces may hold one of the same name."""
    return model.name if model.namespace == plan.namespace.name else f"{model.namespace}/{model.name}"


def cluster_scoped(stack: str, name: str) -> str:
    """A name that another stack on the same cluster cannot have."""
    return f"{name}-{label_value(stack).lower().replace('_', '-')}"

"""The NVIDIA and AMD device plugins of a pool, as typed manifests."""

from __future__ import annotations

from typing import Any

import yaml

from infra.plan.daemons import OWN_PODS
from infra.plan.model import ClusterPlan, PoolPlan
from infra.render import names
from infra.render.labels import CHECKSUM, labels, selector
from infra.render.manifest import Manifest, checksum, config_map, image_pull_secrets, metadata, service_account, tolerations
from infra.render.namespaces import NAMESPACES_PART
from infra.render.nodes import POOL_TOKEN, node_selector
from infra.render.part import Part, Wait, child, in_apply_order, key_of_part

_COMPONENT = "device-plugin"
_SOCKETS = "/var/lib/kubelet/device-plugins"
PLUGIN_TOKEN = "numawise:gpu:DevicePlugin"
_WAIT = Wait(create_seconds=900, update_seconds=900)  # an image pull on every node of a wave


def device_plugin_part(plan: ClusterPlan, pool: PoolPlan, *, stack: str) -> Part:
    """NVIDIA's or AMD's plugin as a DaemonSet on the pool's nodes; without objects where an operator or the platform brings it."""
    plugin = pool.device_plugin
    managed = plugin.mode == "managed"
    facts = {
        "vendor": pool.hardware.vendor,
        "mode": plugin.mode,
        "image": plugin.image if managed else None,
        "passDeviceSpecs": plugin.pass_device_specs,
        "resourceName": pool.hardware.resource_name,
    }
    return Part(
        token=PLUGIN_TOKEN,
        name=pool.name,
        facts=facts,
        children=in_apply_order(
            tuple(
                child(manifest, wait=_WAIT if manifest["kind"] == "DaemonSet" else None)
                for manifest in (_manifests(plan, pool, stack) if managed else ())
            )
        ),
        after=(NAMESPACES_PART, key_of_part(POOL_TOKEN, pool.name)),
    )


def _manifests(plan: ClusterPlan, pool: PoolPlan, stack: str) -> tuple[Manifest, ...]:
    """ServiceAccount, ConfigMap (NVIDIA) and DaemonSet."""
    return _nvidia(plan, pool, stack) if pool.hardware.vendor == "nvidia" else _amd(plan, pool, stack)


def nvidia_configuration(pool: PoolPlan) -> str:
    """The plugin's configuration file, version v1 (api/config/v1 of NVIDIA/k8s-device-plugin).

    It has no topology switch: the plugin always reports the NUMA node that sysfs gives. Keys that are not its own it drops silently.
    """
    document = {
        "version": "v1",
        "flags": {
            "migStrategy": "none",
            "failOnInitError": True,
            "plugin": {
                "passDeviceSpecs": pool.device_plugin.pass_device_specs,
                "deviceListStrategy": ["envvar"],
                "deviceIDStrategy": "uuid",
            },
        },
    }
    return yaml.safe_dump(document, sort_keys=False)


def _nvidia(plan: ClusterPlan, pool: PoolPlan, stack: str) -> tuple[Manifest, ...]:
    name, files = names.device_plugin(pool), {"default": nvidia_configuration(pool)}
    all_labels = _labels(pool, stack)
    specs = pool.device_plugin.pass_device_specs
    container = {
        "name": "device-plugin",
        "image": pool.device_plugin.image,
        "command": ["nvidia-device-plugin"],
        "env": [
            {"name": "CONFIG_FILE", "value": "/config/config.yaml"},
            {"name": "PASS_DEVICE_SPECS", "value": "true" if specs else "false"},
        ],
        # Device specs name device files of the host, which only a privileged container sees.
        "securityContext": {"privileged": True}
        if specs
        else {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [
            {"name": "device-plugins", "mountPath": _SOCKETS},
            {"name": "config", "mountPath": "/config", "readOnly": True},
        ],
    }
    config_volume = {"name": "config", "configMap": {"name": name, "items": [{"key": "default", "path": "config.yaml"}]}}
    return (
        service_account(name, plan.system_namespace, all_labels),
        config_map(name, plan.system_namespace, all_labels, files),
        _daemon_set(plan, pool, container, [config_volume], all_labels, annotations={CHECKSUM: checksum(files)}),
    )


def _amd(plan: ClusterPlan, pool: PoolPlan, stack: str) -> tuple[Manifest, ...]:
    container = {
        "name": "device-plugin",
        "image": pool.device_plugin.image,
        # AMD's image has a command and no entry point: arguments alone would replace it. /root is the working directory of that
        # image.
        "command": ["/root/k8s-device-plugin"],
        # pulse 0: the plugin's own health check opens /dev/kfd and would need a privileged container.
        "args": ["-logtostderr=true", "-pulse=0", "-resource_naming_strategy=single"],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "device-plugins", "mountPath": _SOCKETS}, {"name": "sys", "mountPath": "/sys", "readOnly": True}],
    }
    all_labels = _labels(pool, stack)
    return (
        service_account(names.device_plugin(pool), plan.system_namespace, all_labels),
        _daemon_set(
            plan, pool, container, [{"name": "sys", "hostPath": {"path": "/sys", "type": "Directory"}}], all_labels, annotations={}
        ),
    )


def _labels(pool: PoolPlan, stack: str) -> dict[str, str]:
    return labels(stack=stack, name=f"{pool.hardware.vendor}-device-plugin", instance=pool.name, component=_COMPONENT)


def _daemon_set(
    plan: ClusterPlan,
    pool: PoolPlan,
    container: dict[str, Any],
    volumes: list[dict[str, Any]],
    all_labels: dict[str, str],
    *,
    annotations: dict[str, str],
) -> Manifest:
    name, pull_secrets = names.device_plugin(pool), image_pull_secrets(plan)
    pod_metadata: dict[str, Any] = {"labels": dict(all_labels)}
    if annotations:
        pod_metadata["annotations"] = annotations
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata(name, all_labels, namespace=plan.system_namespace),
        "spec": {
            "selector": {"matchLabels": selector(f"{pool.hardware.vendor}-device-plugin", pool.name)},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
            "template": {
                "metadata": pod_metadata,
                "spec": {
                    "serviceAccountName": name,
                    "automountServiceAccountToken": False,
                    **({"imagePullSecrets": pull_secrets} if pull_secrets else {}),
                    "enableServiceLinks": False,
                    "priorityClassName": "system-node-critical",
                    "nodeSelector": node_selector(pool),
                    "tolerations": tolerations([pool]),
                    "containers": [{**container, "resources": OWN_PODS[_COMPONENT].resources}],
                    "volumes": [{"name": "device-plugins", "hostPath": {"path": _SOCKETS, "type": "Directory"}}, *volumes],
                },
            },
        },
    }

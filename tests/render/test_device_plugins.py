from __future__ import annotations

from typing import Any

import pytest
import yaml

from infra.plan.model import DevicePluginPlan, PoolPlan, TaintPlan
from infra.render.device_plugins import device_plugin_part
from tests.support.builders import STACK, changed, cluster_plan, pool_plan


def rendered(pool: PoolPlan) -> dict[str, dict[str, Any]]:
    plan = cluster_plan(node_pools=(pool,), models=())
    return {child.manifest["kind"]: child.manifest for child in device_plugin_part(plan, pool, stack=STACK).children}


def pod(pool: PoolPlan) -> dict[str, Any]:
    return rendered(pool)["DaemonSet"]["spec"]["template"]["spec"]


def test_the_nvidia_configuration_has_only_fields_that_the_plugin_knows() -> None:
    document = yaml.safe_load(rendered(pool_plan("h100"))["ConfigMap"]["data"]["default"])
    assert set(document) == {"version", "flags"}
    assert set(document["flags"]) == {"migStrategy", "failOnInitError", "plugin"}
    assert document["flags"]["plugin"] == {"passDeviceSpecs": True, "deviceListStrategy": ["envvar"], "deviceIDStrategy": "uuid"}


def test_the_config_map_is_mounted_under_the_name_that_the_plugin_reads() -> None:
    spec, objects = pod(pool_plan("h100")), rendered(pool_plan("h100"))
    container = spec["containers"][0]
    volume = next(volume for volume in spec["volumes"] if volume["name"] == "config")
    assert volume["configMap"]["name"] == objects["ConfigMap"]["metadata"]["name"]
    item = volume["configMap"]["items"][0]
    assert item["key"] in objects["ConfigMap"]["data"]
    mount = next(mount for mount in container["volumeMounts"] if mount["name"] == "config")
    assert {"name": "CONFIG_FILE", "value": f"{mount['mountPath']}/{item['path']}"} in container["env"]


@pytest.mark.parametrize(("specs", "privileged"), [(True, True), (False, None)])
def test_device_specs_need_a_privileged_container_and_nothing_else_does(specs: bool, privileged: bool | None) -> None:
    plugin = DevicePluginPlan(mode="managed", pass_device_specs=specs, image="nvcr.io/nvidia/k8s-device-plugin:v0.20.0")
    container = pod(pool_plan("h100", device_plugin=plugin))["containers"][0]
    assert {"name": "PASS_DEVICE_SPECS", "value": str(specs).lower()} in container["env"]
    assert container["securityContext"].get("privileged") == privileged


def test_another_configuration_restarts_the_plugin() -> None:
    first = pool_plan("h100")
    second = changed(first, device_plugin=changed(first.device_plugin, pass_device_specs=False))
    annotations = [rendered(pool)["DaemonSet"]["spec"]["template"]["metadata"]["annotations"] for pool in (first, second)]
    assert annotations[0] != annotations[1]


def test_every_taint_of_the_pool_is_tolerated_whatever_its_value() -> None:
    taints = (
        TaintPlan(key="nvidia.com/gpu", value="true", effect="NoSchedule"),
        TaintPlan(key="dedicated", value="inference", effect="NoExecute"),
    )
    assert pod(pool_plan("h100", taints=taints))["tolerations"] == [
        {"key": "dedicated", "operator": "Exists", "effect": "NoExecute"},
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
    ]


@pytest.mark.parametrize("mode", ["operator", "existing"])
def test_no_second_plugin_where_another_brings_it(mode: Any) -> None:
    pool = pool_plan("h100")
    assert rendered(changed(pool, device_plugin=changed(pool.device_plugin, mode=mode))) == {}


@pytest.mark.parametrize("vendor", ["nvidia", "amd"])
def test_plugins_run_on_the_pools_nodes_as_critical_pods_of_the_system_namespace(vendor: Any) -> None:
    pool = pool_plan("p", vendor=vendor)
    daemon_set, spec = rendered(pool)["DaemonSet"], pod(pool)
    assert daemon_set["metadata"]["namespace"] == "numawise-system"
    assert spec["nodeSelector"] == {"numawise.dev/pool": "p"}
    assert spec["priorityClassName"] == "system-node-critical"
    assert spec["containers"][0]["image"] == pool.device_plugin.image
    assert spec["automountServiceAccountToken"] is False
    sockets = next(volume for volume in spec["volumes"] if volume["name"] == "device-plugins")
    assert sockets["hostPath"]["path"] == "/var/lib/kubelet/device-plugins"


@pytest.mark.parametrize("vendor", ["nvidia", "amd"])
def test_plugins_are_no_guaranteed_pods_that_the_memory_manager_would_pin(vendor: Any) -> None:
    resources = pod(pool_plan("p", vendor=vendor))["containers"][0]["resources"]
    assert resources["requests"]["memory"] != resources["limits"]["memory"]
    assert "cpu" not in resources["limits"]


def test_the_amd_plugin_reads_sysfs_without_any_privilege() -> None:
    spec = pod(pool_plan("mi300x", vendor="amd"))
    container = spec["containers"][0]
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert container["command"] == ["/root/k8s-device-plugin"]
    assert {"name": "sys", "mountPath": "/sys", "readOnly": True} in container["volumeMounts"]


def test_two_pools_of_one_vendor_have_plugins_that_never_select_the_same_pods() -> None:
    first, second = (rendered(pool_plan(name))["DaemonSet"] for name in ("a", "b"))
    assert first["metadata"]["name"] != second["metadata"]["name"]
    assert first["spec"]["selector"] != second["spec"]["selector"]

"""Keys of the stack file that nothing reads yet: each that is given says so, and what to do by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from infra.config.base import Wire
from infra.config.cluster import StackConfig
from infra.diagnosis import Diagnosis

_DRAIN = "no node is drained for a kubelet configuration: run `kubectl drain NODE --ignore-daemonsets"
_ROLLOUT = "no kubelet configuration is rolled out:"
# Path with [] for any index -> what happens instead and what to do; a row goes when its key gets an effect.
BY_HAND: Mapping[str, str] = {
    "monitoring.enabled": "no monitor, rule or dashboard is made: let Prometheus scrape port http, path /metrics of the models' pods by a PodMonitor of your own",
    "sharedComponents.nodeFeatureDiscovery": "Node Feature Discovery is not installed: install its Helm chart and write nodeFeatureDiscovery: existing",
    "nodePools[].topology.switchGroups": "GPUs of one PCIe switch are not kept together: give pods all GPUs of a NUMA node where that matters, or leave it out",
    "nodePools[].rollout.maxUnavailable": f"{_ROLLOUT} it shapes the planned waves alone; change the nodes by hand, one wave of the plan after the other",
    "nodePools[].rollout.canary": f"{_ROLLOUT} it shapes the planned waves alone; change one node by hand and look at it before the others",
    "nodePools[].rollout.allowDowntime": f"{_ROLLOUT} before you change a node by hand, see that its models may go down",
    "nodePools[].rollout.revert": f"{_ROLLOUT} take the drop-in off the nodes by hand (drained, kubelet stopped, cpu_manager_state and memory_manager_state removed)",
    "nodePools[].rollout.generation": f"{_ROLLOUT} write the drop-in that `python -m infra render` makes to the nodes again by hand",
    "nodePools[].rollout.drain.force": f"{_DRAIN} --force` by hand",
    "nodePools[].rollout.drain.deleteEmptyDirData": f"{_DRAIN} --delete-emptydir-data` by hand",
}
# Platforms that are planned like nodes that exist already: where their nodes take the kubelet configuration from.
PLATFORMS: Mapping[str, str] = {
    "kubeadm": "as a file of the kubelet's --config-dir",
    "eks": "as spec.kubelet.config of the node group's NodeConfig",
    "karpenter": "as spec.kubelet.config of a NodeConfig in the EC2NodeClass's userData",
    "cluster-api": "as a file of the KubeadmConfigTemplate in the kubelet's --config-dir",
    "openshift": "as spec.kubeletConfig of a KubeletConfig for the pool's MachineConfigPool",
    "rke2": "as a file of /var/lib/rancher/rke2/agent/etc/kubelet.conf.d",
    "k3s": "as a file of /var/lib/rancher/k3s/agent/etc/kubelet.conf.d",
    "talos": "as machine.kubelet.extraConfig of their machine configuration",
}


def keys_without_effect(config: StackConfig) -> Iterator[Diagnosis]:
    """A warning for each key that differs from its default and changes nothing, and for nodes that somebody else has to make."""
    for path, value in _given(config):
        key = re.sub(r"\[\d+\]", "[]", path)
        if key == "nodePools[].platform" and value in PLATFORMS:
            text = f"no node of {value} is made yet: make them, and give them the pool's kubelet drop-in {PLATFORMS[value]}"
            yield Diagnosis.warning(path=path, code="NodesNotMade", message=text)
        elif key in BY_HAND:
            yield Diagnosis.warning(path=path, code="NoEffectYet", message=f"has no effect yet: {BY_HAND[key]}")


def _given(section: Wire, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, value) of every key below a section that is no section itself and differs from its default."""
    for name, field in type(section).model_fields.items():
        value, below = getattr(section, name), f"{path}.{field.alias}" if path else str(field.alias)
        if isinstance(value, Wire):
            yield from _given(value, below)
        elif isinstance(value, tuple) and value and isinstance(value[0], Wire):
            for index, entry in enumerate(value):
                yield from _given(entry, f"{below}[{index}]")
        elif value != field.get_default(call_default_factory=True):
            yield below, value

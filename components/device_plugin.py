"""The device plugin of a pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

from components.apply import apply
from components.base import Component
from infra.plan.model import ClusterPlan, PoolPlan
from infra.render.device_plugins import device_plugin

_TIMEOUT = "15m"  # an image pull on every node of a wave


@dataclass(frozen=True, kw_only=True)
class DevicePluginArgs:
    plan: ClusterPlan
    pool: PoolPlan
    explain: pulumi.ErrorHook


class DevicePlugin(Component):
    """NVIDIA's or AMD's plugin as a DaemonSet on the pool's nodes; without children where an operator or the platform brings it."""

    def __init__(
        self,
        name: str,
        args: DevicePluginArgs,
        *,
        after: Sequence[pulumi.Resource] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        pool, plugin = args.pool, args.pool.device_plugin
        facts = {
            "vendor": pool.vendor,
            "mode": plugin.mode,
            "image": plugin.image if plugin.mode == "managed" else None,
            "passDeviceSpecs": plugin.pass_device_specs,
            "resourceName": pool.resource_name,
        }
        super().__init__("numawise:gpu:DevicePlugin", name, facts, after=after, opts=opts)
        self.resources: list[pulumi.Resource] = []
        for manifest in device_plugin(args.plan, pool):
            options = self.child(after=self.resources)
            if manifest["kind"] == "DaemonSet":
                options.custom_timeouts = pulumi.CustomTimeouts(create=_TIMEOUT, update=_TIMEOUT, delete="10m")
                options.hooks = pulumi.ResourceHookBinding(on_error=[args.explain])
            self.resources.append(apply(f"{name}-{manifest['kind'].lower()}", manifest, options, adopt=args.plan.adopt))
        self.register_outputs(facts)

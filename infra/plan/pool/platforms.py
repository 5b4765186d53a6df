"""What a managed platform lets a node pool say about its kubelet, and what it decides itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.catalog.platforms import base_of, varying_of
from infra.diagnosis import Diagnosis
from infra.kubelet.configuration.decode import load
from infra.kubelet.configuration.fields import FIELDS, RESTRICTING_PLATFORMS
from infra.kubelet.configuration.go_types import WrongType
from infra.kubelet.configuration.versions import NEWEST
from infra.offers import LEFT_OUT, POOL, Offer


@dataclass(frozen=True, kw_only=True)
class PlatformFields:
    """KubeletConfiguration fields of a platform. `expressible` None: all of them."""

    platform: str
    expressible: frozenset[str] | None

    @classmethod
    def of(cls, platform: str) -> PlatformFields:
        expressible = frozenset(name for name, field in FIELDS.items() if platform in field.platforms)
        return cls(platform=platform, expressible=expressible if platform in RESTRICTING_PLATFORMS else None)

    @property
    def unavailable(self) -> frozenset[str]:
        return frozenset() if self.expressible is None else frozenset(FIELDS) - self.expressible

    @property
    def decides_reservations(self) -> bool:
        """Whether the platform sets kubeReserved and with it the node's allocatable itself."""
        return "kubeReserved" in self.unavailable

    def problems(self, user: Mapping[str, object], path: str) -> list[Diagnosis]:
        """Fields of the stack file that the platform cannot express, each with the ways out."""
        return [
            Diagnosis(
                f"{path}.{name}",
                "NotOnPlatform",
                f"{self.platform} has no setting for it; its node pools take {', '.join(sorted(self.expressible or ()))}",
                offers=(Offer.of("leave it out", (f"{POOL}.kubelet.{name}", LEFT_OUT)),),
                remedy="Or run the pool on nodes whose kubelet configuration is yours (platform existing, kubeadm, eks, rke2, ...).",
            )
            for name, value in user.items()
            if name in self.unavailable and not self.has_anyway(name, value)
        ]

    def has_anyway(self, name: str, value: object) -> bool:
        """Whether a value, written out, says what the platform's nodes have without it: their own file's value, or the kubelet's default."""
        if name not in self.unavailable or name in varying_of(self.platform):
            return False
        there = load(base_of(self.platform), kubernetes_version=NEWEST).fields[name]
        try:
            given = FIELDS[name].kind.decode(value, name)
        except WrongType:
            return False
        if isinstance(given, Mapping) and isinstance(there, Mapping):
            return all(there.get(key) == item for key, item in given.items())
        return given == there or (not given and not there)

    def rolled_out(self, fields: Mapping[str, object]) -> dict[str, object]:
        """The fields that can be rolled out; the rest stands in for what the platform decides."""
        return {name: value for name, value in fields.items() if name not in self.unavailable}


def kube_reserved_millicpu(cpus: int) -> int:
    """The clouds' common rule for kubeReserved.cpu: 6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % of the rest."""
    shares = [60, 10, 5, 5]
    return -(-(sum(shares[:cpus]) * 10 + max(cpus - len(shares), 0) * 25) // 10)

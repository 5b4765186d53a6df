"""What a kubelet does: does it start with a configuration on a machine, and which pods does it admit, with which resources.

The rules are those of Kubernetes v1.37.2; `versions.py` says where earlier versions differ.
"""

from infra.kubelet.admission.kubelet import ContainerResult, Kubelet, PodResult
from infra.kubelet.cases import simulate_case
from infra.kubelet.faults import KubeletHangs, KubeletPanics, KubeletRefuses
from infra.kubelet.machine import Device, Machine, NumaNode
from infra.kubelet.pods import Pod

__all__ = [
    "ContainerResult",
    "Device",
    "Kubelet",
    "KubeletHangs",
    "KubeletPanics",
    "KubeletRefuses",
    "Machine",
    "NumaNode",
    "Pod",
    "PodResult",
    "simulate_case",
]

"""Lines of NCCL and RCCL that somebody has to act on, and how."""

from __future__ import annotations

import re
from dataclasses import dataclass

from infra.diagnosis import Severity


@dataclass(frozen=True, kw_only=True)
class WarningRule:
    """`marker` is a plain part of each line that `pattern` matches."""

    code: str
    marker: str
    pattern: re.Pattern[str]
    severity: Severity
    message: str
    remedy: str


def _rule(code: str, marker: str, pattern: str, severity: Severity, message: str, remedy: str) -> WarningRule:
    return WarningRule(code=code, marker=marker, pattern=re.compile(pattern), severity=severity, message=message, remedy=remedy)


WARNINGS = (
    _rule(
        "NumaBalancing",
        "NUMA auto balancing",
        r"NUMA auto balancing enabled",
        "warning",
        "automatic NUMA balancing is on: pages move under the library, and bandwidth varies.",
        "`sysctl kernel.numa_balancing=0` on the node (not in the pod: it is not namespaced).",
    ),
    _rule(
        "IommuNotPassthrough",
        "iommu=pt",
        r"Missing \"?iommu=pt",
        "warning",
        "the kernel command line lacks iommu=pt: peer-to-peer may be slow or hang.",
        "Add iommu=pt to the kernel command line of the node, and switch ACS off on bare metal.",
    ),
    _rule(
        "FineGrainPcie",
        "HSA_FORCE_FINE_GRAIN_PCIE",
        r"Missing \"?HSA_FORCE_FINE_GRAIN_PCIE=1",
        "warning",
        "HSA_FORCE_FINE_GRAIN_PCIE=1 is missing (older ROCm asks for it).",
        "Set it in the pod, or use a ROCm that no longer needs it.",
    ),
    _rule(
        "AccessControlServices",
        "ACS",
        r"\bACS\b.*(?:enabled|detected|disable)",
        "warning",
        "PCIe access control services (ACS) are on: peer-to-peer goes through the root complex.",
        "Switch ACS off in the firmware or with setpci on bare metal.",
    ),
    _rule(
        "ImexNotWorking",
        "available but not working on this system",
        r"MNNVL (?:\(cliqueSize (?P<size>\d+)\) )?is available but not working",
        "error",
        "NVLink between nodes (MNNVL, clique of {size}) is there and does not work: the IMEX channel or daemon is missing.",
        "Give the pod a ComputeDomain (or /dev/nvidia-caps-imex-channels); NCCL_MNNVL_ENABLE=0 falls back to the network.",
    ),
    _rule(
        "LibibverbsMissing",
        "Failed to open libibverbs",
        r"Failed to open libibverbs",
        "warning",
        "libibverbs is not in the image: InfiniBand and RoCE cannot be used, and several nodes fall back to TCP.",
        "Use an image with rdma-core; on one node it does not matter.",
    ),
    _rule(
        "NoRdmaDevice",
        "NET/IB : No device found",
        r"NET/IB : No device found",
        "warning",
        "no InfiniBand or RoCE device is visible in the pod.",
        "Request the RDMA resource of the network's device plugin; on one node it does not matter.",
    ),
    _rule(
        "SharedMemoryFull",
        "/dev/shm",
        r"(?:Error while creating shared memory segment|failed to extend|Could not allocate).*?/dev/shm/\S+.*?(?:size |to "
        r")(?P<size>\d+)",
        "error",
        "/dev/shm is full or too small (a segment of {size} bytes could not be made).",
        "Mount an emptyDir with medium: Memory at /dev/shm (the container's own is 64 MB).",
    ),
    _rule(
        "SharedMemoryLost",
        "attaching to shared memory segment",
        r"Error while attaching to shared memory segment (?P<segment>\S+)(?: \(size (?P<size>\d+)\))?",
        "error",
        "a segment of shared memory ({segment}, {size} bytes) is not there for a rank that has to attach to it.",
        "Keep the ranks of a node in one pod, or give their pods one /dev/shm; look whether the rank that makes it ended before.",
    ),
    _rule(
        "LockedMemoryLimit",
        "annot allocate memory",
        r"(?:Call to )?ibv_(?:reg_mr|create_cq|create_qp|reg_dmabuf)\S*.*annot allocate memory",
        "error",
        "RDMA memory cannot be registered: the limit of locked memory is too low.",
        "Add the capability IPC_LOCK to the container, and LimitMEMLOCK=infinity to the container runtime.",
    ),
    _rule(
        "RdmaTimeout",
        "Got completion",
        r"Got completion.*?(?:status=|error )(?P<status>\d+)",
        "error",
        "an RDMA transfer failed (completion status {status}): the network dropped packets or a peer died.",
        "Look at the fabric (PFC and GID index for RoCE, subnet manager for InfiniBand) and at the other ranks' logs.",
    ),
    _rule(
        "NoSocketInterface",
        "interface found",
        r"(?:[Nn]o socket interface found|NET/Socket : [Nn]o interface found|[Bb]ootstrap : [Nn]o socket interface)",
        "error",
        "no network interface fits NCCL_SOCKET_IFNAME.",
        "Name the pod's interface, `=eth0` in most clusters; without `=` the value is a prefix.",
    ),
    _rule(
        "VersionMismatch",
        "ersion mismatch",
        r"(?:NCCL )?[Vv]ersion mismatch.*",
        "error",
        "ranks run different versions of the library.",
        "Use one image for all ranks.",
    ),
    _rule(
        "VersionMismatch",
        "Mismatched NCCL version",
        r"Mismatched NCCL version",
        "error",
        "ranks run different versions of the library.",
        "Use one image for all ranks.",
    ),
    _rule(
        "DuplicateGpu",
        "Duplicate GPU detected",
        r"Duplicate GPU detected : rank (?P<a>\d+) and rank (?P<b>\d+)",
        "error",
        "ranks {a} and {b} were given the same GPU.",
        "Leave device selection to the device plugin; set no *_VISIBLE_DEVICES, and do not time-slice.",
    ),
    _rule(
        "PeerAccessRefused",
        "peer access is not supported",
        r"peer access is not supported between these two devices",
        "error",
        "peer access between two GPUs is refused.",
        "`nvidia-smi topo -p2p r` tells which; keep them out of one group.",
    ),
    _rule(
        "PeerToPeerOff",
        "P2P is disabled between",
        r"P2P is disabled between (?P<kind>connected|NVLINK connected) GPUs (?P<a>\d+) and (?P<b>\d+)",
        "warning",
        "peer-to-peer is off between connected GPUs ({a} and {b} among them).",
        "Look at ACS and IOMMU, at virtual machines without peer-to-peer, and at `nvidia-smi topo -p2p r`.",
    ),
    _rule(
        "PeerToPeerOff",
        "Could not enable P2P",
        r"Could not enable P2P between dev (?P<a>\d+).*? and dev (?P<b>\d+)",
        "warning",
        "peer-to-peer could not be enabled between GPUs ({a} and {b} among them).",
        "Look at ACS and IOMMU, and at `nvidia-smi topo -p2p r`.",
    ),
    _rule(
        "PeerToPeerSwitchedOff",
        "NCCL_P2P_DISABLE set by environment to 1",
        r"NCCL_P2P_DISABLE set by environment to 1",
        "warning",
        "NCCL_P2P_DISABLE=1 is set: NVLink and xGMI are not used.",
        "Unset it unless it works around a fault of this machine.",
    ),
    _rule(
        "RdmaSwitchedOff",
        "NCCL_IB_DISABLE set by environment to 1",
        r"NCCL_IB_DISABLE set by environment to 1",
        "warning",
        "NCCL_IB_DISABLE=1 is set: InfiniBand and RoCE are not used.",
        "Unset it where nodes have RDMA.",
    ),
    _rule(
        "HostMemoryFallback",
        "falling back to /dev/shm",
        r"cuMem host allocations do not appear to be working; falling back to /dev/shm",
        "info",
        "shared host memory is taken from /dev/shm, because the driver's own (cuMem) does not work here.",
        "Give the pod room in /dev/shm (emptyDir with medium: Memory).",
    ),
    _rule(
        "NetworkPluginFailed",
        "NET/Plugin",
        r"NET/Plugin: (?:Failed to load|dlerror=)(?P<what>.*)",
        "info",
        "a network plug-in was named and not loaded.",
        "Look at NCCL_NET_PLUGIN and LD_LIBRARY_PATH where the cloud needs one (EFA, FasTrak, TCPX).",
    ),
    _rule(
        "CudaFailure",
        "uda failure",
        r"Cuda failure (?P<what>.+?)\s*$",
        "error",
        "CUDA failed: {what}",
        "See the first failing rank's log.",
    ),
    _rule(
        "HipFailure",
        "HIP failure",
        r"HIP failure (?P<what>.+?)\s*$",
        "error",
        "HIP failed: {what}",
        "See the first failing rank's log.",
    ),
)

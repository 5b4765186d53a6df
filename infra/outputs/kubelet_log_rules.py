"""What each start error of the kubelet and each refusal of a pod means: text, marker, sentence and remedy.

Message texts are those of kubernetes v1.33 to v1.37.2 (pkg/kubelet/cm, pkg/kubelet/apis/config/validation, cmd/kubelet/app).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from infra.diagnosis import Severity

_STATE_REMEDY = "Drain the node, stop the kubelet, remove {file}, start the kubelet, uncordon the node."
_CPU_STATE = "/var/lib/kubelet/cpu_manager_state"
_MEMORY_STATE = "/var/lib/kubelet/memory_manager_state"
_CPU_REMEDY = _STATE_REMEDY.format(file=_CPU_STATE)
_MEMORY_REMEDY = _STATE_REMEDY.format(file=_MEMORY_STATE)


@dataclass(frozen=True, kw_only=True)
class LogRule:
    """`marker` is a plain part of every line that `pattern` matches: most lines of a log are passed over without a regex."""

    code: str
    marker: str
    pattern: re.Pattern[str]
    message: str
    remedy: str
    severity: Severity = "error"


def _rule(code: str, marker: str, pattern: str, message: str, remedy: str, severity: Severity = "error") -> LogRule:
    return LogRule(code=code, marker=marker, pattern=re.compile(pattern), message=message, remedy=remedy, severity=severity)


# In order: the first rule that matches a line explains it. `{name}` are the pattern's groups.
RULES = (
    _rule(
        "MemoryPolicyChanged",
        "differs from state checkpoint policy",
        r"\[memorymanager\] configured policy \"(?P<new>[^\"]*)\" differs from state checkpoint policy \"(?P<old>[^\"]*)\"",
        "memoryManagerPolicy is {new} now, but memory_manager_state was written with {old}: the kubelet does not start.",
        _MEMORY_REMEDY,
    ),
    _rule(
        "CpuPolicyChanged",
        "differs from state checkpoint policy",
        r"configured policy \"(?P<new>[^\"]*)\" differs from state checkpoint policy \"(?P<old>[^\"]*)\"",
        "cpuManagerPolicy is {new} now, but cpu_manager_state was written with {old}: the kubelet does not start.",
        _CPU_REMEDY,
    ),
    _rule(
        "MemorySizeChanged",
        "TotalMemSize",
        r"emory states for the NUMA node and resource are "
        r"different.*?TotalMemSize1\"?[=:]\s?\"?(?P<one>\d+).*?TotalMemSize2\"?[=:]\s?\"?(?P<two>\d+)",
        "the memory of a NUMA node changed: memory_manager_state and the machine say {one} and {two} bytes (a new kernel "
        "or a replaced module does that).",
        _MEMORY_REMEDY,
    ),
    _rule(
        "MemoryStateDetail",
        "emory states for the NUMA node and resource",
        r"emory states for the NUMA node and resource(?: had)? (?:are "
        r")?different.*?field\"?[=:]\s?\"(?P<field>\w+)\"(?:.*?(?P=field)1\"?[=:]\s?\"?(?P<one>\d+).*?(?P=field)2\"?[=:]\s?\"?(?P<two>\d+))?",
        "memory_manager_state and the machine differ in {field} of a NUMA node ({one} and {two} bytes).",
        _MEMORY_REMEDY,
    ),
    _rule(
        "MemoryStateDiffers",
        "expected machine state is different from the real one",
        r"the expected machine state is different from the real one",
        "memory_manager_state no longer fits this machine: its memory, its huge pages or the reservation changed since the "
        "file was written, and the kubelet does not start.",
        _MEMORY_REMEDY,
    ),
    _rule(
        "MemoryStateUnknownNode",
        "the memory assignment uses",
        r"\(pod: (?P<pod>\S+), container: (?P<container>[^)]+)\) the memory assignment uses (?P<what>the NUMA|memory "
        r"resource) that does not exist",
        "memory_manager_state pins container {container} of pod {pod} to a NUMA node or a resource that this machine does "
        "not have.",
        _MEMORY_REMEDY,
    ),
    _rule(
        "CpusChanged",
        "doesn't match with CPUs in state",
        r"current set of available CPUs \"(?P<now>[^\"]*)\" doesn't match with CPUs in state \"(?P<state>[^\"]*)\"",
        "the machine has CPUs {now}, cpu_manager_state was written for {state}: a CPU went off-line, or the machine was resized.",
        _CPU_REMEDY,
    ),
    _rule(
        "ReservedCpusNotInState",
        "present in defaultCpuSet",
        r"not all reserved cpus: \"(?P<reserved>[^\"]*)\" are present in defaultCpuSet: \"(?P<default>[^\"]*)\"",
        "reservedSystemCPUs {reserved} are not all in the shared pool {default} of cpu_manager_state: a container holds "
        "some, or the file is older than the setting.",
        _CPU_REMEDY,
    ),
    _rule(
        "StrictReservedCpusInState",
        "present in defaultCpuSet",
        r"some of strictly reserved cpus: \"(?P<reserved>[^\"]*)\" are present in defaultCpuSet: \"(?P<default>[^\"]*)\"",
        "strict-cpu-reservation keeps CPUs {reserved} out of the shared pool, but cpu_manager_state still has {default} there.",
        _CPU_REMEDY,
    ),
    _rule(
        "CpusShared",
        "overlaps with default cpuset",
        r"pod: (?P<pod>\S+), container: (?P<container>\S+) cpuset: \"(?P<cpus>[^\"]*)\" overlaps with default cpuset "
        r"\"(?P<default>[^\"]*)\"",
        "cpu_manager_state gives CPUs {cpus} to container {container} of pod {pod} and to the shared pool {default} too.",
        _CPU_REMEDY,
    ),
    _rule(
        "EmptySharedPool",
        "default cpuset cannot be empty",
        r"default cpuset cannot be empty",
        "cpu_manager_state has containers but an empty shared pool.",
        _CPU_REMEDY,
    ),
    _rule(
        "StateCorrupted",
        "checkpoint is corrupted",
        r"checkpoint is corrupted.*?(?P<file>/\S*?(?:cpu_manager_state|memory_manager_state|kubelet_internal_checkpoint))",
        "{file} is corrupted (its checksum does not fit): the kubelet was killed while it wrote, or the file was edited.",
        "Drain the node, stop the kubelet, remove that file, start the kubelet, uncordon the node.",
    ),
    _rule(
        "StateCorrupted",
        "checkpoint is corrupted",
        r"checkpoint is corrupted",
        "a state file of the kubelet is corrupted (its checksum does not fit).",
        f"Drain the node, stop the kubelet, remove {_CPU_STATE} and {_MEMORY_STATE}, start the kubelet, uncordon the node.",
    ),
    _rule(
        "StateNotRestored",
        "could not restore state from checkpoint",
        r"could not restore state from checkpoint: (?P<why>.+?), please drain this node and delete the (?:CPU|memory) "
        r"manager checkpoint file \"(?P<file>[^\"]+)\"",
        "{file} cannot be restored: {why}.",
        "Drain the node, stop the kubelet, remove that file, start the kubelet, uncordon the node.",
    ),
    _rule(
        "NoCpuReserved",
        "to be greater than zero",
        r"the static policy requires systemreserved\.cpu \+ kubereserved\.cpu to be greater than zero",
        "cpuManagerPolicy: static needs reserved CPUs, and none is reserved.",
        "Set kubeReserved.cpu, systemReserved.cpu or reservedSystemCPUs; no state file has to be removed.",
    ),
    _rule(
        "ReservedCpusOutsideMachine",
        "is not a subset of online-cpus",
        r"reserved-cpus: (?P<reserved>\S+) is not a subset of online-cpus: (?P<online>[\d,\-]+)",
        "reservedSystemCPUs {reserved} are not all on this machine, whose CPUs are {online}.",
        "Correct reservedSystemCPUs; nodes with other CPU counts belong into another pool.",
    ),
    _rule(
        "ReservedCpusTooFew",
        "unable to reserve the required amount of CPUs",
        r"unable to reserve the required amount of CPUs \(size of (?P<reserved>\S*) did not equal (?P<count>\d+)\)",
        "the kubelet could not reserve {count} CPUs: it got {reserved}.",
        "Reserve whole cores that exist on the machine.",
    ),
    _rule(
        "ReservedMemorySum",
        "determined by Node Allocatable feature",
        r"the total amount \"(?P<sum>[^\"]*)\" of type \"(?P<type>[^\"]*)\" is not equal to the value "
        r"\"(?P<needed>[^\"]*)\" determined by Node Allocatable",
        "reservedMemory sums to {sum} of {type}, and it must be exactly {needed} = kubeReserved + systemReserved + "
        "evictionHard[memory.available].",
        "Correct reservedMemory; the amount left out most often is the eviction threshold (100Mi by default).",
    ),
    _rule(
        "ReservedMemoryMissing",
        "you should specify the system reserved memory",
        r"you should specify the system reserved memory",
        "memoryManagerPolicy: Static needs reservedMemory, and none is given.",
        "Set reservedMemory so that it sums to kubeReserved + systemReserved + evictionHard[memory.available].",
    ),
    _rule(
        "ReservedMemoryUnknownNode",
        "references a NUMA node",
        r"the reserved memory configuration references a NUMA node (?P<node>\d+) that does not exist",
        "reservedMemory names NUMA node {node}, which this machine does not have.",
        "Correct reservedMemory[].numaNode; `lscpu` lists the nodes.",
    ),
    _rule(
        "TooManyNumaNodes",
        "unsupported on machines with more than",
        r"unsupported on machines with more than (?P<limit>\d+) NUMA Nodes",
        "the machine has more than {limit} NUMA nodes, and the topology manager stops there.",
        'Set topologyManagerPolicyOptions: {{max-allowable-numa-nodes: "N"}} with the number of nodes (`numactl -H`), or '
        "topologyManagerPolicy: none.",
    ),
    _rule(
        "NumaLimitTooLow",
        "the minimum value of",
        r"the minimum value of \"(?P<option>[^\"]*)\" should not be less than (?P<limit>\d+)",
        "{option} must be {limit} or more.",
        "Correct topologyManagerPolicyOptions.",
    ),
    _rule(
        "BadPolicyOption",
        "olicy option",
        r"unable to convert policy option to integer \"(?P<option>[^\"]*)\"",
        "the value of {option} is no whole number.",
        'It is a number written as a string, as in "16".',
    ),
    _rule(
        "UnknownPolicyOption",
        "olicy option",
        r"unknown (?P<manager>CPU|Topology) Manager Policy option: \"(?P<option>[^\"]*)\"",
        "this kubelet knows no option {option} of the {manager} manager.",
        "Correct its spelling, or take it out for this Kubernetes version.",
    ),
    _rule(
        "PolicyOptionGated",
        "level",
        r"(?P<level>[Aa]lpha|[Bb]eta)-level [Oo]ptions not enabled, but option \"(?P<option>[^\"]*)\" provided",
        "option {option} is {level}-level in this version and its feature gate is off.",
        "Enable the feature gate (CPUManagerPolicyAlphaOptions, TopologyManagerPolicyAlphaOptions or the Beta ones), or "
        "take the option out.",
    ),
    _rule(
        "PolicyOptionsConflict",
        "can not be used at the same time",
        r"static policy options (?P<one>\S+) and (?P<two>\S+) can not be used at the same time",
        "cpuManagerPolicyOptions {one} and {two} exclude each other.",
        "Keep one of the two.",
    ),
    _rule(
        "PolicyOptionsConflict",
        "is incompatible with CPUManager",
        r"manager (?P<one>\S+) policy is incompatible with CPUManager (?P<two>\S+) policy option",
        "topologyManagerPolicy {one} and cpuManagerPolicyOptions {two} exclude each other.",
        "Keep one of the two.",
    ),
    _rule(
        "UnknownPolicy",
        "unknown policy",
        r"unknown policy: \"(?P<policy>[^\"]*)\"",
        "the kubelet knows no policy {policy}.",
        "The names are cpuManagerPolicy none or static, memoryManagerPolicy None or Static (capital S), "
        "topologyManagerPolicy none, best-effort, restricted or single-numa-node.",
    ),
    _rule(
        "ReservationOverCapacity",
        "invalid Node Allocatable configuration",
        r"Resource \"(?P<resource>[^\"]*)\" has a reservation of (?P<reserved>\{\{?[^}]*\}[^.]*?\}|\S+) but capacity of "
        r"(?P<capacity>.+?)\. Expected",
        "more {resource} is reserved than the machine has.",
        "Lower kubeReserved, systemReserved or evictionHard.",
    ),
    _rule(
        "SwapOn",
        "running with swap on is not supported",
        r"running with swap on is not supported",
        "swap is on and failSwapOn is true.",
        "Turn swap off (`swapoff -a` and /etc/fstab), or set failSwapOn: false.",
    ),
    _rule(
        "DropInUnreadable",
        "kubelet dropin file",
        r"failed to load kubelet dropin file, path: (?P<file>\S+), (?P<why>[^\n\"]+)",
        "the drop-in {file} cannot be loaded: {why}.",
        "Each .conf below the drop-in directory is read, backups too; it needs apiVersion and kind.",
    ),
    _rule(
        "DropInDirectoryMissing",
        "walk through kubelet dropin directory",
        r"failed to walk through kubelet dropin directory \"(?P<file>[^\"]+)\": (?P<why>[^\n\"]+)",
        "the drop-in directory {file} cannot be read: {why}.",
        "Create the directory that --config-dir names.",
    ),
    _rule(
        "InvalidConfiguration",
        "invalid configuration:",
        r"invalid configuration: (?P<why>.+?)(?:, path: |\"?\s*$)",
        "the kubelet refuses its configuration: {why}.",
        "Correct that field.",
    ),
    _rule(
        "ConfigUnreadable",
        "ubelet config file",
        r"failed to load [Kk]ubelet config file,? (?:path: )?(?P<file>[^\s,]+),? error:? (?P<why>[^\n]+?)\"?\s*$",
        "the kubelet cannot load {file}: {why}.",
        "Correct the file; unknown fields and wrong types stop the kubelet.",
    ),
    _rule(
        "UnhealthyDevices",
        "no healthy devices present",
        r"no healthy devices present; cannot allocate unhealthy devices (?P<resource>[^\s\"]+)",
        "the device plugin of {resource} is not back (after a reboot or restart), or its devices are unhealthy: pods that "
        "need them are refused.",
        "Look at the device plugin's pod on that node; delete the failed pods when it is back.",
        severity="warning",
    ),
    _rule(
        "UnregisteredDevice",
        "cannot allocate unregistered device",
        r"cannot allocate unregistered device (?P<resource>[^\s\"]+)",
        "no device plugin has registered {resource}: pods that need it are refused.",
        "Start the device plugin on that node.",
        severity="warning",
    ),
    _rule(
        "DevicesUnavailable",
        "requested number of devices unavailable",
        r"requested number of devices unavailable for (?P<resource>[^\s\"]+?)\. Requested: (?P<requested>\d+), Available: "
        r"(?P<available>\d+)",
        "a pod asked for {requested} {resource} and {available} were free.",
        "Terminated pods hold their devices until they are gone; compare with `kubectl get pods -o wide`.",
        severity="warning",
    ),
    _rule(
        "NotEnoughCpus",
        "not enough cpus available to satisfy request",
        r"not enough cpus available to satisfy request: requested=(?P<requested>\d+), available=(?P<available>\d+)",
        "a pod asked for {requested} exclusive CPUs and {available} were free.",
        "Request fewer CPUs, or reserve fewer.",
        severity="warning",
    ),
    _rule(
        "TopologyAffinityError",
        "Topology",
        r"TopologyAffinityError|Resources cannot be allocated with Topology locality",
        "the topology manager refused a pod: its CPUs, memory and devices cannot lie on the NUMA nodes that the policy asks for.",
        "Request at most what one NUMA node has free, or use topologyManagerPolicy: best-effort.",
        severity="warning",
    ),
    _rule(
        "SMTAlignmentError",
        "SMT",
        r"SMTAlignmentError|SMT Alignment Error: requested (?P<requested>\d+) cpus",
        "full-pcpus-only refused a pod: its CPU count fills no whole cores.",
        "Request a multiple of the threads of a core.",
        severity="warning",
    ),
)

"""Any `kubelet:` section gives a plan with which the kubelet starts and admits the pods, or errors with paths; never a traceback."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from infra.catalog.machine import devices_of, machine_of
from infra.errors import PlanError
from infra.kubelet import simulate_case
from infra.kubelet.configuration.fields import FIELDS
from infra.plan.pod_shape import PodShape
from tests.support.gpu_pools import decide, node_shape, pod_shape

quantities = st.sampled_from(
    [
        "0",
        "100Mi",
        "1Gi",
        "1465Mi",
        "2589Mi",
        "512Mi",
        "500m",
        "1",
        "4",
        "-1",
        "1.5Gi",
        "10%",
        "0%",
        "1e3",
        "2Ti",
        "x",
        "",
        "100MB",
        5,
        0.5,
        True,
        None,
    ]
)
junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 300),
    st.floats(allow_nan=False),
    st.text(max_size=6),
    st.just([]),
    st.just({}),
    st.just([1]),
)
cpu_lists = st.sampled_from(["0", "0,112", "0-1,112-113", "0,56,112,168", "0-223", "200-230", "3-1", "a", "", "0-55,112-167", "1"])
option_names = st.sampled_from(
    ["full-pcpus-only", "distribute-cpus-across-numa", "align-by-socket", "strict-cpu-reservation", "prefer-align-cpus-by-uncorecache",
     "prefer-closest-numa-nodes", "max-allowable-numa-nodes", "nonsense"]
)  # fmt: skip
options = st.dictionaries(option_names, st.sampled_from(["true", "false", "8", "16", "yes", "", True, 9]), max_size=3)
signals = st.sampled_from(
    ["memory.available", "nodefs.available", "imagefs.available", "pid.available", "memory", "allocatableMemory.available"]
)
reserved = st.lists(
    st.fixed_dictionaries(
        {
            "numaNode": st.sampled_from([0, 1, 2, -1, "0", None]),
            "limits": st.dictionaries(st.sampled_from(["memory", "hugepages-1Gi", "cpu"]), quantities, max_size=2),
        }
    ),
    max_size=3,
)
amounts = st.dictionaries(st.sampled_from(["cpu", "memory", "ephemeral-storage", "pid", "gpu"]), quantities, max_size=3)
known: dict[str, st.SearchStrategy[Any]] = {
    "cpuManagerPolicy": st.sampled_from(["static", "none", "Static", "", None]),
    "memoryManagerPolicy": st.sampled_from(["Static", "None", "static", "", None]),
    "topologyManagerPolicy": st.sampled_from(["none", "best-effort", "restricted", "single-numa-node", "strict"]),
    "topologyManagerScope": st.sampled_from(["pod", "container", "node"]),
    "cpuManagerPolicyOptions": options,
    "topologyManagerPolicyOptions": options,
    "reservedSystemCPUs": cpu_lists,
    "kubeReserved": amounts,
    "systemReserved": amounts,
    "evictionHard": st.dictionaries(signals, quantities, max_size=3),
    "evictionSoft": st.dictionaries(signals, quantities, max_size=2),
    "reservedMemory": reserved,
    "mergeDefaultEvictionSettings": st.booleans(),
    "maxPods": st.sampled_from([0, 1, 12, 14, 110, 250, -1, 10**9]),
    "podsPerCore": st.sampled_from([0, 1, -1]),
    "featureGates": st.dictionaries(
        st.sampled_from(["CPUManagerPolicyBetaOptions", "CPUManagerPolicyAlphaOptions", "TopologyManagerPolicyBetaOptions", "MemoryManager", "Nonsense"]),
        st.booleans(),
        max_size=2,
    ),
    "enforceNodeAllocatable": st.lists(st.sampled_from(["pods", "none", "kube-reserved", "system-reserved", "x"]), max_size=2),
    "cpuCFSQuotaPeriod": st.sampled_from(["100us", "5ms", "1s", "2s", "x"]),
    "cgroupDriver": st.sampled_from(["systemd", "cgroupfs", "x"]),
}  # fmt: skip
anything = st.dictionaries(st.sampled_from([*FIELDS, "reservedCpus", "kind", "apiVersion"]), junk, max_size=2)


@st.composite
def sections(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(sorted(known)), max_size=4, unique=True))
    section = {name: draw(known[name]) for name in names}
    if draw(st.integers(0, 5)) == 0:
        section |= draw(anything)
    return section


pods = st.sampled_from(
    [
        (pod_shape(copies=2),),
        (pod_shape(gpus=8, cpu=None, memory=None),),
        (pod_shape(gpus=2, cpu=16, memory="200Gi", copies=4, anti_affinity="none"),),
        (),
    ]
)


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(section=sections(), planned=pods, version=st.sampled_from(["1.37", "1.37", "1.33"]))
@example(section={"reservedMemory": [{"numaNode": 0}]}, planned=(pod_shape(),), version="1.37")
@example(
    section={"cpuManagerPolicy": "none", "cpuManagerPolicyOptions": {"full-pcpus-only": "true"}},
    planned=(pod_shape(),),
    version="1.37",
)
@example(
    section={"evictionHard": {"memory.available": "10%"}, "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}]},
    planned=(pod_shape(),),
    version="1.37",
)
@example(section={"maxPods": 0}, planned=(pod_shape(),), version="1.37")
def test_a_mutated_kubelet_section_gives_a_plan_that_works_or_errors_with_paths(section, planned, version):
    plan_or_errors(section, planned, version)


@pytest.mark.soak
@settings(max_examples=10_000, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(section=sections(), planned=pods, version=st.sampled_from(["1.37", "1.36", "1.35", "1.34", "1.33"]))
def test_ten_thousand_mutated_kubelet_sections(section, planned, version):
    plan_or_errors(section, planned, version)


def plan_or_errors(section: dict[str, Any], planned: tuple[PodShape, ...], version: str) -> None:
    shape = node_shape()
    try:
        decision = decide(shape, *planned, kubelet=section, nodes=2, kubernetes_version=version)
    except PlanError as error:
        assert error.problems
        for problem in error.problems:
            assert problem.path.startswith(("nodePools[0]", "models[")), problem
            assert problem.message and problem.code
        return
    for name, value in section.items():
        if value not in (None, "", {}, []) and name not in ("kind", "apiVersion", "reservedMemory") and not isinstance(value, dict):
            assert decision.kubelet.fields[name] == value
    case = {
        "id": "x",
        "machine": machine_of(shape),
        "kubelet": dict(decision.kubelet.fields),
        "devices": devices_of(shape, "nvidia.com/gpu"),
        "pods": [{"name": f"pod-{number}", **pod.shape.pod} for number, pod in enumerate(decision.pods)],
    }
    result = simulate_case(case) if version == "1.37" else None
    if result is not None:
        assert not result["config_errors"]
        assert all(pod["admitted"] for pod in result["pods"])

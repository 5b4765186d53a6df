from pathlib import Path

import pytest

from infra.outputs.kubelet_log import explain_kubelet_log

FIXTURES = Path(__file__).parent / "fixtures"
START = 'E1129 10:00:00.000000    1000 kubelet.go:1850] "Failed to start ContainerManager" err="'


def test_changed_cpu_policy_names_both_policies_and_the_file():
    (finding,) = explain_kubelet_log((FIXTURES / "kubelet-err-policy-change.log").read_text())
    assert finding.code == "CpuPolicyChanged"
    assert "is static now" in finding.message
    assert "with none" in finding.message
    assert "/var/lib/kubelet/cpu_manager_state" in finding.remedy
    assert finding.severity == "error"


def test_changed_memory_state_names_its_own_file():
    (finding,) = explain_kubelet_log((FIXTURES / "kubelet-err-memory-state.log").read_text())
    assert finding.code == "MemoryStateDiffers"
    assert "/var/lib/kubelet/memory_manager_state" in finding.remedy


def test_changed_memory_policy_is_not_taken_for_the_cpu_policy():
    line = (
        START
        + 'start memory manager error: could not restore state from checkpoint: [memorymanager] configured policy \\"Static\\" '
        'differs from state checkpoint policy \\"None\\", please drain this node and delete the memory manager checkpoint file '
        '\\"/var/lib/kubelet/memory_manager_state\\" before restarting Kubelet"'
    )
    (finding,) = explain_kubelet_log(line)
    assert finding.code == "MemoryPolicyChanged"
    assert "Static" in finding.message


def test_a_crash_loop_is_one_finding_with_its_count():
    line = (
        START + 'start cpu manager error: current set of available CPUs \\"0-63\\" doesn\'t match with CPUs in state \\"0-127\\""'
    )
    (finding,) = explain_kubelet_log("\n".join([line] * 7))
    assert finding.code == "CpusChanged"
    assert "0-63" in finding.message
    assert "0-127" in finding.message
    assert "7 times" in finding.message


def test_the_changed_memory_size_replaces_the_general_sentence():
    lines = [
        'I1129 10:00:00.000000 1000 policy_static.go:1191] "Memory states for the NUMA node and resource are different" '
        'field="TotalMemSize" TotalMemSize1=540971417600 TotalMemSize2=540971413504',
        'E1129 10:00:00.000001 1000 memory_manager.go:1] "Policy start error" '
        'err="[memorymanager] the expected machine state is different from the real one"',
    ]
    (finding,) = explain_kubelet_log(lines)
    assert finding.code == "MemorySizeChanged"
    assert "540971417600 and 540971413504 bytes" in finding.message


@pytest.mark.parametrize(
    ("err", "code", "sentence"),
    [
        (
            '[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero"',
            "NoCpuReserved",
            "kubeReserved.cpu",
        ),
        (
            'the total amount \\"1536Mi\\" of type \\"memory\\" is not equal to the value \\"1636Mi\\" determined by Node '
            'Allocatable feature"',
            "ReservedMemorySum",
            "1536Mi of memory, and it must be exactly 1636Mi",
        ),
        ('unsupported on machines with more than 8 NUMA Nodes"', "TooManyNumaNodes", "more than 8 NUMA nodes"),
        ('unknown policy: \\"static\\""', "UnknownPolicy", "Static (capital S)"),
        ('reserved-cpus: 60-67 is not a subset of online-cpus: 0-63"', "ReservedCpusOutsideMachine", "60-67"),
        (
            'the reserved memory configuration references a NUMA node 4 that does not exist on this machine"',
            "ReservedMemoryUnknownNode",
            "NUMA node 4",
        ),
        ('start cpu manager error: could not restore state from checkpoint: checkpoint is corrupted, please drain '
         'this node and delete the CPU manager checkpoint file '
         '\\"/var/lib/kubelet/cpu_manager_state\\" before restarting Kubelet"', "StateCorrupted",
         "/var/lib/kubelet/cpu_manager_state is corrupted"),
        ('unknown Topology Manager Policy option: \\"max-numa\\""', "UnknownPolicyOption", "max-numa"),
        ('invalid configuration: the reserved memory has a duplicate value for NUMA node 0 and resource \\"memory\\""',
         "InvalidConfiguration", "duplicate value for NUMA node 0"),
        ('running with swap on is not supported, please disable swap or set --fail-swap-on flag to false"', "SwapOn", "swapoff"),
    ],
)  # fmt: skip
def test_each_start_error_is_explained_with_its_numbers(err, code, sentence):
    (finding,) = explain_kubelet_log(START + err)
    assert (finding.code, finding.severity) == (code, "error")
    assert sentence in finding.sentence


def test_an_unknown_start_error_is_quoted_rather_than_dropped():
    (finding,) = explain_kubelet_log('E1129 10:00:00 1 run.go:72] "command failed" err="failed to run Kubelet: no such thing"')
    assert (finding.code, finding.severity) == ("KubeletStopped", "error")
    assert "no such thing" in finding.message


def test_a_refused_pod_is_a_warning():
    (finding,) = explain_kubelet_log(
        'I1129 10:00:00 1 kubelet.go:1] "Pod admission denied" reason="TopologyAffinityError" message="Resources cannot be '
        'allocated"'
    )
    assert (finding.code, finding.severity) == ("TopologyAffinityError", "warning")


def test_json_lines_are_read_as_text_lines_are():
    line = (
        '{"ts":1,"msg":"Failed to start ContainerManager","err":"start cpu manager error: configured policy \\"static\\" '
        'differs from state checkpoint policy \\"none\\""}'
    )
    (finding,) = explain_kubelet_log(line)
    assert finding.code == "CpuPolicyChanged"


def test_a_healthy_log_has_no_findings():
    assert explain_kubelet_log('I1129 10:00:00 1 server.go:1] "Started kubelet"\n\n') == ()

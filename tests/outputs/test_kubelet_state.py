import json
from pathlib import Path

import pytest

from infra.errors import ConfigError
from infra.outputs.kubelet_state import (
    MemoryBlock,
    MemoryTable,
    parse_cpu_manager_state,
    parse_device_checkpoint,
    parse_memory_manager_state,
    read_device_checkpoint,
)

FIXTURES = Path(__file__).parent / "fixtures"


def read(name: str) -> str:
    return (FIXTURES / name).read_text()


def test_policy_none_has_no_cpus_and_no_assignments():
    state = parse_cpu_manager_state(read("kubelet-cpu-none.json"))
    assert (state.policy, state.default_cpus, dict(state.assignments)) == ("none", (), {})


def test_static_state_tells_the_cpus_of_each_container():
    state = parse_cpu_manager_state(read("kubelet-cpu-static-32.json"))
    assert state.policy == "static"
    assert state.default_cpus == (0, *range(10, 16), *range(25, 32))
    assert state.assignments["00000000-0000-4000-8000-000000000001"] == {"container-1": tuple(range(16, 25))}
    assert state.assignments["00000000-0000-4000-8000-000000000002"] == {"container-1": tuple(range(1, 10))}
    assert state.findings() == ()


def test_the_string_under_data_is_what_a_1_37_kubelet_uses():
    inner = {
        "policyName": "static",
        "defaultCpuSet": "0-1",
        "entries": {"pod": {"vllm": "2-5"}},
        "podEntries": {"pod": {"cpuSet": "2-7"}},
        "baselines": {"pod": {"vllm": {"baseline": "2-3"}}},
    }
    outer = {
        "policyName": "static",
        "defaultCpuSet": "0-7",
        "entries": {},
        "checksum": 1,
        "data": json.dumps(inner),
        "dataChecksum": 2,
    }
    state = parse_cpu_manager_state(json.dumps(outer))
    assert state.version == 4
    assert state.default_cpus == (0, 1)
    assert state.assignments == {"pod": {"vllm": (2, 3, 4, 5)}}
    assert state.pod_cpus == {"pod": (2, 3, 4, 5, 6, 7)}
    assert state.baselines == {"pod": {"vllm": (2, 3)}}


def test_a_state_keyed_by_container_id_alone_is_read_without_pods():
    state = parse_cpu_manager_state('{"policyName":"static","defaultCpuSet":"0-1","entries":{"4a5b":"2-3"},"checksum":1}')
    assert (state.version, state.assignments) == (1, {"": {"4a5b": (2, 3)}})


def test_cpus_in_the_shared_pool_and_in_a_container_are_found():
    text = '{"policyName":"static","defaultCpuSet":"0-4","entries":{"a":{"c":"4-5"},"b":{"d":"5-6"}},"checksum":1}'
    found = parse_cpu_manager_state(text).findings()
    assert [(f.code, f.path) for f in found] == [("CpusShared", "a/c"), ("CpusHeldTwice", "b/d")]
    assert "CPUs 4 of" in found[0].message
    assert "a/c" in found[1].message


def test_two_containers_of_one_pod_may_hand_cpus_on():
    text = '{"policyName":"static","defaultCpuSet":"0","entries":{"a":{"init":"2-3","main":"2-5"}},"checksum":1}'
    assert parse_cpu_manager_state(text).findings() == ()


def test_memory_state_gives_bytes_by_node_and_resource():
    state = parse_memory_manager_state(read("kubelet-memory-static.json"))
    assert state.policy == "Static"
    table = state.nodes[0].tables["memory"]
    assert (table.total_bytes, table.allocatable_bytes, table.free_bytes) == (68719476736, 63350767616, 62813896704)
    assert state.nodes[1].cells == (1,)
    assert state.assignments["00000000-0000-4000-8000-000000000005"]["c"] == (
        MemoryBlock(numa_nodes=(0,), resource="memory", size_bytes=536870912),
    )


def test_memory_state_of_policy_none_is_empty():
    assert parse_memory_manager_state(read("kubelet-memory-none.json")).policy == "None"


def test_memory_state_1_37_reads_the_string_under_data():
    block = {"numaAffinity": [0, 1], "type": "memory", "size": 10}
    inner = {
        "policyName": "Static",
        "machineState": {},
        "entries": {"p": {"c": [block]}},
        "podEntries": {"p": {"memoryBlocks": [block]}},
    }
    state = parse_memory_manager_state(json.dumps({"policyName": "Static", "data": json.dumps(inner), "dataChecksum": 1}))
    assert state.version == 3
    assert state.assignments["p"]["c"][0].numa_nodes == (0, 1)
    assert state.pod_blocks["p"][0].size_bytes == 10


def test_device_checkpoint_tells_numa_nodes_and_finds_the_straddling_pod():
    checkpoint = read_device_checkpoint(read("kubelet-devices-v120.json"))
    assert checkpoint.straddling_pods() == ("00000000-0000-4000-8000-000000000007",)
    held = checkpoint.allocations["00000000-0000-4000-8000-000000000006"]["vllm"]["nvidia.com/gpu"]
    assert {numa: len(ids) for numa, ids in held.items()} == {0: 2}
    assert "DevicesStraddleNumaNodes" in {f.code for f in checkpoint.findings()}
    assert checkpoint.registered["nvidia.com/gpu"]


def test_devices_without_numa_node_are_a_finding_and_do_not_straddle():
    checkpoint = read_device_checkpoint(read("kubelet-devices-nonuma.json"))
    assert checkpoint.straddling_pods() == ()
    assert [f.code for f in checkpoint.findings()] == ["DevicesWithoutNumaNode"]


def test_a_checkpoint_before_1_20_lists_ids_without_nodes():
    text = (
        '{"Data":{"PodDeviceEntries":[{"PodUID":"p","ContainerName":"c","ResourceName":"r","DeviceIDs":["x","y"]}]},"Checksum":1}'
    )
    assert parse_device_checkpoint(text) == {"p": {"c": {"r": {-1: ("x", "y")}}}}


def test_a_device_that_two_pods_hold_is_found():
    entry = {"ContainerName": "c", "ResourceName": "r", "DeviceIDs": {"0": ["x"]}}
    text = json.dumps(
        {"Data": {"PodDeviceEntries": [{"PodUID": "p", **entry}, {"PodUID": "q", **entry}], "RegisteredDevices": None}}
    )
    assert [(f.code, f.path) for f in read_device_checkpoint(text).findings()] == [("DeviceHeldTwice", "q/c")]


@pytest.mark.parametrize("parse", [parse_cpu_manager_state, parse_memory_manager_state, parse_device_checkpoint])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "   \n",
        "not json",
        "[]",
        "{",
        '{"policyName":',
        '{"policyName":3}',
        '{"policyName":"static","defaultCpuSet":"7-3"}',
        '{"policyName":"static","entries":[]}',
        '{"policyName":"Static","machineState":{"x":{}}, "entries":{"p":"q"}}',
        '{"Data":{"PodDeviceEntries":[{"PodUID":"p"}]}}',
        '{"Data":[]}',
        "{" * 100_000,
        '{"policyName":"static","machineState":"' + "9" * 6000 + '","data":"{"}',
    ],
)
def test_what_is_no_state_file_is_one_sentence_with_its_name(parse, text):
    try:
        parse(text, source="node-a: state")
    except ConfigError as error:
        assert all(problem.path.startswith("node-a: state") for problem in error.problems)
        assert "cannot be read" in str(error)
        assert "\n" not in str(error)
    else:
        # Each of these texts is wrong for two of the three parsers at least; what is accepted has the parser's own form.
        assert '"policyName":"' in text


@pytest.mark.parametrize("name", [path.name for path in sorted(FIXTURES.glob("kubelet-*.json"))])
def test_every_cut_of_a_state_file_is_refused(name):
    text = read(name).rstrip()
    parse = (
        parse_cpu_manager_state if "cpu" in name else parse_memory_manager_state if "memory" in name else parse_device_checkpoint
    )
    parse(text)
    for length in range(len(text)):
        with pytest.raises(ConfigError):
            parse(text[:length])


@pytest.mark.parametrize(
    ("parse", "text", "sentence"),
    [
        (parse_cpu_manager_state, "", "cannot be read: it is empty."),
        (parse_cpu_manager_state, "words", "cannot be read: it holds no JSON object."),
        (
            parse_cpu_manager_state,
            'x {"a": 1',
            "cannot be read: its JSON is broken at character 9 of 9, perhaps cut; copy the whole file.",
        ),
        (parse_cpu_manager_state, "{}", "cannot be read: it has no policyName: it is no state file of the CPU or memory manager."),
        (
            parse_cpu_manager_state,
            json.dumps({"policyName": "static", "entries": "x" * 50}),
            f"cannot be read: an object was expected, not str {'x' * 40!r}.",
        ),
        (
            parse_cpu_manager_state,
            json.dumps({"policyName": "static", "defaultCpuSet": [0] * 50}),
            f"cannot be read: a CPU list was expected, not {str([0] * 50)[:40]!r}.",
        ),
        (
            parse_memory_manager_state,
            json.dumps({"policyName": "Static", "machineState": {"y" * 50: {}}}),
            f"cannot be read: a whole number was expected, not {'y' * 40!r}.",
        ),
        (
            parse_memory_manager_state,
            json.dumps({"policyName": "Static", "machineState": {"0": {"numberOfAssignments": True}}}),
            "cannot be read: a whole number was expected, not 'True'.",
        ),
        (
            parse_memory_manager_state,
            json.dumps({"policyName": "Static", "entries": {"p": {"c": "z" * 50}}}),
            f"cannot be read: a list was expected, not str {'z' * 40!r}.",
        ),
        (
            read_device_checkpoint,
            '{"Data":{}}',
            "cannot be read: it has no PodDeviceEntries and no RegisteredDevices: it is no kubelet_internal_checkpoint.",
        ),
        (
            read_device_checkpoint,
            '{"Data":{"PodDeviceEntries":[{"PodUID":"","ContainerName":"c","ResourceName":"r"}]}}',
            "cannot be read: PodUID, ContainerName and ResourceName must be there.",
        ),
    ],
)
def test_each_fault_is_told_with_what_was_expected(parse, text, sentence):
    with pytest.raises(ConfigError) as caught:
        parse(text)
    (problem,) = caught.value.problems
    assert problem.message == sentence


def test_what_a_state_leaves_out_is_empty_or_zero():
    memory = parse_memory_manager_state('{"policyName":"Static","machineState":{"3":{"memoryMap":{"memory":{}}}},"podEntries":{}}')
    node = memory.nodes[3]
    assert (node.assignments, node.cells, node.tables["memory"]) == (0, (), MemoryTable(**dict.fromkeys(SIZES, 0)))
    assert (memory.version, parse_memory_manager_state('{"policyName":"None"}').version) == (2, 1)
    assert parse_cpu_manager_state('{"policyName":"none","podEntries":{}}').version == 3
    assert parse_cpu_manager_state('{"policyName":"none"}').version == 2
    assert read_device_checkpoint('{"Data":{"RegisteredDevices":{"r":["x"]}}}').registered == {"r": ("x",)}
    block = parse_memory_manager_state('{"policyName":"Static","entries":{"p":{"c":[{}]}}}').assignments["p"]["c"][0]
    assert block == MemoryBlock(numa_nodes=(), resource="", size_bytes=0)


SIZES = ("total_bytes", "system_reserved_bytes", "allocatable_bytes", "reserved_bytes", "free_bytes")


def test_devices_over_several_nodes_are_counted_by_node_and_those_without_a_node_apart():
    entries = [
        {
            "PodUID": "p",
            "ContainerName": "c",
            "ResourceName": "r",
            "DeviceIDs": {"1": ["a", "b"], "0": ["c"], "-1": ["d"], "2": []},
        },
        {"PodUID": "p", "ContainerName": "c", "ResourceName": "r", "DeviceIDs": {"0": ["e"]}},
    ]
    checkpoint = read_device_checkpoint(json.dumps({"Data": {"PodDeviceEntries": entries}}))
    assert checkpoint.straddling_pods() == ("p",)
    straddling, without = checkpoint.findings()
    assert straddling.message == "the 4 r of this container lie on 2 NUMA nodes (2 on node 0, 2 on node 1)."
    assert without.message.startswith("the device plugin reported no NUMA node for 1 r:")

"""Rules of the kubelet one by one: edges of numbers, sets of NUMA nodes, names, amounts, and what messages say."""

from __future__ import annotations

import itertools
import random
import time
from fractions import Fraction
from typing import Any

import pytest

from infra.errors import ConfigError
from infra.kubelet import Kubelet, KubeletHangs, KubeletRefuses, Machine, Pod, simulate_case
from infra.kubelet.admission import pod_validation
from infra.kubelet.admission.node_fit import NodeAllocatable, preempt, shortages
from infra.kubelet.admission.pod_defaults import with_pod_level_defaults
from infra.kubelet.admission.reservation import EVICTION_SIGNALS, eviction_memory, reserved_resources
from infra.kubelet.configuration.decode import load
from infra.kubelet.configuration.flags import field_flags
from infra.kubelet.configuration.go_types import INT32, INT64, UINT32, Kind, WrongType, parse_duration
from infra.kubelet.configuration.merge import effective_configuration
from infra.kubelet.configuration.validate import parse_cpu_set, validation_errors
from infra.kubelet.configuration.versions import parse_version, rules_of
from infra.kubelet.managers.cpu_assignment import _thousandths
from infra.kubelet.managers.cpu_topology import cpu_ids, cpu_list
from infra.kubelet.managers.hints import MaskSpace, ResourceHints, mask_space, masks_of, masks_with_at_least, positions
from infra.kubelet.managers.topology import BEST_EFFORT, TopologyHint, TopologyPolicy
from infra.kubelet.quantity import NANO, format_quantity, parse_json_quantity, parse_quantity, round_up
from infra.kubelet.resource_names import is_extended_resource, is_native_resource, is_qualified_name, is_scalar_resource
from tests.kubelet.agreement import case_of
from tests.kubelet.build import GIB, configuration, container, gpus, kubelet, machine, pod, static_memory
from tests.kubelet.merges import HEADER


# Go's types
@pytest.mark.parametrize(
    ("kind", "lowest", "highest"),
    [(INT32, -(2**31), 2**31 - 1), (INT64, -(2**63), 2**63 - 1), (UINT32, 0, 2**32 - 1)],
)
def test_an_integer_fits_its_bits_and_no_more(kind: Kind, lowest: int, highest: int) -> None:
    assert [kind.decode(value, "x") for value in (lowest, highest)] == [lowest, highest]
    for value in (lowest - 1, highest + 1):
        with pytest.raises(WrongType, match=f"x: {value} does not fit into u?int.*{lowest} to {highest}"):
            kind.decode(value, "x")


@pytest.mark.parametrize(
    ("text", "nano"),
    [("0", 0), ("+0", 0), ("1ns", 1), ("1us", 10**3), ("1µs", 10**3), ("1ms", 10**6), ("1s", NANO), ("1m", 60 * NANO), ("1h", 3600 * NANO),
     ("1.5h", 5400 * NANO), (".5s", NANO // 2), ("1h1m1s", 3661 * NANO), ("+2s", 2 * NANO), ("-2s", -2 * NANO), ("2540400h", 2540400 * 3600 * NANO), ("9223372036854775807ns", 2**63 - 1)],
)  # fmt: skip
def test_durations_are_gos(text: str, nano: int) -> None:
    assert parse_duration(text) == nano


@pytest.mark.parametrize(
    "text", ["", "-", "+", "1", "s", ".s", "1 s", "1s ", "1x", "1s2", "--1s", "2562048h", "9223372036854775808ns"]
)
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        parse_duration(text)


# Quantities
SUFFIXES: dict[str, Any] = {
    **{"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18, "m": Fraction(1, 1000)},
    **{
        "u": Fraction(1, 10**6),
        "n": Fraction(1, NANO),
        "Ki": 2**10,
        "Mi": 2**20,
        "Gi": 2**30,
        "Ti": 2**40,
        "Pi": 2**50,
        "Ei": 2**60,
    },
}


@pytest.mark.parametrize(("suffix", "size"), SUFFIXES.items())
def test_each_suffix_stands_for_its_size(suffix: str, size: Any) -> None:
    assert parse_quantity(f"3{suffix}").nano == -((-3 * size * NANO) // 1)
    assert parse_quantity(f"0.5{suffix}").nano == -((-size * NANO) // 2)


@pytest.mark.parametrize("seed", range(120))
def test_a_quantity_is_its_number_times_its_suffix(seed: int) -> None:
    rng = random.Random(seed)
    whole, fraction = rng.randrange(10 ** rng.randint(1, 9)), rng.choice(["", "", f".{rng.randrange(1000):03}"])
    suffix = rng.choice(list(SUFFIXES))
    exact = Fraction(f"{whole}{fraction}") * SUFFIXES[suffix]
    found = parse_quantity(f"{whole}{fraction}{suffix}")
    if exact < 2**63:
        assert found.nano == -((-exact * NANO).__floor__())
        assert found.value == -((-exact).__floor__())
        assert found.milli == -((-exact * 1000).__floor__())
    negative = parse_quantity(f"-{whole}{fraction}{suffix}")
    assert (negative.nano, negative.value) == (-found.nano, -found.value)
    if found.int64 is not None:
        assert found.int64 == exact


@pytest.mark.parametrize(
    ("text", "int64"),
    [("999999999999999999", 999999999999999999), ("9223372036854775807", None), ("1E", 10**18), ("9E", 9 * 10**18), ("10E", None), ("1.0", None),
     ("1n", None), ("1u", None), ("100m", None), ("1e18", 10**18), ("1e19", None), ("92233720368547758e2", 9223372036854775800), ("92233720368547759e2", None), ("1e-1", None), ("9999Pi", None), ("8Ei", None), ("1023Gi", 1023 * 2**30),
     ("99Ti", 99 * 2**40), ("100Ti", None), ("1Pi", None), ("00001Gi", 2**30), ("10000Gi", 10000 * 2**30), ("100000Gi", None)],
)  # fmt: skip
def test_which_quantities_are_an_int64_inside(text: str, int64: int | None) -> None:
    assert parse_quantity(text).int64 == int64


@pytest.mark.parametrize(
    ("amount", "binary", "text"),
    [(0, True, "0"), (1, True, "1"), (1023, True, "1023"), (1024, True, "1Ki"), (1025, True, "1025"), (1536 * 2**20, True, "1536Mi"), (-1024, True, "-1Ki"),
     (1000, False, "1k"), (1001, False, "1001"), (10**18, False, "1E"), (15 * 10**8, False, "1500M"), (Fraction(1, 2), False, "500m"),
     (Fraction(1, 10**6), False, "1u"), (Fraction(1, NANO), False, "1n")],
)  # fmt: skip
def test_a_quantity_is_written_with_its_largest_suffix(amount: Any, binary: bool, text: str) -> None:
    assert format_quantity(int(amount * NANO), binary=binary) == text


@pytest.mark.parametrize(
    ("amount", "unit", "rounded"), [(0, 7, 0), (1, 7, 1), (6, 7, 1), (7, 7, 1), (8, 7, 2), (-1, 7, -1), (-7, 7, -1), (-8, 7, -2)]
)
def test_rounding_is_away_from_zero(amount: int, unit: int, rounded: int) -> None:
    assert round_up(amount, unit) == rounded


@pytest.mark.parametrize(
    ("value", "nano"), [(None, 0), (" 1 ", NANO), (2, 2 * NANO), (2.0, 2 * NANO), (0.5, NANO // 2), (1e21, 10**30)]
)
def test_quantities_of_json(value: Any, nano: int) -> None:
    assert parse_json_quantity(value).nano == nano


@pytest.mark.parametrize("value", [True, [], {}])
def test_no_quantities_of_json(value: Any) -> None:
    with pytest.raises(ValueError, match="is no quantity"):
        parse_json_quantity(value)


def test_no_exponent_is_beyond_64() -> None:
    assert parse_quantity("1e63") != parse_quantity("1e64") == parse_quantity("1e65")
    assert parse_quantity("1e-70") == parse_quantity("1e-64")
    assert parse_quantity("9Ei").nano == (2**63 - 1) * NANO


# CPUs and sets of NUMA nodes
@pytest.mark.parametrize(
    ("text", "cpus"),
    [("", []), ("0", [0]), ("3", [3]), ("0-2,8", [0, 1, 2, 8]), ("5-5", [5]), ("2,1", [1, 2]), ("1048575", [1048575])],
)
def test_cpu_sets(text: str, cpus: list[int]) -> None:
    assert parse_cpu_set(text) == sum(1 << cpu for cpu in cpus)


@pytest.mark.parametrize(
    ("text", "words"), [("x", "no CPU list"), ("1,", "no CPU list"), ("1-", "no CPU list"), ("2-1", "runs backwards \\(2 > 1\\)"), ("1048576", "names CPU 1048576")]
)  # fmt: skip
def test_no_cpu_sets(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_cpu_set(text)


@pytest.mark.parametrize("seed", range(20))
def test_a_cpu_list_says_the_set_and_nothing_twice(seed: int) -> None:
    rng = random.Random(seed)
    cpus = sorted(rng.sample(range(70), rng.randint(0, 40)))
    mask = sum(1 << cpu for cpu in cpus)
    assert list(cpu_ids(mask)) == cpus
    assert parse_cpu_set(cpu_list(mask)) == mask
    assert all(int(b) - int(a) > 1 for a, b in itertools.pairwise(cpu_list(mask).replace(",", " ").split()) if "-" not in a + b)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 10, 11])
def test_masks_over_numa_nodes(count: int) -> None:
    space = MaskSpace(count)
    masks = range(1, 1 << count)
    assert space.full == (1 << count) - 1
    for size in range(1, count + 1):
        assert space.by_count[size] == sum(1 << mask for mask in masks if mask.bit_count() == size)
    assert masks_of(space.singles) == [1 << node for node in range(count)]
    rng = random.Random(count)
    for mask in {1, space.full, *(rng.randrange(1, 1 << count) for _ in range(6))}:
        every = [0, *masks]
        assert space.submasks(mask) == sum(1 << other for other in every if other & mask == other)
        assert space.touching(mask) == sum(1 << other for other in every if other & mask)
        assert space.supersets(mask) == sum(1 << other for other in every if other & mask == mask)
        assert list(positions(mask)) == [node for node in range(count) if mask >> node & 1]
    assert space.narrowest(0) == 0
    assert space.narrowest(1 << space.full) == count
    assert space.narrowest((1 << space.full) | 1 << 1) == 1


def test_twenty_numa_nodes_are_the_most() -> None:
    assert MaskSpace(0).singles == 0
    assert MaskSpace(20).by_count[20] == 1 << (2**20 - 1)
    with pytest.raises(KubeletHangs, match="2\\^21 sets"):
        MaskSpace(21)


def test_hints_that_only_meet_on_more_nodes_than_wanted() -> None:
    """Of two providers that each want two nodes and one, sets that have nodes in common are three nodes wide."""
    policy = TopologyPolicy(name=BEST_EFFORT, scope="container", space=mask_space(6), node_ids=tuple(range(6)), distances=None)
    one = ResourceHints(1 << 0b000011 | 1 << 0b011100, 1 << 0b000011)
    other = ResourceHints(1 << 0b100000 | 1 << 0b011100, 1 << 0b100000)
    assert policy.merge([{"a": one}, {"b": other}]) == (TopologyHint(0b011100, False), True)
    assert policy.merge([{"a": one}, {"b": one}]) == (TopologyHint(0b000011, True), True)


def test_cpu_numbers_have_twenty_bits() -> None:
    for cpu, right in ((2**20 - 1, True), (2**20, False), (-1, False)):
        document = {"numa": [{"id": 0, "cpus": [[cpu]], "socket": 0, "memory_bytes": 1}]}
        if right:
            assert Machine.from_dict(document).cpu_count == 1
        else:
            with pytest.raises(ConfigError, match=r"numa\[0\]\.cpus\[0\]"):
                Machine.from_dict(document)


@pytest.mark.parametrize(("text", "version"), [("1.36", (1, 36)), ("v1.36", (1, 36)), ("1.36.2", (1, 36))])
def test_versions_are_major_and_minor(text: str, version: tuple[int, int]) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize("version", ["1.37", "v1.37", "1.37.2", "v1.37.2-gke.1"])
def test_versions_are_known_by_their_minor(version: str) -> None:
    assert rules_of(version).version == "1.37"


@pytest.mark.parametrize("version", ["1.32", "1.38", "1", "x", "1.37x", "11.37"])
def test_other_versions_are_refused(version: str) -> None:
    with pytest.raises(ConfigError, match="use one of"):
        rules_of(version)


@pytest.mark.parametrize(
    ("version", "cpu", "topology"),
    [("1.33", ["stable", "beta", "alpha", "beta", "alpha", "alpha"], ["stable", "beta"]), ("1.34", ["stable", "beta", "beta", "beta", "alpha", "alpha"], ["stable", "beta"]),
     ("1.35", ["stable", "stable", "beta", "beta", "alpha", "alpha"], ["stable", "stable"]), ("1.36", ["stable", "stable", "stable", "beta", "alpha", "alpha"], ["stable", "stable"])],
)  # fmt: skip
def test_stages_of_options_by_version(version: str, cpu: list[str], topology: list[str]) -> None:
    rules = rules_of(version)
    assert (list(rules.cpu_options.values()), list(rules.topology_options.values())) == (cpu, topology)


@pytest.mark.parametrize(
    ("version", "hints", "sockets", "odd"),
    [
        ("1.33", False, False, False),
        ("1.34", False, False, True),
        ("1.35", False, False, True),
        ("1.36", True, False, True),
        ("1.37", True, True, True),
    ],
)
def test_rules_by_version(version: str, hints: bool, sockets: bool, odd: bool) -> None:
    rules = rules_of(version)
    assert rules.device_hints_on_device_nodes_only == hints
    assert rules.distribution_knows_sockets == sockets
    assert rules.uncore_cache_takes_odd_requests == odd


# Names
@pytest.mark.parametrize(
    ("name", "qualified", "native", "extended", "scalar"),
    [
        ("cpu", True, True, False, False),
        ("nvidia.com/gpu", True, False, True, True),
        ("hugepages-1Gi", True, True, False, True),
        ("attachable-volumes-x", True, True, False, True),
        ("kubernetes.io/x", True, True, False, True),
        ("x.kubernetes.io/x", True, True, False, True),
        ("requests.a.b/c", True, False, False, False),
        ("a/b/c", False, False, False, False),
        ("/b", False, False, False, False),
        ("a/", False, False, False, False),
        ("A.b/c", False, False, False, False),
        ("a.b/" + "c" * 63, True, False, True, True),
        ("a.b/" + "c" * 64, False, False, False, False),
        ("a" * 244 + "/c", True, False, True, True),
        ("a" * 245 + "/c", True, False, False, False),
        ("a" * 254 + "/c", False, False, False, False),
        ("", False, True, False, False),
    ],
)
def test_names_of_resources(name: str, qualified: bool, native: bool, extended: bool, scalar: bool) -> None:
    found = is_qualified_name(name), is_native_resource(name), is_extended_resource(name), is_scalar_resource(name)
    assert found == (qualified, native, extended, scalar)


@pytest.mark.parametrize(
    ("pattern", "valid"),
    [("a", True), ("a/b", True), ("a/*", True), ("r:5000/a", True), ("a:1", False), ("r:5000/a:1", False), ("a@sha256:0", False), ("*", False), ("/*", False),
     ("a*", False), ("a/*/b", False), (" a", False), ("", False), ("r:5000/*", True)],
)  # fmt: skip
def test_image_patterns(pattern: str, valid: bool) -> None:
    fields = {
        "preloadedImagesVerificationAllowlist": [pattern],
        "imagePullCredentialsVerificationPolicy": "NeverVerifyAllowlistedImages",
    }
    errors = validation_errors(load(fields, kubernetes_version="1.37"))
    assert errors == [] if valid else len(errors) == 1 and repr(pattern) in errors[0]


@pytest.mark.parametrize(
    ("endpoint", "valid"),
    [("localhost:4317", True), ("dns:///a:1", True), ("unix:///run/x", True), ("unix-abstract://x", True), ("http://a", False), ("a b:1", False),
     ("a:port", False)],
)  # fmt: skip
def test_tracing_endpoints(endpoint: str, valid: bool) -> None:
    errors = validation_errors(load({"tracing": {"endpoint": endpoint}}, kubernetes_version="1.37"))
    assert errors == [] if valid else len(errors) == 1 and repr(endpoint) in errors[0]


@pytest.mark.parametrize(
    ("version", "fields", "gate"),
    [("1.33", {"imageMaximumGCAge": "1h"}, "ImageMaximumGCAge"), ("1.35", {"enableSystemLogQuery": True}, "NodeLogQuery"),
     ("1.33", {"memorySwap": {"swapBehavior": "NoSwap"}}, "NodeSwap")],
)  # fmt: skip
def test_gates_that_earlier_versions_can_switch_off(version: str, fields: dict[str, Any], gate: str) -> None:
    for on in (True, False):
        errors = validation_errors(load({**fields, **_gates(**{gate: on})}, kubernetes_version=version))
        assert [gate in error for error in errors] == ([] if on else [True])


@pytest.mark.parametrize("name", ["shutdownGracePeriod", "shutdownGracePeriodCriticalPods"])
def test_graceful_shutdown_can_be_switched_off(name: str) -> None:
    off = _gates(
        **dict.fromkeys(("GracefulNodeShutdown", "GracefulNodeShutdownBasedOnPodPriority", "WindowsGracefulNodeShutdown"), False)
    )
    for period, expected in (("1s", [True]), ("1ns", [True]), ("0s", [])):
        errors = validation_errors(load({name: period, **off}, kubernetes_version="1.37"))
        assert ["needs the feature gate GracefulNodeShutdown" in error for error in errors] == expected


@pytest.mark.parametrize(
    ("reserved", "words"),
    [({"cpu": "1", "memory": "0"}, ""), ({"cpu": "1", "memory": "-1"}, "must not be negative"), ({"cpu": "1", "gpu": "1"}, "gpu"), ({"cpu": "1", "memory": "x"}, "is no quantity")],
)  # fmt: skip
def test_amounts_that_may_be_reserved(reserved: dict[str, str], words: str) -> None:
    if not words:
        assert reserved_resources(reserved, "kubeReserved") == {"cpu": NANO, "memory": 0}
        return
    with pytest.raises(KubeletRefuses) as refusal:
        reserved_resources(reserved, "kubeReserved")
    assert (refusal.value.stage, words in refusal.value.errors[0]) == ("kubeReserved", True)


@pytest.mark.parametrize(
    ("text", "milli"),
    [("1", 1000), ("1m", 1), ("1500m", 1500), ("0.0001", 0), ("0.0005", 1), ("0.0014", 1), ("0.0015", 2), ("1u", 0)],
)
def test_reserved_cpus_are_rounded_to_thousandths(text: str, milli: int) -> None:
    assert reserved_resources({"cpu": text}, "kubeReserved") == {"cpu": milli * 10**6}


@pytest.mark.parametrize(
    ("fields", "words"),
    [({"maxPods": -1}, "maxPods: -1 must not be negative"), ({"nodeLeaseDurationSeconds": -1}, "nodeLeaseDurationSeconds: -1 must be at least 1"),
     ({"oomScoreAdj": 1001}, "oomScoreAdj: 1001 must be between -1000 and 1000"), ({"port": 65536}, "port: 65536 must be between 1 and 65535"),
     ({"maxParallelImagePulls": 0}, "maxParallelImagePulls: 0 must be at least 1")],
)  # fmt: skip
def test_bounds_are_named(fields: dict[str, Any], words: str) -> None:
    assert words in validation_errors(load(fields, kubernetes_version="1.37"))


def _gates(**gates: bool) -> dict[str, Any]:
    return {"featureGates": gates}


_QUOTA, _MAX, _QOS = _gates(CustomCPUCFSQuotaPeriod=True), _gates(KubeletCrashLoopBackOffMax=True), _gates(MemoryQoS=True)
_TRUSTED = {"imagePullCredentialsVerificationPolicy": "NeverVerifyAllowlistedImages"}


# Held against the kubelet's own ValidateKubeletConfiguration when it was written; rows are pairs at an edge.
@pytest.mark.parametrize(
    ("fields", "valid"),
    [
        ({"cpuCFSQuotaPeriod": "1ms", **_QUOTA}, True), ({"cpuCFSQuotaPeriod": "999us", **_QUOTA}, False),
        ({"cpuCFSQuotaPeriod": "1s", **_QUOTA}, True), ({"cpuCFSQuotaPeriod": "1001ms", **_QUOTA}, False),
        ({"cpuCFSQuotaPeriod": "100ms", **_gates(CustomCPUCFSQuotaPeriod=False)}, True),
        ({"cpuCFSQuotaPeriod": "101ms", **_gates(CustomCPUCFSQuotaPeriod=False)}, False),
        ({"crashLoopBackOff": {"maxContainerRestartPeriod": "1s"}, **_MAX}, True),
        ({"crashLoopBackOff": {"maxContainerRestartPeriod": "999ms"}, **_MAX}, False),
        ({"crashLoopBackOff": {"maxContainerRestartPeriod": "300s"}, **_MAX}, True),
        ({"crashLoopBackOff": {"maxContainerRestartPeriod": "301s"}, **_MAX}, False),
        ({"crashLoopBackOff": {"maxContainerRestartPeriod": "10s"}, **_gates(KubeletCrashLoopBackOffMax=False)}, False),
        ({"imageGCHighThresholdPercent": 80, "imageGCLowThresholdPercent": 79}, True), ({"imageGCHighThresholdPercent": 80}, False),
        ({"imageMinimumGCAge": "0s"}, True), ({"imageMinimumGCAge": "-1s"}, False),
        ({"imageMaximumGCAge": "121s"}, True), ({"imageMaximumGCAge": "120s"}, False), ({"imageMaximumGCAge": "0s"}, True),
        ({"imageMaximumGCAge": "-1s"}, False),
        ({"maxParallelImagePulls": 1, "serializeImagePulls": True}, True), ({"maxParallelImagePulls": 2, "serializeImagePulls": True}, False),
        ({"maxParallelImagePulls": 2}, True),
        ({"containerLogMonitorInterval": "3s"}, True), ({"containerLogMonitorInterval": "2999ms"}, False),
        ({"shutdownGracePeriod": "1s", "shutdownGracePeriodCriticalPods": "1s"}, True),
        ({"shutdownGracePeriod": "1s", "shutdownGracePeriodCriticalPods": "1001ms"}, False),
        ({"shutdownGracePeriod": "999ms"}, False), ({"shutdownGracePeriod": "2s", "shutdownGracePeriodCriticalPods": "999ms"}, False),
        ({"shutdownGracePeriod": "-1s", "shutdownGracePeriodCriticalPods": "-1s"}, False),
        ({"shutdownGracePeriodByPodPriority": [{"priority": 0, "shutdownGracePeriodSeconds": 1}]}, True),
        ({"shutdownGracePeriodByPodPriority": [{"priority": 0}], "shutdownGracePeriod": "1s"}, False),
        ({"shutdownGracePeriodByPodPriority": [{"priority": 0}], **_gates(GracefulNodeShutdownBasedOnPodPriority=False)}, False),
        ({"memoryThrottlingFactor": 1, **_QOS}, True), ({"memoryThrottlingFactor": 1.01, **_QOS}, False), ({"memoryThrottlingFactor": 0, **_QOS}, False),
        ({"memoryThrottlingFactor": 0.01, **_QOS}, True), ({"memoryThrottlingFactor": 0.9, **_gates(MemoryQoS=False)}, True),
        ({"memoryThrottlingFactor": 0.8, **_gates(MemoryQoS=False)}, False),
        ({"memoryReservationPolicy": "TieredReservation", **_QOS}, True),
        ({"memoryReservationPolicy": "TieredReservation", **_gates(MemoryQoS=False)}, False), ({"memoryReservationPolicy": "Some"}, False),
        ({"userNamespaces": {"idsPerPod": 65536}}, True), ({"userNamespaces": {"idsPerPod": 0}}, False),
        ({"userNamespaces": {"idsPerPod": 65537}}, False), ({"userNamespaces": {"idsPerPod": 2**32 - 65536}}, True),
        ({"userNamespaces": {"idsPerPod": 2**32}}, False),
        ({"logging": {"verbosity": 2**31 - 1}}, True), ({"logging": {"verbosity": 2**31}}, False),
        ({"logging": {"vmodule": [{"filePattern": "a", "verbosity": 1}]}}, True), ({"logging": {"vmodule": [{"filePattern": "", "verbosity": 1}]}}, False),
        ({"logging": {"vmodule": [{"filePattern": "a=b", "verbosity": 1}]}}, False),
        ({"logging": {"vmodule": [{"filePattern": "a", "verbosity": 2**31}]}}, False),
        ({"logging": {"format": "json", "vmodule": [{"filePattern": "a", "verbosity": 1}]}}, False), ({"logging": {"format": "json"}}, True),
        ({"logging": {"format": "xml"}}, False), ({"logging": {"flushFrequency": "1ns"}}, True), ({"logging": {"flushFrequency": "-1ns"}}, False), ({"logging": {"flushFrequency": -1}}, False),
        ({"logging": {"options": {"text": {"splitStream": True}}}}, False), ({"logging": {"options": {"json": {"infoBufferSize": "1"}}}}, False),
        ({"logging": {"options": {"text": {"splitStream": True}}}, **_gates(LoggingAlphaOptions=True)}, True),
        ({"tracing": {"samplingRatePerMillion": 1_000_000}}, True), ({"tracing": {"samplingRatePerMillion": 1_000_001}}, False),
        ({"tracing": {"samplingRatePerMillion": 0}}, True), ({"tracing": {"samplingRatePerMillion": -1}}, False),
        ({"podLogsDir": "/var/log"}, True), ({"podLogsDir": "/var//log"}, False), ({"podLogsDir": "/var/../log"}, False), ({"podLogsDir": "/v\u00e4r"}, False),
        ({"podLogsDir": "logs"}, True), ({"podLogsDir": "/var/log/"}, False), ({"podLogsDir": "/"}, True), ({"podLogsDir": "/./var"}, False), ({"podLogsDir": "/../var"}, False), ({"podLogsDir": "/a/b/../c"}, False),
        ({"enforceNodeAllocatable": ["none"]}, True), ({"enforceNodeAllocatable": ["none", "pods"]}, False), ({"enforceNodeAllocatable": ["pods", "pods"]}, False),
        ({"enforceNodeAllocatable": ["kube-reserved"]}, False), ({"enforceNodeAllocatable": ["kube-reserved"], "kubeReservedCgroup": "/k"}, True),
        ({"enforceNodeAllocatable": ["kube-reserved"], "systemReservedCgroup": "/s"}, False),
        ({"enforceNodeAllocatable": ["system-reserved"], "systemReservedCgroup": "/s"}, True),
        ({"enforceNodeAllocatable": ["system-reserved", "system-reserved-compressible"], "systemReservedCgroup": "/s"}, False),
        ({"cgroupsPerQOS": False}, False), ({"cgroupsPerQOS": False, "enforceNodeAllocatable": ["none"]}, True),
        ({"systemCgroups": "/s"}, False), ({"systemCgroups": "/s", "cgroupRoot": "/"}, True),
        ({"reservedSystemCPUs": "0", "kubeReservedCgroup": "/k"}, False), ({"kubeReservedCgroup": "/k"}, True),
        ({"showHiddenMetricsForVersion": "1.36"}, True), ({"showHiddenMetricsForVersion": "1.35"}, False),
        ({"serverTLSBootstrap": True}, True), ({"serverTLSBootstrap": True, **_gates(RotateKubeletServerCertificate=False)}, False), ({"runOnce": True}, False),
        ({"enableSystemLogQuery": True}, True), ({"enableSystemLogQuery": True, "enableSystemLogHandler": False}, False),
        ({"defaultPodSysctls": {"net.ipv4.x": "1"}, **_gates(DefaultPodSysctls=True)}, True), ({"defaultPodSysctls": {"net.ipv4.x": "1"}, **_gates(DefaultPodSysctls=False)}, False),
        ({"defaultPodSysctls": {"vm.swappiness": "1"}, **_gates(DefaultPodSysctls=True)}, False),
        ({"defaultPodSysctls": {"net/a": "1", "net.a": "1"}, **_gates(DefaultPodSysctls=True)}, False),
        ({"defaultPodSysctls": {"net." + "a" * 249: "1"}, **_gates(DefaultPodSysctls=True)}, True),
        ({"defaultPodSysctls": {"net." + "a" * 250: "1"}, **_gates(DefaultPodSysctls=True)}, False),
        ({"memorySwap": {"swapBehavior": "LimitedSwap"}}, True), ({"memorySwap": {"swapBehavior": "Some"}}, False),
        ({"registerWithTaints": [{"key": "a", "value": "b" * 63, "effect": "NoSchedule"}]}, True),
        ({"registerWithTaints": [{"key": "a", "value": "b" * 64, "effect": "NoSchedule"}]}, False),
        ({"registerWithTaints": [{"key": "a", "effect": "Never"}]}, False), ({"registerWithTaints": [{"key": ""}]}, False),
        ({"registerWithTaints": [{"key": "a", "effect": "NoSchedule", "timeAdded": "2026-01-31T12:00:00Z"}]}, False),
        ({"preloadedImagesVerificationAllowlist": ["a"], **_TRUSTED}, True), ({"preloadedImagesVerificationAllowlist": ["a"]}, False),
        ({"imagePullCredentialsVerificationPolicy": "Always"}, False),
        ({"imagePullCredentialsVerificationPolicy": "NeverVerify", **_gates(KubeletEnsureSecretPulledImages=False)}, False),
        ({"hairpinMode": "hairpin"}, False), ({"topologyManagerScope": "node"}, False), ({"topologyManagerPolicy": "best"}, False),
        ({"reservedMemory": [{"numaNode": 0, "limits": {"memory": "1"}}, {"numaNode": 1, "limits": {"memory": "1"}}]}, True),
        ({"reservedMemory": [{"numaNode": 0, "limits": {"memory": "1"}}, {"numaNode": 0, "limits": {"memory": "1"}}]}, False),
        ({"reservedMemory": [{"numaNode": 0, "limits": {"cpu": "1"}}]}, False), ({"reservedMemory": [{"numaNode": 0, "limits": {"memory": "0"}}]}, False),
        ({"reservedMemory": [{"numaNode": 0, "limits": {"hugepages-1Gi": "1Gi"}}]}, True),
    ],
)  # fmt: skip
def test_edges_of_the_validation(fields: dict[str, Any], valid: bool) -> None:
    errors = validation_errors(load(fields, kubernetes_version="1.37"))
    assert (errors == []) == valid, errors
    assert all(": " in error and error.split(":")[0] for error in errors)


# Reservations
@pytest.mark.parametrize(
    ("hard", "kept"),
    [({}, 0), ({"memory.available": "100Mi"}, 100 * 2**20), ({"memory.available": "5%"}, 5 * 2**20), ({"memory.available": "0%"}, 0),
     ({"memory.available": "100%"}, 0), ({"nodefs.available": "5%"}, 0), ({"memory.available": "50.0%"}, 50 * 2**20),
     ({"memory.available": "1Mi", "nodefs.available": "10%"}, 2**20), ({"memory.available": "99.9%"}, 104752743)],
)  # fmt: skip
def test_what_thresholds_keep_of_100_mebibytes(hard: dict[str, str], kept: int) -> None:
    assert eviction_memory(hard, 100 * 2**20 * NANO) == kept * NANO


@pytest.mark.parametrize(
    ("signal", "text", "words"),
    [("memory.avail", "1Gi", "Did you mean"), ("memory.available", "x%", "'x%' is no percentage"), ("memory.available", "100.1%", "between 0% and 100%"),
     ("memory.available", "x", "neither a quantity"), ("memory.available", "0", "must be positive"), ("memory.available", "-1", "must be positive")],
)  # fmt: skip
def test_thresholds_that_stop_the_kubelet(signal: str, text: str, words: str) -> None:
    assert "memory.available" in EVICTION_SIGNALS
    with pytest.raises(KubeletRefuses) as refusal:
        eviction_memory({signal: text}, NANO)
    assert refusal.value.stage == "evictionHard"
    assert f"evictionHard.{signal}: " in refusal.value.errors[0]
    assert words in refusal.value.errors[0]


# Pods
def test_priorities_have_32_bits() -> None:
    for priority in (-(2**31), 2**31 - 1):
        assert Pod.from_dict({**pod("a", cpu=1), "priority": priority}).priority == priority
    for priority in (-(2**31) - 1, 2**31, True, "1", 1.0):
        with pytest.raises(ConfigError, match=r"pod\.priority"):
            Pod.from_dict({**pod("a", cpu=1), "priority": priority})


@pytest.mark.parametrize(
    ("mine", "other", "preempts"),
    [(2_000_000_000, 1_999_999_999, True), (2_000_000_000, None, True), (1_999_999_999, None, False),
     (5, 4, True), (5, 5, False), (4, 5, False),
     (2_000_000_000, 2_000_000_000, False), (2_000_001_000, 2_000_000_000, True), (None, 0, False)],
)  # fmt: skip
def test_who_may_push_out_whom(mine: int | None, other: int | None, preempts: bool) -> None:
    one, two = ({**pod(name, cpu=1), "priority": priority} for name, priority in (("a", mine), ("b", other)))
    assert Pod.from_dict(one).preempts(Pod.from_dict(two)) == preempts
    assert Pod.from_dict(one).is_critical == (mine is not None and mine >= 2_000_000_000)


@pytest.mark.parametrize("seed", range(150))
def test_the_short_way_of_validation_says_what_the_long_one_says(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pods = [Pod.from_dict(step) for step in case_of("crowded", 50_000 + seed)["pods"] if not step.get("remove")]
    short = [pod_validation.pod_errors(p, pod_level=True) for p in pods]
    monkeypatch.setattr(pod_validation, "_plainly_valid", lambda requests, limits: False)
    assert [pod_validation.pod_errors(p, pod_level=True) for p in pods] == short


@pytest.mark.parametrize(
    ("requests", "limits", "plain"),
    [({"cpu": 1}, {"cpu": 1}, True), ({"cpu": 2}, {"cpu": 1}, False), ({}, {"cpu": 1}, True), ({"cpu": -1}, {}, False), ({"cpu": 0}, {}, True),
     ({"cpu": 0}, {"cpu": 0}, True), ({}, {"cpu": 0}, True), ({}, {"cpu": -1}, False), ({"a.b/c": 1000}, {"a.b/c": 1000}, True), ({"a.b/c": 0}, {"a.b/c": 0}, True), ({"a.b/c": 500}, {"a.b/c": 500}, False),
     ({"a.b/c": -1000}, {"a.b/c": -1000}, False), ({"a.b/c": 1000}, {}, False), ({"a.b/c": 1000}, {"a.b/c": 2000}, False), ({"memory": 1}, {}, True)],
)  # fmt: skip
def test_which_requirements_are_plain(requests: dict[str, int], limits: dict[str, int], plain: bool) -> None:
    assert pod_validation._plainly_valid(requests, limits) == plain


def test_no_devices_at_pod_level() -> None:
    level = {"nvidia.com/gpu": "1"}
    result = kubelet().admit({**pod("a", cpu=1, memory="1Gi"), "resources": {"requests": level, "limits": level}})
    assert result.reason == "InvalidPod"
    assert "Unsupported value at pod level" in result.message


@pytest.mark.parametrize(
    ("level", "fixed", "requests", "limits"),
    [
        ({"limits": {"cpu": "4"}}, True, {"cpu": 2000, "memory": 2**30 * 1000}, {"cpu": 4000, "memory": 2**31 * 1000}),
        ({"limits": {"cpu": "4"}}, False, {"cpu": 2000, "memory": 2**30 * 1000}, {"cpu": 4000}),
        ({"requests": {"memory": "4Gi"}}, True, {"cpu": 2000, "memory": 2**32 * 1000}, {"cpu": 3000, "memory": 2**32 * 1000}),
        ({"requests": {"memory": "4Gi"}}, False, {"memory": 2**32 * 1000}, {}),
        ({"requests": {"cpu": "1"}, "limits": {"cpu": "8"}}, False, {"cpu": 1000, "memory": 2**30 * 1000}, {"cpu": 8000}),
        ({}, True, {}, {}),
    ],
)
def test_what_the_api_server_fills_in_at_pod_level(level: dict, fixed: bool, requests: dict, limits: dict) -> None:
    one = {"name": "c", "requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "3", "memory": "2Gi"}}
    filled = with_pod_level_defaults(Pod.from_dict({"name": "a", "containers": [one], "resources": level}), fixed=fixed)
    assert (filled.pod_requests, filled.pod_limits) == (requests, limits)


def test_no_limit_is_filled_in_where_a_container_has_none() -> None:
    containers = [{"name": "c", "limits": {"cpu": "1"}}, {"name": "d"}]
    filled = with_pod_level_defaults(
        Pod.from_dict({"name": "a", "containers": containers, "resources": {"requests": {"cpu": "2"}}}), fixed=True
    )
    assert (filled.pod_requests, filled.pod_limits) == ({"cpu": 2000}, {})


def test_a_pod_without_pod_level_resources_stays_the_same() -> None:
    plain = Pod.from_dict(pod("a", cpu=1))
    assert with_pod_level_defaults(plain, fixed=True) is plain


# Node fit and preemption
def test_shortages_are_named_in_the_kubelets_order() -> None:
    allocatable = NodeAllocatable(pods=1, amounts={"cpu": 1000, "memory": 10, "a.b/c": 1, "hugepages-1Gi": 0})
    requests = {"a.b/c": 2, "hugepages-1Gi": 1, "memory": 11, "cpu": 1001, "ephemeral-storage": 1, "storage": 5}
    found = shortages(requests, {"a.b/c": 1}, 1, allocatable)
    assert [s.reason for s in found] == [
        "OutOfpods",
        "OutOfcpu",
        "OutOfmemory",
        "OutOfephemeral-storage",
        "OutOfa.b/c",
        "OutOfhugepages-1Gi",
    ]
    assert found[4].message == "Node didn't have enough resource: a.b/c, requested: 2, used: 1, capacity: 1"
    assert found[4].missing == 2
    assert shortages({"cpu": 1000, "memory": 10, "a.b/c": 1}, {}, 0, allocatable) == []
    assert shortages({"cpu": 0}, {"cpu": 5000}, 0, allocatable) == []


def _preempted(short: dict[str, int], pods: list[tuple[str, dict[str, Any], int | None]]) -> Any:
    critical = Pod.from_dict({**pod("x", cpu=1), "priority": 2_000_000_000})
    others = []
    for qos, limits, priority in pods:
        others.append((Pod.from_dict({**pod("p", container(**limits)), "priority": priority}), qos))
    allocatable = NodeAllocatable(pods=110, amounts={})
    missing = [s for s in shortages(short, {}, 0, allocatable) if s.resource in short]
    return preempt(critical, others, missing, pod_level=True)


@pytest.mark.parametrize(
    ("short", "pods", "evicted"),
    [
        ({"cpu": 1000}, [("Guaranteed", {"cpu": 1}, 0), ("Burstable", {"cpu": 1}, 0), ("BestEffort", {"cpu": 1}, 0)], (2,)),
        ({"cpu": 1500}, [("Guaranteed", {"cpu": 1}, 0), ("Burstable", {"cpu": 1}, 0), ("BestEffort", {"cpu": 1}, 0)], (2, 1)),
        ({"cpu": 3000}, [("Guaranteed", {"cpu": 1}, 0), ("Burstable", {"cpu": 1}, 0), ("BestEffort", {"cpu": 1}, 0)], (2, 1, 0)),
        ({"cpu": 1000}, [("Guaranteed", {"cpu": 3}, 0), ("Guaranteed", {"cpu": 1}, 0), ("Guaranteed", {"cpu": 2}, 0)], (1,)),
        ({"cpu": 4000}, [("Guaranteed", {"cpu": 3}, 0), ("Guaranteed", {"cpu": 1}, 0), ("Guaranteed", {"cpu": 2}, 0)], (0, 1)),
        ({"cpu": 1000}, [("Guaranteed", {"cpu": 1, "memory": 9}, 0), ("Guaranteed", {"cpu": 1, "memory": 1}, 0)], (1,)),
        ({"cpu": 1000}, [("Guaranteed", {"cpu": 1, "memory": 1}, 0), ("Guaranteed", {"cpu": 1}, 0)], (1,)),
        ({"cpu": 1000}, [("Guaranteed", {"cpu": 1}, 0), ("Guaranteed", {"cpu": 1, "memory": 1}, 0)], (0,)),
        ({"memory": 1000}, [("Guaranteed", {"cpu": "1m", "memory": 1000}, 0), ("Guaranteed", {"memory": 1000}, 0)], (1,)),
        ({"memory": 1000}, [("Guaranteed", {"memory": 1000}, 0), ("Guaranteed", {"cpu": "1m", "memory": 1000}, 0)], (0,)),
        ({"cpu": 1000, "memory": 2}, [("Guaranteed", {"cpu": 1}, 0), ("Guaranteed", {"cpu": 1, "memory": 2}, 0)], (1,)),
        ({"cpu": 1000}, [("Guaranteed", {"cpu": 1}, 2_000_000_000)], ()),
    ],
)
def test_the_smallest_pods_go_first(short: dict[str, int], pods: list, evicted: tuple[int, ...]) -> None:
    found = _preempted(short, pods)
    assert found.evicted == evicted
    assert (found.error is None) == bool(evicted)


def test_where_no_pod_can_make_room_the_rest_is_named() -> None:
    assert "res: cpu, q: 500" in _preempted({"cpu": 1500}, [("Burstable", {"cpu": 1}, 0)]).error


# What a refusal says
def test_a_pod_that_does_not_fit_its_numa_node_says_so() -> None:
    wide = pod("a", cpu=20, memory="1Gi")
    assert kubelet().admit(wide).message == "Resources cannot be allocated with Topology locality"
    level = {"requests": {"cpu": "20", "memory": "2Gi"}, "limits": {"cpu": "20", "memory": "2Gi"}}
    gates: dict[str, Any] = {"featureGates": {"PodLevelResourceManagers": True}}
    assert "Resources cannot be" in kubelet(topologyManagerScope="pod", **gates).admit(wide).message
    assert "pod-scope topology manager" in kubelet(topologyManagerScope="pod", **gates).admit({**wide, "resources": level}).message
    assert "container-level topology manager" in kubelet(**gates).admit({**wide, "resources": level}).message


def test_pod_level_resources_are_refused_where_the_gate_is_off() -> None:
    off = {"PodLevelResources": False, "PodLevelResourceManagers": False, "InPlacePodLevelResourcesVerticalScaling": False}
    off |= {"PodLevelResourcesFixDefaulting": False, "PodLevelResourcesFixKubeletQOSClass": False}
    level = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
    result = kubelet(featureGates=off).admit({**pod("a", cpu=1, memory="1Gi"), "resources": level})
    assert (result.reason, result.handler) == ("PodLevelResourcesNotSupported", "podfeatures")


def test_devices_that_are_not_healthy_are_given_to_nobody() -> None:
    from infra.kubelet import Device

    devices = {"nvidia.com/gpu": [Device(id="a", numa=(0,), healthy=False), Device(id="b", numa=(0,)), Device(id="b", numa=(1,))]}
    started = Kubelet.start(machine(), configuration(), devices)
    assert (started.capacity["nvidia.com/gpu"], started.allocatable["nvidia.com/gpu"]) == (2, 1)
    got = started.admit(pod("a", cpu=2, memory="1Gi", gpu=1)).containers[0]
    assert (got.devices["nvidia.com/gpu"], got.topology) == (("b",), (1,))


def test_memory_leaves_out_huge_pages_and_reservations() -> None:
    host = Machine.from_dict(
        {"numa": [{"id": 0, "cpus": [[0, 1], [2, 3]], "socket": 0, "memory_bytes": 8 * GIB, "hugepages": {"1Gi": 2, "2Mi": 3}}]}
    )
    started = Kubelet.start(
        host, configuration("none", kubeReserved={"cpu": "1", "memory": "924Mi"}, **static_memory(n0="1Gi")), gpus()
    )
    assert started.allocatable_memory_bytes == {0: 5 * GIB - 6 * 2**20}
    assert started.capacity["hugepages-1Gi"] == 2 * GIB


def test_a_negative_reservation_moves_huge_pages_between_nodes() -> None:
    """Only the sum over the nodes has to be right; what the kubelet then does was recorded."""
    numa = [
        {"id": n, "cpus": [[2 * n], [2 * n + 1]], "socket": n, "memory_bytes": 8 * GIB, "hugepages": {"1Gi": 2}} for n in range(2)
    ]
    moved = [
        {"numaNode": 0, "limits": {"memory": "1Gi", "hugepages-1Gi": "1Gi"}},
        {"numaNode": 1, "limits": {"hugepages-1Gi": "-1Gi"}},
    ]
    fields = configuration(kubeReserved={"cpu": "1", "memory": "924Mi"}, memoryManagerPolicy="Static", reservedMemory=moved)
    started = Kubelet.start(Machine.from_dict({"numa": numa}), fields, {})
    wide = {"limits": {"cpu": "1", "memory": "1Gi", "hugepages-1Gi": "2Gi"}}
    results = [started.admit({"name": name, "containers": [{"name": "c", **wide}]}) for name in "ab"]
    assert results[0].containers[0].memory_numa == (1,)
    assert (results[1].admitted, results[1].reason) == (False, "UnexpectedAdmissionError")


def _pod_level_pod(sidecar: str, main: str | None) -> dict[str, Any]:
    level = {"cpu": "4", "memory": "4Gi"}
    init = [{**container("side", cpu=sidecar, memory="1Gi"), "restartPolicy": "Always"}, {"name": "shared-init"}]
    containers = [container("main", cpu=main, memory="1Gi")] if main else []
    resources = {"requests": level, "limits": level}
    return {"name": "a", "initContainers": init, "containers": [*containers, {"name": "shared"}], "resources": resources}


@pytest.mark.parametrize(
    ("sidecar", "main", "words"),
    [
        ("4", None, "shared init containers but no cpus"),
        ("3", None, ""),
        ("1", "3", "equals pod budget, leaving no cpus"),
        ("1", "2", ""),
    ],
)
def test_a_shared_pool_of_a_pod_must_not_be_empty(sidecar: str, main: str | None, words: str) -> None:
    fields: dict[str, Any] = {"topologyManagerScope": "pod", "featureGates": {"PodLevelResourceManagers": True}}
    result = kubelet(policy="best-effort", **fields).admit(_pod_level_pod(sidecar, main))
    assert result.admitted == (words == "")
    assert words in result.message
    assert result.reason == ("EmptyPodSharedPoolError" if words else "")


def test_a_reservation_above_a_nodes_memory_wraps_around() -> None:
    """As the kubelet's unsigned arithmetic does; only the sum over the nodes is checked."""
    fields = configuration(kubeReserved={"cpu": "1", "memory": "1436Mi"}, **static_memory(n0="1536Mi"))
    started = Kubelet.start(machine(2, 4, gib=1), fields, {})
    assert started.allocatable_memory_bytes == {0: 2**64 - 2**29, 1: GIB}


def test_an_answer_says_its_time_in_milliseconds() -> None:
    begin = time.perf_counter()
    spent = [simulate_case(case_of("ordinary", seed))["ms"] for seed in range(5)]
    assert 0.02 < sum(spent) <= (time.perf_counter() - begin) * 1000 + 0.01
    assert spent == [round(ms, 3) for ms in spent]


@pytest.mark.parametrize(
    ("value", "rounded"),
    [(0.0625, 0.063), (0.0624, 0.062), (0.1875, 0.188), (1.0, 1.0), (2.0004, 2.0), (2.0006, 2.001), (0.0, 0.0)],
)
def test_thousandths_round_halves_away_from_zero(value: float, rounded: float) -> None:
    assert _thousandths(value) == rounded


@pytest.mark.parametrize(
    ("flag", "text", "words"),
    [
        ("max-pods", "x", "must be a whole number"),
        ("fail-swap-on", "yes", "must be true or false"),
        ("kube-reserved", "cpu", "must look like name=value"),
        ("cpu-manager-policy-options", "x", "must look like name=value"),
        ("eviction-hard", "memory.available=1", "must look like name<value"),
        ("feature-gates", "NodeSwap=x", "must be true or false"),
        ("manifest-url-header", "A", "must look like name:value"),
        ("vmodule", "a=x", "must be a whole number"),
        ("reserved-memory", "0", "must look like 0:memory=1Gi"),
        ("reserved-memory", "0:memory=1Gi:1", "must look like 0:memory=1Gi"),
        ("reserved-memory", "x:memory=1Gi", "must look like 0:memory=1Gi"),
        ("reserved-memory", "0:cpu=1", "neither memory nor hugepages"),
        ("register-with-taints", "a=b", "must look like key=value:NoSchedule"),
        ("register-with-taints", ":NoSchedule", "must look like key=value:NoSchedule"),
    ],
)
def test_what_is_wrong_with_the_text_of_a_flag(flag: str, text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        field_flags()[flag].parse([text])


@pytest.mark.parametrize(
    ("flag", "texts", "value"),
    [
        ("max-pods", ["0x10"], 16),
        ("fail-swap-on", ["F"], False),
        ("fail-swap-on", ["1"], True),
        ("kube-reserved", [""], {}),
        ("kube-reserved", [" cpu = 1 ,memory=1Gi"], {"cpu": "1", "memory": "1Gi"}),
        ("cluster-dns", ["", "10.0.0.1"], ["10.0.0.1"]),
        ("reserved-memory", [""], []),
        ("reserved-memory", ["-1:memory=1Gi"], [{"numaNode": -1, "limits": {"memory": "1Gi"}}]),
        ("register-with-taints", ["a:NoSchedule"], [{"key": "a", "value": "", "effect": "NoSchedule"}]),
    ],
)
def test_what_the_text_of_a_flag_means(flag: str, texts: list[str], value: Any) -> None:
    assert field_flags()[flag].parse(texts) == value


@pytest.mark.parametrize(
    ("words", "stage", "message"),
    [(["x"], "flags", "is no flag"), (["--max-pods"], "flags", "flag needs an argument: --max-pods"), (["--nonsense=1"], "flags", "unknown flag: --nonsense"),
     (["--max-pods=x"], "flags", "--max-pods: 'x' must be"), (["--cpu-manager-policy-options=a"], "flags", "name=value")],
)  # fmt: skip
def test_command_lines_that_stop_the_kubelet(words: list[str], stage: str, message: str) -> None:
    with pytest.raises(KubeletRefuses) as refusal:
        effective_configuration(base=HEADER, flags=words)
    assert refusal.value.stage == stage
    assert message in refusal.value.errors[0]


def test_a_flag_for_a_truth_needs_no_text() -> None:
    found = effective_configuration(
        base=HEADER, flags=["--runonce", "--max-pods", "9", "--help", "--node-ip", "10.0.0.1", "--fail-swap-on=false"]
    )
    assert (found.document["runOnce"], found.document["maxPods"], found.document["failSwapOn"]) == (True, 9, False)


def test_a_wrong_sum_of_reserved_memory_names_its_parts() -> None:
    fields = configuration(
        kubeReserved={"cpu": "1", "memory": "1Gi"}, evictionHard={"nodefs.available": "10%"}, **static_memory(n0="2Gi")
    )
    with pytest.raises(KubeletRefuses) as refusal:
        Kubelet.start(machine(), fields, {})
    assert refusal.value.errors[0].endswith("it must be 1Gi = kubeReserved 1Gi")
    pages = configuration(**static_memory(n0="1Gi"))
    pages["reservedMemory"][0]["limits"]["hugepages-1Gi"] = "1Gi"
    with pytest.raises(KubeletRefuses, match=r'of type "hugepages-1Gi".*it must be 0 = no reservation at all'):
        Kubelet.start(machine(), pages, {})


def test_amounts_of_a_machine_have_64_bits() -> None:
    for size, right in ((2**64 - 1, True), (2**64, False), (-1, False), (0, True)):
        document = {"numa": [{"id": 0, "cpus": [[0]], "socket": 0, "memory_bytes": size}]}
        if right:
            assert Machine.from_dict(document).memory_capacity_bytes == size
        else:
            with pytest.raises(ConfigError, match="a whole number from 0 up"):
                Machine.from_dict(document)


@pytest.mark.parametrize(("pages", "panics"), [("hugepages-64Ki", True), ("hugepages-32Mi", True), ("hugepages-1Gi", False)])
def test_pages_that_some_node_does_not_know_crash_the_kubelet(pages: str, panics: bool) -> None:
    sizes = [{"1Gi": 1}, {"1Gi": 1, "64Ki": 16}]
    numa = [{"id": n, "cpus": [[2 * n], [2 * n + 1]], "socket": n, "memory_bytes": 2**34, "hugepages": sizes[n]} for n in range(2)]
    fields = configuration("none", kubeReserved={"cpu": "1", "memory": "924Mi"}, **static_memory(n0="1Gi"))
    started = Kubelet.start(Machine.from_dict({"numa": numa}), fields, {})
    result = started.admit({"name": "a", "containers": [{"name": "c", "limits": {"cpu": "1", "memory": "1Gi", pages: "1Gi"}}]})
    assert (result.reason == "KubeletPanic") == panics


@pytest.mark.parametrize(
    ("amounts", "wanted", "masks"),
    [
        ((2**63, 2**63), 1, [1, 2]),
        ((2**63, 2**63 - 1), 1, [1, 2, 3]),
        ((2**63, 2**63), 2**63, [1, 2]),
        ((2**63, 2**63, 5), 5, [1, 2, 4, 5, 6, 7]),
    ],
)
def test_sums_over_numa_nodes_wrap_at_64_bits(amounts: tuple[int, ...], wanted: int, masks: list[int]) -> None:
    assert masks_of(masks_with_at_least(amounts, wanted)) == masks


def test_overhead_counts_where_nothing_is_requested() -> None:
    prepared = Pod.from_dict({"name": "a", "containers": [{"name": "c"}], "overhead": {"cpu": "250m"}})
    assert prepared.total_requests(pod_level=True) == {"cpu": 250}
    assert prepared.total_requests(pod_level=True, overhead=False) == {}


def test_the_widest_moment_of_a_pod() -> None:
    """A sidecar runs beside the init containers after it, and beside the containers."""
    init = [container("i", cpu=3), {**container("s", cpu=2), "restartPolicy": "Always"}, container("j", cpu=4)]
    prepared = Pod.from_dict({"name": "a", "initContainers": init, "containers": [container("c", cpu=1), container("d", memory=5)]})
    assert prepared.total_requests(pod_level=True) == {"cpu": 6000, "memory": 5000}
    assert prepared.total_limits() == {"cpu": 6000, "memory": 5000}


def test_a_numa_node_without_id_is_the_first() -> None:
    assert Machine.from_dict({"numa": [{"cpus": [[0]], "memory_bytes": 1}]}).numa_nodes[0].id == 0


def test_topology_options_need_their_gate_until_they_are_stable() -> None:
    fields = configuration(topologyManagerPolicyOptions={"max-allowable-numa-nodes": "9"})
    off = {**fields, "featureGates": {"TopologyManagerPolicyBetaOptions": False}}
    for version, document, starts in (("1.34", fields, True), ("1.34", off, False), ("1.35", off, True)):
        if starts:
            assert Kubelet.start(machine(), document, {}, kubernetes_version=version)
        else:
            with pytest.raises(KubeletRefuses, match="needs the feature gate TopologyManagerPolicyBetaOptions"):
                Kubelet.start(machine(), document, {}, kubernetes_version=version)


def test_without_the_static_policy_no_pool_of_cpus_is_told() -> None:
    started = kubelet(policy="none", cpuManagerPolicy="none")
    assert (started.shared_cpus_mask, started.shared_cpus, started.reserved_cpus) == (0, frozenset(), frozenset())
    assert kubelet().shared_cpus == frozenset(range(32))


def test_the_highest_verbosity_is_named() -> None:
    errors = validation_errors(load({"logging": {"verbosity": 2**31}}, kubernetes_version="1.37"))
    assert errors == ["logging.verbosity: 2147483648 must be at most 2147483647"]

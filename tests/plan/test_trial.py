"""What a message offers works: each offer is put into the document, and the document plans, or the one problem is gone and no other has come."""

from __future__ import annotations

import re
from typing import Any

import pytest

from infra.config.load import parse_cluster_document
from infra.diagnosis import Diagnosis
from infra.errors import NumawiseError
from infra.offers import first_of_each_kind
from infra.plan.cluster import plan_stack
from tests.support.documents import small_document
from tests.support.drawn_stacks import SMALL_MODEL, drawn_document

ADVICE = re.compile(r"\b(?:use|ask for|needs? at least|write|at most|reserve) \d", re.IGNORECASE)


def document(model: dict[str, Any] | None = None, pool: dict[str, Any] | None = None) -> dict[str, Any]:
    """The small document with other keys of its model and pool."""
    made = small_document()
    made["models"][0].update(model or {})
    made["nodePools"][0].update(pool or {})
    return made


def problems_of(made: dict[str, Any]) -> tuple[Diagnosis, ...]:
    try:
        plan_stack(parse_cluster_document(made))
    except NumawiseError as error:
        return error.problems
    return ()


def diagnoses_of(made: dict[str, Any]) -> tuple[Diagnosis, ...]:
    try:
        return plan_stack(parse_cluster_document(made)).warnings
    except NumawiseError as error:
        return error.problems


def offers_that_work(made: dict[str, Any]) -> int:
    """How many offers the document's messages make; AssertionError for one that does not do what it says."""
    found = diagnoses_of(made)
    wrong = {(one.path, one.code) for one in found if one.severity == "error"}
    count = 0
    for one in found:
        assert not ADVICE.search(one.message), f"a number that is offered without a try: {one}"
        assert list(first_of_each_kind(one.offers)) == list(one.offers), one
        for offer in one.offers:
            after = diagnoses_of(offer.applied(made))
            left = {(other.path, other.code) for other in after if other.severity == "error"}
            mine = {key for key in wrong if key[0] == one.path} if one.severity == "error" else set()
            assert left <= wrong - mine, f"{one}\n{offer}: {sorted(left)}"
            if one.severity == "warning":
                assert (one.path, one.code) not in {(other.path, other.code) for other in after}, f"{one}\n{offer}"
            count += 1
    return count


def cpu(count: str, memory: str = "128Gi") -> dict[str, Any]:
    return {"resources": {"cpu": count, "memory": memory}}


def beside(cpus: str, **more: Any) -> dict[str, Any]:
    return {"name": "beside", "image": "busybox:1.37", "resources": {"limits": {"cpu": cpus, "memory": "1Gi"}}, **more}


WHOLE: dict[str, Any] = {"kubelet": {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}}
EIGHT: dict[str, Any] = {"tensorParallelSize": 8, "replicas": 1, "sharedMemory": "32Gi"}
OPEN: dict[str, Any] = {"resources": {}, "sharedMemory": None}
BESIDE: dict[str, Any] = {"podAntiAffinity": "none"}


def kubelet(**fields: Any) -> dict[str, Any]:
    return {"kubelet": fields}


@pytest.mark.parametrize(
    ("model", "pool"),
    [
        *(({"tensorParallelSize": size}, {}) for size in (3, 5, 6, 7, 12, 16, 24, 32)),
        *(({"tensorParallelSize": 16, "replicas": 1, **OPEN}, {"nodeNames": names}) for names in (["a"], ["a", "b"], ["a", "b", "c"])),
        ({"pipelineParallelSize": 100, **OPEN}, {}),
        ({"enableExpertParallel": True}, {}),
        ({"tensorParallelSize": 4, "pipelineParallelSize": 2, "replicas": 1, **OPEN}, kubelet(topologyManagerPolicy="single-numa-node")),
        ({"tensorParallelSize": 8, **OPEN}, kubelet(topologyManagerPolicy="single-numa-node")),
        *(({"replicas": count}, {}) for count in (3, 4, 5, 100)),
        *(({"replicas": count, **BESIDE}, {}) for count in (5, 9)),
        ({"replicas": 2, **cpu("120"), **BESIDE}, {"nodeNames": ["a"]}),
        ({"replicas": 4, **cpu("32", "1006Gi"), **BESIDE}, {"nodeNames": ["a"]}),
        *((cpu(count), {}) for count in ("31", "33", "111", "1500m", "300", "220", "221", "7")),
        *((cpu("32", memory), {}) for memory in ("8Gi", "40Gi", "3000Gi", "2100Gi")),
        *(({**EIGHT, **cpu(count, "256Gi")}, {}) for count in ("32", "64", "112")),
        *(({**EIGHT, **cpu(count, "256Gi")}, kubelet(topologyManagerPolicy="restricted")) for count in ("32", "100")),
        ({**EIGHT, **cpu("120", "256Gi")}, kubelet(topologyManagerPolicy="restricted", memoryManagerPolicy="Static")),
        *((cpu(count), kubelet(topologyManagerPolicy="single-numa-node")) for count in ("112", "114", "150")),
        *((cpu(count), kubelet(topologyManagerPolicy="restricted")) for count in ("112", "114")),
        ({"sidecars": [beside("1")]}, {}),
        *(({"sidecars": [beside(count)]}, WHOLE) for count in ("1", "3")),
        ({"initContainers": [beside("5")]}, WHOLE),
        ({"initContainers": [beside("1", restartPolicy="Always")]}, WHOLE),
        ({"sidecars": [beside("2") | {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}}}]}, {}),
        ({"sidecars": [{"name": "s", "image": "busybox:1.37"}]}, {}),
        ({"maxModelLen": 9000}, {}),
        *(({"blockSize": size}, {}) for size in (1, 20, 40)),
        *(({"progressDeadlineSeconds": seconds}, {}) for seconds in (1, 100)),
        ({"startup": {"budgetSeconds": 5000}, "progressDeadlineSeconds": 4000}, {}),
        ({"tensorParallelSize": 1, **OPEN}, {"topology": {"sku": "l40s", "threadsPerCore": 1, "numaNodes": [{"cpus": "0-31", "memory": "256Gi", "gpus": [0]}]}, "nodeShape": None}),
        ({}, kubelet(maxPods=5)),
        ({}, kubelet(reservedSystemCPUs="0")),
        ({}, kubelet(evictionHard={"memory.available": "0%"})),
        ({}, kubelet(evictionSoft={"memory.available": "1Gi"})),
        ({}, kubelet(reservedSystemCPUs="0-223")),
        ({}, kubelet(reservedSystemCPUs="0,500")),
        ({}, kubelet(reservedSystemCPUs="a-b")),
        ({}, kubelet(reservedMemory=[{"numaNode": 0, "limits": {"memory": "1Gi"}}], memoryManagerPolicy="Static")),
        ({}, kubelet(reservedMemory=[{"numaNode": 0}], memoryManagerPolicy="Static")),
        ({}, kubelet(evictionHard={"memory.available": "5%"}, memoryManagerPolicy="Static")),
        ({}, kubelet(cpuManagerPolicyOptions={"align-by-socket": "true"})),
        ({}, {"platform": "gke", "kubelet": {"memoryManagerPolicy": "Static"}}),
        ({"replicas": 1, "dataParallelSize": 16, "tensorParallelSize": 1, **OPEN}, {}),
    ],
)  # fmt: skip
def test_what_a_failing_document_is_offered_works(model: dict[str, Any], pool: dict[str, Any]) -> None:
    assert diagnoses_of(document(model, pool)), "nothing is wrong with it"
    offers_that_work(document(model, pool))


@pytest.mark.parametrize("first", range(0, 48, 12))
def test_what_drawn_documents_are_offered_works(first: int) -> None:
    for seed in range(first, first + 12):
        try:
            offers_that_work(drawn_document(seed))
        except AssertionError as error:
            raise AssertionError(f"drawn_document({seed}): {error}") from None


@pytest.mark.parametrize(
    ("model", "pool", "words"),
    [
        ({"replicas": 3}, {}, "Write podAntiAffinity: preferred, or use replicas 2, or give the pool 3 nodes."),
        ({"sidecars": [beside("1")]}, WHOLE, "Use 2 in sidecars[0].resources.limits.cpu"),
        ({"initContainers": [beside("1")]}, WHOLE, "Use 2 in initContainers[0].resources.limits.cpu"),
        (
            {"tensorParallelSize": 4, "pipelineParallelSize": 2, "replicas": 1, **OPEN},
            kubelet(topologyManagerPolicy="single-numa-node"),
            "Use tensorParallelSize 4 with pipelineParallelSize 1, or write topologyManagerPolicy: restricted.",
        ),
        ({"tensorParallelSize": 16, "replicas": 1, **OPEN}, {}, "Use 8 with pipelineParallelSize 2"),
        (cpu("300"), {}, "Use 218."),
        ({"replicas": 2, **cpu("120"), **BESIDE}, {"nodeNames": ["a"]}, "Use resources.cpu 108, or use replicas 1, or give the pool 2 nodes."),
    ],
)  # fmt: skip
def test_the_way_out_in_words(model: dict[str, Any], pool: dict[str, Any], words: str) -> None:
    assert any(words in one.sentence for one in problems_of(document(model, pool))), problems_of(document(model, pool))


def test_an_error_of_a_container_names_that_container() -> None:
    found = problems_of(document({"sidecars": [beside("2"), beside("1") | {"name": "odd"}]}, WHOLE))
    assert {one.path for one in found} == {"models[0].sidecars[1].resources.limits.cpu"}


def four_numa_nodes(cpus: str | None = None, **fields: Any) -> dict[str, Any]:
    """Eight CPUs and one GPU on each of four NUMA nodes."""
    nodes = [
        {
            "cpus": f"{8 * node}-{8 * node + 7}",
            "memory": "60Gi",
            "gpus": [node],
            "distances": [10 if node == other else 20 for other in range(4)],
        }
        for node in range(4)
    ]
    model = {"name": "m", "nodePool": "p", "modelConfig": SMALL_MODEL, "tensorParallelSize": 4, "storage": {"existingClaim": "c"}}
    if cpus:
        model["resources"] = {"cpu": cpus}
    topology = {"sku": "l40s", "threadsPerCore": 1, "numaNodes": nodes}
    return {"namespace": "n", "nodePools": [{"name": "p", "nodes": 1, "topology": topology, "kubelet": fields}], "models": [model]}


def test_where_an_even_share_of_cpus_is_too_much_the_fewest_that_span_the_nodes_are_taken() -> None:
    plan = plan_stack(parse_cluster_document(four_numa_nodes()))
    assert plan.models[0].resources.cpu == 25
    assert plan.node_pools[0].kubelet.fields["topologyManagerPolicy"] == "restricted"
    assert plan.models[0].placement.rank_binding is not None


@pytest.mark.parametrize(("cpus", "bound"), [("16", False), ("24", True), ("25", True), ("26", True), ("27", True)])
def test_ranks_that_are_not_bound_are_offered_cpus_that_the_node_has(cpus: str, bound: bool) -> None:
    plan = plan_stack(parse_cluster_document(four_numa_nodes(cpus)))
    offered = [offer.words for warning in plan.warnings if warning.code == "RanksNotBound" for offer in warning.offers]
    assert (plan.models[0].placement.rank_binding is not None, offered) == (bound, [] if bound else ["ask for 25 CPUs"])


@pytest.mark.parametrize("cpus", ["28", "30"])
def test_what_the_stack_file_reserves_is_the_share(cpus: str) -> None:
    reserved = {"reservedSystemCPUs": "0", "topologyManagerPolicy": "restricted", "memoryManagerPolicy": "None"}
    assert not problems_of(four_numa_nodes(cpus, **reserved))
    (problem,) = problems_of(four_numa_nodes("32", **reserved))
    assert problem.sentence.startswith("one pod needs 32 CPU; a node of the given topology has 30 for pods")

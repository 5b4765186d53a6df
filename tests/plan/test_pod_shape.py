"""What a pod asks of the scheduler and the kubelet."""

from __future__ import annotations

import pytest

from infra.plan.pod_shape import pod_requests
from infra.units import GIB
from tests.support.gpu_pools import pod_shape


def test_a_pod_requests_the_larger_of_its_init_and_main_phase():
    def container(cpu: str, **more: str) -> dict[str, object]:
        return {"name": "c", "limits": {"cpu": cpu, "memory": f"{cpu}Gi"}, **more}

    pod = {
        "initContainers": [container("1", restartPolicy="Always"), container("50")],
        "containers": [container("32"), container("4")],
    }
    assert pod_requests(pod) == (51_000, 51 * GIB)
    pod["initContainers"].pop()
    assert pod_requests(pod) == (37_000, 37 * GIB)


def limits(**resources: object) -> dict[str, object]:
    return {"name": "c", "resources": {"limits": {"cpu": "2", "memory": "1Gi", **resources}}}


def test_the_main_container_and_its_companions_are_one_pod():
    shape = pod_shape(gpus=2, cpu=8, memory="16Gi", sidecars=(limits(), {}), init_containers=(limits(cpu=1),))
    assert shape.pod["containers"][0] == {
        "name": "vllm",
        "requests": {"cpu": "8", "memory": str(16 * GIB), "nvidia.com/gpu": "2"},
        "limits": {"cpu": "8", "memory": str(16 * GIB), "nvidia.com/gpu": "2"},
    }
    assert shape.pod["containers"][1:] == [{"name": "c", "limits": {"cpu": "2", "memory": "1Gi"}}, {"name": "container-1"}]
    assert shape.pod["initContainers"] == [{"name": "c", "limits": {"cpu": "1", "memory": "1Gi"}}]
    assert "initContainers" not in pod_shape().pod
    assert shape.requests == (10_000, 17 * GIB)
    assert shape.container_count == 4
    assert pod_shape().container_count == 1


def test_a_restart_policy_is_passed_on():
    always = {**limits(), "restartPolicy": "Always"}
    assert pod_shape(init_containers=(always,)).pod["initContainers"][0]["restartPolicy"] == "Always"
    assert pod_shape(cpu=8, memory="16Gi", init_containers=(always,)).requests == (10_000, 17 * GIB)


def test_memory_of_all_containers_counts_the_request_before_the_limit():
    mixed = {"resources": {"requests": {"memory": "1Gi"}, "limits": {"memory": "3Gi"}}}
    shape = pod_shape(memory="16Gi", sidecars=(mixed, {}), init_containers=(limits(),))
    assert shape.memory_of_all_containers == 18 * GIB


@pytest.mark.parametrize(
    ("resources", "guaranteed"),
    [
        ({"limits": {"cpu": "2", "memory": "1Gi"}}, True),
        ({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "2000m", "memory": "1024Mi"}}, True),
        ({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}, False),
        ({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"memory": "512Mi"}}, False),
        ({"limits": {"cpu": "2"}}, False),
        ({"limits": {"memory": "1Gi"}}, False),
        ({"limits": {"cpu": "0", "memory": "1Gi"}}, False),
        ({"limits": {"cpu": "1m", "memory": "1"}}, True),
        ({"limits": {"cpu": "two", "memory": "1Gi"}}, False),
        ({"requests": {"cpu": "2", "memory": "1Gi"}}, False),
        ({}, False),
        (None, False),
        ("lots", False),
    ],
)
def test_every_container_decides_the_pods_quality_of_service(resources, guaranteed):
    container = {"name": "c", "resources": resources}
    found = pod_shape(sidecars=(limits(), container), init_containers=(container,)).not_guaranteed
    assert found == (() if guaranteed else (("initContainers[0].resources", "c"), ("sidecars[1].resources", "c")))


def test_a_shape_with_the_same_cpus_is_the_same():
    shape = pod_shape(cpu=8)
    assert shape.with_cpu(8) is shape
    assert shape.with_cpu(10) == pod_shape(cpu=10)

"""What a pod asks of the scheduler and the kubelet."""

from __future__ import annotations

from infra.plan.pod_shape import pod_requests
from infra.units import GIB


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

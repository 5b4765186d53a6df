"""The requests of our own pods are the numbers that the proof counts with."""

from __future__ import annotations

from typing import Any

import pytest

from infra.plan.daemons import OWN_PODS, NodeOverhead, node_overhead
from infra.plan.model import ImagesPlan
from infra.render.parts import manifests_of, stack_parts
from infra.render.serving.model import pod_templates
from infra.units import GIB, parse_bytes
from infra.verify.node_files import reader_pod
from tests.support.builders import STACK, cluster_plan

COMPONENT = "app.kubernetes.io/component"


def own_templates() -> dict[str, list[dict[str, Any]]]:
    """Component -> its pod templates, over both vendors; all workloads of a stack but the models' own."""
    found: dict[str, list[dict[str, Any]]] = {}
    for manifest in manifests_of(stack_parts(cluster_plan(), stack=STACK)):
        component = manifest["metadata"]["labels"].get(COMPONENT)
        if component != "inference-server":
            for template in pod_templates(manifest):
                assert template["metadata"]["labels"][COMPONENT] == component
                found.setdefault(component, []).append(template)
    return found


def test_every_pod_of_ours_that_is_rendered_is_counted() -> None:
    """A new DaemonSet needs a row in infra/plan/daemons.py."""
    assert set(own_templates()) == set(OWN_PODS) - {"node-reader"}


@pytest.mark.parametrize("component", sorted(set(OWN_PODS) - {"node-reader"}))
def test_a_pod_of_ours_asks_for_what_is_counted(component: str) -> None:
    for template in own_templates()[component]:
        (container,) = template["spec"]["containers"]
        assert container["resources"] == OWN_PODS[component].resources
        assert "initContainers" not in template["spec"]


def test_the_pod_by_which_verify_reads_a_node_is_counted_too() -> None:
    images = ImagesPlan(guard="g:1", node_reader="r:1")
    (container,) = reader_pod("n", "numawise-system", images=images, labels={})["spec"]["containers"]
    assert container["resources"] == OWN_PODS["node-reader"].resources


@pytest.mark.parametrize("pod", OWN_PODS.values(), ids=OWN_PODS)
def test_no_pod_of_ours_is_guaranteed_and_takes_room_of_a_slot(pod: Any) -> None:
    assert "cpu" not in pod.resources["limits"]
    assert parse_bytes(pod.memory) < parse_bytes(pod.memory_limit)


def test_a_node_keeps_one_cpu_two_gibibytes_and_twelve_pods_for_them_and_the_platform() -> None:
    assert node_overhead() == NodeOverhead(millicpu=1000, memory_bytes=2 * GIB, pods=12)

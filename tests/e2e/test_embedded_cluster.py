"""The embedded cluster behaves as a real one in what the product relies on."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster_fixture import (
    ROOT,
    EmbeddedCluster,
    cluster,
    has_phase,
    is_ready,
    pod_manifest,
    two_socket_node,
    wait_for,
)
from tools.cluster import processes
from tools.cluster.api import ApiError
from tools.cluster.layout import Layout

pytestmark = pytest.mark.e2e

__all__ = ["cluster"]


def state_of(embedded: EmbeddedCluster, node: str) -> dict[str, Any]:
    return json.loads(embedded.run("node", "state", node).stdout)


def test_up_again_says_that_it_runs(cluster: EmbeddedCluster) -> None:
    before = {name: processes.running(cluster.layout, name) for name in processes.recorded_names(cluster.layout)}
    assert cluster.run("up").stdout.startswith("already running: gpu-a, gpu-b")
    assert {name: processes.running(cluster.layout, name) for name in before} == before
    assert json.loads(cluster.run("status", "--format", "json").stdout)["healthy"] is True


def test_nodes_show_the_simulated_machine(cluster: EmbeddedCluster) -> None:
    node = cluster.api.get("/api/v1/nodes/gpu-a")
    assert node["status"]["capacity"]["cpu"] == "32"
    assert node["status"]["capacity"]["memory"] == "128Gi"
    assert node["status"]["allocatable"]["cpu"] == "28"
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert node["status"]["nodeInfo"]["kubeletVersion"] == "v1.37.2"
    assert node["metadata"]["labels"]["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3"


def test_a_gpu_pod_gets_cpus_memory_and_devices_of_one_numa_node(cluster: EmbeddedCluster) -> None:
    cluster.create_pod(pod_manifest("aligned", cpu=8, gpus=4, nodeName="gpu-a"))
    pod = cluster.wait_for_pod("aligned", is_ready)
    uid = pod["metadata"]["uid"]
    state = state_of(cluster, "gpu-a")
    cpus = state["cpu_manager_state"]["entries"][uid]["main"]
    memory = state["memory_manager_state"]["entries"][uid]["main"]
    devices = [entry for entry in state["kubelet_internal_checkpoint"]["Data"]["PodDeviceEntries"] if entry["PodUID"] == uid]
    assert cpus == "1-4,17-20"
    assert memory == [{"numaAffinity": [0], "type": "memory", "size": 4 << 30}]
    assert sorted(devices[0]["DeviceIDs"]["0"]) == [f"GPU-gpu-a-{index}" for index in range(4)]
    seen = cluster.kubectl("-n", "inference", "exec", "aligned", "--", "cat", "/proc/self/status").stdout
    assert f"Cpus_allowed_list:\t{cpus}\n" in seen
    assert "Mems_allowed_list:\t0\n" in seen
    inside = (
        "cat /sys/fs/cgroup/cpuset.cpus.effective; echo $NVIDIA_VISIBLE_DEVICES | tr , '\\n' | sort; ls /dev/nvidia[0-9]*; id -u"
    )
    assert cluster.kubectl("-n", "inference", "exec", "aligned", "--", "sh", "-c", inside).stdout.split() == [
        cpus,
        *[f"GPU-gpu-a-{index}" for index in range(4)],
        *[f"/dev/nvidia{index}" for index in range(4)],
        "1000",
    ]
    cluster.delete_pod("aligned")


def test_a_pod_that_no_numa_node_holds_is_refused_by_the_kubelet(cluster: EmbeddedCluster) -> None:
    cluster.create_pod(pod_manifest("wide", cpu=4, gpus=8, nodeName="gpu-a"))
    pod = cluster.wait_for_pod("wide", has_phase("Failed"))
    assert pod["status"]["reason"] == "TopologyAffinityError"
    cluster.delete_pod("wide")


def test_logs_and_configz_go_through_the_api_server(cluster: EmbeddedCluster) -> None:
    cluster.create_pod(pod_manifest("talker", image="busybox:1.36", command=["sh", "-c", "echo first; echo second >&2; sleep 60"]))
    cluster.wait_for_pod("talker", has_phase("Running"))
    # Two streams: nothing orders them.
    wait_for(lambda: sorted(cluster.kubectl("-n", "inference", "logs", "talker").stdout.split()) == ["first", "second"])
    cluster.delete_pod("talker")
    configuration = cluster.api.get("/api/v1/nodes/gpu-a/proxy/configz")["kubeletconfig"]
    assert configuration["topologyManagerPolicy"] == "single-numa-node"
    assert configuration["reservedMemory"][0] == {"numaNode": 0, "limits": {"memory": "1124Mi"}}


def test_a_kubelet_refuses_who_may_not(cluster: EmbeddedCluster) -> None:
    with pytest.raises(ApiError, match="403"):
        cluster.api_as("scheduler").get("/api/v1/nodes/gpu-a/proxy/configz")
    refused = cluster.run("enter", "--", "curl", "-sk", "-o", "/dev/null", "-w", "%{http_code}", "https://172.30.1.1:10250/pods")
    assert refused.stdout == "401"


def test_a_node_may_change_itself_and_no_other(cluster: EmbeddedCluster) -> None:
    patch = {"metadata": {"labels": {"example.com/mine": "yes"}}}
    node = cluster.api_as("node-gpu-a")
    with pytest.raises(ApiError) as refused:
        node.merge("/api/v1/nodes/gpu-b", patch)
    assert refused.value.status == 403
    assert node.merge("/api/v1/nodes/gpu-a", patch)["metadata"]["labels"]["example.com/mine"] == "yes"
    with pytest.raises(ApiError) as reserved:
        node.merge("/api/v1/nodes/gpu-a", {"metadata": {"labels": {"node-restriction.kubernetes.io/x": "y"}}})
    assert reserved.value.status == 403
    with pytest.raises(ApiError) as secret:
        node.get("/api/v1/namespaces/inference/secrets/any")
    assert secret.value.status == 403


def test_pod_security_is_enforced(cluster: EmbeddedCluster) -> None:
    manifest = pod_manifest("privileged")
    manifest["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    with pytest.raises(ApiError, match="violates PodSecurity") as refused:
        cluster.create_pod(manifest)
    assert refused.value.status == 403


def test_the_model_claim_is_bound_and_shared(cluster: EmbeddedCluster) -> None:
    (cluster.layout.shared / "inference/pvc-llama-models/config.json").write_text("{}")
    volumes = [{"name": "models", "persistentVolumeClaim": {"claimName": "pvc-llama-models"}}]
    for node in ("gpu-a", "gpu-b"):
        manifest = pod_manifest(
            f"reads-on-{node}", image="busybox", command=["ls", "/models"], restart_policy="Never", nodeName=node, volumes=volumes
        )
        manifest["spec"]["containers"][0]["volumeMounts"] = [{"name": "models", "mountPath": "/models", "readOnly": True}]
        cluster.create_pod(manifest)
    for node in ("gpu-a", "gpu-b"):
        cluster.wait_for_pod(f"reads-on-{node}", has_phase("Succeeded"))
        assert cluster.kubectl("-n", "inference", "logs", f"reads-on-{node}").stdout == "config.json\n"
        cluster.delete_pod(f"reads-on-{node}")


def test_a_privileged_process_reads_the_kubelet_state_and_commands_its_service(cluster: EmbeddedCluster) -> None:
    cluster.api.apply(
        "/api/v1/namespaces/tools",
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "tools", "labels": {"pod-security.kubernetes.io/enforce": "privileged"}},
        },
    )
    script = (
        "import json, pathlib, subprocess, sys\n"
        "state = json.loads(pathlib.Path('/host/var/lib/kubelet/cpu_manager_state').read_text())\n"
        "active = subprocess.run(['nsenter', '-t', '1', '-m', '-p', '--', 'systemctl', 'is-active', 'kubelet'], capture_output=True, text=True)\n"
        "pathlib.Path('/dev/termination-log').write_text(state['policyName'] + ' ' + active.stdout.strip())\n"
        "sys.exit(3)\n"
    )
    manifest = pod_manifest(
        "agent", image="python:3.12-slim", command=["python3", "-c", script], restart_policy="Never", nodeName="gpu-b", hostPID=True
    )
    manifest["spec"]["securityContext"] = {}
    manifest["spec"]["volumes"] = [{"name": "host", "hostPath": {"path": "/"}}]
    manifest["spec"]["containers"][0] |= {
        "securityContext": {"privileged": True},
        "volumeMounts": [{"name": "host", "mountPath": "/host"}],
    }
    cluster.create_pod(manifest, "tools")
    pod = cluster.wait_for_pod("agent", has_phase("Failed"), "tools")
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["message"]) == (3, "static active")
    cluster.delete_pod("agent", "tools")


def test_stand_ins_can_stay_unready_or_end(cluster: EmbeddedCluster) -> None:
    cluster.create_pod(pod_manifest("unready", annotations={"sim.numawise.dev/ready": "false"}))
    cluster.create_pod(
        pod_manifest(
            "ends", annotations={"sim.numawise.dev/exit-code": "7", "sim.numawise.dev/message": "no GPU"}, restart_policy="Never"
        )
    )
    cluster.create_pod(pod_manifest("done", restart_policy="Never"))
    ended = cluster.wait_for_pod("ends", has_phase("Failed"))["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["message"]) == (7, "no GPU")
    cluster.wait_for_pod("done", has_phase("Succeeded"))
    pod = cluster.wait_for_pod("unready", has_phase("Running"))
    assert not is_ready(pod)
    for name in ("unready", "ends", "done"):
        cluster.delete_pod(name)


def test_a_kubelet_restart_keeps_containers_and_assignments(cluster: EmbeddedCluster) -> None:
    cluster.create_pod(pod_manifest("stays", cpu=4, nodeName="gpu-a"))
    before = cluster.wait_for_pod("stays", is_ready)["status"]["containerStatuses"][0]
    assigned = state_of(cluster, "gpu-a")["cpu_manager_state"]["entries"]
    cluster.run("node", "restart", "gpu-a")
    after = cluster.wait_for_pod("stays", is_ready)["status"]["containerStatuses"][0]
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)
    assert state_of(cluster, "gpu-a")["cpu_manager_state"]["entries"] == assigned
    cluster.delete_pod("stays")


def test_another_configuration_takes_effect_after_a_restart(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    fields = json.loads(cluster.layout.machine_set.read_text())["nodes"][1]["kubelet"]
    path = tmp_path / "kubelet.yaml"
    try:
        path.write_text(json.dumps(fields | {"maxPods": 77}))
        cluster.run("node", "config", "gpu-b", str(path))
        assert cluster.api.get("/api/v1/nodes/gpu-b/proxy/configz")["kubeletconfig"]["maxPods"] == 77
        path.write_text(json.dumps(fields | {"reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}]}))
        dead = cluster.run("node", "config", "gpu-b", str(path), check=False)
        assert dead.returncode == 1
        assert "is not equal to the value" in dead.stderr and "2148Mi" in dead.stderr and "kubelet.log" in dead.stderr
    finally:
        path.write_text(json.dumps(fields))
        cluster.run("node", "config", "gpu-b", str(path))


def test_a_reboot_with_another_mem_total_leaves_the_kubelet_dead_until_its_state_is_removed(cluster: EmbeddedCluster) -> None:
    less = 128 * (1 << 30) - (64 << 20)
    state = cluster.layout.node("gpu-b") / "var/lib/kubelet/memory_manager_state"
    boot = cluster.api.get("/api/v1/nodes/gpu-b")["status"]["nodeInfo"]["bootID"]
    try:
        dead = cluster.run("node", "reboot", "gpu-b", "--mem-total", str(less), check=False)
        assert dead.returncode == 1
        assert "node gpu-b is not ready" in dead.stderr
        assert "the expected machine state is different from the real one" in dead.stderr
    finally:
        state.unlink()
        cluster.run("node", "restart", "gpu-b")
    status = cluster.api.get("/api/v1/nodes/gpu-b")["status"]
    assert status["capacity"]["memory"] == f"{less // (1 << 20)}Mi"
    assert status["nodeInfo"]["bootID"] != boot


def test_another_base_configuration_is_taken_up_without_the_old_managers_state(cluster: EmbeddedCluster) -> None:
    """A kubelet refuses to start on the state of another policy: whoever changes the base file removes it."""
    machines = json.loads(cluster.layout.machine_set.read_text())
    unmanaged = json.loads(json.dumps(machines))
    pinned = unmanaged["nodes"][1]["kubelet"]
    del pinned["reservedMemory"]
    pinned["memoryManagerPolicy"] = "None"
    for machine_set, policy in ((unmanaged, "None"), (machines, "Static")):
        cluster.up(machine_set)
        running = cluster.api.get("/api/v1/nodes/gpu-b/proxy/configz")["kubeletconfig"]
        assert running["memoryManagerPolicy"] == policy
        assert state_of(cluster, "gpu-b")["memory_manager_state"]["policyName"] == policy


def test_after_a_reboot_gpu_pods_are_refused_until_the_device_plugin_is_back(cluster: EmbeddedCluster) -> None:
    machines = json.loads(cluster.layout.machine_set.read_text())
    late = json.loads(json.dumps(machines))
    late["nodes"][1]["deviceRegistrationDelayMs"] = 6000
    try:
        cluster.up(late)
        cluster.create_pod(pod_manifest("early", gpus=2, nodeName="gpu-b"))
        cluster.wait_for_pod("early", is_ready)
        cluster.run("node", "reboot", "gpu-b")
        assert cluster.wait_for_pod("early", has_phase("Failed"))["status"]["reason"] == "UnexpectedAdmissionError"
    finally:
        cluster.delete_pod("early")
        cluster.up(machines)


def test_it_goes_on_after_everything_was_killed(cluster: EmbeddedCluster) -> None:
    cluster.create_pod(pod_manifest("survivor", nodeName="gpu-a"))
    cluster.wait_for_pod("survivor", is_ready)
    records = [record for name in processes.recorded_names(cluster.layout) if (record := processes.running(cluster.layout, name))]
    assert len(records) == 7
    for record in records:
        os.kill(record.pid, signal.SIGKILL)
    wait_for(lambda: not any(record.alive() for record in records))
    assert cluster.run("status", check=False).returncode == 1
    assert cluster.run("up").stdout.startswith("started")
    cluster.wait_for_pod("survivor", is_ready)
    cluster.delete_pod("survivor")


def test_a_process_without_a_record_is_ended_and_strangers_are_not(cluster: EmbeddedCluster) -> None:
    record = processes.running(cluster.layout, "kube-scheduler")
    assert record is not None
    (cluster.layout.records / "kube-scheduler.json").unlink()
    assert [stray.pid for stray in processes.strays(cluster.layout)] == [record.pid]
    cluster.run("up")
    assert not record.alive()
    assert processes.running(cluster.layout, "kube-scheduler") is not None


def test_two_clusters_do_not_meet(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    other = EmbeddedCluster(Layout(tmp_path / "other"))
    try:
        other.up({"nodes": [two_socket_node("gpu-a")]})
        assert (
            other.api.get("/api/v1/namespaces/inference")["metadata"]["uid"]
            != cluster.api.get("/api/v1/namespaces/inference")["metadata"]["uid"]
        )
        assert other.api.get("/api/v1/nodes/gpu-b") is None
        with pytest.raises(OSError, match="certificate"):
            other_layout_with_this_endpoint = type(other.api)(layout=other.layout, endpoint=cluster.api.endpoint)
            other_layout_with_this_endpoint.get("/api/v1/nodes")
    finally:
        other.run("down", "--wipe")
    assert json.loads(cluster.run("status", "--format", "json").stdout)["healthy"] is True
    assert processes.strays(other.layout) == []


def test_down_leaves_nothing_and_up_brings_the_content_back(cluster: EmbeddedCluster) -> None:
    uid = cluster.api.get("/api/v1/namespaces/inference")["metadata"]["uid"]
    assert cluster.run("down").stdout == "ended 7 processes\n"
    assert processes.strays(cluster.layout) == []
    assert not list(Path("/sys/fs/cgroup").glob("**/" + cluster.layout.control_group("*")))
    assert cluster.run("down").stdout == "nothing was running\n"
    refused = cluster.run("node", "restart", "gpu-a", check=False)
    assert (refused.returncode, "is off" in refused.stderr) == (1, True)
    cluster.run("up")
    assert cluster.api.get("/api/v1/namespaces/inference")["metadata"]["uid"] == uid


def test_a_port_that_was_taken_meanwhile_is_replaced(cluster: EmbeddedCluster) -> None:
    host, _, port = cluster.layout.endpoint.read_text().rpartition(":")
    cluster.run("down")
    with socket.create_server((host, int(port))):
        said = cluster.run("up").stderr
    assert f"port {host}:{port} is not free any more" in said
    assert cluster.layout.endpoint.read_text() != f"{host}:{port}"
    assert cluster.kubectl("get", "nodes", "-o", "name").stdout.split() == ["node/gpu-a", "node/gpu-b"]


def test_an_interrupted_up_is_gone_on_with(cluster: EmbeddedCluster) -> None:
    cluster.run("down")
    command = [sys.executable, "-m", "tools.cluster", "--state", str(cluster.layout.root), "up"]
    # Under nohup or in the background SIGINT is ignored, and a child would inherit that.
    started = subprocess.Popen(command, cwd=ROOT, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    wait_for(lambda: processes.running(cluster.layout, "kube-apiserver"))
    started.send_signal(signal.SIGINT)
    assert started.wait(30) == 130
    assert processes.running(cluster.layout, "node-gpu-a") is None
    cluster.run("up")
    assert json.loads(cluster.run("status", "--format", "json").stdout)["healthy"] is True

"""The cluster as a whole: up, down, status, and what happens to single nodes."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from tools.cluster import content, control_plane, host, nodes, processes
from tools.cluster.api import Api
from tools.cluster.errors import ClusterError, InputError
from tools.cluster.layout import Layout
from tools.cluster.machines import MachineSet, Node, read_machine_set

PROGRAM_NAMES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "simnode")
GIVE_UP_RESTARTS = 6
ANCHOR = "anchor"
NODE_PREFIX = "node-"


@dataclass(frozen=True)
class Cluster:
    """An embedded cluster by its state folder. `programs` gives the programs by name; `say` prints progress."""

    layout: Layout
    programs: Callable[[], Mapping[str, Path]]
    say: Callable[[str], None] = field(default=lambda _: None)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One manager at a time works on a state folder."""
        self.layout.root.mkdir(parents=True, exist_ok=True)
        with self.layout.lock.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.say(f"waiting for another run of tools.cluster on {self.layout.root}")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def machines(self) -> MachineSet:
        """The machine set of the last `up`."""
        if not self.layout.machine_set.exists():
            raise InputError(f"{self.layout.root}: no cluster was started here; run `python -m tools.cluster up` first")
        return read_machine_set(self.layout.machine_set)

    def api(self) -> Api:
        return Api(
            layout=self.layout, endpoint=self.layout.endpoint.read_text() if self.layout.endpoint.exists() else "127.0.0.1:1"
        )

    def up(self, document: Mapping[str, Any], machines: MachineSet, *, timeout_seconds: float) -> bool:
        """Brings everything up and waits until it is ready for use; whether anything had to be started. Raises ClusterError."""
        host.refuse_unfit_machine()
        programs = dict(self.programs())
        host.allow_watches(self.say)
        layout = self.layout
        with self.locked():
            if processes.running(layout, ANCHOR) is None:
                self.end_all()
            processes.end(processes.strays(layout))
            layout.machine_set.write_text(json.dumps(document, indent=1))
            control_plane.make_certificates(layout, programs["simnode"], [node.name for node in machines.nodes])
            anchor, started = self.ensure_anchor(programs["simnode"])
            changed = [ANCHOR] if started else []
            control_plane.write_private(layout.kubeconfig, self.admin_kubeconfig())
            commands = control_plane.commands(layout, programs)
            for name in ("etcd", "kube-apiserver"):
                _, started = processes.ensure(layout, name, commands[name], namespace_of=anchor.pid)
                changed += [name] if started else []
            api = self.api()
            self.wait("kube-apiserver", api.ready, ["etcd", "kube-apiserver"], timeout_seconds)
            for name in ("kube-controller-manager", "kube-scheduler"):
                _, started = processes.ensure(layout, name, commands[name], namespace_of=anchor.pid)
                changed += [name] if started else []
            changed += self.ensure_nodes(machines, programs, anchor.pid, api)
            content.apply_content(api, machines)
            self.wait_for_nodes(api, machines.nodes, timeout_seconds)
            self.wait_for_claims(api, machines, timeout_seconds)
        return bool(changed)

    def ensure_anchor(self, simnode: Path) -> tuple[processes.Record, bool]:
        """The process that holds the network namespace; it keeps its outside port over restarts while that is free."""
        layout = self.layout
        running = processes.running(layout, ANCHOR)
        last = layout.endpoint.read_text() if layout.endpoint.exists() else "127.0.0.1:0"
        for listen in dict.fromkeys([running.command[2].removeprefix("-listen=") if running else last, last, "127.0.0.1:0"]):
            command = control_plane.anchor_command(layout, simnode, listen)
            if running is not None and running.command == tuple(command):
                return running, False
            if running is not None:
                self.end_all()
                running = None
            layout.endpoint.unlink(missing_ok=True)
            record = processes.start(layout, ANCHOR, command)
            if (
                processes.wait_until(lambda record=record: layout.endpoint.exists() or not record.alive(), seconds=10)
                and record.alive()
            ):
                return record, True
            if listen != "127.0.0.1:0":
                self.say(f"port {listen} is not free any more: taking another")
        raise ClusterError(f"the cluster's network namespace did not start: {processes.last_words(layout.log(ANCHOR))}")

    def admin_kubeconfig(self) -> str:
        pki = self.layout.pki
        return control_plane.kubeconfig(
            f"https://{self.layout.endpoint.read_text()}", str(pki / "ca.crt"), str(pki / "admin.crt"), str(pki / "admin.key")
        )

    def ensure_nodes(self, machines: MachineSet, programs: Mapping[str, Path], anchor: int, api: Api) -> list[str]:
        wanted = {NODE_PREFIX + node.name for node in machines.nodes}
        gone = [name for name in processes.recorded_names(self.layout) if name.startswith(NODE_PREFIX) and name not in wanted]
        if gone:
            self.say(f"taking away {', '.join(name.removeprefix(NODE_PREFIX) for name in gone)}")
            processes.stop(self.layout, gone)
        for name in gone:
            with suppress(ClusterError):
                api.request("DELETE", f"/api/v1/nodes/{name.removeprefix(NODE_PREFIX)}")
            shutil.rmtree(self.layout.node(name.removeprefix(NODE_PREFIX)), ignore_errors=True)
        shared = content.shared_folders(self.layout, machines)
        changed = []
        for index, node in enumerate(machines.nodes):
            before, base = self.description_text(node.name), nodes.configuration_text(self.layout, node.name)
            nodes.write_node(self.layout, node, index, programs["kubelet"], shared)
            if before is not None and before != self.description_text(node.name):
                processes.stop(self.layout, [NODE_PREFIX + node.name])
                if base != nodes.configuration_text(self.layout, node.name):
                    nodes.remove_manager_states(self.layout, node.name)
            _, started = self.start_node(node.name, programs["simnode"], anchor)
            changed += [node.name] if started else []
        return changed

    def description_text(self, name: str) -> str | None:
        path = self.layout.node(name) / "node.json"
        return path.read_text() + nodes.configuration_text(self.layout, name) if path.exists() else None

    def start_node(self, name: str, simnode: Path, anchor: int) -> tuple[processes.Record, bool]:
        command = [str(simnode), "node", f"-dir={self.layout.node(name)}", f"-cgroup={self.layout.control_group(name)}"]
        return processes.ensure(self.layout, NODE_PREFIX + name, command, namespace_of=anchor)

    def wait(self, what: str, check: Callable[[], bool], needed: Sequence[str], timeout_seconds: float) -> None:
        """Waits for a check; fails at once when a process that it needs has ended."""

        def settled() -> bool:
            processes.reap()
            return check() or any(processes.running(self.layout, name) is None for name in needed)

        processes.wait_until(settled, seconds=timeout_seconds)
        for name in needed:
            if processes.running(self.layout, name) is None:
                raise ClusterError(f"{name} has ended; {processes.last_words(self.layout.log(name))}")
        if not check():
            raise ClusterError(f"{what} is not ready after {timeout_seconds:.0f} s; {processes.last_words(self.layout.log(what))}")

    def wait_for_nodes(self, api: Api, wanted: Sequence[Node], timeout_seconds: float) -> None:
        for node in wanted:
            self.wait_for_node(api, node, timeout_seconds)

    def wait_for_node(self, api: Api, node: Node, timeout_seconds: float) -> None:
        """Waits until a node is ready for use; fails early when its kubelet ends again and again."""
        problem: str | None = None
        process = NODE_PREFIX + node.name

        def usable() -> bool:
            nonlocal problem
            try:
                if api.get(f"/api/v1/nodes/{node.name}") is not None:
                    content.label_node(api, node)
                problem = content.node_problem(api, node, self.kubelet_started(node.name))
            except (OSError, ClusterError) as error:
                problem = str(error)
            return problem is None

        def over() -> bool:
            return (
                usable() or processes.running(self.layout, process) is None or self.kubelet_restarts(node.name) >= GIVE_UP_RESTARTS
            )

        began = time.monotonic()
        processes.wait_until(over, seconds=timeout_seconds, every_seconds=0.4)
        if processes.running(self.layout, process) is None:
            raise ClusterError(f"node {node.name} has ended; {processes.last_words(self.layout.log(process))}")
        if problem is not None:
            raise ClusterError(
                f"node {node.name} is not ready after {time.monotonic() - began:.0f} s: {problem}; {self.kubelet_words(node.name)}"
            )

    def kubelet_service(self, name: str) -> dict[str, str]:
        """Properties of a node's kubelet service, by systemd's names; empty where the node does not answer."""
        try:
            shown = self.control(name, "show")
        except ClusterError:
            return {}
        return dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)

    def kubelet_restarts(self, name: str) -> int:
        """How often a node's kubelet has ended by itself since it was last started on purpose."""
        return int(self.kubelet_service(name).get("NRestarts", "0"))

    def kubelet_started(self, name: str) -> float | None:
        """When a node's kubelet process started, in seconds of the epoch; None where none runs."""
        service = self.kubelet_service(name)
        if service.get("ActiveState") != "active":
            return None
        return time.time() - (time.monotonic() - int(service["ActiveEnterTimestampMonotonic"]) / 1e6)

    def kubelet_words(self, name: str) -> str:
        """Why a node's kubelet ended, in its own words; else the end of its log."""
        log = self.layout.node_log(name)
        words = why_ended(log.read_text(errors="replace")) if log.exists() else []
        return f"{log} says: " + " | ".join(words) if words else processes.last_words(log)

    def wait_for_claims(self, api: Api, machines: MachineSet, timeout_seconds: float) -> None:
        if not processes.wait_until(lambda: content.unbound_claim(api, machines) is None, seconds=timeout_seconds):
            words = processes.last_words(self.layout.log("kube-controller-manager"))
            raise ClusterError(f"{content.unbound_claim(api, machines)} after {timeout_seconds:.0f} s; {words}")

    def down(self, *, wipe: bool = False) -> int:
        """Ends every process of this state folder; how many ran. With `wipe` the folder's content goes too."""
        host.refuse_unfit_machine()
        if not self.layout.root.is_dir():
            return 0
        with self.locked():
            count = self.end_all()
            if wipe:
                for entry in self.layout.root.iterdir():
                    if entry != self.layout.lock:
                        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        return count

    def end_all(self) -> int:
        """Nodes first, the namespace last, then whatever carries this folder in its command line; then their control groups."""
        layout = self.layout
        names = processes.recorded_names(layout)
        count = sum(processes.running(layout, name) is not None for name in names)
        node_names = [name for name in names if name.startswith(NODE_PREFIX)]
        processes.stop(layout, node_names)
        processes.stop(layout, [name for name in names if name not in node_names and name != ANCHOR and name != "etcd"])
        processes.stop(layout, ["etcd"])
        processes.stop(layout, [ANCHOR])
        left = processes.strays(layout)
        processes.end(left)
        host.remove_control_groups(layout)
        return count + len(left)

    def running_anchor(self) -> processes.Record:
        anchor = processes.running(self.layout, ANCHOR)
        if anchor is None:
            raise ClusterError(f"no cluster runs in {self.layout.root}; run `python -m tools.cluster up` first")
        return anchor

    def enter(self, command: Sequence[str]) -> NoReturn:
        """Becomes a command inside the cluster's network namespace, with KUBECONFIG set."""
        host.refuse_unfit_machine()
        anchor = self.running_anchor()
        environment = os.environ | {"KUBECONFIG": str(self.layout.kubeconfig)}
        os.execvpe("nsenter", ["nsenter", f"--net=/proc/{anchor.pid}/ns/net", "--", *command], environment)

    def node(self, name: str) -> tuple[int, Node]:
        for index, node in enumerate(self.machines().nodes):
            if node.name == name:
                return index, node
        raise InputError(f"no node {name}; the cluster has {', '.join(node.name for node in self.machines().nodes)}")

    def control(self, name: str, verb: str) -> str:
        """Asks a node's service manager to do something with its kubelet; what it says."""
        self.node(name)
        outer = processes.running(self.layout, NODE_PREFIX + name)
        if outer is None:
            raise ClusterError(f"node {name} is off; `python -m tools.cluster node reboot {name}` starts it")
        inner = host.init_of(outer.pid)
        if inner is None:
            raise ClusterError(f"node {name} has not started yet; {processes.last_words(self.layout.log(NODE_PREFIX + name))}")
        asked = subprocess.run(
            ["nsenter", "-t", str(inner), "-m", "-p", "--", "/.sim/simnode", "control", verb, "kubelet"],
            capture_output=True,
            text=True,
            check=False,
        )
        if asked.returncode != 0 and verb in ("start", "stop", "restart"):
            raise ClusterError(f"node {name}: {verb} of the kubelet failed: {asked.stderr.strip() or asked.stdout.strip()}")
        return asked.stdout.strip()

    def restart_node(self, name: str, *, timeout_seconds: float) -> None:
        """Restarts a node's kubelet and waits until the node is ready for use."""
        with self.locked():
            self.control(name, "restart")
            self.wait_for_nodes(self.api(), [self.node(name)[1]], timeout_seconds)

    def reboot_node(self, name: str, *, mem_total_bytes: int | None, timeout_seconds: float) -> None:
        """Turns a node off and on: containers and /run are gone, /etc and /var stay, the hardware may have changed."""
        _, node = self.node(name)
        with self.locked():
            anchor = self.running_anchor()
            processes.stop(self.layout, [NODE_PREFIX + name])
            if mem_total_bytes is not None:
                nodes.reboot_with(self.layout, name, mem_total_bytes)
            self.start_node(name, dict(self.programs())["simnode"], anchor.pid)
            self.wait_for_nodes(self.api(), [node], timeout_seconds)

    def configure_node(self, name: str, fields: Mapping[str, Any], *, timeout_seconds: float) -> None:
        """Gives a node's kubelet these KubeletConfiguration fields over the base, instead of those it had, and restarts it."""
        index, node = self.node(name)
        with self.locked():
            document = json.loads(self.layout.machine_set.read_text())
            document["nodes"][index]["kubelet"] = dict(fields)
            self.layout.machine_set.write_text(json.dumps(document, indent=1))
            changed = read_machine_set(self.layout.machine_set).nodes[index]
            nodes.write_configuration(self.layout, changed, index)
            self.control(name, "restart")
            self.wait_for_nodes(self.api(), [node], timeout_seconds)

    def status(self) -> dict[str, Any]:
        """What runs: `healthy`, and by part `processes` and `nodes` with what is wrong, or null."""
        parts: dict[str, str | None] = {}
        for name in (ANCHOR, "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"):
            parts[name] = None if processes.running(self.layout, name) else "does not run"
        api = self.api()
        if parts["kube-apiserver"] is None and not api.ready():
            parts["kube-apiserver"] = "does not answer"
        found: dict[str, str | None] = {}
        for node in self.machines().nodes if self.layout.machine_set.exists() else ():
            if processes.running(self.layout, NODE_PREFIX + node.name) is None:
                found[node.name] = "is off"
                continue
            try:
                found[node.name] = content.node_problem(api, node, self.kubelet_started(node.name))
            except (OSError, ClusterError) as error:
                found[node.name] = str(error)
        healthy = bool(found) and not any([*parts.values(), *found.values()])
        return {"healthy": healthy, "kubeconfig": str(self.layout.kubeconfig), "processes": parts, "nodes": found}


def why_ended(kubelet_log: str) -> list[str]:
    """The line with which a kubelet last ended; else its last three errors, which may be harmless ones."""
    errors = [line[:600] for line in kubelet_log.splitlines() if re.match(r"[EF]\d{4} ", line)]
    fatal = [line for line in errors if '"command failed"' in line or re.search(r'"Failed to (start|run|initialize) ', line)]
    return fatal[-1:] or errors[-3:]

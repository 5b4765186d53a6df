"""The entry of a vLLM container: compares what the kubelet really gave with the plan, binds ranks to NUMA nodes, then becomes vLLM.

Usage: python3 gate.py vllm serve ...    with NUMAWISE_PLAN, the path of the plan's part for this model (plan.json of the same ConfigMap).

It has to be the entry of the main container: an init container gets other CPUs and no GPUs. NUMAWISE_GATE=enforce ends the container where
the placement is not the planned one, =warn says so and goes on; left out, the plan's own `mode` counts. Standard library only.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from infra.agents.alignment import Held, expected_of, fitting, halves, reserved

REFUSED = 78  # EX_CONFIG: the placement is not the planned one


class GateError(Exception):
    """One sentence: what was found, what was planned, and the way out."""


def parse_list(text):
    """The ids of a Linux list (`0-3,8`), sorted."""
    ids = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        ids.update(range(int(first), int(last or first) + 1))
    return sorted(ids)


def format_list(ids):
    """Ids as the shortest Linux list."""
    runs = []
    for number in sorted(set(ids)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs) or "none"


def allowed(root, field):
    """`Cpus_allowed_list` or `Mems_allowed_list` of this process."""
    status = (root / "proc/self/status").read_text()
    match = re.search(rf"^{field}:\s*(\S*)", status, re.MULTILINE)
    if match is None:
        raise GateError(f"/proc/self/status has no {field}; the gate needs a Linux kernel with cpusets")
    return parse_list(match.group(1))


def cpus_of_numa_nodes(root):
    """NUMA node -> its CPUs, from sysfs."""
    return {
        int(folder.name[4:]): set(parse_list((folder / "cpulist").read_text()))
        for folder in (root / "sys/devices/system/node").glob("node[0-9]*")
    }


def cores_of(root, cpus):
    """The physical cores of some CPUs, each with all its CPUs, from sysfs."""
    cores = set()
    for cpu in cpus:
        try:
            siblings = (root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
        except OSError:
            continue
        cores.add(tuple(parse_list(siblings)))
    return tuple(sorted(cores))


def _numa_node_of_pci(root, address):
    try:
        return int((root / "sys/bus/pci/devices" / address.lower() / "numa_node").read_text())
    except (OSError, ValueError):
        return -1


def nvidia_gpus(root, environment):
    """(PCI address, NUMA node) of each GPU of this container, in CUDA's order with CUDA_DEVICE_ORDER=PCI_BUS_ID."""
    wanted = {name for name in environment.get("NVIDIA_VISIBLE_DEVICES", "").split(",") if name.startswith("GPU-")}
    found = []
    for folder in (root / "proc/driver/nvidia/gpus").glob("*"):
        try:
            facts = dict(re.findall(r"^([^:\n]+):\s*(.*?)\s*$", (folder / "information").read_text(), re.MULTILINE))
        except OSError:
            continue
        # With CDI the driver's folder lists all GPUs of the host: the device file tells which are ours.
        given = not wanted or facts.get("GPU UUID") in wanted
        if given and (root / f"dev/nvidia{facts.get('Device Minor', '')}").exists():
            found.append(folder.name.lower())
    return [(address, _numa_node_of_pci(root, address)) for address in sorted(found)]


def amd_gpus(root):
    """(PCI address, NUMA node) of each GPU of this container, in HIP's order: the order of the kernel's KFD nodes."""
    order = {}
    for folder in (root / "sys/class/kfd/kfd/topology/nodes").glob("[0-9]*"):
        try:
            facts = dict(line.split() for line in (folder / "properties").read_text().splitlines() if len(line.split()) == 2)
        except OSError:
            continue
        order[f"renderD{facts.get('drm_render_minor')}"] = int(folder.name)
    found = []
    for device in (root / "dev/dri").glob("renderD[0-9]*"):
        link = root / "sys/class/drm" / device.name / "device"
        address = link.resolve().name
        try:
            numa_node = int((link / "numa_node").read_text())
        except (OSError, ValueError):
            numa_node = _numa_node_of_pci(root, address)
        found.append((order.get(device.name, len(order) + 1), int(device.name[7:]), address, numa_node))
    return [(address, numa_node) for _, _, address, numa_node in sorted(found)]


def check_access(root):
    """AMD: /dev/kfd has to be open to this user; its group differs from host to host."""
    device = root / "dev/kfd"
    if device.exists() and not os.access(device, os.R_OK | os.W_OK):
        facts = device.stat()
        groups = format_list([os.getgid(), *os.getgroups()])
        raise GateError(
            f"/dev/kfd belongs to group {facts.st_gid} with mode {facts.st_mode & 0o777:o}, and this container runs as user {os.getuid()} with "
            f"groups {groups}; add {facts.st_gid} to devicePlugin.deviceGroups of the pool, or set "
            "device_ownership_from_security_context in containerd"
        )


def findings(plan, cpus, memory_nodes, gpus, numa_cpus, cores=()):
    """What differs from the plan, one sentence each; empty where the container lies as a proven place does."""
    found = []
    if len(gpus) != plan["gpus"]:
        found.append(f"{len(gpus)} GPUs are here, {plan['gpus']} are planned; look at the device plugin's log on this node")
    known = all(node >= 0 for _, node in gpus)
    if not known:
        found.append("the kernel knows no NUMA node of the GPUs (a virtual machine without vNUMA?): their place cannot be judged")
    complete = len(gpus) == plan["gpus"] and known
    wrong_count = plan["exclusiveCpus"] and len(cpus) != plan["cpus"]
    if wrong_count:
        found.append(
            f"{len(cpus)} CPUs are allowed ({format_list(cpus)}), {plan['cpus']} exclusive ones are planned; the kubelet's CPU manager "
            "policy has to be static and the pod Guaranteed"
        )
    held = Held(
        gpus=Counter(node for _, node in gpus if node >= 0),
        cpus=frozenset(cpus),
        cpu_nodes=frozenset(node for node, members in numa_cpus.items() if members & set(cpus)),
        memory_nodes=frozenset(memory_nodes),
    )
    expected = expected_of(plan, cores, {node: len(members) for node, members in numa_cpus.items()}, known)
    if not wrong_count:
        for ids, what in (
            (reserved(held, expected), "are kept back for the system"),
            (halves(held, expected), "are halves of cores"),
        ):
            if ids:
                found.append(
                    f"CPUs {format_list(ids)} {what}; run `python -m infra verify` and look at the node's kubelet configuration"
                )
    if expected.places and not wrong_count and (complete or not known) and not fitting(held, expected):
        planned = " or ".join(sorted({_spread(place.numa_nodes, dict(place.gpus or ())) for place in expected.places}))
        found.append(
            f"GPUs lie on NUMA nodes {_spread(held.gpus, held.gpus)}, CPUs on {format_list(held.cpu_nodes)}, memory on "
            f"{format_list(memory_nodes)}; planned is {planned} for all of them, or NUMA nodes built alike; run `python -m infra verify` and "
            "look at the node's kubelet configuration"
        )
    return found


def _spread(nodes, gpus):
    """NUMA nodes, with the GPUs on each where they are several."""
    counts = ", ".join(f"{count} on {node}" for node, count in sorted(gpus.items()) if count)
    return f"{format_list(nodes)} (GPUs: {counts})" if len(nodes) > 1 and counts else format_list(nodes)


def numa_nodes_of_ranks(plan, gpus, cpus, memory_nodes, numa_cpus):
    """The NUMA node of each local rank, by the devices really given; GateError where a rank could not run there."""
    nodes = [node for _, node in gpus][: plan["gpus"]]
    for rank, node in enumerate(nodes):
        if node < 0:
            raise GateError(f"rank {rank} has no known NUMA node and cannot be bound to one; set NUMAWISE_GATE=warn to run unbound")
        if not numa_cpus.get(node, set()) & set(cpus):
            raise GateError(
                f"rank {rank}'s GPU lies on NUMA node {node}, but this container has CPUs {format_list(cpus)}, none of them there; "
                "the CPU manager has to hand out CPUs on each NUMA node (distribute-cpus-across-numa)"
            )
        if node not in memory_nodes:
            raise GateError(
                f"rank {rank}'s GPU lies on NUMA node {node}, but memory is allowed on {format_list(memory_nodes)} alone"
            )
    return nodes


def try_bindings(nodes, run=subprocess.run, which=shutil.which):
    """GateError unless numactl is here and can bind to each node's CPUs. Returns a note where memory cannot be bound.

    vLLM itself drops a memory binding that is refused, then all binding, with a mere warning: it is tried here instead.
    """
    if which("numactl") is None:
        raise GateError(
            "ranks have to be bound to NUMA nodes, and there is no numactl in PATH (vLLM would start unbound); use an image with the package "
            "numactl, or set NUMAWISE_GATE=warn to run unbound"
        )
    note = None
    for node in sorted(set(nodes)):
        bound = run(["numactl", f"--cpunodebind={node}", "true"], capture_output=True, text=True, check=False)
        if bound.returncode:
            raise GateError(f"`numactl --cpunodebind={node} true` ends with {bound.returncode}: {bound.stderr.strip()}")
        if run(["numactl", f"--membind={node}", "true"], capture_output=True, text=True, check=False).returncode:
            note = "memory cannot be bound (seccomp profile); the ranks' CPUs are, and first touch keeps their memory there"
    return note


def command_line(arguments, plan, nodes):
    """vLLM's command, with both NUMA flags where ranks are bound."""
    if not nodes:
        return arguments
    return [*arguments, "--numa-bind", "--numa-bind-nodes", *map(str, nodes)]


def prepare(plan, arguments, environment, root, say, run=subprocess.run, which=shutil.which):
    """The command to become; GateError where the plan does not hold and the mode is enforce."""
    enforce = environment.get("NUMAWISE_GATE", plan["mode"]) == "enforce"
    cpus, memory_nodes = allowed(root, "Cpus_allowed_list"), allowed(root, "Mems_allowed_list")
    numa_cpus = cpus_of_numa_nodes(root)
    amd = plan["vendor"] == "amd"
    gpus = amd_gpus(root) if amd else nvidia_gpus(root, environment)
    say(
        f"CPUs {format_list(cpus)}, memory nodes {format_list(memory_nodes)}, GPUs {', '.join(f'{a} on node {n}' for a, n in gpus) or 'none'}"
    )
    nodes = []
    try:
        problems = findings(plan, cpus, memory_nodes, gpus, numa_cpus, cores_of(root, cpus))
        if problems:
            raise GateError("; ".join(problems))
        if amd:
            check_access(root)
        if plan["rankBinding"]:
            wanted = numa_nodes_of_ranks(plan, gpus, cpus, memory_nodes, numa_cpus)
            note = try_bindings(wanted, run, which)
            if note:
                say(note)
            nodes = wanted
            say(f"ranks 0-{len(nodes) - 1} are bound to NUMA nodes {' '.join(map(str, nodes))}")
    except GateError as error:
        if enforce:
            raise
        say(f"warning: {error}")
    return command_line(arguments, plan, nodes)


def main():
    def say(line):
        print(f"numawise gate: {line}", file=sys.stderr, flush=True)

    arguments = sys.argv[1:]
    if not arguments:
        say("no command given; usage: gate.py vllm serve ...")
        return 2
    try:
        plan = json.loads(Path(os.environ["NUMAWISE_PLAN"]).read_text())
    except (KeyError, OSError, ValueError) as error:
        say(
            f"the plan cannot be read ({type(error).__name__}: {error}); NUMAWISE_PLAN has to name plan.json of the gate's ConfigMap"
        )
        return 2
    try:
        # Last in PATH: an image's own numactl wins over the stand-in beside this file.
        os.environ["PATH"] = f"{os.environ.get('PATH', os.defpath)}:{Path(__file__).resolve().parent / 'bin'}"
        command = prepare(plan, arguments, os.environ, Path("/"), say)
    except GateError as error:
        say(f"refused: {error}")
        return REFUSED
    try:
        os.execvp(command[0], command)
    except OSError as error:
        say(f"{command[0]} cannot be started: {error.strerror}")
        return 127


if __name__ == "__main__":
    sys.exit(main())

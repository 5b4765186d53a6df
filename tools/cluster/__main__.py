"""The embedded cluster on this machine.

    python -m tools.cluster up --nodes machines.json     start it, or say that it runs
    python -m tools.cluster down [--wipe]                end it; --wipe also forgets its content
    python -m tools.cluster status [--format json]       what runs
    python -m tools.cluster kubeconfig                   path of the administrator's kubeconfig
    python -m tools.cluster enter -- curl -s http://10.244.1.2:8000/health
    python -m tools.cluster node restart gpu-a           restart a node's kubelet
    python -m tools.cluster node reboot gpu-a --mem-total 1081100000000
    python -m tools.cluster node config gpu-a FILE       other KubeletConfiguration fields, then a restart
    python -m tools.cluster node state gpu-a             the kubelet's state files as JSON

Exit status: 0 done, 1 not reached, 2 wrong input, 3 this machine cannot run it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from infra.errors import NumawiseError
from tools.cluster import nodes
from tools.cluster.cluster import PROGRAM_NAMES, Cluster
from tools.cluster.errors import ClusterError, InputError
from tools.cluster.layout import Layout
from tools.cluster.machines import machine_set
from tools.toolchain import paths

DEFAULT_STATE = Path(__file__).resolve().parents[2] / ".state" / "cluster"


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m tools.cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    top.add_argument("--state", type=Path, default=DEFAULT_STATE, help="the cluster's folder (default: %(default)s)")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="start the cluster")
    source = up.add_mutually_exclusive_group()
    source.add_argument("--nodes", type=Path, help="machine set, JSON (default: the one of the last up)")
    source.add_argument("--stack", help="take the nodes of this stack's pools")
    up.add_argument("--timeout", type=float, default=180, metavar="SECONDS")
    down = commands.add_parser("down", help="end the cluster")
    down.add_argument("--wipe", action="store_true", help="also delete the cluster's content")
    commands.add_parser("status", help="what runs").add_argument("--format", choices=["text", "json"], default="text")
    commands.add_parser("kubeconfig", help="path of the administrator's kubeconfig")
    commands.add_parser("enter", help="run a command in the cluster's network").add_argument(
        "words", nargs=argparse.REMAINDER, metavar="-- CMD"
    )
    node = commands.add_parser("node", help="one node").add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb in ("restart", "reboot", "config", "state", "stop", "start"):
        one = node.add_parser(verb)
        one.add_argument("name")
        one.add_argument("--timeout", type=float, default=60, metavar="SECONDS")
        if verb == "reboot":
            one.add_argument("--mem-total", type=int, metavar="BYTES", help="MemTotal after the reboot")
        if verb == "config":
            one.add_argument("file", type=Path, help="KubeletConfiguration fields, YAML or JSON")
    return top


def up(cluster: Cluster, arguments: argparse.Namespace) -> int:
    document = read_document(cluster, arguments)
    changed = cluster.up(
        document,
        machine_set(document, str(arguments.nodes or arguments.stack or "machines.json")),
        timeout_seconds=arguments.timeout,
    )
    names = ", ".join(node["name"] for node in document["nodes"])
    print(f"{'started' if changed else 'already running'}: {names}; kubeconfig {cluster.layout.kubeconfig}")
    return 0


def read_document(cluster: Cluster, arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.stack:
        from tools.cluster.stack import machine_set_of_stack

        return machine_set_of_stack(arguments.stack)
    path = arguments.nodes or cluster.layout.machine_set
    try:
        return json.loads(path.read_text())
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); give a machine set with --nodes FILE, or a stack with --stack"
        ) from None
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error})") from None


def status(cluster: Cluster, arguments: argparse.Namespace) -> int:
    found = cluster.status()
    if arguments.format == "json":
        print(json.dumps(found, indent=1))
    else:
        for group in ("processes", "nodes"):
            for name, problem in found[group].items():
                print(f"{name:24} {problem or 'ok'}")
    return 0 if found["healthy"] else 1


def node(cluster: Cluster, arguments: argparse.Namespace) -> int:
    name, seconds = arguments.name, arguments.timeout
    cluster.node(name)
    match arguments.verb:
        case "state":
            print(json.dumps(nodes.state_files(cluster.layout, name), indent=1))
        case "stop" | "start":
            cluster.control(name, arguments.verb)
        case "restart":
            cluster.restart_node(name, timeout_seconds=seconds)
        case "reboot":
            cluster.reboot_node(name, mem_total_bytes=arguments.mem_total, timeout_seconds=seconds)
        case "config":
            fields = read_fields(arguments.file)
            cluster.configure_node(name, fields, timeout_seconds=seconds)
    return 0


def read_fields(path: Path) -> dict[str, Any]:
    try:
        fields = yaml.safe_load(path.read_text())
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not YAML ({' '.join(str(error).split())})") from None
    if not isinstance(fields, dict):
        raise InputError(f"{path}: has to hold KubeletConfiguration fields, holds {type(fields).__name__}")
    return fields


def run(arguments: argparse.Namespace) -> int:
    cluster = Cluster(
        layout=Layout(arguments.state.resolve()),
        programs=lambda: paths(PROGRAM_NAMES),
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )
    match arguments.command:
        case "up":
            return up(cluster, arguments)
        case "down":
            count = cluster.down(wipe=arguments.wipe)
            print(f"ended {count} processes" if count else "nothing was running")
            return 0
        case "status":
            return status(cluster, arguments)
        case "kubeconfig":
            print(cluster.layout.kubeconfig)
            return 0
        case "enter":
            words = arguments.words[1:] if arguments.words[:1] == ["--"] else arguments.words
            if not words:
                raise InputError("enter: give a command after --")
            cluster.enter(words)
        case _:
            pass
    return node(cluster, arguments)


def main(argv: Sequence[str] | None = None) -> int:
    try:
        return run(parser().parse_args(argv))
    except ClusterError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    except NumawiseError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        print("interrupted; run the same command again to go on, or `python -m tools.cluster down`", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())

"""Read what a node's own tools print, and name the best GPU sets for 2, 4 and 8 GPUs.

Reads nvidia-smi topo -m, -mp and -p2p, nvidia-smi -L and --query-gpu, rocm-smi --showtopo, amd-smi topology (text and JSON), lscpu,
numactl -H, node labels and kubelet state, also as people paste them: with colours, quoting, lost tabs, wrapped or cut. Several
outputs of one machine (in one file or several) are put together. What cannot be read is named; no link is guessed.

With --expect the machine is compared with a node shape of the catalog: status 0 where it is that shape or a virtual machine's flat
view of it, 1 where it is degraded or different.

examples:
  nvidia-smi topo -m | python -m infra topology -
  python -m infra topology node-a.txt --format json
  python -m infra topology node-a.txt --gpus 1,2
  python -m infra topology topo.txt lscpu.txt numactl.txt --expect dgx-h100
"""

from __future__ import annotations

import argparse

from infra.diagnosis import shown
from infra.outputs.inputs import read_machine
from infra.outputs.links import Judgement, judge
from infra.outputs.machine import Machine
from infra.outputs.paste import unreadable
from infra.report.document import json_text
from infra.report.topology import topology_as_json, topology_as_text
from infra.units import parse_cpu_list


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="output of one or more tools of one machine; - reads standard input"
    )
    parser.add_argument("--expect", metavar="SHAPE", help="node shape of the catalog that the machine should be")
    parser.add_argument(
        "--gpus", metavar="LIST", help="GPU indices that a group was given (0-3 or 1,2): judge them; status 1 where bad"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    machine = read_machine(args.files)
    comparison = None
    if args.expect is not None:
        # The catalog is read only where it is asked for: without it the command answers in a tenth of a second.
        from infra.catalog.load import accelerators
        from infra.catalog.names import find_shape
        from infra.outputs.expected import compare

        shape = find_shape(args.expect, "--expect")
        comparison = compare(machine, shape, accelerators()[shape.accelerator])
    judgement = _judged(machine, args.gpus) if args.gpus is not None else None
    if args.format == "json":
        document = topology_as_json(machine, judgement=judgement, comparison=comparison)
        print(json_text(document, ascii_only=False))
    else:
        print(topology_as_text(machine, gpus=args.gpus or "", judgement=judgement, comparison=comparison))
    holds = (comparison is None or comparison.holds) and (judgement is None or judgement.verdict != "bad")
    return 0 if holds else 1


def _judged(machine: Machine, text: str) -> Judgement:
    try:
        gpus = parse_cpu_list(text)
    except ValueError:
        raise unreadable("--gpus", f"{shown(text)} is no list of GPU indices; write 0-3 or 1,2.") from None
    if not gpus:
        raise unreadable("--gpus", "names no GPU; write 0-3 or 1,2.")
    if machine.matrix is None or machine.matrix.links is None:
        raise unreadable("--gpus", "no output shows how the GPUs are linked; add `nvidia-smi topo -m`.")
    try:
        return judge(machine.matrix.links, gpus)
    except ValueError as error:
        raise unreadable("--gpus", f"{error}.") from None

"""Turn a node's own outputs into the inline `topology:` of a stack file, ready to paste.

Needed are `lscpu`, `numactl -H` and `nvidia-smi topo -m` with `nvidia-smi -L` (on AMD `rocm-smi --showtopo` and `rocm-smi`), all of
one node, in one file or several. What is missing is named with the output to add; outputs that contradict each other are refused.

examples:
  (lscpu; numactl -H; nvidia-smi topo -m; nvidia-smi -L) > node.txt && python -m infra shape node.txt
  python -m infra shape lscpu.txt numactl.txt topo.txt --sku h100-sxm5-80gb
"""

from __future__ import annotations

import argparse

from infra.outputs.inputs import read_machine
from infra.outputs.shape import shape_of
from infra.report.document import json_text
from infra.report.shape import shape_as_json, shape_as_yaml


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="outputs of one node; - reads standard input")
    parser.add_argument(
        "--sku", metavar="SKU", help="the accelerator, where no output names it: catalog id, driver name or label value"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    shape = shape_of(read_machine(args.files), sku=args.sku, source=", ".join(args.files))
    if args.format == "json":
        print(json_text(shape_as_json(shape)))
    else:
        print(shape_as_yaml(shape))
    return 0

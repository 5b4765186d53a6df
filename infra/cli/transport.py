"""Read an NCCL or RCCL log (NCCL_DEBUG=INFO) and judge the transport that each pair of ranks got.

good: GPUs reach each other directly (NVLink, xGMI, PCIe peer-to-peer), other nodes by RDMA with GPUDirect; degraded: through host
memory, or the network without GPUDirect; bad: over TCP, or the library failed; unknown: the log does not tell. Status 1 where it is
degraded or bad. The file is read as a stream: size does not matter.

examples:
  kubectl logs vllm-0 | python -m infra transport -
  python -m infra transport nccl.log --format json
"""

from __future__ import annotations

import argparse

from infra.outputs.collective_log import CollectiveLog
from infra.outputs.log_file import log_lines
from infra.outputs.paste import unreadable
from infra.report.document import json_text
from infra.report.transport import transport_as_json, transport_as_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the log of one or more ranks; - reads standard input")
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    verdict = CollectiveLog().read(log_lines(args.file)).verdict()
    if not verdict.collective_lines and not verdict.findings:
        raise unreadable(
            args.file,
            f"no line of NCCL or RCCL is among its {verdict.lines} lines; run vLLM with NCCL_DEBUG=INFO and take the log "
            f"of its start.",
            code="NoCollectiveLog",
        )
    print(json_text(transport_as_json(verdict)) if args.format == "json" else transport_as_text(verdict))
    return 1 if verdict.verdict in ("degraded", "bad") else 0

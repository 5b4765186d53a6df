"""Answer what the kubelet would: does it start with this configuration on this machine, and which pods does it admit?

Reads a JSON array of cases (FILE, or - for standard input) and writes a JSON array of results in the same order. A case holds a
machine, a KubeletConfiguration, devices and pods in the order in which they come:

  {"id": "two-pods",
   "machine": {"numa": [{"id": 0, "cpus": [[0, 4], [1, 5]], "socket": 0, "memory_bytes": 68719476736, "hugepages": {"1Gi": 2},
                         "distances": [10, 21]}, ...]},
   "kubelet": {"topologyManagerPolicy": "single-numa-node", "cpuManagerPolicy": "static", "kubeReserved": {"cpu": "1"}},
   "devices": {"nvidia.com/gpu": [{"id": "gpu0", "numa": [0]}]},
   "pods": [{"name": "a", "containers": [{"name": "c", "limits": {"cpu": 2, "memory": "1Gi", "nvidia.com/gpu": 1}}]},
            {"name": "a", "remove": true}],
   "kubernetesVersion": "1.37", "deviceAllocation": "ordered", "holdStart": false, "debug": false}

A result says why the kubelet would not start (config_stage, config_errors), or per pod whether it is admitted, by reason and
message, and per container its exclusive CPUs, the NUMA nodes of its memory, its devices and the merged topology. A case that cannot
be read is answered with `error`. The exit status is 0 whatever becomes of the pods, and 2 where the input is no array of cases.

examples:
  python -m infra admit cases.json --format json > results.json
  python -m infra admit - < cases.json
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from pathlib import Path
from typing import Any

from infra.errors import ConfigError
from infra.kubelet import simulate_case
from infra.report.admit import admissions_as_json, admissions_as_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", default="-", metavar="FILE", help="a JSON array of cases (default: standard input)")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="text for people, json for programs")


def run(args: argparse.Namespace) -> int:
    cases = _read(args.file)
    gc.freeze()  # the cases stay to the end; looking through them again and again for garbage takes a tenth of the time
    results = [simulate_case(case) for case in cases]
    if args.format == "json":
        for line in admissions_as_json(results):
            print(line)
    else:
        print(admissions_as_text(results))
    return 0


def _read(name: str) -> list[Any]:
    path = "standard input" if name == "-" else name
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError.one("MissingFile", path, "there is no such file.") from None
    except OSError as error:
        raise ConfigError.one("FileUnreadable", path, f"cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise ConfigError.one("BadJson", path, f"is not UTF-8 text (byte {error.start}).") from None
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError.one("BadJson", f"{path}:{error.lineno}:{error.colno}", f"is no JSON: {error.msg}.") from None
    except (RecursionError, ValueError) as error:
        raise ConfigError.one("BadJson", path, f"cannot be read as JSON: {error}.") from None
    if "\\ud" in text.lower():
        document = _whole_characters(document)
    if not isinstance(document, list):
        raise ConfigError.one("BadCases", path, f"holds a {type(document).__name__}; write an array of cases: [{{...}}, ...].")
    return document


def _whole_characters(value: Any) -> Any:
    """Half a surrogate pair is no character: as in Go's decoder, U+FFFD takes its place."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_whole_characters(item) for item in value]
    if isinstance(value, dict):
        return {_whole_characters(key): _whole_characters(item) for key, item in value.items()}
    return value

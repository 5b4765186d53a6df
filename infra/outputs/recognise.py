"""Which tools' outputs a text holds, and each one read by its reader.

Lines are handed to the tool that they look like; lines that look like none follow the line before (wrapped rows, legends). So two
outputs whose lines got mixed are both read as far as each line can be placed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from infra.diagnosis import Diagnosis
from infra.outputs import amd_smi, kubelet_log, kubelet_state, lscpu, node_documents, numactl, nvidia_smi, nvidia_topo, rocm_smi
from infra.outputs.collective_log import CollectiveLog, CollectiveVerdict
from infra.outputs.paste import unreadable
from infra.outputs.reading import Line, Report
from infra.units import format_cpu_list

KINDS = (
    "nvidia-smi topo -m, -mp and -p2p, nvidia-smi -L and --query-gpu, rocm-smi --showtopo, amd-smi topology, lscpu, "
    "numactl -H, node "
    "labels, kubelet state files and logs, NCCL and RCCL logs"
)

_COMMAND = re.compile(r"\b(?:nvidia-smi|rocm-smi|amd-smi|lscpu|numactl|kubectl|ssh)\b[^|;&]*")
_PROMPTED_HOST = re.compile(r"^\s*(?:\([\w.-]+\) )?\[?[\w.-]+@([A-Za-z0-9][\w.-]*)(?:[: ][^#$%>]*)?\]?\s?[#$%>]\s*(.*)$")
_PROMPT = re.compile(r"^\s*(?:[$#%❯➜]|>>>|sh-[\d.]+[#$]|bash-[\d.]+[#$])\s+(\S.*)$")
_BARE_COMMAND = re.compile(
    r"^\s*(?:sudo )?(?:nvidia-smi (?:topo|-L|--?q)\S*|rocm-smi --\S+|amd-smi topology|lscpu(?= -|$)|numactl "
    r"(?:-H|--hardware))[^:]*$"
)
_HOST_BANNER = re.compile(
    r"^\s*(?:#+ host: (\S+)|[=#*-]{2,}\s*(?:(?:node|host|hostname)[:= ]+)?([a-z][\w.-]*(?:\d|-[a-z])[\w.-]*)\s*[=#*:-]*"
    r"|(?:node|host|hostname)(?: name)?\s*[:=]\s*([\w.-]+)|([\w.-]+) \| (?:CHANGED|SUCCESS) \| rc=\d+ >>)\s*$",
    re.IGNORECASE,
)
_AMD_ROW = re.compile(r"^\s*GPU\d{1,3}\s+(?:\d{1,6}|XGMI|PCIE|XXXX|N/A)(?:\s|$)")
_BDF_START = re.compile(r"^\s*[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]\s")
_JSON_START = re.compile(r"\s*(?:\{\s*(?:[\"}]|$)|\[\s*(?:[\"{\]]|$))")
_JSON_SIGNS = ("policyName", "PodDeviceEntries", "link_type", '"lscpu"', '"labels"', "num_hops", "defaultCpuSet", "(Topology)")


def recognise(lines: Sequence[str], *, source: str) -> tuple[Report, ...]:
    """All outputs in clean lines, by first line; ConfigError names `source` where a recognised document is broken."""
    remaining, reports = _documents(lines, source)
    streams: dict[str, list[Line]] = {}
    hosts: list[tuple[int, str]] = []
    commands: list[tuple[int, str]] = []
    current: str | None = None
    owner: str | None = None
    for number, text in enumerate(remaining, 1):
        if text.strip():
            host, command = _prompt(text)
            if host is not None or command is not None:
                if host:
                    hosts.append((number, host))
                if command:
                    commands.append((number, command))
                if command or host:
                    current = owner = None
                    continue
        tool = _tool_of(text, remaining, number - 1, current, owner)
        if tool is not None:
            current = tool
        if tool in ("rocm", "amd-smi"):
            owner = tool
        elif tool is not None:
            owner = None
        if current is not None:
            streams.setdefault(current, []).append((number, text))
    for tool, stream in streams.items():
        reports += _READERS[tool](stream)
    placed = []
    for report in sorted(reports, key=lambda report: report.first_line):
        host = next((name for number, name in reversed(hosts) if number <= report.first_line), None)
        command = next((text for number, text in reversed(commands) if number <= report.first_line), None)
        placed.append(_with_command(report.on(report.host or host, command)))
    return tuple(placed)


def _prompt(text: str) -> tuple[str | None, str | None]:
    """The host and the command that a prompt, a banner or a bare command line names."""
    if (match := _HOST_BANNER.match(text)) and (match[2] is None or _is_host_name(match[2])):
        return next(group for group in match.groups() if group), None
    if (match := _PROMPTED_HOST.match(text)) and "CCL" not in text:
        return match[1], match[2].strip() or None
    if (match := _PROMPT.match(text)) and _COMMAND.search(match[1]):
        ssh = re.search(r"\bssh\s+(?:-[bcDEeFIiJLlmOopQRSWw]\s+\S+\s+|-\S+\s+)*(?:[\w.-]+@)?([A-Za-z0-9][\w.-]*)\s+\S", match[1])
        return (ssh[1] if ssh else None), match[1].strip()
    if _BARE_COMMAND.match(text):
        return None, text.strip()
    return None, None


def _is_host_name(word: str) -> bool:
    """Whether a word in a heading is a host rather than the tool whose output follows (`## topo-m`)."""
    if re.search(r"smi|topo|lscpu|numactl|nvidia|rocm|nccl|kubelet|numa", word, re.IGNORECASE):
        return False
    return any(c.isdigit() for c in word) or word.lower().startswith(("node", "host", "worker", "gpu", "dgx", "hgx"))


def _with_command(report: Report) -> Report:
    if report.kind != "nvidia-smi-topo-m" or not report.command:
        return report
    if not re.search(r"topo\s+(?:-mp|--matrix_pci)", report.command):
        return report
    finding = Diagnosis.info(
        path="",
        code="NvLinkNotShown",
        message="`topo -mp` never shows NVLink: GPUs may be joined by NVLink all the same.",
        remedy="Run `nvidia-smi topo -m`.",
    )
    return replace(report, fields={**report.fields, "pcie_only": True}, findings=(*report.findings, finding))


def _tool_of(text: str, lines: Sequence[str], index: int, current: str | None, owner: str | None) -> str | None:
    if not text.strip():
        return None
    if "CCL" in text and (" INFO " in text or " WARN " in text or "CCL version" in text):
        return "collective"
    if "GPU" in text or "NIC" in text or "mlx" in text:
        if rocm_smi.is_rocm_title(text) or rocm_smi.is_numa_line(text):
            return "rocm"
        if nvidia_topo.is_row(text):
            return "nvidia-topo"
        if nvidia_smi.is_list_line(text):
            return "nvidia-list"
        header = nvidia_topo.find_header(lines, index)
        if header is not None:
            return "rocm" if owner == "rocm" and not header.tail else "nvidia-topo"
        if _AMD_ROW.match(text):
            return "rocm"
        if "NICs found in the topology" in text:
            return "nvidia-topo"
    if "Numa Nodes" in text:
        return "rocm"
    if amd_smi.is_amd_smi_title(text):
        return "amd-smi"
    if _BDF_START.match(text):
        return "amd-smi"
    if rocm_smi.is_concise_head(text):
        return "rocm-concise"
    if "MIG " in text and nvidia_smi.is_list_line(text):
        return "nvidia-list"
    if "," in text and (nvidia_smi.csv_columns(text) is not None or nvidia_smi.is_bare_row(text)):
        return "nvidia-query"
    if numactl.is_numactl_line(text):
        return "numactl"
    if current == "numactl" and re.match(r"\s*\d+:(?:\s+\d+)+\s*$", text):
        return "numactl"
    if lscpu.lscpu_field(text) is not None:
        return "lscpu"
    if kubelet_log.is_kubelet_line(text):
        return "kubelet-log"
    return None


def _read_lscpu(stream: Sequence[Line]) -> list[Report]:
    names = [field[0] for _, text in stream if (field := lscpu.lscpu_field(text)) is not None]
    if len({*names}) < 2 or not any(lscpu.is_strong(name) for name in names):
        return []
    return lscpu.read_lscpu(stream)


def _read_kubelet_log(stream: Sequence[Line]) -> list[Report]:
    findings = kubelet_log.explain_kubelet_log([text for _, text in stream])
    if not findings:
        return []
    fields = {"starts": not any(finding.severity == "error" for finding in findings)}
    return [Report(kind="kubelet-log", first_line=stream[0][0], fields=fields, findings=findings)]


def _read_collective(stream: Sequence[Line]) -> list[Report]:
    return [collective_report(CollectiveLog().read(text for _, text in stream).verdict(), stream[0][0])]


def collective_report(verdict: CollectiveVerdict, first_line: int = 1) -> Report:
    """A collective log's verdict as a report."""
    return Report(kind="nccl-log", first_line=first_line, fields=verdict.fields(), findings=verdict.findings)


_READERS: Mapping[str, Callable[[Sequence[Line]], list[Report]]] = {
    "collective": _read_collective,
    "nvidia-topo": nvidia_topo.read_nvidia_topologies,
    "nvidia-list": nvidia_smi.read_lists,
    "nvidia-query": nvidia_smi.read_queries,
    "rocm": rocm_smi.read_rocm_topologies,
    "rocm-concise": rocm_smi.read_rocm_concise,
    "amd-smi": amd_smi.read_amd_smi_topologies,
    "numactl": numactl.read_numactl,
    "lscpu": _read_lscpu,
    "kubelet-log": _read_kubelet_log,
}


def _documents(lines: Sequence[str], source: str) -> tuple[list[str], list[Report]]:
    """The lines without the JSON documents among them, and those documents' reports."""
    remaining = list(lines)
    reports: list[Report] = []
    if not any(_JSON_START.match(line) for line in lines):
        return remaining, reports
    text = "\n".join(lines)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    decoder = json.JSONDecoder()
    index = 0
    while index < len(lines):
        line = lines[index]
        if not _JSON_START.match(line):
            index += 1
            continue
        begin = starts[index] + len(line) - len(line.lstrip())
        try:
            document, end = decoder.raw_decode(text, begin)
        except (ValueError, RecursionError):
            if any(sign in text[begin : begin + 4000] for sign in _JSON_SIGNS):
                joined = _unbroken(decoder, text[begin:], index + 1, source)
                if joined is not None:
                    return [*remaining[:index], *[""] * (len(lines) - index)], [*reports, *joined]
                report = _cut_document(decoder, text, begin, index + 1, source)
                return [*remaining[:index], *[""] * (len(lines) - index)], [*reports, report]
            index += 1
            continue
        found = _document_reports(document, index + 1, text[begin:end], source)
        last = index
        while starts[last + 1] < end:
            last += 1
        if found is not None:
            reports += found
            remaining[index : last + 1] = [""] * (last + 1 - index)
            index = last + 1
        else:
            index += 1
    return remaining, reports


def _unbroken(decoder: json.JSONDecoder, text: str, first_line: int, source: str) -> list[Report] | None:
    """The reports of a document that a terminal broke into lines, within words too."""
    whole = text.replace("\n", "")
    try:
        document, end = decoder.raw_decode(whole)
    except (ValueError, RecursionError):
        return None
    return _document_reports(document, first_line, whole[:end], source)


def _cut_document(decoder: json.JSONDecoder, text: str, begin: int, first_line: int, source: str) -> Report:
    """What is complete of a cut amd-smi document; ConfigError for other kinds."""
    position = begin + 1
    entries: list[Any] = []
    if text[begin] == "[":
        while True:
            while position < len(text) and text[position] in " \n\t\r,":
                position += 1
            try:
                entry, position = decoder.raw_decode(text, position)
            except (ValueError, RecursionError):
                break
            entries.append(entry)
    report = amd_smi.read_amd_smi_json(entries, first_line, cut=True)
    if report is None:
        raise unreadable(source, f"the JSON that starts in line {first_line} is cut or broken; copy the whole output.")
    return report


def _document_reports(document: Any, first_line: int, text: str, source: str) -> list[Report] | None:
    if isinstance(document, Mapping):
        if "policyName" in document and "machineState" in document:
            return [_memory_report(text, first_line, source)]
        if "policyName" in document:
            return [_cpu_report(text, first_line, source)]
        data = document.get("Data")
        if isinstance(data, Mapping) and ("PodDeviceEntries" in data or "RegisteredDevices" in data):
            return [_device_report(text, first_line, source)]
        if isinstance(document.get("lscpu"), list):
            return lscpu.read_lscpu([(first_line, line) for line in lscpu.lscpu_json_lines(document)])
        if nodes := node_documents.node_labels(document):
            return [node_documents.read_node_labels(name, labels, first_line) for name, labels in nodes]
    for reader in (amd_smi.read_amd_smi_json, rocm_smi.read_rocm_json, node_documents.read_list_and_watch):
        if (report := reader(document, first_line)) is not None:
            return [report]
    return None


def _cpu_report(text: str, first_line: int, source: str) -> Report:
    state = kubelet_state.parse_cpu_manager_state(text, source=source)
    fields = {
        "policy": state.policy,
        "default": format_cpu_list(state.default_cpus) or [],
        "assignments": {
            pod: {name: format_cpu_list(cpus) for name, cpus in containers.items()} for pod, containers in state.assignments.items()
        },
    }
    return Report(kind="cpu_manager_state", first_line=first_line, fields=fields, findings=state.findings())


def _memory_report(text: str, first_line: int, source: str) -> Report:
    state = kubelet_state.parse_memory_manager_state(text, source=source)
    fields = {
        "policy": state.policy,
        "nodes": {
            str(node): {
                resource: {
                    "allocatable_bytes": table.allocatable_bytes,
                    "free_bytes": table.free_bytes,
                    "total_bytes": table.total_bytes,
                }
                for resource, table in numa.tables.items()
            }
            for node, numa in state.nodes.items()
        },
        "assignments": {
            pod: {
                name: [{"numa_nodes": list(b.numa_nodes), "resource": b.resource, "size_bytes": b.size_bytes} for b in blocks]
                for name, blocks in containers.items()
            }
            for pod, containers in state.assignments.items()
        },
    }
    return Report(kind="memory_manager_state", first_line=first_line, fields=fields)


def _device_report(text: str, first_line: int, source: str) -> Report:
    checkpoint = kubelet_state.read_device_checkpoint(text, source=source)
    fields = {
        "straddling_pods": list(checkpoint.straddling_pods()),
        "allocations": {
            pod: {
                name: {res: {str(numa): list(ids) for numa, ids in nodes.items()} for res, nodes in resources.items()}
                for name, resources in containers.items()
            }
            for pod, containers in checkpoint.allocations.items()
        },
        "registered": {resource: len(ids) for resource, ids in checkpoint.registered.items()},
    }
    return Report(kind="kubelet_internal_checkpoint", first_line=first_line, fields=fields, findings=checkpoint.findings())

"""What the outputs of a machine show of its topology, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING, Any

from infra.outputs.links import FABRIC_CLASS, GpuLinks, GpuSet, Judgement
from infra.outputs.machine import MATRIX_KINDS, Machine, index_order, is_flat_view, sets_of
from infra.outputs.reading import Report
from infra.report.table import table
from infra.units import format_cpu_list, parse_cpu_list

if TYPE_CHECKING:
    # The comparison brings the catalog with it, which most calls do without.
    from infra.outputs.expected import Comparison

_MOST_COLUMNS = 16  # GPUs whose links a table shows
_MOST_CPU_CHARACTERS, _MOST_LIST_CHARACTERS = 60, 200


def topology_as_json(
    machine: Machine, *, judgement: Judgement | None = None, comparison: Comparison | None = None
) -> dict[str, Any]:
    """The document of `topology --format json`: the main output's fields, those of the others beside them, and the best GPU sets.

    `judgement` of chosen GPUs and `comparison` with a shape are there where they were asked for.
    """
    main = machine.main
    out: dict[str, Any] = {"kind": main.kind}
    if machine.host:
        out["host"] = machine.host
    several = len(machine.reports) > 1
    if several:
        out["outputs"] = [report.kind for report in machine.reports]
    out.update(main.fields)
    for report in machine.reports:
        for name, value in report.fields.items():
            out.setdefault(name, value)
    if several:
        # Above, the main output's fields win over others of the same name; here each output stands by itself.
        out["reports"] = [{"kind": report.kind, **report.fields} for report in machine.reports]
    findings = [finding for report in machine.reports for finding in report.findings]
    if main.kind in MATRIX_KINDS:
        out["verdict"] = _sets_json(main)
        if (why := is_flat_view(main)) is not None:
            out["view"] = {"verdict": "virtual", "reason": why}
        if main.links is not None:
            out["unreadable"] = [
                [one, other] for one, other in combinations(main.links.gpus, 2) if main.links.link(one, other) is None
            ]
        if (order := index_order(main)) is not None:
            findings.append(order)
    out["truncated"] = any(report.cut for report in machine.reports)
    out["notes"] = [f"{report.kind}: {note}" if several else note for report in machine.reports for note in report.notes]
    out["findings"] = [finding.as_finding() for finding in findings]
    if judgement is not None:
        out["judgement"] = {
            "verdict": judgement.verdict,
            "reason": judgement.reason,
            "worst_link": judgement.worst.label if judgement.worst else None,
            "best": _set_json(judgement.best),
        }
    if comparison is not None:
        out["expect"] = {
            "shape": comparison.shape,
            "verdict": comparison.verdict,
            "differences": [difference.message for difference in comparison.differences],
            "compared": list(comparison.compared),
            "notCompared": list(comparison.not_compared),
        }
    return out


def _sets_json(report: Report) -> dict[str, Any] | None:
    """The best set of each size; None where the output shows no links."""
    return None if report.links is None else {f"tp{size}": _set_json(best) for size, best in sets_of(report).items()}


def _set_json(best: GpuSet | None) -> dict[str, Any] | None:
    if best is None:
        return None
    return {
        "gpus": list(best.gpus),
        "class": best.worst.kind,
        "worst_link": best.worst.label,
        "numa_nodes": best.numa_nodes,
        "ties": best.ties,
    }


def topology_as_text(
    machine: Machine, *, gpus: str = "", judgement: Judgement | None = None, comparison: Comparison | None = None
) -> str:
    """Verdicts first, then the machine, then what differs and what was not compared. `gpus` names the chosen GPUs as they were given."""
    lines: list[str] = []
    if comparison is not None:
        lines += [comparison.sentence, ""]
    if judgement is not None:
        lines += [f"GPUs {gpus}: {judgement.verdict}; {judgement.reason}.", ""]
    lines.append(machine_text(machine))
    if comparison is not None:
        lines += [f"differs: {difference.message}" for difference in comparison.differences[1:]]
        lines += [f"not compared: {note}" for note in comparison.not_compared]
    return "\n".join(lines)


def machine_text(machine: Machine) -> str:
    """The whole text of one machine."""
    blocks: list[list[str]] = []
    matrix = machine.matrix
    nodes = machine.first("numactl-H", "lscpu")
    if matrix is not None:
        blocks.append([sentence(matrix)])
        blocks.append(list(_gpu_table(matrix)))
        blocks.append(list(_set_table(matrix)))
    if nodes is not None:
        blocks.append(list(_node_table(machine, nodes)))
    shown = {id(matrix), id(nodes)}
    blocks += [list(_plain(report)) for report in machine.reports if id(report) not in shown and report.kind != "lscpu"]
    remarks = [f"note: {note}" for report in machine.reports for note in report.notes]
    remarks += [f"{finding.severity}: {finding.sentence}" for report in machine.reports for finding in report.findings]
    if matrix is not None and (order := index_order(matrix)) is not None:
        remarks.append(f"{order.severity}: {order.sentence}")
    blocks.append(remarks)
    return "\n\n".join("\n".join(block) for block in blocks if block)


def sentence(report: Report) -> str:
    """What a matrix shows, in one sentence."""
    assert report.links is not None
    count = len(report.links.gpus)
    if count == 1:
        return "One GPU."
    name = "xGMI" if report.kind.startswith(("rocm", "amd")) else "NVLink"
    unknown = report.links.unknown_pairs()
    if unknown:
        return (
            f"{count} GPUs; {unknown} of {count * (count - 1) // 2} links cannot be read, so what is best among the rest is told."
        )
    best = {size: found for size, found in sets_of(report).items() if found is not None}
    whole = [size for size, found in best.items() if found.worst.kind == FABRIC_CLASS]
    one_node = [size for size in whole if best[size].numa_nodes == 1]
    if (why := is_flat_view(report)) is not None:
        return f"{count} GPUs in a flat view that hides NUMA ({why}): a virtual machine's. The links below hold, NUMA nodes do not."
    if not whole:
        pairs = "`topo -mp` does not show NVLink" if report.fields.get("pcie_only") else f"no two GPUs are joined by {name}"
        first = best.get(2)
        return f"{count} GPUs; {pairs}{f', the nearest are joined by {first.worst.label}' if first else ''}."
    largest = max(whole)
    fit = f", up to {max(one_node)} within one NUMA node" if one_node and _numa_known(report) else ""
    return f"{count} GPUs; up to {largest} are joined by {name} with each other{fit}."


def _numa_known(report: Report) -> bool:
    return report.links is not None and any(node is not None for node in report.links.numa.values())


def _gpu_table(report: Report) -> Iterator[str]:
    assert report.links is not None
    fields, links = report.fields, report.links
    addresses = fields.get("bdf") or ()
    # Of a cut document not every address is there, and nothing tells which is whose.
    labels = addresses if len(addresses) == len(links.gpus) else [f"GPU{gpu}" for gpu in links.gpus]
    columns = links.gpus if len(links.gpus) <= _MOST_COLUMNS else ()
    head = ["", *map(str, columns)]
    rows = [
        [str(label), *(_link_cell(links, gpu, other) for other in columns)] for label, gpu in zip(labels, links.gpus, strict=True)
    ]
    for name, title in (("numa_affinity", "NUMA"), ("numa", "NUMA"), ("cpu_affinity", "CPUs"), ("gpu_numa_id", "GPU NUMA")):
        values = fields.get(name)
        if isinstance(values, list) and any(value is not None for value in values) and {*map(str, values)} != {"N/A"}:
            head.append(title)
            for row, value in zip(rows, values, strict=True):
                row.append("-" if value is None else str(value))
    nearest = fields.get("nearest_nics")
    if isinstance(nearest, list) and any(nearest):
        head.append("nearest NICs")
        for row, names in zip(rows, nearest, strict=True):
            row.append(", ".join(names) or "-")
    yield from table([head, *rows], indent="  ")
    if isinstance(nearest, list) and not any(nearest) and fields["nics"]:
        yield f"  none of the {len(fields['nics'])} NICs shares a PCIe switch with a GPU"


def _link_cell(links: GpuLinks, one: int, other: int) -> str:
    link = links.link(one, other)
    return "·" if one == other else "?" if link is None else link.label


def _set_table(report: Report) -> Iterator[str]:
    best = sets_of(report)
    if not best:
        return
    rows = [["size", "best GPUs", "worst link", "class", "NUMA nodes", "equal sets"]]
    for size, found in best.items():
        rows.append([str(size), *_set_cells(found, numa=_numa_known(report))])
    yield from table(rows, indent="  ")


def _set_cells(found: GpuSet | None, *, numa: bool) -> list[str]:
    if found is None:
        return ["not known: links cannot be read", "", "", "", ""]
    return [
        format_cpu_list(found.gpus),
        found.worst.label,
        found.worst.kind,
        str(found.numa_nodes) if numa else "unknown",
        str(found.ties),
    ]


def _node_table(machine: Machine, report: Report) -> Iterator[str]:
    sizes = report.fields.get("size_mib", {})
    lscpu = machine.first("lscpu")
    matrix = machine.matrix
    words = [f"{report.fields['nodes']} NUMA nodes", f"{report.fields['cpus']} CPUs"]
    if lscpu is not None:
        if lscpu.fields["sockets"] is not None:
            words.append(f"{lscpu.fields['sockets']} sockets")
        if lscpu.fields["threads_per_core"] is not None:
            words.append(f"{lscpu.fields['threads_per_core']} threads per core")
        if lscpu.fields["hypervisor"]:
            words.append(f"a virtual machine ({lscpu.fields['hypervisor']})")
        if lscpu.fields["model"]:
            words.append(lscpu.fields["model"])
    yield ", ".join(words) + "."
    rows = [["node", "CPUs", "count", "memory", "GPUs"]]
    empty: list[int] = []
    for node, cpus in report.fields["numa_cpus"].items():
        size = sizes.get(node)
        gpus = [gpu for gpu, home in (matrix.links.numa.items() if matrix and matrix.links else ()) if home == int(node)]
        if not cpus and not size:
            empty.append(int(node))
            continue
        count = len(parse_cpu_list(cpus)) if cpus else 0
        shown = "unreadable" if cpus is None else _shortened(cpus, _MOST_CPU_CHARACTERS)
        rows.append([node, shown or "none", str(count), f"{size} MiB" if size is not None else "-", format_cpu_list(gpus) or "-"])
    columns = [column for column in zip(*rows, strict=True) if set(column[1:]) != {"-"}]
    yield from table(list(zip(*columns, strict=True)), indent="  ")
    if empty:
        yield f"  without CPUs and memory: {format_cpu_list(empty)}"


def _plain(report: Report) -> Iterator[str]:
    yield f"{report.kind}:"
    for name, value in report.fields.items():
        if value in (None, [], {}) or (isinstance(value, list) and isinstance(value[0], list)):
            continue
        yield from _value_lines(name.replace("_", " "), value, "  ")


def _value_lines(name: str, value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, dict):
        yield f"{indent}{name}:"
        for key, inner in value.items():
            yield from _value_lines(str(key), inner, indent + "  ")
    elif isinstance(value, list):
        text = ", ".join("-" if item is None else str(item) for item in value)
        yield f"{indent}{name}: {_shortened(text, _MOST_LIST_CHARACTERS)}"
    elif isinstance(value, bool):
        yield f"{indent}{name}: {'yes' if value else 'no'}"
    else:
        yield f"{indent}{name}: {'unknown' if value is None else value}"


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."

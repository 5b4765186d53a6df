"""No damage to an input makes a reader crash or invent a link.

`test_sample_*` run a fixed-seed sample; the marker `soak` runs 5000 mutations of each kind of output.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from infra.errors import NumawiseError
from infra.outputs.inputs import one_machine, reports_in
from infra.outputs.machine import machines
from infra.outputs.reading import Report
from infra.report.topology import machine_text, topology_as_json
from tests.outputs.mutations import damage

HERE = Path(__file__).parent
EXPECTED = json.loads((HERE / "expected.json").read_text())
KINDS = sorted({entry["kind"] for entry in EXPECTED.values()})
SEED = 20261129
SOAK = 5000
SAMPLE = 60

TABLES = ("links", "gpu_nic", "states", "weight", "hops", "link_type")


@cache
def texts_of(kind: str) -> tuple[tuple[str, str], ...]:
    return tuple(
        (name, (HERE / "fixtures" / name).read_text()) for name, entry in sorted(EXPECTED.items()) if entry["kind"] == kind
    )


@cache
def tables_of(text: str) -> tuple[dict[str, Any], ...]:
    return tuple(
        {name: report.fields[name] for name in TABLES if name in report.fields} for report in reports_in(text.encode(), path="it")
    )


def mutations(kind: str, count: int) -> Iterator[tuple[int, str, list[str], bool]]:
    """Number, damaged text, the texts it was made of, and whether lines are damaged inside."""
    texts = texts_of(kind)
    everything = [text for other in KINDS for _, text in texts_of(other)]
    for number in range(count):
        random = Random(f"{SEED} {kind} {number}")
        _, text = texts[random.randrange(len(texts))]
        partner = random.choice(texts)[1] if random.random() < 0.5 else random.choice(everything)
        damaged, whole = damage(random, text, [partner])
        yield number, damaged, [text, partner], whole


def check(kind: str, count: int) -> None:
    read = 0
    for number, damaged, sources, whole in mutations(kind, count):
        label = f"{kind} mutation {number}"
        try:
            reports = reports_in(damaged.encode("utf-8", errors="replace"), path="it")
        except NumawiseError as error:
            assert str(error).startswith("it: "), label
            assert "\n" not in str(error), label
            continue
        read += 1
        for machine in machines(reports):
            json.dumps(topology_as_json(machine))
            assert machine_text(machine), label
        try:
            one_machine(reports, source="it")
        except NumawiseError as error:
            assert error.exit_status == 2, label
        for report in reports:
            nothing_invented(report, damaged, sources, whole, label)
    assert read > count // 20, f"{kind}: only {read} of {count} damaged texts could be read at all"


def nothing_invented(report: Report, damaged: str, sources: Sequence[str], whole: bool, label: str) -> None:
    known = [table for source in sources for table in tables_of(source)]
    for name in TABLES:
        table = report.fields.get(name)
        if table is None:
            continue
        for i, row in enumerate(table):
            for j, cell in enumerate(row):
                if cell is None or (i == j and name != "gpu_nic"):
                    continue
                # A line of JSON does not tell which pair it belongs to: moving lines moves values.
                if whole and not report.kind.endswith("json"):
                    true = {value(t, name, i, j) for t in known}
                    assert cell in true, f"{label}: {report.kind} {name}[{i}][{j}] is {cell}, and was {true}"
                elif report.kind.startswith("nvidia"):
                    offset = report.fields["gpus"] if name == "gpu_nic" else 0
                    assert stands_there(damaged, row_label(report, i), j + offset, cell), (
                        f"{label}: {name}[{i}][{j}] = {cell} stands nowhere"
                    )
                else:
                    assert re.search(rf"(?<![\w.]){re.escape(str(cell))}(?![\w.])", damaged), f"{label}: {cell} stands nowhere"


def row_label(report: Report, i: int) -> str:
    indices = report.fields.get("gpu_indices")
    return f"GPU{indices[i] if indices else i}"


def value(tables: dict[str, Any], name: str, i: int, j: int) -> Any:
    table = tables.get(name)
    return table[i][j] if table and i < len(table) and j < len(table[i]) else None


def stands_there(text: str, label: str, column: int, cell: str) -> bool:
    """Whether a row with that label has that cell in that column, with tabs or without, wrapped or not."""
    plain = (
        re.sub("\x1b\\[[0-9;]*[A-Za-z]|\\[\\d+(?:;\\d+)*m|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", "", text)
        .replace("\r\n", "\n")
        .replace("\r", "\n")
    )
    lines = [re.sub(r"^(?: {0,3}> ?)+", "", line) for line in plain.split("\n")]
    if any(line.strip().startswith("|") for line in lines):
        lines = [line.strip().strip("|").replace("|", "\t") if line.strip().startswith("|") else line for line in lines]
    for index, line in enumerate(lines):
        match = re.match(rf"\s*{label}(?!\d)", line)
        if match is None:
            continue
        rests = [line[match.end() :]]
        for follower in lines[index + 1 : index + 6]:
            rests += [rest + joint + follower.lstrip(" ") for rest in rests for joint in ("", "\t")][:64]
        for rest in rests:
            pieces = rest.split("\t")[1:]
            if column < len(pieces) and pieces[column].strip() == cell:
                return True
            tokens = re.findall(
                r"NV\d{1,2}(?![\d,\u2013-])|PIX|PXB|PHB|NODE|SYS|SOC|OK|CNS|GNS|TNS|NS|DR|X(?![A-WYZ])|U(?![A-Z])|\S+?(?=\s|$)",
                rest,
            )
            if column < len(tokens) and tokens[column] == cell:
                return True
    return False


@pytest.mark.parametrize("kind", KINDS)
def test_sample_of_mutations(kind):
    check(kind, SAMPLE)


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_all_mutations(kind):
    check(kind, SOAK)


def test_the_check_itself_sees_an_invented_link():
    text = texts_of("nvidia-smi-topo-m")[0][1]
    (report,) = reports_in(text.encode(), path="it")
    links = [list(row) for row in report.fields["links"]]
    links[0][1] = "PIX"
    from dataclasses import replace

    forged = replace(report, fields={**report.fields, "links": links})
    for whole in (True, False):
        with pytest.raises(AssertionError):
            nothing_invented(forged, text, [text], whole, "forged")

"""The table of fields: held against the kubelet's own list, and the only list of fields in infra/."""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.kubelet import KubeletRefuses
from infra.kubelet.configuration import decode, fields, merge, versions
from infra.kubelet.configuration.decode import load
from infra.kubelet.configuration.fields import FIELDS, HEADER, RESTRICTING_PLATFORMS, Field
from infra.kubelet.configuration.flags import FieldFlag, field_flags, flag_meant
from infra.kubelet.configuration.go_types import INT32, STRING, Kind
from infra.kubelet.configuration.merge import effective_configuration
from infra.kubelet.configuration.versions import SUPPORTED, parse_version, rules_of
from infra.kubelet.managers.cpu import CPUManagerOptions
from infra.plan.pool.candidate import TOPOLOGY_POLICIES
from infra.plan.pool.fields import read_user_fields
from infra.plan.pool.platforms import PlatformFields
from tests.kubelet.agreement import CATALOGUE, case_of, read
from tests.kubelet.generate import generate
from tests.kubelet.merges import HEADER as FILE_HEADER

ROOT = Path(__file__).resolve().parents[2]
KUBELET: Mapping[str, Any] = read(CATALOGUE)
FLAGS = {flag["name"]: flag for flag in KUBELET["flags"]}
# What draws of the seeded cases come from; changes only with the generator itself.
DRAWS = {
    "ordinary": "0de8e3e0fd86a046",
    "odd": "df4d7549eead8aa8",
    "mutated": "1287618dc2f11868",
}


# The kubelet's own list
def _go_types() -> Iterator[tuple[str, str]]:
    def walk(path: str, kind: Kind) -> Iterator[tuple[str, str]]:
        yield path, kind.go
        for name, member in (kind.members or {}).items():
            yield from walk(f"{path}.{name}", member)

    for name, field in FIELDS.items():
        yield from walk(name, field.kind)


def test_names_and_go_types_are_the_kubelets() -> None:
    assert dict(_go_types()) == KUBELET["types"]


def test_defaults_are_the_kubelets() -> None:
    ours, theirs = load({}, kubernetes_version="1.37"), load(KUBELET["defaults"], kubernetes_version="1.37")
    assert theirs.unknown == ()
    assert {n: v for n, v in theirs.fields.items() if ours[n] != v} == {}


def test_flags_are_the_kubelets() -> None:
    assert set(field_flags()) == set(FLAGS)


@pytest.mark.parametrize("name", sorted(FLAGS))
def test_a_flag_sets_what_the_kubelet_sets(name: str) -> None:
    recorded, flag = FLAGS[name], field_flags()[name]
    assert list(recorded["fields"]) == [flag.field]
    top, _, member = flag.field.partition(".")
    kind = FIELDS[top].kind.at(member)
    assert kind.decode(flag.parse(recorded["texts"]), name) == kind.decode(recorded["fields"][flag.field], name)


def test_a_flag_reaches_the_configuration_over_a_file() -> None:
    for name, recorded in FLAGS.items():
        top, _, member = field_flags()[name].field.partition(".")
        words = [f"--{name}={text}" for text in recorded["texts"]]
        try:
            document: Any = effective_configuration(base=FILE_HEADER, flags=words).document
        except KubeletRefuses as refusal:
            assert "feature gate" in str(refusal), (name, refusal)
            continue
        found = document[top]
        for part in filter(None, member.split(".")):
            found = found[part]
        assert found == field_flags()[name].parse(recorded["texts"]), name


# Derived from the table, and from nothing else
def test_a_new_row_is_a_field_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Field("maxDreams", INT32, default=3, bounds=(1, 9), flag="max-dreams", since="1.36", removed="1.37", platforms=("gke",))
    spelled = Field("dreamPolicy", STRING, default="Lucid", values=("Lucid", "None"))
    table = {**FIELDS, row.name: row, spelled.name: spelled}
    for module in (fields, decode, merge, versions):
        monkeypatch.setattr(module, "FIELDS", table, raising=False)
    monkeypatch.setattr("infra.kubelet.configuration.flags.FIELDS", table)
    monkeypatch.setattr("infra.kubelet.configuration.validate._BOUNDS", {row.name: row.bounds})
    monkeypatch.setattr("infra.plan.pool.fields.FIELDS", table)
    monkeypatch.setattr("infra.plan.pool.platforms.FIELDS", table)
    field_flags.cache_clear()
    rules_of.cache_clear()
    try:
        assert load({}, kubernetes_version="1.36")["maxDreams"] == 3
        assert load({"maxDreams": 4}, kubernetes_version="1.36")["maxDreams"] == 4
        assert load({"maxDreams": 4}, kubernetes_version="1.35").unknown == ("maxDreams",)
        assert load({"maxDreams": 4}, kubernetes_version="1.37").unknown == ("maxDreams",)
        assert load({"dreamPolicy": "None"}, kubernetes_version="1.37")["dreamPolicy"] == "None"
        with pytest.raises(KubeletRefuses, match="maxDreams"):
            load({"maxDreams": "4"}, kubernetes_version="1.36")
        assert field_flags()["max-dreams"] == FieldFlag("max-dreams", "maxDreams", "int")
        taken, problems = read_user_fields({"maxDreams": 4, "dreamPolicy": "lucid", "maxDream": 1, "max_dreams": 1}, "k")
        assert taken == {"maxDreams": 4}
        said = {problem.path: problem for problem in problems}
        assert said["k.dreamPolicy"].code == "WrongSpelling"
        assert "'Lucid'" in said["k.dreamPolicy"].message
        assert "Did you mean 'maxDreams'" in said["k.maxDream"].message
        assert 'Did you mean "maxDreams"' in said["k.max_dreams"].message
        assert "maxDreams" in PlatformFields.of("aks").unavailable
        assert "maxDreams" not in PlatformFields.of("gke").unavailable
        assert "maxDreams" not in PlatformFields.of("eks").unavailable
    finally:
        field_flags.cache_clear()
        rules_of.cache_clear()


def test_rows_are_consistent() -> None:
    names = [field.name for field in fields._TABLE]
    assert len(names) == len(set(names))
    assert not set(names) & set(HEADER)
    for field in FIELDS.values():
        assert set(field.platforms) <= set(RESTRICTING_PLATFORMS), field.name
        assert not field.values or field.kind.form in ("string", "list of strings"), field.name
        if field.values and field.default is not None:
            assert set([field.default] if isinstance(field.default, str) else field.default) <= set(field.values), field.name
        if field.bounds:
            assert field.kind.form == "integer"
            assert field.initial is None or field.bounds[0] <= field.initial <= (field.bounds[1] or field.initial), field.name
        for version in (field.since, field.removed, *(v for history in field.options.values() for v in history)):
            assert not version or version in SUPPORTED, field.name
        for history in field.options.values():
            assert list(history) == sorted(history, key=parse_version), field.name
        for member in field.flags.values():
            assert field.kind.at(member).flag_syntax, field.name


def test_options_have_a_place_in_the_managers() -> None:
    known = {member.name.replace("_", "-") for member in dataclasses.fields(CPUManagerOptions)}
    assert known == set(FIELDS["cpuManagerPolicyOptions"].options)
    assert set(TOPOLOGY_POLICIES) == set(FIELDS["topologyManagerPolicy"].values)


@pytest.mark.parametrize(
    ("name", "field"),
    [("reserved-cpus", "reservedSystemCPUs"), ("--reserved_cpus", "reservedSystemCPUs"), ("reservedCPUs", "reservedSystemCPUs"),
     ("reservedCpus", "reservedSystemCPUs"), ("kubeReserved", "kubeReserved"), ("dreams", None)],
)  # fmt: skip
def test_a_name_that_is_a_flag_in_other_letters(name: str, field: str | None) -> None:
    flag = flag_meant(name)
    assert (flag.field if flag else None) == field


# No other list
_MOST_NAMES_TOGETHER = 5


def _names_in(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Dict):
        listed = [key for key in node.keys if key is not None]
    elif isinstance(node, ast.Tuple | ast.List | ast.Set):
        listed = [e.value if isinstance(e, ast.Starred) else e for e in node.elts]
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        return set(re.findall(r"\w+", node.value)) & set(FIELDS)
    else:
        return set()
    found: set[str] = set()
    for item in listed:
        if isinstance(item, ast.Constant) and isinstance(item.value, str) and item.value in FIELDS:
            found.add(item.value)
        elif isinstance(item, ast.Tuple | ast.List):
            found |= _names_in(item)
    return found


def test_no_list_of_fields_stands_beside_the_table() -> None:
    table = ROOT / "infra" / "kubelet" / "configuration" / "fields.py"
    found = {}
    for path in sorted((ROOT / "infra").rglob("*.py")):
        if path == table:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = _names_in(node)
            if len(names) > _MOST_NAMES_TOGETHER:
                found[f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"] = sorted(names)
    assert found == {}, "these list fields; make a column of infra/kubelet/configuration/fields.py of what they say"


# Rooms
def test_configuration_knows_no_manager_and_managers_no_admission() -> None:
    order = ["configuration", "managers", "admission"]
    for index, room in enumerate(order):
        for path in (ROOT / "infra" / "kubelet" / room).glob("*.py"):
            above = [later for later in order[index + 1 :] if f"infra.kubelet.{later}" in path.read_text(encoding="utf-8")]
            assert not above, f"{path} imports {above}"


# The generator
@pytest.mark.parametrize("kind", DRAWS)
def test_seeded_cases_never_shift(kind: str) -> None:
    assert _digest(kind) == DRAWS[kind]


def test_a_new_field_shifts_no_case(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {kind: _digest(kind) for kind in DRAWS}
    field_case = case_of("field", "maxPods/1")
    grown = {"aaa": Field("aaa", INT32), **FIELDS, "zzz": Field("zzz", STRING)}
    for module in ("tests.kubelet.generate_fields", "infra.kubelet.configuration.decode"):
        monkeypatch.setattr(f"{module}.FIELDS", grown)
    assert {kind: _digest(kind) for kind in DRAWS} == before
    assert case_of("field", "maxPods/1") == field_case
    assert "zzz" in case_of("field", "zzz/0")["kubelet"]


def _digest(kind: str) -> str:
    text = json.dumps([generate(kind, seed) for seed in range(120)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]

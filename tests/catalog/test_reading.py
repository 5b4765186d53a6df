"""How the catalog's files are read: every problem in one pass, in words with both sides; and only what is asked for."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from pydantic import Field

from infra.catalog import pinned_image
from infra.catalog.entries import Entries, Entry, Fact, as_it_is, document_of
from infra.catalog.reading import has_field, read, read_whole, type_name
from infra.config.base import NonNegativeInt, PositiveInt, Texts
from infra.diagnosis import Diagnosis
from infra.errors import ConfigError


class Wheel(Fact):
    size: PositiveInt
    names: Texts = ()


class Cart(Entry):
    kind: Literal["hand", "ox"] = "hand"
    axles: NonNegativeInt | None = None
    weight_kg: float | None = None
    covered: bool = False
    wheels: tuple[Wheel, ...] = Field(default=(), strict=False)
    spare: Wheel | None = None
    load: dict[str, Any] = Field(default_factory=dict)


def problems_of(raw: object) -> dict[str, str]:
    found: list[Diagnosis] = []
    read(Cart, raw, "carts[0]", found)
    return {problem.path.removeprefix("carts[0]").lstrip("."): f"{problem.code}: {problem.message}" for problem in found}


@pytest.mark.parametrize(
    ("change", "path", "told"),
    [
        ({"kind": "horse"}, "kind", "InvalidValue: is 'horse'; one of hand, ox is expected."),
        ({"kind": "hnd"}, "kind", "InvalidValue: is 'hnd'; one of hand, ox is expected. Did you mean 'hand'?"),
        ({"axles": -1}, "axles", "InvalidValue: is -1; at least 0 is expected."),
        ({"axles": 2**31}, "axles", "InvalidValue: is 2147483648; at most 2147483647 is expected."),
        ({"axles": "2"}, "axles", "InvalidValue: is a text ('2'); a whole number is expected."),
        ({"axles": 2.5}, "axles", "InvalidValue: is a number (2.5); a whole number is expected."),
        ({"axles": True}, "axles", "InvalidValue: is a boolean (True); a whole number is expected."),
        ({"weightKg": "9"}, "weightKg", "InvalidValue: is a text ('9'); a number is expected."),
        ({"covered": 1}, "covered", "InvalidValue: is an integer (1); true or false is expected."),
        ({"note": 3}, "note", "InvalidValue: is an integer (3); a text is expected."),
        ({"sources": "me"}, "sources", "InvalidValue: is a text ('me'); a list is expected."),
        ({"sources": ["me", 1]}, "sources[1]", "InvalidValue: is an integer (1); a text is expected."),
        ({"spare": [1]}, "spare", "InvalidValue: is a list; a map of fields is expected."),
        ({"load": [1]}, "load", "InvalidValue: is a list; a map of fields is expected."),
        ({"spare": {}}, "spare.size", "MissingField: is missing; it is needed here."),
        ({"spare": {"sise": 3}}, "spare.size", "MissingField: is missing. Did you mean 'sise'?"),
        ({"spare": {"sise": 3}}, "spare.sise", "UnknownField: is no field here. Did you mean 'size'?"),
        ({"wheels": [{"size": 1}, {"size": 0}]}, "wheels[1].size", "InvalidValue: is 0; at least 1 is expected."),
        ({"wheels": [{"size": 1, "zzz": 0}]}, "wheels[0].zzz", "UnknownField: is no field here."),
        ({"weight_kg": 1.0}, "weight_kg", "UnknownField: is no field here. Did you mean 'weightKg'?"),
        ({"confidence": None}, "confidence", "MissingField: is missing; it is needed here."),
    ],
)
def test_a_wrong_value_is_told_in_the_words_of_the_file(change: dict[str, Any], path: str, told: str) -> None:
    assert problems_of({"id": "a", "confidence": "high", **change})[path] == told


def test_what_is_no_map_is_one_sentence() -> None:
    assert problems_of([1]) == {"": "InvalidValue: is a list; a map of fields is expected."}


def test_null_is_as_good_as_absent() -> None:
    found: list[Diagnosis] = []
    entry = read(
        Cart, {"id": "a", "confidence": "low", "sources": None, "axles": None, "spare": {"size": 1, "names": None}}, "", found
    )
    assert found == [] and entry is not None
    assert entry.sources == () and entry.axles is None and entry.spare == Wheel(size=1)


def test_a_whole_number_is_a_number_too() -> None:
    found: list[Diagnosis] = []
    entry = read(Cart, {"id": "a", "confidence": "low", "weightKg": 9}, "", found)
    assert found == [] and entry is not None and entry.weight_kg == 9.0


def test_what_is_wrong_is_left_out_so_that_the_rest_is_seen() -> None:
    found: list[Diagnosis] = []
    raw = {
        "id": "a",
        "confidence": "low",
        "axles": -1,
        "kind": "ox",
        "wheels": [{"size": 0}, {"size": 4, "names": ["x", 1, "y", 2]}],
    }
    entry = read(Cart, raw, "c", found)
    assert [problem.path for problem in found] == ["c.axles", "c.wheels[0].size", "c.wheels[1].names[1]", "c.wheels[1].names[3]"]
    assert entry is None  # a wheel without its size is none
    del raw["wheels"][0]
    found.clear()
    entry = read(Cart, raw, "c", found)
    assert entry is not None and entry.axles is None and entry.kind == "ox"
    assert entry.wheels == (Wheel(size=4, names=("x", "y")),)
    assert raw["wheels"] == [{"size": 4, "names": ["x", 1, "y", 2]}], "the document itself stays as it is"


def test_a_file_that_is_one_record_is_read_without_what_all_files_have() -> None:
    assert read_whole(Wheel, {"schemaVersion": 1, "sources": {}, "size": 2}, "wheel.yaml") == Wheel(size=2)
    with pytest.raises(ConfigError) as error:
        read_whole(Wheel, {"schemaVersion": 1, "names": [1], "colour": "red"}, "wheel.yaml")
    assert [problem.path for problem in error.value.problems] == ["wheel.yaml.colour", "wheel.yaml.names[0]", "wheel.yaml.size"]
    with pytest.raises(ConfigError, match=r"wheel.yaml.colour: is no field here"):
        read_whole(Wheel, {"size": 2, "colour": "red"}, "wheel.yaml")


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (None, "null"),
        (True, "a boolean"),
        (1, "an integer"),
        (1.5, "a number"),
        ("x", "a text"),
        ([], "a list"),
        ({}, "a map"),
        ({1}, "set"),
    ],
)
def test_a_type_has_its_name_in_yaml(value: object, name: str) -> None:
    assert type_name(value) == name


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("axles", True),
        ("weightKg", True),
        ("weight_kg", False),
        ("wheels", True),
        ("wheels[0].size", True),
        ("wheels.size", True),
        ("wheels.colour", False),
        ("spare.names", True),
        ("load.anything.below", True),
        ("axles.count", False),
        ("sources.x", False),
        ("", False),
    ],
)
def test_a_field_is_known_by_its_path(path: str, known: bool) -> None:
    assert has_field(Cart, path) is known


def file_of(tmp_path: Path, *carts: object, **top: object) -> Path:
    path = tmp_path / "carts.yaml"
    path.write_text(yaml.safe_dump({"schemaVersion": 1, "sources": {"me": "seen"}, "carts": list(carts), **top}))
    return path


def entries_of(path: Path) -> Entries[Cart, Cart]:
    return Entries(path, "carts", Cart, as_it_is)


def test_an_entry_is_validated_when_it_is_asked_for_and_the_whole_file_by_problems(tmp_path: Path) -> None:
    good = {"id": "good", "confidence": "high", "sources": ["me"]}
    entries = entries_of(file_of(tmp_path, good, {"id": "bad", "confidence": "sure"}, {"confidence": "low", "axles": -1}, "cart"))
    assert list(entries) == ["good", "bad"] and len(entries) == 2 and "bad" in entries and "cart" not in entries
    assert entries["good"].confidence == "high" and entries["good"] is entries["good"]
    with pytest.raises(ConfigError, match=r"carts\.yaml\.carts\[1\]\.confidence: is 'sure'; one of high, medium, low is expected"):
        entries["bad"]
    with pytest.raises(KeyError):
        entries["cart"]
    assert {problem.path for problem in entries.problems()} == {
        "carts.yaml.carts[1].confidence",
        "carts.yaml.carts[2].id",
        "carts.yaml.carts[2].axles",
        "carts.yaml.carts[3]",
    }
    assert len(entries.problems()) == 4, "asking twice tells nothing twice"


def test_what_an_entry_names_must_be_there(tmp_path: Path) -> None:
    cart = {"id": "a", "confidence": "low", "sources": ["me", "you"], "unverified": ["axles", "axels"]}
    path = file_of(tmp_path, cart, cart, wagons=[])
    assert [str(problem) for problem in entries_of(path).problems()] == [
        "carts.yaml.wagons: is no field here.",
        "carts.yaml.carts[1].id: a stands there twice.",
        "carts.yaml.carts[0].sources[1]: 'you' is not among the file's sources.",
        "carts.yaml.carts[0].unverified[1]: 'axels' is no field of an entry.",
    ]
    with pytest.raises(ConfigError, match="'you' is not among"):
        entries_of(path)["a"]


@pytest.mark.parametrize(
    ("top", "told"),
    [
        ({"schemaVersion": 2}, "carts.yaml.schemaVersion: is 2; this program reads 1"),
        ({"schemaVersion": None}, "carts.yaml.schemaVersion: is None; this program reads 1"),
        ({"carts": None}, "carts.yaml.carts: is null; a list is expected"),
        ({"carts": {"a": 1}}, "carts.yaml.carts: is a map; a list is expected"),
    ],
)
def test_a_file_that_is_none_of_the_catalog_is_refused_at_once(tmp_path: Path, top: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as error:
        entries_of(file_of(tmp_path, **top))
    assert told in str(error.value)


def test_a_file_without_sources_has_none(tmp_path: Path) -> None:
    path = file_of(tmp_path, {"id": "a", "confidence": "low", "sources": ["me"]}, sources=None)
    assert ["'me' is not among" in str(problem) for problem in entries_of(path).problems()] == [True]
    assert document_of(path)["schemaVersion"] == 1


def test_only_an_image_is_pinned_as_one() -> None:
    assert pinned_image("vllm-amd") == "docker.io/vllm/vllm-openai-rocm:v0.33.0"
    with pytest.raises(KeyError, match="kueue is a release"):
        pinned_image("kueue")
    with pytest.raises(KeyError):
        pinned_image("no-such-image")


def test_the_doctor_tells_of_a_catalog_that_was_changed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from infra import installation
    from infra.cli import doctor

    broken = [
        Diagnosis("pins.yaml.pins[0].kind", "InvalidValue", "is 'jar'."),
        Diagnosis("pins.yaml.pins[1].id", "MissingField", "is missing."),
    ]
    for problems, ok in ((broken, False), ([], True)):
        monkeypatch.setattr(installation, "catalog_problems", lambda found=problems: iter(found))
        assert doctor.run(argparse.Namespace(stack=None, format="json")) == (3 if not ok else 0)
        [check] = [check for check in json.loads(capsys.readouterr().out)["checks"] if check["name"] == "catalog"]
        assert check["ok"] is ok
        assert ("node shapes" in check["found"]) if ok else check["found"] == "pins.yaml.pins[0].kind: is 'jar'. (2 in all)"

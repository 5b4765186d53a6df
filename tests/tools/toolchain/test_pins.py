"""The pins file: its form, and that the versions in it are the ones that the Go modules and requirements hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tools.toolchain.world import BUILD, World
from tools.toolchain import ToolchainError, pins
from tools.toolchain.__main__ import main
from tools.toolchain.pins import CHECKOUT, machine_words, read_pins

# The module of each built part whose version the pin repeats, and the pin's own version of it where that is not the part's.
MODULES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes",
    "kube-controller-manager": "k8s.io/kubernetes",
    "kube-scheduler": "k8s.io/kubernetes",
    "kubelet": "k8s.io/kubernetes",
    "pulumi": "github.com/pulumi/pulumi/pkg/v3",
    "pulumi-language-python": "github.com/pulumi/pulumi/sdk/v3",
}


@pytest.mark.parametrize("name", MODULES)
def test_the_pinned_version_is_the_one_that_go_mod_requires(name: str) -> None:
    build = read_pins().parts[name].build
    assert build is not None
    text = (CHECKOUT / build.module / "go.mod").read_text()
    match = re.search(rf"{re.escape(MODULES[name])} v(\S+)", text)
    assert match is not None
    assert match.group(1) == (build.version or read_pins().parts[name].version)


def test_the_provider_is_the_one_that_the_program_s_sdk_is_pinned_to() -> None:
    assert (
        f"pulumi-kubernetes=={read_pins().parts['pulumi-resource-kubernetes'].version}\n"
        in (CHECKOUT / "requirements.txt").read_text()
    )


def test_go_is_new_enough_for_every_module() -> None:
    minimum = tuple(map(int, read_pins().go.minimum.split(".")))
    for file in (CHECKOUT / "tools" / "go").glob("*/go.mod"):
        match = re.search(r"^go (\S+)$", file.read_text(), re.MULTILINE)
        assert match is not None, file
        assert tuple(map(int, match.group(1).split("."))) <= minimum, file


def test_every_part_of_ours_or_another_s_can_be_had_without_a_release_server() -> None:
    for part in read_pins().parts.values():
        assert part.build is not None or part.wheel is not None, part.name
        if part.download is not None:
            assert part.download.checksums or part.download.sha256, part.name


@pytest.mark.parametrize(
    ("parts", "build", "path", "message"),
    [
        ("speed = 3", BUILD, "parts.thing.speed", "is no key of this table"),
        ("", "", "parts.thing", "has none of download, wheel and build"),
        (
            'files = ["other"]',
            BUILD,
            "parts.thing.files",
            "must begin with the program's own name, 'thing'; it begins with 'other'",
        ),
        ("path = 3", BUILD, "parts.thing.path", "is no table"),
        ('path = { beside = "nothing" }', BUILD, "parts.thing.path.beside", "names 'nothing', which is no part"),
        ("", BUILD.replace('package = "."', ""), "parts.thing.build", "is incomplete"),
        ("", BUILD + "[[parts.thing.build.copy]]\nfile = 1\n", "parts.thing.build.copy[0].file", "is no key"),
    ],
)
def test_a_wrong_pin_is_named_with_its_place(tmp_path: Path, parts: str, build: str, path: str, message: str) -> None:
    file = World(tmp_path).pins(parts, build=build)
    with pytest.raises(ToolchainError) as caught:
        read_pins(file)
    (problem,) = caught.value.problems
    assert problem.path == f"pins.toml: {path}"
    assert message in problem.message


@pytest.mark.parametrize(
    ("text", "message"), [("x = [", "cannot be read"), ("schema = 2", "reads schema 1"), ("schema = 1", "is missing")]
)
def test_a_file_that_is_no_pins_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "pins.toml"
    file.write_text(text)
    with pytest.raises(ToolchainError, match=message):
        read_pins(file)


def test_other_systems_and_machines_are_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins.platform, "machine", lambda: "riscv64")
    with pytest.raises(ToolchainError, match="this machine is riscv64; the pinned programs exist for x86_64, aarch64"):
        machine_words()
    monkeypatch.setattr(pins.platform, "machine", lambda: "aarch64")
    assert machine_words() == {"arch": "arm64", "x64": "arm64", "machine": "aarch64"}
    monkeypatch.setattr(pins.sys, "platform", "darwin")
    with pytest.raises(ToolchainError, match="needs Linux"):
        machine_words()


def test_an_unknown_name_is_answered_with_the_nearest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["--only", "etdc"]) == 3
    assert "Did you mean 'etcd'?" in capsys.readouterr().err


def test_listing_makes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(read_pins().parts)
    assert all(line.endswith("missing") for line in lines)
    assert list(tmp_path.iterdir()) == []

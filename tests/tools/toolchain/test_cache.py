"""The cache: complete entries only, whatever happened to the files."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tools.toolchain.world import PROGRAM, World
from tools.toolchain import ToolchainError
from tools.toolchain.cache import MARKER, Cache, cache_root


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_program_is_built_once_and_found_afterwards(world: World) -> None:
    first = world.ensure()
    second = world.ensure()
    assert first.file == second.file
    assert first.file.read_text() == PROGRAM
    assert world.builds() == 1


def _same_size_and_mtime(file: Path) -> None:
    before = file.stat()
    file.write_text(PROGRAM.replace("thing", "thong"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "cut short": lambda folder: (folder / "thing").write_text(PROGRAM[:5]),
    "emptied": lambda folder: (folder / "thing").write_bytes(b""),
    "one byte changed": lambda folder: (folder / "thing").write_text(PROGRAM.replace("thing", "thong")),
    "one byte changed and the time set back": lambda folder: _same_size_and_mtime(folder / "thing"),
    "not executable": lambda folder: (folder / "thing").chmod(0o644),
    "program gone": lambda folder: (folder / "thing").unlink(),
    "marker gone": lambda folder: (folder / MARKER).unlink(),
    "marker cut short": lambda folder: (folder / MARKER).write_text('{"source": "x", "fi'),
    "marker of another form": lambda folder: (folder / MARKER).write_text('{"source": "x", "files": []}'),
    "marker without the program": lambda folder: (folder / MARKER).write_text('{"source": "x", "seconds": 1, "files": {}}'),
    "program is a folder": lambda folder: ((folder / "thing").unlink(), (folder / "thing").mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_entry_is_made_anew_and_never_used(world: World, damage: str) -> None:
    entry = world.ensure().folder
    DAMAGE[damage](entry)
    found = world.ensure()
    assert found.file.read_text() == PROGRAM
    assert os.access(found.file, os.X_OK)
    assert world.builds() == 2


def test_a_touched_but_unchanged_program_is_kept(world: World) -> None:
    entry = world.ensure().folder
    os.utime(entry / "thing", ns=(1, 1))
    world.ensure()
    assert world.builds() == 1
    assert json.loads((entry / MARKER).read_text())["files"]["thing"]["times"][0] == 1


def test_what_a_killed_build_left_is_removed(world: World) -> None:
    chain = world.toolchain()
    key = chain.key(chain.parts["thing"])
    half = world.cache_root / "thing" / f".{key}.abc"
    half.mkdir(parents=True)
    (half / "thing").write_text("half a program")
    assert world.ensure().file.read_text() == PROGRAM
    assert not half.exists()


def test_a_failed_build_leaves_no_entry(world: World) -> None:
    world.fake_go(failure="main.go:3: undefined: x")
    with pytest.raises(ToolchainError, match=r"thing: `go build` failed: main.go:3: undefined: x"):
        world.ensure()
    assert list((world.cache_root / "thing").iterdir()) == []


def test_two_processes_build_once(world: World) -> None:
    world.fake_go(seconds=0.3)
    chains = [world.toolchain(), world.toolchain()]
    threads = [threading.Thread(target=chain.ensure, args=(["thing"],)) for chain in chains]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert world.builds() == 1


def test_a_cache_that_cannot_be_written_is_named_with_the_remedy(world: World) -> None:
    world.cache_root.write_text("a file where the folder should be")
    with pytest.raises(ToolchainError, match="XDG_CACHE_HOME") as caught:
        world.ensure()
    assert str(world.cache_root) in str(caught.value)
    assert caught.value.exit_status == 3


@pytest.mark.parametrize(
    ("xdg", "home", "root"),
    [
        ("/x", "/h", "/x/numawise/toolchain"),
        ("", "/h", "/h/.cache/numawise/toolchain"),
        ("relative", "/h", "/h/.cache/numawise/toolchain"),
    ],
)
def test_the_cache_lies_where_the_user_keeps_caches(monkeypatch: pytest.MonkeyPatch, xdg: str, home: str, root: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", xdg)
    monkeypatch.setenv("HOME", home)
    assert cache_root() == Path(root)


def test_a_tree_with_a_file_cut_short_is_made_anew(tmp_path: Path) -> None:
    cache = Cache(tmp_path)

    def fill(folder: Path) -> str:
        (folder / "bin").mkdir()
        (folder / "bin" / "go").write_text("program")
        (folder / "src.go").write_text("source")
        return "here"

    entry = cache.make("go", "1", ("bin/go",), fill, tree=True)
    assert cache.find("go", "1", ("bin/go",), tree=True) is not None
    (entry.folder / "src.go").write_text("sour")
    assert cache.find("go", "1", ("bin/go",), tree=True) is None

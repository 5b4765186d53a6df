"""Log files as streams: encodings, what is no text, and lines that cross blocks."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from infra.errors import ConfigError
from infra.outputs import log_file
from infra.outputs.log_file import log_lines


def read(tmp_path: Path, content: bytes) -> list[str]:
    file = tmp_path / "it.log"
    file.write_bytes(content)
    return list(log_lines(str(file)))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_each_encoding_and_line_end_gives_the_same_lines(tmp_path: Path, encoding: str, end: str) -> None:
    text = end.join(["first line of a log", "", "the second line"])
    assert read(tmp_path, text.encode(encoding)) == ["first line of a log", "", "the second line"]
    assert read(tmp_path, (text + end).encode(encoding)) == ["first line of a log", "", "the second line"]


def test_colours_are_taken_off_and_broken_characters_replaced(tmp_path: Path) -> None:
    assert read(tmp_path, b"\x1b[32mgreen\x1b[0m\n^[[1mbold\n\xff\n") == ["green", "bold", "\ufffd"]


@pytest.mark.parametrize(("size", "pieces"), [(7, ["abcdefg"]), (8, ["abcdefgh"]), (40, ["abcdefgh" * 2] * 2 + ["abcdefgh"])])
def test_a_line_is_cut_where_it_is_longer_than_two_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, pieces: list[str]
) -> None:
    monkeypatch.setattr(log_file, "_BLOCK", 8)
    assert read(tmp_path, ("abcdefgh" * 5)[:size].encode() + b"\n") == pieces
    assert read(tmp_path, b"ab\ncd\nef\nghijkl\nm\n") == ["ab", "cd", "ef", "ghijkl", "m"]


def test_a_block_is_a_quarter_of_a_mebibyte() -> None:
    assert log_file._BLOCK == 2**18


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "EmptyInput"),
        (b"\x1f\x8bxx", "BinaryInput"),
        (b"PK\x03\x04", "BinaryInput"),
        (b"BZh9", "BinaryInput"),
        (b"\x01\x02" + b"a" * 97, "BinaryInput"),
        (b"\x00" * 40, "BinaryInput"),
    ],
)
def test_what_is_no_text_is_refused(tmp_path: Path, content: bytes, code: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, content)
    assert [problem.code for problem in caught.value.problems] == [code]


@pytest.mark.parametrize(
    "content",
    [b"\x01\x02" + b"a" * 98, b"\t\n\r\x0b\x0c\x1b" + b"a" * 10, b"\x08" + b"a" * 49, b"\x1a" + b"a" * 49, b"\x1c" + b"a" * 49],
)
def test_a_few_control_characters_make_no_binary_file(tmp_path: Path, content: bytes) -> None:
    assert read(tmp_path, content)


@pytest.mark.parametrize("strange", [b"\x08", b"\x0e", b"\x1a", b"\x1c", b"\x1f"])
def test_each_control_character_counts(tmp_path: Path, strange: bytes) -> None:
    with pytest.raises(ConfigError):
        read(tmp_path, strange + b"a" * 48)


@pytest.mark.parametrize("plain", [b"\x09", b"\x0d", b"\x1b", b"\x20"])
def test_tabs_ends_of_lines_escapes_and_blanks_do_not(tmp_path: Path, plain: bytes) -> None:
    assert read(tmp_path, plain + b"a" * 48)


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path: Path) -> None:
    for path, code in ((tmp_path / "nowhere", "MissingFile"), (tmp_path, "NotAFile"), (tmp_path / ("x" * 300), "UnreadableInput")):
        with pytest.raises(ConfigError) as caught:
            list(log_lines(str(path)))
        (problem,) = caught.value.problems
        assert (problem.code, problem.path) == (code, str(path))


def test_standard_input_is_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.BytesIO(b"a\nb\n")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=stream))
    assert list(log_lines("-")) == ["a", "b"]

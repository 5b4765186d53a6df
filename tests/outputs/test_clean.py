"""Lines as they are cleaned: encodings, margins, tables, hosts and the width of a terminal, each at its limit."""

from __future__ import annotations

import pytest

from infra.errors import ConfigError
from infra.outputs.paste import clean_lines, decode, strip_colours, unwrapped


@pytest.mark.parametrize(("width", "joined"), [(39, False), (40, True)])
def test_lines_of_the_longest_width_are_continued_from_forty_characters_on(width: int, joined: bool) -> None:
    lines = ["short", "x" * width, "rest", "y"]
    assert unwrapped(lines) == (["short", "x" * width + "rest", "y"] if joined else None)
    assert unwrapped(["x" * width, ""]) is None
    assert unwrapped([]) is None


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("a\u00e9\n".encode(), "a\u00e9\n"),
        (b"\xef\xbb\xbfa", "a"),
        ("ab".encode("utf-16"), "ab"),
        ("ab".encode("utf-32"), "ab"),
        ("abcdefghij".encode("utf-16-le"), "abcdefghij"),
        ("abcdefghij".encode("utf-16-be"), "abcdefghij"),
        ("caf\u00e9s \u2013 \u20ac\u20ac".encode("cp1252"), "caf\u00e9s \u2013 \u20ac\u20ac"),
        (b"word\xe2\x82", "word\ufffd"),
    ],
)
def test_each_encoding_is_decoded(raw: bytes, text: str) -> None:
    assert decode(raw, path="it") == text


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", "EmptyInput"),
        (b" \x00\n", "EmptyInput"),
        (b"\x1f\x8bx", "BinaryInput"),
        (b"\x01\x02" + b"a" * 97, "BinaryInput"),
        (b"\x08" + b"a" * 48, "BinaryInput"),
        (b"\x1f" + b"a" * 48, "BinaryInput"),
    ],
)
def test_what_is_no_text_is_refused(raw: bytes, code: str) -> None:
    with pytest.raises(ConfigError) as caught:
        decode(raw, path="it")
    assert [problem.code for problem in caught.value.problems] == [code]


@pytest.mark.parametrize("raw", [b"\x01\x02" + b"a" * 98, b"\x1b\t\r\n" + b"a" * 9, b"\x08" + b"a" * 49])
def test_a_few_control_characters_are_text(raw: bytes) -> None:
    assert decode(raw, path="it")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a\\nb\\tc\\nd", ["a", "b\tc", "d"]),
        ("a\\nb", ["a\\nb"]),
        ("a\r\nb\rc", ["a", "b", "c"]),
        ("one$\ntwo$", ["one", "two"]),
        ("cost: 5$", ["cost: 5$"]),
        ("+a\n+b", ["a", "b"]),
        ("+a", ["+a"]),
        ("+-a\n+b", ["+-a", "+b"]),
        ("1: a\n2: b\n10: c", ["a", "b", "c"]),
        ("1: a\n2: b\n12: c", ["1: a", "2: b", "12: c"]),
        ("2: a\n1: b", ["2: a", "1: b"]),
        ("web-1 | a\nweb-2 | b", ["a", "b"]),
        ("| a | b |\n| --- | --- |\n| c | d |", ["a\tb", "", "c\td"]),
        ("|a|b", ["|a|b"]),
        ("> > quoted", ["quoted"]),
        ("```sh\nx\n```", ["", "x", ""]),
        ("&gt; a &amp; b", ["a & b"]),
        ("a^Ib", ["a\tb"]),
        ("[pod/vllm-0/main] x\n[pod/vllm-0/main] y", ["x", "y"]),
        ("2026-11-30T10:00:00.123Z x\ny", ["x", "y"]),
        ("\x1b[32mg\x1b[0m and [1m", ["g and "]),
        ("a\u200bb\u00a0c\u2013d\x07", ["ab c-d"]),
    ],
)
def test_what_was_put_around_lines_is_taken_off(text: str, lines: list[str]) -> None:
    assert clean_lines(text) == lines


def test_lines_of_several_hosts_are_told_apart() -> None:
    text = "\n".join(f"{host}: line {i}" for i in range(3) for host in ("node-a", "node-b"))
    assert clean_lines(text) == [
        "# host: node-a",
        *(f"line {i}" for i in range(3)),
        "# host: node-b",
        *(f"line {i}" for i in range(3)),
    ]
    twice = "node-a: x\nnode-a: y"
    assert clean_lines(twice) == twice.split("\n")
    mixed = text + "\nwords here\nmore words"
    assert clean_lines(mixed) == mixed.split("\n")


def test_colours_alone_are_stripped_from_a_line() -> None:
    assert strip_colours("\x1b[1ma^[[0m") == "a"
    assert strip_colours("[1m") == "[1m"

"""A log file's lines, one at a time, in flat memory."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from infra.outputs.paste import strip_colours, unreadable

_BLOCK = 256 * 1024


def log_lines(path: str) -> Iterator[str]:
    """The lines of a text file in UTF-8 or UTF-16, `-` for standard input; ConfigError for what is no readable text file."""
    if path == "-":
        yield from _lines(sys.stdin.buffer, path)
        return
    file = Path(path)
    try:
        if file.is_dir():
            raise unreadable(path, "it is a directory; give the log file.", code="NotAFile")
        with file.open("rb") as handle:
            yield from _lines(handle, path)
    except FileNotFoundError:
        raise unreadable(path, "there is no such file.", code="MissingFile") from None
    except OSError as error:
        raise unreadable(path, f"it cannot be read: {error.strerror}.") from None


def _lines(handle: BinaryIO, path: str) -> Iterator[str]:
    buffered = handle if isinstance(handle, io.BufferedReader) else io.BufferedReader(handle)  # type: ignore[arg-type]
    head = buffered.peek(4096)[:4096]
    if not head:
        raise unreadable(path, "the file is empty.", code="EmptyInput")
    if head.startswith((b"\x1f\x8b", b"PK\x03\x04", b"\xfd7zXZ", b"BZh", b"\x28\xb5\x2f\xfd")):
        raise unreadable(path, "it is a compressed file; unpack it first.", code="BinaryInput")
    encoding = "utf-8-sig"
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        encoding = "utf-16"
    elif head.count(0) > len(head) // 4 and min(head[0::2].count(0), head[1::2].count(0)) < len(head) // 16:
        encoding = "utf-16-le" if head[1::2].count(0) > head[0::2].count(0) else "utf-16-be"
    elif sum(byte < 9 or 13 < byte < 27 or 27 < byte < 32 for byte in head) * 50 > len(head):
        raise unreadable(path, "it is a binary file; a log of NCCL or RCCL was expected.", code="BinaryInput")
    text = io.TextIOWrapper(buffered, encoding=encoding, errors="replace", newline=None)
    try:
        while block := text.read(_BLOCK):
            # A line without end (no log) must not fill the memory; what is longer than a block is cut into pieces.
            if not block.endswith("\n"):
                block += text.readline(_BLOCK)
            if "\x1b" in block or "^[" in block or "\u241b" in block:
                block = strip_colours(block)
            lines = block.split("\n")
            if not lines[-1]:
                lines.pop()
            yield from lines
    finally:
        text.detach()

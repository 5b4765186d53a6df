"""Text as people paste it: bytes of any encoding to clean lines, without colours, quoting, fences or time stamps."""

from __future__ import annotations

import html
import re
from collections import Counter
from itertools import pairwise

from infra.errors import ConfigError, NumawiseError

# ESC as a byte, as `cat -v` writes it, or as the picture that some web pages show.
_ESCAPE = re.compile(
    "(?:\x1b|\u241b|\\^\\[)(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|[()#][0-9A-Za-z]|[=>78cDEHMNOZ])"
)
_LOST_ESCAPE = re.compile(r"\[(?:\d{1,3}(?:;\d{1,3})*)?m")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_INVISIBLE = re.compile("[\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff\u00ad]")
_BLANKS = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")
_DASHES = re.compile("[\u2010-\u2015\u2212\ufe58\ufe63\uff0d]")
_QUOTE = re.compile(r"^(?: {0,3}> ?)+")
_FENCE = re.compile(r"^\s*(?:```|~~~)[\w+-]*\s*$|^\s*</?(?:pre|code|details|summary)[^>]*>\s*$", re.IGNORECASE)
_TIMESTAMP = re.compile(r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)[ \t]")
_POD_PREFIX = re.compile(r"^\[pod/[^\]\s]+\] ")
_HOST_PREFIX = re.compile(r"^([A-Za-z][\w.-]{0,62}): ?(?=[\t ]|\S)")
_SERVICE = re.compile(r"^([\w.-]+) {0,20}\| ?")
_LINE_NUMBER = re.compile(r"^ {0,6}(\d{1,6})(?:\t|: ?|  ?\| ?)")
_TABLE_RULE = re.compile(r"^\|?[\s:|-]*-{2,}[\s:|-]*\|?$")


def unreadable(path: str, why: str, *, code: str = "UnreadableInput") -> NumawiseError:
    """The error for an input that is not what it has to be: one sentence with what is known of it."""
    return ConfigError.one(code, path, why)


def decode(raw: bytes, *, path: str) -> str:
    """Bytes to text: UTF-8, UTF-16 or UTF-32 (with or without BOM), else Windows-1252; ConfigError for what is no text."""
    if not raw.strip(b"\x00 \t\r\n"):
        raise unreadable(path, "the file is empty." if not raw else "the file holds blanks only.", code="EmptyInput")
    for bom, encoding in (
        (b"\xef\xbb\xbf", "utf-8-sig"),
        (b"\xff\xfe\x00\x00", "utf-32"),
        (b"\x00\x00\xfe\xff", "utf-32"),
        (b"\xff\xfe", "utf-16"),
        (b"\xfe\xff", "utf-16"),
    ):
        if raw.startswith(bom):
            return raw.decode(encoding, errors="replace")
    if raw.startswith((b"\x1f\x8b", b"PK\x03\x04", b"\xfd7zXZ", b"BZh", b"\x28\xb5\x2f\xfd")):
        raise unreadable(path, "it is a compressed file; unpack it first.", code="BinaryInput")
    sample = raw[:4096]
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    if max(even, odd) > len(sample) // 4 and min(even, odd) < len(sample) // 16:
        return raw.decode("utf-16-le" if odd > even else "utf-16-be", errors="replace")
    strange = sum(byte < 9 or 13 < byte < 27 or 27 < byte < 32 for byte in sample)
    if strange * 50 > len(sample):
        raise unreadable(
            path, f"it is a binary file of {len(raw)} bytes; the text output of a tool was expected.", code="BinaryInput"
        )
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        # A file cut by size ends within a character; that alone does not make the rest another encoding.
        text = raw.decode("utf-8", errors="replace")
        return text if text.count("\ufffd") <= 1 + len(text) // 2000 else raw.decode("cp1252", errors="replace")


def clean_lines(text: str) -> list[str]:
    """The lines of a pasted text as the tool printed them. Line numbers stay those of the input (dropped lines become empty)."""
    if "\n" not in text and "\r" not in text and text.count("\\n") >= 2:
        text = text.replace("\\r", "").replace("\\n", "\n").replace("\\t", "\t")
    lines = [_clean(line) for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
    if sum(line.endswith("$") for line in lines) >= max(2, 0.9 * sum(bool(line) for line in lines)):
        # `cat -A` ends each line with a dollar sign.
        lines = [line.removesuffix("$") for line in lines]
    return _without_host_prefix(_without_tables(_without_margin(lines)))


def _without_margin(lines: list[str]) -> list[str]:
    """Lines without what an editor, a diff or docker compose puts before each: a number, a sign, a service's name."""
    filled = [line for line in lines if line.strip()]
    if not filled or (len(filled) == 1 and '{"' not in filled[0]):
        return lines
    if all(line[0] == "+" for line in filled) and not any(line.startswith("+-") for line in filled):
        return [line[1:] for line in lines]
    services = {match[1] if (match := _SERVICE.match(line)) else None for line in filled}
    if None not in services and len(services) <= 8:
        return [_SERVICE.sub("", line) for line in lines]
    numbers = [int(match[1]) if (match := _LINE_NUMBER.match(line)) else -1 for line in filled]
    if numbers[0] >= 0 and all(0 < b - a < 10 for a, b in pairwise(numbers)):
        return [_LINE_NUMBER.sub("", line) for line in lines]
    return lines


def unwrapped(lines: list[str]) -> list[str] | None:
    """The lines as they were before a terminal broke them at its width; None where nothing looks broken.

    A broken line is exactly as long as the longest. Equally long rows of a table look so too: the reader of both decides.
    """
    width = max(map(len, lines), default=0)
    if width < 40 or not any(len(line) == width and follower for line, follower in pairwise(lines)):
        return None
    whole: list[str] = []
    broken = False
    for line in lines:
        if broken:
            whole[-1] += line
        else:
            whole.append(line)
        broken = len(line) == width
    return whole


def strip_colours(line: str) -> str:
    """One line without terminal escapes."""
    return _ESCAPE.sub("", line) if "\x1b" in line or "^[" in line or "\u241b" in line else line


def _clean(line: str) -> str:
    if "\x1b" in line or "^[" in line or "\u241b" in line:
        line = _ESCAPE.sub("", line)
    if "[" in line and "m" in line:
        line = _LOST_ESCAPE.sub("", line)
    if not line.isascii():
        line = _DASHES.sub("-", _BLANKS.sub(" ", _INVISIBLE.sub("", line)))
    if "&" in line and re.search(r"&(?:gt|lt|amp|nbsp|quot|#\d+);", line):
        line = html.unescape(line).replace("\u00a0", " ")
    line = _CONTROL.sub("", line)
    if "^I" in line:
        line = line.replace("^I", "\t")
    if ">" in line[:8]:
        line = _QUOTE.sub("", line)
    if _FENCE.match(line):
        return ""
    if line[:1] == "[":
        line = _POD_PREFIX.sub("", line)
    if line[:2] == "20":
        line = _TIMESTAMP.sub("", line)
    return line.rstrip("\n")


def _without_tables(lines: list[str]) -> list[str]:
    """Markdown table rows as tab-separated cells."""

    def unframe(line: str) -> str:
        bare = line.strip()
        if len(bare) < 5 or bare[0] != "|" or bare[-1] != "|" or bare.count("|") < 3:
            return line
        if _TABLE_RULE.match(bare):
            return ""
        return "\t".join(cell.strip() for cell in bare[1:-1].split("|"))

    return [unframe(line) if "|" in line else line for line in lines]


def _without_host_prefix(lines: list[str]) -> list[str]:
    """Lines of pdsh, clush or ansible (`node-a: ...` before each line) as one host's block after the other.

    Each block begins with a line `# host: NAME`, so that the reader of several machines knows them apart.
    """
    filled = [line for line in lines if line.strip()]
    prefixes = Counter(match[1] for line in filled if (match := _HOST_PREFIX.match(line)))
    hosts = [name for name, count in prefixes.items() if count >= 3 or any(line.startswith(f'{name}: {{"') for line in filled)]
    if not hosts or sum(prefixes[name] for name in hosts) < 0.9 * len(filled):
        return lines
    blocks: dict[str, list[str]] = {name: [f"# host: {name}"] for name in hosts}
    for line in filled:
        match = _HOST_PREFIX.match(line)
        if match and match[1] in blocks:
            blocks[match[1]].append(line[len(match[1]) + 1 :].removeprefix(" "))
    return [line for block in blocks.values() for line in block]

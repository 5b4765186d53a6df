"""Damages a tool's output as copying, terminals and people do. Each mutation is a function of (random, text) -> text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

NOISE = (
    "",
    "$ ",
    "root@node-a:~# ",
    "Connection to node-a closed.",
    "W1129 10:00:00.000000 1 warnings.go:70] noise",
    "GPU",
    "GPU0",
    "\t\t\t",
    "NV18 NV18",
    "0-55,112-167\t0\t\tN/A",
    "---",
    "| a | b |",
    "Legend:",
    "node",
    "node 0",
    "NUMA",
    "{",
    "}",
    "[",
    "\x00\x01\x02",
    "日本語",
    "%s %d {0} \\n",
)

Mutation = Callable[[Random, str], str]


def cut_end(random: Random, text: str) -> str:
    return text[: random.randrange(len(text) + 1)]


def cut_start(random: Random, text: str) -> str:
    return text[random.randrange(len(text) + 1) :]


def cut_right(random: Random, text: str) -> str:
    """Each line ends at one column, as in a narrow screenshot."""
    width = random.randrange(4, 160)
    return "\n".join(line[:width] for line in text.split("\n"))


def drop_lines(random: Random, text: str) -> str:
    share = random.choice((0.05, 0.2, 0.5))
    return "\n".join(line for line in text.split("\n") if random.random() > share)


def double_lines(random: Random, text: str) -> str:
    lines = text.split("\n")
    for _ in range(random.randrange(1, 6)):
        lines.insert(random.randrange(len(lines) + 1), random.choice(lines))
    return "\n".join(lines)


def double_all(random: Random, text: str) -> str:
    return text + random.choice(("", "\n", "\n\n$ again\n")) + text


def shuffle_lines(random: Random, text: str) -> str:
    lines = text.split("\n")
    random.shuffle(lines)
    return "\n".join(lines)


def swap_lines(random: Random, text: str) -> str:
    lines = text.split("\n")
    i, j = random.randrange(len(lines)), random.randrange(len(lines))
    lines[i], lines[j] = lines[j], lines[i]
    return "\n".join(lines)


def noise_lines(random: Random, text: str) -> str:
    lines = text.split("\n")
    for _ in range(random.randrange(1, 8)):
        lines.insert(random.randrange(len(lines) + 1), random.choice(NOISE))
    return "\n".join(lines)


def wrap(random: Random, text: str) -> str:
    width = random.choice((72, 80, 100, 120, 132))
    return "\n".join(line[i : i + width] for line in text.split("\n") for i in range(0, max(len(line), 1), width))


def wrap_expanded(random: Random, text: str) -> str:
    """What a terminal of that width shows: tabs are blanks, and long lines go on in the next."""
    return wrap(random, text.expandtabs(8))


def expand_tabs(random: Random, text: str) -> str:
    return text.expandtabs(8)


def squeeze_blanks(random: Random, text: str) -> str:
    return re.sub(r"[ \t]+", " ", text)


def strip_lines(random: Random, text: str) -> str:
    return "\n".join(line.strip() for line in text.split("\n"))


def quote(random: Random, text: str) -> str:
    mark = random.choice(("> ", "> > ", "    ", "```\n", ""))
    return "\n".join(mark + line if "`" not in mark else line for line in text.split("\n"))


def colour(random: Random, text: str) -> str:
    return "\n".join(
        f"\x1b[{random.randrange(1, 48)}m{line}\x1b[0m" if random.random() < 0.3 else line for line in text.split("\n")
    )


def carriage_returns(random: Random, text: str) -> str:
    return text.replace("\n", "\r\n")


WHOLE_LINES: tuple[Mutation, ...] = (
    cut_end,
    cut_start,
    cut_right,
    drop_lines,
    double_lines,
    double_all,
    shuffle_lines,
    swap_lines,
    noise_lines,
    wrap,
    wrap_expanded,
    expand_tabs,
    squeeze_blanks,
    strip_lines,
    quote,
    colour,
    carriage_returns,
)


def delete_characters(random: Random, text: str) -> str:
    for _ in range(random.randrange(1, 4)):
        i = random.randrange(max(len(text), 1))
        text = text[:i] + text[i + random.randrange(1, 4) :]
    return text


def insert_characters(random: Random, text: str) -> str:
    for _ in range(random.randrange(1, 4)):
        i = random.randrange(len(text) + 1)
        text = text[:i] + random.choice("0129XNVS-,:\t \n{}[]\"'\x1b\x00\u2013é") + text[i:]
    return text


def replace_characters(random: Random, text: str) -> str:
    for _ in range(random.randrange(1, 4)):
        i = random.randrange(max(len(text), 1))
        text = text[:i] + random.choice('0129XNVS-,:\t {}"') + text[i + 1 :]
    return text


def lose_tabs(random: Random, text: str) -> str:
    share = random.choice((0.02, 0.1, 0.5))
    return "".join("" if c == "\t" and random.random() < share else c for c in text)


def delete_cell(random: Random, text: str) -> str:
    cells = list(re.finditer(r"\S+\s?", text))
    if not cells:
        return text
    cell = random.choice(cells)
    return text[: cell.start()] + text[cell.end() :]


def double_cell(random: Random, text: str) -> str:
    cells = list(re.finditer(r"\S+\s?", text))
    if not cells:
        return text
    cell = random.choice(cells)
    return text[: cell.end()] + cell[0] + text[cell.end() :]


def swap_cells(random: Random, text: str) -> str:
    cells = list(re.finditer(r"\S+", text))
    if len(cells) < 2:
        return text
    a, b = sorted(random.sample(cells, 2), key=lambda cell: cell.start())
    return text[: a.start()] + b[0] + text[a.end() : b.start()] + a[0] + text[b.end() :]


INSIDE_LINES: tuple[Mutation, ...] = (
    delete_characters,
    insert_characters,
    replace_characters,
    lose_tabs,
    delete_cell,
    double_cell,
    swap_cells,
)


def mix(random: Random, text: str, other: str) -> str:
    """Two outputs in one file: one after the other, one inside the other, or their lines by turns."""
    one, two = text.split("\n"), other.split("\n")
    way = random.randrange(3)
    if way == 0:
        return text + "\n" + other
    if way == 1:
        at = random.randrange(len(one) + 1)
        return "\n".join([*one[:at], *two, *one[at:]])
    lines: list[str] = []
    while one or two:
        source = one if one and (not two or random.random() < 0.5) else two
        lines.append(source.pop(0))
    return "\n".join(lines)


def damage(random: Random, text: str, others: Sequence[str]) -> tuple[str, bool]:
    """A damaged text, and whether its lines' insides are as they were (so that a link, if read at all, must be the true one)."""
    whole = True
    if others and random.random() < 0.2:
        text = mix(random, text, random.choice(others))
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        inside = random.random() < 0.4
        text = random.choice(INSIDE_LINES if inside else WHOLE_LINES)(random, text)
        whole = whole and not inside
    return text, whole

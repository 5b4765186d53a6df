"""The text of an agent, as it is shipped in a ConfigMap: one file, whatever it shares with the rest of the program."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_SHARED = re.compile(r"^from infra\.agents\.(\w+) import .*\n", re.MULTILINE)
_PREAMBLE = re.compile(r'\A""".*?"""\n+from __future__ import annotations\n+', re.DOTALL)


@cache
def source_of(agent: str) -> str:
    """`agent`: the module's name in this folder. What it imports from here stands in place of the import."""
    return _SHARED.sub(lambda line: _PREAMBLE.sub("", _text(line[1])).rstrip() + "\n", _text(agent))


def _text(module: str) -> str:
    return Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8")

"""The engine's copy of a stack file: the tracked file is read, never written.

The engine appends `encryptionsalt` to the file that it creates a stack with. So it gets a copy in the state folder, made anew from
the tracked file before each command; the salt that the engine chose is carried over.
"""

from __future__ import annotations

import re
from pathlib import Path

from tools.engine.workspace import CHECKOUT, Workspace

_ENCRYPTION = re.compile(r"^(?:encryptionsalt|secretsprovider|encryptedkey):.*\n?", re.MULTILINE)


def copy_stack_file(workspace: Workspace) -> Path:
    """Writes the copy and returns it."""
    text = workspace.stack_file.read_text(encoding="utf-8")
    text = at_state(text, workspace.state)
    if not text.endswith("\n"):
        text += "\n"
    copy = workspace.config_file
    if not _ENCRYPTION.search(text) and copy.exists():
        text += "".join(
            line if line.endswith("\n") else line + "\n" for line in _ENCRYPTION.findall(copy.read_text(encoding="utf-8"))
        )
    half = copy.with_suffix(".half")
    half.write_text(text, encoding="utf-8")
    half.replace(copy)
    return copy


def at_state(text: str, state: Path) -> str:
    """The stack file's text with the embedded cluster's files looked for in `state` instead of the checkout's .state."""
    if state == CHECKOUT / ".state":
        return text
    return re.sub(r"(?<![\w/.-])\.state/cluster/", f"{state}/cluster/", text)

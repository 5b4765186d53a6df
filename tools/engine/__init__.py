"""The real Pulumi engine with the pinned programs: a backend, a home and a passphrase in the state folder.

from tools.engine import Engine, Workspace
Engine(Workspace.of(stack="local")).up()
"""

from __future__ import annotations

from tools.engine.engine import Engine
from tools.engine.workspace import Workspace

__all__ = ["Engine", "Workspace"]

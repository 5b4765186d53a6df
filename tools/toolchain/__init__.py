"""The pinned programs of the embedded cluster and the real engine: found, fetched or built once a user, kept by version.

    from tools.toolchain import binary, paths
    binary("etcd")                  # Path of the program; made first where it is missing
    paths(["etcd", "kubectl"])      # {name: Path}

Standard library only: it runs before anything is installed.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tools.toolchain.ensure import Found, Toolchain, toolchain
from tools.toolchain.errors import ToolchainError

__all__ = ["Found", "Toolchain", "ToolchainError", "binary", "paths", "toolchain"]


def binary(name: str) -> Path:
    """The program of that name (`etcd`, `simnode`, `pulumi`, ...), made first where it is missing. Raises ToolchainError."""
    return paths([name])[name]


def paths(names: Iterable[str] | None = None) -> dict[str, Path]:
    """The programs of these names (default: all) by name, made first where they are missing. Raises ToolchainError."""
    return {name: found.file for name, found in toolchain().ensure(names).items()}

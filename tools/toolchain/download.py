"""Official releases: fetched, checked against the pinned or the release's own SHA-256, unpacked."""

from __future__ import annotations

import hashlib
import re
import shutil
import tarfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from tools.toolchain.errors import ToolchainError
from tools.toolchain.pins import Download, Part

TIMEOUT_SECONDS = 15.0


class Unavailable(Exception):
    """The release cannot be had from here (no network, no such file); the next source is tried. The text says why."""


class Downloader:
    """Fetches releases. A host that did not answer is not asked again in this run."""

    def __init__(self) -> None:
        self._silent: dict[str, str] = {}

    def fetch(self, part: Part, download: Download, words: Mapping[str, str], folder: Path) -> str:
        """Puts the part's files into `folder` and returns where they came from."""
        filled = {**words, "version": part.version}
        url = download.url.format(**filled)
        wanted, witness = self._wanted_sha256(part, download, filled, url)
        archive = folder / ".download"
        got = self._save(url, archive)
        if got != wanted:
            archive.unlink()
            message = (
                f"{url} has SHA-256 {got}, but {witness} says {wanted}; nothing of it was kept. Try again, or leave downloads out with "
                "NUMAWISE_TOOLCHAIN_SOURCES=path,wheel,build."
            )
            raise ToolchainError("ChecksumMismatch", part.name, message)
        if url.endswith((".tar.gz", ".tgz")):
            _unpack(part, archive, download.folder.format(**filled), folder, url)
        else:
            archive.rename(folder / part.files[0])
        return f"{url} (SHA-256 as {witness} says)"

    def _wanted_sha256(self, part: Part, download: Download, filled: Mapping[str, str], url: str) -> tuple[str, str]:
        if download.sha256 and filled["arch"] in download.sha256:
            return download.sha256[filled["arch"]].lower(), "the pin"
        address = download.checksums.format(**filled)
        if not address:
            raise Unavailable(f"{url} has no checksum to hold it against")
        text = self._open(address).read().decode("utf-8", "replace")
        name = url.rsplit("/", 1)[-1]
        for line in text.splitlines():
            words = line.split()
            named = len(words) == 2 and words[1].lstrip("*") in (name, f"./{name}")
            if (named or len(words) == 1) and re.fullmatch(r"[0-9a-fA-F]{64}", words[0]):
                return words[0].lower(), address
        raise ToolchainError(
            "ChecksumMissing",
            part.name,
            f"{address} holds no SHA-256 of {name}; leave downloads out with NUMAWISE_TOOLCHAIN_SOURCES=path,wheel,build.",
        )

    def _save(self, url: str, file: Path) -> str:
        digest = hashlib.sha256()
        try:
            with self._open(url) as answer, file.open("wb") as out:
                while chunk := answer.read(1 << 20):
                    digest.update(chunk)
                    out.write(chunk)
        except (TimeoutError, ConnectionError, urllib.error.URLError) as error:
            raise Unavailable(f"{url} broke off ({error})") from None
        return digest.hexdigest()

    def _open(self, url: str):
        host = urllib.parse.urlsplit(url).netloc
        if host in self._silent:
            raise Unavailable(self._silent[host])
        try:
            return urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS)
        except urllib.error.HTTPError as error:
            raise Unavailable(f"{url} answers {error.code}") from None
        except (OSError, urllib.error.URLError) as error:
            reason = getattr(error, "reason", error)
            self._silent[host] = f"{host or url} is not reachable ({reason})"
            raise Unavailable(self._silent[host]) from None


def _unpack(part: Part, archive: Path, inside: str, folder: Path, url: str) -> None:
    missing = set(part.files)
    with tarfile.open(archive, "r:gz") as members:
        for member in members:
            name = member.name.removeprefix("./")
            for file in part.files:
                if member.isfile() and name == (f"{inside}/{file}" if inside else file):
                    stream = members.extractfile(member)
                    assert stream is not None
                    with stream, (folder / file).open("wb") as out:
                        shutil.copyfileobj(stream, out)
                    missing.discard(file)
    archive.unlink()
    if missing:
        raise Unavailable(f"{url} does not hold {', '.join(sorted(missing))}")

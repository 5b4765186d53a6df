"""What each release of vLLM takes: flags of `vllm serve` and environment variables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from pydantic import Field

from infra.catalog.entries import DATA, Fact, document_of
from infra.catalog.reading import read_whole
from infra.config.base import Texts
from infra.diagnosis import shown
from infra.errors import ConfigError

Version = tuple[int, int, int, int]

# 0.33.0, v0.10.1.1, 0.8.5.post1, 0.14.0rc2.dev348, 0.16.1.dev0+g89a77b108
_VERSION = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?(?:\.(\d{1,4}))?(?:[.+_-]?[A-Za-z][A-Za-z0-9.+_-]*)?", re.ASCII)


def version_key(version: str) -> Version:
    """The numbers of a vLLM version, as many as four; of a pre-release, a post-release or a build those of its release. ConfigError where it is none."""
    match = _VERSION.fullmatch(version.strip())
    if match is None:
        raise ConfigError.one("InvalidValue", "vllmVersion", f"{shown(version)} is no vLLM version; write it like 0.33.0.")
    first, second, third, fourth = (int(number) for number in match.groups(default="0"))
    return first, second, third, fourth


class NameSpan(Fact):
    """Names that the releases from `since` to `until` know; without `until`, also the newest."""

    since: str
    until: str | None = None
    names: Texts = Field(min_length=1)


class FlagTable(Fact):
    """vllm_flags.yaml."""

    releases: Texts = Field(min_length=1)
    flags: tuple[NameSpan, ...] = Field(strict=False)
    without_negation: tuple[NameSpan, ...] = Field(strict=False)
    replaced: dict[str, str]


class VariableTable(Fact):
    """vllm_variables.yaml."""

    variables: tuple[NameSpan, ...] = Field(strict=False)


@dataclass(frozen=True, kw_only=True)
class Spans:
    """From which release to which a name is known; `newest` is the last release there is."""

    rows: Mapping[str, tuple[tuple[Version, Version], ...]]
    texts: Mapping[str, str]

    def at(self, version: Version) -> frozenset[str]:
        return frozenset(name for name, spans in self.rows.items() if any(since <= version <= until for since, until in spans))

    def of(self, name: str) -> str:
        """`0.18.0 to 0.33.0`; empty for a name that no release knows."""
        return self.texts.get(name, "")


@dataclass(frozen=True, kw_only=True)
class EngineRelease:
    """One release: `flags` without dashes, those of them that take no --no- form, and the environment variables that it reads."""

    version: str
    flags: frozenset[str]
    without_negation: frozenset[str]
    variables: frozenset[str]


def known_releases() -> tuple[str, ...]:
    """Releases whose flags and variables are known, oldest first."""
    return _flag_table().releases


def replaced_flags() -> Mapping[str, str]:
    """Flags that are gone or circulate, and what to write instead; "" where there is nothing to write."""
    return _flag_table().replaced


def is_known(version: str) -> bool:
    """True between the oldest and the newest release that is known; builds between two releases are taken for the earlier."""
    releases = known_releases()
    return version_key(releases[0]) <= version_key(version) <= version_key(releases[-1])


@cache
def engine_release(version: str) -> EngineRelease:
    """What this version takes. A version of which nothing is known is the nearest one that is."""
    releases = known_releases()
    key = max(version_key(version), version_key(releases[0]))
    nearest = next(known for known in reversed(releases) if version_key(known) <= key)
    at = version_key(nearest)
    return EngineRelease(
        version=version.strip().removeprefix("v"),
        flags=flag_spans().at(at),
        without_negation=_spans(_flag_table().without_negation).at(at),
        variables=variable_spans().at(at),
    )


@cache
def flag_spans() -> Spans:
    return _spans(_flag_table().flags)


@cache
def variable_spans() -> Spans:
    path = DATA / "vllm_variables.yaml"
    return _spans(read_whole(VariableTable, document_of(path), path.name).variables)


@cache
def _flag_table() -> FlagTable:
    path = DATA / "vllm_flags.yaml"
    return read_whole(FlagTable, document_of(path), path.name)


def _spans(table: Iterable[NameSpan]) -> Spans:
    newest = known_releases()[-1]
    rows: dict[str, list[tuple[Version, Version]]] = {}
    texts: dict[str, list[str]] = {}
    for span in table:
        until = span.until or newest
        for name in span.names:
            rows.setdefault(name, []).append((version_key(span.since), version_key(until)))
            texts.setdefault(name, []).append(f"{span.since} to {until}")
    return Spans(
        rows={name: tuple(spans) for name, spans in rows.items()},
        texts={name: " and ".join(spans) for name, spans in texts.items()},
    )

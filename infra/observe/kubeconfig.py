"""A kubeconfig file as a cluster and a user: read as kubectl reads it, with a sentence for what it lacks."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from infra.errors import MissingError


@dataclass(frozen=True, kw_only=True)
class Kubeconfig:
    """One context of a kubeconfig: its cluster and user sections. `folder` is what relative paths in them start from."""

    context: str
    cluster: Mapping[str, Any]
    user: Mapping[str, Any]
    folder: Path
    source: str  # the file or the output, for messages


def read_kubeconfig(path: Path, context: str | None) -> Kubeconfig:
    """The context of the file, or its current one. MissingError where there is no such file or context."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise MissingError.one(
            "NoKubeconfig",
            "connection.kubeconfig",
            f"there is no file {path}; give the path of your cluster's kubeconfig (for stack local, run `make up`)",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise MissingError.one("KubeconfigUnreadable", "connection.kubeconfig", f"{path} cannot be read: {error}") from None
    return parse_kubeconfig(text, context, folder=path.parent, source=str(path))


def parse_kubeconfig(content: Any, context: str | None, *, folder: Path, source: str) -> Kubeconfig:
    """From text (YAML, JSON, or a JSON string that holds either, as `pulumi stack output --json` prints one) or from the document itself."""
    document = content
    for _ in range(2):
        if not isinstance(document, str):
            break
        try:
            document = yaml.load(document, Loader=yaml.CSafeLoader)
        except yaml.YAMLError as error:
            # The text may hold secrets: only the place of the error is told.
            place = getattr(error, "problem_mark", None)
            at = f" in line {place.line + 1}" if place is not None else ""
            message = f"{source} cannot be read: it is no YAML{at}; compare it with `kubectl config view`"
            raise MissingError.one("KubeconfigUnreadable", "connection.kubeconfig", message) from None
    if not isinstance(document, Mapping):
        raise MissingError.one(
            "KubeconfigUnreadable",
            "connection.kubeconfig",
            f"{source} is no kubeconfig; it has to be what `kubectl config view --raw` prints",
        )
    with as_kubectl_writes_it(source):
        return _chosen(document, context, folder, source)


def _chosen(document: Mapping[str, Any], context: str | None, folder: Path, source: str) -> Kubeconfig:
    name = context or document.get("current-context")
    if not name:
        raise MissingError.one(
            "NoContext",
            "connection.context",
            f"is not given, and {source} has no current-context; contexts: {_names(document, 'contexts')}",
        )
    chosen = _named(document, "contexts", name, "context", source)
    cluster = _named(document, "clusters", chosen.get("cluster", ""), "cluster", source)
    user = _named(document, "users", chosen.get("user", ""), "user", source) if chosen.get("user") else {}
    return Kubeconfig(context=name, cluster=cluster, user=user, folder=folder, source=source)


@contextmanager
def as_kubectl_writes_it(source: str) -> Iterator[None]:
    """Values of a wrong type or form become a sentence. They may be secrets: only the kind of the error is told."""
    try:
        yield
    except (TypeError, ValueError, AttributeError, KeyError, OSError) as error:
        message = f"{source} is not as kubectl writes it ({type(error).__name__}); compare it with `kubectl config view`"
        raise MissingError.one("KubeconfigUnreadable", "connection.kubeconfig", message) from None


def file_of(name: str, folder: Path) -> Path:
    """A path of a kubeconfig: relative ones start from its folder."""
    return folder / Path(name).expanduser()


def inline_or_file(section: Mapping[str, Any], key: str, folder: Path) -> bytes | None:
    """`key`-data (base64), or what the file `key` holds now."""
    if section.get(f"{key}-data"):
        return base64.b64decode(section[f"{key}-data"])
    if section.get(key):
        return file_of(section[key], folder).read_bytes()
    return None


def _names(document: Mapping[str, Any], kind: str) -> str:
    return ", ".join(entry.get("name", "?") for entry in document.get(kind) or ()) or "none"


def _named(document: Mapping[str, Any], kind: str, name: str, key: str, source: str) -> Mapping[str, Any]:
    for entry in document.get(kind) or ():
        if entry.get("name") == name:
            return entry.get(key) or {}
    raise MissingError.one("NoContext", "connection.context", f"{source} has no {key} {name!r}; it has: {_names(document, kind)}")

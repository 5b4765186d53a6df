"""Manifests as files: one YAML file an object, in apply order by name; only files of our own are replaced or removed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from infra.errors import ConfigError
from infra.kinds import key_of, kind_of
from infra.plan.model import ClusterPlan
from infra.render.manifest import Manifest
from infra.render.names import kubelet_drop_in as kubelet_drop_in_name
from infra.render.nodes import kubelet_drop_in, label_commands
from infra.render.part import Part
from infra.render.parts import manifests_of, stack_parts
from infra.render.serving.model import secret_commands

INDEX = ".numawise-files"
"""Lists the files that we wrote, with their hashes: by it a later run knows what is its own. JSON, but not by name: `kubectl apply -f DIR`
takes every .json file for an object."""


class _Dumper(yaml.SafeDumper):
    """Plain YAML: no anchors, and text of several lines as a block."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


# Other YAML readers take 12e4567 or 0o17 for numbers where PyYAML does not.
_LIKE_A_NUMBER = re.compile(r"[-+.]?\d[\dA-Fa-fxXoO_.+-]*\Z")


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else "'" if _LIKE_A_NUMBER.match(value) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def as_yaml(manifest: Manifest) -> str:
    return yaml.dump(manifest, Dumper=_Dumper, sort_keys=False, default_flow_style=False, width=120)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    changed: int
    removed: tuple[str, ...]


def rendered_files(plan: ClusterPlan, *, stack: str, secrets: Iterable[str] = ()) -> dict[str, str]:
    """File name -> content, sorted by name."""
    keys = tuple(secrets)
    files = {"node-labels.txt": label_commands(plan)}
    if keys and plan.models:
        files["secrets.txt"] = secret_commands(plan, keys)
    for pool in plan.node_pools:
        files[f"kubelet/{kubelet_drop_in_name(pool)}"] = kubelet_drop_in(pool)
    depths: dict[str, int] = {}
    for part in stack_parts(plan, stack=stack, secrets=keys):
        depth = depths[part.key] = 1 + max((depths[key] for key in part.after), default=0)
        files |= _numbered(depth, part)
    return dict(sorted(files.items()))


def _numbered(depth: int, part: Part) -> dict[str, str]:
    """Parts come after those that they name, and within a part the kind's order tells: accounts and ConfigMaps before what uses them."""
    files = {}
    for manifest in manifests_of((part,)):
        key = key_of(manifest)
        words = [f"{depth}{kind_of(manifest).order}", key.namespace, key.kind.lower(), key.name]
        files["-".join(filter(None, words)) + ".yaml"] = as_yaml(manifest)
    return files


def write_files(files: Mapping[str, str], folder: Path) -> Outcome:
    """Writes what changed and removes what an earlier run wrote and nobody edited since; ConfigError before anything is overwritten."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError.one("NotAFolder", "--out", f"{folder} is a file; name a folder")
    before = _index(folder)
    foreign = sorted(
        name for name in files if name not in before and (folder / name).exists() and _hash(folder / name) != _digest(files[name])
    )
    if foreign:
        raise ConfigError.one(
            "ForeignFiles",
            "--out",
            f"{folder} holds {', '.join(foreign[:3])}{' and others' if len(foreign) > 3 else ''}, which render did not write; "
            "choose another folder, or move these files away",
        )
    changed = 0
    try:
        for name, content in files.items():
            path = folder / name
            if _hash(path) != _digest(content):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content, encoding="utf-8")
                changed += 1
        stale = tuple(sorted(name for name, digest in before.items() if name not in files and _hash(folder / name) == digest))
        for name in stale:
            (folder / name).unlink()
        folder.mkdir(parents=True, exist_ok=True)
        index = json.dumps({name: _digest(content) for name, content in files.items()}, indent=1, sort_keys=True) + "\n"
        (folder / INDEX).write_text(index, encoding="utf-8")
    except OSError as error:
        raise ConfigError.one(
            "FolderUnwritable", "--out", f"{error.filename or folder} cannot be written: {error.strerror}"
        ) from None
    return Outcome(changed=changed, removed=stale)


def _index(folder: Path) -> dict[str, str]:
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    inside = isinstance(index, dict)
    # A name that leads out of the folder was not written by us.
    return (
        {n: d for n, d in index.items() if isinstance(d, str) and not Path(n).is_absolute() and ".." not in Path(n).parts}
        if inside
        else {}
    )


def _digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


def _hash(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None

"""Check Kubernetes objects (files of `python -m infra render`, or any manifests) against the rules.

examples:
  python -m infra render -s local --out rendered && python -m policy rendered
  python -m policy deployment.yaml --format json

Exit status: 0 no breach, 1 breaches, 2 a file that is no manifest.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from infra.diagnosis import Diagnosis
from infra.report.document import json_text
from policy.rules import RULES, breaches

_SUFFIXES = (".yaml", ".yml")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m policy", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", metavar="PATH", nargs="+", type=Path, help="a manifest, or a folder of them")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    args = parser.parse_args(argv)
    try:
        objects = [found for path in args.paths for found in _objects(path)]
        found = sorted(breach for name, kind, manifest in objects for breach in _checked(name, kind, manifest))
    except ValueError as error:
        if args.format == "json":
            print(json_text({"errors": [{"code": "NoManifest", "path": "", "message": str(error)}]}))
        else:
            print(f"error: {error}", file=sys.stderr)
        return 2
    if args.format == "json":
        print(
            json_text(
                {
                    "objects": len(objects),
                    "breaches": [{"resource": breach.path, "rule": breach.code, "message": breach.message} for breach in found],
                }
            )
        )
    else:
        for breach in found:
            print(f"{breach.path}: {breach.message} ({breach.code})")
        print(f"{len(objects)} objects, {len(RULES)} rules, {len(found)} breach{'' if len(found) == 1 else 'es'}")
    return 1 if found else 0


def _checked(name: str, kind: str, manifest: dict[str, Any]) -> tuple[Diagnosis, ...]:
    try:
        return breaches(name, kind, manifest)
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"{name} is not of the form that Kubernetes takes: {error}") from None


def _objects(path: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(name, Pulumi type token, manifest) of every object, those in a List too; ValueError in one sentence."""
    files = sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES) if path.is_dir() else [path]
    if not files:
        raise ValueError(f"{path} holds no {' or '.join(_SUFFIXES)} file")
    for file in files:
        for document in _documents(file):
            if document is not None:
                yield from _unlisted(document, str(file))


def _documents(file: Path) -> list[Any]:
    try:
        return list(yaml.load_all(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader))
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise ValueError(f"{file}{line} is no YAML: {getattr(error, 'problem', error)}") from None


def _unlisted(document: Any, where: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """An object, or those of a List (as `kubectl get -o yaml` prints several) one by one."""
    kind = document.get("kind") if isinstance(document, dict) else None
    if isinstance(kind, str) and kind.endswith("List") and "items" in document:
        items = document["items"] or []
        if not isinstance(items, list):
            raise ValueError(f"{where} is a {kind} whose items are no list")
        for index, item in enumerate(items):
            yield from _unlisted(item, f"{where}: items[{index}]")
        return
    if not isinstance(kind, str) or not isinstance(document.get("metadata"), dict):
        raise ValueError(f"{where} is no Kubernetes object: it has no kind and metadata")
    metadata = document["metadata"]
    name = "/".join(filter(None, (kind, metadata.get("namespace", ""), metadata.get("name", ""))))
    yield name, f"kubernetes:{document.get('apiVersion', '')}:{kind}", document


if __name__ == "__main__":
    sys.exit(main())

"""Models whose config.json was fetched from the hub: files of the checkout, so that a plan is the same on every machine and needs no network."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.catalog.types import Model
from infra.errors import ConfigError

# Beside the stack files, by the hub's own names: stacks/models/ORGANIZATION/MODEL.json.
FOLDER = Path("stacks") / "models"
_REPOSITORY = re.compile(r"(?!.*(?:--|\.\.))[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")


def is_repository(name: str) -> bool:
    """Whether a name is one of the hub's: ORGANIZATION/MODEL, without `..` or `--`."""
    return _REPOSITORY.fullmatch(name) is not None


def file_of(name: str, folder: Path = FOLDER) -> Path:
    """Where the fetched config.json of a repository lies."""
    organization, _, model = name.partition("/")
    return folder / organization / f"{model}.json"


def fetched_model(name: str, folder: Path = FOLDER) -> Model | None:
    """The model of a repository that was fetched; None where there is no file. ConfigError where the file is not what was written."""
    if not is_repository(name):
        return None
    file = file_of(name, folder)
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        config = document["config"]
        revision = str(document["revision"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError.one(
            "NoHubModel", str(file), f"is no file that --from-hub wrote ({error}); delete it, and fetch it again."
        ) from None
    if not isinstance(config, Mapping):
        raise ConfigError.one(
            "NoHubModel", f"{file}.config", "is no map of config.json's fields; delete the file, and fetch it again."
        )
    return Model(id=name, config=dict(config), confidence="high", note=f"config.json of revision {revision} on the hub")


def keep_model(name: str, revision: str, config: Mapping[str, Any], folder: Path = FOLDER) -> Path:
    """Writes the file of a repository, whole or not at all."""
    file = file_of(name, folder)
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"repository": name, "revision": revision, "config": config}, indent=1, sort_keys=True, ensure_ascii=False)
    scratch = file.with_suffix(".tmp")
    scratch.write_text(text + "\n", encoding="utf-8")
    scratch.replace(file)
    return file

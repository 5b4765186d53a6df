"""The option --from-hub: models that the catalog does not know are looked up on the hub once, and kept beside the stack files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infra.config.cluster import StackConfig

HELP = (
    "take the config.json of models that the catalog does not know from huggingface.co (HF_ENDPOINT, HF_TOKEN), once: it is kept in stacks/models, "
    "where plan, render, preview and up find it without a network"
)


def add_from_hub(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--from-hub", action="store_true", help=HELP)


def fetch_models_of(config: StackConfig) -> None:
    """Fetches what the models of a stack lack."""
    fetch_missing(
        (model.model, f"models[{index}].model")
        for index, model in enumerate(config.models)
        if model.model is not None and model.model_config_json is None
    )


def fetch_missing(names: Iterable[tuple[str, str]]) -> None:
    """Fetches each (name, path) that is neither in the catalog under its own name nor fetched already; NumawiseError with all that fails."""
    from infra.catalog.hub_models import keep_model
    from infra.catalog.names import is_known_model
    from infra.diagnosis import Diagnosis
    from infra.errors import ConfigError, MissingError
    from infra.hub import fetch_config

    problems: list[Diagnosis] = []
    unreachable = False
    for name, path in dict(names).items():
        if is_known_model(name):
            continue
        try:
            found = fetch_config(name, path=path)
        except ConfigError as error:
            problems += error.problems
        except MissingError as error:
            problems += error.problems
            unreachable = True
        else:
            file = keep_model(found.repository, found.revision, found.config)
            print(f"{path}: config.json of {name} at revision {found.revision} is now {file}; commit it.", file=sys.stderr)
    if problems:
        raise (MissingError if unreachable else ConfigError)(problems)

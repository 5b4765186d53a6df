"""Reads a model's config.json from the Hugging Face hub. The only part of the command line that uses a network besides the cluster's."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.catalog.hub_models import is_repository
from infra.errors import ConfigError, MissingError

_LARGEST_BYTES = 16 * 2**20
_SECONDS = 30


@dataclass(frozen=True, kw_only=True)
class HubConfig:
    """`revision`: the commit that the file is of, where the hub says it; `config`: its content."""

    repository: str
    revision: str
    config: Mapping[str, Any]


def fetch_config(repository: str, *, path: str, revision: str = "main", environ: Mapping[str, str] = os.environ) -> HubConfig:
    """config.json of a repository, with modelopt's hf_quant_config.json where config.json does not tell the quantisation.

    HF_ENDPOINT names another hub than https://huggingface.co, HF_TOKEN opens gated repositories (both as the hub's own tools read them).
    `path` is where the name stands in the input. ConfigError: no such name or repository; MissingError: the hub cannot be reached.
    """
    if not is_repository(repository):
        raise ConfigError.one(
            "NoHubName",
            path,
            f"{repository!r} is no name on the hub; write ORGANIZATION/MODEL (Qwen/Qwen3-8B) to take its config.json from there.",
        )
    hub = _Hub(endpoint=(environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/"), token=environ.get("HF_TOKEN") or "")
    found = hub.get(repository, revision, "config.json", path)
    if found is None:
        raise ConfigError.one(
            "NotOnHub",
            path,
            f"{hub.endpoint} has no {repository} with a config.json; check the name, or give the fields as modelConfig.",
        )
    config, commit = found
    if "quantization_config" not in config:
        beside = hub.get(repository, commit or revision, "hf_quant_config.json", path)
        if beside is not None:
            config = {**config, "quantization_config": {"quant_method": "modelopt", **beside[0]}}
    return HubConfig(repository=repository, revision=commit or revision, config=config)


@dataclass(frozen=True, kw_only=True)
class _Hub:
    endpoint: str
    token: str

    def get(self, repository: str, revision: str, file: str, path: str) -> tuple[dict[str, Any], str] | None:
        """A JSON file of a repository and the commit that it is of; None where the hub does not have it."""
        url = f"{self.endpoint}/{repository}/resolve/{urllib.parse.quote(revision, safe='')}/{file}"
        try:
            request = urllib.request.Request(url, headers={"User-Agent": "numawise"})
            if self.token:
                # Not sent on to the store that the hub redirects to.
                request.add_unredirected_header("Authorization", f"Bearer {self.token}")
            with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
                text = answer.read(_LARGEST_BYTES + 1)
                commit = answer.headers.get("X-Repo-Commit") or ""
        except urllib.error.HTTPError as error:
            return self._refused(error, repository, path)
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise MissingError.one(
                "HubUnreachable",
                path,
                f"{self.endpoint} cannot be reached ({reason}); give the model's config.json as modelConfig (for `fit`: --config config.json), "
                "or run this where there is a network and commit stacks/models.",
            ) from None
        try:
            content = json.loads(text) if len(text) <= _LARGEST_BYTES else None
        except ValueError:
            content = None
        if not isinstance(content, dict):
            raise ConfigError.one(
                "NotOnHub", path, f"{url} is no JSON map of at most {_LARGEST_BYTES // 2**20} MiB; give the fields as modelConfig."
            )
        return content, commit

    def _refused(self, error: urllib.error.HTTPError, repository: str, path: str) -> None:
        error.close()
        if error.code == 404:
            return
        if error.code in (401, 403):
            has = "HF_TOKEN has no access to it" if self.token else "HF_TOKEN is not set"
            raise MissingError.one(
                "HubRefused",
                path,
                f"{self.endpoint} answers {error.code} for {repository}: there is no such repository, or it is gated and {has}; "
                "accept its licence there and set HF_TOKEN, or give the fields as modelConfig.",
            )
        raise MissingError.one(
            "HubUnreachable",
            path,
            f"{self.endpoint} answers {error.code} for {repository}; try again later, or give the fields as modelConfig.",
        )

"""The only reader of pulumi.Config: the cluster document and the stack's secrets. Secrets stay Outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi

from infra.config.cluster import StackConfig
from infra.config.load import CLUSTER_KEY, cluster_document, parse_cluster_document, unknown_keys
from infra.errors import ConfigError
from infra.observe.secrets import given_twice
from infra.render.manifest import checksum
from infra.render.names import SECRETS


@dataclass(frozen=True, kw_only=True)
class Settings:
    stack: str
    config: StackConfig
    secrets: Mapping[str, pulumi.Output[str]]  # `api-key` and `hub-token`, those that are set
    credentials: str = ""  # the checksum of their values, as pod templates carry it; empty where none is set


def load_settings() -> Settings:
    """Reads the stack's configuration; ConfigError with all problems."""
    reader = pulumi.Config("numawise")
    stack = pulumi.get_stack()
    if pulumi.runtime.is_config_secret(CLUSTER_KEY):
        # The engine hands secrets to the program in clear: the plan would carry them into the state.
        raise ConfigError.one(
            "SecureInDocument",
            CLUSTER_KEY,
            "holds a secret; make it a key of its own (pulumi config set --secret numawise:hubToken) or name an existing Secret",
        )
    if unknown := list(unknown_keys(pulumi.runtime.get_config_env())):
        raise ConfigError(unknown)
    document = reader.get_object("cluster")
    if document is None:
        document = cluster_document({"config": {}}, source=f"stacks/Pulumi.{stack}.yaml")
    secrets = {key: value for name, key in SECRETS.items() if (value := reader.get_secret(name)) is not None}
    values = {key: value for name, key in SECRETS.items() if (value := reader.get(name)) is not None}
    config = parse_cluster_document(document)
    if twice := list(given_twice(config, secrets)):
        raise ConfigError(twice)
    return Settings(stack=stack, config=config, secrets=secrets, credentials=checksum(values) if values else "")

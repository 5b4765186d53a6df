"""How the cluster is reached, and the one explicit Kubernetes provider."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pulumi
import pulumi_kubernetes as kubernetes

from components.engine_state import stack_output
from infra.config.cluster import Connection, StackOutput
from infra.errors import ConfigError
from infra.observe.client import Client


@dataclass(frozen=True, kw_only=True)
class Access:
    """A kubeconfig for the provider, and a client of our own."""

    kubeconfig: pulumi.Input[str]
    context: str | None
    client: Client


def reach(connection: Connection | None, *, root: Path) -> Access:
    """Resolves the connection. MissingError where there is no kubeconfig; ConfigError where none is named."""
    if connection is None:
        raise ConfigError.one(
            "NoConnection",
            "connection",
            "is missing: preview and up need to know the cluster (KUBECONFIG is never read); write connection: {kubeconfig: PATH, context: NAME}",
        )
    source = connection.kubeconfig
    if isinstance(source, StackOutput):
        content = stack_output(source)
        client = Client.of_output(content, connection.context, source=str(source))
        # Text, as most stacks export it, or the document itself (pulumi-eks): the provider takes text alone.
        text = content if isinstance(content, str) else json.dumps(content)
        return Access(kubeconfig=pulumi.Output.secret(text), context=connection.context, client=client)
    path = root / Path(source).expanduser()
    return Access(kubeconfig=str(path), context=connection.context, client=Client(path, connection.context))


def provider(stack: str, access: Access) -> kubernetes.Provider:
    """One for the whole stack. Without cluster_identifier another address of the API server would replace every object, without the
    mutable options one changed byte of a ConfigMap would delete the Deployment that mounts it."""
    return kubernetes.Provider(
        "kubernetes",
        kubeconfig=access.kubeconfig,
        context=access.context,
        cluster_identifier=stack,
        enable_config_map_mutable=True,
        enable_secret_mutable=True,
        enable_server_side_apply=True,
    )

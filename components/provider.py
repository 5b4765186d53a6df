"""How the cluster is reached, and the one explicit Kubernetes provider."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes

from infra.config.cluster import Connection, StackOutput
from infra.errors import ConfigError, MissingError, NumawiseError
from infra.observe.client import Client

Look = Callable[[Client], None]
"""Looks at the cluster before anything is declared on it; raises CheckError where it contradicts the plan."""


@dataclass(frozen=True, kw_only=True)
class Access:
    """A kubeconfig for the provider, and a way to a client of our own for the hooks."""

    kubeconfig: pulumi.Input[str]
    context: str | None
    client: Callable[[], Client | None]  # None as long as another stack's output is not known


def reach(connection: Connection | None, *, root: Path, look: Look) -> Access:
    """Resolves the connection and has the cluster looked at. MissingError where there is no kubeconfig."""
    if connection is None:
        raise ConfigError.one(
            "NoConnection",
            "connection",
            "is missing: preview and up need to know the cluster (KUBECONFIG is never read); write connection: {kubeconfig: PATH, context: NAME}",
        )
    if isinstance(connection.kubeconfig, StackOutput):
        return _from_stack(connection.kubeconfig, connection.context, look)
    path = root / Path(connection.kubeconfig).expanduser()
    if not path.is_file():
        raise MissingError.one(
            "NoKubeconfig",
            "connection.kubeconfig",
            f"there is no file {path}; give the path of your cluster's kubeconfig (for stack local, run `make up`)",
        )
    client = Client(path, connection.context)
    look(client)
    return Access(kubeconfig=str(path), context=connection.context, client=client.patient)


def _from_stack(source: StackOutput, context: str | None, look: Look) -> Access:
    """The other stack's output is known only inside an apply: the look happens there, and the provider waits for it."""
    clients: list[Client] = []

    def looked_at(content: Any) -> str:
        """Text, as most stacks export it, or the document itself (pulumi-eks): the provider takes text alone."""
        try:
            clients.append(Client.of_output(content, context, source=str(source)))
            look(clients[-1])
        except NumawiseError as error:
            raise pulumi.RunError(str(error)) from None
        return content if isinstance(content, str) else json.dumps(content)

    kubeconfig = pulumi.StackReference(source.stack).require_output(source.output).apply(looked_at)
    return Access(
        kubeconfig=pulumi.Output.secret(kubeconfig), context=context, client=lambda: clients[-1].patient() if clients else None
    )


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

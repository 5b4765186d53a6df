"""A client of the cluster that a stack file's `connection` names, outside of the Pulumi program."""

from __future__ import annotations

import subprocess
from pathlib import Path

from infra.config.cluster import Connection, StackOutput
from infra.errors import ConfigError, MissingError
from infra.observe.client import Client

_ENGINE_SECONDS = 60


def connect(connection: Connection | None, *, kubeconfig: Path | None = None, context: str | None = None) -> Client:
    """`kubeconfig` and `context` win over the connection. ConfigError without either; MissingError where it cannot be read."""
    context = context or (connection.context if connection else None)
    if kubeconfig is not None:
        return Client(kubeconfig, context)
    if connection is None:
        raise ConfigError.one(
            "NoConnection",
            "connection",
            "is missing; write connection: {kubeconfig: PATH, context: NAME}, or give --kubeconfig FILE",
        )
    if isinstance(connection.kubeconfig, StackOutput):
        return Client.of_output(stack_output(connection.kubeconfig), context, source=str(connection.kubeconfig))
    return Client(Path(connection.kubeconfig).expanduser(), context)


def stack_output(source: StackOutput) -> str:
    """The output as JSON, asked of the Pulumi engine: the backend and the passphrase are those of this shell."""
    command = ["pulumi", "stack", "output", source.output, "--stack", source.stack, "--show-secrets", "--json", "--non-interactive"]
    way_out = "log in to the backend of that stack, or write the output to a file and give --kubeconfig FILE"
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_ENGINE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingError.one(
            "StackOutputUnreadable", "connection.kubeconfig", f"{source} could not be asked of pulumi: {error}; {way_out}"
        ) from None
    if done.returncode != 0:
        said = " ".join(done.stderr.split())[-300:]
        raise MissingError.one("StackOutputUnreadable", "connection.kubeconfig", f"{source} could not be read: {said}; {way_out}")
    return done.stdout

"""Runs the program's declaring part under the recording monitor, with a cluster that contradicts nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pulumi

from components import program
from components.settings import Settings
from infra.config.cluster import Connection
from infra.plan.model import ClusterPlan
from tests.support.builders import STACK
from tests.support.documents import small_config
from tests.support.monitor import Run, run_program

_KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test}}]
clusters: [{name: test, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: test, user: {token: not-a-real-token}}]
"""


def kubeconfig_in(folder: Path) -> Connection:
    """A connection whose kubeconfig is there and whose cluster is not."""
    path = folder / "kubeconfig"
    path.write_text(_KUBECONFIG)
    return Connection.model_validate({"kubeconfig": str(path)})


def declare_plan(
    plan: ClusterPlan,
    folder: Path,
    *,
    stack: str = STACK,
    adopt: tuple[str, ...] = (),
    secrets: Mapping[str, str] | None = None,
    preview: bool = False,
) -> Run:
    """The plan's resources as the program declares them; `secrets` in clear, as the stack's configuration would hold them."""
    config = small_config().model_copy(update={"connection": kubeconfig_in(folder), "adopt": adopt})

    def declared() -> None:
        outputs = {key: pulumi.Output.secret(value) for key, value in (secrets or {}).items()}
        settings = Settings(stack=stack, config=config, secrets=outputs)
        program.declare(settings, plan, look=lambda settings, plan, client, before: program.Found(plan=plan))

    return run_program(declared, stack=stack, preview=preview)

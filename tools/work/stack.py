"""make up, recover, preview, destroy, shell, down: the toolchain, the cluster, the engine and the verification in order."""

from __future__ import annotations

import sys

from infra.config.load import load_stack_file
from infra.errors import MissingError
from infra.plan.cluster import plan_stack
from tools.engine import Engine, Workspace
from tools.toolchain import toolchain
from tools.work.embedded import check_machine, cluster, settle_state, take_down
from tools.work.steps import StepFailed, Steps
from tools.work.suite_clusters import end_leftovers

_ENGINE_PARTS = ("kubectl", "pulumi", "pulumi-language-python", "pulumi-resource-kubernetes")


def up(stack: str, *, target: str = "up") -> int:
    """From a set-up checkout to a verified stack. After a killed run it clears up first; `make recover` is the same by name."""
    workspace = Workspace.of(stack=stack)
    workspace.prepare()
    if workspace.local:
        check_machine()
        # A mistake in the file is told before anything is built or started. Other stacks' documents may lie with Pulumi: the
        # program reads them.
        plan_stack(load_stack_file(workspace.stack_file))
    steps = Steps(target, total=5 if workspace.local else 4)
    _bring_programs(steps, workspace)
    if workspace.local:
        _bring_cluster(steps, workspace, target)
        settle_state(workspace)
    engine = Engine(workspace)
    steps.call("leftovers of a killed update", lambda: _cleared(engine))
    remedy = f"the reason stands above; mend it and run `make {target} STACK={stack}` again"
    steps.call(f"pulumi up, stack {stack}", engine.up, remedy=remedy, remedy_if_killed=f"run `make recover STACK={stack}`")
    steps.run("verify", verify_command(workspace), env=engine.environment, remedy="each finding names the command that mends it")
    steps.done(f"stack {stack} is up and verified")
    return 0


def preview(stack: str) -> int:
    """`pulumi preview --diff`; against the embedded cluster it must be up."""
    workspace = Workspace.of(stack=stack)
    if workspace.local:
        _cluster_must_run(workspace)
    status = Engine(workspace).preview()
    print(
        "make preview: this compares the stack file with what the engine made last. What others changed in the cluster meanwhile is seen by "
        f"`pulumi preview --refresh --diff` in `make shell STACK={stack}`, and by `python -m infra verify`.",
        file=sys.stderr,
    )
    return status


def destroy(stack: str) -> int:
    """`pulumi destroy`; what is retained on delete stays."""
    workspace = Workspace.of(stack=stack)
    if workspace.local:
        _cluster_must_run(workspace)
    engine = Engine(workspace)
    engine.clear_leftovers()
    return engine.destroy()


def shell(stack: str) -> int:
    """An interactive shell with everything in place."""
    return Engine(Workspace.of(stack=stack)).shell()


def down() -> int:
    """Stops the embedded cluster and everything of it, and what killed tests left running."""
    workspace = Workspace.of(stack="local")
    steps = Steps("down", total=2)
    steps.call(
        "stopping the cluster", lambda: take_down(workspace), remedy="run it again; the processes that it names are still there"
    )
    steps.call("clusters that killed tests left", end_leftovers)
    steps.done("nothing of the embedded cluster runs any more")
    return 0


def verify_command(workspace: Workspace) -> list[str]:
    """The verification of the stack as the engine saw it: by name, or by the engine's copy where the state is elsewhere."""
    return [sys.executable, "-m", "infra", "verify", "--config", str(workspace.config_file)]


def _bring_programs(steps: Steps, workspace: Workspace) -> None:
    chain = toolchain()
    names = None if workspace.local else _ENGINE_PARTS

    def bring() -> None:
        chain.ensure(names)

    steps.call("toolchain", bring)


def _bring_cluster(steps: Steps, workspace: Workspace, target: str) -> None:
    """A stack file that no cluster can be made of is to be corrected; what runs already stays as it is."""
    logs = workspace.kubeconfig.parent
    try:
        steps.call(
            "cluster",
            lambda: cluster(workspace, "up", "--stack", workspace.stack),
            remedy=f"see the messages above and the logs in {logs}, mend it and run `make {target}` again; only where that does not help, `make down` clears "
            "all of the cluster",
        )
    except StepFailed as failed:
        if failed.status != 2:
            raise
        raise StepFailed(failed.title, failed.status, f"correct what is named above and run `make {target}` again") from None


def _cleared(engine: Engine) -> int:
    engine.clear_leftovers()
    return 0


def _cluster_must_run(workspace: Workspace) -> None:
    if not workspace.kubeconfig.exists():
        raise MissingError.one("ClusterMissing", "stack local", "the embedded cluster is not up; run `make up` first.")
    settle_state(workspace)

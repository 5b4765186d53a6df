"""The embedded cluster as make sees it: up, down, and whether the stack's state belongs to it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

from infra.errors import MissingError
from tools.engine.backend import forget, read_locks
from tools.engine.processes import end, orphans
from tools.engine.workspace import Workspace
from tools.toolchain import binary
from tools.work.steps import CHECKOUT


def check_machine() -> None:
    """An error, before anything is fetched or built, where this machine cannot run kubelets."""
    if not sys.platform.startswith("linux"):
        message = "the embedded cluster runs kubelets and needs Linux; use a Linux machine, or `make preview STACK=...` with a cluster of your own."
        raise MissingError.one("NotLinux", "make", message)
    if os.geteuid() != 0:
        message = (
            "the embedded cluster's kubelets need root (mount and network namespaces), and this is user id "
            f"{os.geteuid()}; run it as root, or plan without a cluster: .venv/bin/python -m infra plan -s local."
        )
        raise MissingError.one("NotRoot", "make", message)


def cluster_environment(workspace: Workspace, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    return {**environ, "NUMAWISE_STATE": str(workspace.state)}


def cluster(workspace: Workspace, *words: str) -> int:
    """`python -m tools.cluster WORDS` on this workspace's state folder; its exit status."""
    command = [sys.executable, "-m", "tools.cluster", "--state", str(workspace.kubeconfig.parent), *words]
    return subprocess.run(command, cwd=CHECKOUT, env=cluster_environment(workspace), stdin=subprocess.DEVNULL).returncode


def settle_state(workspace: Workspace) -> bool:
    """Forgets the stack's state where it was made on another cluster than the one that runs now; tells whether it did.

    The kube-system namespace's UID identifies a cluster: a new one holds nothing of what an old state lists.
    """
    identity = _identity(workspace)
    record = workspace.folder / f"cluster-of-{workspace.name}"
    known = record.read_text(encoding="utf-8").strip() if record.exists() else ""
    stale = workspace.checkpoint.exists() and known != identity
    if stale:
        forget(workspace)
    workspace.prepare()
    record.write_text(identity + "\n", encoding="utf-8")
    return stale


def take_down(workspace: Workspace) -> int:
    """Ends an update that runs, then the cluster, then plugins left behind; the stack's state goes with the cluster."""
    end([lock.pid for lock in read_locks(workspace) if lock.alive and lock.pid], patience_seconds=20)
    status = cluster(workspace, "down", "--wipe")
    end(orphans(workspace))
    if status == 0:
        forget(workspace)
    return status


def _identity(workspace: Workspace) -> str:
    command = [str(binary("kubectl")), "--kubeconfig", str(workspace.kubeconfig), "get", "namespace", "kube-system"]
    done = subprocess.run([*command, "-o", "jsonpath={.metadata.uid}"], capture_output=True, text=True, timeout=60)
    if done.returncode != 0 or not done.stdout:
        reason = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        message = f"the embedded cluster does not answer ({reason}); `make down`, then `make up`."
        raise MissingError.one("ClusterUnreachable", str(workspace.kubeconfig), message)
    return done.stdout

"""What the cluster needs of the machine that it runs on, and what it leaves there."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tools.cluster.errors import MissingError
from tools.cluster.layout import Layout

INOTIFY_INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")
NEEDED_INOTIFY_INSTANCES = 4096
OWN_CLUSTER = "name a cluster of your own in the stack file instead (connection: {kubeconfig: ..., context: ...}) and leave the embedded one out"


def refuse_unfit_machine() -> None:
    """Raises MissingError where the embedded cluster cannot run."""
    if platform.system() != "Linux":
        raise MissingError(f"the embedded cluster needs Linux, this is {platform.system()}; {OWN_CLUSTER}")
    if os.geteuid() != 0:
        raise MissingError(
            f"the embedded cluster needs root for its namespaces, this is user {os.geteuid()}; use sudo, or {OWN_CLUSTER}"
        )
    if shutil.which("nsenter") is None:
        raise MissingError(f"the embedded cluster needs nsenter (package util-linux); install it, or {OWN_CLUSTER}")


def allow_watches(say: Callable[[str], None]) -> None:
    """Raises the kernel's limit of inotify instances where it is the usual 128: a kubelet takes about 15, and ends without them."""
    limit = int(INOTIFY_INSTANCES.read_text())
    if limit >= NEEDED_INOTIFY_INSTANCES:
        return
    try:
        INOTIFY_INSTANCES.write_text(str(NEEDED_INOTIFY_INSTANCES))
    except OSError as error:
        raise MissingError(
            f"{INOTIFY_INSTANCES} is {limit}, kubelets need {NEEDED_INOTIFY_INSTANCES}, and it cannot be written ({error.strerror}); "
            f"run `sysctl fs.inotify.max_user_instances={NEEDED_INOTIFY_INSTANCES}` on the host"
        ) from None
    say(f"raised fs.inotify.max_user_instances from {limit} to {NEEDED_INOTIFY_INSTANCES} until this machine's next boot")


def init_of(pid: int) -> int | None:
    """The first process of a node: the only child of the process that holds it, whichever thread of that made it."""
    children: list[str] = []
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            children += (thread / "children").read_text().split()
    return int(children[0]) if children else None


def remove_control_groups(layout: Layout) -> None:
    """Control groups of nodes that were killed; those of a running node are not empty and stay."""
    pattern = layout.control_group("*")
    for top in [Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").glob("*/")]:
        for group in top.glob(pattern):
            for folder, _, _ in os.walk(group, topdown=False):
                with suppress(OSError):
                    Path(folder).rmdir()

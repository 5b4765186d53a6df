"""The real Pulumi engine on one stack: preview, up, destroy, recover, a shell."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from infra.errors import MissingError
from tools.engine.backend import mend_checkpoint, pending_operations, read_locks
from tools.engine.processes import end, orphans, run_to_its_end
from tools.engine.stack_file import copy_stack_file
from tools.engine.workspace import CHECKOUT, Workspace
from tools.toolchain import Found, toolchain

PROVIDER = "pulumi-resource-kubernetes"
_HOST = "pulumi-language-python"
_PROGRAMS = ("pulumi", _HOST, PROVIDER, "kubectl")


class Engine:
    """The engine of one workspace. Methods return the exit status of pulumi (0 done) and print what it prints."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        found = toolchain().ensure(_PROGRAMS)
        workspace.prepare()
        self._provider = found[PROVIDER]
        self._pulumi_program = _together(found["pulumi"], found[_HOST], workspace.home / "bin")
        self.environment = workspace.environment([self._pulumi_program.parent, found["kubectl"].folder])

    def preview(self, extra: Sequence[str] = ()) -> int:
        """What an update would do, with the changed properties."""
        self._ready()
        return self._on_stack("preview", "--diff", "--suppress-outputs", *extra)

    def up(self, extra: Sequence[str] = ()) -> int:
        """Brings the stack's resources to what the program declares."""
        self._ready()
        return self._on_stack("up", "--yes", "--skip-preview", "--continue-on-error", "--suppress-outputs", *extra)

    def refresh(self, extra: Sequence[str] = ()) -> int:
        """Reads the cluster into the state; half-made objects of a killed update are looked up or forgotten."""
        self._ready()
        return self._on_stack("refresh", "--yes", "--skip-preview", "--clear-pending-creates", "--suppress-outputs", *extra)

    def destroy(self, extra: Sequence[str] = ()) -> int:
        """Deletes the stack's resources; objects that are retained on delete stay."""
        self._ready()
        return self._on_stack("destroy", "--yes", "--skip-preview", "--continue-on-error", "--suppress-outputs", *extra)

    def recover(self) -> int:
        """Clears what a killed update left behind, then makes an update."""
        self.clear_leftovers()
        return self.up()

    def clear_leftovers(self) -> int:
        """Ends orphaned plugin processes, mends a state that was cut short, cancels a dead lock, settles pending operations; how many things there were.

        An update that still runs is an error: it is not ours to end.
        """
        running = [lock for lock in read_locks(self.workspace) if lock.alive]
        if running:
            lock = running[0]
            where = f" on {lock.hostname}" if lock.hostname else ""
            message = f"an update of it runs (process {lock.pid}{where}); wait until it ends, or end it and run `make recover STACK={self.workspace.stack}`."
            raise MissingError.one("UpdateRunning", f"stack {self.workspace.stack}", message)
        left = orphans(self.workspace)
        if left:
            _say(f"ending {len(left)} plugin process{'es' * (len(left) > 1)} of a killed update ({', '.join(map(str, left))})")
            end(left)
        mended = mend_checkpoint(self.workspace)
        if mended:
            _say(mended)
        locks = read_locks(self.workspace)
        if locks:
            _say(f"removing the lock of a dead update (process {locks[0].pid or 'unknown'})")
            self._ready()
            self._pulumi("cancel", "--yes", "--stack", self.workspace.stack, quiet=True)
            # `pulumi cancel` cannot read a lock that was cut short while it was written.
            for lock in read_locks(self.workspace):
                lock.file.unlink(missing_ok=True)
        pending = pending_operations(self.workspace)
        if pending:
            _say(f"settling {pending} operation{'s' * (pending > 1)} that the update had begun")
            status = self.refresh()
            if status != 0:
                message = f"pulumi refresh ended with {status}; see above. Is the cluster up? Then run `make recover` again."
                raise MissingError.one("RefreshFailed", f"stack {self.workspace.stack}", message)
        return len(left) + bool(mended) + len(locks) + pending

    def shell(self) -> int:
        """An interactive shell with the engine's PATH, backend, passphrase and home, and kubectl on the embedded cluster."""
        self._ready()
        self._pulumi("stack", "select", self.workspace.stack, quiet=True)
        environment = {**self.environment, "KUBECONFIG": str(self.workspace.kubeconfig)}
        shell = environment.get("SHELL") or shutil.which("bash") or "/bin/sh"
        without = "" if self.workspace.kubeconfig.exists() else "; the embedded cluster is not up"
        _say(f"stack {self.workspace.stack}, state in {self.workspace.state}{without}; leave with `exit`")
        return run_to_its_end([shell], cwd=CHECKOUT, env=environment, stdin=None)

    def outputs(self) -> dict[str, object]:
        """The stack's exported outputs."""
        done = self._pulumi("stack", "output", "--json", "--stack", self.workspace.stack, quiet=True)
        return json.loads(done.stdout or "{}")

    def _ready(self) -> None:
        self._install_provider()
        copy_stack_file(self.workspace)
        self._create_stack()

    def _install_provider(self) -> None:
        program, version = self._provider.file, self._provider.version
        place = self.workspace.home / "plugins" / f"resource-kubernetes-v{version}"
        installed = place / PROVIDER
        if installed.exists() and installed.stat().st_size == program.stat().st_size and not place.with_suffix(".partial").exists():
            return
        arguments = ("plugin", "install", "resource", "kubernetes", version, "-f", str(program), "--reinstall")
        self._pulumi(*arguments, quiet=True)

    def _create_stack(self) -> None:
        """Creates the stack where the backend does not know it yet; the engine may write its salt into the copy only."""
        arguments = ("--non-interactive", "stack", "init", self.workspace.stack)
        if self.workspace.checkpoint.exists():
            return
        project = self.workspace.folder / "project"
        project.mkdir(parents=True, exist_ok=True)
        stacks = json.dumps(str(self.workspace.config_file.parent))
        (project / "Pulumi.yaml").write_text(f"name: numawise\nruntime: python\nstackConfigDir: {stacks}\n", encoding="utf-8")
        done = subprocess.run(
            [str(self._pulumi_program), *arguments],
            cwd=project,
            env=self.environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode != 0 and "already exists" not in done.stderr:
            raise self._failed("stack init", done)

    def _on_stack(self, command: str, *options: str) -> int:
        stack = ("--stack", self.workspace.stack, "--config-file", str(self.workspace.config_file))
        words = [str(self._pulumi_program), command, *stack, "--non-interactive", *options]
        return run_to_its_end(words, cwd=CHECKOUT, env=self.environment, stdin=subprocess.DEVNULL)

    def _pulumi(self, *words: str, quiet: bool) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(self._pulumi_program), *words],
            cwd=CHECKOUT,
            env=self.environment,
            capture_output=quiet,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode != 0:
            raise self._failed(" ".join(words[:2]), done)
        return done

    def _failed(self, what: str, done: subprocess.CompletedProcess[str]) -> MissingError:
        lines = [line.removeprefix("error: ").strip() for line in (done.stderr or done.stdout or "").splitlines() if line.strip()]
        reason = (lines or [f"status {done.returncode}"])[0]
        if "incorrect passphrase" in (done.stderr or ""):
            reason += "; set PULUMI_CONFIG_PASSPHRASE or PULUMI_CONFIG_PASSPHRASE_FILE to the stack's own"
        error = MissingError.one("EngineFailed", f"pulumi {what}", f"{reason}.")
        assert isinstance(error, MissingError)
        return error


def _together(cli: Found, host: Found, folder: Path) -> Path:
    """The CLI with its language host beside it, where it looks for it first; copies in `folder` where they do not lie so already."""
    if cli.folder == host.folder:
        return cli.file
    folder.mkdir(exist_ok=True)
    names = [cli.file, *(file for file in host.folder.iterdir() if file.name.startswith("pulumi-"))]
    for file in names:
        copy = folder / file.name
        status = file.stat()
        if copy.exists() and (copy.stat().st_size, copy.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns):
            continue
        half = folder / f".{file.name}.{os.getpid()}"
        shutil.copy2(file, half)
        half.replace(copy)
    return folder / cli.file.name


def _say(text: str) -> None:
    print(f"engine: {text}", file=sys.stderr, flush=True)

"""Where the engine works: one state folder holds its backend, home, passphrase and copies of stack files."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.config.load import names_a_stack
from infra.errors import MissingError

CHECKOUT = Path(__file__).resolve().parents[2]
PROJECT = "numawise"

# The local stack holds no secret; its passphrase is in the README so that its committed encryption salt works everywhere.
LOCAL_STACK = "local"
LOCAL_PASSPHRASE = "numawise"


def default_state(environ: Mapping[str, str] = os.environ) -> Path:
    """The checkout's .state, or the folder that NUMAWISE_STATE names."""
    named = environ.get("NUMAWISE_STATE", "")
    return Path(named).absolute() if named else CHECKOUT / ".state"


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """The folders of one engine. `state` is absolute; the embedded cluster's files lie in `state/cluster`."""

    state: Path
    stack: str
    stack_file: Path

    @classmethod
    def of(cls, *, stack: str, state: Path | None = None, stack_file: Path | None = None) -> Workspace:
        """The workspace of a stack of this checkout; an error where the stack has no file."""
        if not names_a_stack(stack):
            message = f"{stack!r} names no stack; use the STACK of a stacks/Pulumi.STACK.yaml, or ORGANIZATION/PROJECT/STACK."
            raise MissingError.one("StackMissing", "STACK", message)
        file = (stack_file or CHECKOUT / "stacks" / f"Pulumi.{_short(stack)}.yaml").absolute()
        if not file.is_file():
            known = sorted(
                found.name.removeprefix("Pulumi.").removesuffix(".yaml") for found in (CHECKOUT / "stacks").glob("Pulumi.*.yaml")
            )
            message = f"stack {stack!r} has no file {file}; write one, or use one of {', '.join(known) or '(there are none)'}."
            raise MissingError.one("StackMissing", "STACK", message)
        return cls(state=(state or default_state()).absolute(), stack=stack, stack_file=file)

    @property
    def local(self) -> bool:
        """Whether this is the embedded cluster's own stack."""
        return self.stack == LOCAL_STACK

    @property
    def name(self) -> str:
        """The stack's name without organization and project."""
        return _short(self.stack)

    @property
    def folder(self) -> Path:
        return self.state / "pulumi"

    @property
    def home(self) -> Path:
        """PULUMI_HOME."""
        return self.folder / "home"

    @property
    def backend(self) -> Path:
        return self.folder / "backend"

    @property
    def locks(self) -> Path:
        """The folder of this stack's locks in the file backend; one JSON file a running update."""
        return self.backend / ".pulumi" / "locks" / "organization" / PROJECT / self.name

    @property
    def checkpoint(self) -> Path:
        return self.backend / ".pulumi" / "stacks" / PROJECT / f"{self.name}.json"

    @property
    def config_file(self) -> Path:
        """The copy of the stack file that the engine works on."""
        return self.folder / "stacks" / f"Pulumi.{self.name}.yaml"

    @property
    def kubeconfig(self) -> Path:
        """The embedded cluster's admin kubeconfig."""
        return self.state / "cluster" / "kubeconfig"

    def prepare(self) -> None:
        """Makes the folders and the passphrase file."""
        try:
            for folder in (self.home, self.backend, self.config_file.parent):
                folder.mkdir(parents=True, exist_ok=True)
            self._write_passphrase()
        except OSError as error:
            raise MissingError.one(
                "StateUnusable", str(self.state), f"cannot be written ({error.strerror}); make it writable or set NUMAWISE_STATE."
            ) from None

    @property
    def passphrase_file(self) -> Path:
        return self.folder / ("passphrase-local" if self.local else "passphrase")

    def _write_passphrase(self) -> None:
        if not self.passphrase_file.exists():
            text = LOCAL_PASSPHRASE if self.local else secrets.token_urlsafe(32)
            handle = os.open(self.passphrase_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w") as out:
                out.write(text)

    def environment(self, folders: Sequence[Path], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
        """The variables of engine and shell. `folders` of programs come first in PATH, after .venv/bin.

        A backend, passphrase or access token of the user's own counts for every stack but the local one.
        """
        result = {key: value for key, value in environ.items() if key not in ("KUBECONFIG", "VIRTUAL_ENV", "PYTHONHOME")}
        own = {} if self.local else environ
        if "PULUMI_BACKEND_URL" not in own and "PULUMI_ACCESS_TOKEN" not in own:
            result["PULUMI_BACKEND_URL"] = f"file://{self.backend}"
        if "PULUMI_CONFIG_PASSPHRASE" not in own and "PULUMI_CONFIG_PASSPHRASE_FILE" not in own:
            result.pop("PULUMI_CONFIG_PASSPHRASE", None)
            result["PULUMI_CONFIG_PASSPHRASE_FILE"] = str(self.passphrase_file)
        first = [CHECKOUT / ".venv" / "bin", *folders]
        result["PATH"] = ":".join([*map(str, first), environ.get("PATH", "/usr/local/bin:/usr/bin:/bin")])
        result["VIRTUAL_ENV"] = str(CHECKOUT / ".venv")
        result["PULUMI_HOME"] = str(self.home)
        result["PULUMI_SKIP_UPDATE_CHECK"] = "true"
        result["PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION"] = "true"
        result["NUMAWISE_STATE"] = str(self.state)
        return result


def _short(stack: str) -> str:
    return stack.rsplit("/", 1)[-1]

"""A recording monitor: what a program really sends to the engine, with parents, options and outputs, to be asserted on afterwards.

Assertions inside an apply that never runs pass vacuously; here the program runs to its end first.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import pulumi
from pulumi.runtime import mocks, rpc, settings
from pulumi.runtime.proto import engine_pb2
from pulumi.runtime.stack import run_in_stack
from pulumi.runtime.sync_await import _ensure_event_loop

PROJECT = "numawise"


@dataclass
class Recorded:
    """One resource as registered. Secret inputs are unwrapped; `secret_inputs` names the top-level inputs that hold one."""

    urn: str
    type: str
    name: str
    custom: bool
    parent: str
    inputs: dict[str, Any]
    secret_inputs: frozenset[str]
    dependencies: frozenset[str]
    provider: str
    providers: Mapping[str, str]
    protect: bool
    retain_on_delete: bool
    ignore_changes: tuple[str, ...]
    create_timeout: str
    update_timeout: str
    delete_timeout: str
    error_hooks: tuple[str, ...]
    before_hooks: tuple[str, ...]  # of creations and updates
    aliases: tuple[str, ...]  # names
    outputs: dict[str, Any] | None = None


class _Mocks(mocks.Mocks):
    """Every provider answers with what it was asked for."""

    def __init__(self, stack_outputs: Mapping[str, Any]) -> None:
        self._stack_outputs = stack_outputs

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        return f"{args.name}-id", dict(args.inputs)

    def call(self, args: mocks.MockCallArgs) -> Any:
        if args.token == "pulumi:pulumi:readStackOutputs":
            return {"outputs": dict(self._stack_outputs)}
        if args.token == "pulumi:pulumi:readStackResourceOutputs":
            return {"outputs": {}}
        raise AssertionError(f"the program calls {args.token}; a stack of ours invokes no provider's function")


class RecordingMonitor(mocks.MockMonitor):
    """Keeps all that is registered, in order; a second resource of the same URN fails at once."""

    def __init__(self, stack_outputs: Mapping[str, Any] | None = None) -> None:
        super().__init__(_Mocks(stack_outputs or {}))
        self.recorded: dict[str, Recorded] = {}
        self.hooks: list[str] = []
        self.duplicates: list[str] = []
        self.stack_outputs: dict[str, Any] = {}

    def make_urn(self, parent: str, type_: str, name: str) -> str:
        """As the engine: the whole chain of parent types counts, the root stack does not."""
        chain = parent.split("::")[2] if parent else ""
        qualified = type_ if chain in ("", "pulumi:pulumi:Stack") else f"{chain}${type_}"
        return f"urn:pulumi:{settings.get_stack()}::{settings.get_project()}::{qualified}::{name}"

    def RegisterResource(self, request: Any) -> Any:
        urn = self.make_urn(request.parent, request.type, request.name)
        if request.type != "pulumi:pulumi:Stack":
            _ensure_event_loop()
            if urn in self.recorded:
                self.duplicates.append(urn)
            raw = rpc.deserialize_properties(request.object, keep_unknowns=True)
            self.recorded[urn] = Recorded(
                urn=urn,
                type=request.type,
                name=request.name,
                custom=request.custom,
                parent=request.parent,
                inputs=_unwrapped(raw),
                secret_inputs=frozenset(key for key, value in raw.items() if _holds_secret(value)),
                dependencies=frozenset(request.dependencies),
                provider=request.provider,
                providers=dict(request.providers),
                protect=request.protect,
                retain_on_delete=request.retainOnDelete,
                ignore_changes=tuple(request.ignoreChanges),
                create_timeout=request.customTimeouts.create,
                update_timeout=request.customTimeouts.update,
                delete_timeout=request.customTimeouts.delete,
                error_hooks=tuple(request.hooks.on_error),
                before_hooks=(*request.hooks.before_create, *request.hooks.before_update),
                aliases=tuple(alias.spec.name for alias in request.aliases),
            )
        return super().RegisterResource(request)

    def RegisterResourceOutputs(self, request: Any) -> Any:
        outputs = _unwrapped(rpc.deserialize_properties(request.outputs, keep_unknowns=True))
        if request.urn in self.recorded:
            self.recorded[request.urn].outputs = outputs
        else:
            self.stack_outputs = outputs
        return super().RegisterResourceOutputs(request)

    def RegisterErrorHook(self, request: Any) -> Any:
        self.hooks.append(request.name)
        return super().RegisterErrorHook(request)


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a program declared."""

    resources: tuple[Recorded, ...]
    hooks: tuple[str, ...]
    stack_outputs: Mapping[str, Any]
    log: tuple[tuple[str, str], ...]  # (severity, message)
    duplicates: tuple[str, ...]

    def of_type(self, suffix: str) -> tuple[Recorded, ...]:
        return tuple(resource for resource in self.resources if resource.type.endswith(suffix))

    def one(self, suffix: str, name: str) -> Recorded:
        found = [resource for resource in self.of_type(suffix) if resource.name == name]
        assert len(found) == 1, f"{len(found)} resources {suffix} {name} among {[r.urn for r in self.resources]}"
        return found[0]


class _Log(mocks.MockEngine):
    """Keeps what the program logs, with its severity."""

    def __init__(self) -> None:
        super().__init__(None)
        self.lines: list[tuple[str, str]] = []

    def Log(self, request: Any) -> None:
        severity = {engine_pb2.WARNING: "warning", engine_pb2.ERROR: "error", engine_pb2.INFO: "info"}.get(request.severity)
        if severity:
            self.lines.append((severity, request.message))


def run_program(
    program: Callable[[], None],
    *,
    stack: str = "local",
    preview: bool = False,
    config: Mapping[str, str] | None = None,
    secret_keys: tuple[str, ...] = (),
    stack_outputs: Mapping[str, Any] | None = None,
) -> Run:
    """Runs a program as the language host would, to the end of all its registrations, in a context of its own."""
    with _loops_closed():
        return contextvars.Context().run(_run, program, stack, preview, dict(config or {}), list(secret_keys), stack_outputs)


def _run(
    program: Callable[[], None],
    stack: str,
    preview: bool,
    config: dict[str, str],
    secret_keys: list[str],
    stack_outputs: Mapping[str, Any] | None,
) -> Run:
    monitor, log = RecordingMonitor(stack_outputs), _Log()
    settings.configure(settings.Settings(project=PROJECT, stack=stack, monitor=monitor, engine=log, dry_run=preview))
    pulumi.runtime.set_all_config(config, secret_keys)

    async def registered() -> None:
        program()

    # What the monitor creates is ready at once; the cluster that a real update would ask is not there.
    with patch("components.rolled_out.RolloutWaits.wait_for"):
        asyncio.run(run_in_stack(registered))
    # The run's event loop is collected here and not in the midst of somebody's ast.parse (python/cpython#106905).
    gc.collect()
    return Run(
        resources=tuple(monitor.recorded.values()),
        hooks=tuple(monitor.hooks),
        stack_outputs=monitor.stack_outputs,
        log=tuple(log.lines),
        duplicates=tuple(monitor.duplicates),
    )


@contextmanager
def _loops_closed() -> Iterator[None]:
    """Closes the event loops that the SDK makes for this thread and for those of its registrations; it leaves them open."""
    made: list[asyncio.AbstractEventLoop] = []
    policy = type(asyncio.get_event_loop_policy())
    make = policy.new_event_loop

    def remembered(self: asyncio.AbstractEventLoopPolicy) -> asyncio.AbstractEventLoop:
        made.append(make(self))
        return made[-1]

    try:
        with patch.object(policy, "new_event_loop", remembered):
            yield
    finally:
        for loop in made:
            loop.close()


def _unwrapped(value: Any) -> Any:
    if rpc.is_rpc_secret(value):
        return _unwrapped(rpc.unwrap_rpc_secret(value))
    if isinstance(value, dict):
        return {key: _unwrapped(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_unwrapped(item) for item in value]
    return value


def _holds_secret(value: Any) -> bool:
    if rpc.is_rpc_secret(value):
        return True
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(_holds_secret(item) for item in items)

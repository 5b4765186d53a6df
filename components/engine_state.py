"""What the engine knows already: outputs of other stacks, and this stack's own state of the last update. Read before anything is declared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi

from infra.config.cluster import StackOutput
from infra.errors import MissingError
from infra.observe.remembered import Remembered, remembered

# Functions of the engine itself. A StackReference asks the same, but answers only after the program has declared all else.
_OUTPUTS, _RESOURCES = "pulumi:pulumi:readStackOutputs", "pulumi:pulumi:readStackResourceOutputs"


def stack_output(source: StackOutput) -> Any:
    """Another stack's output in clear: whoever hands it on marks it as secret. MissingError where there is none."""
    outputs = _ask(_OUTPUTS, {"name": source.stack}, path="connection.kubeconfig", what=str(source))
    if outputs.get(source.output) is None:
        have = ", ".join(sorted(outputs)) or "none"
        message = f"stack {source.stack} has no output {source.output}; it has: {have}. Run its update, or name another output"
        raise MissingError.one("NoStackOutput", "connection.kubeconfig", message)
    return outputs[source.output]


def last_update() -> Remembered:
    """This stack's state as the last update left it, or the refresh before this one. MissingError where the backend does not give it."""
    stack = f"{pulumi.get_organization()}/{pulumi.get_project()}/{pulumi.get_stack()}"
    return remembered(_ask(_RESOURCES, {"stackName": stack}, path="", what=f"the state of stack {stack}"))


def _ask(function: str, arguments: Mapping[str, Any], *, path: str, what: str) -> Mapping[str, Any]:
    try:
        answer = pulumi.runtime.invoke(function, dict(arguments)).value
    except Exception as error:
        raise MissingError.one(
            "StateUnreadable", path, f"{what} could not be read: {error}; look at the stack's name and `pulumi login`"
        ) from None
    return (answer or {}).get("outputs") or {}

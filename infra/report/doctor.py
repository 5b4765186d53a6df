"""What is installed, found and missing, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from infra.installation import Requirement, missing


def requirements_as_json(requirements: Sequence[Requirement]) -> dict[str, Any]:
    """The document of `doctor --format json`."""
    return {"ok": not missing(requirements), "checks": [asdict(requirement) for requirement in requirements]}


def requirements_as_text(requirements: Sequence[Requirement]) -> str:
    """A line for each, what to do below what is missing, and one sentence."""
    return "\n".join(_lines(requirements))


def _lines(requirements: Sequence[Requirement]) -> Iterator[str]:
    width = max(len(requirement.name) for requirement in requirements)
    for requirement in requirements:
        problem = requirement.problem
        state = "ok" if problem is None else "MISSING" if problem.severity == "error" else "absent"
        yield f"{state:<8}{requirement.name:<{width}}  {requirement.found}"
        if problem is not None:
            yield f"{'':8}{'':{width}}  for {requirement.needed_for}: {problem.remedy}"
    yield ""
    if count := len(missing(requirements)):
        yield f"{count} thing(s) missing."
    elif all(requirement.ok for requirement in requirements):
        yield "Everything is there."
    else:
        yield "What the commands without a cluster need is there; what is absent is needed for the work that stands beside it."

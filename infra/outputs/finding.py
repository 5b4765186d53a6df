"""One thing that a machine's own output says, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """`code` is a stable CamelCase name, `path` where it was seen, `message` one sentence with the numbers, `remedy` the way out.

    `error`: it does not work (a kubelet that does not start); `warning`: it works worse than it could; `info`: worth knowing.
    """

    code: str
    message: str
    path: str = ""
    severity: Severity = "warning"
    remedy: str = ""

    def at(self, path: str) -> Finding:
        """The same finding, seen at `path`."""
        return replace(self, path=path)

    @property
    def sentence(self) -> str:
        """The message with its remedy, for people."""
        return f"{self.message} {self.remedy}" if self.remedy else self.message

    def as_json(self) -> dict[str, str]:
        return {"code": self.code, "path": self.path, "severity": self.severity, "message": self.sentence}

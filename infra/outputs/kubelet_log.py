"""The kubelet's own log lines on why it does not start, or why it refused a pod: the cause, and what to do.

Lines may come from journalctl, a container log or a JSON log: they are searched, not parsed as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from infra.diagnosis import Diagnosis
from infra.outputs.kubelet_log_rules import RULES, LogRule

# Lines of a failed start that do not name its cause; quoted only where no rule explains the failure.
_FATAL = re.compile(
    r"(?:\"?(?:command failed|Failed to start ContainerManager|failed to run "
    r"Kubelet)\"?.*?err\"?[=:]\s?\"(?P<err>.*)\"|failed to run Kubelet: (?P<run>.+))"
)
_FATAL_MARKERS = ("command failed", "Failed to start ContainerManager", "failed to run Kubelet")


def explain_kubelet_log(text: str | Iterable[str], *, source: str = "") -> tuple[Diagnosis, ...]:
    """What the kubelet's log says about not starting and about refused pods, each cause once, in order of appearance.

    `text` is a whole log or its lines. Empty where nothing of it is known; a start failure of unknown cause is quoted.
    """
    lines = text.splitlines() if isinstance(text, str) else text
    causes: dict[tuple[str, str], tuple[LogRule, str]] = {}
    times: dict[tuple[str, str], int] = {}
    unexplained: dict[str, None] = {}
    for line in lines:
        if found := _explain(line):
            rule, message = found
            key = (rule.code, message)
            causes.setdefault(key, found)
            times[key] = times.get(key, 0) + 1
        elif any(marker in line for marker in _FATAL_MARKERS) and (fatal := _FATAL.search(_unescape(line))):
            unexplained[(fatal["err"] or fatal["run"] or "").strip()[:300]] = None
    findings = [
        Diagnosis(
            code=rule.code,
            path=source,
            severity=rule.severity,
            message=message if times[key] == 1 else f"{message.removesuffix('.')} (logged {times[key]} times).",
            remedy=rule.remedy.replace("{{", "{").replace("}}", "}"),
        )
        for key, (rule, message) in causes.items()
    ]
    if not any(finding.severity == "error" for finding in findings):
        findings += [
            Diagnosis(code="KubeletStopped", path=source, message=f"the kubelet stopped with: {reason}")
            for reason in unexplained
            if reason
        ]
    # A detail line is more precise than the general one that always follows it.
    if any(f.code in ("MemorySizeChanged", "MemoryStateDetail") for f in findings):
        findings = [f for f in findings if f.code != "MemoryStateDiffers"]
    return tuple(findings)


def is_kubelet_line(line: str) -> bool:
    """Whether explain_kubelet_log has a finding on a line."""
    return _explain(line) is not None or any(marker in line for marker in _FATAL_MARKERS)


def _unescape(line: str) -> str:
    return line.replace('\\\\\\"', '"').replace('\\"', '"')


def _explain(line: str) -> tuple[LogRule, str] | None:
    plain: str | None = None
    for rule in RULES:
        if rule.marker not in line:
            continue
        plain = plain or _unescape(line)
        if match := rule.pattern.search(plain):
            groups = {name: value if value is not None else "?" for name, value in match.groupdict().items()}
            return rule, rule.message.format(**groups).replace(" (? and ? bytes)", "")
    return None

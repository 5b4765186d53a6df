"""The only maker of labels and annotation keys."""

from __future__ import annotations

import hashlib
import re

STACK = "numawise.dev/stack"
POOL = "numawise.dev/pool"
KUBELET_CONFIG = "numawise.dev/kubelet-config"
CHECKSUM = "numawise.dev/checksum"
CREDENTIALS_CHECKSUM = "numawise.dev/credentials-checksum"
DECLARED = "numawise.dev/declared"
HOSTNAME = "kubernetes.io/hostname"
FIELD_MANAGER = "pulumi.com/patchFieldManager"
SELECTOR_KEYS = ("app.kubernetes.io/name", "app.kubernetes.io/instance")


def label_value(text: str) -> str:
    """Any text as a label value: itself where Kubernetes allows it, else its allowed part and a hash."""
    if re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", text):
        return text
    allowed = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("._-")[:50].rstrip("._-")
    return f"{allowed or 'x'}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def owner(stack: str) -> dict[str, str]:
    """By these an object says that it is this stack's; check() refuses objects of the same name without them."""
    return {"app.kubernetes.io/managed-by": "numawise", STACK: label_value(stack)}


def selector(name: str, instance: str) -> dict[str, str]:
    """Selects an application's pods. A Deployment's selector cannot change later: nothing may be added here."""
    return dict(zip(SELECTOR_KEYS, (name, label_value(instance)), strict=True))


def labels(*, stack: str, name: str, instance: str, component: str) -> dict[str, str]:
    """All labels of an object and of the pods of its template."""
    return {
        **selector(name, instance),
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/part-of": "numawise",
        **owner(stack),
    }


def field_manager(stack: str) -> str:
    """The name under which server-side apply records the labels that we add to nodes; at most 128 characters."""
    return f"numawise-{label_value(stack)}"

"""Names of resources, as Kubernetes sorts them: native, extended (devices), huge pages."""

from __future__ import annotations

import re
from functools import cache

HUGEPAGES_PREFIX = "hugepages-"
_QUALIFIED_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)


def is_native_resource(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


@cache
def is_extended_resource(name: str) -> bool:
    """Whether a name is that of an extended resource such as nvidia.com/gpu."""
    return not is_native_resource(name) and not name.startswith("requests.") and is_qualified_name(f"requests.{name}")


def is_scalar_resource(name: str) -> bool:
    return is_extended_resource(name) or name.startswith((HUGEPAGES_PREFIX, "attachable-volumes-")) or "kubernetes.io/" in name


@cache
def is_qualified_name(name: str) -> bool:
    """A label-like name with an optional DNS prefix."""
    prefix, slash, rest = name.rpartition("/")
    if "/" in prefix or (slash and not (0 < len(prefix) <= 253 and _DNS_SUBDOMAIN.fullmatch(prefix))):
        return False
    return 0 < len(rest) <= 63 and _QUALIFIED_NAME.fullmatch(rest) is not None


def is_pod_level_resource(name: str) -> bool:
    return name in ("cpu", "memory") or name.startswith(HUGEPAGES_PREFIX)


def is_memory(name: str) -> bool:
    return name == "memory" or name.startswith(HUGEPAGES_PREFIX)

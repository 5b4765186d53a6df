"""Containers that the stack file hands through to the pod: their fields by name and kind, so that the API server is not the first to object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator

from infra.config.base import valid_dns_label, valid_environment_name, valid_image
from infra.diagnosis import did_you_mean, shown

# Container of k8s.io/api/core/v1 at v0.37.2.
_FIELDS: Mapping[str, type] = {
    **dict.fromkeys(
        ("name", "image", "workingDir", "restartPolicy", "terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy"),
        str,
    ),
    **dict.fromkeys(
        ("command", "args", "ports", "envFrom", "env", "resizePolicy", "restartPolicyRules", "volumeMounts", "volumeDevices"), list
    ),
    **dict.fromkeys(("resources", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "securityContext"), dict),
    **dict.fromkeys(("stdin", "stdinOnce", "tty"), bool),
}
_WORDS = {str: "a string", list: "a list", dict: "a mapping", bool: "true or false"}
_TEXTS = ("command", "args")


def _container(value: dict[str, Any]) -> dict[str, Any]:
    """ValueError with the first thing that is wrong with it."""
    for key, content in value.items():
        kind = _FIELDS.get(key)
        if kind is None:
            raise ValueError(f"{shown(key)} is no field of a Kubernetes container.{did_you_mean(key, _FIELDS)}")
        if not isinstance(content, kind):
            raise ValueError(f"its {key} has to be {_WORDS[kind]}")
        for entry in content if isinstance(content, list) else ():
            if not isinstance(entry, str if key in _TEXTS else dict):
                raise ValueError(f"its {key} has to be a list of {'strings (numbers in quotes)' if key in _TEXTS else 'mappings'}")
    for key in ("name", "image"):
        if key not in value:
            raise ValueError(f"has no {key}")
    valid_dns_label(value["name"])
    valid_image(value["image"])
    for variable in value.get("env", ()):
        valid_environment_name(variable.get("name", ""))
    return value


Container = Annotated[dict[str, Any], AfterValidator(_container)]

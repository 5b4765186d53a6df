"""Objects as the API server holds them once a manifest was applied: fields filled in, others' fields beside them, and whose each is."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

MANAGER = "pulumi-kubernetes-1a2b3c4d"
# Lists that server-side apply merges item by item, by these keys, and maps that are one value, as all other lists are (the API's
# OpenAPI document).
_KEYS = {
    "containers": ("name",),
    "initContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "ports": ("containerPort", "protocol"),
    "volumeMounts": ("mountPath",),
}
_ATOMIC = ("nodeSelector", "fieldRef", "secretKeyRef", "selector")
_DEFAULTS = {"dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler", "securityContext": {}}


def live_object(manifest: Mapping[str, Any], *, ready: int = 1) -> dict[str, Any]:
    """A workload that was applied, with the API server's defaults and a status."""
    raw = copy.deepcopy(dict(manifest))
    own = {"manager": MANAGER, "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": fields_of(manifest)}
    raw["metadata"] = {**raw["metadata"], "uid": "1", "generation": 3, "managedFields": [own]}
    raw["status"] = {"readyReplicas": ready}
    for spec in _pod_specs(raw):
        spec.update({key: value for key, value in _DEFAULTS.items() if key not in spec})
        for container in spec["containers"]:
            container["terminationMessagePath"] = "/dev/termination-log"
            for name in container.keys() & {"startupProbe", "livenessProbe", "readinessProbe"}:
                container[name] = {**container[name], "successThreshold": 1}
                container[name]["httpGet"] = {**container[name]["httpGet"], "scheme": "HTTP"}
        for volume in spec["volumes"]:
            if "configMap" in volume:
                volume["configMap"] = {**volume["configMap"], "defaultMode": 420}
    return raw


def add_as(raw: dict[str, Any], manager: str, added: Mapping[str, Any], *, operation: str = "Update") -> dict[str, Any]:
    """What another manager has added: maps are merged, lists by the keys of their items."""
    raw = copy.deepcopy(raw)
    entry = {"manager": manager, "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": fields_of(added)}
    raw["metadata"]["managedFields"].append(entry)
    return _merged(raw, added)


def fields_of(value: Any, name: str = "") -> dict[str, Any]:
    """A field set as serialize-pe.go writes it."""
    if isinstance(value, Mapping) and name not in _ATOMIC:
        skipped = ("apiVersion", "kind", "name", "namespace") if not name else ()
        return {
            f"f:{key}": fields_of(inner, key if name or key != "metadata" else "metadata")
            for key, inner in value.items()
            if key not in skipped
        }
    if isinstance(value, list) and name in _KEYS:
        return {
            "k:" + json.dumps({key: item[key] for key in _KEYS[name]}, separators=(",", ":")): {".": {}, **fields_of(item, "item")}
            for item in value
        }
    return {}


def _merged(one: Any, added: Any, name: str = "") -> Any:
    if isinstance(one, Mapping) and isinstance(added, Mapping):
        return {**one, **{key: _merged(one.get(key), inner, key) for key, inner in added.items()}}
    if isinstance(one, list) and name in _KEYS:
        result = list(one)
        for item in added:
            same = next((place for place, have in enumerate(result) if all(have[key] == item[key] for key in _KEYS[name])), None)
            if same is None:
                result.append(item)
            else:
                result[same] = _merged(result[same], item)
        return result
    return added


def _pod_specs(raw: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    group = raw["spec"].get("leaderWorkerTemplate")
    for template in (group["leaderTemplate"], group["workerTemplate"]) if group else (raw["spec"]["template"],):
        yield template["spec"]

"""The JSON schema of a stack file, for editors; made from the wire models."""

from __future__ import annotations

import json
from typing import Any

from infra.config.cluster import StackConfig
from infra.config.load import CLUSTER_KEY


def stack_file_schema() -> dict[str, Any]:
    """A schema (draft 2020-12) of stacks/Pulumi.<stack>.yaml."""
    cluster = StackConfig.model_json_schema(by_alias=True, mode="validation")
    definitions = cluster.pop("$defs", {})
    # `namespace: inference` is short for the section; the model knows only the long form.
    cluster["properties"]["namespace"] = {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/Namespace"}]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "numawise stack file",
        "type": "object",
        "properties": {
            "config": {
                "type": "object",
                "properties": {CLUSTER_KEY: {"$ref": "#/$defs/StackConfig"}},
                "required": [CLUSTER_KEY],
            },
            "encryptionsalt": {"type": "string"},
            "secretsprovider": {"type": "string"},
            "environment": {},
        },
        "$defs": {**definitions, "StackConfig": cluster},
    }


def schema_text() -> str:
    """The schema as it is committed in stacks/schema.json."""
    return json.dumps(stack_file_schema(), indent=2, sort_keys=True) + "\n"

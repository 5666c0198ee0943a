"""The JSON schema of an artifact's manifest, made from the tables that the loader checks manifests with.

    python -m aot.artifact_schema > docs/artifact.schema.json
"""
from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import aot_runtime


def json_schema() -> dict:
    """The JSON schema of manifest.json, from the tables that the loader checks with."""
    definitions = {"ARRAY": aot_runtime.ARRAY, "ENTRY": aot_runtime.ENTRY, "EXECUTABLE": aot_runtime.EXECUTABLE,
                   "FUNCTION": aot_runtime.FUNCTION}
    named = {id(table): {"$ref": f"#/definitions/{name}"} for name, table in definitions.items()}
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "manifest.json of an .aot artifact",
            **_schema_of(aot_runtime.MANIFEST, named),
            "definitions": {**{k: _schema_of(v, {**named, id(v): None}) for k, v in definitions.items()},
                            "TREE": _TREE}}


_SCALARS = {str: {"type": "string"}, bool: {"type": "boolean"}, float: {"type": "number"},
            int: {"type": "integer", "minimum": 0},
            None: {"type": "null"}}
_TREE = {"anyOf": [{"enum": ["*", None]}, *({"type": "object", "required": [k]} for k in ("tuple", "list", "dict", "fields"))]}


def _schema_of(shape: Any, named: Mapping[int, Any]) -> dict:
    """The JSON schema of a table of the loader's (see there)."""
    if shape is aot_runtime.ANY:
        return {}
    if found := named.get(id(shape)):
        return found
    if shape == aot_runtime.TREE:
        return {"$ref": "#/definitions/TREE"}
    if isinstance(shape, str):
        return {"const": shape}
    if isinstance(shape, tuple):
        return {"anyOf": [_schema_of(s, named) for s in shape]}
    if isinstance(shape, list):
        return {"type": "array", "items": _schema_of(shape[0], named)}
    if not isinstance(shape, dict):
        return _SCALARS[shape]
    if ... in shape:
        return {"type": "object", "additionalProperties": _schema_of(shape[...], named)}
    return {"type": "object", "required": [k for k in shape if not k.endswith("?")],
            "properties": {k.removesuffix("?"): _schema_of(v, named) for k, v in shape.items()}}


if __name__ == "__main__":
    print(json.dumps(json_schema(), indent=1))

"""The form of a schema that OpenAI's strict mode demands: every object closed, every key required. Pure.

Whoever may leave a key out gives ``null`` instead, which reads as the default. Source: OpenAI's guide "Structured model
outputs", supported schemas (December 2026).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._shapes import Schema

_DROPPED = frozenset(["default", "contentEncoding", "uniqueItems"])
"""Said nowhere in strict mode. Repetitions in a set are left out when it is read."""
_PLAIN = frozenset(
    (
        *("type", "description", "enum", "$ref", "format", "pattern", "minItems", "maxItems"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    )
)


class _UnfitError(Exception):
    """There is no strict form."""


def strict_schema(schema: Mapping[str, Any]) -> Schema | None:
    """Return the strict form of *schema*, which ``schema_of`` made.

    Returns:
        None where there is none: where a key can be any, a value can be anything, or a keyword is needed that strict
        mode doesn't know, such as for the length of a text.
    """
    try:
        return _strict(schema)
    except _UnfitError:
        return None


def _strict(schema: Mapping[str, Any]) -> Schema:
    made: Schema = {}
    for key, value in schema.items():
        if key in _PLAIN:
            made[key] = value
        elif key == "items":
            made[key] = _strict(value)
        elif key == "anyOf":
            made[key] = [_strict(one) for one in value]
        elif key == "$defs":
            made[key] = {name: _strict(one) for name, one in value.items()}
        elif key not in (*_DROPPED, "properties", "required", "additionalProperties"):
            raise _UnfitError
    if not made.keys() - {"description"}:
        raise _UnfitError  # it takes anything
    if "properties" in schema:
        made["properties"] = {
            name: _strict(one) if name in schema["required"] else _or_null(_strict(one))
            for name, one in schema["properties"].items()
        }
        made["required"] = list(schema["properties"])
        made["additionalProperties"] = False
    elif made.get("type") == "object":
        raise _UnfitError
    return _alone(made) if "$ref" in made else made


def _alone(schema: Schema) -> Schema:
    """A reference may have nothing beside it."""
    reference = {"$ref": schema["$ref"]}
    others = {key: value for key, value in schema.items() if key != "$ref"}
    return {"anyOf": [reference], **others} if others else reference


def _or_null(schema: Schema) -> Schema:
    if _takes_null(schema):
        return schema
    said = {"description": schema["description"]} if "description" in schema else {}
    inner = {key: value for key, value in schema.items() if key != "description"}
    choices = inner["anyOf"] if inner.keys() == {"anyOf"} else [inner]
    return {"anyOf": [*choices, {"type": "null"}], **said}


def _takes_null(schema: Schema) -> bool:
    return (
        schema.get("type") == "null" or None in schema.get("enum", ()) or any(map(_takes_null, schema.get("anyOf", ())))
    )

"""A JSON Schema as Anthropic's structured outputs take it.

They want every object closed, and know neither limits on numbers and lengths nor schemas that refer to themselves.
A limit that is left out does no harm: whoever asked checks the answer. Source: Anthropic's page on structured outputs,
and what its Python SDK 2.15 makes of a schema (December 2026).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_FORMATS: Final = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid")
)
_KEPT: Final = ("type", "description", "title", "enum", "const", "default", "$ref")
_TYPES: Final = frozenset(("array", "boolean", "integer", "null", "number", "object", "string"))


def sendable_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return *schema* without what the API refuses; None where it would no longer say the same."""
    try:
        if _refers_to_itself(schema):
            return None
        return _sendable(schema)
    except _UnfitError:
        return None


class _UnfitError(Exception):
    """The API has no way to say this."""


def _refers_to_itself(schema: Mapping[str, Any]) -> bool:
    """Whether following ``$ref`` from some definition comes back to it; one to the root always does."""
    definitions = schema.get("$defs") or {}
    targets = {name: _references(body) for name, body in definitions.items()}
    if "#" in _references({key: value for key, value in schema.items() if key != "$defs"}):
        return True
    for name in targets:
        reached: set[str] = set()
        waiting = [name]
        while waiting:
            for reference in targets.get(waiting.pop(), ()):
                if reference == "#" or reference == f"#/$defs/{name}":
                    return True
                target = reference.removeprefix("#/$defs/")
                if target not in reached:
                    reached.add(target)
                    waiting.append(target)
    return False


def _references(value: Any) -> set[str]:
    if isinstance(value, Mapping):
        found = {str(value["$ref"])} if isinstance(value.get("$ref"), str) else set()
        return found.union(*map(_references, value.values()))
    if isinstance(value, list):
        return set().union(*map(_references, value))
    return set()


def _sendable(schema: Any) -> dict[str, Any]:
    if not isinstance(schema, Mapping):
        raise _UnfitError
    made: dict[str, Any] = {key: schema[key] for key in _KEPT if key in schema}
    if definitions := schema.get("$defs"):
        made["$defs"] = {name: _sendable(body) for name, body in definitions.items()}
    variants = schema.get("anyOf") or schema.get("oneOf")
    if variants:
        made["anyOf"] = [_sendable(variant) for variant in variants]
    if schema.get("allOf") or not (variants or made.keys() & {"type", "enum", "const", "$ref"}):
        raise _UnfitError
    kind = made.get("type")
    if kind is not None and (not isinstance(kind, str) or kind not in _TYPES):
        raise _UnfitError
    if kind == "object":
        _close(schema, made)
    elif kind == "array":
        if "items" not in schema:
            raise _UnfitError
        made["items"] = _sendable(schema["items"])
        if schema.get("minItems") in (0, 1):
            made["minItems"] = schema["minItems"]
    elif kind == "string" and schema.get("format") in _FORMATS:
        made["format"] = schema["format"]
    return made


def _close(schema: Mapping[str, Any], made: dict[str, Any]) -> None:
    """Forbid other keys than those named: an object that is there for others, such as a ``dict``, can't be sent."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or schema.get("additionalProperties"):
        raise _UnfitError
    made["properties"] = {name: _sendable(body) for name, body in properties.items()}
    made["required"] = list(schema.get("required") or ())
    made["additionalProperties"] = False

"""JSON Schemas as OpenAI takes them: which can be strict, and what an answer's format is called.

Source: OpenAI's guides "Structured model outputs", supported schemas, and "Function calling", strict mode (December
2026). A strict schema with anything else in it is refused, and the request with it, so what isn't listed isn't strict.
"""

from __future__ import annotations

import re

from ..record._frozen import FrozenDict

_KEYWORDS = frozenset(
    (
        *("type", "title", "description", "enum", "const", "anyOf", "$ref", "$defs"),
        *("properties", "required", "additionalProperties", "items", "minItems", "maxItems"),
        *("pattern", "format", "multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    )
)


def format_name(schema: FrozenDict) -> str:
    """Return what an answer that fits *schema* is called: its title, of the characters that OpenAI takes."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", str(schema.get("title") or "answer"))[:64]


def can_be_strict(schema: object) -> bool:
    """Whether OpenAI takes *schema* as strict: an object at the top, all properties required, no others allowed."""
    return isinstance(schema, dict) and schema.get("type") == "object" and _is_strict(schema)


def _is_strict(schema: object) -> bool:
    if not isinstance(schema, dict) or not schema.keys() <= _KEYWORDS:
        return False
    properties, definitions = schema.get("properties", {}), schema.get("$defs", {})
    choices, required = schema.get("anyOf", []), schema.get("required", [])
    if not (isinstance(properties, dict) and isinstance(definitions, dict)):
        return False
    if not (isinstance(choices, list) and isinstance(required, list)):
        return False
    if _is_object(schema) and (schema.get("additionalProperties") is not False or {*required} != {*properties}):
        return False
    items = [schema["items"]] if "items" in schema else []
    return all(_is_strict(inner) for inner in (*properties.values(), *definitions.values(), *choices, *items))


def _is_object(schema: dict[str, object]) -> bool:
    kind = schema.get("type")
    return kind == "object" or "properties" in schema or (isinstance(kind, list) and "object" in kind)

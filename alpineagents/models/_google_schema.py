"""JSON Schema as Gemini takes it.

Source: Google's API reference, ``responseJsonSchema`` (v1beta, 2026), which lists the keywords that are supported:
others are ignored at best and refused at worst. A ``$ref`` may have no other keyword beside it.
"""

from __future__ import annotations

from typing import Any

_PLAIN = frozenset(
    (
        *("$anchor", "$id", "description", "enum", "format", "maxItems", "maximum", "minItems", "minimum"),
        *("propertyOrdering", "required", "title", "type"),
    )
)
_ONE = frozenset(("additionalProperties", "items"))
"""Keywords whose value is a schema."""
_LISTS = frozenset(("anyOf", "oneOf", "prefixItems"))
"""Keywords whose value is a list of schemas."""
_NAMED = frozenset(("$defs", "properties"))
"""Keywords whose value is a dict of schemas."""


def sendable_schema(schema: Any) -> Any:
    """Return *schema* with what Gemini supports of it, and what it doesn't in other words where there are such."""
    if not isinstance(schema, dict):
        return schema  # ``true`` and ``false`` are schemas.
    if "$ref" in schema:
        return _reference(schema)
    sent: dict[str, Any] = {}
    for key, value in _with_values(_with_bounds(_merged(_with_todays_names(schema)))).items():
        if key in _ONE and isinstance(value, dict | bool):
            sent[key] = sendable_schema(value)
        elif key in _LISTS and isinstance(value, list):
            sent[key] = [sendable_schema(item) for item in value]
        elif key in _NAMED and isinstance(value, dict):
            sent[key] = {name: sendable_schema(item) for name, item in value.items()}
        elif key in _PLAIN or key == "$ref":
            sent[key] = value
    return sent


def _with_todays_names(schema: dict[str, Any]) -> dict[str, Any]:
    """*schema* with the keywords of draft 2020-12, and without what would be wrong alone."""
    found = dict(schema)
    if isinstance(found.get("items"), list):
        found["prefixItems"] = found.pop("items")
    if found.get("patternProperties"):  # Not supported: nothing may forbid what it allows.
        found.pop("additionalProperties", None)
    if isinstance(definitions := found.pop("definitions", None), dict):
        found["$defs"] = {**definitions, **_dict(found.get("$defs"))}
    return found


def _reference(schema: dict[str, Any]) -> dict[str, Any]:
    """A reference: what is said of it stands outside, but for definitions, which begin with ``$`` too."""
    sent: dict[str, Any] = {"$ref": str(schema["$ref"]).replace("#/definitions/", "#/$defs/")}
    defined = _dict(_with_todays_names(schema).get("$defs"))
    if defined:
        sent["$defs"] = {name: sendable_schema(item) for name, item in defined.items()}
    elif "description" in schema:
        sent = {"description": schema["description"], "anyOf": [sent]}
    return sent


def _merged(schema: dict[str, Any]) -> dict[str, Any]:
    """*schema* with the schemas of its ``allOf`` in it, as far as they go together."""
    found = {key: value for key, value in schema.items() if key != "allOf"}
    for item in _list(schema.get("allOf")):
        if isinstance(item, dict):
            item = _merged(_with_todays_names(item))
            both = {**item, **found}
            both["properties"] = {**_dict(item.get("properties")), **_dict(found.get("properties"))}
            both["required"] = list(dict.fromkeys([*_list(found.get("required")), *_list(item.get("required"))]))
            found = {key: value for key, value in both.items() if value or key not in ("properties", "required")}
    return _reference(found) if "$ref" in found else found


def _with_bounds(schema: dict[str, Any]) -> dict[str, Any]:
    """*schema* with ``exclusiveMinimum`` and ``exclusiveMaximum`` as inclusive bounds: exact for integers."""
    found = dict(schema)
    step = 1 if schema.get("type") == "integer" else 0
    for exclusive, inclusive, sign in (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)):
        bound = found.get(exclusive)
        if isinstance(bound, int | float) and not isinstance(bound, bool):
            found.setdefault(inclusive, bound + sign * step)
    return found


def _with_values(schema: dict[str, Any]) -> dict[str, Any]:
    """*schema* with ``const`` as an ``enum``, which may list texts and numbers only: others become types."""
    values = [schema["const"]] if "const" in schema else _list(schema.get("enum"))
    found = {key: value for key, value in schema.items() if key not in ("const", "enum")}
    if not values or any(type(value) not in _NAMES for value in values):
        return found
    listed = [value for value in values if type(value) in (str, int, float)]
    types = [_NAMES[type(value)] for value in values if type(value) not in (str, int, float)]
    if not types:
        return {**found, "enum": listed, "type": found.get("type") or _common_type(listed)}
    if not listed:
        return {**found, "type": types[0] if len(set(types)) == 1 else list(dict.fromkeys(types))}
    found.pop("type", None)
    others = [{"type": name} for name in dict.fromkeys(types)]
    return {**found, "anyOf": [{"type": _common_type(listed), "enum": listed}, *others]}


_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def _common_type(values: list[Any]) -> Any:
    names = list(dict.fromkeys([_NAMES[type(value)] for value in values]))
    return names[0] if len(names) == 1 else names


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []

"""JSON Schema as Gemini takes it."""

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alpineagents.models._google_schema import sendable_schema
from alpineagents.testing._formats._google_config_rules import schema_problems


@pytest.mark.parametrize(
    ("schema", "sent"),
    [
        ({"type": "string", "pattern": "a", "minLength": 1, "$schema": "x", "default": 1}, {"type": "string"}),
        ({"type": "string", "format": "date", "title": "T"}, {"type": "string", "format": "date", "title": "T"}),
        ({"type": "integer", "exclusiveMinimum": 0, "maximum": 9}, {"type": "integer", "minimum": 1, "maximum": 9}),
        ({"type": "number", "exclusiveMinimum": 0}, {"type": "number", "minimum": 0}),
        ({"type": "integer", "exclusiveMaximum": 9, "minimum": 1}, {"type": "integer", "maximum": 8, "minimum": 1}),
        ({"type": "integer", "minimum": 5, "exclusiveMinimum": 3}, {"type": "integer", "minimum": 5}),
        ({"type": "number", "minimum": 0, "exclusiveMinimum": True}, {"type": "number", "minimum": 0}),
        ({"const": "a"}, {"enum": ["a"], "type": "string"}),
        ({"const": 1, "type": "integer"}, {"enum": [1], "type": "integer"}),
        ({"const": True}, {"type": "boolean"}),
        ({"const": None}, {"type": "null"}),
        ({"enum": ["a", 1]}, {"enum": ["a", 1], "type": ["string", "integer"]}),
        ({"enum": [True, False]}, {"type": "boolean"}),
        ({"enum": [True, None]}, {"type": ["boolean", "null"]}),
        (
            {"enum": ["a", None], "title": "T"},
            {"title": "T", "anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]},
        ),
        ({"$ref": "#/$defs/A", "default": 1}, {"$ref": "#/$defs/A"}),
        ({"$ref": "#/$defs/A", "description": "D"}, {"description": "D", "anyOf": [{"$ref": "#/$defs/A"}]}),
        (
            {"$ref": "#/definitions/A", "definitions": {"A": {"const": 1}}},
            {"$ref": "#/$defs/A", "$defs": {"A": {"enum": [1], "type": "integer"}}},
        ),
        (
            {"type": "object", "definitions": {"A": {"pattern": "a"}}, "$defs": {"B": True}},
            {"type": "object", "$defs": {"A": {}, "B": True}},
        ),
        ({"type": "object", "definitions": {"A": {"pattern": "a"}}}, {"type": "object", "$defs": {"A": {}}}),
        ({"allOf": [{"$ref": "#/$defs/A"}]}, {"$ref": "#/$defs/A"}),
        (
            {
                "allOf": [
                    {"properties": {"a": {"const": 1}}, "required": ["a"]},
                    {"allOf": [{"properties": {"b": {}}, "required": ["b", "a"], "type": "object"}]},
                    True,
                ]
            },
            {
                "properties": {"a": {"enum": [1], "type": "integer"}, "b": {}},
                "required": ["a", "b"],
                "type": "object",
            },
        ),
        (
            {"items": {"not": {}}, "prefixItems": [{"uniqueItems": True}], "anyOf": [{"const": "a"}, False]},
            {"items": {}, "prefixItems": [{}], "anyOf": [{"enum": ["a"], "type": "string"}, False]},
        ),
        ({"properties": {"pattern": {"pattern": "a"}}}, {"properties": {"pattern": {}}}),
        ({"additionalProperties": False, "type": "object"}, {"additionalProperties": False, "type": "object"}),
        (True, True),
        ({"enum": ["a", ["b"]]}, {}),
        ({"const": {}}, {}),
        ({"patternProperties": {"a": {}}, "additionalProperties": False, "type": "object"}, {"type": "object"}),
        ({"items": [{"const": 1}, True]}, {"prefixItems": [{"enum": [1], "type": "integer"}, True]}),
        (
            {"properties": None, "items": 1, "anyOf": {}, "allOf": {}, "enum": "a", "definitions": 1, "type": "null"},
            {"type": "null"},
        ),
    ],
)
def test_a_schema_is_sent_with_what_is_supported(schema, sent):
    assert sendable_schema(schema) == sent
    assert list(schema_problems(sent)) == []


SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["a", "b"])
LEAVES = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["string", "integer", "number", "boolean", "null"]),
        "const": SCALARS,
        "enum": st.lists(SCALARS | st.just(["a"]), min_size=1, max_size=3),
        "minimum": st.integers(-3, 3),
        "exclusiveMinimum": st.integers(-3, 3),
        "exclusiveMaximum": st.integers(-3, 3),
        "pattern": st.just("a"),
        "title": st.just("T"),
    },
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "items": inner,
            "properties": st.dictionaries(st.sampled_from(["a", "b"]), inner),
            "required": st.lists(st.sampled_from(["a", "b"]), unique=True),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "patternProperties": st.dictionaries(st.just("a"), inner),
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "additionalProperties": st.booleans(),
        },
    ),
    max_leaves=4,
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b"]), inner),
    max_leaves=4,
)


@given(SCHEMAS, VALUES)
def test_what_fits_a_schema_fits_what_is_sent_of_it(schema, value):
    """It may say less than the schema, and never anything else: arguments are checked against the whole one."""
    sent = sendable_schema(schema)

    assert list(schema_problems(sent)) == []
    if fits(value, schema):
        assert fits(value, sent)


def fits(value, schema):
    return jsonschema.Draft202012Validator(schema).is_valid(value)

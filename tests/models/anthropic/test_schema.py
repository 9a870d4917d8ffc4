"""Which JSON Schemas go to structured outputs, and as what."""

from dataclasses import dataclass
from typing import Any, Literal

import jsonschema
import pytest

from alpineagents.models._anthropic_schema import sendable_schema
from alpineagents.testing._formats._anthropic_rules import problems
from alpineagents.tools._answer import answer_shape

OBJECT = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}


@dataclass
class Inner:
    name: str
    kind: Literal["x", "y"] = "x"


@dataclass
class Outer:
    inner: Inner
    many: list[Inner]
    maybe: float | None = None


@dataclass
class Tree:
    name: str
    children: list["Tree"]


@pytest.mark.parametrize("hint", [int, list[int], Inner, Outer, list[Outer], Literal["a", 1], str | None])
def test_the_schemas_of_types_are_sent_and_say_the_same(hint):
    schema = answer_shape(hint).schema

    sent = sendable_schema(schema)

    assert sent is not None
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    body["output_config"] = {"format": {"type": "json_schema", "schema": sent}}
    assert list(problems(body, {"anthropic-version": "2026-10-21"})) == []
    jsonschema.Draft202012Validator.check_schema(sent)


@pytest.mark.parametrize("hint", [dict[str, int], Any, list[dict[str, str]], Tree], ids=str)
def test_what_the_api_has_no_way_to_say_is_not_sent(hint):
    assert sendable_schema(answer_shape(hint).schema) is None


def test_limits_are_left_out_and_unions_are_any_of():
    schema = {
        **OBJECT,
        "properties": {
            "n": {"type": "integer", "minimum": 1, "description": "How many"},
            "day": {"type": "string", "format": "date", "pattern": "x"},
            "name": {"type": "string", "format": "color", "maxLength": 3},
            "one": {"oneOf": [{"const": 1}, {"enum": ["a"]}]},
            "some": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3},
            "many": {"type": "array", "items": {"type": "string"}, "minItems": 2},
            "ref": {"$ref": "#/$defs/thing"},
        },
        "required": ["n"],
        "$defs": {"thing": OBJECT},
    }

    assert sendable_schema(schema) == {
        "type": "object",
        "properties": {
            "n": {"type": "integer", "description": "How many"},
            "day": {"type": "string", "format": "date"},
            "name": {"type": "string"},
            "one": {"anyOf": [{"const": 1}, {"enum": ["a"]}]},
            "some": {"type": "array", "items": {"type": "string"}, "minItems": 1},
            "many": {"type": "array", "items": {"type": "string"}},
            "ref": {"$ref": "#/$defs/thing"},
        },
        "required": ["n"],
        "additionalProperties": False,
        "$defs": {"thing": {**OBJECT, "required": []}},
    }


REF = {"$ref": "#/$defs/a"}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "properties": {}, "additionalProperties": True},
        {"type": ["string", "null"]},
        {"type": "text"},
        {"type": "array"},
        {"allOf": [OBJECT]},
        {},
        {"anyOf": [True]},
        {**OBJECT, "properties": {"me": {"$ref": "#"}}},
        {**OBJECT, "properties": {"x": REF}, "$defs": {"a": {"type": "array", "items": REF}}},
        {**OBJECT, "properties": {"x": REF}, "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [REF]}}},
        {**OBJECT, "properties": {"x": REF}, "$defs": {"a": {"$ref": "#"}}},
    ],
)
def test_schemas_that_would_be_refused_or_say_less_are_not_sent(schema):
    assert sendable_schema(schema) is None


def test_definitions_that_refer_to_each_other_in_one_direction_are_sent():
    chain = {"a": {"anyOf": [{"$ref": "#/$defs/b"}, {"$ref": "#/$defs/c"}]}, "b": {"$ref": "#/$defs/c"}, "c": OBJECT}

    assert sendable_schema({**OBJECT, "properties": {"x": REF}, "$defs": chain}) is not None

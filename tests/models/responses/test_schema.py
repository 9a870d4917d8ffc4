"""Which schemas OpenAI is told to hold a model to, by Chat Completions and Responses alike."""

import pytest

from alpineagents.models._openai_schema import can_be_strict, format_name
from alpineagents.record import freeze

PATH = {"type": "string"}
CLOSED = {"type": "object", "properties": {"path": PATH}, "required": ["path"], "additionalProperties": False}


@pytest.mark.parametrize(
    "schema",
    [
        CLOSED,
        {"type": "object", "properties": {}, "additionalProperties": False},
        {**CLOSED, "title": "Path", "description": "A path.", "$defs": {"P": PATH}},
        {**CLOSED, "properties": {"path": {"anyOf": [PATH, {"type": "null"}]}}},
        {**CLOSED, "properties": {"path": {"type": "array", "items": CLOSED, "minItems": 1}}},
        {**CLOSED, "properties": {"path": {"enum": ["a", {"default": 1}]}}},
        {**CLOSED, "properties": {"path": {"type": ["string", "null"], "pattern": "x"}}},
        {**CLOSED, "properties": {"default": {"type": "integer", "minimum": 1}}, "required": ["default"]},
    ],
)
def test_a_closed_schema_can_be_strict(schema):
    assert can_be_strict(schema)
    assert can_be_strict(freeze(schema))


@pytest.mark.parametrize(
    "schema",
    [
        None,
        {},
        {"type": "string"},
        {"anyOf": [CLOSED]},
        {"type": "object"},
        {**CLOSED, "required": []},
        {**CLOSED, "required": ["path", "other"]},
        {**CLOSED, "additionalProperties": PATH},
        {**CLOSED, "oneOf": []},
        {**CLOSED, "properties": {"path": {**PATH, "default": "."}}},
        {**CLOSED, "properties": {"path": {**PATH, "maxLength": 3}}},
        {**CLOSED, "properties": {"path": {"type": "object"}}},
        {**CLOSED, "properties": {"path": {"type": ["object", "null"]}}},
        {**CLOSED, "properties": {"path": {"type": "array", "items": {"type": "object"}}}},
        {**CLOSED, "properties": {"path": {"anyOf": [{"type": "object"}]}}},
        {**CLOSED, "properties": {"path": True}},
        {**CLOSED, "$defs": {"P": {"type": "object"}}},
        {**CLOSED, "properties": []},
        {**CLOSED, "$defs": None},
        {**CLOSED, "anyOf": None},
        {**CLOSED, "required": None},
    ],
)
def test_another_is_sent_as_a_wish(schema):
    """OpenAI would refuse the whole request for one that isn't of its strict kind."""
    assert not can_be_strict(schema)


@pytest.mark.parametrize(("title", "name"), [("My answer!", "My_answer_"), ("", "answer"), ("x" * 70, "x" * 64)])
def test_an_answers_format_is_called_by_its_title(title, name):
    assert format_name(freeze({"title": title})) == name

"""``@tool(strict=True)``: the form of a schema that OpenAI's strict mode demands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from annotated_types import MinLen

from alpineagents import tool
from alpineagents.models._openai_schema import can_be_strict

from .calls import read


@dataclass
class Inner:
    """Inside."""

    x: int = 1
    kind: Literal["inner"] = "inner"


@dataclass
class Node:
    name: str
    following: Annotated[Node | None, "the next"] = None
    other: Annotated[Node, "another"] | None = None


@tool(strict=True)
def save(
    name: str,
    tags: set[str],
    data: bytes,
    inner: Inner | None = None,
    count: Annotated[int, "how many"] = 3,
    size: Literal["s", None] = "s",
    unit: Literal["m", "s"] = "m",
    either: int | str = 0,
) -> None:
    """Save."""


def test_every_object_is_closed_and_every_key_required() -> None:
    properties = save.input_schema["properties"]

    assert save.input_schema["required"] == list(properties)
    assert save.input_schema["additionalProperties"] is False
    assert properties["tags"] == {"type": "array", "items": {"type": "string"}}
    assert properties["data"].keys() == {"type", "pattern"}
    assert properties["count"] == {"anyOf": [{"type": "integer"}, {"type": "null"}], "description": "how many"}
    assert properties["size"] == {"enum": ["s", None]}
    assert properties["unit"] == {"anyOf": [{"type": "string", "enum": ["m", "s"]}, {"type": "null"}]}
    assert properties["either"] == {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]}
    assert properties["inner"]["anyOf"][0] == {
        "type": "object",
        "description": "Inside.",
        "properties": {
            "x": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "kind": {"type": "string", "enum": ["inner"]},
        },
        "required": ["x", "kind"],
        "additionalProperties": False,
    }
    assert can_be_strict(save.input_schema)


def test_null_means_the_default() -> None:
    sent: dict[str, Any] = dict.fromkeys(save.input_schema["required"])
    sent |= {"name": "a", "tags": ["x", "x"], "data": "", "inner": {"x": None, "kind": "inner"}}

    assert read(save, **sent) == {"name": "a", "tags": {"x"}, "data": b"", "inner": Inner(), "size": None}


def test_a_reference_stands_alone() -> None:
    @tool(strict=True)
    def walk(start: Annotated[Node, "the first"]) -> None: ...

    assert walk.input_schema["properties"]["start"] == {"anyOf": [{"$ref": "#/$defs/Node"}], "description": "the first"}
    assert walk.input_schema["$defs"]["Node"]["required"] == ["name", "following", "other"]
    assert can_be_strict(walk.input_schema)
    assert read(walk, start={"name": "a", "following": None, "other": None}) == {"start": Node("a")}


def test_a_tool_without_parameters_has_a_strict_form() -> None:
    @tool(strict=True)
    def ping() -> None: ...

    assert can_be_strict(ping.input_schema)


@pytest.mark.parametrize("hint", [dict[str, str], dict, Any, list, tuple[int, str], Annotated[str, MinLen(1)]])
def test_a_tool_that_has_no_strict_form_keeps_the_usual_one(hint: Any) -> None:
    def f(p, q=1):
        return p, q

    f.__annotations__ = {"p": hint, "q": int}

    assert tool(strict=True)(f).input_schema == tool(f).input_schema

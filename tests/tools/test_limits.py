"""Limits in ``Annotated``: what the schema says of them, and who is held to them."""

from __future__ import annotations

import dataclasses
import re
from decimal import Decimal
from typing import Annotated, Any, NewType

import pydantic
import pytest
from annotated_types import Ge, Gt, Interval, Le, Len, Lt, MaxLen, MinLen, MultipleOf, Predicate, Unit

from alpineagents import ToolInputError
from alpineagents.tools._answer import answer_shape

from .calls import read
from .test_types import one, schema

Positive = NewType("Positive", Annotated[int, Ge(1)])  # type: ignore[valid-newtype]
Described = NewType("Described", Annotated[int, "a number"])  # type: ignore[valid-newtype]


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (Annotated[int, Ge(0), Lt(5)], {"type": "integer", "minimum": 0, "exclusiveMaximum": 5}),
        (Annotated[float, Gt(0.5), Le(1)], {"type": "number", "exclusiveMinimum": 0.5, "maximum": 1}),
        (Annotated[int, MultipleOf(5)], {"type": "integer", "multipleOf": 5}),
        (Annotated[int, Ge(10**400)], {"type": "integer", "minimum": 10**400}),
        (Annotated[int, Interval(ge=1, le=3)], {"type": "integer", "minimum": 1, "maximum": 3}),
        (Annotated[str, Len(1, 3)], {"type": "string", "minLength": 1, "maxLength": 3}),
        (Annotated[list[int], MinLen(2)], {"type": "array", "items": {"type": "integer"}, "minItems": 2}),
        (
            Annotated[dict[str, int], MaxLen(2), MinLen(1)],
            {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 2, "minProperties": 1},
        ),
        (Annotated[int, pydantic.Field(gt=2, description="many")], schema(Annotated[int, Gt(2), "many"])),
        (Annotated[str, pydantic.Field(pattern=re.compile("a+"))], {"type": "string", "pattern": "a+"}),
        (Annotated[int | None, Ge(1)], {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]}),
        (Annotated[Annotated[int, "inner"], Ge(1)], {"type": "integer", "minimum": 1, "description": "inner"}),
        (Annotated[Annotated[int, Ge(1), Le(9)], Ge(0), Le(8)], {"type": "integer", "minimum": 1, "maximum": 8}),
        (Annotated[Positive, Ge(3), Lt(9)], {"type": "integer", "minimum": 3, "exclusiveMaximum": 9}),
        (Annotated[Described, Ge(3)], {"type": "integer", "minimum": 3, "description": "a number"}),
        (Annotated[int, MultipleOf(5), MultipleOf(5), Unit("m"), object()], {"type": "integer", "multipleOf": 5}),
    ],
)
def test_limits_are_in_the_schema(hint: Any, expected: Any) -> None:
    assert schema(hint) == expected


@pytest.mark.parametrize(
    ("hint", "sent", "problem"),
    [
        (Annotated[int, Ge(0)], -1, "p: expected integer (>= 0), got integer -1"),
        (Annotated[int, Ge(0)], "-1", 'p: expected integer (>= 0), got string "-1"'),
        (Annotated[float, Gt(0), Lt(1)], 1, "p: expected number (> 0, < 1), got integer 1"),
        (Annotated[float, Le(2**53)], 2**53 + 1, "(<= 9007199254740992)"),  # as a float it would fit
        (Annotated[int, MultipleOf(5)], 7, "(a multiple of 5)"),
        (Annotated[float, MultipleOf(0.5)], 0.7, "(a multiple of 0.5)"),
        (Annotated[float, MultipleOf(5e-324)], 1.0, None),
        (Annotated[int, MultipleOf(0.5)], 10**400, None),
        (Annotated[str, MinLen(2)], "a", "(at least 2 long)"),
        (Annotated[list[int], MaxLen(1)], [1, 2], "(at most 1 long), got array [1, 2]"),
        (Annotated[set[int], MinLen(2)], [1, 1], "(at least 2 long)"),
        (Annotated[dict[str, int], MinLen(1)], {}, "(at least 1 keys)"),
        (Annotated[str, pydantic.Field(pattern="^a+$")], "b", "(matching '^a+$')"),
        (Annotated[int | None, Ge(1)], 0, "p: expected integer (>= 1), got integer 0"),
    ],
)
def test_limits_are_kept(hint: Any, sent: Any, problem: str | None) -> None:
    if problem is None:
        assert read(one(hint), p=sent)["p"] == sent
        return
    with pytest.raises(ToolInputError) as refusal:
        read(one(hint), p=sent)

    assert problem in str(refusal.value)


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        (Annotated[int, Predicate(bool)], "Predicate(bool) can't be said in a JSON Schema; check it in the function"),
        (Annotated[Decimal, Ge(0)], "the limit ge=0 doesn't go with decimal number as a string"),
        (Annotated[bool, Ge(0)], "the limit ge=0 doesn't go with boolean"),
        (Annotated[int, MinLen(1)], "the limit min_length=1 doesn't go with integer"),
        (Annotated[str | list[int], Ge(1)], "the limit ge=1 doesn't go with string or array of integer"),
        (Annotated[int, Ge("a")], "the limit ge='a' doesn't go with integer"),  # type: ignore[arg-type]
        (Annotated[int, MultipleOf(0)], "the limit multiple_of=0 doesn't go"),
        (Annotated[int, Ge(float("nan"))], "the limit ge=nan doesn't go with integer"),
        (Annotated[str, MinLen(-1)], "the limit min_length=-1 doesn't go with string"),
        (Annotated[str, pydantic.Field(pattern="(")], "the limit pattern='(' doesn't go with string"),
        (Annotated[int, MultipleOf(2), MultipleOf(3)], "two limits multiple_of: 2 and 3; a JSON Schema has one"),
        (
            Annotated[Annotated[str, pydantic.Field(pattern="a")], pydantic.Field(pattern="b")],
            "two limits pattern: 'a' and 'b'",
        ),
    ],
)
def test_what_no_schema_can_say_is_refused_at_once(hint: Any, said: str) -> None:
    with pytest.raises(TypeError, match=f"parameter 'p': {re.escape(said)}"):
        one(hint)


def test_a_limit_on_a_class_that_refers_to_itself_is_refused_as_on_any_other() -> None:
    @dataclasses.dataclass
    class Node:
        parent: Annotated[Node | None, MinLen(1)] = None

    with pytest.raises(TypeError, match=r"Node.parent: the limit min_length=1 doesn't go with object Node or null"):
        one(Node)


def test_the_limits_of_an_answer_are_told_too() -> None:
    shape = answer_shape(Annotated[dict[str, int], MinLen(1)])

    assert shape.schema["minProperties"] == 1
    with pytest.raises(ToolInputError, match="at least 1 keys"):
        shape.read_text("{}")

"""The answer that ``ask`` wants: what the model is told, and what is read from its text."""

from __future__ import annotations

import dataclasses
import datetime
import enum
from typing import Any, Literal, TypedDict

import pytest

from alpineagents import Agent, Message, State, ToolInputError
from alpineagents.testing import FakeModel
from alpineagents.tools._answer import answer_shape


class Size(enum.Enum):
    BIG = "big"
    SMALL = "small"


@dataclasses.dataclass
class Place:
    city: str
    people: int = 0


@dataclasses.dataclass
class Trip:
    stops: tuple[str, ...]
    span: tuple[int, int]
    start: datetime.date
    length: datetime.timedelta | None = None


@dataclasses.dataclass
class Tree:
    name: str
    children: list[Tree] = dataclasses.field(default_factory=list)


class Line(TypedDict):
    length: float


def test_an_object_is_asked_for_as_it_is() -> None:
    assert answer_shape(Place).schema["properties"].keys() == {"city", "people"}
    assert answer_shape(Line).schema["required"] == ["length"]
    assert answer_shape(dict[str, int]).schema == {"type": "object", "additionalProperties": {"type": "integer"}}


def test_what_is_no_object_is_asked_for_inside_of_one() -> None:
    assert answer_shape(list[int]).schema == {
        "type": "object",
        "properties": {"answer": {"type": "array", "items": {"type": "integer"}}},
        "required": ["answer"],
        "additionalProperties": False,
    }


def test_the_root_of_a_recursive_class_is_an_object() -> None:
    schema = answer_shape(Tree).schema

    assert schema["type"] == "object"
    assert schema["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}
    assert schema["$defs"]["Tree"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}


@pytest.mark.parametrize(
    ("hint", "text", "answer", "plain"),
    [
        (int, '{"answer": 3}', 3, 3),
        (int, "3", 3, 3),
        (int, '{"answer": "3"}', 3, 3),
        (bool, "true", True, True),
        (bool, '{"answer": false}', False, False),
        (Literal["yes", "no"], "yes\n", "yes", "yes"),
        (Literal["yes", "no"], '"yes"', "yes", "yes"),
        (Size, "big", Size.BIG, "big"),
        (list[Size], '{"answer": ["big"]}', [Size.BIG], ["big"]),
        (dict[str, Size], '{"a": "big"}', {"a": Size.BIG}, {"a": "big"}),
        (list[int], "Here it is:\n```json\n[1, 2]\n```\nDone.", [1, 2], [1, 2]),
        (Place, '{"city": "Bern"}', Place("Bern"), {"city": "Bern", "people": 0}),
        (Place, 'Sure! {"city": "Bern"} Bye.', Place("Bern"), {"city": "Bern", "people": 0}),
        (Place, '```\n{"city": "Bern"}\n```', Place("Bern"), {"city": "Bern", "people": 0}),
        (
            Trip,
            '{"stops": ["Bern", "Chur"], "span": [1, 2], "start": "2026-12-31"}',
            Trip(("Bern", "Chur"), (1, 2), datetime.date(2026, 12, 31)),
            {"stops": ["Bern", "Chur"], "span": [1, 2], "start": "2026-12-31", "length": None},
        ),
        (tuple[int, str], '{"answer": [1, "a"]}', (1, "a"), [1, "a"]),
        (set[int], "[1, 2]", {1, 2}, [1, 2]),
        (datetime.date, "2026-12-31", datetime.date(2026, 12, 31), "2026-12-31"),
        (Line, '{"length": 2}', {"length": 2.0}, {"length": 2.0}),
        (Place | None, '{"answer": null}', None, None),
        (str | None, "just text", "just text", "just text"),
    ],
)
def test_an_answer_is_found_in_the_text(hint: Any, text: str, answer: Any, plain: Any) -> None:
    found, json_form = answer_shape(hint).read_text(text)

    assert found == answer
    assert type(found) is type(answer)
    assert json_form == plain


@pytest.mark.parametrize(
    ("hint", "text", "said"),
    [
        (int, "three", 'wrong answer: expected a JSON object, got the text "three"'),
        (int, '{"answer": "x"}', 'wrong answer: answer: expected integer, got string "x"'),
        (Place, "", 'wrong answer: expected a JSON object, got the text ""'),
        (Place, '{"city": 3}', "wrong answer: city: expected string, got integer 3"),
        (float, '{"answer": NaN}', "expected a JSON object, got the text"),
        (Place, "[" * 100_000, "expected a JSON object, got the text"),
    ],
)
def test_what_is_wrong_is_said(hint: Any, text: str, said: str) -> None:
    with pytest.raises(ToolInputError) as refusal:
        answer_shape(hint).read_text(text)

    assert said in str(refusal.value)


def test_a_field_without_a_json_form_of_its_own_is_recorded_as_the_model_wrote_it() -> None:
    text = '{"stops": [], "span": [1, 2], "start": "2026-12-31", "length": "P1D"}'

    answer, json_form = answer_shape(Trip).read_text(text)

    assert answer.length == datetime.timedelta(days=1)
    assert json_form == {"stops": [], "span": [1, 2], "start": "2026-12-31", "length": "P1D"}


async def test_an_agent_asks_for_such_an_answer() -> None:
    model = FakeModel(['{"stops": ["Bern"], "span": [1, 2], "start": "2026-12-31"}'])
    state = State(messages=[Message.user("Where?")])

    answer = await Agent(model=model).ask(state, "Which trip?", returns=Trip)

    assert answer == Trip(("Bern",), (1, 2), datetime.date(2026, 12, 31))


def test_a_type_that_is_not_supported_is_refused() -> None:
    with pytest.raises(TypeError, match=r"returns: the type complex isn't supported"):
        answer_shape(complex)


def test_what_the_model_wrote_is_recorded_where_the_class_has_no_json_form() -> None:
    @dataclasses.dataclass
    class Odd:
        n: int
        seen: object = dataclasses.field(init=False, default_factory=object)

    _, json_form = answer_shape(Odd).read_text('{"n": "3"}')

    assert json_form == {"n": "3"}


def test_a_fence_that_nobody_closes_costs_no_more_than_its_length() -> None:
    """Models that run wild write line breaks until they are cut off. Squared, this would take an hour."""
    with pytest.raises(ToolInputError, match="expected a JSON object, got the text"):
        answer_shape(dict[str, int]).read_text("```json\n" + "\n" * 1_000_000)

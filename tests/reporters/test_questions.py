"""How questions are put to a person who types, and what is taken for an answer."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alpineagents import NoHumanError, Question, State
from alpineagents.record import ToolCall
from alpineagents.reporters._terminal._questions import Answered, AskAgain, prompt_for
from alpineagents.tools._answer import fitted_answer
from alpineagents.tools._by_human import Approval, approval


class Colour(Enum):
    RED = "red"
    GREEN = "green"


class Size(IntEnum):
    SMALL = 1
    LARGE = 10


@attrs.frozen
class Person:
    name: str
    age: int = 0


@attrs.frozen
class Grown:
    age: int = attrs.field(validator=attrs.validators.ge(18))


@attrs.frozen
class Odd:
    name: str

    def __attrs_post_init__(self) -> None:
        raise LookupError(f"nobody knows {self.name}")


STATE = State()


def prompt(returns: Any, text: str = "Which?"):
    return prompt_for(Question(text, id="q1", state=STATE), returns)


def approving(text: str = "Allow shell with {}?"):
    call = ToolCall("c1", "shell", {})
    return prompt_for(Question(text, id="q1", state=STATE, call=call, is_approval=True), Approval)


@pytest.mark.parametrize(
    ("typed", "answer"),
    [("y", "yes"), ("YES", "yes"), (" n ", "no"), ("No", "no"), ("a", "always"), ("always", "always")],
)
def test_a_call_is_approved(typed, answer):
    assert approving().read(typed) == Answered(answer)
    assert approval(answer) == answer


@pytest.mark.parametrize("typed", ["", "  ", "yep", "1", "yes please", '"yes"'])
def test_what_is_no_approval_is_asked_again(typed):
    """Enter alone, too: nothing is allowed by a slip, and nothing refused."""
    assert approving().read(typed) == AskAgain("Answer yes, no or always.")


def test_a_call_that_nobody_can_approve_is_refused():
    assert approving().at_end() == Answered("no")


def test_a_question_that_nobody_can_answer():
    with pytest.raises(NoHumanError, match=r"the input ended before anybody answered: 'Which\?'"):
        prompt(str).at_end()


ANSWERS: list[tuple[Any, str, object]] = [
    (bool, "y", True),
    (bool, "no", False),
    (bool, "TRUE", True),
    (str, "some text", "some text"),
    (str, " 5 ", " 5 "),
    (str, '"quoted"', '"quoted"'),
    (str, "two\nlines", "two\nlines"),
    (str | None, "text", "text"),
    (str | None, "", None),
    (Literal["a", "B"], "a", "a"),
    (Literal["a", "B"], "b", "B"),
    (Literal["a", "B"], "2", "B"),
    (Literal["a", "B"] | None, "2", "B"),
    (Literal["a", "B"] | None, "", None),
    (Annotated[Literal["a", "B"], "which"], "2", "B"),
    (Literal["2", "1"], "1", "1"),
    (Literal[3, 2, 1], "1", 1),
    (Literal[True, "maybe"], "true", True),
    (Literal[True, "maybe"], "2", "maybe"),
    (Literal["two\nlines", "one"], "two lines", "two\nlines"),
    (Colour, "red", Colour.RED),
    (Colour, "RED", Colour.RED),
    (Colour, "2", Colour.GREEN),
    (Size, "large", Size.LARGE),
    (Size, "2", Size.LARGE),
    (int, "5", 5),
    (int, " -5 ", -5),
    (int | None, "5", 5),
    (int | None, " ", None),
    (float, "2.5", 2.5),
    (Decimal, "2.50", Decimal("2.50")),
    (date, "2026-12-31", date(2026, 12, 31)),
    (Path, "a/b", Path("a/b")),
    (Path, "5", Path("5")),
    (list[int], "[1, 2]", [1, 2]),
    (list[str], '["a"]', ["a"]),
    (dict[str, int], '{"a": 1}', {"a": 1}),
    (Person, '{"name": "Ada"}', Person("Ada")),
    (str | int, "5", "5"),
    (object, "5", "5"),
]


@pytest.mark.parametrize(("returns", "typed", "answer"), ANSWERS, ids=lambda value: str(value))
def test_what_is_typed_is_an_answer(returns, typed, answer):
    given = prompt(returns).read(typed)

    assert isinstance(given, Answered)
    assert fitted_answer(given.value, returns)[0] == answer


@pytest.mark.parametrize(
    ("returns", "typed", "reason"),
    [
        (bool, "", "Answer yes or no."),
        (bool, "5", "Answer yes or no."),
        (str, " ", "Type an answer."),
        (Literal["a", "b"], "", "Type a number or a name."),
        (Literal["a", "b"], "3", "Type a number or a name."),
        (Literal["a", "b"], "c", "Type a number or a name."),
        (Literal["a", "b"] | None, "c", "Type a number or a name, or nothing."),
        (Literal[3, 2, 1], "4", "Type one of these."),
        (int, "", "Type an integer."),
        (int, "many", 'Not an answer: expected integer, got string "many".'),
        (int | None, "many", 'Not an answer: expected integer or null, got string "many".'),
        (date, "", "Type a date like 2026-12-31."),
        (Decimal, "", "Type a decimal number."),
        (list[int], "", "Type JSON, an array of integer."),
        (list[int], '["a"]', 'Not an answer: [0]: expected integer, got string "a".'),
        (dict[str, int], "", "Type JSON, an object whose values are integer."),
        (Person, "", 'Type JSON with "name", "age" (optional).'),
        (Person, "Ada", 'Not an answer: expected object Person, got string "Ada".'),
        (Odd, '{"name": "x"}', "Not an answer: nobody knows x."),
        (Grown, '{"age": 3}', "Not an answer: not a valid Grown: 'age' must be >= 18: 3."),
        (
            list[int],
            '["a", "b\x1b"]',
            'Not an answer: expected array of integer, got string "[\\"a\\", \\"b\\u001b\\"]".',
        ),
        (
            list[int],
            '["a", "b"]',
            'Not an answer: 2 problems: - [0]: expected integer, got string "a" - [1]: expected integer, got string'
            ' "b".',
        ),
    ],
)
def test_what_is_no_answer_is_asked_again_and_why(returns, typed, reason):
    assert prompt(returns).read(typed) == AskAgain(reason)


@pytest.mark.parametrize(
    ("returns", "lines", "expects"),
    [
        (bool, [], "yes or no"),
        (str, [], ""),
        (str | None, [], "text, or nothing"),
        (object, [], ""),
        (str | int, [], "a string or integer"),
        (Literal["a", "b"], ["  1) a", "  2) b"], "a number or a name"),
        (Literal["a", "b"] | None, ["  1) a", "  2) b"], "a number or a name, or nothing"),
        (Literal["a\x1b[2J", "b\n"], ["  1) a\\x1b[2J", "  2) b"], "a number or a name"),
        (Literal[10, 20], ["  10", "  20"], "one of these"),
        (Colour, ["  1) red", "  2) green"], "a number or a name"),
        (Size, ["  1) SMALL", "  2) LARGE"], "a number or a name"),
        (int, [], "an integer"),
        (int | None, [], "an integer, or nothing"),
        (Person, [], 'JSON with "name", "age" (optional)'),
    ],
)
def test_what_is_shown(returns, lines, expects):
    asked = prompt(returns, "Which one?\nSay!")

    assert asked.lines == ("Which one?", "Say!", *lines)
    assert asked.expects == expects


def test_what_is_shown_of_an_approval():
    asked = approving('Allow shell with\n{"command":"rm \x9b2K\u202e -r"}?')

    assert asked.lines == ("Allow shell with", '{"command":"rm \\x9b2K\\u202e -r"}?')
    assert asked.expects == "yes, no or always"


@given(
    st.text(),
    st.sampled_from([bool, str, int, float, Colour, Size, Literal["a", "1"], list[str], Person, str | None, object]),
)
def test_whatever_is_typed_is_an_answer_of_the_type_or_told_why_not(typed, returns):
    given = prompt(returns).read(typed)

    match given:
        case Answered(value):
            fitted_answer(value, returns)
        case AskAgain(reason):
            assert reason.isprintable() or any(not char.isprintable() for char in typed)
            assert len(reason.splitlines()) == 1

"""How a question is put to a person who types, and what an answer means. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from types import NoneType
from typing import Any, Final, final

import attrs

from ..._errors import NoHumanError
from ..._human import Question
from ...tools._answer import fitted_answer
from ...tools._by_human import Approval
from ...tools._compounds import ObjectShape
from ...tools._misfit import error_text
from ...tools._schema import shape_of
from ...tools._shapes import ChoiceShape, PlainShape, Shape, parse_json
from ...tools._unions import UnionShape
from ._shown import one_line, printable

_APPROVALS: Final[Mapping[str, Approval]] = {
    "y": "yes",
    "yes": "yes",
    "n": "no",
    "no": "no",
    "a": "always",
    "always": "always",
}
_TRUTH: Final = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}


@final
@attrs.frozen
class Answered:
    """What was typed is an answer."""

    value: object
    """What ``Human.ask`` returns: the JSON form, or a choice."""


@final
@attrs.frozen
class AskAgain:
    """What was typed is none."""

    reason: str
    """What is wrong and what would be right: one line to show."""


@final
@attrs.frozen
class Prompt:
    """A question as it is shown, and how its answer is read."""

    lines: tuple[str, ...]
    """What is asked, and a line for each choice. Without control characters."""
    expects: str
    """What may be typed, in a few words, such as ``yes, no or always``; empty where it is any text."""
    _returns: object
    _is_approval: bool
    _shape: Shape | None
    """Of the answer; ``None`` where any will do."""
    _choices: Mapping[str, object]
    """Answers by what may be typed for them, in lower case."""

    def read(self, text: str) -> Answered | AskAgain:
        """Return the answer that a typed line is, or why it is none."""
        word = text.strip()
        if word.casefold() in self._choices:
            return Answered(self._choices[word.casefold()])
        if self._is_approval or _is_bool(self._shape):
            return AskAgain(f"Answer {self.expects}.")
        return self._read_blank() if not word else self._read_typed(text)

    def at_end(self) -> Answered:
        """Return what it means that nobody can answer any more: a call isn't allowed.

        Raises:
            NoHumanError: it is no approval.
        """
        if self._is_approval:
            return Answered("no")
        raise NoHumanError(
            f"the input ended before anybody answered: {' '.join(self.lines)[:200]!r}; run it in a terminal, or give it"
            " the answers on its standard input, one a line"
        )

    def _read_blank(self) -> Answered | AskAgain:
        """Enter alone is None where that is an answer, and else a slip."""
        try:
            return Answered(fitted_answer(None, self._returns)[1])
        except ValueError:
            return AskAgain(f"Type {self.expects}." if self.expects else "Type an answer.")

    def _read_typed(self, text: str) -> Answered | AskAgain:
        candidates: list[object] = [text.strip() if self.expects else text]
        with suppress(ValueError, RecursionError):
            candidates.append(parse_json(text))
        problem = ""
        for candidate in candidates:
            try:
                return Answered(fitted_answer(candidate, self._returns)[1])
            except Exception as error:  # noqa: BLE001  # whatever the user's class does with what is typed
                problem = error_text(error)
        if self._choices:
            return AskAgain(f"Type {self.expects}.")
        reason = one_line(problem.removeprefix("wrong answer").lstrip(":, "))
        return AskAgain(f"Not an answer: {reason}.")


def prompt_for(question: Question, returns: object) -> Prompt:
    """Return how *question* is put.

    Args:
        question: What an Agent asks.
        returns: The type of the answer.
    """
    asked = tuple(printable(question).split("\n"))
    if question.is_approval:
        return Prompt(asked, "yes, no or always", returns, True, None, _APPROVALS)
    shape = None if returns is object else shape_of(returns).core()
    if _is_bool(shape):
        return Prompt(asked, "yes or no", returns, False, shape, _TRUTH)
    inner, may_be_none = _without_none(shape)
    if isinstance(inner, ChoiceShape):
        return _choice(asked, returns, inner, may_be_none=may_be_none)
    expects = _expected(inner)
    return Prompt(asked, f"{expects or 'text'}, or nothing" if may_be_none else expects, returns, False, shape, {})


def _choice(asked: tuple[str, ...], returns: object, shape: ChoiceShape, *, may_be_none: bool) -> Prompt:
    values = list(shape.choices.values())
    or_nothing = ", or nothing" if may_be_none else ""
    words = [_word(value) for value in values]
    typed: dict[str, object] = {}
    for value, word in zip(values, words, strict=True):
        typed.setdefault(word.casefold(), value)
        if isinstance(value, Enum):
            typed.setdefault(value.name.casefold(), value)
    if any(word.isdecimal() for word in typed):  # A number would be one of the choices.
        lines = [f"  {word}" for word in words]
        return Prompt((*asked, *lines), f"one of these{or_nothing}", returns, False, shape, typed)
    lines = [f"  {number}) {word}" for number, word in enumerate(words, 1)]
    typed |= {str(number): value for number, value in enumerate(values, 1)}
    return Prompt((*asked, *lines), f"a number or a name{or_nothing}", returns, False, shape, typed)


def _word(value: Any) -> str:
    """Return how a choice is written: what people read, on one line."""
    if isinstance(value, Enum):
        value = value.value if isinstance(value.value, str) else value.name
    return one_line(value) if isinstance(value, str) else json.dumps(value)


def _expected(shape: Shape | None) -> str:
    if isinstance(shape, ObjectShape):
        fields = [f'"{field.name}"' + ("" if field.required else " (optional)") for field in shape.fields]
        return f"JSON with {', '.join(fields)}"
    if shape is None or _is_str(shape):
        return ""
    as_json = "JSON, " if shape.kinds().keys() <= {list, dict} else ""
    wanted = shape.wanted().removesuffix(" as a string")  # That is for who writes JSON.
    return f"{as_json}an {wanted}" if wanted[0] in "aeiou" else f"{as_json}a {wanted}"


def _without_none(shape: Shape | None) -> tuple[Shape | None, bool]:
    """Return *shape* without ``None`` as an answer, and whether that is one."""
    if isinstance(shape, UnionShape):
        members = [member.core() for member in shape.members]
        others = [member for member in members if not (isinstance(member, PlainShape) and member.kind is NoneType)]
        if len(others) == 1:
            return others[0], True
    return shape, False


def _is_str(shape: Shape | None) -> bool:
    return isinstance(shape, PlainShape) and shape.kind is str


def _is_bool(shape: Shape | None) -> bool:
    return isinstance(shape, PlainShape) and shape.kind is bool

"""The answer that ``ask`` wants: its schema, and how the model's text becomes it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import Any, final

import attrs

from .._errors import ToolInputError
from ..record._frozen import FrozenDict, Json, freeze, freeze_dict
from ._compounds import DictShape, Field, ObjectShape
from ._misfit import excerpt, is_a, read
from ._schema import schema_of, shape_of
from ._shapes import Shape, parse_json

_FENCED = re.compile(r"```\w*[^\S\n]*\n(.*?)```", re.DOTALL)


@final
@attrs.frozen(eq=False, repr=False)
class AnswerShape:
    """What an answer has to look like."""

    schema: FrozenDict
    """JSON Schema of the object that the model writes. What isn't an object stands in one, as its ``answer``."""
    _shapes: tuple[Shape, ...]
    """Of what the model writes, then of the answer alone where it stands in an object."""

    def read_text(self, text: str) -> tuple[Any, Json]:
        """Return the answer that the model's *text* holds, and its JSON form.

        A code fence and words around the JSON are forgiven.

        Raises:
            ToolInputError: it holds none; the message says what is wrong, for the model to read.
        """
        values = list(_values(text))
        failures: list[ToolInputError] = []
        for value in [*values, text.strip()]:
            for shape in self._shapes:
                try:
                    answer = read(shape, value, what="answer")
                except ToolInputError as error:
                    failures.append(error)
                else:
                    return answer, _plain(answer, value)
        if not values:
            raise ToolInputError(f"wrong answer: expected a JSON object, got the text {excerpt(text)}")
        raise failures[0]


def answer_shape(hint: Any) -> AnswerShape:
    """Return the shape of answers of this type.

    Raises:
        TypeError: the type isn't supported.
    """
    inner = shape_of(hint)
    if isinstance(inner.core(), ObjectShape | DictShape):
        return AnswerShape(freeze_dict(schema_of(inner)), (inner,))
    boxed = ObjectShape("", (Field("answer", inner),), _itself)
    return AnswerShape(freeze_dict(schema_of(boxed)), (boxed, inner))


def fitted_answer(value: object, returns: Any) -> tuple[Any, Json]:
    """Return a person's answer as the type *returns*, and its JSON form.

    Args:
        value: An object of that type, or its JSON form.
        returns: A type; ``object`` takes any JSON value.

    Raises:
        TypeError: the value has no JSON form, or the type isn't supported.
        ValueError: the value doesn't fit the type.
    """
    plain = freeze(_without_enums(value), "answer")
    if returns is object:
        return plain, plain
    try:
        answer = read(shape_of(returns), plain, what="answer")
    except ToolInputError as error:
        raise ValueError(str(error)) from None
    return answer, _plain(answer, plain)


def _itself(answer: Any) -> Any:
    return answer


def _values(text: str) -> Iterator[Any]:
    """The JSON values that *text* may hold: all of it, a fenced block, an object with words around."""
    for candidate in (text, *_FENCED.findall(text), text[text.find("{") : text.rfind("}") + 1]):
        try:
            yield parse_json(candidate)
        except (ValueError, RecursionError):
            continue


def _plain(answer: Any, value: Any) -> Json:
    """The JSON form of an answer; what the model wrote where the answer's class has none."""
    try:
        return freeze(_without_enums(answer))
    except (TypeError, ValueError):
        return freeze(value)


def _without_enums(answer: Any) -> Any:
    """Classes say what their fields are, lists and dicts don't: ``freeze`` takes no Enum there."""
    if isinstance(answer, Enum):
        return answer.value
    if is_a(list, answer):
        return [_without_enums(item) for item in answer]
    return {key: _without_enums(item) for key, item in answer.items()} if is_a(dict, answer) else answer

"""What a type hint became: frozen Shapes, each with its JSON Schema and the reading of values. Here the scalars. Pure.

Invariant: ``read(value, Reading(forgives=False))`` succeeds exactly for what ``schema()`` accepts. A forgiving Reading
also takes what models get wrong and what has one reading all the same.

A Shape that refuses raises Misfit with every problem below it; who reads a list or an object adds the keys on the way
up. So a value that fits costs no paths.
"""

from __future__ import annotations

import dataclasses
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from math import isfinite
from types import MappingProxyType
from typing import Any, NoReturn, TypeAlias, final

import attrs

from ..record._frozen import freeze, thaw
from ._misfit import JSON_TYPES, Reading, excerpt, misfit

Schema: TypeAlias = dict[str, Any]
"""A JSON Schema, draft 2020-12."""

MISSING: Any = dataclasses.MISSING
"""Stands for a default or a hint that isn't there."""

_INTEGER_TEXT = re.compile(r"\s*(-?[0-9]+)(?:\.0+)?\s*")
_NUMBER_TEXT = re.compile(r"\s*-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?\s*")
_TRUTH: Mapping[str, bool] = MappingProxyType({"true": True, "false": False})


class Shape(ABC):
    """What values of one type hint look like."""

    __slots__ = ()

    @abstractmethod
    def schema(self, defs: dict[str, Schema]) -> Schema:
        """Return a new JSON Schema; recursive classes are added to *defs*."""

    @abstractmethod
    def read(self, value: Any, how: Reading) -> Any:
        """Return *value*, a JSON value, as the Python value of the type hint.

        Raises:
            Misfit: it doesn't fit.
        """

    def mended(self, value: Any, how: Reading) -> Any:
        """Return *value*, which can be read, as the schema has it: what was forgiven is put right.

        Here it is what was read, since that is JSON. A time without an offset has no other form, and stays one.

        Raises:
            Misfit: it is null, which can't be read but stands for a default.
        """
        return self.read(value, how)

    @abstractmethod
    def wanted(self) -> str:
        """Return what a message says is expected."""

    @abstractmethod
    def kinds(self) -> Mapping[type[Any], int]:
        """Return the JSON types it takes; in a union the lowest number reads first."""

    def core(self) -> Shape:
        """Return the Shape that tells what this one is, without descriptions and references."""
        return self


@final
@attrs.frozen(eq=False, repr=False)
class AnyShape(Shape):
    """Any JSON value."""

    frozen: bool = False
    """Whether lists and dicts arrive read-only, as ``Json`` has them, or plain and changeable."""

    def schema(self, defs: dict[str, Schema]) -> Schema:
        return {}

    def read(self, value: Any, how: Reading) -> Any:
        if not self.frozen:
            return thaw(value)
        try:
            return freeze(value)
        except ValueError:
            raise misfit("a value that is nested less deep", value) from None

    def mended(self, value: Any, how: Reading) -> Any:
        return value

    def wanted(self) -> str:
        return "any value"

    def kinds(self) -> Mapping[type[Any], int]:
        return dict.fromkeys(JSON_TYPES, 4)


@final
@attrs.frozen(eq=False, repr=False)
class PlainShape(Shape):
    """``str``, ``bool`` or ``None``."""

    kind: type

    def schema(self, defs: dict[str, Schema]) -> Schema:
        return {"type": JSON_TYPES[self.kind]}

    def read(self, value: Any, how: Reading) -> Any:
        if type(value) is self.kind:
            return value
        if how.forgives and self.kind is bool and type(value) is str and (word := value.strip().lower()) in _TRUTH:
            return _TRUTH[word]
        raise misfit(self.wanted(), value)

    def wanted(self) -> str:
        return JSON_TYPES[self.kind]

    def kinds(self) -> Mapping[type[Any], int]:
        return {self.kind: 3}  # what is written as text, a date or a path, reads first


@final
@attrs.frozen(eq=False, repr=False)
class IntShape(Shape):
    """``int``, without ``bool``; 3.0 is the integer 3, in JSON Schema too."""

    def schema(self, defs: dict[str, Schema]) -> Schema:
        return {"type": "integer"}

    def read(self, value: Any, how: Reading) -> int:
        if type(value) is int:
            return value
        if type(value) is float and value.is_integer():
            return int(value)
        if how.forgives and type(value) is str and (match := _INTEGER_TEXT.fullmatch(value)) and len(match[1]) <= 1000:
            return int(match[1])
        raise misfit("integer", value)

    def wanted(self) -> str:
        return "integer"

    def kinds(self) -> Mapping[type[Any], int]:
        return {int: 1, float: 2}


@final
@attrs.frozen(eq=False, repr=False)
class FloatShape(Shape):
    """``float``; integers are numbers too, as far as a float can hold them."""

    def schema(self, defs: dict[str, Schema]) -> Schema:
        return {"type": "number"}

    def read(self, value: Any, how: Reading) -> float:
        if type(value) is float:
            return value
        if type(value) is int or (how.forgives and type(value) is str and _NUMBER_TEXT.fullmatch(value)):
            try:
                number = float(value)
            except OverflowError:
                number = float("inf")
            if isfinite(number):
                return number
        raise misfit("number", value)

    def mended(self, value: Any, how: Reading) -> Any:
        return value if type(value) is int else self.read(value, how)

    def wanted(self) -> str:
        return "number"

    def kinds(self) -> Mapping[type[Any], int]:
        return {float: 1, int: 2}


def parse_json(text: str) -> Any:
    """Return the JSON value that *text* is.

    Raises:
        ValueError: it isn't JSON; NaN and Infinity aren't, and numbers too large for a float have no reading.
        RecursionError: it is nested too deep.
    """
    return json.loads(text, parse_float=_finite, parse_constant=_refuse_constant)


def _finite(text: str) -> float:
    if not isfinite(number := float(text)):
        raise ValueError(f"{text:.20} is too large")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def choice_key(value: object) -> tuple[type[object], Any]:
    """Return what tells JSON scalars apart: ``1`` and ``1.0`` are the same, ``1`` and ``true`` aren't."""
    cls = type(value)
    return (float if cls is int else cls, value)


@final
@attrs.frozen(eq=False, repr=False)
class ChoiceShape(Shape):
    """``Literal`` or ``Enum``: one of these scalars."""

    choices: Mapping[tuple[type[object], Any], Any]
    """``choice_key`` of the JSON value → the Python value."""

    def schema(self, defs: dict[str, Schema]) -> Schema:
        types: set[type[Any]] = {type(value) for _, value in self.choices}
        typed: Schema = {"type": JSON_TYPES[types.pop()]} if len(types) == 1 else {}
        return typed | {"enum": [value for _, value in self.choices]}

    def read(self, value: Any, how: Reading) -> Any:
        return self.choices[self._key(value, how)]

    def mended(self, value: Any, how: Reading) -> Any:
        return self._key(value, how)[1]

    def _key(self, value: Any, how: Reading) -> tuple[type[object], Any]:
        key = choice_key(value)
        if key[0] in JSON_TYPES and key[0] is not list and key[0] is not dict and key in self.choices:
            return key
        if how.forgives and type(value) is str:
            keys = [key for key in self.choices if key[0] is not str and _scalar_text(key[1]) == value.strip().lower()]
            if len(keys) == 1:
                return keys[0]
        raise misfit(self.wanted(), value)

    def wanted(self) -> str:
        values = [excerpt(value) for _, value in self.choices]
        if len(values) == 1:
            return values[0]
        return "one of " + ", ".join(values if len(values) <= 30 else [*values[:30], "..."])

    def kinds(self) -> Mapping[type[Any], int]:
        kinds = {kind: 0 for kind, _ in self.choices}
        return kinds | {int: 0} if float in kinds else kinds


def _scalar_text(value: Any) -> str | None:
    """The text that stands for a number or a truth value; None for null, which text doesn't stand for."""
    return None if value is None else json.dumps(value)

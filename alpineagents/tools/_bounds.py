"""Limits on numbers, lengths and texts that ``Annotated`` has: those of annotated_types and of Pydantic. Pure.

Neither package is imported here: who uses their classes has it.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from math import isfinite
from types import MappingProxyType
from typing import Any, final

import attrs

from ._arrays import ArrayShape
from ._compounds import DescribedShape, DictShape, ReferenceShape
from ._misfit import Reading, misfit
from ._shapes import FloatShape, IntShape, PlainShape, Schema, Shape
from ._unions import UnionShape

_LIMITS = ("ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern")
"""Attributes of the classes that say one, or several in one object."""

_NUMBER_KEYWORDS: Mapping[str, str] = MappingProxyType(
    {
        "ge": "minimum",
        "gt": "exclusiveMinimum",
        "le": "maximum",
        "lt": "exclusiveMaximum",
        "multiple_of": "multipleOf",
    }
)


def _is_multiple(value: Any, of: Any) -> bool:
    """As jsonschema says it: of an int exactly, of a float by what the division gives."""
    if isinstance(of, int):
        return bool(value % of == 0)
    try:
        quotient = value / of
        return bool(int(quotient) == quotient)
    except OverflowError:  # the number is too large, or the quotient is infinite
        return (Fraction(value) / Fraction(of)).denominator == 1


def _is_as_long(value: Any, limit: int) -> bool:
    return len(value) >= limit


def _is_as_short(value: Any, limit: int) -> bool:
    return len(value) <= limit


_CHECKS: Mapping[str, tuple[Callable[[Any, Any], bool], str]] = MappingProxyType(
    {
        "minimum": (operator.ge, ">= {}"),
        "exclusiveMinimum": (operator.gt, "> {}"),
        "maximum": (operator.le, "<= {}"),
        "exclusiveMaximum": (operator.lt, "< {}"),
        "multipleOf": (_is_multiple, "a multiple of {}"),
        "minLength": (_is_as_long, "at least {} long"),
        "maxLength": (_is_as_short, "at most {} long"),
        "minItems": (_is_as_long, "at least {} long"),
        "maxItems": (_is_as_short, "at most {} long"),
        "minProperties": (_is_as_long, "at least {} keys"),
        "maxProperties": (_is_as_short, "at most {} keys"),
        "pattern": (lambda value, limit: re.search(limit, value) is not None, "matching {!r}"),
    }
)
"""JSON Schema's keyword → whether a value keeps the limit, and how a message says it."""


@final
@attrs.frozen(eq=False, repr=False)
class BoundShape(Shape):
    """A Shape with limits."""

    shape: Shape
    limits: Mapping[str, Any]
    """By JSON Schema's keywords."""

    def schema(self, defs: dict[str, Schema]) -> Schema:
        return {**self.shape.schema(defs), **self.limits}

    def read(self, value: Any, how: Reading) -> Any:
        result = self.shape.read(value, how)
        measured = value if type(value) in (int, float) else result  # a number as it came: a float may round it
        for keyword, limit in self.limits.items():
            keeps, _ = _CHECKS[keyword]
            if not keeps(measured, limit):
                raise misfit(self.wanted(), value)
        return result

    def mended(self, value: Any, how: Reading) -> Any:
        return self.shape.mended(value, how)

    def wanted(self) -> str:
        return f"{self.shape.wanted()} ({', '.join(_CHECKS[key][1].format(self.limits[key]) for key in self.limits)})"

    def kinds(self) -> Mapping[type[Any], int]:
        return self.shape.kinds()

    def core(self) -> Shape:
        return self.shape.core()


@final
@attrs.frozen(eq=False, repr=False)
class SelfChecked:
    """Notes on a field of a class that keeps its limits itself: those that a JSON Schema can't say are left to it."""

    notes: tuple[Any, ...]


def annotated(shape: Shape, notes: Iterable[Any]) -> Shape:
    """Return *shape* with the limits and the description of ``Annotated``; other notes mean nothing here.

    Raises:
        TypeError: a limit that no JSON Schema says of such values, or two that no one keyword can say.
    """
    limits: dict[str, Any] = {}
    description = ""
    is_lenient = False
    for note in _flat(notes):
        if isinstance(note, str):
            description = description or note.strip()
        elif isinstance(note, SelfChecked):
            is_lenient = True
        elif _package(note) in ("annotated_types", "pydantic"):
            for name, value in _limits_of(note):
                limits[name] = _both(name, limits[name], value) if name in limits else value
    if limits:
        shape = limited(shape, limits, is_lenient=is_lenient)
    return DescribedShape(shape, description) if description else shape


def _limits_of(note: Any) -> Iterator[tuple[str, Any]]:
    found = {name: value for name in _LIMITS if (value := getattr(note, name, None)) is not None}
    if not found and _package(note) == "annotated_types" and type(note).__name__ != "Unit":
        raise TypeError(f"{note!r:.100} can't be said in a JSON Schema; check it in the function")
    for name, value in found.items():
        yield name, value.pattern if isinstance(value, re.Pattern) else value


def limited(shape: Shape, limits: Mapping[str, Any], *, is_lenient: bool = False) -> Shape:
    """Return *shape* with limits, by the names that annotated_types has for them.

    Raises:
        TypeError: not *is_lenient*, and a limit that values of this type don't have, or one that is no number.
    """
    left = dict(limits)
    made = _limited(shape, limits, left)
    if left and not is_lenient:
        name, value = next(iter(left.items()))
        raise TypeError(f"the limit {name}={value!r:.100} doesn't go with {shape.wanted()}")
    return made


def _limited(shape: Shape, limits: Mapping[str, Any], left: dict[str, Any]) -> Shape:
    """*left*: the limits that nothing has taken yet."""
    if isinstance(shape, DescribedShape):
        return DescribedShape(_limited(shape.shape, limits, left), shape.description)
    if isinstance(shape, UnionShape):
        return UnionShape(tuple([_limited(member, limits, left) for member in shape.members]))
    if isinstance(shape, ReferenceShape):  # a class, which has none; and it may be under way
        return shape
    keywords = _keywords(shape.core())
    own = {keywords[name]: value for name, value in limits.items() if name in keywords and _is_limit(name, value)}
    for name in limits:
        if keywords.get(name) in own:
            left.pop(name, None)
    if not own:
        return shape
    if isinstance(shape, BoundShape):
        names = {keyword: name for name, keyword in keywords.items()}
        both = {key: _both(names[key], shape.limits[key], own[key]) for key in shape.limits.keys() & own.keys()}
        return BoundShape(shape.shape, MappingProxyType({**shape.limits, **own, **both}))
    return BoundShape(shape, MappingProxyType(own))


def _keywords(core: Shape) -> Mapping[str, str]:
    match core:
        case IntShape() | FloatShape():
            return _NUMBER_KEYWORDS
        case PlainShape() if core.kind is str:
            return {"min_length": "minLength", "max_length": "maxLength", "pattern": "pattern"}
        case ArrayShape():
            return {"min_length": "minItems", "max_length": "maxItems"}
        case DictShape():
            return {"min_length": "minProperties", "max_length": "maxProperties"}
        case _:
            return {}


def _is_limit(name: str, value: Any) -> bool:
    if name == "pattern":
        return isinstance(value, str) and _is_regex(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if name.endswith("length"):
        return isinstance(value, int) and value >= 0
    return (isinstance(value, int) or isfinite(value)) and (name != "multiple_of" or value > 0)


def _is_regex(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def _both(name: str, one: Any, two: Any) -> Any:
    """The limit that keeps both."""
    if name in ("multiple_of", "pattern"):
        if one == two:
            return one
        raise TypeError(f"two limits {name}: {one!r:.100} and {two!r:.100}; a JSON Schema has one")
    return max(one, two) if name in ("ge", "gt", "min_length") else min(one, two)


def _flat(notes: Iterable[Any]) -> Iterator[Any]:
    """Each note, those in a Pydantic ``Field`` and in a group such as ``Len(1, 3)`` included."""
    for note in notes:
        if isinstance(note, SelfChecked):
            yield note
            yield from [one for one in _flat(note.notes) if any(hasattr(one, name) for name in _LIMITS)]
        elif _package(note) == "pydantic" and isinstance(getattr(note, "metadata", None), list):
            yield from _flat(note.metadata)
            if isinstance(note.description, str):
                yield note.description
        elif _package(note) == "annotated_types" and isinstance(note, Iterable):
            yield from _flat(note)
        else:
            yield note


def _package(note: object) -> str:
    return type(note).__module__.partition(".")[0]

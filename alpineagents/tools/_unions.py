"""Unions, and which of their members can't be told apart. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, final

import attrs

from ._arrays import ArrayShape, TupleShape
from ._compounds import DictShape, ObjectShape
from ._misfit import Misfit, Reading, is_a, json_type, misfit
from ._shapes import AnyShape, ChoiceShape, FloatShape, IntShape, PlainShape, Schema, Shape
from ._texts import TextShape, overlap


@final
@attrs.frozen(eq=False, repr=False)
class UnionShape(Shape):
    """One of several: who takes the value as it is comes first, and forgiving only where one of them can."""

    members: tuple[Shape, ...]
    _takers: Mapping[type[Any], Sequence[Shape]] = attrs.field(
        init=False, repr=False, eq=False, default=attrs.Factory(lambda self: _takers(self.members), takes_self=True)
    )
    """JSON type → the members that take it, first who reads first."""

    def schema(self, defs: dict[str, Schema]) -> Schema:
        return {"anyOf": [member.schema(defs) for member in self.members]}

    def read(self, value: Any, how: Reading) -> Any:
        if not is_a(dict, value) and not is_a(list, value):
            return self._read(value, how)
        key = (id(self), id(value))
        if key not in how.known:
            try:
                how.known[key] = value, self._read(value, how), None
            except Misfit as error:
                how.known[key] = value, None, _copy(error)
        _, result, refusal = how.known[key]
        if refusal is not None:
            raise _copy(refusal)
        return result

    def mended(self, value: Any, how: Reading) -> Any:
        strictly = [(member, how.strictly) for member in self._takers.get(json_type(value), ())]
        for member, reading in [*strictly, *[(member, how) for member in self.members]]:
            try:
                member.read(value, reading)
            except Misfit:
                continue
            return member.mended(value, reading)
        raise misfit(self.wanted(), value)

    def wanted(self) -> str:
        return " or ".join(member.wanted() for member in self.members)

    def kinds(self) -> Mapping[type[Any], int]:
        return {kind: 1 for member in self.members for kind in member.kinds()}

    def _read(self, value: Any, how: Reading) -> Any:
        takers = self._takers.get(json_type(value), ())
        readings: list[Any] = []
        refusals: list[Misfit] = []
        for member in takers:
            try:
                return member.read(value, how.strictly)
            except Misfit as error:
                refusals.append(error)
        if how.forgives:
            refusals.clear()
            for member in self.members:
                try:
                    readings.append(member.read(value, how))
                except Misfit as error:
                    if member in takers:
                        refusals.append(error)
        if readings and all(type(one) is type(readings[0]) and one == readings[0] for one in readings[1:]):
            return readings[0]
        raise self._closest(refusals, value)

    def _closest(self, refusals: list[Misfit], value: Any) -> Misfit:
        """What the member says that was meant, as far as one can tell: it has the fewest problems."""
        refusals.sort(key=lambda error: len(error.problems))
        if len(refusals) == 1 or (refusals and len(refusals[0].problems) < len(refusals[1].problems)):
            return refusals[0]
        return misfit(self.wanted(), value)


def _copy(error: Misfit) -> Misfit:
    """The same, without the frames that it came through: they would hold what is held to know it."""
    copy = Misfit(error.problems)
    copy.__cause__ = error.__cause__
    return copy


def _takers(members: Sequence[Shape]) -> Mapping[type[Any], Sequence[Shape]]:
    ranked = [(rank, kind, member) for member in members for kind, rank in member.kinds().items()]
    ranked.sort(key=lambda triple: triple[0])
    takers: dict[type[Any], list[Shape]] = {}
    for _, kind, member in ranked:
        takers.setdefault(kind, []).append(member)
    return takers


def clash(one: Shape, two: Shape, *, inside: bool = False) -> bool:
    """Whether a value can fit both, and what it reads as would depend on which comes first.

    *inside* a list or dict nobody asks the scalars which of them is closest.
    """
    one, two = one.core(), two.core()
    if one is two:
        return False
    if isinstance(one, UnionShape):
        return any(clash(member, two, inside=inside) for member in one.members)
    match one, two:
        case _, UnionShape():
            return clash(two, one, inside=inside)
        case (AnyShape(), other) | (other, AnyShape()):
            return not isinstance(other, PlainShape | IntShape | FloatShape)
        case ArrayShape() | TupleShape(), ArrayShape() | TupleShape():
            return _arrays_clash(one, two)
        case TextShape(), TextShape():
            return overlap(one, two) or (inside and (one.takes_any or two.takes_any))
        case (TextShape() as text, other) | (other, TextShape() as text) if inside or text.kind is bytes:
            return _takes_text_of(other, text)
        case DictShape(), DictShape():
            return clash(one.values, two.values, inside=True)
        case ObjectShape(), ObjectShape():
            return not _told_apart(one, two)
        case (ObjectShape(), DictShape()) | (DictShape(), ObjectShape()):
            return True
        case ChoiceShape(), ChoiceShape():
            shared = one.choices.keys() & two.choices.keys()
            return any(type(one.choices[key]) is not type(two.choices[key]) for key in shared)
        case (ChoiceShape() as choice, other) | (other, ChoiceShape() as choice) if inside:
            return any(isinstance(choice.choices[key], Enum) and key[0] in other.kinds() for key in choice.choices)
        case _:
            return False


def _arrays_clash(one: ArrayShape | TupleShape, two: ArrayShape | TupleShape) -> bool:
    if isinstance(one, TupleShape) and isinstance(two, TupleShape):
        if len(one.items) != len(two.items):
            return False
        pairs = list(zip(one.items, two.items, strict=True))
        if any(first.kinds().keys().isdisjoint(second.kinds()) for first, second in pairs):
            return False
        return any(clash(first, second, inside=True) for first, second in pairs)
    if isinstance(one, ArrayShape) and isinstance(two, ArrayShape) and one.make is two.make:
        return clash(one.items, two.items, inside=True)
    return True  # one of them is a tuple or a set, and the other isn't


def _takes_text_of(other: Shape, text: TextShape) -> bool:
    """Whether *other* takes a text that *text* takes, too."""
    if not isinstance(other, ChoiceShape):
        return str in other.kinds()
    for kind, value in other.choices:
        if kind is str:
            try:
                text.read(value, Reading(forgives=False))
            except Misfit:
                continue
            return True
    return False


def _told_apart(one: ObjectShape, two: ObjectShape) -> bool:
    """Whether no object can be both: by a required key that the other lacks, or by a required tag."""
    names = [{field.name for field in shape.fields} for shape in (one, two)]
    if not (one.required() <= names[1] and two.required() <= names[0]):
        return True
    tags = [{field.name: field.shape.core() for field in shape.fields if field.required} for shape in (one, two)]
    return any(_apart(tags[0][name], tags[1][name]) for name in tags[0].keys() & tags[1].keys())


def _apart(one: Shape, two: Shape) -> bool:
    return isinstance(one, ChoiceShape) and isinstance(two, ChoiceShape) and not one.choices.keys() & two.choices.keys()


def has_hash(shape: Shape) -> bool:
    """Whether what *shape* reads can be in a set, as far as types tell."""
    core = shape.core()
    match core:
        case AnyShape() | DictShape():
            return False
        case ArrayShape():
            return core.make in (tuple, frozenset) and (core.make is frozenset or has_hash(core.items))
        case TupleShape():
            return all(map(has_hash, core.items))
        case UnionShape():
            return all(map(has_hash, core.members))
        case ObjectShape():
            return _class_has_hash(core)
        case _:
            return True


def _class_has_hash(shape: ObjectShape) -> bool:
    """A class that refers to itself is looked at without its fields: it would be asked for ever."""
    if getattr(shape.make, "__hash__", None) is None:
        return False
    cores = [field.shape.core() for field in shape.fields]
    return all(has_hash(core) for core in cores if isinstance(core, TextShape | ArrayShape | DictShape | AnyShape))

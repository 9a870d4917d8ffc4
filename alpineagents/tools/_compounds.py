"""Shapes that are made of other Shapes: lists, dicts, classes, unions. Pure."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, final

import attrs

from ._misfit import LONGEST_EXCERPT, Misfit, Problem, error_text, is_a, json_type, misfit
from ._shapes import MISSING, AnyShape, ChoiceShape, FloatShape, IntShape, PlainShape, Schema, Shape, parse_json


@final
@attrs.frozen(eq=False, repr=False)
class ListShape(Shape):
    """``list[T]``."""

    items: Shape

    def schema(self, defs: dict[str, Schema]) -> Schema:
        items = self.items.schema(defs)
        return {"type": "array", "items": items} if items else {"type": "array"}

    def read(self, value: Any, forgive: bool) -> list[Any]:
        if not is_a(list, value):
            return _decoded(self, list, value, forgive)  # type: ignore[no-any-return]  # what read() returns
        return list(_read_each(self.items, enumerate(value), forgive).values())

    def wanted(self) -> str:
        return "array" if isinstance(self.items, AnyShape) else f"array of {self.items.wanted()}"

    def kinds(self) -> Mapping[type[Any], int]:
        return {list: 1}


@final
@attrs.frozen(eq=False, repr=False)
class DictShape(Shape):
    """``dict[str, T]``."""

    values: Shape

    def schema(self, defs: dict[str, Schema]) -> Schema:
        values = self.values.schema(defs)
        return {"type": "object", "additionalProperties": values} if values else {"type": "object"}

    def read(self, value: Any, forgive: bool) -> dict[str, Any]:
        if not is_a(dict, value):
            return _decoded(self, dict, value, forgive)  # type: ignore[no-any-return]  # what read() returns
        return _read_each(self.values, value.items(), forgive)

    def wanted(self) -> str:
        return "object" if isinstance(self.values, AnyShape) else f"object whose values are {self.values.wanted()}"

    def kinds(self) -> Mapping[type[Any], int]:
        return {dict: 1}


def _read_each(shape: Shape, items: Any, forgive: bool) -> dict[Any, Any]:
    read = shape.read
    results: dict[Any, Any] = {}
    problems: list[Problem] = []
    for key, item in items:
        try:
            results[key] = read(item, forgive)
        except Misfit as error:
            problems += error.under(key)
    if problems:
        raise Misfit(problems)
    return results


@final
@attrs.frozen(eq=False, repr=False)
class Field:
    """A parameter of a function, or a field of a class."""

    name: str
    shape: Shape
    description: str = ""
    required: bool = True
    """Whether the schema demands it."""
    omissible: bool = False
    """Whether the function or class does without it: it has a default, or is not required in a TypedDict."""
    default: Any = MISSING
    """The default in JSON form, for the schema."""
    fresh: Any = MISSING
    """A default that is copied for each call, where it could be changed by one."""

    def schema(self, defs: dict[str, Schema]) -> Schema:
        """Return the schema of its value, with description and default."""
        schema = self.shape.schema(defs)
        if self.description:
            schema["description"] = self.description
        if self.default is not MISSING:
            schema["default"] = self.default
        return schema


@final
@attrs.frozen(eq=False, repr=False)
class ObjectShape(Shape):
    """A class with fields, or the arguments of a function: these keys and no others."""

    name: str
    """Of the class; empty for arguments."""
    fields: tuple[Field, ...]
    make: Callable[..., Any]
    """Takes the values that were read, by keyword."""
    description: str = ""

    def schema(self, defs: dict[str, Schema]) -> Schema:
        schema: Schema = {
            "type": "object",
            "properties": {field.name: field.schema(defs) for field in self.fields},
            "required": [field.name for field in self.fields if field.required],
            "additionalProperties": False,
        }
        return schema | {"description": self.description} if self.description else schema

    def read(self, value: Any, forgive: bool) -> Any:
        if not is_a(dict, value):
            return _decoded(self, dict, value, forgive)
        values: dict[str, Any] = {}
        problems: list[Problem] = []
        known = 0
        for field in self.fields:
            name = field.name
            if name in value:
                known += 1
                try:
                    values[name] = field.shape.read(value[name], forgive)
                    continue
                except Misfit as error:
                    if value[name] is not None or not (forgive and field.omissible):
                        problems += error.under(name)
            elif field.required and not (forgive and field.omissible):
                problems.append(Problem((name,), f"missing, expected {field.shape.wanted()}"))
            if field.fresh is not MISSING:
                values[name] = copy.deepcopy(field.fresh)
        if known != len(value):
            problems += self._unknown(value)
        if problems:
            raise Misfit(problems)
        try:
            return self.make(**values)
        except ValueError as error:  # of a validator: the message is for whoever chose the values
            raise Misfit([Problem((), f"not a valid {self.name}: {error_text(error)}")]) from error

    def wanted(self) -> str:
        return f"object {self.name}" if self.name else "object"

    def kinds(self) -> Mapping[type[Any], int]:
        return {dict: 1}

    def required(self) -> set[str]:
        """Return the keys that the schema demands."""
        return {field.name for field in self.fields if field.required}

    def _unknown(self, value: Mapping[str, Any]) -> list[Problem]:
        names = [field.name for field in self.fields]
        problems: list[Problem] = []
        for key in value:
            if key not in names:
                import difflib  # only here, and slow to import

                near = difflib.get_close_matches(str(key)[:LONGEST_EXCERPT], names, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names[:20]) or 'none'}"
                problems.append(Problem((key,), f"unknown, {hint}"))
        return problems


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

    def read(self, value: Any, forgive: bool) -> Any:
        takers = self._takers.get(json_type(value), ())
        for member in takers:
            try:
                return member.read(value, False)
            except Misfit:
                continue
        if forgive:
            readings = self._readings(value)
            if len(readings) == 1:
                return readings[0]
        raise self._refusal(takers, value, forgive)

    def wanted(self) -> str:
        return " or ".join(member.wanted() for member in self.members)

    def kinds(self) -> Mapping[type[Any], int]:
        return {kind: 1 for member in self.members for kind in member.kinds()}

    def _readings(self, value: Any) -> list[Any]:
        readings: list[Any] = []
        for member in self.members:
            try:
                readings.append(member.read(value, True))
            except Misfit:
                continue
        return readings

    def _refusal(self, takers: Sequence[Shape], value: Any, forgive: bool) -> Misfit:
        """What the member says that was meant, as far as one can tell: it has the fewest problems."""
        refusals: list[Misfit] = []
        for member in takers:
            try:
                member.read(value, forgive)
            except Misfit as error:
                refusals.append(error)
        refusals.sort(key=lambda error: len(error.problems))
        if len(refusals) == 1 or (refusals and len(refusals[0].problems) < len(refusals[1].problems)):
            return refusals[0]
        return misfit(self.wanted(), value)


def _takers(members: Sequence[Shape]) -> Mapping[type[Any], Sequence[Shape]]:
    ranked = [(rank, kind, member) for member in members for kind, rank in member.kinds().items()]
    ranked.sort(key=lambda triple: triple[0])
    takers: dict[type[Any], list[Shape]] = {}
    for _, kind, member in ranked:
        takers.setdefault(kind, []).append(member)
    return takers


@final
@attrs.frozen(eq=False, repr=False)
class DescribedShape(Shape):
    """``Annotated[T, "description"]``."""

    shape: Shape
    description: str

    def schema(self, defs: dict[str, Schema]) -> Schema:
        return self.shape.schema(defs) | {"description": self.description}

    def read(self, value: Any, forgive: bool) -> Any:
        return self.shape.read(value, forgive)

    def wanted(self) -> str:
        return self.shape.wanted()

    def kinds(self) -> Mapping[type[Any], int]:
        return self.shape.kinds()

    def core(self) -> Shape:
        return self.shape.core()


@final
@attrs.frozen(eq=False, repr=False)
class ReferenceShape(Shape):
    """A recursive class: its schema stands once in ``$defs``."""

    name: str
    """In ``$defs``."""
    classes: Mapping[str, ObjectShape]
    """All recursive classes of a walk; this one is there when the walk is over."""

    def schema(self, defs: dict[str, Schema]) -> Schema:
        if self.name not in defs:
            defs[self.name] = {}  # it is under way: who comes back here refers to it
            defs[self.name] = self.classes[self.name].schema(defs)
        return {"$ref": f"#/$defs/{self.name}"}

    def read(self, value: Any, forgive: bool) -> Any:
        return self.classes[self.name].read(value, forgive)

    def wanted(self) -> str:
        return f"object {self.name}"

    def kinds(self) -> Mapping[type[Any], int]:
        return {dict: 1}

    def core(self) -> Shape:
        return self.classes[self.name]


def _decoded(shape: Shape, kind: type, value: Any, forgive: bool) -> Any:
    """Read the list or object that *value* may hold as JSON text; what else is wrong with it is nobody's business."""
    if forgive and type(value) is str:
        try:
            inner = parse_json(value)
            if isinstance(inner, kind):
                return shape.read(inner, True)
        except (ValueError, RecursionError, Misfit):
            pass
    raise misfit(shape.wanted(), value)


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
        case ListShape(), ListShape():
            return clash(one.items, two.items, inside=True)
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


def _told_apart(one: ObjectShape, two: ObjectShape) -> bool:
    """Whether no object can be both: by a required key that the other lacks, or by a required tag."""
    names = [{field.name for field in shape.fields} for shape in (one, two)]
    if not (one.required() <= names[1] and two.required() <= names[0]):
        return True
    tags = [{field.name: field.shape.core() for field in shape.fields if field.required} for shape in (one, two)]
    return any(_apart(tags[0][name], tags[1][name]) for name in tags[0].keys() & tags[1].keys())


def _apart(one: Shape, two: Shape) -> bool:
    return isinstance(one, ChoiceShape) and isinstance(two, ChoiceShape) and not one.choices.keys() & two.choices.keys()

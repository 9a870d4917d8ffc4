"""Shapes that JSON has objects for: dicts, classes with fields, the arguments of functions. Pure."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from typing import Any, final

import attrs

from ._arrays import decoded, held, read_each
from ._misfit import LONGEST_EXCERPT, MOST_PROBLEMS, Misfit, Problem, Reading, error_text, is_a
from ._shapes import MISSING, AnyShape, Schema, Shape


@final
@attrs.frozen(eq=False, repr=False)
class DictShape(Shape):
    """``dict[str, T]``."""

    values: Shape

    def schema(self, defs: dict[str, Schema]) -> Schema:
        values = self.values.schema(defs)
        return {"type": "object", "additionalProperties": values} if values else {"type": "object"}

    def read(self, value: Any, how: Reading) -> dict[str, Any]:
        if not is_a(dict, value):
            return decoded(self, dict, value, how)  # type: ignore[no-any-return]  # what read() returns
        return read_each(self.values, value.items(), how)

    def mended(self, value: Any, how: Reading) -> dict[str, Any]:
        return {key: self.values.mended(item, how) for key, item in held(self, value).items()}

    def wanted(self) -> str:
        return "object" if isinstance(self.values, AnyShape) else f"object whose values are {self.values.wanted()}"

    def kinds(self) -> Mapping[type[Any], int]:
        return {dict: 1}


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

    def read(self, value: Any, how: Reading) -> Any:
        if not is_a(dict, value):
            return decoded(self, dict, value, how)
        values: dict[str, Any] = {}
        problems: list[Problem] = []
        known = 0
        for field in self.fields:
            name = field.name
            if name in value:
                known += 1
                try:
                    values[name] = field.shape.read(value[name], how)
                    continue
                except Misfit as error:
                    if value[name] is not None or not (how.forgives and field.omissible):
                        problems += error.under(name)
            elif field.required and not (how.forgives and field.omissible):
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
            raise Misfit(list(self._refusals(error))) from error

    def mended(self, value: Any, how: Reading) -> dict[str, Any]:
        given = held(self, value)
        made: dict[str, Any] = {}
        for field in self.fields:
            if field.name in given:
                item = given[field.name]
                with suppress(Misfit) if item is None and field.omissible else nullcontext():
                    made[field.name] = field.shape.mended(item, how)
        return made

    def wanted(self) -> str:
        return f"object {self.name}" if self.name else "object"

    def kinds(self) -> Mapping[type[Any], int]:
        return {dict: 1}

    def required(self) -> set[str]:
        """Return the keys that the schema demands."""
        return {field.name for field in self.fields if field.required}

    def _refusals(self, error: ValueError) -> Iterator[Problem]:
        """What a class says of its values; Pydantic says it of each one."""
        said = f"not a valid {self.name}: "
        if type(error).__module__.partition(".")[0] != "pydantic_core":
            yield Problem((), said + error_text(error))
            return
        for each in error.errors():  # type: ignore[attr-defined]  # a ValidationError has it
            yield Problem(tuple(each["loc"]), said + each["msg"])

    def _unknown(self, value: Mapping[str, Any]) -> list[Problem]:
        names = [field.name for field in self.fields]
        problems: list[Problem] = []
        for key in value:
            if key not in names:
                import difflib  # only here, and slow to import

                is_told = len(problems) < MOST_PROBLEMS  # the rest are only counted
                near = difflib.get_close_matches(str(key)[:LONGEST_EXCERPT], names, 1) if is_told else []
                hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names[:20]) or 'none'}"
                problems.append(Problem((key,), f"unknown, {hint}"))
        return problems


@final
@attrs.frozen(eq=False, repr=False)
class DescribedShape(Shape):
    """``Annotated[T, "description"]``."""

    shape: Shape
    description: str

    def schema(self, defs: dict[str, Schema]) -> Schema:
        return self.shape.schema(defs) | {"description": self.description}

    def read(self, value: Any, how: Reading) -> Any:
        return self.shape.read(value, how)

    def mended(self, value: Any, how: Reading) -> Any:
        return self.shape.mended(value, how)

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

    def read(self, value: Any, how: Reading) -> Any:
        return self.classes[self.name].read(value, how)

    def mended(self, value: Any, how: Reading) -> Any:
        return self.classes[self.name].mended(value, how)

    def wanted(self) -> str:
        return f"object {self.name}"

    def kinds(self) -> Mapping[type[Any], int]:
        return {dict: 1}

    def core(self) -> Shape:
        return self.classes[self.name]

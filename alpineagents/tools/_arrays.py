"""Shapes that JSON has arrays for: lists, sets and tuples. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, final

import attrs

from ._misfit import Misfit, Problem, Reading, is_a, json_type, misfit
from ._shapes import AnyShape, Schema, Shape, choice_key, parse_json


@final
@attrs.frozen(eq=False, repr=False)
class ArrayShape(Shape):
    """``list[T]``, ``tuple[T, ...]``, ``set[T]`` or ``frozenset[T]``."""

    make: type[list[Any] | tuple[Any, ...] | set[Any] | frozenset[Any]]
    items: Shape

    def schema(self, defs: dict[str, Schema]) -> Schema:
        schema: Schema = {"type": "array", "items": self.items.schema(defs)}
        return schema | {"uniqueItems": True} if self.is_set() else schema

    def read(self, value: Any, how: Reading) -> Any:
        if not is_a(list, value):
            return decoded(self, list, value, how)
        items = read_each(self.items, enumerate(value), how).values()
        if self.is_set() and not how.forgives and len({_json_key(item) for item in value}) < len(value):
            raise misfit("array without repetitions", value)
        return list(items) if self.make is list else self.make(items)

    def mended(self, value: Any, how: Reading) -> list[Any]:
        items = [self.items.mended(item, how) for item in held(self, value)]
        return list({_json_key(item): item for item in items}.values()) if self.is_set() else items

    def wanted(self) -> str:
        return "array" if isinstance(self.items, AnyShape) else f"array of {self.items.wanted()}"

    def kinds(self) -> Mapping[type[Any], int]:
        return {list: 1}

    def is_set(self) -> bool:
        """Return whether the schema forbids repetitions. Forgiving, they are left out."""
        return self.make in (set, frozenset)


@final
@attrs.frozen(eq=False, repr=False)
class TupleShape(Shape):
    """``tuple[A, B]``: so many items, each of its own type."""

    items: tuple[Shape, ...]

    def schema(self, defs: dict[str, Schema]) -> Schema:
        schemas = [item.schema(defs) for item in self.items]
        different = [one for index, one in enumerate(schemas) if one not in schemas[:index]]
        schema: Schema = {"type": "array", "minItems": len(schemas), "maxItems": len(schemas)}
        if len(different) == 1:
            return schema | {"items": different[0]}
        # Where prefixItems is known, "items" is about what comes behind, and nothing does; where it isn't, it says at
        # least what there can be. Some providers refuse arrays without "items".
        prefix = {"prefixItems": schemas} if schemas else {}
        return schema | prefix | {"items": {"anyOf": different} if different else {}}

    def read(self, value: Any, how: Reading) -> tuple[Any, ...]:
        if not is_a(list, value):
            return decoded(self, list, value, how)  # type: ignore[no-any-return]  # what read() returns
        if len(value) != len(self.items):
            raise misfit(self.wanted(), value)
        results: list[Any] = []
        problems: list[Problem] = []
        for index, (shape, item) in enumerate(zip(self.items, value, strict=True)):
            try:
                results.append(shape.read(item, how))
            except Misfit as error:
                problems += error.under(index)
        if problems:
            raise Misfit(problems)
        return tuple(results)

    def mended(self, value: Any, how: Reading) -> list[Any]:
        return [shape.mended(item, how) for shape, item in zip(self.items, held(self, value), strict=True)]

    def wanted(self) -> str:
        count = len(self.items)
        return f"array of {count} item{'' if count == 1 else 's'} [{', '.join(item.wanted() for item in self.items)}]"

    def kinds(self) -> Mapping[type[Any], int]:
        return {list: 1}


def read_each(shape: Shape, items: Iterable[tuple[Any, Any]], how: Reading) -> dict[Any, Any]:
    """Return what *shape* reads of each item, by its key.

    Raises:
        Misfit: with the problems of all of them.
    """
    read = shape.read
    results: dict[Any, Any] = {}
    problems: list[Problem] = []
    for key, item in items:
        try:
            results[key] = read(item, how)
        except Misfit as error:
            problems += error.under(key)
    if problems:
        raise Misfit(problems)
    return results


def decoded(shape: Shape, kind: type, value: Any, how: Reading) -> Any:
    """Read the list or object that *value* may hold as JSON text; what else is wrong with it is nobody's business."""
    if how.forgives and type(value) is str:
        try:
            inner = parse_json(value)
            if isinstance(inner, kind):
                return shape.read(inner, how)
        except (ValueError, RecursionError, Misfit):
            pass
    raise misfit(shape.wanted(), value)


def held(shape: Shape, value: Any) -> Any:
    """Return the list or object that *value* is, or that it holds as JSON text, as one that can be read does.

    Raises:
        Misfit: it is null.
    """
    if value is None:
        raise misfit(shape.wanted(), value)
    return parse_json(value) if type(value) is str else value


def _json_key(value: Any) -> Any:
    """What tells JSON values apart, hashable."""
    kind = json_type(value)
    if kind is dict:
        return dict, frozenset([(key, _json_key(item)) for key, item in value.items()])
    if kind is list:
        return list, tuple([_json_key(item) for item in value])
    return choice_key(value)

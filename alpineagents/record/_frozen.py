"""The JSON form of values: read-only dicts and lists, and freeze(), which makes them.

What is frozen holds only None, bool, int, float, str, FrozenDict and FrozenList, exact types at every depth,
so a live State and a loaded one hold the same things.
"""

from __future__ import annotations

import dataclasses
import json
import re
import typing
from collections.abc import Callable, Mapping, Set
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from math import isfinite
from pathlib import PurePath
from typing import Any, NoReturn, SupportsIndex, TypeAlias, final
from uuid import UUID

import attrs

MAX_DEPTH = 200
"""Deepest nesting of lists and dicts that is recorded."""


def _refuse(what: str, copy: str) -> Callable[..., NoReturn]:
    def refuse(self: object, *args: object, **kwargs: object) -> NoReturn:
        raise TypeError(f"this {what} is recorded and read-only; change a copy: {copy}")

    return refuse


@final
class FrozenDict(dict[str, Any]):
    """A read-only dict of frozen values. ``dict(x)`` copies one level, ``copy.deepcopy(x)`` all of them."""

    __slots__ = ()

    def __copy__(self) -> dict[str, Any]:
        return dict(self)

    def __deepcopy__(self, memo: object) -> dict[str, Any]:
        return {key: thaw(value) for key, value in self.items()}

    def __reduce__(self) -> tuple[Callable[[Any], Json], tuple[dict[str, Any]]]:
        return freeze, (dict(self),)

    __setitem__ = __delitem__ = __ior__ = _refuse("dict", "x = dict(x)")
    clear = pop = popitem = setdefault = update = _refuse("dict", "x = dict(x)")


@final
class FrozenList(list[Any]):
    """A read-only list of frozen values. ``list(x)`` copies one level, ``copy.deepcopy(x)`` all of them."""

    __slots__ = ()

    def __copy__(self) -> list[Any]:
        return list(self)

    def __deepcopy__(self, memo: object) -> list[Any]:
        return [thaw(value) for value in self]

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Callable[[Any], Json], tuple[list[Any]]]:
        return freeze, (list(self),)

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse("list", "x = list(x)")
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse("list", "x = list(x)")


Json: TypeAlias = bool | int | float | str | FrozenDict | FrozenList | None
"""What ``freeze`` returns."""


def thaw(value: Json) -> Any:
    """Return a plain, changeable copy of a frozen value, all the way down."""
    if type(value) is FrozenDict or type(value) is FrozenList:
        return value.__deepcopy__(None)
    return value


def same(a: Json, b: Json) -> bool:
    """Whether two frozen values have the same JSON: unlike ``==``, 1, 1.0 and True all differ."""
    if type(a) is not type(b):
        return False
    if type(a) is FrozenDict and type(b) is FrozenDict:
        return a.keys() == b.keys() and all(same(value, b[key]) for key, value in a.items())
    if type(a) is FrozenList and type(b) is FrozenList:
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def freeze(value: object, name: str = "value") -> Json:
    """Return the JSON form of *value*, read-only at every depth. What is frozen already is returned as it is.

    ``None, bool, int, float, str`` stay, their subclasses become the plain value; lists, tuples and NamedTuples
    become frozen lists; dicts with text keys, attrs classes, dataclasses and Pydantic models frozen dicts. Inside a
    class also ``datetime`` (ISO text), ``Enum`` (its value), ``UUID``, ``Path`` and ``Decimal`` (text) are taken, and
    a set where the class says the field is one (a sorted list).

    Args:
        value: What to freeze. It isn't changed.
        name: What the error calls it, such as ``"extra_data"``.

    Raises:
        TypeError: something in it isn't JSON; the message has the path to it and what to write.
        ValueError: it holds itself, or is nested more than 200 deep.
    """
    try:
        return _freeze(value, 0)
    except _UnfitError as unfit:
        circular = len(set(unfit.holders)) < len(unfit.holders)
        raise unfit.kind(f"{unfit.place(name)}: {'circular: it holds itself' if circular else unfit.reason}") from None


def freeze_dict(value: object, name: str = "value") -> FrozenDict:
    """Freeze a dict; TypeError for anything else."""
    frozen = freeze(value, name)
    if not isinstance(frozen, FrozenDict):
        raise TypeError(f"{name} must be a dict, not {type(value).__name__}")
    return frozen


class _UnfitError(Exception):
    """Carries the reason up; each level adds its key and its identity on the way."""

    def __init__(self, reason: str, kind: type[Exception] = TypeError) -> None:
        self.reason = reason
        self.kind = kind
        self.path: list[str] = []
        self.holders: list[int] = []

    def passed(self, holder: object, key: str) -> None:
        self.path.append(key)
        self.holders.append(id(holder))

    def place(self, name: str) -> str:
        keys = self.path[::-1]
        return name + "".join(keys if len(keys) <= 20 else [*keys[:8], "...", *keys[-2:]])


def _freeze(value: Any, depth: int, place: int = 0) -> Json:
    """*place* is _BARE, _IN_CLASS or _IN_SET_FIELD: what is allowed besides JSON depends on it."""
    cls = type(value)
    if cls is str or cls is int or value is None or cls is bool or cls is FrozenDict or cls is FrozenList:
        return value  # type: ignore[no-any-return]  # the exact types of Json
    if cls is float:
        if not isfinite(value):
            raise _UnfitError(f"{value} is not JSON; use None or text")
        return value  # type: ignore[no-any-return]  # a float
    if depth >= MAX_DEPTH:
        raise _UnfitError(f"nested more than {MAX_DEPTH} deep", ValueError)
    if cls is dict or isinstance(value, dict):
        return FrozenDict(_freeze_items(value, depth, place))
    if isinstance(value, list | tuple):
        return FrozenList(_freeze_elements(value, depth, place))
    return _freeze_other(value, cls, depth, place)


_BARE, _IN_CLASS, _IN_SET_FIELD = range(3)


def _freeze_items(value: dict[Any, Any], depth: int, place: int) -> dict[str, Json]:
    frozen: dict[str, Json] = {}
    for key, item in value.items():
        if type(key) is not str:
            if not isinstance(key, str):
                raise _UnfitError(f"key {_short(key)} is {type(key).__name__}, not str; write str(key)")
            key = str.__str__(key)
        try:
            frozen[key] = _freeze(item, depth + 1, place)
        except _UnfitError as unfit:
            unfit.passed(value, f"[{json.dumps(key, ensure_ascii=False)}]")
            raise
    return frozen


def _freeze_elements(value: list[Any] | tuple[Any, ...], depth: int, place: int) -> list[Json]:
    frozen: list[Json] = []
    for item in value:
        try:
            frozen.append(_freeze(item, depth + 1, place))
        except _UnfitError as unfit:
            unfit.passed(value, f"[{len(frozen)}]")
            raise
    return frozen


def _freeze_other(value: Any, cls: type, depth: int, place: int) -> Json:
    """Subclasses of the plain types, classes with fields, and what isn't JSON."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return _freeze(float.__float__(value), depth)
    if (places := _field_places(cls)) is not None:
        return FrozenDict(_freeze_fields(value, places, depth))
    if callable(getattr(cls, "model_dump", None)):
        return _freeze(_of_pydantic(value), depth)
    if place != _BARE:
        if isinstance(value, datetime | date | time):
            return value.isoformat()
        if isinstance(value, Enum):
            return _freeze(value.value, depth, place)
        if isinstance(value, UUID | PurePath | Decimal):
            return str(value)
    if place == _IN_SET_FIELD and isinstance(value, set | frozenset):
        return FrozenList(_in_order(_freeze_elements(list(value), depth, place)))
    raise _UnfitError(f"{cls.__name__} is not JSON; {_HINTS.get(_kind(cls), _ANY_HINT)}")


def _freeze_fields(value: Any, places: Mapping[str, int], depth: int) -> dict[str, Json]:
    frozen: dict[str, Json] = {}
    for name, place in places.items():
        try:
            frozen[name] = _freeze(getattr(value, name), depth + 1, place)
        except _UnfitError as unfit:
            unfit.passed(value, f".{name}")
            raise
    return frozen


@lru_cache(maxsize=512)
def _field_places(cls: type) -> Mapping[str, int] | None:
    """The fields of an attrs class or dataclass, each with its place; None for any other class."""
    if attrs.has(cls):
        names = [field.name for field in attrs.fields(cls)]
    elif dataclasses.is_dataclass(cls):
        names = [field.name for field in dataclasses.fields(cls)]
    else:
        return None
    try:
        hints = typing.get_type_hints(cls)
    except NameError:  # a hint that names a class local to a function: take the text of it
        hints = {
            name: hint for base in reversed(cls.__mro__) for name, hint in vars(base).get("__annotations__", {}).items()
        }
    return {name: _IN_SET_FIELD if _says_set(hints.get(name)) else _IN_CLASS for name in names}


def _says_set(hint: object) -> bool:
    """Whether a type hint has a set in it, at any depth."""
    if isinstance(hint, str):
        return re.search(r"\b(set|frozenset|Set|FrozenSet|AbstractSet)\b", hint) is not None
    origin = typing.get_origin(hint) or hint
    if isinstance(origin, type) and issubclass(origin, Set):
        return True
    return any(_says_set(arg) for arg in typing.get_args(hint))


def _in_order(items: list[Json]) -> list[Json]:
    """Sort by value, or by text where the values don't compare, so that the same set always looks the same."""
    try:
        return sorted(items)  # type: ignore[type-var]  # tried, not assumed
    except TypeError:
        return sorted(items, key=repr)


_ANY_HINT = "use a dict, list, str, number, bool or None"
_HINTS: Mapping[type, str] = {
    set: "use a list",
    frozenset: "use a list",
    bytes: "use text, such as base64.b64encode(x).decode()",
    bytearray: "use text, such as base64.b64encode(x).decode()",
    date: "use x.isoformat()",
    time: "use x.isoformat()",
    Enum: "use x.value",
    UUID: "use str(x)",
    PurePath: "use str(x)",
    Decimal: "use str(x)",
}


def _kind(cls: type) -> type:
    return next((kind for kind in _HINTS if issubclass(cls, kind)), object)


def _short(value: object) -> str:
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001  # an error message must not fail
        return f"(repr failed: {type(error).__name__})"
    return text if len(text) <= 40 else text[:37] + "..."


def _of_pydantic(value: Any) -> dict[str, Any]:
    """A Pydantic model's own JSON form, with sets in a fixed order."""
    dumped: dict[str, Any] = value.model_dump(mode="json")
    for key, item in dict(value).items():
        if isinstance(item, set | frozenset) and isinstance(dumped.get(key), list):
            dumped[key] = _in_order(dumped[key])
    return dumped

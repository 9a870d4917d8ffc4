"""The JSON form of values (RFC 8259): read-only dicts and lists, and freeze(), which makes them.

What is frozen holds only None, bool, int, float, str, FrozenDict and FrozenList, exact types at every depth,
so a live State and a loaded one hold the same things.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
import typing
from collections.abc import Callable, Mapping, Set
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from math import isfinite
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex, TypeAlias, final
from uuid import UUID

import attrs

MAX_DEPTH = 200
"""Deepest nesting of lists and dicts that is recorded."""

MOST_KEY = 100
"""Longest key that the path in an error shows, in characters."""

MOST_DIGITS = 4300
"""Longest integer that Python turns into text, and text into it, unless it is told otherwise."""

_MANY_BITS = 2_000
"""An integer of fewer bits is never too long: no limit can be set that is below 640 digits."""


def _refuse(what: str, copy: str) -> Callable[..., NoReturn]:
    def refuse(self: object, *args: object, **kwargs: object) -> NoReturn:
        raise TypeError(f"this {what} is recorded and read-only; change a copy: {copy}")

    return refuse


@final
class FrozenDict(dict[str, Any]):
    """A read-only dict of frozen values, made by ``freeze``. ``dict(x)`` copies one level, ``copy.deepcopy(x)`` all.

    Every method that changes a dict raises TypeError and says so.
    """

    __slots__ = ()

    def __copy__(self) -> dict[str, Any]:
        return dict(self)

    def __deepcopy__(self, memo: object) -> dict[str, Any]:
        return {key: thaw(value) for key, value in self.items()}

    def __reduce__(self) -> tuple[Callable[[Any], Json], tuple[dict[str, Any]]]:
        return freeze, (dict(self),)

    if not TYPE_CHECKING:  # to a type checker they are those of dict
        __setitem__ = __delitem__ = __ior__ = _refuse("dict", "x = dict(x)")
        clear = pop = popitem = setdefault = update = _refuse("dict", "x = dict(x)")


@final
class FrozenList(list[Any]):
    """A read-only list of frozen values, made by ``freeze``. ``list(x)`` copies one level, ``copy.deepcopy(x)`` all.

    Every method that changes a list raises TypeError and says so.
    """

    __slots__ = ()

    def __copy__(self) -> list[Any]:
        return list(self)

    def __deepcopy__(self, memo: object) -> list[Any]:
        return [thaw(value) for value in self]

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Callable[[Any], Json], tuple[list[Any]]]:
        return freeze, (list(self),)

    if not TYPE_CHECKING:  # to a type checker they are those of list
        __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse("list", "x = list(x)")
        append = clear = extend = insert = pop = remove = reverse = sort = _refuse("list", "x = list(x)")


Json: TypeAlias = bool | int | float | str | FrozenDict | FrozenList | None
"""What ``freeze`` returns: a JSON value, read-only."""


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
    return a == b and (type(a) is not float or repr(a) == repr(b))  # 0.0 and -0.0 are equal, and two texts


def freeze(value: object, name: str = "value") -> Json:
    """Return the JSON form of *value*, read-only at every depth. What is frozen already is returned as it is.

    ``None, bool, int, float, str`` stay, their subclasses become the plain value; lists, tuples and NamedTuples
    become frozen lists; dicts with text keys, attrs classes, dataclasses and Pydantic models frozen dicts. Inside a
    class also ``datetime`` (ISO 8601 text), ``Enum`` (its value), ``UUID``, ``Path`` and ``Decimal`` (text) are taken,
    and a set where the class says the field is one (a sorted list). Two surrogates that make a pair become the one
    character they are; lone ones stay.

    Args:
        value: What to freeze. It isn't changed.
        name: What the error calls it, such as ``"extra_data"``.

    Raises:
        TypeError: something in it isn't JSON, NaN and infinities (RFC 8259, section 6) and keys that are no text
            included; the message has the path to it and what to write.
        ValueError: it holds itself, is nested more than 200 deep, or has an integer of more than 4300 digits: Python
            writes and reads no longer ones, or fewer still where that is set (``sys.set_int_max_str_digits``).
    """
    try:
        return _freeze(value, 0)
    except _UnfitError as unfit:
        circular = len(set(unfit.holders)) < len(unfit.holders)
        raise unfit.kind(f"{unfit.place(name)}: {'circular: it holds itself' if circular else unfit.reason}") from None
    except RecursionError as error:
        raise ValueError(f"{name}: nested too deep for Python's stack here, or circular: it holds itself") from error


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
    """*place* is made of _IN_CLASS, _IN_SET_FIELD and _IN_PYDANTIC: what is allowed besides JSON depends on it."""
    cls = type(value)
    if cls is str:
        return value if value.isascii() else joined(value)
    if cls is int:
        if value.bit_length() >= _MANY_BITS:
            _check_digits(value)
        return value  # type: ignore[no-any-return]  # an int
    if value is None or cls is bool:
        return value  # type: ignore[no-any-return]  # None or a bool
    if cls is FrozenDict or cls is FrozenList:
        if depth:
            _check_depth(value, depth)
        return value  # type: ignore[no-any-return]  # frozen
    if cls is float:
        if not isfinite(value):
            raise _UnfitError(f"{value} is not JSON; use None or text")
        return value  # type: ignore[no-any-return]  # a float
    if cls is dict or isinstance(value, dict):
        return FrozenDict(_freeze_items(value, depth, place))
    if isinstance(value, list | tuple):
        return FrozenList(_freeze_elements(value, depth, place))
    return _freeze_other(value, cls, depth, place)


def _check_digits(value: int) -> None:
    most = min(sys.get_int_max_str_digits() or MOST_DIGITS, MOST_DIGITS)
    if abs(value) >= 10**most:
        raise _UnfitError(f"an integer of more than {most} digits; use text, such as hex(x)", ValueError)


_IN_CLASS, _IN_SET_FIELD, _IN_PYDANTIC = 1, 2, 4


def joined(text: str) -> str:
    """Return *text* as it comes back from JSON: a plain ``str``, in which a pair of surrogates is one character."""
    if type(text) is not str:
        if not isinstance(text, str):
            raise TypeError(f"text must be str, not {type(text).__name__}: {_short(text)}")
        text = str.__str__(text)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text


def joined_or_none(text: str | None) -> str | None:
    """The same, for text that may be left out."""
    return None if text is None else joined(text)


def _check_depth(value: FrozenDict | FrozenList, depth: int) -> None:
    """Raise where what is frozen already would be nested too deep at *depth*."""
    if depth + _levels(value, {}) > MAX_DEPTH:
        raise _UnfitError(f"nested more than {MAX_DEPTH} deep", ValueError)


def _levels(value: FrozenDict | FrozenList, known: dict[int, int]) -> int:
    """How many levels of nesting *value* has, itself included; what it holds twice is looked at once."""
    levels = known.get(id(value))
    if levels is None:
        levels = 1
        for item in value.values() if type(value) is FrozenDict else value:
            if type(item) is FrozenDict or type(item) is FrozenList:
                levels = max(levels, 1 + _levels(item, known))
        known[id(value)] = levels
    return levels


def _freeze_items(value: dict[Any, Any], depth: int, place: int) -> dict[str, Json]:
    if depth >= MAX_DEPTH:
        raise _UnfitError(f"nested more than {MAX_DEPTH} deep", ValueError)
    frozen: dict[str, Json] = {}
    for key, item in value.items():
        if type(key) is not str:
            if not isinstance(key, str):
                raise _UnfitError(f"key {_short(key)} is {type(key).__name__}, not str; write str(key)")
            key = _new_key(str.__str__(key), frozen)
        elif not key.isascii():
            key = _new_key(key, frozen)
        try:
            frozen[key] = _freeze(item, depth + 1, place)
        except _UnfitError as unfit:
            unfit.passed(value, f"[{_quoted(key)}]")
            raise
    return frozen


def _new_key(key: str, frozen: dict[str, Json]) -> str:
    """Return the text of a key that may be another key's text as well: JSON would keep one of the two."""
    key = joined(key)
    if key in frozen:
        raise _UnfitError(f"two keys are {_quoted(key)} as JSON; give one another name")
    return key


def _quoted(key: str) -> str:
    return json.dumps(key if len(key) <= MOST_KEY else f"{key[:MOST_KEY]}...", ensure_ascii=False)


def _freeze_elements(value: list[Any] | tuple[Any, ...], depth: int, place: int) -> list[Json]:
    if depth >= MAX_DEPTH:
        raise _UnfitError(f"nested more than {MAX_DEPTH} deep", ValueError)
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
        return _freeze(str.__str__(value), depth)
    if isinstance(value, int):
        return _freeze(int.__int__(value), depth)
    if isinstance(value, float):
        return _freeze(float.__float__(value), depth)
    if (places := _field_places(cls)) is not None:
        return FrozenDict(_freeze_fields(value, places, depth))
    if callable(getattr(cls, "model_dump", None)):
        return _freeze_pydantic(value, cls, depth)
    if place:
        if isinstance(value, datetime | date | time):
            return value.isoformat()
        if isinstance(value, Enum):
            return _freeze(value.value, depth, place)
        if isinstance(value, UUID | PurePath | Decimal):
            return str(value)
    if isinstance(value, set | frozenset):
        if place & _IN_SET_FIELD:
            return FrozenList(_in_order(_freeze_elements(list(value), depth, place)))
    elif place & _IN_PYDANTIC and (text := _text_of_pydantic(value)) is not None:
        return _freeze(text, depth)
    raise _UnfitError(f"{cls.__name__} is not JSON; {_HINTS.get(_kind(cls), _ANY_HINT)}")


_NO_VALUE = object()


def _freeze_fields(value: Any, places: Mapping[str, int], depth: int) -> dict[str, Json]:
    if depth >= MAX_DEPTH:
        raise _UnfitError(f"nested more than {MAX_DEPTH} deep", ValueError)
    frozen: dict[str, Json] = {}
    for name, place in places.items():
        try:
            item = getattr(value, name, _NO_VALUE)
            if item is _NO_VALUE:
                raise _UnfitError(f"the field has no value; set it before the {type(value).__name__} is recorded")
            frozen[name] = _freeze(item, depth + 1, place)
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
    except Exception:  # noqa: BLE001  # a class local to a function, a hint for the type checker only: take its text
        hints = {
            name: hint for base in reversed(cls.__mro__) for name, hint in vars(base).get("__annotations__", {}).items()
        }
    return {name: _place_of(hints.get(name)) for name in names}


def _place_of(hint: object) -> int:
    return _IN_CLASS | (_IN_SET_FIELD if _says_set(hint) else 0)


def _says_set(hint: object) -> bool:
    """Whether a type hint has a set in it, at any depth."""
    if isinstance(hint, str):
        return re.search(r"\b(set|frozenset|Set|FrozenSet|AbstractSet)\b", hint) is not None
    if isinstance(hint, typing.NewType):
        return _says_set(hint.__supertype__)
    if (aliased := getattr(hint, "__value__", None)) is not None:  # type Tags = set[str]
        return _says_set(aliased)
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


# Pydantic models are walked like other classes; pydantic itself is never imported here.


def _freeze_pydantic(value: Any, cls: Any, depth: int) -> Json:
    places = _pydantic_places(cls)
    if places is None:
        return _freeze(value.model_dump(), depth, _IN_CLASS | _IN_SET_FIELD | _IN_PYDANTIC)
    if getattr(cls, "__pydantic_root_model__", False):
        return _freeze(value.root, depth, places["root"])
    extra = dict.fromkeys(value.model_extra or (), _IN_CLASS | _IN_PYDANTIC)
    return FrozenDict(_freeze_fields(value, {**places, **extra}, depth))


@lru_cache(maxsize=512)
def _pydantic_places(cls: Any) -> Mapping[str, int] | None:
    """The fields of a Pydantic model, each with its place; None for one that says itself how its JSON is written."""
    fields = getattr(cls, "model_fields", None)
    own = getattr(cls, "__pydantic_decorators__", None)
    if fields is None or own is None or own.field_serializers or own.model_serializers or own.computed_fields:
        return None
    if any(type(note).__name__.endswith("Serializer") for field in fields.values() for note in field.metadata):
        return None
    return {
        name: _place_of(field.annotation) | _IN_PYDANTIC for name, field in fields.items() if field.exclude is not True
    }


def _text_of_pydantic(value: object) -> str | int | float | None:
    """What Pydantic writes for one of the many types it knows, such as a URL; None where it knows none."""
    if isinstance(value, bytes | bytearray):  # it takes those that happen to be UTF-8, and no others
        return None
    try:
        text = sys.modules["pydantic_core"].to_jsonable_python(value)
    except Exception:  # noqa: BLE001  # whatever it says, ours is the error with the path
        return None
    return text if isinstance(text, str | int | float) else None

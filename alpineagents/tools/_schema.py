"""Type hints → Shapes, in one walk: the JSON Schema and the reading of values come from the same Shape. Pure.

To support one more type: write its Shape, and say in ``_Walk._of_hint`` which hints it stands for; a class with fields
goes to ``_fields``.
"""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from itertools import combinations
from typing import Annotated, Any, Literal, NotRequired, Required, Union, cast

from ..record._frozen import Json, freeze
from ._arrays import ArrayShape, TupleShape
from ._bounds import annotated
from ._compounds import DescribedShape, DictShape, Field, ObjectShape, ReferenceShape
from ._docstring import Documentation
from ._fields import RawClass, RawField, raw_class
from ._misfit import Misfit, Reading
from ._scope import Scope, resolve
from ._shapes import MISSING, AnyShape, ChoiceShape, FloatShape, IntShape, PlainShape, Schema, Shape, choice_key
from ._texts import TEXTS
from ._unions import UnionShape, clash, has_hash

SUPPORTED = (
    "str, int, float, bool, None, Any, Json, Literal, Enum, list[T], set[T], tuple[T, ...], dict[str, T], T | None and "
    "other unions, attrs classes, dataclasses, TypedDict, NamedTuple, Pydantic models, datetime, date, time, "
    'timedelta, UUID, Decimal, Path, bytes, Annotated[T, "description"]'
)

_SCALARS: Mapping[Any, Shape] = {
    str: PlainShape(str),
    bool: PlainShape(bool),
    None: PlainShape(type(None)),
    type(None): PlainShape(type(None)),
    int: IntShape(),
    float: FloatShape(),
    Any: AnyShape(),
    Json: AnyShape(frozen=True),
    **TEXTS,
}
_DEEPEST_ALIAS = 50
_ARRAYS: Mapping[Any, type[Any]] = {list: list, set: set, frozenset: frozenset, tuple: tuple}


def shape_of(hint: Any, *, owner: str = "returns", scope: Scope | None = None) -> Shape:
    """Return the Shape of a type hint.

    Args:
        hint: The type hint.
        owner: What errors call the place where it stands.
        scope: Where names in strings are looked up.

    Raises:
        TypeError: it isn't supported, a name in it isn't defined, or a union in it is ambiguous.
    """
    walk = _Walk()
    shape = walk.shape(resolve(hint, scope or Scope(), owner), owner)
    walk.check()
    return shape


def arguments_shape(owner: str, parameters: Iterable[RawField], documentation: Documentation) -> ObjectShape:
    """Return the Shape of a function's arguments; it reads them as a dict.

    Raises:
        TypeError: as ``shape_of``; the message starts with *owner*.
    """
    fields: list[Field] = []
    walk = _Walk()
    for raw in parameters:
        place = f"{owner}, parameter {raw.name!r}"
        fields.append(walk.field(raw, place, documentation.parameters.get(raw.name, "")))
    walk.check()
    return ObjectShape("", tuple(fields), dict)


def schema_of(shape: Shape) -> Schema:
    """Return the JSON Schema of *shape*, complete in itself: draft 2020-12, with ``$defs`` for recursive classes."""
    defs: dict[str, Schema] = {}
    core = shape.core()  # of a recursive class itself, not of a reference: providers want an object here
    schema = (core if isinstance(core, ObjectShape) else shape).schema(defs)
    return schema | {"$defs": defs} if defs else schema


class _Walk:
    """One walk over the hints of one tool: it knows the classes it is inside of."""

    def __init__(self) -> None:
        self._open: dict[type, str] = {}  # classes under way → their name in $defs, once something refers to it
        self._done: dict[type, Shape] = {}
        self._recursive: dict[str, ObjectShape] = {}
        self._unions: list[tuple[UnionShape, str]] = []
        self._sets: list[tuple[Shape, str]] = []
        self._aliases: list[Any] = []  # under way

    def shape(self, hint: Any, place: str) -> Shape:
        """Return the Shape of a hint without strings."""
        try:
            if hint in _SCALARS:
                return _SCALARS[hint]
        except TypeError:  # not hashable: a note in Annotated isn't
            pass
        if shape := self._of_hint(hint, place):
            return shape
        raise TypeError(f"{place}: the type {_text(hint)} isn't supported; use {SUPPORTED}")

    def field(self, raw: RawField, place: str, description: str, *, of_class: bool = False) -> Field:
        """Return the Field for a parameter or a field of a class."""
        if raw.hint is MISSING:
            raise TypeError(f"{place} has no type hint")
        hint, said = _unqualified(resolve(raw.hint, raw.scope, place))
        omissible = raw.omissible if said is None else said
        shape: Shape = self.shape(hint, place)
        if isinstance(shape, DescribedShape):
            description = shape.description
            shape = shape.shape
        # A class field of one Literal value is a tag: models shall always write it, so that unions can be told apart.
        # Not one that a TypedDict leaves out: nothing would put it in.
        is_tag = of_class and isinstance(shape, ChoiceShape) and len(shape.choices) == 1
        is_tag = is_tag and not (omissible and raw.default is MISSING)
        fresh = raw.default if not of_class and type(raw.default) in (list, dict, set) else MISSING
        default = _json_default(shape, raw.default)
        return Field(raw.name, shape, description, is_tag or not omissible, omissible, default, fresh)

    def check(self) -> None:
        """Refuse unions whose members can't be told apart, and sets of what can't be in one.

        Only after the walk are all classes known.
        """
        for items, place in self._sets:
            if not has_hash(items):
                raise TypeError(f"{place}: {items.wanted()} can't be in a set, it has no hash; use list[T]")
        for union, place in self._unions:
            for one, two in combinations(union.members, 2):
                if clash(one, two):
                    raise TypeError(
                        f"{place}: {one.wanted()} and {two.wanted()} can't be told apart in one union; choose one, or "
                        'classes that each have a required key the other lacks, or a tag: kind: Literal["..."]'
                    )

    def _of_hint(self, hint: Any, place: str) -> Shape | None:
        origin, args = typing.get_origin(hint) or hint, typing.get_args(hint)
        if origin is Annotated:
            return _annotated(self.shape(args[0], place), args[1:], place)
        if origin is Literal:
            return _literal(args)
        if origin is Union or origin is types.UnionType:
            return self._union(args, place)
        if isinstance(origin, type) and origin in _ARRAYS:
            return self._array(hint, origin, args, place)
        if origin is dict and (not args or (len(args) == 2 and self._is_text(args[0], place))):
            return DictShape(self.shape(args[1] if args else Any, place))
        if isinstance(hint, typing.NewType):
            return self.shape(hint.__supertype__, place)
        if _is_alias(origin):
            return self._alias(origin, hint, place)
        if isinstance(hint, type) and not args:
            cls = cast("type[object]", hint)
            return _enum(cls) if issubclass(cls, Enum) else self._class(cls, place)
        return None

    def _union(self, hints: Sequence[Any], place: str) -> Shape:
        if all(hint in hints for hint in typing.get_args(Json)):  # unions of unions are flat
            hints = [Json, *[hint for hint in hints if hint not in typing.get_args(Json)]]
        members = tuple([self.shape(hint, place) for hint in hints])
        if {Any, type(None)} == set(hints):
            return AnyShape()
        union = UnionShape(members)
        self._unions.append((union, place))
        return union

    def _array(self, hint: Any, kind: type, args: tuple[Any, ...], place: str) -> Shape | None:
        if kind is tuple and hint not in (tuple, typing.Tuple) and args[1:] != (Ellipsis,):  # noqa: UP006
            return TupleShape(tuple([self.shape(item, place) for item in args]))
        if len(args) > 1 + (kind is tuple):
            return None
        items = self.shape(args[0] if args else Any, place)
        if kind in (set, frozenset):
            self._sets.append((items, place))
        return ArrayShape(kind, items)

    def _is_text(self, key: Any, place: str) -> bool:
        """Whether it is ``str``, or a name for it."""
        if isinstance(key, typing.NewType):
            return self._is_text(key.__supertype__, place)
        if _is_alias(key):
            return self._is_text(_aliased(key, place), place)
        return key is str

    def _alias(self, alias: Any, hint: Any, place: str) -> Shape:
        """*hint*: the alias as it stands there, with its parameters."""
        if hint in self._aliases or len(self._aliases) > _DEEPEST_ALIAS:  # one that grows is never the same again
            raise TypeError(f"{place}: the type {alias} refers to itself; make it a class")
        self._aliases.append(hint)
        given = dict(zip(alias.__type_params__, typing.get_args(hint), strict=False))
        shape = self.shape(_filled(_aliased(alias, place), given), place)
        self._aliases.remove(hint)
        return shape

    def _class(self, cls: type, place: str) -> Shape | None:
        if cls in self._done:
            return self._done[cls]
        if cls in self._open:
            self._open[cls] = self._open[cls] or self._free_name(cls)
            return ReferenceShape(self._open[cls], self._recursive)
        raw = _raw_class(cls, place)
        if raw is None:
            return None
        self._open[cls] = ""
        about = raw.documentation
        fields = [
            self.field(
                field,
                f"{place}, field {cls.__name__}.{field.name}",
                about.parameters.get(field.name, ""),
                of_class=True,
            )
            for field in raw.fields
        ]
        shape = ObjectShape(cls.__name__, tuple(fields), raw.make, about.summary)
        if name := self._open.pop(cls):
            self._recursive[name] = shape
        self._done[cls] = ReferenceShape(name, self._recursive) if name else shape
        return self._done[cls]

    def _free_name(self, cls: type) -> str:
        taken = {*self._recursive, *self._open.values()}
        names = [cls.__name__, *(f"{cls.__name__}_{number}" for number in range(2, len(taken) + 3))]
        return next(name for name in names if name not in taken)


def _unqualified(hint: Any) -> tuple[Any, bool | None]:
    """The type of a TypedDict's key without ``NotRequired`` and the like, and whether those say that it may be missing.

    They may stand inside of ``Annotated``, and in each other.
    """
    origin = typing.get_origin(hint)
    if origin is Annotated:
        inner, said = _unqualified(hint.__origin__)
        return (hint if inner is hint.__origin__ else Annotated[(inner, *hint.__metadata__)]), said
    if origin in (Required, NotRequired):
        inner, _ = _unqualified(*typing.get_args(hint))
        return inner, origin is NotRequired
    if str(origin).endswith(".ReadOnly"):  # typing has it from Python 3.13 on, typing_extensions before
        return _unqualified(*typing.get_args(hint))
    return hint, None


def _is_alias(hint: Any) -> bool:
    return type(hint).__name__ == "TypeAliasType"  # typing has it from Python 3.12 on


def _aliased(alias: Any, place: str) -> Any:
    """What an alias stands for."""
    known: dict[str, Any] = getattr(sys.modules.get(alias.__module__), "__dict__", {})
    return resolve(alias.__value__, Scope(known), place)


def _filled(hint: Any, given: Mapping[Any, Any]) -> Any:
    """*hint* with types for its type variables."""
    if isinstance(hint, typing.TypeVar):
        return given.get(hint, hint)
    wanted = getattr(hint, "__parameters__", ()) if given else ()
    return hint[tuple([given.get(one, one) for one in wanted])] if wanted else hint


def _raw_class(cls: type, place: str) -> RawClass | None:
    try:
        return raw_class(cls)
    except TypeError as error:
        raise TypeError(f"{place}: {error}") from None


def _annotated(shape: Shape, notes: Sequence[Any], place: str) -> Shape:
    try:
        return annotated(shape, notes)
    except TypeError as error:
        raise TypeError(f"{place}: {error}") from None


def _literal(values: Sequence[Any]) -> ChoiceShape | None:
    """None where one of the values isn't JSON."""
    pairs = [(value.value if isinstance(value, Enum) else value, value) for value in values]
    return _choices(pairs)


def _enum(cls: type[Enum]) -> ChoiceShape | None:
    return _choices([(member.value, member) for member in cls])


def _choices(pairs: Sequence[tuple[Any, Any]]) -> ChoiceShape | None:
    choices: dict[tuple[type, Any], Any] = {}
    for value, result in pairs:
        try:
            scalar = freeze(value)
        except TypeError:
            return None
        if isinstance(scalar, list | dict):
            return None
        choices.setdefault(choice_key(scalar), result)
    return ChoiceShape(choices) if choices else None


def _json_default(shape: Shape, default: Any) -> Any:
    """The default as the schema shows it: what could be sent instead of leaving it out; None tells a model nothing."""
    if default is MISSING or default is None:
        return MISSING
    try:
        value = freeze(default.value if isinstance(default, Enum) else default)
        shape.read(value, Reading(forgives=False))
    except (TypeError, ValueError, Misfit, KeyError):  # KeyError: of a recursive class that is under way
        return MISSING
    return value


def _text(hint: Any) -> str:
    return hint.__qualname__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)

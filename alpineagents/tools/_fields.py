"""The fields of attrs classes, dataclasses, TypedDicts, NamedTuples and Pydantic models, as their authors wrote them.

Pure. Pydantic is never imported here: who has a model has it.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import typing
from collections.abc import Callable, Iterator
from typing import Annotated, Any, final

import attrs

from ._bounds import SelfChecked
from ._docstring import Documentation, read_docstring
from ._scope import Scope, names_around
from ._shapes import MISSING


@final
@attrs.frozen(eq=False, repr=False)
class RawField:
    """A field of a class, or a parameter of a function, before its hint is looked at."""

    name: str
    """As the constructor or the function takes it."""
    hint: Any
    """``MISSING`` where there is none."""
    scope: Scope
    omissible: bool = False
    """Whether the class or function does without it."""
    default: Any = MISSING
    """``MISSING`` where there is none, or a factory makes it."""


@final
@attrs.frozen(eq=False, repr=False)
class RawClass:
    """A class with fields."""

    fields: tuple[RawField, ...]
    make: Callable[..., Any]
    documentation: Documentation


def raw_class(cls: type) -> RawClass | None:
    """Return what *cls* is made of; ``None`` if it isn't a class of a kind known here.

    Raises:
        TypeError: it can't be made from its fields.
    """
    documentation = _documentation(cls)
    if typing.is_typeddict(cls) or hasattr(cls, "__required_keys__"):  # typing_extensions has another one
        return RawClass(tuple(_typed_dict_fields(cls)), dict, documentation)
    if hasattr(cls, "__pydantic_fields__"):
        fields = tuple(_pydantic_fields(cls))
        if not getattr(cls, "__pydantic_custom_init__", False):  # Pydantic's own fits, and its signature lacks aliases
            return RawClass(fields, cls, documentation)
    elif issubclass(cls, tuple) and hasattr(cls, "_field_defaults"):
        fields = tuple(_named_tuple_fields(cls))
    elif attrs.has(cls):
        fields = tuple(_attrs_fields(cls))
    elif dataclasses.is_dataclass(cls):
        fields = tuple(_dataclass_fields(cls))
    else:
        return None
    _check_constructor(cls, fields)
    return RawClass(fields, cls, documentation)


def _attrs_fields(cls: type) -> Iterator[RawField]:
    hints = dict(_hints(cls))
    for field in attrs.fields(cls):
        if field.init:
            hint, scope = hints.get(field.name, (MISSING if field.type is None else field.type, Scope()))
            default = field.default
            if default is attrs.NOTHING or isinstance(default, attrs.Factory):  # type: ignore[arg-type]  # it is a class
                default = MISSING
            yield RawField(field.alias, hint, scope, field.default is not attrs.NOTHING, default)


def _dataclass_fields(cls: type) -> Iterator[RawField]:
    hints = dict(_hints(cls))
    for field in dataclasses.fields(cls):
        if field.init:
            hint, scope = hints.get(field.name, (field.type, Scope()))
            default = field.default
            omissible = default is not MISSING or field.default_factory is not dataclasses.MISSING
            yield RawField(field.name, hint, scope, omissible, default)


def _named_tuple_fields(cls: Any) -> Iterator[RawField]:
    scope = _class_scope(cls)
    hints = inspect.get_annotations(cls)
    for name in cls._fields:
        default = cls._field_defaults.get(name, MISSING)
        yield RawField(name, hints.get(name, MISSING), scope, default is not MISSING, default)


def _pydantic_fields(cls: Any) -> Iterator[RawField]:
    """Of a model or a dataclass of Pydantic's, by the names that its JSON has. It checks itself what it makes."""
    if getattr(cls, "__pydantic_root_model__", False):
        raise TypeError(f"{cls.__name__} has no fields, only a root; use the type of that")
    if not cls.__pydantic_complete__:
        raise TypeError(f"{cls.__name__} isn't whole yet; define what it refers to, and call model_rebuild()")
    for name, field in cls.__pydantic_fields__.items():
        if field.init is False:
            continue
        key = _pydantic_key(cls, name, field.validation_alias)
        notes = (SelfChecked(tuple(field.metadata)), *([field.description] if field.description else []))
        has_default = not field.is_required() and field.default_factory is None
        default = field.default if has_default else MISSING
        yield RawField(key, Annotated[(field.annotation, *notes)], Scope(), not field.is_required(), default)


def _pydantic_key(cls: Any, name: str, alias: Any) -> str:
    """The key that a field is read from: the alias, of several the first."""
    config = getattr(cls, "model_config", None) or getattr(cls, "__pydantic_config__", None) or {}
    by_name = config.get("validate_by_name") or config.get("populate_by_name")
    if alias is None or (by_name and config.get("validate_by_alias") is False):
        return name
    keys = [one for one in getattr(alias, "choices", [alias]) if isinstance(one, str)]
    if not keys and not by_name:
        raise TypeError(
            f"{cls.__name__}.{name} is read from {alias}, which is no key of its own; give it a plain alias"
        )
    return keys[0] if keys else name


def _typed_dict_fields(cls: type) -> Iterator[RawField]:
    scope = _class_scope(cls)
    required: frozenset[str] = cls.__required_keys__  # type: ignore[attr-defined]  # a TypedDict has it
    for name, hint in cls.__annotations__.items():
        yield RawField(name, hint, scope, name not in required)


def _hints(cls: type) -> Iterator[tuple[str, tuple[Any, Scope]]]:
    """Each annotated name with its hint and where to look up the names in it: a base may be from another module."""
    for base in reversed(cls.__mro__):
        scope = _class_scope(base)
        for name, hint in inspect.get_annotations(base).items():
            yield name, (hint, scope)


def _class_scope(cls: type) -> Scope:
    known: dict[str, Any] = getattr(sys.modules.get(cls.__module__), "__dict__", {})
    inside = {name: value for name, value in vars(cls).items() if name not in known}
    around = names_around(inspect.currentframe(), cls.__module__, cls.__qualname__)
    return Scope(known, {**inside, **around, cls.__name__: cls})


def _documentation(cls: type) -> Documentation:
    docstring = cls.__dict__.get("__doc__")
    if not isinstance(docstring, str) or docstring.startswith(f"{cls.__name__}("):  # written by dataclass()
        return Documentation()
    return read_docstring(docstring)


def _check_constructor(cls: type, fields: tuple[RawField, ...]) -> None:
    try:
        signature = inspect.signature(cls)
        signature.bind(**dict.fromkeys(field.name for field in fields))
        signature.bind(**dict.fromkeys(field.name for field in fields if not field.omissible))
    except (TypeError, ValueError) as error:
        raise TypeError(f"{cls.__name__} can't be made from its fields: {error}") from None

"""What a function tells about the tool that it shall be. Everything that is wrong with it is said here. Pure."""

from __future__ import annotations

import functools
import inspect
import re
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from inspect import Parameter
from math import isfinite
from types import FrameType, FunctionType, MappingProxyType, MethodType, UnionType
from typing import Annotated, Any, Literal, final

import attrs

from .._contracts import Hints, OfCall
from ..record._frozen import FrozenDict, freeze_dict
from ._compounds import ObjectShape
from ._docstring import read_docstring
from ._fields import RawField
from ._misfit import is_a
from ._schema import arguments_shape, schema_of
from ._scope import Scope, names_around, resolve
from ._shapes import MISSING
from ._strict import strict_schema

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_HANDLER_EXAMPLE = "def refused(error: OSError) -> str: ..."
_HINTS_EXAMPLE = "lambda args: Hints(read_only=args['dry_run'])"
_BY_NAME: Mapping[Any, str] = MappingProxyType(
    {
        Parameter.POSITIONAL_ONLY: "leave out the / behind it",
        Parameter.VAR_POSITIONAL: "write {}: list[str]",
        Parameter.VAR_KEYWORD: "write {}: dict[str, str]",
    }
)
"""What to write instead of a parameter of such a kind."""


@final
@attrs.frozen(eq=False, repr=False)
class Options:
    """What ``@tool(...)`` was given."""

    name: str | None
    description: str | None
    parallel: bool
    timeout: float | None
    abandon_on_cancel: bool
    max_result_bytes: int
    strict: bool
    exception_handler: Callable[[Any], object] | None
    hints_for: Callable[[dict[str, Any]], Hints] | None
    given_hints: Mapping[str, bool]
    """Those that were given, by the names that ``Hints`` has for them."""

    def check(self, owner: str) -> None:
        """Raise TypeError for the first one that is wrong."""
        if self.description is not None and not _is_text(self.description):
            raise TypeError(f"{owner}: description must be text (got {self.description!r})")
        for option in ("parallel", "abandon_on_cancel", "strict"):
            if not isinstance(getattr(self, option), bool):
                raise TypeError(f"{owner}: {option} must be True or False (got {getattr(self, option)!r})")
        if self.timeout is not None and not _is_positive(self.timeout):
            raise TypeError(f"{owner}: timeout must be seconds, more than 0, or None (got {self.timeout!r})")
        if isinstance(self.max_result_bytes, float) or not _is_positive(self.max_result_bytes):
            raise TypeError(f"{owner}: max_result_bytes must be an int, more than 0 (got {self.max_result_bytes!r})")
        if self.hints_for is not None and not _is_plain(self.hints_for):
            raise TypeError(f"{owner}: hints_for must be a plain function of the arguments, such as: {_HINTS_EXAMPLE}")

    def hints(self, owner: str) -> Hints:
        """Return what every call may do.

        Raises:
            TypeError: what was given is no bool, or makes no sense.
        """
        try:
            return Hints(**self.given_hints)
        except TypeError as error:
            raise TypeError(f"{owner}: {error}") from None


@final
@attrs.frozen(eq=False, repr=False)
class Plan:
    """What is known about a function, bound to its object or not."""

    name: str
    description: str
    options: Options
    shape: ObjectShape
    """Of the arguments that the model gives."""
    schema: FrozenDict
    hidden: tuple[tuple[str, Any], ...]
    """Parameters that the model doesn't see, with their types."""
    is_async: bool
    binds: Literal["nothing", "instance", "class"]
    """What the first parameter is for."""
    hints: Hints
    handled: tuple[type[Exception], ...]
    """What the ``exception_handler`` is for."""


def plan_of(fn: Any, options: Options, frame: FrameType | None, hidden_types: Collection[Any]) -> tuple[Any, Plan]:
    """Return the plain function that *fn* is, and what is known about it.

    Args:
        fn: A function, ``staticmethod``, ``classmethod``, bound method or another callable.
        options: What ``@tool(...)`` was given.
        frame: Where it is decorated: string annotations may name what is local there.
        hidden_types: Types of the parameters that the model doesn't see.

    Raises:
        TypeError: it can't be a tool.
    """
    is_static, is_of_class = is_a(staticmethod, fn), is_a(classmethod, fn)
    if is_static or is_of_class:
        fn = fn.__func__
    name = _name(fn, options)
    owner = f"tool {name!r}"
    options.check(owner)
    if _is(fn, inspect.isgeneratorfunction) or _is(fn, inspect.isasyncgenfunction):
        raise TypeError(f"{owner}: a generator can't be a tool; return the whole result, such as a list")
    parameters = _parameters(fn, owner)
    binds: Literal["nothing", "instance", "class"] = "nothing"
    if is_of_class:
        binds = "class"
    elif not is_static and _takes_self(fn, parameters):
        binds = "instance"
    shown, hidden = _split(owner, parameters if binds == "nothing" else parameters[1:], _scope(fn, frame), hidden_types)
    about = read_docstring(_source(fn).__doc__)
    shape = arguments_shape(owner, shown, about)
    return fn, Plan(
        name,
        options.description or about.summary or name.replace("_", " ").strip() or name,
        options,
        shape,
        freeze_dict(_schema(shape, options)),
        tuple(hidden),
        _is(fn, _is_async),
        binds,
        options.hints(owner),
        _handled(options.exception_handler, frame, f"{owner}, exception_handler"),
    )


def _schema(shape: ObjectShape, options: Options) -> dict[str, Any]:
    """A tool without a strict form keeps the usual one."""
    schema = schema_of(shape)
    return (strict_schema(schema) or schema) if options.strict else schema


def _handled(handler: Any, frame: FrameType | None, place: str) -> tuple[type[Exception], ...]:
    """The exceptions that *handler*'s parameter names."""
    if handler is None:
        return ()
    if not _is_plain(handler):
        raise TypeError(f"{place} must be a plain function, such as: {_HANDLER_EXAMPLE}")
    parameters = _parameters(handler, place)
    try:
        inspect.signature(handler).bind(None)
    except TypeError:
        raise TypeError(f"{place} takes one argument, the exception: {_HANDLER_EXAMPLE}") from None
    if parameters[0].annotation is Parameter.empty:
        raise TypeError(f"{place}: the type of its parameter says which exceptions it is for: {_HANDLER_EXAMPLE}")
    hint = resolve(parameters[0].annotation, _scope(handler, frame), place)
    is_union = typing.get_origin(hint) in (typing.Union, UnionType)
    kinds = typing.get_args(hint) if is_union else (hint,)
    if not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
        raise TypeError(f"{place} is for {hint}, which is no Exception class or union of some: {_HANDLER_EXAMPLE}")
    return kinds


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_positive(number: Any) -> bool:
    return isinstance(number, int | float) and not isinstance(number, bool) and isfinite(number) and number > 0


def _is(fn: Any, kind: Callable[[Any], bool]) -> bool:
    """Whether *fn*, or the ``__call__`` of an object, is a function of this kind."""
    return kind(fn) or kind(type(fn).__call__)


def _is_plain(fn: Any) -> bool:
    """Whether it is a function that isn't async, or an object that is called like one."""
    return callable(fn) and not isinstance(fn, type) and not _is(fn, _is_async)


def _is_async(fn: Any) -> bool:
    return inspect.iscoroutinefunction(fn)


def _name(fn: Any, options: Options) -> str:
    if not callable(fn) or isinstance(fn, type):
        instead = f"; to name one: @tool(name={fn!r:.100})" if isinstance(fn, str) else ""
        raise TypeError(f"@tool is for functions and methods, not for {fn!r:.100}{instead}")
    named = fn.func if isinstance(fn, functools.partial) else fn
    name = getattr(named, "__name__", None) if options.name is None else options.name
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise TypeError(
            f"{name!r} can't be the name of a tool: letters, digits, _ and -, at most 64; give one by tool(name='...')"
        )
    return name


def _source(fn: Any) -> Any:
    """The function that was written down: under partials, bound methods, wrappers and the ``__call__`` of objects."""
    while True:
        if isinstance(fn, functools.partial):
            fn = fn.func
        elif isinstance(fn, MethodType):
            fn = fn.__func__
        elif hasattr(fn, "__wrapped__"):
            fn = fn.__wrapped__
        elif isinstance(type(fn).__call__, FunctionType):
            fn = type(fn).__call__
        else:
            return fn


def _parameters(fn: Any, owner: str) -> list[Parameter]:
    try:
        return list(inspect.signature(fn).parameters.values())
    except (NameError, TypeError, ValueError) as error:  # NameError: hints are evaluated late from Python 3.14 on
        raise TypeError(f"{owner}: its parameters can't be found out: {error}") from error


def _takes_self(fn: Any, parameters: Sequence[Parameter]) -> bool:
    """Whether *fn* was defined in the body of a class and its first parameter is the object."""
    if not isinstance(fn, FunctionType) or not parameters:
        return False
    around, _, _ = fn.__qualname__.rpartition(".")
    first = parameters[0]
    is_self = first.name == "self" or first.annotation is Parameter.empty
    return is_self and around != "" and not around.endswith("<locals>")


def _split(
    owner: str, parameters: Sequence[Parameter], scope: Scope, hidden_types: Collection[Any]
) -> tuple[list[RawField], list[tuple[str, Any]]]:
    """The parameters that the model sees, and the others."""
    shown: list[RawField] = []
    hidden: list[tuple[str, Any]] = []
    for parameter in parameters:
        name, place = parameter.name, f"{owner}, parameter {parameter.name!r}"
        if parameter.kind not in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY):
            instead = _BY_NAME[parameter.kind].format(name)
            raise TypeError(f"{place} is {parameter.kind.description}; a model gives its arguments by name: {instead}")
        if parameter.annotation is Parameter.empty:
            raise TypeError(f"{place} has no type hint; write one: {name}: str")
        hint = resolve(parameter.annotation, scope, place)
        bare = typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint
        if _is_hidden(bare, hidden_types):
            hidden.append((name, bare))
        elif inner := next((one for one in typing.get_args(bare) if _is_hidden(one, hidden_types)), None):
            raise TypeError(f"{place} always gets what it asks for; write {name}: {inner.__name__}")
        else:
            has_default = parameter.default is not Parameter.empty
            shown.append(RawField(name, hint, scope, has_default, parameter.default if has_default else MISSING))
    return shown, hidden


def _is_hidden(hint: Any, hidden_types: Collection[Any]) -> bool:
    return any(hint is one for one in hidden_types) or (isinstance(hint, type) and issubclass(hint, OfCall))


def _scope(fn: Any, frame: FrameType | None) -> Scope:
    """The names that the annotations of *fn* can use."""
    source = _source(fn)
    known: dict[str, Any] = getattr(source, "__globals__", {})
    names = frame.f_locals if frame and frame.f_globals is known and frame.f_locals is not known else {}
    return Scope(known, {**names, **names_around(frame, source.__module__, source.__qualname__)})

"""``@tool``: a function, with what the model has to know to call it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from types import CellType, FrameType, MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, final, overload

import trio

from .._contracts import Hints, Tool, ToolContext
from .._errors import ToolInputError
from ..record._blocks import ToolCall
from ..record._frozen import FrozenDict, freeze_dict
from ..state import State
from ._misfit import Reading, read
from ._threads import run_in_thread

if TYPE_CHECKING:
    from ._function import Options, Plan

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")

_HIDDEN: Mapping[Any, Callable[[ToolContext], object]] = {
    State: lambda context: context.state,
    ToolCall: lambda context: context.call,
}
"""Types of parameters that the model doesn't see → what they get. Others are marked as ``OfCall``."""

_OF_DATA: Mapping[str, tuple[Any, str]] = {
    "name": (str, "text"),
    "description": (str, "text"),
    "input_schema": (Mapping, "a dict, the JSON Schema of an object"),
    "parallel": (bool, "True or False"),
    "abandon_on_cancel": (bool, "True or False"),
    "timeout": (int | float | None, "seconds, more than 0, or None"),
    "max_result_bytes": (int, "an int, more than 0"),
    "hints": (Hints, "Hints(...)"),
}
"""What a tool made from data has to have: its type, and how a message says it."""


@final
class FunctionTool(Tool, Generic[P, R]):
    """A function that a model can call. Called by you, it is the function it was made of.

    Made by ``@tool``. On a method it is bound by access, as the method is: ``tools=[box.open]``.
    """

    __name__: str
    __qualname__: str
    __wrapped__: Callable[P, R]

    def __init__(self, fn: Callable[P, R], plan: Plan) -> None:
        self._fn: Callable[..., Any] = fn
        self._plan = plan
        self.name: str = plan.name
        self.description: str = plan.description
        self.input_schema: Mapping[str, Any] = plan.schema
        self.parallel: bool = plan.options.parallel
        self.timeout: float | None = plan.options.timeout
        self.abandon_on_cancel: bool = plan.options.abandon_on_cancel and not plan.is_async
        self.max_result_bytes: int = plan.options.max_result_bytes
        self.hints: Hints = plan.hints
        functools.update_wrapper(self, fn, updated=())
        # A class that attrs makes anew finds here what super() in a method refers to; an abstract one stays abstract.
        self.__closure__: tuple[CellType, ...] | None = getattr(fn, "__closure__", None)
        self.__isabstractmethod__: bool = getattr(fn, "__isabstractmethod__", False)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self._fn(*args, **kwargs)
        return result

    @overload
    def __get__(self, instance: None, owner: type) -> FunctionTool[P, R]: ...
    @overload
    def __get__(
        self: FunctionTool[Concatenate[Any, Q], R], instance: object, owner: type | None = None
    ) -> FunctionTool[Q, R]: ...
    def __get__(self, instance: object, owner: type | None = None) -> FunctionTool[..., R]:
        target = owner if self._plan.binds == "class" else instance
        if target is None or not self.is_unbound:
            return self
        return FunctionTool(MethodType(self._fn, target), self._plan)

    def __repr__(self) -> str:
        names = [field.name for field in self._plan.shape.fields] + [name for name, _ in self._plan.hidden]
        return f"<{'unbound ' if self.is_unbound else ''}tool {self.name}({', '.join(names)})>"

    @property
    def is_unbound(self) -> bool:
        """Whether it is a method without its object: nothing that a model can call."""
        return self._plan.binds != "nothing" and not isinstance(self._fn, MethodType)

    @trio.lowlevel.disable_ki_protection  # constructors of the user's run in here
    def read_args(self, args: FrozenDict) -> dict[str, Any]:
        """Return *args* as the function takes them by keyword, plain and changeable.

        Raises:
            ToolInputError: they are wrong; the message lists every problem, for the model to read.
        """
        return read(self._plan.shape, args)  # type: ignore[no-any-return]  # arguments_shape reads a dict

    @trio.lowlevel.disable_ki_protection  # constructors of the user's run in here
    def mended_args(self, args: FrozenDict) -> FrozenDict:
        """Return *args*, which ``read_args`` takes, as the schema has them: what was forgiven is put right.

        Raises:
            ToolInputError: they are nested too deep.
        """
        try:
            return freeze_dict(self._plan.shape.mended(args, Reading(forgives=True)))
        except (ValueError, RecursionError) as error:
            raise ToolInputError("wrong arguments: nested too deep") from error

    async def run(self, args: Any, state: State) -> object:
        """Not for functions: they may want to know which call they are."""
        raise TypeError(f"{self!r} is run by call(args, context); to use it yourself, call it as the function it is")

    async def call(self, args: Any, context: ToolContext) -> object:
        """Run the function with *args*, which ``read_args`` returned.

        Checkpoint: if the function is one; a sync function runs in a thread, and that is one.
        """
        plan = self._plan
        if plan.hidden:
            args = args | {name: _given(hidden, context) for name, hidden in plan.hidden}
        if plan.is_async:
            return await self._fn(**args)
        result: Any = await run_in_thread(functools.partial(self._fn, **args), self, context)
        return await result if inspect.isawaitable(result) else result

    @trio.lowlevel.disable_ki_protection  # code of the user's
    def hints_for(self, args: FrozenDict) -> Hints:
        """Return what a call with these arguments may do.

        Raises:
            ToolInputError: the arguments are wrong.
            TypeError: the tool's own ``hints_for`` returned no ``Hints``.
        """
        ask = self._plan.options.hints_for
        if ask is None:
            return self.hints
        found = ask(self._with_defaults(self.read_args(args)))
        if not isinstance(found, Hints):
            raise TypeError(f"hints_for of tool {self.name!r} returned {found!r:.100}, not Hints(...)")
        return found

    def _with_defaults(self, args: dict[str, Any]) -> dict[str, Any]:
        bound = inspect.signature(self._fn).bind_partial(**args)
        bound.apply_defaults()
        hidden = dict(self._plan.hidden)
        return {name: value for name, value in bound.arguments.items() if name not in hidden}

    def answer_to(self, error: Exception) -> object:
        """Return what the tool's ``exception_handler`` makes of an exception; raise it if that isn't for it."""
        handler = self._plan.options.exception_handler
        if handler is None or not isinstance(error, self._plan.handled):
            raise error
        return handler(error)


class _Decorator:
    """What ``@tool(...)`` returns."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def __call__(self, fn: Callable[P, R], /) -> FunctionTool[P, R]:
        return _make(fn, self._options, inspect.currentframe())


@overload
def tool(fn: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    parallel: bool = True,
    timeout: float | None = None,
    abandon_on_cancel: bool = True,
    exception_handler: Callable[[Any], object] | None = None,
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
    hints_for: Callable[[dict[str, Any]], Hints] | None = None,
    max_result_bytes: int = Tool.max_result_bytes,
    strict: bool = False,
) -> _Decorator: ...
def tool(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    parallel: bool = True,
    timeout: float | None = None,
    abandon_on_cancel: bool = True,
    exception_handler: Callable[[Any], object] | None = None,
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
    hints_for: Callable[[dict[str, Any]], Hints] | None = None,
    max_result_bytes: int = Tool.max_result_bytes,
    strict: bool = False,
) -> FunctionTool[..., Any] | _Decorator:
    """Make a function a tool: ``@tool``, or ``@tool(timeout=30)``.

    The model sees the name, the first paragraph of the docstring, and the parameters with their types and what the
    docstring says of them. A parameter whose type is ``State``, ``Agent``, ``ToolCall``, ``CallKey`` or ``Progress`` is
    not shown; it gets what the tool runs for.

    Args:
        fn: A function, async or not, a method, or another callable. A sync one runs in a thread.
        name: What the model calls it: letters, digits, ``_`` and ``-``, at most 64; ``None`` = the function's name.
        description: What it does; ``None`` = the first paragraph of the docstring, without one the name.
        parallel: Whether its calls may run at the same time as others of the same reply.
        timeout: Seconds until a call is cancelled and ends with an error result; ``None`` = never.
        abandon_on_cancel: Whether a cancelled call leaves the thread of a sync function behind; else it waits for it.
        exception_handler: A plain function. What it returns for an exception of the tool is an error result for the
            model, ``None`` the exception's message. The type of its parameter says for which exceptions; the others
            stop the run.
        read_only: Whether a call changes nothing; ``None`` = it does.
        destructive: Whether a call may overwrite or delete; ``None`` = it may, unless it is read-only.
        idempotent: Whether the same call again changes nothing more; ``None`` = it does, unless it is read-only.
        open_world: Whether it has to do with what is outside, such as the web; ``None`` = it has.
        hints_for: Says the last four for one call: it takes the arguments, as the function gets them and with its
            defaults, and returns ``Hints``.
        max_result_bytes: UTF-8 bytes of text that the model gets of a result; longer ones are cut in the middle.
        strict: Whether the schema has the form that OpenAI's strict mode demands; a tool whose types have none, such
            as one with a ``dict``, keeps the usual form.

    Returns:
        A ``FunctionTool``. It still runs as the plain function when you call it.

    Raises:
        TypeError: the function can't be a tool, or an option is wrong.

    Example:
        >>> @tool
        ... async def add(a: int, b: int) -> int:
        ...     "Add two numbers."
        ...     return a + b
        >>> add.description
        'Add two numbers.'
    """
    from ._function import Options  # with the schema code: only for who makes tools

    hints = {"read_only": read_only, "destructive": destructive, "idempotent": idempotent, "open_world": open_world}
    options = Options(
        name=name,
        description=description,
        parallel=parallel,
        timeout=timeout,
        abandon_on_cancel=abandon_on_cancel,
        max_result_bytes=max_result_bytes,
        strict=strict,
        exception_handler=exception_handler,
        hints_for=hints_for,
        given_hints={key: value for key, value in hints.items() if value is not None},
    )
    return _Decorator(options) if fn is None else _make(fn, options, inspect.currentframe())


def _given(kind: Any, context: ToolContext) -> object:
    """What a parameter that the model doesn't see gets."""
    return _HIDDEN[kind](context) if kind in _HIDDEN else kind.of_call(context)


def tools_of(item: object) -> list[Tool]:
    """Return the tools that *item* stands for: itself, or all its ``@tool`` methods, in the order of their definition.

    Raises:
        TypeError: it is no tool and has none, it is a method without its object, or one made from data lacks something.
    """
    if isinstance(item, FunctionTool) and item.is_unbound:
        owner = item.__qualname__.rpartition(".")[0]
        raise TypeError(
            f"{item!r} is a method without its object; use the method of an object: {owner}(...).{item.__name__}"
        )
    if isinstance(item, FunctionTool):
        return [item]
    if isinstance(item, Tool):
        _check_data(item)
        return [item]
    if isinstance(item, type):
        raise TypeError(f"{item.__name__} is a class; use an object of it: {item.__name__}(...)")
    if isinstance(item, str):
        raise TypeError(f"{item!r:.100} is a text and not a tool; put the function itself there: tools=[read_file]")
    names = dict.fromkeys(name for cls in reversed(type(item).__mro__) for name in vars(cls))
    found = [getattr(item, name) for name in names if _is_tool(inspect.getattr_static(type(item), name))]
    if not found:
        name = getattr(item, "__qualname__", None) or f"{type(item).__name__} object"
        raise TypeError(
            f"{name} is not a tool: {'decorate it with @tool' if callable(item) else 'it has no @tool methods'}"
        )
    return found


def _check_data(tool: Tool) -> None:
    """Raise TypeError for the first thing that a tool lacks, or has of another type."""
    for name, (kind, legal) in _OF_DATA.items():
        value = getattr(tool, name, None)
        fits = isinstance(value, kind) and isinstance(value, bool) == (kind is bool)
        fits = fits and (not isinstance(value, Mapping) or value.get("type", "object") == "object")
        if not fits or (isinstance(value, int | float) and not isinstance(value, bool) and not value > 0):
            raise TypeError(f"tool {type(tool).__name__}: {name} must be {legal} (got {value!r:.100})")


def _is_tool(attribute: object) -> bool:
    return isinstance(attribute.__func__ if isinstance(attribute, staticmethod) else attribute, FunctionTool)


def _make(fn: Callable[P, R], options: Options, frame: FrameType | None) -> FunctionTool[P, R]:
    """*frame* is that of who was called to decorate *fn*."""
    if isinstance(fn, FunctionTool):
        raise TypeError(f"{fn!r} is a tool already; to make another of its function, take fn.__wrapped__")
    from ._function import plan_of

    plain, plan = plan_of(fn, options, frame and frame.f_back, _HIDDEN)
    return FunctionTool(plain, plan)

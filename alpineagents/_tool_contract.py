"""What a tool is, what it is told of the call it runs for, and what of that a parameter can ask for by its type."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, Self, TypeAlias, final

import attrs
import trio

from .record._blocks import ResultBlock, ToolCall
from .record._entries import ToolOutcome
from .record._frozen import FrozenDict
from .record._value import Value
from .state import State

OnProgress: TypeAlias = Callable[[State, ToolCall, float, float | None, str | None], None]
"""Is told of a call's progress: ``Reporter.on_tool_progress``, or what stands for it."""


class RecordLate(Protocol):
    """Records a result that came after its call was closed."""

    def __call__(
        self,
        content: tuple[ResultBlock, ...],
        outcome: ToolOutcome,
        error: BaseException | None,
        full: tuple[ResultBlock, ...] | None = None,
    ) -> None:
        """Record what the model is told, how the thread ended, and the whole result where *content* is cut."""


@attrs.frozen(eq=False, repr=False)
class ToolContext:
    """What a tool call is part of."""

    state: State
    agent: object
    call: ToolCall
    record_late: RecordLate
    """Records how a thread ended that nobody waits for any more. May be called in that thread, once."""
    on_progress: OnProgress | None = None
    """Is told what a tool says by ``Progress``, on the thread that runs trio, while the call is open."""


class OfCall(ABC):
    """Marks a class as what a tool gets, and the model doesn't see, where a parameter has it as its type."""

    __slots__ = ()

    @classmethod
    @abstractmethod
    def of_call(cls, context: ToolContext) -> object:
        """Return what a parameter of this type gets in a call."""


@final
class CallKey(str, OfCall):
    """A tool parameter of this type gets ``STATE_ID/CALL_ID``: the same for one call, whatever crashes and resumes.

    Pass it on as an idempotency key where an API takes one.
    """

    __slots__ = ()

    @classmethod
    def of_call(cls, context: ToolContext) -> Self:
        """Return the key of a call."""
        return cls(f"{context.state.id}/{context.call.id}")


@final
class Progress(OfCall):
    """A tool parameter of this type is called to tell how far the tool is: ``progress(3, 10, "page 3")``.

    Works in tasks and in threads. ``Reporter.on_tool_progress`` is told; once the call is closed nobody is.
    """

    __slots__ = ("_context", "_token")

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._token = trio.lowlevel.current_trio_token()

    @classmethod
    def of_call(cls, context: ToolContext) -> Self:
        """Return what tells of a call's progress."""
        return cls(context)

    def __call__(self, done: float, total: float | None = None, text: str | None = None) -> None:
        """Tell how far the tool is. Not a checkpoint; in a thread it returns when it is told.

        Args:
            done: How much is done, in whatever unit.
            total: How much there is, in the same unit; ``None`` = unknown.
            text: What is being done, in a line.

        Raises:
            TypeError: one of them is of another type.
            Exception: what the Reporter raised.
        """
        given: list[tuple[object, Any]] = [(done, int | float), (total, int | float | None), (text, str | None)]
        for value, kinds in given:
            if isinstance(value, bool) or not isinstance(value, kinds):
                raise TypeError(f"progress takes two numbers and a text, not {value!r:.100}: progress(3, 10, 'page 3')")
        if self._context.on_progress is None:
            return
        if trio.lowlevel.in_trio_run() and trio.lowlevel.current_trio_token() is self._token:
            self._tell(done, total, text)
            return
        try:
            trio.from_thread.run_sync(self._tell, done, total, text, trio_token=self._token)
        except trio.RunFinishedError:
            return  # the thread was left behind, and what it was part of is over

    def _tell(self, done: float, total: float | None, text: str | None) -> None:
        context = self._context
        if context.on_progress is not None and context.state.snapshot_now().is_pending(context.call.id):
            context.on_progress(context.state, context.call, done, total, text)


def _check_bool(_: object, field: attrs.Attribute[bool], value: object) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{field.name} must be True or False (got {value!r:.100})")


@final
@attrs.frozen(kw_only=True, eq=False, repr=False)
class Hints(Value):
    """What a call may do, in MCP's meanings (its specification of 2025-11-25, ToolAnnotations).

    Where nothing is said, the worst is assumed. Raises ``TypeError`` for what isn't a bool, and for a tool that only
    reads and destroys.
    """

    read_only: bool = attrs.field(default=False, validator=_check_bool)
    """It changes nothing around it."""
    destructive: bool = attrs.field(
        default=attrs.Factory(lambda self: not self.read_only, takes_self=True), validator=_check_bool
    )
    """What it changes it may overwrite or delete, not only add to. Left out: it may, unless it only reads."""
    idempotent: bool = attrs.field(
        default=attrs.Factory(lambda self: self.read_only is True, takes_self=True), validator=_check_bool
    )
    """The same call again changes nothing more. Left out: it does, unless it only reads."""
    open_world: bool = attrs.field(default=True, validator=_check_bool)
    """It has to do with what is outside, such as the web; a tool for notes hasn't."""

    def __attrs_post_init__(self) -> None:
        if self.read_only and self.destructive:
            raise TypeError("a tool that is read_only can't be destructive: leave one of the two out")


class Tool(ABC):
    """A tool made from data. For one made from a function see ``@tool``."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    """JSON Schema of the arguments, an object."""
    parallel: bool = True
    """Whether calls of one reply may run at the same time as others."""
    abandon_on_cancel: bool = False
    """Whether a cancelled call may go on in a thread of its own, and record a late result."""
    timeout: float | None = None
    """Seconds until a call ends with an error result."""
    max_result_bytes: int = 64 * 1024
    """UTF-8 bytes of text that the model gets of a result; longer ones are cut in the middle."""
    is_subagent: bool = False
    """Whether a call only waits for a run of its own: then it takes none of the run's ``max_parallel_tools``."""
    hints: Hints = Hints()
    """What its calls may do."""
    from_mcp: bool = False
    """Whether an MCP server offers it: then the hints are that server's word."""

    def hints_for(self, args: FrozenDict) -> Hints:
        """Return what a call with these arguments may do."""
        return self.hints

    def read_args(self, args: FrozenDict) -> Any:
        """Return *args* as ``run`` takes them. Write your own to read them yourself.

        A tool that doesn't gets only what fits its ``input_schema``, where jsonschema is installed.

        Raises:
            ToolInputError: they are wrong; the message lists every problem, for the model to read.
        """
        return args

    def mended_args(self, args: FrozenDict) -> FrozenDict:
        """Return *args*, which ``read_args`` takes, as permissions see them: such that they fit ``input_schema``.

        Override it where ``read_args`` takes more than that, a list that came as text for example: else a permission
        judges something else than ``run`` gets.

        Raises:
            ToolInputError: they can't be put so. The call is denied then, and the model gets the message.
        """
        return args

    @abstractmethod
    async def run(self, args: Any, state: State) -> object:
        """Do it and return the result: ``str``, ``None``, ``Image``, ``File``, a list with those, or any JSON value.

        Raises:
            ToolError: the model shall read this message; the run goes on.
        """

    async def call(self, args: Any, context: ToolContext) -> object:
        """Do it, knowing which call it is."""
        result: object = self.run(args, context.state)
        if not isinstance(result, Awaitable):
            raise TypeError(f"tool {type(self).__name__}: run must be async: async def run(self, args, state): ...")
        return await result

    def answer_to(self, error: Exception) -> object:
        """Return what the model gets as an error result for *error*, which the tool raised; raise it to stop the run.

        Here it is raised. A ``ToolError`` doesn't come here: its message is for the model as it is.
        """
        raise error

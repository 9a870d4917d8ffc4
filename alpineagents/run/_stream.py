"""A run as events: it goes on in a task of its own, and whoever iterates gets what happened, in order.

Entries are taken from the histories themselves, so none is lost; where a piece of text or a tool's start is told, the
entries before it are moved first, so that each State's events come in the order in which they happened. The buffer has
no bound, since the run must not wait for its watcher; text of one State that waits there is joined.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypeVarTuple, Unpack, final

import attrs
import trio

from .._blocks import Block
from ..record._blocks import ResultBlock, ToolCall
from ..record._entries import ToolOutcome
from ..record._frozen import Json
from ..record._messages import NO_USAGE, Usage
from ..state import State
from ._budget import Purse
from ._events import EntryAdded, Event, RunEnd, StreamedText, StreamedThinking, ToolEnd, ToolProgress, ToolStart
from ._groups import most_important, parts
from ._run import run
from ._setup import Setup
from ._sync import refuse_without_trio
from ._tee import Sink, tee

Ts = TypeVarTuple("Ts")


@final
class _Delta:
    """Text that waits to be taken; more of it may still come."""

    def __init__(self, state: State, kind: type[StreamedText] | type[StreamedThinking]) -> None:
        self.state = state
        self.kind = kind
        self.pieces: list[str] = []

    def event(self) -> Event:
        """Return all of it as one event."""
        return self.kind("".join(self.pieces), self.state)


@final
class _Buffer:
    """Events that nobody has taken yet, in order."""

    def __init__(self) -> None:
        self._waiting: deque[Event | _Delta] = deque()
        self._last: dict[State, _Delta] = {}  # Of each State, its latest event, where that is text and still waits.
        self._filled = trio.Event()
        self.closed = False
        """Whether nothing more comes."""

    def add(self, event: Event) -> None:
        """Add an event."""
        self._last.pop(event.state, None)
        self._waiting.append(event)
        self._filled.set()

    def add_text(self, state: State, kind: type[StreamedText] | type[StreamedThinking], text: str) -> None:
        """Add text: to what waits, if that is the latest of its State."""
        delta = self._last.get(state)
        if delta is None or delta.kind is not kind:
            delta = self._last[state] = _Delta(state, kind)
            self._waiting.append(delta)
            self._filled.set()
        delta.pieces.append(text)

    def close(self) -> None:
        """Say that nothing more comes."""
        self.closed = True
        self._filled.set()

    async def take(self) -> Event | None:
        """Return the next event, once there is one; None at the end. Checkpoint: yes; cancelled, it takes nothing."""
        await trio.lowlevel.checkpoint()
        while not self._waiting:
            if self.closed:
                return None
            if self._filled.is_set():  # else somebody waits for it already
                self._filled = trio.Event()
            await self._filled.wait()
        first = self._waiting.popleft()
        if not isinstance(first, _Delta):
            return first
        if self._last.get(first.state) is first:
            del self._last[first.state]
        return first.event()


@final
class _Followed:
    """One run of one State: moves its entries to the buffer."""

    def __init__(self, state: State, purse: Purse, buffer: _Buffer, token: trio.lowlevel.TrioToken) -> None:
        self.state = state
        self.purse = purse
        self.started = False
        """Whether it has: the end of a run that never started is not told."""
        self._buffer = buffer
        self._ended = False
        self._token = token
        self._next = state.snapshot_now().length
        self._hearing: AbstractContextManager[None] = state.heard_by(self)
        self._hearing.__enter__()

    def notice(self) -> None:
        """Have what was recorded moved. Safe in any thread and in signal handlers."""
        try:
            self._token.run_sync_soon(self.move, idempotent=True)
        except trio.RunFinishedError:
            return  # the run that this is about is over, too

    def move(self) -> None:
        """Move the entries that are new."""
        history = self.state.snapshot_now().history
        while self._next < len(history) and not self._ended:
            entry = history[self._next]
            self._next += 1
            self._buffer.add(EntryAdded(self.state, entry))

    def end(self) -> None:
        """Move what is left, and no more."""
        self._hearing.__exit__(None, None, None)
        self.move()
        self._ended = True


@final
class _Collector(Sink):
    """Turns what a run and its subagents report into events.

    What is reported in another thread's event loop, where somebody acts on a State that is followed, is handed over to
    the one of the stream: there alone are its tasks to be woken.
    """

    def __init__(self, root: State, buffer: _Buffer) -> None:
        self.begun = trio.Event()
        """Set when the streamed run has started, or won't."""
        self.started = False
        """Whether it has."""
        self.purse: Purse | None = None
        """Of the streamed run, once there is one."""
        self._root = root
        self._buffer = buffer
        self._followed: dict[State, _Followed] = {}  # The latest run of each.
        self._token = trio.lowlevel.current_trio_token()

    def begin(self, state: State, purse: Purse) -> None:
        self._followed[state] = _Followed(state, purse, self._buffer, self._token)
        if state is self._root:
            self.purse = purse

    def end(self, state: State, error: BaseException | None) -> None:
        followed = self._followed[state]
        self._here(self._end, followed, RunEnd(state, state.answer, error, followed.purse.spent))

    def _end(self, followed: _Followed, event: RunEnd) -> None:
        followed.end()
        if followed.started:
            self._buffer.add(event)

    def on_run_start(self, state: State, agent: Any) -> None:
        self._followed[state].started = True
        if state is self._root:
            self.started = True
            self.begun.set()

    def on_text(self, state: State, text: str) -> None:
        self._here(self._add_text, state, StreamedText, text)

    def on_thinking(self, state: State, text: str) -> None:
        self._here(self._add_text, state, StreamedThinking, text)

    def on_tool_start(self, state: State, call: ToolCall) -> None:
        self._here(self._add, ToolStart(state, call))

    def on_tool_progress(
        self, state: State, call: ToolCall, done: float, total: float | None, text: str | None
    ) -> None:
        self._here(self._add, ToolProgress(state, call, done, total, text))

    def on_tool_end(self, state: State, call: ToolCall, result: tuple[ResultBlock, ...], outcome: ToolOutcome) -> None:
        self._here(self._add, ToolEnd(state, call, result, outcome))

    def _add(self, event: Event) -> None:
        self._move(event.state)
        self._buffer.add(event)

    def _add_text(self, state: State, kind: type[StreamedText] | type[StreamedThinking], text: str) -> None:
        self._move(state)
        self._buffer.add_text(state, kind, text)

    def _move(self, state: State) -> None:
        if (followed := self._followed.get(state)) is not None:  # none where an action is on without a run
            followed.move()

    def _here(self, fn: Callable[[Unpack[Ts]], None], *args: *Ts) -> None:
        """Call *fn* in the trio run of the stream: now, if this is it, else soon."""
        if trio.lowlevel.current_trio_token() is self._token:
            fn(*args)
            return
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(fn, *args)


@final
class RunStream:
    """A run under way, as an async iterator over its events. Made by ``agent.stream``.

    Iterating ends when the run has ended and every event was taken; where the run raised something, that is raised
    then. A wait that is cancelled loses nothing: the next one goes on from there.
    """

    def __init__(self, setup: Setup, state: State) -> None:
        self._state = state
        self._buffer = _Buffer()
        self._collector = _Collector(state, self._buffer)
        sinks = (self._collector,)
        self._setup = attrs.evolve(setup, sinks=sinks, reporter=tee(setup.reporter, sinks))
        self._error: Exception | None = None

    @property
    def state(self) -> State:
        """The State that is run."""
        return self._state

    @property
    def answer(self) -> Json:
        """The answer so far, as ``state.answer`` has it."""
        return self._state.answer

    @property
    def usage(self) -> Usage:
        """What the run has used up to now, its subagents included: every request that has ended, wherever it was made.

        ``state.usage`` counts a subagent's when its call closes.
        """
        purse = self._collector.purse
        return NO_USAGE if purse is None else purse.spent

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        event = await self._buffer.take()
        if event is not None:
            return event
        error = self._take_error()
        if error is None:
            raise StopAsyncIteration
        try:
            raise error
        finally:
            del error  # its traceback holds this frame

    def _take_error(self) -> Exception | None:
        """Return what the run raised, once: whoever takes it raises it."""
        error, self._error = self._error, None
        return error

    @trio.lowlevel.enable_ki_protection
    async def _play(self) -> None:
        """Run it. Keeps what it raises, but for what ends programs."""
        try:
            await run(self._setup, self._state)
        except Exception as error:  # noqa: BLE001  # who iterates raises it, or the end of the block
            self._error = error
        finally:
            self._buffer.close()
            self._collector.begun.set()

    async def _begins(self) -> bool:
        """Return, once that is known, whether the run has started. Checkpoint: yes."""
        await self._collector.begun.wait()
        return self._collector.started


@final
class StreamBlock(Block[RunStream]):
    """A block that streams, which says so to who writes something else."""

    def __init__(self, setup: Setup, state: State) -> None:
        super().__init__(_streaming(setup, state))

    # Not for type checkers: they find these mistakes by themselves.
    if not TYPE_CHECKING:

        def __enter__(self) -> NoReturn:
            raise TypeError(_NOT_SO.format("with"))

        def __exit__(self, *_: object) -> None:
            raise AssertionError("it was never entered")

        def __await__(self) -> NoReturn:
            raise TypeError(_NOT_SO.format("await"))

        def __aiter__(self) -> NoReturn:
            raise TypeError(_NOT_SO.format("async for"))


_NOT_SO: Final = (
    "agent.stream is a block, not for {!r}: async with agent.stream(state) as run:, and in it async for event in run:"
)


@asynccontextmanager
@trio.lowlevel.enable_ki_protection
async def _streaming(setup: Setup, state: State) -> AsyncIterator[RunStream]:
    """Run *state* while the block lasts; leaving it early cancels the run."""
    refuse_without_trio("agent.stream", "async with portal.stream(agent, state) as run:")
    streamed = RunStream(setup, state)
    errors: list[BaseException] = []
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(streamed._play, name=f"run of {state.id}")
            try:
                if await streamed._begins():
                    yield streamed
            except BaseException as error:  # noqa: BLE001  # raised again below, when the run has ended
                errors.append(error)
            nursery.cancel_scope.cancel()
    except BaseException as group:  # noqa: BLE001  # what ends programs, and cancellation from outside
        errors.extend(parts(group))
    if (failure := streamed._take_error()) is not None:
        errors.append(failure)
    if errors:
        raise most_important(errors)

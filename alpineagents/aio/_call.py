"""One call from asyncio: a task in the trio thread, which ends before the asyncio task that waits for it goes on."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Generic, TypeVar, cast, final

import trio

from ..run._groups import is_cancellation
from ..tools import call_tasks
from ._thread import TrioThread
from ._waiting import shielded

T = TypeVar("T")


@final
class Call(Generic[T]):
    """Calls *fn* in the trio thread and awaits what it returns, where that can be awaited.

    What it raises is kept here, never set on a future: asyncio's can't hold a StopIteration.

    Args:
        thread: Where.
        fn: What.
        at_end: Called in the event loop when it has ended.
    """

    def __init__(
        self, thread: TrioThread, fn: Callable[[], Awaitable[T] | T], at_end: Callable[[], None] | None = None
    ) -> None:
        self._thread = thread
        self._fn = fn
        self._at_end = at_end
        self._scope = trio.CancelScope()
        self._is_cancelled = False  # at once, where the scope's turn is still to come
        self._ended = asyncio.Event()
        self._abandoned = False
        self._returned: list[T] = []
        self._error: BaseException | None = None
        thread.at_end.add(self._end)
        thread.spawn(self._play)

    @property
    def has_ended(self) -> bool:
        """Whether it has. In the event loop."""
        return self._ended.is_set()

    def cancel(self) -> None:
        """Have it cancelled; where the function hasn't been called yet, it never is. Safe in any thread."""
        self._is_cancelled = True
        self._thread.soon(self._scope.cancel)

    def abandon(self) -> None:
        """Have it cancelled where nobody can wait for it: the event loop is told of what it raises."""
        self._abandoned = True
        if self.has_ended:
            self._report()
        else:
            self.cancel()

    async def until_ended(self) -> asyncio.CancelledError | None:
        """Wait for its end; cancelled, cancel it and wait all the same. Return what is the caller's to raise then."""
        try:
            await self._ended.wait()
        except asyncio.CancelledError as error:
            self.cancel()
            return await shielded(self._ended) or error
        except GeneratorExit:  # what waits is thrown away, and may not wait any more
            self.abandon()
            raise
        return None

    def failure(self) -> BaseException | None:
        """Return what it raised, once: whoever takes it raises it."""
        error, self._error = self._error, None
        return error

    def result(self, cancelled: asyncio.CancelledError | None = None) -> T:
        """Return what it returned, or raise what it raised, else *cancelled*.

        Raises:
            RuntimeError: the Portal was closed meanwhile, or trio has failed.
        """
        error = self.failure() or cancelled
        if error is None and self._returned:
            return self._returned[0]
        try:
            if error is not None:
                raise error
            raise RuntimeError(
                "the Portal was closed in the middle of this call, which it has cancelled; keep its block open until"
                " the tasks that use it have ended"
            ) from self._thread.error
        finally:
            del error, cancelled  # their tracebacks hold this frame

    async def _play(self) -> None:
        """Make the call. In the trio thread."""
        try:
            with self._thread.cancelling(self._scope), self._scope:
                call_tasks.set(None)  # the call that the asyncio code may be part of is none of this trio run
                if self._is_cancelled:
                    self._scope.cancel()
                await trio.lowlevel.checkpoint_if_cancelled()
                made = self._fn()
                result = await cast("Awaitable[T]", made) if isawaitable(made) else made
                self._returned.append(result)
        except BaseException as error:
            if not trio.lowlevel.in_trio_task() or (is_cancellation(error) and _is_cancelled_around()):
                raise  # trio itself has failed, and may have thrown this away; the thread's end is this one's
            self._error = error
        self._thread.tell(self._end)

    def _end(self) -> None:
        self._thread.at_end.discard(self._end)
        self._ended.set()
        if self._at_end is not None:
            self._at_end()
        del self._fn, self._at_end  # A Feed's own: else it would be garbage, and its State, until gc looks.
        if self._abandoned:
            self._report()

    def _report(self) -> None:
        if (error := self.failure()) is not None:
            self._thread.report("what asyncio has left behind in a Portal has failed", error)


def _is_cancelled_around() -> bool:
    """Whether what is around this task's own scope, which it has left, is cancelled."""
    return trio.current_effective_deadline() == -math.inf

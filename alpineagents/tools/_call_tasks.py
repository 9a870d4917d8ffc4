"""What a sync tool runs by ``run_sync``: tasks of its call, which end with it.

The call's own task can't run them: it waits for the thread, and must be free to give that up. So trio runs them where
it runs what comes from threads, and they are held to what a nursery around the call would hold them to: who is
cancelled with the call, is below it, and has ended before it has. That nursery would cost each call of a sync tool a
tenth of its time, and few of them run anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar, final

import trio

from .._threads import thread_waits
from ..state import current_calls, surrounded_as

T = TypeVar("T")


@final
class CallTasks:
    """The tasks of one call. Made in its task, and used in it, but for ``run``."""

    __slots__ = ("_call", "_has_ended", "_running")

    def __init__(self) -> None:
        self._call = trio.lowlevel.current_task()
        self._has_ended = False
        self._running: dict[trio.CancelScope, trio.Event] = {}

    def run(self, fn: Callable[[], Awaitable[T]]) -> T:
        """Return what ``await fn()`` returns, run as a task of the call. In a thread of it, which waits.

        Raises:
            RuntimeError: the call has ended.
        """
        ending: list[Callable[[], T]] = []
        try:
            trio.from_thread.run(self._play, fn, ending.append)
        except RuntimeError as error:  # trio's own, or that of _play: what fn raises is in the ending
            raise RuntimeError("run_sync: the tool call that this thread belongs to has ended") from error
        return ending[0]()

    async def ended(self) -> None:
        """Wait until all have ended; from then on there are none. Checkpoint: if there are any."""
        while self._running:
            await next(iter(self._running.values())).wait()
        self._has_ended = True

    async def cancel(self) -> None:
        """Cancel them, and wait until they have ended, as a nursery does; none begins any more."""
        self._has_ended = True
        for scope in self._running:
            scope.cancel()
        with trio.CancelScope(shield=True):
            await self.ended()

    @trio.lowlevel.enable_ki_protection
    async def _play(self, fn: Callable[[], Awaitable[T]], tell: Callable[[Callable[[], T]], None]) -> None:
        if self._has_ended:
            raise RuntimeError("too late")
        call_tasks.set(None)  # The threads that the task itself starts are not the call's.
        current_calls.set(surrounded_as(self._call))
        with trio.CancelScope() as scope:
            ended = self._running[scope] = trio.Event()
            try:
                with thread_waits():
                    result = await fn()
            except BaseException as error:  # noqa: BLE001  # the thread raises it
                tell(partial(_raise, error))
            else:
                tell(lambda: result)
            finally:
                del self._running[scope]
                ended.set()


call_tasks: ContextVar[CallTasks | None] = ContextVar("alpineagents.call_tasks", default=None)
"""In a sync tool's thread: the tasks of its call."""


def _raise(error: BaseException) -> Any:
    try:
        raise error
    finally:
        del error  # its traceback holds this frame

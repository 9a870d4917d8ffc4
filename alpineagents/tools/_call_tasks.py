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
    """The tasks of one call. Made in its task, and used in it, but for ``has_thread`` and ``run``."""

    __slots__ = ("_call", "_has_ended", "_is_interrupted", "_part_of", "_running", "_trio")

    def __init__(self) -> None:
        self._call = trio.lowlevel.current_task()
        self._part_of = current_calls.get()
        self._trio = trio.lowlevel.current_trio_token()
        self._running: dict[trio.CancelScope, trio.Event] = {}
        self._has_ended = False
        self._is_interrupted = False

    def has_thread(self) -> bool:
        """Whether the running thread, which got them from its context, is of the call: trio has started it there.

        A thread of somebody else's, or of another trio run, is not; nor is one below another call, further down.
        """
        if current_calls.get() is not self._part_of:
            return False
        try:
            return trio.from_thread.run_sync(trio.lowlevel.current_trio_token) is self._trio
        except trio.RunFinishedError:
            return True  # of a call that has ended with it
        except RuntimeError:
            return False

    def run(self, fn: Callable[[], Awaitable[T]]) -> T:
        """Return what ``await fn()`` returns, run as a task of the call. In a thread of it, which waits.

        Raises:
            RuntimeError: the call has ended.
        """
        ending: list[Callable[[], T]] = []
        try:
            trio.from_thread.run(self._play, fn, ending.append)
        except RuntimeError as error:  # never what fn raises, which is in the ending
            if ending:  # fn has left a cancel scope open
                raise
            raise RuntimeError("run_sync: the tool call that this thread belongs to has ended") from error
        return ending.pop()()  # Not kept: the traceback of an error holds this frame.

    async def ended(self) -> None:
        """Wait until all have ended; from then on there are none. Checkpoint: if there are any."""
        while self._running:
            await next(iter(self._running.values())).wait()
        self._has_ended = True

    async def cancel(self) -> None:
        """Cancel them, and wait until they have ended, as a nursery does; none begins any more.

        Raises:
            KeyboardInterrupt: there was a Ctrl+C meanwhile.
        """
        self._has_ended = True
        for scope in self._running:
            scope.cancel()
        while self._running:
            try:
                with trio.CancelScope(shield=True):
                    await self.ended()
            except KeyboardInterrupt:  # which trio's main task gets in a shield, too
                self._is_interrupted = True
        if self._is_interrupted:
            raise KeyboardInterrupt

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
                    result = await _unprotected(fn)
            except BaseException as error:  # noqa: BLE001  # the thread raises it
                tell(partial(_raise, error))
                if scope.cancel_called and is_ctrl_c(error):  # its thread may be left behind, and nobody hears it
                    self._is_interrupted = True
            else:
                tell(lambda: result)
            finally:
                del self._running[scope]
                ended.set()


call_tasks: ContextVar[CallTasks | None] = ContextVar("alpineagents.call_tasks", default=None)
"""In a sync tool's thread: the tasks of its call."""


@trio.lowlevel.disable_ki_protection
async def _unprotected(fn: Callable[[], Awaitable[T]]) -> T:
    return await fn()


def is_ctrl_c(error: BaseException) -> bool:
    """Whether it is a KeyboardInterrupt, or a group with one."""
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(KeyboardInterrupt) is not None
    return isinstance(error, KeyboardInterrupt)


def _raise(error: BaseException) -> Any:
    try:
        raise error
    finally:
        del error  # its traceback holds this frame

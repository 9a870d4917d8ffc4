"""Sync tools run in worker threads, and a thread that nobody waits for any more still tells how it ended.

trio drops what an abandoned thread returns, so the thread has to record it. A race is left: the thread ends, and before
trio has delivered that, the task is cancelled. So both sides say under one lock that they are through, and whoever is
second records.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, final

import trio

from .._contracts import Tool, ToolContext
from .._threads import in_thread
from ..record._blocks import TextBlock
from ..record._entries import ToolOutcome
from ._call import is_cancellation
from ._call_tasks import CallTasks, call_tasks, is_ctrl_c
from ._results import Ending, answered, done


@trio.lowlevel.enable_ki_protection
async def run_in_thread(fn: Callable[[], Any], tool: Tool, context: ToolContext) -> Any:
    """Return what ``fn()`` returns, called in a thread of its own, so that a hung one holds up nobody.

    Checkpoint: yes. Cancelled: with ``tool.abandon_on_cancel`` at once, and the thread records how it ends with
    ``context.record_late``; else only before the thread has started.
    """
    call = ThreadCall(fn, partial(_record_late, tool, context))
    tasks = CallTasks()
    token = call_tasks.set(tasks)
    try:
        await in_thread(
            call.run,
            thread_name=f"tool {tool.name}",
            abandon_on_cancel=tool.abandon_on_cancel,
            limiter=trio.CapacityLimiter(1),
        )
        await tasks.ended()
    except BaseException:  # never the tool's own, which run() keeps
        try:
            await tasks.cancel()
        finally:
            call.give_up()
        raise
    finally:
        call_tasks.reset(token)
    return call.take()


@final
class ThreadCall:
    """One call in one thread: ``record_late(result, error)`` happens once if both ``run`` and ``give_up`` did."""

    def __init__(self, fn: Callable[[], Any], record_late: Callable[[Any, BaseException | None], None]) -> None:
        self._fn = fn
        self._record_late = record_late
        self._lock = threading.Lock()
        self._sides_through = 0
        self._result: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Call the function. In the thread."""
        if self._sides_through:  # given up before it began
            return
        try:
            self._result = self._fn()
        except BaseException as error:  # noqa: BLE001  # take() raises it, or it is recorded
            self._error = error
        self._record_if_second()

    def give_up(self) -> None:
        """Say that nobody will take the result. In the task."""
        self._record_if_second()

    def take(self) -> Any:
        """Return what the function returned, or raise what it raised."""
        error, self._error = self._error, None
        if error is None:
            return self._result
        try:
            raise error
        finally:
            del error  # its traceback holds this frame

    def _record_if_second(self) -> None:
        with self._lock:
            self._sides_through += 1
            is_second = self._sides_through == 2
        if is_second:
            result, error = self._result, self._error
            self._result = self._error = None
            self._record_late(result, error)


def _record_late(tool: Tool, context: ToolContext, result: Any, error: BaseException | None) -> None:
    ending = _late_ending(tool, result, error)
    context.record_late(ending.content, ending.outcome, ending.error, ending.full)


def _late_ending(tool: Tool, result: Any, error: BaseException | None) -> Ending:
    try:
        if error is None:
            if inspect.iscoroutine(result):  # nobody is there to await it
                result.close()
            return done(result, tool)
        if isinstance(error, Exception):
            return answered(error, tool)
    except Exception as failure:  # noqa: BLE001  # the tool's own; or of the conversion: not JSON, a class fails
        error = failure
    if is_cancellation(error) or is_ctrl_c(error):  # the latter in what it ran by run_sync
        return Ending((TextBlock("(interrupted)"),), ToolOutcome.INTERRUPTED, None, error)
    return Ending((TextBlock(f"(aborted: {type(error).__name__})"),), ToolOutcome.ABORTED, None, error)

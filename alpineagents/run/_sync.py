"""Running from code that is not async: a script, or the thread of a sync tool."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from queue import SimpleQueue
from typing import Any, TypeVar

import trio

from .._threads import thread_waits
from ..state import call_nursery, runs_event_loop

T = TypeVar("T")


def run_sync(fn: Callable[..., Awaitable[T]], *args: Any) -> T:
    """Return what ``await fn(*args)`` returns, in a trio run of its own; in a sync tool's thread in its call's nursery.

    Raises:
        RuntimeError: this thread runs an event loop; or the tool call that this thread belongs to has ended.
    """
    if runs_event_loop():
        raise RuntimeError(
            "run_sync would block the event loop of this thread; under trio write: await agent.run(state),"
            " under asyncio go through alpineagents.aio"
        )
    nursery = call_nursery.get()
    if nursery is None:
        return trio.run(functools.partial(fn, *args), strict_exception_groups=True)
    return _run_in(nursery, functools.partial(fn, *args))


def refuse_without_trio(what: str, in_asyncio: str) -> None:
    """Raise RuntimeError where trio doesn't run. *in_asyncio*: a line of right code for an asyncio program."""
    if not trio.lowlevel.in_trio_task():
        raise RuntimeError(
            f"{what} needs trio, and this code doesn't run under it; in an asyncio program open a Portal,"
            f" async with aio.Portal() as portal:, and write: {in_asyncio}"
        )


def _run_in(nursery: trio.Nursery, fn: Callable[[], Awaitable[T]]) -> T:
    """Run ``fn`` as a task of the call, while this thread, which is the call's, waits for it."""
    ended: SimpleQueue[Callable[[], T]] = SimpleQueue()

    async def task() -> None:
        call_nursery.set(None)  # The threads that the task itself starts are not the call's.
        try:
            with thread_waits():
                result = await fn()
        except BaseException as error:
            ended.put(functools.partial(_raise, error))
            if isinstance(error, trio.Cancelled):
                raise
        else:
            ended.put(lambda: result)

    try:
        trio.from_thread.run_sync(nursery.start_soon, task)
    except (RuntimeError, trio.RunFinishedError) as error:
        raise RuntimeError("run_sync: the tool call that this thread belongs to has ended") from error
    return ended.get()()


def _raise(error: BaseException) -> Any:
    raise error

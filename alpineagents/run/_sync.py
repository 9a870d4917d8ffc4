"""Running from code that is not async: a script, or the thread of a sync tool."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import trio

from ..state import runs_event_loop
from ..tools import call_tasks

T = TypeVar("T")


def run_sync(fn: Callable[..., Awaitable[T]], *args: Any) -> T:
    """Return what ``await fn(*args)`` returns, in a trio run of its own; in a sync tool's thread as a task of its call.

    Raises:
        RuntimeError: this thread runs an event loop; or the tool call that this thread belongs to has ended.
    """
    if runs_event_loop():
        raise RuntimeError(
            "run_sync would block the event loop of this thread; under trio write: await agent.run(state),"
            " under asyncio go through alpineagents.aio"
        )
    tasks = call_tasks.get()
    if tasks is None or not tasks.has_thread():
        return trio.run(functools.partial(fn, *args), strict_exception_groups=True)
    return tasks.run(functools.partial(fn, *args))


def refuse_without_trio(what: str, in_asyncio: str) -> None:
    """Raise RuntimeError where trio doesn't run. *in_asyncio*: a line of right code for an asyncio program."""
    if not trio.lowlevel.in_trio_task():
        raise RuntimeError(
            f"{what} needs trio, and this code doesn't run under it; in an asyncio program open a Portal,"
            f" async with aio.Portal() as portal:, and write: {in_asyncio}"
        )

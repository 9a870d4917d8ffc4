"""The one way from a store into a worker thread and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar, TypeVarTuple, Unpack

import trio

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MOST_THREADS: Final = 40
"""How many calls of all stores run at once in one trio run.

They are counted apart from other threads: sync tools that fill all of trio's own may wait for a store to save.
"""

_limiter: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("alpineagents.stores")


async def in_thread(fn: Callable[[Unpack[Ts]], T], *args: *Ts, abandon_on_cancel: bool = False) -> T:
    """Return ``fn(*args)``, called in a worker thread.

    Checkpoint: yes. Cancelled: it waits for *fn* to end and returns what that gives, unless *abandon_on_cancel*: then
    it raises Cancelled at once, and *fn* goes on unwatched. A write may be abandoned because appends are idempotent by
    seq: whether it happened or not, the next one with the same entries succeeds.
    """
    return await trio.to_thread.run_sync(fn, *args, abandon_on_cancel=abandon_on_cancel, limiter=_threads())


def _threads() -> trio.CapacityLimiter:
    try:
        return _limiter.get()
    except LookupError:
        limiter = trio.CapacityLimiter(MOST_THREADS)
        _limiter.set(limiter)
        return limiter

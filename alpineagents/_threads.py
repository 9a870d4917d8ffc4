"""The one way into worker threads and back, for stores and tools.

trio's MockClock sees no threads: where all tasks wait, one of them for a thread, it would jump, and end a grace period
in the middle of a write. A clock that ``heed_threads`` was told of runs as fast as a real one while a thread works that
a task waits for, and jumps again as before when there is none.

A thread that was abandoned holds no clock: nobody waits for it, and one that hangs would hold it for ever. Nor does one
that waits for a task itself, by ``run_sync``.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, TypeVar, TypeVarTuple, Unpack, final

import trio

if TYPE_CHECKING:
    from trio.testing import MockClock

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_HELD_BY: Final = "_alpineagents_threads"
"""The attribute of a clock that has its Hold."""


def in_thread(
    fn: Callable[[Unpack[Ts]], T],
    *args: *Ts,
    limiter: trio.CapacityLimiter,
    abandon_on_cancel: bool,
    thread_name: str | None = None,
) -> Awaitable[T]:
    """Return ``fn(*args)``, called in a worker thread, to be awaited at once; as ``trio.to_thread.run_sync`` does it.

    Not async itself: a frame less, for all whose clock is a real one.
    """
    hold: Hold | None = getattr(trio.lowlevel.current_clock(), _HELD_BY, None)
    call = trio.to_thread.run_sync(
        fn, *args, thread_name=thread_name, abandon_on_cancel=abandon_on_cancel, limiter=limiter
    )
    return call if hold is None else _holding(hold, call)


def heed_threads(clock: MockClock) -> MockClock:
    """Have *clock* run like a real one while threads work, and return it. For one trio run."""
    setattr(clock, _HELD_BY, Hold(clock))
    return clock


@contextmanager
def thread_waits() -> Iterator[None]:
    """Say that the thread which this task was started from, if any, waits for it while the block lasts."""
    hop = _hop.get()
    if hop is None:
        yield
        return
    hop.waits_for(1)
    try:
        yield
    finally:
        hop.waits_for(-1)


@final
class Hold:
    """What keeps a clock from jumping: how many threads work that tasks of its run wait for. Used in that run only."""

    def __init__(self, clock: MockClock) -> None:
        self._clock = clock
        self._at_work = 0
        self._rate = clock.rate
        self._threshold = clock.autojump_threshold

    def change(self, by: int) -> None:
        """Count one thread more, or one less."""
        clock = self._clock
        if self._at_work == 0:
            self._rate, self._threshold = clock.rate, clock.autojump_threshold
            clock.rate, clock.autojump_threshold = 1.0, math.inf
        self._at_work += by
        if self._at_work == 0:
            clock.rate, clock.autojump_threshold = self._rate, self._threshold


@final
class Hop:
    """One call in a thread, which holds the clock while it is awaited, but not while it waits for a task itself."""

    __slots__ = ("_awaited", "_hold", "_holds", "_tasks")

    def __init__(self, hold: Hold) -> None:
        self._hold = hold
        self._holds = False
        self._awaited = False
        self._tasks = 0

    def is_awaited(self, now: bool) -> None:
        """Say whether a task awaits it."""
        self._awaited = now
        self._update()

    def waits_for(self, by: int) -> None:
        """Count one task more, or one less, that the thread waits for."""
        self._tasks += by
        self._update()

    def _update(self) -> None:
        holds = self._awaited and not self._tasks
        if holds != self._holds:
            self._holds = holds
            self._hold.change(1 if holds else -1)


_hop: ContextVar[Hop | None] = ContextVar("alpineagents.hop", default=None)
"""The call that this thread, or a task that it started, belongs to; None where no clock is held by it."""


async def _holding(hold: Hold, call: Awaitable[T]) -> T:
    hop = Hop(hold)
    token = _hop.set(hop)  # before the call begins, which gives its thread what is set
    hop.is_awaited(True)
    try:
        return await call
    finally:
        hop.is_awaited(False)
        _hop.reset(token)

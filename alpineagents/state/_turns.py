"""One at a time, for threads and trio tasks alike, in order of arrival."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import final

import trio

from ._waiters import Waiter


@final
class _Sleeper:
    """A thread that waits."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wake(self) -> None:
        self._lock.release()

    def wait(self) -> None:
        self._lock.acquire()


@final
class Turns:
    """Hands a turn from one holder to the next.

    Invariant: the queue is empty, or somebody holds the turn. A holder is any object of the caller's.
    """

    __slots__ = ("_guard", "_queue", "holder")

    def __init__(self, guard: threading.RLock) -> None:
        self._guard = guard
        self.holder: object = None
        self._queue: deque[tuple[object, _Sleeper | Waiter]] = deque()

    def take_nowait(self, who: object) -> bool:
        """Take the turn if it is free."""
        with self._guard:
            if self.holder is None:
                self.holder = who
            return self.holder is who

    def take_blocking(self, who: object) -> None:
        """Wait in this thread until the turn is *who*'s."""
        sleeper = _Sleeper()
        if self._queued(who, sleeper):
            try:
                sleeper.wait()
            except BaseException:
                self._leave(who, sleeper)
                raise

    async def take(self, who: object) -> None:
        """Wait in this task until the turn is *who*'s. Checkpoint: where it has to wait."""
        waiter = Waiter()
        if self._queued(who, waiter):
            try:
                while self.holder is not who:
                    await waiter.wait()
            except BaseException:
                self._leave(who, waiter)
                raise

    @asynccontextmanager
    @trio.lowlevel.enable_ki_protection
    async def turn(self) -> AsyncIterator[None]:
        """Hold the turn for a block of a task. Checkpoint: where it has to wait."""
        who = object()
        await self.take(who)
        try:
            yield
        finally:
            self.give_back(who)

    def give_back(self, who: object) -> None:
        """End *who*'s turn and begin that of the next in the queue."""
        with self._guard:
            if self.holder is who:
                self.holder, waiter = self._queue.popleft() if self._queue else (None, None)
                if waiter is not None:
                    waiter.wake()

    def _queued(self, who: object, waiter: _Sleeper | Waiter) -> bool:
        with self._guard:
            if self.take_nowait(who):
                return False
            self._queue.append((who, waiter))
            return True

    def _leave(self, who: object, waiter: _Sleeper | Waiter) -> None:
        with self._guard:
            if self.holder is who:
                self.give_back(who)
            else:
                self._queue.remove((who, waiter))

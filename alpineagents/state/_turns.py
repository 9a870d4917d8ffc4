"""One at a time, for threads and trio tasks alike, in order of arrival."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import final

import trio

from ._waiters import Waiter


class Holder:
    """Somebody who can hold a turn."""

    __slots__ = ("__weakref__",)


@final
class _Sleeper:
    """A thread that waits."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wake(self) -> None:
        if self._lock.locked():
            self._lock.release()

    def wait(self) -> None:
        self._lock.acquire()


@final
class Turns:
    """Hands a turn from one holder to the next.

    Invariant: the queue is empty, or somebody holds the turn. A holder that is gone holds nothing: in a plain script
    Ctrl+C can come between any two calls, also before one could give the turn back.
    """

    __slots__ = ("_guard", "_holder", "_queue")

    def __init__(self, guard: threading.RLock) -> None:
        self._guard = guard
        self._holder: weakref.ref[Holder] | None = None
        self._queue: deque[tuple[weakref.ref[Holder], _Sleeper | Waiter]] = deque()

    def holder(self) -> Holder | None:
        """Return whose turn it is."""
        return None if self._holder is None else self._holder()

    def held_by(self, who: Holder) -> bool:
        """Whether it is *who*'s turn."""
        holder = self._holder
        return holder is not None and holder() is who

    def take_nowait(self, who: Holder) -> bool:
        """Take the turn if it is free."""
        with self._guard:
            if self._holder is None or self._holder() is None:
                self._holder = weakref.ref(who, self._lost)
            return self._holder() is who

    def take_blocking(self, who: Holder) -> None:
        """Wait in this thread until the turn is *who*'s."""
        sleeper = _Sleeper()
        if self._queued(who, sleeper):
            try:
                sleeper.wait()
            except BaseException:
                self._leave(who, sleeper)
                raise

    async def take(self, who: Holder) -> None:
        """Wait in this task until the turn is *who*'s. Checkpoint: where it has to wait."""
        waiter = Waiter()
        if self._queued(who, waiter):
            try:
                while not self.held_by(who):
                    await waiter.wait()
            except BaseException:
                self._leave(who, waiter)
                raise

    @asynccontextmanager
    @trio.lowlevel.enable_ki_protection
    async def turn(self) -> AsyncIterator[None]:
        """Hold the turn for a block of a task. Checkpoint: where it has to wait."""
        who = Holder()
        await self.take(who)
        try:
            yield
        finally:
            self.give_back(who)

    def give_back(self, who: Holder) -> None:
        """End *who*'s turn and begin that of the next in the queue; nothing if it isn't *who*'s."""
        with self._guard:
            if self.held_by(who):
                self._pass_on()

    def _lost(self, gone: weakref.ref[Holder]) -> None:
        with self._guard:
            if self._holder is gone:
                self._pass_on()

    def _pass_on(self) -> None:
        try:
            self._holder = None
            self._advance()
        except BaseException:  # Ctrl+C: whoever is next mustn't wait for ever
            self._advance()
            raise

    def _advance(self) -> None:
        """Let the first of the queue hold the turn if it is free. Doing it twice is doing it once."""
        while self._queue:
            place, waiter = self._queue[0]
            who = place()
            if who is not None:
                if self._holder is None:
                    self._holder = weakref.ref(who, self._lost)
                if not self.held_by(who):
                    return
                waiter.wake()
            self._queue.popleft()
            if who is not None:
                return

    def _queued(self, who: Holder, waiter: _Sleeper | Waiter) -> bool:
        with self._guard:
            if self.take_nowait(who):
                return False
            self._queue.append((weakref.ref(who), waiter))
            return True

    def _leave(self, who: Holder, waiter: _Sleeper | Waiter) -> None:
        with self._guard:
            if self.held_by(who):
                self._pass_on()
            else:
                self._queue = deque([place for place in self._queue if place[1] is not waiter])

"""Items on their way from an async iterable under trio to asyncio.

They go from thread to thread in a deque, which both may use at the same time. The loop is woken only where it waits,
and trio waits only where the deque is full, so that most items cost no hop between threads.

Each side tells the other that it waits by a flag, which it sets before it looks again: whoever adds or takes in between
sees the flag, or is seen.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterable, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any, Final, Generic, TypeVar, final

import trio

from ..state import error_text
from ._call import Call
from ._thread import TrioThread

T = TypeVar("T")

CAPACITY: Final = 256
"""Items that may wait; then the iterable waits, and what it is made of: a run's stream has a buffer of its own."""

PAUSE: Final = 0.001
"""Seconds in which asyncio is woken once at most: being woken for each item costs more than many an item."""

TURN: Final = 64
"""Items that are taken without other asyncio tasks getting their turn."""


@final
class Feed(Generic[T]):
    """Iterates in the trio thread over what *make* returns there: an async iterable, or a block that gives one."""

    def __init__(self, thread: TrioThread, make: Callable[[], object]) -> None:
        self.source: AsyncIterable[T] | None = None
        """What is iterated, once it is there."""
        self._thread = thread
        self._make = make
        self._items: deque[T] = deque()
        self._loop = asyncio.get_running_loop()
        self._woken = 0.0
        self._taken = 0
        self._is_over = False  # nothing more is taken, and what it raised has been told
        self._begun = asyncio.Event()
        self._filled = asyncio.Event()
        self._is_empty = False  # asyncio waits, or is about to
        self._is_full = False  # trio waits, or is about to
        self._room = trio.Event()
        self.call: Call[None] = Call(thread, self._pump, self._end)

    def can_wait(self) -> bool:
        """Whether the event loop that this belongs to is the one that runs here."""
        return self._thread.is_here()

    async def begin(self) -> None:
        """Return when there is something to iterate. Cancelled: nothing is left behind.

        Raises what *make* raised, or its block on entering.
        """
        cancelled: asyncio.CancelledError | None = None
        try:
            await self._begun.wait()
        except asyncio.CancelledError as error:
            cancelled = error
        try:
            if cancelled is not None:
                await self.close(cancelled)
                raise cancelled
        finally:
            del cancelled  # its traceback holds this frame
        if self.source is None:
            self._is_over = True
            self.call.result()

    async def take(self) -> T:
        """Return the next item. Cancelled, it takes nothing. Checkpoint: where none is there, and every 64 items.

        Raises StopAsyncIteration at the end; before that what the iterable raised, once.
        """
        self._taken += 1
        if self._taken % TURN == 0:
            await asyncio.sleep(0)
        while not self._items:
            if self._is_over:
                raise StopAsyncIteration
            if self.call.has_ended:
                self._is_over = True
                self.call.result()
                raise StopAsyncIteration
            if self._is_empty:
                await self._filled.wait()
                self._woken = self._loop.time()
            elif self._loop.time() < self._woken + PAUSE:
                await asyncio.sleep(PAUSE)
            else:
                self._filled.clear()
                self._is_empty = True  # and look again
        item = self._items.popleft()
        if self._is_full and len(self._items) <= CAPACITY // 2:
            self._is_full = False
            self._thread.soon(self._room.set)
        return item

    async def close(self, error: BaseException | None) -> None:
        """Have the rest cancelled, and wait until it has ended, however often cancelled.

        Raises what it raised, unless that has been told, or *error*, which leaves the block, is a failure already; else
        a cancellation that came meanwhile.
        """
        self._is_over = True
        self.call.cancel()
        cancelled = await self.call.until_ended()
        self._items.clear()
        failure = self.call.failure()
        try:
            if failure is not None and (error is None or isinstance(error, asyncio.CancelledError | GeneratorExit)):
                raise failure
            if failure is not None and error is not None:
                error.add_note(f"also raised: {error_text(failure)}")
            if cancelled is not None and error is None:
                raise cancelled
        finally:
            del error, cancelled, failure  # their tracebacks hold this frame

    async def _pump(self) -> None:
        made: Any = self._make()
        if isinstance(made, AbstractAsyncContextManager):
            async with made as items:
                await self._drain(items)
        elif hasattr(made, "aclose"):
            async with aclosing(made) as items:
                await self._drain(items)
        elif isinstance(made, AsyncIterable):
            await self._drain(made)
        else:
            if inspect.iscoroutine(made):
                made.close()  # else Python warns that nobody has awaited it
            raise TypeError(
                "portal.iterate takes a function that returns an async iterator, or a block that gives one, not"
                f" {type(made).__name__}: portal.iterate(state.watch, after=3)"
            )

    async def _drain(self, items: AsyncIterable[T]) -> None:
        self.source = items
        self._thread.tell(self._begun.set)
        async for item in items:
            self._items.append(item)
            if self._is_empty:
                self._is_empty = False
                self._thread.tell(self._filled.set)
            while len(self._items) >= CAPACITY:
                if self._is_full:
                    await self._room.wait()
                else:
                    self._room = trio.Event()
                    self._is_full = True  # and look again

    def _end(self) -> None:
        self._begun.set()
        self._filled.set()

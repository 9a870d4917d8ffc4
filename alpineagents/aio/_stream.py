"""Async iterators of trio, for asyncio: a run's events, a State's entries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from types import TracebackType
from typing import Generic, Self, TypeVar, final

from ..record._frozen import Json
from ..record._messages import NO_USAGE, Usage
from ..run import Agent
from ..run._events import Event
from ..run._stream import RunStream
from ..state import State
from ._feed import Feed
from ._thread import TrioThread

T = TypeVar("T")


class PortalIterator(AsyncIterator[T], Generic[T]):
    """An async iterator under trio, iterated from asyncio. Made by ``portal.iterate``.

    Two ways to use it, once:

    * ``async with portal.iterate(...) as items:``, and in the block ``async for item in items:``. Leaving the block
      ends what is iterated, and waits until it has ended. A wait for an item that is cancelled loses nothing: the next
      one goes on from there.
    * ``async for item in portal.iterate(...):`` alone. Leaving the loop early ends it, too, but doesn't wait: that ends
      soon, and before the Portal's block does. What it raises then goes to the event loop's exception handler. A wait
      for an item that is cancelled ends it, and waits for that.

    Items wait for who takes them: up to 256, then what is iterated waits. Taking one that is there isn't a checkpoint,
    but other tasks get their turn every 64 items.

    Raises (entering, or at the first item): RuntimeError, where the Portal isn't open in this event loop.

    Raises (``async for``, or the end of the block where that came first; once): what was raised under trio;
    RuntimeError, where the Portal was closed meanwhile.
    """

    def __init__(self, thread: Callable[[], TrioThread], make: Callable[[], object]) -> None:
        self._feed: Feed[T] | None = None
        self._thread = thread
        self._make = make
        self._is_block = False
        self._is_closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        feed = self._feed
        if feed is None:
            if self._is_closed:
                raise StopAsyncIteration
            feed = self._opened()
        try:
            return await feed.take()
        except asyncio.CancelledError as error:
            if self._is_block:
                raise
            cancelled = error
        try:
            await feed.close(cancelled)
            raise cancelled
        finally:
            del cancelled  # its traceback holds this frame

    async def aclose(self) -> None:
        """End what is iterated, and wait until it has ended. Checkpoint: where it hasn't yet.

        Raises: what it raised, unless somebody was told.
        """
        self._is_closed = True
        if self._feed is not None:
            await self._feed.close(None)

    async def __aenter__(self) -> Self:
        if self._feed is not None or self._is_closed:
            raise RuntimeError("this was used already; make a new one: async with portal.stream(agent, state) as run:")
        self._is_block = True
        await self._opened().begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        feed = self._feed
        if feed is None:
            raise AssertionError("left before it was entered")
        if feed.can_wait():
            await feed.close(error)
        else:  # the block is thrown away, its event loop closed
            feed.call.abandon()

    def __del__(self) -> None:
        if self._feed is not None:
            self._feed.call.abandon()

    def _opened(self) -> Feed[T]:
        self._feed = Feed(self._thread(), self._make)
        return self._feed


@final
class PortalStream(PortalIterator[Event]):
    """A run under way in a Portal, as an async iterator over its events. Made by ``portal.stream``.

    It is used as ``PortalIterator`` says: ``async with`` waits for the run's end, so that its State is closed and saved
    when the block has been left, early or not.
    """

    def __init__(self, thread: Callable[[], TrioThread], agent: Agent, state: State) -> None:
        super().__init__(thread, partial(agent.stream, state))
        self._state = state

    @property
    def state(self) -> State:
        """The State that is run."""
        return self._state

    @property
    def answer(self) -> Json:
        """The answer so far, as ``state.answer`` has it."""
        return self._state.answer

    @property
    def usage(self) -> Usage:
        """What the run has used up to now, its subagents included."""
        source = None if self._feed is None else self._feed.source
        return source.usage if isinstance(source, RunStream) else NO_USAGE

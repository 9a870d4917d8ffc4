"""Following a State's history while it grows."""

from __future__ import annotations

from types import TracebackType
from typing import Self, final

import trio

from ..record._entries import Entry
from ._recorder import Recorder
from ._waiters import require_trio


@final
class Watch:
    """An async iterator over entries, live; it loses none, however slow its reader is. Made by ``state.watch()``.

    Ends when the State is finished and nobody runs or saves it any more, or when it is closed: with ``aclose``, or by
    leaving ``async with``. What couldn't be saved isn't seen. A wait that is cancelled loses nothing either: the next
    one goes on from there.

    Raises (when iterated):
        RuntimeError: outside of a trio task.
    """

    def __init__(self, state: Recorder, after: int) -> None:
        self._state = state
        self._next = after
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Entry:
        require_trio("state.watch()")
        await trio.lowlevel.checkpoint()
        with self._state.waiter() as waiter:
            while not self._closed:
                snapshot = self._state.snapshot_now()
                if self._next < self._state.visible_length(snapshot):
                    entry = snapshot.history[self._next]
                    self._next += 1
                    return entry
                if snapshot.finished and not self._state.is_at_work():
                    if self._next < self._state.visible_length(self._state.snapshot_now()):
                        continue  # saved just now
                    break
                await waiter.wait()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End the iteration, for whoever waits in it too. Checkpoint: yes."""
        self._closed = True
        self._state.wake_waiters()
        await trio.lowlevel.checkpoint()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._closed = True
        self._state.wake_waiters()

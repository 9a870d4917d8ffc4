"""Who may write a State to its store: one lease for all that act on it, and one writer at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from threading import RLock
from typing import Protocol, final

import trio

from ._turns import Turns

RELEASE_SECONDS = 5.0
"""How long giving the lease back may take, once the work under it has ended."""


class Home(Protocol):
    """A store, as far as a State knows it."""

    def lease(self, state_id: str) -> AbstractAsyncContextManager[None]:
        """Return the block that holds the State in this store."""
        ...


@final
class Saving:
    """The lease of one State, counted, since a run and side questions share it; and the writers' queue.

    Actions begin and end in any order and in any trio run: the first takes the lease, the last gives it back.
    """

    __slots__ = ("_count", "_gate", "_lease", "_writers", "home")

    def __init__(self, guard: RLock) -> None:
        self._gate = Turns(guard)
        self._writers = Turns(guard)
        self._count = 0
        self._lease: AbstractAsyncContextManager[None] | None = None
        self.home: Home | None = None
        """The store that the lease is of."""

    @asynccontextmanager
    @trio.lowlevel.enable_ki_protection
    async def leased(
        self, state_id: str, home: Home, check: Callable[[], Awaitable[None]] | None = None
    ) -> AsyncIterator[None]:
        """Hold the State in *home*.

        Args:
            state_id: The State's id.
            home: The store.
            check: Awaited before the lease is taken, to refuse it.

        Raises:
            ValueError: the State is held in another store.
            RunningElsewhereError: somebody else holds it.
        """
        async with self._gate.turn():
            await self._enter(state_id, home, check)
        try:
            yield
        finally:
            with trio.move_on_after(RELEASE_SECONDS, shield=True):  # a lease left behind would lock the State
                async with self._gate.turn():
                    await self._leave()

    async def _enter(self, state_id: str, home: Home, check: Callable[[], Awaitable[None]] | None) -> None:
        if self._count and self.home is not home:
            raise ValueError(f"State {state_id} is being saved in {self.home!r}, so it can't be in {home!r} now")
        if not self._count:
            if check is not None:
                await check()
            lease = home.lease(state_id)
            await lease.__aenter__()
            self._lease, self.home = lease, home
        self._count += 1

    async def _leave(self) -> None:
        self._count -= 1
        if not self._count and (lease := self._lease) is not None:
            self._lease = self.home = None
            await lease.__aexit__(None, None, None)

    def is_on(self) -> bool:
        """Whether somebody holds the State, or is about to."""
        return self._count > 0 or self._gate.holder() is not None

    def writing(self) -> AbstractAsyncContextManager[None]:
        """Return the block in which one may write; the others wait for their turn."""
        return self._writers.turn()

"""Waiting for news of States, on a connection that LISTENs and is shared by all who wait in one trio run.

The connection listens only while somebody waits: one that nobody reads would make the server keep what it is owed. One
of those who wait watches the socket, for all, and passes that on when it leaves.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, final

import trio

if TYPE_CHECKING:
    from ._postgres_connections import Call, Connections, Link
    from ._threads import Threads

LONGEST_WAIT: Final = 30.0
"""Seconds after which somebody who waits looks all the same: a server may die between a commit and its news."""


@final
class _Waiter:
    """One who waits for news of a State."""

    __slots__ = ("has_news", "state_id", "stirred")

    def __init__(self, state_id: str) -> None:
        self.state_id = state_id
        self.has_news = False
        self.stirred = trio.Event()


@final
class Ear:
    """What one trio run hears of changes.

    Invariant: while there are waiters without news and a connection, one watches its socket or has been stirred to.
    """

    def __init__(self, connections: Connections, threads: Threads) -> None:
        self._connections = connections
        self._threads = threads
        self._opening = trio.Lock()
        self._link: Link | None = None
        self._waiters: set[_Waiter] = set()
        self._watched = False

    @trio.lowlevel.enable_ki_protection
    async def wait(self, state_id: str, call: Call, is_old: Callable[[], Awaitable[bool]]) -> None:
        """Return when a State has news.

        Args:
            state_id: Its id.
            call: When its waiting began: no connection is made for it once the store was closed since.
            is_old: Asked once it listens; whether what the caller knows of the State is old already.

        Raises:
            StoreError: no connection could be made, or the store was closed meanwhile.
        """
        waiter = _Waiter(state_id)
        self._waiters.add(waiter)
        try:
            link = await self._listening(call)
            if not await is_old():
                with trio.move_on_after(LONGEST_WAIT):
                    while not waiter.has_news:
                        await self._watch_or_wait(link, waiter)
        except BaseException:
            if (left := self._leave(waiter)) is not None:
                self._connections.drop(left)
            raise
        if (left := self._leave(waiter)) is not None:
            try:
                await self._threads.run(self._connections.unlisten, left, abandon_on_cancel=True)
            finally:
                self._connections.drop(left)  # Does nothing, unless the thread never got to it.

    async def _listening(self, call: Call) -> Link:
        async with self._opening:
            if self._link is None:
                self._link = await self._open(call)
            return self._link

    async def _open(self, call: Call) -> Link:
        opened: list[Link] = []
        settled = threading.Lock()  # taken by the thread when it is done, or by who doesn't wait any more

        def open_it() -> None:
            opened.append(self._connections.listen(call))
            if not settled.acquire(blocking=False):
                self._connections.drop(opened[0])

        try:
            await self._threads.run(open_it, abandon_on_cancel=True)
        except trio.Cancelled:
            if not settled.acquire(blocking=False):  # It was done, and the news of that hadn't come yet.
                self._connections.drop(opened[0])
            raise
        return opened[0]

    def _leave(self, waiter: _Waiter) -> Link | None:
        """Take *waiter* off the list; return the connection if nobody waits any more."""
        self._waiters.discard(waiter)
        if self._waiters:
            self._pass_on()
            return None
        link, self._link = self._link, None
        return link

    def _pass_on(self) -> None:
        """Stir somebody to watch the socket, unless somebody does."""
        if not self._watched and (heir := next((each for each in self._waiters if not each.has_news), None)):
            heir.stirred.set()

    async def _watch_or_wait(self, link: Link, waiter: _Waiter) -> None:
        """Return when something may have happened that concerns *waiter*."""
        if self._watched:
            await waiter.stirred.wait()
            waiter.stirred = trio.Event()
            return
        self._watched = True
        try:
            await trio.lowlevel.wait_readable(link.conn.fileno())
            self._take_in(link)
        finally:
            self._watched = False

    def _take_in(self, link: Link) -> None:
        """Tell those who wait for it what the server has sent; all of them, if the connection broke."""
        news = link.news()
        if news is None:
            self._link = None
            self._connections.drop(link)
        for waiter in self._waiters:
            if news is None or waiter.state_id in news:
                waiter.has_news = True
                waiter.stirred.set()

"""RateLimit: requests of any number of Agents wait their turn, first come, first served.

The line and the ledger are shared by threads and trio runs, under a lock that is held for microseconds: a program that
calls ``run_sync`` again and again, or in several threads, has one limit, as its provider sees one client. Each trio run
has a clock of its own; they are put on one scale when a run first comes here: where the runs before are, if the clock
of a test has taken one of them ahead of the time.
"""

from __future__ import annotations

import heapq
import itertools
import math
import threading
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import final
from weakref import WeakKeyDictionary

import attrs
import trio

from .._errors import RateLimitError
from ._quota import Counted, Ledger
from ._quota_headers import left_by

_offsets: trio.lowlevel.RunVar[WeakKeyDictionary[RateLimit, float]] = trio.lowlevel.RunVar("alpineagents_limits")
"""How far the scale of each limit is ahead of this run's clock."""


@final
@attrs.define(order=True)
class _Waiter:
    """Who waits in line; sorted by arrival."""

    arrival: int
    token: trio.lowlevel.TrioToken = attrs.field(order=False)
    changed: trio.Event = attrs.field(order=False, factory=trio.Event)
    gone: bool = attrs.field(order=False, default=False)

    def wake(self) -> None:
        if self.token is trio.lowlevel.current_trio_token():
            self.changed.set()
        else:
            with suppress(trio.RunFinishedError):  # Then it has left the line: its run ends after it.
                self.token.run_sync_soon(self.changed.set)


def _checked(value: object, name: str) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be int or None, not {type(value).__name__}: RateLimit({name}=60)")
    if value < 1:
        raise ValueError(f"{name} must be 1 or more (got {value}); None is no limit")


@final
class RateLimit:
    """A limit that any number of models and Agents share: give all of them the same object.

    Requests wait in order of arrival, also behind one that needs more tokens. No minute of the server's, wherever it
    begins, has more requests than the limit. What the provider says in ``x-ratelimit-*`` and ``anthropic-ratelimit-*``
    headers is heeded where it leaves less. One 429 slows all: everybody waits as long as the provider asked, then one
    request goes ahead and the others follow as answers come. Without arguments, only that is done.

    Take one per key: models of two providers have nothing to share. It may be used in several threads and trio runs.

    Args:
        requests_per_minute: Most requests in any 60 seconds, retries included.
        tokens_per_minute: Most tokens in any 60 seconds, read and written. A request is estimated before it is sent
            (a quarter of its bytes at first, then as the last ones were; ``max_tokens`` or an average reply), and
            counted as what it did cost after. One larger than the limit is sent when nothing else counts.
        concurrent: Most requests under way at the same time, to the end of their replies.

    Raises:
        TypeError: a limit isn't an ``int``.
        ValueError: a limit is below 1.

    Example:
        >>> RateLimit(requests_per_minute=600, concurrent=20)
        RateLimit(requests_per_minute=600, concurrent=20)
    """

    def __init__(
        self,
        *,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        concurrent: int | None = None,
    ) -> None:
        self._settings = {
            "requests_per_minute": requests_per_minute,
            "tokens_per_minute": tokens_per_minute,
            "concurrent": concurrent,
        }
        for name, value in self._settings.items():
            _checked(value, name)
        self._ledger = Ledger(requests_per_minute, tokens_per_minute, concurrent)
        self._line: list[_Waiter] = []  # A heap. Who has gone is taken off when it comes to the front.
        self._arrivals = itertools.count()
        self._lock = threading.Lock()
        self._latest = -math.inf  # The latest that any run's clock has shown here.

    def __repr__(self) -> str:
        shown = ", ".join([f"{name}={value}" for name, value in self._settings.items() if value is not None])
        return f"RateLimit({shown})"

    def arrival(self) -> int:
        """Return a place in line, for a request that may need several turns: it keeps its place when sent again."""
        return next(self._arrivals)

    @asynccontextmanager
    @trio.lowlevel.enable_ki_protection
    async def turn(
        self,
        size: int = 0,
        max_tokens: int | None = None,
        *,
        arrival: int | None = None,
        max_wait: float = math.inf,
    ) -> AsyncIterator[Turn]:
        """Wait until a request may be sent; send it in the block. The library's own models do this themselves.

        Args:
            size: Its bytes, to estimate its tokens.
            max_tokens: Most tokens of its reply; ``None`` = an average reply.
            arrival: Its place in line, from ``arrival()``; ``None``: at the end.
            max_wait: Seconds. Where the provider asked for a longer wait, the request isn't sent.

        Checkpoint: only where it waits. Cancelled: nothing is sent, and who waits behind moves up.

        Raises:
            RateLimitError: the provider asked, after a 429, to wait longer than *max_wait*; ``retry_after`` says what
                is left of that.
        """
        place = self.arrival() if arrival is None else arrival
        counted = await self._wait(place, size, max_tokens, max_wait)
        turn = Turn(self, counted, size)
        try:
            yield turn
        finally:
            with self._lock:
                self._ledger.release(counted, self._now())
            self._wake_first()

    def _now(self) -> float:
        """Return the seconds on a scale that all trio runs share which use this limit."""
        seconds = trio.current_time()
        try:
            offsets = _offsets.get()
        except LookupError:
            offsets = WeakKeyDictionary()
            _offsets.set(offsets)
        offset = offsets.get(self)
        if offset is None:
            offset = offsets[self] = max(time.monotonic(), self._latest) - seconds
        self._latest = max(self._latest, seconds + offset)
        return seconds + offset

    def slow_down(self, seconds: float) -> None:
        """Let nobody send for *seconds*, and then a few first: after a 429."""
        with self._lock:
            self._ledger.hold(self._now(), seconds)
        self._wake_first()

    @trio.lowlevel.enable_ki_protection
    async def _wait(self, arrival: int, size: int, max_tokens: int | None, max_wait: float) -> Counted:
        waiter = _Waiter(arrival, trio.lowlevel.current_trio_token())
        with self._lock:
            heapq.heappush(self._line, waiter)
        try:
            while True:
                with self._lock:
                    seconds = self._seconds_for(waiter, size, max_tokens, max_wait)
                    if seconds == 0:
                        return self._ledger.take(self._now(), self._ledger.estimate(size, max_tokens))
                    waiter.changed = trio.Event()  # Under the lock: no change is missed.
                with trio.move_on_after(seconds):
                    await waiter.changed.wait()
        finally:
            waiter.gone = True
            self._wake_first()

    def _seconds_for(self, waiter: _Waiter, size: int, max_tokens: int | None, max_wait: float) -> float:
        """For how long *waiter* has to wait at least; 0 when it is its turn."""
        if self._first() is not waiter:
            return math.inf
        now = self._now()
        held = self._ledger.held(now)
        if held > max_wait:
            raise RateLimitError(
                f"not sent: the provider asked all to wait another {held:.0f} s, longer than max_wait={max_wait:g}",
                retry_after=held,
            )
        return self._ledger.wait(now, self._ledger.estimate(size, max_tokens), max_wait)

    def _first(self) -> _Waiter | None:
        while self._line and self._line[0].gone:
            heapq.heappop(self._line)
        return self._line[0] if self._line else None

    def _wake_first(self) -> None:
        """Let the first in line look again whether it is its turn."""
        with self._lock:
            first = self._first()
        if first is not None:
            first.wake()


@final
class Turn:
    """The right to send one request; ``RateLimit.turn`` gives it."""

    def __init__(self, limit: RateLimit, counted: Counted, size: int) -> None:
        self._limit = limit
        self._counted = counted
        self._size = size

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        """Take note that the answer began, and of what its headers say is left.

        Args:
            status: HTTP status.
            headers: Looked up in lower case.
        """
        now = self._limit._now()
        left = left_by(headers, time.time(), now)
        with self._limit._lock:
            self._limit._ledger.answered(self._counted, now, well=status != 429, left=left)
        self._limit._wake_first()

    def used(self, input_tokens: int, output_tokens: int) -> None:
        """Take note of what the request did cost, in place of the estimate."""
        with self._limit._lock:
            ledger = self._limit._ledger
            if input_tokens or output_tokens:
                ledger.learn(self._size, input_tokens, output_tokens)
            ledger.settle(self._counted, self._limit._now(), input_tokens + output_tokens)
        self._limit._wake_first()

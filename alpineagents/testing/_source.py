"""Times and ids that are the same each time: they depend on how often they were asked for, and on a MockClock."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final, final

import trio

from ..state._clock import source

START: Final = datetime(2030, 1, 1, tzinfo=UTC)
"""When everything begins."""

_TICK: Final = timedelta(milliseconds=1)
_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_TIME: Final = int(START.timestamp() * 1000) << 80


@final
class CountingSource:
    """Ids by count, in the layout of a ULID, so that they sort as they were made; times that never go backwards.

    In a trio run under a MockClock the time is what that shows, from 2030-01-01 on; elsewhere each time asked for is
    a millisecond later than the one before. Usable in any thread.
    """

    def __init__(self) -> None:
        self._lock: Final = threading.RLock()  # a signal handler may ask, too
        self._ids: Final = itertools.count(1)
        self._latest = START

    def now(self) -> datetime:
        """Return the time, UTC."""
        with self._lock:
            shown = _shown_by_mock_clock()
            self._latest = self._latest + _TICK if shown is None else max(self._latest, shown)
            return self._latest

    def new_id(self) -> str:
        """Return the next id: 26 characters, as random ones have."""
        number = _TIME | next(self._ids)
        return "".join([_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5)])


def _shown_by_mock_clock() -> datetime | None:
    if not trio.lowlevel.in_trio_run():
        return None
    from trio.testing import MockClock  # imports pytest

    if not isinstance(trio.lowlevel.current_clock(), MockClock):
        return None
    return START + timedelta(seconds=trio.current_time())


@contextmanager
def counted() -> Iterator[CountingSource]:
    """Have times and ids come from a new CountingSource while the block lasts, in what it starts, too."""
    made = CountingSource()
    token = source.set(made)
    try:
        yield made
    finally:
        source.reset(token)

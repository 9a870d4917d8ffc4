"""Where a State gets its times and ids from: the only clock and the only chance in the record's making."""

from __future__ import annotations

import os
import time
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Final, Protocol

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


class Source(Protocol):
    """Another source of times and ids, for tests whose histories are the same each time."""

    def now(self) -> datetime:
        """Return the time, UTC."""
        ...

    def new_id(self) -> str:
        """Return an id that it hasn't returned before."""
        ...


source: Final[ContextVar[Source | None]] = ContextVar("alpineagents.clock", default=None)
"""Asked in place of the system, wherever it is set."""


def utc_now() -> datetime:
    """Return the time, UTC, to the microsecond."""
    other = source.get()
    return datetime.now(UTC) if other is None else other.now()


def new_id() -> str:
    """Return a new id: 26 characters, of which the first 10 are the time in milliseconds, so that ids sort by age.

    48 bits of time and 80 of chance, in Crockford's base32 (the layout of a ULID).
    """
    other = source.get()
    return _random_id() if other is None else other.new_id()


def _random_id() -> str:
    """Return such an id, of the system's time and chance."""
    number = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10))
    return "".join([_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5)])

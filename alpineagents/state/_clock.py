"""Where a State gets its times and ids from: the only clock and the only chance in the record's making."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def utc_now() -> datetime:
    """Return the time, UTC, to the microsecond."""
    return datetime.now(UTC)


def new_id() -> str:
    """Return a new id: 26 characters, of which the first 10 are the time in milliseconds, so that ids sort by age.

    48 bits of time and 80 of chance, in Crockford's base32 (the layout of a ULID).
    """
    number = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10))
    return "".join([_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5)])

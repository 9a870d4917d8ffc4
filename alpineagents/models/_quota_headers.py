"""Reads what providers say in headers of how much may still be sent.

Forms: ``x-ratelimit-remaining-requests``, ``x-ratelimit-reset-requests`` and the same for ``tokens`` (OpenAI's guide
on rate limits, December 2026; Groq, Azure, xAI and others copy it), with times as ``1s``, ``6m0s``, ``20ms``, a bare
number of seconds (Azure) or a point in time; ``anthropic-ratelimit-requests-remaining``,
``anthropic-ratelimit-requests-reset`` and the same for ``tokens``, with RFC 3339 times (Anthropic's API reference,
rate limits, December 2026).

What they say of the limit itself isn't used: Groq's counts requests per day and tokens per minute under the same names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, final

import attrs

from ._wire import not_negative

_NAMES: Final = {
    kind: (
        (f"x-ratelimit-remaining-{kind}", f"x-ratelimit-reset-{kind}"),
        (f"anthropic-ratelimit-{kind}-remaining", f"anthropic-ratelimit-{kind}-reset"),
    )
    for kind in ("requests", "tokens")
}
_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(h|ms|m|s|us|µs|ns)")
_YEAR_2001 = 1e9
"""Seconds since 1970: a bare number that is larger is a point in time; in milliseconds where it is larger still."""


@final
@attrs.frozen
class Left:
    """How much may still be sent, and until when that holds."""

    amount: float
    until: float


def left_by(headers: Mapping[str, str], clock: float, now: float) -> dict[str, Left]:
    """Return what *headers* say is left, under "requests" and "tokens"; nothing of what can't be read.

    Args:
        headers: An answer's; looked up in lower case.
        clock: Seconds since 1970.
        now: The same moment in seconds of the clock that ``Left.until`` is for.
    """
    found: dict[str, Left] = {}
    for kind, names in _NAMES.items():
        for remaining, reset in names:
            amount, seconds = not_negative(headers.get(remaining)), seconds_until(headers.get(reset), clock)
            if amount is not None and seconds is not None:
                found[kind] = Left(amount, now + seconds)
    return found


def seconds_until(text: str | None, clock: float) -> float | None:
    """Return the seconds to what *text* says, 0 or more: a duration or a point in time; None where it says neither."""
    if not text:
        return None
    number = not_negative(text)
    if number is not None:
        if number > _YEAR_2001:
            number = (number / 1_000 if number > _YEAR_2001 * 1_000 else number) - clock
        return max(number, 0.0)
    parts = _PART.findall(text)
    if parts and "".join([amount + unit for amount, unit in parts]) == text:
        return sum([float(amount) * _UNITS[unit] for amount, unit in parts])
    return _to_date(text, clock)


def _to_date(text: str, clock: float) -> float | None:
    from datetime import UTC, datetime

    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        return None
    return max((date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - clock, 0.0)

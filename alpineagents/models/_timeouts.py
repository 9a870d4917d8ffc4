"""Timeout: how long a request may take, one limit for each thing that can hang."""

from __future__ import annotations

import math
from typing import Any, final

import attrs


def _limit(value: object, field: str) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{field} must be seconds or None, not {type(value).__name__}: Timeout(read=60)")
    if not value > 0:
        raise ValueError(f"{field} must be more than 0 seconds (got {value:g}); None is no limit")


def _seconds(timeout: Timeout, field: attrs.Attribute[Any], value: object) -> None:
    _limit(value, field.name)


@final
@attrs.frozen(kw_only=True)
class Timeout:
    """How long a request may take, in seconds. ``None``: no such limit. An error names the limit that it met.

    Args:
        connect: Until there is a connection to the server, TLS included.
        first_byte: From then to the first byte of the answer, the connecting included; long, for models that think
            before they write.
        read: Between two bytes of the answer. Comments and pings count: they say that the server is alive. They move
            no other limit.
        total: For the whole request: all attempts and the waits between them. Waiting for a RateLimit isn't counted.

    Raises:
        TypeError: a limit isn't a number.
        ValueError: a limit isn't more than 0.

    Example:
        >>> Timeout(read=30).first_byte
        600.0
    """

    connect: float | None = attrs.field(default=10.0, validator=_seconds)
    first_byte: float | None = attrs.field(default=600.0, validator=_seconds)
    read: float | None = attrs.field(default=120.0, validator=_seconds)
    total: float | None = attrs.field(default=None, validator=_seconds)


def as_timeout(value: Timeout | float | None) -> Timeout:
    """Return *value* as a Timeout: a number is the total, ``None`` the defaults.

    Raises:
        TypeError: it is something else.
        ValueError: the number isn't more than 0.
    """
    if isinstance(value, Timeout):
        return value
    _limit(value, "timeout")
    return Timeout(total=value)


def or_never(seconds: float | None) -> float:
    """Return *seconds*, infinite for None."""
    return math.inf if seconds is None else seconds

"""The block that holds a State."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import final

import trio

from .._logs import STORES


@final
class Lease(AbstractAsyncContextManager[None]):
    """Takes a lease and ends it. It may be left in another trio run than it was entered in.

    A class, since a generator would be closed, and the lease lost, with the trio run that it was entered in.
    """

    __slots__ = ("_end", "_take")

    def __init__(self, take: Callable[[], Awaitable[None]], end: Callable[[], None]) -> None:
        self._take = take
        self._end = end

    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> None:
        await self._take()

    async def __aexit__(self, *_: object) -> None:
        self._end()


def log_left_lease(state_id: str, error: Exception, seconds: float) -> None:
    """Log that a lease couldn't be given back."""
    STORES.warning(
        "the lease of State %s couldn't be given back (%s): it is held for others for up to %g s",
        *(state_id, type(error).__name__, seconds),
    )

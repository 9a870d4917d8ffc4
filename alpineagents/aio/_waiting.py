"""Waiting in asyncio for what is about to end, however often the wait is cancelled."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any


async def shielded(event: asyncio.Event) -> asyncio.CancelledError | None:
    """Wait for *event*; return the latest cancellation that came meanwhile, which is the caller's to raise."""
    latest: asyncio.CancelledError | None = None
    with _anyio_shield():
        while not event.is_set():
            try:
                await event.wait()
            except asyncio.CancelledError as error:
                latest = error
    return latest


def _anyio_shield() -> AbstractContextManager[object]:
    """Return what keeps anyio from cancelling: its scopes do so again in each turn of the loop, a core at full load.

    Starlette's tasks live in such scopes. A program that hasn't imported anyio has none.
    """
    anyio: Any = sys.modules.get("anyio")
    shield: AbstractContextManager[object] = nullcontext() if anyio is None else anyio.CancelScope(shield=True)
    return shield

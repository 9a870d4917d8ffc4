"""Waiting for a State to change, from any trio run in any thread."""

from __future__ import annotations

import sys
from typing import final

import trio


def require_trio(what: str) -> None:
    """Raise RuntimeError unless this code runs in a trio task."""
    if not trio.lowlevel.in_trio_task():
        raise RuntimeError(
            f"{what} needs trio, and this code doesn't run in a trio task; from asyncio go through alpineagents.aio"
        )


def runs_event_loop() -> bool:
    """Whether this thread runs an event loop, trio's or asyncio's."""
    if trio.lowlevel.in_trio_run():
        return True
    asyncio = sys.modules.get("asyncio")  # who hasn't imported it runs no loop of it
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@final
class Waiter:
    """One task that waits. Whoever changes something wakes it, from any thread or signal handler."""

    __slots__ = ("_event", "_token")

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._event = trio.Event()

    def wake(self) -> None:
        """Let ``wait`` return. A run that has ended is no error: its tasks wait for nothing any more."""
        try:
            self._token.run_sync_soon(self._event.set, idempotent=True)
        except trio.RunFinishedError:
            return

    async def wait(self) -> None:
        """Return when something changed since the last call; then look whether it was what you wait for."""
        await self._event.wait()
        self._event = trio.Event()

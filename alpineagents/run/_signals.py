"""Ending a program orderly when the system asks it to."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from ._groups import most_important


@asynccontextmanager
async def stop_on_sigterm() -> AsyncIterator[None]:
    """Cancel the block when SIGTERM arrives; it then ends normally, and every run in it has closed and saved its State.

    Use it in the main thread: ``async with stop_on_sigterm(): await agent.run(state)``.
    """
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        try:
            async with trio.open_nursery() as nursery:

                async def cancel_on_signal() -> None:
                    async for _ in signals:
                        nursery.cancel_scope.cancel()

                nursery.start_soon(cancel_on_signal)
                yield
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise most_important(
                [group.exceptions[0]] if len(group.exceptions) == 1 else list(group.exceptions)
            ) from None

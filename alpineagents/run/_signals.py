"""Ending a program orderly when the system asks it to."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import trio

from .._blocks import Block
from ._groups import is_cancellation, most_important, parts


def stop_on_sigterm() -> AbstractAsyncContextManager[None]:
    """Cancel the block when SIGTERM arrives; it then ends normally, and every run in it has closed and saved its State.

    Use it in the main thread: ``async with stop_on_sigterm(): await agent.run(state)``. What the block raises of its
    own comes out as it was raised.
    """
    return Block(_stopping())


@asynccontextmanager
async def _stopping() -> AsyncIterator[None]:
    errors: list[BaseException] = []
    arrived = False
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        try:
            async with trio.open_nursery() as nursery:

                async def cancel_on_signal() -> None:
                    nonlocal arrived
                    async for _ in signals:
                        arrived = True
                        nursery.cancel_scope.cancel()

                nursery.start_soon(cancel_on_signal)
                try:
                    yield
                except BaseException as error:  # noqa: BLE001  # raised again below, outside the nursery
                    errors.append(error)
                nursery.cancel_scope.cancel()
        except BaseException as group:  # noqa: BLE001  # as above
            errors.extend(parts(group))
    if arrived:
        errors = [error for error in errors if not is_cancellation(error)]
        await trio.lowlevel.checkpoint_if_cancelled()  # somebody else may have cancelled it, too
    if errors:
        raise most_important(errors)

"""What State methods return: await it to know that a change has arrived and is saved."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, final

import trio

from ..record._entries import Entry, MessageEntry
from ._context import waits_for_itself
from ._recorder import Recorder
from ._waiters import require_trio


@final
class Receipt:
    """The change took effect when the method returned. Awaiting this also waits until it is saved.

    For a message: until it has reached ``messages``, too. Without a store there is nothing to save. Not awaiting it
    costs nothing.

    Raises (when awaited):
        RuntimeError: it can't complete: the message waits for a tool call of which this code is part, or for calls
            that nobody runs; or there is no trio here.
        StoreError: the store couldn't save it. It stays recorded, and the next save writes it.
    """

    __slots__ = ("_entry", "_state")

    def __init__(self, state: Recorder, entry: Entry | None) -> None:
        self._state = state
        self._entry = entry

    def __await__(self) -> Generator[Any, Any, None]:
        return self._wait().__await__()

    async def _wait(self) -> None:
        require_trio("awaiting a receipt")
        if self._entry is None:
            await trio.lowlevel.checkpoint()
            return
        if isinstance(self._entry, MessageEntry):
            await self._in_messages(self._entry)
        await self._state.wait_saved(self._entry.seq + 1)

    async def _in_messages(self, entry: MessageEntry) -> None:
        state = self._state
        with state.waiter() as waiter:
            while state.snapshot_now().holds(entry):
                if waits_for_itself(state, state.snapshot_now()):
                    raise RuntimeError(
                        "this message goes in after the tool call or the request that waits for it here, so that would"
                        " never end; don't await it inside the tool or the model: state.add_message(message)"
                    )
                if not state.may_run_calls():
                    raise RuntimeError(
                        f"this message waits for {len(state.snapshot_now().pending_calls)} tool calls that nobody runs;"
                        " run them first: await agent.use_tools(state)"
                    )
                await waiter.wait()

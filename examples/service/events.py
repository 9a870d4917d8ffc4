"""A conversation as server-sent events: each entry with its seq as the id, and pieces of text without one.

A client that was cut off comes back with ``Last-Event-ID``, which is a place in the history; so it misses nothing and
gets nothing twice. Pieces of text are for the eye: who misses some finds the whole reply in its entry.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, final

import trio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from alpineagents import State

from .live_text import LiveText
from .views import entry_view

BEAT_SECONDS: Final = 15.0
"""How often a stream says that it is alive, where nothing happens."""
MOST_WAITING: Final = 100
"""How many events wait for a client that is slow; then entries wait, and pieces of text are left out."""


def _event(kind: str, data: object, seq: int | None = None) -> bytes:
    number = "" if seq is None else f"id: {seq}\n"
    return f"{number}event: {kind}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


@final
class EventStream(Response):
    """The answer that goes on for as long as the client listens.

    Args:
        state: The conversation.
        after: How many of its entries the client has.
        live_text: Where pieces of text come from.
        stopping: Set when the service stops: the stream ends, and the client comes back to the next one.
        is_current: Whether a State still stands for its conversation; the stream ends when it doesn't.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        state: State,
        after: int,
        live_text: LiveText,
        stopping: trio.Event,
        is_current: Callable[[State], Awaitable[bool]],
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._state = state
        self._after = after
        self._live_text = live_text
        self._stopping = stopping
        self._is_current = is_current

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the client goes away, the conversation is finished, or the service stops."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        into, out = trio.open_memory_channel[bytes](MOST_WAITING)
        async with trio.open_nursery() as nursery, into, out:
            nursery.start_soon(_until_gone, receive, nursery.cancel_scope)
            nursery.start_soon(_until_set, self._stopping, nursery.cancel_scope)
            nursery.start_soon(self._follow, into.clone())
            await into.aclose()
            await self._pass_on(out, send)
            nursery.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _follow(self, into: trio.MemorySendChannel[bytes]) -> None:
        def hand_on(text: str) -> None:
            with suppress(trio.WouldBlock, trio.BrokenResourceError):  # slow, or gone: the run must not notice
                into.send_nowait(_event("text", {"text": text}))

        async with into:
            with self._live_text.followed(self._state, hand_on):
                await self._follow_entries(into)

    async def _follow_entries(self, into: trio.MemorySendChannel[bytes]) -> None:
        async with self._state.watch(self._after) as entries:
            async for entry in entries:
                await into.send(_event(entry.kind, entry_view(entry), entry.seq))

    async def _pass_on(self, out: trio.MemoryReceiveChannel[bytes], send: Send) -> None:
        event: bytes | None = b"retry: 1000\n\n"
        while event is not None:
            await send({"type": "http.response.body", "body": event, "more_body": True})
            with trio.move_on_after(BEAT_SECONDS):
                try:
                    event = await out.receive()
                except trio.EndOfChannel:
                    event = None
                continue
            event = b": still here\n\n" if await self._is_current(self._state) else None


async def _until_gone(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def _until_set(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()

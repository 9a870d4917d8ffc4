"""A client of the event streams, for the load test and the tests: it can be cut off anywhere."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, final

import h11
import trio

GONE = (OSError, trio.BrokenResourceError, h11.RemoteProtocolError)
"""What is raised where the service isn't there, or not any more."""


class Event(NamedTuple):
    """A server-sent event."""

    id: int | None
    """The seq of the entry that it is about; ``None`` for a piece of text."""
    kind: str
    data: dict[str, Any]


@final
class Events:
    """The events of one connection, in order. Made by ``open_events``."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.CLIENT)
        self._lines: list[str] = []
        self._tail = b""
        self.status = 0
        """The HTTP status of the answer."""

    async def ask(self, path: str, host: str, last: int | None) -> None:
        """Ask for the events behind the one with the id *last*."""
        headers = [("Host", host), ("Accept", "text/event-stream")]
        if last is not None:
            headers.append(("Last-Event-ID", str(last)))
        data = self._http.send(h11.Request(method="GET", target=path, headers=headers))
        data = (data or b"") + (self._http.send(h11.EndOfMessage()) or b"")
        await self._stream.send_all(data)
        response = await self._received()
        assert isinstance(response, h11.Response)
        self.status = response.status_code

    async def next(self) -> Event | None:
        """Return the next event; ``None`` where the service has ended the stream. Cancelled: none is lost."""
        while True:
            while "" in self._lines:
                end = self._lines.index("")
                fields = dict([line.split(": ", 1) for line in self._lines[:end]])
                del self._lines[: end + 1]
                if "data" in fields:
                    number = int(fields["id"]) if "id" in fields else None
                    return Event(number, fields["event"], json.loads(fields["data"]))
            received = await self._received()
            if not isinstance(received, h11.Data):
                return None
            *lines, self._tail = (self._tail + bytes(received.data)).split(b"\n")
            self._lines += [line.decode() for line in lines]

    async def _received(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._stream.receive_some())
        return event


@asynccontextmanager
async def open_events(address: str, conversation: str, last: int | None = None) -> AsyncIterator[Events]:
    """Follow a conversation of the service at *address*, such as ``http://127.0.0.1:8000``.

    Args:
        address: Where the service is.
        conversation: The conversation's id.
        last: The id of the last event that you have; ``None`` for all from the first.
    """
    host, _, port = address.removeprefix("http://").partition(":")
    stream = await trio.open_tcp_stream(host, int(port))
    async with stream:
        events = Events(stream)
        await events.ask(f"/conversations/{conversation}/events", f"{host}:{port}", last)
        yield events

"""Drives any wire over httpx on trio: the only way to a provider.

One client per base URL is shared by all that a trio run does, counted by the sessions that use it, and closed when the
last one ends.

Deadlines are one trio cancel scope per request, moved as bytes arrive, instead of httpx's read timeout: that can't
tell the first byte, for which a thinking model may need minutes, from a pause between two.
"""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, final

import attrs
import trio

from .._contracts import Emit
from .._errors import BrokenStreamError, ProviderError
from ..record._entries import ModelEvent
from ..record._messages import Reply, Request
from ._sse import SSEDecoder
from ._target import (
    CLOSE_SECONDS,
    DRAIN_SECONDS,
    ERROR_BODY_SECONDS,
    FIRST_BYTE_SECONDS,
    IDLE_SECONDS,
    LINGER_SECONDS,
    MAX_ERROR_BODY,
    Target,
)
from ._wire import MAX_EXCERPT, Decoder, Delta, Wire, retry_after

if TYPE_CHECKING:
    import httpx


@final
class _Shared:
    """A client and how many sessions use it."""

    def __init__(self) -> None:
        self.users = 0
        self.client: httpx.AsyncClient | None = None


_clients: trio.lowlevel.RunVar[dict[str, _Shared]] = trio.lowlevel.RunVar("alpineagents_http_clients")


@asynccontextmanager
async def open_session(base_url: str) -> AsyncIterator[None]:
    """Keep connections to *base_url* open until the last such session of this trio run ends."""
    try:
        clients = _clients.get()
    except LookupError:
        clients = {}
        _clients.set(clients)
    shared = clients.setdefault(base_url, _Shared())
    shared.users += 1
    try:
        yield
    finally:
        shared.users -= 1
        if shared.users == 0:
            del clients[base_url]
            if shared.client is not None:
                await _close(shared.client)


def _shared_client(base_url: str) -> httpx.AsyncClient:
    """The client of the sessions that are open for *base_url*, made by the first request."""
    from ._client import new_client

    shared = _clients.get()[base_url]
    if shared.client is None:
        shared.client = new_client(base_url)
    return shared.client


async def _close(client: httpx.AsyncClient) -> None:
    # Shielded, so that a cancelled run leaves no socket open. The deadline is for a TLS goodbye that nobody reads;
    # trio closes the socket all the same when it passes.
    with trio.move_on_after(CLOSE_SECONDS, shield=True):
        await client.aclose()


async def exchange(wire: Wire, target: Target, request: Request, emit: Emit) -> Reply:
    """Send *request* and return the reply.

    A request whose answer never began is sent once more at once, on a fresh connection: servers close idle
    connections just when the next request comes (llama.cpp even some they promised to keep).

    Checkpoint: yes. Cancelled: the request's connection is closed.

    Raises:
        ProviderError: it failed. Neither the error nor its cause shows a secret of *target*.
    """
    body = wire.encode(request)
    base_url = target.endpoint.base_url
    try:
        async with open_session(base_url):
            attempt = _Attempt(wire, target, body, emit)
            try:
                return await attempt.send(_shared_client(base_url), retry=True)
            except _NeverBegan as never:
                why = str(never)
        return await _send_again(_Attempt(wire, target, body, emit), why)
    except ProviderError as error:
        error.args = (target.redacted(str(error)),)
        error.body = None if error.body is None else target.redacted(error.body)[:MAX_EXCERPT]
        raise


class _NeverBegan(Exception):
    """The connection ended before a byte of the answer came: the request can be sent again."""


async def _send_again(attempt: _Attempt, why: str) -> Reply:
    """With a client of its own: the shared one may hold more connections that are dead."""
    from ._client import new_client

    endpoint = attempt.target.endpoint
    attempt.emit(ModelEvent("retry", f"{endpoint}: {why}; sent again", {"attempt": 2, "error": why}))
    client = new_client(endpoint.base_url)
    try:
        reply = await attempt.send(client, retry=False)
    finally:
        await _close(client)
    return attrs.evolve(reply, usage=attrs.evolve(reply.usage, requests=reply.usage.requests + 1))


@final
class _Attempt:
    """One request and its answer."""

    def __init__(self, wire: Wire, target: Target, body: bytes, emit: Emit) -> None:
        self.target = target
        self.emit = emit
        self._wire = wire
        self._body = body
        self._decoder: Decoder = wire.decoder()
        self._scope = trio.CancelScope()
        self._moved: float | None = None  # When the deadline was last moved; None before the first byte.
        self._failure: Exception | None = None

    async def send(self, client: httpx.AsyncClient, *, retry: bool) -> Reply:
        """Send it; raise _NeverBegan, if *retry*, instead of the error for an answer that never began."""
        try:
            await self._send(client, retry)
            return self._decoder.reply()
        except ProviderError as error:
            error.usage = self._decoder.usage()
            raise

    async def _send(self, client: httpx.AsyncClient, retry: bool) -> None:
        from ._client import FAILURES, as_provider_error, description, ended_by_server, post, take_secrets_out

        outer = sys.exception()  # What the caller is handling: it ends every chain below and is none of ours.
        began = False
        self._scope.deadline = trio.current_time() + FIRST_BYTE_SECONDS
        with self._scope:
            try:
                async with post(client, self.target, self._body) as response:
                    began = True
                    await (self._read(response) if response.is_success else self._read_failure(response))
            except FAILURES as error:
                if retry and not began and ended_by_server(error):
                    raise _NeverBegan(description(error, outer)) from None
                if not self._decoder.finished:
                    ours = as_provider_error(error, description(error, outer), self.target, began=began)
                    take_secrets_out(error, outer, self.target)
                    raise ours from error
        if self._failure is not None:
            raise self._failure
        if self._scope.cancelled_caught and not self._decoder.finished and self._decoder.failure is None:
            raise BrokenStreamError(f"{self.target.endpoint} {self._limit()}", provider=self.target.endpoint.provider)

    async def _read(self, response: httpx.Response) -> None:
        """Feed the body to the decoder. Nothing raises in the loop: httpx's generators want to be read to their end."""
        from ._client import body_of

        sse = SSEDecoder()
        no_events: list[bytes] | None = []  # The body, as long as it hasn't shown to be an event stream.
        async for chunk in body_of(response):
            if events := sse.feed(chunk):
                no_events = None
                self._show(self._decoder.feed(events))
            elif no_events is not None:
                no_events.append(chunk)
            self._move_deadline()
        if no_events:
            self._show(self._decoder.feed_document(b"".join(no_events)))

    def _show(self, deltas: list[Delta]) -> None:
        if self._failure is None:
            try:
                for delta in deltas:
                    self.emit(delta)
            except Exception as error:  # noqa: BLE001  # raised when the reading has ended
                self._failure = error

    def _move_deadline(self) -> None:
        now = trio.current_time()
        if self._failure is not None or self._decoder.failure is not None:
            self._scope.cancel()
        elif self._decoder.complete:
            self._scope.deadline = min(self._scope.deadline, now + DRAIN_SECONDS)
        elif self._decoder.finished:
            self._scope.deadline = min(self._scope.deadline, now + LINGER_SECONDS)
        elif self._moved is None or now - self._moved > 1.0:  # It takes a microsecond: once a second will do.
            self._moved = now
            self._scope.deadline = now + IDLE_SECONDS

    def _limit(self) -> str:
        """What the deadline stood for."""
        if self._moved is None:
            return f"sent no byte of its answer in {FIRST_BYTE_SECONDS:g} s (limit: first byte)"
        return f"went silent in the middle of its answer for {IDLE_SECONDS:g} s (limit: idle)"

    async def _read_failure(self, response: httpx.Response) -> None:
        from ._client import body_of

        body = bytearray()
        with trio.move_on_after(ERROR_BODY_SECONDS) as scope:  # Whatever of it comes: the status says enough.
            async for part in body_of(response):
                body += part
                if len(body) > MAX_ERROR_BODY:
                    scope.cancel()
        text = bytes(body)
        if response.is_redirect:
            text = b"redirected to %b: make that the base_url" % response.headers.get("location", "?").encode()
        for secret in self.target.secrets:  # Before the body is shortened, which could cut one in two.
            text = text.replace(secret.encode(), b"[secret]")
        seconds = retry_after(response.headers, time.time())
        self._failure = self._wire.failure(response.status_code, response.headers, text, seconds)

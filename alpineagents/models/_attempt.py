"""One request and its answer: sends a wire's bytes over httpx and feeds the decoder, within all limits of time.

Deadlines are one trio cancel scope per attempt, moved as bytes arrive, instead of httpx's read timeout: that can't
tell the first byte, for which a thinking model may need minutes, from a pause between two.
"""

from __future__ import annotations

import math
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, final

import attrs
import trio

from .._contracts import Emit
from .._errors import BrokenStreamError, ProviderError, UnreachableError
from ..record._messages import NO_USAGE, Reply, Usage
from ._limits import Turn
from ._sse import SSEDecoder
from ._target import DRAIN_SECONDS, ERROR_BODY_SECONDS, LINGER_SECONDS, MAX_ERROR_BODY, Target
from ._timeouts import Timeout, or_never
from ._wire import Decoder, Delta, Wire, retry_after

if TYPE_CHECKING:
    import httpx


class NeverBegan(Exception):
    """The connection ended before a byte of the answer came: the request can be sent again at once."""


@final
@attrs.frozen(kw_only=True)
class Order:
    """What all attempts at one request have in common."""

    wire: Wire
    target: Target
    body: bytes = attrs.field(repr=False)
    emit: Emit
    timeout: Timeout


@final
class Attempt:
    """Sends an order once."""

    def __init__(self, order: Order) -> None:
        self.shown = False
        """Whether a piece of the answer was emitted."""
        self.advice: str | None = None
        """The ``x-should-retry`` header of an error answer."""
        self.raised: Exception | None = None
        """What ``emit`` raised. It comes out as it is, and is never a reason to send again."""
        self._order = order
        self._give_up_at = math.inf
        self._first_byte, self._idle = or_never(order.timeout.first_byte), or_never(order.timeout.read)
        self._slack = min(1.0, self._idle / 10)  # Moving a deadline takes a microsecond: not for every chunk.
        self._decoder: Decoder = order.wire.decoder()
        self._scope = trio.CancelScope()
        self._moved: float | None = None  # When the deadline was last moved; None before the first byte.
        self._failure: ProviderError | None = None
        self._sent = False

    def usage(self) -> Usage:
        """Return what it did cost, as far as the provider told; it counts as a request once it was sent."""
        told = self._decoder.usage()
        if told is None:
            return Usage(requests=1) if self._sent else NO_USAGE
        return attrs.evolve(told, requests=1)

    async def send(self, client: httpx.AsyncClient, turn: Turn | None, give_up_at: float, *, resend: bool) -> Reply:
        """Send it and return the reply.

        Args:
            client: What sends it.
            turn: Told when the answer begins.
            give_up_at: When the time for the whole request is over, on trio's clock.
            resend: Whether to raise NeverBegan, instead of an error, for an answer that never began.
        """
        from ._client import FAILURES, as_provider_error, description, ended_by_server, post, take_secrets_out

        order, outer = self._order, sys.exception()  # What the caller is handling: it ends every chain below.
        self._give_up_at = give_up_at
        self._scope.deadline = min(trio.current_time() + self._first_byte, give_up_at)
        with self._scope:
            try:
                async with post(client, order.target, order.body, order.timeout.connect) as response:
                    self._sent = True
                    if turn is not None:
                        turn.answered(response.status_code, response.headers)
                    await (self._read(response) if response.is_success else self._read_failure(response))
            except FAILURES as error:
                if resend and not self._sent and ended_by_server(error):
                    raise NeverBegan(description(error, outer)) from None
                if not self._decoder.finished:
                    connect = or_never(order.timeout.connect)
                    ours = as_provider_error(error, outer, order.target, began=self._sent, connect=connect)
                    self._sent = not isinstance(ours, UnreachableError) and type(ours) is not ProviderError
                    take_secrets_out(error, outer, order.target)
                    raise ours from error
            except BaseException as error:
                take_secrets_out(error, outer, order.target)
                raise
        return self._reply()

    def _reply(self) -> Reply:
        if self.raised is not None:
            raise self.raised
        if self._failure is not None:
            raise self._failure
        if self._scope.cancelled_caught and not self._decoder.finished and self._decoder.failure is None:
            self._sent = True
            endpoint = self._order.target.endpoint
            raise BrokenStreamError(f"{endpoint} {self._limit()}", provider=endpoint.provider)
        return self._decoder.reply()

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
        if deltas and self.raised is None:
            self.shown = True
            emit = self._order.emit
            try:
                for delta in deltas:
                    emit(delta)
            except Exception as error:  # noqa: BLE001  # raised when the reading has ended
                self.raised = error

    def _move_deadline(self) -> None:
        now = trio.current_time()
        if self.raised is not None or self._decoder.failure is not None:
            self._scope.cancel()
        elif self._decoder.complete:
            self._scope.deadline = min(self._scope.deadline, now + DRAIN_SECONDS)
        elif self._decoder.finished:
            self._scope.deadline = min(self._scope.deadline, now + LINGER_SECONDS)
        elif self._moved is None or now - self._moved > self._slack:
            self._moved = now
            self._scope.deadline = min(now + self._idle, self._give_up_at)

    def _limit(self) -> str:
        """What the deadline stood for."""
        if self._scope.deadline >= self._give_up_at:
            return f"wasn't done with its answer in {or_never(self._order.timeout.total):g} s (limit: total)"
        if self._moved is None:
            return f"sent no byte of its answer in {self._first_byte:g} s (limit: first_byte)"
        return f"went silent in the middle of its answer for {self._idle:g} s (limit: read)"

    async def _read_failure(self, response: httpx.Response) -> None:
        from ._client import FAILURES, body_of

        body = bytearray()
        # Whatever of it comes: the status says enough.
        with trio.move_on_after(ERROR_BODY_SECONDS) as scope, suppress(*FAILURES):
            async for part in body_of(response):
                body += part
                if len(body) > MAX_ERROR_BODY:
                    scope.cancel()
        text = bytes(body)
        if response.is_redirect:
            text = b"redirected to %b: make that the base_url" % response.headers.get("location", "?").encode()
        for secret in self._order.target.secrets:  # Before the body is shortened, which could cut one in two.
            text = text.replace(secret.encode(), b"[secret]")
        self.advice = response.headers.get("x-should-retry")
        seconds = retry_after(response.headers, time.time())
        self._failure = self._order.wire.failure(response.status_code, response.headers, text, seconds)

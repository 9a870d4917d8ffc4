"""One request and its answer: sends a wire's bytes over httpx and feeds the decoder, within all limits of time.

Deadlines are one trio cancel scope per attempt, moved as bytes arrive, instead of httpx's read timeout: that can't
tell the first byte, for which a thinking model may need minutes, from a pause between two.
"""

from __future__ import annotations

import math
import sys
import time
from contextlib import suppress
from decimal import Decimal
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
        self._decoder: Decoder = order.wire.decoder(order.target.redacted)
        self._scope = trio.CancelScope()
        self._moved: float | None = None  # When the deadline was last moved; None before the first byte.
        self._failure: ProviderError | None = None
        self._sent = False  # An answer began, or might have.
        self._taken = False  # The request went out: it counts, whatever becomes of it.
        self._request_id: str | None = None

    def usage(self) -> Usage:
        """Return what it did cost, as far as the provider told; it counts as a request once it was sent."""
        told = self._decoder.usage()
        if told is None:
            return Usage(requests=1, cost=self._cost_untold()) if self._sent or self._taken else NO_USAGE
        return attrs.evolve(told, requests=1)

    def _cost_untold(self) -> Decimal | None:
        """The cost where the provider told of no tokens: nothing for an error, unknown for a part of an answer."""
        error = self._failure or self._decoder.failure
        answered = error is None or isinstance(error, BrokenStreamError) or self.shown
        return None if answered else Decimal(0)

    def _take(self) -> None:
        self._taken = True

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
                async with post(client, order.target, order.body, order.timeout.connect, self._take) as response:
                    self._sent = True
                    self._request_id = response.headers.get("x-request-id") or response.headers.get("request-id")
                    if turn is not None:
                        turn.answered(response.status_code, response.headers)
                    await (self._read(response) if response.is_success else self._read_failure(response))
            except FAILURES as error:
                if resend and not self._sent and ended_by_server(error):
                    raise NeverBegan(description(error, outer, order.target)) from None
                if not (self._decoder.finished or self._has_ended()):
                    connect = or_never(order.timeout.connect)
                    ours = as_provider_error(error, outer, order.target, began=self._sent, connect=connect)
                    self._sent = not isinstance(ours, UnreachableError) and type(ours) is not ProviderError
                    take_secrets_out(error, outer, order.target)
                    ours.request_id = self._request_id
                    raise ours from error
            except BaseException as error:
                take_secrets_out(error, outer, order.target)
                raise
        try:
            return self._reply()
        except ProviderError as error:
            if error is not self.raised:
                error.request_id = error.request_id or self._request_id
            raise

    def _reply(self) -> Reply:
        if self.raised is not None:
            raise self.raised
        if self._failure is not None:
            raise self._failure
        decoder = self._decoder
        if self._scope.cancelled_caught and not (decoder.finished or decoder.complete):
            self._sent = True
            endpoint = self._order.target.endpoint
            raise BrokenStreamError(f"{endpoint} {self._limit()}", provider=endpoint.provider)
        return decoder.reply()

    def _has_ended(self) -> bool:
        """Whether it is said already how this ends, whatever else is wrong with the connection."""
        return self.raised is not None or self._failure is not None or self._decoder.failure is not None

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
        if self._has_ended():
            self._scope.cancel()
        elif self._decoder.complete or self._decoder.finished:
            seconds = DRAIN_SECONDS if self._decoder.complete else LINGER_SECONDS
            self._scope.deadline = min(self._scope.deadline, now + seconds)
            self._moved = -math.inf  # Moved again at once, should more of the answer follow.
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
        # Whatever of it comes: the status says enough, also where the time for the whole request ends.
        try:
            with trio.move_on_after(ERROR_BODY_SECONDS) as scope, suppress(*FAILURES):
                async for part in body_of(response):
                    body += part
                    if len(body) > MAX_ERROR_BODY:
                        scope.cancel()
        finally:
            self._failure = self._failed(response, bytes(body))

    def _failed(self, response: httpx.Response, text: bytes) -> ProviderError:
        """The error that an answer with this body is."""
        if response.is_redirect:
            text = b"redirected to %b: make that the base_url" % response.headers.get("location", "?").encode()
        for secret in self._order.target.secrets:  # Before the body is shortened, which could cut one in two.
            text = text.replace(secret.encode(), b"[secret]")
        self.advice = response.headers.get("x-should-retry")
        seconds = retry_after(response.headers, time.time())
        return self._order.wire.failure(response.status_code, response.headers, text, seconds)

"""Drives any wire over httpx on trio: the only way to a provider, and the only place where requests are sent again."""

from __future__ import annotations

import logging
import random
from typing import final

import attrs
import trio

from .._contracts import Emit
from .._errors import ProviderError, RateLimitError
from ..record._entries import ModelEvent
from ..record._messages import NO_USAGE, Reply, Request, Usage
from ._attempt import Attempt, NeverBegan, Order
from ._limits import Turn
from ._log_lines import log_event
from ._retry import Policy, backoff, may_pass, tell_usage
from ._sessions import fresh_client, open_session, shared_client
from ._target import Target
from ._timeouts import or_never
from ._wire import MAX_EXCERPT, Wire

_TOLD_SECONDS = 1.0
"""A wait for a RateLimit that is shorter is no event."""


async def exchange(wire: Wire, target: Target, request: Request, emit: Emit, policy: Policy) -> Reply:
    """Send *request*, again where that may help, and return the reply; its usage is that of all attempts.

    A request whose answer never began is sent once more at once, on a fresh connection: servers close idle
    connections just when the next request comes (llama.cpp even some they promised to keep). What fails otherwise, and
    may pass, is sent again after a wait, at most ``policy.retries`` times. Each time ``emit`` gets a ModelEvent
    ``retry``; where its data say ``restarted``, what was emitted of the answer so far is thrown away.

    Checkpoint: yes. Cancelled: the request's connection is closed, and no other is opened.

    Raises:
        ProviderError: the last attempt failed. Neither the error nor its cause shows a secret of *target*. Its
            ``usage`` is that of all attempts; where more than one was made the text says how many.
    """
    async with open_session(target.endpoint.base_url):
        order = Order(wire=wire, target=target, body=wire.encode(request), emit=emit, timeout=policy.timeout)
        return await _Course(order, policy).reply()


@final
class _Course:
    """All attempts at one request."""

    def __init__(self, order: Order, policy: Policy) -> None:
        self._order = order
        self._policy = policy
        self._give_up_at = trio.current_time() + or_never(policy.timeout.total)
        self._arrival = 0 if policy.rate_limit is None else policy.rate_limit.arrival()
        self._sent = 0  # Attempts.
        self._failures = 0  # Those that failed, but for one that was sent again at once.
        self._resent = False  # Whether one was sent again at once: that helps once.
        self._fresh = False  # Whether the next attempt has a client of its own.
        self._spent = NO_USAGE
        self._status: int | None = None  # Of the last answer that was a failure.
        self._raised: Exception | None = None  # By emit.

    async def reply(self) -> Reply:
        try:
            while True:
                attempt = Attempt(self._order)
                try:
                    reply = await self._send(attempt)
                    if self._spent is not NO_USAGE:
                        reply = attrs.evolve(reply, usage=self._spent + reply.usage)
                    return reply
                except NeverBegan as never:
                    # Everyday: a server has closed a connection that nobody used.
                    event, wait, level = self._at_once(never), 0.0, logging.INFO
                except ProviderError as error:
                    if error is attempt.raised or error is self._raised:
                        raise
                    again = self._after_a_wait(error, attempt)
                    if again is None:
                        raise
                    (event, wait), level = again, logging.WARNING
                self._emit(event, level)
                # Outside the handlers: what is raised from here on has no __context__ of theirs.
                await trio.sleep(wait)
        except BaseException as error:
            tell_usage(error, self._spent)
            raise

    async def _send(self, attempt: Attempt) -> Reply:
        """Send it when it may be sent; what it cost goes to what was spent if it fails."""
        limit, began = self._policy.rate_limit, trio.current_time()
        try:
            if limit is None:
                return await self._send_now(attempt, None)
            size, most = len(self._order.body), self._policy.max_tokens
            async with limit.turn(size, most, arrival=self._arrival, max_wait=self._policy.max_wait) as turn:
                self._waited(trio.current_time() - began)
                return await self._send_now(attempt, turn)
        except NeverBegan:
            self._spent += Usage(requests=1)
            raise
        except BaseException:
            self._spent += attempt.usage()
            raise

    async def _send_now(self, attempt: Attempt, turn: Turn | None) -> Reply:
        base_url = self._order.target.endpoint.base_url
        self._sent += 1
        try:
            if self._fresh:
                self._fresh = False
                async with fresh_client(base_url) as client:
                    reply = await attempt.send(client, turn, self._give_up_at, resend=False)
            else:
                with shared_client(base_url) as client:
                    reply = await attempt.send(client, turn, self._give_up_at, resend=not self._resent)
        except ProviderError as error:
            if turn is not None:
                _settle(turn, attempt.usage(), self._order, answered=(error.status or 0) >= 400)
            raise
        if turn is not None:
            _settle(turn, reply.usage, self._order, answered=False)
        return reply

    def _emit(self, event: ModelEvent, level: int) -> None:
        try:
            self._order.emit(event)
        except Exception as error:
            self._raised = error
            raise
        log_event(self._order.target.endpoint, event, self._status, level)

    def _waited(self, seconds: float) -> None:
        self._give_up_at += seconds
        if seconds >= _TOLD_SECONDS:
            text = f"{self._order.target.endpoint}: waited {seconds:.1f} s for its turn in the RateLimit"
            self._emit(ModelEvent("rate_limited", text, {"seconds": round(seconds, 3)}), logging.INFO)

    def _at_once(self, never: NeverBegan) -> ModelEvent:
        self._resent = self._fresh = True
        self._status = None
        target = self._order.target
        text = target.redacted(f"{target.endpoint}: {never}; sent again at once on a fresh connection")
        return _retry_event(text, self._sent, "BrokenStreamError", 0.0, False)

    def _after_a_wait(self, error: ProviderError, attempt: Attempt) -> tuple[ModelEvent, float] | None:
        """Return what to tell, and how long to wait before the next attempt; None where *error* is to be raised."""
        self._failures += 1
        self._status = error.status
        target, policy, passes = self._order.target, self._policy, may_pass(error, attempt.advice)
        text = target.redacted(str(error))
        error.body = None if error.body is None else target.redacted(error.body)[:MAX_EXCERPT]
        wait = error.retry_after or min(backoff(self._failures, random.random()), policy.max_wait)
        if passes and policy.rate_limit is not None and _is_from_provider(error):
            policy.rate_limit.slow_down(wait)
        time_left = self._give_up_at - trio.current_time()
        if not passes or self._failures > policy.retries or wait > policy.max_wait or wait >= time_left:
            notes = [f"tried {self._sent} times"] if self._sent > 1 else []
            if passes and wait > policy.max_wait:
                notes.append(f"not sent again: a wait of {wait:g} s is longer than max_wait={policy.max_wait:g}")
            elif passes and 0 < time_left <= wait:
                notes.append(f"not sent again: the next attempt, in {wait:.1f} s, would be behind the limit: total")
            error.args = (f"{text} ({', '.join(notes)})" if notes else text,)
            return None
        text = f"{text}; sent again in {wait:.1f} s" + (" from the start" if attempt.shown else "")
        return _retry_event(text, self._sent, type(error).__name__, wait, attempt.shown), wait


def _is_from_provider(error: ProviderError) -> bool:
    """Whether the provider itself asked for patience; a RateLimit that doesn't send has heard it already."""
    return error.status is not None and (isinstance(error, RateLimitError) or error.retry_after is not None)


def _retry_event(text: str, sent: int, error: str, wait: float, restarted: bool) -> ModelEvent:
    data = {"attempt": sent + 1, "error": error, "wait": round(wait, 3), "restarted": restarted}
    return ModelEvent("retry", text, data)


def _settle(turn: Turn, usage: Usage, order: Order, *, answered: bool) -> None:
    """Tell a RateLimit what a request did cost: nothing for an error answer; the estimate stays where nobody knows."""
    # Anthropic doesn't count what it reads from its cache (its page on rate limits, December 2026); the others do.
    cached = usage.cache_read_tokens if order.target.endpoint.house == "anthropic" else 0
    if answered or usage.input_tokens or usage.output_tokens:
        turn.used(usage.input_tokens - cached, usage.output_tokens)

"""What RateLimit reckons with, pure: what was sent in the last minute, and what the provider said. Time is an argument.

A server counts a request somewhere between its sending and the answer's first byte, so it is counted here until a
minute after that byte: whatever the way takes, no minute of the server's has more requests than the limit. Where the
byte is late, a model thinks: a server counts what comes in within ``SETTLE_SECONDS``.

After a 429 nobody sends until the wait is over. Then one request goes ahead, and each answer that isn't a 429 lets one
more go at the same time, as TCP starts anew after a loss: else all that waited would meet the next 429 together.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import OrderedDict
from collections.abc import Mapping
from typing import final

import attrs

from ._quota_headers import Left

WINDOW_SECONDS = 60.1
"""A minute, and what two clocks may differ in one."""
SETTLE_SECONDS = 5.0
"""A server has counted a request when it was sent this long ago, answered or not."""
_FAST = 64
"""So many requests at the same time, each answered, and there is no slow start any more."""
_BYTES_PER_TOKEN = 4
"""Of a request's JSON, until an answer has told."""
_WEIGHT = 0.2
"""Of a new observation in a running average."""


@final
@attrs.define(eq=False)
class Counted:
    """One request that was sent, and until when it counts."""

    sent: float
    end: float
    tokens: int
    """Whole ones: sums of fractions leave a rest behind, which would count for ever."""
    requests: int = 1
    answered: bool = False
    gone: bool = False


@final
class Ledger:
    """Who may send, by what was sent and answered so far. ``None`` for a limit: there is none."""

    def __init__(self, requests: int | None, tokens: int | None, concurrent: int | None) -> None:
        self._limits = (requests, tokens, concurrent)
        self._running = 0
        self._requests = 0
        self._tokens = 0
        self._ends: list[tuple[float, int, Counted]] = []  # A heap. What ends earlier than it first should is in twice.
        self._serial = itertools.count()
        self._unanswered: OrderedDict[Counted, None] = OrderedDict()
        self._left: dict[str, Left] = {}
        self._held_since = self._held_until = -math.inf
        self._slow: int | None = None  # How many may be unanswered at the same time; None: any number.
        self._tokens_per_byte = 1 / _BYTES_PER_TOKEN
        self._output: float = 0.0  # Tokens of an average reply.

    def estimate(self, size: int, max_tokens: int | None) -> float:
        """Return how many tokens a request of *size* bytes will cost, by what earlier ones did."""
        return size * self._tokens_per_byte + (self._output if max_tokens is None else max_tokens)

    def learn(self, size: int, input_tokens: int, output_tokens: int) -> None:
        """Take note of what a request of *size* bytes did cost."""
        if size and input_tokens:
            self._tokens_per_byte += _WEIGHT * (input_tokens / size - self._tokens_per_byte)
        self._output += _WEIGHT * (output_tokens - self._output)

    def held(self, now: float) -> float:
        """Return for how many seconds nobody may send since the provider said so; 0 or less: anybody may."""
        return self._held_until - now

    def wait(self, now: float, tokens: float, max_wait: float) -> float:
        """Return after how many seconds to ask again; 0: the request may go; infinite: when something has changed.

        Args:
            now: Seconds.
            tokens: What the request is estimated to cost.
            max_wait: What the provider says is left isn't waited for longer than this: then it shall say it by a 429.
        """
        tokens = math.ceil(tokens)
        self._forget(now)
        if now < self._held_until:
            return self._held_until - now
        requests, most_tokens, concurrent = self._limits
        if concurrent is not None and self._running >= concurrent:
            return math.inf
        if self._slow is not None and len(self._unanswered) >= self._slow:
            return next(iter(self._unanswered)).sent + SETTLE_SECONDS - now
        # A request that is larger than the limit goes when it is alone: waiting longer wouldn't make it smaller.
        too_many = requests is not None and self._requests >= requests
        if too_many or (most_tokens is not None and self._tokens + min(tokens, most_tokens) > most_tokens):
            return self._ends[0][0] - now
        for kind, left in self._left.items():
            need = 1 if kind == "requests" else tokens
            if left.amount < need and left.until - now <= max_wait:
                return left.until - now
        return 0.0

    def take(self, now: float, tokens: float) -> Counted:
        """Count a request that is sent now."""
        tokens = math.ceil(tokens)
        counted = Counted(now, now + SETTLE_SECONDS + WINDOW_SECONDS, tokens)
        self._add(counted)
        self._running += 1
        self._unanswered[counted] = None
        self._left = {
            kind: attrs.evolve(left, amount=left.amount - (1 if kind == "requests" else tokens))
            for kind, left in self._left.items()
        }
        return counted

    def answered(self, counted: Counted, now: float, *, well: bool, left: Mapping[str, Left]) -> None:
        """Take note that the answer began.

        Args:
            counted: What ``take`` returned.
            now: Seconds.
            well: Whether it is no 429, and an answer at all.
            left: What the provider says is left, by kind. Requests under way may not be in it yet.
        """
        if counted.answered:
            return
        counted.answered = True
        self._unanswered.pop(counted, None)
        if now + WINDOW_SECONDS < counted.end and not counted.gone:
            counted.end = now + WINDOW_SECONDS
            self._push(counted)
        if well and self._slow is not None and counted.sent >= self._held_since:
            self._slow = None if self._slow >= _FAST else self._slow + 1
        for kind, told in left.items():
            under_way = len(self._unanswered) if kind == "requests" else sum(one.tokens for one in self._unanswered)
            self._left[kind] = attrs.evolve(told, amount=told.amount - under_way)

    def settle(self, counted: Counted, now: float, tokens: int) -> None:
        """Put what a request did cost in place of the estimate."""
        self._forget(now)
        more = tokens - counted.tokens
        if not counted.gone:
            counted.tokens = tokens
            self._tokens += more
        elif more > 0:  # It took longer than the window: what came at its end counts from now on.
            self._add(Counted(now, now + WINDOW_SECONDS, more, requests=0))

    def release(self, counted: Counted, now: float) -> None:
        """Take note that a request has ended, however it did."""
        self._running -= 1
        self.answered(counted, now, well=False, left={})

    def hold(self, now: float, seconds: float) -> None:
        """Let nobody send for *seconds*, and only a few then."""
        self._held_until = max(self._held_until, now + seconds)
        self._held_since = now
        self._slow = 1

    def _add(self, counted: Counted) -> None:
        self._requests += counted.requests
        self._tokens += counted.tokens
        self._push(counted)

    def _push(self, counted: Counted) -> None:
        heapq.heappush(self._ends, (counted.end, next(self._serial), counted))

    def _forget(self, now: float) -> None:
        """Take off what doesn't count any more."""
        while self._ends and (self._ends[0][0] <= now or self._ends[0][2].gone):
            _, _, counted = heapq.heappop(self._ends)
            if not counted.gone:
                counted.gone = True
                self._requests -= counted.requests
                self._tokens -= counted.tokens
        while self._unanswered and (first := next(iter(self._unanswered))).sent + SETTLE_SECONDS <= now:
            del self._unanswered[first]
        self._left = {kind: left for kind, left in self._left.items() if now < left.until}

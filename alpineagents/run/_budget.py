"""Budgets: what a run, with all its subagents, may use; and the purses in which that is counted while it runs.

Invariant: a request is counted, as reserved, before it is sent, and looking and counting are one step, for tasks and
threads. So however many subagents ask at once, no more requests are sent than the budget allows.
"""

from __future__ import annotations

import threading
from datetime import datetime
from decimal import Decimal
from math import isfinite
from typing import Any, final

import attrs
import trio

from .._contracts import Model
from .._errors import BudgetError
from ..record._entries import Entry, StopEntry, StoppedByBudget
from ..record._frozen import Json
from ..record._messages import NO_USAGE, Usage
from ..record._snapshot import Snapshot
from ..record._value import Value
from ..state import Recorder


def _as_dollars(value: Any) -> Any:
    return value if isinstance(value, bool) else Usage(cost=value).cost  # which reads amounts exactly


def _more_than_0(_: object, field: attrs.Attribute[Any], value: Any) -> None:
    if value is None:
        return
    kinds = {"cost": Decimal, "seconds": int | float}.get(field.name, int)
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise TypeError(f"{field.name} must be a number, not {type(value).__name__}: Budget({field.name}=10)")
    if not value > 0 or not isfinite(value):
        raise ValueError(f"{field.name} must be more than 0 (got {value}): Budget({field.name}=10)")


@final
@attrs.frozen(kw_only=True, eq=False, repr=False)
class Budget(Value):
    """What one run may use, with all its subagents: ``Agent(..., budget=Budget(requests=50, cost="0.50"))``.

    Looked at before every turn and before every request, those of subagents too. What is used up stops the run that
    asks, with ``StoppedByBudget``. Requests are never more than allowed. Tokens and cost can go beyond by what one
    reply costs, as far as the size of running requests is known beforehand: their input is estimated, their output
    counts as the model's ``max_tokens``, where that is set. Each run begins at zero; what a State has used in all its
    runs is in ``state.usage``.

    Raises:
        TypeError: an amount isn't a number, or not a whole one.
        ValueError: an amount isn't more than 0; or there is none.

    Example:
        >>> Budget(requests=5, cost="0.10")
        Budget(cost=Decimal('0.10'), tokens=None, requests=5, seconds=None)
    """

    cost: Decimal | None = attrs.field(default=None, converter=_as_dollars, validator=_more_than_0)
    """US dollars; exact as text or Decimal. Where a price is unknown the run stops before its next request."""
    tokens: int | None = attrs.field(default=None, validator=_more_than_0)
    """Tokens, read and written."""
    requests: int | None = attrs.field(default=None, validator=_more_than_0)
    """Requests sent to models, each retry counted."""
    seconds: float | None = attrs.field(default=None, validator=_more_than_0)
    """Seconds since the run began. What is under way is not cut short: ``trio.move_on_after`` does that."""

    def __attrs_post_init__(self) -> None:
        if all(amount is None for amount in (self.cost, self.tokens, self.requests, self.seconds)):
            raise ValueError("a Budget needs an amount: Budget(requests=50)")


@final
class Purse:
    """What a run and everything below it has used, live, and what its Budget, if it has one, still allows."""

    def __init__(self, budget: Budget | None, above: Purse | None) -> None:
        self.spent = NO_USAGE
        """By the requests that have ended."""
        self.lock: threading.RLock = threading.RLock() if above is None else above.lock
        """One for the whole tree."""
        self._budget = budget
        self._above = above
        self._clock = trio.lowlevel.current_clock()  # That of the run: an action may come from another thread's.
        self._began = self._clock.current_time()
        self._sent = 0  # Requests that have ended, those included that didn't say what they used.
        self._running = 0  # Requests, and below what they have reserved.
        self._tokens = 0
        self._cost = Decimal(0)

    def chain(self) -> list[Purse]:
        """Return this one and those above it."""
        found: list[Purse] = []
        purse: Purse | None = self
        while purse is not None:
            found.append(purse)
            purse = purse._above
        return found

    def weighs(self) -> bool:
        """Whether the size of a request matters, not only that it is one."""
        budgets = [purse._budget for purse in self.chain()]
        return any(budget is not None and (budget.tokens or budget.cost) for budget in budgets)

    def stop(self) -> StoppedByBudget | None:
        """Return why nothing more may be sent; None while it may."""
        for purse in self.chain():
            if (stopped := purse._own_stop()) is not None:
                return stopped
        return None

    def _own_stop(self) -> StoppedByBudget | None:
        budget = self._budget
        if budget is None:
            return None
        requests, seconds = self._sent + self._running, self._clock.current_time() - self._began
        tokens = self.spent.input_tokens + self.spent.output_tokens + self._tokens
        if budget.cost is not None:
            cost = None if self.spent.cost is None else self.spent.cost + self._cost
            if cost is None or cost >= budget.cost:
                return StoppedByBudget("cost", budget.cost, cost)
        if budget.tokens is not None and tokens >= budget.tokens:
            return StoppedByBudget("tokens", budget.tokens, tokens)
        if budget.requests is not None and requests >= budget.requests:
            return StoppedByBudget("requests", budget.requests, requests)
        if budget.seconds is not None and seconds >= budget.seconds:
            return StoppedByBudget("seconds", budget.seconds, seconds)
        return None

    def reserve(self, requests: int, tokens: int, cost: Decimal) -> None:
        """Count, here and above, what is about to be used; less than 0 gives it back."""
        with self.lock:
            for purse in self.chain():
                purse._running += requests
                purse._tokens += tokens
                purse._cost += cost

    def spend(self, requests: int, usage: Usage) -> None:
        """Count, here and above, what was used."""
        with self.lock:
            for purse in self.chain():
                purse._sent += requests
                purse.spent += usage


@final
class Spending:
    """One request's part of a purse: reserved from the moment it is made, spent or given back when its block ends.

    Args:
        purse: The purse of the run that asks.
        state: The State that the request is of.
        model: The model that is asked.
        tokens_read: About how many tokens it reads.

    Raises:
        BudgetError: the budget is used up. Where *state* is in a run, that is set to stop.
    """

    def __init__(self, purse: Purse, state: Recorder, model: Model, tokens_read: int) -> None:
        self._purse = purse
        self._state = state
        size = Usage(input_tokens=tokens_read, output_tokens=model.max_tokens or 0)
        self._tokens = size.input_tokens + size.output_tokens
        self._cost = Decimal(0) if model.price is None else model.price.cost(size)
        self._requests = 0
        self._replies = 0  # How often tokens and cost are reserved.
        self._open = True
        self._one_more()

    def again(self, *, anew: bool) -> None:
        """Reserve another request, since one is sent again, or to another model.

        *anew*: something came of the one before, so this one's tokens come on top of what that may have used; else
        they take its place.

        Raises:
            BudgetError: the budget is used up.
        """
        with self._purse.lock:
            if not anew:
                self._replies -= 1
                self._purse.reserve(0, -self._tokens, -self._cost)
            self._one_more()

    def _one_more(self) -> None:
        with self._purse.lock:
            refuse_overspending(self._purse, self._state)
            self._purse.reserve(1, self._tokens, self._cost)
        self._requests += 1
        self._replies += 1

    def end(self, usage: Usage) -> None:
        """Say what was used. A request that doesn't say that it was one counts as one, too."""
        with self._purse.lock:
            self._give_back()
            self._purse.spend(max(self._requests, usage.requests), usage)

    def __enter__(self) -> Spending:
        return self

    def __exit__(self, *_: object) -> None:
        self._give_back()

    def _give_back(self) -> None:
        if self._open:
            self._open = False
            self._purse.reserve(-self._requests, -self._tokens * self._replies, -self._cost * self._replies)


def refuse_overspending(purse: Purse, state: Recorder) -> None:
    """Raise BudgetError if nothing more may be sent; where *state* is in a run, that is set to stop."""
    stopped = purse.stop()
    if stopped is None:
        return
    if state.running:
        record_stop(state, stopped)
    raise BudgetError(f"no request was sent: {budget_text(stopped)}")


def record_stop(state: Recorder, stopped: StoppedByBudget) -> None:
    """Record that the budget stops the run, unless something final has stopped it already."""

    def make(snap: Snapshot, at: datetime) -> Entry | None:
        if snap.finished or isinstance(snap.stopped, StoppedByBudget):
            return None
        return StopEntry(snap.length, snap.turn, at, stopped)

    state.commit(make)


def budget_text(stopped: StoppedByBudget) -> str:
    """Return in words which part of a budget is used up."""
    if stopped.used is None:
        return f"the budget of {_amount(stopped.what, stopped.limit)} can't be kept, since a model's price is unknown"
    return f"the budget of {_amount(stopped.what, stopped.limit)} is used up"


def _amount(what: str, limit: Json) -> str:
    if what == "cost":
        return f"${limit}"
    number = f"{limit:,}" if isinstance(limit, int | float) else limit
    return f"{number} {what[:-1] if limit == 1 else what}"

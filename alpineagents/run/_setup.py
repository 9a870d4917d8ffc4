"""What the actions need to know of an Agent, and what surrounds each of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import attrs

from .._contracts import Model, Reporter, Store, Tool
from .._errors import BudgetError
from .._human import Human
from ..record._blocks import ToolCall
from ..record._entries import (
    AgentInfo,
    Entry,
    ErrorEntry,
    ExtraDataEntry,
    MessageEntry,
    ToolOutcome,
    ToolResultEntry,
)
from ..record._messages import NO_USAGE, ToolSpec, Usage
from ..record._replay import turn_of_error
from ..record._snapshot import Snapshot
from ..state import Recorder, State, error_text
from ._groups import is_cancellation, is_interrupt
from ._user_code import told

if TYPE_CHECKING:
    from ..tools._permissions import Rule
    from ._budget import Budget, Purse
    from ._tee import Sink
    from ._telling import Teller

T = TypeVar("T")


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Setup:
    """An Agent's settings, as the actions need them."""

    agent: object
    """The Agent itself: what user code is given."""
    model: Model
    system: str | None
    tool_map: Mapping[str, Tool]
    tool_specs: tuple[ToolSpec, ...]
    """The tools as the model is told of them."""
    loop: Callable[[Any, State], Awaitable[None]]
    reporter: Reporter | None
    store: Store | None
    max_parallel_tools: int
    info: AgentInfo
    human: Human | None = None
    rules: tuple[Rule, ...] | None = None
    """Who decides about tool calls; None = all run."""
    budget: Budget | None = None
    purse: Purse | None = None
    """What counts against the budgets of this run and those above; None where nothing has to be counted."""
    sinks: tuple[Sink, ...] = ()
    """The streams that follow the run; *reporter* tells them."""
    teller: Teller | None = None
    """What tells the Reporter of entries, and stands in its place in *reporter*; None where it hears none."""
    above: Setup | None = None
    """Of the run whose tool call this one is in."""


def told_closed(setup: Setup, state: State, calls: Sequence[ToolCall]) -> list[BaseException]:
    """Tell the reporter of *calls*, which were cut short, what their results are. Returns what it raised."""
    failures: list[BaseException] = []
    if setup.reporter is None or not calls:
        return failures
    ids = {call.id for call in calls}
    results = [entry for entry in state.history if isinstance(entry, ToolResultEntry) and not entry.late]
    for entry in [result for result in results if result.call.id in ids]:
        try:
            told(setup.reporter.on_tool_end, state, entry.call, entry.content, entry.outcome)
        except BaseException as failure:  # noqa: BLE001  # raised by who is told of it
            failures.append(failure)
    return failures


def as_store(state: Recorder) -> Store | None:
    """Return the Store that a State was loaded from or saved in."""
    return state.store if isinstance(state.store, Store) else None


def first(*choices: T | None) -> T | None:
    """Return the first that isn't None. An empty Store is a Store, whatever its truth is."""
    return next((choice for choice in choices if choice is not None), None)


def why(setup: Setup, error: BaseException) -> BaseException:
    """Return why an action was cut short by *error*: where what its Reporter raised has cancelled it, that."""
    teller = setup.teller
    return error if teller is None or teller.failure is None or not is_cancellation(error) else teller.failure


def how_closed(error: BaseException) -> tuple[ToolOutcome, str]:
    """Return outcome and reason for a call that *error* cut short."""
    if is_interrupt(error):
        return ToolOutcome.INTERRUPTED, "interrupted by user"
    return ToolOutcome.ABORTED, f"aborted: {type(error).__name__}"


def usage_of(error: BaseException) -> Usage:
    """Return what the attempts behind an exception have spent, as far as it says."""
    usage = getattr(error, "usage", None)
    return usage if isinstance(usage, Usage) else NO_USAGE


def record_error(
    state: Recorder,
    error: BaseException,
    action: Literal["think", "use_tools", "ask", "compact", "run"],
    *,
    call: ToolCall | None = None,
    usage: Usage = NO_USAGE,
) -> None:
    """Record an exception."""
    if isinstance(error, BudgetError) and action in ("ask", "compact") and usage == NO_USAGE:
        return  # nothing was sent, and the stop of the run tells why
    content = "Cancelled" if is_cancellation(error) else error_text(error)

    def make(snap: Snapshot, at: datetime) -> Entry:
        turn = turn_of_error(snap, action)
        return ErrorEntry(snap.length, turn, at, content, action, call, usage, error)

    state.commit(make)


def is_recorded(state: Recorder, since: int, error: BaseException) -> bool:
    """Whether an entry from position *since* on tells of this exception."""
    history = state.history
    errors = [entry.error for entry in history[since:] if isinstance(entry, ErrorEntry)]
    if any(other is error for other in errors):
        return True
    if not is_cancellation(error):
        return False
    # A nursery in the loop body makes a new Cancelled of the one that think or use_tools recorded.
    for entry in reversed(history[since:]):
        if isinstance(entry, ErrorEntry):
            return entry.error is not None and is_cancellation(entry.error)
        if not isinstance(entry, MessageEntry | ExtraDataEntry | ToolResultEntry):
            break
    return False


def refuse_finished(state: State, action: str) -> None:
    """Raise ValueError when ``finish`` was called."""
    if state.finished:
        raise ValueError(
            f"{action}: State {state.id} is finished; go back first, state.restore(snapshot), or make a new State"
        )

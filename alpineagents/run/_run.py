"""A run, in order: checks, store, resume warning, start entry, loop, close."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Awaitable, Sequence
from functools import partial

import trio

from .._errors import BudgetError, ResumeWarning
from .._hooks import seen
from .._logs import RUN
from ..record._blocks import ToolCall
from ..record._entries import (
    AgentInfo,
    Entry,
    RunStartEntry,
    StoppedByBudget,
    ToolOutcome,
)
from ..record._frozen import Json
from ..record._messages import Message
from ..state import State, close_pending, parent_call
from ._groups import leaves, most_important
from ._inherit import of_run
from ._keeper import keeping
from ._setup import (
    Setup,
    as_store,
    first,
    how_closed,
    is_recorded,
    record_error,
    refuse_finished,
    told_closed,
)
from ._sync import refuse_without_trio
from ._user_code import told, unprotected


def as_state(subject: str | State) -> State:
    """Return the State to run: a prompt makes a new one."""
    if isinstance(subject, State):
        return subject
    if isinstance(subject, str):
        return State(messages=[Message.user(subject)])
    raise TypeError(f"run takes a prompt or a State, not {type(subject).__name__}: await agent.run('Find the bug')")


@trio.lowlevel.enable_ki_protection
async def run(setup: Setup, state: State) -> Json:
    """Run the Agent's loop on *state* and return its answer."""
    refuse_without_trio("agent.run", "await portal.run(agent.run, state)")
    refuse_finished(state, "run")
    effective = of_run(setup, state)
    if effective.rules is not None:
        from ._permissions import refuse_without_human  # only for who has some

        refuse_without_human(effective)
    with state.in_run(effective):
        seen(state)
        try:
            await trio.lowlevel.checkpoint()
            if RUN.isEnabledFor(logging.INFO):
                from ._log_line import logged  # only for who reads it

                return await logged(partial(_watched, effective, state), effective, state)
            return await _watched(effective, state)
        finally:
            seen(state)


def _watched(setup: Setup, state: State) -> Awaitable[Json]:
    """Return the run, to be awaited: followed where it streams."""
    return _followed(setup, state) if setup.sinks else _kept(setup, state)


async def _followed(setup: Setup, state: State) -> Json:
    """Run it, and tell the streams when it begins and when it has ended."""
    if setup.purse is None:
        raise AssertionError("a run that streams follow has a purse")
    for sink in setup.sinks:
        sink.begin(state, setup.purse)
    error: BaseException | None = None
    try:
        return await _kept(setup, state)
    except BaseException as failure:
        error = failure
        raise
    finally:
        for sink in setup.sinks:
            sink.end(state, error)
        del error  # its traceback holds this frame


def _kept(setup: Setup, state: State) -> Awaitable[Json]:
    """Return the run, to be awaited: saved where there is a store. Not async itself: each frame is 200 bytes a run."""
    work = partial(_work, setup, state)
    store = first(setup.store, as_store(state))
    return work() if store is None else keeping(state, store, work)


async def _work(setup: Setup, state: State) -> Json:
    _warn_if_another(setup.info, state)
    async with setup.model.session():
        start = _begin(setup.info, state)
        try:
            if setup.reporter is not None:
                told(setup.reporter.on_run_start, state, setup.agent)
            try:
                if setup.teller is None:
                    await unprotected(setup.loop, setup.agent, state)
                else:
                    await setup.teller.during(partial(unprotected, setup.loop, setup.agent, state))
            except Exception as error:
                if not _ended_by_budget(setup, state, error):
                    raise
            closed = close_pending(state, ToolOutcome.ABORTED, "aborted: the run ended before this call had a result")
        except BaseException as error:
            closed = _close(state, start, error)
            _report_end(setup, state, closed, error)
            raise
        _report_end(setup, state, closed, None)
    return state.answer


def _begin(info: AgentInfo, state: State) -> Entry | None:
    """Record that the run starts, and which tool call it is part of."""
    call = parent_call(state)
    parent_id, call_id = (None, None) if call is None else (call.state.id, call.call_id)
    start = state.commit(lambda snap, at: RunStartEntry(snap.length, snap.turn, at, info, parent_id, call_id))
    state.run_begins()
    if call is not None and call.call_id is not None:
        call.state.child_begins(call.call_id, state)
    return start


def _ended_by_budget(setup: Setup, state: State, error: Exception) -> bool:
    """Whether the budget has ended the loop, be it by what was asked beside *state*: then it has ended normally."""
    if setup.purse is None or not all(isinstance(leaf, BudgetError) for leaf in leaves(error)):
        return False
    if isinstance(state.stopped, StoppedByBudget):
        return True
    from ._budget import record_stop  # loaded already by who made the purse

    stopped = setup.purse.stop()
    if stopped is not None:
        record_stop(state, stopped)
    return stopped is not None


def _report_end(setup: Setup, state: State, closed: Sequence[ToolCall], error: BaseException | None) -> None:
    """Tell the reporter of the calls that the end has closed, and of the end.

    What it raises is recorded, and comes out unless the run's own error does.
    """
    if setup.reporter is None:
        return
    failures = told_closed(setup, state, closed)
    if error is None and setup.teller is not None and setup.teller.failure is not None:
        failures.insert(0, setup.teller.failure)  # at the moment in which the budget ended the loop
    try:
        told(setup.reporter.on_run_end, state, error)
    except BaseException as failure:  # noqa: BLE001  # raised below
        failures.append(failure)
    for each in failures:
        if not is_recorded(state, 0, each):
            record_error(state, each, "run")
    if failures:
        raise most_important(failures if error is None else [error, *failures])


def _close(state: State, start: Entry | None, error: BaseException) -> tuple[ToolCall, ...]:
    """Record how the run was cut short, once, and close its calls; return those."""
    if not is_recorded(state, 0 if start is None else start.seq, error):
        record_error(state, error, "run")
    return close_pending(state, *how_closed(error))


def _warn_if_another(info: AgentInfo, state: State) -> None:
    """On the first run of a loaded State, warn where the Agent differs from the one before.

    Raises:
        ResumeWarning: warnings of its class are errors. Nothing was recorded, and the next try raises it again.
    """
    if state.loaded and (saved := state.snapshot_now().last_run) is not None and (changes := _changes(saved, info)):
        differences = "; ".join(_told(key, *pair) for key, pair in changes.items())
        message = f"State {state.id} goes on with another Agent: {differences}"
        warnings.warn(ResumeWarning(message, changes), stacklevel=2)
    state.loaded = False


def _changes(saved: AgentInfo, current: AgentInfo) -> dict[str, tuple[object, object]]:
    names = ("name", "tools", "model", "system_sha256", "mcp_servers")
    pairs = {name: (getattr(saved, name), getattr(current, name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _told(key: str, saved: object, current: object) -> str:
    if key == "system_sha256":
        return "system: changed"
    if isinstance(saved, tuple) and isinstance(current, tuple):
        removed = [f"removed {name}" for name in saved if name not in current]
        added = [f"added {name}" for name in current if name not in saved]
        return f"{'MCP servers' if key == 'mcp_servers' else key}: {', '.join([*removed, *added])}"
    return f"{key}: {saved} -> {current}"

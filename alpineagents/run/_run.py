"""A run, in order: checks, store, resume warning, start entry, loop, close."""

from __future__ import annotations

import warnings

import trio

from .._errors import ResumeWarning
from ..record._entries import (
    AgentInfo,
    Entry,
    RunStartEntry,
    ToolOutcome,
)
from ..record._frozen import Json
from ..record._messages import Message
from ..state import State, close_pending, parent_call
from ._groups import most_important
from ._keeper import keeping
from ._setup import Setup, as_store, how_closed, is_recorded, record_error, refuse_finished, told, unprotected


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
    refuse_finished(state, "run")
    with state.in_run():
        await trio.lowlevel.checkpoint()
        return await keeping(state, setup.store or as_store(state), lambda: _work(setup, state))


async def _work(setup: Setup, state: State) -> Json:
    _warn_if_another(setup.info, state)
    async with setup.model.session():
        call = parent_call(state)
        parent_ids = (None, None) if call is None else (call[0].id, call[1])
        start = state.commit(lambda snap, at: RunStartEntry(snap.length, snap.turn, at, setup.info, *parent_ids))
        state.run_begins(call)
        try:
            if setup.reporter is not None:
                told(setup.reporter.on_run_start, state, setup.agent)
            await unprotected(setup.loop, setup.agent, state)
            close_pending(state, ToolOutcome.ABORTED, "(aborted: the run ended before this call ran)")
        except BaseException as error:
            _close(state, start, error)
            _report_end(setup, state, error)
            raise
        _report_end(setup, state, None)
    return state.answer


def _report_end(setup: Setup, state: State, error: BaseException | None) -> None:
    """Tell the reporter; what it raises is recorded, and comes out unless the run's own error does."""
    try:
        if setup.reporter is not None:
            told(setup.reporter.on_run_end, state, error)
    except BaseException as failure:
        record_error(state, failure, "run")
        if error is None:
            raise
        raise most_important([error, failure])  # noqa: B904  # neither is the other's cause


def _close(state: State, start: Entry | None, error: BaseException) -> None:
    """Record how the run was cut short, once, and close its calls."""
    if not is_recorded(state, 0 if start is None else start.seq, error):
        record_error(state, error, "run")
    close_pending(state, *how_closed(error))


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

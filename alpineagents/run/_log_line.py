"""The line that a run leaves in the log: which State and Agent, what it used, and how it ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import assert_never

import trio

from .._logs import RUN
from ..record._entries import (
    RunStartEntry,
    StoppedByBudget,
    StoppedByFinish,
    StoppedByLimit,
    StoppedByPermission,
    StoppedByUntil,
)
from ..record._frozen import Json
from ..record._snapshot import Snapshot
from ..state import State
from ._groups import is_cancellation, is_interrupt, leaves
from ._setup import Setup
from ._user_code import told


async def logged(work: Callable[[], Awaitable[Json]], setup: Setup, state: State) -> Json:
    """Await ``work()``, a run of *state*, and log how it ended."""
    began, before = trio.current_time(), state.snapshot_now()
    error: BaseException | None = None
    try:
        return await work()
    except BaseException as failure:
        error = failure
        raise
    finally:
        ending, facts = _ending(state, before, error), _facts(setup, state, before, trio.current_time() - began)
        told(RUN.info, "run of %s %s: %s", state.id, ending, facts)
        del error  # its traceback holds this frame


def _ending(state: State, before: Snapshot, error: BaseException | None) -> str:
    started = any(isinstance(entry, RunStartEntry) for entry in state.history[before.length :])
    if error is None:
        return _stop(state)
    if is_cancellation(error):
        return "cancelled" if started else "cancelled before it started"
    verb = "interrupted" if is_interrupt(error) else "failed" if started else "didn't start"
    return f"{verb} ({_class_of(error)})"


def _stop(state: State) -> str:
    """Return in words why it ended normally."""
    stopped = state.stopped
    match stopped:
        case StoppedByUntil("waiting_for_user"):
            return "answered"
        case StoppedByUntil(name):
            return f"stopped by {name}"
        case StoppedByFinish():
            return "finished"
        case StoppedByLimit(turns):
            return f"stopped by its limit of {turns} {'turn' if turns == 1 else 'turns'}"
        case StoppedByBudget(what):
            return f"stopped by its budget ({what})"
        case StoppedByPermission(call):
            return f"stopped by a permission (a call of {call.name} was refused)"
        case None:
            return "ended"
        case _:
            assert_never(stopped)


def _class_of(error: BaseException) -> str:
    name = type(error).__name__
    if not isinstance(error, BaseExceptionGroup):
        return name
    return f"{name} of {', '.join(dict.fromkeys([type(leaf).__name__ for leaf in leaves(error)]))}"


def _facts(setup: Setup, state: State, before: Snapshot, seconds: float) -> str:
    now = state.snapshot_now()
    facts: dict[str, object] = {} if setup.info.name is None else {"agent": repr(setup.info.name)}
    facts |= {
        "model": setup.model.name,
        "turns": max(0, now.turn - before.turn),  # a restore goes back
        "requests": now.usage.requests - before.usage.requests,
        "input_tokens": now.usage.input_tokens - before.usage.input_tokens,
        "output_tokens": now.usage.output_tokens - before.usage.output_tokens,
        "seconds": f"{seconds:.3f}",
    }
    if state.parent_id is not None:
        facts["parent"] = state.parent_id
    return " ".join([f"{name}={value}" for name, value in facts.items()])

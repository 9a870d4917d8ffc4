"""Which tool calls the running code is part of, in tasks and in the threads trio starts for them."""

from __future__ import annotations

from contextvars import ContextVar

import trio

current_calls: ContextVar[tuple[tuple[object, str], ...]] = ContextVar("alpineagents.current_calls", default=())
"""``(state, call id)`` of each call around this code, outermost first."""


call_nursery: ContextVar[trio.Nursery | None] = ContextVar("alpineagents.call_nursery", default=None)
"""In a sync tool's thread: the nursery of its call, in which ``run_sync`` runs."""


def calls_around(state: object) -> list[str]:
    """Return the ids of the State's calls that the running code is part of, or was: a task can outlive its call."""
    return [call_id for owner, call_id in current_calls.get() if owner is state]

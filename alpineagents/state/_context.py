"""Which tool calls the running code is part of, in tasks and in the threads trio starts for them."""

from __future__ import annotations

from contextvars import ContextVar

current_calls: ContextVar[tuple[tuple[object, str], ...]] = ContextVar("alpineagents.current_calls", default=())
"""``(state, call id)`` of each call around this code, outermost first."""


def inside_call_of(state: object) -> bool:
    """Whether the running code is part of a tool call of this State."""
    return any(owner is state for owner, _ in current_calls.get())

"""Which tool calls the running code is part of, in tasks and in the threads trio starts for them."""

from __future__ import annotations

from contextvars import ContextVar

import trio

from ..record._replay import Snapshot

current_calls: ContextVar[tuple[tuple[object, str | None], ...]] = ContextVar("alpineagents.current_calls", default=())
"""``(state, call id)`` of each call around this code, outermost first; the id is ``None`` for a request."""


call_nursery: ContextVar[trio.Nursery | None] = ContextVar("alpineagents.call_nursery", default=None)
"""In a sync tool's thread: the nursery of its call, in which ``run_sync`` runs."""


def waits_for_itself(state: object, snapshot: Snapshot) -> bool:
    """Whether the running code is part of what *snapshot* waits for: a pending call, or the open request.

    A task can outlive the call it was started in: then it isn't.
    """
    for owner, call_id in current_calls.get():
        if owner is state and (snapshot.request_open if call_id is None else snapshot.is_pending(call_id)):
            return True
    return False

"""Closing what was cut short, so that the conversation can go on: open requests and pending calls."""

from __future__ import annotations

from datetime import datetime

from ..record._blocks import TextBlock, ToolCall
from ..record._entries import Entry, ErrorEntry, ToolOutcome, ToolResultEntry
from ..record._replay import turn_of_error
from ..record._snapshot import Snapshot
from ._recorder import Recorder

MAY_HAVE_RUN = "it may or may not have taken effect: check before you do it again"


def error_text(error: BaseException) -> str:
    """Return an exception as ``"TimeoutError: took too long"``; Ctrl+C and exit by name alone."""
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return type(error).__name__
    try:
        message = str(error)
    except Exception as failure:  # noqa: BLE001  # a record of an error must not fail
        message = f"(its text failed: {type(failure).__name__})"
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def close_call(state: Recorder, call: ToolCall, outcome: ToolOutcome, text: str) -> None:
    """Give *call* a result that says why it has no better one; nothing if it has one already."""

    def make(snap: Snapshot, at: datetime) -> Entry | None:
        if not snap.is_pending(call.id):
            return None
        child_ids, usage = state.children_of(call.id)
        return ToolResultEntry(snap.length, snap.turn, at, (TextBlock(text),), call, outcome, child_ids, usage)

    state.commit(make)


def close_pending(state: Recorder, outcome: ToolOutcome, text: str) -> None:
    """Close every pending call."""
    for call in state.pending_calls:
        close_call(state, call, outcome, text)


def take_request_back(state: Recorder, content: str, error: BaseException | None = None) -> None:
    """Record why the open request has no reply; nothing if none is open."""

    def make(snap: Snapshot, at: datetime) -> Entry | None:
        if not snap.request_open:
            return None
        turn = turn_of_error(snap, "think")
        return ErrorEntry(snap.length, turn, at, content, "think", error=error)

    state.commit(make)


def close_after_crash(state: Recorder) -> None:
    """Close what was under way when the process that wrote this history ended."""
    take_request_back(state, "Aborted: the process ended while the request waited for its reply")
    close_pending(state, ToolOutcome.ABORTED, f"(aborted: the process ended during this call; {MAY_HAVE_RUN})")

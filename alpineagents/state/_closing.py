"""Closing what was cut short, so that the conversation can go on: open requests and pending calls."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from ..record._blocks import TextBlock, ToolCall
from ..record._entries import Entry, ErrorEntry, StopEntry, StoppedByPermission, ToolOutcome, ToolResultEntry
from ..record._replay import turn_of_error
from ..record._snapshot import Snapshot
from ._recorder import Make, Recorder

MAY_HAVE_RUN: Final = "It may or may not have taken effect: check before you do it again."
DID_NOT_RUN: Final = "It had not begun."


def error_text(error: BaseException) -> str:
    """Return an exception as ``"TimeoutError: took too long"``; Ctrl+C and exit by name alone."""
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return type(error).__name__
    try:
        message = str(error)
    except Exception as failure:  # noqa: BLE001  # a record of an error must not fail
        message = f"(its text failed: {type(failure).__name__})"
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def closing(
    state: Recorder,
    call: ToolCall,
    outcome: ToolOutcome,
    text: str,
    decided_by: str | None = None,
    error: BaseException | None = None,
) -> Make:
    """Return what gives *call* a result that says why it has no better one; nothing if it has one already."""

    def make(snap: Snapshot, at: datetime) -> Entry | None:
        if not snap.is_pending(call.id):
            return None
        child_ids, usage = state.children_of(call.id)
        content = (TextBlock(text),)
        return ToolResultEntry(
            snap.length, snap.turn, at, content, call, outcome, child_ids, usage, decided_by, error=error
        )

    return make


def close_call(state: Recorder, call: ToolCall, outcome: ToolOutcome, why: str) -> None:
    """Give *call* a result that says *why* it has no better one, and if it has begun; nothing if it has one already."""
    effect = MAY_HAVE_RUN if call.id in state.begun_calls else DID_NOT_RUN
    state.commit(closing(state, call, outcome, f"({why}) {effect}"))


def close_pending(state: Recorder, outcome: ToolOutcome, why: str) -> tuple[ToolCall, ...]:
    """Close every pending call, and return those."""
    calls = state.pending_calls
    for call in calls:
        close_call(state, call, outcome, why)
    return calls


def take_request_back(state: Recorder, content: str, error: BaseException | None = None) -> None:
    """Record why the open request has no reply; nothing if none is open."""

    def make(snap: Snapshot, at: datetime) -> Entry | None:
        if not snap.request_open:
            return None
        turn = turn_of_error(snap, "think")
        return ErrorEntry(snap.length, turn, at, content, "think", error=error)

    state.commit(make)


def close_stopped(state: Recorder, stopped: StoppedByPermission, text: str) -> None:
    """Record a refusal that stops the turn: the stop, the refused call with *text*, the others as cancelled.

    All of it is seen and saved as one. The stop comes first, so whoever finds only a part of it in a torn file knows
    what the rest was.
    """

    def stop(snap: Snapshot, at: datetime) -> Entry | None:
        return None if snap.finished or snap.stopped == stopped else StopEntry(snap.length, snap.turn, at, stopped)

    call = stopped.call
    why = f"(cancelled: the refusal of {call.name} stopped the turn"
    texts = {True: f"{why}) {MAY_HAVE_RUN}", False: f"{why}, and this call did not run)"}
    others = [
        closing(state, other, ToolOutcome.CANCELLED, texts[other.id in state.begun_calls])
        for other in state.pending_calls
        if other.id != call.id
    ]
    refused = closing(state, call, ToolOutcome.DENIED, text, stopped.permission)
    state.commit_all([stop, refused, *others])


def close_after_crash(state: Recorder) -> None:
    """Close what was under way when the process that wrote this history ended."""
    snap = state.snapshot_now()
    if isinstance(snap.stopped, StoppedByPermission) and snap.stopped.call in snap.calls:
        close_stopped(state, snap.stopped, "(denied)")
    take_request_back(state, "Aborted: the process ended while the request waited for its reply")
    close_pending(state, ToolOutcome.ABORTED, "aborted: the process ended during this call")

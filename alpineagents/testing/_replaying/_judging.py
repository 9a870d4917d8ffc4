"""What becomes of an entry that today's code makes: it is the recorded one, or the replay is over.

What is put in before it, or taken for it, is decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import attrs

from ..._errors import BudgetError
from ...record._entries import (
    Entry,
    ErrorEntry,
    ExtraDataEntry,
    MessageEntry,
    ModelReplyEntry,
    ModelRequestEntry,
    StopEntry,
    Stopped,
    StoppedByBudget,
    ToolResultEntry,
)
from ...record._snapshot import Snapshot
from ...run._budget import budget_text
from ._fits import fits, is_beside, is_closed, is_from_outside, is_interrupt
from ._record import Over, Record

if TYPE_CHECKING:
    from ...state import Make


def judged(record: Record, make: Make, restored: Snapshot | None) -> Entry | None:
    """Compare what *make* makes with the record, and have the State take the recorded entry if it fits.

    Raises:
        Over: it doesn't, or the record has ended.
        BudgetError: the record says that the budget's seconds were over.
    """
    put_in: list[Entry] = []
    while not record.is_over:
        snap, old = record.state.snapshot_now(), record.next()
        new = make(snap, _time(snap, old))
        if new is None:
            return None
        if old is not None and fits(new, old, record.ignore):
            return _taken(record, new, old, restored)
        if (claimed := _claimed(record, new)) is not None:
            return claimed
        if _is_interrupt_now(record, new):
            record.cut()
        elif old is None:
            _ends_with(record, new, put_in)
        elif is_from_outside(old):
            put_in.append(old)
            record.late.append(record.position)
            record.put_in_as_given()
        elif _ended_beside_a_failure(record, old) and (is_closed(new) or not isinstance(new, ToolResultEntry)):
            record.put_in()
        elif isinstance(old, ErrorEntry) and is_beside(old) and _has_failed(record):
            record.put_in_as_given()  # of a tool that was asking in that moment
        elif is_interrupt(old) and not isinstance(new, ErrorEntry):
            record.cut()
        elif isinstance(new, StopEntry):
            _differs(record, new, put_in)
        elif (error := out_of_time(record)) is not None and isinstance(new, ModelRequestEntry):
            raise error
        elif record.next() is old:
            _differs(record, new, put_in)
    raise Over


def _ended_beside_a_failure(record: Record, entry: Entry) -> bool:
    """Whether it is the result of a call that ended in the very moment in which another one failed."""
    return record.is_result_of_pending(entry) and not is_closed(entry) and _has_failed(record)


def _has_failed(record: Record) -> bool:
    """Whether something was raised since the last reply."""
    for entry in reversed(record.state.history):
        if isinstance(entry, ErrorEntry | ModelReplyEntry):
            return isinstance(entry, ErrorEntry)
    return False


def _may_be_cancelled(record: Record) -> bool:
    """Whether the run may have been cancelled here: that isn't recorded where a request of it just was."""
    rest = record.entries[record.position : record.end]
    if not all(is_from_outside(entry) or is_closed(entry) for entry in rest):
        return False
    for entry in reversed(record.state.history):
        if isinstance(entry, ErrorEntry):
            return entry.content == "Cancelled"
        if not isinstance(entry, MessageEntry | ExtraDataEntry | ToolResultEntry):
            return False
    return False


def _taken(record: Record, new: Entry, old: Entry, restored: Snapshot | None) -> Entry:
    """Have the State take the recorded entry, with the exception of today: who raised it looks for that one."""
    entry = old
    if isinstance(new, ErrorEntry | ToolResultEntry) and isinstance(old, ErrorEntry | ToolResultEntry):
        entry = attrs.evolve(old, error=new.error)
    record.state.take(entry, restored or record.restored(old))
    if isinstance(entry, ToolResultEntry):
        record.spend(entry)
    record.after()
    return entry


def _claimed(record: Record, new: Entry) -> Entry | None:
    """Return what was put in too early, since everybody waited, where it is the code itself that makes it."""
    for entry in record.claimable:
        if fits(new, entry, record.ignore):
            record.claimable.remove(entry)
            record.given.remove(entry)
            return entry
    return None


def _ends_with(record: Record, new: Entry, put_in: Sequence[Entry]) -> None:
    """The record of this run has ended, and the code goes on."""
    if record.is_open_at(record.end) or not _has_an_end(record):
        record.cut()
    else:
        _differs(record, new, put_in)


def _has_an_end(record: Record) -> bool:
    """Whether the recorded run has an end, as far as one can tell: else its process died between two turns."""
    stopped = record.state.snapshot_now().stopped
    return stopped is not None or not record.leaves_a_stop


def _is_interrupt_now(record: Record, new: Entry) -> bool:
    """Whether it tells of Ctrl+C, or exit, that came while the replay ran; it comes out of that, then."""
    error = new.error if isinstance(new, ErrorEntry) else None
    if not isinstance(error, KeyboardInterrupt | SystemExit) or any(error is one for one in record.raised):
        return False
    record.interrupt = error
    return True


def out_of_time(record: Record) -> BudgetError | None:
    """Return what a request gets when the budget's seconds are over, if they are.

    They pass faster now, so the stop is put in where it stands. That of another budget is a difference.
    """
    rest = record.entries[record.position : record.end]
    stop = next((entry for entry in rest if not is_from_outside(entry)), None)
    if isinstance(stop, StopEntry) and _is_of_seconds(record, stop.content):
        while record.put_in() is not stop:
            pass
    stopped = record.state.snapshot_now().stopped
    if not isinstance(stopped, StoppedByBudget) or not _is_of_seconds(record, stopped):
        return None
    return BudgetError(f"no request was sent: {budget_text(stopped)}")


def _is_of_seconds(record: Record, stopped: Stopped | None) -> bool:
    return isinstance(stopped, StoppedByBudget) and (stopped.what, stopped.limit) == ("seconds", record.seconds)


def _differs(record: Record, new: Entry, put_in: Sequence[Entry]) -> None:
    """End the replay with the difference, told by the entry that is most like the new one."""
    if _may_be_cancelled(record):
        record.cut()
        return
    seq = record.position
    like = [entry for entry in put_in if type(entry) is type(new)]
    if isinstance(new, ToolResultEntry):
        rest = record.entries[seq : record.end]
        like = [entry for entry in rest if isinstance(entry, ToolResultEntry) and entry.call.id == new.call.id]
    record.differ(like[0].seq if like else seq, new)


def _time(snap: Snapshot, old: Entry | None) -> datetime:
    """When the entry was made that comes next."""
    if old is not None:
        return old.at
    if snap.updated_at is None:
        raise AssertionError("a record that is replayed isn't empty")
    return snap.updated_at

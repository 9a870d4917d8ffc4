"""fold(), the only code that may make a Snapshot.

Invariant: a Snapshot is fold() over its entries and nothing else, so a State read from a store and one watched live
are equal. No clock, no chance, no I/O.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import assert_never

from .._errors import IllegalEntryError
from ._blocks import ToolResultBlock
from ._conversation import cleared, compacted, fault_in_saying, first_fault
from ._entries import (
    ContextChange,
    ContextChangeEntry,
    Entry,
    ErrorEntry,
    ExchangeEntry,
    ExtraDataEntry,
    MessageEntry,
    ModelEventEntry,
    ModelReplyEntry,
    ModelRequestEntry,
    RunStartEntry,
    StopEntry,
    StoppedByFinish,
    ToolResultEntry,
    UnknownEntry,
)
from ._frozen import FrozenDict
from ._growing import grown
from ._messages import NO_USAGE, Message
from ._snapshot import NO_IDS, Snapshot


def replay(entries: Iterable[Entry]) -> Snapshot:
    """Fold *entries* from the start.

    Raises:
        IllegalEntryError: one of them can't follow those before it; the message has its position.
    """
    last = deque(snapshots(entries), maxlen=1)
    return last[0] if last else Snapshot()


def snapshots(entries: Iterable[Entry]) -> Iterator[Snapshot]:
    """Yield the Snapshot after each of *entries*; IllegalEntryError as in ``replay``."""
    entries = list(entries)
    # The moments that are gone back to are kept: replayed anew for each restore, a few dozen of them would never end.
    wanted = {entry.content.restored_to for entry in entries if type(entry) is ContextChangeEntry}
    kept: dict[int | None, Snapshot] = {}
    snapshot = Snapshot()
    for entry in entries:
        if snapshot.length in wanted:
            kept[snapshot.length] = snapshot
        restored = kept.get(entry.content.restored_to) if type(entry) is ContextChangeEntry else None
        snapshot = fold(snapshot, entry, restored=restored)
        yield snapshot


def turn_of_error(snapshot: Snapshot, action: str) -> int:
    """Return the turn of an ErrorEntry that is recorded now: one of ``think`` takes the open request back."""
    return snapshot.turn - 1 if action == "think" and snapshot.request_open else snapshot.turn


def fold(snapshot: Snapshot, entry: Entry, *, restored: Snapshot | None = None) -> Snapshot:
    """Return the Snapshot with *entry* applied. O(1), except where an entry rewrites the messages.

    Args:
        snapshot: The moment before; unchanged.
        entry: What happened next.
        restored: The Snapshot that a ``restore`` entry goes back to, which is not replayed here.

    Raises:
        IllegalEntryError: *entry* can't follow.
    """
    try:
        if entry.seq != snapshot.length:
            raise IllegalEntryError(f"seq should be {snapshot.length}")
        if entry.at.tzinfo is None:
            raise IllegalEntryError(f"at {entry.at} has no time zone")
        if snapshot.updated_at is not None and entry.at < snapshot.updated_at:
            raise IllegalEntryError(f"at {entry.at} is before {snapshot.updated_at}, that of the entry before it")
        new = _applied(snapshot, entry, restored)
        if entry.turn != new.turn:
            raise IllegalEntryError(f"turn {entry.turn} should be {new.turn}")
        if new.created_at is None:
            new.created_at = entry.at
        new.updated_at = entry.at
        new._entries = grown(snapshot._entries, snapshot.length, entry)
        new.length = entry.seq + 1
    except IllegalEntryError as error:
        raise IllegalEntryError(f"entry {entry.seq}: {error}") from None
    return new


def _applied(old: Snapshot, entry: Entry, restored: Snapshot | None) -> Snapshot:
    new = old._copy()
    match entry:
        case ModelRequestEntry():
            _open_request(new)
            new.shown_tools = entry.tools
        case ModelReplyEntry():
            _take_reply(new, entry)
        case ToolResultEntry():
            _take_result(new, entry)
        case MessageEntry():
            if fault := fault_in_saying(entry.content):
                raise IllegalEntryError(fault)
            if new.request_open or new.calls:
                new.waiting = grown(new.waiting, new.waiting_length, entry)
                new.waiting_length += 1
            else:
                _add(new, entry.content)
        case RunStartEntry():
            if new.finished:
                raise IllegalEntryError("a run can't start on a finished State")
            if new.last_run is None:
                new.parent_id, new.parent_call_id = entry.parent_id, entry.parent_call_id
            new.last_run = entry.content
            new.stopped = None
        case StopEntry():
            _stop(new, entry)
        case ExtraDataEntry():
            removed = set(entry.removed)
            kept = {key: value for key, value in new.extra_data.items() if key not in removed}
            new.extra_data = FrozenDict(kept | entry.content)
        case ErrorEntry():
            new.usage += entry.usage
            if entry.action == "think" and new.request_open:
                new.request_open = False
                new.turn -= 1
                _let_waiting_in(new)
        case ExchangeEntry() | ModelEventEntry():
            new.usage += entry.usage
        case ContextChangeEntry():
            return _change_context(old, new, entry.content, restored)
        case UnknownEntry():
            pass
        case _:
            assert_never(entry)
    return new


def _add(new: Snapshot, message: Message) -> None:
    new._messages = grown(new._messages, new._messages_length, message)
    new._messages_length += 1


def _let_waiting_in(new: Snapshot) -> None:
    if new.waiting_length:
        for entry in islice(new.waiting, new.waiting_length):
            _add(new, entry.content)
        new.waiting = []
        new.waiting_length = 0


def _open_request(new: Snapshot) -> None:
    if new.finished:
        raise IllegalEntryError("request on a finished State")
    if new.request_open:
        raise IllegalEntryError("request while one is open")
    if new.calls:
        raise IllegalEntryError(f"request while call {new.pending_calls[0].id!r} has no result")
    if not new._messages_length:
        raise IllegalEntryError("request without messages")
    new.request_open = True
    new.turn += 1
    new.late = ()


def _take_reply(new: Snapshot, entry: ModelReplyEntry) -> None:
    if not new.request_open:
        raise IllegalEntryError("reply without a request")
    reply = entry.content
    calls = reply.tool_calls
    if len(calls) != len(reply.blocks) and any(type(block) is ToolResultBlock for block in reply.blocks):
        raise IllegalEntryError("a reply holds tool calls, not their results")
    ids = frozenset([call.id for call in calls]) if calls else NO_IDS
    if len(ids) != len(calls):
        raise IllegalEntryError("a call id comes twice in one reply")
    for call_id in ids:
        if new.knows_call(call_id):
            raise IllegalEntryError(f"call id {call_id!r} came before")
        new._call_ids[call_id] = entry.seq
    new.request_open = False
    new.usage += reply.usage
    _add(new, Message("assistant", reply.blocks, reply.cut_off))
    if reply.usage.input_tokens:
        new.context_count = reply.usage.input_tokens + reply.usage.output_tokens, new._messages_length
    if calls:
        new.calls, new._open_ids = calls, ids
        new._results, new._results_length = {}, 0
    else:
        if not new.answer_is_given:
            new.answer = reply.text
        _let_waiting_in(new)


def _take_result(new: Snapshot, entry: ToolResultEntry) -> None:
    call_id = entry.call.id
    if entry.usage is not NO_USAGE:
        new.usage += entry.usage
    if entry.late:
        if new.is_pending(call_id) or not new.knows_call(call_id):
            raise IllegalEntryError(f"late result of {call_id!r}, which isn't a closed call")
        new.late = (*new.late, entry)
        return
    if not new.is_pending(call_id):
        raise IllegalEntryError(f"result of {call_id!r}, which isn't a pending call")
    block = ToolResultBlock(call_id, entry.content, entry.is_error)
    if len(new._results) != new._results_length:
        new._results = dict(islice(new._results.items(), new._results_length))
    new._results[call_id] = block
    new._results_length += 1
    if new._results_length == len(new.calls):
        results = new._results
        _add(new, Message("tool", tuple([results[call.id] for call in new.calls])))
        new.calls, new._open_ids = (), NO_IDS
        _let_waiting_in(new)


def _stop(new: Snapshot, entry: StopEntry) -> None:
    if isinstance(entry.content, StoppedByFinish):
        new.finished = True
        if entry.content.answer is not None:
            new.answer, new.answer_is_given = entry.content.answer, True
    elif new.finished:
        raise IllegalEntryError(f"stop {entry.content!r} on a finished State")
    new.stopped = entry.content


def _change_context(old: Snapshot, new: Snapshot, change: ContextChange, restored: Snapshot | None) -> Snapshot:
    if change.kind == "import":
        return _import(new, change)
    if new.request_open or new.calls:
        raise IllegalEntryError(f"{change.kind} while calls are pending or a request is open")
    match change.kind:
        case "restore":
            return _restore(old, change, restored)
        case "compact":
            new._messages = compacted(old.messages, change)
        case "clear_tool_results":
            new._messages = cleared(old.messages, change.cleared)
        case _:
            assert_never(change.kind)
    new._messages_length = len(new._messages)
    new.context_count = None
    new.usage += change.usage
    return new


def _import(new: Snapshot, change: ContextChange) -> Snapshot:
    if new.length:
        raise IllegalEntryError("messages can only be imported at the start of a history")
    if fault := first_fault(change.messages):
        raise IllegalEntryError(fault)
    for message in change.messages:
        _add(new, message)
        for call in message.tool_calls:
            new._call_ids[call.id] = 0
    return new


def _restore(old: Snapshot, change: ContextChange, target: Snapshot | None) -> Snapshot:
    if target is None:
        raise IllegalEntryError(f"restores to a history of {change.restored_to} entries, but there are {old.length}")
    if target.request_open or target.calls:
        raise IllegalEntryError("restores to a moment in the middle of a turn")
    new = target._copy()
    new._messages = target._messages[: target._messages_length]
    new._call_ids = old._call_ids
    new.usage = old.usage
    new.late = old.late
    new.last_run = old.last_run
    new.parent_id = old.parent_id
    new.parent_call_id = old.parent_call_id
    new.created_at = old.created_at
    return new

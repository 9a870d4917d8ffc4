"""What is checked in a simulation, after every step of a task, of all its States and of its store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Final, final

import trio

from ...record._codec import encode_entry
from ...record._entries import Entry, ErrorEntry, ModelReplyEntry, StopEntry, ToolResultEntry
from ...record._snapshot import Snapshot
from ...state import Recorder
from ._lives import Life, life
from ._watched import CONVERSATION, ENDED, ONCE, PREFIX, REPLAY, SAVED, BrokenInvariantError, Watched


@contextmanager
def hearing(grown: Callable[[Recorder], None]) -> Iterator[None]:
    """Call *grown* after each commit of any State, in the block."""
    tell = Recorder._tell

    def told(state: Recorder) -> None:
        grown(state)
        tell(state)

    setattr(Recorder, "_tell", told)  # noqa: B010  # nothing else hears of every State there is
    try:
        yield
    finally:
        setattr(Recorder, "_tell", tell)  # noqa: B010


@final
class Checks:
    """All States of one run of a scenario."""

    def __init__(self) -> None:
        self.counted: Final[Counter[str]] = Counter()
        """How often each invariant was checked."""
        self._watched: Final[dict[Recorder, Watched]] = {}
        self._grown: dict[Recorder, Life | None] = {}
        self._running: Final[dict[Recorder, None]] = {}
        self._durable: Final[dict[str, list[bytes]]] = {}
        self._acknowledged: Final[dict[str, dict[int, bytes]]] = {}
        self._ran: Final[set[tuple[str, str]]] = set()

    def grown(self, state: Recorder) -> None:
        """Note that *state* has new entries; they are looked at when the step of the task is over."""
        self._grown[state] = life.get()

    def states(self) -> list[Recorder]:
        """Return every State that has grown, in the order in which each began."""
        return list(self._watched)

    def after_step(self, tasks: dict[trio.lowlevel.Task, None], *, store_is_sound: Callable[[], bool]) -> None:
        """Check what the step of a task has changed.

        Args:
            tasks: All that run.
            store_is_sound: Whether the store hasn't failed so far.
        """
        if self._grown:
            grown, self._grown = self._grown, {}
            for state, process in grown.items():
                self._check_growth(state, process)
        for watched in self._watched.values():
            if watched.state.saved > watched.saved:
                self._check_saved(watched)
        for state in [state for state in self._running if not state.running]:
            del self._running[state]
            self._check_ended(state, tasks, store_is_sound=store_is_sound)

    def at_end(self) -> None:
        """Check what can be checked once: trips through JSON, and that what was acknowledged is still there."""
        for watched in self._watched.values():
            watched.check_trip()
            self.counted[REPLAY] += 1
        for state_id in self._acknowledged:
            self.check_kept(state_id)

    def fingerprint(self) -> str:
        """Return what tells the histories of all States apart from others."""
        digest = sha256()
        for watched in self._watched.values():
            for raw in [watched.state.id.encode(), *watched.raws()]:
                digest.update(raw + b"\n")
        return digest.hexdigest()

    # What is saved

    def wrote(self, state_id: str, first_seq: int, entries: list[bytes]) -> None:
        """Note what a store has made durable."""
        there = self._durable.setdefault(state_id, [])
        there.extend(entries[len(there) - first_seq :])

    def removed(self, state_id: str) -> None:
        """Note that a State was deleted: nothing of it has to be there any more."""
        self._durable.pop(state_id, None)
        self._acknowledged.pop(state_id, None)

    def acknowledged(self, state: Recorder, entry: Entry) -> None:
        """Note that *entry* was acknowledged, and check that it is saved."""
        raw = encode_entry(entry)
        self._acknowledged.setdefault(state.id, {})[entry.seq] = raw
        self._check_there(state.id, entry.seq, raw, state)

    def check_loaded(self, state: Recorder) -> None:
        """Check what a store has loaded: nothing of it is open, and all that was acknowledged is there."""
        self.check_kept(state.id)
        self._check_closed(state)

    def check_kept(self, state_id: str) -> None:
        """Check that all that was acknowledged of a State is saved."""
        for seq, raw in self._acknowledged.get(state_id, {}).items():
            self._check_there(state_id, seq, raw, None)

    def check_written_ahead(self, state: Recorder, seq: int, what: str) -> None:
        """Check that entry *seq* was saved before *what* came of it."""
        self.counted[SAVED] += 1
        if len(self._durable.get(state.id, ())) <= seq:
            raise BrokenInvariantError(
                SAVED, f"State {state.id}: {what} before entry {seq}, which led to it, was saved", state
            )

    def _check_there(self, state_id: str, seq: int, raw: bytes, state: Recorder | None) -> None:
        self.counted[SAVED] += 1
        there = self._durable.get(state_id, [])
        if len(there) <= seq or there[seq] != raw:
            what = f"the store has {len(there)} entries" if len(there) <= seq else "the store has another one there"
            raise BrokenInvariantError(SAVED, f"State {state_id}: entry {seq} was acknowledged, but {what}", state)

    def _check_saved(self, watched: Watched) -> None:
        """Check that the store has what the State believes it has."""
        state, start, end = watched.state, watched.saved, watched.state.saved
        watched.saved = end
        self.counted[SAVED] += 1
        there = self._durable.get(state.id, [])
        if len(there) < end or there[start:end] != [encode_entry(entry) for entry in state.history[start:end]]:
            raise BrokenInvariantError(
                SAVED, f"State {state.id}: {end} entries count as saved, but the store has {len(there)} of them", state
            )

    def check_given_back(self, state_ids: list[str]) -> None:
        """Check that a process that has ended holds no lease any more."""
        self.counted[ENDED] += 1
        if state_ids:
            raise BrokenInvariantError(ENDED, f"the store still holds {', '.join(state_ids)} for a process that ended")

    # What ran

    def runs(self, state: Recorder, call_id: str) -> None:
        """Check that a call that begins has not been through already."""
        self.counted[ONCE] += 1
        if (state.id, call_id) in self._ran:
            raise BrokenInvariantError(ONCE, f"State {state.id}: call {call_id} runs again", state)

    def ran(self, state: Recorder, call_id: str) -> None:
        """Note that the tool of a call has returned."""
        self._ran.add((state.id, call_id))

    # One State

    def _check_growth(self, state: Recorder, process: Life | None) -> None:
        watched = self._watched.get(state)
        if watched is None:
            watched = self._watched[state] = Watched(state)
        watched.process = process
        if state.running:
            self._running[state] = None
        watched.check_growth()
        for invariant in (REPLAY, PREFIX, CONVERSATION, ONCE):
            self.counted[invariant] += 1

    def _check_ended(
        self, state: Recorder, tasks: dict[trio.lowlevel.Task, None], *, store_is_sound: Callable[[], bool]
    ) -> None:
        """Check what a run has left, now that it has ended."""
        self._check_closed(state)
        if state.is_at_work():  # somebody else does something with it
            return
        left = [task.name for task in tasks if task.name in (f"keeper of {state.id}", f"lease of {state.id}")]
        if left:
            raise BrokenInvariantError(ENDED, f"State {state.id}: still running: {', '.join(left)}", state)
        process = self._watched[state].process
        if state.store is not None and store_is_sound() and not (process is not None and process.crashed):
            last = _last_of_run(state.snapshot_now())
            if last is not None and state.saved <= last.seq:
                raise BrokenInvariantError(
                    ENDED, f"State {state.id}: entry {last.seq} ({last.kind}) isn't saved: {state.saved} are", state
                )

    def _check_closed(self, state: Recorder) -> None:
        self.counted[ENDED] += 1
        snap = state.snapshot_now()
        if snap.request_open:
            raise BrokenInvariantError(ENDED, f"State {state.id}: a request is still open", state)
        if snap.calls:
            calls = ", ".join(call.name for call in snap.pending_calls)
            raise BrokenInvariantError(ENDED, f"State {state.id}: calls are still pending: {calls}", state)


def _last_of_run(snap: Snapshot) -> Entry | None:
    """Return the last entry that a run itself has recorded."""
    kinds = (ErrorEntry, ModelReplyEntry, StopEntry, ToolResultEntry)
    return next((entry for entry in reversed(snap.history) if isinstance(entry, kinds)), None)

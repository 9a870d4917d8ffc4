"""A saved history that is gone through again, entry by entry, and the State that grows along it.

Invariant: the history of the replayed State is the beginning of the record. What today's code makes is compared with
the entry that comes next; where it fits, the recorded one is taken. What nobody in a run makes (a message of the
person's, say) is put in at its place: before what comes behind it in the record.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final, Protocol, final

import trio

from ...record._entries import (
    ContextChangeEntry,
    Entry,
    ErrorEntry,
    ExchangeEntry,
    ModelEventEntry,
    ToolResultEntry,
)
from ...record._messages import NO_USAGE
from ...record._snapshot import Snapshot
from ...run._setup import Setup
from ...state import State
from ._difference import Difference, difference
from ._fits import goes_on, is_beside, is_from_outside, is_interrupt

if TYPE_CHECKING:
    from ...state import Make


@final
class Over(BaseException):
    """The replay, or that of a run, is over: nothing that the run does from here on counts."""


class Judge(Protocol):
    """Decides about what today's code makes."""

    def __call__(self, record: Record, make: Make, restored: Snapshot | None) -> Entry | None:
        """Have the State take the recorded entry if that is the one; else raise."""


@final
class Record:
    """The saved history, how far the replay is in it, and who waits for what in it."""

    def __init__(self, saved: State, judge: Judge, ignore: Collection[str], early: Collection[int]) -> None:
        snap = saved.snapshot_now()
        self.entries: Final = tuple(snap.history)
        self.state: Final = ReplayedState(saved.id, self, judge)
        self.end = len(self.entries)
        """Where the run that is replayed ends, at the latest: where the next one starts."""
        self.difference: Difference | None = None
        self.interrupt: BaseException | None = None
        """Ctrl+C, or exit, that came while the replay ran."""
        self.scope = trio.CancelScope()
        """Of the run that is replayed."""
        self.late: list[int] = []
        """Positions of what was put in only when the code was about to do something else."""
        self.given: list[Entry] = []
        """What was put in during runs."""
        self.raised: list[BaseException] = []
        """The recorded exceptions that were raised again."""
        self.leaves_a_stop = True
        """Whether the loop always records why it stops, as one made with ``@loop`` does."""
        self._is_open_at_end = snap.request_open or bool(snap.calls)
        self.ignore: Final = ignore
        """What isn't compared."""
        self._early: Final = early
        self._is_over = False
        self.seconds: float | None = None
        """What the run's budget allows."""
        self.waits_for_deadline = False
        """Whether a request waits to be cancelled by the loop's own deadline."""
        self._waits: set[int] = set()
        """Positions of what is waited for; that of the end: for what isn't in the record."""
        self.claimable: list[Entry] = []
        """What was put in since everybody waited: it may turn out that the code makes it itself."""
        self._moved = trio.Event()
        self._token = trio.lowlevel.current_trio_token()
        kept = {entry.content.restored_to for entry in self.entries if isinstance(entry, ContextChangeEntry)}
        self._kept: dict[int | None, Snapshot | None] = dict.fromkeys(kept)
        if 0 in self._kept:
            self._kept[0] = self.state.snapshot_now()

    # Where it is

    @property
    def position(self) -> int:
        """How many entries the replayed State has."""
        return self.state.snapshot_now().length

    @property
    def is_over(self) -> bool:
        """Whether nothing counts any more."""
        return self._is_over

    def next(self) -> Entry | None:
        """Return what comes next in the run that is replayed; ``None`` at its end."""
        position = self.position
        return self.entries[position] if position < self.end else None

    def is_awaited(self) -> bool:
        """Whether somebody waits for what comes next."""
        return self.position in self._waits

    def begin_run(self, end: int) -> None:
        """Begin to replay the run whose entries end before position *end*."""
        self.end = end
        self.scope = trio.CancelScope()
        self._is_over = False
        self.claimable = []

    # What ends it

    def cut(self) -> None:
        """End the run here, as the end of its process did; what follows in the record is taken as it is."""
        self._is_over = True
        self.scope.cancel()
        self._wake()

    def differ(self, seq: int, new: Entry | None, says: str | None = None) -> None:
        """End the replay: here is the difference."""
        if not self._is_over:
            self.difference = difference(self.entries[: self.end], seq, new, says=says, ignore=self.ignore)
        self.cut()

    def differ_here(self, says: str) -> None:
        """End the replay: the code does what it *says*, whatever came from outside before."""
        while (entry := self.next()) is not None and is_from_outside(entry):
            self.late.append(self.position)
            self.put_in_as_given()
        self.differ(self.position, None, says)

    def is_open_at(self, end: int) -> bool:
        """Whether the record ends there before the run did: it was taken in the middle of a turn."""
        return end == len(self.entries) and self._is_open_at_end

    # What is put in

    def put_in(self) -> Entry:
        """Have the State make the next recorded entry by itself."""
        entry = self._take_next()
        self.after()
        return entry

    def put_in_as_given(self) -> None:
        """The same for what was made during a run, beside it."""
        self.given.append(self.put_in())

    def _take_next(self) -> Entry:
        entry = self.entries[self.position]
        self.state.take(entry, self.restored(entry))
        self.spend(entry)
        return entry

    def spend(self, entry: Entry) -> None:
        """Count for the run's budget what was used by who isn't asked now: subagents, and tools that ask."""
        setup = self.state.run_setup
        if not isinstance(setup, Setup) or setup.purse is None:
            return
        if isinstance(entry, ExchangeEntry | ErrorEntry) and (entry.kind == "ask" or entry.usage != NO_USAGE):
            setup.purse.spend(max(1, entry.usage.requests), entry.usage)
        elif isinstance(entry, ToolResultEntry) and entry.usage != NO_USAGE:
            setup.purse.spend(entry.usage.requests, entry.usage)

    def after(self) -> None:
        """See to what follows an entry that has just been made."""
        position = self.position
        if position in self._kept:
            self._kept[position] = self.state.snapshot_now()
        if position in self._early and position < self.end:
            self.put_in_as_given()
        else:
            self._advance()
        self._wake()

    def restored(self, entry: Entry) -> Snapshot | None:
        """Return what a restore goes back to."""
        return self._kept.get(entry.content.restored_to) if isinstance(entry, ContextChangeEntry) else None

    def _wake(self) -> None:
        moved, self._moved = self._moved, trio.Event()
        if trio.lowlevel.in_trio_run() and trio.lowlevel.current_trio_token() is self._token:
            moved.set()
        else:  # a thread of the loop's made it
            self._token.run_sync_soon(moved.set)

    # Who waits

    async def turn_of(self, settles: Callable[[Entry], bool]) -> Entry | None:
        """Wait until what settles this comes next, and return it; ``None`` where nothing in the run does.

        Checkpoint: yes.

        Raises:
            Over: the replay is.
        """
        await trio.lowlevel.checkpoint()
        places = range(self.position, self.end)
        place = next((at for at in places if at not in self._waits and settles(self.entries[at])), self.end)
        if place == self.end and not self.is_open_at(place):
            return None
        self._waits.add(place)
        try:
            self._advance()
            while (self.position < place or place == self.end) and not self._is_over:
                moved = self._moved
                await moved.wait()
            if self._is_over:
                raise Over
        finally:
            self._waits.discard(place)
        return self.entries[place] if self.position == place else None

    def _advance(self) -> None:
        """While somebody waits, put in what came meanwhile, up to what somebody waits for."""
        while self._waits and not self._is_over:
            entry = self.next()
            if entry is None or self.position in self._waits:
                return
            if not (is_from_outside(entry) or isinstance(entry, ModelEventEntry)) or self._has_just_failed():
                return
            self.late.append(self.position)
            self.given.append(self._take_next())
            self.claimable.append(entry)
            if self.position in self._kept:
                self._kept[self.position] = self.state.snapshot_now()
            self._wake()

    def _has_just_failed(self) -> bool:
        """Whether a call has just failed: those that are waited for are about to be cancelled."""
        before = self.entries[self.position - 1]
        return isinstance(before, ErrorEntry) and before.action == "use_tools"

    async def keep_going(self) -> None:
        """Put in what comes next whenever nothing else moves, until cancelled."""
        from trio.testing import wait_all_tasks_blocked  # imports pytest, where there is one: only for who replays

        while True:
            await wait_all_tasks_blocked()
            moved = self._moved
            if not self._is_over and not self._went_on():
                await moved.wait()

    def _went_on(self) -> bool:
        """Do what lets a run go on in which everybody waits; return whether there was something."""
        entry = self.next()
        if self.waits_for_deadline:
            return False
        if entry is None:
            if self._waits:
                self.cut()
            return False
        if is_from_outside(entry):
            self.late.append(self.position)
            self.claimable.append(entry)
            self.put_in_as_given()
        elif is_beside(entry) and (self._waits or isinstance(entry, ErrorEntry)):
            self.put_in_as_given()  # a question that a tool asked, say
        elif self._waits and self.is_result_of_pending(entry):
            self.put_in()  # of a call that had ended before those that are waited for now
        elif isinstance(entry, ErrorEntry) and entry.action == "run" and is_interrupt(entry) and not self._waits:
            self.interrupted(entry)
        elif self._waits:
            waited = self.entries[min(self._waits)]
            self.differ(self.position, None, f"the run waits for the {waited.kind} of entry {waited.seq}, too early")
        else:
            return False
        return True

    def is_result_of_pending(self, entry: Entry) -> bool:
        """Whether it is the result of a call that has none yet."""
        return isinstance(entry, ToolResultEntry) and self.state.snapshot_now().is_pending(entry.call.id)

    def interrupted(self, entry: ErrorEntry) -> None:
        """Let what interrupted the run then interrupt it now."""
        if entry.content == "Cancelled":
            self.scope.cancel()
        else:
            self.cut()

    def run_ended_with(self, seq: int) -> bool:
        """Whether the run did no more than end after entry *seq*."""
        return not goes_on(self.entries[seq + 1 : self.end])


@final
class ReplayedState(State):  # type: ignore[misc]  # final for users: what is replayed has to be a State
    """A State whose changes are compared with a record."""

    __slots__ = ("_judge", "_record")

    def __init__(self, state_id: str, record: Record, judge: Judge) -> None:
        super().__init__(id=state_id)
        self._record = record
        self._judge = judge

    def take(self, entry: Entry, restored: Snapshot | None) -> None:
        """Make *entry*, as it is."""
        super().commit(lambda snap, at: entry, restored=restored)

    def commit(self, make: Make, *, restored: Snapshot | None = None) -> Entry | None:
        """Record what *make* makes, if the record has it. Raises Over where the replay is."""
        with self._lock:
            return self._judge(self._record, make, restored)

    def commit_all(self, makes: Sequence[Make]) -> list[Entry]:
        """Record what *makes* make, one after the other."""
        return [entry for make in makes if (entry := self.commit(make)) is not None]

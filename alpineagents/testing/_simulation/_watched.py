"""One State of a simulation: what was seen of it, and whether it keeps what the library promises.

It has a shadow: the same entries, folded anew. So replaying is checked entry by entry, at the cost of those that are
new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, final

from ..._errors import IllegalEntryError
from ...record._codec import decode_history, encode_entry
from ...record._conversation import Checker
from ...record._entries import ContextChangeEntry, Entry, ToolResultEntry
from ...record._growing import Prefix
from ...record._messages import Message
from ...record._replay import fold
from ...record._snapshot import Snapshot
from ...state import Recorder, State
from ._lives import Life

REPLAY: Final = "1 replay gives the same"
PREFIX: Final = "2 history only grows"
CONVERSATION: Final = "3 conversations are well formed"
SAVED: Final = "4 what is acknowledged is saved"
ENDED: Final = "5 a run that ended left nothing open"
ONCE: Final = "6 a call runs once and has one result"
INVARIANTS: Final = (REPLAY, PREFIX, CONVERSATION, SAVED, ENDED, ONCE)

_LISTS: Final = ("waiting",)
_FIELDS: Final = (
    *[name for name in Snapshot.__slots__ if not name.startswith("_") and name not in _LISTS],
    "pending_calls",
)
"""Of a Snapshot, all that two have to agree in, the lists aside."""


class BrokenInvariantError(AssertionError):
    """An invariant doesn't hold.

    Attributes:
        invariant: Which one.
        state: The State in which it was seen, if it was in one.
    """

    def __init__(self, invariant: str, text: str, state: Recorder | None = None) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant: str = invariant
        self.state: Recorder | None = state


@final
class Watched:
    """One State, what was seen of it, and its shadow."""

    def __init__(self, state: Recorder) -> None:
        self.state: Final = state
        self.saved = 0
        """How many entries it was seen to hold for saved."""
        self.process: Life | None = None
        """The process that acted on it last."""
        self._entries: list[Entry] = []
        self._moments: list[Snapshot] = [Snapshot()]
        self._messages: tuple[Prefix[Message], Prefix[Message]] | None = None
        self._checker = Checker()
        self._results: Counter[str] = Counter()

    def check_growth(self) -> None:
        """Look at what is new; BrokenInvariantError where it isn't right."""
        snap = self.state.snapshot_now()
        self._check_prefix(snap)
        for entry in snap.history[len(self._entries) :]:
            self._follow(entry)
        self._check_values(snap)
        self._check_messages(snap)

    def check_trip(self) -> None:
        """Send the whole history through JSON."""
        raws = [encode_entry(entry) for entry in self.state.history]
        loaded = State(history=decode_history(raws))
        if loaded.history != self.state.history or [encode_entry(entry) for entry in loaded.history] != raws:
            raise self._broken(REPLAY, "its history is another one after a trip through JSON")
        _compare(loaded.snapshot_now(), self.state.snapshot_now(), self._broken)

    def raws(self) -> list[bytes]:
        """Return its history as it is saved."""
        return [encode_entry(entry) for entry in self.state.history]

    def _broken(self, invariant: str, text: str) -> BrokenInvariantError:
        return BrokenInvariantError(invariant, f"State {self.state.id}: {text}", self.state)

    def _check_prefix(self, snap: Snapshot) -> None:
        seen, history = self._entries, snap.history
        if len(history) < len(seen):
            raise self._broken(PREFIX, f"it had {len(seen)} entries, and has {len(history)}")
        for entry, now in zip(seen, history, strict=False):
            if entry is not now:
                raise self._broken(PREFIX, f"entry {entry.seq} was replaced: {now!r:.200}")

    def _follow(self, entry: Entry) -> None:
        restored = None
        if type(entry) is ContextChangeEntry and entry.content.restored_to is not None:
            restored = self._moments[entry.content.restored_to]
        try:
            self._moments.append(fold(self._moments[-1], entry, restored=restored))
        except IllegalEntryError as error:
            raise self._broken(REPLAY, f"its history can't be replayed: {error}") from error
        self._entries.append(entry)
        if type(entry) is ToolResultEntry:
            self._results[entry.call.id] += 1
            if self._results[entry.call.id] > 1:  # nothing runs in threads, so no result can be late
                call = f"{entry.call.name} {entry.call.id}"
                raise self._broken(ONCE, f"call {call} got a second result, entry {entry.seq}")

    def _check_values(self, snap: Snapshot) -> None:
        _compare(self._moments[-1], snap, self._broken)

    def _check_messages(self, snap: Snapshot) -> None:
        now, shadow = snap.messages, self._moments[-1].messages
        start = 0
        if self._messages is not None and now.extends(self._messages[0]) and shadow.extends(self._messages[1]):
            start = len(self._messages[0])
        else:
            self._checker = Checker()
        self._messages = now, shadow
        if len(now) != len(shadow):
            raise self._broken(REPLAY, f"it has {len(now)} messages, replayed {len(shadow)}")
        for position in range(start, len(now)):
            if now[position] != shadow[position]:
                raise self._broken(REPLAY, f"messages[{position}] is {now[position]!r:.200}, replayed another")
            if fault := self._checker.fault_in(now[position]):
                raise self._broken(CONVERSATION, fault)
        if not snap.calls and (fault := self._checker.fault_at_end()):
            raise self._broken(CONVERSATION, fault)


def _compare(replayed: Snapshot, live: Snapshot, broken: Callable[[str, str], BrokenInvariantError]) -> None:
    for name in _FIELDS:
        if getattr(replayed, name) != getattr(live, name):
            raise broken(REPLAY, f"{name} is {getattr(live, name)!r:.200}, replayed {getattr(replayed, name)!r:.200}")

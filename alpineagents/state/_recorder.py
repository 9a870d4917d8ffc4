"""How a State records: commits, the tasks that wait for them, who acts on it, and what is saved.

Every change is a commit: the entry is made and folded under a lock that is held for microseconds, and published by
one assignment. Values are frozen before the lock. A commit that is interrupted (Ctrl+C can come after any call)
happened whole or not at all: what it may have appended lies behind the published snapshot's length and is never seen.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Final, Protocol, TypeAlias, final

import trio

from ..record._entries import Entry
from ..record._messages import NO_USAGE, Usage
from ..record._replay import fold
from ..record._snapshot import Snapshot
from ._children import Children, Span
from ._clock import utc_now
from ._saving import Home, Saving
from ._snapshot import Values
from ._turns import Turns
from ._waiters import Waiter

Make: TypeAlias = Callable[[Snapshot, datetime], Entry | None]
"""Makes an entry that fits behind a Snapshot; ``None`` for no change, ValueError to refuse."""


_NO_IDS: Final[frozenset[str]] = frozenset()


class Saver(Protocol):
    """Saves a State: the keeper of its run, or its store while it is idle."""

    async def save(self, state: Recorder) -> None:
        """Return when everything recorded so far is durable."""


class Shelf(Saver, Home, Protocol):
    """A store, as the States in it know it."""

    async def load(self, state_id: str) -> Recorder:
        """Return the State of this id."""
        ...


class Listener(Protocol):
    """Follows what a State records."""

    def notice(self) -> None:
        """Something was recorded. Called in any thread or signal handler, right after the commit."""


class Keeper(Saver, Listener, Protocol):
    """Saves a State while it runs."""


class Recorder(Values):
    """What a State is to the library's other parts: commits, waiters, who acts on it, what is saved."""

    __slots__ = (
        "_action",
        "_children",
        "_keepers",
        "_listeners",
        "_lock",
        "_run",
        "_saving",
        "_span",
        "_turns",
        "_waiters",
        "_wanted_saved",
        "begun_calls",
        "loaded",
        "run_setup",
        "saved",
        "store",
    )

    def __init__(self, state_id: str, snapshot: Snapshot) -> None:
        self._id = state_id
        self._snap = snapshot
        self._lock = threading.RLock()
        self._turns: Turns | None = None
        self._waiters: tuple[Waiter, ...] = ()
        self._run: object = None
        self._action: str | None = None
        self._keepers: tuple[Keeper, ...] = ()
        self._listeners: tuple[Listener, ...] = ()
        self._saving: Saving | None = None
        self._wanted_saved: int = 0
        self._children: Children | None = None
        self._span: Span | None = None
        self.begun_calls: frozenset[str] = frozenset([call.id for call in snapshot.pending_calls]) or _NO_IDS
        """Ids of pending calls that may have had effects, after a failure or in a history from elsewhere."""
        self.run_setup: object = None
        """What the run that is on works with; None while there is none."""
        self.store: Shelf | None = None
        """Where this State is saved; None until a run or ``store.load`` sets it."""
        self.saved: int = 0
        """How many entries that store is known to hold."""
        self.loaded: bool = False
        """Whether a store loaded it and no run followed yet."""

    # Commits

    def snapshot_now(self) -> Snapshot:
        """Return the current moment."""
        return self._snap

    def commit(self, make: Make, *, restored: Snapshot | None = None) -> Entry | None:
        """Append the entry that *make* returns and return it. No checkpoint; callable in any thread or signal handler.

        *make* may be called more than once, when a signal handler commits in between.

        Raises:
            ValueError: *make* or the replay refuses; nothing has changed.
        """
        with self._lock:
            while True:
                snap = self._snap
                entry = make(snap, _time_behind(snap))
                if entry is None:
                    return None
                new = fold(snap, entry, restored=restored)
                # No call between this comparison and the assignment: here a signal can't get in.
                if self._snap is snap:
                    self._snap = new
                    break
        self._tell()
        return entry

    def commit_all(self, makes: Sequence[Make]) -> list[Entry]:
        """Append the entries that *makes* return, in order, as one: who reads or saves sees none of them, or all.

        Otherwise as ``commit``. Each is made behind those before it.

        Raises:
            ValueError: one of them is refused; nothing has changed.
        """
        with self._lock:
            while True:
                snap = new = self._snap
                at = _time_behind(snap)
                entries: list[Entry] = []
                for make in makes:
                    if (entry := make(new, at)) is not None:
                        new = fold(new, entry)
                        entries.append(entry)
                if self._snap is snap:  # as in commit
                    self._snap = new
                    break
        self._tell()
        return entries

    def _tell(self) -> None:
        for keeper in self._keepers:
            keeper.notice()
        for listener in self._listeners:
            listener.notice()
        if self._waiters:
            self.wake_waiters()

    @contextmanager
    @trio.lowlevel.enable_ki_protection
    def heard_by(self, listener: Listener) -> Iterator[None]:
        """Tell *listener* of what is recorded from now on."""
        with self._lock:
            self._listeners = (*self._listeners, listener)
        try:
            yield
        finally:
            with self._lock:
                self._listeners = tuple([other for other in self._listeners if other is not listener])

    # Waiting

    @contextmanager
    @trio.lowlevel.enable_ki_protection
    def waiter(self) -> Iterator[Waiter]:
        """Register the running task to be woken by every change."""
        waiter = Waiter()
        with self._lock:
            self._waiters = (*self._waiters, waiter)
        try:
            yield waiter
        finally:
            with self._lock:
                self._waiters = tuple([other for other in self._waiters if other is not waiter])

    def wake_waiters(self) -> None:
        """Let everybody who waits look again."""
        for waiter in self._waiters:
            waiter.wake()

    async def wait_saved(self, length: int) -> None:
        """Return when the first *length* entries are in the State's store. Checkpoint: yes.

        Raises:
            StoreError: they couldn't be saved.
        """
        with self._lock:
            self._wanted_saved += 1
        try:
            await trio.lowlevel.checkpoint()
            while self.saved < length and (saver := self.keeper or self.store) is not None:
                await saver.save(self)
        finally:
            with self._lock:
                self._wanted_saved -= 1
            if self._waiters:
                self.wake_waiters()

    def saving(self) -> Saving:
        """Return the State's lease and the queue of its writers."""
        with self._lock:
            if self._saving is None:
                self._saving = Saving(self._lock)
            return self._saving

    def is_at_work(self) -> bool:
        """Whether somebody runs the State or saves it, or waits for that."""
        if self.running or self._keepers or self._wanted_saved:
            return True
        return self._saving is not None and self._saving.is_on()

    def visible_length(self, snapshot: Snapshot) -> int:
        """Return how many entries of *snapshot* a watcher may see: with a store, those that are durable."""
        return snapshot.length if self.store is None else min(self.saved, snapshot.length)

    def editing_turns(self) -> Turns:
        """Return whose turn it is to edit extra_data."""
        with self._lock:
            if self._turns is None:
                self._turns = Turns(self._lock)
            return self._turns

    # Calls and their subagents

    def calls_began(self, ids: Iterable[str]) -> None:
        """Note that these calls may have had effects. Only needed for what has no result of its own."""
        self.begun_calls |= {call_id for call_id in ids if self._snap.is_pending(call_id)}

    def run_begins(self) -> None:
        """Note that a run has started: what is used from now on isn't for the call that started the one before."""
        if self._span is not None:
            self._span.end(self.usage)
            self._span = None

    def child_begins(self, call_id: str, child: Recorder) -> None:
        """Note that a tool call has started a run of *child*."""
        with self._lock:
            if self._children is None:
                self._children = Children()
            child._span = self._children.add(call_id, child)

    def children_of(self, call_id: str) -> tuple[tuple[str, ...], Usage]:
        """Return ids of the children that a call has started, and what they have used for it."""
        return ((), NO_USAGE) if self._children is None else self._children.of_call(call_id)

    # Who acts on it

    @property
    def keeper(self) -> Keeper | None:
        """Who saves it while it runs; ``None`` while it is idle or runs unsaved."""
        keepers = self._keepers
        return keepers[-1] if keepers else None

    @property
    def running(self) -> bool:
        """Whether a run is on."""
        return self._run is not None

    def may_run_calls(self) -> bool:
        """Whether somebody else than the running task may close what is open: an action, or the run's own task."""
        if self._action is not None:
            return True
        return self._run is not None and self._run is not trio.lowlevel.current_task()

    def in_run(self, setup: object = None) -> Running:
        """Return a block that holds the State for a run, whose loop the current task runs; ValueError where one is on.

        *setup*: what the run works with.
        """
        return Running(self, setup)

    def begin_run(self, setup: object) -> None:
        """Begin a run; ValueError where one is on."""
        with self._lock:
            if self._run is not None:
                raise ValueError(
                    f"State {self._id} is in a run already; await that one first, or run a fork: state.fork()"
                )
            self._run, self.run_setup = trio.lowlevel.current_task(), setup

    def end_run(self) -> None:
        """Let the next run begin."""
        self._run = self.run_setup = None
        self.wake_waiters()

    def acting(self, action: str) -> Acting:
        """Return a block that holds the State for one think, use_tools or compact; ValueError where one is on."""
        return Acting(self, action)

    def begin(self, action: str) -> None:
        """Begin an action; ValueError where one is on."""
        with self._lock:
            if self._action is not None:
                raise ValueError(f"{action}: {self._action} is on for State {self._id}; await it first")
            self._action = action

    def end(self) -> None:
        """Let the next action begin."""
        self._action = None
        if self._waiters:
            self.wake_waiters()

    @contextmanager
    @trio.lowlevel.enable_ki_protection
    def kept_by(self, keeper: Keeper) -> Iterator[None]:
        """Let *keeper* save what is recorded from now on."""
        with self._lock:
            self._keepers = (*self._keepers, keeper)
        try:
            yield
        finally:
            with self._lock:
                self._keepers = tuple([other for other in self._keepers if other is not keeper])
            self.wake_waiters()


def _time_behind(snap: Snapshot) -> datetime:
    """Return the time; that of the last entry where the clock was set back."""
    at = utc_now()
    return at if snap.updated_at is None or at > snap.updated_at else snap.updated_at


@final
class Running:
    """A block that holds a State for a run. A class, since a generator would cost a run another 300 bytes."""

    __slots__ = ("_setup", "_state")

    def __init__(self, state: Recorder, setup: object) -> None:
        self._state = state
        self._setup = setup

    def __enter__(self) -> None:
        self._state.begin_run(self._setup)

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._state.end_run()


@final
class Acting:
    """A block that holds a State for one action. A class, since a generator would cost a turn another 2 µs."""

    __slots__ = ("_action", "_state")

    def __init__(self, state: Recorder, action: str) -> None:
        self._state = state
        self._action = action

    def __enter__(self) -> None:
        self._state.begin(self._action)

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._state.end()

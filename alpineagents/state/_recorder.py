"""How a State records: commits, the tasks that wait for them, who acts on it, and what is saved.

Every change is a commit: the entry is made and folded under a lock that is held for microseconds, and published by
one assignment. Values are frozen before the lock. A commit that is interrupted (Ctrl+C can come after any call)
happened whole or not at all: what it may have appended lies behind the published snapshot's length and is never seen.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from typing import Protocol, TypeAlias

import trio

from ..record._entries import Entry
from ..record._replay import Snapshot, fold
from ._clock import utc_now
from ._snapshot import Values
from ._turns import Turns
from ._waiters import Waiter

Make: TypeAlias = Callable[[Snapshot, datetime], Entry | None]
"""Makes an entry that fits behind a Snapshot; ``None`` for no change, ValueError to refuse."""


class Saver(Protocol):
    """Saves a State: the keeper of its run, or its store while it is idle."""

    async def save(self, state: Recorder) -> None:
        """Return when everything recorded so far is durable."""


class Keeper(Saver, Protocol):
    """Saves a State while it runs."""

    def notice(self) -> None:
        """Something was recorded. Called in any thread or signal handler, right after the commit."""


class Recorder(Values):
    """What a State is to the library's other parts: commits, waiters, who acts on it, what is saved."""

    __slots__ = ("_action", "_keeper", "_lock", "_run", "_turns", "_waiters", "_writing", "loaded", "saved", "store")

    def __init__(self, state_id: str, snapshot: Snapshot) -> None:
        self._id = state_id
        self._snap = snapshot
        self._lock = threading.RLock()
        self._turns: Turns | None = None
        self._waiters: tuple[Waiter, ...] = ()
        self._run: object = None
        self._action: str | None = None
        self._keeper: Keeper | None = None
        self._writing = False
        self.store: Saver | None = None
        """Where this State is saved; None until a run or ``store.load`` sets it."""
        self.saved = 0
        """How many entries that store is known to hold."""
        self.loaded = False
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
                at = utc_now()
                if snap.updated_at is not None and at < snap.updated_at:
                    at = snap.updated_at
                entry = make(snap, at)
                if entry is None:
                    return None
                new = fold(snap, entry, restored=restored)
                # No call between this comparison and the assignment: here a signal can't get in.
                if self._snap is snap:
                    self._snap = new
                    break
        if self._keeper is not None:
            self._keeper.notice()
        if self._waiters:
            self.wake_waiters()
        return entry

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
        await trio.lowlevel.checkpoint()
        while self.saved < length and (saver := self._keeper or self.store) is not None:
            await saver.save(self)

    @asynccontextmanager
    @trio.lowlevel.enable_ki_protection
    async def writing(self) -> AsyncIterator[bool]:
        """Hold the right to write this State to its store, which one run or one save has at a time.

        Gives False, at once, when a keeper has it: then let that one save.
        """
        with self.waiter() as waiter:
            while not self._take_writing():
                if self._keeper is not None:
                    yield False
                    return
                await waiter.wait()
        try:
            yield True
        finally:
            self._writing = False
            self.wake_waiters()

    def _take_writing(self) -> bool:
        with self._lock:
            taken = not self._writing
            self._writing = True
            return taken

    def visible_length(self) -> int:
        """Return how many entries a watcher may see: with a store, those that are durable."""
        return self._snap.length if self.store is None else min(self.saved, self._snap.length)

    def editing_turns(self) -> Turns:
        """Return whose turn it is to edit extra_data."""
        with self._lock:
            if self._turns is None:
                self._turns = Turns(self._lock)
            return self._turns

    # Who acts on it

    @property
    def keeper(self) -> Keeper | None:
        """Who saves it while it runs; ``None`` while it is idle or runs unsaved."""
        return self._keeper

    @property
    def running(self) -> bool:
        """Whether a run is on."""
        return self._run is not None

    def in_action(self) -> bool:
        """Whether a run or an action is on that may let waiting messages in."""
        return self._run is not None or self._action is not None

    @contextmanager
    @trio.lowlevel.enable_ki_protection
    def run_by(self, run: object) -> Iterator[None]:
        """Hold the State for one run.

        Raises:
            ValueError: another run is on.
        """
        with self._lock:
            if self._run is not None:
                raise ValueError(
                    f"State {self._id} is in a run already; await that one first, or run a fork: state.fork()"
                )
            self._run = run
        try:
            yield
        finally:
            self._run = None
            self.wake_waiters()

    @contextmanager
    @trio.lowlevel.enable_ki_protection
    def acting(self, action: str) -> Iterator[None]:
        """Hold the State for one think, use_tools or compact.

        Raises:
            ValueError: one is on.
        """
        with self._lock:
            if self._action is not None:
                raise ValueError(f"{action}: {self._action} is on for State {self._id}; await it first")
            self._action = action
        try:
            yield
        finally:
            self._action = None
            self.wake_waiters()

    @contextmanager
    @trio.lowlevel.enable_ki_protection
    def kept_by(self, keeper: Keeper) -> Iterator[None]:
        """Let *keeper* save what is recorded from now on."""
        self._keeper = keeper
        try:
            yield
        finally:
            self._keeper = None
            self.wake_waiters()

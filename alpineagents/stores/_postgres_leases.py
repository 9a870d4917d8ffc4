"""The leases that one PostgresStore holds, by their tokens; the rows in the database are the truth about them.

Invariant: a token that may be in the database is in ``_held``, in ``_left``, or in the hands of a thread that puts it
into one of them or takes it out of the database. A row whose token is in ``_left`` holds up nobody in this object.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, final
from uuid import UUID, uuid4

import attrs
import trio

from .._errors import RunningElsewhereError, StoreError
from . import _postgres_rows as rows
from ._holder import this_process
from ._lease import log_left_lease
from ._rules import running_elsewhere
from ._threads import Threads

if TYPE_CHECKING:
    from ._postgres_connections import Call, Connections

RELEASE_SECONDS: Final = 5.0
"""How long giving a lease back may take before it is left to run out."""


@attrs.frozen
class _Held:
    token: UUID
    since: float
    """In ``time.monotonic()``."""


@final
class Leases:
    """Takes leases, knows which are held, and gives them back. Usable in any thread and trio run."""

    def __init__(self, connections: Connections, threads: Threads, keeping: Threads, seconds: float) -> None:
        self._connections = connections
        self._threads = threads
        self._keeping = keeping
        self.seconds = seconds
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}
        self._left: dict[str, set[UUID]] = {}

    def held(self, state_id: str) -> UUID | None:
        """Return the token of the lease that is held; None if none is."""
        held = self._held.get(state_id)
        return None if held is None else held.token

    def check_free(self, state_id: str) -> None:
        """Check that this object doesn't hold a State: not even where its lease has run out, which it may not know.

        Two who hold it through one object would both be taken for the one that has the lease.

        Raises:
            RunningElsewhereError: it does.
        """
        if (held := self._held.get(state_id)) is not None:
            raise self._is_held(state_id, held)

    def _is_held(self, state_id: str, held: _Held) -> RunningElsewhereError:
        who = f"{this_process()}, since {time.monotonic() - held.since:.0f} s"
        return running_elsewhere(state_id, self._connections.place, who)

    def claim(self, state_id: str) -> rows.Claim:
        """Return what to write to take a lease."""
        with self._lock:
            free = tuple(self._left.get(state_id, ()))
        return rows.Claim(uuid4(), this_process().encoded(), self.seconds, free)

    async def take(self, state_id: str) -> UUID:
        """Take a lease and return its token. Checkpoint: yes. Cancelled: at once, and nothing is held.

        Raises:
            RunningElsewhereError: somebody else holds it.
            StoreError: it couldn't be written. If it is there all the same, this object takes it again.
        """
        claim = self.claim(state_id)
        try:
            call = self._connections.call(makes_tables=True)
            await self._threads.run(self._take, call, state_id, claim, abandon_on_cancel=True)
        except trio.Cancelled:
            with self._lock:
                was_taken = self.held(state_id) == claim.token
                self._leave(state_id, claim.token)  # now the thread gives it back, if it isn't done yet
            if was_taken:
                await self._released(state_id, claim.token)
            raise
        return claim.token

    async def end(self, state_id: str, token: UUID) -> None:
        """Give a lease back, in a few seconds or not at all. Raises nothing. Cancelled: the same."""
        with self._lock:
            self._leave(state_id, token)
        await self._released(state_id, token)

    def _take(self, call: Call, state_id: str, claim: rows.Claim) -> None:
        self.check_free(state_id)
        try:
            self._connections.run(call, rows.claim, state_id, claim)
        except RunningElsewhereError:
            self._forget(state_id, claim.token)
            raise
        except StoreError:
            with self._lock:
                self._leave(state_id, claim.token)
            if self._connections.is_over(call):  # It may have been taken just before the store was closed, or will be.
                self._release(state_id, claim.token, may_come=True)
            raise
        with self._lock:
            held = self._held.get(state_id)  # by somebody who took it when this one had run out already
            is_wanted = held is None and claim.token not in self._left.get(state_id, ())
            if is_wanted:
                self._held[state_id] = _Held(claim.token, time.monotonic())
        if not is_wanted:
            self._release(state_id, claim.token)
        if held is not None:
            raise self._is_held(state_id, held)

    async def _released(self, state_id: str, token: UUID) -> None:
        with trio.move_on_after(RELEASE_SECONDS, shield=True):  # One that is left behind locks the State for others.
            await self._keeping.run(self._release, state_id, token, abandon_on_cancel=True)

    def _release(self, state_id: str, token: UUID, *, may_come: bool = False) -> None:
        call = self._connections.call(is_urgent=True, is_last=True)
        try:
            was_there = self._connections.run(call, rows.release, state_id, token)
        except StoreError as error:  # It runs out by itself, or this object takes it again.
            log_left_lease(state_id, error, self.seconds)
            return
        if was_there or not may_come:
            self._forget(state_id, token)

    def _leave(self, state_id: str, token: UUID) -> None:
        if self.held(state_id) == token:
            del self._held[state_id]
        self._left.setdefault(state_id, set()).add(token)

    def _forget(self, state_id: str, token: UUID) -> None:
        with self._lock:
            left = self._left.get(state_id, set())
            left.discard(token)
            if not left:
                self._left.pop(state_id, None)

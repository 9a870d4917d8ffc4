"""Leases as rows: who may write a State.

Invariant: a State may be written through the store object whose token its row has; where there is no row, or one that
has run out, through any. Both is looked up in the transaction that writes, so whoever lost a lease can't write.
"""

from __future__ import annotations

import sqlite3
import threading
import time
import uuid
from pathlib import Path
from typing import final

import attrs

from .._errors import RunningElsewhereError
from ._holder import decoded, this_process
from ._rules import running_elsewhere


def wall_clock() -> float:
    """Return the seconds since 1970, as other processes count them."""
    return time.time()


@attrs.frozen
class _Row:
    token: str
    holder: str
    since: float
    until: float

    def who(self) -> str:
        """Return who holds it, and since when."""
        holder = decoded(self.holder) or "a process of another version"
        return f"{holder}, since {max(0.0, wall_clock() - self.since):.0f} s"


@final
class Leases:
    """The leases that one store object has, and the rows that tell the others."""

    def __init__(self, path: Path, seconds: float) -> None:
        self._path = path
        self.seconds = seconds
        self._mark = f"{uuid.uuid4().hex}:"  # all tokens of this store object begin with it
        self._count = 0
        self._guard = threading.Lock()
        self._wanted: set[str] = set()
        self._held: dict[str, str] = {}

    # ---- What this store object has

    def new_token(self) -> str:
        """Return the token of a lease that is going to be taken. It ends with ``drop``."""
        with self._guard:
            self._count += 1
            token = f"{self._mark}{self._count}"
            self._wanted.add(token)
        return token

    def drop(self, state_id: str, token: str) -> bool:
        """Forget a token; return whether its lease was taken."""
        with self._guard:
            self._wanted.discard(token)
            was_taken = self._held.get(state_id) == token
            if was_taken:
                del self._held[state_id]
        return was_taken

    # ---- Rows; each inside a transaction

    def take(self, connection: sqlite3.Connection, state_id: str, token: str) -> None:
        """Take a lease, unless its token was dropped meanwhile.

        Raises:
            RunningElsewhereError: somebody has it.
        """
        self.check_free(connection, state_id)
        with self._guard:
            if token not in self._wanted:
                return
            self._held[state_id] = token
        now = wall_clock()
        connection.execute(
            "REPLACE INTO leases(state_id, token, holder, since, until) VALUES (?, ?, ?, ?, ?)",
            (state_id, token, this_process().encoded(), now, now + self.seconds),
        )

    def untake(self, state_id: str, token: str) -> None:
        """Forget that a lease was taken: its row isn't there. Its token is still wanted."""
        with self._guard:
            if self._held.get(state_id) == token:
                del self._held[state_id]

    def renew(self, connection: sqlite3.Connection, state_id: str) -> None:
        """Make a lease last.

        Raises:
            RunningElsewhereError: this store object doesn't have it, or not any more.
        """
        token = self._held.get(state_id)
        if token is None:
            raise RunningElsewhereError(
                f"State {state_id} in {self._path} isn't held by this store; hold it first: store.lease({state_id!r})"
            )
        self._check_kept(connection, state_id, token)
        connection.execute("UPDATE leases SET until = ? WHERE state_id = ?", (wall_clock() + self.seconds, state_id))

    def give_back(self, connection: sqlite3.Connection, state_id: str, token: str) -> None:
        """End a lease, if it is still that one."""
        connection.execute("DELETE FROM leases WHERE state_id = ? AND token = ?", (state_id, token))

    def check(self, connection: sqlite3.Connection, state_id: str) -> None:
        """Check that this store object may write the State now.

        Raises:
            RunningElsewhereError: somebody else has its lease, or had it since this store object lost it.
        """
        token = self._held.get(state_id)
        if token is None:
            self.check_free(connection, state_id)
        else:
            self._check_kept(connection, state_id, token)

    def check_free(self, connection: sqlite3.Connection, state_id: str) -> None:
        """Check that nobody holds the State; remove a lease that has run out, so that its holder notices.

        Raises:
            RunningElsewhereError: somebody holds it, perhaps this store object.
        """
        row = self._row(connection, state_id)
        is_held_here = state_id in self._held
        if row is not None and (is_held_here or not self._is_over(row)):
            raise running_elsewhere(state_id, self._path, row.who())
        if is_held_here:
            raise running_elsewhere(state_id, self._path)
        if row is not None:
            self.give_back(connection, state_id, row.token)

    def _check_kept(self, connection: sqlite3.Connection, state_id: str, token: str) -> None:
        row = self._row(connection, state_id)
        if row is None or row.token != token:
            raise RunningElsewhereError(
                f"State {state_id} in {self._path} isn't held by this run or save any more: its lease ran out after"
                f" {self.seconds:g} s without being renewed, or the file was replaced;"
                f" {'somebody else has held it since' if row is None else f'it is held by {row.who()}'}."
                f" Go on with what is saved: store.load({state_id!r})"
            )

    def _is_over(self, row: _Row) -> bool:
        """Whether a lease that this store object doesn't have is free for the taking."""
        if row.token.startswith(self._mark) or row.until <= wall_clock():  # its own, but giving it back failed
            return True
        holder = decoded(row.holder)
        return holder is not None and holder.is_gone()

    @staticmethod
    def _row(connection: sqlite3.Connection, state_id: str) -> _Row | None:
        found = connection.execute("SELECT token, holder, since, until FROM leases WHERE state_id = ?", (state_id,))
        row = found.fetchone()
        return None if row is None else _Row(*row)

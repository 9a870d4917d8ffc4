"""SQLiteStore: all States in one database file."""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from sqlite3 import Connection
from typing import Final, Literal, TypeVar, TypeVarTuple, Unpack, final

import trio

from .._contracts import Store
from .._errors import StoreError
from . import _sqlite_rows as rows
from ._lease import log_left_lease
from ._rules import check_after, check_entries, checked_id, is_id, not_found
from ._sqlite_database import Database
from ._sqlite_leases import Leases
from ._sqlite_writes import Work, Write, Writes
from ._threads import Threads

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MOST_BYTES: Final = 1_000_000_000 - 1_000
"""Bytes that an entry may have: SQLite's limit for a row (https://sqlite.org/limits.html), less what is around it."""

RELEASE_SECONDS: Final = 5.0
"""How long leaving a lease waits until others know."""


@final
class SQLiteStore(Store):
    """A store for one machine: all States in one SQLite file, for many States and many processes.

    Every append is one transaction; those that come together share one, and one sync of the disk. Reading waits for
    nobody who writes (WAL mode). The file has mode 0600, a folder that has to be made 0700; beside it lie ``-wal`` and
    ``-shm``, which belong to it as long as they are there. Disks on a network can't hold it.

    It may be used from several threads and from several trio runs. It keeps a few connections, and closes them with
    ``aclose``, at the end of ``async with``, or when it isn't used any more.

    Args:
        path: The file. Made when something is written; ``~`` is the home directory.
        synchronous: ``"FULL"``: what was saved survives a crash of the machine. ``"NORMAL"``: it survives one of the
            process; one of the machine may take the last seconds with it, and never more than the end.
        lease_seconds: After how long a State whose process hangs is free. One whose process died on this machine is
            free at once.
        busy_seconds: How long to wait while another program locks the file.

    Example:
        >>> store = SQLiteStore("states.db")
        >>> state = await store.load("bug-1")
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: Literal["FULL", "NORMAL"] = "FULL",
        lease_seconds: float = 30.0,
        busy_seconds: float = 30.0,
    ) -> None:
        if os.fspath(path) == ":memory:":
            raise ValueError("':memory:' is a database per connection; MemoryStore() keeps States in memory")
        if synchronous not in ("FULL", "NORMAL"):
            raise ValueError(f"synchronous must be 'FULL' or 'NORMAL' (got {synchronous!r})")
        if not 0 < lease_seconds < math.inf:
            raise ValueError(f"lease_seconds must be more than 0 (got {lease_seconds!r})")
        if not 0 <= busy_seconds < math.inf:
            raise ValueError(f"busy_seconds must be 0 or more (got {busy_seconds!r})")
        self.path: Final = Path(path).expanduser().absolute()
        self.lease_seconds: float | None = lease_seconds
        self._database = Database(self.path, synchronous=synchronous, busy_seconds=busy_seconds)
        self._writes = Writes(self._database)
        self._leases = Leases(self.path, lease_seconds)
        self._reading, self._writing, self._keeping, self._closing = Threads(), Threads(), Threads(), Threads()
        weakref.finalize(self, self._database.close)

    def __repr__(self) -> str:
        return f"SQLiteStore({str(self.path)!r})"

    async def aclose(self) -> None:
        """Close the connections, those in use when they are free. What comes after it opens new ones.

        Who watches gets a StoreError.
        Checkpoint: yes. Cancelled: they are closed all the same.
        """
        self.note_closing()
        with trio.CancelScope(shield=True):
            await self._closing.run(self._database.close)
        await trio.lowlevel.checkpoint_if_cancelled()

    async def append(self, state_id: str, first_seq: int, entries: Sequence[bytes], info: bytes) -> None:
        """Write *entries* durably, in one transaction. Without a lease it holds one itself meanwhile.

        *info* counts only if one of the entries is new. Checkpoint: yes. Cancelled: what has begun is left to itself,
        in a thread; it happens or not, and what is appended next waits for it.

        Raises:
            ConflictError: a gap before *first_seq*, or another entry at one of the positions. Nothing has changed.
            RunningElsewhereError: somebody else holds the State, or had it since this store lost its lease.
            StoreError: it couldn't be written. Nothing has changed.
            ValueError: an entry or *info* isn't a JSON object, or an entry is longer than SQLite's 1,000,000,000 bytes.
        """
        checked_id(state_id)
        check_entries(first_seq, entries)
        about = rows.about(info)
        for seq, entry in enumerate(entries, first_seq):
            if len(entry) > MOST_BYTES:
                raise ValueError(f"entry {seq} has {len(entry):,} bytes, SQLite can hold {MOST_BYTES:,}")
        await self._write(partial(self._append, state_id, first_seq, tuple(entries), about))

    def _append(
        self, state_id: str, first_seq: int, entries: Sequence[bytes], about: rows.About, connection: Connection
    ) -> None:
        self._leases.check(connection, state_id)
        rows.append(connection, self.path, state_id, first_seq, entries, about)

    async def read(self, state_id: str, after: int = 0) -> Sequence[bytes]:
        """Return the entries from position *after* on. Checkpoint: yes. Cancelled: at once.

        Raises:
            StateNotFoundError: there is no such State; the message has ids that are nearly the same.
            CorruptStoreError: an entry is missing or damaged; the message says which one.
            StoreError: the file can't be read.
        """
        checked_id(state_id)
        check_after(after)
        entries = await self._read(lambda connection: rows.read(connection, self.path, state_id, after))
        if entries is None:
            raise not_found(state_id, self.path)
        return entries

    async def infos(self, *, limit: int | None = None, before: str | None = None) -> Sequence[tuple[str, bytes]]:
        """Return ``(id, info)`` of the States, newest created first, in one query. Checkpoint: yes. Cancelled: at once.

        Raises:
            StateNotFoundError: there is no State *before*.
            StoreError: the file can't be read.
        """
        if limit is not None and limit < 0:
            raise ValueError(f"limit must be 0 or more (got {limit})")
        if before is not None and not is_id(before):
            raise not_found(before, self.path)
        found = await self._read(lambda connection: rows.infos(connection, self.path, limit, before))
        if found is None and before is not None:
            raise not_found(before, self.path)
        return found or []

    async def remove(self, state_id: str) -> None:
        """Remove a State. One that isn't there is no error. Checkpoint: yes. Cancelled: it happens or not.

        Raises:
            RunningElsewhereError: somebody holds it.
            StoreError: it can't be removed.
        """
        checked_id(state_id)
        if await self._read(lambda _: True):
            await self._write(partial(self._remove, state_id))

    def _remove(self, state_id: str, connection: Connection) -> None:
        self._leases.check_free(connection, state_id)
        rows.remove(connection, state_id)

    def lease(self, state_id: str) -> AbstractAsyncContextManager[None]:
        """Return what a run holds while it writes: a row that other processes respect, for ``lease_seconds``.

        Entering is a checkpoint. Leaving waits at most 5 s, also when cancelled, until others know; if that fails, the
        State stays held for others until the lease runs out.

        Raises (when entered):
            RunningElsewhereError: somebody else holds it; the message says who, and since when.
            StoreError: the file can't be written.
        """
        return _Lease(self, checked_id(state_id))

    async def renew(self, state_id: str) -> None:
        """Make the lease that this object holds last another ``lease_seconds``. Checkpoint: yes.

        Raises:
            RunningElsewhereError: it ran out, and somebody else had it since; or it isn't held at all.
            StoreError: the file can't be written.
        """
        checked_id(state_id)
        write = Write(lambda connection: self._leases.renew(connection, state_id), durable=False)
        await self._done(write, self._keeping)

    async def _take(self, state_id: str) -> str:
        token = self._leases.new_token()
        try:
            write = Write(
                lambda connection: self._leases.take(connection, state_id, token),
                durable=False,
                undo=lambda: self._leases.untake(state_id, token),
            )
            await self._done(write, self._writing)
        except BaseException:
            await self._give_back(state_id, token)  # it may have been taken all the same
            raise
        return token

    async def _give_back(self, state_id: str, token: str) -> None:
        if self._leases.drop(state_id, token):
            write = Write(lambda connection: self._leases.give_back(connection, state_id, token), durable=False)
            with trio.move_on_after(RELEASE_SECONDS, shield=True):
                try:
                    await self._keeping.run(self._call, self._writes.do, write, abandon_on_cancel=True)
                except StoreError as error:
                    log_left_lease(state_id, error, self._leases.seconds)

    async def _write(self, work: Work) -> None:
        await self._done(Write(work, durable=True), self._writing)

    async def _done(self, write: Write, threads: Threads) -> None:
        try:
            await threads.run(self._call, self._writes.do, write, abandon_on_cancel=True)
        finally:
            write.given_up.set()

    async def _read(self, work: Callable[[Connection], T]) -> T | None:
        given_up = threading.Event()
        try:
            return await self._reading.run(self._call, self._database.read, work, given_up, abandon_on_cancel=True)
        finally:
            given_up.set()

    def _call(self, fn: Callable[[Unpack[Ts]], T], *args: *Ts) -> T:
        """Return ``fn(*args)``. A thread in here keeps the store, so its connections are closed after the last use."""
        return fn(*args)


@final
class _Lease(AbstractAsyncContextManager[None]):
    """Takes a lease and gives it back. It may be left in another trio run than it was entered in."""

    __slots__ = ("_state_id", "_store", "_token")

    def __init__(self, store: SQLiteStore, state_id: str) -> None:
        self._store = store
        self._state_id = state_id
        self._token = ""

    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> None:
        self._token = await self._store._take(self._state_id)

    @trio.lowlevel.enable_ki_protection
    async def __aexit__(self, *_: object) -> None:
        await self._store._give_back(self._state_id, self._token)

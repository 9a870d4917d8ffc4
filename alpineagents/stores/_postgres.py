"""PostgresStore: States in a PostgreSQL database, for many processes on many machines."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, TypeVarTuple, Unpack, final
from uuid import UUID

import trio

from .._contracts import Store
from .._errors import RunningElsewhereError, StoreError
from . import _postgres_rows as rows
from ._postgres_leases import Leases
from ._postgres_listen import Ear
from ._rules import check_after, check_entries, checked_id, created_at, info_fields, is_id, not_found
from ._threads import in_thread

if TYPE_CHECKING:
    from ._postgres_connections import Link

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")

# What the running task read last: of which store, which State, how many entries it had. So ``changed`` knows what its
# caller, who has just read, doesn't know yet.
_last_read: ContextVar[tuple[object, str, int] | None] = ContextVar("alpineagents.postgres.last_read", default=None)


@final
class PostgresStore(Store):
    """A store for many machines: the tables of one schema in a PostgreSQL database, made at the first use.

    A write is one transaction, durable when the call returns, also where the database's default is
    ``synchronous_commit = off``. Leases are rows that run out by the server's clock; that of a process that died on
    this machine is free at once. Watchers hear of changes by LISTEN. Needs ``pip install 'alpineagents[postgres]'``,
    a database with the encoding UTF8, and a pooler, if there is one, that gives out sessions, not transactions.

    Connections are made when they are needed and kept for the next call. They are closed by ``aclose``, at the end of
    ``async with``, or with the object; a closed store can be used again. May be used from several trio runs. A call
    whose connection breaks is done again on a new one, once.

    Args:
        dsn: Where the database is, and as whom to connect: a URL or ``host=... dbname=...``. What it leaves out comes
            from the environment (``PGPASSWORD`` and the others that libpq knows).
        lease_seconds: After how long a lease is free that nobody renewed. A run renews its own three times as often.
        max_connections: At most this many are open for calls. One more listens while somebody watches.
        schema: Where the tables are; it is made where it is missing. Lower case letters, digits and _.

    Raises:
        ValueError: *dsn* can't be read, or another argument is out of range.
        ImportError: psycopg isn't installed.

    Example:
        >>> async with PostgresStore("postgresql://app@db.example.com/app") as store:
        ...     state = await store.load("bug-1")
    """

    def __init__(
        self, dsn: str, *, lease_seconds: float = 30.0, max_connections: int = 8, schema: str = "alpineagents"
    ) -> None:
        if not (lease_seconds > 0 and math.isfinite(lease_seconds)):
            raise ValueError(f"lease_seconds must be a number above 0 (got {lease_seconds})")
        if max_connections < 1:
            raise ValueError(f"max_connections must be 1 or more (got {max_connections})")
        if _SCHEMA.fullmatch(schema) is None:
            raise ValueError(
                f"schema must be 1 to 63 lower case letters, digits and _, not a digit first (got {schema!r})"
            )
        try:
            from ._postgres_connections import Connections
        except ImportError as error:
            raise ImportError(f"PostgresStore needs psycopg: pip install 'alpineagents[postgres]' ({error})") from error
        self._connections: Final = Connections(dsn, schema, max_connections)
        self._place: Final = self._connections.place
        self.lease_seconds: float | None = lease_seconds
        self._leases: Final = Leases(self._connections, lease_seconds)
        self._me: Final = object()
        self._ear: Final = trio.lowlevel.RunVar[Ear]("alpineagents.postgres.ear")

    def __repr__(self) -> str:
        place = self._place
        return f"PostgresStore('host={place.host} port={place.port} dbname={place.database}')"

    async def aclose(self) -> None:
        """Close the connections. Checkpoint: yes.

        Calls that are still on end with a StoreError, and are waited for: those too that were cancelled and left to
        themselves.
        """
        with trio.CancelScope(shield=True):  # It takes 5 s at most, and leaves nothing behind.
            await in_thread(self._connections.close)
        await trio.lowlevel.checkpoint()

    async def append(self, state_id: str, first_seq: int, entries: Sequence[bytes], info: bytes) -> None:
        """Write *entries* in one transaction. Under a lease one round trip, else it takes one itself meanwhile.

        *info* counts only if one of the entries is new. Checkpoint: yes. Cancelled: the write is left to itself, in a
        thread; it happens or not.

        Raises:
            ConflictError: a gap before *first_seq*, or another entry at one of the positions. Nothing has changed.
            RunningElsewhereError: somebody else holds the State, or the lease that this object held is lost. Nothing
                has changed.
            StoreError: it couldn't be written, or may have been before the connection broke: the same call again
                settles that.
            ValueError: an entry or *info* isn't a JSON object.
        """
        checked_id(state_id)
        check_entries(first_seq, entries)
        fields = info_fields(info)
        parent = fields.get("parent_id")
        batch = rows.Batch(
            state_id, first_seq, tuple(entries), info, created_at(fields), parent if isinstance(parent, str) else None
        )
        if batch.entries:
            await self._run(rows.append, batch, self._leases.held(state_id), self._leases.claim(state_id))
        else:
            await trio.lowlevel.checkpoint()

    async def read(self, state_id: str, after: int = 0) -> Sequence[bytes]:
        """Return the entries from position *after* on. Checkpoint: yes. Cancelled: at once.

        Raises:
            StateNotFoundError: there is no such State; the message has ids that are nearly the same.
            CorruptStoreError: entries are missing.
            StoreError: the database can't be read.
        """
        checked_id(state_id)
        check_after(after)
        length, entries = await self._run(rows.read, state_id, min(after, sys.maxsize))
        _last_read.set((self._me, state_id, length))
        return entries

    async def infos(self, *, limit: int | None = None, before: str | None = None) -> Sequence[tuple[str, bytes]]:
        """Return ``(id, info)`` of the States, newest created first. Checkpoint: yes. Cancelled: at once.

        Raises:
            StateNotFoundError: there is no State *before*.
            StoreError: the database can't be read.
        """
        if limit is not None and limit < 0:
            raise ValueError(f"limit must be 0 or more (got {limit})")
        if before is not None and not is_id(before):
            raise not_found(before, self._place)
        return await self._run(rows.infos, limit, before)

    async def remove(self, state_id: str) -> None:
        """Remove a State. One that isn't there is no error. Checkpoint: yes. Cancelled: it happens or not.

        Raises:
            RunningElsewhereError: somebody holds it.
            StoreError: it couldn't be removed.
        """
        checked_id(state_id)
        await self._run(rows.remove, state_id, self._leases.claim(state_id))

    def lease(self, state_id: str) -> AbstractAsyncContextManager[None]:
        """Return what a run holds while it writes: a row that runs out after ``lease_seconds`` unless it is renewed.

        Entering is a checkpoint; cancelled there, nothing is held. Leaving takes 5 s at most and raises nothing: where
        the server can't be reached, the lease runs out, and this object can take it again at once.

        Raises (when entered):
            RunningElsewhereError: somebody else holds it; the message says which process, and since when.
            StoreError: the database can't be written.
        """
        checked_id(state_id)
        return _Held(partial(self._leases.take, state_id), partial(self._leases.end, state_id))

    async def renew(self, state_id: str) -> None:
        """Make the lease that this object holds last another ``lease_seconds``. Checkpoint: yes. Cancelled: at once.

        Raises:
            RunningElsewhereError: it ran out, and somebody else has it or had it; or it isn't held at all.
            StoreError: the database can't be written.
        """
        token = self._leases.held(checked_id(state_id))
        if token is None:
            await trio.lowlevel.checkpoint()
            raise RunningElsewhereError(
                f"State {state_id} in {self._place} isn't held by this store; hold it first: store.lease({state_id!r})"
            )
        await self._run(rows.renew, state_id, token, self._leases.seconds)

    async def changed(self, state_id: str) -> None:
        """Return when *state_id* has entries that this task didn't get when it last read it, or after half a minute.

        Listens for that. Where the server can't be reached, returns after ``poll_seconds``. Checkpoint: yes.
        """
        last = _last_read.get()
        seen = last[2] if last is not None and last[:2] == (self._me, state_id) else None

        async def is_old() -> bool:
            return seen is not None and await self._run(rows.length_of, state_id) != seen

        try:
            ear = self._ear.get()
        except LookupError:
            ear = Ear(self._connections)
            self._ear.set(ear)
        try:
            await ear.wait(state_id, is_old)
        except StoreError:
            await trio.sleep(self.poll_seconds)

    async def _run(self, act: Callable[[Link, Unpack[Ts]], T], *args: *Ts) -> T:
        return await in_thread(self._connections.run, act, *args, abandon_on_cancel=True)


@final
class _Held(AbstractAsyncContextManager[None]):
    """A lease. A class, since it may be left in another trio run than it was entered in."""

    __slots__ = ("_end", "_take", "_token")

    def __init__(self, take: Callable[[], Awaitable[UUID]], end: Callable[[UUID], Awaitable[None]]) -> None:
        self._take = take
        self._end = end

    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> None:
        self._token = await self._take()

    @trio.lowlevel.enable_ki_protection
    async def __aexit__(self, *_: object) -> None:
        await self._end(self._token)

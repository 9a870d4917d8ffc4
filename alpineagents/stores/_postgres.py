"""PostgresStore: States in a PostgreSQL database, for many processes on many machines."""

from __future__ import annotations

import math
import re
import sys
import weakref
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, TypeVarTuple, Unpack, final
from uuid import UUID

import attrs
import trio

from .._contracts import Store
from .._errors import RunningElsewhereError, StoreError
from . import _postgres_rows as rows
from ._postgres_errors import NoTablesError
from ._postgres_leases import Leases
from ._postgres_listen import Ear
from ._rules import check_after, check_entries, checked_id, created_at, info_fields, is_id, not_found
from ._threads import MOST_THREADS, Threads

if TYPE_CHECKING:
    from ._postgres_connections import Call, Link

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")


@attrs.frozen
class _Read:
    """What a task read last, so that ``changed`` knows what its caller, who has just read, doesn't know yet."""

    store: weakref.ref[PostgresStore]
    state_id: str
    length: int
    """How many entries it had."""
    call: Call


_last_read: ContextVar[_Read | None] = ContextVar("alpineagents.postgres.last_read", default=None)

# The ear of each store in this trio run; it lives as long as the store.
_ears: trio.lowlevel.RunVar[weakref.WeakKeyDictionary[PostgresStore, Ear] | None] = trio.lowlevel.RunVar(
    "alpineagents.postgres.ears", None
)


@final
class PostgresStore(Store):
    """A store for many machines: the tables of one schema in a PostgreSQL database, made at the first write.

    A write is one transaction, durable when the call returns, also where the database's default is
    ``synchronous_commit = off``. Leases are rows that run out by the server's clock; that of a process that died on
    this machine is free at once. Watchers hear of changes by LISTEN. Needs ``pip install 'psycopg[binary]'``,
    a database with the encoding UTF8, and a pooler, if there is one, that gives out sessions, not transactions.

    Connections are made when they are needed and kept for the next call. They are closed by ``aclose``, at the end of
    ``async with``, or with the object; a closed store can be used again. May be used from several trio runs. A call
    whose connection breaks is done again on a new one, once.

    Args:
        dsn: Where the database is, and as whom to connect: a URL or ``host=... dbname=...``. What it leaves out comes
            from the environment (``PGPASSWORD`` and the others that libpq knows).
        lease_seconds: After how long a lease is free that nobody renewed. A run renews its own three times as often.
        max_connections: At most this many are open for calls. One more listens while somebody watches, and one more
            keeps leases and gives them back while all are busy.
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
            raise ImportError(f"PostgresStore needs psycopg: pip install 'psycopg[binary]' ({error})") from error
        self._connections: Final = Connections(dsn, schema, max_connections)
        self._place: Final = self._connections.place
        self.lease_seconds: float | None = lease_seconds
        self._threads: Final = Threads(max(MOST_THREADS, max_connections))
        self._keeping, self._closing = Threads(), Threads()
        self._leases: Final = Leases(self._connections, self._threads, self._keeping, lease_seconds)

    def __repr__(self) -> str:
        place = self._place
        return f"PostgresStore('host={place.host} port={place.port} dbname={place.database}')"

    async def aclose(self) -> None:
        """Close the connections. Checkpoint: yes.

        Calls that are still on end with a StoreError, and are waited for: those too that were cancelled and left to
        themselves. So does who watches. Leases are still kept and given back.
        """
        self.note_closing()
        with trio.CancelScope(shield=True):  # It takes 5 s at most, and leaves nothing behind.
            await self._closing.run(self._connections.close)
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
            call = self._connections.call(makes_tables=True)
            await self._done(call, rows.append, batch, self._leases.held(state_id), self._leases.claim(state_id))
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
        call = self._connections.call()
        try:
            length, entries = await self._done(call, rows.read, state_id, min(after, sys.maxsize))
        except NoTablesError:
            raise not_found(state_id, self._place) from None
        _last_read.set(_Read(weakref.ref(self), state_id, length, call))
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
        try:
            return await self._done(self._connections.call(), rows.infos, limit, before)
        except NoTablesError:
            if before is not None:
                raise not_found(before, self._place) from None
            return []

    async def remove(self, state_id: str) -> None:
        """Remove a State. One that isn't there is no error. Checkpoint: yes. Cancelled: it happens or not.

        Raises:
            RunningElsewhereError: somebody holds it.
            StoreError: it couldn't be removed.
        """
        checked_id(state_id)
        self._leases.check_free(state_id)
        with suppress(NoTablesError):
            await self._done(self._connections.call(), rows.remove, state_id, self._leases.claim(state_id))

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
        call = self._connections.call(is_urgent=True)
        await self._done(call, rows.renew, state_id, token, self._leases.seconds, threads=self._keeping)

    async def changed(self, state_id: str) -> None:
        """Return when *state_id* has entries that this task didn't get when it last read it, or after half a minute.

        Listens for that. Where the server can't be reached, returns after ``poll_seconds``. Checkpoint: yes.

        Raises:
            StoreError: the store was closed since the task read.
        """
        last = _last_read.get()
        if last is not None and (last.store() is not self or last.state_id != state_id):
            last = None
        call = self._connections.call() if last is None else last.call

        async def is_old() -> bool:
            return last is not None and await self._done(call, rows.length_of, state_id) != last.length

        try:
            await self._hearing().wait(state_id, call, is_old)
        except StoreError:
            if self._connections.is_over(call):
                raise
            await trio.sleep(self.poll_seconds)

    def _hearing(self) -> Ear:
        """Return what hears of changes in this trio run."""
        ears = _ears.get()
        if ears is None:
            ears = weakref.WeakKeyDictionary()
            _ears.set(ears)
        ear = ears.get(self)
        if ear is None:
            ear = ears[self] = Ear(self._connections, self._keeping)
        return ear

    async def _done(
        self, call: Call, act: Callable[[Link, Unpack[Ts]], T], *args: *Ts, threads: Threads | None = None
    ) -> T:
        return await (threads or self._threads).run(self._connections.run, call, act, *args, abandon_on_cancel=True)


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

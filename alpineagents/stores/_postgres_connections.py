"""Connections to a PostgreSQL server: a few that are kept, each used by one thread at a time.

They have no threads of their own, and why one couldn't be made is known at once: psycopg_pool makes its connections in
threads that outlive a run, tries again for 30 seconds, and then says only that it took too long.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeVar, TypeVarTuple, Unpack, final

import attrs
import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Dumper, Loader
from psycopg.pq import Format, TransactionStatus
from psycopg.rows import TupleRow

from .._errors import StoreError
from ._postgres_place import Place, read_dsn
from ._postgres_schema import LOCK_SECONDS, begin, make_ready

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

CLOSE_SECONDS: Final = 5.0
"""How long closing waits for calls that are still on."""

_JSON: Final = psycopg.adapters.types["json"].oid


class _FromBytes(Dumper):
    """Bytes are JSON here, and go as they are."""

    format = Format.BINARY
    oid = _JSON

    def dump(self, obj: bytes) -> Buffer:
        return obj


class _ToBytes(Loader):
    """JSON comes as the bytes that the server keeps."""

    format = Format.BINARY

    def load(self, data: Buffer) -> bytes:
        return bytes(data)


@attrs.frozen
class Call:
    """What is known of a call when it comes, before it waits for anything."""

    closings: int
    """How often the store had been closed."""
    deadline: float
    """Until when it waits for a connection, in ``time.monotonic()``."""
    makes_tables: bool = False
    """Where there are no tables they are made; else that is a NoTablesError."""
    is_urgent: bool = False
    """It has a connection of its own where all others are busy, and is done though the store is closed meanwhile."""
    is_last: bool = False
    """A connection that is made for it isn't kept: it may come when the store has been closed for good."""


@final
class Link:
    """A connection; whoever has it is the only one who uses it."""

    def __init__(self, conn: psycopg.Connection[TupleRow], place: Place, schema: str, closings: int) -> None:
        self.conn = conn
        self.place = place
        self.schema = schema
        self.closings = closings
        """How often the store had been closed when it was made; -1: it isn't to be kept."""
        self.is_urgent = False
        """Whether an urgent call has it."""
        self.is_ready = False
        """Whether the tables are known to be there."""
        self._socket = socket.socket(fileno=os.dup(conn.fileno()))  # outlives what psycopg does to its own

    @property
    def closed(self) -> bool:
        """Whether it can't be used any more."""
        return self.conn.closed

    def execute(self, text: str, values: dict[str, object] | None = None) -> psycopg.Cursor[TupleRow]:
        """Run *text*, with the schema's name filled in. Bytes in *values* are JSON."""
        return self.conn.execute(text.format(schema=f'"{self.schema}"').encode(), values, binary=values is not None)

    def in_transaction(self, act: Callable[[Unpack[Ts]], T], *args: *Ts) -> T:
        """Return ``act(*args)``, done wholly or not at all."""
        with self.conn.transaction():
            return act(*args)

    def settle(self) -> None:
        """Take back a transaction that is still open; close it where that fails."""
        try:
            if self.conn.info.transaction_status != TransactionStatus.IDLE:
                self.conn.rollback()
        except psycopg.Error:
            self.close()

    def news(self) -> list[str] | None:
        """Return what has been notified since it was last asked, without waiting; None if the connection broke."""
        try:
            return [notify.payload for notify in self.conn.notifies(timeout=0)]
        except psycopg.Error:
            return None

    def hang_up(self) -> None:
        """Let whoever waits for an answer get an error instead. Callable in any thread."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close it. Doesn't wait."""
        self.conn.close()
        self._socket.close()


def _close_all(links: list[Link]) -> None:
    for link in links:
        link.close()
    links.clear()


@final
class Connections:
    """What a store has of connections. Every method but ``call`` and ``drop`` may block; callable in any thread.

    Invariant: an open Link is in exactly one of idle, used and listening; in used, one thread has it.
    """

    def __init__(self, dsn: str, schema: str, most: int) -> None:
        self.place, self._parameters = read_dsn(dsn)
        self.schema = schema
        self.most = most
        self._changed = threading.Condition()
        self._busy = 0
        self._closings = 0
        self._idle: list[Link] = []
        self._used: set[Link] = set()
        self._listening: set[Link] = set()
        weakref.finalize(self, _close_all, self._idle)  # a store that nobody closed

    def call(self, *, makes_tables: bool = False, is_urgent: bool = False, is_last: bool = False) -> Call:
        """Begin a call."""
        return Call(self._closings, time.monotonic() + LOCK_SECONDS, makes_tables, is_urgent, is_last)

    def is_over(self, call: Call) -> bool:
        """Whether the store was closed since the call came."""
        return call.closings != self._closings

    def run(self, call: Call, act: Callable[[Link, Unpack[Ts]], T], *args: *Ts) -> T:
        """Return ``act(link, *args)``. Where the connection breaks, it is done again on a new one, once.

        So *act* must come to the same when done twice.

        Raises:
            StoreError: no connection could be made, the server refused something, or the store was closed meanwhile.
        """
        with self._turn(call):
            result, link = self._done(call, act, *args)
            self._give_back(link)
            return result

    def listen(self, call: Call) -> Link:
        """Return a connection that hears of changes. Give it to ``unlisten`` or ``drop``.

        Raises:
            StoreError: none could be made, or the store was closed meanwhile.
        """
        _, link = self._done(call, Link.execute, "LISTEN {schema}")
        with self._changed:
            self._used.discard(link)
            if not self.is_over(call):
                self._listening.add(link)
                return link
        link.close()
        raise self._closed()

    def unlisten(self, link: Link) -> None:
        """Keep a connection that listened, for other uses."""
        with self._changed:
            if link not in self._listening:
                return  # dropped meanwhile
            self._listening.discard(link)
            self._used.add(link)
        with suppress(psycopg.Error):  # then it is closed, or will turn out so
            link.execute("UNLISTEN *")
        self._give_back(link)

    def drop(self, link: Link) -> None:
        """Close a connection that listens. Doesn't wait. One that ``unlisten`` was called with is left to that."""
        with self._changed:
            if link not in self._listening:
                return
            self._listening.discard(link)
        link.close()

    def close(self) -> None:
        """Close all connections. Calls that are still on end with a StoreError, urgent ones when they are done.

        They are waited for, those that queue too.
        """
        with self._changed:
            self._closings += 1
            _close_all(self._idle)
            for link in (*self._used, *self._listening):
                if not link.is_urgent:
                    link.hang_up()
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: not self._busy, CLOSE_SECONDS):
                for link in self._used:
                    link.hang_up()

    @contextmanager
    def _turn(self, call: Call) -> Iterator[None]:
        """Wait until another connection may be used."""
        most = self.most + call.is_urgent
        with self._changed:
            has_turn = self._changed.wait_for(
                lambda: self._busy < most or self._ends(call), max(0.0, call.deadline - time.monotonic())
            )
            if self._ends(call):
                raise self._closed()
            if not has_turn:
                raise StoreError(
                    f"{self.place}: all {self.most} connections of this store have been busy for {LOCK_SECONDS} s;"
                    " see pg_stat_activity on the server for what they wait for, or give it a larger max_connections"
                )
            self._busy += 1
        try:
            yield
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    def _ends(self, call: Call) -> bool:
        return self.is_over(call) and not call.is_urgent

    def _explained(self, call: Call, error: psycopg.Error) -> StoreError:
        """Return what to say of an error: where the store hung up, that, and not what came of it."""
        return self._closed() if self._ends(call) and error.sqlstate is None else self.place.explained(error)

    def _closed(self) -> StoreError:
        return StoreError(f"{self.place}: the store was closed meanwhile")

    def _done(self, call: Call, act: Callable[[Link, Unpack[Ts]], T], *args: *Ts) -> tuple[T, Link]:
        """Return what *act* gave, and the connection, which is among the used ones."""
        link = self._kept(call) or self._made(call)
        try:
            return self._used_for(link, call, act, *args)
        except psycopg.Error as error:
            if not link.closed or self._ends(call):
                raise self._explained(call, error) from error
            with self._changed:
                _close_all(self._idle)  # they are as old
        try:
            return self._used_for(self._made(call), call, act, *args)
        except psycopg.Error as error:
            raise self._explained(call, error) from error

    def _used_for(self, link: Link, call: Call, act: Callable[[Link, Unpack[Ts]], T], *args: *Ts) -> tuple[T, Link]:
        try:
            if not link.is_ready:
                make_ready(link, makes_tables=call.makes_tables)
                link.is_ready = True
            return act(link, *args), link
        except BaseException as error:
            if isinstance(error, psycopg.errors.UndefinedTable):
                self._tables_are_gone()
            self._give_back(link)
            raise

    def _tables_are_gone(self) -> None:
        """Somebody has removed tables: the next calls look again what is there."""
        with self._changed:
            for link in (*self._used, *self._idle):
                link.is_ready = False

    def _kept(self, call: Call) -> Link | None:
        with self._changed:
            if not self._idle or self._ends(call):
                return None
            link = self._idle.pop()
            self._use(link, call)
            return link

    def _use(self, link: Link, call: Call) -> None:
        link.is_urgent = call.is_urgent
        self._used.add(link)

    def _made(self, call: Call) -> Link:
        """Return a new connection, ready for use, among the used ones."""
        closings = -1 if call.is_last else self._closings if call.is_urgent else call.closings
        link = self._connected(closings)
        with self._changed:
            self._use(link, call)
        try:
            if self._ends(call):
                raise self._closed()
            self._begin(link)
        except BaseException as error:
            link.close()
            self._give_back(link)
            if isinstance(error, psycopg.Error):
                raise self._explained(call, error) from error
            raise
        return link

    def _connected(self, closings: int) -> Link:
        try:
            conn: psycopg.Connection[TupleRow] = psycopg.connect(**self._parameters, autocommit=True)
        except psycopg.Error as error:
            raise self.place.explained(error) from error
        try:
            return Link(conn, self.place, self.schema, closings)
        except OSError as error:
            conn.close()
            raise self.place.unconnected(error) from error

    def _begin(self, link: Link) -> None:
        link.conn.adapters.register_dumper(bytes, _FromBytes)
        link.conn.adapters.register_loader("json", _ToBytes)
        encoding = link.conn.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise StoreError(
                f"{self.place}: its encoding is {encoding}, which can't hold every text;"
                " use a database with UTF8: createdb --encoding=UTF8 --template=template0"
            )
        link.is_ready = begin(link)

    def _give_back(self, link: Link) -> None:
        """Keep a connection that isn't used any more, or close it."""
        link.settle()
        with self._changed:
            self._used.discard(link)
            if not link.closed and link.closings == self._closings and len(self._idle) < self.most:
                self._idle.append(link)
                return
        link.close()

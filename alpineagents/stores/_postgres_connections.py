"""Connections to a PostgreSQL server: a few that are kept, each used by one thread at a time.

They have no threads of their own, and why one couldn't be made is known at once: psycopg_pool makes its connections in
threads that outlive a run, tries again for 30 seconds, and then says only that it took too long.
"""

from __future__ import annotations

import os
import socket
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeVar, TypeVarTuple, Unpack, final

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Dumper, Loader
from psycopg.pq import Format, TransactionStatus
from psycopg.rows import TupleRow

from .._errors import StoreError
from ._postgres_place import Place, read_dsn
from ._postgres_schema import LOCK_SECONDS, begin

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


@final
class Link:
    """A connection; whoever has it is the only one who uses it."""

    def __init__(self, conn: psycopg.Connection[TupleRow], place: Place, schema: str, closings: int) -> None:
        self.conn = conn
        self.place = place
        self.schema = schema
        self.closings = closings
        """How often the store had been closed when it was made."""
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
    """What a store has of connections. Every method but ``drop`` may block, and is callable in any thread.

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

    def run(self, act: Callable[[Link, Unpack[Ts]], T], *args: *Ts) -> T:
        """Return ``act(link, *args)``. Where the connection breaks, it is done again on a new one, once.

        So *act* must come to the same when done twice.

        Raises:
            StoreError: no connection could be made, or the server refused something.
        """
        with self._turn():
            result, link = self._done(act, *args)
            self._give_back(link)
            return result

    def listen(self) -> Link:
        """Return a connection that hears of changes. Give it to ``unlisten`` or ``drop``."""
        _, link = self._done(Link.execute, "LISTEN {schema}")
        with self._changed:
            self._used.discard(link)
            self._listening.add(link)
        return link

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
        """Close all connections. Calls that are still on end with a StoreError, and are waited for."""
        with self._changed:
            self._closings += 1
            _close_all(self._idle)
            for link in (*self._used, *self._listening):
                link.hang_up()
            self._changed.wait_for(lambda: not self._busy, CLOSE_SECONDS)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait until another connection may be used."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._busy < self.most, LOCK_SECONDS):
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

    def _done(self, act: Callable[[Link, Unpack[Ts]], T], *args: *Ts) -> tuple[T, Link]:
        """Return what *act* gave, and the connection, which is among the used ones."""
        closings = self._closings
        link = self._kept() or self._made()
        try:
            return self._used_for(link, act, *args)
        except psycopg.Error as error:
            if not link.closed:
                raise self.place.explained(error) from error
            if closings != self._closings:
                raise StoreError(f"{self.place}: the store was closed meanwhile") from error
            with self._changed:
                _close_all(self._idle)  # they are as old
        try:
            return self._used_for(self._made(), act, *args)
        except psycopg.Error as error:
            raise self.place.explained(error) from error

    def _used_for(self, link: Link, act: Callable[[Link, Unpack[Ts]], T], *args: *Ts) -> tuple[T, Link]:
        try:
            return act(link, *args), link
        except BaseException:
            self._give_back(link)
            raise

    def _kept(self) -> Link | None:
        with self._changed:
            if not self._idle:
                return None
            link = self._idle.pop()
            self._used.add(link)
            return link

    def _made(self) -> Link:
        """Return a new connection, ready for use, among the used ones."""
        closings = self._closings
        try:
            conn: psycopg.Connection[TupleRow] = psycopg.connect(**self._parameters, autocommit=True)
        except psycopg.Error as error:
            raise self.place.explained(error) from error
        link = Link(conn, self.place, self.schema, closings)
        with self._changed:
            self._used.add(link)
        try:
            self._begin(link)
        except BaseException as error:
            link.close()
            self._give_back(link)
            if isinstance(error, psycopg.Error):
                raise self.place.explained(error) from error
            raise
        return link

    def _begin(self, link: Link) -> None:
        link.conn.adapters.register_dumper(bytes, _FromBytes)
        link.conn.adapters.register_loader("json", _ToBytes)
        encoding = link.conn.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise StoreError(
                f"{self.place}: its encoding is {encoding}, which can't hold every text;"
                " use a database with UTF8: createdb --encoding=UTF8 --template=template0"
            )
        begin(link)

    def _give_back(self, link: Link) -> None:
        """Keep a connection that isn't used any more, or close it."""
        link.settle()
        with self._changed:
            self._used.discard(link)
            if not link.closed and link.closings == self._closings and len(self._idle) < self.most:
                self._idle.append(link)
                return
        link.close()

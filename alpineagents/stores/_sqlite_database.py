"""A SQLite file: its connections, a few of which are kept, and what is said when it fails.

A connection has one user at a time, in whatever thread. Those that rest lie in a deque without a lock: a store that
nobody uses any more is collected in any thread and in the middle of anything, and closes them then.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeVar, final

import attrs

from .._errors import CorruptStoreError, StoreError
from ._folder import make_folder, store_errors
from ._sqlite_schema import prepare

T = TypeVar("T")

_MOST_KEPT: Final = 4
_POLL_SECONDS: Final = 0.1  # How long SQLite waits for a lock before we look whether somebody still waits for us.
_PAUSE_SECONDS: Final = 0.005  # It refuses at once where waiting might never end.
_LONGEST_LOG: Final = 64 * 2**20  # bytes that the write-ahead log keeps, once they aren't needed

_BUSY: Final = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_HINTS: Final = {
    sqlite3.SQLITE_FULL: "free some space",
    sqlite3.SQLITE_READONLY: "choose a file that this user may write, in a folder that this user may write",
    sqlite3.SQLITE_CANTOPEN: "choose a file that this user may read and write, in a folder that this user may write,"
    " or, if too many files are open, raise their limit (ulimit -n)",
    sqlite3.SQLITE_IOERR: "check the disk, and the limit on file sizes (ulimit -f)",
}


@attrs.frozen(eq=False)
class _Opened:
    connection: sqlite3.Connection
    file: tuple[int, int] | None
    """Device and inode: another file may get this one's name."""
    round: int
    """How often the database had been closed."""


@final
class Database:
    """The file at *path*. Its methods block."""

    def __init__(self, path: Path, *, synchronous: str, busy_seconds: float) -> None:
        self.path = path
        self.busy_seconds = busy_seconds
        self._synchronous = synchronous
        self._resting: deque[_Opened] = deque()
        self._round = 0

    def read(self, work: Callable[[sqlite3.Connection], T], given_up: threading.Event) -> T | None:
        """Return ``work(connection)``; None where there is no database yet. Busy is waited for.

        Raises:
            StoreError: it can't be read; or what *work* raises.
        """
        deadline = time.monotonic() + self.busy_seconds
        with self._errors("read"):
            return _patiently(partial(self._read, work), deadline, given_up)

    def _read(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        opened = self._take(create=False)
        if opened is None:
            return None
        with self._using(opened) as connection:
            connection.execute("BEGIN")  # all that is read is of one moment
            try:
                return work(connection)
            finally:
                connection.rollback()

    @contextmanager
    def transaction(self, *, durable: bool, deadline: float, given_up: threading.Event) -> Iterator[sqlite3.Connection]:
        """Write what the block does, or, where it raises, nothing of it. Busy is waited for, until *deadline*.

        Args:
            durable: False: a crash of the machine may undo it, unless something durable came after it.
            deadline: In ``time.monotonic()``.
            given_up: Set when nobody waits for it any more.

        Raises:
            StoreError: it can't be written.
        """
        with self._errors("written"):
            begun = _patiently(partial(self._begin, self._synchronous if durable else "NORMAL"), deadline, given_up)
            with self._using(begun) as connection:
                yield connection
                connection.execute("COMMIT")

    def _begin(self, synchronous: str) -> _Opened:
        opened = self._take(create=True)
        assert opened is not None
        try:
            opened.connection.execute(f"PRAGMA synchronous = {synchronous}")
            opened.connection.execute("BEGIN IMMEDIATE")
        except BaseException as error:
            self._put_away(opened, error)
            raise
        return opened

    @contextmanager
    def _using(self, opened: _Opened) -> Iterator[sqlite3.Connection]:
        try:
            yield opened.connection
        except BaseException as error:
            self._put_away(opened, error)
            raise
        self._put_back(opened)

    def _put_away(self, opened: _Opened, error: BaseException) -> None:
        """Keep a connection after a refusal; close it after an error that may have left it in any state."""
        is_sound = isinstance(error, StoreError) or (isinstance(error, sqlite3.Error) and _code(error) in _BUSY)
        if is_sound and not opened.connection.in_transaction:
            self._put_back(opened)
        else:
            opened.connection.close()

    # ---- Connections

    def _take(self, *, create: bool) -> _Opened | None:
        file = self._file()
        while True:
            try:
                opened = self._resting.pop()
            except IndexError:
                break
            if opened.file == file:
                return opened
            opened.connection.close()
        return None if file is None and not create else self._open(create=create)

    def _file(self) -> tuple[int, int] | None:
        """Return which file has the name now; None if none has."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        if stat.S_ISDIR(found.st_mode):
            raise StoreError(f"{self.path} is a folder; choose a file, such as {self.path / 'states.db'}")
        return found.st_dev, found.st_ino

    def _open(self, *, create: bool) -> _Opened | None:
        if create:
            _make_file(self.path)
        round_ = self._round
        connection = sqlite3.connect(
            f"{self.path.as_uri()}?mode=rw",  # not made here, where everybody might read it
            uri=True,
            timeout=min(_POLL_SECONDS, self.busy_seconds),
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            if prepare(connection, self.path, create=create):
                connection.execute(f"PRAGMA journal_size_limit = {_LONGEST_LOG}")
                return _Opened(connection, self._file(), round_)
        except BaseException:
            connection.close()
            raise
        connection.close()
        return None

    def _put_back(self, opened: _Opened) -> None:
        self._resting.append(opened)
        self._close_but(0 if opened.round != self._round else _MOST_KEPT)

    def _close_but(self, kept: int) -> None:
        while len(self._resting) > kept:
            with suppress(IndexError):  # somebody else took it
                self._resting.popleft().connection.close()

    def close(self) -> None:
        """Close all connections: those in use when they are put back. The next call opens new ones."""
        self._round += 1
        self._close_but(0)

    # ---- Errors

    @contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        """Turn what SQLite and the system say into a StoreError that says what to do."""
        try:
            with store_errors(doing, self.path):
                yield
        except sqlite3.Error as error:
            raise self._store_error(error, doing) from error

    def _store_error(self, error: sqlite3.Error, doing: str) -> StoreError:
        code = _code(error)
        if code in _BUSY:
            return StoreError(
                f"{self.path} has been locked by another program for {self.busy_seconds:g} s: end what locks it"
                " (a database browser, a backup), or wait longer: SQLiteStore(..., busy_seconds=60)"
            )
        if code == sqlite3.SQLITE_NOTADB:
            return CorruptStoreError(
                f"{self.path} is no SQLite database, or its beginning is damaged; choose another file, or restore"
                " this one from a backup"
            )
        if code == sqlite3.SQLITE_CORRUPT:
            return CorruptStoreError(
                f"{self.path} is damaged: {error}; restore it from a backup, or save what is readable:"
                f" sqlite3 {self.path} .recover"
            )
        hint = _HINTS.get(code)
        return StoreError(f"{self.path} can't be {doing}: {error}{f'; {hint}' if hint else ''}")


def _code(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code; 0 where the error isn't SQLite's."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _patiently(attempt: Callable[[], T], deadline: float, given_up: threading.Event) -> T:
    """Return ``attempt()``, repeated while somebody else locks the database, until *deadline*."""
    while True:
        try:
            return attempt()
        except sqlite3.Error as error:
            if _code(error) not in _BUSY or time.monotonic() >= deadline or given_up.wait(_PAUSE_SECONDS):
                raise


def _make_file(path: Path) -> None:
    """Make an empty file, which is an empty database, for its user alone, unless there is one already.

    It gets its name by a link and is never opened under it: to close a file takes away all locks that this process has
    on it, SQLite's included (https://sqlite.org/howtocorrupt.html, 2.2).
    """
    path = Path(os.path.realpath(path))
    if path.exists():
        return
    make_folder(path.parent, sync=True)
    fd, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(fd)
    try:
        with suppress(FileExistsError):
            os.link(name, path)
    finally:
        os.unlink(name)

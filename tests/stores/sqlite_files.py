"""SQLite files as tests look at them from outside, and stores whose connections can be watched and held up."""

from __future__ import annotations

import gc
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import trio

from alpineagents.stores._sqlite import SQLiteStore

Connect = Callable[..., sqlite3.Connection]


def opened(path: Path) -> sqlite3.Connection:
    """A connection as another program has one."""
    return sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)


def change(path: Path, statement: str, *values: object) -> None:
    """Let another program change something."""
    with closing(opened(path)) as connection:
        connection.execute(statement, values)


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    """What another program reads."""
    with closing(opened(path)) as connection:
        return connection.execute(query).fetchall()


@contextmanager
def locked(path: Path, how: str = "IMMEDIATE") -> Iterator[None]:
    """Another program locks the file during the block: for writing, or ``EXCLUSIVE`` for reading too."""
    with closing(opened(path)) as connection:
        if how == "EXCLUSIVE":
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute(f"BEGIN {how}")
        if how == "EXCLUSIVE":
            connection.execute("PRAGMA user_version").fetchone()
        yield
        connection.execute("ROLLBACK")


def open_files(path: Path) -> list[str]:
    """Which files of this database this process has open."""
    gc.collect()
    found = []
    for fd in os.listdir("/dev/fd"):
        try:
            target = os.readlink(f"/dev/fd/{fd}")
        except OSError:
            continue  # that of listdir itself
        if target.startswith(str(path)):
            found.append(target.removeprefix(str(path)))
    return sorted(found)


async def queued(store: SQLiteStore, count: int) -> None:
    """Wait until so many writes wait for their turn."""
    with trio.fail_after(60):
        while len(store._writes._waiting) < count:
            await trio.lowlevel.checkpoint()


async def begun(store: SQLiteStore) -> None:
    """Wait until somebody tries to write."""
    with trio.fail_after(60):
        while not store._writes._turn.locked():
            await trio.lowlevel.checkpoint()


class Clock:
    """A time that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Watched:
    """All connections made through ``connect``: what they execute, how much work that is, and a gate before it."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self.connections: list[sqlite3.Connection] = []
        self.closed = 0
        """How many connections were closed, not just dropped."""
        self.statements: list[str] = []
        self.steps = 0
        """How many instructions SQLite's machine has executed."""
        self.most_pages: int | None = None
        self._held: str | None = None
        self._reached = trio.Event()
        self._gate = threading.Event()

    def connect(self, *args: object, **kwargs: object) -> sqlite3.Connection:
        watched = self

        class Connection(sqlite3.Connection):
            def close(self) -> None:
                watched.closed += 1
                super().close()

        connection = self._connect(*args, factory=Connection, **kwargs)
        connection.set_trace_callback(self._trace)
        connection.set_progress_handler(self._step, 1)
        self.connections.append(connection)
        self._limit(connection)
        return connection

    def limit_pages(self, most: int) -> None:
        """Let the disk be full when the file has so many pages."""
        self.most_pages = most
        for connection in self.connections:
            try:
                self._limit(connection)
            except sqlite3.ProgrammingError:
                continue  # closed

    def _limit(self, connection: sqlite3.Connection) -> None:
        if self.most_pages is not None:
            connection.execute(f"PRAGMA max_page_count = {self.most_pages}")

    def _step(self) -> int:
        self.steps += 1
        return 0

    def _trace(self, statement: str) -> None:
        self.statements.append(statement)
        if self._held is not None and statement.startswith(self._held):
            self._held = None
            trio.from_thread.run_sync(self._reached.set)
            assert self._gate.wait(60)

    def count(self, start: str) -> int:
        """How many statements began like this."""
        return sum(statement.startswith(start) for statement in self.statements)

    def let_go(self) -> None:
        """Let what is held up go on."""
        self._gate.set()

    @contextmanager
    def holding(self, statement: str) -> Iterator[trio.Event]:
        """Hold up the next statement that begins like this, until the block ends; the event: it is there."""
        self._held, self._reached, self._gate = statement, trio.Event(), threading.Event()
        try:
            yield self._reached
        finally:
            self._gate.set()

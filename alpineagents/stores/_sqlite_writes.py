"""Who writes next: what waits while one transaction is being written goes into the next one, together.

So a hundred agents that save at once cost a few syncs of the disk, not a hundred. Each thread queues its write and
waits for its turn; whoever gets it does what has queued, and the others find theirs done.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from typing import TypeAlias, final

from .._errors import StoreError
from ._sqlite_database import Database

Work: TypeAlias = Callable[[sqlite3.Connection], None]
"""Something to write, inside a transaction. It checks first: where it raises StoreError it has written nothing."""


@final
class Write:
    """One piece of work, until it is done."""

    __slots__ = ("deadline", "durable", "error", "given_up", "is_done", "undo", "work")

    def __init__(self, work: Work, *, durable: bool, undo: Callable[[], None] | None = None) -> None:
        self.work = work
        self.undo = undo
        """Takes back what *work* noted besides; called where what it wrote isn't there after all."""
        self.durable = durable
        """Whether it must survive a crash of the machine."""
        self.given_up = threading.Event()
        """Nobody waits for it any more: unless it has begun, it isn't done, so it can't come in late behind others."""
        self.deadline = 0.0
        self.error: Exception | None = None
        self.is_done = False

    def attempt(self, connection: sqlite3.Connection) -> None:
        """Do it, or note why it is refused."""
        self.error = None
        if not self.given_up.is_set():
            try:
                self.work(connection)
            except StoreError as error:
                self.error = error


@final
class Writes:
    """The queue before one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._turn = threading.Lock()
        self._guard = threading.Lock()
        self._waiting: list[Write] = []

    def do(self, write: Write) -> None:
        """Return when *write* is committed. Blocks.

        Raises:
            StoreError: it was refused, or couldn't be written.
        """
        write.deadline = time.monotonic() + self._database.busy_seconds
        with self._guard:
            self._waiting.append(write)
        with self._turn:
            if not write.is_done:
                with self._guard:
                    batch, self._waiting = self._waiting, []
                self._commit(batch)
        if write.error is not None:
            raise write.error

    def _commit(self, batch: list[Write]) -> None:
        """Do *batch* as one transaction; where that fails, each as one of its own."""
        first = batch[0]
        durable = any(write.durable for write in batch)
        try:
            with self._database.transaction(
                durable=durable, deadline=first.deadline, given_up=first.given_up
            ) as connection:
                for write in batch:
                    write.attempt(connection)
        except Exception as error:  # noqa: BLE001  # whoever waits for it raises it
            for write in batch:
                if write.undo is not None:
                    write.undo()
            if len(batch) > 1:
                for write in batch:
                    self._commit([write])
            else:
                first.error = error
        for write in batch:
            write.is_done = True

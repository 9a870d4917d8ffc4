"""The tables of a SQLiteStore, and how a file gets them, whichever of several processes is the first there.

Entries lie in a table of their own with the numbers of their States, behind an index: kept in their key's order
(WITHOUT ROWID) the file would be half as large again, and every commit, since SQLite then moves long rows out of line.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

from .._errors import CorruptStoreError, StoreError

APPLICATION_ID: Final = 0x616C7069
"""In the file's header: whose database it is. "alpi"."""

STEPS: Final = (
    (
        """CREATE TABLE states(
            number INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            created_at INTEGER NOT NULL,  -- microseconds since 1970
            parent_id TEXT,
            info BLOB NOT NULL
        )""",
        "CREATE INDEX states_by_age ON states(created_at, id)",
        """CREATE TABLE entries(
            state INTEGER NOT NULL REFERENCES states,
            seq INTEGER NOT NULL,
            entry BLOB NOT NULL,
            PRIMARY KEY(state, seq)
        )""",
        """CREATE TABLE leases(
            state_id TEXT PRIMARY KEY,
            token TEXT NOT NULL,
            holder TEXT NOT NULL,
            since REAL NOT NULL,  -- seconds since 1970
            until REAL NOT NULL
        ) WITHOUT ROWID""",
    ),
)
"""What makes each version from the one before it; an empty file has version 0."""


def prepare(connection: sqlite3.Connection, path: Path, *, create: bool) -> bool:
    """Bring a file to the newest version. False if it is empty and is to stay so, without *create*.

    Raises:
        StoreError: it is another program's database, or lies where SQLite can't share it.
        CorruptStoreError: it is newer than this program.
        sqlite3.Error: it can't be read or written, or somebody else is busy with it.
    """
    version = _version(connection, path)
    if version == 0 and not create:
        return False
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreError(f"{path} can't be shared between processes where it lies; choose a folder on a local disk")
    if version < len(STEPS):
        connection.execute("BEGIN IMMEDIATE")
        for step in STEPS[_version_now(connection, path) :]:  # Somebody else may have been faster.
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(STEPS)}")
        connection.execute("COMMIT")
    return True


def _version(connection: sqlite3.Connection, path: Path) -> int:
    connection.execute("BEGIN")  # what is read is of one moment
    version = _version_now(connection, path)
    connection.execute("COMMIT")
    return version


def _version_now(connection: sqlite3.Connection, path: Path) -> int:
    """Return the version of a file, 0 for an empty one; inside a transaction."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID and (application or version or tables):
        raise StoreError(f"{path} is the database of another program; choose another file")
    if version > len(STEPS):
        raise CorruptStoreError(
            f"{path} is in version {version}, this alpineagents reads up to {len(STEPS)}; install a newer one"
        )
    return int(version)

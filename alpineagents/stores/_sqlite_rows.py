"""States and their entries as rows: what a SQLiteStore reads and writes.

Each function is given a connection; those that write, one with a transaction. They check first, then write.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import attrs

from .._errors import CorruptStoreError
from ._rules import check_no_gap, check_same, created_at, info_fields, is_id, looks_whole, not_found

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_MOST: Final = 2**63 - 1  # SQLite's largest integer
_NEAR: Final = 2_000  # ids, among which those near one that isn't there are looked for


@attrs.frozen
class About:
    """An info, and what of it is in columns of its own."""

    info: bytes
    created_at: int
    """Microseconds since 1970."""
    parent_id: str | None


def about(info: bytes) -> About:
    """Return what is written of *info*; ValueError if it isn't a JSON object."""
    fields = info_fields(info)
    parent_id = fields.get("parent_id")
    return About(info, (created_at(fields) - _EPOCH) // _MICROSECOND, parent_id if is_id(parent_id) else None)


def append(
    connection: sqlite3.Connection, path: Path, state_id: str, first_seq: int, entries: Sequence[bytes], about: About
) -> None:
    """Write those of *entries* that aren't there yet, and *about* if there are such.

    Raises:
        ConflictError: a gap before *first_seq*, or another entry at one of the positions.
        CorruptStoreError: the State is there and has no entries.
    """
    found = connection.execute("SELECT number, created_at, parent_id FROM states WHERE id = ?", (state_id,)).fetchone()
    length = _length(connection, path, state_id, found[0]) if found else 0
    check_no_gap(state_id, path, first_seq, length)
    if first_seq < length:
        there = connection.execute(
            "SELECT CAST(entry AS BLOB) FROM entries WHERE state = ? AND seq >= ? AND seq < ? ORDER BY seq",
            (found[0], first_seq, first_seq + len(entries)),
        )
        check_same(state_id, path, first_seq, entries, [entry for (entry,) in there])
    new = entries[length - first_seq :]
    if not new:
        return
    number = _put_about(connection, state_id, found, about)
    connection.executemany(
        "INSERT INTO entries(state, seq, entry) VALUES (?, ?, ?)",
        ((number, seq, entry) for seq, entry in enumerate(new, length)),
    )


def _length(connection: sqlite3.Connection, path: Path, state_id: str, number: int) -> int:
    (last,) = connection.execute("SELECT max(seq) FROM entries WHERE state = ?", (number,)).fetchone()
    if last is None:
        raise _damaged(path, state_id, 0)
    return int(last) + 1


def _put_about(
    connection: sqlite3.Connection, state_id: str, found: tuple[int, int, str | None] | None, about: About
) -> int:
    """Write the row of a State, of which *found* was there, and return its number."""
    columns = (about.created_at, about.parent_id)
    if found is None:
        number = connection.execute(
            "INSERT INTO states(id, created_at, parent_id, info) VALUES (?, ?, ?, ?)", (state_id, *columns, about.info)
        ).lastrowid
        assert number is not None
        return number
    number = found[0]
    if columns == found[1:]:  # The index isn't touched.
        connection.execute("UPDATE states SET info = ? WHERE number = ?", (about.info, number))
    else:
        connection.execute(
            "UPDATE states SET created_at = ?, parent_id = ?, info = ? WHERE number = ?", (*columns, about.info, number)
        )
    return number


def read(connection: sqlite3.Connection, path: Path, state_id: str, after: int) -> list[bytes]:
    """Return the entries from position *after* on.

    Raises:
        StateNotFoundError: there is no such State.
        CorruptStoreError: an entry is missing or isn't one.
    """
    found = connection.execute(
        "SELECT seq, CAST(entry AS BLOB) FROM entries"
        " WHERE state = (SELECT number FROM states WHERE id = ?) AND seq >= ? ORDER BY seq",
        (state_id, min(after, _MOST)),
    ).fetchall()
    for expected, (seq, entry) in enumerate(found, after):
        if seq != expected or not looks_whole(entry):
            raise _damaged(path, state_id, expected)
    if not found:
        if connection.execute("SELECT 1 FROM states WHERE id = ?", (state_id,)).fetchone() is None:
            raise not_found(state_id, path, () if after else _ids(connection))
        if not after:
            raise _damaged(path, state_id, 0)
    return [entry for _, entry in found]


def _damaged(path: Path, state_id: str, seq: int) -> CorruptStoreError:
    readable = f"the {seq} entries before it are readable" if seq else "nothing of it is readable"
    return CorruptStoreError(
        f"{path}: entry {seq} of State {state_id} is missing or damaged; {readable}; restore the file from a backup"
    )


def infos(connection: sqlite3.Connection, path: Path, limit: int | None, before: str | None) -> list[tuple[str, bytes]]:
    """Return ``(id, info)`` of the States, newest created first.

    Raises:
        StateNotFoundError: there is no State *before*.
    """
    behind: tuple[object, ...] = ()
    if before is not None:
        behind = connection.execute("SELECT created_at, id FROM states WHERE id = ?", (before,)).fetchone()
        if behind is None:
            raise not_found(before, path, _ids(connection))
    found = connection.execute(
        f"SELECT id, CAST(info AS BLOB) FROM states {'WHERE (created_at, id) < (?, ?)' if behind else ''}"
        " ORDER BY created_at DESC, id DESC LIMIT ?",
        (*behind, _MOST if limit is None else min(limit, _MOST)),
    )
    return found.fetchall()


def _ids(connection: sqlite3.Connection) -> list[str]:
    newest = connection.execute("SELECT id FROM states ORDER BY created_at DESC, id DESC LIMIT ?", (_NEAR,))
    return [state_id for (state_id,) in newest]


def remove(connection: sqlite3.Connection, state_id: str) -> None:
    """Remove a State and its entries. One that isn't there is no error."""
    connection.execute("DELETE FROM entries WHERE state = (SELECT number FROM states WHERE id = ?)", (state_id,))
    connection.execute("DELETE FROM states WHERE id = ?", (state_id,))

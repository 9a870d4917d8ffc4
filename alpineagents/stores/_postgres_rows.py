"""What a PostgresStore does to its tables, each function in one transaction on a connection. They may be done twice.

Writers of one State take turns at the row of its lease: whoever writes has locked it and seen their own token in it,
or has put it there for the length of the transaction. So one whose lease was taken over finds another token, however
late they come; tokens never come twice, and need no order.

NOTIFY comes after the commit, in the same packet: a transaction that notifies makes all others that do wait until it is
on disk (a lock per server), which with 32 writers left 550 appends a second of 3,000. What a crash in between swallows
is found by the watchers, who look from time to time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final
from uuid import UUID

import attrs

from .._errors import CorruptStoreError, RunningElsewhereError, StoreError
from ._holder import decoded
from ._rules import check_no_gap, check_same, not_found, running_elsewhere

if TYPE_CHECKING:
    from psycopg import Cursor
    from psycopg.rows import TupleRow

    from ._postgres_connections import Link

_MOST_AT_ONCE: Final = 64 * 2**20
"""Bytes of entries in one statement, unless a single one has more; PostgreSQL's limit is 1 GiB."""

_NOBODY_KNOWN: Final = "a process of another version of this library"

_NEAR: Final = 2_000
"""How many ids are looked at for one that is nearly the same."""


@attrs.frozen
class Claim:
    """What is written into the row of a lease."""

    token: UUID
    holder: str
    seconds: float
    free: tuple[UUID, ...] = ()
    """Tokens that may be replaced though they haven't run out."""


@attrs.frozen
class Batch:
    """What is to be appended to a State."""

    state_id: str
    first: int
    entries: Sequence[bytes]
    info: bytes
    created_at: datetime
    parent_id: str | None

    def part(self, start: int, end: int) -> Batch:
        """Return what is to be done for a part of the entries."""
        return attrs.evolve(self, first=self.first + start, entries=self.entries[start:end])


# ---- Leases

_CLAIM: Final = """
INSERT INTO {schema}.leases AS held (state_id, token, holder, since, expires)
    SELECT %(id)s, %(token)s, %(holder)s, since, since + %(seconds)s * interval '1 second'
    FROM clock_timestamp() AS since
ON CONFLICT (state_id) DO UPDATE
    SET token = excluded.token, holder = excluded.holder, since = excluded.since, expires = excluded.expires
    WHERE held.expires <= clock_timestamp() OR held.token = ANY(%(free)s)
"""
_HELD: Final = """
SELECT token, holder, extract(epoch FROM clock_timestamp() - since)::float8 FROM {schema}.leases WHERE state_id = %(id)s
"""
_RENEW: Final = """
UPDATE {schema}.leases SET expires = clock_timestamp() + %(seconds)s * interval '1 second'
WHERE state_id = %(id)s AND token = %(token)s
"""
_RELEASE: Final = "DELETE FROM {schema}.leases WHERE state_id = %(id)s AND token = %(token)s"
_LOCK: Final = "SELECT 1 FROM {schema}.leases WHERE state_id = %(id)s AND token = %(token)s FOR UPDATE"


def claim(link: Link, state_id: str, wanted: Claim) -> None:
    """Take the lease of a State; a crash of the server may take that back.

    Raises:
        RunningElsewhereError: somebody else has it.
    """
    _claim(link, state_id, wanted, _change)


def _claim(link: Link, state_id: str, wanted: Claim, change: Callable[[Link, str, dict[str, object]], int]) -> None:
    free = [wanted.token, *wanted.free]
    values: dict[str, object] = {
        "id": state_id,
        "token": wanted.token,
        "holder": wanted.holder,
        "seconds": wanted.seconds,
        "free": free,
    }
    while not change(link, _CLAIM, values):
        row = link.execute(_HELD, {"id": state_id}).fetchone()
        if row is None:
            continue  # given back just now
        token, text, age = row
        holder = decoded(text)
        if token in free or holder is None or not holder.is_gone():
            raise running_elsewhere(state_id, link.place, f"{holder or _NOBODY_KNOWN}, since {age:.0f} s")
        free.append(token)


def renew(link: Link, state_id: str, token: UUID, seconds: float) -> None:
    """Let a lease last.

    Raises:
        RunningElsewhereError: it is lost.
    """
    if not _change(link, _RENEW, {"id": state_id, "token": token, "seconds": seconds}):
        raise _lost(link, state_id)


def release(link: Link, state_id: str, token: UUID) -> bool:
    """Give a lease back; return whether it was there."""
    return _change(link, _RELEASE, {"id": state_id, "token": token}) > 0


def _change(link: Link, text: str, values: dict[str, object]) -> int:
    """Run a statement about a lease, in one round trip and without waiting for the disk; return how many rows it met.

    A crash of the server may take it back, and nothing written after it survives that: a lease that was taken is lost
    then, which its holder notices; one that was given back runs out.
    """
    with link.conn.pipeline():
        link.execute("BEGIN")
        link.execute("SET LOCAL synchronous_commit = off")
        cursor = link.execute(text, values)
        link.execute("COMMIT")
    return cursor.rowcount


def _change_durably(link: Link, text: str, values: dict[str, object]) -> int:
    return link.execute(text, values).rowcount


def _lost(link: Link, state_id: str) -> RunningElsewhereError:
    row = link.execute(_HELD, {"id": state_id}).fetchone()
    who = f"{decoded(row[1]) or _NOBODY_KNOWN} has it since {row[2]:.0f} s" if row else "somebody else has had it"
    return RunningElsewhereError(
        f"State {state_id} in {link.place}: the lease of this run ran out, and {who};"
        f" go on with what is saved: store.load({state_id!r}), or give yours an id of its own: state.fork()"
    )


# ---- Entries

_BEGUN: Final = """
    INSERT INTO {schema}.states (id, length, info, created_at, parent_id)
    SELECT state_id, %(length)s, %(info)b, %(created_at)s, %(parent_id)s FROM held
    ON CONFLICT (id) DO NOTHING RETURNING id
"""
_GROWN: Final = """
    UPDATE {schema}.states SET length = %(length)s, info = %(info)b, created_at = %(created_at)s,
        parent_id = %(parent_id)s
    FROM held WHERE id = held.state_id AND length = %(first)s RETURNING id
"""
# Writes nothing unless the lease has this token and the State this length.
_APPEND: Final = """
WITH held AS (SELECT state_id FROM {{schema}}.leases WHERE state_id = %(id)s AND token = %(token)s FOR UPDATE),
state AS ({state})
INSERT INTO {{schema}}.entries (state_id, seq, entry)
SELECT state.id, %(first)s + new.number - 1, new.entry
FROM state, unnest(%(entries)b::json[]) WITH ORDINALITY AS new (entry, number)
"""
_APPEND_FIRST: Final = _APPEND.format(state=_BEGUN)
_APPEND_MORE: Final = _APPEND.format(state=_GROWN)
_NOTIFY: Final = "SELECT pg_notify(%(channel)s, %(id)s)"
_LENGTH: Final = "SELECT length FROM {schema}.states WHERE id = %(id)s"
_BETWEEN: Final = """
SELECT entry FROM {schema}.entries WHERE state_id = %(id)s AND seq >= %(first)s AND seq < %(end)s ORDER BY seq
"""
_READ: Final = """
SELECT state.length, entry.entry
FROM {schema}.states AS state
    LEFT JOIN {schema}.entries AS entry ON entry.state_id = state.id AND entry.seq >= %(after)s
WHERE state.id = %(id)s ORDER BY entry.seq
"""
_COUNTS: Final = """
SELECT length, (SELECT count(*) FROM {schema}.entries WHERE state_id = id),
    (SELECT count(*) FROM (
        SELECT seq, row_number() OVER (ORDER BY seq) AS place FROM {schema}.entries WHERE state_id = id
    ) AS entry WHERE seq = place - 1)
FROM {schema}.states WHERE id = %(id)s
"""
_SOME_IDS: Final = "SELECT id FROM {schema}.states LIMIT %(limit)s"


def append(link: Link, batch: Batch, held: UUID | None, wanted: Claim) -> None:
    """Write *batch*, durably.

    Args:
        link: The connection.
        batch: What to write. Entries that are there already are compared.
        held: The token of the lease that the caller thinks it holds; None: take one, *wanted*, for this transaction.
        wanted: See *held*.

    Raises:
        ConflictError: a gap, or another entry at one of the positions.
        RunningElsewhereError: the lease is lost, or somebody else's.
    """
    if held is not None and sum(map(len, batch.entries)) <= _MOST_AT_ONCE and _append_at_once(link, batch, held):
        return
    if link.in_transaction(_append_checked, link, batch, held, wanted):
        _notify(link, batch.state_id)


def _append_at_once(link: Link, batch: Batch, token: UUID) -> bool:
    """Write *batch* in one round trip, if it is what comes next; else nothing: what is wrong has to be looked at."""
    with link.conn.pipeline():
        link.execute("BEGIN")
        cursor = _insert(link, batch, token)
        link.execute("COMMIT")
        _notify(link, batch.state_id)
    return cursor.rowcount == len(batch.entries)


def _append_checked(link: Link, batch: Batch, held: UUID | None, wanted: Claim) -> bool:
    """Write what of *batch* isn't there yet, in a transaction; return whether there was something."""
    state_id = batch.state_id
    if held is None:
        _claim(link, state_id, wanted, _change_durably)
    elif link.execute(_LOCK, {"id": state_id, "token": held}).fetchone() is None:
        raise _lost(link, state_id)
    row = link.execute(_LENGTH, {"id": state_id}).fetchone()
    length = row[0] if row else 0
    check_no_gap(state_id, link.place, batch.first, length)
    end = batch.first + len(batch.entries)
    there = link.execute(_BETWEEN, {"id": state_id, "first": batch.first, "end": end}).fetchall()
    if len(there) != min(length, end) - batch.first:
        raise _entries_missing(link, state_id)
    check_same(state_id, link.place, batch.first, batch.entries, [entry for (entry,) in there])
    new = batch.part(length - batch.first, len(batch.entries))
    for part in _parts(new):
        if _insert(link, part, wanted.token if held is None else held).rowcount != len(part.entries):
            raise StoreError(
                f"State {state_id} in {link.place}: rows went missing while they were written; is there a trigger?"
            )
    if held is None:
        _change_durably(link, _RELEASE, {"id": state_id, "token": wanted.token})
    return len(new.entries) > 0


def _insert(link: Link, batch: Batch, token: UUID) -> Cursor[TupleRow]:
    values = {
        "id": batch.state_id,
        "token": token,
        "first": batch.first,
        "length": batch.first + len(batch.entries),
        "entries": list(batch.entries),
        "info": batch.info,
        "created_at": batch.created_at,
        "parent_id": batch.parent_id,
    }
    return link.execute(_APPEND_MORE if batch.first else _APPEND_FIRST, values)


def _parts(batch: Batch) -> Iterator[Batch]:
    """Cut *batch* such that each part fits into a statement."""
    start = size = 0
    for end, entry in enumerate(batch.entries):
        if size and size + len(entry) > _MOST_AT_ONCE:
            yield batch.part(start, end)
            start, size = end, 0
        size += len(entry)
    if size:
        yield batch.part(start, len(batch.entries))


def _notify(link: Link, state_id: str) -> None:
    link.execute(_NOTIFY, {"channel": link.schema, "id": state_id})


def read(link: Link, state_id: str, after: int) -> tuple[int, list[bytes]]:
    """Return how many entries a State has, and those from position *after* on.

    Raises:
        StateNotFoundError: there is no such State.
        CorruptStoreError: some are missing.
    """
    rows = link.execute(_READ, {"id": state_id, "after": after}).fetchall()
    if not rows:
        ids = [] if after else [found for (found,) in link.execute(_SOME_IDS, {"limit": _NEAR})]
        raise not_found(state_id, link.place, ids)
    length: int = rows[0][0]
    entries = [entry for _, entry in rows if entry is not None]
    if len(entries) != max(0, length - after):
        raise _entries_missing(link, state_id)
    return length, entries


def _entries_missing(link: Link, state_id: str) -> CorruptStoreError:
    (row,) = link.execute(_COUNTS, {"id": state_id})
    length, count, readable = row
    return CorruptStoreError(
        f"State {state_id} in {link.place} has {count} of its {length} entries; somebody has removed rows from"
        f" {link.schema}.entries. The first {readable} are readable: restore the others from a backup"
    )


def length_of(link: Link, state_id: str) -> int | None:
    """Return how many entries a State has; None if there is none."""
    row = link.execute(_LENGTH, {"id": state_id}).fetchone()
    return row[0] if row else None


# ---- States

_INFOS: Final = "SELECT id, info FROM {schema}.states ORDER BY created_at DESC, id DESC LIMIT %(limit)s"
_INFOS_BEFORE: Final = """
SELECT id, info FROM {schema}.states
WHERE (created_at, id) < ((SELECT created_at FROM {schema}.states WHERE id = %(before)s), %(before)s)
ORDER BY created_at DESC, id DESC LIMIT %(limit)s
"""
_REMOVE: Final = "DELETE FROM {schema}.states WHERE id = %(id)s"


def infos(link: Link, limit: int | None, before: str | None) -> list[tuple[str, bytes]]:
    """Return ``(id, info)`` of States, newest created first.

    Raises:
        StateNotFoundError: there is no State *before*.
    """
    values: dict[str, object] = {"limit": limit, "before": before}
    found = link.execute(_INFOS if before is None else _INFOS_BEFORE, values).fetchall()
    if not found and before is not None and length_of(link, before) is None:
        raise not_found(before, link.place, [each for (each,) in link.execute(_SOME_IDS, {"limit": _NEAR})])
    return [(state_id, info) for state_id, info in found]


def remove(link: Link, state_id: str, wanted: Claim) -> None:
    """Remove a State with its entries.

    Raises:
        RunningElsewhereError: somebody holds it.
    """

    def remove_it() -> bool:
        _claim(link, state_id, wanted, _change_durably)
        removed = _change_durably(link, _REMOVE, {"id": state_id})
        _change_durably(link, _RELEASE, {"id": state_id, "token": wanted.token})
        return removed > 0

    if link.in_transaction(remove_it):
        _notify(link, state_id)

"""What a SQLiteStore writes together, and how much work that is."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from alpineagents import ConflictError, StateNotFoundError, StoreError
from alpineagents.stores._sqlite import SQLiteStore

from .histories import INFO, conversation, put, raw, raws
from .sqlite_files import Watched, queued, rows


@pytest.fixture
def store(tmp_path: Path) -> SQLiteStore:
    """A store whose file isn't there yet."""
    return SQLiteStore(tmp_path / "s.db")


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """The connections of all stores."""
    found = Watched(sqlite3.connect)
    monkeypatch.setattr("alpineagents.stores._sqlite_database.sqlite3.connect", found.connect)
    return found


async def test_what_comes_while_one_transaction_is_written_shares_the_next(
    store: SQLiteStore, watched: Watched
) -> None:
    await store.append("first", 0, raws(1), INFO)
    before = watched.count("COMMIT")

    with watched.holding("COMMIT") as reached:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.append, "first", 1, raws(1, 1), INFO)
            await reached.wait()
            for number in range(10):
                nursery.start_soon(store.append, f"bug-{number}", 0, raws(3), INFO)
            await queued(store, 10)
            watched.let_go()

    assert watched.count("COMMIT") - before == 2
    assert all([list(await store.read(f"bug-{number}")) == raws(3) for number in range(10)])


async def test_what_is_refused_takes_nothing_along(store: SQLiteStore, watched: Watched) -> None:
    await store.append("first", 0, raws(1), INFO)

    async def is_refused() -> None:
        with pytest.raises(ConflictError, match="first: entry 9 can't follow the 2 entries"):
            await store.append("first", 9, raws(1, 9), INFO)

    with watched.holding("COMMIT") as reached:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.append, "first", 1, raws(1, 1), INFO)
            await reached.wait()
            nursery.start_soon(store.append, "bug-1", 0, raws(3), INFO)
            nursery.start_soon(is_refused)
            nursery.start_soon(store.append, "bug-2", 0, raws(3), INFO)
            await queued(store, 3)
            watched.let_go()

    assert list(await store.read("bug-1")) == list(await store.read("bug-2")) == raws(3)


async def test_what_fails_takes_nothing_along(store: SQLiteStore, watched: Watched) -> None:
    """The disk has no room for one of those that share a transaction."""
    await store.append("first", 0, raws(1), INFO)
    watched.limit_pages(100)

    async def is_too_long() -> None:
        with pytest.raises(StoreError, match=r"s\.db can't be written: database or disk is full; free some space"):
            await store.append("long", 0, [raw(0, text="x" * 10**6)], INFO)

    with watched.holding("COMMIT") as reached:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.append, "first", 1, raws(1, 1), INFO)
            await reached.wait()
            nursery.start_soon(store.append, "bug-1", 0, raws(3), INFO)
            nursery.start_soon(is_too_long)
            nursery.start_soon(store.append, "bug-2", 0, raws(3), INFO)
            await queued(store, 3)
            watched.let_go()

    assert list(await store.read("bug-1")) == list(await store.read("bug-2")) == raws(3)
    assert not await store.has("long")


async def test_a_write_given_up_before_it_began_is_not_done_behind_later_ones(
    store: SQLiteStore, watched: Watched
) -> None:
    await store.append("bug-1", 0, raws(1), INFO)

    with watched.holding("COMMIT") as reached:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.append, "bug-1", 1, raws(1, 1), INFO)
            await reached.wait()
            async with trio.open_nursery() as given_up:
                given_up.start_soon(store.delete, "bug-1")
                given_up.start_soon(store.append, "bug-2", 0, raws(1), INFO)
                await queued(store, 2)
                given_up.cancel_scope.cancel()
            watched.let_go()

    await store.append("bug-1", 2, raws(1, 2), INFO)
    assert list(await store.read("bug-1")) == raws(3)
    assert not await store.has("bug-2")


async def test_a_write_given_up_while_it_is_written_happens_before_later_ones(
    store: SQLiteStore, watched: Watched
) -> None:
    await store.append("bug-1", 0, raws(1), INFO)

    with watched.holding("COMMIT") as reached:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.append, "bug-1", 1, raws(1, 1), INFO)
            await reached.wait()
            nursery.cancel_scope.cancel()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.append, "bug-1", 2, raws(1, 2), INFO)
            await queued(store, 1)
            watched.let_go()

    assert list(await store.read("bug-1")) == raws(3)


async def test_a_state_that_comes_while_it_is_looked_for_is_not_there_yet(store: SQLiteStore, watched: Watched) -> None:
    """All that one call reads is of one moment: a State isn't seen without its entries."""
    await store.append("bug-2", 0, raws(1), INFO)

    async def is_not_found() -> None:
        with pytest.raises(StateNotFoundError, match=r"near it: bug-2$"):
            await store.read("bug-1")

    async with trio.open_nursery() as nursery:
        with watched.holding("SELECT 1 FROM states") as reached:
            nursery.start_soon(is_not_found)
            await reached.wait()
            await store.append("bug-1", 0, raws(1), INFO)

    assert list(await store.read("bug-1")) == raws(1)


@pytest.mark.parametrize("synchronous", ["FULL", "NORMAL"])
async def test_entries_are_synced_as_told_and_leases_are_not(tmp_path: Path, watched: Watched, synchronous) -> None:
    """A lease needn't survive the machine: no holder does."""
    store = SQLiteStore(tmp_path / "s.db", synchronous=synchronous)
    await store.append("bug-1", 0, raws(1), INFO)
    syncs: dict[str, set[str]] = {"entries": set(), "leases": set()}
    watched.statements.clear()

    async with store.lease("bug-1"):
        await store.renew("bug-1")
        await store.append("bug-1", 1, raws(1, 1), INFO)
    await store.delete("bug-1")

    how = ""
    for statement in watched.statements:
        words = statement.split()
        if words[:2] == ["PRAGMA", "synchronous"]:
            how = words[3]
        elif words[0] in ("INSERT", "DELETE", "REPLACE", "UPDATE"):
            syncs["leases" if "leases" in statement else "entries"].add(how)
    assert syncs == {"entries": {synchronous}, "leases": {"NORMAL"}}


# ---- How much work it is


async def steps(watched: Watched, call: Callable[..., object], *args: object) -> int:
    before = watched.steps
    await call(*args)  # type: ignore[misc]
    return watched.steps - before


async def test_the_next_entry_costs_the_same_in_a_history_of_any_length(store: SQLiteStore, watched: Watched) -> None:
    costs = {}
    for length in (100, 20_000):
        await store.append("bug-1", 0, raws(length), INFO)
        costs[length] = [
            await steps(watched, store.append, "bug-1", length, raws(1, length), INFO),
            await steps(watched, store.read, "bug-1", length),
            await steps(watched, store.has, "bug-1"),
        ]

    assert costs[100] == costs[20_000]


async def test_a_page_of_the_list_costs_the_same_among_any_number_of_states(tmp_path: Path, watched: Watched) -> None:
    store = SQLiteStore(tmp_path / "s.db", synchronous="NORMAL")
    costs = {}
    for count in (50, 500):
        for number in range(count):
            about = json.dumps({"created_at": f"2026-01-02T03:{number // 60:02}:{number % 60:02}Z"}).encode()
            await store.append(f"bug-{number}", 0, raws(1), about)
        first = await steps(watched, lambda: store.infos(limit=20))
        costs[count] = [first, await steps(watched, lambda: store.infos(limit=20, before="bug-40"))]

    assert costs[50] == costs[500]


async def test_listing_does_not_look_at_histories(store: SQLiteStore, watched: Watched) -> None:
    for number in range(10):
        await store.append(f"bug-{number}", 0, raws(2), INFO)
    before = await steps(watched, store.infos)

    await store.append("bug-1", 2, raws(1_000, 2), INFO)

    assert await steps(watched, store.infos) == before


async def test_listing_is_stable_while_states_are_added_and_changed(store: SQLiteStore) -> None:
    states = [conversation(f"bug-{number}", turns=1) for number in range(6)]
    for state in states:
        await put(store, state)

    first = [info.id for info in await store.list(limit=3)]
    await put(store, conversation("bug-6", turns=1))
    for state in states:
        state.finish()
        await store.save(state)
    rest = [info.id for info in await store.list(before=first[-1])]

    assert first + rest == ["bug-5", "bug-4", "bug-3", "bug-2", "bug-1", "bug-0"]


async def test_any_limit_and_any_position_may_be_asked_for(store: SQLiteStore) -> None:
    await store.append("bug-1", 0, raws(1), INFO)

    assert len(await store.infos(limit=10**30)) == 1
    assert list(await store.read("bug-1", after=10**30)) == []
    with pytest.raises(StateNotFoundError, match="no State no id"):
        await store.infos(before="no id")
    with pytest.raises(ValueError, match=r"limit must be 0 or more \(got -1\)"):
        await store.infos(limit=-1)


async def test_what_lists_ask_for_is_in_columns(store: SQLiteStore) -> None:
    for seq, parent in enumerate([None, "parent", "parent", 5]):
        about = json.dumps({"created_at": f"1970-01-01T00:00:0{seq}+00:00", "parent_id": parent}).encode()
        await store.append("bug-1", seq, raws(1, seq), about)

        column = parent if isinstance(parent, str) else None
        assert rows(store.path, "SELECT created_at, parent_id, info FROM states") == [(seq * 10**6, column, about)]

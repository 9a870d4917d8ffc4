"""Leases of a SQLiteStore beyond the laws: what is told of them, and what is left of them."""

from __future__ import annotations

import os
import sqlite3
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from alpineagents import RunningElsewhereError, StoreError
from alpineagents.stores import _sqlite_leases
from alpineagents.stores._sqlite import SQLiteStore

from .histories import INFO, infos_of, raw, raws
from .sqlite_files import Clock, Watched, change, locked, queued, rows


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


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time that leases run by."""
    found = Clock()
    monkeypatch.setattr(_sqlite_leases, "wall_clock", found)
    return found


async def test_who_holds_a_state_and_since_when_is_told(store: SQLiteStore, clock: Clock) -> None:
    other = SQLiteStore(store.path)
    held_by = rf"State bug-1 in .*s\.db is held by .*: process {os.getpid()} on \S+, since 12 s; .*fork\(\)"
    async with store.lease("bug-1"):
        await store.append("bug-1", 0, raws(1), INFO)
        clock.now += 12

        for refused in (other.lease("bug-1").__aenter__(), other.remove("bug-1"), store.lease("bug-1").__aenter__()):
            with pytest.raises(RunningElsewhereError, match=held_by):
                await refused
        with pytest.raises(RunningElsewhereError, match=held_by):
            await other.append("bug-1", 1, raws(1, 1), INFO)

    assert rows(store.path, "SELECT * FROM leases") == []


async def test_a_lease_lasts_as_long_as_it_is_renewed(tmp_path: Path, clock: Clock) -> None:
    store = SQLiteStore(tmp_path / "s.db", lease_seconds=10)
    other = SQLiteStore(tmp_path / "s.db")
    async with store.lease("bug-1"):
        for _ in range(3):
            clock.now += 9
            await store.renew("bug-1")
        clock.now += 9.9
        with pytest.raises(RunningElsewhereError):
            async with other.lease("bug-1"):
                pass
        clock.now += 0.1

        async with other.lease("bug-1"):
            pass


async def test_a_lease_that_ran_out_is_kept_if_nobody_took_it(store: SQLiteStore, clock: Clock) -> None:
    async with store.lease("bug-1"):
        clock.now += 100
        await store.append("bug-1", 0, raws(1), INFO)
        await store.renew("bug-1")

        with pytest.raises(RunningElsewhereError):
            await SQLiteStore(store.path).append("bug-1", 1, raws(1, 1), INFO)


async def take_over(store: SQLiteStore) -> str:
    async with store.lease("bug-1"):
        await store.append("bug-1", 1, raws(1, 1), INFO)
    return "somebody else has held it since"


async def append_without_a_lease(store: SQLiteStore) -> str:
    await store.append("bug-1", 1, raws(1, 1), INFO)
    return "somebody else has held it since"


async def remove(store: SQLiteStore) -> str:
    await store.delete("bug-1")
    return "somebody else has held it since"


async def stay(store: SQLiteStore) -> str:
    await store.lease("bug-1").__aenter__()
    return f"it is held by process {os.getpid()} on "


@pytest.mark.parametrize("act", [take_over, append_without_a_lease, remove, stay])
async def test_who_lost_a_lease_can_not_write_any_more(store: SQLiteStore, clock: Clock, act) -> None:
    other = SQLiteStore(store.path)
    async with store.lease("bug-1"):
        await store.append("bug-1", 0, raws(1), INFO)
        clock.now += 30
        told = await act(other)
        before = await infos_of(store)

        for refused in (
            store.append("bug-1", 1, raws(1, 1), INFO),
            store.append("bug-1", 0, raws(1), INFO),
            store.renew("bug-1"),
        ):
            with pytest.raises(RunningElsewhereError, match=rf"bug-1 in .* any more.* 30 s.*{told}.*store\.load"):
                await refused
        with pytest.raises(RunningElsewhereError):
            await store.remove("bug-1")
        with pytest.raises(RunningElsewhereError):
            await store.lease("bug-1").__aenter__()
        assert await infos_of(store) == before

    if act is stay:
        with pytest.raises(RunningElsewhereError):
            await store.append("bug-1", 1, raws(1, 1), INFO)
    else:
        async with store.lease("bug-1"):
            pass


async def test_only_who_holds_a_state_renews(store: SQLiteStore) -> None:
    with pytest.raises(
        RunningElsewhereError, match=r"isn't held by this store; hold it first: store\.lease\('bug-1'\)"
    ):
        await store.renew("bug-1")


async def test_a_lease_of_a_holder_that_nobody_can_name_runs_out_too(store: SQLiteStore, clock: Clock) -> None:
    async with store.lease("bug-1"):
        pass
    change(store.path, "INSERT INTO leases VALUES ('bug-1', 'x', 'by a newer version', ?, ?)", clock.now, clock.now + 5)

    with pytest.raises(RunningElsewhereError, match=r"held by .*: a process of another version, since 0 s"):
        await store.append("bug-1", 0, raws(1), INFO)
    clock.now += 5
    await store.append("bug-1", 0, raws(1), INFO)


async def test_a_lease_that_could_not_be_given_back_is_free_here_and_runs_out_elsewhere(
    tmp_path: Path, clock: Clock
) -> None:
    store = SQLiteStore(tmp_path / "s.db", busy_seconds=0)
    other = SQLiteStore(tmp_path / "s.db")
    lease = store.lease("bug-1")
    await lease.__aenter__()
    with locked(store.path):
        await lease.__aexit__(None, None, None)

    with pytest.raises(RunningElsewhereError):
        await other.append("bug-1", 0, raws(1), INFO)
    await store.append("bug-1", 0, raws(1), INFO)
    await other.append("bug-1", 1, raws(1, 1), INFO)

    await lease.__aenter__()
    with locked(store.path):
        await lease.__aexit__(None, None, None)
    async with store.lease("bug-1"):
        pass
    await lease.__aenter__()
    with locked(store.path):
        await lease.__aexit__(None, None, None)
    clock.now += 30
    async with other.lease("bug-1"):
        pass


@pytest.mark.parametrize("statement", ["BEGIN IMMEDIATE", "SELECT token", "REPLACE", "COMMIT"])
async def test_a_lease_given_up_while_it_is_taken_is_free(store: SQLiteStore, watched: Watched, statement: str) -> None:
    await store.append("bug-1", 0, raws(1), INFO)
    scope = trio.CancelScope()

    async def take() -> None:
        with scope:
            await store.lease("bug-1").__aenter__()

    async with trio.open_nursery() as nursery:
        with watched.holding(statement) as reached:
            nursery.start_soon(take)
            await reached.wait()
            scope.cancel()
            await trio.testing.wait_all_tasks_blocked()

    assert scope.cancelled_caught
    await SQLiteStore(store.path).append("bug-1", 1, raws(1, 1), INFO)
    assert rows(store.path, "SELECT * FROM leases") == []
    async with store.lease("bug-1"):
        pass


async def test_a_lease_that_can_not_be_written_is_not_held(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.append("bug-1", 0, raws(1), INFO)
    failing = sqlite3.OperationalError("database or disk is full")
    failing.sqlite_errorcode = sqlite3.SQLITE_FULL

    def fail() -> None:
        raise failing

    with monkeypatch.context() as broken:
        broken.setattr(_sqlite_leases, "this_process", fail)
        with pytest.raises(StoreError, match=r"s\.db can't be written: .*; free some space"):
            await store.lease("bug-1").__aenter__()

    async with store.lease("bug-1"):
        await store.append("bug-1", 1, raws(1, 1), INFO)


@pytest.mark.parametrize("order", ["lease first", "lease last"])
async def test_a_lease_that_is_taken_together_with_something_that_fails_is_taken_all_the_same(
    store: SQLiteStore, watched: Watched, order: str
) -> None:
    """And whoever wrote that State before, without a lease, isn't taken for somebody who lost it."""
    await store.append("first", 0, raws(1), INFO)
    watched.limit_pages(100)

    async def is_too_long() -> None:
        with pytest.raises(StoreError, match="disk is full"):
            await store.append("long", 0, [raw(0, text="x" * 10**6)], INFO)

    async def hold() -> None:
        async with store.lease("bug-1"):
            held.set()
            await store.append("bug-1", 1, raws(1, 1), INFO)

    held = trio.Event()
    calls = [is_too_long, partial(store.append, "bug-1", 0, raws(1), INFO), hold]
    with watched.holding("COMMIT") as reached:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.append, "first", 1, raws(1, 1), INFO)
            await reached.wait()
            for count, call in enumerate(reversed(calls) if order == "lease first" else calls, 1):
                nursery.start_soon(call)
                await queued(store, count)
            watched.let_go()

    assert held.is_set()
    assert list(await store.read("bug-1")) == raws(2)
    assert rows(store.path, "SELECT * FROM leases") == []

"""SQLiteStore: the laws, its file, its connections, and its versions."""

from __future__ import annotations

import gc
import json
import os
import shutil
import sqlite3
import stat
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from alpineagents import CorruptStoreError, RunningElsewhereError, StateNotFoundError, Store, StoreError
from alpineagents.stores import _sqlite_schema
from alpineagents.stores._sqlite import SQLiteStore
from alpineagents.testing import StoreLaws

from .histories import INFO, batches, conversation, encoded, put, raw, raws
from .sqlite_files import Watched, change, open_files, rows
from .test_machine import StoreMachine, ids, texts


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


# ---- What every store does


class TestSQLiteLaws(StoreLaws):
    @pytest.fixture
    def store(self, tmp_path: Path) -> SQLiteStore:
        return SQLiteStore(tmp_path / "s.db")

    @pytest.fixture
    def other(self, tmp_path: Path) -> SQLiteStore:
        return SQLiteStore(tmp_path / "s.db")

    @pytest.fixture
    def expire(self, store: SQLiteStore) -> Callable[[str], None]:
        return lambda state_id: change(store.path, "UPDATE leases SET until = 0 WHERE state_id = ?", state_id)

    @pytest.fixture
    def damage(self, store: SQLiteStore) -> Callable[[str], None]:
        spoil = "DELETE FROM entries WHERE seq = 1 AND state = (SELECT number FROM states WHERE id = ?)"
        return lambda state_id: change(store.path, spoil, state_id)


class SQLiteMachine(StoreMachine):
    """The same as for every store, with several store objects on one file."""

    def make(self) -> Store:
        self.folder = Path(tempfile.mkdtemp())
        return SQLiteStore(self.folder / "s.db", synchronous="NORMAL")

    @rule()
    def open_anew(self) -> None:
        self.store = SQLiteStore(self.folder / "s.db", synchronous="NORMAL")

    @rule()
    def close(self) -> None:
        assert isinstance(self.store, SQLiteStore)
        trio.run(self.store.aclose)

    @rule(state_id=ids, texts=st.lists(texts, min_size=1, max_size=4))
    def another_store_appends(self, state_id: str, texts: list[str]) -> None:
        entries, info = self.new(state_id, texts)
        other = SQLiteStore(self.folder / "s.db")
        self.run(other.append, state_id, len(self.saved.get(state_id, [])), entries, json.dumps(info).encode())
        self.saved.setdefault(state_id, []).extend(entries)
        self.infos[state_id] = info

    @rule(state_id=ids)
    def nobody_else_writes_what_is_leased(self, state_id: str) -> None:
        async def under_a_lease() -> None:
            other = SQLiteStore(self.folder / "s.db")
            length = len(self.saved.get(state_id, []))
            async with self.store.lease(state_id):
                with pytest.raises(RunningElsewhereError):
                    await other.lease(state_id).__aenter__()
                with pytest.raises(RunningElsewhereError):
                    await other.append(state_id, length, [raw(length)], b"{}")
                if length:
                    with pytest.raises(RunningElsewhereError):
                        await other.delete(state_id)

        self.run(under_a_lease)

    def teardown(self) -> None:
        assert rows(self.folder / "s.db", "PRAGMA integrity_check") == [("ok",)]
        shutil.rmtree(self.folder)


TestSQLiteStore = SQLiteMachine.TestCase
TestSQLiteStore.settings = settings(max_examples=20, stateful_step_count=15)


# ---- The file


async def test_what_is_made_is_for_its_user_alone(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "a" / "b" / "s.db")
    old_mask = os.umask(0)
    try:
        await store.append("bug-1", 0, raws(1), INFO)
    finally:
        os.umask(old_mask)

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in store.path.parent.iterdir()}
    assert modes == {"s.db": 0o600, "s.db-wal": 0o600, "s.db-shm": 0o600}
    assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700


async def test_a_file_and_a_folder_that_are_there_keep_their_modes(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "s.db")
    store.path.parent.chmod(0o750)
    store.path.touch()
    store.path.chmod(0o640)

    await store.append("bug-1", 0, raws(1), INFO)

    assert [stat.S_IMODE(path.stat().st_mode) for path in (store.path.parent, store.path)] == [0o750, 0o640]


async def test_reading_and_deleting_what_is_not_there_makes_no_file(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "a" / "s.db")

    assert list(await store.list()) == []
    assert not await store.has("bug-1")
    await store.delete("bug-1", children=True)
    with pytest.raises(StateNotFoundError, match=r"no State bug-1 in .*s\.db"):
        await store.load("bug-1")
    with pytest.raises(StateNotFoundError, match=r"no State bug-1 in .*s\.db"):
        await store.list(before="bug-1")

    assert not store.path.parent.exists()


async def test_reading_an_empty_file_leaves_it_empty(store: SQLiteStore) -> None:
    store.path.touch()

    assert list(await store.list()) == []
    assert not await store.has("bug-1")

    assert store.path.stat().st_size == 0


async def test_a_store_stays_where_it_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    store, at_home = SQLiteStore("s.db"), SQLiteStore("~/s.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    await store.append("bug-1", 0, raws(1), INFO)
    await at_home.append("bug-2", 0, raws(1), INFO)

    assert await SQLiteStore(tmp_path / "s.db").has("bug-1")
    assert await SQLiteStore(tmp_path / "home" / "s.db").has("bug-2")


@pytest.mark.parametrize("name", ["with blanks.db", "50%.db", "what?mode=ro", "a#b", "naïve 🐛", "%00"])
async def test_a_file_may_have_any_name(tmp_path: Path, name: str) -> None:
    async with SQLiteStore(tmp_path / name) as store:
        await store.append("bug-1", 0, raws(1), INFO)

    assert [path.name for path in store.path.parent.iterdir()] == [name]


async def test_a_link_may_point_to_where_the_file_is_going_to_be(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "volume" / "s.db")

    await SQLiteStore(tmp_path / "link.db").append("bug-1", 0, raws(1), INFO)

    assert (tmp_path / "link.db").is_symlink()
    assert await SQLiteStore(tmp_path / "volume" / "s.db").has("bug-1")


async def test_a_file_made_by_somebody_else_meanwhile_is_used(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def slow_link(source: str, target: Path) -> None:
        trio.run(SQLiteStore(store.path).append, "bug-1", 0, raws(2), INFO)
        link(source, target)

    with monkeypatch.context() as slow:
        slow.setattr(os, "link", lambda *args: (slow.undo(), slow_link(*args)))
        await store.append("bug-1", 2, raws(1, 2), INFO)

    assert list(await store.read("bug-1")) == raws(3)
    assert not [path for path in store.path.parent.iterdir() if path.name.startswith(".")]


async def test_the_file_is_hardly_longer_than_its_entries(store: SQLiteStore) -> None:
    """Case E5: nothing grows with the history."""
    sizes = {}
    for turns in (200, 1_000):
        store = SQLiteStore(store.path.with_name(f"{turns}.db"), synchronous="NORMAL")
        state = conversation(turns=turns, text="x" * 500, result="a line of code\n" * 20)
        await put(store, state, size=20)
        await store.aclose()
        sizes[turns] = store.path.stat().st_size / sum(map(len, encoded(state)))

    assert sizes[1_000] <= 1.2
    assert sizes[1_000] <= sizes[200]


def test_the_arguments_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"':memory:' .*; MemoryStore\(\) keeps"):
        SQLiteStore(":memory:")
    with pytest.raises(ValueError, match=r"'FULL' or 'NORMAL' \(got 'OFF'\)"):
        SQLiteStore(tmp_path, synchronous="OFF")  # type: ignore[arg-type]  # as a typo would be
    for seconds in (0, -1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="lease_seconds must be more than 0"):
            SQLiteStore(tmp_path, lease_seconds=seconds)
    for seconds in (-1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="busy_seconds must be 0 or more"):
            SQLiteStore(tmp_path, busy_seconds=seconds)


def test_making_a_store_touches_no_file(tmp_path: Path) -> None:
    assert repr(SQLiteStore(tmp_path / "a" / "s.db")) == f"SQLiteStore({str(tmp_path / 'a' / 's.db')!r})"
    assert list(tmp_path.iterdir()) == []


# ---- Connections


async def test_a_closed_store_has_no_file_open_and_can_be_used_again(store: SQLiteStore) -> None:
    async with store as entered:
        assert entered is store
        await store.append("bug-1", 0, raws(2), INFO)
        assert open_files(store.path)
    assert open_files(store.path) == []
    assert [path.name for path in store.path.parent.iterdir()] == ["s.db"]

    await store.append("bug-1", 2, raws(1, 2), INFO)
    assert list(await store.read("bug-1")) == raws(3)
    await store.aclose()
    await store.aclose()
    assert open_files(store.path) == []


async def test_a_store_is_closed_also_when_it_is_cancelled(store: SQLiteStore) -> None:
    await store.append("bug-1", 0, raws(2), INFO)

    with trio.CancelScope() as scope:
        async with store:
            scope.cancel()

    assert scope.cancelled_caught
    assert open_files(store.path) == []


async def test_closing_a_store_ends_who_watches_it_and_leaves_no_connection(store: SQLiteStore) -> None:
    await store.append("bug-1", 0, raws(1), INFO)
    watch = store.watch("bug-1")
    assert await anext(watch) == raw(0)

    await store.aclose()

    with pytest.raises(StoreError, match="was closed meanwhile; watch State bug-1 anew"):
        await anext(watch)
    assert open_files(store.path) == []
    assert await anext(store.watch("bug-1")) == raw(0)
    await store.aclose()


async def test_a_store_that_is_dropped_closes_its_connections(tmp_path: Path, watched: Watched) -> None:
    """Else they warn: Python 3.13 has a ResourceWarning for a connection that wasn't closed."""
    store = SQLiteStore(tmp_path / "s.db")
    path = store.path
    await store.append("bug-1", 0, raws(2), INFO)
    async with store.lease("bug-1"):
        await store.read("bug-1")
    assert open_files(path)

    del store

    assert open_files(path) == []
    assert watched.closed == len(watched.connections) > 0
    assert [found.name for found in path.parent.iterdir()] == ["s.db"]


@pytest.mark.parametrize("end", ["aclose", "drop"])
async def test_a_connection_in_use_is_closed_when_it_is_free(tmp_path: Path, watched: Watched, end: str) -> None:
    store = SQLiteStore(tmp_path / "s.db")
    path = store.path
    await store.append("bug-1", 0, raws(1), INFO)
    ended = threading.Event()
    do = store._writes.do

    def do_and_tell(write: object) -> None:
        do(write)  # type: ignore[arg-type]
        ended.set()

    store._writes.do = do_and_tell  # type: ignore[method-assign]
    with watched.holding("COMMIT") as reached:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.append, "bug-1", 1, raws(1, 1), INFO)
            await reached.wait()
            nursery.cancel_scope.cancel()
        await store.aclose()
        if end == "drop":
            del store, do
        assert open_files(path), "what is being written is written"

    await trio.to_thread.run_sync(ended.wait)
    with trio.fail_after(60):
        while open_files(path):  # the thread is about to end
            await trio.lowlevel.checkpoint()
    assert list(await SQLiteStore(path).read("bug-1")) == raws(2)


async def test_a_few_connections_are_kept_however_many_were_used(store: SQLiteStore, watched: Watched) -> None:
    await store.append("bug-1", 0, raws(2), INFO)
    with watched.holding("SELECT seq") as reached:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.read, "bug-1")
            await reached.wait()
            for _ in range(20):
                await store.read("bug-1")
            watched.let_go()
    assert len(watched.connections) == 2, "one was in use, one served the rest"

    barrier = threading.Barrier(20)
    readers = [threading.Thread(target=trio.run, args=(_read_together, store, barrier)) for _ in range(20)]
    for reader in readers:
        reader.start()
    await trio.to_thread.run_sync(lambda: [reader.join() for reader in readers])

    # SQLite closes the file itself only with the last of its connections.
    assert 1 <= open_files(store.path).count("-wal") <= 4


async def _read_together(store: SQLiteStore, barrier: threading.Barrier) -> None:
    barrier.wait(60)
    for _ in range(5):
        assert list(await store.read("bug-1")) == raws(2)


# ---- Long ones


async def test_a_long_entry_does_not_leave_a_long_file_beside_the_database(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite writes its log from the start again once everything in it is in the database."""
    monkeypatch.setattr("alpineagents.stores._sqlite_database._LONGEST_LOG", 100_000)
    log = f"{store.path}-wal"

    await store.append("bug-1", 0, [raw(0, text="x" * 10**7)], INFO)
    assert os.stat(log).st_size > 10**7
    await store.append("bug-1", 1, raws(1, 1), INFO)

    assert os.stat(log).st_size <= 100_000


async def test_an_entry_that_is_too_long_for_sqlite_is_refused(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alpineagents.stores._sqlite.MOST_BYTES", 1_000)

    with pytest.raises(ValueError, match="entry 1 has 1,019 bytes, SQLite can hold 1,000"):
        await store.append("bug-1", 0, [raw(0), raw(1, x="x" * 1_003)], INFO)

    assert not store.path.exists()


# ---- Versions


async def test_a_newer_file_is_refused_with_both_numbers(store: SQLiteStore) -> None:
    await store.append("bug-1", 0, raws(1), INFO)
    await store.aclose()
    change(store.path, "PRAGMA user_version = 7")

    for failing in (store.append("bug-1", 1, raws(1, 1), INFO), store.read("bug-1"), store.infos()):
        with pytest.raises(
            CorruptStoreError, match=r"s\.db is in version 7, this alpineagents reads up to 1; install a"
        ):
            await failing


@pytest.mark.parametrize("first", ["read", "append"])
async def test_an_older_file_is_brought_to_the_newest_version(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    await store.append("bug-1", 0, raws(2), INFO)
    await store.aclose()
    newer = (
        *_sqlite_schema.STEPS,
        ("ALTER TABLE states ADD COLUMN title TEXT", "CREATE INDEX titles ON states(title)"),
    )
    with monkeypatch.context() as future:
        future.setattr(_sqlite_schema, "STEPS", newer)
        if first == "append":
            await store.append("bug-1", 2, raws(1, 2), INFO)
        else:
            assert list(await store.read("bug-1")) == raws(2)
        await store.aclose()

    assert rows(store.path, "SELECT title FROM states") == [(None,)]
    assert rows(store.path, "PRAGMA user_version") == [(2,)]
    with pytest.raises(CorruptStoreError, match="version 2, this alpineagents reads up to 1"):
        await store.read("bug-1")


def test_the_file_says_whose_it_is(store: SQLiteStore) -> None:
    trio.run(store.append, "bug-1", 0, raws(1), INFO)

    assert rows(store.path, "PRAGMA application_id") == [(int.from_bytes(b"alpi"),)]
    assert rows(store.path, "PRAGMA user_version") == [(1,)]
    assert rows(store.path, "PRAGMA journal_mode") == [("wal",)]


async def test_batches_of_any_size_give_the_same_rows(tmp_path: Path) -> None:
    state = conversation(turns=5)
    found = []
    for size in (1, 3, 100):
        store = SQLiteStore(tmp_path / f"{size}.db")
        for first, entries, info in batches(state, size):
            await store.append(state.id, first, entries, info)
        found.append(rows(store.path, "SELECT * FROM states, entries ORDER BY seq"))

    assert found[0] == found[1] == found[2]
    gc.collect()

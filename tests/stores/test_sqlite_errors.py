"""What can be wrong with the file of a SQLiteStore, and what it says then."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from alpineagents import ConflictError, CorruptStoreError, FileStore, RunningElsewhereError, StoreError
from alpineagents.stores import _sqlite_database
from alpineagents.stores._sqlite import SQLiteStore
from alpineagents.stores._threads import MOST_THREADS

from .histories import INFO, conversation, infos_of, raws
from .sqlite_files import Watched, begun, change, locked, open_files, opened, queued, rows


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


# ---- What is in the way


@contextmanager
def as_nobody() -> Iterator[None]:
    """Without the rights of the administrator, whom no mode keeps out."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.fixture
def shut() -> Iterator[SQLiteStore]:
    """A store in a folder whose modes a test may take away; nobody is kept out of the folders above it."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    yield SQLiteStore(folder / "s.db")
    folder.chmod(0o700)
    shutil.rmtree(folder)


@pytest.mark.parametrize("mode", [0o000, 0o555])
async def test_a_folder_that_can_not_be_written_says_so_and_what_to_do(shut: SQLiteStore, mode: int) -> None:
    shut.path.parent.chmod(mode)

    with as_nobody():
        for writing in (shut.append("bug-1", 0, raws(1), INFO), shut.save(conversation())):
            with pytest.raises(
                StoreError, match=r"s\.db can't be written: Permission denied; choose a folder that this user may write"
            ):
                await writing
    shut.path.parent.chmod(0o700)
    assert list(shut.path.parent.iterdir()) == []


async def test_a_folder_that_can_not_be_read_is_not_an_empty_store(shut: SQLiteStore) -> None:
    await shut.append("bug-1", 0, raws(1), INFO)
    shut.path.parent.chmod(0o000)

    with as_nobody():
        for reading in (shut.read("bug-1"), shut.infos(), shut.has("bug-1"), shut.delete("bug-1")):
            with pytest.raises(StoreError, match=r"s\.db can't be read: Permission denied"):
                await reading
    shut.path.parent.chmod(0o700)
    assert await shut.has("bug-1")


@pytest.mark.parametrize(("file_mode", "folder_mode"), [(0o000, 0o777), (0o444, 0o777), (0o666, 0o555)])
async def test_a_file_that_can_not_be_written_says_so_and_what_to_do(
    shut: SQLiteStore, file_mode: int, folder_mode: int
) -> None:
    async with shut:
        await shut.append("bug-1", 0, raws(1), INFO)
    shut.path.chmod(file_mode)
    shut.path.parent.chmod(folder_mode)

    with as_nobody(), pytest.raises(StoreError, match=r"s\.db can't be written: .*; choose a file that this user may"):
        await shut.append("bug-1", 1, raws(1, 1), INFO)
    shut.path.chmod(0o600)
    shut.path.parent.chmod(0o700)
    await shut.append("bug-1", 1, raws(1, 1), INFO)


async def test_a_folder_where_the_file_should_be_says_so(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path)

    for failing in (store.append("bug-1", 0, raws(1), INFO), store.read("bug-1"), store.list(), store.remove("bug-1")):
        with pytest.raises(StoreError, match=rf"{tmp_path.name} is a folder; choose a file, such as .*/states\.db"):
            await failing


async def test_a_file_where_the_folder_should_be_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = SQLiteStore(tmp_path / "file" / "s.db")

    for failing in (store.append("bug-1", 0, raws(1), INFO), store.read("bug-1")):
        with pytest.raises(StoreError, match=r"file/s\.db can't be .*; choose a folder, not a file"):
            await failing


@pytest.mark.parametrize("data", [b"hello\n", b"x" * 100_000, b"SQLite format 3\0" + b"\xff" * 5_000])
async def test_a_file_that_is_no_database_says_so_and_stays_as_it_is(store: SQLiteStore, data: bytes) -> None:
    store.path.write_bytes(data)

    for failing in (store.append("bug-1", 0, raws(1), INFO), store.read("bug-1"), store.infos()):
        with pytest.raises(
            CorruptStoreError, match=r"s\.db is no SQLite database, or .*; choose another file, or restore"
        ):
            await failing
    assert store.path.read_bytes() == data
    assert [path.name for path in store.path.parent.iterdir()] == ["s.db"]


@pytest.mark.parametrize(
    "setting", ["CREATE TABLE notes(text)", "PRAGMA user_version = 1", "PRAGMA application_id = 7"]
)
async def test_the_database_of_another_program_says_so_and_stays_as_it_is(store: SQLiteStore, setting: str) -> None:
    change(store.path, setting)
    before = store.path.read_bytes()

    for failing in (store.append("bug-1", 0, raws(1), INFO), store.read("bug-1"), store.infos()):
        with pytest.raises(StoreError, match=r"s\.db is the database of another program; choose another file"):
            await failing
    assert store.path.read_bytes() == before


async def test_a_damaged_file_says_so_and_what_to_do(store: SQLiteStore) -> None:
    await store.append("bug-1", 0, raws(1_000, text="x" * 100), INFO)
    await store.aclose()
    whole = store.path.read_bytes()
    store.path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))

    for failing in (store.append("bug-1", 1_000, raws(1, 1_000), INFO), store.read("bug-1"), store.infos()):
        with pytest.raises(CorruptStoreError, match=r"s\.db is damaged: .*; restore it from a backup, .*\.recover"):
            await failing


@pytest.mark.parametrize(
    ("statement", "seq"),
    [
        ("DELETE FROM entries WHERE seq = 3", 3),
        ("DELETE FROM entries WHERE seq = 0", 0),
        ("DELETE FROM entries", 0),
        ("UPDATE entries SET entry = x'00ff' WHERE seq = 2", 2),
        ("UPDATE entries SET entry = '' WHERE seq = 1", 1),
    ],
)
async def test_an_entry_that_is_missing_or_damaged_is_named(store: SQLiteStore, statement: str, seq: int) -> None:
    await store.append("bug-1", 0, raws(5), INFO)
    change(store.path, statement)
    readable = f"the {seq} entries before it are readable" if seq else "nothing of it is readable"

    with pytest.raises(
        CorruptStoreError, match=rf"s\.db: entry {seq} of State bug-1 is missing or damaged; {readable}"
    ):
        await store.load("bug-1")
    assert list(await infos_of(store)) == ["bug-1"]


async def test_a_state_without_entries_is_not_begun_anew(store: SQLiteStore) -> None:
    await store.append("bug-1", 0, raws(2), INFO)
    change(store.path, "DELETE FROM entries")

    with pytest.raises(CorruptStoreError, match="entry 0 of State bug-1 is missing"):
        await store.append("bug-1", 0, raws(1), INFO)
    await store.delete("bug-1")
    await store.append("bug-1", 0, raws(1), INFO)


async def test_an_info_that_is_damaged_is_left_out_of_the_list_with_a_warning(store: SQLiteStore) -> None:
    for state_id in ("bug-1", "bug-2"):
        await store.save(conversation(state_id))
    change(store.path, "UPDATE states SET info = 'oops' WHERE id = 'bug-1'")

    with pytest.warns(UserWarning, match=r"State bug-1 in SQLiteStore\(.*is left out of the list"):
        listed = await store.list()

    assert [info.id for info in listed] == ["bug-2"]


async def test_entries_edited_as_text_are_read(store: SQLiteStore) -> None:
    await store.append("bug-1", 0, raws(2, text="ü"), INFO)
    change(store.path, "UPDATE entries SET entry = CAST(entry AS TEXT)")
    change(store.path, "UPDATE states SET info = CAST(info AS TEXT)")

    assert list(await store.read("bug-1")) == raws(2, text="ü")
    assert list(await store.infos()) == [("bug-1", INFO)]
    await store.append("bug-1", 0, raws(3, text="ü"), INFO)


async def test_a_full_disk_is_an_error_that_leaves_nothing_half_written(store: SQLiteStore, watched: Watched) -> None:
    await store.append("bug-1", 0, raws(2), b'{"turn":1}')
    watched.limit_pages(20)

    with pytest.raises(StoreError, match=r"s\.db can't be written: .*full; free some space") as caught:
        await store.append("bug-1", 2, raws(5_000, 2), b'{"turn":2}')
    assert isinstance(caught.value.__cause__, sqlite3.Error)
    assert list(await store.read("bug-1")) == raws(2)
    assert await infos_of(store) == {"bug-1": {"turn": 1}}

    watched.limit_pages(100_000)
    await store.append("bug-1", 2, raws(5_000, 2), b'{"turn":2}')
    assert list(await store.read("bug-1")) == raws(5_002)


async def test_a_save_that_found_the_disk_full_is_made_up_for_by_the_next(store: SQLiteStore, watched: Watched) -> None:
    state = conversation()
    await store.save(state)
    watched.limit_pages(15)
    with state.edit_extra_data() as data:
        data["log"] = "x" * 100_000

    with pytest.raises(StoreError, match="free some space"):
        await store.save(state)
    watched.limit_pages(100_000)
    await store.save(state)

    assert (await store.load(state.id)).snapshot() == state.snapshot()


async def test_files_that_may_not_grow_say_so(store: SQLiteStore) -> None:
    await store.append("bug-1", 0, raws(2), INFO)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    try:
        with pytest.raises(StoreError, match=r"s\.db can't be written: .*; (check the disk|free some space)"):
            await store.append("bug-1", 2, raws(20_000, 2), INFO)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert list(await store.read("bug-1")) == raws(2)
    await store.append("bug-1", 2, raws(20_000, 2), INFO)
    assert len(await store.read("bug-1")) == 20_002


async def test_a_disk_that_can_not_be_shared_says_so(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    class Unshared(sqlite3.Connection):
        def execute(self, statement: str, *args: object) -> sqlite3.Cursor:
            return super().execute(statement.replace("= WAL", "= DELETE"), *args)  # as SQLite answers there

    connect = sqlite3.connect
    monkeypatch.setattr(
        "alpineagents.stores._sqlite_database.sqlite3.connect", lambda *a, **k: connect(*a, factory=Unshared, **k)
    )

    with pytest.raises(StoreError, match=r"s\.db can't be shared .*; choose a folder on a local disk"):
        await store.append("bug-1", 0, raws(1), INFO)


# ---- A file that is locked, replaced or gone


async def test_a_locked_file_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "s.db", busy_seconds=0)
    await store.append("bug-1", 0, raws(1), INFO)
    is_locked = r"s\.db has been locked by another program for 0 s: end what locks it.*busy_seconds=60"

    with locked(store.path):
        for writing in (
            store.append("bug-1", 1, raws(1, 1), INFO),
            store.remove("bug-1"),
            store.lease("bug-1").__aenter__(),
        ):
            with pytest.raises(StoreError, match=is_locked):
                await writing
        assert list(await store.read("bug-1")) == raws(1), "reading waits for nobody"
    await store.aclose()
    with locked(store.path, "EXCLUSIVE"):
        for reading in (store.read("bug-1"), store.infos()):
            with pytest.raises(StoreError, match=is_locked):
                await reading

    await store.append("bug-1", 1, raws(1, 1), INFO)


@pytest.mark.parametrize("sqlite_waits", [True, False])
@pytest.mark.parametrize(("how", "tried"), [("IMMEDIATE", "BEGIN IMMEDIATE"), ("EXCLUSIVE", "PRAGMA application_id")])
async def test_a_locked_file_is_waited_for(
    store: SQLiteStore, watched: Watched, monkeypatch: pytest.MonkeyPatch, how: str, tried: str, sqlite_waits: bool
) -> None:
    await store.append("bug-1", 0, raws(1), INFO)
    await store.aclose()
    monkeypatch.setattr(_sqlite_database, "_POLL_SECONDS", 0.02 if sqlite_waits else 0)
    before = watched.count(tried)

    async with trio.open_nursery() as nursery:
        with locked(store.path, how):
            nursery.start_soon(store.append, "bug-1", 1, raws(1, 1), INFO)
            nursery.start_soon(store.read, "bug-1")
            with trio.fail_after(60):
                while watched.count(tried) < before + 5:
                    await trio.lowlevel.checkpoint()

    assert list(await store.read("bug-1")) == raws(2)
    if how == "IMMEDIATE":
        assert len(watched.connections) <= 4, "each try took the same connection"


async def test_who_waits_for_a_locked_file_can_be_cancelled_and_leaves_nothing_waiting(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "s.db", busy_seconds=10_000)
    await store.append("bug-1", 0, raws(1), INFO)

    with locked(store.path):
        async with trio.open_nursery() as nursery:
            for call in (
                store.lease("bug-2").__aenter__,
                lambda: store.append("bug-2", 0, raws(1), INFO),
                lambda: store.remove("bug-1"),
            ):
                nursery.start_soon(call)
            await begun(store)
            nursery.cancel_scope.cancel()
        with trio.fail_after(60):
            while store._writes._turn.locked():
                await trio.lowlevel.checkpoint()

    await store.append("bug-1", 1, raws(1, 1), INFO)
    assert list(await store.read("bug-1")) == raws(2)
    assert not await store.has("bug-2")
    assert rows(store.path, "SELECT * FROM leases") == []


async def all_threads_write(store: SQLiteStore, nursery: trio.Nursery) -> None:
    """Begin more appends than have threads, all of which wait, and wait until they do."""
    nursery.start_soon(store.append, "bug-2", 0, raws(1), INFO)
    await begun(store)
    while store._writes._waiting:  # it is about to be written
        await trio.lowlevel.checkpoint()
    for number in range(2 * MOST_THREADS):
        nursery.start_soon(store.append, f"bug-{number + 3}", 0, raws(1), INFO)
    await queued(store, MOST_THREADS - 1)


async def test_many_writers_that_wait_for_a_locked_file_hold_up_no_reader_no_closing_and_no_other_store(
    tmp_path: Path,
) -> None:
    store = SQLiteStore(tmp_path / "s.db", busy_seconds=10_000)
    await store.append("bug-1", 0, raws(1), INFO)

    with locked(store.path):
        async with trio.open_nursery() as nursery:
            await all_threads_write(store, nursery)

            with trio.fail_after(60):
                assert list(await store.read("bug-1")) == raws(1)
                await store.aclose()
                await FileStore(tmp_path).append("bug-1", 0, raws(1), INFO)
            nursery.cancel_scope.cancel()


async def test_a_lease_is_kept_and_given_back_with_what_many_others_write(tmp_path: Path) -> None:
    """It doesn't wait for a thread behind them."""
    store = SQLiteStore(tmp_path / "s.db", busy_seconds=10_000)
    lease = store.lease("held")
    await lease.__aenter__()
    await store.lease("kept").__aenter__()

    with closing(opened(store.path)) as other:
        other.execute("BEGIN IMMEDIATE")
        async with trio.open_nursery() as nursery:
            await all_threads_write(store, nursery)
            nursery.start_soon(store.renew, "kept")
            await queued(store, MOST_THREADS)
            nursery.start_soon(lease.__aexit__, None, None, None)
            await queued(store, MOST_THREADS + 1)
            other.execute("ROLLBACK")

    assert rows(store.path, "SELECT state_id FROM leases") == [("kept",)]


async def test_a_reader_sees_what_is_saved_while_another_program_writes(store: SQLiteStore) -> None:
    await store.append("bug-1", 0, raws(2), INFO)
    other = opened(store.path)
    other.execute("BEGIN IMMEDIATE")
    other.execute("DELETE FROM entries")

    assert list(await store.read("bug-1")) == raws(2)
    assert list(await infos_of(store)) == ["bug-1"]
    other.close()


def delete(store: SQLiteStore, suffixes: tuple[str, ...]) -> None:
    """Delete the file, or what lies beside it."""
    for suffix in suffixes:
        os.unlink(f"{store.path}{suffix}")


@pytest.mark.parametrize("rest", [("",), ("", "-wal", "-shm")])
async def test_a_file_that_is_deleted_is_gone(store: SQLiteStore, rest: tuple[str, ...]) -> None:
    await store.append("bug-1", 0, raws(2), INFO)
    async with store.lease("bug-1"):
        delete(store, rest)

        assert not await store.has("bug-1")
        with pytest.raises(RunningElsewhereError, match="or the file was replaced"):
            await store.append("bug-1", 2, raws(1, 2), INFO)
    with pytest.raises(
        ConflictError, match=r"entry 2 can't follow the 0 entries in .*s\.db; what is between was deleted"
    ):
        await store.append("bug-1", 2, raws(1, 2), INFO)

    await store.append("bug-1", 0, raws(3), INFO)
    assert list(await SQLiteStore(store.path).read("bug-1")) == raws(3)
    assert open_files(store.path).count(" (deleted)") == 0


async def test_a_file_that_is_replaced_is_read_anew(store: SQLiteStore, tmp_path: Path) -> None:
    async with SQLiteStore(tmp_path / "other.db") as other:
        await other.append("bug-2", 0, raws(1), INFO)
    await store.append("bug-1", 0, raws(2), INFO)
    delete(store, ("-wal", "-shm"))
    os.rename(other.path, store.path)

    assert list(await infos_of(store)) == ["bug-2"]
    await store.append("bug-2", 1, raws(1, 1), INFO)
    assert list(await store.read("bug-2")) == raws(2)
    assert rows(store.path, "PRAGMA integrity_check") == [("ok",)]

"""What FileStore asks of the disk, and what it makes of a disk that refuses or hangs."""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from alpineagents import ConflictError, FileStore, RunningElsewhereError, StateNotFoundError, StoreError

from .histories import INFO, conversation, encoded, files_in, infos_of, log_of, put, raws

# ---- How often


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each of these system calls was made. They are made, too."""
    counted: Counter[str] = Counter()

    def counting(name: str, call: Callable[..., object]) -> Callable[..., object]:
        def counted_call(*args: object) -> object:
            if threading.current_thread() is not threading.main_thread():  # where trio writes to its own sockets
                counted[name] += 1
            return call(*args)

        return counted_call

    for name in ("write", "fdatasync", "fsync", "open", "ftruncate"):
        monkeypatch.setattr(os, name, counting(name, getattr(os, name)))
    return counted


async def test_an_append_is_one_write_and_one_sync_however_many_entries_it_has(
    files: FileStore, calls: Counter[str]
) -> None:
    async with files.lease("bug-1"):
        await files.append("bug-1", 0, raws(1), INFO)
        calls.clear()

        await files.append("bug-1", 1, raws(200, 1), INFO)
        assert calls == {"write": 1, "fdatasync": 1}

        await files.append("bug-1", 1, raws(200, 1), INFO)
        assert calls == {"write": 1, "fdatasync": 1}


async def test_the_first_append_syncs_the_folder_too(files: FileStore, calls: Counter[str]) -> None:
    files.folder.mkdir()

    await files.append("bug-1", 0, raws(2), INFO)

    assert (calls["write"], calls["fdatasync"], calls["fsync"]) == (1, 1, 1)


async def test_entries_that_another_process_wrote_are_synced_before_they_count_as_saved(
    files: FileStore, calls: Counter[str]
) -> None:
    """It may have died between its write and its sync."""
    await FileStore(files.folder, fsync=False).append("bug-1", 0, raws(2), INFO)
    calls.clear()

    await files.append("bug-1", 0, raws(2), INFO)
    assert (calls["write"], calls["fdatasync"], calls["fsync"]) == (0, 1, 1)

    await files.append("bug-1", 0, raws(2), INFO)
    assert (calls["write"], calls["fdatasync"], calls["fsync"]) == (0, 1, 1)


async def test_without_fsync_nothing_is_synced(tmp_path: Path, calls: Counter[str]) -> None:
    store = FileStore(tmp_path / "runs", fsync=False)

    await put(store, state := conversation())

    assert calls["fdatasync"] == calls["fsync"] == 0
    assert list(await store.read("bug-1")) == encoded(state)


async def test_a_log_that_was_loaded_is_not_read_again_to_append(files: FileStore, calls: Counter[str]) -> None:
    await files.save(conversation())
    store = FileStore(files.folder)
    state = await store.load("bug-1")
    calls.clear()

    state.finish()
    await store.save(state)

    assert calls["open"] == 2, "the log to write it, the folder to sync it"


async def test_the_file_is_hardly_longer_than_its_entries(files: FileStore) -> None:
    """Case E5: nothing grows with the history; infos are written as changes."""
    sizes = {}
    for turns in (20, 200):
        state = conversation(f"turns-{turns}", turns=turns, text="x" * 500, result="a line of code\n" * 20)
        await put(files, state, size=3)
        sizes[turns] = len(log_of(files, state.id)) / sum(len(entry) + 1 for entry in encoded(state))

    assert sizes[200] <= 1.2
    assert sizes[200] <= sizes[20]


# ---- Modes and folders


async def test_what_is_made_is_for_its_user_alone(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "a" / "b")
    old_mask = os.umask(0)
    try:
        await store.append("bug-1", 0, raws(1), INFO)
        async with store.lease("bug-2"):
            modes = {path.name: path.stat().st_mode & 0o777 for path in store.folder.iterdir()}
    finally:
        os.umask(old_mask)

    assert modes == {"bug-1.jsonl": 0o600, ".bug-2.jsonl": 0o600}
    assert store.folder.stat().st_mode & 0o777 == 0o700


async def test_a_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    store.folder.chmod(0o750)

    await store.append("bug-1", 0, raws(1), INFO)

    assert store.folder.stat().st_mode & 0o777 == 0o750


async def test_reading_makes_no_folder(files: FileStore) -> None:
    assert list(await files.list()) == []
    assert not await files.has("bug-1")
    await files.delete("bug-1")
    with pytest.raises(StateNotFoundError, match=r"no State bug-1 in .*runs"):
        await files.load("bug-1")

    assert not files.folder.exists()


async def test_a_store_stays_where_it_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    store, at_home = FileStore("runs"), FileStore("~/runs")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    await store.append("bug-1", 0, raws(1), INFO)

    assert files_in(FileStore(tmp_path / "runs")) == ["bug-1.jsonl"]
    assert at_home.folder == tmp_path / "home" / "runs"


async def test_a_store_remembers_the_last_thousand_logs_it_used(files: FileStore, calls: Counter[str]) -> None:
    await files.append("first", 0, raws(1), INFO)
    await files.append("last", 0, raws(1), INFO)
    calls.clear()

    for number in range(999):
        await files.has(f"bug-{number}")
    await files.append("last", 1, raws(1, 1), INFO)
    assert calls["fsync"] == 0, "this one was synced by the store before"

    await files.append("first", 1, raws(1, 1), INFO)
    assert calls["fsync"] == 1, "for this one it can't tell any more"
    assert list(await files.read("first")) == list(await files.read("last")) == raws(2)


async def test_no_second_file_is_left(files: FileStore) -> None:
    await put(files, conversation())
    async with files.lease("bug-2"):
        pass

    assert files_in(files) == ["bug-1.jsonl"]


# ---- Refusals


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


@pytest.mark.parametrize("mode", [0o000, 0o500])
async def test_a_folder_that_can_not_be_written_says_so_and_what_to_do(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "shut"
    folder.mkdir()
    folder.chmod(mode)
    store = FileStore(folder / "runs" if mode else folder)

    with as_nobody():
        for writing in (store.append("bug-1", 0, raws(1), INFO), store.save(conversation())):
            with pytest.raises(
                StoreError, match=r"shut.* Permission denied; .* a folder that this user may write"
            ) as caught:
                await writing
            assert isinstance(caught.value.__cause__, PermissionError)
    folder.chmod(0o700)
    assert list(folder.iterdir()) == []


async def test_a_folder_that_can_not_be_read_is_not_an_empty_store(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "shut")
    await store.append("bug-1", 0, raws(1), INFO)
    store.folder.chmod(0o000)

    with as_nobody():
        for reading in (store.read("bug-1"), store.infos(), store.has("bug-1"), store.delete("bug-1")):
            with pytest.raises(StoreError, match=r"shut.* can't be (read|listed|deleted): Permission denied"):
                await reading
    store.folder.chmod(0o700)
    assert await store.has("bug-1")


async def test_a_file_where_the_folder_should_be_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "runs"):
        with pytest.raises(StoreError, match=r"file.* can't be .*; choose a folder, not a file"):
            await FileStore(folder).append("bug-1", 0, raws(1), INFO)


@contextmanager
def files_end_at(size: int) -> Iterator[None]:
    """The system takes what fits and refuses the rest, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("leased", [True, False])
async def test_a_full_disk_is_an_error_that_names_the_file_and_leaves_nothing_half_written(
    files: FileStore, leased: bool
) -> None:
    await files.append("bug-1", 0, raws(2), b'{"turn":1}')
    before = log_of(files)

    async def fill() -> None:
        with (
            files_end_at(len(before) + 1_000),
            pytest.raises(StoreError, match=r"bug-1\.jsonl can't be written") as caught,
        ):
            await files.append("bug-1", 2, raws(200, 2), b'{"turn":2}')
        assert isinstance(caught.value.__cause__, OSError)
        assert caught.value.__cause__.errno == errno.EFBIG
        assert log_of(files) == before
        await files.append("bug-1", 2, raws(200, 2), b'{"turn":2}')

    if leased:
        async with files.lease("bug-1"):
            await fill()
    else:
        await fill()

    assert list(await files.read("bug-1")) == raws(202)
    assert await infos_of(files) == {"bug-1": {"turn": 2}}


async def test_a_first_batch_that_does_not_fit_leaves_no_state(files: FileStore) -> None:
    async with files.lease("bug-1"):
        with files_end_at(1_000), pytest.raises(StoreError, match="can't be written"):
            await files.append("bug-1", 0, raws(200), INFO)
        assert not await files.has("bug-1")
    assert files_in(files) == []

    await files.append("bug-1", 0, raws(200), INFO)
    assert list(await files.read("bug-1")) == raws(200)


@pytest.mark.parametrize("failing", ["fdatasync", "fsync", "rename", "write"])
@pytest.mark.parametrize("there", [0, 2])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("stays_torn", [True, False])
async def test_after_a_call_that_failed_the_next_save_has_everything(
    files: FileStore, monkeypatch: pytest.MonkeyPatch, failing: str, there: int, count: int, stays_torn: bool
) -> None:
    """Each call that makes entries durable fails once; sometimes what was written can't be taken back either."""
    await files.append("bug-1", 0, raws(there), INFO)
    before = log_of(files) if there else b""
    real = getattr(os, failing)
    failures = []

    def fail(*args: Any) -> object:
        if failures or threading.current_thread() is threading.main_thread():
            return real(*args)
        if failing == "write":
            real(args[0], args[1][: len(args[1]) // 2])
        failures.append(failing)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def refuse(*args: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async with files.lease("bug-1"):
        with monkeypatch.context() as broken:
            broken.setattr(os, failing, fail)
            if stays_torn:
                broken.setattr(os, "ftruncate", refuse)
            # Only the first append to a log renames it and syncs its folder.
            fails = not there or failing in ("fdatasync", "write")
            with pytest.raises(StoreError, match="can't be written") if fails else nullcontext() as caught:
                await files.append("bug-1", there, raws(count, there), b'{"turn":1}')
        assert len(failures) == fails
        assert caught is None or isinstance(caught.value.__cause__, OSError)
        if there and not stays_torn and fails:
            assert log_of(files) == before

        with pytest.raises(ConflictError):
            await files.append("bug-1", there + 4, raws(1, there + 4), INFO)
        await files.append("bug-1", there, raws(4, there), b'{"turn":2}')

    assert list(await files.read("bug-1")) == raws(there + 4)
    assert await infos_of(files) == {"bug-1": {"turn": 2}}
    assert files_in(files) == ["bug-1.jsonl"]


# ---- A disk that hangs


class HangingDisk:
    """A sync that doesn't return until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = trio.Event()
        self.let_go = threading.Event()
        self._sync = os.fdatasync
        self._hangs = True
        monkeypatch.setattr(os, "fdatasync", self._hang)

    def _hang(self, fd: int) -> None:
        if self._hangs:
            self._hangs = False
            trio.from_thread.run_sync(self.reached.set)
            assert self.let_go.wait(60)
        self._sync(fd)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[HangingDisk]:
    found = HangingDisk(monkeypatch)
    yield found
    found.let_go.set()


async def abandon(files: FileStore, disk: HangingDisk, count: int) -> None:
    """Begin to append *count* entries, and give up while the disk hangs."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(files.append, "bug-1", 0, raws(count), INFO)
        await disk.reached.wait()
        nursery.cancel_scope.cancel()


async def test_an_append_is_given_up_while_the_disk_hangs_and_the_next_one_waits_for_it(
    files: FileStore, disk: HangingDisk
) -> None:
    await abandon(files, disk, 200)
    order = []

    async def append_more() -> None:
        await files.append("bug-1", 0, raws(300), INFO)
        order.append("appended")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(append_more)
        await trio.testing.wait_all_tasks_blocked()
        order.append("let go")
        disk.let_go.set()

    assert order == ["let go", "appended"]
    assert list(await files.read("bug-1")) == raws(300)


async def test_other_states_are_saved_while_the_disk_hangs_for_one(files: FileStore, disk: HangingDisk) -> None:
    await abandon(files, disk, 2)

    await files.save(conversation("bug-2"))

    assert await files.has("bug-2")


async def test_a_write_that_hangs_keeps_the_lease_of_its_run(files: FileStore, disk: HangingDisk) -> None:
    """Nobody else may write before it has ended, though the run is over."""
    async with files.lease("bug-1"):
        await abandon(files, disk, 2)

    with pytest.raises(RunningElsewhereError):
        async with FileStore(files.folder).lease("bug-1"):
            pass
    async with files.lease("bug-1"):  # The same store goes on, behind that write.
        disk.let_go.set()
        await files.append("bug-1", 0, raws(3), INFO)
    async with FileStore(files.folder).lease("bug-1"):
        pass
    assert list(await files.read("bug-1")) == raws(3)


async def test_no_file_stays_open(files: FileStore, disk: HangingDisk) -> None:
    before = len(os.listdir("/dev/fd"))
    async with files.lease("bug-1"):
        await abandon(files, disk, 2)
    disk.let_go.set()
    for number in range(5):
        await files.append("bug-1", 0, raws(number), INFO)
        await files.read("bug-1", after=1)
        await files.infos()
        with pytest.raises(ConflictError):
            await files.append("bug-1", 9, raws(1, 9), INFO)

    assert len(os.listdir("/dev/fd")) == before

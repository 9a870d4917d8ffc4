"""What FileStore asks of the disk, and what it makes of a disk that refuses or hangs."""

from __future__ import annotations

import errno
import os
import resource
import threading
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from alpineagents import (
    ConflictError,
    CorruptStoreError,
    FileStore,
    RunningElsewhereError,
    StateNotFoundError,
    StoreError,
)

from .disk import KILL, SHORT, Disk, faults
from .histories import INFO, conversation, encoded, entries_of, files_in, infos_of, log_of, put, raw, raws

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

    assert calls["open"] == 3, "the log to write it, the folder to sync it, and a note of who holds it"


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each read of a file gave."""
    counted: list[int] = []
    pread = os.pread

    def counting(fd: int, size: int, at: int) -> bytes:
        data = pread(fd, size, at)
        counted.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", counting)
    return counted


async def test_who_looks_for_news_of_a_long_log_reads_only_what_is_new(files: FileStore, bytes_read: list[int]) -> None:
    await FileStore(files.folder).append("bug-1", 0, raws(5_000), INFO)
    assert list(await files.read("bug-1", after=4_999)) == raws(1, 4_999)
    bytes_read.clear()

    assert list(await files.read("bug-1", after=5_000)) == list(await files.read("bug-1", after=9_000)) == []
    assert bytes_read == []

    await FileStore(files.folder, fsync=False).append("bug-1", 5_000, raws(2, 5_000), INFO)
    bytes_read.clear()
    assert list(await files.read("bug-1", after=5_000)) == raws(2, 5_000)
    assert list(await files.read("bug-1", after=5_002)) == []
    assert sum(bytes_read) < 500


async def test_who_looks_for_news_sees_what_becomes_of_a_log(files: FileStore) -> None:
    """It grows, has a torn end, a last line without its newline, is damaged, cut short, replaced, gone."""
    await files.append("bug-1", 0, raws(3), INFO)
    log = files.folder / "bug-1.jsonl"
    store = FileStore(files.folder)
    assert list(await store.read("bug-1")) == raws(3)
    whole = log.read_bytes()

    log.write_bytes(whole + b'{"seq":3,"text":"cut')
    assert list(await store.read("bug-1", after=3)) == []
    log.write_bytes(whole + raw(3))
    assert list(await store.read("bug-1", after=3)) == raws(1, 3)
    log.write_bytes(whole + b"\n".join([raw(3), raw(4), b""]))
    assert list(await store.read("bug-1", after=3)) == raws(2, 3)
    assert list(await store.read("bug-1", after=5)) == []
    log.write_bytes(whole + b"\n".join([raw(3), raw(4), b"oops", b""]))
    with pytest.raises(CorruptStoreError, match="line 6"):
        await store.read("bug-1", after=5)
    log.write_bytes(whole)
    assert list(await store.read("bug-1", after=2)) == raws(1, 2)
    await files.delete("bug-1")
    with pytest.raises(StateNotFoundError):
        await store.read("bug-1", after=3)
    await files.append("bug-1", 0, raws(9, by="another"), INFO)
    assert list(await store.read("bug-1", after=3)) == raws(6, 3, by="another")


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

    assert modes == {"bug-1.jsonl": 0o600, ".bug-2.jsonl": 0o600, ".bug-2.lease": 0o600}
    assert [path.stat().st_mode & 0o777 for path in (store.folder, store.folder.parent)] == [0o700, 0o700]


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


# ---- A disk that fails at any moment, and loses its power at any other


@attrs.frozen
class Known:
    """What a program knows of the State that it saves."""

    tried: tuple[bytes, ...] = ()
    """The entries that it has given to ``append``."""
    saved: int = 0
    """How many of them are promised to be saved."""
    removing: bool = False
    """It has asked for the State to be removed, and waits."""
    ghost: tuple[bytes, ...] = ()
    """The entries of a State that was removed at the second try: it may come back until the next one is saved."""


class Program:
    """Saves a State whatever fails, and tries again; notes what it knows."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self.folder = folder
        self.disk = disk
        self.store = FileStore(folder)
        self.known = Known()

    def learn(self, **changes: Any) -> None:
        self.known = attrs.evolve(self.known, **changes)
        self.disk.note(self.known)

    async def work(self, steps: Sequence[Step]) -> None:
        for step in steps:
            await step(self)
            if self.disk.killed:
                self.disk.start_anew()
                await self.open_anew()
                if self.known.removing:
                    await self.remove()

    async def append(self, count: int, size: int, *, leased: bool, from_start: bool) -> None:
        length = len(self.known.tried)
        self.learn(tried=(*self.known.tried, *raws(count, length, text="ü" * size)))
        first = 0 if from_start else self.known.saved
        with suppress(StoreError):
            async with self.store.lease("bug-1") if leased else nullcontext():
                for _ in range(2):
                    if self.disk.killed:
                        break
                    try:
                        await self.store.append("bug-1", first, self.known.tried[first:], INFO)
                    except (ConflictError, CorruptStoreError):
                        raise AssertionError("it knows better") from None
                    except StoreError:
                        continue
                    self.learn(saved=len(self.known.tried), ghost=() if self.known.tried else self.known.ghost)
                    break

    async def open_anew(self) -> None:
        self.store = FileStore(self.folder)

    async def remove(self) -> None:
        ghost = self.known.tried if self.known.removing else ()
        self.learn(removing=True)
        while self.known.removing and not self.disk.killed:
            try:
                await self.store.remove("bug-1")
            except StoreError:
                ghost = self.known.tried
            else:
                self.known = Known(ghost=ghost)
                self.learn()


Step = Callable[[Program], Awaitable[None]]
_appends = st.builds(
    lambda count, size, leased, from_start: partial(
        Program.append, count=count, size=size, leased=leased, from_start=from_start
    ),
    st.integers(0, 3),
    st.sampled_from([0, 1, 3_000]),
    st.booleans(),
    st.booleans(),
)
_steps = st.lists(_appends | _appends | st.sampled_from([Program.open_anew, Program.remove]), min_size=1, max_size=6)


async def assert_kept(store: FileStore, known: Known) -> None:
    """What was promised is there; what is there besides is what was tried next; and one can go on with it."""
    found = await entries_of(store)
    if known.ghost and found == list(known.ghost[: len(found)]):
        return
    if not known.removing or found:
        assert found[: known.saved] == list(known.tried[: known.saved])
        assert found == list(known.tried[: len(found)])
    assert list(await infos_of(store)) == ["bug-1"] * bool(found)

    await store.append("bug-1", len(found), [*known.tried[len(found) :], raw(len(known.tried))], INFO)
    assert list(await store.read("bug-1")) == [*known.tried, raw(len(known.tried))]
    assert list(await infos_of(store)) == ["bug-1"]


def let_work(folder: Path, faults: Mapping[int, int], steps: Sequence[Step]) -> Disk:
    """Let a program work on a disk with these faults, and return that."""
    folder.mkdir()
    disk = Disk(folder, faults)
    with pytest.MonkeyPatch.context() as patch:
        disk.in_place(patch)
        trio.run(Program(folder, disk).work, steps)
    return disk


def cut_power(disk: Disk, moment: int, folder: Path, draw: Callable[..., Any], *, holes: bool = False) -> Known:
    """Leave in *folder* what there is of the disk when its power was cut; return what the program knew then."""
    folder.mkdir()
    for name, content in disk.cache_at(moment).after_a_power_cut(draw, holes=holes).items():
        (folder / name).write_bytes(content)
    known = [event.promise for event in disk.events[:moment] if isinstance(event.promise, Known)]
    return known[-1] if known else Known()


@pytest.mark.slow
@pytest.mark.parametrize("leased", [True, False])
@pytest.mark.parametrize(
    "fault",
    [(KILL,), (SHORT,), (SHORT, KILL), (SHORT, errno.ENOSPC), (errno.ENOSPC,), (errno.EIO,), (errno.EIO, KILL)],
    ids=["killed", "short write", "killed in a write", "full", "no space", "error", "killed after an error"],
)
def test_whichever_call_fails_what_is_promised_was_synced(tmp_path: Path, fault: Sequence[int], leased: bool) -> None:
    """Each call once; then, at each promise, the power is cut, and only what was synced is there."""
    append = partial(Program.append, size=1, leased=leased, from_start=False)
    steps: list[Step] = [partial(append, count=count) for count in (2, 2, 0, 1)]
    call, calls = 0, 1
    while call < calls:
        disk = let_work(tmp_path / f"{call}", dict(enumerate(fault, call)), [*steps, Program.remove, steps[0]])
        for moment, event in enumerate(disk.events, 1):
            if event.promise is not None:
                known = cut_power(disk, moment, after := tmp_path / f"{call}-{moment}", lambda _: 0)
                trio.run(assert_kept, FileStore(after, fsync=False), known)
        call, calls = call + 1, disk.calls
    assert call >= 12


@pytest.mark.slow
@settings(max_examples=200)
@given(_steps, st.data())
def test_no_power_cut_takes_what_was_saved_whatever_failed_before(steps: list[Step], data: st.DataObject) -> None:
    """What wasn't synced may be there, or a beginning of it, or zeros; what failed to sync may never come to be."""
    with TemporaryDirectory() as folder:
        disk = let_work(Path(folder, "before"), data.draw(faults), steps)
        known = cut_power(disk, data.draw(st.integers(0, len(disk.events))), Path(folder, "after"), data.draw)

        trio.run(assert_kept, FileStore(Path(folder, "after"), fsync=False), known)


@pytest.mark.parametrize("there", [0, 2])
def test_what_failed_to_sync_and_could_not_be_cut_off_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: int
) -> None:
    """Linux forgets what it couldn't write: readers see it, a later sync succeeds, and it is never on the disk."""
    disk = Disk(tmp_path, stuck=True)
    disk.in_place(monkeypatch)
    program = Program(tmp_path, disk)
    trio.run(partial(program.append, there, 0, leased=False, from_start=False))
    first = disk.calls + (not there)  # the write, behind the making of the file
    disk.faults = {first + 1: errno.EIO, first + 2: errno.EIO}

    trio.run(partial(program.append, 2, 0, leased=True, from_start=False))

    assert program.known.saved == there + 2, "the second try said that it is saved"
    left = disk.cache_at(len(disk.events)).after_a_power_cut(lambda _: 0)
    left.pop(".bug-1.lease", None)
    assert left == {"bug-1.jsonl": log_of(program.store)}


async def test_what_somebody_else_saved_behind_a_failed_write_is_not_cut_off_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(tmp_path, stuck=True)
    disk.in_place(monkeypatch)
    store, other = FileStore(tmp_path), FileStore(tmp_path)
    await store.append("bug-1", 0, raws(2), INFO)
    disk.faults = dict(enumerate([SHORT, errno.ENOSPC, errno.EIO], disk.calls))
    with pytest.raises(StoreError):
        await store.append("bug-1", 2, raws(1, 2, text="x" * 9_000), INFO)
    await other.append("bug-1", 2, raws(1, 2, by="another"), INFO)

    with pytest.raises(ConflictError):
        await store.append("bug-1", 2, raws(1, 2, text="x" * 9_000), INFO)

    assert list(await store.read("bug-1")) == [*raws(2), *raws(1, 2, by="another")]


@pytest.mark.parametrize("fault", [KILL, errno.EIO])
async def test_a_removal_is_durable_though_its_first_try_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: int
) -> None:
    disk = Disk(tmp_path)
    disk.in_place(monkeypatch)
    await FileStore(tmp_path).append("bug-1", 0, raws(2), INFO)
    disk.faults = {disk.calls + 1: fault}  # the sync of the folder, behind the removal of the name
    with pytest.raises(StoreError):
        await FileStore(tmp_path).remove("bug-1")
    disk.start_anew()

    await FileStore(tmp_path).remove("bug-1")

    assert disk.cache_at(len(disk.events)).after_a_power_cut(lambda _: 0) == {}


@pytest.mark.slow
@settings(max_examples=100)
@given(_steps, st.data())
def test_a_disk_that_writes_pages_in_any_order_leaves_what_can_be_repaired(
    steps: list[Step], data: st.DataObject
) -> None:
    """A hole in what wasn't synced looks like damage, so it isn't cut off unasked; what was saved is before it."""
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        disk = let_work(Path(folder, "before"), data.draw(faults), steps)
        moment = data.draw(st.integers(0, len(disk.events)))
        known = cut_power(disk, moment, Path(folder, "after"), data.draw, holes=True)
        warnings.simplefilter("ignore")

        trio.run(assert_kept, FileStore(Path(folder, "after"), fsync=False, repair=True), known)


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

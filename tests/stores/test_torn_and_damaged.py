"""Logs that were cut short or changed by others: what is loaded, and what the next append does."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
import trio

from alpineagents import ConflictError, CorruptStoreError, FileStore, Message, State

from .histories import INFO, conversation, encoded, files_in, infos_of, log_of, put, raw, raws, write_log

# ---- Torn ends


async def test_an_append_after_a_torn_line_does_not_spoil_the_next_record(tmp_path: Path) -> None:
    """Case E1: record 2 was torn while it was written; 3 must not be glued to what is left of it."""
    write_log(FileStore(tmp_path), b'{"seq":0,"n":1}\n{"seq":1,"n":2')

    await FileStore(tmp_path).append("bug-1", 1, [b'{"seq":1,"n":3}'], INFO)

    assert [json.loads(entry)["n"] for entry in await FileStore(tmp_path).read("bug-1")] == [1, 3]


@pytest.mark.parametrize("remembers", [True, False], ids=["same store", "new process"])
async def test_a_log_cut_at_any_byte_loads_and_goes_on(tmp_path: Path, remembers: bool) -> None:
    entries = raws(3, text="ü", args={"x": 1, "info": 9})
    first = FileStore(tmp_path / "first", fsync=False)
    await first.append("bug-1", 0, entries[:2], INFO)
    await first.append("bug-1", 2, entries[2:], b'{"turn":1}')
    whole = log_of(first)
    start = whole.index(b"\n") + 1
    store = FileStore(tmp_path / "cut", fsync=False)

    for cut in range(start, len(whole)):
        write_log(store, whole[:cut])
        if not remembers:
            store = FileStore(store.folder, fsync=False)
        kept = whole[:cut].count(b"\n") + (whole[cut : cut + 1] == b"\n")
        assert list(await store.read("bug-1")) == entries[:kept]
        assert log_of(store) == whole[:cut], "reading changes nothing"

        await store.append("bug-1", kept, raws(1, kept, new="ü"), INFO)

        assert list(await FileStore(store.folder).read("bug-1")) == [*entries[:kept], *raws(1, kept, new="ü")]
        assert await infos_of(store) == {"bug-1": json.loads(INFO)}


async def test_what_was_torn_is_written_again_by_the_next_save(files: FileStore) -> None:
    state = conversation()
    await files.save(state)
    write_log(files, log_of(files)[:-30])

    other = FileStore(files.folder)
    await other.save(State(id=state.id, history=state.history))

    assert (await files.load(state.id)).snapshot() == state.snapshot()


async def test_a_record_that_lacks_only_its_newline_is_kept_and_compared(files: FileStore) -> None:
    await files.append("bug-1", 0, raws(2), INFO)
    write_log(files, log_of(files).removesuffix(b"\n"))

    with pytest.raises(ConflictError, match="another entry 1"):
        await files.append("bug-1", 1, [raw(1, by="me")], INFO)
    await files.append("bug-1", 1, raws(1, 1), INFO)
    await files.append("bug-1", 1, raws(2, 1), INFO)

    assert list(await files.read("bug-1")) == raws(3)
    assert log_of(files).count(b"\n") == 3


async def test_a_torn_last_line_does_not_hide_the_info_before_it(files: FileStore) -> None:
    state = conversation(turns=30)
    await put(files, state)
    whole = log_of(files)
    expected = await infos_of(files)

    for torn in (
        b"{",
        b'{"seq":99,"args":{"x":1,"info":{"turn":77}}',
        b"\0" * 40_000,
        b'{"seq":99,"text":"' + b"x" * 10**6,
    ):
        write_log(files, whole + torn)

        assert await infos_of(files) == expected
        assert list(await files.read("bug-1")) == encoded(state)


async def test_a_batch_torn_before_its_last_line_keeps_the_earlier_info(files: FileStore) -> None:
    await files.append("bug-1", 0, raws(2), b'{"turn":1}')
    write_log(files, log_of(files) + raw(2) + b"\n" + raw(3)[:-3])

    assert await infos_of(files) == {"bug-1": {"turn": 1}}
    assert list(await files.read("bug-1")) == raws(3)


# ---- Damage


def damaged_at(line: int, wrong: bytes, count: int = 5) -> bytes:
    """A log of *count* entries, one line of which is *wrong*; lines count from 1."""
    lines = raws(count)
    lines[line - 1] = wrong
    lines[-1] = lines[-1][:-1] + b',"info":' + INFO + b"}"
    return b"\n".join([*lines, b""])


DAMAGE = {
    "not JSON": b'{"seq":2,',
    "blank": b"",
    "zeros": b"\0" * 20,
    "not UTF-8": b'{"seq":2,"x":"\xff"}',
    "not an object": b"[2]",
    "another entry's place": raw(3),
    "no place": b'{"x":2}',
    "an info cut short": b'{"seq":2,"x":1,"info":{"turn":1}',
    "an info cut short behind it": b'{"seq":2,"x":1,"info":5,',
    "nested too deep": b'{"seq":2,"x":' + b"[" * 100_000,
}


@pytest.mark.parametrize("wrong", DAMAGE.values(), ids=DAMAGE)
async def test_damage_is_an_error_with_file_and_line_and_what_is_readable(files: FileStore, wrong: bytes) -> None:
    write_log(files, data := damaged_at(3, wrong))
    place = r"runs/bug-1\.jsonl, line 3: .*; the 2 entries before it are readable; .*repair=True"

    with pytest.raises(CorruptStoreError, match=place):
        await files.read("bug-1")
    with pytest.raises(CorruptStoreError, match=place):
        await files.load("bug-1")
    with pytest.raises(CorruptStoreError, match=place):
        await files.append("bug-1", 2, raws(1, 2), INFO)
    assert await files.has("bug-1")
    assert log_of(files) == data


@pytest.mark.parametrize("wrong", DAMAGE.values(), ids=DAMAGE)
async def test_repair_loads_up_to_the_damage(files: FileStore, wrong: bytes) -> None:
    write_log(files, data := damaged_at(3, wrong))
    store = FileStore(files.folder, repair=True)

    with pytest.warns(UserWarning, match=r"bug-1\.jsonl, line 3: .* the rest is left out"):
        entries = await store.read("bug-1")

    assert list(entries) == raws(2)
    assert log_of(files) == data


@pytest.mark.parametrize("fsync", [True, False])
async def test_a_repaired_log_goes_on_and_what_was_damaged_is_kept_aside(files: FileStore, fsync: bool) -> None:
    write_log(files, data := damaged_at(3, b"oops"))

    await FileStore(files.folder, fsync=fsync, repair=True).append("bug-1", 2, raws(2, 2, new=True), INFO)

    assert list(await files.read("bug-1")) == [*raws(2), *raws(2, 2, new=True)]
    assert files_in(files) == ["bug-1.jsonl", "bug-1.jsonl.damaged"]
    aside = files.folder / "bug-1.jsonl.damaged"
    assert aside.read_bytes() == data[len(b"\n".join(raws(2))) + 1 :]
    assert aside.stat().st_mode & 0o777 == 0o600
    assert list(await infos_of(files)) == ["bug-1"]


async def test_a_repaired_state_runs_on(files: FileStore) -> None:
    state = conversation()
    await put(files, state)
    lines = log_of(files).split(b"\n")
    lines[5] = b"?" + lines[5]
    write_log(files, b"\n".join(lines))
    store = FileStore(files.folder, repair=True)

    with pytest.warns(UserWarning, match="line 6"):
        loaded = await store.load("bug-1")
    await loaded.add_message(Message.user("Once more."))

    assert (await files.load("bug-1")).snapshot() == loaded.snapshot()
    assert list(loaded.history)[:5] == list(state.history)[:5]


@pytest.mark.parametrize("data", [b"", b'{"seq":0,"x":1', b"\0\0\0", b"\n", b"oops\n" + raw(1)])
@pytest.mark.parametrize("repair", [False, True])
async def test_a_log_without_any_entry_is_an_error_not_an_empty_state(
    files: FileStore, data: bytes, repair: bool
) -> None:
    write_log(files, data)
    store = FileStore(files.folder, repair=repair)

    for fails in (store.load("bug-1"), store.append("bug-1", 0, raws(1), INFO)):
        with pytest.raises(CorruptStoreError, match=r"bug-1\.jsonl, line 1: .*; nothing is readable"):
            await fails
    assert log_of(files) == data


async def test_an_empty_log_is_no_free_id(files: FileStore) -> None:
    write_log(files, b"")

    with pytest.raises(CorruptStoreError):
        await files.has("bug-1")


async def test_a_newer_format_is_no_damage(files: FileStore) -> None:
    """Whatever it changed: the numbers are told before anything else is looked at."""
    write_log(files, data := b'{"format":2,"position":1}\n{"position":2}\n')

    for store in (files, FileStore(files.folder, repair=True)):
        with pytest.raises(CorruptStoreError, match=r"bug-1\.jsonl is in format 2, .* reads up to 1; install a newer"):
            await store.load("bug-1")
        with pytest.raises(CorruptStoreError, match="format 2"):
            await store.append("bug-1", 0, raws(1), INFO)
    assert log_of(files) == data


# ---- Listing


async def test_a_damaged_log_is_left_out_of_the_list_with_a_warning_that_names_it(files: FileStore) -> None:
    for state_id in ("bug-1", "bug-2"):
        await files.save(conversation(state_id))
    write_log(files, b"", "empty")
    write_log(files, b"oops\n", "foreign")
    write_log(files, log_of(files) + b"\0\0\0\n", "zeros")
    write_log(files, raw(0)[:-1] + b',"info":oops}\n', "odd-info")
    write_log(files, raw(0)[:-1] + b',"info":[]}\n', "odd-changes")
    (files.folder / "folder.jsonl").mkdir()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        listed = await files.list()

    assert [found.id for found in listed] == ["bug-2", "bug-1"]
    text = "\n".join(sorted(str(warning.message) for warning in caught))
    assert len(caught) == 6
    assert all(
        f"{name}.jsonl is left out" in text
        for name in ("empty", "foreign", "zeros", "odd-info", "odd-changes", "folder")
    )
    assert {warning.filename for warning in caught} == {__file__}


async def test_a_log_deleted_while_the_list_is_made_is_not_in_it(files: FileStore) -> None:
    await files.save(conversation())
    (files.folder / "gone.jsonl").symlink_to("nowhere")  # There is a name, and then nothing to open.

    assert [found.id for found in await files.list()] == ["bug-1"]


async def test_other_files_in_the_folder_are_let_alone(files: FileStore) -> None:
    await files.save(conversation())
    for name in ("notes.txt", "my notes.jsonl", ".hidden.jsonl", "bug-1.jsonl.damaged", ".jsonl"):
        (files.folder / name).write_text("oops")

    assert [found.id for found in await files.list()] == ["bug-1"]


async def test_listing_does_not_read_histories(files: FileStore) -> None:
    """Only the end of a log is read: here the rest isn't even there to be read."""
    state = conversation(turns=100, result="x" * 400)
    await put(files, state, size=20)
    expected = await infos_of(files)
    with (files.folder / "bug-1.jsonl").open("r+b") as file:
        file.write(b"\0" * (len(log_of(files)) - 25_000))

    assert await infos_of(files) == expected


async def test_the_info_of_long_lines_is_found(files: FileStore) -> None:
    for seq in range(4):
        entry = raw(seq, text="x" * 10**5, args={"x": 1, "info": {"turn": 99}})
        await files.append("bug-1", seq, [entry], b'{"id":"bug-1","turn":%d}' % seq)

        assert await infos_of(files) == {"bug-1": {"id": "bug-1", "turn": seq}}


async def test_a_log_without_its_last_newline_is_listed(files: FileStore) -> None:
    await files.append("bug-1", 0, raws(1), INFO)
    write_log(files, log_of(files).removesuffix(b"\n"))

    assert list(await infos_of(files)) == ["bug-1"]


# ---- Who else writes there


async def test_a_log_grown_by_another_process_is_read_anew(files: FileStore) -> None:
    await files.append("bug-1", 0, raws(2), INFO)
    await FileStore(files.folder).append("bug-1", 2, raws(2, 2), INFO)

    with pytest.raises(ConflictError, match="another entry 2"):
        await files.append("bug-1", 2, [raw(2, by="me")], INFO)
    await files.append("bug-1", 2, raws(3, 2), INFO)

    assert list(await files.read("bug-1")) == raws(5)


async def test_a_log_deleted_while_it_is_being_written_is_a_conflict(files: FileStore) -> None:
    async with files.lease("bug-1"):
        await files.append("bug-1", 0, raws(2), INFO)
        (files.folder / "bug-1.jsonl").unlink()

        with pytest.raises(ConflictError, match=r"bug-1\.jsonl was deleted or replaced"):
            await files.append("bug-1", 2, raws(1, 2), INFO)
    assert files_in(files) == []


async def test_a_lease_takes_no_file_away_that_is_not_its_own(files: FileStore) -> None:
    hidden = files.folder / ".bug-1.jsonl"
    async with files.lease("bug-1"):
        hidden.unlink()
        async with FileStore(files.folder).lease("bug-1"):
            hidden_too = hidden.stat()
        hidden.write_text("of another")
    assert hidden_too.st_nlink == 1
    assert hidden.read_text() == "of another"


async def test_an_editor_that_replaces_a_leased_log_is_a_conflict(files: FileStore) -> None:
    async with files.lease("bug-1"):
        await files.append("bug-1", 0, raws(2), INFO)
        data = log_of(files)
        (files.folder / "copy").write_bytes(data)
        (files.folder / "copy").rename(files.folder / "bug-1.jsonl")

        with pytest.raises(ConflictError, match="deleted or replaced"):
            await files.append("bug-1", 2, raws(1, 2), INFO)
    assert log_of(files) == data


def test_what_is_known_of_a_log_is_not_believed_in_the_next_run_if_it_changed(files: FileStore) -> None:
    trio.run(files.append, "bug-1", 0, raws(3), INFO)
    data = log_of(files)
    write_log(files, data[: data.index(b"\n") + 1])

    with pytest.raises(ConflictError, match="entry 3 can't follow the 1 entries"):
        trio.run(files.append, "bug-1", 3, raws(1, 3), INFO)

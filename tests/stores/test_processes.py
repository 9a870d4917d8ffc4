"""Two processes on one folder."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from collections.abc import Callable

import pytest
import trio

from alpineagents import FileStore, RunningElsewhereError
from alpineagents.stores._locked import open_locked

from .children import child, run_to_end
from .histories import INFO, conversation, encoded, files_in, raws

HOLD = """
async with store.lease(state_id):
    say("held")
    sys.stdin.readline()
say("free")
sys.stdin.readline()
"""


async def test_a_state_leased_by_another_process_is_refused_until_that_ends(files: FileStore) -> None:
    await files.append("bug-1", 0, raws(1), INFO)
    async with child(HOLD, files) as other:
        assert await other.line() == "held"
        held = rf"State bug-1 in .*runs is held .*: process {other.process.pid} on .*, since \d+ s; wait until"
        with pytest.raises(RunningElsewhereError, match=held):
            async with files.lease("bug-1"):
                pass
        with pytest.raises(RunningElsewhereError):
            await files.append("bug-1", 1, raws(1, 1), INFO)
        with pytest.raises(RunningElsewhereError):
            await files.delete("bug-1")
        assert list(await files.read("bug-1")) == raws(1), "reading needs no lease"

        await other.tell()
        assert await other.line() == "free"

        async with files.lease("bug-1"):
            await files.append("bug-1", 1, raws(1, 1), INFO)
    assert list(await files.read("bug-1")) == raws(2)


async def test_a_state_that_is_not_there_yet_is_leased_once_too(files: FileStore) -> None:
    async with child(HOLD, files) as other:
        assert await other.line() == "held"
        assert not await files.has("bug-1")
        with pytest.raises(RunningElsewhereError):
            async with files.lease("bug-1"):
                pass
        await other.tell()
        assert await other.line() == "free"
        assert files_in(files) == []


async def test_the_lease_of_a_killed_process_is_free(files: FileStore) -> None:
    async with child(HOLD, files) as other:
        assert await other.line() == "held"
        other.process.kill()
        await other.process.wait()

        async with files.lease("bug-1"):
            await files.append("bug-1", 0, raws(1), INFO)
    assert files_in(files) == ["bug-1.jsonl"]


async def test_who_died_is_not_taken_for_who_holds_a_state(files: FileStore) -> None:
    """What a killed process noted of itself stays until the next lease; a write without one changes nothing of it."""
    async with child(HOLD, files) as other:
        assert await other.line() == "held"
        other.process.kill()
        await other.process.wait()
    assert (files.folder / ".bug-1.lease").exists()

    writing = open_locked(files.folder / "bug-1.jsonl", create=True)
    with pytest.raises(RunningElsewhereError, match="held by another run or save, in this process or another one"):
        await files.append("bug-1", 0, raws(1), INFO)
    writing.close()


@pytest.mark.parametrize("note", [b"", b"soon", b"1 {}", b"\xff", b'1 {"machine": 1}'])
async def test_a_note_of_the_holder_that_can_not_be_read_is_passed_over(files: FileStore, note: bytes) -> None:
    async with files.lease("bug-1"):
        (files.folder / ".bug-1.lease").write_bytes(note)
        with pytest.raises(RunningElsewhereError, match="held by another run or save, in this process or another one"):
            await FileStore(files.folder).lease("bug-1").__aenter__()


async def test_a_lease_whose_holder_can_not_be_noted_is_held_all_the_same(files: FileStore) -> None:
    (files.folder / ".bug-1.lease").mkdir(parents=True)

    async with files.lease("bug-1"):
        with pytest.raises(RunningElsewhereError):
            await FileStore(files.folder).lease("bug-1").__aenter__()
    async with FileStore(files.folder).lease("bug-1"):
        pass


FORK = """
import os, signal
await store.append(state_id, 0, [b'{"seq":0}'], b"{}")
async with store.lease(state_id):
    if not (forked := os.fork()):
        try:
            store._log(state_id).append(1, [b'{"seq":1}'], b"{}")
        except StoreError:
            say("refused")
        signal.pause()
    sys.stdin.readline()
    say(forked)
    signal.pause()
"""


async def test_a_lease_ends_with_its_process_though_a_child_that_it_forked_lives(files: FileStore) -> None:
    async with child(FORK, files) as other:
        assert await other.line() == "refused", "the child holds nothing"
        with pytest.raises(RunningElsewhereError, match=f"process {other.process.pid} "):
            await files.lease("bug-1").__aenter__()
        await other.tell()
        forked = int(await other.line())
        try:
            other.process.kill()
            await other.process.wait()

            async with files.lease("bug-1"):
                await files.append("bug-1", 1, raws(1, 1), INFO)
        finally:
            os.kill(forked, signal.SIGKILL)


async def test_the_next_one_takes_over_what_a_killed_process_left(files: FileStore) -> None:
    files.folder.mkdir()
    (files.folder / ".bug-1.jsonl").write_bytes(b"\n".join(raws(2, by="the dead")) + b'\n{"seq":2,')

    assert not await files.has("bug-1")
    assert list(await files.infos()) == []
    await files.append("bug-1", 0, raws(1), INFO)

    assert list(await files.read("bug-1")) == raws(1)
    assert files_in(files) == ["bug-1.jsonl"]


async def test_deleting_removes_what_a_killed_process_left(files: FileStore) -> None:
    await files.append("bug-1", 0, raws(1), INFO)
    (files.folder / ".bug-1.jsonl").write_bytes(b"")
    (files.folder / ".bug-2.jsonl").write_bytes(b"")

    await files.delete("bug-1")
    await files.delete("bug-2")

    assert files_in(files) == []


async def test_what_one_process_saved_another_one_loads_and_goes_on_with(files: FileStore) -> None:
    state = conversation()
    await files.save(state)

    said = await run_to_end(
        """
state = await store.load(state_id)
await state.add_message(Message.user("Thank you."))
say(state.id)
""",
        files,
    )

    assert said == "bug-1\n"
    loaded = await files.load("bug-1")
    assert [message.text for message in loaded.messages][-2:] == ["It is in line 1.", "Thank you."]
    assert encoded(loaded)[: len(state.history)] == encoded(state)


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let another process do something once, after this one has opened a log and before it has locked it."""
    lock = fcntl.flock
    due = [act]

    def flock(fd: int, how: int) -> None:
        if due:
            due.pop()()
        lock(fd, how)

    monkeypatch.setattr(fcntl, "flock", flock)


async def test_a_log_deleted_before_it_is_locked_is_begun_anew(
    files: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await files.append("bug-1", 0, raws(2), INFO)
    meanwhile(monkeypatch, (files.folder / "bug-1.jsonl").unlink)

    await files.append("bug-1", 0, raws(1, by="me"), INFO)

    assert list(await files.read("bug-1")) == raws(1, by="me")


@pytest.mark.parametrize("hidden_is_left", [True, False])
async def test_a_log_that_another_process_made_before_this_one_locked_its_own_is_used(
    files: FileStore, monkeypatch: pytest.MonkeyPatch, hidden_is_left: bool
) -> None:
    other = FileStore(files.folder / "other")
    await other.append("bug-1", 0, raws(2), INFO)
    made = other.folder / "bug-1.jsonl"
    log, hidden = files.folder / "bug-1.jsonl", files.folder / ".bug-1.jsonl"
    meanwhile(monkeypatch, lambda: (made.rename(log), None if hidden_is_left else hidden.unlink()))

    await files.append("bug-1", 1, raws(2, 1), INFO)

    assert list(await files.read("bug-1")) == raws(3)
    assert files_in(files) == ["bug-1.jsonl", "other"]


COUNT = """
state = await store.load(state_id) if await store.has(state_id) else State(id=state_id)
say(len(state.messages))
while True:
    await store.save(state)
    await state.add_message(Message.user(f"message {len(state.messages)} " + "x" * 3_000))
    say(len(state.messages))
"""


@pytest.mark.slow
async def test_what_a_killed_process_had_saved_is_there(files: FileStore) -> None:
    saved = 0
    for kill_after in (1, 2, 3, 5, 8, 13):
        async with child(COUNT, files) as other:
            for _ in range(kill_after):
                count = int(await other.line())
                assert count >= saved
                saved = count
            other.process.kill()
        if saved:
            messages = (await files.load("bug-1")).messages
            assert len(messages) >= saved
            assert [message.text.split()[1] for message in messages] == [str(number) for number in range(len(messages))]
    assert saved >= 20


FIGHT = """
me, rounds = int(args[0]), int(args[1])
while rounds:
    try:
        async with store.lease(state_id):
            length = len(await store.read(state_id)) if await store.has(state_id) else 0
            entries = [b'{"seq":%d,"by":%d}' % (seq, me) for seq in range(length, length + 3)]
            await store.append(state_id, length, entries, b'{"turn":1}')
            rounds -= 1
    except RunningElsewhereError:
        await trio.lowlevel.checkpoint()
"""


@pytest.mark.slow
async def test_processes_that_fight_for_a_state_take_turns(files: FileStore) -> None:
    async with trio.open_nursery() as nursery:
        for me in range(3):
            nursery.start_soon(run_to_end, FIGHT, files, me, 20)

    entries = [json.loads(entry) for entry in await files.read("bug-1")]
    assert [entry["seq"] for entry in entries] == list(range(3 * 20 * 3))
    assert all(entries[at]["by"] == entries[at + 1]["by"] == entries[at + 2]["by"] for at in range(0, len(entries), 3))
    assert files_in(files) == ["bug-1.jsonl"]


FIGHT_WITH_DELETIONS = """
me, rounds = int(args[0]), int(args[1])
entries = [b'{"seq":%d,"by":%d}' % (seq, me) for seq in range(3)]
while rounds:
    try:
        async with store.lease(state_id):
            if not await store.has(state_id):
                await store.append(state_id, 0, entries[:2], b'{"turn":1}')
                await store.append(state_id, 2, entries[2:], b'{"turn":2}')
                assert list(await store.read(state_id)) == entries
                rounds -= 1
                continue
            found = [json.loads(entry) for entry in await store.read(state_id)]
            assert [entry["seq"] for entry in found] == [0, 1, 2], found
            assert len({entry["by"] for entry in found}) == 1, found
        await store.delete(state_id)
    except RunningElsewhereError:
        await trio.lowlevel.checkpoint()
"""


@pytest.mark.slow
async def test_processes_that_make_and_delete_a_state_see_it_whole_or_not(files: FileStore) -> None:
    """No lease is held on a file that has lost its name, whatever happens between opening and locking it."""
    async with trio.open_nursery() as nursery:
        for me in range(3):
            nursery.start_soon(run_to_end, FIGHT_WITH_DELETIONS, files, me, 25)

    assert files_in(files) in (["bug-1.jsonl"], [])

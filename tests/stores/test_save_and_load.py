"""States saved and loaded as a program does it."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from alpineagents import (
    AgentInfo,
    ConflictError,
    CorruptStoreError,
    ErrorEntry,
    FileStore,
    MemoryStore,
    Message,
    RunStartEntry,
    State,
    StateInfo,
    StateNotFoundError,
    Store,
    ToolCall,
    ToolOutcome,
)

from ..states import values
from .histories import conversation, encoded, infos_of, reply, request


async def test_a_loaded_state_has_the_values_of_the_saved_one(store: Store) -> None:
    state = conversation(text="naïve \0 \u2028 🐛")
    state.finish({"line": 1, "info": {"certain": True}, "long": 10**30})

    await store.save(state)
    loaded = await store.load(state.id)

    assert values(loaded) == values(state)
    assert encoded(loaded) == encoded(state)
    assert loaded.id == state.id


async def test_loading_twice_gives_equal_states(store: Store) -> None:
    await store.save(conversation())

    assert (await store.load("bug-1")).snapshot() == (await store.load("bug-1")).snapshot()


async def test_a_state_is_saved_bit_by_bit(store: Store) -> None:
    state = State(id="bug-1")
    for number in range(5):
        await store.save(state)
        state.add_message(Message.user(f"message {number}"))
    await store.save(state)

    assert [message.text for message in (await store.load("bug-1")).messages] == [f"message {n}" for n in range(5)]


async def test_awaiting_a_change_waits_until_it_is_saved(store: Store) -> None:
    state = State(id="bug-1")
    await store.save(state)

    await state.add_message(Message.user("hello"))
    async with state.edit_extra_data() as data:
        data["seen"] = 1

    loaded = await store.load("bug-1")
    assert loaded.extra_data == {"seen": 1}
    assert loaded.messages == state.messages


async def test_a_loaded_state_goes_on_where_it_was(store: Store) -> None:
    await store.save(conversation())
    loaded = await store.load("bug-1")

    await loaded.add_message(Message.user("And now?"))

    again = await store.load("bug-1")
    assert again.snapshot() == loaded.snapshot()
    assert again.messages[-1].text == "And now?"


async def test_loading_takes_back_a_request_that_has_no_reply(store: Store) -> None:
    state = State(id="bug-1", messages=[Message.user("hello")])
    request(state)
    state.add_message(Message.user("are you there?"))
    await store.save(state)

    loaded = await store.load("bug-1")

    assert isinstance(loaded.history[-1], ErrorEntry)
    assert loaded.turn == 0
    assert [message.text for message in loaded.messages] == ["hello", "are you there?"]
    assert len(await store.read("bug-1")) == 3, "what loading adds is saved with the next save"
    await store.save(loaded)
    assert (await store.load("bug-1")).snapshot() == loaded.snapshot()


async def test_loading_closes_calls_that_were_running(store: Store) -> None:
    state = State(id="bug-1", messages=[Message.user("hello")])
    request(state)
    reply(state, ToolCall("a", "read_file", {}), ToolCall("b", "read_file", {}))
    await store.save(state)

    loaded = await store.load("bug-1")

    assert loaded.pending_calls == ()
    assert [entry.outcome for entry in loaded.history if entry.kind == "tool_result"] == [ToolOutcome.ABORTED] * 2
    assert "may or may not have taken effect" in str(loaded.history[-1])
    assert (await store.load("bug-1")).snapshot() == loaded.snapshot()


async def test_saving_another_state_under_a_taken_id_is_a_conflict(store: Store) -> None:
    await store.save(conversation())

    with pytest.raises(ConflictError, match="another entry 0"):
        await store.save(conversation(text="Another bug."))
    assert (await store.load("bug-1")).messages[0].text == "Find the bug."


async def test_two_loaded_copies_can_not_both_go_on(store: Store) -> None:
    await store.save(conversation())
    one, other = await store.load("bug-1"), await store.load("bug-1")
    await one.add_message(Message.user("this way"))

    with pytest.raises(ConflictError):
        await other.add_message(Message.user("no, that way"))
    assert (await store.load("bug-1")).messages[-1].text == "this way"


async def test_a_fork_is_saved_beside_its_origin(store: Store) -> None:
    state = conversation()
    fork = state.fork(id="bug-1b")
    fork.add_message(Message.user("another try"))

    await store.save(state)
    await store.save(fork)

    assert (await store.load("bug-1")).snapshot() == state.snapshot()
    assert (await store.load("bug-1b")).snapshot() == fork.snapshot()


async def test_a_state_is_copied_from_store_to_store(store: Store, tmp_path: Path) -> None:
    state = conversation()
    await store.save(state)

    for other in (MemoryStore(), FileStore(tmp_path / "others", fsync=False)):
        await other.save(await store.load(state.id))

        assert list(await other.read(state.id)) == list(await store.read(state.id))
        assert await infos_of(other) == await infos_of(store)


async def test_list_has_one_info_per_state_the_newest_first(store: Store) -> None:
    old = conversation("old", text="x" * 300)
    sub = State(id="sub")
    sub.add_message(Message.user("go"))
    sub.commit(lambda snap, at: RunStartEntry(snap.length, snap.turn, at, AgentInfo(), "old", "call_1"))
    new = State(id="new", extra_data={"x": 1})
    new.finish("done")
    for state in (new, old, sub):
        await store.save(state)
    await old.add_message(Message.user("more"))

    listed = await store.list()

    assert [found.id for found in listed] == ["new", "sub", "old"]
    assert [found.id for found in await store.list(parent_id="old")] == ["sub"]
    assert [found.id for found in await store.list(parent_id=None, limit=1)] == ["new"]
    assert [found.id for found in await store.list(before="new", limit=1)] == ["sub"]
    assert listed[2] == StateInfo(
        id="old", first_message="x" * 200, created_at=old.created_at, updated_at=old.updated_at, turn=3
    )
    assert listed[0].finished
    assert listed[0].stopped == new.stopped


async def test_an_empty_store_lists_nothing(store: Store) -> None:
    assert list(await store.list()) == []


async def test_loading_what_is_not_there_says_so(store: Store) -> None:
    await store.save(conversation("parser-bug"))

    with pytest.raises(StateNotFoundError, match=r"no State parser-bag in .*; near it: parser-bug"):
        await store.load("parser-bag")


async def test_a_history_that_can_not_have_happened_is_corrupt(store: Store) -> None:
    entries = encoded(conversation())
    twice = [*entries[:2], entries[1].replace(b'"seq":1', b'"seq":2')]
    await store.append("bug-1", 0, twice, b"{}")

    with pytest.raises(CorruptStoreError, match=r"bug-1 in .* can't be loaded: .*entry 2"):
        await store.load("bug-1")


async def test_a_newer_format_is_refused_with_both_numbers(store: Store) -> None:
    entries = encoded(conversation())
    await store.append("bug-1", 0, [entries[0].replace(b'"format":1', b'"format":7'), *entries[1:]], b"{}")

    with pytest.raises(CorruptStoreError, match=r"format 7, .* reads up to 1; install a newer"):
        await store.load("bug-1")


async def test_memory_needs_no_real_time(autojump_clock: trio.testing.MockClock) -> None:
    store = MemoryStore()
    before = trio.current_time()

    with trio.fail_after(1):
        await store.save(conversation())
        await store.load("bug-1")

    assert trio.current_time() == before


async def test_what_is_saved_is_bytes_that_do_not_change_with_the_state() -> None:
    store = MemoryStore()
    state = conversation()
    await store.save(state)
    before = [bytes(entry) for entry in await store.read(state.id)]

    state.add_message(Message.user("more"))

    assert list(await store.read(state.id)) == before

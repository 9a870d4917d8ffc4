"""The page's section "The model in short"."""

from __future__ import annotations

import pytest

from alpineagents import FileStore, MemoryStore, State, StateSnapshot, ToolCall
from alpineagents.record._codec import decode_history
from alpineagents.testing import tool_call

from ..states import PROPERTIES, values
from .moments import CHANGES, agent, answered, said


@pytest.mark.parametrize("name", CHANGES)
def test_each_of_its_methods_changes_the_state_itself(name):
    """Section 1 "The model in short", claim 1."""
    state = answered()
    before = values(state)

    CHANGES[name](state)

    assert values(state) != before


@pytest.mark.parametrize("name", [*PROPERTIES, "id", "note"])
def test_nothing_on_a_state_can_be_set_past_its_methods(name):
    """Section 1 "The model in short", claim 2."""
    state = answered()
    before = values(state)

    with pytest.raises(AttributeError):
        setattr(state, name, None)
    with pytest.raises(AttributeError):
        delattr(state, name)

    assert values(state) == before


async def test_what_an_agent_does_and_what_you_do_go_the_same_way_into_one_history():
    """Section 1 "The model in short", claim 3."""
    state = said()
    await agent(tool_call("add", a=1, b=2), "It is 3.").run(state)
    state.finish()

    seen = [entry async for entry in state.watch()]

    assert seen == list(state.history)
    assert [entry.seq for entry in seen] == list(range(9))
    assert values(State(history=seen)) == values(state)


def test_reading_never_changes_a_state():
    """Section 1 "The model in short", claim 4."""
    state = answered()
    before = values(state)

    for name in (*PROPERTIES, "id"):
        getattr(state, name)
    list(state.messages), list(state.history), str(state), repr(state), state.snapshot(), state.fork()

    assert values(state) == before


@pytest.mark.parametrize("name", CHANGES)
def test_every_change_is_one_entry_in_the_history(name):
    """Section 1 "The model in short", claim 5."""
    state = answered()
    before = len(state.history)

    CHANGES[name](state)

    assert len(state.history) == before + 1


def test_a_history_only_grows():
    """Section 1 "The model in short", claim 6."""
    state = answered()
    for change in CHANGES.values():
        before = list(state.history)
        change(state)

        assert len(state.history) > len(before)
        assert all(entry is old for entry, old in zip(state.history, before, strict=False))
    with pytest.raises(TypeError):
        del state.history[0]


def test_every_value_at_every_moment_is_computed_from_the_history():
    """Section 1 "The model in short", claim 7."""
    state = State()
    state.add_message(answered().messages[0])
    moments = [state.snapshot()]
    for name in ("add_message", "edit_extra_data", "compact", "restore", "finish"):
        CHANGES[name](state)
        moments.append(state.snapshot())

    for moment in moments:
        assert values(State(history=moment.history)) == values(moment)


async def test_a_state_of_the_same_history_has_the_same_values():
    """Section 1 "The model in short", claim 8."""
    state = State(messages=said().messages, extra_data={"repo": "api"})
    await agent([tool_call("add", a=1, b=2), tool_call("picky", path="a.txt")], "It is 3.").run(state)
    state.finish({"sum": 3})

    assert values(State(history=state.history)) == values(state)


def test_a_snapshot_is_the_frozen_value_of_one_moment():
    """Section 1 "The model in short", claim 9."""
    state = answered()
    snapshot, before = state.snapshot(), values(state)

    for change in CHANGES.values():
        change(state)

    assert isinstance(snapshot, StateSnapshot)
    assert values(snapshot) == before


@pytest.mark.parametrize("make", [lambda folder: MemoryStore(), FileStore], ids=["memory", "files"])
async def test_what_a_store_holds_of_a_state_is_its_history(make, tmp_path):
    """Section 1 "The model in short", claim 10."""
    store, state = make(tmp_path), answered()

    await store.save(state)

    assert decode_history(await store.read(state.id)) == list(state.history)


@pytest.mark.parametrize("make", [lambda folder: MemoryStore(), FileStore], ids=["memory", "files"])
async def test_loading_replays_the_history(make, tmp_path):
    """Section 1 "The model in short", claim 11."""
    store, state = make(tmp_path), State(messages=said().messages, extra_data={"repo": "api"})
    await agent(tool_call("add", a=1, b=2), "It is 3.", store=store).run(state)
    state.compact("They asked for a sum.")
    await store.save(state)

    loaded = await store.load(state.id)

    assert loaded is not state
    assert values(loaded) == values(state)


async def test_a_state_and_one_rebuilt_from_its_history_go_on_in_the_same_way():
    """Section 1 "The model in short", claim 12."""
    state = answered()
    rebuilt = State(history=state.history)
    for each in (state, rebuilt):
        for change in ("add_message", "edit_extra_data", "compact"):
            CHANGES[change](each)
        await agent(ToolCall("c", "add", {"a": 1, "b": 2}), "done").run(each)

    assert rebuilt.snapshot() == state.snapshot()
    assert not hasattr(state, "__dict__")

"""The page's section "StateSnapshot: a value you can keep"."""

from __future__ import annotations

import pytest
import trio

from alpineagents import FileStore, Message, State, StateSnapshot
from alpineagents.testing import tool_call

from ..run.runs import kinds
from ..states import PROPERTIES, values
from .moments import CHANGES, agent, answered, asked, edit, replied, roles, said, texts, waiting


def test_snapshot_returns_a_state_snapshot():
    """Section 15 "StateSnapshot: a value you can keep", claim 1."""
    assert isinstance(said().snapshot(), StateSnapshot)


@pytest.mark.parametrize("name", [*PROPERTIES, "id"])
def test_a_snapshot_has_the_fields_of_the_state(name):
    """Section 15 "StateSnapshot: a value you can keep", claim 2."""
    state = answered()
    edit(state, n=1)
    state.finish("done")

    assert getattr(state.snapshot(), name) == getattr(state, name)


@pytest.mark.parametrize("name", CHANGES)
def test_a_snapshot_has_no_method_that_changes_anything(name):
    """Section 15 "StateSnapshot: a value you can keep", claim 3."""
    assert hasattr(State, name)
    assert not hasattr(StateSnapshot, name)


@pytest.mark.parametrize("name", [*PROPERTIES, "id", "note"])
def test_a_snapshot_is_frozen(name):
    """Section 15 "StateSnapshot: a value you can keep", claim 4."""
    snapshot = said().snapshot()
    with pytest.raises(AttributeError, match="frozen"):
        setattr(snapshot, name, None)
    with pytest.raises(AttributeError, match="frozen"):
        delattr(snapshot, name)


def test_snapshots_of_equal_histories_are_equal():
    """Section 15 "StateSnapshot: a value you can keep", claim 5."""
    state = answered()
    snapshot = state.snapshot()

    assert snapshot == state.snapshot() == State(history=state.history).snapshot()
    state.add_message(Message.user("more"))
    assert snapshot != state.snapshot()


async def test_two_reads_of_a_state_can_see_two_moments():
    """Section 15 "StateSnapshot: a value you can keep", claim 6."""
    state, talker = said(), agent("hello")

    messages = state.messages
    await talker.run(state)
    turn = state.turn

    assert (len(messages), turn) == (1, 1)


async def test_a_run_in_another_thread_can_come_between_two_reads():
    """Section 15 "StateSnapshot: a value you can keep", claim 7."""
    state, talker = said(), agent("hello")

    messages = state.messages
    await trio.to_thread.run_sync(talker.run_sync, state)
    turn = state.turn

    assert (len(messages), turn) == (1, 1)


async def test_one_snapshot_is_one_moment_while_a_run_goes_on():
    """Section 15 "StateSnapshot: a value you can keep", claim 8."""
    state, moments = said(), []

    def answer(request):
        moments.append(state.snapshot())
        return tool_call("add", a=1, b=2)

    await agent(answer, answer, "3").run(state)

    assert [(moment.turn, roles(moment)) for moment in moments] == [
        (1, ["user"]),
        (2, ["user", "assistant", "tool"]),
    ]
    for moment in moments:
        assert values(moment) == values(State(history=moment.history))


@pytest.mark.parametrize("make", [waiting, asked])
def test_a_state_is_restored_between_turns_only(make):
    """Section 15 "StateSnapshot: a value you can keep", claim 9."""
    state = make()
    start = State(history=state.history[:1]).snapshot()
    with pytest.raises(ValueError, match="restore: "):
        state.restore(start)
    with pytest.raises(ValueError, match="in the middle of a turn"):
        replied().restore(state.snapshot())
    assert "context_change" not in kinds(state)[1:]


def test_a_state_is_not_forked_while_a_request_waits():
    """Section 15 "StateSnapshot: a value you can keep", claim 10."""
    with pytest.raises(ValueError, match="fork: a request waits"):
        waiting().fork()


def test_restore_keeps_the_history_and_what_was_used():
    """Section 15 "StateSnapshot: a value you can keep", claim 11."""
    state = said()
    start = state.snapshot()
    agent("hello").run_sync(state)
    before, usage = list(state.history), state.usage

    state.restore(start)

    changed = {name for name, value in values(state).items() if value != values(start)[name]}
    assert changed == {"history", "usage", "updated_at"}
    assert list(state.history[:-1]) == before
    assert state.usage == usage


def test_restore_refuses_a_snapshot_of_another_state():
    """Section 15 "StateSnapshot: a value you can keep", claim 12."""
    state = State(messages=[Message.user("mine")])
    with pytest.raises(ValueError, match="another State"):
        state.restore(said().snapshot())
    assert texts(state) == ["mine"]


async def test_a_fork_keeps_the_history_and_goes_its_own_way(tmp_path):
    """Section 15 "StateSnapshot: a value you can keep", claim 13."""
    store, state = FileStore(tmp_path), said()
    await agent("hello", store=store).run(state)

    fork = state.fork(id="other-way")
    assert (fork.id, fork.snapshot()) == ("other-way", state.snapshot())
    fork.add_message(Message.user("more"))
    await agent("two").run(fork)

    assert texts(state) == ["go", "hello"]
    assert texts(fork) == ["go", "hello", "more", "two"]
    assert [info.id for info in await store.list()] == [state.id]

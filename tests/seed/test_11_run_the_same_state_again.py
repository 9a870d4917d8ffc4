"""The page's section "Run the same State again"."""

from __future__ import annotations

import signal
import warnings

import pytest
import trio

from alpineagents import FileStore, Message, StoppedByLimit, StoppedByUntil, default_loop, tool
from alpineagents.testing import FakeModel, tool_call

from ..run.runs import assert_whole, kinds, outcomes
from .moments import agent, replied, roles, said, texts


async def test_a_state_that_ran_can_be_run_again():
    """Section 11 "Run the same State again", claim 1."""
    state, talker = said(), agent("one", "two")
    await talker.run(state)
    state.add_message(Message.user("more"))

    assert await talker.run(state) == "two"
    assert texts(state) == ["go", "one", "more", "two"]


def test_a_plain_script_runs_a_state_again_in_the_same_way():
    """Section 11 "Run the same State again", claim 2."""
    state, talker = said(), agent("one", "two")
    talker.run_sync(state)
    state.add_message(Message.user("more"))

    assert talker.run_sync(state) == "two"
    assert texts(state) == ["go", "one", "more", "two"]


async def test_any_agent_can_run_a_state_again():
    """Section 11 "Run the same State again", claim 3."""
    state = said()
    await agent("one", name="first", system="You add.").run(state)
    state.add_message(Message.user("more"))

    assert await agent("two", name="second", tools=()).run(state) == "two"


async def test_a_copy_of_the_agent_with_another_model_can_run_a_state_again():
    """Section 11 "Run the same State again", claim 4."""
    state, first = said(), agent(tool_call("add", a=1, b=2), "one")
    await first.run(state)
    state.add_message(Message.user("more"))
    other = FakeModel(["two"], name="other/one")

    assert await first.copy(model=other).run(state) == "two"
    assert list(other.requests[0].messages) == list(state.messages[:-1])
    assert roles(state) == ["user", "assistant", "tool", "assistant", "user", "assistant"]


async def test_a_state_is_run_by_one_run_at_a_time():
    """Section 11 "Run the same State again", claim 5."""
    state, other = said(), agent("never said")

    async def answer(request):
        before = list(state.history)
        with pytest.raises(ValueError, match="in a run already"):
            await other.run(state)
        assert list(state.history) == before
        return "one"

    assert await agent(answer).run(state) == "one"
    assert kinds(state).count("run_start") == 1


async def test_another_thread_can_not_run_it_meanwhile_either():
    """Section 11 "Run the same State again", claim 6."""
    state, other = said(), agent("never said")

    async def answer(request):
        with pytest.raises(ValueError, match="in a run already"):
            await trio.to_thread.run_sync(other.run_sync, state)
        return "one"

    assert await agent(answer).run(state) == "one"
    assert kinds(state).count("run_start") == 1


async def test_a_state_stopped_by_until_stops_again_at_once_if_it_is_still_true():
    """Section 11 "Run the same State again", claim 7."""
    state, talker = said(), agent("one", "never said")
    await talker.run(state)

    assert await talker.run(state) == "one"
    assert (talker.model.remaining, state.stopped) == (1, StoppedByUntil("waiting_for_user"))
    assert kinds(state)[-2:] == ["run_start", "stop"]


async def test_a_message_first_lets_a_state_stopped_by_until_continue():
    """Section 11 "Run the same State again", claim 8."""
    state, talker = said(), agent("one", "two")
    await talker.run(state)

    state.add_message(Message.user("more"))

    assert await talker.run(state) == "two"


async def test_a_state_stopped_by_limit_runs_up_to_limit_more_turns():
    """Section 11 "Run the same State again", claim 9."""
    state = said()
    talker = agent(*[tool_call("add", a=n, b=n) for n in range(4)], "done", loop=default_loop.copy(limit=3))
    await talker.run(state)
    assert (state.turn, state.stopped) == (3, StoppedByLimit(3))

    assert await talker.run(state) == "done"
    assert (state.turn, state.stopped) == (5, StoppedByUntil("waiting_for_user"))


async def test_a_loop_counts_its_turns_from_zero_on_every_call():
    """Section 11 "Run the same State again", claim 10."""
    state, turns = said(), []
    talker = agent(*[tool_call("add", a=n, b=n) for n in range(6)], loop=default_loop.copy(limit=2))

    for _ in range(3):
        await talker.run(state)
        turns.append((state.turn, state.stopped))

    assert turns == [(2, StoppedByLimit(2)), (4, StoppedByLimit(2)), (6, StoppedByLimit(2))]


@tool
async def press_ctrl_c() -> str:
    """Press Ctrl+C."""
    signal.raise_signal(signal.SIGINT)
    await trio.sleep_forever()
    raise AssertionError("unreachable")


def test_a_state_stopped_by_ctrl_c_continues():
    """Section 11 "Run the same State again", claim 11."""
    state, talker = said(), agent(tool_call("press_ctrl_c"), "back", tools=(press_ctrl_c,))
    with pytest.raises(KeyboardInterrupt):
        talker.run_sync(state)

    assert talker.run_sync(state) == "back"
    assert_whole(state)


async def test_a_state_stopped_by_an_exception_continues():
    """Section 11 "Run the same State again", claim 12."""
    state, talker = said(), agent(ConnectionError("gone"), tool_call("broken"), "back")
    with pytest.raises(ConnectionError):
        await talker.run(state)
    with pytest.raises(ZeroDivisionError):
        await talker.run(state)

    assert await talker.run(state) == "back"
    assert_whole(state)


def test_a_call_that_was_pending_at_ctrl_c_is_closed_with_a_result_that_says_so():
    """Section 11 "Run the same State again", claim 13."""
    state, talker = said(), agent([tool_call("press_ctrl_c")], "back", tools=(press_ctrl_c,))
    with pytest.raises(KeyboardInterrupt):
        talker.run_sync(state)

    assert outcomes(state) == [("press_ctrl_c", "interrupted")]
    talker.run_sync(state)
    assert talker.model.requests[1].messages[-1].blocks[0].content[0].text.startswith("(interrupted by user)")


async def test_a_call_that_was_pending_at_an_exception_is_closed_with_a_result_that_says_so():
    """Section 11 "Run the same State again", claim 14."""
    state, talker = said(), agent(tool_call("broken"), "back")
    with pytest.raises(ZeroDivisionError):
        await talker.run(state)

    assert not state.pending_calls
    await talker.run(state)
    assert talker.model.requests[1].messages[-1].blocks[0].content[0].text.startswith("(aborted: ZeroDivisionError)")


async def test_a_state_that_ended_with_finish_is_not_run():
    """Section 11 "Run the same State again", claim 15."""
    state = replied()
    state.finish()
    before = list(state.history)

    with pytest.raises(ValueError, match="finished"):
        await agent("never said").run(state)

    assert list(state.history) == before


async def test_a_loaded_state_continues_where_its_saved_history_ends(tmp_path):
    """Section 11 "Run the same State again", claim 16."""
    store, state = FileStore(tmp_path), said()
    talker = agent("one", "two", store=store)
    await talker.run(state)

    loaded = await FileStore(tmp_path).load(state.id)
    loaded.add_message(Message.user("more"))

    assert await talker.run(loaded) == "two"
    assert texts(loaded) == ["go", "one", "more", "two"]
    saved = (await store.load(state.id)).history
    assert list(saved) == list(loaded.history)
    assert list(saved[: len(state.history)]) == list(state.history)


async def test_switching_the_model_between_runs_never_warns():
    """Section 11 "Run the same State again", claim 17."""
    state, talker = said(), agent("one")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for name in ("one", "two", "three"):
            await talker.copy(model=FakeModel([name], name=f"other/{name}")).run(state)
            state.add_message(Message.user("more"))

    assert [entry.content.model for entry in state.history if entry.kind == "run_start"] == [
        "other/one",
        "other/two",
        "other/three",
    ]
    assert [str(warning.message) for warning in caught] == []

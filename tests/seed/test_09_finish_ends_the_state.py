"""The page's section "finish ends the State"."""

from __future__ import annotations

import pytest

from alpineagents import Message, State, StoppedByFinish, loop, tool, waiting_for_user
from alpineagents.testing import tool_call

from ..run.runs import errors, kinds, outcomes
from .moments import CALL, CHANGES, agent, answered, asked, closed, edit, replied, said


@tool
async def submit(state: State, answer: int) -> str:
    """Give the answer."""
    state.finish(answer)
    return "thank you"


def test_finish_says_at_once_that_the_state_is_stopped():
    """Section 9 "finish ends the State", claim 1."""
    state = said()

    state.finish({"sum": 3})

    assert state.stopped == StoppedByFinish({"sum": 3})


async def test_a_finished_state_ends_its_loop_before_the_next_turn():
    """Section 9 "finish ends the State", claim 2."""
    state, talker = said(), agent(tool_call("submit", answer=3), "never said", tools=(submit,))

    assert await talker.run(state) == 3
    assert (state.turn, talker.model.remaining) == (1, 1)


def test_a_plain_script_that_finishes_in_a_tool_ends_in_the_same_way():
    """Section 9 "finish ends the State", claim 3."""
    state, talker = said(), agent(tool_call("submit", answer=3), "never said", tools=(submit,))

    assert talker.run_sync(state) == 3
    assert (state.turn, talker.model.remaining) == (1, 1)


@pytest.mark.parametrize("answer", [3, 0, "", [], False])
def test_finish_sets_an_answer_that_is_not_none(answer):
    """Section 9 "finish ends the State", claim 4."""
    state = replied("text")

    state.finish(answer)

    assert state.answer == answer
    assert type(state.answer) is not str or answer == ""


def test_finish_without_an_answer_leaves_the_answer():
    """Section 9 "finish ends the State", claim 5."""
    state = replied("text")

    state.finish()

    assert (state.answer, state.stopped) == ("text", StoppedByFinish(None))


async def refused(state: State, action: str) -> None:
    """The action raises, and neither asks the model nor records anything."""
    talker, before = agent("never said"), list(state.history)
    arguments = ("Sure?",) if action == "ask" else ()

    with pytest.raises(ValueError, match=f"{action}: .* is finished"):
        await getattr(talker, action)(state, *arguments)

    assert list(state.history) == before
    assert talker.model.remaining == 1


def finished() -> State:
    state = replied()
    state.finish("done")
    return state


async def test_a_finished_state_does_not_think():
    """Section 9 "finish ends the State", claim 6."""
    await refused(finished(), "think")


async def test_a_finished_state_does_not_use_tools():
    """Section 9 "finish ends the State", claim 7."""
    state = asked()
    state.finish("done")

    await refused(state, "use_tools")


async def test_a_finished_state_is_asked_no_side_question():
    """Section 9 "finish ends the State", claim 8."""
    await refused(finished(), "ask")


async def test_a_finished_state_does_not_run():
    """Section 9 "finish ends the State", claim 9."""
    await refused(finished(), "run")


async def test_a_loop_body_that_thinks_after_a_tool_has_finished_the_state_fails():
    """Section 9 "finish ends the State", claim 10."""

    @loop(until=waiting_for_user, limit=3)
    async def thinks_again(agent, state):
        await agent.think(state)
        await agent.use_tools(state)
        await agent.think(state)

    state = said()
    with pytest.raises(ValueError, match=r"think: .* is finished"):
        await agent(tool_call("submit", answer=3), "never said", tools=(submit,), loop=thinks_again).run(state)

    assert len(errors(state)) == 1
    assert state.answer == 3


async def test_a_loop_body_that_ends_after_a_tool_has_finished_the_state_does_not():
    """Section 9 "finish ends the State", claim 11."""

    @loop(until=waiting_for_user, limit=3)
    async def ends(agent, state):
        await agent.think(state)
        await agent.use_tools(state)
        if not state.finished:
            await agent.think(state)

    state = said()

    assert await agent(tool_call("submit", answer=3), tools=(submit,), loop=ends).run(state) == 3
    assert errors(state) == []


def test_only_restore_takes_a_finish_back():
    """Section 9 "finish ends the State", claim 12."""
    state = answered()
    start = state.snapshot()
    state.finish("done")

    for name in CHANGES.keys() - {"restore"}:
        CHANGES[name](state)
        assert state.finished
    state.restore(start)

    assert (state.finished, state.stopped, state.answer) == (False, None, "It is 3.")


async def test_a_state_restored_from_its_finish_runs_on():
    """Section 9 "finish ends the State", claim 13."""
    state = said()
    start = state.snapshot()
    state.finish("done")

    state.restore(start)

    assert await agent("hello").run(state) == "hello"


def test_a_call_that_was_refused_before_it_ran_has_its_result_and_the_state_goes_on():
    """Section 9 "finish ends the State", claim 14."""
    state = closed(asked(), CALL, "denied", "not allowed", decided_by="never_add")

    assert not state.pending_calls
    assert not state.finished
    assert state.history[-1].decided_by == "never_add"
    assert agent("I see.").run_sync(state) == "I see."


def test_compact_shrinks_the_messages_without_a_request():
    """Section 9 "finish ends the State", claim 15."""
    state = answered()
    edit(state, n=1)
    requests = kinds(state).count("model_request")

    state.compact("They asked for a sum.")

    assert len(state.messages) == 2
    assert kinds(state).count("model_request") == requests
    assert state.usage == answered().usage


def test_clear_tool_results_shrinks_the_messages_without_a_request():
    """Section 9 "finish ends the State", claim 16."""
    state = answered()
    requests = kinds(state).count("model_request")

    state.clear_tool_results(keep_last=0)

    assert state.messages[2].blocks[0].content[0].text != "3"
    assert kinds(state).count("model_request") == requests
    assert state.usage == answered().usage


async def test_the_agents_compact_asks_the_model_for_the_summary():
    """Section 9 "finish ends the State", claim 17."""
    state, talker = answered(), agent("A sum was asked for.")
    state.add_message(Message.user("Thanks"))

    await talker.compact(state)

    assert len(talker.model.requests) == 1
    assert state.messages[-1].text.endswith("A sum was asked for.")
    assert outcomes(state) == [("add", "done")]

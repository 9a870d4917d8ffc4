"""The page's section "Pending calls"."""

from __future__ import annotations

import pytest

from alpineagents import Message, StopEntry, StoppedByFinish, StoppedByPermission
from alpineagents.testing import tool_call

from ..run.runs import assert_whole, outcomes
from .moments import CALL, OTHER_CALL, agent, asked, closed, roles, said, texts, then


async def test_each_call_of_a_reply_is_pending():
    """Section 10 "Pending calls", claim 1."""
    state, calls = said(), [tool_call("add", a=1, b=2), tool_call("picky", path="a.txt")]

    await agent(calls).think(state)

    assert list(state.pending_calls) == calls


async def test_a_call_is_no_longer_pending_when_use_tools_records_its_result():
    """Section 10 "Pending calls", claim 2."""
    state = asked(CALL, OTHER_CALL)

    await agent().use_tools(state)

    assert state.pending_calls == ()
    assert outcomes(state) == [("add", "done"), ("add", "done")]


def test_a_call_is_no_longer_pending_when_a_permission_refuses_it():
    """Section 10 "Pending calls", claim 3."""
    state = closed(asked(CALL, OTHER_CALL), CALL, "denied")

    assert state.pending_calls == (OTHER_CALL,)


def test_a_call_is_no_longer_pending_when_a_permission_has_stopped_the_turn():
    """Section 10 "Pending calls", claim 4."""
    state = closed(closed(asked(CALL, OTHER_CALL), CALL, "denied"), OTHER_CALL, "cancelled")
    state = then(state, StopEntry, StoppedByPermission(CALL, "never_add"))

    assert state.pending_calls == ()
    assert roles(state) == ["user", "assistant", "tool"]
    assert_whole(state)


async def test_a_call_is_no_longer_pending_when_an_exception_ends_the_run():
    """Section 10 "Pending calls", claim 5."""
    state = said()

    with pytest.raises(ZeroDivisionError):
        await agent([tool_call("broken"), tool_call("broken")]).run(state)

    assert state.pending_calls == ()
    assert outcomes(state) == [("broken", "aborted")] * 2
    assert_whole(state)


async def test_every_call_needs_a_result_before_the_model_is_asked_again():
    """Section 10 "Pending calls", claim 6."""
    state, talker = asked(CALL, OTHER_CALL), agent("10")
    state = closed(state, CALL)
    with pytest.raises(ValueError, match="calls are pending"):
        await talker.think(state)
    assert talker.model.requests == []

    await talker.use_tools(state)

    assert (await talker.think(state)).text == "10"
    assert [block.call_id for block in talker.model.requests[0].messages[-1].blocks] == [CALL.id, OTHER_CALL.id]


async def test_think_is_refused_while_calls_are_pending():
    """Section 10 "Pending calls", claim 7."""
    state = asked()
    before = list(state.history)

    with pytest.raises(ValueError, match=r"think: .*pending.*use_tools"):
        await agent("never said").think(state)

    assert list(state.history) == before


async def test_compact_is_refused_while_calls_are_pending():
    """Section 10 "Pending calls", claim 8."""
    state = asked()
    before = list(state.history)

    with pytest.raises(ValueError, match=r"compact: .*pending.*use_tools"):
        state.compact("They asked for a sum.")
    with pytest.raises(ValueError, match=r"compact: .*pending.*use_tools"):
        await agent("never said").compact(state)

    assert list(state.history) == before


def test_clear_tool_results_is_refused_while_calls_are_pending():
    """Section 10 "Pending calls", claim 9."""
    state = asked()
    before = list(state.history)

    with pytest.raises(ValueError, match=r"clear_tool_results: .*pending.*use_tools"):
        state.clear_tool_results()

    assert list(state.history) == before


def test_restore_is_refused_while_calls_are_pending():
    """Section 10 "Pending calls", claim 10."""
    state = asked()
    before = list(state.history)
    start = said().snapshot()

    with pytest.raises(ValueError, match=r"restore: .*pending.*use_tools"):
        state.restore(start)

    assert list(state.history) == before


def test_a_message_added_while_calls_are_pending_waits():
    """Section 10 "Pending calls", claim 11."""
    state = asked()

    state.add_message(Message.user("quick!"))

    assert state.history[-1].kind == "user"
    assert roles(state) == ["user", "assistant"]


async def test_a_message_that_waits_goes_in_right_after_the_results():
    """Section 10 "Pending calls", claim 12."""
    state, talker = asked(CALL, OTHER_CALL), agent("10")
    state.add_message(Message.user("quick!"))

    await talker.use_tools(state)
    await talker.think(state)

    assert roles(state) == ["user", "assistant", "tool", "user", "assistant"]
    assert talker.model.requests[0].messages[-1].text == "quick!"


def test_in_a_plain_script_a_message_goes_in_right_after_the_last_result():
    """Section 10 "Pending calls", claim 13."""
    state = asked(CALL, OTHER_CALL)
    state.add_message(Message.user("quick!"))
    state = closed(state, OTHER_CALL)
    assert roles(state) == ["user", "assistant"]

    state = closed(state, CALL)

    assert roles(state) == ["user", "assistant", "tool", "user"]


def test_finish_works_as_usual_while_calls_are_pending():
    """Section 10 "Pending calls", claim 14."""
    state = asked()

    state.finish("enough")

    assert (state.finished, state.answer, state.stopped) == (True, "enough", StoppedByFinish("enough"))
    assert state.pending_calls == (CALL,)


async def test_a_message_added_while_think_waits_on_the_model_waits_too():
    """Section 10 "Pending calls", claim 15."""
    state, seen = said(), []

    def answer(request):
        state.add_message(Message.user("quick!"))
        seen.extend(texts(state))
        return "hello"

    await agent(answer).think(state)

    assert seen == ["go"]


async def test_a_message_that_waits_for_the_model_goes_in_right_after_the_reply():
    """Section 10 "Pending calls", claim 16."""
    state = said()

    def answer(request):
        state.add_message(Message.notice("The tests fail"))
        state.add_message(Message.user("quick!"))
        return "hello"

    await agent(answer).think(state)

    assert texts(state) == ["go", "hello", "[notice] The tests fail", "quick!"]

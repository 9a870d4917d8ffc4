"""The page's section "History"."""

from __future__ import annotations

import typing
from datetime import datetime, timedelta

import pytest
import trio

import alpineagents
from alpineagents import (
    AgentInfo,
    ContextChangeEntry,
    Entry,
    ErrorEntry,
    Exchange,
    ExchangeEntry,
    ExtraDataEntry,
    Message,
    MessageEntry,
    Model,
    ModelEvent,
    ModelEventEntry,
    ModelReplyEntry,
    ModelRequestEntry,
    Reply,
    RunStartEntry,
    State,
    StopEntry,
    StoppedByFinish,
    StoppedByLimit,
    StoppedByPermission,
    StoppedByUntil,
    TextBlock,
    ToolCall,
    ToolOutcome,
    ToolResultEntry,
    UnknownEntry,
    default_loop,
    loop,
    tool,
    waiting_for_user,
)
from alpineagents.testing import FakeModel, tool_call

from ..run.runs import assert_whole, errors, kinds, outcomes
from .children import Family
from .moments import CALL, OTHER_CALL, agent, answered, asked, closed, edit, roles, said, then

CLASSES = (
    ("MessageEntry", {"user", "notice"}),
    ("ModelRequestEntry", {"model_request"}),
    ("ModelReplyEntry", {"model_reply"}),
    ("ModelEventEntry", {"model_event"}),
    ("ToolResultEntry", {"tool_result"}),
    ("ExchangeEntry", {"ask", "human"}),
    ("ContextChangeEntry", {"context_change"}),
    ("RunStartEntry", {"run_start"}),
    ("StopEntry", {"stop"}),
    ("ExtraDataEntry", {"extra_data"}),
    ("ErrorEntry", {"error"}),
)


def full_history() -> State:
    """A State with an entry of every class, and of every kind."""
    state = State(messages=[Message.user("go")], extra_data={"repo": "api"})
    state.add_message(Message.user("on"))
    state.add_message(Message.notice("The tests fail"))
    state = then(state, RunStartEntry, AgentInfo())
    state = then(state, ModelRequestEntry, "fake/fake")
    state = then(state, ModelEventEntry, ModelEvent("retry", "once more"))
    state = closed(then(state, ModelReplyEntry, Reply((CALL,))))
    state = then(state, ExchangeEntry, "ask", Exchange("Sure?", "yes"))
    state = then(state, ExchangeEntry, "human", Exchange("May I?", True))
    state = then(state, ErrorEntry, "KeyError: 'x'", "run")
    state.finish("done")
    return state


def last(state: State, kind: type[typing.Any]) -> typing.Any:
    """The only entry of this class."""
    [entry] = [entry for entry in state.history if isinstance(entry, kind)]
    return entry


# What every entry has


def test_every_entry_has_kind_content_turn_and_at():
    """Section 6 "History", claim 1."""
    for entry in full_history().history:
        assert isinstance(entry.kind, str)
        assert entry.content is not None
        assert isinstance(entry.turn, int)
        assert isinstance(entry.at, datetime)


async def test_the_turn_of_an_entry_is_that_of_the_state_when_it_was_recorded():
    """Section 6 "History", claim 2."""
    state = said()
    await agent(tool_call("add", a=1, b=2), "3").run(state)

    assert [entry.turn for entry in state.history] == [0, 0, 1, 1, 1, 2, 2, 2]
    for entry in state.history:
        assert State(history=state.history[: entry.seq + 1]).turn == entry.turn


def test_the_time_of_an_entry_is_in_utc():
    """Section 6 "History", claim 3."""
    assert {entry.at.utcoffset() for entry in full_history().history} == {timedelta(0)}


def test_there_are_eleven_classes_of_entries():
    """Section 6 "History", claim 4."""
    classes = [cls for cls in typing.get_args(Entry) if cls is not UnknownEntry]  # which this version never records
    assert [cls.__name__ for cls in classes] == [name for name, _ in CLASSES]
    assert len(CLASSES) == 11
    found = {name: {e.kind for e in full_history().history if type(e).__name__ == name} for name, _ in CLASSES}
    assert found == dict(CLASSES)


def calls_of(state: State) -> list[str]:
    """The names of the calls, as the page's example finds them: by kind."""
    return [call.name for entry in state.history if entry.kind == "model_reply" for call in entry.content.tool_calls]


def test_kind_says_what_the_content_of_an_entry_is():
    """Section 6 "History", claim 5."""
    assert calls_of(answered()) == ["add"]


def test_isinstance_says_what_the_content_of_an_entry_is():
    """Section 6 "History", claim 6."""
    replies = [entry.content for entry in answered().history if isinstance(entry, ModelReplyEntry)]

    assert [reply.text for reply in replies] == ["", "It is 3."]


def test_match_says_what_the_content_of_an_entry_is():
    """Section 6 "History", claim 7."""
    found = []
    for entry in answered().history:
        match entry:
            case ModelReplyEntry(content=Reply(text=text)) if text:
                found.append(text)
            case ToolResultEntry(call=ToolCall(name=name), outcome="done"):
                found.append(name)

    assert found == ["add", "It is 3."]


# When each class is recorded


def test_add_message_records_what_the_person_says():
    """Section 6 "History", claim 8."""
    state = State()

    state.add_message(Message.user("hi"))

    assert (last(state, MessageEntry).kind, last(state, MessageEntry).content) == ("user", Message.user("hi"))


def test_add_message_records_a_notice_as_one():
    """Section 6 "History", claim 9."""
    state = State()

    state.add_message(Message.notice("hi"))

    assert (last(state, MessageEntry).kind, last(state, MessageEntry).content) == ("notice", Message.notice("hi"))


async def test_think_records_that_it_sends_a_request():
    """Section 6 "History", claim 10."""
    state, seen = said(), []

    def answer(request):
        seen.extend(kinds(state))
        return "hello"

    await agent(answer).think(state)

    assert seen == ["context_change", "model_request"]


async def test_a_request_entry_holds_the_name_of_the_model():
    """Section 6 "History", claim 11."""
    state = said()

    await agent().copy(model=FakeModel(["hello"], name="fake/one")).think(state)

    assert last(state, ModelRequestEntry).content == "fake/one"


async def test_the_answer_of_the_model_is_recorded_as_the_reply_it_is():
    """Section 6 "History", claim 12."""
    state = said()

    reply = await agent("hello").think(state)

    assert last(state, ModelReplyEntry).content is reply
    assert isinstance(reply, Reply)
    assert reply.text == "hello"


async def test_a_recorded_reply_says_which_model_gave_it():
    """Section 6 "History", claim 13."""
    state = said()

    await agent(Reply((TextBlock("hello"),), model="one-2026-05-01")).think(state)

    assert last(state, ModelReplyEntry).content.model == "one-2026-05-01"


class Reporting(Model):
    """Reports something before it answers."""

    name = "fake/reporting"

    def __init__(self, event: ModelEvent) -> None:
        self.event = event

    async def respond(self, request, emit):
        emit(self.event)
        await trio.lowlevel.checkpoint()
        return Reply((TextBlock("hello"),))


@pytest.mark.parametrize("kind", ["retry", "fallback", "rate_limited", "a word of its own"])
async def test_what_the_model_adapter_reports_is_recorded(kind):
    """Section 6 "History", claim 14."""
    event, state = ModelEvent(kind, "because", {"attempt": 2}), said()

    await agent().copy(model=Reporting(event)).think(state)

    assert kinds(state)[1:] == ["model_request", "model_event", "model_reply"]
    assert last(state, ModelEventEntry).content == event


async def test_a_call_gets_a_result_entry_whichever_way_it_ended():
    """Section 6 "History", claim 15."""
    state = said()
    calls = [tool_call("add", a=1, b=2), tool_call("picky", path="a.txt"), tool_call("unknown")]

    await agent(calls, "ok").run(state)

    results = [entry for entry in state.history if isinstance(entry, ToolResultEntry)]
    assert sorted(entry.call.id for entry in results) == sorted(call.id for call in calls)


async def test_the_outcome_of_a_result_entry_says_how_the_call_ended():
    """Section 6 "History", claim 16."""
    state = said()
    calls = [tool_call("add", a=1, b=2), tool_call("picky", path="a.txt"), tool_call("unknown")]

    await agent(calls, "ok").run(state)

    assert dict(outcomes(state)) == {"add": "done", "picky": "error", "unknown": "input_error"}


async def test_child_ids_of_a_result_entry_list_the_subagents_the_call_started():
    """Section 6 "History", claim 17."""
    family = Family()
    await family.run()

    assert last(family.state, ToolResultEntry).child_ids == (family.child.id,)
    assert last(closed(asked()), ToolResultEntry).child_ids == ()


async def test_the_answer_to_a_side_question_is_recorded():
    """Section 6 "History", claim 18."""
    state = said()

    await agent("yes").ask(state, "Sure?")

    assert kinds(state) == ["context_change", "ask"]


def test_the_answer_of_a_person_is_recorded():
    """Section 6 "History", claim 19."""
    state = then(said(), ExchangeEntry, "human", Exchange("May I?", "yes"))

    assert last(state, ExchangeEntry).kind == "human"
    assert roles(state) == ["user"]


async def test_the_content_of_such_an_entry_is_question_and_answer():
    """Section 6 "History", claim 20."""
    state = said()

    await agent("yes").ask(state, "Sure?")

    assert last(state, ExchangeEntry).content == Exchange("Sure?", "yes")


def test_messages_a_state_starts_with_are_a_change_of_context():
    """Section 6 "History", claim 21."""
    assert last(said(), ContextChangeEntry).content.kind == "import"


def test_compact_is_a_change_of_context():
    """Section 6 "History", claim 22."""
    state = answered()

    state.compact("They asked for a sum.")

    assert isinstance(state.history[-1], ContextChangeEntry)
    assert (state.history[-1].content.kind, state.history[-1].content.summary) == ("compact", "They asked for a sum.")


def test_clear_tool_results_is_a_change_of_context():
    """Section 6 "History", claim 23."""
    state = answered()

    state.clear_tool_results(keep_last=0)

    assert isinstance(state.history[-1], ContextChangeEntry)
    assert (state.history[-1].content.kind, state.history[-1].content.cleared) == ("clear_tool_results", (CALL.id,))


def test_restore_is_a_change_of_context():
    """Section 6 "History", claim 24."""
    state = said()
    start = state.snapshot()
    state.add_message(Message.user("on"))

    state.restore(start)

    assert isinstance(state.history[-1], ContextChangeEntry)
    assert (state.history[-1].content.kind, state.history[-1].content.restored_to) == ("restore", 1)


async def test_the_start_of_a_run_is_recorded():
    """Section 6 "History", claim 25."""
    state, talker = said(), agent("one", "two")

    await talker.run(state)
    await talker.run(state)

    assert kinds(state).count("run_start") == 2
    assert kinds(state)[:2] == ["context_change", "run_start"]


async def test_the_start_of_a_run_says_which_agent_it_has():
    """Section 6 "History", claim 26."""
    state = said()

    await agent("one", name="adder").run(state)

    content = last(state, RunStartEntry).content
    assert isinstance(content, AgentInfo)
    assert content.name == "adder"


async def test_the_start_of_a_run_says_which_call_started_a_subagent():
    """Section 6 "History", claim 27."""
    family = Family()
    await family.run()

    start = last(family.child, RunStartEntry)
    assert (start.parent_id, start.parent_call_id) == (family.state.id, family.call.id)
    start = last(family.state, RunStartEntry)
    assert (start.parent_id, start.parent_call_id) == (None, None)


def test_finish_records_a_stop():
    """Section 6 "History", claim 28."""
    state = said()

    state.finish(1)

    assert last(state, StopEntry).content == StoppedByFinish(1)


async def test_an_until_function_records_a_stop():
    """Section 6 "History", claim 29."""
    state = said()

    await agent("hello").run(state)

    assert last(state, StopEntry).content == StoppedByUntil("waiting_for_user")


async def test_a_limit_records_a_stop():
    """Section 6 "History", claim 30."""
    state = said()

    await agent(tool_call("add", a=1, b=2), loop=default_loop.copy(limit=1)).run(state)

    assert last(state, StopEntry).content == StoppedByLimit(1)


def test_a_stop_by_a_permission_is_what_the_state_says():
    """Section 6 "History", claim 31."""
    stopped = StoppedByPermission(CALL, "never_delete")

    state = then(closed(asked(), CALL, "denied"), StopEntry, stopped)

    assert state.stopped == stopped
    assert not state.finished


def test_extra_data_a_state_starts_with_is_recorded():
    """Section 6 "History", claim 32."""
    assert last(State(extra_data={"repo": "api"}), ExtraDataEntry).content == {"repo": "api"}


def test_an_edit_of_extra_data_is_recorded_where_it_changed_something():
    """Section 6 "History", claim 33."""
    state = State()
    edit(state)
    assert not state.history

    edit(state, repo="api")

    assert last(state, ExtraDataEntry).content == {"repo": "api"}


async def test_an_exception_in_think_is_recorded():
    """Section 6 "History", claim 34."""
    state = said()

    with pytest.raises(ConnectionError):
        await agent(ConnectionError("gone")).think(state)

    assert (last(state, ErrorEntry).content, last(state, ErrorEntry).action) == ("ConnectionError: gone", "think")


async def test_an_exception_in_use_tools_is_recorded():
    """Section 6 "History", claim 35."""
    state = asked(ToolCall("a", "broken", {}))

    with pytest.raises(ZeroDivisionError):
        await agent().use_tools(state)

    assert (last(state, ErrorEntry).content, last(state, ErrorEntry).action) == ("ZeroDivisionError: bug", "use_tools")


async def test_an_exception_in_run_is_recorded():
    """Section 6 "History", claim 36."""

    @loop(until=waiting_for_user, limit=1)
    async def body(agent, state):
        raise KeyError("x")

    state = said()
    with pytest.raises(KeyError):
        await agent(loop=body).run(state)

    assert (last(state, ErrorEntry).content, last(state, ErrorEntry).action) == ("KeyError: 'x'", "run")


# Outcomes


async def outcome_of(call: ToolCall) -> str:
    """How a call ends whose result the model gets to see."""
    state = said()
    await agent(call, "ok").run(state)
    assert_whole(state)
    return last(state, ToolResultEntry).outcome


async def test_a_call_that_gave_its_result_is_done():
    """Section 6 "History", claim 37."""
    assert await outcome_of(tool_call("add", a=1, b=2)) == "done"


async def test_a_call_whose_tool_raised_a_tool_error_is_an_error():
    """Section 6 "History", claim 38."""
    assert await outcome_of(tool_call("picky", path="a.txt")) == "error"


async def test_a_call_with_wrong_arguments_is_an_input_error():
    """Section 6 "History", claim 39."""
    assert await outcome_of(tool_call("add", a="one", b=2)) == "input_error"


async def test_a_call_that_an_exception_ended_is_aborted():
    """Section 6 "History", claim 40."""
    state = said()

    with pytest.raises(ZeroDivisionError):
        await agent(tool_call("broken")).run(state)

    assert outcomes(state) == [("broken", "aborted")]
    assert_whole(state)


async def test_a_call_that_was_cancelled_with_its_run_is_interrupted():
    """Section 6 "History", claim 41."""

    @tool
    async def forever() -> str:
        """Never end."""
        scope.cancel()
        await trio.sleep_forever()
        raise AssertionError("unreachable")

    state = said()
    with trio.CancelScope() as scope:
        await agent(tool_call("forever"), tools=(forever,)).run(state)

    assert outcomes(state) == [("forever", "interrupted")]
    assert errors(state) == ["Cancelled"]
    assert_whole(state)


def test_a_call_can_be_denied():
    """Section 6 "History", claim 42."""
    state = closed(asked(), CALL, "denied", "not allowed", decided_by="never_add")

    assert outcomes(state) == [("add", "denied")]
    assert state.messages[-1].blocks[0].content[0].text == "not allowed"
    assert_whole(state)


def test_a_call_can_be_cancelled_because_another_was_denied():
    """Section 6 "History", claim 43."""
    state = closed(closed(asked(CALL, OTHER_CALL), CALL, "denied"), OTHER_CALL, "cancelled")

    assert [str(entry.outcome) for entry in state.history if entry.kind == "tool_result"] == ["denied", "cancelled"]
    assert_whole(state)


def test_there_are_seven_outcomes():
    """Section 6 "History", claim 44."""
    assert list(ToolOutcome) == ["done", "error", "input_error", "aborted", "interrupted", "denied", "cancelled"]


@pytest.mark.parametrize("outcome", list(ToolOutcome))
def test_every_outcome_but_done_is_an_error(outcome):
    """Section 6 "History", claim 45."""
    state = closed(asked(), CALL, outcome)

    assert last(state, ToolResultEntry).is_error is (outcome != "done")
    assert state.messages[-1].blocks[0].is_error is (outcome != "done")


@pytest.mark.parametrize("name", [name for name, _ in CLASSES])
def test_every_class_is_public_and_documented(name):
    """Section 6 "History", claim 46."""
    assert name in alpineagents.__all__
    assert getattr(alpineagents, name).__doc__

"""compact, clear_tool_results, restore and fork: what they keep, and what they refuse."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from alpineagents import (
    Agent,
    Image,
    Message,
    ModelReplyEntry,
    ModelRequestEntry,
    Reply,
    State,
    TextBlock,
    ToolCall,
    ToolResultBlock,
    ToolResultEntry,
    Usage,
)
from alpineagents.testing import FakeModel

from ..states import assert_replays, values
from .test_state import ASKED, AT, CALLS, answered, close, pending, texts, waiting_for_the_model

PNG = Image(b"\x89PNG\r\n\x1a\n")


def with_results(count: int) -> State:
    """A conversation with *count* results, in turns of one call each."""
    messages = [Message.user("go")]
    for n in range(count):
        messages.append(Message("assistant", (ToolCall(f"c{n}", "f", {}),)))
        messages.append(Message("tool", (ToolResultBlock(f"c{n}", (TextBlock(f"result {n}"), PNG)),)))
    return State(messages=messages)


def blocks_of(state: State) -> list[ToolResultBlock]:
    return [block for message in state.messages if message.role == "tool" for block in message.blocks]


def results_shown(state: State) -> list[str]:
    return [block.content[0].text for block in blocks_of(state)]


# compact


def test_compact_leaves_the_first_message_of_the_person_and_the_summary():
    state = State(
        messages=[
            Message.notice("started"),
            Message.user("the task", PNG),
            Message.assistant("on it"),
            Message.user("and this"),
        ]
    )
    before = list(state.history)

    state.compact("We found it.")

    assert len(state.messages) == 2
    assert state.messages[0] == Message.user("the task", PNG)
    assert state.messages[1].role == "user"
    assert state.messages[1].is_summary
    assert state.messages[1].text.endswith("We found it.")
    assert list(state.history[:-1]) == before
    assert_replays(state)


def test_a_further_compaction_replaces_the_earlier_summary():
    state = State(messages=[Message.user("the task"), Message.assistant("on it")])
    state.compact("first")
    state.add_message(Message.user("more"))

    state.compact("second")

    assert len(state.messages) == 2
    assert state.messages[0].text == "the task"
    assert "second" in state.messages[1].text
    assert "first" not in state.messages[1].text
    assert_replays(state)


def test_the_summary_of_a_state_without_the_persons_messages_stands_alone():
    state = State(messages=[Message.notice("tick")])
    state.compact("nothing happened")
    assert len(state.messages) == 1

    empty = State()
    empty.compact("nothing at all")
    assert len(empty.messages) == 1
    assert_replays(empty)


@pytest.mark.parametrize("summary", ["", " ", "\n\t"])
def test_a_blank_summary_is_refused(summary):
    state = answered()
    with pytest.raises(ValueError, match="blank"):
        state.compact(summary)
    assert len(state.history) == 3


@pytest.mark.parametrize("summary", [None, 3, b"x", Message.user("x")])
def test_a_summary_that_is_no_text_is_a_type_error(summary):
    with pytest.raises(TypeError, match="summary must be str"):
        answered().compact(summary)


# clear_tool_results


@pytest.mark.parametrize(("keep", "left"), [(0, []), (1, [6]), (5, [2, 3, 4, 5, 6]), (6, [1, 2, 3, 4, 5, 6])])
def test_older_results_are_replaced_by_a_line_and_the_last_ones_stay(keep, left):
    state = with_results(7)
    calls_before = [message.tool_calls for message in state.messages]

    state.clear_tool_results(keep_last=keep)

    shown = results_shown(state)
    assert [text for text in shown if text.startswith("result")] == [f"result {n}" for n in left]
    cleared = {block.content for block in blocks_of(state) if not block.content[0].text.startswith("result")}
    assert len(cleared) == 1
    assert [("history" in block.text) for block in cleared.pop()] == [True]  # neither text nor image is left
    assert [message.tool_calls for message in state.messages] == calls_before
    assert_replays(state)


def test_five_results_are_kept_when_nothing_else_is_said():
    state = with_results(7)
    state.clear_tool_results()
    assert sum(text.startswith("result") for text in results_shown(state)) == 5


@pytest.mark.parametrize(("count", "keep"), [(0, 0), (3, 3), (3, 5)])
def test_nothing_to_clear_is_no_entry(count, keep):
    state = with_results(count)
    state.clear_tool_results(keep_last=keep)
    assert len(state.history) == 1


def test_results_cleared_already_are_neither_counted_nor_cleared_again():
    state = with_results(6)
    state.clear_tool_results(keep_last=2)
    assert len(state.history[-1].content.cleared) == 4

    state.clear_tool_results(keep_last=2)
    assert len(state.history) == 2

    state.clear_tool_results(keep_last=1)
    assert state.history[-1].content.cleared == ("c4",)
    assert_replays(state)


def test_an_error_stays_one_when_it_is_cleared():
    block = ToolResultBlock("c", (TextBlock("no such file"),), is_error=True)
    state = State(
        messages=[Message.user("x"), Message("assistant", (ToolCall("c", "f", {}),)), Message("tool", (block,))]
    )

    state.clear_tool_results(keep_last=0)

    assert state.messages[-1].blocks[0].is_error


@pytest.mark.parametrize(("keep", "error"), [(-1, ValueError), ("5", TypeError), (1.5, TypeError), (None, TypeError)])
def test_how_many_to_keep_is_a_whole_number(keep, error):
    state = with_results(3)
    with pytest.raises(error, match="keep_last"):
        state.clear_tool_results(keep_last=keep)
    assert len(state.history) == 1


# In the middle of a turn


REWRITES = {
    "compact": lambda state: state.compact("x"),
    "clear_tool_results": lambda state: state.clear_tool_results(0),
    "restore": lambda state: state.restore(State().snapshot()),
}


@pytest.mark.parametrize("name", REWRITES)
@pytest.mark.parametrize("make", [waiting_for_the_model, pending])
def test_messages_are_not_rewritten_in_the_middle_of_a_turn(name, make):
    state = make()
    before = values(state)

    with pytest.raises(ValueError, match=r"pending|request"):
        REWRITES[name](state)

    assert values(state) == before


def test_a_call_with_one_result_missing_is_still_the_middle_of_a_turn():
    state = close(pending(), CALLS[0])

    with pytest.raises(ValueError, match=r"1 tool calls? (is|are) pending"):
        state.compact("x")
    close(state, CALLS[1]).compact("x")


async def test_the_messages_are_not_rewritten_while_the_agent_writes_a_summary():
    """Else its summary replaces messages that it hasn't seen: they would be lost."""
    state = State(messages=[Message.user(f"m{n}") for n in range(5)])
    start = state.snapshot()
    refused = []

    def summary(request):
        for rewrite in (
            lambda: state.compact("another"),
            lambda: state.restore(start),
            lambda: state.clear_tool_results(0),
        ):
            with pytest.raises(ValueError, match="compact"):
                rewrite()
            refused.append(rewrite)
        state.add_message(Message.user("late"))
        return "the summary"

    await Agent(model=FakeModel([summary])).compact(state)

    assert len(refused) == 3
    assert [text.rpartition("] ")[2] for text in texts(state)] == ["m0", "the summary", "late"]
    assert_replays(state)


async def test_messages_that_arrive_while_the_agent_writes_a_summary_are_kept_in_their_order():
    state = State(messages=[Message.user("task"), Message.assistant("hm")])

    def summary(request):
        state.add_message(Message.user("one"))
        state.add_message(Message.notice("two"))
        assert texts(state)[-2:] == ["one", "[notice] two"]  # compact doesn't delay them
        return "the summary"

    await Agent(model=FakeModel([summary])).compact(state)

    assert texts(state)[2:] == ["one", "[notice] two"]
    assert_replays(state)


# restore


KEPT = {"history", "usage", "updated_at", "created_at"}


def restorable(state: State) -> dict[str, object]:
    return {name: value for name, value in values(state).items() if name not in KEPT}


def test_restore_takes_back_everything_but_history_usage_and_times():
    state = State(messages=[Message.user("a")], extra_data={"n": 1})
    snapshot = state.snapshot()
    was = restorable(state)
    history = list(state.history)
    request = ModelRequestEntry(2, 1, state.updated_at, "m")
    said = ModelReplyEntry(3, 1, state.updated_at, Reply((TextBlock("b"),), usage=Usage(5, 6, requests=1)))
    state = State(id=state.id, history=[*history, request, said])
    state.add_message(Message.user("c"))
    with state.edit_extra_data() as data:
        data["n"] = 2
    state.finish("d")
    length = len(state.history)

    state.restore(snapshot)

    assert restorable(state) == was
    assert state.usage == Usage(5, 6, requests=1)
    assert len(state.history) == length + 1
    assert state.history[-1].turn == 0
    assert_replays(state)


def test_a_state_can_be_restored_forward_again():
    state = State(messages=[Message.user("a")])
    start = state.snapshot()
    state.add_message(Message.user("b"))
    later = state.snapshot()

    state.restore(start)
    assert texts(state) == ["a"]
    state.restore(later)
    assert texts(state) == ["a", "b"]
    state.restore(start)
    state.add_message(Message.user("c"))
    state.restore(later)
    state.add_message(Message.user("d"))

    assert texts(state) == ["a", "b", "d"]
    assert texts(later) == ["a", "b"]
    assert texts(start) == ["a"]
    assert_replays(state)


def test_a_snapshot_of_the_empty_state_can_be_restored():
    state = State()
    empty = state.snapshot()
    state.add_message(Message.user("a"))
    state.finish(1)

    state.restore(empty)

    assert not len(state.messages)
    assert (state.answer, state.finished, state.turn) == (None, False, 0)
    state.add_message(Message.user("b"))
    assert_replays(state)


def test_a_snapshot_from_before_a_fork_works_on_both():
    state = State(messages=[Message.user("a")])
    before = state.snapshot()
    fork = state.fork()
    fork.add_message(Message.user("fork"))
    state.add_message(Message.user("state"))

    for one in (state, fork):
        one.restore(before)
        one.add_message(Message.user("on"))
        assert texts(one) == ["a", "on"]
        assert_replays(one)


def test_a_snapshot_of_another_history_is_refused():
    state = State(messages=[Message.user("a")])
    fork = state.fork()
    fork.add_message(Message.user("b"))
    for snapshot in (fork.snapshot(), State(messages=[Message.user("x")]).snapshot()):
        with pytest.raises(ValueError, match="history"):
            state.restore(snapshot)
    assert len(state.history) == 1


@pytest.mark.parametrize("make", [waiting_for_the_model, pending])
def test_a_snapshot_from_the_middle_of_a_turn_is_refused(make):
    snapshot = make().snapshot()
    state = State(history=[*ASKED, *[ToolResultEntry(3 + n, 1, AT, (), call) for n, call in enumerate(CALLS)]])
    assert snapshot.history == list(state.history[: len(snapshot.history)])

    with pytest.raises(ValueError, match="middle of a turn"):
        state.restore(snapshot)


@pytest.mark.parametrize("snapshot", [None, 3, State(), "x"], ids=type)
def test_what_is_no_snapshot_is_a_type_error_that_shows_one(snapshot):
    with pytest.raises(TypeError, match=r"state\.snapshot\(\)"):
        State().restore(snapshot)


def test_call_ids_from_before_a_restore_stay_known():
    """A model that asks the same again after a restore gets another id: ids are unique in the whole history."""
    state = State(messages=[Message.user("go")])
    start = state.snapshot()
    model = FakeModel([ToolCall("same", "f", {}), ToolCall("same", "f", {})])
    agent = Agent(model=model)

    async def turn() -> None:
        await agent.think(state)
        await agent.use_tools(state)

    trio.run(turn)
    state.restore(start)
    trio.run(turn)

    ids = [entry.call.id for entry in state.history if entry.kind == "tool_result"]
    assert len(set(ids)) == 2
    assert ids[0] == "same"
    assert_replays(state)


# fork


def test_a_fork_has_an_equal_history_and_an_id_of_its_own():
    state = State(id="one", messages=[Message.user("a")], extra_data={"n": 1})

    fork = state.fork()
    named = state.fork(id="two")

    assert values(fork) == values(named) == values(state)
    assert (fork.id == "one", named.id) == (False, "two")
    fork.add_message(Message.user("b"))
    with fork.edit_extra_data() as data:
        data["n"] = 2
    assert texts(state) == ["a"]
    assert state.extra_data == {"n": 1}
    assert_replays(fork)
    assert_replays(state)


def test_a_fork_may_be_taken_while_calls_are_pending():
    state = pending()

    fork = state.fork()

    assert fork.pending_calls == CALLS
    closed = close(fork, CALLS[0])
    assert closed.pending_calls == CALLS[1:]
    assert state.pending_calls == CALLS


def test_no_fork_is_taken_while_a_request_waits():
    state = waiting_for_the_model()
    with pytest.raises(ValueError, match="fork"):
        state.fork()


async def test_a_fork_of_a_running_state_is_not_running():
    state = State(messages=[Message.user("go")])
    forks = []

    def answer(request):
        return "first"

    async def body(agent, state):
        forks.append(state.fork())
        await agent.think(state)

    await Agent(model=FakeModel([answer]), loop=body).run(state)

    assert await Agent(model=FakeModel(["second"])).run(forks[0]) == "second"
    assert state.answer == "first"


async def test_the_model_can_summarize_a_finished_state():
    """Finishing ends the conversation; it still may be made shorter, for a fork or a restore."""
    state = State(messages=[Message.user("a"), Message.assistant("b")])
    state.finish("d")

    await Agent(model=FakeModel(["all of it"])).compact(state)

    assert [message.text for message in state.messages][1].endswith("all of it")
    assert (state.answer, state.finished) == ("d", True)

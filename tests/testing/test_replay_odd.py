"""replay_run where something odd happened, then or now."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from alpineagents import (
    Agent,
    AllowByReadOnly,
    Budget,
    DecideByHuman,
    Inbox,
    Message,
    OutputError,
    State,
    ToolCall,
    ToolInputError,
    WaitingForAnswerError,
    loop,
    tool,
    waiting_for_user,
)
from alpineagents._contracts import Hints
from alpineagents.record import Reply
from alpineagents.testing import Difference, FakeHuman, FakeModel, Replay, tool_call

from .test_replay import again, agent_of, assert_same


def hi(**fields: Any) -> State:
    return State(messages=[Message.user("hi")], **fields)


def differs(replay: Replay) -> Difference:
    assert replay.difference is not None, str(replay)
    return replay.difference


def loop_of(*actions: Any) -> Any:
    """A loop of one turn."""

    @loop(until=waiting_for_user, limit=1)
    async def body(agent: Agent, state: State) -> None:
        for action in actions:
            await action(agent, state)

    return body


async def think(agent: Agent, state: State) -> None:
    await agent.think(state)


async def use_tools(agent: Agent, state: State) -> None:
    await agent.use_tools(state)


def edits(value: object) -> Any:
    async def edit(agent: Agent, state: State) -> None:
        async with state.edit_extra_data() as data:
            data["n"] = value
            data.pop("old", None)

    return edit


def finishes(answer: object) -> Any:
    async def finish(agent: Agent, state: State) -> None:
        state.finish(answer)

    return finish


def asks(question: str) -> Any:
    async def ask(agent: Agent, state: State) -> None:
        await agent.ask(state, question)

    return ask


def asks_a_person(question: str) -> Any:
    async def ask(agent: Agent, state: State) -> None:
        await agent.ask_human(state, question)

    return ask


def notes(text: str) -> Any:
    async def note(agent: Agent, state: State) -> None:
        state.add_message(Message.notice(text))

    return note


# ---- The same


async def test_a_person_who_failed_fails_again():
    def fail(question: Any) -> Any:
        raise OSError(5, "the line is dead")

    for settings in ({"loop": loop_of(asks_a_person("Well?"), think)}, {"permissions": [DecideByHuman()]}):
        agent = agent_of([tool_call("add", a=1, b=1)], "b", human=FakeHuman(fail), **settings)
        state = hi()
        with pytest.raises(OSError, match="dead"):
            await agent.run(state)

        await assert_same(state, agent)


async def test_a_person_who_will_answer_later_does_so_again():
    @loop(until=waiting_for_user, limit=3)
    async def asking(agent: Agent, state: State) -> None:
        try:
            await agent.ask_human(state, "Well?")
        except WaitingForAnswerError as error:
            state.add_message(Message.notice(f"waiting for {error.question_id}"))
            raise
        await agent.think(state)

    inbox = Inbox(wait=False)
    agent = agent_of("b", human=inbox, loop=asking)
    state = hi()
    with pytest.raises(WaitingForAnswerError):
        await agent.run(state)
    inbox.answer(inbox.open[0].id, "yes")
    await agent.run(state)

    assert (await assert_same(state, agent)).runs == 2


async def test_hints_of_a_call_are_asked_of_the_tool():
    @tool(hints_for=lambda args: Hints(read_only=args["look"]))
    async def touch(look: bool) -> str:
        """Touch, or look."""
        return "ok"

    calls = [tool_call("touch", look=True), tool_call("touch", look=False)]
    agent = agent_of(calls, "b", tools=[touch], permissions=[AllowByReadOnly()])
    state = hi()
    with pytest.warns(UserWarning, match="touch"):
        await agent.run(state)

    with pytest.warns(UserWarning, match="touch"):
        await assert_same(state, agent)


async def test_a_tool_that_called_its_arguments_wrong_does_so_again():
    @tool
    async def picky(text: str) -> str:
        """Be picky."""
        raise ToolInputError("not that one")

    agent = agent_of([tool_call("picky", text="x")], "b", tools=[picky])
    state = hi()
    await agent.run(state)

    await assert_same(state, agent)


async def test_a_thread_of_the_loops_may_change_the_state():
    async def in_thread(agent: Agent, state: State) -> None:
        await trio.to_thread.run_sync(state.add_message, Message.notice("from a thread"))

    agent = agent_of("b", loop=loop_of(in_thread, think))
    state = hi()
    await agent.run(state)

    assert not (await assert_same(state, agent)).given


async def test_what_a_failed_question_cost_counts_for_the_budget():
    class Spent(Exception):
        pass

    def fail(request: Any) -> Any:
        if len(request.messages) == 1:
            return "answer"
        error = Spent("all of it")
        error.usage = Reply([], usage=None or agent_usage()).usage  # type: ignore[attr-defined]
        return error

    def agent_usage() -> Any:
        from alpineagents import Usage

        return Usage(50, 50, requests=3)

    @loop(until=waiting_for_user, limit=5)
    async def asking(agent: Agent, state: State) -> None:
        with pytest.raises(Spent):
            await agent.ask(state, "Well?")
        await agent.think(state)

    agent = agent_of(model=FakeModel(fail), loop=asking, budget=Budget(requests=3))
    state = hi()
    await agent.run(state)
    assert state.stopped is not None
    assert type(state.stopped).__name__ == "StoppedByBudget"

    await assert_same(state, agent)


async def test_a_run_that_was_cancelled_right_after_a_deadline_of_its_own(autojump_clock: Any):
    """The history tells of the first alone: nothing more is compared than is there."""

    @loop(until=waiting_for_user, limit=5)
    async def hasty(agent: Agent, state: State) -> None:
        with trio.move_on_after(1):
            await agent.think(state)
        await trio.sleep(60)
        state.add_message(Message.notice("a minute later"))

    agent = agent_of(model=FakeModel(["a"], delay=5), loop=hasty)
    state = hi()
    with trio.move_on_after(3):
        await agent.run(state)
    assert [entry.kind for entry in state.history][-1] == "error"

    await assert_same(state, agent)


async def test_ctrl_c_in_a_loop_that_waits_is_where_its_replay_ends():
    async def waits(agent: Agent, state: State) -> None:
        await trio.sleep_forever()

    async def interrupted(agent: Agent, state: State) -> None:
        raise KeyboardInterrupt

    agent = agent_of("a", loop=loop_of(interrupted))
    state = hi()
    with pytest.raises(KeyboardInterrupt):
        await agent.run(state)

    await assert_same(state, agent)
    await assert_same(state, agent.copy(loop=loop_of(waits)))


async def test_going_back_to_the_very_beginning_is_the_same():
    agent = agent_of("a", "b")
    state = State()
    start = state.snapshot()
    state.add_message(Message.user("1"))
    await agent.run(state)
    state.restore(start)
    state.add_message(Message.user("2"))
    await agent.run(state)

    assert (await assert_same(state, agent)).runs == 2


async def test_a_call_that_ended_in_the_moment_in_which_another_failed_has_its_result(autojump_clock: Any):
    """Tasks that can run do so in an order of chance: the result may stand on either side of the error."""

    @tool
    async def early() -> str:
        """End as the other fails."""
        await trio.sleep(1)
        return "just so"

    @tool
    async def failing() -> None:
        """Fail."""
        await trio.sleep(1)
        raise KeyError("x")

    @loop(until=waiting_for_user, limit=3)
    async def catches(agent: Agent, state: State) -> None:
        await agent.think(state)
        with pytest.raises(KeyError):
            await agent.use_tools(state)
        state.add_message(Message.notice("That failed."))
        state.finish()

    for _ in range(20):
        agent = agent_of([tool_call("early"), tool_call("failing")], tools=[early, failing], loop=catches)
        state = hi()
        await agent.run(state)

        await assert_same(state, agent)


async def test_a_cancelled_run_that_its_history_tells_nothing_of_is_compared_up_to_there(autojump_clock: Any):
    @loop(until=waiting_for_user, limit=5)
    async def hasty(agent: Agent, state: State) -> None:
        with trio.move_on_after(1):
            await agent.think(state)
        await trio.sleep(60)
        state.clear_tool_results(keep_last=0)
        await agent.use_tools(state)

    model = FakeModel(["b"], delay=5)
    agent = agent_of(model=model, loop=hasty)
    state = hi()
    await agent_of([tool_call("add", a=1, b=1)], "a").run(state)
    state.add_message(Message.user("more"))
    with trio.move_on_after(3):
        await agent.copy(name="hasty").run(state)
    state.compact("What was.")

    assert (await again(state, agent.copy(name="hasty"))).differs is False


# ---- Different


@pytest.mark.parametrize(
    ("then", "now", "what", "lines"),
    [
        ([edits(1), think], [edits(2), think], "the extra data", ['-    "n": 1', '+    "n": 2', "   -old"]),
        ([think, finishes({"a": 1})], [think, finishes({"a": 2})], "why the run stops", ["-stop: finish({'a': 1})"]),
        ([asks("Why?"), think], [asks("Why not?"), think], "the model is asked:", ["-  Why?", "+Why not?"]),
        ([think, asks("Why?")], [asks("Why?"), think], "the run waits for the ask of entry 5, too early", []),
        ([think], [asks_a_person("Well?"), think], "a person is asked:", ["+Well?"]),
        ([notes("x\n" * 500), think], [notes("y\n" * 500), think], "a message", ["(", "-  [notice] x"]),
        ([think, notes("a")], [notes("b"), think, notes("a")], "then model_request, now notice", ["+  [notice] b"]),
    ],
)
async def test_what_the_loop_does_otherwise_is_told(then: list[Any], now: list[Any], what: str, lines: list[str]):
    agent = agent_of("one", "two", loop=loop_of(*then), human=FakeHuman(["x"]))
    state = hi(extra_data={"old": 0})
    await agent.run(state)

    replay = await again(state, agent.copy(loop=loop_of(*now)))

    assert differs(replay).what == what
    for line in lines:
        assert any(each.startswith(line) for each in str(replay).splitlines()), str(replay)


async def test_a_plain_loop_that_goes_on_where_it_ended_is_told():
    async def once(agent: Agent, state: State) -> None:
        await agent.think(state)

    async def twice(agent: Agent, state: State) -> None:
        await agent.think(state)
        state.add_message(Message.notice("more"))

    agent = agent_of("a", loop=once)
    state = hi()
    await agent.run(state)

    found = differs(await again(state, agent.copy(loop=twice)))

    assert found.what == "the run goes on here, and had ended then: notice [notice] more"
    assert found.then == ("the run ended",)


async def test_a_deadline_that_is_new_is_told_with_the_reply_that_came_then():
    async def hasty(agent: Agent, state: State) -> None:
        with trio.move_on_after(0):
            await agent.think(state)

    agent = agent_of(["I look.", ToolCall("c1", "add", {"a": 1, "b": 2})], "done")
    state = hi()
    await agent.run(state)

    found = differs(await again(state, agent.copy(loop=loop_of(hasty, use_tools))))

    assert found.what == "an exception is raised: Cancelled"
    assert found.then[:3] == ("model_reply:", "  I look.", "  call add")


async def test_a_deadline_that_is_gone_is_told(autojump_clock: Any):
    async def hasty(agent: Agent, state: State) -> None:
        with trio.move_on_after(1):
            await agent.think(state)

    agent = agent_of(model=FakeModel(lambda request: "a", delay=5), loop=loop_of(hasty).copy(limit=2))
    state = hi()
    await agent.run(state)

    found = differs(await again(state, agent.copy(loop=loop_of(think))))

    assert found.what == "nothing cancels this, and then something did"


async def test_a_compaction_and_cleared_results_are_shown():
    async def compacts(agent: Agent, state: State) -> None:
        if state.turn == 1:
            await agent.compact(state)

    @loop(until=waiting_for_user, limit=3)
    async def body(agent: Agent, state: State) -> None:
        await compacts(agent, state)
        await agent.think(state)
        await agent.use_tools(state)

    agent = agent_of([tool_call("add", a=1, b=1)], "the summary", "b", loop=body)
    state = hi()
    await agent.run(state)

    found = differs(await again(state, agent.copy(loop=loop_of(think, use_tools).copy(limit=3))))

    assert found.then == ("context_change compact", "  the summary")


async def test_a_call_without_arguments_is_shown_by_their_text():
    agent = agent_of([ToolCall("c1", "add", None, '{"a": 1')], "b")
    state = hi()
    await agent.run(state)

    found = differs(await again(state, agent.copy(loop=loop_of(think))))

    assert '  call add: {"a": 1' in found.then


async def test_an_answer_with_a_wrong_type_all_the_time_is_told():
    def asking(kind: Any) -> Any:
        async def ask(agent: Agent, state: State) -> None:
            await agent.ask(state, "How many?", kind, retries=0)

        return loop_of(ask, think)

    agent = agent_of('{"answer": 3}', "b", loop=asking(int))
    state = hi()
    await agent.run(state)

    found = differs(await again(state, agent.copy(loop=asking(list[str]))))

    assert found.what.startswith("an exception is raised: OutputError")
    assert isinstance(found.error, OutputError)

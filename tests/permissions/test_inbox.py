"""Inbox: questions that a service answers, now, later, or after a restart."""

from __future__ import annotations

import contextlib
import gc
import re
import threading
import weakref
from typing import Any, Literal

import pytest
import trio
import trio.testing

from alpineagents import (
    Agent,
    AllowByName,
    DecideByHuman,
    DecidePermission,
    Denied,
    DenyPermission,
    FileStore,
    Human,
    Inbox,
    Message,
    Question,
    State,
    StoppedByFinish,
    StoppedByPermission,
    Store,
    Tool,
    ToolCall,
    Verdict,
    WaitingForAnswerError,
    tool,
)
from alpineagents.testing import FakeModel, tool_call

from ..run.conftest import store
from ..run.runs import assert_saved, assert_whole, kinds, outcomes, saved
from .agents import Decide, Tools, an_agent, call, go, results

__all__ = ["store"]  # the fixture

KEY = "alpineagents.inbox"


def calling(*names: str) -> Any:
    """Ask for these tools until one did its work or is denied; then be done."""

    def answer(request: Any) -> Any:
        last = request.messages[-1]
        if last.role == "tool" and any(re.search("did|denied", block.content[0].text) for block in last.blocks):
            return "done"
        return [call(name) for name in names]

    return answer


def deciding(inbox: Inbox, *names: str, tools: Tools | None = None, **settings: Any) -> Agent:
    return an_agent(tools or Tools(), calling(*names), [AllowByName("read"), DecideByHuman()], human=inbox, **settings)


async def asked(inbox: Inbox, count: int = 1) -> list[Any]:
    """The open questions, once there are *count* and everybody waits for them."""
    while len(inbox.open) < count:
        await trio.testing.wait_all_tasks_blocked()
    return list(inbox.open)


def notices(state: State) -> list[str]:
    return [entry.content.text for entry in state.history if entry.kind == "notice"]


async def test_a_run_waits_until_the_question_is_answered() -> None:
    inbox, tools = Inbox(), Tools()
    state = State(messages=[Message.user("go")])
    agent = deciding(inbox, "write", tools=tools)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.run, state)
        (question,) = await asked(inbox)
        assert question == "Allow write with no arguments?"
        assert (question.state, question.call, question.is_approval) == (state, state.pending_calls[0], True)
        assert state.extra_data[KEY] == {
            question.id: {"question": str(question), "call_id": question.call.id, "is_approval": True}
        }
        assert tools.ran == []
        await inbox.answer(question.id, "yes")

    assert tools.ran == ["write 0"]
    assert state.answer == "done"
    assert state.extra_data == {}
    assert inbox.open == ()
    assert notices(state) == []
    assert_whole(state)


async def test_questions_of_many_states_are_answered_in_any_order() -> None:
    inbox = Inbox()
    states = [State(id=f"s{n}", messages=[Message.user("go")]) for n in range(5)]
    agent = deciding(inbox, "write")

    async with trio.open_nursery() as nursery:
        for state in states:
            nursery.start_soon(agent.run, state)
        questions = await asked(inbox, 5)
        for question in reversed(questions):
            inbox.answer(question.id, "yes" if question.state.id != "s3" else "always")

    assert [outcomes(state) for state in states] == [[("write", "done")]] * 5
    assert [state.id for state in states if state.extra_data] == ["s3"]


async def test_questions_that_calls_ask_in_parallel_are_kept_apart() -> None:
    """Two calls of one State ask the very same, and each gets its own answer."""
    inbox = Inbox()

    @tool
    async def wonder(n: int, state: State) -> str:
        """Ask."""
        return f"did {n}: {await agent.ask_human(state, 'How many?', int)}"

    agent = Agent(model=FakeModel([[call("wonder", n=0), call("wonder", n=1)], "done"]), tools=[wonder], human=inbox)
    state = State(messages=[Message.user("go")])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.run, state)
        questions = await asked(inbox, 2)
        for question in reversed(questions):
            inbox.answer(question.id, question.call.args["n"] + 10)

    assert [text for _, _, text, _ in results(state)] == ["did 0: 10", "did 1: 11"]
    assert_whole(state)


def test_a_thread_without_an_event_loop_can_answer() -> None:
    inbox = Inbox()
    state = State(messages=[Message.user("go")])
    ready = threading.Event()
    failures: list[BaseException] = []

    def service() -> None:
        try:
            assert ready.wait(10)
            inbox.answer(inbox.open[0].id, "yes")
        except BaseException as error:
            failures.append(error)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, service)
            nursery.start_soon(deciding(inbox, "write").run, state)
            while not inbox.open:
                await trio.lowlevel.checkpoint()
            ready.set()

    trio.run(main)

    assert failures == []
    assert outcomes(state) == [("write", "done")]


async def test_a_wrong_answer_leaves_the_question_open() -> None:
    inbox = Inbox()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(deciding(inbox, "write").run, "go")
        (question,) = await asked(inbox)
        with pytest.raises(ValueError, match="answer 'yes', 'no' or 'always' \\(got 'perhaps'\\)"):
            inbox.answer(question.id, "perhaps")
        assert inbox.open == (question,)
        inbox.answer(question.id, "no")


async def test_a_question_is_answered_once() -> None:
    inbox = Inbox()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(deciding(inbox, "write").run, "go")
        (question,) = await asked(inbox)
        inbox.answer(question.id, "yes")
        with pytest.raises(LookupError, match="answered already"):
            inbox.answer(question.id, "no")
    with pytest.raises(LookupError, match="no question 'nope' is open"):
        inbox.answer("nope", "yes")


@pytest.mark.parametrize(("returns", "value", "wrong"), [(int, 3, "three"), (Literal["a"], "a", "b"), (str, "x", 5)])
async def test_answers_fit_what_was_asked_for(returns: Any, value: Any, wrong: Any) -> None:
    inbox, got = Inbox(), []
    agent = Agent(model=FakeModel([]), human=inbox)

    async def ask() -> None:
        got.append(await agent.ask_human(State(), "Which?", returns))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        (question,) = await asked(inbox)
        with pytest.raises(ValueError, match="expected"):
            inbox.answer(question.id, wrong)
        with pytest.raises(TypeError, match="not JSON"):
            inbox.answer(question.id, {1, 2})
        inbox.answer(question.id, value)

    assert got == [value]


# A run that doesn't wait


async def test_a_run_that_shall_not_wait_stops_and_says_what_it_waits_for(store: Store) -> None:
    inbox, tools = Inbox(wait=False), Tools()
    state = State(id="s", messages=[Message.user("go")])

    await deciding(inbox, "read", "write", tools=tools, store=store).run(state)

    (question,) = inbox.open
    assert tools.ran == []
    assert [(outcome, text) for _, outcome, text, _ in results(state)][1] == (
        "denied",
        f"(waiting for approval {question.id})",
    )
    assert outcomes(state) == [("write", "denied"), ("read", "cancelled")]
    assert isinstance(state.stopped, StoppedByPermission)
    assert_whole(state)
    await assert_saved(store, state)


async def test_a_late_yes_is_told_and_the_same_call_is_allowed_once(store: Store) -> None:
    inbox, tools = Inbox(wait=False), Tools()
    state = State(id="s", messages=[Message.user("go")])
    agent = deciding(inbox, "write", tools=tools, store=store)
    await agent.run(state)
    (question,) = inbox.open

    await inbox.answer(question.id, "yes")

    assert len(notices(state)) == 1
    assert f"allowed write (approval {question.id})" in notices(state)[0]
    assert [entry["kind"] for entry in (await saved(store, "s"))[-2:]] == ["extra_data", "notice"]
    assert inbox.open == ()
    assert await agent.run(state) == "done"
    assert tools.ran == ["write 0"]
    assert state.extra_data == {}
    state.add_message(Message.user("again"))
    await agent.copy(model=FakeModel([call("write"), "ended"])).run(state)
    assert tools.ran == ["write 0"]
    assert len(inbox.open) == 1
    assert_whole(state)


@pytest.mark.parametrize("n", [0.0, False, 1])
async def test_other_arguments_or_another_tool_are_asked_about_anew(n: Any) -> None:
    inbox, tools = Inbox(wait=False), Tools()
    state = State(messages=[Message.user("go")])

    @tool
    async def write(n: Any) -> str:
        """Write."""
        raise AssertionError("never allowed")

    tools.all = [tools.all[0], write]
    agent = an_agent(tools, [call("write", n=0), call("write", n=n), call("read", n=0)], [DecideByHuman()], human=inbox)
    await agent.run(state)
    inbox.answer(inbox.open[0].id, "yes")

    await agent.run(state)
    await agent.run(state)

    assert outcomes(state) == [("write", "denied"), ("write", "denied"), ("read", "denied")]
    assert [question.call.name for question in inbox.open] == ["write", "read"]


async def test_a_late_no_is_told_and_counts_once_too() -> None:
    inbox, tools = Inbox(wait=False), Tools()
    state = State(messages=[Message.user("go")])
    agent = an_agent(tools, [call("write"), call("write"), "I see."], [DecideByHuman()], human=inbox)
    await agent.run(state)
    inbox.answer(inbox.open[0].id, "no")

    assert await agent.run(state) == "I see."

    assert "refused write" in notices(state)[0]
    assert [text for _, _, text, _ in results(state)][1] == "(denied by the user)"
    assert inbox.open == ()
    assert state.extra_data == {}


async def test_a_late_always_allows_every_call_of_the_tool() -> None:
    inbox, tools = Inbox(wait=False), Tools()
    state = State(messages=[Message.user("go")])
    script = [call("write"), [call("write", n=1), call("write", n=2)], "done"]
    agent = an_agent(tools, script, [DecideByHuman()], human=inbox)
    await agent.run(state)
    inbox.answer(inbox.open[0].id, "always")

    await agent.run(state)

    assert sorted(tools.ran) == ["write 1", "write 2"]
    assert state.extra_data == {"alpineagents.always": ["write"]}
    assert_whole(state)


async def test_asked_again_before_it_is_answered_it_stays_one_question() -> None:
    inbox = Inbox(wait=False)
    state = State(messages=[Message.user("go")])
    agent = deciding(inbox, "write")

    await agent.run(state)
    (first,) = inbox.open
    await agent.run(state)

    assert [question.id for question in inbox.open] == [first.id]
    assert inbox.open[0].call.id != first.call.id
    assert results(state)[0][2] == results(state)[1][2]


async def test_an_approval_counts_until_its_call_has_run() -> None:
    """Two calls of one reply each need an approval: what is said of one isn't lost while the other still waits."""
    inbox, tools = Inbox(wait=False), Tools("write")
    state = State(messages=[Message.user("go")])
    both = [call("write", n=1), call("write", n=2)]
    agent = an_agent(tools, [both, both, both, "done"], [DecideByHuman()], human=inbox)
    await agent.run(state)
    await inbox.answer(inbox.open[0].id, "yes")

    await agent.run(state)

    assert [outcome for _, outcome in outcomes(state)[2:]] == ["denied", "cancelled"]
    assert tools.ran == []
    (second,) = inbox.open
    assert second.call.args == {"n": 2}
    await inbox.answer(second.id, "yes")
    assert await agent.run(state) == "done"
    assert sorted(tools.ran) == ["write 1", "write 2"]
    assert state.extra_data == {}
    assert_whole(state)


async def test_an_approval_counts_once_though_the_same_call_was_asked_for_twice() -> None:
    inbox, tools = Inbox(wait=False), Tools("write")
    state = State(messages=[Message.user("go")])
    twice = [call("write"), call("write")]
    agent = an_agent(tools, [twice, twice, call("write"), "done"], [DecideByHuman()], human=inbox)
    await agent.run(state)
    await inbox.answer(inbox.open[0].id, "yes")
    await agent.run(state)

    assert await agent.run(state) == "done"

    assert tools.ran == ["write 0"]
    assert len(inbox.open) == 1
    assert_whole(state)


@pytest.mark.parametrize("how", ["fails", "is cancelled"])
async def test_an_approval_counts_though_the_check_of_another_call_ends_the_run(how: str) -> None:
    class Ending(DenyPermission):
        async def check(self, state: State, call: Any, tool: Any) -> None:
            if call.name == "delete":
                if how == "fails":
                    raise ZeroDivisionError
                scope.cancel()
                await trio.lowlevel.checkpoint()

    inbox, tools = Inbox(wait=False), Tools()
    state = State(messages=[Message.user("go")])
    script = [call("write"), [call("write"), call("delete")], call("write"), "done"]
    agent = an_agent(tools, script, [Ending(), DecideByHuman()], human=inbox)
    await agent.run(state)
    await inbox.answer(inbox.open[0].id, "yes")
    with trio.CancelScope() as scope, contextlib.suppress(ZeroDivisionError):
        await agent.run(state)
    assert tools.ran == []

    assert await agent.run(state) == "done"

    assert tools.ran == ["write 0"]
    assert state.extra_data == {}
    assert_whole(state)


async def test_always_is_not_kept_twice_when_its_call_did_not_run() -> None:
    inbox = Inbox(wait=False)
    state = State(messages=[Message.user("go")])
    tools = Tools()
    agent = an_agent(tools, [[call("write"), call("delete")]] * 2, [DecideByHuman()], human=inbox)
    await agent.run(state)
    await inbox.answer(inbox.open[0].id, "always")

    await agent.run(state)

    assert tools.ran == []
    assert [question.call.name for question in inbox.open] == ["delete"]
    assert len(state.extra_data[KEY]) == 1


def test_a_human_is_told_that_what_it_allowed_did_not_run() -> None:
    given_back: list[tuple[str, object, bool]] = []

    class Keeping(Human):
        async def ask(self, question: Question, returns: object) -> object:
            await trio.lowlevel.checkpoint()
            return "yes"

        def give_back(self, question: Question, answer: object) -> None:
            given_back.append((question, answer, question.is_approval))

    stop = Decide(lambda one: Denied("no", stop=True) if one.name == "delete" else None)
    state, tools = go([stop, DecideByHuman()], call("read", n=1), call("delete"), human=Keeping())

    assert given_back == [('Allow read with {"n":1}?', "yes", True)]
    assert tools.ran == []
    assert_whole(state)


async def test_a_call_without_any_text_for_its_arguments_is_approved_like_one_with_none() -> None:
    inbox, tools = Inbox(wait=False), Tools()
    state = State(messages=[Message.user("go")])
    script = [ToolCall("1", "write", None, ""), ToolCall("2", "write", None, " "), "done"]
    agent = an_agent(tools, script, [DecideByHuman()], human=inbox)
    await agent.run(state)
    await inbox.answer(inbox.open[0].id, "yes")

    assert await agent.run(state) == "done"

    assert tools.ran == ["write 0"]


async def test_ask_human_gets_the_late_answer_when_it_asks_the_same_again() -> None:
    inbox = Inbox(wait=False)
    state = State(messages=[Message.user("go")])
    agent = Agent(model=FakeModel([]), human=inbox)
    with pytest.raises(WaitingForAnswerError) as caught:
        await agent.ask_human(state, "How many?", int)
    with pytest.raises(WaitingForAnswerError):
        await agent.ask_human(state, "Which?")
    inbox.answer(caught.value.question_id, 3)

    assert "'How many?'" in notices(state)[0]
    assert notices(state)[0].endswith("was answered: 3")
    assert await agent.ask_human(state, "How many?", int) == 3
    with pytest.raises(WaitingForAnswerError):
        await agent.ask_human(state, "How many?", int)


async def test_finished_states_have_no_questions() -> None:
    inbox = Inbox(wait=False)
    state = State(messages=[Message.user("go")])
    await deciding(inbox, "write").run(state)
    (question,) = inbox.open
    state.finish()

    with pytest.raises(LookupError):
        inbox.answer(question.id, "yes")
    assert inbox.open == ()
    with pytest.raises(LookupError):
        inbox.withdraw(question.id)


async def test_a_run_whose_state_is_finished_waits_for_no_answer() -> None:
    """Nobody can give it one: a finished State has no questions."""
    inbox, tools = Inbox(), Tools()
    state = State(messages=[Message.user("go")])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(deciding(inbox, "write", "delete", tools=tools).run, state)
        await asked(inbox)
        state.finish("enough")

    assert inbox.open == ()
    assert tools.ran == []
    assert outcomes(state) == [("write", "denied"), ("delete", "cancelled")]
    assert state.stopped == StoppedByFinish("enough")
    assert_whole(state)


async def test_ask_human_waits_for_no_answer_once_its_state_is_finished() -> None:
    inbox = Inbox()
    state = State(messages=[Message.user("go")])
    raised: list[Exception] = []

    async def ask() -> None:
        with pytest.raises(WaitingForAnswerError) as caught:
            await Agent(model=FakeModel([]), human=inbox).ask_human(state, "Which?")
        raised.append(caught.value)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await asked(inbox)
        state.finish()

    assert len(raised) == 1


async def test_an_inbox_keeps_no_state_whose_question_was_answered() -> None:
    """Also where nobody looks what is open."""
    inbox, states = Inbox(wait=False), weakref.WeakSet[State]()

    async def answered(how: str) -> None:
        state = State(messages=[Message.user("go")])
        states.add(state)
        await deciding(inbox, "write").run(state)
        (question_id,) = state.extra_data[KEY]
        if how == "withdrawn":
            await inbox.withdraw(question_id)
            return
        await inbox.answer(question_id, "yes")
        if how == "used":
            await deciding(inbox, "write").run(state)

    for how in ("answered", "used", "withdrawn"):
        await answered(how)
    gc.collect()

    assert list(states) == []


async def test_a_question_can_be_withdrawn_unless_a_run_waits() -> None:
    inbox = Inbox()
    state = State(messages=[Message.user("go")])

    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(deciding(inbox, "write").run, state)
            (question,) = await asked(inbox)
            with pytest.raises(ValueError, match="cancel the run"):
                inbox.withdraw(question.id)
            scope.cancel()
    assert [other.id for other in inbox.open] == [question.id]
    await inbox.withdraw(question.id)

    assert inbox.open == ()
    assert state.extra_data == {}
    with pytest.raises(LookupError):
        inbox.withdraw(question.id)
    assert_whole(state)


class Forwarding(DecidePermission):
    """Has its own list, and asks a person about the rest."""

    async def check(self, state: State, call: ToolCall, tool: Tool) -> Verdict | None:
        return await DecideByHuman(self.human).check(state, call, tool)

    def __init__(self, human: Human) -> None:
        self.human = human


@pytest.mark.parametrize("forwards", [False, True])
async def test_a_call_is_approved_as_the_model_wrote_it(forwards: bool) -> None:
    """A number that came as text is put right for a check, and it is the same call all the same when it comes again."""
    inbox, tools = Inbox(wait=False), Tools()
    state = State(messages=[Message.user("go")])
    asks = tool_call("write", n="3")
    rule = Forwarding(inbox) if forwards else DecideByHuman()
    agent = an_agent(tools, [asks, tool_call("write", n="3"), "done"], [rule], human=inbox)
    await agent.run(state)
    (question,) = inbox.open
    assert question.call == asks
    assert question == 'Allow write with {"n":"3"}?'

    inbox.answer(question.id, "yes")

    assert await agent.run(state) == "done"
    assert tools.ran == ["write 3"]


def test_only_a_state_is_added() -> None:
    inbox = Inbox()

    with pytest.raises(TypeError, match=r"add takes a State, not str: inbox\.add\(await store\.load\("):
        inbox.add("request-1")  # type: ignore[arg-type]
    assert inbox.open == ()


async def test_a_question_outlives_the_run_that_was_cancelled() -> None:
    inbox, tools = Inbox(), Tools()
    state = State(messages=[Message.user("go")])
    agent = deciding(inbox, "write", tools=tools)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.run, state)
            (question,) = await asked(inbox)
            scope.cancel()
    inbox.answer(question.id, "yes")

    assert await agent.run(state) == "done"

    assert outcomes(state) == [("write", "interrupted"), ("write", "done")]
    assert len(notices(state)) == 1
    assert state.extra_data == {}
    assert_whole(state)


async def test_an_answer_that_comes_as_the_run_is_cancelled_is_not_lost() -> None:
    """It was answered, and before the run woke up, it was cancelled: the model is told, and the answer counts."""
    inbox, tools = Inbox(), Tools()
    state = State(messages=[Message.user("go")])
    agent = deciding(inbox, "write", tools=tools)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.run, state)
            (question,) = await asked(inbox)
            scope.cancel()
            inbox.answer(question.id, "yes")

    assert tools.ran == []
    assert len(notices(state)) == 1
    assert await agent.run(state) == "done"
    assert tools.ran == ["write 0"]


async def test_a_question_taken_out_of_extra_data_is_no_permission() -> None:
    inbox, tools = Inbox(), Tools()
    state = State(messages=[Message.user("go")])

    raised: list[Exception] = []

    async def run() -> None:
        with pytest.raises(RuntimeError) as caught:
            await deciding(inbox, "write", tools=tools).run(state)
        raised.append(caught.value)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await asked(inbox)
        async with state.edit_extra_data() as data:
            del data[KEY]

    assert "leave that key to the Inbox" in str(raised[0])
    assert tools.ran == []
    assert_whole(state)


@pytest.mark.parametrize("odd", [5, {"q": 3}, {"q": {}}, {"q": {"question": 1, "call_id": 7, "is_approval": "yes"}}])
async def test_what_somebody_else_wrote_under_the_key_breaks_nothing(odd: Any) -> None:
    inbox, tools = Inbox(wait=False), Tools()
    state = State(messages=[Message.user("go")], extra_data={KEY: odd})
    inbox.add(state)

    await deciding(inbox, "write", tools=tools).run(state)

    assert outcomes(state) == [("write", "denied")]
    assert tools.ran == []


async def test_a_fork_has_its_own_questions() -> None:
    inbox, tools = Inbox(wait=False), Tools()
    state = State(messages=[Message.user("go")])
    agent = deciding(inbox, "write", tools=tools)
    await agent.run(state)
    fork = state.fork()
    inbox.add(fork)
    await agent.run(fork)

    assert [question.state for question in inbox.open] == [state, fork]
    inbox.answer(inbox.open[1].id, "yes")
    assert (len(notices(state)), len(notices(fork))) == (0, 1)
    assert await agent.run(fork) == "done"
    assert tools.ran == ["write 0"]


# A restart


async def test_open_questions_survive_a_restart_in_the_middle_of_a_wait(tmp_path: Any) -> None:
    """The process dies while a run waits. Another one lists the question, answers it, and the call runs, once."""
    state = State(id="s", messages=[Message.user("go")])
    before, copied = Inbox(), tmp_path / "after"
    store = FileStore(tmp_path / "before")
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(deciding(before, "write", store=store).run, state)
            (question,) = await asked(before)
            while not any(entry["kind"] == "extra_data" for entry in await saved(store, "s")):
                await trio.lowlevel.checkpoint()
            await trio.testing.wait_all_tasks_blocked()
            copy_of_the_disk(tmp_path / "before", copied)
            scope.cancel()

    inbox, tools = Inbox(), Tools()
    after = FileStore(copied)
    loaded = await after.load("s")
    inbox.add(loaded)
    (again,) = inbox.open
    assert (again, again.id, again.is_approval) == (question, question.id, True)
    assert again.call == question.call
    assert outcomes(loaded) == [("write", "aborted")]
    await inbox.answer(again.id, "yes")

    assert await deciding(inbox, "write", tools=tools, store=after).run(loaded) == "done"
    assert tools.ran == ["write 0"]
    assert len(notices(loaded)) == 1
    assert_whole(loaded)
    await assert_saved(after, loaded)


async def test_open_questions_of_a_stopped_run_survive_a_restart(tmp_path: Any) -> None:
    store = FileStore(tmp_path)
    await deciding(Inbox(wait=False), "write", store=store).run(State(id="s", messages=[Message.user("go")]))

    inbox, tools = Inbox(wait=False), Tools()
    for info in await FileStore(tmp_path).list():
        if isinstance(info.stopped, StoppedByPermission):
            inbox.add(await store.load(info.id))
    (question,) = inbox.open
    with pytest.raises(ValueError, match="'yes', 'no' or 'always'"):
        inbox.answer(question.id, 3)
    await inbox.answer(question.id, "yes")
    reloaded = await store.load("s")

    assert await deciding(inbox, "write", tools=tools, store=store).run(reloaded) == "done"
    assert tools.ran == ["write 0"]
    assert_whole(reloaded)


def copy_of_the_disk(source: Any, target: Any) -> None:
    for path in source.rglob("*"):
        if path.is_file():
            (target / path.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
            (target / path.relative_to(source)).write_bytes(path.read_bytes())


def test_kinds_of_entries_of_a_question() -> None:
    """Opening, answer and use are entries of their own, so a reader of the history sees when each was."""
    inbox = Inbox()
    state = State(messages=[Message.user("go")])

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(deciding(inbox, "write").run, state)
            (question,) = await asked(inbox)
            inbox.answer(question.id, "yes")

    trio.run(main)

    start = kinds(state).index("model_reply") + 1
    assert kinds(state)[start : start + 5] == ["extra_data"] * 3 + ["human", "tool_result"]

"""replay_run: every kind of run, live and saved, is the same when nothing has changed, and nothing is called."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any, Literal

import attrs
import pytest
import trio

from alpineagents import (
    Agent,
    AllowByDefault,
    AllowByName,
    Allowed,
    Budget,
    CompactIfFull,
    DecideByHuman,
    DecidePermission,
    DenyByName,
    Human,
    Inbox,
    MemoryStore,
    Message,
    Model,
    ModelEvent,
    RateLimitError,
    Reply,
    Reporter,
    State,
    TextBlock,
    ToolError,
    Usage,
    loop,
    tool,
    waiting_for_user,
)
from alpineagents.models import OpenAICompatible
from alpineagents.record._codec import decode_history, encode_entry
from alpineagents.testing import FakeHuman, FakeModel, ProviderServer, Replay, replay_run, tool_call


class Refuses(Model, Human, Reporter):
    """Stands where nothing may be called."""

    name = "fake/fake"

    async def respond(self, *_: Any) -> Any:
        raise AssertionError("a model was called")

    async def ask(self, *_: Any) -> Any:
        raise AssertionError("a person was asked")

    def on_run_start(self, *_: Any) -> None:
        raise AssertionError("a Reporter was told")


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    CALLS.append("add")
    return a + b


@tool
async def fail(text: str) -> None:
    """Fail as the model may know."""
    CALLS.append("fail")
    raise ToolError(text)


@tool
async def crash() -> None:
    """Fail as nobody expects."""
    CALLS.append("crash")
    raise KeyError("x")


@tool
async def wait() -> None:
    """Never end."""
    CALLS.append("wait")
    await trio.sleep_forever()


@tool
async def talk(state: State) -> str:
    """Change the State in the middle of a call."""
    CALLS.append("talk")
    state.add_message(Message.notice("from a tool"))
    async with state.edit_extra_data() as data:
        data["n"] = data.get("n", 0) + 1
    return "talked"


CALLS: list[str] = []
TOOLS = [add, fail, crash, wait, talk]


def agent_of(*script: Any, **settings: Any) -> Agent:
    model = settings.pop("model", None) or FakeModel(script, context_window=settings.pop("context_window", None))
    return Agent(**{"model": model, "tools": TOOLS, **settings})


def loaded(state: State) -> State:
    """The same from its bytes, as a store gives it."""
    return State(id=state.id, history=decode_history([encode_entry(entry) for entry in state.history]))


async def again(state: State, agent: Agent, **options: Any) -> Replay:
    """Replay *state*, live and saved, with an Agent in which nothing may be called."""
    model = Refuses()
    model.context_window = agent.model.context_window
    agent = agent.copy(model=model, reporter=Refuses(), human=None if agent.human is None else Refuses(), store=REFUSES)
    before, calls, entries = state.snapshot(), list(CALLS), len(state.history)
    replays = [await replay_run(each, agent, **options) for each in (state, loaded(state))]
    assert (state.snapshot(), CALLS, len(state.history)) == (before, calls, entries)
    assert str(replays[0]) == str(replays[1])
    return replays[1]


class RefusingStore(MemoryStore):
    async def append(self, *_: Any) -> None:
        raise AssertionError("a store was written")


REFUSES = RefusingStore()


async def assert_same(state: State, agent: Agent, **options: Any) -> Replay:
    replay = await again(state, agent, **options)
    assert not replay.differs, str(replay)
    assert replay.entries == len(state.history)
    return replay


# ---- What is the same


async def test_a_run_with_every_outcome_of_a_call_is_the_same():
    calls = [tool_call("add", a=1, b=2), tool_call("fail", text="no"), tool_call("nix"), tool_call("add", a="?")]
    agent = agent_of([*calls, tool_call("talk")], "It is 3.", system="You add.")
    state = State(messages=[Message.user("hi")], extra_data={"n": 0})
    await agent.run(state)

    replay = await assert_same(state, agent)

    assert replay.runs == 1
    assert [entry.kind for entry in replay.given] == ["notice", "extra_data"]
    assert "put in, as it came from beside the run" in str(replay)


async def test_several_runs_with_messages_between_are_the_same():
    agent = agent_of("a", [tool_call("add", a=1, b=1)], "b", "c")
    state = State(messages=[Message.user("1")])
    for text in ("2", "3"):
        await agent.run(state)
        state.add_message(Message.user(text))
    await agent.run(state)

    assert (await assert_same(state, agent)).runs == 3


async def test_runs_of_agents_of_another_name_are_taken_as_they_were():
    one, two = agent_of("a", "c", name="one"), agent_of("b", name="two", system="Another.")
    state = State(messages=[Message.user("1")])
    for agent in (one, two, one):
        await agent.run(state)
        state.add_message(Message.user("go on"))

    assert (await assert_same(state, one)).runs == 2
    assert (await assert_same(state, two)).runs == 1
    with pytest.raises(ValueError, match=r"named 'three'.*'one', 'two'"):
        await replay_run(state, two.copy(name="three"))


@pytest.mark.parametrize(
    "error", [RateLimitError("slow down", status=429, provider="here"), ValueError("?"), KeyError("a"), OSError(2, "b")]
)
async def test_a_model_that_failed_fails_again(error: Exception):
    agent = agent_of(error, "after all")
    state = State(messages=[Message.user("hi")])
    with pytest.raises(type(error)):
        await agent.run(state)
    await agent.run(state)

    assert (await assert_same(state, agent)).runs == 2


class OddError(Exception):
    def __init__(self, a: int, *, b: int) -> None:
        super().__init__(f"{a} and {b}")


async def test_a_loop_that_catches_an_error_catches_it_again():
    """By its class: one of the library's, and one of the user's that takes arguments of its own."""

    @loop(until=waiting_for_user, limit=5)
    async def patient(agent: Agent, state: State) -> None:
        try:
            await agent.think(state)
        except RateLimitError as error:
            state.add_message(Message.notice(f"limit: {error}"))
        except OddError as error:
            state.add_message(Message.notice(f"odd: {error}"))

    agent = agent_of(RateLimitError("slow"), OddError(1, b=2), "done", loop=patient)
    state = State(messages=[Message.user("hi")])
    await agent.run(state)

    assert not (await assert_same(state, agent)).given


async def test_a_tool_that_stopped_the_run_stops_it_again():
    agent = agent_of([tool_call("crash"), tool_call("wait"), tool_call("add", a=1, b=1)], "after all")
    state = State(messages=[Message.user("hi")])
    with pytest.raises(KeyError):
        await agent.run(state)
    await agent.run(state)

    assert (await assert_same(state, agent)).runs == 2


async def test_a_loop_may_catch_what_a_tool_raised():
    @loop(until=waiting_for_user, limit=5)
    async def stubborn(agent: Agent, state: State) -> None:
        await agent.think(state)
        try:
            await agent.use_tools(state)
        except KeyError:
            await agent.use_tools(state)

    tries = iter([KeyError("x")])

    @tool
    async def flaky() -> str:
        """Fail once."""
        for error in tries:
            raise error
        return "ok"

    agent = agent_of([tool_call("flaky"), tool_call("add", a=1, b=1)], "b", tools=[add, flaky], loop=stubborn)
    state = State(messages=[Message.user("hi")])
    await agent.run(state)

    await assert_same(state, agent)


@pytest.mark.parametrize("name", ["wait", "sleep", "both"])
async def test_a_run_cancelled_in_a_tool_is_cancelled_again(name: str, autojump_clock: Any):
    @tool
    def sleep() -> None:
        """Sleep in a thread."""
        trio.from_thread.run(trio.sleep, 5)

    calls = {"wait": [tool_call("wait")], "sleep": [tool_call("sleep")]}
    agent = agent_of(
        [*calls.get(name, [tool_call("sleep"), tool_call("wait")]), tool_call("add", a=1, b=1)],
        "b",
        tools=[*TOOLS, sleep],
    )
    state = State(messages=[Message.user("hi")])
    with trio.move_on_after(1):
        await agent.run(state)
    assert {"add": "done"}.items() <= {e.call.name: e.outcome for e in state.history if e.kind == "tool_result"}.items()
    await trio.sleep(10)
    await agent.run(state)

    assert (await assert_same(state, agent)).runs == 2


async def test_a_run_cancelled_in_a_request_is_cancelled_again(autojump_clock: Any):
    agent = agent_of(model=FakeModel(["a", "b"], delay=5))
    state = State(messages=[Message.user("hi")])
    with trio.move_on_after(1):
        await agent.run(state)
    await agent.run(state)

    assert (await assert_same(state, agent)).runs == 2


async def test_a_run_cancelled_in_its_loop_is_cancelled_again(autojump_clock: Any):
    @loop(until=waiting_for_user, limit=5)
    async def slow(agent: Agent, state: State) -> None:
        await trio.sleep(60)
        await agent.think(state)

    agent = agent_of("a", loop=slow)
    state = State(messages=[Message.user("hi")])
    with trio.move_on_after(1):
        await agent.run(state)
    await agent.run(state)

    assert (await assert_same(state, agent)).runs == 2


async def test_a_deadline_of_the_loops_own_passes_again(autojump_clock: Any):
    @loop(until=waiting_for_user, limit=5)
    async def hasty(agent: Agent, state: State) -> None:
        with trio.move_on_after(1):
            await agent.think(state)

    agent = agent_of(model=FakeModel(lambda request: "a"), loop=hasty)
    agent.model.delay = 5  # type: ignore[attr-defined]
    state = State(messages=[Message.user("hi")])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.run, state)
        await trio.sleep(3)
        agent.model.delay = 0  # type: ignore[attr-defined]

    assert [entry.kind for entry in state.history].count("error") > 1
    await assert_same(state, agent)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("where", ["model", "tool"])
async def test_ctrl_c_comes_again_and_goes_no_further(kind: type[BaseException], where: str):
    @tool
    async def stop() -> None:
        """Be interrupted."""
        raise kind

    script = [kind(), "b"] if where == "model" else [[tool_call("stop"), tool_call("wait")], "b"]
    agent = agent_of(*script, tools=[*TOOLS, stop])
    state = State(messages=[Message.user("hi")])
    with pytest.raises(kind):
        await agent.run(state)
    await agent.run(state)

    assert (await assert_same(state, agent)).runs == 2


async def test_messages_and_edits_that_came_while_the_model_and_a_tool_were_waited_for_are_put_in():
    state = State(messages=[Message.user("hi")])

    def meanwhile(request: Any) -> Any:
        state.add_message(Message.user("quick"))
        with state.edit_extra_data() as data:
            data["seen"] = 1
        return tool_call("add", a=1, b=1)

    agent = agent_of(meanwhile, [tool_call("talk"), tool_call("add", a=2, b=2)], "c")
    await agent.run(state)

    replay = await assert_same(state, agent)

    assert [entry.kind for entry in replay.given] == ["user", "extra_data", "notice", "extra_data"]


async def test_a_message_that_came_right_after_the_answer_makes_the_run_go_on_again():
    """Nothing waits there, so whether it came before or after the stop rule was asked is found out by trying."""
    state = State(messages=[Message.user("hi")])

    class Late(Reporter):
        def on_reply(self, state: State, reply: Reply) -> None:
            if reply.text in ("a", "b"):
                state.add_message(Message.user(f"after {reply.text}"))

    agent = agent_of("a", "b", "c", reporter=Late())
    await agent.run(state)
    assert state.turn == 3

    assert len((await assert_same(state, agent)).given) == 2


async def test_what_the_loop_adds_itself_is_not_put_in():
    @loop(until=waiting_for_user, limit=5)
    async def checks(agent: Agent, state: State) -> None:
        await agent.think(state)
        if not state.extra_data.get("checked"):
            state.add_message(Message.notice("Check it."))
            with state.edit_extra_data() as data:
                data["checked"] = True

    agent = agent_of("a", "b", loop=checks)
    state = State(messages=[Message.user("hi")])
    await agent.run(state)

    assert not (await assert_same(state, agent)).given


async def test_a_loop_that_waits_for_the_next_message_gets_it():
    async def chat(agent: Agent, state: State) -> None:
        async with state.watch(after=len(state.history)) as entries:
            while not state.finished:
                if waiting_for_user(state):
                    await anext(entries)
                else:
                    await agent.think(state)

    agent = agent_of("a", "b", loop=chat)
    state = State(messages=[Message.user("1")])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.run, state)
        await trio.testing.wait_all_tasks_blocked()
        state.add_message(Message.user("2"))
        await trio.testing.wait_all_tasks_blocked()
        state.finish("bye")

    replay = await assert_same(state, agent)

    assert [entry.kind for entry in replay.given] == ["user", "stop"]


async def test_a_loop_that_sleeps_before_it_adds_a_message_adds_it_again(autojump_clock: Any):
    @loop(until=waiting_for_user, limit=5)
    async def sleepy(agent: Agent, state: State) -> None:
        await agent.think(state)
        if state.turn == 1:
            await trio.sleep(60)
            state.add_message(Message.notice("a minute has passed"))

    agent = agent_of("a", "b", loop=sleepy)
    state = State(messages=[Message.user("hi")])
    await agent.run(state)

    assert not (await assert_same(state, agent)).given


async def test_side_questions_and_their_failures_are_answered_from_the_record():
    @attrs.frozen
    class Plan:
        steps: list[str]
        done: bool = False

    @loop(until=waiting_for_user, limit=5)
    async def asks(agent: Agent, state: State) -> None:
        assert (await agent.ask(state, "Which?")) == "this"
        assert (await agent.ask(state, "Plan?", Plan)) == Plan(["a", "b"])
        assert (await agent.ask(state, "Sure?", bool)) is True
        assert (await agent.ask(state, "Which one?", Literal["1", "2"])) == "2"
        assert (await agent.ask(state, "How many?", list[int])) == [1, 2]
        with pytest.raises(RateLimitError):
            await agent.ask(state, "Really?")
        await agent.think(state)

    script = ["this", '{"steps": ["a", "b"]}', "no JSON", '{"answer": true}', '{"answer": "2"}', '{"answer": [1, 2]}']
    agent = agent_of(*script, RateLimitError("slow"), "done", loop=asks)
    state = State(messages=[Message.user("hi")])
    await agent.run(state)

    await assert_same(state, agent)


async def test_questions_asked_at_the_same_time_get_their_own_answers():
    @loop(until=waiting_for_user, limit=5)
    async def asks(agent: Agent, state: State) -> None:
        answers: dict[str, str] = {}

        async def one(text: str) -> None:
            answers[text] = await agent.ask(state, text)

        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(one, f"question {number}")
        state.add_message(Message.notice(json.dumps(answers, sort_keys=True)))
        await agent.think(state)

    agent = agent_of(model=FakeModel(lambda request: request.messages[-1].text[::-1]), loop=asks)
    state = State(messages=[Message.user("hi")])
    await agent.run(state)

    for _ in range(5):  # trio's order of tasks is random
        await assert_same(state, agent)


async def test_compaction_by_the_model_and_by_code_is_the_same():
    @loop(until=waiting_for_user, limit=9)
    async def compacts(agent: Agent, state: State) -> None:
        await CompactIfFull(at=0.5)(agent, state)
        await agent.think(state)
        await agent.use_tools(state)
        state.clear_tool_results(keep_last=0)
        if state.turn == 5:
            state.compact("what was")

    calls = iter([[tool_call("add", a=number, b=1)] for number in range(5)])

    def answer(request: Any) -> Any:
        return "the summary" if request.messages[-1].text.startswith("Write a summary") else next(calls, "done")

    agent = agent_of(model=FakeModel(answer, context_window=20), loop=compacts)
    state = State(messages=[Message.user("hi")])
    await agent.run(state)
    changes = [entry.content for entry in state.history if entry.kind == "context_change"]
    assert {(change.kind, change.summary) for change in changes} >= {
        ("compact", "the summary"),
        ("compact", "what was"),
    }
    assert "clear_tool_results" in [change.kind for change in changes]

    replay = await assert_same(state, agent)

    assert not replay.given


async def test_people_are_not_asked_again():
    class Asks(DecidePermission):
        async def check(self, state: State, call: Any, tool: Any) -> Any:
            return Allowed() if call.name == "talk" else None

    @loop(until=waiting_for_user, limit=5)
    async def asks(agent: Agent, state: State) -> None:
        if state.turn == 0:
            assert await agent.ask_human(state, "How many?", int) == 3
            with pytest.raises(ValueError, match="blank"):
                await agent.ask_human(state, " ")
        await agent.think(state)
        await agent.use_tools(state)

    human = FakeHuman([3, "yes", "no", "always"])
    permissions = [Asks(), DenyByName("crash", reason="never"), DecideByHuman()]
    calls = [tool_call("add", a=1, b=n) for n in range(4)]
    agent = agent_of(
        [*calls, tool_call("talk"), tool_call("crash")], "b", loop=asks, human=human, permissions=permissions
    )
    state = State(messages=[Message.user("hi")])
    await agent.run(state)
    assert human.remaining == 0

    await assert_same(state, agent)
    asker = agent.copy(permissions=[Asks(), DenyByName("crash", reason="never"), DecideByHuman(human)])
    await assert_same(state, asker)


@pytest.mark.parametrize("wait_for_it", [True, False])
async def test_an_inbox_is_not_asked_again(wait_for_it: bool):
    inbox = Inbox(wait=wait_for_it)
    call = tool_call("add", a=1, b=1)
    agent = agent_of([call], [attrs.evolve(call, id="again")], "done", human=inbox, permissions=[DecideByHuman()])
    state = State(messages=[Message.user("hi")])
    if wait_for_it:
        agent = agent_of([call], "done", human=inbox, permissions=[DecideByHuman()])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.run, state)
            await trio.testing.wait_all_tasks_blocked()
            inbox.answer(inbox.open[0].id, "yes")
    else:
        await agent.run(state)
        inbox.answer(inbox.open[0].id, "yes")
        await agent.run(state)
    assert state.answer == "done"

    await assert_same(state, agent)


async def test_a_refusal_that_stops_the_run_stops_it_again():
    class Stops(DecidePermission):
        def check(self, state: State, call: Any, tool: Any) -> Any:
            from alpineagents import Denied

            return Denied("enough", stop=True) if call.name == "fail" else Allowed()

    agent = agent_of(
        [tool_call("add", a=1, b=1), tool_call("fail", text="x"), tool_call("talk")], "b", permissions=[Stops()]
    )
    state = State(messages=[Message.user("hi")])
    await agent.run(state)
    await agent.run(state)

    assert (await assert_same(state, agent)).runs == 2


@pytest.mark.parametrize("budget", [Budget(requests=3), Budget(tokens=50), Budget(seconds=2), Budget(cost="0.01")])
async def test_a_budget_stops_it_at_the_same_place(budget: Budget, autojump_clock: Any):
    replies = [
        Reply((tool_call("add", a=1, b=1),), usage=Usage(10, 10, requests=1, cost="0.004")) for number in range(9)
    ]
    model = FakeModel(replies, delay=1)
    agent = agent_of(model=model, budget=budget)
    state = State(messages=[Message.user("hi")])
    await agent.run(state)
    assert model.remaining

    replay = await assert_same(state, agent)

    assert not replay.differs


async def test_what_subagents_used_counts_for_the_budget_again():
    child = agent_of(*["x"] * 9, name="child", description="Does a part.")
    calls = [[tool_call("child", prompt="do"), tool_call("child", prompt="do")] for _ in range(5)]
    agent = agent_of(*calls, tools=[child], budget=Budget(requests=7))
    state = State(messages=[Message.user("hi")])
    await agent.run(state)
    assert state.stopped.what == "requests"  # type: ignore[union-attr]

    await assert_same(state, agent)


async def test_subagents_do_not_run_and_can_be_replayed_by_themselves():
    child = agent_of([tool_call("add", a=1, b=1)], "part", name="child", description="Does a part.")
    agent = agent_of([tool_call("child", prompt="do"), tool_call("add", a=1, b=1)], "whole", tools=[child, add])
    state = State(messages=[Message.user("hi")])
    await agent.run(state)
    [child_id] = [child_id for e in state.history if e.kind == "tool_result" for child_id in e.child_ids]

    await assert_same(state, agent)
    assert (await assert_same(state.child(child_id), child)).entries == len(state.child(child_id).history)


async def test_late_results_and_what_the_model_is_told_of_them_are_the_same():
    began, done = trio.Event(), threading.Event()

    @tool
    def slow() -> str:
        """Go on in its thread when nobody waits any more."""
        trio.from_thread.run_sync(began.set)
        assert done.wait(60)
        return "after all"

    agent = agent_of([tool_call("slow")], "b", tools=[slow])
    state = State(messages=[Message.user("hi")])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.run, state)
        await began.wait()
        nursery.cancel_scope.cancel()
    async with state.watch(after=len(state.history)) as entries:
        done.set()
        assert (await anext(entries)).kind == "tool_result"
    await agent.run(state)
    assert [entry.kind for entry in state.history].count("notice") == 1

    replay = await assert_same(state, agent)

    assert replay.runs == 2


async def test_events_of_the_model_are_the_same():
    class Retries(FakeModel.__base__):  # type: ignore[misc]  # Model
        name = "fake/fake"

        async def respond(self, request: Any, emit: Any) -> Reply:
            await trio.lowlevel.checkpoint()
            emit(ModelEvent("retry", "again"))
            return Reply((TextBlock("a"),), "m", usage=Usage(1, 1, requests=2))

    agent = agent_of(model=Retries(), budget=Budget(requests=5))
    state = State(messages=[Message.user("hi")])
    await agent.run(state)
    assert [entry.kind for entry in state.history][3] == "model_event"

    await assert_same(state, agent)


async def test_nested_loops_and_two_agents_on_one_state_are_the_same():
    planner = agent_of("plan", "plan 2", name="planner", tools=[])

    @loop(until=waiting_for_user, limit=1)
    async def work(agent: Agent, state: State) -> None:
        await agent.think(state, tools=["add"])
        await agent.use_tools(state)

    @loop(until=lambda_free_done, limit=2)
    async def outer(agent: Agent, state: State) -> None:
        await planner.think(state)
        state.add_message(Message.notice("Do it."))
        await work(agent, state)

    agent = agent_of([tool_call("add", a=1, b=1)], [tool_call("add", a=2, b=1)], loop=outer)
    state = State(messages=[Message.user("hi")])
    await agent.run(state)
    planner.model.requests.clear()  # type: ignore[attr-defined]

    replay = await assert_same(state, agent)

    assert not replay.given
    assert not planner.model.requests  # type: ignore[attr-defined]


def lambda_free_done(state: State) -> bool:
    return False


async def test_restore_forward_and_back_and_a_fork_are_the_same():
    agent = agent_of("a", "b", "c", "d")
    state = State(messages=[Message.user("1")])
    first = state.snapshot()
    await agent.run(state)
    second = state.snapshot()
    state.restore(first)
    await agent.run(state)
    state.restore(second)
    state.add_message(Message.user("2"))
    await agent.run(state)
    fork = state.fork()
    fork.add_message(Message.user("3"))
    await agent.run(fork)

    assert (await assert_same(state, agent)).runs == 3
    assert (await assert_same(fork, agent)).runs == 4


async def test_a_loop_may_go_back():
    @loop(until=waiting_for_user, limit=5)
    async def retries(agent: Agent, state: State) -> None:
        before = state.snapshot()
        reply = await agent.think(state)
        if reply.text == "bad":
            state.restore(before)

    agent = agent_of("bad", "bad", "good", loop=retries)
    state = State(messages=[Message.user("hi")])
    await agent.run(state)

    assert not (await assert_same(state, agent)).given


async def test_finish_by_a_tool_ends_the_run_again():
    @tool
    async def submit(answer: str, state: State) -> None:
        """Finish."""
        state.finish({"answer": answer})

    agent = agent_of([tool_call("submit", answer="42"), tool_call("add", a=1, b=1)], "never", tools=[submit, add])
    state = State(messages=[Message.user("hi")])
    await agent.run(state)

    await assert_same(state, agent)


async def test_actions_outside_of_runs_are_taken_as_they_were():
    agent = agent_of("a", [tool_call("add", a=1, b=1)], "b", '{"answer": 1}', "c")
    state = State(messages=[Message.user("1")])
    await agent.run(state)
    state.add_message(Message.user("2"))
    await agent.think(state)
    await agent.use_tools(state)
    await agent.think(state)
    await agent.ask(state, "n?", int)
    state.add_message(Message.user("3"))
    await agent.run(state)

    assert (await assert_same(state, agent)).runs == 2


async def crashed(state: State, at: int) -> State:
    """The State as a store loads it whose process died after so many entries."""
    store = MemoryStore()
    await store.save(State(id=state.id, history=state.history[:at]))
    return await store.load(state.id)


@pytest.mark.parametrize("at", range(2, 10))
async def test_a_run_whose_process_died_is_the_same_up_to_there(at: int):
    agent = agent_of([tool_call("add", a=1, b=1), tool_call("talk")], "b", "c", "d")
    whole = State(messages=[Message.user("hi")])
    await agent.run(whole)
    state = await crashed(whole, at)

    assert (await again(state, agent)).runs == 1
    assert not (await again(state, agent)).differs, str(await again(state, agent))
    await agent.copy(model=FakeModel([["c"], "d"])).run(state)
    replay = await again(state, agent)
    assert not replay.differs, str(replay)
    assert replay.runs == 2


@pytest.mark.parametrize("at", range(2, 10))
async def test_a_history_that_ends_in_the_middle_is_the_same_up_to_there(at: int):
    agent = agent_of([tool_call("add", a=1, b=1), tool_call("talk")], "b", "c", "d")
    whole = State(messages=[Message.user("hi")])
    await agent.run(whole)

    await assert_same(State(history=whole.history[:at]), agent)


async def test_a_long_history_takes_no_time():
    """Turn for turn: nothing in it is looked at again and again."""
    calls = [[tool_call("add", a=n, b=1) for n in range(3)] for _ in range(200)]
    agent = agent_of(*calls, "done")
    agent = agent.copy(loop=agent.loop.copy(limit=500))  # type: ignore[attr-defined]
    state = State(messages=[Message.user("hi")])
    await agent.run(state)

    await assert_same(state, agent)


# ---- What differs


def other(**changes: Any) -> Callable[[Agent], Agent]:
    return lambda agent: agent.copy(**changes)


@tool(name="add")
async def add_more(a: int, c: int) -> int:
    """Add, with another parameter."""
    return 0


@tool(name="add", max_result_bytes=100)
async def add_less(a: int, b: int) -> int:
    """Add, with shorter results."""
    return 0


@tool
async def new() -> None:
    """Is new."""


@loop(until=waiting_for_user, limit=9)
async def says_more(agent: Agent, state: State) -> None:
    if state.turn == 1:
        state.add_message(Message.notice("Go on."))
    await agent.think(state)
    await agent.use_tools(state)


@loop(until=waiting_for_user, limit=9)
async def fails(agent: Agent, state: State) -> None:
    await agent.think(state)
    raise ZeroDivisionError("by hand")


@loop(until=waiting_for_user, limit=9)
async def asks_first(agent: Agent, state: State) -> None:
    await agent.ask(state, "Is that so?")
    await agent.think(state)
    await agent.use_tools(state)


async def only_thinks(agent: Agent, state: State) -> None:
    await agent.think(state)


async def thinks_once(agent: Agent, state: State) -> None:
    await agent.think(state)
    await agent.use_tools(state)


@loop(until=waiting_for_user, limit=9)
async def shows_less(agent: Agent, state: State) -> None:
    await agent.think(state, tools=["add"])
    await agent.use_tools(state)


DIFFERENCES = {
    "system": (other(system="You subtract."), 2, "the system prompt of every request", ["-  system", "+  system"]),
    "no system": (other(system=None), 2, "the system prompt of every request", ["+  system: none"]),
    "new tool": (other(tools=[*TOOLS, new]), 2, "the tools of every request", ["+  tool new"]),
    "gone tool": (other(tools=[fail, talk]), 2, "the tools of every request", ["-  tool add"]),
    "arguments": (
        other(tools=[add_more, *TOOLS[1:]]), 5, "the arguments of add",
        ["-tool_result add: done", "+tool_result add: input_error", "+  - c: missing, expected integer"],
    ),
    "limit": (lambda a: a.copy(loop=a.loop.copy(limit=1)), 6, "then model_request, now stop", ["+stop: limit of 1"]),
    "message": (other(loop=says_more), 6, "then model_request, now notice", ["+notice:", "+  [notice] Go on."]),
    "error": (other(loop=fails), 5, "an exception is raised: ZeroDivisionError: by hand", ["+error in run:"]),
    "question": (other(loop=asks_first), 3, "the model is asked:", ["+Is that so?"]),
    "no tools": (other(loop=only_thinks), 5, "the result of add", ["+  (aborted: the run ended before"]),
    "one turn": (other(loop=thinks_once), 6, "the run ends here, and went on then", ["+the run ends"]),
    "shown": (other(loop=shows_less), 3, "the tools that a request shows", ["-  tools: all", "+  tools: add"]),
    "denied": (other(permissions=[DenyByName("fail", reason="never"), AllowByDefault()]), 8, "the result of fail",
               ["-tool_result fail: error", "+tool_result fail: denied", "+  never"]),
    "nobody": (other(permissions=[DecideByHuman()], human=None), 2, "no run starts: NoHumanError", []),
}  # fmt: skip


@pytest.mark.parametrize("case", DIFFERENCES)
async def test_a_difference_is_told_where_it_is(case: str):
    change, seq, what, lines = DIFFERENCES[case]
    agent = agent_of([tool_call("add", a=1, b=2)], [tool_call("fail", text="no")], "b", system="You add.")
    state = State(messages=[Message.user("hi")], extra_data={"n": 1})
    await agent.run(state)

    replay = await again(state, change(agent))

    assert replay.differs
    assert replay.difference is not None
    assert (replay.difference.seq, what in replay.difference.what) == (seq, True), str(replay)
    for line in lines:
        assert any(each.startswith(line) for each in str(replay).splitlines()), str(replay)
    assert str(replay).startswith(f"State {state.id} differs at entry {seq} (turn ")


async def test_a_changed_system_prompt_or_new_tools_can_be_looked_past():
    agent = agent_of([tool_call("add", a=1, b=2), tool_call("nix")], "b", system="You add.")
    state = State(messages=[Message.user("hi")])
    await agent.run(state)
    changed = agent.copy(system="You add well.", tools=[*TOOLS, new])

    assert not (await again(state, changed, ignore={"system", "tools"})).differs
    assert (await again(state, changed, ignore=["system"])).difference.what == "the tools of every request"  # type: ignore[union-attr]
    gone = await again(state, changed.copy(tools=[new]), ignore={"system", "tools"})
    assert gone.difference is not None
    assert gone.difference.what == "the arguments of add"
    assert "There is no tool 'add'" in str(gone)


async def test_a_call_that_is_allowed_now_and_was_not_then_is_a_difference():
    agent = agent_of([tool_call("add", a=1, b=2)], "b", permissions=[DenyByName("add", reason="no")])
    state = State(messages=[Message.user("hi")])
    await agent.run(state)

    replay = await again(state, agent.copy(permissions=[AllowByName("add")]))

    assert replay.difference is not None
    assert replay.difference.what == "add is called, and wasn't then"


async def test_a_message_with_other_words_is_shown_beside_that_of_then():
    def saying(text: str) -> Any:
        @loop(until=waiting_for_user, limit=5)
        async def checks(agent: Agent, state: State) -> None:
            await agent.think(state)
            if state.turn == 1:
                state.add_message(Message.notice(text))

        return checks

    agent = agent_of("a", "b", loop=saying("Check it."))
    state = State(messages=[Message.user("hi")])
    await agent.run(state)

    replay = await again(state, agent.copy(loop=saying("Check it well.")))

    assert replay.difference is not None
    assert replay.difference.what == "a message"
    assert "-  [notice] Check it.\n+  [notice] Check it well." in replay.difference.diff


async def test_an_answer_that_is_no_longer_of_its_type_is_a_difference():
    def asking(kind: Any) -> Any:
        @loop(until=waiting_for_user, limit=5)
        async def asks(agent: Agent, state: State) -> None:
            await agent.ask(state, "How many?", kind)
            await agent.think(state)

        return asks

    agent = agent_of('{"answer": 3}', "b", loop=asking(int))
    state = State(messages=[Message.user("hi")])
    await agent.run(state)

    replay = await again(state, agent.copy(loop=asking(list[str])))

    assert replay.difference is not None
    assert "the recorded answer is refused" in replay.difference.what


async def test_an_error_of_todays_code_is_there_to_be_looked_at():
    agent = agent_of("a", loop=fails)
    state = State(messages=[Message.user("hi")])
    await agent_of("a").run(state)

    replay = await again(state, agent)

    assert replay.difference is not None
    assert isinstance(replay.difference.error, ZeroDivisionError)


async def test_the_order_of_calls_that_ended_at_once_is_no_difference():
    """Since then, one tool was made to run alone: the results that the model gets are the same."""
    agent = agent_of([tool_call("add", a=1, b=2), tool_call("fail", text="x"), tool_call("talk")], "b")

    @tool(name="add", parallel=False)
    async def alone(a: int, b: int) -> int:
        """Add."""
        return 0

    state = State(messages=[Message.user("hi")])
    await agent.run(state)

    assert not (await again(state, agent.copy(tools=[alone, *TOOLS[1:]]))).differs
    assert not (await again(state, agent.copy(max_parallel_tools=1))).differs


# ---- What can't be replayed


async def test_what_is_no_state_no_agent_or_not_to_be_ignored_is_refused():
    agent = agent_of("a")
    state = State(messages=[Message.user("hi")])
    with pytest.raises(ValueError, match=r"no run of an Agent named None.*nobody"):
        await replay_run(state, agent)
    await agent.run(state)
    with pytest.raises(TypeError, match="takes a State, not str"):
        await replay_run("hi", agent)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes an Agent, not FakeModel"):
        await replay_run(state, agent.model)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="ignore takes 'system' and 'tools', not 'model'"):
        await replay_run(state, agent, ignore=["model"])  # type: ignore[list-item]


async def test_a_state_that_runs_is_refused():
    agent = agent_of([tool_call("wait")])
    state = State(messages=[Message.user("hi")])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.run, state)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(ValueError, match="is in a run"):
            await replay_run(state, agent)
        nursery.cancel_scope.cancel()


async def test_a_replay_can_be_cancelled():
    stuck = trio.Event()

    async def waits(agent: Agent, state: State) -> None:
        stuck.set()
        await trio.sleep_forever()

    agent = agent_of("a")
    state = State(messages=[Message.user("hi")])
    await agent.run(state)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(replay_run, state, agent.copy(loop=waits))
            await stuck.wait()
            nursery.cancel_scope.cancel()

    assert not scope.cancelled_caught


async def test_a_model_that_is_asked_about_another_state_is_not_reached_and_a_fake_is_asked():
    def asking(other: Agent) -> Any:
        @loop(until=waiting_for_user, limit=5)
        async def reviewed(agent: Agent, state: State) -> None:
            await agent.think(state)
            if state.turn == 1:
                state.add_message(Message.notice(str(await other.run("Is that so?"))))

        return reviewed

    async with ProviderServer(["Yes."]) as server:
        real = Agent(model=OpenAICompatible("any", base_url=server.base_url))
        agent = agent_of("a", "b", loop=asking(real))
        state = State(messages=[Message.user("hi")])
        await agent.run(state)
        assert len(server.requests) == 1

        replay = await again(state, agent)

        assert len(server.requests) == 1
        assert replay.difference is not None
        assert isinstance(replay.difference.error, RuntimeError)
        assert "about another State than the one that is replayed; give that Agent a FakeModel" in str(replay)
    fake = Agent(model=FakeModel(lambda request: "Yes."))
    assert not (await again(state, agent.copy(loop=asking(fake)))).differs


async def test_replays_inside_a_tool_call_are_no_subagents():
    inner = agent_of([tool_call("add", a=1, b=1)], "b")
    replayed = State(messages=[Message.user("hi")])
    await inner.run(replayed)
    found: list[Replay] = []

    @tool
    async def check() -> str:
        """Replay."""
        found.append(await replay_run(replayed, inner))
        return "checked"

    state = State(messages=[Message.user("hi")])
    await agent_of([tool_call("check")], "done", tools=[check]).run(state)

    assert [replay.differs for replay in found] == [False]
    assert all(not entry.child_ids for entry in state.history if entry.kind == "tool_result")


async def test_ctrl_c_during_a_replay_comes_out_of_it():
    async def interrupted(agent: Agent, state: State) -> None:
        raise KeyboardInterrupt

    agent = agent_of("a")
    state = State(messages=[Message.user("hi")])
    await agent.run(state)

    with pytest.raises(KeyboardInterrupt):
        await replay_run(state, agent.copy(loop=interrupted))


async def test_replays_at_the_same_time_do_not_meet():
    agent = agent_of(model=FakeModel(lambda request: request.messages[-1].text[::-1]))
    states = [State(messages=[Message.user(f"hi {n}")]) for n in range(20)]
    for state in states:
        await agent.run(state)
    found: list[Replay] = []

    async def one(state: State) -> None:
        found.append(await replay_run(state, agent))

    async with trio.open_nursery() as nursery:
        for state in states:
            nursery.start_soon(one, state)

    assert [replay.differs for replay in found] == [False] * 20

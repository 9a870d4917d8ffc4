"""Agents as tools: what they are given, what they inherit, and what the model above is told however they end."""

from __future__ import annotations

import contextvars
import threading

import pytest
import trio
import trio.testing

from alpineagents import (
    Agent,
    AllowByDefault,
    AllowByName,
    DecideByHuman,
    Denied,
    DenyByName,
    DenyPermission,
    MemoryStore,
    Message,
    NoHumanError,
    Reporter,
    RunningElsewhereError,
    State,
    StoppedByLimit,
    StoppedByPermission,
    StoreError,
    ToolInputError,
    loop,
    tool,
    waiting_for_user,
)
from alpineagents.testing import FakeHuman, FakeModel, tool_call

from ..run.runs import assert_whole, errors, tasks
from ..states import assert_replays
from .trees import asked, child_of, closed, helper, lead, results, said, told


@tool
async def noop() -> None:
    """Do nothing."""


def never(state: State) -> bool:
    return False


# What it is


def test_an_agent_in_tools_is_a_tool_with_one_parameter():
    agent = Agent(model=FakeModel(), tools=[helper("x"), noop])

    subagent = agent.tool_map["helper"]
    assert (subagent.name, subagent.description) == ("helper", "The helper.")
    assert list(subagent.input_schema["properties"]) == ["prompt"]
    assert subagent.input_schema["required"] == ["prompt"]
    assert subagent.input_schema["properties"]["prompt"]["type"] == "string"
    assert repr(subagent) == "<subagent helper>"
    assert list(agent.copy(system="other").tool_map) == ["helper", "noop"]


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ({}, "name"),
        ({"name": "x"}, "description"),
        ({"description": "x"}, "name"),
        ({"name": "x", "description": " "}, "description"),
    ],
)
def test_an_agent_without_name_or_description_is_no_tool(settings, missing):
    with pytest.raises(ValueError, match=rf"needs a {missing}.*Agent\(\.\.\., name="):
        Agent(model=FakeModel(), tools=[Agent(model=FakeModel(), **settings)])


def test_a_name_that_providers_refuse_is_refused():
    with pytest.raises(ValueError, match=r"tool name 'my helper' is none that providers take: .* Agent\(\.\.\., name="):
        Agent(model=FakeModel(), tools=[helper("x", name="my helper")])


def test_two_agents_of_one_name_are_refused_and_how_to_name_one_is_told():
    with pytest.raises(ValueError, match=r"two tools are called 'helper'; .*: agent\.copy\(name='\.\.\.'\)"):
        Agent(model=FakeModel(), tools=[helper("x"), helper("y")])


async def test_its_state_has_its_own_id_and_history_and_knows_its_parent():
    state = asked()
    await lead(helper("part done")).run(state)

    child = child_of(state)
    assert told(state) == [("done", "part done")]
    assert child.id != state.id
    assert [message.text for message in child.messages] == ["part 0", "part done"]
    assert (child.parent_id, child.parent_call_id) == (state.id, closed(state)[0].call.id)
    for each in (state, child):
        assert_replays(each)


async def test_every_call_has_a_new_state():
    state = asked()
    agent = helper(lambda request: f"{request.messages[0].text} of {len(request.messages)}")
    await lead(agent, calls=3).run(state)

    assert sorted(text for _, text in told(state)) == ["part 0 of 1", "part 1 of 1", "part 2 of 1"]
    assert len({entry.child_ids for entry in closed(state)}) == 3


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({}, "prompt"),
        ({"prompt": "  "}, "prompt is blank"),
        ({"prompt": ["a"]}, "prompt"),
        ({"prompt": "a", "task": "b"}, "task"),
    ],
)
async def test_what_the_model_got_wrong_is_an_input_error_and_nothing_starts(args, problem):
    state = asked()
    agent = helper()
    await Agent(model=FakeModel([tool_call("helper", **args), "ok"]), tools=[agent]).run(state)

    [(outcome, text)] = told(state)
    assert outcome == "input_error"
    assert problem in text
    assert closed(state)[0].child_ids == ()


async def test_grandchildren_belong_to_their_parent_and_usage_counts_once_on_each_level():
    state = asked()
    inner = helper(said("detail", 7), name="inner")
    middle = Agent(
        model=FakeModel([tool_call("inner", prompt="x"), said("part", 5)]),
        tools=[inner],
        name="middle",
        description="The middle.",
    )
    await lead(middle).run(state)

    child = child_of(state)
    grandchild = child_of(child)
    assert (grandchild.parent_id, child.parent_id, state.parent_id) == (child.id, state.id, None)
    assert grandchild.usage.input_tokens == 7
    assert child.usage.input_tokens == 10 + 5 + 7
    assert state.usage.input_tokens == 10 + 10 + child.usage.input_tokens
    assert state.usage.requests == 5


# How it ends


async def test_an_answer_that_is_no_text_goes_up_as_json():
    @tool
    async def report(state: State) -> None:
        """Report."""
        state.finish({"found": [1, 2]})

    state = asked()
    await lead(helper(tool_call("report"), tools=[report])).run(state)

    assert told(state) == [("done", '{"found":[1,2]}')]


async def test_a_limit_of_one_turn_reads_as_one():
    @loop(until=never, limit=1)
    async def body(agent, state):
        await agent.think(state)

    state = asked()
    await lead(helper("found", loop=body)).run(state)

    assert told(state) == [("done", "found\n\n(helper stopped at its limit of 1 turn, before it was done)")]


@pytest.mark.parametrize("answers", [True, False])
async def test_a_limit_is_told_with_the_answer_so_far(answers):
    @loop(until=never, limit=2)
    async def body(agent, state):
        await agent.think(state)
        await agent.use_tools(state)

    script = ["found a", "found b"] if answers else [["looking", tool_call("noop")], ["on", tool_call("noop")]]
    state = asked()
    await lead(helper(*script, tools=[noop], loop=body)).run(state)

    line = "(helper stopped at its limit of 2 turns, before it was done)"
    assert told(state) == [("done", f"found b\n\n{line}" if answers else line)]
    assert child_of(state).stopped == StoppedByLimit(2)


async def test_a_refusal_that_stops_it_is_told():
    class Stop(DenyPermission):
        def check(self, state, call, tool):
            return Denied("no", stop=True)

    child = helper(tool_call("noop"), tools=[noop], permissions=[Stop()])
    state = asked()
    await lead(child).run(state)

    assert told(state) == [("done", "(helper stopped: its call of noop was refused)")]
    assert isinstance(child_of(state).stopped, StoppedByPermission)


@pytest.mark.parametrize("error", [TimeoutError("took too long"), ValueError("bug"), StoreError("full")])
async def test_an_exception_is_an_error_result_and_its_siblings_go_on(error):
    async def answer(request):
        await trio.testing.wait_all_tasks_blocked()
        return error if request.messages[0].text == "part 1" else "well"

    state = asked()
    await lead(helper(answer), calls=3).run(state)

    assert sorted(told(state)) == [
        ("done", "well"),
        ("done", "well"),
        ("error", f"(helper failed: {type(error).__name__}: {error})"),
    ]
    [failed] = [entry for entry in closed(state) if entry.is_error]
    assert failed.error is not None
    assert failed.error.__cause__ is error
    child = state.child(failed.child_ids[0])
    assert errors(child) == [f"{type(error).__name__}: {error}"]
    assert errors(state) == []
    assert_whole(child)


async def test_a_mistake_found_before_it_starts_comes_out_of_the_run_above():
    child = helper("x", permissions=[DecideByHuman()])
    state = asked()
    with pytest.raises(NoHumanError):
        await lead(child).run(state)

    assert [outcome for outcome, _ in told(state)] == ["aborted"]
    assert closed(state)[0].child_ids == ()
    assert_whole(state)


@pytest.mark.parametrize("error", [StoreError("disk is gone"), RunningElsewhereError("held")])
async def test_a_store_that_fails_before_it_starts_is_no_mistake_of_the_caller(error):
    class Gone(MemoryStore):
        async def has(self, state_id):
            raise error

    state = asked()
    await lead(helper("x", store=Gone())).run(state)

    assert told(state) == [("error", f"(helper failed: {type(error).__name__}: {error})")]


async def test_cancelling_the_parent_ends_all_below_before_run_returns(autojump_clock):
    cleaned = []

    @tool
    async def slow() -> None:
        """Take time even to be cancelled."""
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(5)
            cleaned.append("slow")

    inner = helper(tool_call("slow"), tools=[slow], name="inner")
    middle = Agent(model=FakeModel([tool_call("inner", prompt="x")]), tools=[inner], name="middle", description="m")
    state = asked()
    before = tasks()
    with trio.move_on_after(10):
        await lead(middle).run(state)

    assert cleaned == ["slow"]
    assert tasks() == before
    child = child_of(state)
    for each in (state, child, child_of(child)):
        assert [str(entry.outcome) for entry in closed(each)] == ["interrupted"]
        assert not each.running
        assert_whole(each)


async def test_a_call_cancelled_by_its_sibling_ends_its_subagent_as_well():
    @tool
    async def bad(prompt: str) -> None:
        """Fail."""
        await trio.testing.wait_all_tasks_blocked()
        raise OSError("bug")

    state = asked()
    agent = Agent(
        model=FakeModel([[tool_call("helper", prompt="x"), tool_call("bad", prompt="y")]]),
        tools=[helper(sleeping), bad],
    )
    with pytest.raises(OSError, match="bug"):
        await agent.run(state)

    [child] = [state.child(entry.child_ids[0]) for entry in closed(state) if entry.child_ids]
    assert {str(entry.outcome) for entry in closed(state)} == {"aborted"}
    assert errors(child) == ["Cancelled"]
    assert not child.running
    assert_whole(child)


async def sleeping(request):
    await trio.sleep_forever()


async def test_a_child_that_fails_with_a_group_of_its_own_is_told_of_in_one_line():
    group = ExceptionGroup("mine", [ValueError("a"), OSError("b")])
    state = asked()
    await lead(helper(group)).run(state)

    assert told(state) == [("error", "(helper failed: ExceptionGroup: mine (2 sub-exceptions))")]


# What it inherits


class Log(Reporter):
    def __init__(self):
        self.said = []

    def on_text(self, state, text):
        self.said.append(text)


async def test_reporter_and_store_come_from_above_unless_it_has_its_own():
    above, own, store, other = Log(), Log(), MemoryStore(), MemoryStore()
    for settings, log, kept in (({}, above, store), ({"reporter": own, "store": other}, own, other)):
        state = asked()
        await lead(helper("part", **settings), reporter=above, store=store).run(state)
        assert "part" in log.said
        assert await kept.has(child_of(state).id)
    assert own.said == ["part"]
    assert above.said == ["part", "part", "part"]


async def test_a_store_a_human_and_a_reporter_that_are_false_are_there_all_the_same():
    """Such as a Store that has ``__len__``, and nothing in it yet."""

    class EmptyStore(MemoryStore):
        def __len__(self):
            return 0

    class FalseHuman(FakeHuman):
        def __bool__(self):
            return False

    class EmptyLog(Log):
        def __len__(self):
            return len(self.said)

    store, human, log = EmptyStore(), FalseHuman(["yes"]), EmptyLog()
    child = helper(tool_call("noop"), "part", tools=[noop], permissions=[DecideByHuman()])
    state = asked()
    await lead(child, store=store, human=human, reporter=log).run(state)

    assert log.said == ["part", "part"]
    assert len(human.questions) == 1
    assert await store.has(state.id)
    assert await store.has(child_of(state).id)


async def test_a_store_that_the_state_above_is_loaded_from_is_inherited_too():
    store = MemoryStore()
    state = asked()
    await store.save(state)
    await lead(helper("part")).run(state)

    loaded = await store.load(state.id)
    child = await loaded.load_child(closed(loaded)[0].child_ids[0])
    assert (child.answer, child.parent_id) == ("part", state.id)
    assert [info.id for info in await store.list(parent_id=state.id)] == [child.id]


async def test_a_grandchild_inherits_through_a_child_that_has_nothing_itself():
    log, store = Log(), MemoryStore()
    inner = helper("detail", name="inner")
    middle = helper(tool_call("inner", prompt="x"), "part", tools=[inner], name="middle")
    state = asked()
    await lead(middle, reporter=log, store=store).run(state)

    assert log.said == ["detail", "part", "part"]
    assert await store.has(child_of(child_of(state)).id)


async def test_a_refusal_above_holds_below_and_the_list_above_is_used_where_there_is_none():
    for own in (None, [AllowByDefault()]):
        child = helper(tool_call("noop"), results, tools=[noop], permissions=own)
        state = asked()
        above = [DenyByName("noop", reason="not here"), AllowByDefault()]
        await lead(child, permissions=above).run(state)
        assert [entry.outcome for entry in closed(child_of(state))] == ["denied"]


async def test_a_question_below_goes_to_the_human_above_unless_it_has_its_own():
    above, own = FakeHuman(["yes"]), FakeHuman(["yes"])
    for human, settings in ((above, {}), (own, {"human": own})):
        child = helper(tool_call("noop"), "done", tools=[noop], permissions=[DecideByHuman()], **settings)
        state = asked()
        await lead(child, human=above).run(state)
        assert [entry.outcome for entry in closed(child_of(state))] == ["done"]
        assert len(human.questions) == 1


@pytest.mark.parametrize(
    ("denying", "reason"), [("lead middle inner", "lead"), ("middle inner", "middle"), ("inner", "inner")]
)
async def test_refusals_are_asked_from_the_top(denying, reason):
    def settings(name):
        denies = [DenyByName("noop", reason=f"not by {name}")] if name in denying.split() else []
        return {"permissions": [AllowByDefault(), *denies]}

    inner = helper(tool_call("noop"), results, tools=[noop], name="inner", **settings("inner"))
    middle = helper(tool_call("inner", prompt="x"), results, tools=[inner], name="middle", **settings("middle"))
    state = asked()
    await lead(middle, **settings("lead")).run(state)

    assert state.answer == f"not by {reason}"


RULES = [AllowByName(["middle", "inner"]), DecideByHuman()]


@pytest.mark.parametrize(
    ("lists", "humans", "asked_one"),
    [
        ("lead", "lead", "lead"),
        ("lead", "lead inner", "lead"),
        ("middle", "lead", "lead"),
        ("middle", "lead inner", "lead"),
        ("middle", "lead middle inner", "middle"),
        ("inner", "lead middle", "middle"),
        ("lead inner", "lead middle", "middle"),
        ("lead inner", "lead inner", "inner"),
    ],
)
async def test_a_question_goes_to_the_human_of_the_agent_that_wrote_the_permission_or_inherited_by_it(
    lists, humans, asked_one
):
    """Three levels; the call of ``noop`` by the innermost needs a person."""
    people = {name: FakeHuman(lambda question: "yes") for name in humans.split()}

    def settings(name):
        return {"permissions": RULES if name in lists.split() else None, "human": people.get(name)}

    inner = helper(tool_call("noop"), "detail", tools=[noop], name="inner", **settings("inner"))
    middle = helper(tool_call("inner", prompt="x"), "part", tools=[inner], name="middle", **settings("middle"))
    state = asked()
    await lead(middle, **settings("lead")).run(state)

    assert [entry.outcome for entry in closed(child_of(child_of(state)))] == ["done"]
    names = {name for name, human in people.items() if any(q.call.name == "noop" for q in human.questions)}
    assert names == {asked_one}


async def test_an_action_of_another_agent_inside_a_run_is_held_to_what_is_above():
    """The loop body may act through a copy with another model: the refusals above still hold."""

    @loop(until=waiting_for_user, limit=3)
    async def body(agent, state):
        other = agent.copy(model=FakeModel([tool_call("noop")])) if state.turn == 0 else agent
        await other.think(state)
        await other.use_tools(state)

    log = Log()
    child = helper("well", tools=[noop], loop=body)
    state = asked()
    await lead(child, permissions=[DenyByName("noop"), AllowByDefault()], reporter=log).run(state)

    assert [entry.outcome for entry in closed(child_of(state))] == ["denied"]
    assert log.said[0] == "well"


async def test_what_a_tool_runs_itself_inherits_as_well():
    log, store = Log(), MemoryStore()

    @tool
    async def delegate(prompt: str) -> str:
        """Delegate."""
        return await Agent(model=FakeModel(["part"])).run(prompt)

    @tool
    def in_thread(prompt: str) -> str:
        """Delegate from a thread."""
        return Agent(model=FakeModel(["part"])).run_sync(prompt)

    for each in (delegate, in_thread):
        log.said.clear()
        state = asked()
        await lead(each, reporter=log, store=store).run(state)
        assert log.said == ["part", "part"]
        assert await store.has(child_of(state).id)


async def test_a_run_in_somebody_elses_nursery_inherits_nothing():
    log = Log()
    other = asked("other")
    async with trio.open_nursery() as around:

        @tool
        async def delegate(prompt: str) -> str:
            """Start something that isn't a part of it."""
            around.start_soon(Agent(model=FakeModel(["root"])).run, other)
            await trio.testing.wait_all_tasks_blocked()
            return "started"

        await lead(delegate, reporter=log).run(asked())

    assert (other.answer, other.parent_id) == ("root", None)
    assert "root" not in log.said


# Side by side


async def test_subagents_hold_no_slot_while_they_wait():
    """``max_parallel_tools`` bounds the leaf work: eight wait at once, though one tool may run at a time."""
    arrived = []

    async def answer(request):
        arrived.append(1)
        while len(arrived) < 8:
            await trio.lowlevel.checkpoint()
        return "here"

    state = asked()
    with trio.fail_after(10):
        await lead(helper(answer), calls=8, max_parallel_tools=1).run(state)

    assert told(state) == [("done", "here")] * 8


async def test_the_tools_of_each_subagent_are_bounded_by_its_own_limit():
    running, most = [], []

    @tool
    async def work() -> None:
        """Work."""
        running.append(1)
        most.append(len(running))
        await trio.testing.wait_all_tasks_blocked()
        running.pop()

    child = helper(
        lambda request: "done" if len(request.messages) > 1 else [tool_call("work") for _ in range(4)],
        tools=[work],
        max_parallel_tools=1,
    )
    await lead(child, calls=3).run(asked())

    assert max(most) == 3


async def test_context_variables_reach_subagents_in_tasks_and_threads_and_changes_stay_below():
    """D6: as a span of a tracer would."""
    span = contextvars.ContextVar("span", default="none")
    seen = []

    @tool
    def in_thread() -> None:
        """Look from a thread."""
        seen.append((span.get(), threading.current_thread() is threading.main_thread()))
        span.set("changed in the thread")

    async def answer(request):
        seen.append(span.get())
        span.set("changed below")
        return "done" if len(request.messages) > 1 else tool_call("in_thread")

    span.set("root")
    await lead(helper(answer, tools=[in_thread]), calls=2).run(asked())

    assert sorted(map(str, seen)) == sorted(map(str, ["root", ("changed below", False), "changed below"] * 2))
    assert span.get() == "root"


async def test_the_usage_of_the_state_grows_when_a_call_closes():
    seen = []
    state = asked()

    async def answer(request):
        seen.append(state.usage.requests)
        return "part"

    await lead(helper(answer)).run(state)

    assert seen == [1]
    assert state.usage.requests == 3


async def test_message_after_the_run_goes_to_the_child_that_was_kept():
    state = asked()
    agent = helper("part done", "and more")
    await lead(agent).run(state)
    child = child_of(state)
    child.add_message(Message.user("more?"))

    assert await agent.run(child) == "and more"
    assert state.usage.requests == 3


def test_input_errors_of_a_subagent_name_its_parameter():
    subagent = Agent(model=FakeModel(), tools=[helper("x")]).tool_map["helper"]
    with pytest.raises(ToolInputError, match="prompt is blank"):
        subagent.read_args({"prompt": ""})

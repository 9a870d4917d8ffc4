"""run_sync: in scripts, and in the threads of sync tools, where the run is part of the tool's call."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import trio

from alpineagents import Agent, Message, State, Tool, tool
from alpineagents.testing import FakeModel, tool_call

from .runs import assert_whole, outcomes, tasks


def test_a_sync_tool_can_run_another_agent():
    helper = Agent(model=FakeModel(["from the helper"]))

    @tool
    def delegate(prompt: str) -> str:
        """Have somebody else answer."""
        return str(helper.run_sync(prompt))

    state = State(messages=[Message.user("go")])
    Agent(model=FakeModel([tool_call("delegate", prompt="hi"), "done"]), tools=[delegate]).run_sync(state)

    results = [entry.content[0].text for entry in state.history if entry.kind == "tool_result"]
    assert results == ["from the helper"]


def test_what_the_inner_run_raises_comes_out_of_run_sync_as_it_was_raised():
    helper = Agent(model=FakeModel([ConnectionError("gone")]))
    seen = []

    @tool
    def delegate() -> str:
        """Have somebody else answer."""
        with pytest.raises(ConnectionError, match="gone") as caught:
            helper.run_sync("hi")
        seen.append(caught.value)
        return "failed"

    Agent(model=FakeModel([tool_call("delegate"), "done"]), tools=[delegate]).run_sync("go")

    assert len(seen) == 1


async def test_cancelling_the_outer_run_ends_the_inner_one_with_it():
    started = trio.Event()
    inner = State(id="inner", messages=[Message.user("wait")])
    thread_left = threading.Event()

    async def wait(request):
        started.set()
        await trio.sleep_forever()

    helper = Agent(model=FakeModel([wait]))

    @tool
    def delegate() -> str:
        """Have somebody else answer."""
        try:
            return str(helper.run_sync(inner))
        finally:
            thread_left.set()

    outer = State(id="outer", messages=[Message.user("go")])
    before = tasks()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Agent(model=FakeModel([tool_call("delegate")]), tools=[delegate]).run, outer)
        await started.wait()
        nursery.cancel_scope.cancel()

    assert tasks() == before
    assert outcomes(outer) == [("delegate", "interrupted")]
    assert not inner.running
    assert_whole(inner)
    assert await trio.to_thread.run_sync(thread_left.wait, 30)


async def test_a_thread_that_an_async_tool_starts_is_its_own_also_below_a_run_in_a_thread():
    """As everywhere: a run in it is a run of its own, and no subagent of a call further above."""
    deep, middle = State(messages=[Message.user("deep")]), State(messages=[Message.user("middle")])
    helper = Agent(model=FakeModel(["from the helper"]))

    @tool
    async def threaded() -> str:
        """Have somebody else answer, in a thread that trio starts for this tool."""
        return str(await trio.to_thread.run_sync(helper.run_sync, deep))

    @tool
    def delegate() -> str:
        """Have somebody else answer, in this thread."""
        return str(Agent(model=FakeModel([tool_call("threaded"), "done"]), tools=[threaded]).run_sync(middle))

    state = State(messages=[Message.user("go")])
    await Agent(model=FakeModel([tool_call("delegate"), "done"]), tools=[delegate]).run(state)

    assert (middle.parent_id, deep.parent_id) == (state.id, None)
    assert deep.answer == "from the helper"
    assert [entry.child_ids for entry in state.history if entry.kind == "tool_result"] == [(middle.id,)]


async def test_a_thread_whose_call_has_ended_is_told_so():
    entered, told = trio.Event(), trio.Event()
    go_on = threading.Event()
    token = trio.lowlevel.current_trio_token()
    errors = []

    @tool
    def stay() -> str:
        """Stay behind."""
        token.run_sync_soon(entered.set)
        go_on.wait(30)
        try:
            Agent(model=FakeModel(["x"])).run_sync("hi")
        except RuntimeError as error:
            errors.append(str(error))
        token.run_sync_soon(told.set)
        return "late"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(Agent(model=FakeModel([tool_call("stay")]), tools=[stay]).run, "go")
        await entered.wait()
        nursery.cancel_scope.cancel()
    go_on.set()
    await told.wait()

    assert errors == ["run_sync: the tool call that this thread belongs to has ended"]


@pytest.mark.parametrize("abandon", [False, True], ids=["waited for", "may be abandoned"])
async def test_an_agent_runs_from_a_thread_below_a_task_that_the_tool_s_thread_has_trio_run(abandon):
    helper = Agent(model=FakeModel(["from the helper", "and again"]))

    async def within_a_scope() -> str:
        with trio.fail_after(3600):
            return str(await trio.to_thread.run_sync(helper.run_sync, "hi"))

    @tool(abandon_on_cancel=abandon)
    def delegate() -> str:
        """Have somebody else answer, by way of trio."""
        first = trio.from_thread.run(within_a_scope)
        return f"{first}, {helper.run_sync('hi')}"

    state = State(messages=[Message.user("go")])
    await Agent(model=FakeModel([tool_call("delegate"), "done"]), tools=[delegate]).run(state)

    results = [entry.content[0].text for entry in state.history if entry.kind == "tool_result"]
    assert results == ["from the helper, and again"]


def delegating(inner: State, helper: Agent, **options: Any) -> Tool:
    @tool(**options)
    def delegate() -> str:
        """Have somebody else answer."""
        return str(helper.run_sync(inner))

    return delegate


@pytest.mark.parametrize("abandon", [False, True], ids=["waited for", "may be abandoned"])
async def test_what_a_thread_runs_has_ended_when_its_call_has(agent_clock, abandon):
    """Its clean-up, too: a call that times out waits for it, as the block of a nursery does."""
    inner, ended_at = State(id="inner", messages=[Message.user("wait")]), []

    async def wait(request):
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(3)
            ended_at.append(trio.current_time() - began)

    delegate = delegating(inner, Agent(model=FakeModel([wait])), timeout=10, abandon_on_cancel=abandon)
    outer, began = State(id="outer", messages=[Message.user("go")]), trio.current_time()
    await Agent(model=FakeModel([tool_call("delegate"), "done"]), tools=[delegate]).run(outer)

    assert ended_at == [13]
    assert (inner.parent_id, inner.running) == ("outer", False)
    assert_whole(inner)
    results = [e for e in outer.history if e.kind == "tool_result" and not e.late]
    assert [(e.content[0].text, e.child_ids) for e in results] == [("(timed out after 10 s)", ("inner",))]


@pytest.mark.parametrize("abandon", [False, True], ids=["waited for", "may be abandoned"])
async def test_what_several_threads_of_one_call_run_ends_with_it(abandon):
    """The tool's thread has trio run a task, which starts threads, in which Agents run: all are the call's."""
    inner = [State(id=f"inner-{n}", messages=[Message.user("wait")]) for n in range(3)]
    waiting, all_wait = [], trio.Event()

    async def wait(request):
        waiting.append(1)
        if len(waiting) == len(inner):
            all_wait.set()
        await trio.sleep_forever()

    helper = Agent(model=FakeModel([wait] * len(inner)))

    async def at_once():
        async with trio.open_nursery() as nursery:
            for state in inner:
                nursery.start_soon(trio.to_thread.run_sync, helper.run_sync, state)

    @tool(abandon_on_cancel=abandon)
    def delegate() -> str:
        """Have others answer, at once."""
        trio.from_thread.run(at_once)
        return "never"

    outer = State(id="outer", messages=[Message.user("go")])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Agent(model=FakeModel([tool_call("delegate")]), tools=[delegate]).run, outer)
        await all_wait.wait()
        nursery.cancel_scope.cancel()

    assert [(state.parent_id, state.running) for state in inner] == [("outer", False)] * 3
    assert outcomes(outer) == [("delegate", "interrupted")]
    for state in [outer, *inner]:
        assert_whole(state)


@pytest.mark.parametrize("abandon", [False, True], ids=["waited for", "may be abandoned"])
async def test_a_run_below_a_run_in_a_thread_is_its_subagent(abandon):
    """And the other way round: a run of its own stays one, also where threads are between."""
    states = {name: State(id=name, messages=[Message.user("go")]) for name in ("far", "own", "middle", "deep")}

    @tool
    async def go_deeper() -> str:
        """Have somebody else answer."""
        return str(await Agent(model=FakeModel(["deep"])).run(states["deep"]))

    middle = Agent(model=FakeModel([tool_call("go_deeper"), "middle"]), tools=[go_deeper])
    delegate = delegating(states["middle"], middle, abandon_on_cancel=abandon)
    own = Agent(model=FakeModel([tool_call("delegate"), "own"]), tools=[delegate])

    async with trio.open_nursery() as elsewhere:

        @tool
        async def start_elsewhere() -> str:
            """Start a run that isn't this call's."""
            elsewhere.start_soon(own.run, states["own"])
            return "started"

        far = Agent(model=FakeModel([tool_call("start_elsewhere"), "far"]), tools=[start_elsewhere])
        await far.run(states["far"])

    assert {name: state.parent_id for name, state in states.items()} == {
        "far": None,
        "own": None,
        "middle": "own",
        "deep": "middle",
    }
    assert [state.answer for state in states.values()] == ["far", "own", "middle", "deep"]


@pytest.mark.parametrize("abandon", [False, True], ids=["waited for", "may be abandoned"])
async def test_what_a_thread_starts_while_its_call_is_ending_does_not_run(agent_clock, abandon):
    """The run is cancelled, and the tool tries again in the same breath: nothing begins that would outlive the call."""
    inner = [State(id=f"inner-{n}", messages=[Message.user("wait")]) for n in range(2)]
    errors, left = [], threading.Event()

    async def wait(request):
        await trio.sleep_forever()

    helper = Agent(model=FakeModel([wait, "too late"]))

    @tool(timeout=10, abandon_on_cancel=abandon)
    def delegate() -> str:
        """Have somebody else answer, again and again."""
        try:
            for state in inner:
                try:
                    helper.run_sync(state)
                except BaseException as error:
                    errors.append(type(error))
        finally:
            left.set()
        return "given up"

    outer = State(id="outer", messages=[Message.user("go")])
    await Agent(model=FakeModel([tool_call("delegate"), "done"]), tools=[delegate]).run(outer)
    assert await trio.to_thread.run_sync(left.wait, 30)

    assert errors[0] is trio.Cancelled
    assert errors[1] in (trio.Cancelled, RuntimeError)
    assert inner[1].answer is None
    assert not any(state.running for state in inner)

"""run_sync: in scripts, and in the threads of sync tools, where the run is part of the tool's call."""

from __future__ import annotations

import threading

import pytest
import trio

from alpineagents import Agent, Message, State, tool
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

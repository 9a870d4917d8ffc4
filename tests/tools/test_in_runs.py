"""Tools in a run: threads that end at a bad moment, and arguments whose reading fails."""

from __future__ import annotations

import dataclasses
import threading
import time

import pytest
import trio
import trio.testing

from alpineagents import Agent, Message, Reporter, State, TextBlock, ToolCall, ToolError, tool
from alpineagents.testing import FakeModel, tool_call

from ..run.runs import assert_whole, outcomes

SECONDS = 30  # Nothing waits that long unless it is broken.


class Watching(Reporter):
    """Keeps what it is told of the ends of calls."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []

    def on_tool_end(self, state: State, call: ToolCall, result: object, outcome: object) -> None:
        assert isinstance(result, tuple)
        assert isinstance(result[0], TextBlock)
        self.told.append((call.name, str(outcome), result[0].text))


async def test_a_reporter_is_told_what_is_recorded_of_a_call_that_ended_as_its_time_was_up(
    mock_clock: trio.testing.MockClock,
) -> None:
    """The thread has given its result, and before trio tells the task of it, the timeout cancels that."""
    reached, go_on, watching = threading.Event(), threading.Event(), Watching()
    threads: list[threading.Thread] = []

    @tool(timeout=30)
    def work() -> str:
        threads.append(threading.current_thread())
        reached.set()
        assert go_on.wait(SECONDS)
        return "worked"

    state = State(messages=[Message.user("go")])
    agent = Agent(model=FakeModel([tool_call("work"), "ok"]), tools=[work], reporter=watching)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.run, state)
        await trio.to_thread.run_sync(reached.wait, SECONDS)
        go_on.set()
        # Hold up the event loop until the thread is done with the call: then it has its old name again.
        deadline = time.monotonic() + SECONDS
        while threads[0].name == "tool work":
            assert time.monotonic() < deadline
        mock_clock.jump(30)

    assert outcomes(state) == [("work", "done")]
    assert watching.told == [("work", "done", "worked")]
    assert_whole(state)


async def test_a_thread_left_behind_by_a_sibling_that_failed_was_aborted_and_not_by_the_user() -> None:
    reached, go_on = threading.Event(), threading.Event()

    @tool
    def work() -> str:
        reached.set()
        assert go_on.wait(SECONDS)
        return "worked"

    @tool
    async def fail() -> None:
        await trio.to_thread.run_sync(reached.wait, SECONDS)
        raise ValueError("x")

    state = State(messages=[Message.user("go")])
    agent = Agent(model=FakeModel([[tool_call("work"), tool_call("fail")]]), tools=[work, fail])
    with pytest.raises(ValueError, match="x"):
        await agent.run(state)
    closed = {entry.call.name: entry.content[0].text for entry in state.history if entry.kind == "tool_result"}
    start = len(state.history)
    go_on.set()
    async for entry in state.watch(after=start):
        assert entry.kind == "tool_result"
        assert (entry.late, entry.content) == (True, (TextBlock("worked"),))
        break

    assert closed["work"].startswith("(aborted: ValueError)")
    assert closed["work"] == closed["fail"]
    assert_whole(state)


@dataclasses.dataclass
class Table:
    name: str

    def __post_init__(self) -> None:
        if self.name == "secrets":
            raise ToolError("no such table")
        if self.name == "broken":
            raise ZeroDivisionError


async def test_a_tool_error_of_a_class_in_the_arguments_is_for_the_model_too() -> None:
    @tool
    async def count(table: Table) -> int:
        return 7

    state = State(messages=[Message.user("go")])
    calls = [tool_call("count", table={"name": "secrets"}), tool_call("count", table={"name": "users"})]
    await Agent(model=FakeModel([calls, "ok"]), tools=[count]).run(state)

    assert outcomes(state) == [("count", "error"), ("count", "done")]
    assert_whole(state)


async def test_a_class_in_the_arguments_that_breaks_stops_the_run_and_the_record_says_at_which_call() -> None:
    @tool
    async def count(table: Table) -> int:
        return 7

    state = State(messages=[Message.user("go")])
    calls = [tool_call("count", table={"name": "users"}), tool_call("count", table={"name": "broken"})]
    with pytest.raises(ZeroDivisionError):
        await Agent(model=FakeModel([calls]), tools=[count]).run(state)

    (error,) = [entry for entry in state.history if entry.kind == "error"]
    assert error.call is not None
    assert error.call.args == {"table": {"name": "broken"}}
    assert [outcome for _, outcome in outcomes(state)] == ["aborted", "aborted"]
    assert_whole(state)

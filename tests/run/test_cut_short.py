"""What a Reporter is told of calls that had no end of their own: whoever shows what runs must hear that it is over."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import trio
import trio.testing

from alpineagents import (
    Agent,
    Allowed,
    DecideByHuman,
    DecidePermission,
    Denied,
    Human,
    Message,
    Reporter,
    State,
    Tool,
    loop,
    tool,
    waiting_for_user,
)
from alpineagents.testing import FakeModel, tool_call

from .runs import NOT_BEGUN, UNKNOWN, assert_whole, errors


class Ends(Reporter):
    """Writes down which calls start and end, and when the run does."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.ended: list[str] = []

    def on_tool_start(self, state, call):
        assert "the run" not in self.ended
        self.started.append(call.name)

    def on_tool_end(self, state, call, result, outcome):
        assert "the run" not in self.ended
        assert not any(pending.id == call.id for pending in state.pending_calls)
        self.ended.append(f"{call.name} {outcome}")

    def on_run_end(self, state, error):
        self.ended.append("the run")


class Failing(Ends):
    """Fails whenever a call ends, each time in its own way."""

    def on_tool_end(self, state, call, result, outcome):
        raise ZeroDivisionError(call.id)


@pytest.fixture
def tools() -> Iterator[list[Tool]]:
    """Tools that don't end, in a task and in a thread, and some that end the run."""
    over = threading.Event()

    @tool
    async def endless() -> None:
        """Never end."""
        await trio.sleep_forever()

    @tool
    def hung() -> None:
        """Wait in a thread until the test is over."""
        over.wait(60)

    @tool
    async def broken() -> None:
        """Fail once the others wait."""
        await trio.testing.wait_all_tasks_blocked()
        raise OSError("bug")

    @tool
    async def interrupting() -> None:
        """As if Ctrl+C came here, once the others wait."""
        await trio.testing.wait_all_tasks_blocked()
        raise KeyboardInterrupt

    yield [endless, hung, broken, interrupting]
    over.set()


def asked() -> State:
    return State(messages=[Message.user("go")])


def calling(tools: list[Tool], *names: str, **settings) -> Agent:
    return Agent(model=FakeModel([[tool_call(name) for name in names], "done"]), tools=tools, **settings)


@loop(until=waiting_for_user, limit=2)
async def impatient(agent, state):
    """Gives its tools 5 seconds."""
    await agent.think(state)
    with trio.move_on_after(5):
        await agent.use_tools(state)


@pytest.mark.parametrize("names", [["endless"], ["hung"], ["endless", "hung"]], ids="+".join)
async def test_a_reporter_is_told_of_the_calls_that_a_cancellation_closed(tools, names, autojump_clock):
    log = Ends()
    await calling(tools, *names, reporter=log, loop=impatient).run(asked())

    assert sorted(log.started) == sorted(names)
    assert sorted(log.ended[:-1]) == sorted(f"{name} interrupted" for name in names)
    assert log.ended[-1] == "the run"


@pytest.mark.parametrize("names", [["broken"], ["endless", "broken"], ["hung", "broken"]], ids="+".join)
async def test_a_reporter_is_told_of_the_calls_that_a_failure_closed(tools, names):
    log = Ends()
    with pytest.raises(OSError, match="bug"):
        await calling(tools, *names, reporter=log).run(asked())

    assert sorted(log.ended[:-1]) == sorted(f"{name} aborted" for name in names)
    assert log.ended[-1] == "the run"


async def test_a_reporter_is_told_of_the_calls_that_a_loop_left_open(tools):
    @loop(until=waiting_for_user, limit=1)
    async def body(agent, state):
        await agent.think(state)

    log = Ends()
    await calling(tools, "endless", reporter=log, loop=body).run(asked())

    assert log.ended == ["endless aborted", "the run"]


CUT_SHORT = [["endless"], ["hung"], ["endless", "endless"], ["endless", "hung"]]


@pytest.mark.parametrize("names", CUT_SHORT, ids="+".join)
async def test_an_exception_of_a_reporter_comes_out_instead_of_a_cancellation(tools, names, autojump_clock):
    state = asked()
    with trio.move_on_after(5), pytest.raises(ZeroDivisionError):
        await calling(tools, *names, reporter=Failing()).run(state)

    check_each_is_recorded_once(state)


@pytest.mark.parametrize("names", CUT_SHORT, ids="+".join)
async def test_an_exception_of_a_reporter_does_not_hide_ctrl_c(tools, names):
    state = asked()
    with pytest.raises(KeyboardInterrupt) as caught:
        await calling(tools, *names, "interrupting", reporter=Failing()).run(state)

    check_each_is_recorded_once(state)
    assert any("ZeroDivisionError" in note for note in caught.value.__notes__)


async def test_an_exception_of_a_reporter_does_not_hide_what_ended_the_run(tools):
    log, state = Failing(), asked()
    with pytest.raises(OSError, match="bug") as caught:
        await calling(tools, "endless", "broken", reporter=log).run(state)

    check_each_is_recorded_once(state)
    assert len(caught.value.__notes__) == 2
    assert log.ended == ["the run"]


@pytest.mark.parametrize("names", [["endless", "endless"], ["endless", "broken"]], ids="+".join)
async def test_an_exception_that_a_reporter_raises_again_and_again_is_recorded_once(tools, names, autojump_clock):
    error = ZeroDivisionError("screen is gone")

    class Gone(Reporter):
        def on_tool_end(self, state, call, result, outcome):
            raise error

    state = asked()
    with trio.move_on_after(5), pytest.raises((ZeroDivisionError, OSError)):
        await calling(tools, *names, reporter=Gone()).run(state)

    assert errors(state).count("ZeroDivisionError: screen is gone") == 1
    assert_whole(state)


def check_each_is_recorded_once(state: State) -> None:
    """Each call's own exception is in an entry of its own."""
    ids = [entry.call.id for entry in state.history if entry.kind == "tool_result" and not entry.late]
    assert sorted(text for text in errors(state) if "Zero" in text) == sorted(f"ZeroDivisionError: {i}" for i in ids)
    assert_whole(state)


# What the model is told: whether a call has begun


def told(state: State) -> dict[str, str]:
    """What the model reads of each call, by name."""
    return {entry.call.name: entry.content[0].text for entry in state.history if entry.kind == "tool_result"}


class Slow(DecidePermission):
    """Takes a moment, in which it can be cancelled."""

    async def check(self, state, call, tool):
        await trio.lowlevel.checkpoint()


@tool(parallel=False)
async def alone() -> None:
    """Never reached: it waits until those before it are through."""
    raise AssertionError("it ran")


@pytest.mark.parametrize("first", ["endless", "hung"])
@pytest.mark.parametrize("settings", [{}, {"max_parallel_tools": 1}], ids=["not parallel", "one at a time"])
async def test_a_call_that_waited_for_others_had_not_begun_when_it_was_interrupted(
    tools, first, settings, autojump_clock
):
    second = "broken" if settings else "alone"
    state = asked()
    with trio.move_on_after(5):
        await calling([*tools, alone], first, second, **settings).run(state)

    assert told(state) == {
        first: f"(interrupted by user) {UNKNOWN}",
        second: f"(interrupted by user) {NOT_BEGUN}",
    }


async def test_a_call_that_waited_for_others_had_not_begun_when_one_of_them_failed(tools):
    state = asked()
    with pytest.raises(OSError, match="bug"):
        await calling([*tools, alone], "broken", "endless", "alone").run(state)

    assert told(state) == {
        "broken": f"(aborted: OSError) {UNKNOWN}",
        "endless": f"(aborted: OSError) {UNKNOWN}",
        "alone": f"(aborted: OSError) {NOT_BEGUN}",
    }


async def test_no_call_had_begun_while_a_person_was_asked(tools, autojump_clock):
    class Silent(Human):
        async def ask(self, question, returns):
            await trio.sleep_forever()

    state = asked()
    with trio.move_on_after(5):
        await calling(tools, "endless", "broken", permissions=[DecideByHuman()], human=Silent()).run(state)

    assert set(told(state).values()) == {f"(interrupted by user) {NOT_BEGUN}"}


async def test_a_call_that_a_loop_left_open_had_begun_if_it_was_tried(tools):
    @loop(until=waiting_for_user, limit=1)
    async def body(agent, state):
        await agent.think(state)
        with pytest.raises(OSError, match="bug"):
            await agent.use_tools(state)

    state = asked()
    await calling([*tools, alone], "broken", "alone", loop=body).run(state)

    why = "(aborted: the run ended before this call had a result)"
    assert told(state) == {"broken": f"{why} {UNKNOWN}", "alone": f"{why} {NOT_BEGUN}"}


async def test_a_call_that_was_tried_before_has_begun_whatever_keeps_it_from_running_again(tools):
    @loop(until=waiting_for_user, limit=1)
    async def body(agent, state):
        await agent.think(state)
        with pytest.raises(OSError, match="bug"):
            await agent.use_tools(state)
        with trio.CancelScope() as scope:
            scope.cancel()
            await agent.copy(permissions=[Slow()]).use_tools(state)

    state = asked()
    await calling([*tools, alone], "broken", "alone", loop=body).run(state)

    assert told(state) == {
        "broken": f"(interrupted by user) {UNKNOWN}",
        "alone": f"(interrupted by user) {NOT_BEGUN}",
    }


async def test_a_call_that_was_tried_before_has_begun_when_a_refusal_stops_the_turn(tools):
    class Refusing(DecidePermission):
        async def check(self, state, call, tool):
            return Allowed() if call.name == "broken" else Denied("no", stop=True)

    @loop(until=waiting_for_user, limit=1)
    async def body(agent, state):
        await agent.think(state)
        with pytest.raises(OSError, match="bug"):
            await agent.use_tools(state)
        await agent.copy(permissions=[Refusing()]).use_tools(state)

    state = asked()
    await calling([*tools, alone], "broken", "alone", "alone", loop=body).run(state)

    stopped = "(cancelled: the refusal of alone stopped the turn"
    texts = [entry.content[0].text for entry in state.history if entry.kind == "tool_result"]
    assert sorted(texts) == sorted(["no", f"{stopped}) {UNKNOWN}", f"{stopped}, and this call did not run)"])


async def test_no_call_begins_once_another_has_failed_even_if_its_turn_comes_in_that_moment():
    begun: list[int] = []
    meet = trio.Event()

    @tool
    async def work(n: int) -> None:
        """End well, or fail, in the same moment."""
        begun.append(n)
        await meet.wait()
        if n == 1:
            raise OSError("bug")

    async def fails(agent: Agent) -> None:
        with pytest.raises(OSError, match="bug"):
            await agent.run(asked())

    for _ in range(20):  # trio runs tasks in any order
        begun.clear()
        meet = trio.Event()
        calls = [tool_call("work", n=n) for n in range(4)]
        agent = Agent(model=FakeModel([calls]), tools=[work], max_parallel_tools=2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails, agent)
            await trio.testing.wait_all_tasks_blocked()
            meet.set()
        assert sorted(begun) == [0, 1]


@pytest.mark.parametrize("taken", [State.fork, lambda state: State(history=state.history)], ids=["fork", "history"])
async def test_nobody_knows_what_has_begun_of_a_history_from_elsewhere(tools, taken):
    agent = calling(tools, "endless")
    state = asked()
    await agent.think(state)
    other = taken(state)
    with trio.CancelScope() as scope:
        scope.cancel()
        await agent.copy(permissions=[Slow()]).use_tools(other)

    assert told(other) == {"endless": f"(interrupted by user) {UNKNOWN}"}

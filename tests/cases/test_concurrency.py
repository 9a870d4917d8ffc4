"""Failures of concurrency and cancellation that users of other libraries met, each ruled out as a kind.

Docstrings name the case. ``tests/run/test_cancellation.py`` cancels and interrupts a run at every step there is.
"""

from __future__ import annotations

import itertools
import re
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from alpineagents import (
    Agent,
    Emit,
    EntryAdded,
    FileStore,
    MemoryStore,
    Message,
    Model,
    OpenAICompatible,
    ProviderError,
    Reply,
    Request,
    RunningElsewhereError,
    SQLiteStore,
    State,
    Store,
    TextBlock,
    TextDelta,
    ToolError,
    default_loop,
    loop,
    tool,
    waiting_for_user,
)
from alpineagents.models import RateLimit
from alpineagents.testing import FakeModel, Fault, ProviderServer, tool_call

from ..run.children import Child, running, script
from ..run.runs import assert_whole, errors, outcomes, tasks


def started() -> State:
    return State(messages=[Message.user("go")])


def store_of(kind: str, folder: Path) -> Store | None:
    stores: dict[str, Callable[[], Store | None]] = {
        "none": lambda: None,
        "memory": MemoryStore,
        "files": lambda: FileStore(folder),
        "sqlite": lambda: SQLiteStore(folder / "runs.db"),
    }
    return stores[kind]()


@contextmanager
def fails_as(error: BaseException) -> Iterator[None]:
    """The block raises *error* itself, not another one and not a group."""
    with pytest.raises(type(error)) as caught:
        yield
    assert caught.value is error


# ---- D1: one tool fails, its siblings keep running unowned


FATAL = [ValueError("bug"), ExceptionGroup("two", [ValueError("a"), OSError("b")]), SystemExit(3)]


@pytest.mark.parametrize("error", FATAL, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("store", ["none", "memory"])
@pytest.mark.parametrize("how", ["bare", "in a nursery", "late to close"])
async def test_no_sibling_of_a_failing_tool_runs_on_after_the_run(
    how: str, store: str, error: BaseException, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """D1. Cancelled and awaited: what it started, and what it does to close, too."""
    log: list[str] = []

    @tool
    async def bad() -> str:
        """Fail after 10 ms."""
        await trio.sleep(0.01)
        raise error

    async def write() -> None:
        await trio.sleep(0.1)
        log.append("wrote")

    @tool
    async def slow() -> str:
        """Write after 100 ms."""
        if how == "bare":
            await write()
        elif how == "in a nursery":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(write)
        else:
            try:
                await write()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(1)
                log.append("closed")
        return "ok"

    state, before = started(), tasks()
    model = FakeModel([[tool_call("slow"), tool_call("bad"), tool_call("slow")], "on again"])
    agent = Agent(model=model, tools=[bad, slow], store=store_of(store, tmp_path))
    with fails_as(error):
        await agent.run(state)

    assert tasks() == before
    assert log == (["closed"] * 2 if how == "late to close" else [])
    await trio.sleep(10)
    assert "wrote" not in log
    assert_whole(state)
    assert await agent.run(state) == "on again"


async def test_a_thread_that_may_not_be_abandoned_has_ended_when_the_run_has() -> None:
    """D1."""
    entered, gate, left = threading.Event(), threading.Event(), threading.Event()

    @tool(abandon_on_cancel=False)
    def slow() -> str:
        """Work until somebody opens the gate."""
        entered.set()
        gate.wait(60)
        left.set()
        return "ok"

    @tool
    async def bad() -> str:
        """Fail once the other one works, and open its gate as the run waits for it."""
        while not entered.is_set():
            await trio.lowlevel.checkpoint()
        trio.lowlevel.current_trio_token().run_sync_soon(gate.set)
        raise ValueError("bug")

    state = started()
    with pytest.raises(ValueError, match="bug"):
        await Agent(model=FakeModel([[tool_call("slow"), tool_call("bad")]]), tools=[slow, bad]).run(state)

    assert left.is_set()
    assert_whole(state)


async def an_old_cancelled() -> trio.Cancelled:
    """A Cancelled of a scope that has ended."""
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as error:
            return error
    raise AssertionError("it was cancelled")


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("threaded", [False, True])
@pytest.mark.parametrize("siblings", [0, 1])
async def test_a_tool_can_not_fake_the_cancellation_of_a_run(siblings: int, threaded: bool, grouped: bool) -> None:
    """D1. Whatever it raises is its error, and comes out; the run doesn't end as if it had been cancelled."""
    old: BaseException = await an_old_cancelled()
    if grouped:
        old = BaseExceptionGroup("old", [old])

    @tool(name="fake")
    async def fake() -> str:
        """Raise what isn't its own."""
        await trio.lowlevel.checkpoint()
        raise old

    @tool(name="fake")
    def fake_in_a_thread() -> str:
        """Raise what isn't its own."""
        raise old

    @tool
    async def forever() -> str:
        """Never end."""
        await trio.sleep_forever()
        return "unreachable"

    state = started()
    calls = [tool_call("fake"), *[tool_call("forever")] * siblings]
    agent = Agent(model=FakeModel([calls, "back"]), tools=[fake_in_a_thread if threaded else fake, forever])
    with trio.CancelScope() as scope, pytest.raises(RuntimeError, match="without being cancelled"):
        await agent.run(state)

    assert not scope.cancelled_caught
    assert {outcome for _, outcome in outcomes(state)} == {"aborted"}
    assert_whole(state)
    assert await agent.run(state) == "back"


# ---- D2: the failure throws away the siblings' results


TIMES = {"quick": 0.005, "soon": 0.007, "bad": 0.01, "slow": 0.1}
ORDERS = list(itertools.permutations(TIMES))


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
async def test_what_was_there_when_a_sibling_failed_is_kept_in_the_order_asked(
    order: tuple[str, ...], autojump_clock: trio.testing.MockClock
) -> None:
    """D2. The exception stops the run; what isn't finished is closed as aborted."""
    tools = [after(name, ValueError("bug") if name == "bad" else None) for name in TIMES]
    state = started()
    agent = Agent(model=FakeModel([[tool_call(name) for name in order], "on again"]), tools=tools)
    with pytest.raises(ValueError, match="bug"):
        await agent.run(state)

    assert results(state) == {name: name if name in ("quick", "soon") else "(aborted: ValueError)" for name in order}
    assert list(results(state)) == list(order)
    done = {"quick": "done", "soon": "done"}
    assert dict(outcomes(state)) == {name: done.get(name, "aborted") for name in order}
    assert_whole(state)
    assert await agent.run(state) == "on again"


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
async def test_siblings_go_on_when_a_tool_tells_the_model_that_it_failed(
    order: tuple[str, ...], autojump_clock: trio.testing.MockClock
) -> None:
    """D2. A ToolError is what the model should hear about."""
    tools = [after(name, ToolError("no such file") if name == "bad" else None) for name in TIMES]
    state = started()
    await Agent(model=FakeModel([[tool_call(name) for name in order], "done"]), tools=tools).run(state)

    assert results(state) == {name: "no such file" if name == "bad" else name for name in order}
    assert list(results(state)) == list(order)
    assert dict(outcomes(state))["bad"] == "error"


async def test_of_several_that_fail_at_once_the_first_comes_out_and_the_others_are_not_lost() -> None:
    """D2."""
    ready = trio.Event()

    @tool
    async def bad(name: str) -> str:
        """Fail together with the others."""
        await ready.wait()
        raise ValueError(name)

    @tool
    async def go() -> str:
        """Let them fail, all in one step."""
        await trio.testing.wait_all_tasks_blocked()
        ready.set()
        return "gone"

    state = started()
    calls = [tool_call("bad", name=name) for name in "abc"]
    with pytest.raises(ValueError, match=r"^[abc]") as caught:
        await Agent(model=FakeModel([[*calls, tool_call("go")]]), tools=[bad, go]).run(state)

    first = str(caught.value)
    assert errors(state)[0] == f"ValueError: {first}"
    assert sorted(errors(state)) == ["ValueError: a", "ValueError: b", "ValueError: c"]
    assert sorted(caught.value.__notes__) == [f"also raised: ValueError: {name}" for name in "abc" if name != first]


def after(name: str, error: Exception | None) -> Any:
    @tool(name=name)
    async def ends() -> str:
        """End after a while."""
        await trio.sleep(TIMES[name])
        if error is not None:
            raise error
        return name

    return ends


def results(state: State) -> dict[str, str]:
    """What the model is told of each call, by the name of the tool, in the order of the blocks; of aborted ones why."""
    names = {call.id: call.name for message in state.messages for call in message.tool_calls}
    (message,) = [message for message in state.messages if message.role == "tool"]
    said = {names[block.call_id]: block.content[0].text for block in message.blocks}
    return {name: re.sub(r"^(\(aborted: \w+\)).*", r"\1", text) for name, text in said.items()}


# ---- D3: two runs on one conversation


ACTIONS: dict[str, Callable[[Agent, State], Awaitable[object]]] = {
    "run": lambda agent, state: agent.run(state),
    "run in a thread": lambda agent, state: trio.to_thread.run_sync(agent.run_sync, state),
    "think": lambda agent, state: agent.think(state),
    "use_tools": lambda agent, state: agent.use_tools(state),
    "compact": lambda agent, state: agent.compact(state),
}


@pytest.mark.parametrize("phase", ["the model thinks", "a tool runs"])
@pytest.mark.parametrize("kind", ["none", "memory", "files", "sqlite"])
@pytest.mark.parametrize("second", ACTIONS)
async def test_a_second_run_is_refused_at_once_and_nothing_is_recorded(
    second: str, kind: str, phase: str, tmp_path: Path
) -> None:
    """D3. Neither waits, nor takes turns, nor loads anew: an error, and the first goes on."""
    gate, there = trio.Event(), trio.Event()

    async def wait() -> str:
        there.set()
        await gate.wait()
        return "waited"

    @tool(name="wait")
    async def waiting() -> str:
        """Wait at the gate."""
        return await wait()

    async def answer(request: object) -> str:
        return await wait()

    state = started()
    model = FakeModel([answer] if phase == "the model thinks" else [tool_call("wait"), "waited"])
    agent = Agent(model=model, tools=[waiting], store=store_of(kind, tmp_path))
    answers: list[object] = []

    async def first() -> None:
        answers.append(await agent.run(state))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(first)
        await there.wait()
        before = list(state.history)
        with pytest.raises(ValueError, match=r"is in a run already|is on for State|pending|waits on"):
            await ACTIONS[second](agent, state)
        assert list(state.history) == before
        gate.set()

    assert answers == ["waited"]
    assert_whole(state)


HOLDING = """
kind, = args
if kind == "sqlite":
    store = SQLiteStore(folder + "/runs.db")

@tool
async def hold() -> str:
    "Hold the State for good."
    say("holding")
    await trio.sleep_forever()

state = State(id="one", messages=[Message.user("go")])
Agent(model=FakeModel([tool_call("hold")]), tools=[hold], store=store).run_sync(state)
"""


@pytest.mark.parametrize("kind", ["files", "sqlite"])
async def test_two_processes_on_one_conversation_are_one_run_and_one_clean_error(kind: str, tmp_path: Path) -> None:
    """D3. The loser learns it before it has done anything, whichever action it tries."""
    async with running(script(HOLDING, tmp_path, kind)) as child:
        await child.line_with("holding")
        store = store_of(kind, tmp_path)
        assert store is not None
        saved = await store.read("one")
        model = FakeModel(["never"] * 9)
        agent = Agent(model=model, store=store)

        for name in ("run", "think", "compact"):
            loaded = await store.load("one")
            before = list(loaded.history)
            with pytest.raises(RunningElsewhereError):
                await ACTIONS[name](agent, loaded)
            assert list(loaded.history) == before
        loaded = await store.load("one")
        with pytest.raises(RunningElsewhereError):
            await loaded.add_message(Message.user("double"))

        assert await store.read("one") == saved
        assert not model.requests


# ---- D5: the consumer stops early, the producer goes on


class Pulled(Exception):
    """What the consumer raises."""


@pytest.mark.parametrize("how", ["break", "return", "raise", "cancel"])
@pytest.mark.parametrize("at", range(6))
async def test_a_consumer_that_stops_at_any_event_ends_the_run_and_the_state_runs_on(at: int, how: str) -> None:
    """D5. The response is closed, the tool that was due doesn't run, nothing is raised that the block didn't raise."""
    ran: list[str] = []

    @tool
    async def due() -> str:
        """Leave a trace, later."""
        await trio.sleep(0.05)
        ran.append("due")
        return "done"

    script = [Fault(answer=["one two three four five six", tool_call("due")]), "done"]
    state = started()
    async with ProviderServer(script, chunk_size=40, delay=0.01) as server:
        agent = Agent(model=OpenAICompatible("m", base_url=server.base_url), tools=[due])
        await trio.testing.wait_all_tasks_blocked()
        before = tasks()

        async def consume() -> None:
            async with agent.stream(state) as run:
                number = 0
                async for _ in run:
                    if number == at:
                        if how == "raise":
                            raise Pulled
                        if how == "cancel":
                            scope.cancel()
                            await trio.lowlevel.checkpoint()
                        if how == "return":
                            return
                        break
                    number += 1

        with trio.CancelScope() as scope:
            if how == "raise":
                with pytest.raises(Pulled):
                    await consume()
            else:
                await consume()

        assert scope.cancelled_caught == (how == "cancel")
        assert not state.running
        assert errors(state) == ["Cancelled"]
        assert_whole(state)
        with trio.fail_after(20):
            while server.connections or tasks() > before:
                await trio.lowlevel.checkpoint()
        assert not ran
        server.add("on again")

    state.add_message(Message.user("on"))
    assert await Agent(model=FakeModel(["on again"])).run(state) == "on again"


async def test_a_consumer_that_does_not_look_holds_up_nobody_and_misses_no_entry() -> None:
    """D5. No full channel: the run ends as soon as it would have, and text comes in larger pieces."""

    @tool
    async def work() -> str:
        """Work."""
        return "ok"

    class InPieces(Model):
        name = "fake/pieces"

        async def respond(self, request: Request, emit: Emit) -> Reply:
            """Say three letters, one by one."""
            for letter in "abc":
                await trio.lowlevel.checkpoint()
                emit(TextDelta(letter))
            if len(request.messages) > 400:
                return Reply((TextBlock("abc"),), self.name, "stop")
            return Reply((TextBlock("abc"), tool_call("work")), self.name, "tool_calls")

    state = started()
    agent = Agent(model=InPieces(), tools=[work], loop=default_loop.copy(limit=1_000))
    async with agent.stream(state) as run:
        with trio.fail_after(60):
            while state.stopped is None:
                await trio.lowlevel.checkpoint()
        events = [event async for event in run]

    assert [event.entry for event in events if isinstance(event, EntryAdded)] == list(state.history)[1:]
    texts = [event.text for event in events if isinstance(event, TextDelta)]
    assert texts == [message.text for message in state.messages if message.role == "assistant"]
    assert state.answer == "abc"


# ---- D6: context reset in another context


SPAN: ContextVar[str] = ContextVar("span", default="none")


async def test_tools_their_tasks_and_threads_see_the_callers_context_and_theirs_does_not_leak_up() -> None:
    """D6. What is attached around a run is seen below it; what one call attaches, no other and nobody above sees."""
    seen: dict[str, str] = {}

    async def look(name: str) -> None:
        await trio.lowlevel.checkpoint()
        seen[name] = SPAN.get()

    @tool
    async def in_a_task(name: str) -> str:
        """Look, and attach a span of its own."""
        await look(name)
        SPAN.set(name)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(look, f"a task of {name}")
        return await trio.to_thread.run_sync(SPAN.get)

    @tool
    def in_a_thread(name: str) -> str:
        """The same in a thread."""
        seen[name] = SPAN.get()
        SPAN.set(name)
        trio.from_thread.run(look, f"a task of {name}")
        return SPAN.get()

    def model(request: Any) -> object:
        seen[f"model, {len(request.messages)} messages"] = SPAN.get()
        if len(request.messages) > 4:
            return "done"
        calls = [(kind, letter) for kind in ("in_a_task", "in_a_thread") for letter in "ab"]
        return [tool_call(kind, name=f"{kind} {letter}") for kind, letter in calls]

    token = SPAN.set("of the caller")
    try:
        state = started()
        await Agent(model=FakeModel(model), tools=[in_a_task, in_a_thread]).run(state)
        assert SPAN.get() == "of the caller"
    finally:
        SPAN.reset(token)

    below = {name: span for name, span in seen.items() if name.startswith("a task of")}
    assert below == {f"a task of {kind} {x}": f"{kind} {x}" for kind in ("in_a_task", "in_a_thread") for x in "ab"}
    assert {span for name, span in seen.items() if name not in below} == {"of the caller"}
    assert len(seen) == len(below) + 4 + 3


@pytest.mark.parametrize("below", [False, True])
@pytest.mark.parametrize("calls", [1, 2])
async def test_what_a_tool_sets_is_not_seen_by_the_loop_and_the_caller_however_it_runs(calls: int, below: bool) -> None:
    """D6. A call alone has no task of its own, but a context of its own as those beside others have."""
    seen: list[str] = []

    @tool
    async def attach() -> str:
        """Attach a span, and leave it there."""
        SPAN.set("of the tool")
        await trio.lowlevel.checkpoint()
        seen.append(SPAN.get())
        return "ok"

    @loop(until=waiting_for_user, limit=3)
    async def body(agent: Any, state: State) -> None:
        await agent.think(state)
        await agent.use_tools(state)
        seen.append(SPAN.get())

    agent = Agent(model=FakeModel([[tool_call("attach")] * calls, "done"]), tools=[attach], loop=body)
    if below:
        child = agent.copy(name="child", description="The child.")
        agent = Agent(model=FakeModel([tool_call("child", prompt="go"), "done"]), tools=[child])
    token = SPAN.set("of the caller")
    await agent.run(started())

    assert SPAN.get() == "of the caller"
    SPAN.reset(token)
    assert seen == ["of the tool"] * calls + ["of the caller"] * 2


@pytest.mark.parametrize("names", [["of_its_own"], ["in_a_thread"], ["of_its_own", "in_a_thread"]], ids="+".join)
async def test_what_a_thread_runs_in_its_task_sees_what_the_thread_has_set(names: list[str]) -> None:
    """D6. ``trio.from_thread.run`` runs it in the task that waits for the thread, in the thread's context."""
    seen: list[str] = []

    async def look() -> None:
        await trio.lowlevel.checkpoint()
        seen.append(SPAN.get())
        SPAN.set("below the thread")

    def work() -> str:
        SPAN.set("of the thread")
        trio.from_thread.run(look)
        return SPAN.get()

    @tool
    async def of_its_own() -> str:
        """Work in a thread that this tool starts, and look what is left of it."""
        SPAN.set("of the tool")
        return f"{await trio.to_thread.run_sync(work)}, {SPAN.get()}"

    @tool(abandon_on_cancel=False)
    def in_a_thread() -> str:
        """Work in the thread that the library starts."""
        return work()

    state = started()
    agent = Agent(model=FakeModel([[tool_call(name) for name in names], "done"]), tools=[of_its_own, in_a_thread])
    await agent.run(state)

    expected = {"of_its_own": "of the thread, of the tool", "in_a_thread": "of the thread"}
    assert seen == ["of the thread"] * len(names)
    assert results(state) == {name: expected[name] for name in names}
    assert SPAN.get() == "none"


async def test_a_tool_alone_is_cancelled_and_fails_as_in_a_task(autojump_clock: trio.testing.MockClock) -> None:
    """D6. The context of its own changes nothing else: what comes in and what goes out is the tool's."""
    error = ValueError("bug")
    closed: list[str] = []

    @tool
    async def slow() -> str:
        """Wait, notice that it is cancelled, and go on a little under a shield."""
        SPAN.set("of the tool")
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)
            closed.append(SPAN.get())
        return "unreachable"

    @tool
    async def bad() -> str:
        """Fail behind a checkpoint."""
        await trio.lowlevel.checkpoint()
        raise error

    with trio.move_on_after(5) as scope:
        await Agent(model=FakeModel([tool_call("slow")]), tools=[slow]).run(started())
    with fails_as(error):
        await Agent(model=FakeModel([tool_call("bad")]), tools=[bad]).run(started())

    assert scope.cancelled_caught
    assert closed == ["of the tool"]
    assert SPAN.get() == "none"


@pytest.mark.parametrize("at", range(7))
async def test_a_span_around_model_tool_or_loop_is_detached_where_it_was_attached(at: int) -> None:
    """D6. Whenever the consumer of a stream leaves: a span ends in the context it was begun in, or it raises."""
    ended: list[str] = []

    @contextmanager
    def span(name: str) -> Iterator[None]:
        token = SPAN.set(name)
        try:
            yield
        finally:
            SPAN.reset(token)  # ValueError: created in a different Context
            ended.append(name)

    async def steps() -> None:
        for _ in range(3):
            await trio.lowlevel.checkpoint()

    @tool
    async def traced() -> str:
        """Work in a span."""
        with span("tool"):
            await steps()
        return "ok"

    async def model(request: Any) -> Any:
        with span("model"):
            await steps()
        return "done" if len(request.messages) > 1 else [tool_call("traced"), tool_call("traced")]

    @loop(until=waiting_for_user, limit=3)
    async def turns(agent: Any, state: State) -> None:
        with span("turn"):
            await default_loop.body(agent, state)

    state = started()
    with span("caller"):
        async with Agent(model=FakeModel(model), tools=[traced], loop=turns).stream(state) as run:
            for _ in range(at):
                await anext(run)
        assert SPAN.get() == "caller"

    assert ended[-1] == "caller"
    assert "turn" in ended or not state.turn
    assert {text.partition(":")[0] for text in errors(state)} <= {"Cancelled"}
    assert_whole(state)


# ---- D7: an ExceptionGroup reaches the user


class Refused(ProviderError):
    """What a provider answered."""


@pytest.mark.parametrize("kind", ["none", "memory", "files", "sqlite"])
@pytest.mark.parametrize("action", ["run", "run_sync", "think", "use_tools", "ask", "compact"])
@pytest.mark.parametrize("calls", [1, 3])
async def test_except_catches_what_failed_by_its_class_whatever_nursery_it_came_through(
    calls: int, action: str, kind: str, tmp_path: Path
) -> None:
    """D7. In the model or in a tool, with or without the keeper's nursery, inside a run and outside of one."""
    error = Refused("no")
    error.__cause__ = OSError("why")

    async def refuse(*_: object) -> Any:
        async with trio.open_nursery() as nursery:  # as a transport has one
            nursery.start_soon(trio.sleep_forever)
            await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        raise error

    @tool
    async def failing() -> str:
        """Fail."""
        return await refuse()

    asked = [tool_call("failing")] * calls
    state, store = started(), store_of(kind, tmp_path)
    if action == "use_tools":
        await Agent(model=FakeModel([asked]), tools=[failing], store=store).think(state)
    agent = Agent(model=FakeModel([refuse] if calls == 1 else [asked, refuse]), tools=[failing], store=store)
    do: dict[str, Callable[[], Awaitable[object]]] = {
        "run": lambda: agent.run(state),
        "run_sync": lambda: trio.to_thread.run_sync(agent.run_sync, state),
        "think": lambda: agent.copy(model=FakeModel([refuse])).think(state),
        "use_tools": lambda: agent.use_tools(state),
        "ask": lambda: agent.copy(model=FakeModel([refuse])).ask(state, "why?"),
        "compact": lambda: agent.copy(model=FakeModel([refuse])).compact(state),
    }
    with pytest.raises(ProviderError) as caught:
        await do[action]()

    assert caught.value is error
    assert str(error.__cause__) == "why"


async def test_a_tool_error_in_a_nursery_of_the_tools_own_stays_a_result_or_comes_out_as_it_is() -> None:
    """D7. A group that the tool itself raises is the user's: nobody takes it apart, and nothing of it is lost."""
    group = ExceptionGroup("mine", [ToolError("a"), ValueError("b")])

    @tool
    async def gathers() -> str:
        """Raise a group."""
        await trio.lowlevel.checkpoint()
        raise group

    for calls in (1, 2):
        state = started()
        with fails_as(group):
            await Agent(model=FakeModel([[tool_call("gathers")] * calls]), tools=[gathers]).run(state)
        assert_whole(state)


# ---- D8: clean-up skipped for BaseException


INTERRUPTED = """
kind, phase, port = args
if kind == "sqlite":
    store = SQLiteStore(folder + "/runs.db")

@tool
async def wait() -> str:
    "Wait for good."
    say("there")
    await trio.sleep_forever()

@tool
def hang() -> str:
    "Hang for good, in a thread."
    say("there")
    threading.Event().wait()

class Slow(FileStore if kind == "files" else SQLiteStore):
    "Its second write takes a while."
    async def append(self, *args):
        if phase == "a write" and args[1] == 1:
            say("there")
            with trio.CancelScope(shield=True):
                await trio.sleep(0.2)
        return await super().append(*args)

if phase == "a write":
    store = Slow(folder if kind == "files" else folder + "/runs.db")
names = {"tools": ["wait", "hang"], "a tool": ["wait"], "a thread": ["hang"], "a write": ["wait"]}
model = OpenAICompatible("m", base_url=f"http://127.0.0.1:{port}/v1")
if phase != "the stream":
    model = FakeModel([[tool_call(name) for name in names[phase]]])
state = State(id="one", messages=[Message.user("go")])
try:
    Agent(model=model, tools=[wait, hang], store=store).run_sync(state)
except KeyboardInterrupt:
    say(f"interrupted, {len(state.pending_calls)} pending")
    os._exit(0)
"""


@pytest.mark.parametrize("kind", ["files", "sqlite"])
@pytest.mark.parametrize("phase", ["the stream", "a tool", "a thread", "tools", "a write"])
async def test_ctrl_c_leaves_a_saved_state_that_loads_and_goes_on(phase: str, kind: str, tmp_path: Path) -> None:
    """D8. In each phase, with a real signal to a real process; it comes out as KeyboardInterrupt, soon."""
    async with ProviderServer([Fault(cut_after=250, stall=True)] * 2) as server:
        port = server.base_url.rpartition(":")[2].removesuffix("/v1")
        async with running(script(INTERRUPTED, tmp_path, kind, phase, port)) as child:
            await reached(child, phase, server)
            start = trio.current_time()
            child.process.send_signal(signal.SIGINT)
            assert await child.line_with("interrupted") == "interrupted, 0 pending"
            assert trio.current_time() - start < 5  # not the grace of a store that hangs; far less on a quiet machine

    store = store_of(kind, tmp_path)
    assert store is not None
    state = await store.load("one")
    assert_whole(state)
    assert errors(state) == ["KeyboardInterrupt"]
    assert {outcome for _, outcome in outcomes(state)} <= {"interrupted"}
    state.add_message(Message.user("on"))
    with pytest.warns(UserWarning, match="another Agent"):
        assert await Agent(model=FakeModel(["on again"], name="fake/other"), store=store).run(state) == "on again"


async def reached(child: Child, phase: str, server: ProviderServer) -> None:
    """Return when the process is in this phase."""
    if phase == "the stream":
        while not server.requests:
            await trio.lowlevel.checkpoint()
    else:
        for _ in range(2 if phase == "tools" else 1):
            await child.line_with("there")


async def test_what_is_awaited_while_a_cancelled_run_closes_is_done() -> None:
    """D8. The store's last write has awaits in it; under a cancelled scope each would raise at once."""
    steps = 0

    class Careful(MemoryStore):
        async def append(self, *args: Any) -> None:
            nonlocal steps
            for _ in range(5):
                await trio.lowlevel.checkpoint()
                steps += 1
            await super().append(*args)

    @tool
    async def forever() -> str:
        """Never end."""
        await trio.sleep_forever()
        return "unreachable"

    store, state = Careful(), started()
    agent = Agent(model=FakeModel([tool_call("forever"), "back"]), tools=[forever], store=store)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.run, state)
        while not state.pending_calls:
            await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        steps = 0
        nursery.cancel_scope.cancel()

    assert steps >= 5
    assert await store.load(state.id) is not None
    assert list((await store.load(state.id)).history) == list(state.history)
    assert await agent.run(state) == "back"


# ---- D9: connection slots lost on cancel


class CancelAt(trio.abc.Instrument):
    """Cancels a scope before the step of this number, counted from when it is armed."""

    def __init__(self, step: int) -> None:
        self.scope: trio.CancelScope | None = None
        self._left = step

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if self.scope is not None:
            if not self._left:
                self.scope.cancel()
            self._left -= 1


@pytest.mark.parametrize("queued", [False, True])
async def test_a_request_cancelled_at_any_step_gives_its_slot_and_its_connection_back(queued: bool) -> None:
    """D9. Of one slot; connecting, waiting in line, for the headers, in the stream: then one normal request.

    There is no limit of a connection pool that could run out behind the back of who set it: ``RateLimit`` is the one.
    """
    limit = RateLimit(concurrent=1)
    step, reached_the_end = 0, False
    async with ProviderServer([Fault(answer="Hello, " * 20, chunk_size=40)] * 3_000) as server:
        model = OpenAICompatible("m", base_url=server.base_url, rate_limit=limit)
        agent = Agent(model=model)
        while not reached_the_end:
            cancelling = CancelAt(step)
            trio.lowlevel.add_instrument(cancelling)
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    if queued:
                        nursery.start_soon(agent.run, "first")
                    cancelling.scope = scope
                    await agent.run("go")
            trio.lowlevel.remove_instrument(cancelling)
            reached_the_end = not scope.cancelled_caught
            with trio.fail_after(20):
                assert await agent.run("a normal one") == "Hello, " * 20
            step += 1
    assert step > 20


async def test_a_request_cancelled_in_the_tls_handshake_gives_its_slot_back() -> None:
    """D9. The other side takes the connection and says nothing."""
    limit = RateLimit(concurrent=1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        stuck = OpenAICompatible("m", base_url=f"https://127.0.0.1:{port}/v1", rate_limit=limit)
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(Agent(model=stuck).run, "go")
            taken, _ = await trio.to_thread.run_sync(silent.accept)
            with taken:
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()

    async with ProviderServer(["Hello."]) as server:
        with trio.fail_after(20):
            model = OpenAICompatible("m", base_url=server.base_url, rate_limit=limit)
            assert await Agent(model=model).run("go") == "Hello."


# ---- D10: unbounded fan-out


class Crowd:
    """Counts how many are inside at the same time."""

    def __init__(self) -> None:
        self.inside = self.most = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.inside -= 1


@pytest.mark.parametrize(("limit", "most"), [({}, 16), ({"max_parallel_tools": 3}, 3), ({"max_parallel_tools": 1}, 1)])
@pytest.mark.parametrize("threaded", [False, True])
async def test_five_hundred_calls_of_one_reply_run_a_few_at_a_time(
    threaded: bool, limit: dict[str, int], most: int
) -> None:
    """D10. 16 unless the Agent says otherwise; their results come in the order of the calls."""
    crowd = Crowd()
    together = threading.Barrier(most)

    @tool(name="work")
    async def work(number: int) -> int:
        """Count who is here."""
        with crowd:
            for _ in range(3 + number % 5):  # long enough for all that may to be here at once
                await trio.lowlevel.checkpoint()
        return number

    @tool(name="work")
    def work_in_a_thread(number: int) -> int:
        """Count who is here."""
        with crowd:
            if number < 480:  # so many whole crowds of 16, of 3 and of 1
                together.wait(timeout=60)
        return number

    state = started()
    script = [[tool_call("work", number=number) for number in range(500)], "done"]
    agent = Agent(model=FakeModel(script), tools=[work_in_a_thread if threaded else work], **limit)
    assert await agent.run(state) == "done"

    (message,) = [message for message in state.messages if message.role == "tool"]
    assert [block.content[0].text for block in message.blocks] == [str(number) for number in range(500)]
    assert crowd.most == most


async def test_a_tool_that_is_not_safe_beside_others_runs_alone() -> None:
    """D10. ``parallel=False``: neither beside itself nor beside the others."""
    alone, others = Crowd(), Crowd()

    @tool(parallel=False)
    async def careful(number: int) -> int:
        """Must be alone."""
        with alone:
            await trio.lowlevel.checkpoint()
            assert not others.inside
        return number

    @tool
    async def easy(number: int) -> int:
        """Needn't be."""
        with others:
            await trio.lowlevel.checkpoint()
            assert not alone.inside
        return number

    state = started()
    script = [[tool_call(("careful", "easy")[number % 2], number=number) for number in range(100)], "done"]
    assert await Agent(model=FakeModel(script), tools=[careful, easy]).run(state) == "done"

    (message,) = [message for message in state.messages if message.role == "tool"]
    assert [block.content[0].text for block in message.blocks] == [str(number) for number in range(100)]
    assert (alone.most, others.most) == (1, 16)


async def test_the_limit_holds_for_each_state_by_itself() -> None:
    """D10. Many conversations don't wait for each other."""
    crowd, all_there = Crowd(), trio.Event()

    @tool
    async def meet() -> str:
        """Wait until two from each State are here."""
        with crowd:
            if crowd.inside == 20:
                all_there.set()
            await all_there.wait()
        return "met"

    @loop(until=waiting_for_user, limit=2)
    async def two_turns(agent: Any, state: State) -> None:
        await default_loop.body(agent, state)

    agent = Agent(
        model=FakeModel(lambda request: "done" if len(request.messages) > 1 else [tool_call("meet")] * 5),
        tools=[meet],
        max_parallel_tools=2,
        loop=two_turns,
    )
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(agent.run, started())
    assert crowd.most == 20

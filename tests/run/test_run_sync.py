"""run_sync: in scripts, and in the threads of sync tools, where the run is part of the tool's call."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import trio

from alpineagents import Agent, Message, State, Tool, loop, tool, waiting_for_user
from alpineagents.run._sync import run_sync
from alpineagents.testing import FakeModel, tool_call

from .runs import assert_whole, outcomes, tasks

EITHER = pytest.mark.parametrize("abandon", [False, True], ids=["waited for", "may be abandoned"])


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


@EITHER
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


@EITHER
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


@EITHER
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


class AfterStep(trio.abc.Instrument):
    """Does something after a step of *task* for which *when* holds."""

    def __init__(self, task: trio.lowlevel.Task, when: Callable[[], bool], do: Callable[[], None]) -> None:
        self._task = task
        self._when = when
        self._do = do

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self._task and self._when():
            self._do()


@EITHER
async def test_a_call_lasts_until_all_that_its_threads_run_has_ended(abandon):
    """Also when the tool itself has ended: what it has left behind in somebody else's nursery is still the call's."""
    inner, seen = State(id="inner", messages=[Message.user("hi")]), []
    started, tool_left, told = threading.Event(), threading.Event(), trio.Event()

    async def answer(request):
        started.set()
        await told.wait()
        await trio.lowlevel.checkpoint()
        return "from the helper"

    helper = Agent(model=FakeModel([answer]))

    def last(request):
        seen.append((inner.parent_id, inner.running, inner.answer))
        return "done"

    instrument = AfterStep(trio.lowlevel.current_task(), tool_left.is_set, told.set)
    async with trio.open_nursery() as elsewhere:

        @tool(abandon_on_cancel=abandon)
        def delegate() -> str:
            """Have somebody else answer, and don't wait for it."""
            trio.from_thread.run_sync(elsewhere.start_soon, trio.to_thread.run_sync, helper.run_sync, inner)
            started.wait(30)
            tool_left.set()
            return "begun"

        outer = State(id="outer", messages=[Message.user("go")])
        trio.lowlevel.add_instrument(instrument)
        await Agent(model=FakeModel([tool_call("delegate"), last]), tools=[delegate]).run(outer)
    trio.lowlevel.remove_instrument(instrument)

    assert seen == [("outer", False, "from the helper")]


@EITHER
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


@EITHER
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


# Whose a thread is


def in_a_thread_with_this_context(fn: Callable[[], object]) -> None:
    thread = threading.Thread(target=contextvars.copy_context().run, args=(fn,))
    thread.start()
    thread.join()


def in_a_thread_of_asyncio(fn: Callable[[], object]) -> None:
    async def main() -> None:
        await asyncio.to_thread(fn)

    asyncio.run(main())


def in_a_thread_of_another_trio_run(fn: Callable[[], object]) -> None:
    trio.run(trio.to_thread.run_sync, fn)


@EITHER
@pytest.mark.parametrize(
    "in_a_thread", [in_a_thread_with_this_context, in_a_thread_of_asyncio, in_a_thread_of_another_trio_run]
)
async def test_a_thread_that_the_tool_starts_by_itself_is_its_own_though_it_has_its_context(in_a_thread, abandon):
    inner = State(id="inner", messages=[Message.user("hi")])
    helper = Agent(model=FakeModel(["from the helper"]))

    @tool(abandon_on_cancel=abandon)
    def delegate() -> str:
        """Have somebody else answer, in another thread."""
        in_a_thread(lambda: helper.run_sync(inner))
        return "done"

    outer = State(id="outer", messages=[Message.user("go")])
    await Agent(model=FakeModel([tool_call("delegate"), "done"]), tools=[delegate]).run(outer)

    assert (inner.answer, inner.parent_id) == ("from the helper", None)
    assert outcomes(outer) == [("delegate", "done")]


@EITHER
async def test_a_thread_below_another_call_is_its_own_also_where_the_tool_has_trio_run_the_agent(abandon):
    deep, middle = State(messages=[Message.user("deep")]), State(messages=[Message.user("middle")])
    helper = Agent(model=FakeModel(["from the helper"]))

    @tool
    async def threaded() -> str:
        """Have somebody else answer, in a thread that trio starts for this tool."""
        return str(await trio.to_thread.run_sync(helper.run_sync, deep))

    middle_agent = Agent(model=FakeModel([tool_call("threaded"), "done"]), tools=[threaded])

    @tool(abandon_on_cancel=abandon)
    def delegate() -> str:
        """Have somebody else answer, by way of trio."""
        return str(trio.from_thread.run(middle_agent.run, middle))

    await Agent(model=FakeModel([tool_call("delegate"), "done"]), tools=[delegate]).run("go")

    assert (deep.answer, deep.parent_id) == ("from the helper", None)


def test_a_thread_whose_trio_run_has_ended_is_told_so():
    entered, go_on, told = threading.Event(), threading.Event(), threading.Event()
    errors = []

    @tool
    def stay() -> str:
        """Stay behind."""
        entered.set()
        go_on.wait(30)
        try:
            Agent(model=FakeModel(["x"])).run_sync("hi")
        except RuntimeError as error:
            errors.append(str(error))
        told.set()
        return "late"

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Agent(model=FakeModel([tool_call("stay")]), tools=[stay]).run, "go")
            await trio.to_thread.run_sync(entered.wait, 30)
            nursery.cancel_scope.cancel()

    trio.run(main)
    go_on.set()
    assert told.wait(30)

    assert errors == ["run_sync: the tool call that this thread belongs to has ended"]


# Ctrl+C, and what goes wrong


def interrupt_trio() -> None:
    """Ctrl+C at a moment at which trio keeps it for its main task."""
    trio.lowlevel.current_trio_token().run_sync_soon(signal.raise_signal, signal.SIGINT)


def interrupt_here() -> None:
    """Ctrl+C at a moment at which it hits the code that runs."""
    signal.raise_signal(signal.SIGINT)


@EITHER
@pytest.mark.parametrize("interrupt", [interrupt_trio, interrupt_here])
def test_ctrl_c_while_a_call_waits_for_what_its_thread_runs_comes_out_when_that_has_ended(
    agent_clock, abandon, interrupt
):
    """The call has timed out, so nobody asks its thread any more."""
    inner, cleaned, running = State(id="inner", messages=[Message.user("wait")]), [], []
    left = threading.Event()

    async def wait(request):
        try:
            await trio.sleep_forever()
        finally:
            try:
                with trio.CancelScope(shield=True):
                    interrupt()
                    await trio.sleep(3)
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(3)
                cleaned.append(1)

    helper = Agent(model=FakeModel([wait]))

    @tool(timeout=10, abandon_on_cancel=abandon)
    def delegate() -> str:
        """Have somebody else answer."""
        try:
            return str(helper.run_sync(inner))
        finally:
            left.set()

    outer = State(id="outer", messages=[Message.user("go")])

    async def main() -> None:
        try:
            await Agent(model=FakeModel([tool_call("delegate"), "done"]), tools=[delegate]).run(outer)
        finally:
            running.append(inner.running)

    with pytest.raises(KeyboardInterrupt):
        trio.run(main, clock=agent_clock)
    assert left.wait(30)

    assert (cleaned, running) == ([1], [False])
    assert outcomes(outer) == [("delegate", "interrupted")]
    assert_whole(inner)
    assert_whole(outer)


@EITHER
async def test_a_ctrl_c_that_the_tool_has_handled_is_not_told_again(agent_clock, abandon):
    """Though the call is cancelled later."""

    async def interrupted() -> None:
        interrupt_here()

    @tool(timeout=10, abandon_on_cancel=abandon)
    def delegate() -> None:
        """Have something run, twice."""
        with pytest.raises(KeyboardInterrupt):
            run_sync(interrupted)
        run_sync(trio.sleep_forever)

    outer = State(id="outer", messages=[Message.user("go")])
    await Agent(model=FakeModel([tool_call("delegate"), "done"]), tools=[delegate]).run(outer)

    assert outer.answer == "done"
    assert outcomes(outer) == [("delegate", "error")]


@EITHER
async def test_ctrl_c_may_interrupt_what_a_thread_runs_wherever_it_is(abandon):
    protected = []

    async def look() -> None:
        protected.append(trio.lowlevel.currently_ki_protected())

    @tool(abandon_on_cancel=abandon)
    def delegate() -> None:
        """Have something run."""
        run_sync(look)

    await Agent(model=FakeModel([tool_call("delegate"), "done"]), tools=[delegate]).run("go")

    assert protected == [False]


@EITHER
def test_a_ctrl_c_in_a_nursery_below_a_thread_is_found_in_its_group(agent_clock, abandon):
    """A group of a tool's own, of which one is the Ctrl+C: it comes out all the same."""
    left = threading.Event()

    async def wait() -> None:
        async with trio.open_nursery() as nursery:
            try:
                await trio.sleep_forever()
            finally:
                nursery.start_soon(interrupted)

    async def interrupted() -> None:
        interrupt_here()

    @tool(timeout=10, abandon_on_cancel=abandon)
    def delegate() -> None:
        """Have something run."""
        try:
            run_sync(wait)
        finally:
            left.set()

    agent = Agent(model=FakeModel([tool_call("delegate"), "done"]), tools=[delegate])
    with pytest.raises((KeyboardInterrupt, BaseExceptionGroup)) as caught:
        trio.run(agent.run, "go", clock=agent_clock)
    assert left.wait(30)

    error = caught.value
    assert isinstance(error, KeyboardInterrupt) or error.subgroup(KeyboardInterrupt)


@EITHER
def test_what_a_scope_that_is_left_open_below_a_thread_does_is_said_by_trio(abandon):
    scopes = []

    @loop(until=waiting_for_user, limit=3)
    async def leaving_one_open(agent, state):
        scopes.append(trio.CancelScope())
        scopes[-1].__enter__()
        await agent.think(state)

    helper = Agent(model=FakeModel(["from the helper"]), loop=leaving_one_open)
    outer = Agent(
        model=FakeModel([tool_call("delegate")]), tools=[delegating(State(), helper, abandon_on_cancel=abandon)]
    )

    with pytest.raises(RuntimeError, match="Cancel scope stack corrupted"):
        outer.run_sync("go")


# What is kept


@contextmanager
def no_garbage_collected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@EITHER
async def test_a_state_goes_with_its_run_when_nobody_has_it_any_more(abandon):
    """In an event loop that goes on: no task, context or traceback of the run still holds it."""
    helper, todo = Agent(model=FakeModel(["from the helper"] * 2)), []

    @tool(abandon_on_cancel=abandon)
    def delegate() -> str:
        """Have somebody else answer."""
        return str(helper.run_sync(todo.pop()))

    agent = Agent(model=FakeModel([[tool_call("delegate"), tool_call("delegate")], "done"]), tools=[delegate])
    todo += [State(messages=[Message.user("hi")]) for _ in range(2)]
    outer = State(messages=[Message.user("go")])
    states = [weakref.ref(state) for state in (outer, *todo)]

    with no_garbage_collected():
        await agent.run(outer)
        del outer
        for _ in range(3):  # until the threads, too, have let go of what they were given
            await trio.to_thread.run_sync(str)

        assert [state() for state in states] == [None] * 3


class Failure(Exception):
    """Can be watched."""


@EITHER
async def test_an_error_goes_when_the_tool_has_handled_it(abandon):
    failures = []

    async def fail() -> None:
        error = Failure()
        failures.append(weakref.ref(error))
        try:
            raise error
        finally:
            del error

    @tool(abandon_on_cancel=abandon)
    def delegate() -> str:
        """Have something run."""
        try:
            run_sync(fail)
        except Failure:
            return "failed"
        return "never"

    agent = Agent(model=FakeModel([tool_call("delegate"), "done"]), tools=[delegate])
    with no_garbage_collected():
        await agent.run("go")

        assert [failure() for failure in failures] == [None]

"""Cancelled or interrupted at any step: nothing is left behind, the record is true, and the State runs on."""

from __future__ import annotations

import inspect
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import ClassVar

import pytest
import trio
import trio.testing

from alpineagents import (
    Agent,
    FileStore,
    MemoryStore,
    Message,
    State,
    Store,
    StoreError,
    TextBlock,
    Tool,
    ToolOutcome,
    default_loop,
    loop,
    stop_on_sigterm,
    tool,
    waiting_for_user,
)
from alpineagents.testing import FakeModel, tool_call

from .children import running, script
from .runs import FullStore, HungStore, assert_saved, assert_whole, errors, kinds, outcomes, tasks


class AtStep(trio.abc.Instrument):
    """Does something just before the step of number *step*, of whichever task, while it is armed."""

    def __init__(self, step: int, do: Callable[[], None]) -> None:
        self.armed = False
        self.done = False
        self._left = step
        self._do = do

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if self.armed:
            if not self._left:
                self.armed, self.done = False, True
                self._do()
            self._left -= 1


class Scene:
    """A run with three tools, one async, one in a thread, one failing, and a message that arrives meanwhile."""

    def __init__(self, store: Store | None) -> None:
        self.store = store
        self.state = State(messages=[Message.user("go")])
        self.failing = True
        self.raised = ZeroDivisionError("bug")

        @tool
        async def talkative(state: State) -> str:
            """Have somebody talk meanwhile."""
            state.add_message(Message.notice("news"))
            for _ in range(3):
                await trio.lowlevel.checkpoint()
            return "talked"

        @tool
        def threaded() -> str:
            """Run in a thread."""
            return "from a thread"

        @tool
        async def failing() -> str:
            """Fail, a little later."""
            for _ in range(2):
                await trio.lowlevel.checkpoint()
            if self.failing:
                raise self.raised
            return "well now"

        def answer(request):
            if any(message.role == "tool" for message in request.messages):
                return "done"
            return [tool_call("talkative"), tool_call("threaded"), tool_call("failing")]

        self.agent = Agent(model=FakeModel(answer), tools=[talkative, threaded, failing], store=store)

    async def play(self) -> None:
        """Run it, with somebody who awaits a message meanwhile; no group of the library's making comes out."""
        try:
            await self.agent.run(self.state)
        except ZeroDivisionError as error:
            if error is not self.raised or not self.failing:
                raise
        except BaseExceptionGroup as group:
            raise AssertionError(f"a group came out: {group!r}") from group

    async def check(self) -> None:
        """After whatever happened: whole, saved, and it runs on to its end."""
        assert_whole(self.state)
        if self.store is not None and await self.store.has(self.state.id):
            await assert_saved(self.store, self.state)
        self.failing = False
        before = list(self.state.history)
        self.state.add_message(Message.user("go on"))
        with trio.fail_after(60):
            assert await self.agent.run(self.state) == "done"
        assert list(self.state.history)[: len(before)] == before
        assert_whole(self.state)
        if self.store is not None:
            await assert_saved(self.store, self.state)


def store_of(kind: str, folder: Path) -> Store | None:
    return {"none": lambda: None, "memory": MemoryStore, "files": lambda: FileStore(folder, fsync=False)}[kind]()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["none", "memory", "files"])
def test_a_run_cancelled_at_any_step_leaves_a_whole_saved_state_that_runs_on(kind: str, tmp_path: Path):
    """Every checkpoint of the run, one run each."""

    async def main(step: int) -> bool:
        scene = Scene(store_of(kind, tmp_path / str(step)))
        with trio.CancelScope() as scope:
            instrument = AtStep(step, scope.cancel)
            trio.lowlevel.add_instrument(instrument)
            before = tasks()
            instrument.armed = True
            await scene.play()
            instrument.armed = False
        trio.lowlevel.remove_instrument(instrument)
        assert tasks() == before
        if scope.cancelled_caught:
            assert errors(scene.state).count("Cancelled") <= 1
        await scene.check()
        return instrument.done

    step = 0
    while trio.run(main, step):
        step += 1
        assert step < 1_000
    assert step > 10


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["none", "memory", "files"])
def test_a_run_interrupted_at_any_step_leaves_a_whole_saved_state_that_runs_on(kind: str, tmp_path: Path):
    """Ctrl+C, by a real signal; it comes out as itself, never in a group."""

    def play(step: int) -> bool:
        scene = Scene(store_of(kind, tmp_path / str(step)))
        instrument = AtStep(step, lambda: signal.raise_signal(signal.SIGINT))

        async def main() -> None:
            instrument.armed = True
            await scene.play()
            instrument.armed = False

        try:
            trio.run(main, instruments=[instrument])
        except KeyboardInterrupt:
            assert instrument.done
            closed = {outcome for _, outcome in outcomes(scene.state)}
            assert closed <= {"done", "interrupted", "aborted"}
            if "ZeroDivisionError: bug" not in errors(scene.state):
                assert "aborted" not in closed
        trio.run(scene.check)
        return instrument.done

    step = 0
    while play(step):
        step += 1
        assert step < 1_000
    assert step > 10


@pytest.mark.slow
@pytest.mark.parametrize("action", ["think", "use_tools", "ask", "compact", "save", "receipt", "run"])
def test_ctrl_c_at_any_moment_of_an_action_leaves_a_state_that_can_be_used(action: str):
    """No lease, turn or action stays taken."""

    def play(moment: int) -> bool:
        store = MemoryStore()
        state = State(messages=[Message.user("go")])
        agent = Agent(model=FakeModel(lambda request: _answer(request, action)), tools=[add], store=store)
        if action == "use_tools":
            trio.run(agent.think, state)
        if action == "receipt":
            trio.run(store.save, state)

        async def main() -> None:
            match action:
                case "ask":
                    await agent.ask(state, "why?")
                case "save":
                    await store.save(state)
                case "receipt":
                    async with state.edit_extra_data() as data:
                        data["x"] = 1
                case _:
                    await getattr(agent, action)(state)

        interrupt = At(moment, lambda: signal.raise_signal(signal.SIGINT))
        try:
            trio.run(interrupt.around, main)
        except KeyboardInterrupt:
            pass
        except BaseExceptionGroup as group:
            raise AssertionError(f"a group came out at {interrupt.where}: {group!r}") from group

        async def afterwards() -> None:
            with trio.fail_after(10):
                async with state.edit_extra_data() as data:
                    data["after"] = 1
                if state.pending_calls:
                    await agent.use_tools(state)
                await agent.ask(state, "well?")
                await store.save(state)
                await agent.run(state)
                assert_whole(state)
                loaded = await assert_saved(store, state)
                loaded.add_message(Message.user("go on"))
                await agent.run(loaded)

        try:
            trio.run(afterwards)
        except Exception as error:
            raise AssertionError(f"interrupted at {interrupt.where}: {error!r}") from error
        return interrupt.done

    moment = 0
    while play(moment):
        moment += STRIDES.get(action, 5)
        assert moment < 5_000
    assert moment > 50


STRIDES = {"run": 13, "ask": 3, "save": 1, "receipt": 1}
"""Every how manieth moment of an action is tried, to keep it short; 1 tries them all."""


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def _answer(request, action):
    if action in ("use_tools", "run") and not any(message.role == "tool" for message in request.messages):
        return tool_call("add", a=1, b=1)
    return "text"


class At:
    """Does something at the moment of number *moment*, counted while ``around`` awaits.

    A moment is one at which CPython looks at signals in the library, or in contextlib on its behalf: a function is
    entered, a call of a C function has returned. (Entering a coroutine is left out: what a profiler raises there
    isn't unwound as what a signal handler raises is.)
    """

    def __init__(self, moment: int, do: Callable[[], object]) -> None:
        self.done = False
        self.where = ""
        self._left = moment
        self._do = do

    async def around(self, fn) -> None:
        sys.setprofile(self._profile)
        try:
            await fn()
        finally:
            sys.setprofile(None)

    def _profile(self, frame, event, arg) -> None:
        code = frame.f_code
        if self.done or not _is_library(code.co_filename):
            return
        if event != "c_return" and (event != "call" or code.co_flags & _SUSPENDABLE):
            return
        if not self._left:
            self.done = True
            self.where = f"{event} {code.co_filename}:{frame.f_lineno}"
            sys.setprofile(None)
            self._do()
        self._left -= 1


_SUSPENDABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def _is_library(path: str) -> bool:
    return ("/alpineagents/" in path or path.endswith("/contextlib.py")) and "/tests/" not in path


def interrupted_at_each_moment(
    main: Callable[[], Awaitable[None]], check: Callable[[str], None] = lambda where: None, kind: type[At] = At
) -> int:
    """Run it with Ctrl+C, by a real signal, at one moment after the other, which comes out. How many there are."""
    moment = 0
    while True:
        interrupt = kind(moment, lambda: signal.raise_signal(signal.SIGINT))
        try:
            trio.run(interrupt.around, main)
        except KeyboardInterrupt:
            assert interrupt.done
        else:
            assert not interrupt.done
        check(interrupt.where)
        if not interrupt.done:
            return moment
        moment += 1


# Ctrl+C in each phase (D8)


def interrupted(agent: Agent, state: State, when: Callable[[], bool]) -> None:
    """Run, as the main task, and press Ctrl+C once everything waits and *when* is true."""

    async def main() -> None:
        trio.lowlevel.spawn_system_task(press)
        await agent.run(state)

    async def press() -> None:
        while not when():
            await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        trio.run(main, strict_exception_groups=True)


@tool
async def forever() -> str:
    """Never end."""
    await trio.sleep_forever()
    raise AssertionError("unreachable")


@pytest.mark.parametrize("calls", [1, 2])
@pytest.mark.parametrize("kind", ["none", "memory", "files"])
def test_ctrl_c_while_tools_wait_interrupts_the_calls(calls: int, kind: str, tmp_path: Path):
    store = store_of(kind, tmp_path)
    state = State(messages=[Message.user("go")])
    agent = Agent(model=FakeModel([[tool_call("forever") for _ in range(calls)], "back"]), tools=[forever], store=store)

    interrupted(agent, state, lambda: len(state.pending_calls) == calls)

    assert outcomes(state) == [("forever", "interrupted")] * calls
    assert errors(state) == ["KeyboardInterrupt"]
    assert_whole(state)
    if store is not None:
        trio.run(assert_saved, store, state)
    assert agent.run_sync(state) == "back"


@pytest.mark.parametrize("calls", [1, 2])
def test_ctrl_c_while_tools_wait_comes_out_of_run_sync_as_itself(calls: int):
    """run is the main task itself: Ctrl+C arrives inside its own nursery."""
    state = State(messages=[Message.user("go")])
    agent = Agent(model=FakeModel([[tool_call("knock") for _ in range(calls)], "back"]), tools=[knock()])

    with pytest.raises(KeyboardInterrupt):
        agent.run_sync(state)

    assert outcomes(state) == [("knock", "interrupted")] * calls
    assert errors(state) == ["KeyboardInterrupt"]
    assert_whole(state)
    assert agent.run_sync(state) == "back"


def knock():
    @tool
    async def knock() -> str:
        """Wait, until Ctrl+C is pressed while everybody waits."""
        await trio.testing.wait_all_tasks_blocked()
        trio.lowlevel.spawn_system_task(press)
        await trio.sleep_forever()
        raise AssertionError("unreachable")

    pressed = []

    async def press() -> None:
        await trio.testing.wait_all_tasks_blocked()
        if not pressed:
            pressed.append(True)
            signal.raise_signal(signal.SIGINT)

    return knock


@pytest.mark.parametrize("kind", ["none", "memory", "files"])
def test_ctrl_c_while_the_model_thinks_takes_the_request_back(kind: str, tmp_path: Path):
    store = store_of(kind, tmp_path)
    state = State(messages=[Message.user("go")])

    async def slow(request):
        await trio.sleep_forever()

    agent = Agent(model=FakeModel([slow, "back"]), store=store)

    interrupted(agent, state, lambda: bool(agent.model.requests))

    assert (state.turn, errors(state)) == (0, ["KeyboardInterrupt"])
    assert_whole(state)
    if store is not None:
        trio.run(assert_saved, store, state)
    assert agent.run_sync(state) == "back"


def test_ctrl_c_while_the_store_writes_is_closed_and_saved():
    """In a barrier: the write goes on, and so does the save of how it ended."""
    store = HungStore()
    store.hung = True
    state = State(messages=[Message.user("go")])
    agent = Agent(model=FakeModel(["back"]), store=store)

    async def main() -> None:
        trio.lowlevel.spawn_system_task(press)
        await agent.run(state)

    async def press() -> None:
        await trio.testing.wait_all_tasks_blocked()
        signal.raise_signal(signal.SIGINT)
        await trio.testing.wait_all_tasks_blocked()
        store.hung = False
        store.let_go.set()

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)

    assert errors(state) == ["KeyboardInterrupt"]
    assert_whole(state)
    trio.run(assert_saved, store, state)
    assert agent.run_sync(state) == "back"


def test_ctrl_c_while_the_end_is_saved_comes_out_as_itself_when_it_is():
    store = HungStore()
    state = State(messages=[Message.user("go")])

    def last(request):
        store.hung = True
        trio.lowlevel.spawn_system_task(press)
        return "answer"

    @loop(until=waiting_for_user, limit=1)
    async def body(agent, state):
        await agent.think(state)

    async def press() -> None:
        await trio.testing.wait_all_tasks_blocked()
        signal.raise_signal(signal.SIGINT)
        await trio.testing.wait_all_tasks_blocked()
        store.hung = False
        store.let_go.set()

    with pytest.raises(KeyboardInterrupt):
        trio.run(Agent(model=FakeModel([last]), store=store, loop=body).run, state)

    assert state.answer == "answer"
    trio.run(assert_saved, store, state)


def test_ctrl_c_in_a_nursery_of_the_loop_body_interrupts_the_calls():
    """The group is the user's own and is passed on; what it says of the calls is that they were interrupted."""

    @loop(until=waiting_for_user, limit=3)
    async def body(agent, state):
        await agent.think(state)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.use_tools, state)

    state = State(messages=[Message.user("go")])
    agent = Agent(model=FakeModel([[tool_call("knock"), tool_call("knock")], "back"]), tools=[knock()], loop=body)

    with pytest.raises(BaseExceptionGroup) as caught:
        trio.run(agent.run, state)

    assert caught.value.split(KeyboardInterrupt)[1] is None
    assert outcomes(state) == [("knock", "interrupted")] * 2
    assert_whole(state)


@pytest.mark.parametrize("calls", [1, 2])
def test_ctrl_c_in_a_nursery_of_a_tools_own_interrupts_its_call(calls: int):
    """It comes out of the tool in a group, and is Ctrl+C all the same."""

    @tool
    async def nested() -> str:
        """Spin in a nursery."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(spin)
        raise AssertionError("unreachable")

    async def spin() -> None:
        await trio.testing.wait_all_tasks_blocked()
        signal.raise_signal(signal.SIGINT)

    state = State(messages=[Message.user("go")])
    calls_asked = [tool_call("nested"), tool_call("forever")][:calls]
    agent = Agent(model=FakeModel([calls_asked, "back"]), tools=[nested, forever])

    with pytest.raises((KeyboardInterrupt, BaseExceptionGroup)):
        agent.run_sync(state)

    assert errors(state) != ["Cancelled"]
    assert {outcome for _, outcome in outcomes(state)} == {"interrupted"}
    assert_whole(state)


def test_a_reporter_that_spins_can_be_interrupted():
    """Nobody's code but the library's is protected from Ctrl+C."""
    from alpineagents import Reporter

    spun = []

    class Spinning(Reporter):
        def on_reply(self, state, reply):
            signal.raise_signal(signal.SIGINT)
            spun.append("on")

    state = State(messages=[Message.user("go")])
    agent = Agent(model=FakeModel(["one", "two"]), reporter=Spinning())

    with pytest.raises(KeyboardInterrupt):
        agent.run_sync(state)

    assert not spun
    assert_whole(state)


@pytest.mark.parametrize("where", ["until", "body", "model", "tool"])
def test_code_that_spins_can_be_interrupted_wherever_it_is(where: str):
    def spin(*args):
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("must have been interrupted")

    @tool
    async def tooled() -> str:
        """Spin."""
        return spin()

    @loop(until=spin if where == "until" else waiting_for_user, limit=3)
    async def body(agent, state):
        if where == "body":
            spin()
        await agent.think(state)
        await agent.use_tools(state)

    model = FakeModel([spin if where == "model" else tool_call("tooled"), "back"])
    state = State(messages=[Message.user("go")])
    with pytest.raises(KeyboardInterrupt):
        Agent(model=model, tools=[tooled], loop=body).run_sync(state)

    assert errors(state) == ["KeyboardInterrupt"]
    assert_whole(state)


def test_sys_exit_in_a_tool_ends_the_run_orderly():
    @tool
    def leave() -> str:
        """Leave the program."""
        sys.exit(3)

    store = MemoryStore()
    state = State(messages=[Message.user("go")])
    agent = Agent(model=FakeModel([[tool_call("leave"), tool_call("forever")]]), tools=[leave, forever], store=store)

    with pytest.raises(SystemExit) as caught:
        agent.run_sync(state)

    assert caught.value.code == 3
    assert outcomes(state) == [("leave", "interrupted"), ("forever", "interrupted")]
    assert errors(state) == ["SystemExit"]
    assert_whole(state)
    trio.run(assert_saved, store, state)


# Late results


@pytest.mark.slow
def test_a_late_result_that_comes_at_any_moment_is_told_to_the_model_exactly_once():
    """Also between the notices and the request, from a thread or a signal handler."""

    class Leaving(Tool):
        name = "leaving"
        description = "Leave a thread behind."
        input_schema: ClassVar = {"type": "object"}
        abandon_on_cancel = True

        async def run(self, args, state):
            raise AssertionError

        async def call(self, args, context):
            self.context = context
            await trio.sleep_forever()

    async def play(moment: int) -> bool:
        state = State(messages=[Message.user("go")])
        leaving = Leaving()
        agent = Agent(model=FakeModel(lambda request: "x" if leaving.closed else tool_call("leaving")), tools=[leaving])
        leaving.closed = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.run, state)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        leaving.closed = True

        def come() -> None:
            leaving.context.record_late((TextBlock("at last"),), ToolOutcome.DONE, None)

        at = At(moment, come)
        await at.around(lambda: agent.think(state))
        if at.done:
            await agent.think(state)
            assert len([m for m in state.messages if "at last" in m.text]) == 1, at.where
            assert_whole(state)
        return at.done

    moment = 0
    while trio.run(play, moment):
        moment += 1
        assert moment < 5_000
    assert moment > 50


# Outside a run


@pytest.mark.parametrize("calls", [1, 2])
async def test_use_tools_cancelled_outside_a_run_closes_its_calls_and_records_why(calls: int, store: Store):
    state = State(messages=[Message.user("go")])
    agent = Agent(model=FakeModel([[tool_call("forever") for _ in range(calls)], "back"]), tools=[forever], store=store)
    await agent.think(state)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.use_tools, state)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()

    assert outcomes(state) == [("forever", "interrupted")] * calls
    assert errors(state) == ["Cancelled"], "every error is in history once; Cancelled too"
    assert_whole(state)
    await assert_saved(store, state)
    assert await agent.run(state) == "back"


@pytest.mark.parametrize("action", ["think", "use_tools", "ask", "compact"])
async def test_a_full_disk_outside_a_run_is_recorded_once_and_nothing_is_sent_or_run(action: str):
    ran = []

    @tool
    async def work() -> str:
        """Leave a trace."""
        ran.append(1)
        return "ok"

    store = FullStore(full=False)
    state = State(messages=[Message.user("go")])
    agent = Agent(model=FakeModel([tool_call("work"), "x"]), tools=[work], store=store)
    if action == "use_tools":
        await agent.think(state)
    state.add_message(Message.user("more"))
    store.full = True
    asked = len(agent.model.requests)

    with pytest.raises(StoreError, match="No space left"):
        await (agent.ask(state, "why?") if action == "ask" else getattr(agent, action)(state))

    assert [text.partition(":")[0] for text in errors(state)] == ["StoreError"]
    assert len(agent.model.requests) == asked
    assert not ran


async def test_think_cancelled_outside_a_run_takes_its_request_back_and_saves_that(store: Store):
    state = State(messages=[Message.user("go")])

    async def slow(request):
        await trio.sleep_forever()

    agent = Agent(model=FakeModel([slow, "back"]), store=store)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.think, state)
        while not agent.model.requests:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()

    assert (state.turn, errors(state)) == (0, ["Cancelled"])
    assert_whole(state)
    await assert_saved(store, state)


# D1, D2, D3, D7


async def test_run_returns_only_when_all_its_tools_are_closed(autojump_clock):
    """D1: a sibling of a failing tool doesn't go on unowned."""
    log = []

    @tool
    async def bad() -> str:
        """Fail soon."""
        await trio.sleep(0.01)
        raise ValueError("bad")

    @tool
    async def slow() -> str:
        """Take time even to be cancelled."""
        try:
            await trio.sleep(0.1)
            log.append("wrote")
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)
            log.append("closed")
        return "ok"

    state = State(messages=[Message.user("go")])
    before = tasks()
    with pytest.raises(ValueError, match="bad"):
        await Agent(model=FakeModel([[tool_call("slow"), tool_call("bad")]]), tools=[bad, slow]).run(state)

    assert log == ["closed"]
    assert tasks() == before
    assert_whole(state)


@pytest.mark.parametrize("calls", [1, 2])
async def test_a_tool_can_not_fake_the_cancellation_of_a_run(calls: int):
    """D1: a Cancelled of a scope that had ended is an error of the tool's."""

    @tool
    async def fake() -> str:
        """Raise what was caught elsewhere."""
        caught = None
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled as error:
                caught = error
        assert caught is not None
        raise caught

    state = State(messages=[Message.user("go")])
    agent = Agent(model=FakeModel([[tool_call("fake") for _ in range(calls)], "back"]), tools=[fake])
    with pytest.raises(RuntimeError, match="raised Cancelled without being cancelled"):
        await agent.run(state)

    assert {outcome for _, outcome in outcomes(state)} == {"aborted"}
    assert_whole(state)
    assert await agent.run(state) == "back"


async def test_results_that_were_there_when_a_sibling_failed_are_kept_in_the_order_asked(autojump_clock):
    """D2."""

    @tool
    async def after(seconds: float) -> str:
        """End after some seconds."""
        await trio.sleep(seconds)
        if seconds == 3:
            raise ValueError("bug")
        return f"{seconds:g} s"

    state = State(messages=[Message.user("go")])
    script = [[tool_call("after", seconds=s) for s in (5.0, 2.0, 3.0, 1.0)], "on again"]
    agent = Agent(model=FakeModel(script), tools=[after])
    with pytest.raises(ValueError, match="bug"):
        await agent.run(state)

    (results,) = [m for m in state.messages if m.role == "tool"]
    said = [block.content[0].text for block in results.blocks]
    assert (said[1], said[3]) == ("2 s", "1 s")
    assert said[0].startswith("(aborted: ValueError)")
    assert said[2].startswith("(aborted: ValueError)")
    assert await agent.run(state) == "on again"


async def test_two_runs_started_together_on_one_state_are_one_run_and_one_error():
    """D3."""
    state = State(messages=[Message.user("go")])
    agent = Agent(model=FakeModel(["one"]))
    ended = []

    async def run():
        try:
            ended.append(await agent.run(state))
        except ValueError as error:
            ended.append(str(error).partition(" is in a run")[1])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        nursery.start_soon(run)

    assert sorted(ended) == [" is in a run", "one"]
    assert kinds(state) == ["context_change", "run_start", "model_request", "model_reply", "stop"]


async def test_a_run_in_another_threads_event_loop_is_a_second_run_too():
    """D3."""
    state = State(messages=[Message.user("go")])
    agent = Agent(model=FakeModel([tool_call("forever")]), tools=[forever])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.run, state)
        await trio.testing.wait_all_tasks_blocked()
        before = list(state.history)
        with pytest.raises(ValueError, match="is in a run already"):
            await trio.to_thread.run_sync(trio.run, agent.run, state)
        assert list(state.history) == before
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("kind", ["none", "memory"])
@pytest.mark.parametrize("action", ["run", "think", "use_tools", "ask", "compact"])
async def test_what_went_wrong_comes_out_bare_with_its_cause(action: str, kind: str, tmp_path: Path):
    """D7."""
    cause = KeyError("cause")

    def fail(*args):
        raise ConnectionError("gone") from cause

    @tool
    async def failing() -> str:
        """Fail."""
        fail()

    state = State(messages=[Message.user("go")])
    agent = Agent(model=FakeModel([fail]), tools=[failing, forever], store=store_of(kind, tmp_path))
    if action == "use_tools":
        calls = [tool_call("failing"), tool_call("forever")]
        await agent.copy(model=FakeModel([calls])).think(state)

    with pytest.raises(ConnectionError, match="gone") as caught:
        await (agent.ask(state, "why?") if action == "ask" else getattr(agent, action)(state))

    assert caught.value.__cause__ is cause
    assert errors(state) == ["ConnectionError: gone"]


async def test_a_group_of_the_users_own_is_passed_on_as_it_is():
    group = ExceptionGroup("mine", [ValueError("a"), OSError("b")])

    @tool
    async def failing() -> str:
        """Fail twice."""
        raise group

    for calls in ([tool_call("failing")], [tool_call("failing"), tool_call("forever")]):
        state = State(messages=[Message.user("go")])
        with pytest.raises(ExceptionGroup) as caught:
            await Agent(model=FakeModel([calls]), tools=[failing, forever], store=MemoryStore()).run(state)
        assert caught.value is group
        assert_whole(state)


async def test_a_tool_with_a_nursery_of_its_own_that_is_cancelled_is_interrupted():
    @tool
    async def nested() -> str:
        """Wait in a nursery, whose Cancelled comes in a group."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(trio.sleep_forever)
        raise AssertionError("unreachable")

    for calls in ([tool_call("nested")], [tool_call("nested"), tool_call("nested")]):
        state = State(messages=[Message.user("go")])
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(Agent(model=FakeModel([calls]), tools=[nested]).run, state)
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        assert {outcome for _, outcome in outcomes(state)} == {"interrupted"}
        assert errors(state) == ["Cancelled"]
        assert_whole(state)


async def test_cancelled_is_in_the_history_once_however_the_loop_body_is_built():
    """A nursery of the body makes a new Cancelled, and a message may come in between."""

    @loop(until=waiting_for_user, limit=3)
    async def body(agent, state):
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(agent.think, state)
        finally:
            state.add_message(Message.notice("that was cancelled"))

    async def slow(request):
        await trio.sleep_forever()

    state = State(messages=[Message.user("go")])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Agent(model=FakeModel([slow]), loop=body).run, state)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()

    assert errors(state) == ["Cancelled"]


async def test_a_deadline_of_the_loop_body_leaves_a_run_that_goes_on(autojump_clock):
    """The body bounds its tools itself: what it cancelled is closed, and the model is asked on."""
    ran = []

    @loop(until=waiting_for_user, limit=3)
    async def body(agent, state):
        await agent.think(state)
        with trio.move_on_after(5):
            await agent.use_tools(state)

    @tool
    async def slow() -> str:
        """Never end."""
        ran.append("slow")
        await trio.sleep_forever()
        raise AssertionError("unreachable")

    state = State(messages=[Message.user("go")])
    agent = Agent(
        model=FakeModel([[tool_call("slow"), tool_call("add", a=1, b=1)], "done"]), tools=[slow, add], loop=body
    )

    assert await agent.run(state) == "done"
    assert ran == ["slow"]
    assert sorted(outcomes(state)) == [("add", "done"), ("slow", "interrupted")]
    assert_whole(state)


async def test_a_cancelled_run_waits_for_a_tool_that_may_not_be_abandoned():
    entered, leave, ended = trio.Event(), threading.Event(), []
    token = trio.lowlevel.current_trio_token()

    @tool(abandon_on_cancel=False)
    def stubborn() -> str:
        """End when let go."""
        token.run_sync_soon(entered.set)
        leave.wait(30)
        ended.append(True)
        return "ended"

    state = State(messages=[Message.user("go")])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Agent(model=FakeModel([tool_call("stubborn"), "x"]), tools=[stubborn]).run, state)
        await entered.wait()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await trio.testing.wait_all_tasks_blocked()
            assert state.running
            leave.set()

    assert ended == [True]
    assert not state.running
    assert_whole(state)
    assert not [e for e in state.history if e.kind == "tool_result" and e.late]


# SIGTERM

SIGTERM = """
@tool
async def work() -> str:
    "Work until stopped."
    say("working")
    await trio.sleep_forever()

@tool
async def quick() -> str:
    "End at once."
    return "ok"

async def main():
    state = State(id="bug-1", messages=[Message.user("go")])
    calls = [tool_call("quick"), tool_call("work")]
    agent = Agent(model=FakeModel([calls]), tools=[work, quick], store=store, name="w")
    async with stop_on_sigterm():
        await agent.run(state)
        say("not reached")
    say("stopped")

trio.run(main)
"""


async def test_sigterm_ends_a_program_orderly_with_its_state_saved(tmp_path: Path):
    async with running(script(SIGTERM, tmp_path)) as child:
        await child.line_with("working")
        child.process.terminate()
        said = await child.rest()
        await child.process.wait()

    assert said == ["stopped"]
    assert child.process.returncode == 0
    state = await FileStore(tmp_path).load("bug-1")
    assert sorted(outcomes(state)) == [("quick", "done"), ("work", "interrupted")]
    assert errors(state) == ["Cancelled"]
    assert_whole(state)


async def test_stop_on_sigterm_lets_its_block_end_by_itself():
    async with stop_on_sigterm():
        answer = await Agent(model=FakeModel(["x"])).run("go")

    assert answer == "x"


async def test_stop_on_sigterm_passes_on_what_its_block_raises():
    error = ValueError("mine")
    with pytest.raises(ValueError, match="mine") as caught:
        async with stop_on_sigterm():
            raise error from KeyError("cause")

    assert caught.value is error
    assert isinstance(error.__cause__, KeyError)


async def test_stop_on_sigterm_passes_on_a_group_of_the_blocks_own():
    group = ExceptionGroup("mine", [ValueError("a"), OSError("b")])
    with pytest.raises(ExceptionGroup) as caught:
        async with stop_on_sigterm():
            raise group

    assert caught.value is group


async def test_a_cancelled_block_of_stop_on_sigterm_is_a_cancelled_block():
    with trio.CancelScope() as scope:
        async with stop_on_sigterm():
            scope.cancel()
            await trio.sleep_forever()

    assert scope.cancelled_caught


def test_ctrl_c_at_any_moment_of_a_sigterm_block_comes_out():
    async def main() -> None:
        async with stop_on_sigterm():
            await trio.lowlevel.checkpoint()

    assert interrupted_at_each_moment(main) > 20


async def test_a_sigterm_block_survives_a_signal_that_comes_after_its_work(autojump_clock):
    async with stop_on_sigterm():
        signal.raise_signal(signal.SIGTERM)
        await trio.sleep(100)
        raise AssertionError("must have been cancelled")
    assert trio.current_time() < 100


async def test_default_loop_ends_at_once_when_it_is_cancelled_before_it_starts():
    state = State(messages=[Message.user("go")])
    model = FakeModel(["x"])
    with trio.CancelScope() as scope:
        scope.cancel()
        await Agent(model=model, loop=default_loop).run(state)

    assert scope.cancelled_caught
    assert not model.requests
    assert_whole(state)

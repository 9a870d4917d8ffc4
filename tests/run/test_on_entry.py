"""What ``Reporter.on_entry`` is told, when, and what becomes of what it raises."""

from __future__ import annotations

import os
import signal
import threading
from collections import defaultdict

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from alpineagents import (
    Agent,
    Budget,
    BudgetError,
    EntryAdded,
    MemoryStore,
    Message,
    Reporter,
    Reporters,
    State,
    ToolEnd,
    ToolResultEntry,
    ToolStart,
    loop,
    tool,
    waiting_for_user,
)
from alpineagents.run._telling import Teller
from alpineagents.testing import FakeModel, tool_call

from ..tree.test_stream_laws import agent_of, all_states, impatient, slowness, trees
from .runs import assert_saved, assert_whole, errors, kinds, outcomes, tasks
from .test_cancellation import At


class Hears(Reporter):
    """Writes down everything, and checks that each entry comes before whatever else is told later.

    *strict*: no entry may have come since, which one of another thread might.
    """

    def __init__(self, strict: bool = True) -> None:
        self.strict = strict
        self.told: list[tuple] = []
        self.entries: dict[State, list] = defaultdict(list)
        self.ended: set[State] = set()
        self.thread = threading.current_thread()

    def on_entry(self, state, entry):
        assert threading.current_thread() is self.thread
        assert trio.lowlevel.in_trio_run()
        if entry.kind == "run_start":
            self.ended.discard(state)
        assert state not in self.ended
        self.entries[state].append(entry)
        self.told.append((state, entry.kind))

    def of(self, state: State) -> list:
        return [what for each, *what in self.told if each is state]

    def note(self, state: State, what: str) -> None:
        if self.strict:
            assert self.entries[state][-1] is state.history[-1]
        self.told.append((state, what))

    def on_run_start(self, state, agent):
        self.note(state, "on_run_start")

    def on_think_start(self, state):
        self.note(state, "on_think_start")

    def on_text(self, state, text):
        self.note(state, "on_text")

    def on_thinking(self, state, text):
        self.note(state, "on_thinking")

    def on_model_event(self, state, event):
        self.note(state, "on_model_event")

    def on_reply(self, state, reply):
        self.note(state, "on_reply")

    def on_tool_start(self, state, call):
        self.note(state, f"on_tool_start {call.id}")

    def on_tool_progress(self, state, call, done, total, text):
        self.note(state, "on_tool_progress")

    def on_tool_end(self, state, call, result, outcome):
        self.note(state, f"on_tool_end {call.id}")

    def on_run_end(self, state, error):
        self.note(state, "on_run_end")
        self.ended.add(state)


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def endless() -> None:
    """Never end."""
    await trio.sleep_forever()


@tool
def remember(state: State, text: str) -> str:
    """Add a message, in a thread."""
    state.add_message(Message.notice(text))
    return text


def asked() -> State:
    return State(messages=[Message.user("go")])


def from_start(state: State, run: int = 0) -> list:
    """The entries from the start of the run of this number on."""
    starts = [entry.seq for entry in state.history if entry.kind == "run_start"]
    return list(state.history[starts[run] :])


# What is told, and when


async def test_a_run_tells_of_each_entry_before_what_is_told_later():
    hears, state = Hears(), asked()
    call = tool_call("add", a=1, b=2)
    await Agent(model=FakeModel([call, "done"]), tools=[add], reporter=hears).run(state)

    assert [what for (what,) in hears.of(state)] == [
        *("run_start", "on_run_start"),
        *("model_request", "on_think_start", "model_reply", "on_reply"),
        *(f"on_tool_start {call.id}", "tool_result", f"on_tool_end {call.id}"),
        *("model_request", "on_think_start", "on_text", "model_reply", "on_reply"),
        *("stop", "on_run_end"),
    ]
    assert hears.entries[state] == from_start(state)


async def test_an_entry_is_told_while_nothing_else_happens(autojump_clock):
    hears, state = Hears(), asked()
    heard = []

    async with trio.open_nursery() as nursery:
        nursery.start_soon(Agent(model=FakeModel([tool_call("endless")]), tools=[endless], reporter=hears).run, state)
        await trio.testing.wait_all_tasks_blocked()
        for number in range(3):
            state.add_message(Message.user(f"and {number}"))
            await trio.testing.wait_all_tasks_blocked()
            heard.append(hears.told[-1])
        nursery.cancel_scope.cancel()

    assert heard == [(state, "user")] * 3
    assert hears.entries[state] == from_start(state)


async def test_what_other_threads_record_is_told_in_the_thread_of_the_run():
    hears, state = Hears(strict=False), asked()
    calls = [tool_call("remember", text=f"note {number}") for number in range(5)]
    await Agent(model=FakeModel([calls, calls, "done"]), tools=[remember], reporter=hears).run(state)

    assert kinds(state).count("notice") == 10
    assert hears.entries[state] == from_start(state)


async def test_what_a_thread_records_while_everything_waits_is_told_at_once():
    """No clock of a test: a real thread records, and the run hears of it."""
    state, heard = asked(), trio.Event()

    class Waits(Reporter):
        def on_entry(self, state, entry):
            if entry.kind == "user":
                heard.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(Agent(model=FakeModel([tool_call("endless")]), tools=[endless], reporter=Waits()).run, state)
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(60):
            await trio.to_thread.run_sync(state.add_message, Message.user("from a thread"))
            await heard.wait()
        nursery.cancel_scope.cancel()


async def test_what_a_signal_handler_records_is_told():
    hears, state = Hears(), asked()

    @tool
    async def signalled() -> None:
        """Get a signal."""
        os.kill(os.getpid(), signal.SIGUSR1)
        await trio.lowlevel.checkpoint()

    before = signal.signal(signal.SIGUSR1, lambda *_: state.add_message(Message.notice("signal")) and None)
    try:
        await Agent(model=FakeModel([tool_call("signalled"), "done"]), tools=[signalled], reporter=hears).run(state)
    finally:
        signal.signal(signal.SIGUSR1, before)

    assert "notice" in kinds(state)
    assert hears.entries[state] == from_start(state)


async def test_what_a_reporter_records_itself_is_told_too():
    class Marks(Hears):
        def on_entry(self, state, entry):
            super().on_entry(state, entry)
            if entry.kind == "run_start":
                with state.edit_extra_data() as data:
                    data["seen"] = True

    hears, state = Marks(strict=False), asked()
    await Agent(model=FakeModel(["done"]), reporter=hears).run(state)

    assert "extra_data" in kinds(state)
    assert hears.entries[state] == from_start(state)


async def test_each_run_tells_of_its_own_entries():
    hears, state = Hears(), asked()
    agent = Agent(model=FakeModel(["one", "two"]), reporter=hears)
    await agent.run(state)
    state.add_message(Message.user("between"))
    await agent.run(state)

    assert hears.entries[state] == [entry for entry in from_start(state) if entry.kind != "user"]


async def test_a_subagent_tells_the_reporter_that_it_inherits_and_its_own_if_it_has_one():
    outer, inner = Hears(), Hears()
    heir = Agent(model=FakeModel(lambda request: "part"), name="heir", description="Does a part.")
    other = heir.copy(name="other", reporter=inner)
    state = asked()
    calls = [tool_call("heir", prompt="1"), tool_call("other", prompt="2")]
    await Agent(model=FakeModel([calls, "done"]), tools=[heir, other], reporter=outer).run(state)
    heirs, others = sorted(all_states(state)[1:], key=lambda child: from_start(child)[0].content.name)

    assert outer.entries == {state: from_start(state), heirs: from_start(heirs)}
    assert inner.entries == {others: from_start(others)}


async def test_late_results_after_the_end_are_not_told():
    hears, state, over = Hears(), asked(), threading.Event()

    @tool(abandon_on_cancel=True)
    def slow() -> str:
        """Go on in a thread."""
        over.wait(60)
        return "late"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(Agent(model=FakeModel([tool_call("slow")]), tools=[slow], reporter=hears).run, state)
        await trio.testing.wait_all_tasks_blocked(0.01)
        nursery.cancel_scope.cancel()
    over.set()
    with trio.fail_after(60):
        while not any(entry.kind == "tool_result" and entry.late for entry in state.history):
            await trio.lowlevel.checkpoint()
    await trio.testing.wait_all_tasks_blocked()

    assert hears.entries[state] == from_start(state)[:-1]


async def test_another_agent_that_acts_in_the_run_keeps_the_order_for_the_same_reporter():
    hears, state = Hears(), asked()
    helper = Agent(model=FakeModel(["helped"]), reporter=hears)

    @loop(until=waiting_for_user, limit=1)
    async def body(agent, state):
        await helper.think(state)

    await Agent(model=FakeModel([]), reporter=hears, loop=body).run(state)

    assert hears.entries[state] == from_start(state)


async def test_another_agent_that_acts_in_the_run_tells_its_own_reporter_of_its_action():
    hears, own, state = Hears(), Hears(), asked()
    helper = Agent(model=FakeModel(["helped"]), reporter=own)

    @loop(until=waiting_for_user, limit=1)
    async def body(agent, state):
        await helper.think(state)

    await Agent(model=FakeModel([]), reporter=hears, loop=body).run(state)

    assert hears.entries[state] == from_start(state)
    assert [entry.kind for entry in own.entries[state]] == ["model_request", "model_reply"]


async def test_who_acts_in_another_thread_is_told_of_there_and_entries_in_the_thread_of_the_run():
    state, threads = asked(), []

    class Hearing(Hears):
        def on_reply(self, state, reply):
            threads.append(threading.current_thread())

    hears = Hearing(strict=False)

    @loop(until=waiting_for_user, limit=1)
    async def body(agent, state):
        await trio.to_thread.run_sync(trio.run, agent.think, state)

    await Agent(model=FakeModel(["done"]), reporter=hears, loop=body).run(state)

    assert threads != [hears.thread]
    assert hears.entries[state] == from_start(state)


# How a run ends


@pytest.mark.parametrize("how", ["answer", "limit", "budget", "finish", "error", "tool error", "cancelled"])
async def test_the_end_of_a_run_is_told_before_on_run_end(how: str, autojump_clock):
    hears, state = Hears(), asked()

    @tool
    async def broken() -> None:
        """Fail."""
        raise ZeroDivisionError("bug")

    @tool
    async def finish(state: State) -> None:
        """Finish."""
        state.finish("so")

    script = {
        "answer": ["done"],
        "error": [OSError("gone")],
        "tool error": [[tool_call("endless"), tool_call("broken")]],
        "cancelled": [[tool_call("endless"), tool_call("endless")]],
        "finish": [tool_call("finish")],
    }.get(how, [tool_call("add", a=1, b=1)] * 5)
    agent = Agent(
        model=FakeModel(script),
        tools=[add, endless, broken, finish],
        reporter=hears,
        budget=Budget(requests=2) if how == "budget" else None,
        loop=Agent(model=FakeModel([])).loop.copy(limit=2),
    )
    with trio.move_on_after(5):
        try:
            await agent.run(state)
        except (OSError, ZeroDivisionError):
            assert "error" in how

    assert hears.entries[state] == from_start(state)
    assert hears.of(state)[-1] == ["on_run_end"]


async def test_a_run_that_does_not_start_tells_nothing():
    hears, state = Hears(), asked()
    state.finish("done")
    with pytest.raises(ValueError, match="finished"):
        await Agent(model=FakeModel([]), reporter=hears).run(state)

    assert not hears.told


# What it raises


class Raises(Hears):
    """Raises a new exception for each entry of a kind."""

    def __init__(self, *kinds: str) -> None:
        super().__init__()
        self.kinds = kinds
        self.raised: list[Exception] = []

    def on_entry(self, state, entry):
        super().on_entry(state, entry)
        if entry.kind in self.kinds:
            self.raised.append(ZeroDivisionError(f"{entry.kind} {entry.seq}"))
            raise self.raised[-1]


@pytest.mark.parametrize(
    "kind", ["run_start", "model_request", "model_reply", "tool_result", "user", "extra_data", "stop"]
)
@pytest.mark.parametrize("with_store", [False, True])
async def test_what_it_raises_comes_out_as_it_was_raised(kind: str, with_store: bool, autojump_clock):
    hears, state, store = Raises(kind), asked(), MemoryStore()

    @tool
    async def record(state: State) -> None:
        """Record some things."""
        state.add_message(Message.user("more"))
        with state.edit_extra_data() as data:
            data["n"] = 1
        await trio.testing.wait_all_tasks_blocked()

    model = FakeModel([tool_call("record"), "done", "and more"])
    agent = Agent(model=model, tools=[record], reporter=hears, store=store if with_store else None)
    before = tasks()
    with pytest.raises(ZeroDivisionError) as caught:
        await agent.run(state)

    assert caught.value is hears.raised[0]
    assert errors(state).count(f"ZeroDivisionError: {caught.value}") == 1
    assert not state.running
    assert tasks() == before
    assert hears.of(state)[-1] == ["on_run_end"]
    assert_whole(state)
    if with_store:
        await assert_saved(store, state)


async def test_where_it_raises_while_tools_run_they_are_cut_short_as_by_any_error(autojump_clock):
    """The model shall not read that its user has interrupted it."""
    hears, state = Raises("user"), asked()

    @tool
    async def record(state: State) -> None:
        """Record a message, and go on."""
        state.add_message(Message.user("more"))
        await trio.sleep_forever()

    agent = Agent(
        model=FakeModel([[tool_call("record"), tool_call("endless")]]), tools=[record, endless], reporter=hears
    )
    with pytest.raises(ZeroDivisionError):
        await agent.run(state)

    assert {outcome for _, outcome in outcomes(state)} == {"aborted"}
    assert all("ZeroDivisionError" in entry.content[0].text for entry in state.history if entry.kind == "tool_result")


async def test_one_that_raises_for_every_entry_ends_the_run_once():
    everything = ("run_start", "model_request", "model_reply", "error", "stop")
    hears, state = Raises(*everything), asked()
    with pytest.raises(ZeroDivisionError, match="run_start") as caught:
        await Agent(model=FakeModel(["done"]), reporter=hears).run(state)

    assert caught.value is hears.raised[0]
    assert any("ZeroDivisionError: error" in note for note in caught.value.__notes__)
    assert hears.of(state)[-1] == ["on_run_end"]
    assert_whole(state)


async def test_what_it_raises_is_told_of_and_so_is_all_that_the_end_records(autojump_clock):
    hears, state = Raises("user"), asked()
    async with trio.open_nursery() as nursery:

        async def run() -> None:
            with pytest.raises(ZeroDivisionError):
                await Agent(model=FakeModel([tool_call("endless")]), tools=[endless], reporter=hears).run(state)

        nursery.start_soon(run)
        await trio.testing.wait_all_tasks_blocked()
        state.add_message(Message.user("more"))

    assert hears.entries[state] == from_start(state)
    assert "ZeroDivisionError" in errors(state)[-1]


async def test_what_it_raises_as_the_run_ends_is_a_note_on_what_ended_it():
    hears, state = Raises("error"), asked()
    with pytest.raises(OSError, match="gone") as caught:
        await Agent(model=FakeModel([OSError("gone")]), reporter=hears).run(state)

    assert any("ZeroDivisionError" in note for note in caught.value.__notes__)


async def test_what_it_raises_comes_out_instead_of_the_cancellation(autojump_clock):
    hears, state = Raises("tool_result"), asked()
    with trio.move_on_after(5), pytest.raises(ZeroDivisionError):
        await Agent(model=FakeModel([tool_call("endless")]), tools=[endless], reporter=hears).run(state)

    assert hears.of(state)[-1] == ["on_run_end"]
    assert_whole(state)


async def test_ctrl_c_in_it_comes_out_of_run(autojump_clock):
    class Interrupted(Reporter):
        def on_entry(self, state, entry):
            if entry.kind == "notice":
                raise KeyboardInterrupt

    state = asked()
    calls = [tool_call("remember", text="x"), tool_call("remember", text="y")]
    with pytest.raises(KeyboardInterrupt):
        await Agent(model=FakeModel([calls, "done"]), tools=[remember], reporter=Interrupted()).run(state)

    assert_whole(state)


@pytest.mark.parametrize("with_others", [False, True])
async def test_a_real_ctrl_c_interrupts_it(with_others: bool):
    hears, state = Hears(), asked()

    class Spins(Reporter):
        def on_entry(self, state, entry):
            if entry.kind == "model_reply":
                signal.raise_signal(signal.SIGINT)
                while True:
                    pass

    reporter = Reporters(Spins(), hears) if with_others else Spins()
    with pytest.raises(KeyboardInterrupt):
        await Agent(model=FakeModel(["done"]), reporter=reporter).run(state)

    assert_whole(state)
    if with_others:
        assert hears.entries[state] == from_start(state)


async def test_a_group_that_the_loop_raises_is_passed_on_as_it_is():
    group = ExceptionGroup("mine", [OSError("a"), KeyError("b")])

    @loop(until=waiting_for_user, limit=1)
    async def body(agent, state):
        raise group

    with pytest.raises(ExceptionGroup) as caught:
        await Agent(model=FakeModel([]), reporter=Hears(), loop=body).run(asked())

    assert caught.value is group


@pytest.mark.parametrize("steps", range(8))
async def test_a_group_that_it_raises_is_passed_on_as_it_is(steps: int):
    """A nursery that waits when it is cancelled splits what was raised in it, and that makes another of each group."""
    group, state = ExceptionGroup("mine", [OSError("a"), KeyError("b")]), asked()

    class Fails(Reporter):
        def on_entry(self, state, entry):
            if entry.kind == "user":
                raise group

    @loop(until=[waiting_for_user], limit=2)
    async def records(agent, state):
        await agent.think(state)
        state.add_message(Message.user("more"))
        for _ in range(steps):
            await trio.lowlevel.checkpoint()
        state.finish()

    with pytest.raises(ExceptionGroup) as caught:
        await Agent(model=FakeModel(["done"]), reporter=Fails(), loop=records).run(state)

    assert caught.value is group
    assert [entry.error for entry in state.history if entry.kind == "error"] == [group]
    assert_whole(state)


async def test_what_it_raises_as_the_budget_ends_the_run_comes_out():
    """The budget ends it normally, so there is nothing that this could be a note on."""
    hears, state = Raises("stop"), asked()
    agent = Agent(model=FakeModel([tool_call("add", a=1, b=2)]), tools=[add], reporter=hears, budget=Budget(requests=1))
    with pytest.raises(ZeroDivisionError):
        await agent.run(state)

    assert errors(state) == [f"ZeroDivisionError: {hears.raised[0]}"]
    assert hears.of(state)[-1] == ["on_run_end"]


async def test_what_it_raises_at_the_moment_in_which_the_budget_ends_the_loop_comes_out(autojump_clock):
    hears, state = Raises("stop"), asked()

    @loop(until=waiting_for_user, limit=1)
    async def body(agent, state):
        await agent.think(state)
        try:
            await agent.think(state)
        except BudgetError:
            with trio.CancelScope(shield=True):
                await trio.testing.wait_all_tasks_blocked()
            raise

    with pytest.raises(ZeroDivisionError) as caught:
        await Agent(model=FakeModel(["one"]), reporter=hears, budget=Budget(requests=1), loop=body).run(state)

    assert caught.value is hears.raised[0]
    assert errors(state).count(f"ZeroDivisionError: {caught.value}") == 1
    assert hears.of(state)[-1] == ["on_run_end"]
    assert_whole(state)


async def test_a_subagent_whose_reporter_fails_ends_as_one_that_fails():
    inner = Raises("model_reply")
    part = Agent(model=FakeModel(["part"]), name="part", description="Does a part.", reporter=inner)
    state = asked()
    await Agent(model=FakeModel([tool_call("part", prompt="1"), "done"]), tools=[part]).run(state)

    assert state.answer == "done"
    assert outcomes(state) == [("part", "error")]


# Actions outside a run


async def test_think_and_use_tools_outside_of_a_run_tell_of_their_entries():
    hears, state = Hears(strict=False), asked()
    agent = Agent(model=FakeModel([tool_call("add", a=1, b=2), "ok"]), tools=[add], reporter=hears)
    await agent.think(state)
    state.add_message(Message.user("between: nobody acts"))
    await agent.use_tools(state)
    await agent.think(state)

    told = [entry.kind for entry in hears.entries[state]]
    assert told == ["model_request", "model_reply", "tool_result", "model_request", "model_reply"]


async def test_a_side_question_tells_no_reporter_of_anything():
    hears, state = Hears(), asked()
    await Agent(model=FakeModel(["because"]), reporter=hears).ask(state, "why?")

    assert not hears.told


@pytest.mark.parametrize("kind", ["model_request", "model_reply"])
async def test_what_it_raises_comes_out_of_an_action(kind: str):
    hears, state = Raises(kind), asked()
    with pytest.raises(ZeroDivisionError) as caught:
        await Agent(model=FakeModel(["done"]), reporter=hears).think(state)

    assert caught.value is hears.raised[0]
    assert len([text for text in errors(state) if text == f"ZeroDivisionError: {caught.value}"]) == 1
    assert_whole(state)


async def test_what_it_raises_again_and_again_in_an_action_is_recorded_once():
    error, state = ZeroDivisionError("screen is gone"), asked()

    class Gone(Reporter):
        def on_entry(self, state, entry):
            raise error

    with pytest.raises(ZeroDivisionError, match="gone"):
        await Agent(model=FakeModel(["done"]), reporter=Gone()).think(state)

    assert errors(state).count("ZeroDivisionError: screen is gone") == 1


async def test_what_it_raises_while_an_action_waits_cancels_it(autojump_clock):
    hears, state = Raises("user"), asked()
    agent = Agent(model=FakeModel([tool_call("endless")]), tools=[endless], reporter=hears)
    await agent.think(state)

    async with trio.open_nursery() as nursery:

        async def act() -> None:
            with pytest.raises(ZeroDivisionError):
                await agent.use_tools(state)

        nursery.start_soon(act)
        await trio.testing.wait_all_tasks_blocked()
        state.add_message(Message.user("more"))

    assert outcomes(state) == [("endless", "aborted")]
    assert errors(state)[-1].startswith("ZeroDivisionError")


async def test_a_mistake_is_found_before_anything_is_recorded():
    hears, state = Hears(), State()
    with pytest.raises(ValueError, match="no messages"):
        await Agent(model=FakeModel([]), reporter=hears).think(state)

    assert not state.history
    assert not hears.told


# What it costs who doesn't hear entries


async def test_who_has_no_on_entry_gets_no_task(autojump_clock):
    counts = []

    async def count(request):
        counts.append(tasks())
        return "done"

    for reporter in (None, Reporter(), Hears()):
        await Agent(model=FakeModel([count]), reporter=reporter).run(asked())

    assert counts[0] == counts[1] == counts[2] - 1


class Steps(trio.abc.Instrument):
    """Counts the turns of the tasks that tell Reporters."""

    count = 0

    def before_task_step(self, task):
        self.count += task.name.startswith("reporter of")


async def test_the_task_is_woken_only_for_what_nobody_else_tells():
    steps, state = Steps(), asked()
    script = [*[tool_call("add", a=1, b=2)] * 20, "done"]
    trio.lowlevel.add_instrument(steps)
    await Agent(model=FakeModel(script), tools=[add], reporter=Hears()).run(state)
    trio.lowlevel.remove_instrument(steps)

    assert state.turn == 21
    assert steps.count == 2  # it begins, and it ends


def test_what_is_recorded_when_the_event_loop_is_over_is_no_error():
    """A thread may have looked who is to be told right before the end."""

    async def teller() -> Teller:
        return Teller(Hears(), state)

    state = asked()
    trio.run(teller).notice()


async def test_ctrl_c_while_it_is_being_woken_loses_no_later_entry():
    class Interrupted:
        def run_sync_soon(self, *_: object) -> None:
            raise KeyboardInterrupt

    hears, state = Hears(), asked()
    teller, token = Teller(hears, state), trio.lowlevel.current_trio_token()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(teller.during, trio.sleep_forever)
        await trio.testing.wait_all_tasks_blocked()
        teller._token = Interrupted()
        with pytest.raises(KeyboardInterrupt):
            state.add_message(Message.user("one"))
        teller._token = token
        state.add_message(Message.user("two"))
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()

    assert hears.of(state) == [["user"], ["user"]]


async def test_one_that_is_set_on_the_object_is_called():
    reporter, told = Reporter(), []
    reporter.on_entry = lambda state, entry: told.append(entry.kind)  # type: ignore[method-assign]
    await Agent(model=FakeModel(["done"]), reporter=reporter).run(asked())

    assert told == ["run_start", "model_request", "model_reply", "stop"]


# Laws


def observed(agent: Agent, state: State, hears: Hears, pauses: list[int], cancel_after: int | None) -> list:
    """Stream it, slowly, and cancel it after so many events; returns the events."""
    events = []

    async def main() -> None:
        async with agent.copy(reporter=hears).stream(state) as run:
            async for event in run:
                events.append(event)
                if len(events) == cancel_after:
                    break
                for _ in range(pauses[len(events) % len(pauses)]):
                    await trio.lowlevel.checkpoint()

    trio.run(main)
    return events


@pytest.mark.slow
@settings(max_examples=100)
@given(tree=trees, pauses=slowness, steps=st.lists(st.integers(0, 12), min_size=1, max_size=4))
def test_a_stream_and_on_entry_tell_the_same_in_the_same_order(tree, pauses: list[int], steps: list[int]):
    hears, state = Hears(), asked()
    events = observed(agent_of(tree, "lead", impatient(steps)), state, hears, pauses, None)

    for each in all_states(state):
        streamed = []
        for event in events:
            match event:
                case EntryAdded(entry=entry) if event.state is each:
                    streamed.append(entry.kind)
                case ToolStart(call=call) if event.state is each:
                    streamed.append(f"on_tool_start {call.id}")
                case ToolEnd(call=call) if event.state is each:
                    streamed.append(f"on_tool_end {call.id}")
                case _:
                    pass
        reported = [what for (what,) in hears.of(each) if not what.startswith("on_") or "_tool_" in what]
        assert reported == streamed
        assert hears.entries[each] == list(each.history)[1:]


@pytest.mark.slow
@settings(max_examples=100)
@given(tree=trees, pauses=slowness, after=st.integers(1, 40))
def test_wherever_a_run_is_cancelled_all_of_its_history_is_told(tree, pauses: list[int], after: int):
    hears, state = Hears(), asked()
    observed(agent_of(tree, "lead"), state, hears, pauses, after)

    for each in all_states(state):
        assert hears.entries[each] == list(each.history)[1:]
        assert hears.of(each)[-1] == ["on_run_end"]


threaded = st.lists(st.lists(st.sampled_from(["add", "remember", "endless"]), min_size=1, max_size=4), max_size=3)


@settings(max_examples=60)
@given(turns=threaded, steps=st.lists(st.integers(1, 30), min_size=1, max_size=3))
def test_with_threads_and_cancellations_the_order_is_that_of_the_history(turns: list[list[str]], steps: list[int]):
    args = {"add": {"a": 1, "b": 2}, "remember": {"text": "note"}, "endless": {}}
    script = [[tool_call(name, **args[name]) for name in names] for names in turns]
    hears, state = Hears(strict=False), asked()
    model = FakeModel(lambda request: script.pop(0) if script else "done")
    agent = Agent(model=model, tools=[add, remember, endless], reporter=hears, loop=impatient([s + 1 for s in steps]))
    trio.run(agent.run, state)

    told, recorded = hears.entries[state], list(state.history)[1:]
    assert told == recorded[: len(told)]
    # A thread that was given up may end when the run has ended.
    assert all(isinstance(entry, ToolResultEntry) and entry.late for entry in recorded[len(told) :])
    assert hears.of(state)[-1] == ["on_run_end"]
    assert_whole(state)


def full_agent(reporter: Reporter) -> Agent:
    """Tools in tasks and in threads, side by side and alone."""
    calls = [tool_call("add", a=1, b=2), tool_call("remember", text="x"), tool_call("add", a=3, b=4)]
    model = FakeModel([calls, tool_call("remember", text="y"), "done"])
    return Agent(model=model, tools=[add, remember], reporter=reporter)


async def test_a_run_that_is_cancelled_at_any_of_its_steps_tells_all_of_its_history():
    steps = 0
    while True:
        hears, state = Hears(strict=False), asked()
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_after, steps, scope)
                await full_agent(hears).run(state)
                nursery.cancel_scope.cancel()

        if hears.told:  # else it never started
            assert hears.entries[state] == from_start(state)
            assert hears.of(state)[-1] == ["on_run_end"]
        assert_whole(state)
        if not scope.cancelled_caught:
            break
        steps += 1

    assert steps > 10


async def _cancel_after(steps: int, scope: trio.CancelScope) -> None:
    for _ in range(steps):
        await trio.lowlevel.checkpoint()
    scope.cancel()


class RaisesAt(Hears):
    """Raises at the entry of this number."""

    def __init__(self, number: int) -> None:
        super().__init__(strict=False)
        self.number = number
        self.error = ZeroDivisionError("here")

    def on_entry(self, state, entry):
        super().on_entry(state, entry)
        if len(self.entries[state]) == self.number:
            raise self.error


async def test_whichever_entry_it_raises_at_that_comes_out_and_the_state_is_whole():
    before = tasks()
    for number in range(1, 100):
        hears, state, raised = RaisesAt(number), asked(), None
        try:
            await full_agent(hears).run(state)
        except ZeroDivisionError as error:
            raised = error
        if raised is None:
            break

        assert raised is hears.error
        assert [text for text in errors(state) if text != "Cancelled"] == ["ZeroDivisionError: here"]
        assert hears.of(state)[-1] == ["on_run_end"]
        assert hears.entries[state] == from_start(state)[: len(hears.entries[state])]
        assert len(from_start(state)) - len(hears.entries[state]) <= 1  # its own error, where it raised at the end
        assert tasks() == before
        assert_whole(state)

    assert number > 10


@pytest.mark.slow
@pytest.mark.parametrize("action", ["think", "use_tools", "run"])
def test_ctrl_c_at_any_moment_tells_no_entry_twice_or_out_of_order(action: str):
    """By a real signal. The one that was being told when it came may not have been heard."""

    def play(moment: int) -> bool:
        hears, state = Hears(strict=False), asked()

        def answer(request):
            calls = action != "think" and not any(message.role == "tool" for message in request.messages)
            return [tool_call("add", a=1, b=1), tool_call("add", a=1, b=2)] if calls else "text"

        agent = Agent(model=FakeModel(answer), tools=[add], reporter=hears)
        if action == "use_tools":
            trio.run(agent.think, state)
        start = len(state.history)
        hears.entries.clear()

        async def main() -> None:
            await getattr(agent, action)(state)

        interrupt = At(moment, lambda: signal.raise_signal(signal.SIGINT))
        try:
            trio.run(interrupt.around, main)
        except KeyboardInterrupt:
            pass
        except BaseExceptionGroup as group:
            raise AssertionError(f"a group came out at {interrupt.where}: {group!r}") from group

        history = list(state.history)[start:]
        told = [entry.seq for entry in hears.entries[state]]
        assert told == sorted(set(told)), interrupt.where
        assert [state.history[seq] for seq in told] == hears.entries[state]
        if told:
            missed = [entry for entry in history if entry.seq not in told and entry.seq < told[-1]]
            assert len(missed) <= 1, interrupt.where
        hears.entries.clear()
        agent = agent.copy(model=FakeModel(answer))  # Ctrl+C may have come while the other one checked a request.
        trio.run(agent.use_tools, state)
        trio.run(agent.run, state)
        assert_whole(state)
        return interrupt.done

    moment = 0
    while play(moment):
        moment += 3 if action == "run" else 1
        assert moment < 10_000
    assert moment > 50

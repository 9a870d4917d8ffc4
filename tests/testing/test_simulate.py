"""simulate(): a seed decides everything, and what goes wrong is found, made small and told."""

from __future__ import annotations

import gc
import itertools
import os
import random
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import trio
from trio import _socket as trio_socket
from trio._core import _run as trio_run

from alpineagents import (
    Agent,
    ErrorEntry,
    Hints,
    Message,
    ProviderError,
    State,
    StoreError,
    TextBlock,
    Tool,
    ToolCall,
    ToolResultEntry,
    default_loop,
    loop,
    tool,
    waiting_for_user,
)
from alpineagents.record._frozen import FrozenDict
from alpineagents.testing import (
    FakeHuman,
    FakeModel,
    FaultKind,
    InjectedFault,
    Simulation,
    SimulationError,
    simulate,
    tool_call,
)
from alpineagents.testing._simulation import _steps
from alpineagents.testing._simulation._order import repeatable
from alpineagents.testing._simulation._store import SimulatedStore
from alpineagents.testing._source import counted

ROOT = Path(__file__).parents[2]
NOTHING: tuple[FaultKind, ...] = ()


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    await trio.sleep(0.5)
    return a + b


@tool
def subtract(a: int, b: int) -> int:
    """Subtract one from the other, in no thread of its own."""
    return a - b


def answer(request):
    """Call both tools, then say what they gave."""
    results = [block for message in request.messages if message.role == "tool" for block in message.blocks]
    if not results:
        return [tool_call("add", a=1, b=2), tool_call("subtract", a=5, b=2)]
    return " ".join(part.text for block in results for part in block.content if isinstance(part, TextBlock))


async def summing(sim: Simulation) -> None:
    """Three conversations at once, each of which has to come to its end."""
    agent = Agent(model=sim.model(answer), tools=sim.tools([add, subtract]), store=sim.store)

    async def one() -> None:
        state = await sim.run(agent, "go")
        assert isinstance(state.answer, str)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(one)


# ---- A seed decides everything


def test_the_same_seeds_give_the_same_in_every_process():
    here = simulate(summing, range(6)).fingerprint
    code = f"from {__name__} import *; print(simulate(summing, range(6)).fingerprint)"

    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
        )
        assert done.stdout.strip() == here, done.stderr


def test_a_seed_gives_the_same_whatever_ran_before():
    def fingerprint(seeds):
        kept.append([])
        simulate(noting, seeds)
        return kept[-1][-1]

    async def noting(sim: Simulation) -> None:
        await summing(sim)
        kept[-1].append((sim.random.random(), sim._checks.fingerprint()))

    kept: list[list[tuple[float, str]]] = []
    assert fingerprint([5]) == fingerprint([3, 1, 4, 5])
    assert fingerprint([4]) != fingerprint([5])


def test_other_seeds_run_tasks_in_other_orders():
    async def racing(sim: Simulation) -> None:
        order: list[int] = []

        async def runner(number: int) -> None:
            await trio.lowlevel.checkpoint()
            order.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(runner, number)
        seen.setdefault(tuple(order), []).append(sim.seed)

    seen: dict[tuple[int, ...], list[int]] = {}
    simulate(racing, range(100))
    first = dict(seen)
    assert set(first) == set(itertools.permutations(range(3)))

    seen.clear()
    simulate(racing, range(100))
    assert seen == first


def test_ids_and_times_are_counted():
    async def scenario(sim: Simulation) -> None:
        await trio.sleep(90)
        state = State(messages=[Message.user("hi")])
        found.append((state.id, str(state.created_at)))

    found: list[tuple[str, str]] = []
    simulate(scenario, [0, 1], kinds=NOTHING)

    assert found[0] == found[1]
    assert found[0][1] == "2030-01-01 00:01:30+00:00"


def test_trio_still_has_what_the_order_is_made_of():
    """What ``_simulation/_order.py`` relies on. Where this fails for a new trio, that module has to learn it."""
    assert isinstance(trio_run._r, random.Random)
    assert isinstance(trio_run._ALLOW_DETERMINISTIC_SCHEDULING, bool)
    assert hasattr(trio_run.Task, "_cancel_status")
    assert issubclass(trio_socket._SocketType, trio.socket.SocketType)


@pytest.mark.parametrize("fails", [False, True])
def test_all_that_was_put_in_place_is_taken_out_again(fails: bool):
    def things() -> list[object]:
        order = [trio_run._r, trio_run._ALLOW_DETERMINISTIC_SCHEDULING]
        return [trio.to_thread.run_sync, trio_socket._SocketType.__init__, State._tell, *order]

    async def scenario(sim: Simulation) -> None:
        assert not any(one is other for one, other in zip(before[:4], things()[:4], strict=True))
        assert not fails

    before = things()
    if fails:
        with pytest.raises(SimulationError):
            simulate(scenario, [0])
    else:
        simulate(scenario, [0])

    assert all(one is other for one, other in zip(before, things(), strict=True))


# ---- What can't be repeated is refused


async def in_a_thread(sim: Simulation) -> None:
    await trio.to_thread.run_sync(sum, [1, 2])


async def by_name(sim: Simulation) -> None:
    await trio.open_tcp_stream("localhost", 1)


async def by_number(sim: Simulation) -> None:
    await trio.open_tcp_stream("127.0.0.1", 1)


async def by_a_sync_tool(sim: Simulation) -> None:
    await Agent(model=sim.model(answer), tools=[add, subtract]).run("go")


@pytest.mark.parametrize(
    ("scenario", "text"),
    [(in_a_thread, "thread"), (by_name, "thread"), (by_number, "socket"), (by_a_sync_tool, r"sim.tools\(")],
)
def test_threads_and_sockets_are_refused(scenario, text):
    with pytest.raises(SimulationError, match=text):
        simulate(scenario, [0], kinds=NOTHING)


async def test_inside_a_trio_run_it_says_how_to_call_it():
    with pytest.raises(RuntimeError, match="plain function: def test_service"):
        simulate(summing, [0])


def test_a_scenario_is_a_function():
    with pytest.raises(TypeError, match="async def"):
        simulate("summing", [0])  # type: ignore[arg-type]


# ---- Each kind of fault


def histories(scenario, *faults: InjectedFault) -> list[State]:
    """Run it with these faults and return all its States."""

    async def noting(sim: Simulation) -> None:
        await scenario(sim)
        found[:] = sim._checks.states()

    found: list[State] = []
    report = simulate(noting, [0], faults=faults)
    assert {kind: count for kind, count in report.faults.items() if count} == {fault.kind: 1 for fault in faults}
    return found


async def one_sum(sim: Simulation) -> None:
    human = sim.human(FakeHuman(lambda question: "yes"))
    agent = Agent(model=sim.model(answer), tools=sim.tools([add, subtract]), store=sim.store, human=human)
    await agent.ask_human(State(messages=[Message.user("hi")]), "May I?")
    state = await sim.run(agent, State(id="sum", messages=[Message.user("go")]))
    assert state.answer is not None


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (FaultKind.MODEL_FAILS, "UnreachableError: simulated"),
        (FaultKind.MODEL_IS_CUT_OFF, "subtract (input_error)"),
        (FaultKind.MODEL_REPEATS_IDS, "reply add"),
        (FaultKind.TOOL_FAILS, "SimulatedError: add failed before"),
        (FaultKind.TOOL_FAILS_LATE, "SimulatedError: add failed when it was done"),
        (FaultKind.TOOL_REFUSES, "add (error)"),
        (FaultKind.CANCEL, "error Cancelled"),
    ],
)
def test_a_fault_is_in_the_history_and_the_run_comes_to_its_end(kind, told):
    at = 30 if kind is FaultKind.CANCEL else 1

    *_, state = histories(one_sum, InjectedFault(kind, at))

    assert told in str(state).replace("subtract failed", "add failed").replace("subtract (error)", "add (error)")


@pytest.mark.parametrize(
    ("kind", "seconds"), [(FaultKind.MODEL_HANGS, 600), (FaultKind.TOOL_HANGS, 3600), (FaultKind.PERSON_SLEEPS, 28800)]
)
def test_what_hangs_takes_its_time(kind, seconds):
    took: list[float] = []

    async def timed(sim: Simulation) -> None:
        await one_sum(sim)
        took.append(trio.current_time())

    histories(timed, InjectedFault(kind, 1))

    assert seconds < took[0] < seconds + 120


@pytest.mark.parametrize("kind", [FaultKind.STORE_FAILS, FaultKind.STORE_FAILS_LATE, FaultKind.STORE_IS_SLOW])
def test_a_store_that_fails_loses_nothing(kind):
    histories(one_sum, InjectedFault(kind, 3))


def test_a_store_that_cannot_be_read_is_asked_again():
    *_, state = histories(one_sum, InjectedFault(FaultKind.STORE_CANT_READ, 2))

    assert state.answer == "3 3"


def test_a_crash_keeps_what_was_saved_and_nothing_else():
    """At whatever step: what comes next finds the conversation as it was saved, or none."""

    async def scenario(sim: Simulation) -> None:
        lives: list[list[str]] = []

        async def service() -> None:
            if await sim.store.has("notes"):
                state = await sim.store.load("notes")
                lives.append([message.text for message in state.messages])
            else:
                state = State(id="notes", messages=[Message.user("saved")])
                lives.append([])
                await sim.store.save(state)
            state.add_message(Message.user("not saved"))
            await trio.sleep(1)

        await sim.process(service)
        seen.append(lives)

    seen: list[list[list[str]]] = []
    for step in range(1, 40):
        simulate(scenario, [0], faults=[InjectedFault(FaultKind.CRASH, step)])

    assert {str(lives) for lives in seen} == {str(lives) for lives in ([[]], [[], []], [[], ["saved"]])}


def test_nobody_hears_of_what_a_process_returned_when_it_had_crashed():
    async def scenario(sim: Simulation) -> None:
        count = 0

        async def service() -> int:
            nonlocal count
            count += 1
            await trio.lowlevel.cancel_shielded_checkpoint()
            return count

        returned.append(await sim.process(service))

    returned: list[int] = []
    for step in range(1, 6):
        simulate(scenario, [0], faults=[InjectedFault(FaultKind.CRASH, step)])

    assert returned[:3] == [2, 1, 1]


def test_what_a_crashed_process_still_does_is_in_vain():
    async def scenario(sim: Simulation) -> None:
        lives = 0

        async def service() -> None:
            nonlocal lives
            lives += 1
            if lives > 1:
                return
            try:
                await trio.sleep(60)
            finally:
                with trio.CancelScope(shield=True), pytest.raises(StoreError, match="crashed"):
                    await sim.store.save(State(id="late", messages=[Message.user("too late")]))

        await sim.process(service)
        assert lives == 2
        assert not await sim.store.has("late")

    simulate(scenario, [0], faults=[InjectedFault(FaultKind.CRASH, 1)])


def test_a_process_is_no_part_of_another():
    async def scenario(sim: Simulation) -> None:
        async def outer() -> None:
            with pytest.raises(RuntimeError, match="part of a process already"):
                await sim.process(inner)
            await sim.run(Agent(model=sim.model(["hi"])), "hi")

        async def inner() -> None:
            raise AssertionError

        await sim.process(outer)

    simulate(scenario, [0], kinds=NOTHING)


def test_what_a_process_raises_that_is_no_fault_comes_out():
    async def scenario(sim: Simulation) -> None:
        async def service() -> None:
            raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            await sim.process(service)

    simulate(scenario, [0], kinds=NOTHING)


def test_a_finished_state_is_not_run_again():
    async def scenario(sim: Simulation) -> None:
        @tool
        async def finish(state: State) -> str:
            """End it."""
            state.finish("enough")
            return "ended"

        agent = Agent(model=sim.model(lambda request: tool_call("finish")), tools=sim.tools([finish]), store=sim.store)
        state = await sim.run(agent, "go")
        assert state.finished

    for step in range(1, 120, 3):
        simulate(
            scenario, [0], faults=[InjectedFault(FaultKind.CANCEL, step), InjectedFault(FaultKind.CRASH, step + 9)]
        )


def test_an_agent_of_ones_own_takes_one_line():
    mine = Agent(
        model=FakeModel(answer, name="mine/model"),
        tools=[add, subtract],
        human=FakeHuman(["yes"]),
        system="Be brief.",
        loop=default_loop.copy(limit=7),
    )

    async def scenario(sim: Simulation) -> None:
        agent = sim.agent(mine)
        assert (agent.system, agent.loop, agent.model.name) == (mine.system, mine.loop, "mine/model")
        assert agent.store is sim.store
        assert (await sim.run(agent, "go")).answer == "3 3"
        assert (await sim.run(sim.agent(mine, lambda request: "other"), "go")).answer == "other"

    simulate(scenario, [0], kinds=NOTHING)


def test_tools_keep_all_that_they_are():
    @tool(timeout=7, parallel=False, read_only=True, max_result_bytes=99)
    async def special(state: State, text: str) -> str:
        """Do it."""
        return f"{text} {state.turn}"

    class FromData(Tool):
        name = "data"
        description = "Made from data."
        input_schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}  # noqa: RUF012

        async def run(self, args, state):
            return args["n"]

        def answer_to(self, error):
            return "never mind"

    async def scenario(sim: Simulation) -> None:
        tools = sim.tools([special, FromData()])
        for made, of in zip(tools, [special, FromData()], strict=True):
            for name in ("name", "description", "input_schema", "timeout", "parallel", "hints", "max_result_bytes"):
                assert getattr(made, name) == getattr(of, name)
        calls = [tool_call("special", text="turn"), tool_call("data", n=3), tool_call("data", n="three")]
        model = FakeModel([calls, "done"])
        state = await sim.run(Agent(model=model, tools=tools), "go")
        results = [
            block.text for entry in state.history if isinstance(entry, ToolResultEntry) for block in entry.content
        ]
        assert sorted(results)[1:] == ["3", "turn 1"] or "3" in results
        assert "turn 1" in results

    simulate(scenario, [0], kinds=NOTHING)


def test_a_tool_decides_about_its_own_errors_and_hints():
    def handled(error: KeyError) -> str:
        return "handled"

    @tool(exception_handler=handled, hints_for=lambda args: Hints(read_only=args["n"] > 0))
    async def odd(n: int) -> int:
        """Fail."""
        raise KeyError(n)

    @tool
    def knowing(call: ToolCall) -> str:
        """Know which call it is."""
        return call.id

    async def scenario(sim: Simulation) -> None:
        made, other = sim.tools([odd, knowing])
        assert [made.hints_for(FrozenDict({"n": n})).read_only for n in (0, 1)] == [False, True]
        assert repr(made) == "<simulated <tool odd(n)>>"
        assert repr(sim.store) == "sim.store"
        call = tool_call("knowing")
        model = sim.model(FakeModel([[tool_call("odd", n=1), call], "done"]))
        state = await sim.run(Agent(model=model, tools=[made, other]), "go")
        results = {entry.call.name: entry.content[0].text for entry in state.history if entry.kind == "tool_result"}
        assert results == {"odd": "handled", "knowing": call.id}
        with pytest.raises(TypeError, match="is run by call"):
            await made.run({}, state)
        await sim.store.save(state)
        assert [info.id for info in await sim.store.list()] == [state.id]

    simulate(scenario, [0], kinds=NOTHING)


def test_faults_of_several_tasks_at_once_begin_a_process_anew():
    async def scenario(sim: Simulation) -> None:
        lives = 0

        async def service() -> None:
            nonlocal lives
            lives += 1
            async with trio.open_nursery() as nursery:
                for name in ("a", "b"):
                    nursery.start_soon(sim.store.save, State(id=name, messages=[Message.user("hi")]))

        await sim.process(service)
        assert lives == 2

    faults = [InjectedFault(FaultKind.STORE_FAILS, 1), InjectedFault(FaultKind.STORE_FAILS, 2)]
    simulate(scenario, [0], faults=faults)


def test_a_summary_that_is_cut_off_begins_a_run_anew():
    async def scenario(sim: Simulation) -> None:
        @loop(until=waiting_for_user, limit=2)
        async def compacting(agent, state):
            await agent.compact(state)
            await agent.think(state)

        agent = Agent(model=sim.model(lambda request: "all that was said"), loop=compacting, store=sim.store)
        await sim.run(agent, "go")

    simulate(scenario, [0], faults=[InjectedFault(FaultKind.MODEL_IS_CUT_OFF, 1)])


def test_a_store_that_cannot_be_read_after_a_crash_is_asked_again():
    came: list[int] = []
    for at in range(1, 8):
        faults = [InjectedFault(FaultKind.CRASH, 50), InjectedFault(FaultKind.STORE_CANT_READ, at)]
        came.append(simulate(summing, [0], faults=faults).faults[FaultKind.STORE_CANT_READ])

    assert sum(came) > 3


def test_a_state_that_is_finished_needs_no_run():
    async def scenario(sim: Simulation) -> None:
        state = State(messages=[Message.user("hi")])
        state.finish("done")
        assert await sim.run(Agent(model=sim.model([])), state) is state

    simulate(scenario, [0], kinds=NOTHING)


def test_what_opening_a_state_raises_that_is_no_fault_comes_out(monkeypatch):
    async def load(store, state_id):
        raise KeyError("mine")

    monkeypatch.setattr(SimulatedStore, "load", load)
    with pytest.raises(SimulationError, match="KeyError: 'mine'"):
        simulate(summing, [0], faults=[InjectedFault(FaultKind.CRASH, 90)])


@pytest.mark.parametrize("on", [True, False])
def test_the_garbage_collector_is_on_again_if_it_was(on: bool):
    async def scenario(sim: Simulation) -> None:
        assert not gc.isenabled()

    was_on = gc.isenabled()
    (gc.enable if on else gc.disable)()
    try:
        simulate(scenario, [0])
        assert gc.isenabled() == on
    finally:
        (gc.enable if was_on else gc.disable)()


def test_one_simulation_is_on_at_a_time():
    with repeatable(0), pytest.raises(RuntimeError, match="on already"):
        simulate(summing, [0])


def test_outside_of_trio_each_time_is_later_than_the_one_before():
    with counted() as source:
        first, second = source.now(), source.now()
        ids = [State().id for _ in range(100)]

    assert first < second
    assert ids == sorted(set(ids))


def test_under_a_real_clock_times_are_counted_too():
    async def asked_twice() -> list[datetime]:
        return [source.now(), source.now()]

    with counted() as source:
        first, second = trio.run(asked_twice)

    assert second - first == timedelta(milliseconds=1)


# ---- What fails is made small and told


async def dropping(sim: Simulation) -> None:
    """A service that gives up when a tool refuses, whatever else goes wrong."""
    agent = Agent(model=sim.model(answer), tools=sim.tools([add, subtract]), store=sim.store)
    state = await sim.run(agent, State(id="sum", messages=[Message.user("go")]))
    assert "refuses" not in str(state.answer)


MANY = [
    InjectedFault(FaultKind.MODEL_FAILS, 1),
    InjectedFault(FaultKind.TOOL_REFUSES, 2),
    InjectedFault(FaultKind.STORE_IS_SLOW, 2),
    InjectedFault(FaultKind.MODEL_HANGS, 900),
]


def test_a_failure_tells_seed_faults_and_conversation_and_comes_again():
    with pytest.raises(SimulationError) as caught:
        simulate(dropping, [7], faults=MANY)

    error = caught.value
    assert (error.seed, error.faults) == (7, (InjectedFault(FaultKind.TOOL_REFUSES, 2),))
    assert isinstance(error.__cause__, AssertionError)
    lines = str(error).splitlines()
    assert lines[0].startswith("dropping failed with seed 7: AssertionError")
    del lines[1 : lines.index("faults that it takes:")]  # the rest of what pytest makes of the assertion
    assert f"{Path(__file__).name}:" in lines[0]
    assert lines[1:4] == ["faults that it takes:", "  tool refuses, at 2", "State sum"]
    assert "  [turn 0] context_change import of 1 messages" in lines
    assert any("tool_result" in line and "(error)" in line for line in lines)
    assert error.states == ("\n".join([lines[3], *[line[2:] for line in lines[4:-1]]]),)
    again = "simulate(dropping, seeds=[7], faults=[InjectedFault(FaultKind.TOOL_REFUSES, 2)])"
    assert lines[-1] == f"again: {again}"

    with pytest.raises(SimulationError) as second:
        eval(again)
    assert str(second.value) == str(error)


def test_the_faults_of_a_seed_fail_again_by_its_number_alone():
    with pytest.raises(SimulationError) as first:
        simulate(dropping, range(200), kinds=[FaultKind.TOOL_REFUSES, FaultKind.CRASH])
    with pytest.raises(SimulationError) as second:
        simulate(dropping, [first.value.seed], kinds=[FaultKind.TOOL_REFUSES, FaultKind.CRASH])

    assert str(first.value) == str(second.value)


def test_what_does_not_repeat_is_said_to():
    async def moody(sim: Simulation) -> None:
        await sim.run(Agent(model=sim.model(["hi"])), f"attempt {next(count)}")
        raise ValueError

    count = itertools.count()
    with pytest.raises(SimulationError, match="it went another way"):
        simulate(moody, [0])


def test_all_that_was_raised_at_once_is_told():
    async def scenario(sim: Simulation) -> None:
        async def raising(error: Exception) -> None:
            raise error

        async with trio.open_nursery() as nursery:
            nursery.start_soon(raising, ValueError("one"))
            nursery.start_soon(raising, KeyError("two"))

    with pytest.raises(SimulationError) as caught:
        simulate(scenario, [0], kinds=NOTHING)

    told = str(caught.value)
    assert "ValueError: one" in told
    assert "KeyError: 'two'" in told
    assert "without any fault" in told


@pytest.mark.parametrize("shielded", [False, True])
def test_a_scenario_that_waits_for_what_never_comes_is_ended(shielded: bool):
    async def stuck(sim: Simulation) -> None:
        with trio.CancelScope(shield=shielded):
            await trio.Event().wait()

    with pytest.raises(SimulationError, match=r"waits for what never comes") as caught:
        simulate(stuck, [0], kinds=NOTHING)

    assert "in stuck" in str(caught.value)


def test_a_scenario_without_end_is_ended(monkeypatch):
    async def endless(sim: Simulation) -> None:
        while True:
            await trio.lowlevel.checkpoint()

    monkeypatch.setattr(_steps, "MOST_STEPS", 1_000)
    with pytest.raises(SimulationError, match="no end in sight: after 1,000 steps"):
        simulate(endless, [0], kinds=NOTHING)


def test_what_a_scenario_leaves_running_is_told():
    async def leaving(sim: Simulation) -> None:
        trio.lowlevel.spawn_system_task(trio.sleep, 5, name="left by the scenario")

    with pytest.raises(SimulationError, match="left by the scenario"):
        simulate(leaving, [0], kinds=NOTHING)


def test_ctrl_c_comes_through():
    async def interrupted(sim: Simulation) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(interrupted, [0])


def test_a_run_that_never_ends_well_is_given_up():
    async def scenario(sim: Simulation) -> None:
        error = sim._faults.raised(ProviderError("always"))
        await sim.run(Agent(model=FakeModel(lambda request: error)), "go")

    with pytest.raises(SimulationError, match="didn't come to the end of a run in 50 tries"):
        simulate(scenario, [0], kinds=NOTHING)


# ---- What is reported


def test_a_report_says_what_was_done():
    report = simulate(summing, range(10))
    lines = str(report).splitlines()

    assert report.seeds == 10
    assert lines[0] == f"summing: 10 seeds, {report.steps:,} steps, {report.states:,} States, all well"
    assert lines[1].startswith(f"faults: {sum(report.faults.values())} (")
    assert lines[2] == "invariants checked:"
    assert [line.strip()[0] for line in lines[3:]] == list("123456")
    assert all(report.checks.values())


def test_reports_add_up():
    whole, first, second = (simulate(summing, seeds) for seeds in (range(6), range(3), range(3, 6)))
    both = first + second

    assert (both.seeds, both.steps, both.states) == (whole.seeds, whole.steps, whole.states)
    assert (both.faults, both.checks) == (whole.faults, whole.checks)


def test_without_faults_nothing_goes_wrong():
    async def scenario(sim: Simulation) -> None:
        await summing(sim)
        assert not [entry for state in sim._checks.states() for entry in state.history if isinstance(entry, ErrorEntry)]

    assert not sum(simulate(scenario, range(10), kinds=NOTHING).faults.values())


@pytest.mark.parametrize("scenario", [None, "service", lambda: None, lambda sim, more: None], ids=str)
def test_what_is_no_function_of_one_argument_is_refused(scenario):
    with pytest.raises(TypeError, match=r"^scenario must be an async function of a Simulation, not "):
        simulate(scenario, seeds=[1])

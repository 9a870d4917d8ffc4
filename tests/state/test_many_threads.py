"""Eight threads and a thousand changes each, on an idle State and on one that runs through many turns meanwhile."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator

import pytest
import trio

from alpineagents import Agent, Entry, MemoryStore, Message, Request, State, StateSnapshot, ToolCall, default_loop, tool
from alpineagents.testing import FakeModel, tool_call

from ..states import assert_replays
from .test_threads import THREADS, TIMES, in_threads

LEAST_TURNS = 150


@pytest.fixture(autouse=True)
def switching_often() -> Iterator[None]:
    """Threads are switched two hundred times as often as usual."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(usual / 200)
    yield
    sys.setswitchinterval(usual)


def change(state: State, number: int) -> None:
    """Make ``TIMES`` changes of every kind that nobody else's changes undo, and look at the State between them."""
    noted = 0
    last = state.snapshot()
    for n in range(TIMES):
        match n % 4:
            case 0:
                state.add_message(Message.user(f"{number} {n}"))
            case 1:
                state.add_message(Message.notice(f"{number} {n}"))
            case 2:
                count(state, str(number))
                noted += 1
            case _:
                with state.edit_extra_data() as data:
                    data["all"] += 1
                    data[str(number)] += 1
                    data["lists"].setdefault(str(number), []).append(n)
                noted += 1
        now = state.snapshot()
        assert_later(last, now)
        assert now.extra_data[str(number)] == noted
        last = now
        if n % 250 == 0:
            assert len(str(state).splitlines()) > n
            with contextlib.suppress(ValueError) if state.running else contextlib.nullcontext():  # a request may wait
                assert state.fork().extra_data[str(number)] == noted


def count(state: State, name: str) -> None:
    with state.edit_extra_data() as data:
        data["all"] += 1
        data[name] += 1


def assert_later(before: StateSnapshot, after: StateSnapshot) -> None:
    """A thread sees time go forward, and of each moment all or nothing."""
    assert len(after.history) >= len(before.history)
    assert len(after.messages) >= len(before.messages)
    assert after.extra_data["all"] >= before.extra_data["all"]
    assert after.history[-1].seq == len(after.history) - 1
    assert after.updated_at == after.history[-1].at
    counts = {name: value for name, value in after.extra_data.items() if name not in ("all", "lists")}
    assert sum(counts.values()) == after.extra_data["all"]


def notepad(*names: str) -> State:
    counts = dict.fromkeys([*map(str, range(THREADS)), *names], 0)
    return State(messages=[Message.user("go")], extra_data={"all": 0, "lists": {}, **counts})


def assert_nothing_is_lost(state: State, **others: int) -> None:
    """Every message is there once, every edit was counted once, and replay gives the same State."""
    said = Counter(entry.content.text for entry in state.history if entry.kind in ("user", "notice"))
    expected = [f"{number} {n}" for number in range(THREADS) for n in range(0, TIMES, 4)]
    expected += [f"[notice] {number} {n}" for number in range(THREADS) for n in range(1, TIMES, 4)]
    assert said == Counter(expected)
    shown = Counter(message.text for message in state.messages if message.role == "user")
    assert shown == said + Counter(["go"])

    edits = {str(number): TIMES // 2 for number in range(THREADS)} | others
    assert {name: state.extra_data[name] for name in edits} == edits
    assert state.extra_data["all"] == sum(edits.values())
    assert state.extra_data["lists"] == {str(number): list(range(3, TIMES, 4)) for number in range(THREADS)}
    counted = [entry.content["all"] for entry in state.history if entry.kind == "extra_data"]
    assert counted == list(range(sum(edits.values()) + 1))

    assert [entry.seq for entry in state.history] == list(range(len(state.history)))
    times = [entry.at for entry in state.history]
    assert times == sorted(times)
    assert_replays(state)


@pytest.mark.slow
def test_eight_threads_lose_nothing_on_an_idle_state_without_any_event_loop():
    state = notepad()

    in_threads(lambda number: change(state, number))

    assert_nothing_is_lost(state)
    assert len(state.history) == 2 + THREADS * TIMES
    in_order = [message.text.split()[-2:] for message in state.messages[1:]]
    for number in range(THREADS):
        mine = [int(n) for who, n in in_order if who == str(number)]
        assert mine == sorted(mine)


@tool
async def note(state: State) -> str:
    """Note something in a task."""
    async with state.edit_extra_data() as data:
        data["all"] += 1
        await trio.lowlevel.checkpoint()
        data["tasks"] += 1
    return "noted"


@tool
def jot(state: State) -> str:
    """Note something in a thread of trio."""
    count(state, "tools")
    return "noted"


@pytest.mark.slow
async def test_eight_threads_lose_nothing_on_a_state_that_runs_through_many_turns():
    store, state = MemoryStore(), notepad("tasks", "tools", "model")
    second_turn, all_done = trio.Event(), trio.Event()
    turns = 0
    seen: list[Entry] = []

    async def threads() -> None:
        await second_turn.wait()
        await trio.to_thread.run_sync(in_threads, lambda number: change(state, number))
        all_done.set()

    async def answer(request: Request) -> str | list[ToolCall]:
        nonlocal turns
        turns += 1
        if turns == 2:
            second_turn.set()
        async with state.edit_extra_data() as data:
            data["all"] += 1
            data["model"] += 1
        if turns > LEAST_TURNS and all_done.is_set():
            state.finish(turns)
            return "done"
        return [tool_call("note"), tool_call("jot"), tool_call("note"), tool_call("jot")]

    async def watch() -> None:
        async for entry in state.watch():
            seen.append(entry)

    agent = Agent(model=FakeModel(answer), tools=[note, jot], store=store, loop=default_loop.copy(limit=1_000_000))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        nursery.start_soon(threads)
        assert await agent.run(state) == turns

    assert_nothing_is_lost(state, tasks=2 * (turns - 1), tools=2 * (turns - 1), model=turns)
    assert state.turn == turns
    assert all(entry.outcome == "done" for entry in state.history if entry.kind == "tool_result")
    assert seen == list(state.history)
    loaded = await store.load(state.id)
    assert loaded.snapshot() == state.snapshot()
    assert loaded.extra_data == state.extra_data

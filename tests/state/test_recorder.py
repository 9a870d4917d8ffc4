"""Who waits for a State to change or to be saved, and gets there whatever runs, acts or ends meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
import trio
import trio.testing

from alpineagents import (
    Agent,
    IllegalEntryError,
    MemoryStore,
    Message,
    Model,
    State,
    StopEntry,
    StoppedByLimit,
    StoreError,
    tool,
)
from alpineagents.record._snapshot import Snapshot
from alpineagents.state._clock import source
from alpineagents.testing import FakeModel, tool_call

from ..run.runs import HungStore
from .test_state import texts


@tool
async def quick() -> str:
    """Return at once."""
    return "ok"


async def test_a_message_waits_for_the_calls_of_a_run_that_is_between_two_actions():
    """Nobody runs them at this moment, but the run is going to."""
    state = State(messages=[Message.user("go")])
    between, go_on = trio.Event(), trio.Event()

    async def body(agent, state):
        await agent.think(state)
        between.set()
        await go_on.wait()
        await agent.use_tools(state)

    async def say():
        await state.add_message(Message.user("x"))
        assert texts(state)[-1] == "x"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(Agent(model=FakeModel([tool_call("quick")]), tools=[quick], loop=body).run, state)
        await between.wait()
        nursery.start_soon(say)
        await trio.testing.wait_all_tasks_blocked()
        assert texts(state)[-1] != "x"
        go_on.set()


class Closing(Model):
    """Takes a moment to close its connections."""

    name = "fake/closing"

    def __init__(self, answer) -> None:
        self.model = FakeModel([answer])

    async def respond(self, request, emit):
        return await self.model.respond(request, emit)

    @asynccontextmanager
    async def session(self):
        yield
        await trio.testing.wait_all_tasks_blocked()


async def test_a_receipt_left_behind_by_an_action_whose_last_save_hangs_is_saved_once_the_store_works(autojump_clock):
    store = HungStore()
    state = State(messages=[Message.user("go")])
    asked, saved = trio.Event(), trio.Event()

    async def say():
        await asked.wait()
        await state.add_message(Message.user("more"))
        saved.set()

    async def answer(request):
        store.hung = True
        asked.set()
        await trio.testing.wait_all_tasks_blocked()
        return "because"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(say)
        with pytest.raises(StoreError):
            await Agent(model=Closing(answer), store=store).ask(state, "why?")
        await trio.testing.wait_all_tasks_blocked()
        assert not saved.is_set()
        store.hung = False
        store.let_go.set()
        with trio.fail_after(60):
            await saved.wait()

    assert state.saved == len(state.history) == 3


async def test_loading_a_child_that_is_here_is_a_checkpoint():
    child = State(messages=[Message.user("part")])

    @tool
    async def delegate() -> str:
        """Delegate."""
        return await Agent(model=FakeModel(["part done"])).run(child)

    state = State(messages=[Message.user("all")])
    await Agent(model=FakeModel([tool_call("delegate"), "done"]), tools=[delegate]).run(state)

    with trio.testing.assert_checkpoints():
        assert await state.load_child(child.id) is child


async def test_a_message_that_waits_for_calls_is_refused_when_whoever_could_have_run_them_is_gone():
    """By a run that leaves them pending, and by an action."""
    for holding in (lambda state: state.in_run(), lambda state: state.acting("use_tools")):
        state = State(messages=[Message.user("go")])
        await Agent(model=FakeModel([tool_call("quick")]), tools=[quick]).think(state)
        over = trio.Event()

        async def hold(holding=holding, state=state, over=over):
            with holding(state):
                await over.wait()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(hold)
            await trio.testing.wait_all_tasks_blocked()
            receipt = state.add_message(Message.user("x"))

            async def refused(receipt=receipt):
                with pytest.raises(RuntimeError, match=r"waits for 1 tool calls that nobody runs"):
                    await receipt

            nursery.start_soon(refused)
            await trio.testing.wait_all_tasks_blocked()
            assert len(nursery.child_tasks) == 2
            over.set()


async def test_a_second_action_is_told_which_one_is_on():
    state = State(id="bug-1", messages=[Message.user("go")])

    with state.acting("compact"), pytest.raises(ValueError, match=r"^think: compact is on for State bug-1; await it "):
        await Agent(model=FakeModel(["x"])).think(state)


class Noticing:
    """A keeper that counts, and keeps nothing."""

    def __init__(self) -> None:
        self.noticed = 0

    def notice(self) -> None:
        self.noticed += 1

    async def save(self, state) -> None:
        await trio.lowlevel.checkpoint()


async def test_whoever_keeps_a_state_notices_each_entry_and_nothing_once_it_is_gone():
    state = State()
    keeper = Noticing()
    assert state.saved == 0

    with state.kept_by(keeper):
        assert state.keeper is keeper
        for number in range(1, 4):
            state.add_message(Message.user("x"))
            assert keeper.noticed == number
    state.add_message(Message.user("x"))

    assert keeper.noticed == 3
    assert state.keeper is None


class Clock:
    """Gives these times, and then the last of them."""

    def __init__(self, *seconds: int) -> None:
        self.seconds = list(seconds)

    def now(self) -> datetime:
        second = self.seconds.pop(0) if len(self.seconds) > 1 else self.seconds[0]
        return datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)

    def new_id(self) -> str:
        return "s1"


@pytest.fixture
def clock_set_to() -> Iterator[Callable[..., None]]:
    tokens = []
    yield lambda *seconds: tokens.append(source.set(Clock(*seconds)))
    for token in reversed(tokens):
        source.reset(token)


def stop(snap: Snapshot, at: datetime) -> StopEntry:
    return StopEntry(snap.length, snap.turn, at, StoppedByLimit(1))


def test_several_entries_at_once_are_recorded_all_or_none():
    state = State(messages=[Message.user("go")])
    seen: list[int] = []

    def entry(snap, at):
        seen.append(len(state.history))
        return stop(snap, at)

    def refused(snap, at):
        return StopEntry(snap.length + 7, snap.turn, at, None)

    with pytest.raises(IllegalEntryError):
        state.commit_all([entry, refused])
    assert len(state.history) == 1
    entries = state.commit_all([entry, lambda snap, at: None, entry])

    assert seen == [1, 1, 1]
    assert list(state.history)[1:] == entries
    assert [entry.seq for entry in entries] == [1, 2]
    assert State(history=state.history).snapshot() == state.snapshot()


def test_what_a_signal_handler_commits_between_several_entries_is_kept():
    state = State(messages=[Message.user("go")])
    interrupted: list[bool] = []

    def entry(snap, at):
        if not interrupted:
            interrupted.append(True)
            state.add_message(Message.notice("from a handler"))
        return stop(snap, at)

    entries = state.commit_all([entry, entry])

    assert [entry.kind for entry in state.history] == ["context_change", "notice", "stop", "stop"]
    assert [entry.seq for entry in entries] == [2, 3]


def test_several_entries_at_once_have_one_time_and_none_before_what_is_there(clock_set_to):
    clock_set_to(5)
    state = State(messages=[Message.user("go")])
    clock_set_to(3, 9)
    earlier = state.commit_all([stop, stop])
    later = state.commit_all([stop, stop])

    assert [entry.at.second for entry in earlier] == [5, 5]
    assert [entry.at.second for entry in later] == [9, 9]


def test_the_first_of_several_entries_may_be_the_first_of_all(clock_set_to):
    clock_set_to(7)
    state = State()

    (entry,) = state.commit_all([stop])

    assert (entry.seq, entry.at.second) == (0, 7)


async def test_several_entries_at_once_are_told_once_to_everybody():
    state, keeper, listener, woken = State(), Noticing(), Noticing(), trio.Event()

    async def wait():
        with state.waiter() as waiter:
            await waiter.wait()
            woken.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        with state.kept_by(keeper), state.heard_by(listener):
            state.commit_all([stop, stop, stop])
            assert (keeper.noticed, listener.noticed) == (1, 1)
        with trio.fail_after(5):
            await woken.wait()


def test_a_listener_hears_each_entry_from_now_on_until_it_leaves_whoever_else_listens():
    state, one, two = State(), Noticing(), Noticing()

    with state.heard_by(one):
        state.add_message(Message.user("a"))
        with state.heard_by(two):
            state.add_message(Message.user("b"))
        state.add_message(Message.user("c"))
        assert (one.noticed, two.noticed) == (3, 1)
    state.add_message(Message.user("d"))

    assert (one.noticed, two.noticed) == (3, 1)


async def test_a_run_says_what_it_works_with_while_it_is_on_and_wakes_who_waits_when_it_ends():
    state, woken = State(id="s1"), trio.Event()
    assert (state.running, state.run_setup) == (False, None)

    async def wait():
        with state.waiter() as waiter:
            await waiter.wait()
            woken.set()

    async with trio.open_nursery() as nursery:
        with state.in_run("setup"):
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            assert (state.running, state.run_setup) == (True, "setup")
            with (
                pytest.raises(ValueError, match=r"^State s1 is in a run already; await that one first, or run a fork"),
                state.in_run("another"),
            ):
                pass
            assert (state.running, state.run_setup) == (True, "setup")
            assert not woken.is_set()
        assert (state.running, state.run_setup) == (False, None)
        with trio.fail_after(5):
            await woken.wait()


async def test_a_state_is_at_work_while_somebody_runs_keeps_saves_or_waits_for_that():
    state, store = State(messages=[Message.user("go")]), MemoryStore()
    assert not state.is_at_work()

    with state.in_run():
        assert state.is_at_work()
    with state.kept_by(Noticing()):
        assert state.is_at_work()
    async with store.holding(state):
        assert state.is_at_work()

    assert not state.is_at_work()


async def test_a_state_is_at_work_while_somebody_waits_for_its_being_saved_and_wakes_who_waits_for_that():
    state = State(messages=[Message.user("go")])
    saving, go_on, woken = trio.Event(), trio.Event(), trio.Event()

    class Slow(Noticing):
        async def save(self, state) -> None:
            saving.set()
            await go_on.wait()
            state.saved = 1

    async def wait():
        with state.waiter() as waiter:
            await waiter.wait()
            assert not state.is_at_work()
            woken.set()

    state.store = Slow()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        nursery.start_soon(state.wait_saved, 1)
        nursery.start_soon(state.wait_saved, 1)
        await saving.wait()
        assert state.is_at_work()
        go_on.set()
        with trio.fail_after(5):
            await woken.wait()

    assert not state.is_at_work()

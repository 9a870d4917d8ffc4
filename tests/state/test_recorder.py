"""Who waits for a State to change or to be saved, and gets there whatever runs, acts or ends meanwhile."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from alpineagents import Agent, Message, Model, State, StoreError, tool
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

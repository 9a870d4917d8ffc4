"""What ``simulate`` checks, seen to fail: each invariant is broken by hand, in the middle of a scenario."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs
import pytest
import trio

from alpineagents import (
    Agent,
    ErrorEntry,
    Message,
    ModelReplyEntry,
    Reply,
    State,
    TextBlock,
    ToolResultBlock,
    ToolResultEntry,
    tool,
)
from alpineagents.testing import FakeModel, Simulation, SimulationError, simulate, tool_call


@tool
async def wait(seconds: float) -> str:
    """Wait."""
    await trio.sleep(seconds)
    return "waited"


def started(sim: Simulation, number: int = 1) -> tuple[Agent, State]:
    def answer(request):
        if any(message.role == "tool" for message in request.messages):
            return "done"
        return [tool_call("wait", seconds=5) for _ in range(number)]

    agent = Agent(model=sim.model(answer), tools=sim.tools([wait]), store=sim.store)
    return agent, State(id="one", messages=[Message.user("go")])


async def meanwhile(sim: Simulation, do: Callable[[State], object], number: int = 1) -> None:
    """Run an agent, and do that while its tools work."""
    agent, state = started(sim, number)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.run, state)
        await trio.sleep(4)  # a reply takes two seconds at most, the tool five
        assert state.pending_calls
        do(state)


def failing(scenario: Callable[[Simulation], Awaitable[None]]) -> SimulationError:
    with pytest.raises(SimulationError) as caught:
        simulate(scenario, [0], kinds=())
    return caught.value


async def an_entry_is_replaced(sim: Simulation) -> None:
    def do(state: State) -> None:
        state._snap._entries[0] = attrs.evolve(state.history[0])
        state.add_message(Message.user("more"))

    await meanwhile(sim, do)


async def entries_are_lost(sim: Simulation) -> None:
    _, state = started(sim)
    state.add_message(Message.user("and more"))
    await trio.lowlevel.checkpoint()
    early = State(messages=[Message.user("go")])._snap
    state._snap = early
    state._tell()
    await trio.lowlevel.checkpoint()


async def a_value_is_changed(sim: Simulation) -> None:
    def do(state: State) -> None:
        state._snap.answer = "made up"
        state.add_message(Message.user("more"))

    await meanwhile(sim, do)


async def a_message_is_changed(sim: Simulation) -> None:
    def do(state: State) -> None:
        state._snap._messages[0] = Message.user("made up")
        state._snap._messages = list(state._snap._messages)
        state.add_message(Message.user("more"))

    await meanwhile(sim, do)


async def what_is_not_written_counts_as_saved(sim: Simulation) -> None:
    def do(state: State) -> None:
        state.saved += 1

    await meanwhile(sim, do)


async def a_call_is_left_open(sim: Simulation) -> None:
    agent, state = started(sim)
    await agent.think(state)
    state.begin_run(None)
    state.add_message(Message.user("more"))
    await trio.lowlevel.checkpoint()
    state.end_run()
    await trio.lowlevel.checkpoint()


async def a_request_is_left_open(sim: Simulation) -> None:
    async def respond(request):
        state.begin_run(None)
        state.add_message(Message.user("more"))
        await trio.lowlevel.checkpoint()
        state.end_run()
        await trio.lowlevel.checkpoint()
        return "ended"

    state = State(messages=[Message.user("go")])
    await Agent(model=FakeModel(respond)).think(state)


async def a_keeper_is_left_running(sim: Simulation) -> None:
    agent, state = started(sim)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep, 60, name="keeper of one")
        await agent.run(state)


async def a_lease_is_left(sim: Simulation) -> None:
    async def service() -> None:
        await sim.store.lease("one").__aenter__()

    await sim.process(service)


async def a_result_comes_twice(sim: Simulation) -> None:
    def do(state: State) -> None:
        call = state.pending_calls[0]
        for late in (False, True):
            state.commit(
                lambda snap, at, late=late: ToolResultEntry(
                    snap.length,
                    snap.turn,
                    at,
                    (),
                    call,
                    "done",
                    late=late,  # type: ignore[arg-type]
                )
            )

    await meanwhile(sim, do, number=2)


async def a_call_runs_again(sim: Simulation) -> None:
    agent, state = started(sim)
    await agent.run(state)
    again = State(id="one", history=list(state.history)[:4])
    await agent.copy(store=None).use_tools(again)


async def a_tool_runs_too_early(sim: Simulation) -> None:
    agent, state = started(sim)
    sim._checks._durable["one"] = []
    sim._checks.wrote = lambda *_: None  # type: ignore[method-assign]
    sim._checks._check_saved = lambda watched: None  # type: ignore[method-assign]
    await agent.run(state)


async def what_was_acknowledged_is_gone(sim: Simulation) -> None:
    _, state = started(sim)
    await sim.store.save(state)
    await sim.acknowledged(state.add_message(Message.user("more")))
    await trio.lowlevel.checkpoint()
    sim._checks._durable["one"].pop()
    await sim.store.load("one")


async def a_loaded_call_is_left_open(sim: Simulation) -> None:
    agent, state = started(sim)
    await agent.think(state)
    open_again = State(id="one", history=state.history)
    sim._checks.check_loaded(open_again)


async def a_run_is_not_saved(sim: Simulation) -> None:
    agent, state = started(sim)
    await agent.run(state)
    state.begin_run(None)
    await agent.ask(state, "Well?")
    call = tool_call("wait", seconds=1)
    state.commit(lambda snap, at: ErrorEntry(snap.length, snap.turn, at, f"{call.name} failed", "run"))
    await trio.lowlevel.checkpoint()
    state.end_run()
    await trio.lowlevel.checkpoint()


async def a_conversation_is_malformed(sim: Simulation) -> None:
    state = State(messages=[Message.user("go")])
    await trio.lowlevel.checkpoint()
    watched = sim._checks._watched[state]
    call = Message("assistant", (tool_call("wait"),))
    for snap in (state._snap, watched._moments[-1]):
        snap._messages.append(call)
        snap._messages_length += 1
    watched.check_growth()


async def a_history_cannot_be_replayed(sim: Simulation) -> None:
    state = State(messages=[Message.user("go")])
    await trio.lowlevel.checkpoint()
    state._snap.request_open = True
    state.commit(lambda snap, at: ModelReplyEntry(snap.length, snap.turn, at, Reply((TextBlock("hi"),))))


async def a_conversation_has_results_of_nothing(sim: Simulation) -> None:
    state = State(messages=[Message.user("go")])
    await trio.lowlevel.checkpoint()
    watched = sim._checks._watched[state]
    results = Message("tool", (ToolResultBlock("call_1", ()),))
    for snap in (state._snap, watched._moments[-1]):
        snap._messages.append(results)
        snap._messages_length += 1
    watched.check_growth()


async def a_message_is_replaced(sim: Simulation) -> None:
    state = State(messages=[Message.user("go")])
    await trio.lowlevel.checkpoint()
    state.add_message(Message.user("more"))
    state._snap._messages[1] = Message.user("another")


async def a_message_is_lost(sim: Simulation) -> None:
    state = State(messages=[Message.user("go")])
    await trio.lowlevel.checkpoint()
    state.add_message(Message.user("more"))
    state._snap._messages_length -= 1


async def a_trip_through_json_changes_it(sim: Simulation) -> None:
    state = State(extra_data={"a": 1})
    await trio.lowlevel.checkpoint()
    object.__setattr__(state.history[0], "content", {"a": (1,)})  # JSON makes a list of it
    sim._checks._watched[state].check_trip()


async def what_was_acknowledged_is_another(sim: Simulation) -> None:
    _, state = started(sim)
    await sim.store.save(state)
    await sim.acknowledged(state.add_message(Message.user("more")))
    await trio.lowlevel.checkpoint()
    sim._checks._durable["one"][1] = b"{}"


@pytest.mark.parametrize(
    ("scenario", "told"),
    [
        (an_entry_is_replaced, "2 history only grows: State one: entry 0 was replaced"),
        (entries_are_lost, "2 history only grows: State one: it had 2 entries, and has 1"),
        (a_value_is_changed, "1 replay gives the same: State one: answer is 'made up', replayed None"),
        (a_message_is_changed, "1 replay gives the same: State one: messages"),
        (what_is_not_written_counts_as_saved, "4 what is acknowledged is saved: State one: "),
        (a_call_is_left_open, "5 a run that ended left nothing open: State one: calls are still pending: wait"),
        (a_request_is_left_open, "a request is still open"),
        (a_keeper_is_left_running, "still running: keeper of one"),
        (a_lease_is_left, "the store still holds one for a process that ended"),
        (a_result_comes_twice, "6 a call runs once and has one result: State one: call wait"),
        (a_call_runs_again, "runs again"),
        (a_tool_runs_too_early, "a request was sent before entry 2, which led to it, was saved"),
        (a_loaded_call_is_left_open, "State one: calls are still pending: wait"),
        (a_run_is_not_saved, "(error) isn't saved: "),
        (a_conversation_is_malformed, "3 conversations are well formed: State "),
        (a_history_cannot_be_replayed, "its history can't be replayed: entry 1: reply without a request"),
        (a_conversation_has_results_of_nothing, "messages[1]: results of ['call_1']"),
        (a_message_is_replaced, "messages[1] is "),
        (a_message_is_lost, "it has 1 messages, replayed 2"),
        (a_trip_through_json_changes_it, "after a trip through JSON"),
        (what_was_acknowledged_is_gone, "entry 1 was acknowledged, but the store has 1 entries"),
        (what_was_acknowledged_is_another, "entry 1 was acknowledged, but the store has another one there"),
    ],
)
def test_a_broken_invariant_is_found(scenario, told):
    assert told in str(failing(scenario))


def test_going_back_and_forward_again_is_followed():
    async def scenario(sim: Simulation) -> None:
        agent, state = started(sim)
        before = state.snapshot()
        await agent.run(state)
        after = state.snapshot()
        await sim.acknowledged(state.restore(before))
        await sim.acknowledged(state.restore(after))
        assert state.answer == "done"

    simulate(scenario, [0], kinds=())


def test_what_is_deleted_need_not_be_there_any_more():
    async def scenario(sim: Simulation) -> None:
        _, state = started(sim)
        await sim.store.save(state)
        await sim.acknowledged(state.add_message(Message.user("more")))
        await sim.store.delete("one")

    simulate(scenario, [0], kinds=())


def test_a_receipt_without_a_store_has_nothing_to_hold():
    async def scenario(sim: Simulation) -> None:
        await sim.acknowledged(State().add_message(Message.user("hi")))

    simulate(scenario, [0], kinds=())

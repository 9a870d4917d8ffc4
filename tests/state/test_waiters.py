"""Who waits, and for what: in which threads something can be awaited, and turns that pass on."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import weakref

import pytest
import trio
import trio.testing

from alpineagents import Agent, MemoryStore, Message, State
from alpineagents.state._turns import Holder, Turns
from alpineagents.state._waiters import Waiter, runs_event_loop
from alpineagents.testing import FakeModel


def test_a_receipt_awaited_under_asyncio_says_where_to_go():
    async def wait() -> None:
        assert runs_event_loop()
        await State().add_message(Message.user("x"))

    with pytest.raises(RuntimeError, match=r"awaiting a receipt needs trio.*alpineagents\.aio"):
        asyncio.run(wait())


def test_a_program_without_asyncio_runs_no_loop_of_it(monkeypatch):
    monkeypatch.delitem(sys.modules, "asyncio")

    assert not runs_event_loop()
    with State().edit_extra_data() as data:
        data["x"] = 1


def test_waking_a_task_of_a_run_that_has_ended_is_no_error():
    async def made() -> Waiter:
        return Waiter()

    trio.run(made).wake()


async def test_a_state_that_is_saved_in_one_store_can_not_be_held_in_another_meanwhile():
    state = State(messages=[Message.user("x")])
    one, other = MemoryStore(), MemoryStore()

    async with one.holding(state):
        with pytest.raises(ValueError, match="is being saved in"):
            await Agent(model=FakeModel(["x"]), store=other).ask(state, "why?")


async def test_a_turn_that_nobody_holds_any_more_goes_to_the_next_and_passes_over_who_is_gone():
    turns = Turns(threading.RLock())
    first, gone = Holder(), Holder()
    await turns.take(first)
    got: list[str] = []

    async def wait(name: str, who: Holder) -> None:
        await turns.take(who)
        got.append(name)

    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def given_up() -> None:
            with scope:
                await wait("gone", gone)

        nursery.start_soon(given_up)
        await trio.testing.wait_all_tasks_blocked()
        turns._queued(Holder(), Waiter())  # of a task that was collected while it waited
        third = Holder()
        nursery.start_soon(wait, "third", third)
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert got == []
        turns.give_back(gone)  # which it never had
        turns._advance()
        assert turns.held_by(first)
        del first
        gc.collect()
    assert got == ["third"]
    assert turns.held_by(third)


def test_a_turn_taken_before_it_is_known_that_its_holder_is_gone_stays_with_who_took_it():
    turns = Turns(threading.RLock())
    first, quick, waiting = Holder(), Holder(), Holder()
    assert turns.take_nowait(first)
    # Called back before the turns are, since it is the younger reference.
    watching = weakref.ref(first, lambda _: turns.take_nowait(quick))

    del first

    assert watching() is None
    assert turns.held_by(quick)
    assert not turns.take_nowait(waiting)

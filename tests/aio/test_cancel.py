"""Cancellation goes both ways, and nobody goes on before the other side has ended."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from contextlib import suppress

import anyio
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from alpineagents import Agent, FileStore, MemoryStore, State, aio, tool
from alpineagents.testing import FakeModel, tool_call

from .kit import Gate, assert_closed, conversation, outcomes, run, trio_tasks, waiting_agent


def test_a_cancelled_task_cancels_the_run_and_goes_on_when_its_state_is_closed_and_saved():
    async def main():
        gate, store, state = Gate(), MemoryStore(), conversation()
        async with aio.Portal() as portal:
            before = await portal.run(trio_tasks)
            task = asyncio.create_task(portal.run(waiting_agent(gate, store=store).run, state))
            await gate.reached.wait()
            task.cancel("enough")
            with pytest.raises(asyncio.CancelledError, match="enough"):
                await task
            assert_closed(state)
            assert gate.was_cancelled
            assert outcomes(state) == ["interrupted"]
            assert await portal.run(trio_tasks) == before
            assert (await portal.run(store.load, state.id)).history == state.history
            return await portal.run(Agent(model=FakeModel(["went on"])).run, state)

    assert run(main()) == "went on"


def test_a_timeout_around_it_is_a_timeout():
    async def main():
        gate, state = Gate(), conversation()
        async with aio.Portal() as portal:

            async def bounded():
                async with asyncio.timeout(None) as scope:
                    asyncio.get_running_loop().call_soon(scope.reschedule, 0)
                    await portal.run(waiting_agent(gate).run, state)

            with pytest.raises(TimeoutError):
                await bounded()
            assert asyncio.current_task().cancelling() == 0
        assert_closed(state)

    run(main())


def test_a_task_group_cancels_the_others_and_tells_what_failed():
    async def main():
        gates, states = [Gate() for _ in range(20)], [conversation() for _ in range(20)]

        async def fail():
            for gate in gates:
                await gate.reached.wait()
            raise ValueError("one failed")

        async with aio.Portal() as portal:

            async def together():
                async with asyncio.TaskGroup() as group:
                    for gate, state in zip(gates, states, strict=True):
                        group.create_task(portal.run(waiting_agent(gate).run, state))
                    group.create_task(fail())

            with pytest.raises(ExceptionGroup) as caught:
                await together()
            assert [str(error) for error in caught.value.exceptions] == ["one failed"]
            for state in states:
                assert_closed(state)
                assert outcomes(state) == ["interrupted"]

    run(main())


def test_a_second_cancel_while_it_waits_leaves_nothing_behind():
    async def main():
        gate = Gate()
        async with aio.Portal() as portal:
            before = await portal.run(trio_tasks)
            task = asyncio.create_task(portal.run(gate.wait_when_cancelled))
            await gate.reached.wait()
            task.cancel("first")
            await gate.ending.wait()
            for _ in range(3):
                task.cancel("again")
                await asyncio.sleep(0)
            assert not task.done()
            assert await portal.run(trio_tasks) == before + 1
            await portal.run(gate.open)
            with pytest.raises(asyncio.CancelledError, match="again"):
                await task
            assert task.cancelling() == 4
            assert await portal.run(trio_tasks) == before

    run(main())


def test_a_result_that_comes_in_spite_of_it_does_not_swallow_the_cancellation():
    async def main():
        gate = Gate()

        async def shielded():
            with trio.CancelScope(shield=True):
                return await gate.wait()

        async with aio.Portal() as portal:
            task = asyncio.create_task(portal.run(shielded))
            await gate.reached.wait()
            task.cancel()
            await asyncio.sleep(0)
            await portal.run(gate.open)
            with pytest.raises(asyncio.CancelledError):
                await task

    run(main())


def test_an_error_while_it_is_cancelled_comes_out():
    async def main():
        gate = Gate()

        async def fail_in_the_end():
            try:
                await gate.wait()
            finally:
                raise ValueError("could not clean up")

        async with aio.Portal() as portal:
            task = asyncio.create_task(portal.run(fail_in_the_end))
            await gate.reached.wait()
            task.cancel()
            with pytest.raises(ValueError, match="could not clean up") as caught:
                await task
            assert isinstance(caught.value.__context__, trio.Cancelled)

    run(main())


def test_cancelled_before_it_began_the_function_is_not_called():
    async def main():
        called = []
        thread_is_free = threading.Event()
        loop, is_blocked = asyncio.get_running_loop(), asyncio.Event()

        def block():
            loop.call_soon_threadsafe(is_blocked.set)
            thread_is_free.wait()

        async with aio.Portal() as portal:
            blocking = asyncio.create_task(portal.run(block))
            await is_blocked.wait()
            task = asyncio.create_task(portal.run(called.append, 1))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.sleep(0)
            thread_is_free.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            await blocking
        return called

    assert run(main()) == []


def test_in_a_scope_of_anyio_it_is_cancelled_once_and_waits_idly():
    """Anyio cancels again in each turn of the loop, as long as something in the scope hasn't ended."""

    async def main():
        gate = Gate()
        async with aio.Portal() as portal:

            async def in_scope():
                with anyio.CancelScope() as scope:
                    scopes.append(scope)
                    await portal.run(gate.wait_when_cancelled)
                return scope.cancelled_caught

            scopes: list[anyio.CancelScope] = []
            task = asyncio.create_task(in_scope())
            await gate.reached.wait()
            scopes[0].cancel()
            await gate.ending.wait()
            for _ in range(100):
                await asyncio.sleep(0)
            times_cancelled = task.cancelling()
            await portal.run(gate.open)
            return await task, times_cancelled

    assert run(main()) == (True, 1)


def test_leaving_the_block_cancels_what_runs_and_tells_those_who_wait():
    async def main():
        gate, state = Gate(), conversation()
        async with aio.Portal() as portal:
            task = asyncio.create_task(portal.run(waiting_agent(gate).run, state))
            await gate.reached.wait()
        assert_closed(state)
        with pytest.raises(RuntimeError, match="the Portal was closed in the middle of this call"):
            await task
        assert not task.cancelled()

    run(main())


def test_what_has_just_begun_when_the_block_is_left_is_cancelled_too():
    """Trio starts tasks in any order, so that the end may come before the beginning: try it often."""

    async def main():
        for _ in range(50):
            async with aio.Portal() as portal:
                task = asyncio.create_task(portal.run(trio.sleep_forever))
                await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="the Portal was closed in the middle"):
                await task

    run(main())


def test_an_error_in_the_block_is_the_one_that_comes_out():
    async def main():
        gate, state = Gate(), conversation()
        tasks = []

        async def program():
            async with aio.Portal() as portal:
                tasks.append(asyncio.create_task(portal.run(waiting_agent(gate).run, state)))
                await gate.reached.wait()
                raise ValueError("in the block")

        with pytest.raises(ValueError, match="in the block"):
            await program()
        assert_closed(state)
        with pytest.raises(RuntimeError, match="closed"):
            await tasks[0]

    run(main())


def test_cancelled_while_it_closes_it_still_waits():
    async def main():
        gate = Gate()

        async def program():
            async with aio.Portal() as portal:
                inner.append(asyncio.create_task(portal.run(gate.wait_when_cancelled)))
                await gate.reached.wait()

        inner: list[asyncio.Task[None]] = []
        task = asyncio.create_task(program())
        await gate.ending.wait()
        task.cancel("while it closes")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not task.done()
        gate.open_from_outside()
        with pytest.raises(asyncio.CancelledError, match="while it closes"):
            await task
        with pytest.raises(RuntimeError, match="closed"):
            await inner[0]

    run(main())


@pytest.mark.parametrize("steps", range(4))
def test_cancelled_while_it_opens_it_leaves_no_thread(steps):
    async def main():
        async def program():
            async with aio.Portal():
                await asyncio.sleep(1000)

        task = asyncio.create_task(program())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert "alpineagents.aio" not in {thread.name for thread in threading.enumerate()}

    run(main())


@pytest.mark.slow
@given(steps=st.integers(0, 1_000), times=st.integers(1, 3), timeout=st.booleans(), closes=st.booleans())
def test_whenever_it_is_cancelled_the_state_is_whole_and_nothing_is_left(steps, times, timeout, closes):
    @tool
    async def look() -> str:
        """Look."""
        await trio.lowlevel.checkpoint()
        return "seen"

    @tool
    def look_in_thread() -> str:
        """Look."""
        return "seen"

    calls = [tool_call("look"), tool_call("look_in_thread"), tool_call("look")]

    async def main(folder: str) -> None:
        store, state = FileStore(folder), conversation()
        agent = Agent(model=FakeModel([calls, tool_call("look"), "done"]), tools=[look, look_in_thread], store=store)
        async with aio.Portal() as portal:
            before = await portal.run(trio_tasks)
            task = asyncio.create_task(portal.run(agent.run, state))
            for _ in range(steps):
                await asyncio.sleep(0)
            if not closes:
                for _ in range(times):
                    task.cancel()
                    if timeout:
                        await asyncio.sleep(0)
                with suppress(asyncio.CancelledError):
                    await task
                assert await portal.run(trio_tasks) == before
                await check(portal.run, store, state, task)
        if closes:
            if steps:
                with suppress(RuntimeError):
                    await task
            else:
                with pytest.raises(RuntimeError, match="this Portal is closed"):
                    await task
            async with aio.Portal() as portal:
                await check(portal.run, store, state, task)

    async def check(run_it, store: FileStore, state: State, task: asyncio.Task[object]) -> None:
        assert_closed(state)
        if len(state.history) > 1:
            assert (await run_it(store.load, state.id)).history == state.history
        done = not task.cancelled() and task.exception() is None
        assert not done or state.answer == "done"

    with tempfile.TemporaryDirectory() as folder:
        run(main(folder))

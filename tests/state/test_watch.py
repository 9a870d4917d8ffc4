"""watch: every entry once and in order, live, however slow the reader and wherever it reads."""

from __future__ import annotations

import asyncio
import queue
import signal
import threading
from contextlib import aclosing

import pytest
import trio
import trio.testing

from alpineagents import Agent, Entry, MemoryStore, Message, State, StoreError, tool
from alpineagents.record._codec import encode_entry
from alpineagents.testing import FakeModel, tool_call

from ..run.runs import FullStore
from .points import at_point

SECONDS = 20


def talk(count: int) -> State:
    state = State()
    for n in range(count):
        state.add_message(Message.user(f"m{n}"))
    return state


async def all_of(state: State, after: int = 0) -> list[Entry]:
    return [entry async for entry in state.watch(after)]


@pytest.mark.parametrize("after", [0, 1, 3, 4])
async def test_it_begins_after_as_many_entries_as_were_seen_and_ends_with_the_state(after):
    state = talk(3)
    state.finish()

    assert await all_of(state, after) == list(state.history[after:])


async def test_a_position_behind_the_end_waits_for_the_entries_there():
    state = talk(1)

    async def later() -> None:
        await trio.testing.wait_all_tasks_blocked()
        for n in range(3):
            state.add_message(Message.user(f"later {n}"))
        state.finish()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(later)
        seen = await all_of(state, after=3)

    assert [entry.seq for entry in seen] == [3, 4]


async def test_a_position_behind_the_end_of_a_finished_state_ends_at_once():
    state = State()
    state.finish()
    assert await all_of(state, after=10) == []


@pytest.mark.parametrize(("after", "error"), [(-1, ValueError), ("1", TypeError), (None, TypeError), (1.5, TypeError)])
def test_a_position_is_a_whole_number_from_zero(after, error):
    with pytest.raises(error, match="after"):
        State().watch(after)


async def test_entries_are_seen_live_from_another_task_one_by_one():
    state = State()
    seen: list[int] = []

    async def reader() -> None:
        async for entry in state.watch():
            seen.append(entry.seq)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader)
        for n in range(3):
            await trio.testing.wait_all_tasks_blocked()
            assert seen == list(range(n))
            state.add_message(Message.user("x"))
        state.finish()

    assert seen == [0, 1, 2, 3]


async def test_entries_made_in_another_thread_are_seen():
    state = State()

    def write() -> None:
        for n in range(500):
            state.add_message(Message.user(str(n)))
        state.finish()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, write)
        seen = await all_of(state)

    assert seen == list(state.history)


async def test_a_reader_in_another_trio_run_sees_every_entry_of_a_run():
    state = State(messages=[Message.user("go")])
    seen: queue.SimpleQueue[Entry] = queue.SimpleQueue()

    async def elsewhere() -> None:
        async for entry in state.watch():
            seen.put(entry)

    @tool
    async def finish() -> str:
        """Finish."""
        state.finish("done")
        return "ok"

    thread = threading.Thread(target=trio.run, args=(elsewhere,), daemon=True)
    thread.start()
    await Agent(model=FakeModel([tool_call("finish")]), tools=[finish]).run(state)
    await trio.to_thread.run_sync(thread.join, SECONDS)

    assert not thread.is_alive()
    assert [seen.get() for _ in range(seen.qsize())] == list(state.history)


async def test_a_slow_reader_loses_nothing_and_holds_up_nobody(autojump_clock):
    state = State()
    seen: list[Entry] = []

    async def reader(pause: float) -> list[Entry]:
        async for entry in state.watch():
            await trio.sleep(pause)
            seen.append(entry)
        return seen

    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader, 1)
        for n in range(200):
            state.add_message(Message.user(str(n)))
            await trio.sleep(0.001)
        state.finish()

    assert seen == list(state.history)


async def test_several_readers_see_everything_each():
    state = State()
    seen: list[list[Entry]] = [[], [], []]

    async def reader(mine: list[Entry]) -> None:
        async for entry in state.watch():
            mine.append(entry)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        for mine in seen:
            nursery.start_soon(reader, mine)
        for n in range(20):
            state.add_message(Message.user(str(n)))
            await trio.lowlevel.checkpoint()
        state.finish()

    assert seen == [list(state.history)] * 3


async def test_it_goes_on_while_a_run_of_a_finished_state_is_on_and_ends_with_it():
    state = State(messages=[Message.user("go")])
    seen: list[str] = []
    gate = trio.Event()

    async def reader() -> None:
        async for entry in state.watch():
            seen.append(entry.kind)

    @tool
    async def finish() -> str:
        """Finish early."""
        state.finish("done")
        await gate.wait()
        return "ok"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader)
        nursery.start_soon(Agent(model=FakeModel([tool_call("finish")]), tools=[finish]).run, state)
        await trio.testing.wait_all_tasks_blocked()
        assert seen[-1] == "stop"
        gate.set()

    assert seen[-2:] == ["stop", "tool_result"]
    assert len(seen) == len(state.history)


async def test_it_goes_on_after_a_run_that_only_stopped():
    state = State(messages=[Message.user("go")])
    kinds: list[str] = []

    async def reader() -> None:
        async for entry in state.watch():
            kinds.append(entry.kind)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader)
        await Agent(model=FakeModel(["hello"])).run(state)
        await trio.testing.wait_all_tasks_blocked()
        assert kinds[-1] == "stop"
        state.add_message(Message.user("more"))
        await trio.testing.wait_all_tasks_blocked()
        assert kinds[-1] == "user"
        nursery.cancel_scope.cancel()


async def test_finishing_in_another_thread_ends_a_reader_that_waits():
    state = State()

    async with trio.open_nursery() as nursery:

        async def reader() -> None:
            assert len(await all_of(state)) == 1
            nursery.cancel_scope.cancel()

        nursery.start_soon(reader)
        await trio.testing.wait_all_tasks_blocked()
        await trio.to_thread.run_sync(state.finish)
        await trio.sleep_forever()


async def test_aclose_ends_a_reader_that_waits():
    state = talk(1)
    watch = state.watch()
    seen = []

    async def reader() -> None:
        async for entry in watch:
            seen.append(entry)
        seen.append("end")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader)
        await trio.testing.wait_all_tasks_blocked()
        assert len(seen) == 1
        with trio.testing.assert_checkpoints():
            await watch.aclose()

    assert seen[1:] == ["end"]
    with pytest.raises(StopAsyncIteration):
        await watch.__anext__()
    await watch.aclose()


async def test_leaving_its_block_ends_it_for_whoever_waits_in_it():
    state = talk(2)
    ended = []

    async def reader(entries) -> None:
        async for _ in entries:
            pass
        ended.append(True)

    async with trio.open_nursery() as nursery, state.watch() as entries:
        assert (await anext(entries)).seq == 0
        nursery.start_soon(reader, entries)
        await trio.testing.wait_all_tasks_blocked()
    async with aclosing(state.watch()) as entries:
        assert (await anext(entries)).seq == 0

    assert ended == [True]


async def test_a_cancelled_wait_loses_no_entry():
    state = talk(1)
    watch = state.watch()
    await anext(watch)
    for n in range(1, 4):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(anext, watch)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        state.add_message(Message.user(str(n)))
        assert (await anext(watch)).seq == n


async def test_every_step_is_a_checkpoint():
    state = talk(2)
    state.finish()
    watch = state.watch()
    for _ in range(3):
        with trio.testing.assert_checkpoints():
            await anext(watch)
    with pytest.raises(StopAsyncIteration):
        await anext(watch)


def test_outside_trio_it_names_aio():
    async def main() -> None:
        async for _ in talk(1).watch():
            pass

    with pytest.raises(RuntimeError, match="aio"):
        asyncio.run(main())


async def test_restoring_is_an_entry_like_any_other():
    state = talk(1)
    snapshot = state.snapshot()
    state.finish()
    state.restore(snapshot)

    watch = state.watch()
    assert [(await anext(watch)).kind for _ in range(3)] == ["user", "stop", "context_change"]
    async with trio.open_nursery() as nursery:  # the State isn't finished any more
        nursery.start_soon(anext, watch)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


# With a store


async def test_with_a_store_an_entry_is_seen_once_it_is_there():
    store, state = MemoryStore(), State(messages=[Message.user("go")])
    seen = 0

    async def reader() -> None:
        nonlocal seen
        async for entry in state.watch():
            saved = await store.read(state.id)
            assert saved[entry.seq] == encode_entry(entry)
            seen += 1

    @tool
    async def finish(n: int) -> str:
        """Finish."""
        state.add_message(Message.user(f"m{n}"))
        state.finish(n)
        return "ok"

    agent = Agent(model=FakeModel([[tool_call("finish", n=n) for n in range(5)]]), tools=[finish], store=store)
    await store.save(state)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader)
        await agent.run(state)

    assert seen == len(state.history)


async def test_what_an_idle_state_has_not_saved_is_seen_when_it_is():
    store, state = MemoryStore(), State(messages=[Message.user("go")])
    await store.save(state)
    watch = state.watch()
    await anext(watch)
    got = []

    async def reader() -> None:
        got.extend([entry.kind async for entry in watch])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader)
        state.add_message(Message.user("x"))
        await trio.testing.wait_all_tasks_blocked()
        assert got == []
        await store.save(state)
        await state.finish()

    assert got == ["user", "stop"]


async def test_it_ends_with_a_finished_state_whose_rest_nobody_saves(autojump_clock):
    store = MemoryStore()
    await store.save(State(id="bug-1", messages=[Message.user("go")]))
    state = await store.load("bug-1")
    state.finish("done")

    with trio.fail_after(60):
        assert [entry.kind for entry in await all_of(state)] == ["context_change"]

    await store.save(state)
    assert [entry.kind for entry in await all_of(state)] == ["context_change", "stop"]


async def test_it_ends_with_a_run_whose_last_save_failed(autojump_clock):
    store, state = FullStore(full=False), State(messages=[Message.user("go")])
    seen = []

    @tool
    async def finish() -> str:
        """Finish."""
        state.finish("done")
        store.full = True
        return "ok"

    async def reader() -> None:
        seen.extend(await all_of(state))

    agent = Agent(model=FakeModel([tool_call("finish")]), tools=[finish], store=store)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader)
            with pytest.raises(StoreError, match="No space left"):
                await agent.run(state)

    assert state.finished
    assert len(seen) == state.saved < len(state.history)


async def test_it_ends_when_a_save_of_a_finished_state_fails(autojump_clock):
    store, state = FullStore(full=False), State(messages=[Message.user("go")])
    await store.save(state)
    store.full = True
    seen = []

    async def reader() -> None:
        seen.extend([entry.kind for entry in await all_of(state)])

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader)
            with pytest.raises(StoreError, match="No space left"):
                await state.finish()

    assert seen == ["context_change"]


# Anything in between


async def test_an_entry_made_at_any_moment_of_looking_is_seen():
    """By a signal handler here, at every point where CPython looks at signals; by another thread it may be, too."""

    def commit(*_: object) -> None:
        state.add_message(Message.notice("in between"))

    before = signal.signal(signal.SIGALRM, commit)
    try:
        for point in range(1_000):
            state = talk(1)
            state.finish()
            watch = state.watch(after=1)
            seen: list[int] = []
            with at_point(point, lambda: signal.raise_signal(signal.SIGALRM)) as reached:
                async for entry in watch:
                    seen.append(entry.seq)
            if not reached:
                break
            assert seen in ([1, 2], [1]), f"at {reached}"
            assert seen == [1, 2] or len(state.history) == 3
    finally:
        signal.signal(signal.SIGALRM, before)
    assert point > 10

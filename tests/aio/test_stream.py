"""portal.stream and portal.iterate: what they give, leaving them early, a watcher that is slow or goes away."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import weakref
from contextlib import aclosing, asynccontextmanager, suppress

import pytest
import trio
import trio.testing

from alpineagents import (
    Agent,
    EntryAdded,
    FileStore,
    Message,
    Model,
    Reply,
    RunEnd,
    TextBlock,
    TextDelta,
    ToolEnd,
    ToolStart,
    Usage,
    aio,
    tool,
)
from alpineagents.aio._feed import CAPACITY
from alpineagents.testing import FakeModel, tool_call

from .kit import Gate, assert_closed, conversation, outcomes, run, trio_tasks, waiting_agent


class Talker(Model):
    """Answers with many small pieces."""

    name = "fake/talker"
    context_window = None

    def __init__(self, pieces: int, *, breath: int = 1) -> None:
        self.pieces, self.breath = pieces, breath

    async def respond(self, request, emit):
        for n in range(self.pieces):
            emit(TextDelta(f"{n} "))
            if n % self.breath == 0:
                await trio.lowlevel.checkpoint()
        text = "".join(f"{n} " for n in range(self.pieces))
        return Reply((TextBlock(text),), self.name, "stop", Usage(input_tokens=1, output_tokens=1, requests=1))


async def numbers(n: int):
    for number in range(n):
        await trio.lowlevel.checkpoint()
        yield number


@pytest.mark.parametrize("block", [False, True])
def test_it_gives_the_events_of_the_run_in_order(block):
    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    async def main():
        state = conversation()
        agent = Agent(model=FakeModel([tool_call("look"), "done"]), tools=[look])
        async with aio.Portal() as portal:
            if block:
                async with portal.stream(agent, state) as run:
                    events = [event async for event in run]
                    assert (run.state, run.answer, run.usage.requests) == (state, "done", 2)
            else:
                events = [event async for event in portal.stream(agent, state)]
        assert [event.entry for event in events if isinstance(event, EntryAdded)] == list(state.history[1:])
        return [type(event) for event in events if isinstance(event, ToolStart | ToolEnd | RunEnd | TextDelta)]

    kinds = run(main())
    assert kinds[0] is ToolStart
    assert kinds[1] is ToolEnd
    assert issubclass(kinds[2], TextDelta)
    assert kinds[3] is RunEnd


def test_a_prompt_makes_a_state():
    async def main():
        async with aio.Portal() as portal:
            run = portal.stream(Agent(model=FakeModel(["hello"])), "hi")
            before = run.usage.requests
            async for _ in run:
                pass
            return run.state.messages[0].text, run.answer, before, run.usage.requests

    assert run(main()) == ("hi", "hello", 0, 1)


@pytest.mark.parametrize("breath", [1, 10, 10_000])
def test_10_000_small_pieces_arrive_whole_and_in_order(breath):
    async def main():
        state, text = conversation(), []
        async with aio.Portal() as portal:
            async for event in portal.stream(Agent(model=Talker(10_000, breath=breath)), state):
                if isinstance(event, TextDelta):
                    text.append(event.text)
        return "".join(text) == state.answer

    assert run(main())


def test_who_is_slow_holds_up_what_is_iterated_but_no_run():
    async def main():
        made = []

        async def count():
            for n in range(10 * CAPACITY):
                made.append(n)
                yield n

        async with aio.Portal() as portal:
            async with portal.iterate(count) as items:
                first = await anext(items)
                await portal.run(trio.testing.wait_all_tasks_blocked)
                assert CAPACITY <= len(made) <= CAPACITY + 1  # before or after the first was taken
                rest = [item async for item in items]
            async with portal.stream(Agent(model=Talker(5_000)), "go") as run:
                await anext(run)
                await portal.run(trio.testing.wait_all_tasks_blocked)
                assert not run.state.running
                assert run.answer.startswith("0 1 2 ")
        return [first, *rest]

    assert run(main()) == list(range(10 * CAPACITY))


def test_others_get_their_turn_while_many_items_are_there():
    async def main():
        turns = 0

        async def other():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with aio.Portal() as portal, portal.iterate(numbers, CAPACITY) as items:
            await portal.run(trio.testing.wait_all_tasks_blocked)
            task = asyncio.create_task(other())
            async for _ in items:
                pass
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        return turns

    assert run(main()) >= 3


def test_leaving_the_block_early_waits_until_the_state_is_closed_and_saved(tmp_path):
    async def main():
        gate, state, store = Gate(), conversation(), FileStore(tmp_path)
        async with aio.Portal() as portal:
            before = await portal.run(trio_tasks)
            async with portal.stream(waiting_agent(gate, store=store), state) as run:
                async for event in run:
                    if isinstance(event, ToolStart):
                        break
            assert_closed(state)
            assert outcomes(state) == ["interrupted"]
            assert await portal.run(trio_tasks) == before
            assert (await portal.run(store.load, state.id)).history == state.history
            with pytest.raises(StopAsyncIteration):
                await anext(run)
            with pytest.raises(RuntimeError, match="used already"):
                await run.__aenter__()

    run(main())


def test_leaving_the_loop_early_cancels_the_run_which_ends_before_the_portal_does():
    async def main():
        gate, state = Gate(), conversation()
        async with aio.Portal() as portal:
            async for event in portal.stream(waiting_agent(gate), state):
                if isinstance(event, ToolStart):
                    await gate.reached.wait()
                    break
            async for _ in portal.iterate(state.watch):  # what ends it is in the history, too
                if outcomes(state):
                    break
            assert outcomes(state) == ["interrupted"]
        assert_closed(state)
        assert gate.was_cancelled

    run(main())


def test_aclose_ends_it_and_what_is_never_begun_runs_nothing():
    async def main():
        gate, state, other = Gate(), conversation(), conversation()
        async with aio.Portal() as portal:
            async with aclosing(portal.stream(waiting_agent(gate), state)) as run:
                await anext(run)
            assert_closed(state)
            await run.aclose()
            assert [event async for event in run] == []
            unused = portal.stream(waiting_agent(gate), other)
            await unused.aclose()
            assert [event async for event in unused] == []
            portal.stream(waiting_agent(gate), other)
        assert len(other.history) == 1

    run(main())


def test_in_the_block_a_cancelled_wait_loses_nothing():
    async def main():
        gate, state = Gate(), conversation()
        async with aio.Portal() as portal, portal.stream(waiting_agent(gate), state) as run:
            events = []

            async def bounded():
                async with asyncio.timeout(None) as scope:
                    async for event in run:
                        events.append(event)
                        if isinstance(event, ToolStart):
                            await gate.reached.wait()
                            scope.reschedule(asyncio.get_running_loop().time())

            with pytest.raises(TimeoutError):
                await bounded()
            assert state.running
            await portal.run(gate.open)
            events += [event async for event in run]
        return [event.entry for event in events if isinstance(event, EntryAdded)] == list(state.history[1:])

    assert run(main())


@pytest.mark.parametrize("block", [False, True])
def test_a_cancelled_task_goes_on_when_the_run_has_ended(block):
    async def main():
        gate, state = Gate(), conversation()

        async def in_block():
            async with portal.stream(waiting_agent(gate), state) as run:
                async for _ in run:
                    pass

        async def in_loop():
            async for _ in portal.stream(waiting_agent(gate), state):
                pass

        async with aio.Portal() as portal:
            task = asyncio.create_task(in_block() if block else in_loop())
            await gate.reached.wait()
            await asyncio.sleep(0)
            task.cancel("enough")
            with pytest.raises(asyncio.CancelledError, match="enough"):
                await task
            assert_closed(state)

    run(main())


def test_cancelled_while_it_begins_nothing_goes_on():
    async def main():
        gate = Gate()

        @asynccontextmanager
        async def opens_slowly():
            await gate.wait()
            yield numbers(3)

        async with aio.Portal() as portal:
            before = await portal.run(trio_tasks)

            async def enter():
                async with portal.iterate(opens_slowly):
                    raise AssertionError("entered")

            task = asyncio.create_task(enter())
            await gate.reached.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert gate.was_cancelled
            assert await portal.run(trio_tasks) == before

    run(main())


def test_cancelled_while_the_block_is_left_it_still_waits():
    async def main():
        gate = Gate()

        async def ends_slowly():
            yield 1
            await gate.wait_when_cancelled()

        async with aio.Portal() as portal:
            before = await portal.run(trio_tasks)

            async def leave():
                async with portal.iterate(ends_slowly) as items:
                    await anext(items)
                    await gate.reached.wait()

            task = asyncio.create_task(leave())
            await gate.ending.wait()
            task.cancel("while it ends")
            await asyncio.sleep(0)
            assert not task.done()
            await portal.run(gate.open)
            with pytest.raises(asyncio.CancelledError, match="while it ends"):
                await task
            assert await portal.run(trio_tasks) == before

    run(main())


def test_what_the_run_raises_comes_out_of_the_loop_once():
    async def main():
        failure = ValueError("the model is broken")
        async with aio.Portal() as portal:
            with pytest.raises(ValueError, match="broken") as caught:
                async for _ in portal.stream(Agent(model=FakeModel([failure])), "x"):
                    pass
            assert caught.value is failure
            async with portal.stream(Agent(model=FakeModel([failure])), "x") as run:
                with pytest.raises(ValueError, match="broken"):
                    async for _ in run:
                        pass
                assert [event async for event in run] == []

    run(main())


def test_what_the_run_raises_comes_out_of_the_block_where_nobody_has_heard_of_it():
    async def main():
        failure = ValueError("the model is broken")
        async with aio.Portal() as portal:
            with pytest.raises(ValueError, match="broken"):
                async with portal.stream(Agent(model=FakeModel([failure])), "x"):
                    await portal.run(trio.testing.wait_all_tasks_blocked)

            async def fail_in_block():
                async with portal.stream(Agent(model=FakeModel([failure])), "x"):
                    await portal.run(trio.testing.wait_all_tasks_blocked)
                    raise KeyError("of the block")

            with pytest.raises(KeyError) as caught:
                await fail_in_block()
            assert caught.value.__notes__ == ["also raised: ValueError: the model is broken"]

    run(main())


def test_what_the_run_raises_before_it_begins_comes_out_on_entering():
    async def main():
        state = conversation()
        state.finish()
        agent = Agent(model=FakeModel())
        async with aio.Portal() as portal:
            with pytest.raises(ValueError, match="is finished"):
                async with portal.stream(agent, state):
                    raise AssertionError("entered")
            with pytest.raises(ValueError, match="is finished"):
                await anext(portal.stream(agent, state))

    run(main())


def test_what_a_run_raises_that_was_left_goes_to_the_exception_handler():
    async def main():
        gate, reports = Gate(), asyncio.Queue()
        asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.put_nowait(report))

        async def fails_when_left():
            try:
                yield 1
                await gate.wait()
            finally:
                raise ValueError("could not clean up")

        async with aio.Portal() as portal:
            async for _ in portal.iterate(fails_when_left):
                await gate.reached.wait()
                break
            report = await reports.get()
        return report["message"], str(report["exception"])

    assert run(main()) == ("what asyncio has left behind in a Portal has failed", "could not clean up")


def test_what_had_failed_before_it_was_left_is_told_too():
    async def main():
        reports = asyncio.Queue()
        asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.put_nowait(report))
        async with aio.Portal() as portal:
            async for _ in portal.stream(Agent(model=FakeModel([ValueError("broken")])), "x"):
                await portal.run(trio.testing.wait_all_tasks_blocked)
                break
            return str((await reports.get())["exception"])

    assert run(main()) == "broken"


def test_a_portal_that_closes_ends_it_and_tells_who_waits():
    async def main():
        gate, state = Gate(), conversation()

        async def watch():
            async for _ in portal.stream(waiting_agent(gate), state):
                pass

        async with aio.Portal() as portal:
            task = asyncio.create_task(watch())
            await gate.reached.wait()
        assert_closed(state)
        with pytest.raises(RuntimeError, match="the Portal was closed in the middle"):
            await task

    run(main())


def test_two_tasks_may_iterate_and_each_item_goes_to_one():
    async def main():
        async with aio.Portal() as portal, portal.iterate(numbers, 1_000) as items:

            async def take():
                taken = []
                async for item in items:
                    taken.append(item)
                    await asyncio.sleep(0)
                return taken

            return await asyncio.gather(take(), take())

    first, second = run(main())
    assert sorted(first + second) == list(range(1_000))
    assert first == sorted(first)
    assert second == sorted(second)


def test_iterate_takes_whatever_can_be_iterated_under_trio():
    class Plain:
        def __init__(self, n):
            self.left = n

        def __aiter__(self):
            return self

        async def __anext__(self):
            await trio.lowlevel.checkpoint()
            if not self.left:
                raise StopAsyncIteration
            self.left -= 1
            return self.left

    async def main():
        closed = []

        @asynccontextmanager
        async def block(n):
            try:
                yield numbers(n)
            finally:
                closed.append(n)

        async def generator(n):
            try:
                async for number in numbers(n):
                    yield number
            finally:
                closed.append(n)

        async with aio.Portal() as portal:
            found = [
                [item async for item in portal.iterate(Plain, 3)],
                [item async for item in portal.iterate(block, n=3)],
                [item async for item in portal.iterate(generator, 3)],
            ]
            async with portal.iterate(generator, 5) as items:
                await anext(items)
            return found, closed

    assert run(main()) == ([[2, 1, 0], [0, 1, 2], [0, 1, 2]], [3, 3, 5])


def test_a_state_is_watched_while_it_runs_and_from_a_place_in_its_history():
    async def main():
        gate, state = Gate(), conversation()
        async with aio.Portal() as portal, asyncio.TaskGroup() as group:
            running = group.create_task(portal.run(waiting_agent(gate).run, state))
            async with portal.iterate(state.watch, after=1) as entries:
                first = await anext(entries)
                await gate.reached.wait()
                state.add_message(Message.user("and this"))
                await portal.run(gate.open)
                seen = [first, *[await anext(entries) for _ in range(5)]]
            await running
        return seen == list(state.history[1:7])

    assert run(main())


def test_however_fast_either_side_is_nothing_is_lost():
    draw = random.Random(0)

    async def main():
        async with aio.Portal() as portal:
            for _ in range(30):
                count, slow, slower = draw.randrange(1_500), draw.randrange(1, 200), draw.randrange(1, 200)

                async def source(count=count, slow=slow):
                    for n in range(count):
                        if n % slow == 0:
                            await trio.lowlevel.checkpoint()
                        yield n

                taken = []
                async for item in portal.iterate(source):
                    taken.append(item)
                    if item % slower == 0:
                        await asyncio.sleep(0)
                assert taken == list(range(count))

    run(main())


@pytest.mark.parametrize("block", [True, False])
def test_a_state_that_was_streamed_is_freed_without_the_garbage_collector(block):
    async def main():
        state = conversation()
        freed = weakref.ref(state)
        agent = Agent(model=FakeModel(["hello"]))
        async with aio.Portal() as portal:
            gc.disable()
            try:
                run = portal.stream(agent, state)
                if block:
                    async with run:
                        async for _ in run:
                            pass
                else:
                    async for _ in run:
                        pass
                del run, state, _
                await portal.run(int)  # the thread has let go of it, too
                assert freed() is None
            finally:
                gc.enable()

    run(main())


def test_what_is_thrown_away_in_another_thread_is_told_in_the_event_loop():
    """As the garbage collector does, which works in whichever thread."""

    async def main():
        reports: asyncio.Queue[threading.Thread] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: reports.put_nowait(threading.current_thread()))
        async with aio.Portal() as portal:
            held = [portal.stream(Agent(model=FakeModel([ValueError("the model is broken")])), "x")]
            await anext(held[0])
            await portal.run(trio.testing.wait_all_tasks_blocked)  # it has ended
            await portal.run(held.clear)
            return await reports.get() is threading.current_thread()

    assert run(main())


def test_what_is_thrown_away_when_the_event_loop_is_closed_is_told_all_the_same():
    held, reports = [], []

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report["exception"]))
        async with aio.Portal() as portal:
            held.append(portal.stream(Agent(model=FakeModel([failure])), "x"))
            await anext(held[0])

    failure = ValueError("the model is broken")
    run(main())
    held.clear()
    assert reports == [failure]


def test_one_that_was_used_up_leaves_nothing_to_collect():
    async def main():
        async with aio.Portal() as portal:
            async for _ in portal.iterate(numbers, 3):
                pass
            gc.collect()
            async with portal.iterate(numbers, 3) as items:
                await anext(items)
            del items
            await portal.run(int)

    run(main())

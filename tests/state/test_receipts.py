"""What State methods return: awaited or not, in every place where one can be awaited."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from alpineagents import Agent, MemoryStore, Message, State, tool
from alpineagents.testing import FakeModel, tool_call

from .test_state import pending, texts, waiting_for_the_model

SECONDS = 20


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


CHANGES: dict[str, Callable[[State], Awaitable[None]]] = {
    "add_message": lambda state: state.add_message(Message.user("x")),
    "finish": lambda state: state.finish("done"),
    "compact": lambda state: state.compact("so far"),
    "clear_tool_results": lambda state: state.clear_tool_results(),
    "restore": lambda state: state.restore(state.snapshot()),
}


async def raised_or_blocked(work: Callable[[], Awaitable[object]]) -> BaseException | str | None:
    """What *work* raises; ``"blocked"`` where it waits for ever."""
    outcome: list[BaseException | str | None] = []

    async def act() -> None:
        try:
            await work()
        except Exception as error:
            outcome.append(error)
        else:
            outcome.append(None)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(act)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    return outcome[0] if outcome else "blocked"


@asynccontextmanager
async def cancelled_when_blocked() -> AsyncIterator[None]:
    """Cancel the block when every task waits for something."""
    async with trio.open_nursery() as nursery:

        async def cancel() -> None:
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

        nursery.start_soon(cancel)
        yield
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("name", CHANGES)
def test_a_receipt_that_nobody_awaits_warns_of_nothing(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CHANGES[name](State(messages=[Message.user("a")]))
        gc.collect()


@pytest.mark.parametrize("name", CHANGES)
async def test_awaiting_a_receipt_of_an_idle_state_without_a_store_is_just_a_checkpoint(name):
    state = State(messages=[Message.user("a")])

    with trio.testing.assert_checkpoints():
        await CHANGES[name](state)


async def test_the_change_has_happened_when_the_method_returns():
    state = State()
    receipt = state.add_message(Message.user("x"))
    assert texts(state) == ["x"]

    for _ in range(2):  # it may be awaited as often as one likes
        await receipt


@pytest.mark.parametrize("name", CHANGES)
def test_outside_trio_a_receipt_names_aio_and_the_change_has_happened(name):
    state = State(messages=[Message.user("a")])

    async def main() -> None:
        await CHANGES[name](state)

    with pytest.raises(RuntimeError, match="aio"):
        asyncio.run(main())
    with pytest.raises(RuntimeError, match="aio"):
        CHANGES[name](state).__await__().send(None)
    assert name == "clear_tool_results" or len(state.history) >= 2


async def test_in_a_thread_of_trio_that_is_no_task_a_receipt_names_aio():
    def thread() -> None:
        with pytest.raises(RuntimeError, match="aio"):
            State().finish().__await__().send(None)

    await trio.to_thread.run_sync(thread)


# Messages that wait


@pytest.mark.parametrize("make", [waiting_for_the_model, pending])
async def test_a_message_that_waits_for_what_nobody_does_is_refused_and_stays(make):
    state = make()

    outcome = await raised_or_blocked(lambda: state.add_message(Message.user("x")))

    assert isinstance(outcome, RuntimeError)
    assert state.history[-1].content == Message.user("x")


@pytest.mark.parametrize("name", ["finish", "add and forget"])
async def test_what_needs_no_place_in_the_messages_waits_for_nothing(name):
    state = pending()
    if name == "finish":
        await state.finish("x")
    else:
        state.add_message(Message.user("x"))
        async with state.edit_extra_data() as data:
            data["n"] = 1


async def test_a_message_waits_for_the_reply():
    state = State(messages=[Message.user("go")])
    gate = trio.Event()
    seen = []

    async def reply(request):
        await gate.wait()
        return "hello"

    async def say() -> None:
        await state.add_message(Message.user("x"))
        seen.append(texts(state))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(Agent(model=FakeModel([reply])).think, state)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(say)
        await trio.testing.wait_all_tasks_blocked()
        assert seen == []
        gate.set()

    assert seen == [["go", "hello", "x"]]


async def test_a_message_arrives_when_the_request_it_waits_for_is_cancelled():
    state = State(messages=[Message.user("go")])

    async def reply(request):
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def think() -> None:
            with scope:
                await Agent(model=FakeModel([reply])).think(state)

        async def say() -> None:
            await state.add_message(Message.user("x"))

        nursery.start_soon(think)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(say)
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()

    assert texts(state) == ["go", "x"]


async def test_a_cancelled_wait_takes_nothing_back():
    state = State(messages=[Message.user("go")])

    asked, go_on = trio.Event(), trio.Event()

    async def reply(request):
        asked.set()
        await go_on.wait()
        return "hello"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(Agent(model=FakeModel([reply])).think, state)
        await asked.wait()
        with trio.CancelScope() as scope:
            scope.cancel()
            await state.add_message(Message.user("x"))
        go_on.set()

    assert texts(state) == ["go", "hello", "x"]


async def test_waiting_in_the_very_call_that_is_waited_for_is_refused_in_tasks_and_threads_below_it():
    state = State(messages=[Message.user("go")])
    outcomes: list[BaseException | str | None] = []

    @tool
    async def impatient() -> str:
        """Wait for a message."""

        async def say() -> None:
            await state.add_message(Message.user("x"))

        async def task() -> None:
            outcomes.append(await raised_or_blocked(say))

        await task()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(task)
        await trio.to_thread.run_sync(lambda: trio.from_thread.run(task))
        await trio.to_thread.run_sync(lambda: trio.run(task))
        return "ok"

    await Agent(model=FakeModel([tool_call("impatient"), "done"]), tools=[impatient]).run(state)

    assert [type(outcome) for outcome in outcomes] == [RuntimeError] * 4
    assert all("inside the tool" in str(outcome) for outcome in outcomes)
    assert texts(state).count("x") == 4


async def test_waiting_in_the_loop_body_that_would_have_to_run_the_calls_is_refused():
    state = State(messages=[Message.user("go")])
    outcomes = []

    async def body(agent, state):
        await agent.think(state)
        outcomes.append(await raised_or_blocked_here(lambda: state.add_message(Message.notice("x"))))
        await agent.use_tools(state)

    async def raised_or_blocked_here(work: Callable[[], Awaitable[object]]) -> BaseException | str | None:
        async with cancelled_when_blocked():
            try:
                await work()
            except RuntimeError as error:
                return error
            return None
        return "blocked"

    await Agent(model=FakeModel([tool_call("add", a=1, b=2)]), tools=[add], loop=body).run(state)

    assert [type(outcome) for outcome in outcomes] == [RuntimeError]
    assert texts(state)[-1] == "[notice] x"


async def test_waiting_in_the_model_for_its_own_reply_is_refused():
    """A Model that knows the State, as a human in the place of a model does."""
    state = State(messages=[Message.user("go")])
    outcomes = []

    async def reply(request):
        async with cancelled_when_blocked():
            try:
                await state.add_message(Message.user("x"))
            except RuntimeError as error:
                outcomes.append(error)
        return "hello"

    await Agent(model=FakeModel([reply])).think(state)

    assert [type(outcome) for outcome in outcomes] == [RuntimeError]


async def test_a_task_of_the_loop_body_may_wait_for_the_calls_that_another_one_runs():
    state = State(messages=[Message.user("go")])
    gate = trio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        await gate.wait()
        return "ok"

    async def body(agent, state):
        await agent.think(state)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.use_tools, state)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(say)
            await trio.testing.wait_all_tasks_blocked()
            gate.set()

    async def say() -> None:
        await state.add_message(Message.user("x"))

    await Agent(model=FakeModel([tool_call("wait")]), tools=[wait], loop=body).run(state)

    assert texts(state)[-1] == "x"


async def test_a_subagents_tool_may_not_wait_for_a_message_to_the_parent_whose_call_it_is_in():
    parent, child = State(messages=[Message.user("go")]), State(messages=[Message.user("sub")])
    outcomes = []

    @tool
    async def inner() -> str:
        """Be part of both."""
        outcomes.append(await raised_or_blocked(lambda: parent.add_message(Message.user("x"))))
        return "ok"

    @tool
    async def outer() -> str:
        """Start the child."""
        await Agent(model=FakeModel([tool_call("inner"), "done"]), tools=[inner]).run(child)
        return "ok"

    await Agent(model=FakeModel([tool_call("outer"), "done"]), tools=[outer]).run(parent)

    assert [type(outcome) for outcome in outcomes] == [RuntimeError]


# Other threads, with a trio run of their own


async def test_a_receipt_is_awaited_in_another_trio_run_while_a_run_goes_on_in_this_one():
    state = State(messages=[Message.user("go")])
    gate = trio.Event()
    token = trio.lowlevel.current_trio_token()
    seen: list[object] = []

    @tool
    async def wait() -> str:
        """Wait for the thread's message to be there."""
        async for entry in state.watch():
            if entry.kind == "user":
                break
        return "ok"

    async def elsewhere() -> None:
        receipt = state.add_message(Message.user("from a thread"))
        token.run_sync_soon(gate.set)
        await receipt
        seen.append("from a thread" in texts(state))
        async with state.edit_extra_data() as data:
            data["thread"] = True
        seen.append(state.extra_data["thread"])

    thread = threading.Thread(target=trio.run, args=(elsewhere,), daemon=True)
    agent = Agent(model=FakeModel([tool_call("wait"), "done"]), tools=[wait])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.run, state)
        await trio.testing.wait_all_tasks_blocked()
        thread.start()
        await gate.wait()
        await trio.to_thread.run_sync(thread.join, SECONDS)

    assert seen == [True, True]
    assert state.answer == "done"


# Saved


@pytest.mark.parametrize("name", CHANGES)
async def test_awaiting_a_receipt_of_an_idle_state_in_a_store_saves_it(name):
    store, state = MemoryStore(), State(messages=[Message.user("a")])
    await store.save(state)

    await CHANGES[name](state)

    assert (await store.load(state.id)).snapshot() == state.snapshot()


async def test_a_receipt_awaited_during_a_run_is_saved_when_it_completes():
    store, state = MemoryStore(), State(messages=[Message.user("go")])
    saved = []

    @tool
    async def look() -> str:
        """Finish, and look what the store has."""
        await state.finish("x")
        saved.append([entry for entry in await store.read(state.id) if b'"finish"' in entry])
        return "ok"

    await Agent(model=FakeModel([tool_call("look")]), tools=[look], store=store).run(state)

    assert len(saved[0]) == 1


async def test_a_receipt_awaited_in_another_trio_run_is_saved_too():
    store, state = MemoryStore(), State(messages=[Message.user("go")])
    saved = []

    async def elsewhere() -> None:
        await state.finish("x")
        saved.append((await store.load(state.id)).finished)

    @tool
    async def wait() -> str:
        """Wait for the thread."""
        await trio.to_thread.run_sync(trio.run, elsewhere)
        return "ok"

    await Agent(model=FakeModel([tool_call("wait")]), tools=[wait], store=store).run(state)
    await trio.to_thread.run_sync(trio.run, elsewhere)  # the run that saved it is over

    assert saved == [True, True]

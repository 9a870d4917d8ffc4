"""Runs inside tool calls: the child's State knows its parent, and the parent's call its children and what they used."""

from __future__ import annotations

import contextvars
import threading
from decimal import Decimal

import pytest
import trio
import trio.testing

from alpineagents import (
    Agent,
    FileStore,
    MemoryStore,
    Message,
    Model,
    Reply,
    State,
    StateNotFoundError,
    TextBlock,
    Usage,
    tool,
)
from alpineagents.testing import FakeModel, tool_call

from ..states import assert_replays


def said(text: str, tokens: int, cost: str | None = "0") -> Reply:
    usage = Usage(input_tokens=tokens, requests=1, cost=None if cost is None else Decimal(cost))
    return Reply((TextBlock(text),), "fake/fake", "stop", usage)


def helper(*answers, **settings) -> Agent:
    return Agent(model=FakeModel(answers), name="helper", **settings)


def lead(*tools, calls=1, **settings) -> Agent:
    asked = [tool_call(tools[0].name) for _ in range(calls)]
    return Agent(model=FakeModel([asked, "done"]), tools=tools, **settings)


def result(state: State):
    [entry] = [entry for entry in state.history if entry.kind == "tool_result" and not entry.late]
    return entry


async def test_a_run_inside_a_tool_call_knows_the_call_and_the_call_knows_it():
    child = State(messages=[Message.user("part")])

    @tool
    async def delegate() -> str:
        """Delegate."""
        return await helper("part done").run(child)

    state = State(messages=[Message.user("all")])
    await lead(delegate).run(state)

    [call] = [call for entry in state.history if entry.kind == "model_reply" for call in entry.content.tool_calls]
    assert (child.parent_id, child.parent_call_id) == (state.id, call.id)
    start = next(entry for entry in child.history if entry.kind == "run_start")
    assert (start.parent_id, start.parent_call_id) == (state.id, call.id)
    assert result(state).child_ids == (child.id,)
    assert state.child(child.id) is child
    assert await state.load_child(child.id) is child
    assert (state.parent_id, state.parent_call_id) == (None, None)
    assert_replays(state)
    assert_replays(child)


async def test_what_children_use_counts_in_their_parent_once_the_call_closes():
    seen = []

    @tool
    async def delegate(state: State) -> str:
        """Delegate."""
        child = State(messages=[Message.user("part")])
        await helper(said("a", 7, "0.25")).run(child)
        seen.append(state.usage.input_tokens)
        await helper(said("b", 5)).ask(child, "sure?")
        child.add_message(Message.user("more"))
        await helper(said("c", 3)).run(child)
        return "delegated"

    state = State(messages=[Message.user("all")])
    await lead(delegate).run(state)

    assert seen == [10]
    assert result(state).usage == Usage(input_tokens=15, requests=3, cost=Decimal("0.25"))
    assert state.usage.input_tokens == 10 + 15 + 10
    assert len(result(state).child_ids) == 1
    assert_replays(state)


async def test_an_unknown_price_of_a_child_makes_the_cost_of_the_call_unknown():
    @tool
    async def delegate() -> str:
        """Delegate."""
        return await helper(said("a", 7, None)).run("part")

    state = State(messages=[Message.user("all")])
    await lead(delegate).run(state)

    assert result(state).usage == Usage(input_tokens=7, requests=1, cost=None)
    assert state.usage.cost is None


async def test_what_a_child_used_before_and_after_is_not_the_calls():
    child = State(messages=[Message.user("part")])
    await helper(said("before", 100)).run(child)
    child.add_message(Message.user("again"))

    @tool
    async def delegate() -> str:
        """Delegate."""
        return await helper(said("in", 7)).run(child)

    state = State(messages=[Message.user("all")])
    await lead(delegate).run(state)
    child.add_message(Message.user("again"))
    await helper(said("after", 1000)).run(child)

    assert child.usage.input_tokens == 1107
    assert result(state).usage.input_tokens == 7
    assert child.parent_id is None  # its first run was nobody's


async def test_two_calls_that_run_one_child_in_turn_count_each_its_own_part():
    child = State(messages=[Message.user("part")])
    turn = trio.CapacityLimiter(1)
    tokens = iter([7, 5])

    @tool
    async def delegate() -> str:
        """Delegate."""
        async with turn:
            child.add_message(Message.user("next"))
            await helper(said("x", next(tokens))).run(child)
        await trio.testing.wait_all_tasks_blocked()  # until the other call has run it, too
        return "delegated"

    state = State(messages=[Message.user("all")])
    await lead(delegate, calls=2).run(state)

    results = [entry for entry in state.history if entry.kind == "tool_result"]
    assert sorted(entry.usage.input_tokens for entry in results) == [5, 7]
    assert [entry.child_ids for entry in results] == [(child.id,), (child.id,)]
    assert child.usage.input_tokens == 12


@pytest.mark.parametrize("how", ["fails", "is_cancelled", "times_out"])
async def test_however_the_call_ends_its_result_names_the_child_and_counts_what_it_used(how, autojump_clock):
    children = []

    async def answer(request):
        if len(request.messages) > 1:
            await trio.sleep_forever()
        return tool_call("noop")

    @tool
    async def noop() -> None:
        """Do nothing."""

    @tool(timeout=5 if how == "times_out" else None)
    async def delegate() -> str:
        """Delegate."""
        child = State(messages=[Message.user("part")])
        children.append(child)
        with trio.move_on_after(1 if how == "fails" else 100):
            await Agent(model=FakeModel(answer), tools=[noop]).run(child)
        raise OSError("boom")

    state = State(messages=[Message.user("all")])
    with trio.move_on_after(10):
        try:
            await lead(delegate).run(state)
        except OSError:
            assert how == "fails"

    entry = result(state)
    assert str(entry.outcome) == {"fails": "aborted", "is_cancelled": "interrupted", "times_out": "error"}[how]
    assert entry.child_ids == (children[0].id,)
    assert entry.usage == children[0].usage != Usage()
    assert not children[0].running
    assert not children[0].pending_calls
    assert_replays(state)


async def test_a_run_in_the_thread_of_a_sync_tool_is_a_subagent():
    child = State(messages=[Message.user("part")])

    @tool
    def delegate() -> str:
        """Delegate."""
        return helper("part done").run_sync(child)

    state = State(messages=[Message.user("all")])
    await lead(delegate).run(state)

    assert child.parent_id == state.id
    assert result(state).child_ids == (child.id,)


async def test_a_run_in_a_nursery_of_the_tool_is_a_subagent_and_one_in_a_nursery_around_it_is_not():
    inside, outside = (State(messages=[Message.user("part")]) for _ in range(2))

    async with trio.open_nursery() as around:

        @tool
        async def delegate() -> str:
            """Delegate."""
            async with trio.open_nursery() as own:
                own.start_soon(helper("a").run, inside)
                around.start_soon(helper("b").run, outside)
            await trio.testing.wait_all_tasks_blocked()
            return "delegated"

        state = State(messages=[Message.user("all")])
        await lead(delegate).run(state)

    assert inside.parent_id == state.id
    assert outside.parent_id is None
    assert outside.answer == "b"
    assert result(state).child_ids == (inside.id,)


async def test_a_run_in_a_nursery_that_the_loop_had_open_is_not_a_subagent_of_the_call():
    child = State(messages=[Message.user("part")])

    async def body(agent, state):
        async with trio.open_nursery() as nursery:
            delegate.__wrapped__.nursery = nursery
            await agent.think(state)
            await agent.use_tools(state)

    @tool
    async def delegate() -> str:
        """Delegate."""
        delegate.__wrapped__.nursery.start_soon(helper("b").run, child)
        await trio.testing.wait_all_tasks_blocked()
        return "delegated"

    state = State(messages=[Message.user("all")])
    await lead(delegate, loop=body).run(state)

    assert child.answer == "b"
    assert child.parent_id is None
    assert result(state).child_ids == ()


async def test_a_run_in_a_task_of_the_system_is_not_a_subagent():
    child = State(messages=[Message.user("part")])
    ended = trio.Event()

    @tool
    async def delegate() -> str:
        """Delegate."""

        async def run() -> None:
            await helper("b").run(child)
            ended.set()

        trio.lowlevel.spawn_system_task(run, context=contextvars.copy_context())
        await ended.wait()
        return "delegated"

    state = State(messages=[Message.user("all")])
    await lead(delegate).run(state)

    assert (child.answer, child.parent_id) == ("b", None)
    assert result(state).child_ids == ()


async def test_a_grandchild_belongs_to_the_child_and_its_usage_reaches_the_top():
    @tool
    async def deeper() -> str:
        """Delegate further."""
        grandchild.append(State(messages=[Message.user("detail")]))
        return await helper(said("x", 7)).run(grandchild[0])

    @tool
    async def delegate() -> str:
        """Delegate."""
        return await lead(deeper).run(child)

    grandchild: list[State] = []
    child = State(messages=[Message.user("part")])
    state = State(messages=[Message.user("all")])
    await lead(delegate).run(state)

    assert grandchild[0].parent_id == child.id
    assert child.parent_id == state.id
    assert result(state).child_ids == (child.id,)
    assert state.usage.input_tokens == 20 + child.usage.input_tokens == 20 + 20 + 7


async def test_an_unknown_child_is_a_key_error():
    state = State()

    with pytest.raises(KeyError, match="has no subagent 'nobody'"):
        state.child("nobody")
    with pytest.raises(KeyError, match="has no subagent 'nobody'"):
        await state.load_child("nobody")


async def test_a_child_can_be_had_while_its_call_is_open():
    child = State(messages=[Message.user("part")])

    async def answer(request):
        assert state.child(child.id) is child
        return "part done"

    @tool
    async def delegate() -> str:
        """Delegate."""
        return await Agent(model=FakeModel(answer)).run(child)

    state = State(messages=[Message.user("all")])
    await lead(delegate).run(state)

    assert result(state).content[0].text == "part done"


async def test_a_child_from_another_process_is_opened_from_the_store(tmp_path):
    child = State(id="child", messages=[Message.user("part")])
    store = FileStore(tmp_path)

    @tool
    async def delegate() -> str:
        """Delegate."""
        return await helper("part done", store=store).run(child)

    await lead(delegate, store=store).run(State(id="parent", messages=[Message.user("all")]))
    loaded = await FileStore(tmp_path).load("parent")

    with pytest.raises(ValueError, match=r"await state\.load_child\('child'\)"):
        loaded.child("child")
    opened = await loaded.load_child("child")
    assert (opened.id, opened.answer, opened.parent_id) == ("child", "part done", "parent")
    assert opened.snapshot() == child.snapshot()


async def test_a_child_that_was_saved_elsewhere_can_not_be_opened_from_here():
    child = State(id="child", messages=[Message.user("part")])

    @tool
    async def delegate() -> str:
        """Delegate."""
        return await helper("part done", store=MemoryStore()).run(child)

    store = MemoryStore()
    state = State(id="parent", messages=[Message.user("all")])
    await lead(delegate, store=store).run(state)

    with pytest.raises(StateNotFoundError):
        await (await store.load("parent")).load_child("child")
    rebuilt = State(history=state.history)
    with pytest.raises(ValueError, match=r"Agent\(\.\.\., store="):
        await rebuilt.load_child("child")


async def test_a_fork_knows_the_children_too():
    child = State(messages=[Message.user("part")])

    @tool
    async def delegate() -> str:
        """Delegate."""
        return await helper("part done").run(child)

    state = State(messages=[Message.user("all")])
    await lead(delegate).run(state)

    assert state.fork().child(child.id) is child
    assert State().fork().history == []


async def test_the_call_of_a_cancelled_run_is_closed_when_its_child_has_ended():
    """The child waits for a reply that comes nevertheless: what it cost counts, once."""
    child = State(messages=[Message.user("part")])
    asked, let_go = trio.Event(), threading.Event()

    class Slow(Model):
        """Gives its reply though it is cancelled."""

        name = "fake/slow"

        async def respond(self, request, emit):
            asked.set()
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(let_go.wait)
            return said("late", 7)

    @tool
    def delegate() -> str:
        """Delegate."""
        return Agent(model=Slow()).run_sync(child)

    state = State(messages=[Message.user("all")])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lead(delegate).run, state)
        await asked.wait()
        nursery.cancel_scope.cancel()
        let_go.set()

    assert child.usage.input_tokens == 7
    assert state.usage.input_tokens == 10 + 7
    assert result(state).child_ids == (child.id,)
    assert_replays(state)


async def test_a_child_that_runs_twice_on_its_own_afterwards_adds_nothing_to_the_call():
    child = State(messages=[Message.user("part")])

    @tool
    async def delegate() -> str:
        """Delegate."""
        await Agent(model=FakeModel([said("part done", 10)])).run(child)
        async with trio.open_nursery():
            return "done"

    state = State(messages=[Message.user("all")])
    await lead(delegate).run(state)
    for number in range(2):
        child.add_message(Message.user("more"))
        await Agent(model=FakeModel([said(f"more {number}", 100)])).run(child)

    assert result(state).usage.input_tokens == 10
    assert child.usage.input_tokens == 210


async def test_a_subagent_that_is_taken_back_to_before_its_run_is_still_one():
    child = State()
    before = child.snapshot()
    child.add_message(Message.user("part"))

    @tool
    async def delegate() -> str:
        """Delegate."""
        return await helper("part done").run(child)

    state = State(messages=[Message.user("all")])
    await lead(delegate).run(state)
    await child.restore(before)

    assert len(child.messages) == 0
    assert (child.parent_id, child.parent_call_id) == (state.id, result(state).call.id)
    assert_replays(child)

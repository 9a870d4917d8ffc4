"""What is saved of a run, and when; and what happens where it can't be saved."""

from __future__ import annotations

import random
import signal
import threading
from contextlib import suppress

import pytest
import trio
import trio.testing

from alpineagents import (
    Agent,
    ConflictError,
    FileStore,
    MemoryStore,
    Message,
    RunningElsewhereError,
    State,
    Store,
    StoreError,
    default_loop,
    loop,
    tool,
    waiting_for_user,
)
from alpineagents.testing import FakeModel, tool_call

from .children import running, script
from .runs import (
    CountingStore,
    FullStore,
    HungStore,
    assert_saved,
    assert_whole,
    errors,
    kinds,
    outcomes,
    saved,
    saved_kinds,
)


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def forever() -> str:
    """Never end."""
    await trio.sleep_forever()
    raise AssertionError("unreachable")


@loop(until=waiting_for_user, limit=1)
async def one_request(agent, state):
    await agent.think(state)


def asked() -> State:
    return State(messages=[Message.user("go")])


# Before


async def test_what_led_to_a_request_is_saved_before_it_is_sent(store: Store):
    state = asked()
    seen = []

    async def look(request):
        seen.append(await saved_kinds(store, state.id) == kinds(state))
        return tool_call("add", a=1, b=2) if len(seen) < 3 else "done"

    await Agent(model=FakeModel(look), tools=[add], store=store).run(state)

    assert seen == [True, True, True]


@pytest.mark.parametrize("parallel", [True, False])
async def test_what_led_to_tools_is_saved_before_they_run(store: Store, parallel: bool):
    state = asked()
    seen = []

    @tool(parallel=parallel)
    async def look(n: int) -> int:
        """Look into the store."""
        entries = await saved(store, state.id)
        asked_for = [call["args"]["n"] for e in entries if e["kind"] == "model_reply" for call in _calls(e)]
        seen.append(n in asked_for)
        return n

    calls = [[tool_call("look", n=1), tool_call("look", n=2)], tool_call("look", n=3), "done"]
    await Agent(model=FakeModel(calls), tools=[look], store=store).run(state)

    assert seen == [True, True, True]


def _calls(entry: dict) -> list[dict]:
    return [block for block in entry["content"]["blocks"] if "args" in block]


@pytest.mark.parametrize("action", ["ask", "compact"])
async def test_what_led_to_the_request_of_a_side_question_or_a_summary_is_saved_before_it_is_sent(
    store: Store, action: str
):
    state = asked()
    seen = []

    async def look(request):
        seen.append(await store.has(state.id) and await saved_kinds(store, state.id) == kinds(state))
        return "text"

    agent = Agent(model=FakeModel(look), store=store)
    await (agent.ask(state, "why?") if action == "ask" else agent.compact(state))

    assert seen == [True]


async def test_a_result_is_saved_within_20_ms_while_others_are_still_awaited(autojump_clock):
    store = MemoryStore()
    state = asked()
    seen = []

    @tool
    async def look() -> str:
        """Look into the store a little later."""
        await trio.testing.wait_all_tasks_blocked()
        seen.append((await saved_kinds(store, state.id)).count("tool_result"))
        await trio.sleep(0.0201)
        seen.append((await saved_kinds(store, state.id)).count("tool_result"))
        return "seen"

    script = [[tool_call("look"), tool_call("add", a=1, b=2)], "done"]
    await Agent(model=FakeModel(script), tools=[add, look], store=store).run(state)

    assert seen == [0, 1]


async def test_results_that_come_together_cost_one_write(autojump_clock):
    store = CountingStore()
    gate, arrived = trio.Event(), 0

    @tool
    async def together() -> str:
        """End when all others do."""
        nonlocal arrived
        arrived += 1
        if arrived == 200:
            before.append(store.appends)
            gate.set()
        await gate.wait()
        return "x" * 100

    before: list[int] = []
    state = asked()
    agent = Agent(
        model=FakeModel([[tool_call("together") for _ in range(200)], "done"]),
        tools=[together],
        store=store,
        max_parallel_tools=200,
    )
    await agent.run(state)

    assert len(outcomes(state)) == 200
    assert store.appends - before[0] <= 3  # the results; the last request; the end
    await assert_saved(store, state)


async def test_a_run_without_calls_costs_two_writes(autojump_clock):
    """One before its request, one at its end: no tool waits for anything in between."""
    store = CountingStore()

    await Agent(model=FakeModel(["done"]), tools=[add], store=store).run(asked())

    assert store.appends == 2


async def test_all_of_a_run_is_saved_when_it_ends(store: Store):
    state = asked()
    await Agent(model=FakeModel([tool_call("add", a=1, b=2), "done"]), tools=[add], store=store).run(state)

    loaded = await assert_saved(store, state)
    assert kinds(loaded)[-1] == "stop"
    assert loaded.snapshot() == state.snapshot()


async def test_a_loaded_state_is_saved_where_it_came_from_by_an_agent_without_a_store(store: Store):
    state = asked()
    await store.save(state)
    loaded = await store.load(state.id)

    await Agent(model=FakeModel(["done"])).run(loaded)

    await assert_saved(store, loaded)


# Receipts


async def test_an_awaited_change_of_an_idle_state_is_saved(store: Store):
    state = asked()
    await store.save(state)

    await state.add_message(Message.user("more"))
    assert (await saved_kinds(store, state.id))[-1] == "user"

    async with state.edit_extra_data() as data:
        data["x"] = 1
    assert (await saved_kinds(store, state.id))[-1] == "extra_data"

    await state.finish("over")
    assert (await saved_kinds(store, state.id))[-1] == "stop"


async def test_an_awaited_change_during_a_run_is_saved(store: Store):
    state = asked()
    seen = []

    @tool
    async def note(state: State) -> str:
        """Edit the notepad."""
        async with state.edit_extra_data() as data:
            data["x"] = 1
        seen.append((await saved_kinds(store, state.id))[-1])
        return "ok"

    await Agent(model=FakeModel([tool_call("note"), "done"]), tools=[note], store=store).run(state)

    assert seen == ["extra_data"]


async def test_a_change_awaited_in_another_threads_event_loop_is_saved(store: Store):
    state = asked()
    entered, leave = trio.Event(), trio.Event()
    seen = []

    @tool
    async def wait() -> str:
        """Wait."""
        entered.set()
        await leave.wait()
        return "ok"

    async def elsewhere() -> None:
        async with state.edit_extra_data() as data:
            data["x"] = 1
        seen.append((await saved_kinds(store, state.id))[-1])

    async with trio.open_nursery() as nursery:
        agent = Agent(model=FakeModel([tool_call("wait"), "done"]), tools=[wait], store=store)
        nursery.start_soon(agent.run, state)
        await entered.wait()
        await trio.to_thread.run_sync(trio.run, elsewhere)
        leave.set()

    assert seen == ["extra_data"]


async def test_a_message_awaited_in_another_threads_event_loop_goes_in_behind_the_results_and_is_saved(store: Store):
    state = asked()
    entered, leave = trio.Event(), trio.Event()
    token = trio.lowlevel.current_trio_token()
    texts = []

    @tool
    async def wait() -> str:
        """Wait."""
        entered.set()
        await leave.wait()
        return "ok"

    async def elsewhere() -> None:
        receipt = state.add_message(Message.user("from afar"))
        token.run_sync_soon(leave.set)
        await receipt
        texts.append([message.text for message in (await store.load(state.id)).messages])

    async with trio.open_nursery() as nursery:
        agent = Agent(model=FakeModel([tool_call("wait"), "done", "done"]), tools=[wait], store=store)
        nursery.start_soon(agent.run, state)
        await entered.wait()
        await trio.to_thread.run_sync(trio.run, elsewhere)

    assert "from afar" in texts[0]
    assert [m.role for m in state.messages][:4] == ["user", "assistant", "tool", "user"]


async def test_a_receipt_that_is_awaited_when_the_run_ends_is_kept(store: Store):
    state = asked()

    sent, talking = trio.Event(), trio.Event()

    async def talk():
        await sent.wait()
        receipt = state.add_message(Message.user("x"))
        talking.set()
        await receipt
        assert "user" in await saved_kinds(store, state.id)

    async def last(request):
        sent.set()
        await talking.wait()
        return "done"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(talk)
        nursery.start_soon(Agent(model=FakeModel([last]), loop=default_loop.copy(limit=1), store=store).run, state)


async def test_a_message_awaited_by_the_loop_body_itself_while_calls_are_pending_is_refused_and_never_hangs(
    autojump_clock,
):
    """Nobody else runs those calls: the body waits for itself."""

    @loop(until=waiting_for_user, limit=1)
    async def body(agent, state):
        await agent.think(state)
        with pytest.raises(RuntimeError), trio.fail_after(60):
            await state.add_message(Message.user("x"))
        await agent.use_tools(state)

    await Agent(model=FakeModel([tool_call("add", a=1, b=1)]), tools=[add], loop=body).run(asked())


async def test_a_message_awaited_by_what_a_tool_left_behind_waits_for_later_calls_like_any_other():
    """The task was started inside a call, but that call is over: waiting can end."""
    state = asked()
    second = trio.Event()
    told = []

    async with trio.open_nursery() as nursery:

        async def left_behind():
            await second.wait()
            await state.add_message(Message.user("from behind"))
            told.append(True)

        @tool
        async def start() -> str:
            """Start something in somebody else's nursery."""
            nursery.start_soon(left_behind)
            return "started"

        @tool
        async def wait() -> str:
            """Let it talk meanwhile."""
            second.set()
            await trio.testing.wait_all_tasks_blocked()
            return "ok"

        model = FakeModel([tool_call("start"), tool_call("wait"), "done", "done"])
        await Agent(model=model, tools=[start, wait]).run(state)

    assert told


# A store that can't save


async def test_a_full_disk_ends_the_run_with_the_error_and_loses_nothing(autojump_clock):
    store = FullStore()
    state = asked()
    model = FakeModel(["never sent"])

    with pytest.raises(StoreError, match="No space left"):
        await Agent(model=model, store=store).run(state)

    assert not model.requests
    assert_whole(state)
    assert state.turn == 0
    assert not await store.has(state.id)
    store.full = False
    await store.save(state)
    await assert_saved(store, state)


async def test_a_disk_that_fills_up_in_the_middle_closes_the_calls_that_were_not_run(autojump_clock):
    store = FullStore(full=False)
    state = asked()
    ran = []

    @tool
    async def work() -> str:
        """Leave a trace."""
        ran.append(1)
        return "ok"

    def fill(request):
        store.full = True
        return [tool_call("work"), tool_call("work")]

    with pytest.raises(StoreError, match="No space left"):
        await Agent(model=FakeModel([fill]), tools=[work], store=store).run(state)

    assert not ran
    assert outcomes(state) == [("work", "aborted")] * 2
    assert len([text for text in errors(state) if "No space left" in text]) == 1
    assert_whole(state)
    store.full = False
    agent = Agent(model=FakeModel(["on again"]), tools=[work], store=store)
    assert await agent.run(state) == "on again"
    await assert_saved(store, state)


async def test_a_write_that_fails_once_in_the_background_is_made_up_for_by_the_next(autojump_clock):
    store = FullStore(full=False)
    state = asked()

    @tool
    async def slow() -> str:
        """Take longer than a result may lie unsaved."""
        store.full = 1
        await trio.sleep(1)
        return "ok"

    model = FakeModel([[tool_call("slow"), tool_call("add", a=1, b=1)], "done"])
    assert await Agent(model=model, tools=[slow, add], store=store).run(state) == "done"

    assert store.refused == 1
    await assert_saved(store, state)


async def test_a_failing_save_does_not_hide_what_the_run_raised(autojump_clock):
    store = FullStore(full=False)
    state = asked()

    @tool
    async def bad() -> str:
        """Fail, when the disk is full already."""
        store.full = True
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        await Agent(model=FakeModel([tool_call("bad")]), tools=[bad], store=store).run(state)

    assert any("No space left" in note for note in caught.value.__notes__)
    assert_whole(state)
    store.full = False
    await store.save(state)
    await assert_saved(store, state)


async def test_a_failing_save_of_the_end_is_raised_where_the_run_raised_nothing(autojump_clock):
    store = FullStore(full=False)
    state = asked()

    def fill(request):
        store.full = True
        return "answer"

    with pytest.raises(StoreError, match="No space left"):
        await Agent(model=FakeModel([fill]), store=store).run(state)

    assert state.answer == "answer"
    assert_whole(state)


def test_a_failing_save_does_not_hide_ctrl_c():
    store = FullStore(full=False)
    state = asked()

    @tool
    async def stop() -> str:
        """Be interrupted."""
        store.full = True
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("unreachable")

    with pytest.raises(KeyboardInterrupt) as caught:
        Agent(model=FakeModel([tool_call("stop")]), tools=[stop], store=store).run_sync(state)

    assert any("No space left" in note for note in caught.value.__notes__)
    assert outcomes(state) == [("stop", "interrupted")]


async def test_a_receipt_says_that_its_change_could_not_be_saved_and_the_change_stays():
    store = FullStore(full=False)
    state = asked()
    await store.save(state)
    store.full = 1

    with pytest.raises(StoreError, match="No space left"):
        await state.add_message(Message.user("kept"))

    assert state.messages[-1].text == "kept"
    await state.add_message(Message.user("more"))
    await assert_saved(store, state)


async def test_a_folder_that_can_not_be_written_ends_the_run_before_anything_is_recorded(tmp_path):
    (tmp_path / "file").write_text("in the way")
    state = asked()
    before = list(state.history)

    with pytest.raises(StoreError, match="choose a folder"):
        await Agent(model=FakeModel(["x"]), store=FileStore(tmp_path / "file")).run(state)

    assert list(state.history) == before
    assert await Agent(model=FakeModel(["x"]), store=FileStore(tmp_path / "states")).run(state) == "x"


async def test_a_hung_store_ends_a_run_after_the_grace_period(autojump_clock):
    store = HungStore()
    state = asked()

    def hang(request):
        store.hung = True
        return "answer"

    start = trio.current_time()
    with trio.fail_after(3600), pytest.raises(StoreError, match=r"couldn't be saved within 5 s"):
        await Agent(model=FakeModel([hang]), store=store, loop=one_request).run(state)

    assert trio.current_time() - start == pytest.approx(5, abs=0.1)
    assert state.answer == "answer"
    store.hung = False
    await store.save(state)
    await assert_saved(store, state)


async def test_a_hung_store_bounds_the_end_of_a_cancelled_run_too(autojump_clock):
    """An error is never dropped for Cancelled: that the end isn't saved comes out."""
    store = HungStore()
    state = asked()

    @tool
    async def hang() -> str:
        """Hang, and the store with it."""
        store.hung = True
        await trio.sleep_forever()
        raise AssertionError("unreachable")

    start = trio.current_time()
    with trio.move_on_after(30), pytest.raises(StoreError, match="within 5 s"):
        await Agent(model=FakeModel([tool_call("hang")]), tools=[hang], store=store).run(state)

    assert trio.current_time() - start == pytest.approx(35, abs=0.1)
    assert outcomes(state) == [("hang", "interrupted")]
    assert_whole(state)


async def test_a_hung_store_in_the_middle_is_waited_for_as_long_as_the_caller_lets_it(autojump_clock):
    store = HungStore()
    store.hung = True
    state = asked()
    model = FakeModel(["answer"])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(Agent(model=model, store=store).run, state)
        await trio.sleep(3600)
        assert not model.requests
        store.hung = False
        store.let_go.set()

    assert state.answer == "answer"
    await assert_saved(store, state)


async def test_a_save_that_is_awaited_while_the_run_ends_fails_with_it(autojump_clock):
    """It must not return as if all were saved."""
    store = HungStore()
    state = asked()
    ended = []

    def hang(request):
        store.hung = True
        state.add_message(Message.notice("not saved yet"))
        return "answer"

    async def run():
        with pytest.raises(StoreError):
            await Agent(model=FakeModel([hang]), store=store, loop=one_request).run(state)
        store.hung = False
        store.let_go.set()

    async def save():
        try:
            await store.save(state)
        except StoreError:
            ended.append("failed")
        else:
            ended.append((await saved_kinds(store, state.id)) == kinds(state))

    with trio.fail_after(3600):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            while not store.hung:
                await trio.lowlevel.checkpoint()
            nursery.start_soon(save)

    assert ended in (["failed"], [True])


# Two who write one State


async def test_a_second_object_for_a_state_that_runs_is_refused_and_records_nothing(store: Store):
    entered = trio.Event()

    @tool
    async def forever() -> str:
        """Never end."""
        entered.set()
        await trio.sleep_forever()
        raise AssertionError("unreachable")

    state = asked()
    agent = Agent(model=FakeModel([tool_call("forever")]), tools=[forever], store=store)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.run, state)
        await entered.wait()
        other = await store.load(state.id)
        before, held = list(other.history), await saved_kinds(store, state.id)
        model = FakeModel(["mine"])

        with pytest.raises(RunningElsewhereError, match=state.id):
            await Agent(model=model, tools=[forever], store=store).run(other)
        with pytest.raises(RunningElsewhereError):
            await Agent(model=model, tools=[forever], store=store).think(other)

        assert list(other.history) == before
        assert not model.requests
        assert await saved_kinds(store, state.id) == held
        nursery.cancel_scope.cancel()


HOLD = """
@tool
async def hold() -> str:
    "Hold it."
    say("running")
    await trio.sleep_forever()

state = State(id="bug-1", messages=[Message.user("go")])
trio.run(Agent(model=FakeModel([tool_call("hold")]), tools=[hold], store=store).run, state)
"""


async def test_a_state_that_another_process_runs_is_refused_and_records_nothing(tmp_path):
    store = FileStore(tmp_path)
    async with running(script(HOLD, tmp_path)) as other:
        await other.line_with("running")
        state = await store.load("bug-1")
        before, held = list(state.history), await saved_kinds(store, "bug-1")
        agent = Agent(model=FakeModel(["mine", "mine"], name="fake/fake"), tools=[tool(name="hold")(_hold)])

        with pytest.raises(RunningElsewhereError, match="bug-1"):
            await agent.run(state)

        assert list(state.history) == before
        assert await saved_kinds(store, "bug-1") == held

        other.process.kill()
        await other.process.wait()
        assert await agent.run(state) == "mine"


async def _hold() -> str:
    """Hold it."""
    return "held"


async def test_a_new_id_that_the_store_has_already_is_refused(store: Store):
    agent = Agent(model=FakeModel(["one", "two"]), store=store)
    await agent.run(State(id="bug-1", messages=[Message.user("go")]))
    held = await saved_kinds(store, "bug-1")
    new = State(id="bug-1", messages=[Message.user("again")])

    for action in (agent.run(new), agent.think(new), agent.ask(new, "why?")):
        with pytest.raises(ValueError, match=r"store\.load\('bug-1'\)"):
            await action

    assert kinds(new) == ["context_change"]
    assert await saved_kinds(store, "bug-1") == held


async def test_a_save_under_an_id_that_the_store_has_already_does_not_make_the_state_its_own(store: Store):
    agent = Agent(model=FakeModel(["one", "two"]), store=store)
    await agent.run(State(id="bug-1", messages=[Message.user("go")]))
    new = State(id="bug-1", messages=[Message.user("again")])

    with pytest.raises(StoreError):
        await store.save(new)
    with pytest.raises(ValueError, match=r"store\.load\('bug-1'\)"):
        await agent.run(new)

    assert kinds(new) == ["context_change"]


async def test_a_state_that_was_gone_on_with_elsewhere_is_not_gone_on_with_here(store: Store):
    """D3: loaded twice, run twice. The loser's request isn't sent, and the store keeps what the winner wrote."""
    state = asked()
    agent = Agent(model=FakeModel(["one"]), store=store)
    await agent.run(state)
    first, second = await store.load(state.id), await store.load(state.id)
    for loaded in (first, second):
        loaded.add_message(Message.user("more"))
    await agent.copy(model=FakeModel(["two"])).run(first)
    held = await store.read(state.id)
    model = FakeModel(["three"])

    with pytest.raises(ConflictError, match=r"store\.load"):
        await agent.copy(model=model).run(second)

    assert not model.requests
    assert list(await store.read(state.id)) == list(held)


async def test_another_object_for_the_same_folder_goes_on_with_a_state(tmp_path):
    agent = Agent(model=FakeModel(["one", "two"]), store=FileStore(tmp_path))
    state = asked()
    await agent.run(state)
    loaded = await FileStore(tmp_path).load(state.id)
    loaded.add_message(Message.user("more"))

    assert await agent.run(loaded) == "two"

    assert kinds(await FileStore(tmp_path).load(state.id)) == kinds(loaded)


async def test_a_copy_in_a_second_store_does_not_keep_a_state_from_running_in_the_first(store: Store):
    agent = Agent(model=FakeModel(["one", "two"]), store=store)
    backup = MemoryStore()
    state = asked()
    await agent.run(state)

    await backup.save(state)
    await state.add_message(Message.user("more"))
    assert await agent.run(state) == "two"

    await assert_saved(store, state)
    await backup.save(state)
    await assert_saved(backup, state)


@pytest.mark.parametrize("kind", ["memory", "files"])
async def test_a_lease_taken_in_an_event_loop_that_has_ended_holds_while_another_goes_on(kind: str, tmp_path):
    """A side question in a thread's own event loop took it first, and ended first."""
    store: Store = MemoryStore() if kind == "memory" else FileStore(tmp_path)
    state = asked()
    entered, leave = threading.Event(), threading.Event()
    running = trio.Event()

    async def side(request):
        entered.set()
        await trio.to_thread.run_sync(leave.wait)
        return "side"

    @tool
    async def hold() -> str:
        """Hold it."""
        running.set()
        await trio.sleep_forever()
        raise AssertionError("unreachable")

    async with trio.open_nursery() as nursery:
        asker = Agent(model=FakeModel([side]), store=store)
        ended = trio.Event()

        async def ask() -> None:
            await trio.to_thread.run_sync(trio.run, asker.ask, state, "why?")
            ended.set()

        nursery.start_soon(ask)
        await trio.to_thread.run_sync(entered.wait)
        nursery.start_soon(Agent(model=FakeModel([tool_call("hold")]), tools=[hold], store=store).run, state)
        await running.wait()
        leave.set()
        await ended.wait()
        other = await store.load(state.id)

        with pytest.raises(RunningElsewhereError):
            await Agent(model=FakeModel(["mine"]), tools=[hold], store=store).run(other)
        nursery.cancel_scope.cancel()

    assert_whole(state)
    other = await store.load(state.id)
    assert await Agent(model=FakeModel(["mine"]), tools=[hold], store=store).run(other) == "mine"


@pytest.mark.parametrize("kind", ["memory", "files"])
@pytest.mark.parametrize("seed", range(15))
async def test_whatever_acts_on_a_state_at_once_all_is_saved_and_the_lease_is_free(kind: str, seed: int, tmp_path):
    """Runs, side questions, messages, edits and saves; some are cancelled on the way."""
    store: Store = MemoryStore() if kind == "memory" else FileStore(tmp_path, fsync=False)
    chance = random.Random(seed)
    state = asked()

    async def some(most: int = 30) -> None:
        for _ in range(chance.randrange(most)):
            await trio.lowlevel.checkpoint()

    @tool
    async def work(state: State, n: int) -> str:
        """Edit the notepad."""
        async with state.edit_extra_data() as data:
            data[str(n)] = n
        await some()
        return "ok"

    async def answer(request):
        await some()
        if chance.random() < 0.5 and not request.messages[-1].text.endswith("?"):
            return [tool_call("work", n=n) for n in range(chance.randrange(1, 4))]
        return "text"

    agent = Agent(model=FakeModel(answer), tools=[work], store=store, loop=default_loop.copy(limit=5))

    async def act(what: int) -> None:
        await some()
        match what:
            case 0:
                with suppress(ValueError):  # one is on already
                    await agent.run(state)
            case 1:
                await agent.copy(model=FakeModel(answer)).ask(state, "well?")
            case 2:
                with suppress(RuntimeError):  # it waits for calls that nobody runs
                    await state.add_message(Message.user("more"))
            case 3:
                async with state.edit_extra_data() as data:
                    data[f"e{chance.random()}"] = 1
            case _:
                await store.save(state)

    async def act_for_a_while(what: int) -> None:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:

                async def cancel() -> None:
                    await some(150)
                    if chance.random() < 0.4:
                        scope.cancel()

                nursery.start_soon(cancel)
                await act(what)

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for what in [0, *(chance.randrange(5) for _ in range(8))]:
                nursery.start_soon(act_for_a_while, what)
        await agent.ask(state, "all done?")

    assert_whole(state)
    loaded = await assert_saved(store, state)
    loaded.add_message(Message.user("go on"))
    assert await agent.copy(model=FakeModel(["done"])).run(loaded) == "done"


# Actions outside a run


async def test_actions_outside_a_run_are_saved_and_start_no_run(store: Store):
    state = asked()
    agent = Agent(
        model=FakeModel([tool_call("add", a=1, b=2), "because", "done", "a summary"]), tools=[add], store=store
    )

    async def check():
        assert (await assert_saved(store, state)) is not None
        assert await saved_kinds(store, state.id) == kinds(state)

    await agent.think(state)
    assert await saved_kinds(store, state.id) == kinds(state)
    await agent.use_tools(state)
    await check()
    await agent.ask(state, "why?")
    await check()
    await agent.think(state)
    await check()
    await agent.compact(state)
    await check()
    assert "run_start" not in kinds(state)


async def test_an_action_outside_a_run_that_fails_is_saved_too(store: Store):
    state = asked()
    agent = Agent(model=FakeModel([ConnectionError("gone")]), store=store)

    with pytest.raises(ConnectionError):
        await agent.think(state)

    await assert_saved(store, state)
    assert errors(state) == ["ConnectionError: gone"]


async def test_side_questions_at_the_same_time_are_all_saved(autojump_clock):
    """Whichever of them ends last."""
    store = MemoryStore()
    state = asked()
    gates = [trio.Event(), trio.Event()]

    async def ask(n):
        async def answer(request):
            await gates[n].wait()
            return f"answer {n}"

        await Agent(model=FakeModel([answer]), store=store).ask(state, f"question {n}?")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, 0)
        nursery.start_soon(ask, 1)
        for gate in gates:
            await trio.testing.wait_all_tasks_blocked()
            gate.set()

    assert await saved_kinds(store, state.id) == kinds(state) == ["context_change", "ask", "ask"]


@pytest.mark.parametrize("ends", ["normally", "with an error"])
async def test_a_run_that_starts_during_a_side_question_is_saved_as_every_run(autojump_clock, ends):
    """What led to its tools is durable before they run, though the question has ended meanwhile."""
    store = MemoryStore()
    state = asked()
    question, main = trio.Event(), trio.Event()
    seen = []

    async def side(request):
        await question.wait()
        return "side"

    async def call(request):
        await main.wait()
        return tool_call("look")

    @tool
    async def look(state: State) -> str:
        """Look into the store."""
        seen.append(await saved_kinds(store, state.id) == kinds(state))
        if ends != "normally":
            raise ZeroDivisionError
        return "ok"

    async def run():
        try:
            await Agent(model=FakeModel([call, "done"]), tools=[look], store=store).run(state)
        except ZeroDivisionError:
            assert ends != "normally"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(Agent(model=FakeModel([side]), store=store).ask, state, "why?")
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(run)
        await trio.testing.wait_all_tasks_blocked()
        question.set()
        await trio.testing.wait_all_tasks_blocked()
        main.set()

    assert seen == [True]
    assert await saved_kinds(store, state.id) == kinds(state)


async def test_a_state_that_runs_stays_leased_though_a_side_question_took_the_lease_first(autojump_clock):
    store = MemoryStore()
    state = asked()
    question = trio.Event()

    async def side(request):
        await question.wait()
        return "side"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(Agent(model=FakeModel([side]), store=store).ask, state, "why?")
        await trio.testing.wait_all_tasks_blocked()
        runner = Agent(model=FakeModel([tool_call("forever")]), tools=[forever], store=store)
        nursery.start_soon(runner.run, state)
        await trio.testing.wait_all_tasks_blocked()
        question.set()
        await trio.testing.wait_all_tasks_blocked()

        other = await store.load(state.id) if await store.has(state.id) else state.fork(state.id)
        with pytest.raises(RunningElsewhereError):
            await Agent(model=FakeModel(["mine"]), tools=[forever], store=store).run(other)
        nursery.cancel_scope.cancel()


async def test_a_side_question_that_outlives_the_run_it_began_in_is_saved(autojump_clock):
    store = MemoryStore()
    state = asked()
    gate = trio.Event()

    async def side(request):
        await gate.wait()
        return "side"

    async with trio.open_nursery() as nursery:

        def main(request):
            nursery.start_soon(Agent(model=FakeModel([side]), store=store).ask, state, "why?")
            return tool_call("settle")

        @tool
        async def settle() -> str:
            """Let the question start."""
            await trio.testing.wait_all_tasks_blocked()
            return "ok"

        await Agent(model=FakeModel([main, "done"]), tools=[settle], store=store).run(state)
        gate.set()

    assert kinds(state)[-1] == "ask"
    assert await saved_kinds(store, state.id) == kinds(state)

"""edit_extra_data: one editor at a time, in threads and tasks, and what a block changes."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import signal
import threading
from collections.abc import Callable
from time import perf_counter

import pytest
import trio
import trio.testing

from alpineagents import MemoryStore, Message, State

from ..states import assert_replays

SECONDS = 20
"""How long anything in another thread may take before the test fails."""


other_context = contextvars.copy_context()
"""For tasks that are started inside an edit, but aren't part of it."""


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def ended(thread: threading.Thread) -> bool:
    thread.join(SECONDS)
    return not thread.is_alive()


def assert_turn_is_free(state: State) -> None:
    """Another thread and this one can edit."""

    def edit() -> None:
        with state.edit_extra_data() as data:
            data["free"] = True

    assert ended(in_thread(edit)), "nobody gives the turn back"
    edit()


# What a block changes


def test_changed_and_removed_keys_become_one_entry():
    state = State(extra_data={"a": 1, "b": {"c": [1]}, "d": None})

    with state.edit_extra_data() as data:
        data["a"] = 2
        data["b"]["c"].append((2, 3))
        del data["d"]
        data["e"] = None

    entry = state.history[-1]
    assert entry.content == {"a": 2, "b": {"c": [1, [2, 3]]}, "e": None}
    assert entry.removed == ("d",)
    assert state.extra_data == {"a": 2, "b": {"c": [1, [2, 3]]}, "e": None}
    assert len(state.history) == 2
    assert_replays(state)


def test_the_block_gives_a_plain_copy_at_every_depth():
    state = State(extra_data={"a": {"b": [{}]}})

    with state.edit_extra_data() as data:
        assert [type(data), type(data["a"]), type(data["a"]["b"])] == [dict, dict, list]
        assert state.extra_data == {"a": {"b": [{}]}}
        data["a"]["b"][0]["c"] = 1
        assert state.extra_data == {"a": {"b": [{}]}}


@pytest.mark.parametrize(
    "change",
    [
        lambda data: None,
        lambda data: data.update(a=1),
        lambda data: data.update(b={"c": (1.0, "x")}),
        lambda data: data.setdefault("a", 5),
        lambda data: data.update(sorted(data.items(), reverse=True)),
        lambda data: [data.pop("a"), data.update(a=1)],
    ],
)
def test_a_block_that_changes_nothing_is_no_entry(change):
    state = State(extra_data={"a": 1, "b": {"c": [1.0, "x"]}})

    with state.edit_extra_data() as data:
        change(data)

    assert len(state.history) == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (1, True),
        (True, 1),
        (0, False),
        (1, 1.0),
        (1.0, 1),
        (0.0, -0.0),
        ([1], [True]),
        ({"x": [0]}, {"x": [False]}),
        (None, False),
        ("1", 1),
        ([], {}),
    ],
    ids=repr,
)
def test_values_that_are_equal_in_python_but_not_in_json_are_a_change(old, new):
    state = State(extra_data={"a": old})

    with state.edit_extra_data() as data:
        data["a"] = new

    assert len(state.history) == 2
    assert repr(state.extra_data["a"]) == repr(new)
    assert_replays(state)


def test_a_block_that_raises_changes_nothing_and_the_exception_comes_out():
    state = State(extra_data={"a": 1})
    error = KeyError("mine")

    def fail() -> None:
        with state.edit_extra_data() as data:
            data["a"] = 2
            raise error

    with pytest.raises(KeyError) as caught:
        fail()

    assert caught.value is error
    assert state.extra_data == {"a": 1}
    assert len(state.history) == 1
    assert_turn_is_free(state)


async def test_an_async_block_that_raises_changes_nothing():
    state = State(extra_data={"a": 1})

    async def fail() -> None:
        async with state.edit_extra_data() as data:
            data["a"] = 2
            raise KeyError("mine")

    with pytest.raises(KeyError):
        await fail()

    assert state.extra_data == {"a": 1}
    async with state.edit_extra_data() as data:
        data["a"] = 3
    assert state.extra_data == {"a": 3}


@pytest.mark.parametrize(
    ("value", "error", "path"),
    [
        ({1}, TypeError, r'^extra_data\["k"\]: set is not JSON; use a list'),
        ([{"x": b""}], TypeError, r'^extra_data\["k"\]\[0\]\["x"\]: bytes is not JSON'),
        (float("nan"), TypeError, r'^extra_data\["k"\]: nan'),
        ({1: 2}, TypeError, r'^extra_data\["k"\]: key 1'),
    ],
)
def test_a_value_that_is_not_json_names_its_key_and_changes_nothing(value, error, path):
    state = State(extra_data={"a": 1})

    with pytest.raises(error, match=path), state.edit_extra_data() as data:
        data.update(a=2, k=value)

    assert state.extra_data == {"a": 1}
    assert len(state.history) == 1
    assert_turn_is_free(state)


def test_a_dict_that_holds_itself_is_a_value_error():
    state = State()

    with pytest.raises(ValueError, match="circular"), state.edit_extra_data() as data:
        data["me"] = data

    assert_turn_is_free(state)


def test_keeping_the_dict_after_the_block_changes_nothing():
    state = State(extra_data={"a": []})
    with state.edit_extra_data() as data:
        data["b"] = inner = []

    data["c"] = 1
    data["a"].append(1)
    inner.append(1)
    with state.edit_extra_data() as later:
        later["d"] = 1

    assert state.extra_data == {"a": [], "b": [], "d": 1}


def test_a_notepad_that_keeps_the_one_before_can_still_be_loaded():
    """What a block puts in may be frozen already, and deep: it is refused, or it can be loaded again."""
    state = State()
    for _ in range(250):
        try:
            with state.edit_extra_data() as data:
                data["before"] = state.extra_data
        except ValueError:
            break

    assert_replays(state)


def test_clearing_a_large_notepad_costs_about_what_filling_it_did():
    def seconds(change: Callable[[dict], object]) -> float:
        begin = perf_counter()
        with state.edit_extra_data() as data:
            change(data)
        return perf_counter() - begin

    state = State()
    filling = seconds(lambda data: data.update({str(n): n for n in range(8_000)}))
    clearing = seconds(lambda data: data.clear())

    assert clearing < 20 * filling


def test_an_edit_serves_once():
    state = State()
    edit = state.edit_extra_data()
    with edit as data:
        data["a"] = 1

    with pytest.raises(RuntimeError, match="edit_extra_data"), edit:
        pass
    assert_turn_is_free(state)


def test_an_edit_that_was_only_made_holds_nobody_up():
    state = State()
    edit = state.edit_extra_data()
    assert_turn_is_free(state)
    with edit as data:
        assert data == {"free": True}


def test_what_another_change_did_during_the_block_stays():
    state = State(messages=[Message.user("a")], extra_data={"a": 1, "b": 1})
    start = state.snapshot()
    with state.edit_extra_data() as data:
        data["a"] = 2

    with state.edit_extra_data() as data:
        data["b"] = 2
        state.restore(start)
        state.add_message(Message.user("b"))

    assert state.extra_data == {"a": 1, "b": 2}
    assert len(state.messages) == 2
    assert_replays(state)


# Turns


def test_threads_take_turns_and_lose_nothing():
    state = State(extra_data={"n": 0})
    together = threading.Barrier(4, timeout=SECONDS)
    inside = []

    def work() -> None:
        together.wait()
        for _ in range(50):
            with state.edit_extra_data() as data:
                inside.append(1)
                assert len(inside) == 1
                data["n"] += 1
                inside.pop()

    assert all(map(ended, [in_thread(work) for _ in range(4)]))
    assert state.extra_data == {"n": 200}
    assert_replays(state)


async def test_tasks_take_turns_in_the_order_in_which_they_came():
    state = State(extra_data={"order": []})

    async def work(n: int) -> None:
        async with state.edit_extra_data() as data:
            await trio.lowlevel.checkpoint()
            data["order"].append(n)

    async with trio.open_nursery() as nursery, state.edit_extra_data() as data:
        data["order"].append("holder")
        for n in range(5):
            other_context.run(nursery.start_soon, work, n)
            await trio.testing.wait_all_tasks_blocked()

    assert state.extra_data == {"order": ["holder", 0, 1, 2, 3, 4]}
    assert_replays(state)


async def test_a_task_waits_for_a_thread_and_a_thread_for_a_task():
    state = State(extra_data={"order": []})
    entered, leave = threading.Event(), threading.Event()

    def thread() -> None:
        with state.edit_extra_data() as data:
            entered.set()
            assert leave.wait(SECONDS)
            data["order"].append("thread")

    async def task() -> None:
        async with state.edit_extra_data() as data:
            data["order"].append("task")

    first = in_thread(thread)
    await trio.to_thread.run_sync(entered.wait, SECONDS)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(task)
        await trio.testing.wait_all_tasks_blocked()
        assert state.extra_data == {"order": []}
        leave.set()
    assert await trio.to_thread.run_sync(ended, first)
    assert state.extra_data == {"order": ["thread", "task"]}

    async with state.edit_extra_data() as data:
        second = in_thread(thread)
        data["order"].append("task again")
    assert await trio.to_thread.run_sync(ended, second)
    assert state.extra_data == {"order": ["thread", "task", "task again", "thread"]}


async def test_tasks_of_two_trio_runs_take_turns():
    state = State(extra_data={"n": 0})

    async def work() -> None:
        for _ in range(30):
            async with state.edit_extra_data() as data:
                await trio.lowlevel.checkpoint()
                data["n"] += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        nursery.start_soon(work)
        nursery.start_soon(trio.to_thread.run_sync, trio.run, work)

    assert state.extra_data == {"n": 90}


async def test_a_waiter_that_is_cancelled_passes_its_turn_on():
    state = State()
    scopes = []

    async def work(n: int) -> None:
        with trio.CancelScope() as scope:
            scopes.append(scope)
            async with state.edit_extra_data() as data:
                data[str(n)] = True

    async with trio.open_nursery() as nursery, state.edit_extra_data() as data:
        for n in range(3):
            other_context.run(nursery.start_soon, work, n)
            await trio.testing.wait_all_tasks_blocked()
        scopes[0].cancel()  # at the head of the queue
        await trio.testing.wait_all_tasks_blocked()
        data["holder"] = True

    assert state.extra_data == {"holder": True, "1": True, "2": True}
    await trio.to_thread.run_sync(assert_turn_is_free, state)


async def test_a_waiter_that_is_cancelled_in_the_moment_of_its_turn_passes_it_on():
    state = State()
    scope = trio.CancelScope()

    async def first() -> None:
        with scope:
            async with state.edit_extra_data() as data:
                data["first"] = True

    async def second() -> None:
        async with state.edit_extra_data() as data:
            data["second"] = True

    async with trio.open_nursery() as nursery:
        with state.edit_extra_data() as data:
            data["holder"] = True
            for work in (first, second):
                other_context.run(nursery.start_soon, work)
                await trio.testing.wait_all_tasks_blocked()
        scope.cancel()  # its turn has come, and it hasn't run yet

    assert state.extra_data["second"]


# Nested


def nested_sync(state: State) -> None:
    with pytest.raises(RuntimeError, match="inside an edit"), state.edit_extra_data():
        pass


async def nested_async(state: State) -> None:
    with pytest.raises(RuntimeError, match="inside an edit"):
        async with state.edit_extra_data():
            pass


async def test_an_edit_inside_an_edit_is_refused_also_in_what_is_below_it():
    state = State()

    with state.edit_extra_data() as data:
        data["n"] = 1
        nested_sync(state)
        await nested_async(state)
    async with state.edit_extra_data() as data:
        data["n"] = 2
        nested_sync(state)
        await nested_async(state)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(nested_async, state)
        await trio.to_thread.run_sync(nested_sync, state)
        await trio.to_thread.run_sync(lambda: trio.from_thread.run(nested_async, state))
        await trio.to_thread.run_sync(lambda: trio.run(nested_async, state))

    assert state.extra_data == {"n": 2}
    assert len(state.history) == 2


def test_an_edit_of_another_state_inside_an_edit_is_none_of_its_business():
    one, two = State(), State()
    with one.edit_extra_data() as a, two.edit_extra_data() as b:
        a["n"] = 1
        b["n"] = 2
        nested_sync(one)
        nested_sync(two)
    assert (one.extra_data, two.extra_data) == ({"n": 1}, {"n": 2})


def test_an_edit_that_would_wait_for_its_own_thread_is_refused():
    """Code in a context of its own, as a callback of some framework has one: it would wait for ever."""
    state = State()
    outcome: queue.SimpleQueue[str] = queue.SimpleQueue()

    def callback() -> None:
        try:
            with state.edit_extra_data():
                outcome.put("edited")
        except RuntimeError as error:
            outcome.put(str(error))

    def holder() -> None:
        with state.edit_extra_data():
            contextvars.Context().run(callback)

    assert ended(in_thread(holder)), "it waits for itself"
    assert "edit" in outcome.get()
    assert_turn_is_free(state)


async def test_a_task_started_inside_an_edit_may_edit_when_that_has_ended():
    """It is below the holder no longer: nobody holds the turn."""
    state = State()
    go = trio.Event()

    async def later() -> None:
        await go.wait()
        async with state.edit_extra_data() as data:
            data["task"] = True
        await trio.to_thread.run_sync(edit_in_thread)

    def edit_in_thread() -> None:
        with state.edit_extra_data() as data:
            data["thread"] = True

    async with trio.open_nursery() as nursery:
        async with state.edit_extra_data() as data:
            data["holder"] = True
            nursery.start_soon(later)
        go.set()

    assert state.extra_data == {"holder": True, "task": True, "thread": True}


async def test_a_plain_with_that_ends_in_another_task_leaves_its_own_free():
    """As a fixture or an async generator does it."""
    state = State()
    edit = state.edit_extra_data()
    edit.__enter__()["n"] = 1

    async def leave() -> None:
        edit.__exit__(None, None, None)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(leave)

    with state.edit_extra_data() as data:
        data["n"] += 1
    assert state.extra_data == {"n": 2}


# Event loops


async def test_a_plain_with_whose_turn_is_free_works_under_an_event_loop():
    state = State()
    with state.edit_extra_data() as data:
        data["n"] = 1
    assert state.extra_data == {"n": 1}


async def held(state: State, *, task_status=trio.TASK_STATUS_IGNORED) -> None:
    async with state.edit_extra_data() as data:
        data["held"] = True
        task_status.started()
        await trio.sleep_forever()


async def test_a_plain_with_that_would_block_trio_says_async_with():
    state = State()
    async with trio.open_nursery() as nursery:
        await nursery.start(held, state)

        with pytest.raises(RuntimeError, match="async with"), state.edit_extra_data():
            pass

        nursery.cancel_scope.cancel()
    with state.edit_extra_data() as data:
        assert data == {}


async def test_a_plain_with_behind_the_plain_with_of_another_task_says_async_with_too():
    """That code isn't inside the edit: it only came while a task that holds it awaits something."""
    state = State()

    async def hold(task_status=trio.TASK_STATUS_IGNORED) -> None:
        with state.edit_extra_data():
            task_status.started()
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        await nursery.start(hold)

        with pytest.raises(RuntimeError, match="async with"), state.edit_extra_data():
            pass

        nursery.cancel_scope.cancel()


def while_held(state: State, work: Callable[[], object]) -> None:
    """Do *work* while another thread edits; it lets go when work is done, or after a while."""
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with state.edit_extra_data():
            entered.set()
            leave.wait(5)

    thread = in_thread(hold)
    assert entered.wait(SECONDS)
    try:
        work()
    finally:
        leave.set()
        assert ended(thread)


def test_a_plain_with_that_would_block_asyncio_says_async_with():
    state = State()

    async def main() -> None:
        with pytest.raises(RuntimeError, match="async with"), state.edit_extra_data():
            pass

    while_held(state, lambda: asyncio.run(main()))


def test_a_plain_with_in_a_callback_of_asyncio_would_block_it_too():
    """No task runs there, and yet it is the event loop's thread."""
    state = State()
    raised: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def callback() -> None:
        try:
            with state.edit_extra_data():
                raised.put(None)
        except RuntimeError as error:
            raised.put(error)

    async def main() -> None:
        asyncio.get_running_loop().call_soon(callback)
        await asyncio.sleep(0)

    while_held(state, lambda: asyncio.run(main()))
    assert "async with" in str(raised.get())


def test_async_with_under_asyncio_says_aio():
    async def main() -> None:
        async with State().edit_extra_data():
            pass

    with pytest.raises(RuntimeError, match="aio"):
        asyncio.run(main())


# Saved


async def test_async_with_returns_when_the_change_is_saved():
    store, state = MemoryStore(), State()
    await store.save(state)

    async with state.edit_extra_data() as data:
        data["n"] = 1

    assert (await store.load(state.id)).extra_data == {"n": 1}


# Interrupted


def test_ctrl_c_while_waiting_for_a_turn_leaves_the_queue():
    state = State()
    main = threading.main_thread().ident
    assert main is not None
    entered, interrupted = threading.Event(), threading.Event()

    def hold() -> None:
        with state.edit_extra_data() as data:
            data["held"] = True
            entered.set()
            while not interrupted.wait(0.01):  # the main thread may not wait yet, or its handler may be busy
                signal.pthread_kill(main, signal.SIGUSR1)

    def wait_behind_it() -> None:
        assert entered.wait(SECONDS)
        with state.edit_extra_data():
            pytest.fail("somebody else holds the turn")

    def interrupt(*_: object) -> None:
        if not interrupted.is_set():
            interrupted.set()
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        thread = in_thread(hold)
        with pytest.raises(KeyboardInterrupt):
            wait_behind_it()
    finally:
        interrupted.set()
        signal.signal(signal.SIGUSR1, before)

    assert ended(thread)
    assert state.extra_data == {"held": True}
    assert_turn_is_free(state)

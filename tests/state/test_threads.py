"""State methods called from many threads at once: nothing is lost, and everybody sees one order."""

from __future__ import annotations

import threading
from collections.abc import Callable

import trio
import trio.testing

from alpineagents import Agent, MemoryStore, Message, State, tool
from alpineagents.testing import FakeModel, tool_call

from ..states import assert_replays

THREADS = 8
TIMES = 1_000
SECONDS = 60


def in_threads(work: Callable[[int], object]) -> None:
    """Do ``work(number)`` in all threads at once; raise what one of them raised."""
    together = threading.Barrier(THREADS, timeout=SECONDS)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        together.wait()
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive(), "stuck"
    if errors:
        raise errors[0]


def edit_and_talk(state: State, number: int) -> None:
    for n in range(TIMES):
        with state.edit_extra_data() as data:
            data["n"] = data.get("n", 0) + 1
            data[str(number)] = n
        state.add_message(Message.user(f"{number} {n}"))


def assert_nothing_is_lost(state: State) -> None:
    said = [entry.content.text.split() for entry in state.history if entry.kind == "user" and " " in entry.content.text]
    for number in range(THREADS):
        assert [n for who, n in said if who == str(number)] == [str(n) for n in range(TIMES)]
    assert state.extra_data == {"n": THREADS * TIMES} | {str(number): TIMES - 1 for number in range(THREADS)}
    counts = [entry.content["n"] for entry in state.history if entry.kind == "extra_data"]
    assert counts == list(range(1, THREADS * TIMES + 1))
    assert [entry.seq for entry in state.history] == list(range(len(state.history)))
    times = [entry.at for entry in state.history]
    assert times == sorted(times)


def test_eight_threads_edit_and_talk_on_an_idle_state():
    state = State()

    in_threads(lambda number: edit_and_talk(state, number))

    assert_nothing_is_lost(state)
    assert len(state.messages) == THREADS * TIMES
    assert_replays(state)


async def test_eight_threads_edit_and_talk_on_a_state_in_a_run():
    store, state = MemoryStore(), State(messages=[Message.user("go")])

    @tool
    async def let_them() -> str:
        """Wait for the threads."""
        await trio.to_thread.run_sync(in_threads, lambda number: edit_and_talk(state, number))
        return "ok"

    # The threads aren't part of the call: their edits are their own.
    answer = await Agent(model=FakeModel([tool_call("let_them"), "done"]), tools=[let_them], store=store).run(state)

    assert answer == "done"
    assert_nothing_is_lost(state)
    assert [message.role for message in state.messages[:3]] == ["user", "assistant", "tool"]
    assert len(state.messages) == 4 + THREADS * TIMES
    loaded = await store.load(state.id)
    assert loaded.snapshot() == state.snapshot()
    assert loaded.extra_data == state.extra_data


def test_every_kind_of_change_at_once_leaves_one_history():
    state = State(messages=[Message.user("go")])
    start = state.snapshot()
    forks: list[State] = []

    def work(number: int) -> None:
        for n in range(40):
            match (number + n) % 8:
                case 0:
                    state.finish(n)
                case 1:
                    state.compact(f"{number} {n}")
                case 2:
                    state.restore(start)
                case 3:
                    forks.append(state.fork())
                case 4:
                    state.restore(state.snapshot())
                case 5:
                    with state.edit_extra_data() as data:
                        data[str(number)] = n
                case 6:
                    str(state), repr(state), state._repr_html_(), list(state.history), list(state.messages)
                case _:
                    state.add_message(Message.user(f"{number} {n}"))

    in_threads(work)

    assert [entry.seq for entry in state.history] == list(range(len(state.history)))
    for fork in forks:
        assert list(state.history[: len(fork.history)]) == list(fork.history)


def test_readers_in_threads_see_moments_and_nothing_in_between():
    state = State()
    done = threading.Event()

    def work(number: int) -> None:
        if number < 2:
            for n in range(TIMES):
                state.add_message(Message.user(f"{n}"))
            if number == 0:
                done.set()
            return
        longest = 0
        while not done.is_set():
            snapshot = state.snapshot()
            messages, history = list(snapshot.messages), list(snapshot.history)
            assert [entry.content for entry in history] == messages
            assert len(history) >= longest
            longest = len(history)

    in_threads(work)

    assert len(state.history) == 2 * TIMES


async def test_a_change_in_a_thread_wakes_the_run_that_waits_for_it():
    state = State(messages=[Message.user("go")])
    token = trio.lowlevel.current_trio_token()
    waiting = trio.Event()

    def change() -> None:
        trio.from_thread.run(waiting.wait, trio_token=token)
        state.add_message(Message.notice("the door bell"))

    @tool
    async def wait() -> str:
        """Wait for the bell."""
        seen = len(state.history)
        watch = state.watch(after=seen)
        waiting.set()
        return (await anext(watch)).content.text

    thread = threading.Thread(target=change, daemon=True)
    thread.start()
    await Agent(model=FakeModel([tool_call("wait"), "done"]), tools=[wait]).run(state)

    assert state.messages[2].blocks[0].content[0].text == "[notice] the door bell"
    await trio.to_thread.run_sync(thread.join, SECONDS)

"""Signals: a handler may change a State, and Ctrl+C may come, at any moment; a State is always whole.

``at_point`` puts a real signal at every single point where CPython looks at them; timers put thousands at random ones.
"""

from __future__ import annotations

import contextvars
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import trio

from alpineagents import Agent, Message, State, ToolCall, tool
from alpineagents.testing import FakeModel, tool_call

from ..states import assert_replays
from .points import at_point
from .test_extra_data import SECONDS, assert_turn_is_free
from .test_state import CALLS, close, pending

ROOT = Path(__file__).parents[2]
PERIOD = 100e-6
"""Seconds between two alarms."""


@contextmanager
def handler(action: Callable[[], object]) -> Iterator[None]:
    """Call *action* at each SIGALRM."""
    before = signal.signal(signal.SIGALRM, lambda *_: action())
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def interrupted_at(point: int, operation: Callable[..., object], *args: object) -> list[str]:
    """Call ``operation(*args)`` with Ctrl+C at a point, and nothing left in the context; return where that was."""

    def call() -> list[str]:
        with suppress(KeyboardInterrupt), at_point(point, lambda: signal.raise_signal(signal.SIGINT)) as reached:
            operation(*args)
        return reached

    return contextvars.copy_context().run(call)


def edit(state: State) -> None:
    with state.edit_extra_data() as data:
        data["n"] = data.get("n", 0) + 1


def fork_and_talk(state: State) -> None:
    state.fork().add_message(Message.user("x"))


OPERATIONS: dict[str, tuple[Callable[[], State], Callable[[State], object]]] = {
    "add_message": (lambda: State(messages=[Message.user("go")]), lambda state: state.add_message(Message.user("x"))),
    "add_message to an empty State": (State, lambda state: state.add_message(Message.user("x"))),
    "add_message while calls are pending": (pending, lambda state: state.add_message(Message.user("x"))),
    "finish": (lambda: State(messages=[Message.user("go")]), lambda state: state.finish({"a": [1]})),
    "edit_extra_data": (lambda: State(extra_data={"n": 0}), edit),
    "compact": (lambda: State(messages=[Message.user("go"), Message.assistant("x")]), lambda state: state.compact("y")),
    "clear_tool_results": (
        lambda: close(close(pending(), CALLS[0]), CALLS[1]),
        lambda state: state.clear_tool_results(0),
    ),
    "restore": (lambda: State(messages=[Message.user("go")]), lambda state: state.restore(state.snapshot())),
    "fork": (lambda: State(messages=[Message.user("go")]), fork_and_talk),
    "restore and talk": (lambda: State(messages=[Message.user("go")]), lambda state: restore_and_talk(state)),
}


def restore_and_talk(state: State) -> None:
    start = state.snapshot()
    state.add_message(Message.user("a"))
    state.restore(start)
    state.add_message(Message.user("b"))


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_handler_that_changes_the_state_at_any_point_loses_nothing(name):
    make, operation = OPERATIONS[name]
    undisturbed = make()
    operation(undisturbed)
    entries = len(undisturbed.history)

    with handler(lambda: state.add_message(Message.notice("from the handler"))):
        for point in range(2_000):
            state = make()
            with at_point(point, lambda: signal.raise_signal(signal.SIGALRM)) as reached:
                operation(state)
            if not reached:
                break
            assert len(state.history) == entries + 1, reached
            assert [entry.kind for entry in state.history].count("notice") == 1, reached
            assert_replays(state)
    assert point > 10


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # CPython loses it in a generator's end
@pytest.mark.parametrize("name", OPERATIONS)
def test_ctrl_c_at_any_point_leaves_a_change_done_or_not_done_and_the_state_usable(name):
    make, operation = OPERATIONS[name]
    state = make()
    before = len(state.history)
    operation(state)
    allowed = [list(state.history[:length]) for length in range(before, len(state.history) + 1)]

    for point in range(2_000):
        state = make()
        reached = interrupted_at(point, operation, state)
        if not reached:
            break
        assert list(state.history) in allowed, reached
        assert_replays(state)
        try:
            assert_turn_is_free(state)
        except AssertionError:
            pytest.fail(f"Ctrl+C at {reached}: nobody can edit any more")
        state.add_message(Message.user("on"))
        assert_replays(state)
    assert point > 10


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_at_any_point_of_an_edit_lets_the_next_in_the_queue_edit():
    def edit_before(thread: threading.Thread, queued: threading.Event, state: State) -> None:
        with state.edit_extra_data() as data:
            thread.start()
            assert queued.wait(SECONDS)
            data["main"] = True

    def queue_up(queued: threading.Event, state: State) -> None:
        queued.set()
        edit(state)

    for point in range(2_000):
        state, queued = State(), threading.Event()
        thread = threading.Thread(target=queue_up, args=(queued, state), daemon=True)
        reached = interrupted_at(point, edit_before, thread, queued, state)
        if thread.ident is None:
            thread.start()
        thread.join(SECONDS)
        assert not thread.is_alive(), reached
        assert state.extra_data["n"] == 1
        if not reached:
            break
    assert point > 10


HANDLER_EDITS = """
import contextlib, faulthandler, signal
from alpineagents import State
from tests.state.points import at_point

faulthandler.dump_traceback_later(20, exit=True)

def handle(*_):
    try:
        with state.edit_extra_data() as data:
            data["handler"] = True
    except RuntimeError:
        refused.append(True)

signal.signal(signal.SIGALRM, handle)
for point in range(2_000):
    state, refused = State(), []
    with at_point(point, lambda: signal.raise_signal(signal.SIGALRM)) as reached:
        with state.edit_extra_data() as data:
            data["main"] = True
    expected = {"main": True} | ({} if refused or not reached else {"handler": True})
    assert state.extra_data == expected, (reached, state.extra_data)
    if not reached:
        break
print(point)
"""


def test_a_handler_that_edits_in_the_middle_of_an_edit_is_refused_or_takes_its_turn_and_never_waits_for_ever():
    """The edit it interrupted can't end before the handler does."""
    done = subprocess.run(
        [sys.executable, "-c", HANDLER_EDITS], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 0, done.stderr[-2_000:]
    assert int(done.stdout) > 10


async def test_a_handler_that_changes_the_state_at_any_point_of_a_turn_loses_nothing():
    """Replies and results share more with the moments before them than messages do."""

    @tool
    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    def calls() -> list[ToolCall]:
        return [tool_call("add", a=1, b=n) for n in range(3)]

    with handler(lambda: state.add_message(Message.notice("from the handler"))):
        for point in range(100_000):
            state = State(messages=[Message.user("go")])
            agent = Agent(model=FakeModel([calls(), "done", "done"]), tools=[add])
            with at_point(point, lambda: signal.raise_signal(signal.SIGALRM)) as reached:
                await agent.run(state)
            if not reached:
                break
            assert [entry.kind for entry in state.history].count("notice") == 1, reached
            assert sum(message.is_notice for message in state.messages) == 1, reached
            assert not state.pending_calls
            assert_replays(state)
    assert point > 100


def test_thousands_of_alarms_in_the_middle_of_commits_lose_nothing():
    state = State()
    handled = 0

    def alarm() -> None:
        nonlocal handled
        handled += 1
        state.add_message(Message.notice(f"{handled}"))
        if handled < 3_000:
            signal.setitimer(signal.ITIMER_REAL, PERIOD)  # not a period: the handler may take longer than that

    said = edits = 0
    with handler(alarm):
        signal.setitimer(signal.ITIMER_REAL, PERIOD)
        while handled < 3_000:
            state.add_message(Message.user(f"{said}"))
            said += 1
            if said % 3 == 0:
                edit(state)
                edits += 1

    notices = [entry.content.text for entry in state.history if entry.kind == "notice"]
    assert notices == [f"[notice] {n}" for n in range(1, 3_001)]
    assert [entry.content.text for entry in state.history if entry.kind == "user"] == [str(n) for n in range(said)]
    assert state.extra_data.get("n", 0) == edits
    assert_replays(state)


async def test_alarms_that_talk_while_a_run_goes_on_lose_nothing():
    state = State(messages=[Message.user("go")])
    handled = 0
    on = True

    def alarm() -> None:
        nonlocal handled
        handled += 1
        state.add_message(Message.notice(f"{handled}"))
        if on:
            signal.setitimer(signal.ITIMER_REAL, 5 * PERIOD)

    @tool
    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    def answer(request) -> object:
        nonlocal on
        if handled < 1_000:
            return [tool_call("add", a=1, b=n) for n in range(3)]
        on = False
        return "done"

    async def body(agent, state):
        while on:
            await agent.think(state)
            await agent.use_tools(state)

    seen = []

    async def reader() -> None:
        async for entry in state.watch():
            seen.append(entry.seq)

    with handler(alarm):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader)
            signal.setitimer(signal.ITIMER_REAL, PERIOD)
            await Agent(model=FakeModel(answer), tools=[add], loop=body).run(state)
            signal.setitimer(signal.ITIMER_REAL, 0)
            state.finish()

    notices = [entry.content.text for entry in state.history if entry.kind == "notice"]
    assert notices == [f"[notice] {n}" for n in range(1, handled + 1)]
    assert seen == list(range(len(state.history)))
    assert_replays(state)


INTERRUPTED = """
import faulthandler, random, signal, sys, threading, time
from alpineagents import Message, State
from tests.states import assert_replays

faulthandler.dump_traceback_later(50, exit=True)
random.seed(int(sys.argv[1]))
on_time = False

def interrupt(*_):
    global on_time
    if not on_time:
        on_time = True
        raise KeyboardInterrupt

def others_can_work(state, n):
    def work():
        state.add_message(Message.notice(f"{n}"))
        with state.edit_extra_data() as data:
            data["checked"] = n
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(10)
    return not thread.is_alive()

def work(state):
    while True:
        state.add_message(Message.user("x"))
        with state.edit_extra_data() as data:
            data["n"] = data.get("n", 0) + 1
        start = state.snapshot()
        state.finish([1])
        state.restore(start)

signal.signal(signal.SIGALRM, interrupt)
state, n, end = State(), 0, time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    n += 1
    on_time = False
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(20e-6, 500e-6))
        work(state)
    except KeyboardInterrupt:
        pass
    if not others_can_work(state, n):
        sys.exit(f"after {n} interrupts nobody can edit any more")
    with state.edit_extra_data() as data:
        assert data["checked"] == n
    if n % 20 == 0:  # restores in a row are slow to replay
        assert [entry.seq for entry in state.history] == list(range(len(state.history)))
        state = State()
print(n)
"""


@pytest.mark.parametrize("seed", [1, 2])
def test_thousands_of_ctrl_c_at_random_moments_leave_the_state_whole_and_no_lock_held(seed):
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(seed), "3"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-2_000:]
    assert int(done.stdout) > 100

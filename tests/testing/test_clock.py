"""The clock of tests jumps over what sleeps and runs like a real one while a thread works; nothing waits for real."""

from __future__ import annotations

import ast
import math
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

import alpineagents
from alpineagents import (
    Agent,
    FileStore,
    MemoryStore,
    Message,
    OpenAICompatible,
    RateLimit,
    SQLiteStore,
    State,
    Store,
    Timeout,
    tool,
)
from alpineagents._threads import in_thread
from alpineagents.testing import FakeModel, Fault, ProviderServer, tool_call

LIBRARY = Path(alpineagents.__file__).parent


@pytest.fixture
def clock(agent_clock: MockClock) -> MockClock:
    """The plugin's."""
    return agent_clock


def how_it_runs(clock: MockClock) -> str:
    return {(0.0, 0.0): "jumps", (1.0, math.inf): "real"}[clock.rate, clock.autojump_threshold]


def in_and_out(times: int = 50) -> None:
    """What a thread does: so often trio is idle meanwhile, which is when a clock jumps."""
    for _ in range(times):
        trio.from_thread.run_sync(trio.current_time)


async def hop(fn, *args, abandon_on_cancel=False):
    return await in_thread(fn, *args, limiter=trio.CapacityLimiter(1), abandon_on_cancel=abandon_on_cancel)


# ---- Threads


async def test_the_clock_runs_like_a_real_one_while_a_thread_works(clock):
    with trio.move_on_after(60) as minute:
        seen = await hop(how_it_runs, clock)
        await hop(in_and_out)

    assert seen == "real"
    assert not minute.cancelled_caught
    assert trio.current_time() < 60


async def test_it_jumps_again_when_the_last_thread_has_ended(clock):
    gates = [threading.Event(), threading.Event()]
    seen = []

    async def through(gate):
        await hop(gate.wait)
        seen.append(how_it_runs(clock))

    async with trio.open_nursery() as nursery:
        for gate in gates:
            nursery.start_soon(through, gate)
        await trio.testing.wait_all_tasks_blocked()
        seen.append(how_it_runs(clock))
        for number, gate in enumerate(gates):
            gate.set()
            while len(seen) < number + 2:
                await trio.lowlevel.checkpoint()

    assert seen == ["real", "real", "jumps"]
    await trio.sleep(600)


async def test_it_jumps_again_when_a_thread_failed(clock):
    with pytest.raises(ZeroDivisionError):
        await hop(divmod, 1, 0)

    assert how_it_runs(clock) == "jumps"


async def test_what_the_test_has_set_is_set_again(clock):
    clock.rate, clock.autojump_threshold = 2.0, 0.5

    await hop(in_and_out)

    assert (clock.rate, clock.autojump_threshold) == (2.0, 0.5)
    clock.rate = 0.0


async def test_an_abandoned_thread_holds_the_clock_no_more(clock):
    hangs = threading.Event()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: hop(hangs.wait, abandon_on_cancel=True))
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()

    assert how_it_runs(clock) == "jumps"
    await trio.sleep(600)
    hangs.set()


async def test_a_thread_that_waits_for_a_slot_holds_it(clock):
    """The slot may be one that an abandoned thread still has."""
    limiter, gate = trio.CapacityLimiter(1), threading.Event()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: in_thread(gate.wait, limiter=limiter, abandon_on_cancel=True))
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: in_thread(in_and_out, limiter=limiter, abandon_on_cancel=True))
        await trio.testing.wait_all_tasks_blocked()

        assert how_it_runs(clock) == "real"
        gate.set()

    assert how_it_runs(clock) == "jumps"


async def test_the_clock_of_trio_itself_is_left_as_it_is(autojump_clock):
    """So a hung thread is timed out at once."""
    hangs = threading.Event()

    assert await hop(how_it_runs, autojump_clock) == "jumps"
    with trio.move_on_after(600) as scope:
        await hop(hangs.wait, abandon_on_cancel=True)

    assert scope.cancelled_caught
    hangs.set()


async def test_a_thread_that_waits_for_a_run_of_its_own_holds_no_clock(clock):
    slow = Agent(model=FakeModel(["from the helper"], delay=600))
    seen = []

    @tool
    def delegate() -> str:
        """Have somebody else answer."""
        seen.append(how_it_runs(clock))
        answer = slow.run_sync("hi")
        seen.append(how_it_runs(clock))
        return str(answer)

    state = State(messages=[Message.user("go")])
    await Agent(model=FakeModel([tool_call("delegate"), "done"]), tools=[delegate]).run(state)

    assert seen == ["real", "real"]
    assert 600 <= trio.current_time() < 660
    assert how_it_runs(clock) == "jumps"


async def test_a_run_in_a_thread_that_is_abandoned_leaves_the_clock_jumping(clock):
    ended = threading.Event()

    @tool(timeout=60)
    def delegate() -> str:
        """Have somebody else answer."""
        try:
            return str(Agent(model=FakeModel(["late"], delay=600)).run_sync("hi"))
        finally:
            ended.set()

    state = State(messages=[Message.user("go")])
    answer = await Agent(model=FakeModel([tool_call("delegate"), "done"]), tools=[delegate]).run(state)
    await hop(ended.wait)

    assert answer == "done"
    first = next(entry for entry in state.history if entry.kind == "tool_result")
    assert first.content[0].text == "(timed out after 60 s)"
    assert 60 <= trio.current_time() < 120
    assert how_it_runs(clock) == "jumps"


@pytest.fixture(params=["files", "sqlite"])
def store_in_threads(request, tmp_path) -> Store:
    return FileStore(tmp_path / "runs") if request.param == "files" else SQLiteStore(tmp_path / "runs.db")


async def test_a_grace_period_lasts_while_a_store_writes(clock, store_in_threads, monkeypatch):
    """trio's own clock would jump over its five seconds while the thread is at it, and the last save would fail."""
    append = type(store_in_threads).append

    async def slow_append(*args):
        await hop(in_and_out)
        await append(*args)
        await hop(in_and_out)

    monkeypatch.setattr(type(store_in_threads), "append", slow_append)
    state = State(messages=[Message.user("hi")])
    async with store_in_threads as store:
        await Agent(model=FakeModel(["hello"], delay=600), store=store).run(state)

        assert len((await store.load(state.id)).history) == len(state.history)
    assert 600 <= trio.current_time() < 605


# ---- Ten minutes


@pytest.mark.parametrize("kind", ["memory", "files", "sqlite"])
async def test_ten_minutes_of_everything_that_waits_pass_at_once(clock, tmp_path, kind, monkeypatch):
    """Retry-After, backoff, a silent server, a rate limit, slow tools, a tool's timeout, a lease that is renewed."""
    began = time.perf_counter()
    store: Store = {
        "memory": MemoryStore,
        "files": lambda: FileStore(tmp_path / "runs"),
        "sqlite": lambda: SQLiteStore(tmp_path / "runs.db"),
    }[kind]()

    renew, renewed = type(store).renew, []

    async def noted_renew(self, state_id):
        await renew(self, state_id)
        renewed.append(state_id)

    monkeypatch.setattr(type(store), "renew", noted_renew)

    @tool(timeout=90)
    async def slow(seconds: int) -> str:
        """Take long."""
        await trio.sleep(seconds)
        return f"took {seconds} s"

    script = [
        Fault(status=429, headers={"retry-after": "100"}),
        Fault(status=503),
        [tool_call("slow", seconds=80), tool_call("slow", seconds=600)],
        Fault(stall=True, cut_after=40),
        Fault(wait=45, answer=tool_call("slow", seconds=85)),
        tool_call("slow", seconds=85),
        tool_call("slow", seconds=85),
        "Done.",
    ]
    async with ProviderServer(script) as server, store:
        limit = RateLimit(requests_per_minute=1)
        model = OpenAICompatible("any", base_url=server.base_url, rate_limit=limit, timeout=Timeout(read=100))
        state = State(messages=[Message.user("go")])
        answer = await Agent(model=model, tools=[slow], store=store).run(state)

        assert answer == "Done."
        assert len(server.requests) == 8
        assert len((await store.load(state.id)).history) == len(state.history)
    outcomes = [entry.outcome for entry in state.history if entry.kind == "tool_result"]
    assert sorted(outcomes) == ["done", "done", "done", "done", "error"]
    assert trio.current_time() > 600
    assert (len(renewed) > 50) == (store.lease_seconds is not None)
    assert time.perf_counter() - began < 60, "not a minute of ten, however slow the machine is"


async def test_limits_that_runs_under_such_a_clock_share_hold_up_nobody_else():
    """The clock of a test may be hours ahead of the time, where a run after it isn't."""
    limit = RateLimit(requests_per_minute=1)

    async def send(times: int) -> float:
        for _ in range(times):
            async with limit.turn() as turn:
                turn.answered(200, {})
        return trio.current_time()

    await trio.to_thread.run_sync(lambda: trio.run(send, 11, clock=MockClock(autojump_threshold=0)))
    seconds = await trio.to_thread.run_sync(lambda: trio.run(send, 1, clock=MockClock(autojump_threshold=0)))

    assert 0 < seconds < 66


# ---- All clocks there are

WALL_CLOCKS = {
    "cli/_list.py": {"datetime.now": "how long ago a State changed, to show"},
    "cli/_show.py": {"datetime.now": "the time of an entry that is only made to be shown"},
    "models/_attempt.py": {"time.time": "what a Retry-After with a date is compared with; the wait is trio's"},
    "models/_limits.py": {
        "time.monotonic": "where the scale begins that trio runs share; what passes on it is trio's time",
        "time.time": "what a header with a date is compared with",
    },
    "models/_prices.py": {"datetime.now": "which of several prices is today's"},
    "state/_clock.py": {
        "datetime.now": "when an entry was recorded, unless a test has put another source in its place",
        "time.time_ns": "the beginning of an id, likewise",
    },
    "stores/_locked.py": {"time.time": "since when another process has a lease, to tell"},
    "stores/_postgres_connections.py": {
        "time.monotonic": "how long a call waits, in its thread, for one of the store's connections",
        "self._changed.wait_for": "that wait, and the one for calls that are under way when the store is closed",
    },
    "stores/_postgres_leases.py": {"time.monotonic": "since when this process has a lease, to tell"},
    "stores/_sqlite_database.py": {
        "time.monotonic": "how long a call waits, in its thread, while another process locks the database",
        "given_up.wait": "that wait, which SQLite has no call for",
    },
    "stores/_sqlite_leases.py": {"time.time": "when a lease runs out, which other processes look at"},
    "stores/_sqlite_writes.py": {"time.monotonic": "as in _sqlite_database"},
}
"""Where the library asks another clock than trio's, or waits on none, and why that is no wait in a test's way."""

ASKED = {"time.time", "time.time_ns", "time.monotonic", "time.perf_counter", "datetime.now", "datetime.utcnow"}


def wall_clocks(text: str) -> Iterator[str]:
    """Calls that ask for the time, or that block a thread for one."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Await(value=ast.Call() as awaited):
                awaited.args, awaited.func = [], ast.Name("awaited")  # trio's
            case ast.Call(func=ast.Attribute(attr="wait" | "wait_for" | "join" | "acquire") as called, args=args):
                timed = {"wait": 1, "wait_for": 2}.get(called.attr)  # positional arguments, of which the last is a time
                if len(args) == timed or any(keyword.arg == "timeout" for keyword in node.keywords):
                    yield ast.unparse(called)
            case ast.Attribute() if ast.unparse(node) in ASKED:
                yield ast.unparse(node)
            case ast.ImportFrom(module="time", names=names):
                yield from (f"time.{alias.name}" for alias in names)
            case _:
                pass


def test_every_other_clock_of_the_library_is_known_and_has_a_reason():
    found = {
        path.relative_to(LIBRARY).as_posix(): set(wall_clocks(path.read_text(encoding="utf-8")))
        for path in LIBRARY.rglob("*.py")
    }

    assert {name: clocks for name, clocks in found.items() if clocks} == {
        name: set(reasons) for name, reasons in WALL_CLOCKS.items()
    }


@pytest.mark.parametrize(
    "text",
    [
        "import time\ntime.monotonic()",
        "from time import perf_counter",
        "event.wait(0.1)",
        "lock.acquire(timeout=3)",
        "thread.join(timeout=1)",
        "changed.wait_for(lambda: True, 5)",
        "datetime.now(UTC)",
    ],
)
def test_a_clock_is_found(text):
    assert list(wall_clocks(text))


@pytest.mark.parametrize("text", ["await event.wait(3)", "', '.join(names)", "lock.acquire()", "trio.current_time()"])
def test_what_is_trios_or_waits_for_no_time_is_none(text):
    assert not list(wall_clocks(text))

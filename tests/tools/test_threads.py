"""Sync tools: they block nobody, and one that is left behind still tells how it ended."""

from __future__ import annotations

import contextvars
import threading
import time
from typing import Any

import pytest
import trio
import trio.testing

from alpineagents import TextBlock, ToolError, ToolInputError, ToolOutcome, tool
from alpineagents.run._sync import run_sync
from alpineagents.tools import run_call
from alpineagents.tools._threads import ThreadCall

from .calls import LateResults, context, ending, read

SECONDS = 30  # Nothing waits that long unless it is broken.


class Handshake:
    """A thread that waits in the middle until a test lets it go on."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.released = threading.Event()

    def wait(self) -> None:
        self.reached.set()
        assert self.released.wait(SECONDS)

    async def until_reached(self) -> None:
        assert await trio.to_thread.run_sync(self.reached.wait, SECONDS)


class Recorder(LateResults):
    """Late results, with a signal for each."""

    def __init__(self) -> None:
        super().__init__()
        self.recorded = threading.Event()

    def record(self, content: Any, outcome: ToolOutcome, error: BaseException | None, full: Any = None) -> None:
        super().record(content, outcome, error)
        self.recorded.set()

    async def until_recorded(self) -> None:
        assert await trio.to_thread.run_sync(self.recorded.wait, SECONDS)


async def abandoned(fn: Any, handshake: Handshake, late: LateResults) -> None:
    """Call the sync tool *fn* and cancel it when it has reached its *handshake*."""
    one = tool(fn)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_call, one, read(one), context(one, late))
        await handshake.until_reached()
        nursery.cancel_scope.cancel()


async def test_two_sync_tools_run_at_the_same_time_and_block_nobody() -> None:
    """Each waits for the other, and for a task of the event loop."""
    meeting = threading.Barrier(3)

    @tool
    def meet() -> str:
        meeting.wait(SECONDS)
        return threading.current_thread().name

    names: list[str] = []

    async def call() -> None:
        (block,) = (await ending(meet)).content
        assert isinstance(block, TextBlock)
        names.append(block.text)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        nursery.start_soon(call)
        await trio.to_thread.run_sync(meeting.wait, SECONDS)

    assert names == ["tool meet", "tool meet"]


async def test_a_hung_thread_takes_nobodys_place() -> None:
    """Not even where the program's own limit on threads is 1."""
    hung, late = Handshake(), Recorder()
    trio.to_thread.current_default_thread_limiter().total_tokens = 1

    @tool
    def quick() -> str:
        return "quick"

    def hang() -> None:
        hung.wait()

    one = tool(hang)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_call, one, read(one), context(one, late))
        await hung.until_reached()
        assert (await ending(quick)).content == (TextBlock("quick"),)
        nursery.cancel_scope.cancel()
    hung.released.set()
    await late.until_recorded()


async def test_context_variables_reach_the_thread() -> None:
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("here")

    @tool
    def look() -> str:
        return variable.get()

    assert (await ending(look)).content == (TextBlock("here"),)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ("late", ("late", ToolOutcome.DONE, None)),
        (None, ("(done)", ToolOutcome.DONE, None)),
        ({"a": 1}, ('{"a":1}', ToolOutcome.DONE, None)),
    ],
)
async def test_a_thread_left_behind_records_its_result_once(result: Any, expected: Any) -> None:
    hand, late = Handshake(), Recorder()

    def slow() -> Any:
        hand.wait()
        return result

    await abandoned(slow, hand, late)
    assert late.records == []
    hand.released.set()
    await late.until_recorded()

    assert late.records == [expected]


@pytest.mark.parametrize(
    ("error", "said", "outcome"),
    [
        (ToolError("no"), "no", ToolOutcome.ERROR),
        (ToolInputError("odd"), "odd", ToolOutcome.INPUT_ERROR),
        (ValueError("x"), "(aborted: ValueError)", ToolOutcome.ABORTED),
        (SystemExit(1), "(aborted: SystemExit)", ToolOutcome.ABORTED),
        (KeyboardInterrupt(), "(interrupted)", ToolOutcome.INTERRUPTED),
    ],
)
async def test_a_thread_left_behind_records_its_error_once(
    error: BaseException, said: str, outcome: ToolOutcome
) -> None:
    hand, late = Handshake(), Recorder()

    def slow() -> None:
        hand.wait()
        raise error

    await abandoned(slow, hand, late)
    hand.released.set()
    await late.until_recorded()

    assert late.records == [(said, outcome, error)]


async def test_a_late_result_that_is_not_json_is_recorded_as_aborted() -> None:
    hand, late = Handshake(), Recorder()

    def slow() -> Any:
        hand.wait()
        return {1, 2}

    await abandoned(slow, hand, late)
    hand.released.set()
    await late.until_recorded()

    ((said, outcome, error),) = late.records
    assert (said, outcome) == ("(aborted: TypeError)", ToolOutcome.ABORTED)
    assert "the result of tool slow: set is not JSON" in str(error)


async def test_a_coroutine_that_comes_too_late_to_be_awaited_is_closed() -> None:
    hand, late = Handshake(), Recorder()

    async def inner() -> None: ...

    def slow() -> Any:
        hand.wait()
        return inner()

    await abandoned(slow, hand, late)
    hand.released.set()
    await late.until_recorded()

    assert late.records[0][:2] == ("(aborted: TypeError)", ToolOutcome.ABORTED)


async def test_a_thread_that_sees_that_it_was_left_behind_is_interrupted() -> None:
    hand, late = Handshake(), Recorder()

    def slow() -> None:
        hand.wait()
        trio.from_thread.check_cancelled()

    await abandoned(slow, hand, late)
    hand.released.set()
    await late.until_recorded()

    assert late.records[0][:2] == ("(interrupted)", ToolOutcome.INTERRUPTED)


async def test_a_thread_that_raises_a_group_of_cancellations_is_interrupted_too() -> None:
    """As what leaves a nursery is, which the thread had trio open."""
    hand, late = Handshake(), Recorder()

    def slow() -> None:
        hand.wait()
        try:
            trio.from_thread.check_cancelled()
        except trio.Cancelled as error:
            raise BaseExceptionGroup("of a nursery", [error]) from None

    await abandoned(slow, hand, late)
    hand.released.set()
    await late.until_recorded()

    assert late.records[0][:2] == ("(interrupted)", ToolOutcome.INTERRUPTED)


async def test_what_a_thread_runs_starts_threads_of_its_own_also_where_no_run_is_around() -> None:
    runs: list[trio.lowlevel.TrioToken] = []

    async def look() -> None:
        runs.append(trio.lowlevel.current_trio_token())

    async def deeper() -> None:
        await look()
        await trio.to_thread.run_sync(run_sync, look)

    @tool
    def delegate() -> None:
        run_sync(deeper)

    await ending(delegate)

    here = trio.lowlevel.current_trio_token()
    assert [run is here for run in runs] == [True, False]


async def test_a_thread_that_times_out_is_left_behind(mock_clock: trio.testing.MockClock) -> None:
    hand, late = Handshake(), Recorder()
    endings: list[Any] = []

    @tool(timeout=30)
    def slow() -> str:
        hand.wait()
        return "late"

    async def call() -> None:
        endings.append((await ending(slow, late)).content)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await hand.until_reached()
        mock_clock.jump(30)
    hand.released.set()
    await late.until_recorded()

    assert endings == [(TextBlock("(timed out after 30 s)"),)]
    assert late.records == [("late", ToolOutcome.DONE, None)]


async def test_a_call_cancelled_before_its_thread_starts_runs_nothing() -> None:
    ran = []

    @tool
    def never() -> None:
        ran.append(1)

    late = LateResults()
    with trio.CancelScope() as scope:
        scope.cancel()
        await ending(never, late)

    assert scope.cancelled_caught
    assert (ran, late.records) == ([], [])


async def test_a_result_that_trio_drops_is_recorded_all_the_same() -> None:
    """The thread has ended, and the task is cancelled before trio tells it."""
    hand, late = Handshake(), Recorder()
    threads: list[threading.Thread] = []

    def slow() -> str:
        threads.append(threading.current_thread())
        hand.wait()
        return "dropped"

    one = tool(slow)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_call, one, read(one), context(one, late))
        await hand.until_reached()
        hand.released.set()
        # Hold up the event loop until the thread is done with the call: then it has its old name again.
        deadline = time.monotonic() + SECONDS
        while threads[0].name == "tool slow":
            assert time.monotonic() < deadline
        nursery.cancel_scope.cancel()

    assert late.records == [("dropped", ToolOutcome.DONE, None)]


async def test_without_abandon_the_task_waits_for_the_thread() -> None:
    hand, late = Handshake(), LateResults()
    results: list[Any] = []

    @tool(abandon_on_cancel=False)
    def slow() -> str:
        hand.wait()
        return "whole"

    async def call(scope: trio.CancelScope) -> None:
        with scope:
            results.append((await ending(slow, late)).content)

    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()
        nursery.start_soon(call, scope)
        await hand.until_reached()
        scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert results == []
        hand.released.set()

    assert results == [(TextBlock("whole"),)]
    assert late.records == []


async def test_a_thread_may_outlive_the_event_loop() -> None:
    """trio.run has returned: the thread records all the same."""
    hand, late = Handshake(), Recorder()

    def slow() -> str:
        hand.wait()
        return "after"

    def run() -> None:
        trio.run(abandoned, slow, hand, late)

    await trio.to_thread.run_sync(run)
    hand.released.set()
    await late.until_recorded()

    assert late.records == [("after", ToolOutcome.DONE, None)]


@pytest.mark.parametrize(
    ("steps", "ran", "recorded"),
    [
        (["run"], [1], []),
        (["run", "give_up"], [1], [("result", None)]),
        (["give_up"], [], []),
        (["give_up", "run"], [], []),
    ],
)
def test_a_call_given_up_before_its_thread_began_does_not_run(
    steps: list[str], ran: list[int], recorded: list[Any]
) -> None:
    """However task and thread come, a result is recorded late if there is one and nobody took it."""
    runs: list[int] = []
    records: list[Any] = []

    def work() -> str:
        runs.append(1)
        return "result"

    call = ThreadCall(work, lambda *result: records.append(result))

    for step in steps:
        getattr(call, step)()

    assert (runs, records) == (ran, recorded)

"""One call of a tool: how it ends, and what comes out of it."""

from __future__ import annotations

import math
import signal
from typing import Any

import pytest
import trio
import trio.testing

from alpineagents import State, TextBlock, Tool, ToolError, ToolInputError, ToolOutcome, tool
from alpineagents.tools import Ending, run_call

from .calls import context, ending, read


class Mute(ToolError):
    def __str__(self) -> str:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("error", "outcome", "said"),
    [
        (ToolError("no such file: a"), ToolOutcome.ERROR, "no such file: a"),
        (ToolInputError("n must be even"), ToolOutcome.INPUT_ERROR, "n must be even"),
        (ToolError(), ToolOutcome.ERROR, "ToolError"),
        (ToolError(" "), ToolOutcome.ERROR, "ToolError"),
        (Mute(), ToolOutcome.ERROR, "Mute"),
    ],
)
async def test_a_tool_error_is_for_the_model(error: ToolError, outcome: ToolOutcome, said: str) -> None:
    @tool
    async def fail() -> None:
        raise error

    assert await ending(fail) == Ending((TextBlock(said),), outcome, None, error)


async def test_a_tool_error_of_a_thread_is_for_the_model() -> None:
    @tool
    def fail() -> None:
        raise ToolError("no")

    assert (await ending(fail)).content == (TextBlock("no"),)


@pytest.mark.parametrize("error", [ValueError("x"), TimeoutError(), trio.TooSlowError(), SystemExit(3)])
async def test_every_other_exception_comes_out(error: BaseException) -> None:
    @tool(timeout=5)
    async def fail() -> None:
        raise error

    @tool(timeout=5)
    def fail_in_thread() -> None:
        raise error

    for one in (fail, fail_in_thread):
        with pytest.raises(type(error)) as raised:
            await ending(one)
        assert raised.value is error


async def test_a_tool_made_from_data_runs() -> None:
    class Shout(Tool):
        name = "shout"
        description = "Shout."
        input_schema = {"type": "object"}  # noqa: RUF012

        async def run(self, args: Any, state: State) -> str:
            return f"{args['what']}!"

    assert (await ending(Shout(), what="hey")).content == (TextBlock("hey!"),)


class TestTimeout:
    async def test_a_tool_is_cancelled_and_the_model_is_told(self, autojump_clock: trio.testing.MockClock) -> None:
        cancelled = []

        @tool(timeout=30)
        async def slow() -> None:
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                cancelled.append(trio.current_time())
                raise

        start = trio.current_time()
        result = await ending(slow)

        assert result.content == (TextBlock("(timed out after 30 s)"),)
        assert result.outcome is ToolOutcome.ERROR
        assert isinstance(result.error, TimeoutError)
        assert cancelled == [start + 30]

    @pytest.mark.parametrize(("seconds", "said"), [(0.25, "0.25"), (2_592_000, "2592000"), (60.0, "60")])
    async def test_seconds_are_told_as_people_write_them(
        self, autojump_clock: trio.testing.MockClock, seconds: float, said: str
    ) -> None:
        result = await ending(tool(timeout=seconds)(trio.sleep_forever))

        assert result.content == (TextBlock(f"(timed out after {said} s)"),)

    async def test_a_tool_with_a_nursery_times_out_as_any_other(self, autojump_clock: trio.testing.MockClock) -> None:
        @tool(timeout=1)
        async def slow() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                await trio.sleep_forever()

        assert (await ending(slow)).content == (TextBlock("(timed out after 1 s)"),)

    async def test_a_tool_that_is_in_time_is_not_touched(self, autojump_clock: trio.testing.MockClock) -> None:
        @tool(timeout=2)
        async def quick() -> str:
            await trio.sleep(1)
            return "in time"

        assert (await ending(quick)).content == (TextBlock("in time"),)

    async def test_a_cancel_from_outside_is_no_timeout(self, autojump_clock: trio.testing.MockClock) -> None:
        one = tool(timeout=30)(trio.sleep_forever)

        with trio.move_on_after(10) as scope:
            await ending(one)

        assert scope.cancelled_caught

    async def test_a_cancel_from_outside_at_the_same_time_wins(self, autojump_clock: trio.testing.MockClock) -> None:
        one = tool(timeout=30)(trio.sleep_forever)

        with trio.move_on_after(30) as scope:
            await ending(one)

        assert scope.cancelled_caught

    async def test_a_tool_error_while_it_is_stopped_is_what_the_model_gets(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        @tool(timeout=1)
        async def slow() -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise ToolError("half done")

        assert (await ending(slow)).content == (TextBlock("half done"),)


class TestCancelled:
    async def test_a_cancelled_tool_raises_cancelled(self) -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            await ending(tool(trio.sleep_forever))

        assert scope.cancelled_caught

    async def test_a_cancelled_tool_with_a_nursery_raises_its_group_as_it_is(self) -> None:
        raised: list[BaseException] = []

        @tool
        async def busy() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                await trio.sleep_forever()

        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await ending(busy)
            except BaseException as error:
                raised.append(error)
                raise

        assert scope.cancelled_caught
        assert [type(error) for error in raised] == [BaseExceptionGroup]

    @pytest.mark.parametrize("with_nursery", [False, True])
    @pytest.mark.parametrize("seconds", [None, 5.0])
    async def test_a_cancelled_that_escaped_from_a_scope_of_the_tool_is_a_mistake(
        self, with_nursery: bool, seconds: float | None
    ) -> None:
        """Else it would look as if the run had been cancelled, and end it without a word."""

        @tool(timeout=seconds)
        async def leaky() -> None:
            kept: list[BaseException] = []
            with trio.CancelScope() as scope:
                scope.cancel()
                try:
                    await trio.sleep_forever()
                except trio.Cancelled as error:
                    kept.append(error)
                    raise
            if with_nursery:
                raise BaseExceptionGroup("tasks", [BaseExceptionGroup("inner", kept)])
            raise kept[0]

        with pytest.raises(RuntimeError, match="tool 'leaky' raised Cancelled without being cancelled") as raised:
            await ending(leaky)
        assert isinstance(raised.value.__cause__, trio.Cancelled | BaseExceptionGroup)

    async def test_a_group_with_something_else_in_it_comes_out(self) -> None:
        @tool
        async def fail() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                raise ValueError("x")

        with pytest.raises(ExceptionGroup) as raised:
            await ending(fail)
        assert isinstance(raised.value.exceptions[0], ValueError)


async def test_a_call_without_timeout_adds_no_task_and_no_checkpoint() -> None:
    task = trio.lowlevel.current_task()

    @tool
    async def look() -> str:
        assert trio.lowlevel.current_task() is task
        assert trio.current_effective_deadline() == math.inf
        return "same"

    with trio.testing.assert_no_checkpoints():
        result = await ending(look)

    assert result.content == (TextBlock("same"),)


def test_ctrl_c_stops_a_tool_that_spins() -> None:
    """Also when the run that called it is protected from Ctrl+C."""
    turns = 0

    @tool
    async def spin() -> None:
        nonlocal turns
        signal.raise_signal(signal.SIGINT)
        while True:
            turns += 1

    @trio.lowlevel.enable_ki_protection
    async def protected() -> None:
        await run_call(spin, read(spin), context(spin))

    with pytest.raises(KeyboardInterrupt):
        trio.run(protected)
    assert turns < 1_000_000

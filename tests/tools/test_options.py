"""``exception_handler`` and hints: what they do, and which are refused."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from alpineagents import Hints, State, TextBlock, Tool, ToolError, ToolInputError, ToolOutcome, tool
from alpineagents.record._frozen import FrozenDict, freeze_dict
from alpineagents.tools import Ending

from .calls import LateResults, context, ending, read


def refused(error: OSError | KeyError) -> str:
    return f"refused: {error}"


class TestExceptionHandler:
    @pytest.mark.parametrize("error", [OSError("disk full"), FileNotFoundError("disk full")])
    async def test_what_it_returns_is_an_error_result(self, error: Exception) -> None:
        @tool(exception_handler=refused)
        async def save() -> None:
            raise error

        assert await ending(save) == Ending((TextBlock("refused: disk full"),), ToolOutcome.ERROR, None, error)

    async def test_it_is_called_for_sync_tools_too(self) -> None:
        threads: list[threading.Thread] = []

        def seen(error: OSError) -> dict[str, str]:
            threads.append(threading.current_thread())
            return {"error": str(error)}

        @tool(exception_handler=seen)
        def save() -> None:
            raise OSError("disk full")

        result = await ending(save)

        assert (result.content, result.outcome) == ((TextBlock('{"error":"disk full"}'),), ToolOutcome.ERROR)
        assert threads == [threading.current_thread()]

    async def test_none_is_the_message_of_the_exception(self) -> None:
        def ignore(error: Exception) -> None: ...

        @tool(exception_handler=ignore)
        async def save() -> None:
            raise ValueError("no such user")

        assert (await ending(save)).content == (TextBlock("no such user"),)

    async def test_its_hint_may_name_what_is_local(self) -> None:
        class LocalError(Exception): ...

        def explain(error: LocalError) -> str:
            return "local"

        @tool(exception_handler=explain)
        async def save() -> None:
            raise LocalError

        assert (await ending(save)).content == (TextBlock("local"),)

    async def test_other_exceptions_stop_the_run(self) -> None:
        @tool(exception_handler=refused)
        async def save() -> None:
            raise ValueError("a bug")

        with pytest.raises(ValueError, match="a bug"):
            await ending(save)

    async def test_what_it_raises_stops_the_run(self) -> None:
        def broken(error: OSError) -> str:
            raise ZeroDivisionError

        @tool(exception_handler=broken)
        async def save() -> None:
            raise OSError("disk full")

        with pytest.raises(ZeroDivisionError) as raised:
            await ending(save)
        assert isinstance(raised.value.__context__, OSError)

    async def test_a_tool_error_that_it_raises_is_for_the_model(self) -> None:
        def said(error: OSError) -> str:
            raise ToolInputError("another disk, please")

        @tool(exception_handler=said)
        async def save() -> None:
            raise OSError("disk full")

        result = await ending(save)

        assert (result.content, result.outcome) == ((TextBlock("another disk, please"),), ToolOutcome.INPUT_ERROR)

    async def test_a_tool_error_of_the_tool_goes_past_it(self) -> None:
        def everything(error: Exception) -> str:
            return "handled"

        @tool(exception_handler=everything)
        async def save() -> None:
            raise ToolError("as it is")

        assert (await ending(save)).content == (TextBlock("as it is"),)

    async def test_a_result_that_is_no_json_is_not_for_it(self) -> None:
        def everything(error: Exception) -> str:
            return "handled"

        @tool(exception_handler=everything)
        async def save() -> bytes:
            return b""

        with pytest.raises(TypeError, match="bytes is not JSON"):
            await ending(save)

    async def test_a_group_is_for_who_says_so(self) -> None:
        def groups(error: ExceptionGroup) -> str:
            return f"{len(error.exceptions)} failed"

        @tool(exception_handler=groups)
        async def save() -> None:
            async with trio.open_nursery():
                raise OSError("disk full")

        assert (await ending(save)).content == (TextBlock("1 failed"),)

    async def test_a_late_exception_is_handled_in_its_thread(self, mock_clock: trio.testing.MockClock) -> None:
        go_on, recorded = threading.Event(), threading.Event()

        class Late(LateResults):
            def record(self, *args: Any) -> None:
                super().record(*args)
                recorded.set()

        @tool(exception_handler=refused, timeout=30)
        def save() -> None:
            trio.from_thread.run_sync(mock_clock.jump, 30)
            go_on.wait(5)
            raise OSError("disk full")

        late = Late()
        result = await ending(save, late)
        go_on.set()
        await trio.to_thread.run_sync(recorded.wait, 5)

        assert result.content == (TextBlock("(timed out after 30 s)"),)
        assert [record[:2] for record in late.records] == [("refused: disk full", ToolOutcome.ERROR)]

    async def test_a_tool_made_from_data_answers_itself(self) -> None:
        class Save(Tool):
            name = "save"
            description = "Save."
            input_schema = {"type": "object"}  # noqa: RUF012

            async def run(self, args: Any, state: State) -> None:
                raise OSError("disk full")

            def answer_to(self, error: Exception) -> object:
                return f"sorry: {error}" if isinstance(error, OSError) else super().answer_to(error)

        assert (await ending(Save())).content == (TextBlock("sorry: disk full"),)
        with pytest.raises(ValueError, match="x"):
            Save().answer_to(ValueError("x"))

    def test_a_bound_method_and_an_object_can_be_one(self) -> None:
        class Says:
            def __call__(self, error: OSError) -> str: ...  # type: ignore[empty-body]
            def method(self, error: OSError, more: int = 1) -> str: ...  # type: ignore[empty-body]

        for handler in (Says(), Says().method):
            tool(exception_handler=handler)(read_nothing)

    @pytest.mark.parametrize(
        ("handler", "said"),
        [
            (5, "must be a plain function, such as: def refused(error: OSError) -> str: ..."),
            (OSError, "must be a plain function"),
            (trio.sleep, "must be a plain function"),
            (lambda: "", "takes one argument, the exception: def refused"),
            (lambda a, b: "", "takes one argument"),
            (lambda *, a: "", "takes one argument"),
            (lambda error: "", "the type of its parameter says which exceptions it is for"),
        ],
    )
    def test_a_wrong_one_is_refused_at_once(self, handler: Any, said: str) -> None:
        with pytest.raises(TypeError, match=f"tool 'read_nothing', exception_handler:? {re.escape(said)}"):
            tool(exception_handler=handler)(read_nothing)

    @pytest.mark.parametrize("hint", [int, BaseException, OSError | int, "KeyboardInterrupt", Any])
    def test_one_for_what_is_no_exception_is_refused_at_once(self, hint: Any) -> None:
        def handler(error):
            return ""

        handler.__annotations__ = {"error": hint}

        with pytest.raises(TypeError, match="which is no Exception class or union of some"):
            tool(exception_handler=handler)(read_nothing)


def read_nothing() -> None: ...


def hints_of(**options: Any) -> Hints:
    return tool(**options)(read_nothing).hints


class TestHints:
    def test_the_worst_is_assumed(self) -> None:
        assert tool(read_nothing).hints == Hints(read_only=False, destructive=True, idempotent=False, open_world=True)

    def test_what_is_said_counts(self) -> None:
        assert hints_of(read_only=True) == Hints(read_only=True, destructive=False, idempotent=True, open_world=True)
        assert hints_of(destructive=False, open_world=False) == Hints(destructive=False, open_world=False)
        assert hints_of(read_only=False, idempotent=True).destructive

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"read_only": 1}, "tool 'read_nothing': read_only must be True or False (got 1)"),
            ({"open_world": "no"}, "open_world must be True or False (got 'no')"),
            ({"read_only": True, "destructive": True}, "a tool that is read_only can't be destructive"),
            ({"hints_for": 5}, "hints_for must be a plain function of the arguments, such as: lambda args: Hints("),
            ({"hints_for": trio.sleep}, "hints_for must be a plain function"),
            ({"hints_for": Hints}, "hints_for must be a plain function"),
            ({"strict": 1}, "strict must be True or False (got 1)"),
        ],
    )
    def test_a_wrong_one_is_refused_at_once(self, options: dict[str, Any], said: str) -> None:
        with pytest.raises(TypeError, match=re.escape(said)):
            hints_of(**options)

    def test_each_call_has_its_own(self) -> None:
        seen: list[dict[str, Any]] = []

        def hints_for(args: dict[str, Any]) -> Hints:
            seen.append(args)
            return Hints(read_only=args["dry_run"])

        @tool(hints_for=hints_for)
        def delete(state: State, path: str, dry_run: bool = False) -> None: ...

        assert delete.hints_for(args(path="a", dry_run="true")) == Hints(read_only=True)
        assert delete.hints_for(args(path="a")) == Hints()
        assert seen == [{"path": "a", "dry_run": True}, {"path": "a", "dry_run": False}]
        assert delete.hints == Hints()

    def test_without_hints_for_each_call_has_those_of_the_tool(self) -> None:
        one = tool(read_only=True)(read_nothing)

        assert one.hints_for(args()) is one.hints

    def test_a_tool_made_from_data_has_the_same_for_every_call(self) -> None:
        class Look(Tool):
            name = "look"
            description = "Look."
            input_schema = {"type": "object"}  # noqa: RUF012
            hints = Hints(read_only=True)

            async def run(self, args: Any, state: State) -> None: ...

        assert Look().hints_for(args()) == Hints(read_only=True)
        assert Look.from_mcp is False

    def test_something_else_than_hints_is_a_mistake(self) -> None:
        answer: Callable[[Any], Any] = lambda args: True  # noqa: E731

        with pytest.raises(TypeError, match=r"hints_for of tool 'read_nothing' returned True, not Hints\(...\)"):
            tool(hints_for=answer)(read_nothing).hints_for(args())

    def test_a_method_has_hints_for_its_object(self) -> None:
        class Box:
            @tool(hints_for=lambda args: Hints(read_only=args["look"]))
            def open(self, look: bool = True) -> None: ...

        assert Box().open.hints_for(args()).read_only
        assert read(Box().open) == {}
        assert context(Box().open).on_progress is None


def args(**given: Any) -> FrozenDict:
    return freeze_dict(given)

"""ToolLaws: the test class that any Tool must pass, ours and yours."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import trio

from ..._contracts import Hints, Tool
from ..._errors import ToolInputError
from ...record._blocks import ToolCall
from ...record._entries import ToolOutcome, ToolResultEntry
from ...record._frozen import FrozenDict, freeze_dict
from ...record._messages import Message
from ...run import Agent
from ...state import State
from ...tools import read_args
from .._fake_model import FakeModel
from ._kit import cancelled_after, law, leave_out, moments, system_tasks

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_JUNK: tuple[object, ...] = (None, True, 0, -1, 1e300, 2**70, "", "\0", "x" * 10_000, [], [[]], {}, {"a": {"b": []}})


class ToolLaws:
    """What a Tool must do, as tests: subclass it beside two fixtures. See ``ModelLaws`` for how they run.

    * ``tool``: a Tool, also one made with ``@tool``, or an Agent as a tool.
    * ``calls``: arguments that it takes, a list of dicts. It is called with each of them, several times.

    And one that makes one more law run:

    * ``wrong``: arguments that it refuses, a list of dicts; say ``wrong = None`` where it takes everything.

    Example::

        class TestReadFile(ToolLaws):
            @pytest.fixture
            def tool(self):
                return read_file

            @pytest.fixture
            def calls(self):
                return [{"path": "a.txt"}, {"path": "b.txt", "first_line": 3}]
    """

    def __init_subclass__(cls) -> None:
        """Leave out the laws that need what this tool can't have."""
        leave_out(cls, ToolLaws, ("wrong",))

    @pytest.fixture
    def wrong(self) -> Sequence[Mapping[str, Any]]:
        """Arguments that it refuses."""
        pytest.skip("needs the fixture `wrong`: arguments that the tool refuses, a list of dicts")

    # What the model is told of it

    @law
    def test_its_name_is_one_that_providers_take(self, tool: Tool) -> None:
        """``name`` has 1 to 64 letters, digits, _ and -."""
        assert _NAME.fullmatch(tool.name), tool.name

    @law
    def test_its_description_says_something(self, tool: Tool) -> None:
        """``description`` is text for the model, not blank."""
        assert tool.description.strip()

    @law
    def test_its_schema_is_that_of_an_object(self, tool: Tool) -> None:
        """``input_schema`` is JSON: a JSON Schema of an object, whose required properties it has."""
        schema = json.loads(json.dumps(tool.input_schema))

        assert schema["type"] == "object"
        assert isinstance(schema.get("properties", {}), dict)
        assert set(schema.get("required", [])) <= set(schema.get("properties", {}))

    @law
    def test_its_schema_is_a_json_schema(self, tool: Tool) -> None:
        """``input_schema`` keeps to draft 2020-12. Checked where jsonschema is installed."""
        jsonschema = pytest.importorskip("jsonschema")

        jsonschema.Draft202012Validator.check_schema(json.loads(json.dumps(tool.input_schema)))

    @law
    def test_its_settings_are_of_the_right_kind(self, tool: Tool) -> None:
        """``timeout`` is seconds or None, ``max_result_bytes`` a number, both more than 0; ``hints`` are Hints."""
        assert tool.timeout is None or tool.timeout > 0
        assert tool.max_result_bytes > 0
        assert isinstance(tool.hints, Hints)
        assert {type(each) for each in (tool.parallel, tool.abandon_on_cancel, tool.is_subagent, tool.from_mcp)} == {
            bool
        }

    # Arguments

    @law
    def test_it_takes_what_it_is_called_with(self, tool: Tool, calls: Sequence[Mapping[str, Any]]) -> None:
        """``read_args`` takes arguments that are right, and doesn't change them: they are the record's."""
        assert calls
        for args in calls:
            frozen = freeze_dict(dict(args))
            read_args(tool, frozen)
            read_args(tool, frozen)

            assert frozen == args

    @law
    def test_what_it_is_called_with_fits_its_schema(self, tool: Tool, calls: Sequence[Mapping[str, Any]]) -> None:
        """Arguments that are right fit ``input_schema``: the model knows nothing else. With jsonschema installed."""
        jsonschema = pytest.importorskip("jsonschema")
        validator = jsonschema.Draft202012Validator(json.loads(json.dumps(tool.input_schema)))

        for args in calls:
            assert [error.message for error in validator.iter_errors(args)] == []

    @law
    def test_wrong_arguments_are_said_to_be_wrong(self, tool: Tool, wrong: Sequence[Mapping[str, Any]]) -> None:
        """``read_args`` raises a ToolInputError for arguments that are wrong, with words that a model can use."""
        assert wrong
        for args in wrong:
            with pytest.raises(ToolInputError) as caught:
                read_args(tool, freeze_dict(dict(args)))
            assert str(caught.value).strip()

    @law
    def test_any_arguments_are_taken_or_said_to_be_wrong(self, tool: Tool, calls: Sequence[Mapping[str, Any]]) -> None:
        """Whatever a model sends, ``read_args`` takes it or raises a ToolInputError: nothing else stops the run."""
        names = [*tool.input_schema.get("properties", {}), "surprise"]
        some: list[dict[str, Any]] = [{}, *[{name: junk} for name in names for junk in _JUNK]]
        some += [{**args, name: junk} for args in calls for name in names for junk in _JUNK]

        for args in some:
            with suppress(ToolInputError):
                read_args(tool, freeze_dict(args))

    @law
    def test_its_hints_can_be_had_for_a_call(self, tool: Tool, calls: Sequence[Mapping[str, Any]]) -> None:
        """``hints_for`` says what a call with these arguments may do."""
        for args in calls:
            assert isinstance(tool.hints_for(freeze_dict(dict(args))), Hints)

    # Calls

    @law
    async def test_every_call_gets_a_result(self, tool: Tool, calls: Sequence[Mapping[str, Any]]) -> None:
        """A call with right arguments ends ``done``, or ``error`` with words for the model; it never stops the run."""
        for args in calls:
            [result] = await _called(tool, [args])

            assert result.outcome in (ToolOutcome.DONE, ToolOutcome.ERROR)
            assert result.content

    @law
    async def test_calls_at_the_same_time_do_not_meet(self, tool: Tool, calls: Sequence[Mapping[str, Any]]) -> None:
        """Several calls in one reply get a result each, as if each were alone."""
        results = await _called(tool, [*calls, *calls])

        assert len(results) == 2 * len(calls)
        assert {result.outcome for result in results} <= {ToolOutcome.DONE, ToolOutcome.ERROR}

    @law
    async def test_it_works_for_many_states_at_once(self, tool: Tool, calls: Sequence[Mapping[str, Any]]) -> None:
        """One tool serves many Agents at a time."""
        found: list[Sequence[ToolResultEntry]] = []

        async def call() -> None:
            found.append(await _called(tool, calls[:1]))

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(call)

        assert [len(results) for results in found] == [1] * 5

    @law
    async def test_a_call_cancelled_at_any_moment_is_closed(
        self, tool: Tool, calls: Sequence[Mapping[str, Any]]
    ) -> None:
        """A call may be cancelled wherever it is: it ends then, and the next one works."""
        for rounds in moments():
            state = _state()
            if await cancelled_after(rounds, partial(_run, tool, calls[:1], state)):
                break
            assert not state.pending_calls
            assert len(await _called(tool, calls[:1])) == 1

    @law
    async def test_a_call_leaves_no_task_behind(self, tool: Tool, calls: Sequence[Mapping[str, Any]]) -> None:
        """No task of the tool's goes on, hidden among trio's own, when the call has ended."""
        await _called(tool, calls[:1])
        before = system_tasks()
        await _called(tool, calls[:1])

        assert system_tasks() == before

    @law
    def test_it_works_in_one_trio_run_after_another(self, tool: Tool, calls: Sequence[Mapping[str, Any]]) -> None:
        """A tool outlives a trio run: it works in the next one."""
        for _ in range(3):
            assert len(trio.run(_called, tool, calls[:1])) == 1


def _state() -> State:
    return State(messages=[Message.user("Go on.")])


async def _run(tool: Tool, calls: Sequence[Mapping[str, Any]], state: State) -> None:
    asked = [ToolCall(f"call_{number}", tool.name, FrozenDict(args)) for number, args in enumerate(calls)]
    agent = Agent(model=FakeModel([list(asked), "Done."]), tools=[tool])
    await agent.run(state)


async def _called(tool: Tool, calls: Sequence[Mapping[str, Any]]) -> Sequence[ToolResultEntry]:
    """Return the results that a run gets of these calls, all of one reply."""
    state = _state()
    await _run(tool, calls, state)
    assert State(history=state.history).snapshot() == state.snapshot()
    return [entry for entry in state.history if isinstance(entry, ToolResultEntry) and not entry.late]

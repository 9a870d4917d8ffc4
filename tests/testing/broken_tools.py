"""Tools that break one law each, and one that breaks none. Run by test_laws.py in a process of its own."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest
import trio

from alpineagents import State, Tool, ToolInputError
from alpineagents.testing import ToolLaws

BROKEN: dict[type[HonestTool], list[str]] = {}
"""Each with the laws it must fail."""


def breaks(*laws: str) -> Any:
    def register(broken: type[HonestTool]) -> type[HonestTool]:
        BROKEN[broken] = [f"test_{law}" for law in laws]
        return broken

    return register


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


class HonestTool(Tool):
    """Does what a tool must do."""

    name = "double"
    description = "Double a number."
    input_schema = MappingProxyType(SCHEMA).copy()

    def read_args(self, args: Any) -> Any:
        if set(args) != {"n"} or type(args["n"]) is not int:
            raise ToolInputError("n must be a number, and nothing else is taken")
        return args["n"]

    async def run(self, args: Any, state: State) -> object:
        await trio.lowlevel.checkpoint()
        return args * 2


@breaks("its_name_is_one_that_providers_take")
class HasABlankInItsName(HonestTool):
    name = "double it"


@breaks("its_description_says_something")
class SaysNothing(HonestTool):
    description = " "


@breaks("its_schema_is_that_of_an_object")
class TakesAList(HonestTool):
    input_schema = MappingProxyType({"type": "array", "properties": SCHEMA["properties"]}).copy()


@breaks("its_schema_is_that_of_an_object")
class RequiresWhatItHasNot(HonestTool):
    input_schema = MappingProxyType({**SCHEMA, "required": ["n", "m"]}).copy()


@breaks("its_schema_is_a_json_schema")
class HasATypeOfItsOwn(HonestTool):
    input_schema = MappingProxyType({**SCHEMA, "properties": {"n": {"type": "int"}}}).copy()


@breaks("its_settings_are_of_the_right_kind")
class NeverHasTime(HonestTool):
    timeout = 0.0


@breaks("it_takes_what_it_is_called_with", "every_call_gets_a_result")
class RefusesEverything(HonestTool):
    def read_args(self, args):
        raise ToolInputError("no")


@breaks("it_takes_what_it_is_called_with")
class ChangesTheArguments(HonestTool):
    def read_args(self, args):
        dict.pop(args, "n", None)
        return 1


@breaks("what_it_is_called_with_fits_its_schema")
class SaysAnotherSchema(HonestTool):
    input_schema = MappingProxyType({**SCHEMA, "properties": {"n": {"type": "string"}}}).copy()


@breaks("wrong_arguments_are_said_to_be_wrong")
class TakesEverything(HonestTool):
    def read_args(self, args):
        return 1


@breaks("any_arguments_are_taken_or_said_to_be_wrong")
class StumblesOverArguments(HonestTool):
    def read_args(self, args):
        n = int(args["n"])
        return super().read_args(args) and n


@breaks("its_hints_can_be_had_for_a_call")
class HasNoHints(HonestTool):
    def hints_for(self, args):
        return {"read_only": True}


@breaks("every_call_gets_a_result")
class ReturnsWhatIsNoJson(HonestTool):
    async def run(self, args, state):
        return {1, 2}


@breaks("calls_at_the_same_time_do_not_meet", "it_works_for_many_states_at_once")
class CallsMeet(HonestTool):
    running = 0

    async def run(self, args, state):
        self.running += 1
        try:
            await trio.testing.wait_all_tasks_blocked()
            assert self.running == 1, "somebody else is at it"
        finally:
            self.running -= 1


@breaks("a_call_cancelled_at_any_moment_is_closed")
class IsHeldForEver(HonestTool):
    is_held = False

    async def run(self, args, state):
        assert not self.is_held, "it is held"
        self.is_held = True
        for _ in range(20):
            await trio.lowlevel.checkpoint()
        self.is_held = False


@breaks("a_call_leaves_no_task_behind")
class StartsATask(HonestTool):
    async def run(self, args, state):
        trio.lowlevel.spawn_system_task(trio.sleep, 0.5)
        return await super().run(args, state)


@breaks("it_works_in_one_trio_run_after_another")
class IsBoundToItsFirstRun(HonestTool):
    first = None

    async def run(self, args, state):
        self.first = self.first or trio.lowlevel.current_trio_token()
        if self.first is not trio.lowlevel.current_trio_token():
            raise trio.RunFinishedError
        return await super().run(args, state)


def tests_of(kind: type[HonestTool]) -> type[ToolLaws]:
    """The class a user would write."""

    class Tests(ToolLaws):
        @pytest.fixture
        def tool(self) -> Tool:
            return kind()

        @pytest.fixture
        def calls(self) -> list[dict[str, Any]]:
            return [{"n": 1}, {"n": 2}]

        @pytest.fixture
        def wrong(self) -> list[dict[str, Any]]:
            return [{}, {"n": "x"}, {"n": 1, "m": 2}]

    return Tests


TestHonestTool = tests_of(HonestTool)
globals().update({f"Test{kind.__name__}": tests_of(kind) for kind in BROKEN})

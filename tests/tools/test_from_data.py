"""Tools made from data: their arguments are held to their ``input_schema``."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest

from alpineagents import Agent, Hints, Message, State, Tool, ToolInputError
from alpineagents.record._frozen import FrozenDict, freeze_dict
from alpineagents.testing import FakeModel, tool_call
from alpineagents.tools import read_args


class Shout(Tool):
    name = "shout"
    description = "Shout."

    def __init__(self, input_schema: Any) -> None:
        self.input_schema = input_schema

    async def run(self, args: Any, state: State) -> str:
        return f"{args['what']}!"


WHAT = {
    "type": "object",
    "properties": {"what": {"type": "string"}, "times": {"type": "integer"}},
    "required": ["what"],
    "additionalProperties": False,
}


def refusal(schema: Any, **args: Any) -> str:
    with pytest.raises(ToolInputError) as refused:
        read_args(Shout(schema), freeze_dict(args))
    return str(refused.value)


def test_what_fits_arrives_as_it_is() -> None:
    args = freeze_dict({"what": "hey"})

    assert read_args(Shout(WHAT), args) is args


def test_every_problem_is_listed() -> None:
    first, *problems = refusal(WHAT, times="x", more=1).splitlines()

    assert first == "wrong arguments, 3 problems:"
    assert sorted(problems) == [
        "- 'what' is a required property",
        "- Additional properties are not allowed ('more' was unexpected)",
        "- times: 'x' is not of type 'integer'",
    ]


def test_a_message_stays_short() -> None:
    assert len(refusal({"type": "object", "maxProperties": 0}, what="x" * 10_000)) < 400


def test_an_older_draft_is_read_as_such() -> None:
    old = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"what": {"type": "array", "items": [{"type": "string"}], "additionalItems": False}},
    }

    assert "Additional items are not allowed" in refusal(old, what=["a", "b"])


@pytest.mark.parametrize(
    "schema", [{"type": "text"}, {"$ref": "https://example.invalid/schema.json"}, {"$ref": "#/$defs/missing"}]
)
def test_a_schema_that_can_not_be_used_stops_the_run_and_fetches_nothing(schema: Any) -> None:
    with pytest.raises(TypeError, match="the input_schema of tool 'shout' can't be used: "):
        read_args(Shout(schema), freeze_dict({}))


def test_a_tool_that_reads_its_arguments_itself_is_left_alone() -> None:
    class Loud(Shout):
        def read_args(self, args: FrozenDict) -> Any:
            return {"what": str(args["what"]).upper()}

    assert read_args(Loud(WHAT), freeze_dict({"what": 3})) == {"what": "3"}


def test_without_jsonschema_nothing_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema.validators", None)
    args = freeze_dict({"times": "x"})

    assert read_args(Shout(WHAT), args) is args


async def test_the_model_is_told_and_the_run_goes_on() -> None:
    model = FakeModel([tool_call("shout", what=3), tool_call("shout", what="hey"), "ok"])
    state = State(messages=[Message.user("go")])

    await Agent(model=model, tools=[Shout(WHAT)]).run(state)

    entries = [entry for entry in state.history if entry.kind == "tool_result"]
    assert [(str(entry.outcome), entry.content[0].text) for entry in entries] == [
        ("input_error", "wrong arguments: what: 3 is not of type 'string'"),
        ("done", "hey!"),
    ]


@pytest.mark.parametrize(
    ("field", "value", "legal"),
    [
        ("name", None, "text"),
        ("description", None, "text"),
        ("input_schema", [WHAT], "a dict, the JSON Schema of an object"),
        ("input_schema", {"type": "array", "items": WHAT}, "a dict, the JSON Schema of an object"),
        ("parallel", 1, "True or False"),
        ("abandon_on_cancel", "no", "True or False"),
        ("timeout", "30", "seconds, more than 0, or None"),
        ("timeout", 0, "seconds, more than 0, or None"),
        ("timeout", True, "seconds, more than 0, or None"),
        ("timeout", float("nan"), "seconds, more than 0, or None"),
        ("max_result_bytes", 1.5, "an int, more than 0"),
        ("max_result_bytes", -1, "an int, more than 0"),
        ("hints", {"read_only": True}, "Hints(...)"),
    ],
)
def test_what_it_has_wrong_is_found_when_the_agent_is_made(field: str, value: object, legal: str) -> None:
    tool = Shout(WHAT)
    setattr(tool, field, value)

    with pytest.raises(TypeError, match=re.escape(f"tool Shout: {field} must be {legal} (got {value!r:.100})")):
        Agent(model=FakeModel([]), tools=[tool])


def test_what_it_lacks_is_found_when_the_agent_is_made() -> None:
    class Nameless(Tool):
        async def run(self, args: Any, state: State) -> None: ...

    with pytest.raises(TypeError, match=r"tool Nameless: name must be text \(got None\)"):
        Agent(model=FakeModel([]), tools=[Nameless()])


async def test_a_run_that_is_a_plain_function_is_told_how_it_should_be() -> None:
    class Plain(Shout):
        def run(self, args: Any, state: State) -> str:  # type: ignore[override]
            return "hey"

    agent = Agent(model=FakeModel([tool_call("shout", what="hey")]), tools=[Plain(WHAT)])

    with pytest.raises(TypeError, match=r"tool Plain: run must be async: async def run\(self, args, state\)"):
        await agent.run("go")


async def test_a_run_may_pass_on_what_is_to_be_awaited() -> None:
    class Passing(Shout):
        def run(self, args: Any, state: State) -> Any:
            return super().run(args, state)

    model = FakeModel([tool_call("shout", what="hey"), "ok"])
    state = State(messages=[Message.user("go")])

    await Agent(model=model, tools=[Passing(WHAT)]).run(state)

    assert state.messages[2].blocks[0].content[0].text == "hey!"  # type: ignore[union-attr]


def test_what_it_has_right_is_left_alone() -> None:
    tool = Shout(WHAT)
    tool.timeout, tool.max_result_bytes, tool.parallel, tool.hints = 0.5, 1, False, Hints(read_only=True)

    assert Agent(model=FakeModel([]), tools=[tool]).tool_map == {"shout": tool}

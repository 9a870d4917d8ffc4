"""The laws of tools, for ours: functions, methods, tools from data, Agents as tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Annotated, Any, Literal

import attrs
import pytest
import trio

from alpineagents import Agent, State, Tool, ToolError, tool
from alpineagents.testing import FakeModel, ToolLaws

Calls = Sequence[Mapping[str, Any]]


@attrs.frozen
class Place:
    x: int
    y: int = 0
    tags: list[str] = attrs.field(factory=list)


@tool
async def everything(
    a: int,
    b: Annotated[str, "Some text."] = "",
    c: Place | None = None,
    d: dict[str, list[date]] | None = None,
    e: Literal["x", "y"] = "x",
    *,
    state: State,
) -> dict[str, object]:
    """Take all sorts of things."""
    await trio.lowlevel.checkpoint()
    return {"a": a, "b": b, "state": state.id}


@tool(timeout=5, read_only=True)
def in_thread(text: str) -> str:
    """Work in a thread."""
    if text == "fail":
        raise ToolError("no")
    return text


@tool(parallel=False)
async def alone() -> None:
    """Take nothing, give nothing."""


class Box:
    @tool
    async def open(self, by: float) -> list[float]:
        """Open it."""
        return [by]


class FromData(Tool):
    name = "from_data"
    description = "Made from data."

    def __init__(self) -> None:
        self.input_schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    async def run(self, args: Any, state: State) -> object:
        await trio.lowlevel.checkpoint()
        return args["n"] + 1


class TestEverything(ToolLaws):
    @pytest.fixture
    def tool(self) -> Tool:
        return everything

    @pytest.fixture
    def calls(self) -> Calls:
        return [{"a": 1}, {"a": 2, "b": "x", "c": {"x": 1}, "d": {"k": ["2026-12-02"]}, "e": "y"}]

    @pytest.fixture
    def wrong(self) -> Calls:
        return [{}, {"a": "x"}, {"a": 1, "e": "z"}, {"a": 1, "more": 2}, {"a": 1, "c": {"y": 1}}]


class TestInThread(ToolLaws):
    @pytest.fixture
    def tool(self) -> Tool:
        return in_thread

    @pytest.fixture
    def calls(self) -> Calls:
        return [{"text": "x"}, {"text": "fail"}]

    @pytest.fixture
    def wrong(self) -> Calls:
        return [{}, {"text": 1}]


class TestAlone(ToolLaws):
    wrong = None

    @pytest.fixture
    def tool(self) -> Tool:
        return alone

    @pytest.fixture
    def calls(self) -> Calls:
        return [{}]


class TestMethod(ToolLaws):
    @pytest.fixture
    def tool(self) -> Tool:
        return Box().open

    @pytest.fixture
    def calls(self) -> Calls:
        return [{"by": 1.5}, {"by": 2}]

    @pytest.fixture
    def wrong(self) -> Calls:
        return [{"by": []}]


class TestFromData(ToolLaws):
    @pytest.fixture
    def tool(self) -> Tool:
        return FromData()

    @pytest.fixture
    def calls(self) -> Calls:
        return [{"n": 1}]

    @pytest.fixture
    def wrong(self) -> Calls:
        return [{"n": "x"}, {}]


class TestAgent(ToolLaws):
    @pytest.fixture
    def tool(self) -> Tool:
        part = Agent(model=FakeModel(lambda request: "Done."), name="part", description="Does a part.")
        return Agent(model=FakeModel(), tools=[part]).tool_map["part"]

    @pytest.fixture
    def calls(self) -> Calls:
        return [{"prompt": "Do it."}]

    @pytest.fixture
    def wrong(self) -> Calls:
        return [{}, {"prompt": " "}]

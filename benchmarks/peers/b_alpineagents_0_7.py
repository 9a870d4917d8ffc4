"""The public package ``alpineagents`` 0.7: another library of this name, on threads and asyncio."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from alpineagents.loop import adefault_loop, default_loop
from alpineagents.models.base import Model
from alpineagents.types import Reply, TextBlock, ToolCall, Usage
from common import THINK, TURNS, WARM_TURNS, Measured, arguments, folder, report_saved
from stream_server import pieces, serving

from alpineagents import Agent, FileStore, Message, State, tool


class Counting(Model):
    """Asks for tool calls until the request holds the results of *turns* turns, then answers."""

    name, provider, context_window = "fake", "fake", 10**9

    def __init__(self, turns: int, calls: int, delay: float, tool: str) -> None:
        self.turns, self.calls, self.delay, self.tool = turns, calls, delay, tool

    def reply(self, request: Any) -> Reply:
        n = len(request.messages)
        blocks: tuple[Any, ...] = (TextBlock("done"),)
        done = (n - 1) // 2 >= self.turns
        if not done:
            blocks = tuple(ToolCall(name=self.tool, args={"a": n, "b": i}, id=f"c{n}_{i}") for i in range(self.calls))
        return Reply(
            message=Message("assistant", blocks),
            usage=Usage(10, 10, requests=1),
            context_tokens=20,
            stop_reason="end_turn" if done else "tool_use",
            model="fake",
        )

    def respond(self, request: Any, on_text: Any = None, on_event: Any = None) -> Reply:
        if self.delay:
            time.sleep(self.delay)
        return self.reply(request)

    async def arespond(self, request: Any, on_text: Any = None, on_event: Any = None) -> Reply:
        if self.delay:
            await asyncio.sleep(self.delay)
        return self.reply(request)


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def slow(a: int, b: int) -> int:
    """Add two numbers, slowly."""
    time.sleep(0.02)
    return a + b


@tool
async def aadd(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def aslow(a: int, b: int) -> int:
    """Add two numbers, slowly."""
    await asyncio.sleep(0.02)
    return a + b


workload, size, mode = arguments()
PREFIX = "a" if mode == "async" else ""


def agent(turns: int, calls: int = 1, delay: float = 0.0, name: str = "add") -> Agent:
    loop = (adefault_loop if mode == "async" else default_loop).copy(limit=10**6)
    model = Counting(turns, calls, delay, PREFIX + name)
    return Agent(model, tools=[add, slow, aadd, aslow], loop=loop, reporter=None, human=None)


def new() -> State:
    return State(messages=[Message.user("go")])


def run(one: Agent, *states: State) -> None:
    async def together() -> None:
        await asyncio.gather(*(one.arun(state) for state in states))

    if mode == "async":
        asyncio.run(together())
    else:
        for state in states:
            one.run(state)


run(agent(WARM_TURNS), new())
if workload == "W1":
    one, state = agent(size), new()
    with Measured():
        run(one, state)
elif workload == "W2":
    one, states = agent(TURNS, delay=THINK), []
    with Measured(agents=size):
        states.extend(new() for _ in range(size))
        run(one, *states)
    assert all(state.answer == "done" for state in states)
elif workload == "W4":
    with folder() as place:
        state = new()
        with Measured(quiet=True) as saving:
            run(agent(size).copy(store=FileStore(str(place))), state)
        with Measured(quiet=True) as loading:
            loaded = FileStore(str(place)).load(state.id)
        assert loaded.answer == "done"
        report_saved(saving, loading, place)
elif workload == "W5":
    from alpineagents.models.openai_compatible import OpenAICompatible
    from alpineagents.reporter import Reporter

    texts: list[Any] = []

    class Texts(Reporter):
        """Collects the pieces of text."""

        def on_text(self, *args: Any) -> None:
            texts.append(args)

    with serving(size) as origin:
        model = OpenAICompatible("m", base_url=f"{origin}/v1", api_key="x")
        one = Agent(model, loop=adefault_loop, reporter=Texts(), human=None)
        run(one, new())  # It imports what it needs.
        texts.clear()
        state = new()
        with Measured():
            run(one, state)
    assert len(texts) == size
    assert state.answer == "".join(pieces(size))
elif workload == "W6":
    one, state = agent(1, calls=size, name="slow"), new()
    with Measured():
        run(one, state)
    assert state.answer == "done"

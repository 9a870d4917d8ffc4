"""The same agent with this library: a stateless model, two tools, no store."""

from __future__ import annotations

from typing import Any, final

import trio

from alpineagents import (
    Agent,
    Message,
    Model,
    Reply,
    Request,
    State,
    TextBlock,
    ToolCall,
    Usage,
    default_loop,
    tool,
)

USAGE = Usage(input_tokens=10, output_tokens=10, requests=1)
DONE = Reply((TextBlock("done"),), "fake", "stop", USAGE)


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def slow(a: int, b: int) -> int:
    """Add two numbers, slowly."""
    await trio.sleep(0.02)
    return a + b


@final
class Counting(Model):
    """Asks for tool calls until the request holds the results of *turns* turns, then answers."""

    name = "fake/fake"
    context_window = 10**9

    def __init__(self, turns: int, calls: int = 1, delay: float = 0.0, tool: str = "add") -> None:
        self.turns, self.calls, self.delay, self.tool = turns, calls, delay, tool

    def reply(self, request: Request) -> Reply:
        """Return the reply, which follows from the number of messages."""
        n = len(request.messages)
        if (n - 1) // 2 >= self.turns:
            return DONE
        asked = [ToolCall(f"c{n}_{i}", self.tool, {"a": n, "b": i}) for i in range(self.calls)]
        return Reply(tuple(asked), "fake", "tool_calls", USAGE)

    async def respond(self, request: Request, emit: Any) -> Reply:
        if self.delay:
            await trio.sleep(self.delay)
        else:
            await trio.lowlevel.checkpoint()
        return self.reply(request)


def agent(model: Model, *tools: Any) -> Agent:
    """Return an Agent that runs as long as it takes."""
    loop = default_loop.copy(limit=10**6)
    return Agent(model=model, tools=tools or (add, slow), loop=loop, max_parallel_tools=200)


def conversation() -> State:
    """Return a State with one message."""
    return State(messages=[Message.user("go")])

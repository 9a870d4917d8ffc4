"""pydantic-ai, on asyncio. It has no store: to save, a program dumps all messages after each turn."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from common import THINK, TURNS, WARM_TURNS, Measured, arguments, folder, report_saved
from pydantic_ai import Agent, UsageLimits
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

NO_LIMIT = UsageLimits(request_limit=None)


def agent(turns: int, calls: int = 1, delay: float = 0.0, tool: str = "add") -> Agent[None, str]:
    """Return an agent whose model asks for calls until it has seen the results of *turns* turns."""

    async def reply(messages: list[Any], info: AgentInfo) -> ModelResponse:
        if delay:
            await asyncio.sleep(delay)
        n = len(messages)
        parts: list[Any] = [TextPart("done")]
        if (n - 1) // 2 < turns:
            parts = [ToolCallPart(tool, {"a": n, "b": i}, tool_call_id=f"c{n}_{i}") for i in range(calls)]
        return ModelResponse(parts=parts, usage=RequestUsage(input_tokens=10, output_tokens=10))

    return Agent(FunctionModel(reply), tools=[add, slow] if mode == "async" else [add_sync, slow_sync])


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def slow(a: int, b: int) -> int:
    """Add two numbers, slowly."""
    await asyncio.sleep(0.02)
    return a + b


def add_sync(a: int, b: int) -> int:
    """Add two numbers, in a thread."""
    return a + b


def slow_sync(a: int, b: int) -> int:
    """Add two numbers, slowly, in a thread."""
    time.sleep(0.02)
    return a + b


async def run(one: Agent[None, str]) -> int:
    """Run it and return the number of messages."""
    result = await one.run("go", usage_limits=NO_LIMIT)
    assert result.output == "done"
    return len(result.all_messages())


async def run_saved(one: Agent[None, str], path: Path) -> None:
    async with one.iter("go", usage_limits=NO_LIMIT) as running:
        async for node in running:
            if Agent.is_call_tools_node(node):
                saved = ModelMessagesTypeAdapter.dump_json(running.all_messages())
                path.write_bytes(saved)  # noqa: ASYNC240  # what its users do


async def main() -> None:
    prefix = "" if mode == "async" else "_sync"
    await run(agent(WARM_TURNS, tool="add" + prefix))
    if workload == "W1":
        one = agent(size, tool="add" + prefix)
        with Measured():
            assert await run(one) == 2 * size + 2
    elif workload == "W2":
        one = agent(TURNS, delay=THINK)
        with Measured(agents=size):
            await asyncio.gather(*(run(one) for _ in range(size)))
    elif workload == "W4":
        with folder() as place:
            with Measured(quiet=True) as saving:
                await run_saved(agent(size), place / "messages.json")
            with Measured(quiet=True) as loading:
                ModelMessagesTypeAdapter.validate_json((place / "messages.json").read_bytes())
            report_saved(saving, loading, place)
    elif workload == "W6":
        one = agent(1, calls=size, tool="slow" + prefix)
        with Measured():
            await run(one)


workload, size, mode = arguments()
asyncio.run(main())

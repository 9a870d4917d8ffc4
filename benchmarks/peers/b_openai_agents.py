"""openai-agents, on asyncio; W4 with its SQLiteSession. Tracing, which would send what happens away, is off."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from agents import (
    Agent,
    Model,
    ModelResponse,
    Runner,
    SQLiteSession,
    Usage,
    function_tool,
    set_tracing_disabled,
)
from common import THINK, TURNS, WARM_TURNS, Measured, arguments, folder, report_saved
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

set_tracing_disabled(True)


class Counting(Model):
    """Asks for tool calls until the request holds the results of *turns* turns, then answers."""

    def __init__(self, turns: int, calls: int, delay: float, tool: str) -> None:
        self.turns, self.calls, self.delay, self.tool = turns, calls, delay, tool

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **options: Any) -> ModelResponse:
        if self.delay:
            await asyncio.sleep(self.delay)
        n = 1 if isinstance(input, str) else len(input)
        text = ResponseOutputText(text="done", type="output_text", annotations=[])
        output: list[Any] = [
            ResponseOutputMessage(id=f"m{n}", role="assistant", status="completed", type="message", content=[text])
        ]
        if (n - 1) // 2 < self.turns:
            output = [
                ResponseFunctionToolCall(
                    call_id=f"c{n}_{i}", name=self.tool, type="function_call", arguments=f'{{"a":{n},"b":{i}}}'
                )
                for i in range(self.calls)
            ]
        usage = Usage(requests=1, input_tokens=10, output_tokens=10, total_tokens=20)
        return ModelResponse(output=output, usage=usage, response_id=None)

    def stream_response(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        raise NotImplementedError  # nothing is streamed here


@function_tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@function_tool
async def slow(a: int, b: int) -> int:
    """Add two numbers, slowly."""
    await asyncio.sleep(0.02)
    return a + b


@function_tool
def add_sync(a: int, b: int) -> int:
    """Add two numbers, in a thread."""
    return a + b


@function_tool
def slow_sync(a: int, b: int) -> int:
    """Add two numbers, slowly, in a thread."""
    time.sleep(0.02)
    return a + b


def agent(turns: int, calls: int = 1, delay: float = 0.0, tool: str = "add") -> Agent[Any]:
    model = Counting(turns, calls, delay, tool if mode == "async" else f"{tool}_sync")
    return Agent(name="a", model=model, tools=[add, slow, add_sync, slow_sync])


async def run(one: Agent[Any], **options: Any) -> int:
    """Run it and return the number of new items."""
    result = await Runner.run(one, "go", max_turns=10**6, **options)
    assert result.final_output == "done"
    return len(result.new_items)


async def main() -> None:
    await run(agent(WARM_TURNS))
    if workload == "W1":
        one = agent(size)
        with Measured():
            assert await run(one) == 2 * size + 1
    elif workload == "W2":
        one = agent(TURNS, delay=THINK)
        with Measured(agents=size):
            await asyncio.gather(*(run(one) for _ in range(size)))
    elif workload == "W4":
        with folder() as place:
            session = SQLiteSession("x", place / "session.db")
            with Measured(quiet=True) as saving:
                await run(agent(size), session=session)
            session.close()
            session = SQLiteSession("x", place / "session.db")
            with Measured(quiet=True) as loading:
                items = await session.get_items()
            session.close()
            assert len(items) == 2 * size + 2
            report_saved(saving, loading, place)
    elif workload == "W6":
        one = agent(1, calls=size, tool="slow")
        with Measured():
            await run(one)


workload, size, mode = arguments()
asyncio.run(main())

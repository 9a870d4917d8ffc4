"""inspect-ai's generate loop, outside an evaluation: no log, no sandbox. It has no store for conversations."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from common import THINK, TURNS, WARM_TURNS, Measured, arguments
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessageAssistant,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    get_model,
    modelapi,
)
from inspect_ai.tool import Tool, ToolCall, tool


@modelapi("counting")
class Counting(ModelAPI):
    """Asks for tool calls until the request holds the results of *turns* turns, then answers."""

    def __init__(self, model_name: str, turns: int, calls: int, delay: float, tool: str, **options: Any) -> None:
        super().__init__(model_name)
        self.turns, self.calls, self.delay, self.tool = turns, calls, delay, tool

    def max_connections(self) -> int:
        return 10**5

    async def generate(self, input: list[Any], *args: Any, **options: Any) -> ModelOutput:
        if self.delay:
            await asyncio.sleep(self.delay)
        n, message = len(input), ChatMessageAssistant(content="done")
        # The prompt, then a reply and the results of its calls in each turn.
        if (n - 1) // (1 + self.calls) < self.turns:
            calls = [ToolCall(f"c{n}_{i}", self.tool, {"a": n, "b": i}) for i in range(self.calls)]
            message = ChatMessageAssistant(content="", tool_calls=calls)
        choice = ChatCompletionChoice(message=message, stop_reason="tool_calls" if message.tool_calls else "stop")
        usage = ModelUsage(input_tokens=10, output_tokens=10, total_tokens=20)
        return ModelOutput(model="fake", choices=[choice], usage=usage)


@tool
def add() -> Tool:
    async def execute(a: int, b: int) -> int:
        """Add two numbers.

        Args:
            a: One.
            b: The other.
        """
        return a + b

    return execute


@tool
def slow() -> Tool:
    async def execute(a: int, b: int) -> int:
        """Add two numbers, slowly.

        Args:
            a: One.
            b: The other.
        """
        await asyncio.sleep(0.02)
        return a + b

    return execute


def agent(turns: int, calls: int = 1, delay: float = 0.0, tool: str = "add") -> Callable[[], Awaitable[int]]:
    """Return a function that runs the loop and returns the number of messages."""
    config = GenerateConfig(max_connections=10**5)
    model = get_model("counting/fake", config=config, memoize=False, turns=turns, calls=calls, delay=delay, tool=tool)
    tools = [add(), slow()]

    async def run() -> int:
        messages, output = await model.generate_loop("go", tools)
        assert output.completion == "done"
        return len(messages)

    return run


async def main() -> None:
    workload, size, _ = arguments()
    await agent(WARM_TURNS)()
    if workload == "W1":
        run = agent(size)
        with Measured():
            assert await run() == 2 * size + 1
    elif workload == "W2":
        run = agent(TURNS, delay=THINK)
        with Measured(agents=size):
            await asyncio.gather(*(run() for _ in range(size)))
    elif workload == "W6":
        run = agent(1, calls=size, tool="slow")
        with Measured():
            await run()


asyncio.run(main())

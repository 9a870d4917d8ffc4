"""smolagents, which is sync: its tools and, for W2, its agents have a thread each. It has no store."""

from __future__ import annotations

import threading
import time
from typing import Any

from common import THINK, TURNS, WARM_TURNS, Measured, arguments
from smolagents import LogLevel, ToolCallingAgent, tool
from smolagents.models import ChatMessage, ChatMessageToolCall, ChatMessageToolCallFunction, MessageRole, Model
from smolagents.monitoring import TokenUsage


class Counting(Model):  # type: ignore[misc]  # untyped
    """Asks for tool calls in its first *turns* replies, then answers. One is made for each run."""

    def __init__(self, turns: int, calls: int, delay: float, tool: str) -> None:
        super().__init__()
        self.turns, self.calls, self.delay, self.tool = turns, calls, delay, tool
        self.replies = 0

    def generate(self, messages: list[Any], **options: Any) -> ChatMessage:
        if self.delay:
            time.sleep(self.delay)
        self.replies += 1
        n = self.replies
        asked: list[tuple[str, dict[str, Any]]] = [(self.tool, {"a": n, "b": i}) for i in range(self.calls)]
        if n > self.turns:
            asked = [("final_answer", {"answer": "done"})]
        calls = [
            ChatMessageToolCall(ChatMessageToolCallFunction(arguments=args, name=name), id=f"c{n}_{i}", type="function")
            for i, (name, args) in enumerate(asked)
        ]
        return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=calls, token_usage=TokenUsage(10, 10))


@tool  # type: ignore[misc]  # untyped
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: One.
        b: The other.
    """
    return a + b


@tool  # type: ignore[misc]  # untyped
def slow(a: int, b: int) -> int:
    """Add two numbers, slowly.

    Args:
        a: One.
        b: The other.
    """
    time.sleep(0.02)
    return a + b


def agent(turns: int, calls: int = 1, delay: float = 0.0, tool: str = "add") -> ToolCallingAgent:
    model = Counting(turns, calls, delay, tool)
    return ToolCallingAgent(
        [add, slow], model, max_steps=10**6, verbosity_level=LogLevel.OFF, max_tool_threads=max(calls, 4)
    )


def run(one: ToolCallingAgent) -> None:
    assert one.run("go") == "done"


workload, size, _ = arguments()
run(agent(WARM_TURNS))
if workload == "W1":
    one = agent(size)
    with Measured():
        run(one)
    assert len(one.memory.steps) == size + 2
elif workload == "W2":
    threading.stack_size(256 * 1024)
    ended: list[None] = []
    with Measured(agents=size):
        agents = [agent(TURNS, delay=THINK) for _ in range(size)]
        threads = [threading.Thread(target=lambda one=one: ended.append(run(one))) for one in agents]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(ended) == size
elif workload == "W6":
    one = agent(1, calls=size, tool="slow")
    with Measured():
        run(one)

"""langgraph's prebuilt agent, on asyncio and with threads; W4 with its SqliteSaver, which saves after each step."""

from __future__ import annotations

import asyncio
import sqlite3
import time
import warnings
from typing import Any

from common import THINK, TURNS, WARM_TURNS, Measured, arguments, folder, report_saved
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.prebuilt import create_react_agent

warnings.filterwarnings("ignore")  # that it has moved to another package
CONFIG: Any = {"recursion_limit": 10**6, "configurable": {"thread_id": "x"}}
PROMPT: Any = {"messages": [("user", "go")]}


class Counting(BaseChatModel):
    """Asks for tool calls until the request holds the results of *turns* turns, then answers."""

    turns: int
    calls: int
    delay: float
    tool: str

    @property
    def _llm_type(self) -> str:
        return "fake"

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self

    def reply(self, messages: list[Any]) -> ChatResult:
        n, message = len(messages), AIMessage("done")
        # The prompt, then a reply and the results of its calls in each turn.
        if (n - 1) // (1 + self.calls) < self.turns:
            asked = [{"name": self.tool, "args": {"a": n, "b": i}, "id": f"c{n}_{i}"} for i in range(self.calls)]
            message = AIMessage("", tool_calls=asked)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> ChatResult:
        if self.delay:
            time.sleep(self.delay)
        return self.reply(messages)

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> ChatResult:
        if self.delay:
            await asyncio.sleep(self.delay)
        return self.reply(messages)


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def slow(a: int, b: int) -> int:
    """Add two numbers, slowly."""
    await asyncio.sleep(0.02)
    return a + b


@tool
def add_sync(a: int, b: int) -> int:
    """Add two numbers, in a thread."""
    return a + b


@tool
def slow_sync(a: int, b: int) -> int:
    """Add two numbers, slowly, in a thread."""
    time.sleep(0.02)
    return a + b


def agent(turns: int, calls: int = 1, delay: float = 0.0, tool: str = "add", saver: Any = None) -> Any:
    name = tool if mode == "async" else f"{tool}_sync"
    model = Counting(turns=turns, calls=calls, delay=delay, tool=name)
    return create_react_agent(model, [add, slow, add_sync, slow_sync], checkpointer=saver)


def run(one: Any, count: int = 1, **options: Any) -> list[Any]:
    """Run it, *count* times at once, and return the messages of the last."""

    async def together() -> list[Any]:
        return await asyncio.gather(*(one.ainvoke(PROMPT, CONFIG, **options) for _ in range(count)))

    results = asyncio.run(together()) if mode == "async" else [one.invoke(PROMPT, CONFIG, **options)]
    assert all(result["messages"][-1].content == "done" for result in results)
    messages: list[Any] = results[-1]["messages"]
    return messages


def saved() -> None:
    from langgraph.checkpoint.sqlite import SqliteSaver

    with folder() as place:
        connection = sqlite3.connect(place / "saved.db", check_same_thread=False)
        with Measured(quiet=True) as saving:
            run(agent(size, saver=SqliteSaver(connection)), durability="sync")
        with Measured(quiet=True) as loading:
            state = agent(size, saver=SqliteSaver(connection)).get_state(CONFIG)
        assert len(state.values["messages"]) == 2 * size + 2
        connection.close()
        report_saved(saving, loading, place)


workload, size, mode = arguments()
if workload == "W4":  # its saver for asyncio needs another package
    mode = "sync"
run(agent(WARM_TURNS))
if workload == "W1":
    one = agent(size)
    with Measured():
        assert len(run(one)) == 2 * size + 2
elif workload == "W2":
    one = agent(TURNS, delay=THINK)
    with Measured(agents=size):
        run(one, size)
elif workload == "W4":
    saved()
elif workload == "W6":
    one = agent(1, calls=size, tool="slow")
    with Measured():
        run(one)

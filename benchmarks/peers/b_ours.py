"""Our side: see ``ours.py``."""

from __future__ import annotations

import time

import ours
import trio
from common import THINK, TURNS, WARM_TURNS, Measured, arguments, folder, report_saved
from stream_server import serving

from alpineagents import Agent, FileStore, OpenAICompatible, Reporter, State, tool


@tool(name="add")
def add_sync(a: int, b: int) -> int:
    """Add two numbers, in a thread."""
    return a + b


@tool(name="slow")
def slow_sync(a: int, b: int) -> int:
    """Add two numbers, slowly, in a thread."""
    time.sleep(0.02)
    return a + b


class Texts(Reporter):
    """Collects the pieces of text."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts

    def on_text(self, state: State, text: str) -> None:
        self.texts.append(text)


async def main() -> None:
    workload, size, mode = arguments()
    tools = (ours.add, ours.slow) if mode == "async" else (add_sync, slow_sync)

    def agent(turns: int, calls: int = 1, delay: float = 0.0, tool: str = "add") -> Agent:
        return ours.agent(ours.Counting(turns, calls, delay, tool), *tools)

    await agent(WARM_TURNS).run(ours.conversation())
    if workload == "W1":
        one, state = agent(size), ours.conversation()
        with Measured():
            await one.run(state)
        assert state.turn == size + 1
    elif workload == "W2":
        one = agent(TURNS, delay=THINK)
        with Measured(agents=size):
            states = [ours.conversation() for _ in range(size)]
            async with trio.open_nursery() as nursery:
                for state in states:
                    nursery.start_soon(one.run, state)
        assert all(state.answer == "done" for state in states)
    elif workload == "W4":
        with folder() as place:
            state = ours.conversation()
            with Measured(quiet=True) as saving:
                await agent(size).copy(store=FileStore(place)).run(state)
            with Measured(quiet=True) as loading:
                loaded = await FileStore(place).load(state.id)
            assert loaded.answer == "done"
            report_saved(saving, loading, place)
    elif workload == "W5":
        with serving(size) as origin:
            texts: list[str] = []
            model = OpenAICompatible("m", base_url=f"{origin}/v1", api_key="x")
            one = Agent(model=model, reporter=Texts(texts))
            await one.run(ours.conversation())
            texts.clear()
            state = ours.conversation()
            with Measured():
                await one.run(state)
        assert len(texts) == size
        assert state.answer == "".join(texts)
    elif workload == "W6":
        one, state = agent(1, calls=size, tool="slow"), ours.conversation()
        with Measured():
            await one.run(state)
        assert state.answer == "done"


trio.run(main)

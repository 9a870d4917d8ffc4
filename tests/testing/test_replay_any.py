"""Whatever happened in the runs of a State: replayed, it is the same."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from alpineagents import (
    Agent,
    AllowByDefault,
    Budget,
    CompactIfFull,
    DecideByHuman,
    DenyByName,
    Message,
    OutputError,
    RateLimitError,
    Reply,
    State,
    ToolError,
    Usage,
    default_loop,
    loop,
    tool,
    waiting_for_user,
)
from alpineagents.record._codec import decode_history, encode_entry
from alpineagents.testing import FakeHuman, FakeModel, replay_run, tool_call


class Happening:
    """Agents, tools and interruptions drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.state = State(messages=[Message.user("Go on.")], extra_data={"n": 0})
        self.snapshots = [self.state.snapshot()]
        self.agent = self.an_agent()

    # Agents

    def an_agent(self) -> Agent:
        draw = self.draw
        permissions = [DenyByName("fail", reason="never"), DecideByHuman()]
        return Agent(
            model=FakeModel(self.answer, context_window=draw.choice([None, 100, 10_000])),
            tools=[*self.tools(), self.part()],
            loop=draw.choice([default_loop.copy(limit=draw.randint(1, 6)), self.a_loop(), self.a_loop()]),
            human=FakeHuman(lambda question: draw.choice(["yes", "no", "always"])),
            permissions=draw.choice([None, None, permissions, [AllowByDefault()]]),
            budget=draw.choice([None, None, Budget(requests=4), Budget(seconds=3), Budget(tokens=200)]),
            max_parallel_tools=draw.choice([1, 2, 16]),
        )

    def a_loop(self) -> Any:
        draw = random.Random(self.draw.random())
        compacts, asks, adds, catches, hurries = [draw.random() < 0.4 for _ in range(5)]

        @loop(until=waiting_for_user, limit=draw.randint(1, 6))
        async def body(agent: Agent, state: State) -> None:
            if compacts:
                await CompactIfFull(at=0.3)(agent, state)
            if asks:
                with suppress(OutputError, RateLimitError):
                    await agent.ask(state, f"What of turn {state.turn}?")
                await agent.ask_human(state, "Is it so?")
            with trio.move_on_after(1.5 if hurries else 1_000):
                await agent.think(state)
            if adds and state.turn % 2:
                state.add_message(Message.notice(f"It is turn {state.turn}."))
            try:
                await agent.use_tools(state)
            except KeyError:
                if not catches:
                    raise
                state.add_message(Message.notice("That failed."))
                await agent.use_tools(state)
            if adds:
                state.clear_tool_results(keep_last=2)

        return body

    def part(self) -> Agent:
        model = FakeModel(lambda request: "A part.", delay=0.3)
        return Agent(model=model, name="part", description="Does a part.")

    async def answer(self, request: Any) -> Any:
        draw = self.draw
        await trio.sleep(draw.choice([0, 0, 1, 2]))
        if request.tool_choice == "none" or "What of" in request.messages[-1].text:
            return draw.choice(["an answer", "an answer", "", RateLimitError("slow")])
        if draw.random() < 0.1:
            return draw.choice([RateLimitError("slow"), ValueError("odd"), OSError(5, "read")])
        if draw.random() < 0.25:
            return Reply((), "m", "stop", Usage(50, 5, requests=1), cut_off=draw.random() < 0.2)
        if draw.random() < 0.4:
            return draw.choice(["All is done.", " ", Reply((), "m", usage=Usage(9, 9, requests=1))])
        names = ["add", "add", "fail", "crash", "rest", "block", "talk", "wonder", "part", "gone"]
        return [self.call(draw.choice(names)) for _ in range(draw.randint(1, 4))]

    def call(self, name: str) -> Any:
        args: dict[str, dict[str, Any]] = {
            "add": {"a": self.draw.choice([1, "2", "?"])},
            "rest": {"seconds": self.draw.choice([0, 1, 3])},
            "part": {"prompt": "Do it."},
        }
        return tool_call(name, **args.get(name, {}))

    def tools(self) -> list[Any]:
        draw = self.draw

        @tool
        async def add(a: int) -> int:
            """Add one."""
            return a + 1

        @tool
        async def fail() -> None:
            """Fail."""
            raise ToolError("no")

        @tool(parallel=draw.random() < 0.5)
        async def crash() -> None:
            """Crash, often."""
            await trio.sleep(draw.choice([0, 0.5]))
            if draw.random() < 0.3:
                raise KeyError("crash")

        @tool(timeout=2)
        async def rest(seconds: float) -> str:
            """Rest."""
            await trio.sleep(seconds)
            return "x" * 100

        @tool(max_result_bytes=100)
        async def block() -> str:
            """Give a long result."""
            return "y" * 1000

        @tool
        async def talk(state: State) -> str:
            """Change the State."""
            state.add_message(Message.notice("From a tool."))
            await trio.sleep(draw.choice([0, 0.3]))
            with state.edit_extra_data() as data:
                data["n"] += 1
            if draw.random() < 0.05:
                state.finish({"n": data})
            return "talked"

        @tool
        async def wonder(state: State, agent: Agent) -> str:
            """Ask a side question."""
            return await agent.ask(state, "What of it?")

        return [add, fail, crash, rest, block, talk, wonder]

    # What happens

    async def happen(self) -> None:
        for _ in range(self.draw.randint(1, 4)):
            if self.state.finished:
                return
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.interrupt)
                with trio.move_on_after(self.draw.choice([1_000, 1_000, 1, 2.5, 4])), suppress(Exception):
                    await self.agent.run(self.state)
                nursery.cancel_scope.cancel()
            self.between()

    async def interrupt(self) -> None:
        while True:
            await trio.sleep(self.draw.choice([0.5, 1, 2, 7]))
            await self.wait_some_rounds()
            match self.draw.randrange(3):
                case 0:
                    self.state.add_message(Message.user("And?"))
                case 1:
                    self.state.add_message(Message.notice("It rains."))
                case _:
                    with self.state.edit_extra_data() as data:
                        data["rain"] = self.draw.random()

    async def wait_some_rounds(self) -> None:
        for _ in range(self.draw.choice([0, 0, 1, 3])):
            await trio.lowlevel.checkpoint()

    def between(self) -> None:
        state = self.state
        if state.finished or state.pending_calls:
            return
        self.snapshots.append(state.snapshot())
        match self.draw.randrange(6):
            case 0:
                state.compact("What was.")
            case 1:
                state.clear_tool_results(keep_last=1)
            case 2:
                state.restore(self.draw.choice(self.snapshots))
            case 3:
                self.state = state.fork(state.id)
            case _:
                pass
        self.state.add_message(Message.user("Go on."))


async def happens_and_is_replayed(seed: int) -> None:
    trio._core._run._r.seed(seed)  # tasks that can run do so in an order of chance
    happening = Happening(seed)
    await happening.happen()
    state = happening.state
    loaded = State(id=state.id, history=decode_history([encode_entry(entry) for entry in state.history]))
    agent = happening.agent.copy(model=FakeModel(context_window=happening.agent.model.context_window))
    for each in (state, loaded):
        replay = await replay_run(each, agent)
        assert not replay.differs, f"seed {seed}: {replay}\n{state}"
        assert replay.entries == len(state.history)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(500))
def test_any_runs_are_the_same_when_nothing_has_changed(seed: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(trio._core._run, "_ALLOW_DETERMINISTIC_SCHEDULING", True)
    trio.run(happens_and_is_replayed, seed, clock=MockClock(autojump_threshold=0))

"""A tree of runs, cut short at every step there is: nothing is left running, every record is whole, and it runs on."""

from __future__ import annotations

import signal

import pytest
import trio

from alpineagents import (
    Agent,
    AllowByName,
    Budget,
    CallKey,
    DecideByHuman,
    Human,
    MemoryStore,
    Message,
    State,
    Store,
    Usage,
    tool,
)
from alpineagents.testing import FakeModel, tool_call

from ..run.runs import assert_saved, assert_told_what_began, assert_whole, errors, outcomes, tasks
from ..run.test_cancellation import AtStep

NAMES = ("reader", "writer", "checker")


class Slow(Human):
    """Says yes, a little later."""

    def __init__(self) -> None:
        self.open = 0

    async def ask(self, question, returns):
        self.open += 1
        try:
            for _ in range(4):
                await trio.lowlevel.checkpoint()
        finally:
            self.open -= 1
        return "yes"


class Tree:
    """A lead that calls three subagents at once; each calls a tool in a task, one in a thread, and one that is asked
    about: nine tools, and three questions that are open meanwhile."""

    def __init__(self, store: Store | None) -> None:
        self.store = store
        self.state = State(messages=[Message.user("go")])
        self.human = Slow()
        self.running: list[str] = []
        self.begun: set[str] = set()

        @tool
        async def stepping(key: CallKey) -> str:
            """Take a few steps."""
            self.begun.add(key)
            self.running.append("stepping")
            try:
                for _ in range(3):
                    await trio.lowlevel.checkpoint()
            finally:
                self.running.remove("stepping")
            return "stepped"

        @tool
        def threaded(key: CallKey) -> str:
            """Run in a thread."""
            self.begun.add(key)
            return "from a thread"

        @tool
        async def risky(key: CallKey) -> str:
            """Do what a person has to allow."""
            self.begun.add(key)
            await trio.lowlevel.checkpoint()
            return "dared"

        self.tools = [stepping, threaded, risky]
        self.children = {name: self._agent(name, ["stepping", "threaded", "risky"], self.tools) for name in NAMES}
        self.agent = self._agent(
            "lead",
            list(NAMES),
            list(self.children.values()),
            store=store,
            human=self.human,
            permissions=[AllowByName(["stepping", "threaded", *NAMES]), DecideByHuman()],
            budget=Budget(requests=1000),
        )

    @staticmethod
    def _agent(name, calls, tools, **settings) -> Agent:
        def answer(request):
            if any(message.role == "tool" for message in request.messages):
                return f"{name} is done"
            return [tool_call(call, **({"prompt": "part"} if call in NAMES else {})) for call in calls]

        return Agent(model=FakeModel(answer), tools=tools, name=name, description=f"The {name}.", **settings)

    async def play(self, streaming: bool) -> None:
        if not streaming:
            await self.agent.run(self.state)
            return
        async with self.agent.stream(self.state) as run:
            async for _ in run:
                pass

    def states(self) -> list[State]:
        """The State of the lead and those of its subagents."""
        results = [entry for entry in self.state.history if entry.kind == "tool_result"]
        return [self.state, *[self.state.child(i) for entry in results for i in entry.child_ids]]

    async def check(self) -> None:
        """After whatever happened."""
        assert not self.running
        assert not self.human.open
        states = self.states()
        for each in states:
            assert not each.running
            assert_whole(each)
            assert_told_what_began(each, self.begun)
            closed = {outcome for _, outcome in outcomes(each)}
            assert closed <= {"done", "interrupted"}
            assert errors(each).count("Cancelled") <= 1
            assert each.usage == counted(each)
            if self.store is not None and await self.store.has(each.id):
                await assert_saved(self.store, each)
        for child in states[1:]:
            assert child.parent_id == self.state.id
            name = next(entry.content.name for entry in child.history if entry.kind == "run_start")
            await self.goes_on(child, self.agent.copy(tools=self.tools, model=self.children[name].model), name)
        await self.goes_on(self.state, self.agent, "lead")

    async def goes_on(self, state: State, agent: Agent, name: str) -> None:
        before = list(state.history)
        state.add_message(Message.user("go on"))
        with trio.fail_after(60):
            assert await agent.run(state) == f"{name} is done"
        assert list(state.history)[: len(before)] == before
        assert_whole(state)
        if self.store is not None:
            await assert_saved(self.store, state)


def counted(state: State) -> Usage:
    """What the entries of a State say it has used, its subagents included, each once."""
    spent = Usage()
    for entry in state.history:
        match entry.kind:
            case "model_reply":
                spent += entry.content.usage
            case "error":
                spent += entry.usage
            case "tool_result" if not entry.late:
                spent = sum((counted(state.child(child_id)) for child_id in entry.child_ids), start=spent)
    return spent


def store_of(kind: str) -> Store | None:
    return MemoryStore() if kind == "memory" else None


@pytest.mark.slow
@pytest.mark.parametrize("streaming", [False, True], ids=["run", "stream"])
@pytest.mark.parametrize("kind", ["none", "memory"])
def test_a_tree_cancelled_at_any_step_is_whole_and_runs_on(kind: str, streaming: bool):
    async def main(step: int) -> bool:
        tree = Tree(store_of(kind))
        with trio.CancelScope() as scope:

            def cancel() -> None:
                at_work.add((tree.human.open, len(tree.running)))
                scope.cancel()

            instrument = AtStep(step, cancel)
            trio.lowlevel.add_instrument(instrument)
            before = tasks()
            instrument.armed = True
            await tree.play(streaming)
            instrument.armed = False
        trio.lowlevel.remove_instrument(instrument)
        assert tasks() == before
        await tree.check()
        return instrument.done

    at_work: set[tuple[int, int]] = set()
    step = 0
    while trio.run(main, step):
        step += 1
        assert step < 3_000
    assert step > 50
    # In between it depends on the order in which trio runs tasks, which is random.
    assert {questions for questions, _ in at_work} >= {0, 3}
    assert {tools for _, tools in at_work} >= {0, 3}


@pytest.mark.slow
@pytest.mark.parametrize("streaming", [False, True], ids=["run", "stream"])
def test_a_tree_interrupted_at_any_step_is_whole_and_runs_on(streaming: bool):
    """Ctrl+C, by a real signal, at every third step."""

    def play(step: int) -> bool:
        tree = Tree(None)
        instrument = AtStep(step, lambda: signal.raise_signal(signal.SIGINT))

        async def main() -> None:
            instrument.armed = True
            await tree.play(streaming)
            instrument.armed = False

        try:
            trio.run(main, instruments=[instrument])
        except KeyboardInterrupt:
            assert instrument.done
        trio.run(tree.check)
        return instrument.done

    step = 0
    while play(step):
        step += 3
        assert step < 3_000
    assert step > 50


@pytest.mark.slow
def test_a_stream_left_after_any_event_leaves_a_whole_tree_that_runs_on():
    async def main(number: int) -> bool:
        tree = Tree(MemoryStore())
        before = tasks()
        count = 0
        async with tree.agent.stream(tree.state) as run:
            async for _ in run:
                if count == number:
                    break
                count += 1
        assert tasks() == before
        await tree.check()
        return count == number

    number = 0
    while trio.run(main, number):
        number += 1
        assert number < 500
    assert number > 50

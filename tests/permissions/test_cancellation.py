"""Cancelled at any step while people are asked: the record is true, nothing is lost or left, and it runs on."""

from __future__ import annotations

from typing import Any

import trio
import trio.testing

from alpineagents import (
    Agent,
    AllowByName,
    CallKey,
    DecideByHuman,
    DenyByName,
    Inbox,
    MemoryStore,
    Message,
    State,
    tool,
)
from alpineagents.testing import FakeHuman, FakeModel

from ..run.runs import assert_saved, assert_told_what_began, assert_whole, outcomes, tasks
from ..run.test_cancellation import AtStep
from .agents import call

MOST_STEPS = 400
KEYS = {"alpineagents.inbox", "alpineagents.always"}


class Scene:
    """A run whose three calls are allowed by a person, refused by name, and asking a person themselves."""

    def __init__(self, human: Any) -> None:
        self.store = MemoryStore()
        self.state = State(messages=[Message.user("go")])
        self.wrote = 0
        self.begun: set[str] = set()

        @tool
        async def write(key: CallKey) -> str:
            """Write."""
            self.begun.add(key)
            self.wrote += 1
            await trio.lowlevel.checkpoint()
            return "wrote"

        @tool
        async def delete() -> str:
            """Delete."""
            raise AssertionError("never allowed")

        @tool
        async def wonder(state: State, key: CallKey) -> str:
            """Ask."""
            self.begun.add(key)
            return f"heard {await self.agent.ask_human(state, 'How many?', int)}"

        self.agent = Agent(
            model=FakeModel(self.answer),
            tools=[write, delete, wonder],
            permissions=[AllowByName("wonder"), DecideByHuman(), DenyByName("delete")],
            human=human,
            store=self.store,
        )

    def answer(self, request: Any) -> Any:
        results = [block for m in request.messages if m.role == "tool" for block in m.blocks]
        texts = [block.content[0].text for block in results]
        return "done" if "wrote" in texts else [call("write"), call("delete"), call("wonder")]

    async def check(self) -> None:
        """How it stands after a run, however that ended."""
        state = self.state
        assert_whole(state)
        assert_told_what_began(state, self.begun)
        if await self.store.has(state.id):  # else it was cancelled before it had begun
            await assert_saved(self.store, state)
        approvals = [e for e in state.history if e.kind == "human" and e.content.answer in ("yes", "always")]
        assert ("delete", "done") not in outcomes(state)
        assert self.wrote <= len(approvals)
        assert set(state.extra_data) <= KEYS


async def sweep(make_human: Any, answering: Any) -> int:
    """Cancel a run at its first step, at its second, ... until one is through. How many steps it took."""
    before = tasks()
    for step in range(MOST_STEPS):
        human = make_human()
        scene = Scene(human)

        async def once(scene: Scene = scene, human: Any = human) -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(answering, human)
                await scene.agent.run(scene.state)
                nursery.cancel_scope.cancel()

        with trio.CancelScope() as scope:
            cancelling = AtStep(step, scope.cancel)
            trio.lowlevel.add_instrument(cancelling)
            cancelling.armed = True
            try:
                await once()
            finally:
                cancelling.armed = False
                trio.lowlevel.remove_instrument(cancelling)
        await scene.check()
        if not cancelling.done:
            return step
        await once()
        await scene.check()
        assert scene.state.answer == "done"
        assert tasks() == before
    raise AssertionError("it never got through")


async def nobody(human: FakeHuman) -> None:
    await trio.lowlevel.checkpoint()


async def service(inbox: Inbox) -> None:
    """Answer whatever is asked, one at a time."""
    while True:
        for question in inbox.open[:1]:
            inbox.answer(question.id, "yes" if question.is_approval else 3)
        await trio.lowlevel.checkpoint()


async def test_cancelled_at_any_step_while_a_human_is_asked() -> None:
    steps = await sweep(lambda: FakeHuman(lambda question: "yes" if question.is_approval else 3), nobody)

    assert steps > 20


async def test_cancelled_at_any_step_while_an_inbox_is_asked() -> None:
    steps = await sweep(Inbox, service)

    assert steps > 20

"""kill -9 while a person is asked, and right after the answer: nothing that was asked or answered is lost."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import trio

from alpineagents import (
    Agent,
    Allowed,
    DecideByHuman,
    DecidePermission,
    DenyPermission,
    FileStore,
    Inbox,
    Message,
    State,
)
from alpineagents.testing import FakeModel

from ..run.children import running, script
from ..run.runs import assert_saved, assert_whole, errors, outcomes
from .agents import Tools, an_agent, call

ASKING = """
@tool
async def write() -> str:
    "Write, and then hang."
    say("writes")
    await trio.sleep_forever()

async def main():
    inbox = Inbox()
    state = State(id="s", messages=[Message.user("go")])
    agent = Agent(
        model=FakeModel([tool_call("write")]), tools=[write], permissions=[DecideByHuman()], human=inbox, store=store
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.run, state)
        while not inbox.open:
            await trio.lowlevel.checkpoint()
        (question,) = inbox.open
        async with state.edit_extra_data() as data:
            data["asked"] = "is saved"
        if args:
            inbox.answer(question.id, args[0])
        else:
            say(question.id)

trio.run(main)
"""


async def test_killed_while_a_person_is_asked(tmp_path: Path) -> None:
    async with running(script(ASKING, tmp_path)) as child:
        question_id = await child.line()
        child.process.kill()
        await child.process.wait()

    store, inbox, tools = FileStore(tmp_path), Inbox(), Tools("write")
    state = await store.load("s")
    inbox.add(state)
    assert [question.id for question in inbox.open] == [question_id]
    await inbox.answer(str(question_id), "yes")
    agent = an_agent(tools, [call("write"), "done"], [DecideByHuman()], human=inbox, store=store)

    assert await agent.run(state) == "done"
    assert outcomes(state) == [("write", "aborted"), ("write", "done")]
    assert_whole(state)
    await assert_saved(store, state)


async def test_killed_right_after_the_answer(tmp_path: Path) -> None:
    async with running(script(ASKING, tmp_path, "always")) as child:
        await child.line_with("writes")
        child.process.kill()
        await child.process.wait()

    state = await FileStore(tmp_path).load("s")

    assert [entry.content.answer for entry in state.history if entry.kind == "human"] == ["always"]
    assert state.extra_data == {"asked": "is saved", "alpineagents.always": ["write"]}
    assert outcomes(state) == [("write", "aborted")]
    assert_whole(state)


@pytest.mark.parametrize("is_async", [False, True])
def test_ctrl_c_while_a_permission_is_asked(is_async: bool) -> None:
    class Interrupted(DenyPermission):
        def check(self, state: State, call: Any, tool: Any) -> None:
            signal.raise_signal(signal.SIGINT)

    class InterruptedLater(DecidePermission):
        async def check(self, state: State, call: Any, tool: Any) -> Allowed:
            signal.raise_signal(signal.SIGINT)
            await trio.sleep_forever()
            raise AssertionError("it was interrupted")

    tools = Tools()
    state = State(messages=[Message.user("go")])
    permission = InterruptedLater() if is_async else Interrupted()
    agent = Agent(model=FakeModel([[call("read"), call("write")]]), tools=tools.all, permissions=[permission])

    with pytest.raises(KeyboardInterrupt):
        agent.run_sync(state)

    assert tools.ran == []
    assert outcomes(state) == [("read", "interrupted"), ("write", "interrupted")]
    assert errors(state) == ["KeyboardInterrupt"]
    assert_whole(state)

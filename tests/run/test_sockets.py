"""A run on a real connection leaves nothing behind when it is cancelled."""

from __future__ import annotations

import os
from pathlib import Path

import trio
import trio.testing

from alpineagents import Agent, Message, OpenAICompatible, State, tool
from alpineagents.testing import ProviderServer, tool_call

from .runs import assert_whole, outcomes, tasks


def sockets() -> int:
    """How many sockets this process has open."""
    links = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            links.append(os.readlink(entry))
        except FileNotFoundError:  # the one that listed them
            continue
    return sum(link.startswith("socket:") for link in links)


async def settled(before: tuple[int, int]) -> None:
    """Return when all is as before: the server's own end of a connection closes when it hears of it."""
    with trio.fail_after(10):
        while (tasks(), sockets()) != before:
            await trio.lowlevel.checkpoint()


async def test_a_run_cancelled_in_a_sleeping_tool_leaves_no_task_socket_or_call_and_runs_on():
    entered = trio.Event()

    @tool
    async def sleep() -> str:
        """Sleep."""
        entered.set()
        await trio.sleep(3600)
        return "awake"

    state = State(messages=[Message.user("go")])
    async with ProviderServer([tool_call("sleep"), "back"]) as server:
        agent = Agent(model=OpenAICompatible("m", base_url=server.base_url), tools=[sleep])
        await trio.testing.wait_all_tasks_blocked()
        before = (tasks(), sockets())

        with trio.move_on_after(3600) as scope:
            async with trio.open_nursery() as nursery:

                async def when_it_sleeps() -> None:
                    await entered.wait()
                    scope.cancel()

                nursery.start_soon(when_it_sleeps)
                await agent.run(state)

        await settled(before)
        assert outcomes(state) == [("sleep", "interrupted")]
        assert_whole(state)

        state.add_message(Message.user("and now?"))
        assert await agent.run(state) == "back"
        await settled(before)

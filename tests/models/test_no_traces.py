"""A model prints nothing, and changes nothing of the State whose messages it is sent; however its request ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from alpineagents import Agent, Reply, Request, State, ThinkingBlock
from alpineagents.record._codec import encode_entry
from alpineagents.testing import ProviderServer, tool_call
from tests.models.every import KEY, PROVIDERS, Provider, by_id
from tests.models.every_case import RED, Tools, asking, on
from tests.models.quiet import ask, ask_and_cancel, ways
from tests.states import assert_replays, values

ROOT = Path(__file__).parents[2]


def test_nothing_is_printed_warned_of_or_logged() -> None:
    """In a process of its own: pytest takes output, warnings and records, so that nothing would be seen."""
    run = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-m", "tests.models.quiet"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


async def talked(provider: Provider) -> State:
    """A State with all a model is sent: a picture, thoughts, calls, results."""
    script = [Reply([ThinkingBlock("Hm."), tool_call("look", place="Rome"), tool_call("clock")]), "Large.", "Yes."]
    async with ProviderServer(script, api_key=KEY) as server:
        agent = Agent(model=provider.at(server, **provider.thinking), tools=[Tools()])
        state = asking("Look at Rome", RED)
        await agent.run(state)
        await on(agent, state, "Sure?")
    return state


def seen(state: State) -> Any:
    """All of a State: its history byte by byte, its values, and which objects its messages are."""
    blocks = [id(block) for message in state.messages for block in message.blocks]
    return [encode_entry(entry) for entry in state.history], values(state), blocks


@pytest.mark.parametrize("provider", PROVIDERS, ids=by_id)
async def test_a_request_changes_no_state_however_it_ends(provider: Provider, autojump_clock: Any) -> None:
    state = await talked(provider)
    request = Request(messages=state.messages[:-1], system="Be brief.")
    before = seen(state)

    for way, (script, expected) in ways(provider).items():
        await ask(provider, request, script, expected)
        assert seen(state) == before, way
    await ask_and_cancel(provider, request)

    assert seen(state) == before
    assert_replays(state)

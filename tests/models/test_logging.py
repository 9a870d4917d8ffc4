"""What models leave in the log: a line for each request that is sent again, waits, or goes elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
import trio

from alpineagents import (
    Agent,
    Budget,
    BudgetError,
    Fallback,
    Message,
    Model,
    OpenAI,
    OverloadedError,
    ProviderError,
    RateLimit,
    Request,
    State,
    TextBlock,
    ToolResultBlock,
)
from alpineagents.testing import FakeModel, Fault, ProviderServer

from .every import PROVIDERS, Provider, by_id
from .responses.test_openai import thinking_of

Lines = Callable[[], list[str]]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    """What models have logged so far, each line with its level."""
    caplog.set_level(logging.DEBUG, logger="alpineagents.models")
    return lambda: [f"{r.levelname} {r.getMessage()}" for r in caplog.records if r.name == "alpineagents.models"]


async def ask(model: Model) -> None:
    await Agent(model=model).ask(State(), "Hi")


@pytest.mark.parametrize("provider", PROVIDERS, ids=by_id)
async def test_each_retry_is_a_line(provider: Provider, lines: Lines, autojump_clock):
    script = [
        Fault(status=429, headers={"retry-after": "7"}),
        Fault(status=503, headers={"retry-after": "0"}),
        Fault(answer="Hello.", cut_after=10, headers={"retry-after": "1"}),
        "Hello.",
    ]
    async with ProviderServer(script) as server:
        model = provider.at(server, max_wait=10)
        await ask(model)

    found = lines()
    assert found[0] == f"WARNING {model.name}: attempt 2 in 7.0 s, after RateLimitError (429)"
    assert found[1].startswith(f"WARNING {model.name}: attempt 3 in ")
    assert found[1].endswith(" s, after OverloadedError (503)")
    assert found[2].startswith(f"WARNING {model.name}: attempt 4 in ")
    assert found[2].endswith(" s, after BrokenStreamError (200)")
    assert len(found) == 3


async def test_a_connection_that_was_closed_while_nobody_used_it_is_no_warning(lines: Lines, autojump_clock):
    async with ProviderServer([Fault(drop=True), "Hello."]) as server:
        model = PROVIDERS[0].at(server)
        await ask(model)

    assert lines() == [f"INFO {model.name}: attempt 2 in 0.0 s, after BrokenStreamError"]


async def test_what_is_not_sent_again_is_no_line(lines: Lines, autojump_clock):
    """It comes out of the run, whose own line says so."""
    async with ProviderServer([Fault(status=401), Fault(status=503)]) as server:
        for retries in (4, 0):
            with pytest.raises(ProviderError):
                await ask(PROVIDERS[0].at(server, retries=retries))

    assert lines() == []


async def test_a_retry_that_the_budget_forbids_is_no_line(lines: Lines, autojump_clock):
    async with ProviderServer([Fault(status=503)]) as server:
        state = State()
        with pytest.raises(BudgetError):
            await _ask_in_run(PROVIDERS[0].at(server), state)

    assert lines() == []


async def _ask_in_run(model: Model, state: State) -> None:
    async def body(agent, state):
        await agent.ask(state, "Hi")
        raise AssertionError("the budget allows one request")

    await Agent(model=model, loop=body, budget=Budget(requests=1)).run(state)
    raise BudgetError("the run has ended by its budget")


async def test_a_wait_for_a_turn_is_a_line(lines: Lines, autojump_clock):
    limit = RateLimit(concurrent=1)
    async with ProviderServer([Fault(wait=3), "Hello."]) as server, trio.open_nursery() as nursery:
        model = PROVIDERS[0].at(server, rate_limit=limit)
        nursery.start_soon(ask, model)
        nursery.start_soon(ask, model)

    (line,) = lines()
    assert line.startswith(f"INFO {model.name}: waited 3.")
    assert line.endswith(" s for a turn in its RateLimit")


async def test_a_request_that_is_sent_again_without_thoughts_is_a_line(lines: Lines):
    """OpenAI binds them to the organization that they were given to."""
    refusal = Fault(status=400, body={"error": {"code": "invalid_encrypted_content", "message": "secret"}})
    async with ProviderServer([thinking_of("A"), refusal, "Hello."], strict=False) as server:
        model = OpenAI("gpt-5", base_url=server.base_url, api_key="none")
        reply = await model.respond(Request(messages=[Message.user("Hi")]), lambda event: None)
        result = ToolResultBlock(reply.tool_calls[0].id, [TextBlock("r")])
        messages = [Message.user("Hi"), Message("assistant", reply.blocks), Message("tool", [result])]
        await model.respond(Request(messages=messages), lambda event: None)

    assert lines() == [f"WARNING {model.name}: attempt 2 in 0.0 s, after BadRequestError (400)"]


async def test_each_change_to_another_model_is_a_line(lines: Lines):
    first = FakeModel([OverloadedError("secret", status=529)], name="one/a")
    second = FakeModel([ZeroDivisionError("secret")], name="two/b")
    await ask(Fallback(first, second, FakeModel(["Hello."], name="three/c"), on=Exception))

    assert lines() == [
        "WARNING one/a failed (OverloadedError (529)): two/b is asked instead",
        "WARNING two/b failed (ZeroDivisionError): three/c is asked instead",
    ]

"""Failures of counting that users of other libraries met, over real sockets. Docstrings name the case of usage.md."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from alpineagents import (
    Agent,
    BrokenStreamError,
    Budget,
    FileStore,
    Message,
    OutputError,
    Price,
    Reply,
    Reporter,
    State,
    StoppedByBudget,
    StoppedByUntil,
    TextBlock,
    Usage,
    loop,
    tool,
)
from alpineagents.testing import Fault, ProviderServer, ReceivedRequest, tool_call

from ..models.every import ANTHROPIC, KEY, PROVIDERS, Provider, by_id
from ..states import assert_replays

WORDS = "One two three four five six seven eight nine ten."
FIRST = Reply([tool_call("look")], usage=Usage(100, 10, requests=1))
each_provider = pytest.mark.parametrize("provider", PROVIDERS, ids=by_id)


@tool
async def look() -> str:
    """Look."""
    await trio.lowlevel.checkpoint()
    return "It is large."


def asking() -> State:
    return State(messages=[Message.user("Look")])


def half_of(provider: Provider) -> Callable[[ReceivedRequest], Fault]:
    """An answer of 70 tokens read and 40 written, of which half comes."""

    def answer(request: ReceivedRequest) -> Fault:
        reply = Reply([TextBlock(WORDS)], usage=Usage(70, 40, requests=1))
        events = provider.format().events(reply, request)
        return Fault(body=b"".join(events[: len(events) // 2]), chunked=False)

    return answer


@each_provider
async def test_what_turns_cost_before_one_that_dies_is_not_lost(provider: Provider) -> None:
    """G2: turn 1 is fine, turn 2 dies after its beginning. What nobody told is None, not 0."""
    async with ProviderServer([FIRST, half_of(provider)], api_key=KEY) as server:
        state, model = asking(), provider.at(server, retries=0, price=Price(1_000_000, 0))
        with pytest.raises(BrokenStreamError) as caught:
            await Agent(model=model, tools=[look]).run(state)

    told = caught.value.usage
    assert told.requests == 1
    assert state.usage == Usage(100, 10, requests=1, cost=Decimal(100)) + told
    assert (told.input_tokens, told.cost) in ((0, None), (70, Decimal(70)))
    assert provider is not ANTHROPIC or told.input_tokens == 70
    assert_replays(state)


@each_provider
async def test_what_a_run_cost_before_it_was_cancelled_is_not_lost(provider: Provider) -> None:
    """G2, the other way to end."""
    scope = trio.CancelScope()

    class Cancels(Reporter):
        def on_text(self, state: State, text: str) -> None:
            scope.cancel()

    def stalls(request: ReceivedRequest) -> Fault:
        return attrs.evolve(half_of(provider)(request), stall=True, chunked=True)

    async with ProviderServer([FIRST, stalls], api_key=KEY) as server:
        state, model = asking(), provider.at(server, price=Price(1_000_000, 0))
        with scope:
            await Agent(model=model, tools=[look], reporter=Cancels()).run(state)

    assert scope.cancelled_caught
    assert state.usage.requests == 2
    assert (state.usage.input_tokens, state.usage.cost) in ((100, None), (170, Decimal(170)))
    assert provider is not ANTHROPIC or state.usage.input_tokens == 170
    assert_replays(state)


@each_provider
async def test_questions_whose_answers_never_fit_are_paid_for(provider: Provider) -> None:
    """G2: each attempt counts, and the exception and the State say the same."""
    wrong = Reply([TextBlock("[1]")], usage=Usage(100, 10, requests=1))
    async with ProviderServer([wrong] * 9, api_key=KEY) as server:
        state, model = asking(), provider.at(server, structured="prompt", price=Price(1_000_000, 0))
        with pytest.raises(OutputError) as caught:
            await Agent(model=model).ask(state, "How large?", returns=dict[str, int])

    sent = len(server.requests)
    assert sent > 1
    assert state.usage == Usage(100 * sent, 10 * sent, requests=sent, cost=Decimal(100 * sent)) == caught.value.usage
    assert_replays(state)


@each_provider
async def test_eight_subagents_at_once_never_send_more_than_the_tree_may(provider: Provider) -> None:
    """G4: by the provider's own count; and what they did is in the lead's usage once."""
    calls = Reply([tool_call("helper", prompt="Help") for _ in range(8)], usage=Usage(1, 1, requests=1))
    answer = Reply([TextBlock("Done.")], usage=Usage(1, 1, requests=1))
    async with ProviderServer([calls, *[answer] * 20], api_key=KEY) as server:
        model = provider.at(server)
        helper = Agent(model=model, name="helper", description="Helps.")
        lead = Agent(model=model, tools=[helper], budget=Budget(requests=5))
        state = asking()
        await lead.run(state)

    assert len(server.requests) == 5
    assert state.usage == Usage(5, 5, requests=5, cost=state.usage.cost)
    assert state.stopped == StoppedByBudget("requests", 5, 5)


def five_requests(state: State) -> bool:
    return state.usage.requests >= 5


@loop(until=five_requests, limit=100)
async def five_in_all(agent: Agent, state: State) -> None:
    """A limit of the conversation."""
    await agent.think(state)
    await agent.use_tools(state)


async def test_a_conversation_that_is_loaded_has_not_forgotten_what_it_cost(tmp_path: Any) -> None:
    """G5: saved at 4 requests; a limit of 5 for the conversation leaves one, a limit of 5 for a run leaves five."""
    busy = [attrs.evolve(FIRST, blocks=[tool_call("look")]) for _ in range(30)]
    store = FileStore(tmp_path)
    async with ProviderServer(busy, api_key=KEY) as server:
        model = ANTHROPIC.at(server, price=Price(1_000_000, 0))
        agent = Agent(model=model, tools=[look], store=store)
        state = asking()
        await agent.copy(budget=Budget(requests=4)).run(state)
        at_four = len(server.requests)

        loaded = await store.load(state.id)
        before = loaded.usage
        await agent.copy(loop=five_in_all).run(loaded)
        of_conversation = len(server.requests) - at_four
        again = await store.load(state.id)
        await agent.copy(budget=Budget(requests=5)).run(again)
        of_run = len(server.requests) - at_four - of_conversation

    assert before == Usage(400, 40, requests=4, cost=Decimal(400))
    assert (at_four, of_conversation, of_run) == (4, 1, 5)
    assert isinstance(loaded.stopped, StoppedByUntil)
    assert again.usage == Usage(1_000, 100, requests=10, cost=Decimal(1_000))

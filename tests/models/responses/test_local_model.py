"""OpenAI against a real model behind a real server (``make local-model``, then ``pytest -m local``).

llama.cpp copies the Responses API: without indexes, with ``completed`` for what the limit cut off.
"""

import sys
from pathlib import Path

import pytest

from alpineagents import Agent, ContextTooLongError, Message, Request, State, TextDelta, default_loop, tool
from alpineagents.models._openai import OpenAI

sys.path.insert(0, str(Path(__file__).parents[3] / "scripts"))
import local_model

pytestmark = pytest.mark.local


@pytest.fixture(scope="module")
def base_url():
    with local_model.serving() as url:
        yield url


def model_at(url, **options):
    return OpenAI("smollm2", base_url=url, temperature=0, **{"max_tokens": 32, **options})


@tool
async def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return f"Sunny in {city}, 20 degrees."


async def test_an_agent_answers_after_a_tool_call(base_url):
    agent = Agent(model=model_at(base_url), tools=[get_weather], loop=default_loop.copy(limit=3))
    state = State(messages=[Message.user("What is the weather in Paris?")])

    called = await agent.think(state, tool_choice="required")
    await agent.use_tools(state)
    await agent.run(state)

    assert called.tool_calls[0].args == {"city": "Paris"}
    assert state.answer
    assert (state.usage.requests, state.usage.cost) == (state.turn, 0)
    assert state.usage.input_tokens > 100


async def test_text_is_streamed_with_usage(base_url):
    emitted = []
    request = Request(messages=[Message.user("Say hello.")], system="Be kind.")
    reply = await model_at(base_url).respond(request, emitted.append)

    assert reply.text
    assert "".join(event.text for event in emitted if isinstance(event, TextDelta)) == reply.text
    assert (reply.model, reply.stop_reason) == ("smollm2", "completed")
    assert reply.usage.output_tokens > 3


async def test_a_call_that_the_limit_cuts_off_has_no_arguments(base_url):
    agent = Agent(model=model_at(base_url, max_tokens=4), tools=[get_weather])
    reply = await agent.think(State(messages=[Message.user("The weather in Paris?")]), tool_choice="required")

    assert [call.args for call in reply.tool_calls] == [None]


async def test_a_conversation_that_does_not_fit_is_its_own_error(base_url):
    request = Request(messages=[Message.user("word " * 20_000)])
    with pytest.raises(ContextTooLongError, match="n_ctx 2048"):
        await model_at(base_url).respond(request, print)

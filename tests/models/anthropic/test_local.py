"""Anthropic against a real model behind a real server (``make local-model``, then ``pytest -m local``).

llama.cpp's server speaks the Messages API, with errors in OpenAI's form and blocks that begin without an input.
"""

import sys
from pathlib import Path

import pytest

from alpineagents import (
    Agent,
    ContextTooLongError,
    Message,
    Request,
    State,
    TextDelta,
    ToolSpec,
    tool,
)
from alpineagents.models._anthropic import Anthropic

sys.path.insert(0, str(Path(__file__).parents[3] / "scripts"))
import local_model

pytestmark = pytest.mark.local

CITY = {"type": "string", "maxLength": 20}
SCHEMA = {"type": "object", "properties": {"city": CITY}, "required": ["city"], "additionalProperties": False}
WEATHER = ToolSpec("get_weather", "Get the weather of a city.", SCHEMA)
QUESTION = Message.user("What is the weather in Paris?")


@tool
async def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return "Sunny, 20 degrees."


@pytest.fixture(scope="module")
def origin():
    with local_model.serving() as url:
        yield url.removesuffix("/v1")


def model_at(origin, **options):
    return Anthropic("smollm2", base_url=origin, temperature=0, **{"max_tokens": 24, **options})


def ignore(event):
    """An emit that drops everything."""


async def test_an_agent_calls_its_tool_and_answers(origin):
    agent = Agent(model=model_at(origin), tools=[get_weather], system="Be brief.")
    state = State(messages=[QUESTION])

    await agent.think(state, tool_choice="required")
    await agent.use_tools(state)
    reply = await agent.think(state)

    (call,) = state.messages[1].tool_calls
    assert (call.name, set(call.args)) == ("get_weather", {"city"})
    assert state.messages[2].role == "tool"
    assert reply.text
    assert (state.usage.requests, state.usage.cost) == (2, 0)
    assert state.usage.input_tokens > 100


async def test_text_is_streamed(origin):
    emitted = []
    reply = await model_at(origin).respond(Request(messages=[Message.user("Say hello.")]), emitted.append)

    assert reply.text
    assert "".join(event.text for event in emitted if isinstance(event, TextDelta)) == reply.text


async def test_a_call_that_the_limit_cuts_off_has_no_arguments(origin):
    request = Request(messages=[QUESTION], tools=(WEATHER,), tool_choice="required")
    reply = await model_at(origin, max_tokens=4).respond(request, ignore)

    assert reply.cut_off
    assert [call.args for call in reply.tool_calls] == [None]


async def test_a_conversation_that_does_not_fit_is_its_own_error(origin):
    with pytest.raises(ContextTooLongError, match="n_ctx 2048"):
        await model_at(origin).respond(Request(messages=[Message.user("word " * 20_000)]), ignore)

"""OpenAICompatible against a real model behind a real server (``make local-model``, then ``pytest -m local``)."""

import sys
from pathlib import Path

import pytest
import trio

from alpineagents import (
    BadRequestError,
    ContextTooLongError,
    Image,
    Message,
    OverloadedError,
    Request,
    TextBlock,
    TextDelta,
    ToolResultBlock,
    ToolSpec,
)
from alpineagents.models import OpenAICompatible

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import local_model

pytestmark = pytest.mark.local

CITY = {"type": "string", "maxLength": 20}
SCHEMA = {"type": "object", "properties": {"city": CITY}, "required": ["city"], "additionalProperties": False}
WEATHER = ToolSpec("get_weather", "Get the weather of a city.", SCHEMA)
QUESTION = Message.user("What is the weather in Paris?")


@pytest.fixture(scope="module")
def base_url():
    with local_model.serving() as url:
        yield url


@pytest.fixture(scope="module")
def base_url_without_tools():
    with local_model.serving(tools=False) as url:
        yield url


def model_at(url, **options):
    return OpenAICompatible("smollm2", base_url=url, seed=1, temperature=0, **{"max_tokens": 24, **options})


def ignore(event):
    """An emit that drops everything."""


async def test_text_is_streamed_with_usage(base_url_without_tools):
    emitted = []
    reply = await model_at(base_url_without_tools).respond(
        Request(messages=[Message.user("Say hello.")]), emitted.append
    )

    assert reply.text
    assert len(emitted) > 3
    assert "".join(event.text for event in emitted if isinstance(event, TextDelta)) == reply.text
    assert (reply.model, reply.usage.requests, reply.usage.cost) == ("smollm2", 1, 0)
    assert reply.usage.input_tokens > 10
    assert reply.usage.output_tokens > 3


async def test_a_call_and_its_result_are_a_conversation(base_url):
    model = model_at(base_url)
    async with model.session():
        request = Request(messages=[QUESTION], tools=(WEATHER,), tool_choice="required")
        first = await model.respond(request, ignore)
        (call,) = first.tool_calls
        result = ToolResultBlock(call.id, [TextBlock("Sunny, 20 degrees.")])
        messages = [QUESTION, Message("assistant", first.blocks), Message("tool", [result])]
        second = await model.respond(Request(messages=messages, tools=(WEATHER,)), ignore)

    assert call.name == "get_weather"
    assert set(call.args) == {"city"}
    assert second.text


async def test_structured_output_fits_its_schema(base_url_without_tools):
    request = Request(messages=[Message.user("Which city is the capital of France?")], returns=SCHEMA)
    reply = await model_at(base_url_without_tools).respond(request, ignore)

    assert reply.text.replace("\n", "").replace(" ", "").startswith('{"city":')


async def test_a_call_that_the_limit_cuts_off_has_no_arguments(base_url):
    request = Request(messages=[QUESTION], tools=(WEATHER,), tool_choice="required")
    reply = await model_at(base_url, max_tokens=4).respond(request, ignore)

    assert reply.cut_off
    assert [call.args for call in reply.tool_calls] == [None]
    assert reply.tool_calls[0].raw_args


async def test_many_requests_over_kept_connections_all_get_their_answer(base_url):
    """The server closes some connections that it promised to keep."""
    model = model_at(base_url, max_tokens=1)
    replies = []

    async def ask(number):
        for turn in range(5):
            replies.append(await model.respond(Request(messages=[Message.user(f"{number} {turn}?")]), ignore))

    async with model.session(), trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(ask, number)

    assert len(replies) == 20


async def test_cancelling_leaves_no_connection_and_the_next_request_works(base_url, sockets):
    before = sockets()
    model = model_at(base_url, max_tokens=2_000)
    first_word = trio.Event()
    async with model.session():
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                request = Request(messages=[Message.user("Tell me a long story.")])
                nursery.start_soon(model.respond, request, lambda event: first_word.set())
                await first_word.wait()
                scope.cancel()
        assert sockets() == before
        reply = await model_at(base_url, max_tokens=1).respond(Request(messages=[QUESTION]), ignore)
    assert reply.cut_off
    assert sockets() == before


async def test_a_conversation_that_does_not_fit_is_its_own_error(base_url):
    with pytest.raises(ContextTooLongError, match="n_ctx 2048") as caught:
        await model_at(base_url).respond(Request(messages=[Message.user("word " * 20_000)]), ignore)

    assert caught.value.status == 400


async def test_what_the_server_refuses_is_said(base_url):
    image = Image(b"\x89PNG\r\n\x1a\n" + b"x" * 8)
    with pytest.raises(OverloadedError, match="image input is not supported"):
        await model_at(base_url).respond(Request(messages=[Message.user("see", image)]), ignore)
    wrong = model_at(base_url, extra_body={"response_format": {"type": "yaml"}})
    with pytest.raises(BadRequestError, match="yaml"):
        await wrong.respond(Request(messages=[QUESTION]), ignore)

"""One suite for all model classes, over real sockets against a provider that is as strict as the real one."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from itertools import pairwise
from typing import Any

import attrs
import pytest
import trio

from alpineagents import (
    Agent,
    BrokenStreamError,
    ContextTooLongError,
    CutOffError,
    Message,
    ModelEvent,
    OverloadedError,
    Price,
    RateLimitError,
    Reply,
    Request,
    State,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ToolCall,
    Usage,
)
from alpineagents.testing import Fault, ProviderServer, ReceivedRequest, tool_call
from tests.models.every import ANTHROPIC, CHAT, GOOGLE, KEY, PROVIDERS, RESPONSES, Provider, by_id, texts_in, values_at
from tests.models.every_case import (
    ANSWERS,
    CASES,
    ODD,
    ODD_IDS,
    PAGE,
    RED,
    THOUGHTS,
    Shown,
    Tools,
    asked,
    asking,
    case_script,
    on,
)
from tests.states import assert_replays

pytestmark = pytest.mark.parametrize("provider", PROVIDERS, ids=by_id)

REQUEST = Request(messages=[Message.user("Hi")])
WORDS = "One two three four five six seven eight nine ten eleven twelve."


def ignore(event: object) -> None:
    """An emit that drops everything."""


async def played(provider: Provider, name: str) -> list[ReceivedRequest]:
    """Play a case; return what the provider was sent."""
    async with ProviderServer(case_script(name), api_key=KEY) as server:
        await CASES[name].run(lambda **options: provider.at(server, **options), provider)
        await trio.testing.wait_all_tasks_blocked()
        assert server.connections == 0, "a connection is left open"
    return server.requests


@pytest.mark.parametrize("name", CASES)
async def test_every_case_holds(provider: Provider, name: str) -> None:
    await played(provider, name)


# ---- What is sent


async def test_each_request_begins_with_the_one_before(provider: Provider) -> None:
    """So that the provider's cache is of use; and nothing is sent twice."""
    requests = await played(provider, "thoughts_are_shown_kept_saved_and_sent_back")

    at = {"google": "contents", "responses": "input"}.get(provider.id, "messages")
    sent = [unmarked(request.body[at]) for request in requests]
    assert len(sent) == 5
    for before, after in pairwise(sent):
        assert after[: len(before)] == before
        assert len(after) > len(before)


def unmarked(value: Any) -> Any:
    """Without Anthropic's cache marks, which wander."""
    if isinstance(value, dict):
        return {key: unmarked(item) for key, item in value.items() if key != "cache_control"}
    return [unmarked(item) for item in value] if isinstance(value, list) else value


async def test_the_thoughts_that_led_to_calls_are_sent_back(provider: Provider) -> None:
    requests = await played(provider, "thoughts_are_shown_kept_saved_and_sent_back")

    sent = list(texts_in(requests[-1].body))
    assert [sent.count(thought) for thought in THOUGHTS[:2]] == [1, 1]
    assert sum(text in THOUGHTS for text in texts_in(requests[0].body)) == 0


async def test_pictures_and_documents_are_sent_whole_and_once(provider: Provider) -> None:
    for name in ("pictures_and_documents_are_seen", "pictures_and_documents_in_results_are_seen"):
        body = json.dumps((await played(provider, name))[-1].body)
        for attachment in (RED, PAGE):
            assert body.count(base64.b64encode(attachment.data).decode()) == 1


async def test_the_system_prompt_stands_in_each_request_once(provider: Provider) -> None:
    for request in await played(provider, "the_system_prompt_is_followed"):
        assert list(texts_in(request.body)).count("End each answer to the person with the word ALPINE.") == 1


async def test_ids_that_differ_stay_different(provider: Provider) -> None:
    requests = await played(provider, "calls_with_the_ids_of_others_are_taken")

    fields = ("id", "call_id", "tool_use_id", "tool_call_id")
    ids = [text for field in fields for text in named(requests[-1].body, field)]
    assert len(set(ids)) == len(ODD_IDS) + 1
    assert sorted(ids) == sorted([*set(ids), *set(ids)]), "each call has one result"


def named(value: Any, name: str) -> list[Any]:
    """All values of this name in some JSON."""
    if isinstance(value, dict):
        found = [item for key, item in value.items() if key == name]
        return found + [each for item in value.values() for each in named(item, name)]
    return [each for item in value for each in named(item, name)] if isinstance(value, list) else []


async def test_odd_characters_are_sent_as_they_are(provider: Provider) -> None:
    requests = await played(provider, "odd_characters_do_no_harm")

    sent = list(texts_in(requests[-1].body))
    for text in (f"You are brief. {ODD}", f"Say: done. 😀 {ODD}\ufffd", ODD):
        assert text in sent
    assert any(f"{ODD} is large" in text for text in sent)


async def test_the_settings_are_sent(provider: Provider) -> None:
    settings = {"max_tokens": 77, "temperature": 0.5} | ({"stop": ["END"]} if provider.stops else {})
    name = provider.with_temperature or provider.name
    async with ProviderServer(["Hi"], api_key=KEY) as server:
        await provider.at(server, name=name, **settings).respond(REQUEST, ignore)

    body = server.requests[0].body
    assert values_at(body, *provider.max_tokens_at) == 77
    assert named(body, "temperature") == [0.5]
    assert [stop for name in ("stop", "stop_sequences", "stopSequences") for stop in named(body, name)] == (
        [["END"]] if provider.stops else []
    )


async def test_an_empty_result_is_something_and_an_error_says_what(provider: Provider) -> None:
    requests = await played(provider, "empty_results_and_errors_of_tools_are_told")

    sent = list(texts_in(requests[-1].body))
    assert sent.count("(empty)") == 1
    assert sum("no paper for a page" in text for text in sent) == 1


# ---- What comes back


@pytest.mark.parametrize("chunk_size", [1, 7])
async def test_odd_characters_come_as_they_are_in_any_split(provider: Provider, chunk_size: int) -> None:
    """Raw, escaped, and half of a character, which becomes U+FFFD: in texts, thoughts and arguments."""
    odd = f"{ODD} \ufffd."
    answer = Reply([ThinkingBlock(odd), TextBlock(odd), tool_call("look", place=odd)])

    def streamed(request: ReceivedRequest) -> Fault:
        data = b"".join(provider.format().events(answer, request)).replace(b"\\ufffd", b"\\ud800")
        for character in "\u2028\x85\u200b":
            escaped = json.dumps(character)[1:-1].encode()
            data = data.replace(b"\\" + escaped, character.encode()).replace(escaped, character.encode())
        return Fault(body=data, chunk_size=chunk_size)

    tools, shown, state = Tools(), Shown(), asking("Look")
    async with ProviderServer([streamed, "Done."], api_key=KEY) as server:
        await Agent(model=provider.at(server), tools=[tools], reporter=shown).run(state)

    assert tools.looked == [odd]
    assert "".join(shown.text) == f"{odd}Done."
    assert "".join(shown.thinking) == state.messages[1].blocks[0].text == odd
    assert state.messages[1].text == odd
    assert_replays(state)


async def test_usage_is_counted_and_priced(provider: Provider) -> None:
    replies = [
        Reply([tool_call("look", place="Paris")], usage=Usage(1_000, 200, requests=1)),
        Reply([TextBlock("Large.")], usage=Usage(1_500, 100, requests=1)),
    ]
    async with ProviderServer(replies, api_key=KEY) as server:
        agent = Agent(model=provider.at(server, price=Price(3, "15.5")), tools=[Tools()])
        state = asking("Look at Paris")
        await agent.run(state)

    assert state.usage == Usage(2_500, 300, requests=2, cost=Decimal("0.01215"))
    assert State(history=state.history).usage == state.usage


@pytest.mark.parametrize("words", ["", "I can't help with that."])
async def test_a_refusal_is_known_and_the_conversation_goes_on(provider: Provider, words: str) -> None:
    """B15: it isn't asked again, and what was refused stands in no one's way."""
    refusal = attrs.evolve(provider.refusal, blocks=[TextBlock(words)] if words else [])
    async with ProviderServer([refusal, refusal, "Hello."], api_key=KEY) as server:
        model, state = provider.at(server), asking("Do it")
        reply = await model.respond(REQUEST, ignore)
        await Agent(model=model).run(state)
        answer = await on(Agent(model=model), state, "Say hello then")

    assert (reply.refusal, reply.text) == (True, words)
    assert [entry.content.refusal for entry in state.history if entry.kind == "model_reply"] == [True, False]
    assert answer == "Hello."
    assert len(server.requests) == 3


@pytest.mark.parametrize("words", ["", "I look. "])
async def test_a_call_that_was_cut_off_is_not_run(provider: Provider, words: str) -> None:
    """B16. Google tells nothing of such a call."""
    cut = ToolCall("call_1", "look", None, '{"place": "Par')
    blocks = [TextBlock(words), cut] if words else [cut]
    tools, state = Tools(), asking("Look at Paris")
    async with ProviderServer([Reply(blocks, cut_off=True), "Done.", "Done."], api_key=KEY) as server:
        agent = Agent(model=provider.at(server), tools=[tools])
        if provider is GOOGLE and not words:
            with pytest.raises(CutOffError):
                await agent.run(state)
        else:
            await agent.run(state)
            told = [entry.outcome for entry in state.history if entry.kind == "tool_result"]
            assert told == ([] if provider is GOOGLE else ["input_error"])
            assert provider is GOOGLE or "cut off by the output limit" in state.messages[2].blocks[0].content[0].text
        answer = await on(agent, state, "Go on")

    assert answer == "Done."
    assert tools.looked == []
    assert_replays(state)


# ---- What goes wrong


async def test_a_conversation_that_does_not_fit_is_its_own_error(provider: Provider) -> None:
    body = provider.format().error(400, provider.too_long)
    async with ProviderServer([Fault(status=400, body=body), "Hello."], api_key=KEY) as server:
        agent, state = Agent(model=provider.at(server)), asking("word " * 1_000)
        with pytest.raises(ContextTooLongError, match="compact the State"):
            await agent.run(state)
        state.compact("Many words.")
        answer = await agent.run(state)

    assert answer == "Hello."


async def test_a_rate_limit_is_waited_for_as_long_as_it_says(provider: Provider, autojump_clock: Any) -> None:
    async with ProviderServer([Fault(status=429, headers={"retry-after": "17"}), "Hello."], api_key=KEY) as server:
        state, start = asking("Hi"), trio.current_time()
        answer = await Agent(model=provider.at(server)).run(state)
        waited = trio.current_time() - start

    assert (answer, state.usage.requests) == ("Hello.", 2)
    assert 17 <= waited < 18
    assert [entry.content.kind for entry in state.history if entry.kind == "model_event"] == ["retry"]


async def test_a_longer_wait_than_allowed_is_raised_at_once(provider: Provider, autojump_clock: Any) -> None:
    async with ProviderServer([Fault(status=429, headers={"retry-after": "3600"})], api_key=KEY) as server:
        start = trio.current_time()
        with pytest.raises(RateLimitError) as caught:
            await Agent(model=provider.at(server)).run("Hi")

    assert caught.value.retry_after == 3600
    assert trio.current_time() - start < 1


async def test_an_answer_is_there_when_its_end_is_whatever_the_socket_does(
    provider: Provider, autojump_clock: Any
) -> None:
    """B4: half a second is for usage that may come behind it."""
    async with ProviderServer([Fault(answer=WORDS, stall=True)], api_key=KEY) as server:
        start = trio.current_time()
        reply = await provider.at(server, retries=0).respond(REQUEST, ignore)
        waited = trio.current_time() - start

    assert reply.text == WORDS
    assert waited <= 0.6


async def test_a_whole_call_without_the_end_of_the_answer_is_not_run(provider: Provider, autojump_clock: Any) -> None:
    """B4: neither where the connection ends cleanly, as it does without a content length, nor in the last attempt."""

    def without_its_end(request: ReceivedRequest) -> Fault:
        call = Reply([TextBlock("I look. "), tool_call("look", place="Paris"), TextBlock("Wait.")])
        data = b"".join(provider.format().events(call, request))
        return Fault(body=data[: data.index(b"Wait")], chunked=False)

    tools, state = Tools(), asking("Look at Paris")
    async with ProviderServer([without_its_end] * 3, api_key=KEY) as server:
        with pytest.raises(BrokenStreamError):
            await Agent(model=provider.at(server, retries=2), tools=[tools]).run(state)

    assert len(server.requests) == 3
    assert tools.looked == []
    assert [message.role for message in state.messages] == ["user"]
    assert_replays(state)


async def test_an_answer_that_is_given_up_in_the_middle_begins_again(provider: Provider, autojump_clock: Any) -> None:
    """B6: nothing of the first is left, and who shows it is told."""

    def given_up(request: ReceivedRequest) -> bytes:
        events = provider.format().events(Reply([TextBlock(WORDS)]), request)
        return b"".join(events[: len(events) // 2]) + provider.overloaded

    emitted: list[Any] = []
    async with ProviderServer([given_up, "Hello."], api_key=KEY) as server:
        reply = await provider.at(server).respond(REQUEST, emitted.append)

    [restarted] = [number for number, event in enumerate(emitted) if isinstance(event, ModelEvent)]
    assert emitted[restarted].data["restarted"]
    assert TextDelta("One ") in emitted[:restarted]
    assert [event.text for event in emitted[restarted + 1 :]] == ["Hello."]
    assert (reply.text, reply.usage.requests) == ("Hello.", 2)


async def test_who_gives_up_again_and_again_is_overloaded(provider: Provider, autojump_clock: Any) -> None:
    async with ProviderServer([provider.overloaded] * 3, api_key=KEY) as server:
        with pytest.raises(OverloadedError) as caught:
            await provider.at(server, retries=2).respond(REQUEST, ignore)

    assert len(server.requests) == 3
    assert caught.value.provider == provider.made().provider


# ---- Answers of a type


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("how", ["native", "tool", "prompt"])
async def test_ask_gets_its_type_by_every_way(provider: Provider, how: str, kind: str) -> None:
    written = ANSWERS[kind][3]
    by_tool = how == "tool" or (provider is ANTHROPIC and kind == "dict" and how == "native")
    text = "Paris" if written is None else json.dumps(written)
    answer = tool_call("give_answer", **written) if by_tool and written is not None else text
    async with ProviderServer([answer], api_key=KEY) as server:
        await asked(lambda **options: provider.at(server, structured=how, **options), kind)

    body = server.requests[0].body
    schemas = [*named(body, "response_format"), *named(body, "responseJsonSchema"), *named(body, "format")]
    is_asked = written is not None
    assert bool(schemas) == (is_asked and how == "native" and not by_tool)
    assert ("give_answer" in texts_in(body)) == (is_asked and by_tool)
    assert ("JSON Schema" in json.dumps(body)) == (is_asked and (how == "prompt" or provider is CHAT))


async def test_an_answer_that_does_not_fit_is_asked_for_again(provider: Provider) -> None:
    """With what was wrong; and the conversation, with its calls and thoughts, is in view."""
    script = [
        Reply([ThinkingBlock("Hm."), tool_call("look", place="Paris")]),
        "Large.",
        '{"city": "Paris"}',
        '{"city": "Paris", "country": "France"}',
    ]
    async with ProviderServer(script, api_key=KEY) as server:
        agent = Agent(model=provider.at(server, structured="native"), tools=[Tools()])
        state = asking("Look at Paris")
        await agent.run(state)
        hint, question, expected, _ = ANSWERS["dataclass"]
        answer = await agent.ask(state, question, returns=hint)

    assert answer == expected
    assert any("country" in text and "not what was asked for" in text for text in texts_in(server.requests[-1].body))
    assert provider is not RESPONSES or "reasoning" in named(server.requests[-1].body, "type")

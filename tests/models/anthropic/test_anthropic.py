"""Anthropic as a value, and over real sockets against a scripted provider that is as strict as the real one."""

import subprocess
import sys
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pytest

import alpineagents
from alpineagents import (
    Agent,
    AuthError,
    BadRequestError,
    BrokenStreamError,
    ContextTooLongError,
    Message,
    ModelEvent,
    ModelNotFoundError,
    OverloadedError,
    Price,
    ProviderError,
    RateLimitError,
    RawBlock,
    Reply,
    Request,
    State,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolCall,
    ToolResultBlock,
    ToolSpec,
    Usage,
    tool,
)
from alpineagents.models import OpenAICompatible
from alpineagents.models._anthropic import Anthropic
from alpineagents.stores import MemoryStore
from alpineagents.testing import ProviderServer, tool_call
from alpineagents.testing._provider_server import Fault

PACKAGE = Path(alpineagents.__file__).parent
REQUEST = Request(messages=[Message.user("Hi")])
SONNET = "claude-sonnet-4-5"
KEY = "sk-ant-" + "very-secret" * 2


def ignore(event):
    """An emit that drops everything."""


def model_at(server, name=SONNET, **options):
    return Anthropic(name, base_url=server.origin, **options)


@tool
async def look(place: str) -> str:
    """Look."""
    return f"{place} is large"


# ---- A value


def test_the_base_url_comes_from_the_environment_and_else_is_anthropics(monkeypatch):
    assert Anthropic(SONNET).base_url == "https://api.anthropic.com"
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:8080/")
    assert Anthropic(SONNET).base_url == "http://127.0.0.1:8080"


def test_it_is_named_by_provider_and_model():
    assert Anthropic(SONNET).name == f"anthropic/{SONNET}"
    assert Anthropic(SONNET, base_url="http://127.0.0.1:1").name == f"anthropic/{SONNET}"
    assert Anthropic(SONNET, provider="mine").name == f"mine/{SONNET}"


def test_the_path_is_no_part_of_the_base_url():
    with pytest.raises(ValueError, match="leave /v1/messages off"):
        Anthropic(SONNET, base_url="https://api.anthropic.com/v1/messages")


def test_the_key_and_the_headers_are_not_in_the_repr():
    assert "very-secret" not in repr(Anthropic(SONNET, api_key=KEY, extra_headers={"x-key": KEY}))


@pytest.mark.parametrize(
    ("name", "structured"),
    [(SONNET, "native"), ("claude-opus-4-1", "tool"), ("claude-fable-6", "native"), ("m", "tool")],
)
def test_how_an_answer_is_held_to_its_schema_is_by_the_model(name, structured):
    model = Anthropic(name)

    assert (model.structured, model.structured_output) == (structured, True)
    assert not Anthropic(name, structured="prompt").structured_output
    with pytest.raises(ValueError, match="structured must be one of"):
        Anthropic(name, structured="magic")


@pytest.mark.parametrize("module", ["_anthropic_wire", "_anthropic_stream"])
def test_the_wire_is_pure(module):
    code = f"""
import sys, types
for name, path in {{"alpineagents": {str(PACKAGE)!r}, "alpineagents.models": {str(PACKAGE / "models")!r}}}.items():
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
import alpineagents.models.{module}
assert not {{"trio", "httpx", "ssl"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# ---- One request


@pytest.mark.parametrize("chunk_size", [None, 1, 7])
async def test_a_reply_is_streamed_and_whole(chunk_size):
    emitted = []
    call = ToolCall("toolu_1", "read", {"path": "a"})
    answer = Reply([ThinkingBlock("Let me look. "), TextBlock("I look."), call], usage=Usage(7, 5, 2, 1, requests=1))
    async with ProviderServer([answer], chunk_size=chunk_size) as server:
        reply = await model_at(server).respond(REQUEST, emitted.append)

    assert (reply.text, reply.tool_calls, reply.model, reply.stop_reason) == ("I look.", (call,), SONNET, "tool_use")
    usage = reply.usage
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens) == (7, 5, 2, 1)
    assert emitted == [ThinkingDelta(word) for word in ("Let ", "me ", "look. ")] + [
        TextDelta("I "),
        TextDelta("look."),
    ]


async def test_the_cost_counts_the_cache_apart():
    answer = Reply([TextBlock("Hi")], usage=Usage(3_000_000, 1_000_000, 1_000_000, 1_000_000, requests=1))
    price = Price(input=4, output=20, cache_read="0.2", cache_write=5)
    async with ProviderServer([answer]) as server:
        reply = await model_at(server, price=price).respond(REQUEST, ignore)

    assert reply.usage.cost == Decimal("29.2")


async def test_the_key_is_sent_as_anthropic_wants_it_and_read_when_the_request_is_made(monkeypatch):
    async with ProviderServer(["Hi", "Hi"], api_key=KEY) as server:
        model = model_at(server)
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        await model.respond(REQUEST, ignore)
        await model_at(server, api_key=KEY, extra_headers={"X-Title": "tests"}).respond(REQUEST, ignore)

    headers = server.requests[1].headers
    assert (headers["x-api-key"], headers["anthropic-version"], headers["x-title"]) == (KEY, "2026-10-21", "tests")
    assert "authorization" not in headers


async def test_a_wrong_key_is_refused_with_how_to_give_one_and_without_showing_it():
    async with ProviderServer(["never"], api_key="another") as server:
        with pytest.raises(AuthError, match="set ANTHROPIC_API_KEY or pass api_key=") as caught:
            await model_at(server, api_key=KEY).respond(REQUEST, ignore)

    assert caught.value.status == 401
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BadRequestError),
        (403, AuthError),
        (404, ModelNotFoundError),
        (413, BadRequestError),
        (429, RateLimitError),
        (500, OverloadedError),
        (529, OverloadedError),
    ],
)
async def test_an_error_answer_is_its_class_with_the_id_of_the_request(status, kind):
    fault = Fault(status=status, headers={"request-id": "req_011", "retry-after": "3600"})
    async with ProviderServer([fault]) as server:
        with pytest.raises(kind, match=f"scripted failure {status}") as caught:
            await model_at(server, retries=0).respond(REQUEST, ignore)

    assert (caught.value.status, caught.value.request_id, caught.value.provider) == (status, "req_011", "anthropic")


@pytest.mark.parametrize(
    "message",
    [
        "prompt is too long: 210000 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length",
    ],
)
async def test_a_conversation_that_does_not_fit_is_its_own_error(message):
    body = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    async with ProviderServer([Fault(status=400, body=body)]) as server:
        with pytest.raises(ContextTooLongError):
            await model_at(server).respond(REQUEST, ignore)


async def test_a_page_is_no_answer():
    async with ProviderServer([Fault(body="<html><title>Sign in</title></html>")]) as server:
        with pytest.raises(ModelNotFoundError, match="Sign in"):
            await model_at(server).respond(REQUEST, ignore)


def error_event(kind):
    return f'event: error\ndata: {{"type":"error","error":{{"type":"{kind}","message":"Scripted"}}}}\n\n'.encode()


START = (
    b'event: message_start\ndata: {"type":"message_start","message":{"model":"m","usage":{"input_tokens":9}}}\n\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":'
    b'{"type":"text","text":"Hello"}}\n\n'
)


async def test_an_error_in_the_stream_is_the_class_of_its_own_type():
    """B6: the HTTP status was 200."""
    refused = START + error_event("invalid_request_error")
    async with ProviderServer([refused]) as server:
        with pytest.raises(BadRequestError, match="broke off its answer") as caught:
            await model_at(server).respond(REQUEST, ignore)

    assert (caught.value.status, caught.value.usage.input_tokens) == (200, 9)


async def test_a_stream_that_is_cut_is_no_answer():
    async with ProviderServer([Fault(body=START, chunked=False)]) as server:
        with pytest.raises(BrokenStreamError):
            await model_at(server, retries=0).respond(REQUEST, ignore)


async def test_an_overloaded_provider_is_asked_again_in_whichever_way_it_says_so(autojump_clock):
    """B6: by its status, as the first event, or in the middle of the answer, which then begins again."""
    emitted = []
    overloaded = error_event("overloaded_error")
    async with ProviderServer([Fault(status=529), overloaded, START + overloaded, "Hello."]) as server:
        reply = await model_at(server).respond(REQUEST, emitted.append)

    assert (reply.text, reply.usage.requests) == ("Hello.", 4)
    assert [event.data["restarted"] for event in emitted if isinstance(event, ModelEvent)] == [False, False, True]


async def test_what_the_provider_refuses_is_said():
    """The scripted provider is strict: this is no request that the API takes."""
    async with ProviderServer(["never"]) as server:
        with pytest.raises(BadRequestError, match="top_k: Extra inputs are not permitted"):
            await model_at(server, "claude-sonnet-5", extra_body={"top_k": 3}).respond(REQUEST, ignore)


# ---- pause_turn

SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "a"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}


def paused(*blocks, usage=None):
    return Reply(
        [RawBlock("anthropic", block) if isinstance(block, dict) else block for block in blocks],
        stop_reason="pause_turn",
        usage=usage or Usage(10, 2, requests=1),
    )


async def test_a_paused_reply_is_sent_back_unchanged_and_goes_on_as_one():
    emitted = []
    first = paused(ThinkingBlock("Hm."), TextBlock("I search. "), SEARCH)
    last = Reply([RawBlock("anthropic", FOUND), TextBlock("Found.")], usage=Usage(20, 3, requests=1))
    async with ProviderServer([first, last]) as server:
        model = model_at(server, thinking=True, price=Price(1_000_000, 0))
        reply = await model.respond(REQUEST, emitted.append)

    kinds = [type(block).__name__ for block in reply.blocks]
    assert kinds == ["ThinkingBlock", "TextBlock", "RawBlock", "RawBlock", "TextBlock"]
    assert (reply.text, reply.stop_reason) == ("I search. Found.", "end_turn")
    usage = reply.usage
    assert (usage.input_tokens, usage.output_tokens, usage.requests, usage.cost) == (30, 5, 2, 30)
    assert "".join(event.text for event in emitted if isinstance(event, TextDelta)) == reply.text
    sent = server.requests[1].body["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant"]
    thinking = sent[1]["content"][0]
    assert thinking == {"type": "thinking", "thinking": "Hm.", "signature": reply.blocks[0].signature}
    assert sent[1]["content"][1:] == [{"type": "text", "text": "I search. "}, SEARCH]


async def test_a_reply_is_sent_back_five_times_at_most():
    async with ProviderServer([paused(TextBlock("On. "), SEARCH, FOUND)] * 9) as server:
        reply = await model_at(server).respond(REQUEST, ignore)

    assert (reply.stop_reason, reply.usage.requests, reply.text) == ("pause_turn", 6, "On. " * 6)


async def test_what_was_paid_before_a_continuation_failed_is_known():
    fault = Fault(status=400)
    async with ProviderServer(
        [paused(SEARCH), fault, paused(SEARCH), START + error_event("invalid_request_error")]
    ) as server:
        with pytest.raises(BadRequestError) as caught:
            await model_at(server).respond(REQUEST, ignore)
        assert (caught.value.usage.input_tokens, caught.value.usage.output_tokens) == (10, 2)
        with pytest.raises(BadRequestError) as caught:
            await model_at(server).respond(REQUEST, ignore)
        assert caught.value.usage.input_tokens == 19


async def test_a_continuation_that_is_sent_again_shows_what_came_before_it_again(autojump_clock):
    """When a retry says that what was shown is thrown away, a UI throws away the first part too."""
    emitted = []
    first = paused(ThinkingBlock("Hm. "), ThinkingBlock(""), TextBlock("I search. "), SEARCH)
    cut = Fault(answer=Reply([RawBlock("anthropic", FOUND), TextBlock("Fou")]), cut_after=1_000, chunked=False)
    last = Reply([RawBlock("anthropic", FOUND), TextBlock("Found.")])
    async with ProviderServer([first, cut, last]) as server:
        reply = await model_at(server).respond(REQUEST, emitted.append)

    kinds = {event.kind: number for number, event in enumerate(emitted) if isinstance(event, ModelEvent)}
    assert list(kinds) == ["continued", "retry"]
    restarted = kinds["retry"]
    shown = emitted[restarted + 1 :]
    assert emitted[restarted].data["restarted"]
    assert "".join(event.text for event in shown if isinstance(event, TextDelta)) == reply.text == "I search. Found."
    assert [event for event in shown if isinstance(event, ThinkingDelta)] == [ThinkingDelta("Hm. ")]


async def test_a_conversation_goes_on_behind_a_reply_that_stayed_paused():
    async with ProviderServer([*[paused(SEARCH)] * 6, "Done."]) as server:
        agent = Agent(model=model_at(server))
        state = State(messages=[Message.user("Search")])
        await agent.think(state)
        state.add_message(Message.user("Well?"))
        reply = await agent.think(state)

    assert reply.text == "Done."


# ---- An agent


@pytest.mark.parametrize("name", [SONNET, "claude-opus-4-6", "claude-opus-5-5", "claude-sonnet-5-5"])
async def test_an_agent_thinks_and_calls_tools_is_saved_and_goes_on(name):
    """B18: the provider refuses thinking that isn't its own, byte for byte."""
    thoughts = [ThinkingBlock("Where? "), ThinkingBlock("", raw={"redacted": "hidden"})]
    script = [
        Reply([*thoughts, TextBlock("I look."), tool_call("look", place="Paris"), tool_call("look", place="Rome")]),
        Reply([ThinkingBlock("So."), TextBlock("Both are large.")]),
        "Yes.",
    ]
    store = MemoryStore()
    async with ProviderServer(script) as server:
        agent = Agent(model=model_at(server, name, thinking=True), tools=[look], store=store, system="Be brief.")
        state = State(messages=[Message.user("Look at Paris and Rome")])
        await agent.run(state)
        loaded = await store.load(state.id)
        loaded.add_message(Message.user("Sure?"))
        await agent.run(loaded)

    assert loaded.messages[-1].text == "Yes."
    sent = [request.body["messages"] for request in server.requests]
    kinds = [block["type"] for block in sent[2][1]["content"]]
    assert kinds == ["thinking", "redacted_thinking", "text", "tool_use", "tool_use"]
    assert [block["type"] for block in sent[2][3]["content"]] == ["thinking", "text"]
    for before, after in pairwise(sent):
        assert unmarked(after)[: len(before)] == unmarked(before)


def unmarked(value):
    if isinstance(value, list):
        return [unmarked(item) for item in value]
    if isinstance(value, dict):
        return {key: unmarked(item) for key, item in value.items() if key != "cache_control"}
    return value


@pytest.mark.parametrize("name", [SONNET, "claude-opus-5-5"])
async def test_a_conversation_changes_provider_in_the_middle_of_a_turn_and_back(name):
    """Ids, names and thinking of one are valid for the other, or stay away from it."""
    thought = ThinkingBlock("Hm. ")
    chat_call = ToolCall("call|1/ü" + "x" * 70, "look", {"place": "Paris"})
    script = [
        Reply([thought, chat_call]),  # OpenAICompatible
        Reply([thought, tool_call("look", place="Rome")]),  # Anthropic, in the middle of the turn
        Reply([thought, tool_call("look", place="Bonn")]),  # OpenAICompatible again
        Reply([thought, TextBlock("All are large.")]),  # Anthropic
        "Yes.",
    ]
    async with ProviderServer(script) as server:
        chat = Agent(model=OpenAICompatible("m", base_url=server.base_url), tools=[look])
        claude = Agent(model=model_at(server, name, thinking=True), tools=[look])
        state = State(messages=[Message.user("Look around")])
        for agent in (chat, claude, chat):
            await agent.think(state)
            await agent.use_tools(state)
        await claude.think(state)
        state.add_message(Message.user("Sure?"))
        reply = await claude.think(state)

    assert reply.text == "Yes."
    last = server.requests[-1].body["messages"]
    own = [[block["type"] for block in message["content"]] for message in last if message["role"] == "assistant"]
    assert own == [["tool_use"], ["thinking", "tool_use"], ["tool_use"], ["thinking", "text"]]


@dataclass
class City:
    name: str
    people: int


PARIS = '{"name": "Paris", "people": 2100000}'
GIVEN = tool_call("give_answer", name="Paris", people=2_100_000)


@pytest.mark.parametrize("talked", [False, True], ids=["first", "after a tool call"])
@pytest.mark.parametrize(
    ("name", "answer", "how"),
    [(SONNET, PARIS, "native"), ("claude-opus-5-5", PARIS, "native"), ("claude-opus-4-1", GIVEN, "tool")],
)
async def test_ask_gets_its_type_in_the_way_that_the_model_has(name, answer, how, talked):
    before = [tool_call("look", place="Paris"), "Large."] if talked else []
    async with ProviderServer([*before, answer]) as server:
        agent = Agent(model=model_at(server, name), tools=[look])
        state = State(messages=[Message.user("Look at Paris")])
        if talked:
            await agent.run(state)

        assert await agent.ask(state, "Which city?", returns=City) == City("Paris", 2_100_000)

    sent = server.requests[-1].body
    assert ("format" in sent.get("output_config", {})) == (how == "native")
    assert sent.get("tool_choice") == (
        {"type": "tool", "name": "give_answer"} if how == "tool" else {"type": "none"} if talked else None
    )


@pytest.mark.parametrize("name", [SONNET, "claude-opus-5-5"])
async def test_ask_takes_a_tool_for_a_type_that_structured_output_has_no_way_to_say(name):
    async with ProviderServer([tool_call("give_answer", a=1)]) as server:
        agent = Agent(model=model_at(server, name))

        assert await agent.ask(State(messages=[Message.user("Hi")]), "Count", returns=dict[str, int]) == {"a": 1}

    sent = server.requests[-1].body
    assert ("tool_choice" in sent) == (name == SONNET)
    assert "output_config" not in sent


async def test_a_refusal_is_a_reply_and_the_conversation_goes_on():
    """B15: its calls don't run, and the history stays one that can be sent."""
    refused = Reply([TextBlock("First I "), tool_call("look", place="Paris")], refusal=True)
    async with ProviderServer([refused, "Fine."]) as server:
        agent = Agent(model=model_at(server), tools=[look])
        state = State(messages=[Message.user("Mix it")])
        first = await agent.run(state)
        state.add_message(Message.user("Then don't"))
        await agent.run(state)

    assert first is not None
    assert [message.text for message in state.messages if message.role == "assistant"] == ["First I ", "Fine."]
    assert state.messages[1].tool_calls == ()


@pytest.mark.parametrize("own_beta", [False, True])
async def test_a_conversation_that_was_changed_before_bound_thinking_can_go_on(own_beta):
    """Such as by a compaction. With a beta header of the caller's own, it is the caller who says what is dropped."""
    options = {"extra_headers": {"anthropic-beta": "beta1"}} if own_beta else {}
    thought = Reply([ThinkingBlock("Let me look."), tool_call("look", place="Paris")])
    async with ProviderServer([thought, "Sunny."]) as server:
        model = Anthropic("claude-opus-5-5", base_url=server.origin, api_key="k", retries=0, thinking=True, **options)
        reply = await model.respond(Request(messages=[Message.user("Look")]), ignore)
        result = ToolResultBlock(reply.tool_calls[0].id, [TextBlock("Sun")])
        changed = [Message.user("So far: nothing"), Message("assistant", reply.blocks), Message("tool", [result])]
        spec = ToolSpec("look", "Look.", {"type": "object"})
        if own_beta:
            with pytest.raises(BadRequestError, match="bound to another conversation"):
                await model.respond(Request(messages=changed, tools=[spec]), ignore)
        else:
            assert (await model.respond(Request(messages=changed, tools=[spec]), ignore)).text == "Sunny."


async def test_a_call_that_the_limit_cut_off_does_not_run_and_the_loop_goes_on():
    """B16."""
    cut = Reply([ToolCall("toolu_1", "look", None, '{"place": "Par')], cut_off=True)
    async with ProviderServer([cut, "Too long."]) as server:
        agent = Agent(model=model_at(server), tools=[look])
        state = State(messages=[Message.user("Look")])
        await agent.run(state)

    sent = server.requests[1].body["messages"]
    assert sent[1]["content"][0]["input"] == {}
    assert sent[2]["content"][0]["is_error"] is True
    assert state.messages[-1].text == "Too long."


async def test_a_limit_met_in_thinking_leaves_a_history_that_can_be_sent():
    """B17: the API refuses a message that ends with thinking."""
    cut = Reply([ThinkingBlock("Let me")], cut_off=True)
    async with ProviderServer([cut, "Yes."]) as server:
        model = model_at(server, thinking=True)
        first = await model.respond(REQUEST, ignore)
        messages = [*REQUEST.messages, Message("assistant", first.blocks, True), Message.user("Again")]
        second = await model.respond(Request(messages=messages), ignore)

    assert first.cut_off
    assert second.text == "Yes."


async def test_errors_are_provider_errors():
    async with ProviderServer() as server:
        with pytest.raises(ProviderError, match="the script has no answer"):
            await model_at(server).respond(REQUEST, ignore)

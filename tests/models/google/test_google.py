"""Google as a value, and over real sockets against a scripted provider."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

import alpineagents
from alpineagents import (
    Agent,
    AuthError,
    BadRequestError,
    BrokenStreamError,
    ContextTooLongError,
    Image,
    MemoryStore,
    Message,
    ModelNotFoundError,
    OverloadedError,
    Price,
    RateLimitError,
    Reply,
    Request,
    State,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolCall,
    Usage,
    tool,
)
from alpineagents.models import OpenAICompatible
from alpineagents.models._google import Google
from alpineagents.testing import ProviderServer, tool_call
from alpineagents.testing._formats._google_rules import thought_signature
from alpineagents.testing._provider_server import Fault

NEW, OLD = "gemini-3-pro-preview", "gemini-2.5-flash"
REQUEST = Request(messages=[Message.user("Hi")])
KEY = "AIza-" + "very-secret" * 2
PACKAGE = Path(alpineagents.__file__).parent
LOCAL = "http://127.0.0.1:8080"
GOOGLES = "https://generativelanguage.googleapis.com"
PNG = Image(b"\x89PNG\r\n\x1a\n" + b"x" * 8)
SKIP = "skip_thought_signature_validator"


def ignore(event):
    """An emit that drops everything."""


def model_at(server, name=NEW, retries=0, **options):
    return Google(name, base_url=server.origin, retries=retries, **options)


def parts_of(request):
    return [part for content in request.body["contents"] for part in content["parts"]]


# ---- A value


def test_the_name_begins_with_the_provider():
    assert Google("gemini-2.5-flash").name == "google/gemini-2.5-flash"
    assert Google("m", provider="mine").name == "mine/m"


def test_the_base_url_comes_from_the_environment_and_else_is_googles(monkeypatch):
    assert Google("m").base_url == GOOGLES
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", "http://sdk.example/")
    assert Google("m").base_url == "http://sdk.example"
    monkeypatch.setenv("GEMINI_BASE_URL", "http://ours.example")
    assert Google("m").base_url == "http://ours.example"
    assert Google("m", base_url="http://given.example").base_url == "http://given.example"


def test_the_version_is_no_part_of_the_base_url():
    with pytest.raises(ValueError, match="leave /v1beta off"):
        Google("m", base_url=f"{GOOGLES}/v1beta")


def test_the_key_and_the_headers_are_not_in_the_repr():
    model = Google("m", api_key=KEY, extra_headers={"x-key": "other-secret"})

    assert "secret" not in repr(model)
    assert "google/m" in repr(model)


def test_it_is_frozen():
    with pytest.raises(AttributeError):
        Google("m").seed = 1


def test_known_models_have_a_window_and_a_price():
    """From genai-prices, a dependency of the tests."""
    model = Google("gemini-2.5-flash")

    assert model.context_window >= 1_000_000
    assert model.price.input > 0


def test_answers_are_held_to_their_schema_except_by_words():
    held = {how: Google("m", structured=how).structured_output for how in ("native", "tool", "prompt")}

    assert held == {"native": True, "tool": True, "prompt": False}


def test_importing_and_making_a_model_loads_no_http_client():
    code = f"""
import sys
from alpineagents.models._google import Google
Google("gemini-2.5-flash", base_url={LOCAL!r})
assert "httpx" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("module", ["_google_wire", "_google_stream"])
def test_the_wire_is_pure(module):
    """It and what it imports from this package."""
    code = f"""
import sys, types
for name, path in {{"alpineagents": {str(PACKAGE)!r}, "alpineagents.models": {str(PACKAGE / "models")!r}}}.items():
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
import alpineagents.models.{module}
assert not {{"trio", "httpx", "ssl"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# ---- Over sockets


async def test_a_reply_is_streamed_and_whole():
    emitted = []
    call = ToolCall("c1", "read", {"path": "a"})
    answer = Reply(
        [ThinkingBlock("Let me look. "), TextBlock("I look."), call],
        usage=Usage(7, 5, cache_read_tokens=4, thinking_tokens=2, requests=1),
    )
    async with ProviderServer([answer]) as server:
        reply = await model_at(server, price=Price(1, 2)).respond(REQUEST, emitted.append)

    assert (reply.text, reply.tool_calls, reply.model, reply.stop_reason) == ("I look.", (call,), NEW, "STOP")
    usage = reply.usage
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.thinking_tokens) == (7, 5, 4, 2)
    assert usage.cost == Price(1, 2).cost(usage)
    assert emitted == [ThinkingDelta(word) for word in ("Let ", "me ", "look. ")] + [
        TextDelta("I "),
        TextDelta("look."),
    ]


@pytest.mark.parametrize("chunk_size", [1, 3, 1_000])
async def test_the_size_of_the_pieces_does_not_matter(chunk_size):
    async with ProviderServer(["Wörld 😀"], chunk_size=chunk_size) as server:
        reply = await model_at(server).respond(REQUEST, ignore)

    assert reply.text == "Wörld 😀"


async def test_the_key_goes_in_a_header_and_never_in_the_url():
    async with ProviderServer(["Hi"], api_key=KEY) as server:
        await model_at(server, api_key=f"{KEY}\n", extra_headers={"X-Title": "tests"}).respond(REQUEST, ignore)

    request = server.requests[0]
    assert request.path == f"/v1beta/models/{NEW}:streamGenerateContent?alt=sse"
    assert (request.headers["x-goog-api-key"], request.headers["x-title"]) == (KEY, "tests")
    assert "authorization" not in request.headers


async def test_the_key_is_read_from_the_environment_when_the_request_is_made(monkeypatch):
    async with ProviderServer(["Hi"] * 4) as server:
        model = model_at(server)
        await model.respond(REQUEST, ignore)
        monkeypatch.setenv("GOOGLE_API_KEY", "AIza-google")
        await model.respond(REQUEST, ignore)
        monkeypatch.setenv("GEMINI_API_KEY", "AIza-gemini")
        await model.respond(REQUEST, ignore)
        await model_at(server, api_key="").respond(REQUEST, ignore)

    sent = [request.headers.get("x-goog-api-key") for request in server.requests]
    assert sent == [None, "AIza-google", "AIza-gemini", None]


async def test_a_name_with_any_characters_is_one_segment_of_the_path():
    async with ProviderServer(["Hi"]) as server:
        reply = await model_at(server, "org/my model:é?").respond(REQUEST, ignore)

    assert reply.model == "org/my model:é?"


def status(code, name, message, *details):
    return {"error": {"code": code, "message": message, "status": name, "details": list(details)}}


def retry_info(delay):
    return {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}


WRONG_KEY = status(
    400,
    "INVALID_ARGUMENT",
    "API key not valid. Please pass a valid API key.",
    {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"},
)
QUOTA = status(429, "RESOURCE_EXHAUSTED", "You exceeded your quota.", retry_info("7s"))
OVERLOADED = status(503, "UNAVAILABLE", "The model is overloaded.")


def sse(*chunks):
    return "".join([f"data: {json.dumps(chunk)}\r\n\r\n" for chunk in chunks])


def chunk(text, **more):
    return {"candidates": [{"content": {"parts": [{"text": text}], "role": "model"}, **more}]}


@pytest.mark.parametrize(
    ("fault", "kind", "text"),
    [
        (Fault(status=400, body=WRONG_KEY), AuthError, "GEMINI_API_KEY or GOOGLE_API_KEY"),
        (Fault(status=403), AuthError, "GEMINI_API_KEY"),
        (Fault(status=404), ModelNotFoundError, NEW),
        (Fault(status=429, body=QUOTA), RateLimitError, "wait 7 s"),
        (Fault(status=429, body=json.dumps([QUOTA])), RateLimitError, "wait 7 s"),
        (Fault(status=503, body=OVERLOADED), OverloadedError, "overloaded"),
        (
            Fault(status=402, body=status(402, "RESOURCE_EXHAUSTED", "Credits are depleted.")),
            BadRequestError,
            "depleted",
        ),
        (Fault(status=400, body={"error": {"message": "odd"}}), BadRequestError, "odd"),
        (Fault(status=502, body="<html><title>Down</title>"), OverloadedError, "Down"),
        (
            Fault(status=400, body=status(400, "INVALID_ARGUMENT", "The input token count (9) exceeds the maximum")),
            ContextTooLongError,
            "input token count",
        ),
        (Fault(body=sse(OVERLOADED)), OverloadedError, "overloaded"),
        (Fault(body=sse(chunk("Good "), OVERLOADED)), OverloadedError, "overloaded"),
        (Fault(body=sse(chunk("Good "), [QUOTA])), RateLimitError, "wait 7 s"),
        (Fault(body=json.dumps([chunk("Good "), QUOTA])), RateLimitError, "wait 7 s"),
        (Fault(body="<html><title>Sign in</title>"), ModelNotFoundError, "Sign in"),
        (Fault(body=sse(chunk("Good "))), BrokenStreamError, "before the finish reason"),
        (Fault(cut_after=300), BrokenStreamError, "without sending complete message body"),
        (Fault(cut_after=300, chunked=False), BrokenStreamError, "before the finish reason"),
        (Fault(answer=ToolCall("c1", "f", None, "{")), BrokenStreamError, "MALFORMED_FUNCTION_CALL"),
    ],
)
async def test_a_failure_is_an_error_of_its_class(fault, kind, text, sockets):
    before = sockets()
    async with ProviderServer([fault]) as server:
        with pytest.raises(kind) as caught:
            await model_at(server).respond(REQUEST, ignore)
        await trio.testing.wait_all_tasks_blocked()
        assert server.connections == 0

    assert type(caught.value) is kind
    assert text in str(caught.value)
    assert caught.value.status == fault.status
    assert sockets() == before


@pytest.mark.parametrize(
    ("delay", "header", "seconds"),
    [
        ("7s", None, 7),
        ("1.500s", None, 1.5),
        (".5s", None, 0.5),
        ("7s", "3", 3),
        ("-7s", None, None),
        ("7", None, None),
        ("7ms", None, None),
        (7, None, None),
        ("9" * 40 + "s", None, None),
    ],
)
async def test_the_wait_is_what_the_header_says_or_else_the_body(delay, header, seconds):
    body = status(429, "RESOURCE_EXHAUSTED", "slow", retry_info(delay), "no detail")
    headers = {} if header is None else {"Retry-After": header}
    async with ProviderServer([Fault(status=429, body=body, headers=headers)]) as server:
        with pytest.raises(RateLimitError) as caught:
            await model_at(server).respond(REQUEST, ignore)

    assert caught.value.retry_after == seconds


@pytest.mark.parametrize("key", [KEY, ""])
async def test_a_wrong_key_is_refused(key):
    async with ProviderServer(["never"], api_key="right") as server:
        with pytest.raises(AuthError, match="GEMINI_API_KEY"):
            await model_at(server, api_key=key).respond(REQUEST, ignore)


async def test_an_error_that_repeats_the_key_does_not_show_it():
    reason = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
    body = status(400, "INVALID_ARGUMENT", f"API key {KEY} not valid.", reason)
    for fault in (Fault(status=400, body=body), Fault(body=sse(body))):
        async with ProviderServer([fault]) as server:
            with pytest.raises(AuthError, match="not valid") as caught:
                await model_at(server, api_key=KEY).respond(REQUEST, ignore)

        assert KEY not in str(caught.value) + str(caught.value.body)
        assert "[secret]" in caught.value.body


@pytest.mark.parametrize(
    "body", [[chunk("Good "), chunk("day", finishReason="STOP")], chunk("Good day", finishReason="STOP")]
)
async def test_json_instead_of_events_is_an_answer_too(body):
    """What a proxy gives that loses ``alt=sse``."""
    async with ProviderServer([Fault(body=json.dumps(body), chunk_size=7)]) as server:
        reply = await model_at(server).respond(REQUEST, ignore)

    assert reply.text == "Good day"


@pytest.mark.parametrize(
    ("fault", "seconds"),
    [
        (Fault(status=429, body=QUOTA), 7),
        (Fault(body=sse(chunk("Good "), [QUOTA])), 7),
        (Fault(answer=ToolCall("c1", "f", None, "{")), 0),
        (Fault(body=sse(chunk("Good "), OVERLOADED)), 0),
    ],
    ids=["429", "429 in the stream", "malformed call", "overloaded in the stream"],
)
async def test_what_may_pass_is_asked_again_and_not_before_the_delay_of_the_body(fault, seconds, autojump_clock):
    """A malformed call is drawn by lot, so that the same request may give a good one."""
    async with ProviderServer([fault, "Hello"]) as server:
        reply = await model_at(server, retries=1).respond(REQUEST, ignore)

    assert (reply.text, len(server.requests)) == ("Hello", 2)
    assert seconds <= trio.current_time() < seconds + 3


@pytest.mark.parametrize("name", ["2fa_code", "-x", "_2fa_code", "__9", "_", "a2"])
async def test_a_tool_can_be_called_whatever_its_name_begins_with(name):
    """Gemini takes none that begins with a digit or a dash. Two names never become one."""

    @tool(name=name)
    async def code() -> str:
        """Get the code."""
        return "123456"

    def called(request):
        return ToolCall("c1", request.body["tools"][0]["functionDeclarations"][0]["name"], {})

    def told(request):
        return request.body["contents"][-1]["parts"][0]["functionResponse"]["response"]["result"]

    async with ProviderServer([called, told]) as server:
        agent = Agent(model=Google("gemini-2.5-flash", base_url=server.origin, api_key="k"), tools=[code])
        assert await agent.run("Get it") == "123456"


async def test_after_the_finish_reason_a_socket_that_stays_open_costs_half_a_second(autojump_clock):
    async with ProviderServer([Fault(stall=True)]) as server:
        await model_at(server).respond(REQUEST, ignore)
    assert trio.current_time() <= 0.51


# ---- Conversations


@tool
async def look(place: str) -> str:
    """Look at a place."""
    return f"{place} is large"


@tool
async def photo(place: str) -> Image:
    """Take a photo of a place."""
    return PNG


def steps():
    """A turn of two steps, the first with two calls."""
    return [
        Reply([ThinkingBlock("Two places. "), tool_call("look", place="Rome"), tool_call("look", place="Bern")]),
        [tool_call("photo", place="Rome")],
        Reply([ThinkingBlock("Good. "), TextBlock("Both are large.")]),
    ]


def signatures(request):
    return [part["thoughtSignature"] for part in parts_of(request) if "thoughtSignature" in part]


@pytest.mark.parametrize("name", [NEW, OLD])
async def test_an_agent_with_tools_and_thinking_goes_on_after_save_and_load(name):
    """B18: what the model thought and signed comes back to it byte-equal; the server checks each signature."""
    store = MemoryStore()
    state = State(messages=[Message.user("Compare Rome and Bern")])
    async with ProviderServer([*steps(), tool_call("look", place="Oslo"), "Oslo too."]) as server:
        agent = Agent(model=model_at(server, name, thinking=True), tools=[look, photo], store=store)
        await agent.run(state)
        loaded = await store.load(state.id)
        loaded.add_message(Message.user("And Oslo?"))
        await agent.run(loaded)

    assert loaded.messages[-1].text == "Oslo too."
    last = server.requests[-1]
    assert [part["text"] for part in parts_of(last) if part.get("thought")] == ["Two places. ", "Good. "]
    assert signatures(last)[:2] == [
        thought_signature(name, {"place": "Rome"}),
        thought_signature(name, {"place": "Rome"}),
    ]
    assert len(signatures(last)) == 4
    assert last.body["generationConfig"]["thinkingConfig"]["includeThoughts"] is True
    pictures = [part for part in parts_of(last) if "inlineData" in json.dumps(part)]
    assert len(pictures) == 1
    assert ("functionResponse" in pictures[0]) == (name == NEW)


async def test_a_conversation_goes_from_another_provider_to_gemini_and_back():
    """In the middle of one, whose calls and thoughts each has of its own."""
    state = State(messages=[Message.user("Look at Rome")])
    chat_steps = [Reply([ThinkingBlock("Hm. "), tool_call("look", place="Rome")]), "Large."]
    async with ProviderServer() as server:
        chat = Agent(model=OpenAICompatible("m", base_url=server.base_url), tools=[look, photo])
        gemini = Agent(model=model_at(server), tools=[look, photo])
        for agent, script, question in [
            (chat, chat_steps, None),
            (gemini, [tool_call("look", place="Bern"), tool_call("photo", place="Bern"), "Small."], "And Bern?"),
            (chat, [tool_call("look", place="Oslo"), "Cold."], "And Oslo?"),
            (gemini, [tool_call("look", place="Paris"), "Pretty."], "And Paris?"),
        ]:
            server.add(*script)
            if question is not None:
                state.add_message(Message.user(question))
            await agent.run(state)

    assert [message.text for message in state.messages if message.role == "assistant" and message.text] == [
        "Large.",
        "Small.",
        "Cold.",
        "Pretty.",
    ]
    assert "Hm." not in json.dumps(server.requests[2].body)
    last = server.requests[-1]
    calls = [part for part in parts_of(last) if "functionCall" in part]
    signed = [part["thoughtSignature"] == SKIP for part in calls]
    assert signed == [True, False, False, True, False]
    assert len({part["functionCall"]["id"] for part in calls}) == 5


async def test_a_conversation_in_the_middle_of_a_turn_goes_to_another_model_of_google():
    """The calls of the current turn are another model's: their signatures stay behind."""
    state = State(messages=[Message.user("Look at Rome")])
    async with ProviderServer([tool_call("look", place="Rome"), Fault(status=400), "Large."]) as server:
        with pytest.raises(BadRequestError):
            await Agent(model=model_at(server, OLD), tools=[look]).run(state)
        await Agent(model=model_at(server, NEW), tools=[look]).run(state)

    assert state.messages[-1].text == "Large."
    assert signatures(server.requests[-1]) == [SKIP]


async def test_calls_without_ids_get_some_that_are_unique_in_the_conversation():
    """B10: gemini-2.5 gives none."""

    def calls(*places):
        parts = [{"functionCall": {"name": "look", "args": {"place": place}}} for place in places]
        return sse({"candidates": [{"content": {"parts": parts, "role": "model"}, "finishReason": "STOP"}]})

    state = State(messages=[Message.user("Look")])
    async with ProviderServer([Fault(body=calls("Rome", "Bern")), Fault(body=calls("Oslo")), "Done."]) as server:
        await Agent(model=model_at(server, OLD), tools=[look]).run(state)

    ids = [part["functionCall"]["id"] for part in parts_of(server.requests[-1]) if "functionCall" in part]
    assert len(set(ids)) == 3
    answered = [part["functionResponse"]["id"] for part in parts_of(server.requests[-1]) if "functionResponse" in part]
    assert answered == ids


async def test_an_answer_that_was_cut_off_leaves_the_state_usable():
    """B17."""
    state = State(messages=[Message.user("Tell me")])
    async with ProviderServer([Reply([TextBlock("Once upon")], cut_off=True), "The end."]) as server:
        agent = Agent(model=model_at(server))
        await agent.run(state)
        state.add_message(Message.user("Go on"))
        await agent.run(state)

    assert [message.text for message in state.messages][1::2] == ["Once upon", "The end."]
    assert state.messages[1].cut_off


async def test_a_refusal_leaves_the_state_usable():
    """B15: no text at all, and nothing of it in the next request."""
    state = State(messages=[Message.user("Tell me")])
    blocked = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 3}}
    async with ProviderServer([Fault(body=sse(blocked)), Fault(body=sse(blocked)), "Hello."]) as server:
        agent = Agent(model=model_at(server))
        reply = await agent.model.respond(Request(messages=state.messages), ignore)
        await agent.run(state)
        state.add_message(Message.user("Say hello then"))
        await agent.run(state)

    assert (reply.refusal, reply.stop_reason, reply.blocks) == (True, "PROHIBITED_CONTENT", ())
    assert state.messages[-1].text == "Hello."
    assert [content["role"] for content in server.requests[-1].body["contents"]] == ["user"]


# ---- Answers of a type


@dataclass
class City:
    name: str
    people: int


PARIS = City("Paris", 2_100_000)
AS_TEXT = json.dumps({"name": "Paris", "people": 2_100_000})


@pytest.mark.parametrize("talked", [False, True], ids=["first", "after a tool call"])
@pytest.mark.parametrize("name", [NEW, OLD])
@pytest.mark.parametrize(
    ("how", "answer"),
    [
        ("native", AS_TEXT),
        ("prompt", AS_TEXT),
        ("tool", tool_call("give_answer", name="Paris", people=2_100_000)),
    ],
)
async def test_ask_gets_its_type_whichever_way_the_model_has(how, answer, name, talked):
    before = [tool_call("look", place="Paris"), "Large."] if talked else []
    async with ProviderServer([*before, answer]) as server:
        agent = Agent(model=model_at(server, name, structured=how), tools=[look])
        state = State(messages=[Message.user("Look at Paris")])
        if talked:
            await agent.run(state)

        assert await agent.ask(state, "Which city?", returns=City) == PARIS

    sent = server.requests[-1].body
    assert ("responseJsonSchema" in sent.get("generationConfig", {})) == (how == "native")
    assert ("JSON Schema" in json.dumps(sent["contents"])) == (how == "prompt")
    assert ("give_answer" in json.dumps(sent.get("tools"))) == (how == "tool")

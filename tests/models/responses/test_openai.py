"""OpenAI as a value, and over real sockets against a provider that is as strict as OpenAI."""

import json
import subprocess
import sys
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pytest

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
    ModelEvent,
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
    ToolResultBlock,
    Usage,
    tool,
)
from alpineagents.models import OpenAICompatible
from alpineagents.models._openai import OpenAI
from alpineagents.testing import Fault, ProviderServer, tool_call

PACKAGE = Path(alpineagents.__file__).parent
STREAMS = Path(__file__).with_name("streams")
REQUEST = Request(messages=[Message.user("Hi")])
LOCAL = "http://127.0.0.1:8080/v1"
KEY = "sk-" + "very-secret" * 2
PNG = Image(b"\x89PNG\r\n\x1a\n" + b"x" * 8)


def model_at(server, name="gpt-5", **options):
    return OpenAI(name, base_url=server.base_url, **{"retries": 0, **options})


def ignore(event):
    """An emit that drops everything."""


# ---- As a value


@pytest.mark.parametrize(
    ("url", "name"),
    [
        (None, "openai/gpt-5"),
        ("https://api.openai.com/v1/", "openai/gpt-5"),
        (LOCAL, "local/gpt-5"),
        ("https://openrouter.ai/api/v1", "openrouter.ai/gpt-5"),
    ],
)
def test_the_name_begins_with_the_provider_that_the_url_says(url, name):
    assert OpenAI("gpt-5", base_url=url).name == name


def test_the_base_url_comes_from_the_environment_and_else_is_openais(monkeypatch):
    assert OpenAI("gpt-5").base_url == "https://api.openai.com/v1"
    monkeypatch.setenv("OPENAI_BASE_URL", f"{LOCAL}/")
    assert OpenAI("gpt-5").base_url == LOCAL


def test_a_wrong_url_is_refused_with_what_is_right():
    with pytest.raises(ValueError, match=r"leave /responses off; it looks like 'https://api\.openai\.com/v1'"):
        OpenAI("gpt-5", base_url="https://api.openai.com/v1/responses")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"stop": "END"}, "stop: OpenAI's Responses API has nothing of the kind"),
        ({"seed": 0}, "seed: OpenAI's Responses API has nothing of the kind"),
        ({"thinking": 1_000}, "thinking must be True, False or None.*got 1000.*effort"),
        ({"thinking": 1}, "thinking must be True, False or None.*got 1\\b"),
        ({"thinking": False, "effort": "high"}, "thinking=False and effort='high' can't both be"),
    ],
)
def test_what_the_api_has_no_field_for_is_refused_when_the_model_is_made(settings, problem):
    with pytest.raises(ValueError, match=problem):
        OpenAI("gpt-5", **settings)


def test_what_it_has_no_field_for_can_be_passed_on_to_servers_that_have():
    assert OpenAI("m", base_url=LOCAL, extra_body={"seed": 1}).extra_body == {"seed": 1}


def test_it_knows_its_price_and_window():
    model = OpenAI("gpt-5")

    assert model.price.input > 0
    assert model.context_window > 100_000
    assert OpenAI("m", base_url=LOCAL).price == Price(0, 0)


def test_the_key_is_not_in_the_repr():
    assert KEY not in repr(OpenAI("gpt-5", api_key=KEY))


def test_a_question_need_not_say_the_schema_unless_words_are_all_there_is():
    assert OpenAI("gpt-5").structured_output
    assert not OpenAI("gpt-5", structured="prompt").structured_output


@pytest.mark.parametrize("module", ["_responses_wire", "_responses_stream"])
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


# ---- Over HTTP


ANSWER = Reply(
    [ThinkingBlock("Let me look. "), TextBlock("I look."), ToolCall("c1", "read", {"path": "a"})],
    usage=Usage(1_000_000, 2_000_000, 500_000, 0, 7, requests=1),
)


@pytest.mark.parametrize("chunk_size", [None, 1, 7])
async def test_a_reply_is_streamed_and_whole(chunk_size):
    emitted = []
    async with ProviderServer([ANSWER], chunk_size=chunk_size) as server:
        reply = await model_at(server, price=Price(1, 2, "0.5")).respond(REQUEST, emitted.append)

    assert (reply.text, reply.tool_calls, reply.model) == ("I look.", ANSWER.tool_calls, "gpt-5")
    assert reply.usage == Usage(1_000_000, 2_000_000, 500_000, 0, 7, 1, Decimal("4.75"))
    words = [ThinkingDelta(word) for word in ("Let ", "me ", "look. ")]
    assert emitted == [*words, TextDelta("I "), TextDelta("look.")]


async def test_the_settings_are_sent_and_the_key():
    settings = {"max_tokens": 99, "effort": "low", "thinking": True, "parallel_tool_calls": False}
    async with ProviderServer(["Hi"], api_key=KEY) as server:
        await model_at(server, api_key=KEY, extra_body={"service_tier": "flex"}, **settings).respond(REQUEST, ignore)

    body = server.requests[0].body
    assert server.requests[0].path == "/v1/responses"
    assert (body["model"], body["max_output_tokens"], body["service_tier"]) == ("gpt-5", 99, "flex")
    assert body["reasoning"] == {"effort": "low", "summary": "auto"}


async def test_a_wrong_key_is_its_own_error_and_not_shown():
    async with ProviderServer(["never"], api_key="sk-right") as server:
        with pytest.raises(AuthError, match="set OPENAI_API_KEY or pass api_key=") as caught:
            await model_at(server, api_key=KEY).respond(REQUEST, ignore)

    assert KEY not in f"{caught.value!r} {caught.value.body}"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Fault(status=429, headers={"retry-after": "3600"}), RateLimitError),
        (Fault(status=500), OverloadedError),
        (Fault(status=404), ModelNotFoundError),
        (Fault(cut_after=900), BrokenStreamError),
        (Fault(cut_after=900, chunked=False), BrokenStreamError),
        (Fault(body="<html><title>Welcome</title>"), ModelNotFoundError),
        (Fault(body={"error": {"code": "context_length_exceeded", "message": "too long"}}), ContextTooLongError),
        ((STREAMS / "openai_failed_rate_limit.sse").read_bytes(), RateLimitError),
        ((STREAMS / "openai_failed_after_text.sse").read_bytes(), OverloadedError),
        ((STREAMS / "openai_error_event.sse").read_bytes(), ContextTooLongError),
        ((STREAMS / "openai_failed_invalid_prompt.sse").read_bytes(), BadRequestError),
        ((STREAMS / "cut_after_whole_call.sse").read_bytes(), BrokenStreamError),
    ],
)
async def test_what_fails_is_an_error_of_its_kind(answer, kind):
    async with ProviderServer([answer]) as server:
        with pytest.raises(kind) as caught:
            await model_at(server).respond(REQUEST, ignore)

    assert type(caught.value) is kind


async def test_what_a_failed_answer_cost_is_in_the_error():
    stream = (STREAMS / "openai_failed_rate_limit.sse").read_bytes()
    async with ProviderServer([stream]) as server:
        with pytest.raises(RateLimitError) as caught:
            await model_at(server, price=Price(1_000_000, 0)).respond(REQUEST, ignore)

    assert (caught.value.usage.input_tokens, caught.value.usage.cost) == (75, 75)


async def test_an_error_in_the_stream_is_tried_again(autojump_clock):
    """B6: also behind some text; nothing of the first answer is left."""
    stream = (STREAMS / "openai_failed_after_text.sse").read_bytes()
    async with ProviderServer([stream, "Hello."]) as server:
        reply = await model_at(server, retries=1).respond(REQUEST, ignore)

    assert (reply.text, reply.usage.requests) == ("Hello.", 2)


async def test_an_answer_that_was_not_streamed_is_taken():
    document = {"object": "response", "status": "completed", "model": "m", "output": []}
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]}
    async with ProviderServer([Fault(body={**document, "output": [message]})]) as server:
        reply = await model_at(server).respond(REQUEST, ignore)

    assert reply.text == "Hi"


# ---- With an Agent


@tool
async def read(path: str) -> str:
    """Read a file."""
    return f"the text of {path}"


@tool
async def look() -> Image:
    """Take a picture."""
    return PNG


THINK_AND_READ = Reply([ThinkingBlock("I must read a."), TextBlock("Let me see."), tool_call("read", path="a")])
THINK_AND_CALL = Reply([ThinkingBlock("And b."), tool_call("read", path="b"), tool_call("read", path="c")])
DONE = Reply([ThinkingBlock("That is all."), TextBlock("Done.")])


def types(request):
    return [item["type"] for item in request.body["input"]]


async def test_an_agent_thinks_and_uses_tools():
    async with ProviderServer([THINK_AND_READ, THINK_AND_CALL, DONE, "Again."]) as server:
        agent = Agent(model=model_at(server, thinking=True), tools=[read, look], system="Be brief.")
        state = State(messages=[Message.user("Read all")])
        await agent.run(state)
        state.add_message(Message.user("Again?"))
        await agent.run(state)

    assert state.answer == "Again."
    outputs = [item["output"] for item in server.requests[-1].body["input"] if "output" in item]
    assert outputs == [f"the text of {letter}" for letter in "abc"]
    assert types(server.requests[-1]) == [
        *("message", "reasoning", "message", "function_call", "function_call_output"),
        *("reasoning", "function_call", "function_call", "function_call_output", "function_call_output"),
        *("reasoning", "message", "message"),
    ]


async def test_a_saved_conversation_goes_on_with_its_thoughts():
    """B18, B20: what is loaded is sent as what was recorded would be."""
    store = MemoryStore()
    async with ProviderServer([THINK_AND_READ, DONE, "Again."]) as server:
        agent = Agent(model=model_at(server), tools=[read], store=store)
        state = State(messages=[Message.user("Read a")])
        await agent.run(state)
        loaded = await store.load(state.id)
        loaded.add_message(Message.user("Again?"))
        await agent.run(loaded)

    before, after = server.requests[1].body["input"], server.requests[2].body["input"]
    assert after[: len(before)] == before
    assert types(server.requests[2])[-4:] == ["function_call_output", "reasoning", "message", "message"]


async def test_a_conversation_moves_to_chat_completions_and_back():
    """The thoughts go only to who had them, and are all there again when it is back."""
    async with ProviderServer([THINK_AND_READ, tool_call("read", path="b"), DONE, "Again."]) as server:
        responses = Agent(model=model_at(server), tools=[read])
        chat = Agent(model=OpenAICompatible("gpt-5", base_url=server.base_url), tools=[read])
        state = State(messages=[Message.user("Read all")])
        await responses.think(state)
        await responses.use_tools(state)
        await chat.think(state)
        await chat.use_tools(state)
        await responses.run(state)
        state.add_message(Message.user("Again?"))
        await chat.run(state)

    sent = json.dumps(server.requests[1].body)
    assert [request.path.rpartition("/")[2] for request in server.requests] == [
        *("responses", "completions", "responses", "completions"),
    ]
    assert "I must read" not in sent
    assert "gAAAA" not in sent
    assert types(server.requests[2]) == [
        *("message", "reasoning", "message", "function_call", "function_call_output"),
        *("function_call", "function_call_output"),
    ]
    assert state.answer == "Again."


async def test_another_model_gets_the_conversation_without_the_thoughts():
    async with ProviderServer([THINK_AND_READ, DONE]) as server:
        first, second = (Agent(model=model_at(server, name), tools=[read]) for name in ("gpt-5", "gpt-5-mini"))
        state = State(messages=[Message.user("Read a")])
        await first.think(state)
        await first.use_tools(state)
        await second.run(state)

    assert types(server.requests[1]) == ["message", "message", "function_call", "function_call_output"]
    assert server.requests[1].body["model"] == "gpt-5-mini"


@pytest.mark.parametrize("turns", [1, 2, 3])
@pytest.mark.parametrize("change", ["compact", "clear_tool_results", "restore"])
async def test_no_change_of_the_context_comes_between_thoughts_and_what_they_led_to(turns, change):
    """B19: wherever it is cut, the next request is one that OpenAI takes."""
    talk = [THINK_AND_READ, THINK_AND_CALL, DONE]
    async with ProviderServer([*talk, *talk[:turns]]) as server:
        agent = Agent(model=model_at(server), tools=[read])
        state = State(messages=[Message.user("Read all")])
        await agent.run(state)
        moment = state.snapshot()
        state.add_message(Message.user("Once more"))
        for _ in range(turns):
            await agent.think(state)
            if state.pending_calls:
                await agent.use_tools(state)
        if change == "compact":
            server.add("A summary.")
            await agent.compact(state)
        elif change == "clear_tool_results":
            state.clear_tool_results(keep_last=1)
        else:
            state.restore(moment)
        state.add_message(Message.user("Go on"))
        server.add("Gone on.")
        await agent.run(state)

    assert state.answer == "Gone on."


async def test_a_reply_cut_off_in_its_thoughts_or_arguments_is_no_end():
    """B16, B17: the same State goes on."""
    cut = Reply([ThinkingBlock("I must"), ToolCall("c1", "read", None, '{"pa')], cut_off=True)
    thinking = Reply([ThinkingBlock("Well, ")], cut_off=True)
    async with ProviderServer([cut, thinking, "Done."]) as server:
        agent = Agent(model=model_at(server), tools=[read])
        state = State(messages=[Message.user("Read a")])
        await agent.run(state)
        state.add_message(Message.user("And?"))
        await agent.run(state)

    expected = ["message", "reasoning", "function_call", "function_call_output", "message"]
    assert types(server.requests[-1]) == expected
    assert "cut off" in server.requests[-1].body["input"][3]["output"]
    assert state.answer == "Done."


async def test_a_refusal_is_told_and_the_conversation_goes_on():
    refusal = Reply([TextBlock("I can't help with that.")], refusal=True)
    async with ProviderServer([refusal, "Sure."]) as server:
        agent = Agent(model=model_at(server))
        state = State(messages=[Message.user("Do it")])
        reply = await agent.think(state)
        state.add_message(Message.user("Something else then"))
        await agent.run(state)

    assert (reply.refusal, reply.text) == (True, "I can't help with that.")
    refused = {"type": "refusal", "refusal": "I can't help with that."}
    assert server.requests[1].body["input"][1]["content"] == [refused]
    assert state.answer == "Sure."


async def test_a_picture_in_a_result_is_part_of_it():
    async with ProviderServer([tool_call("look"), "A dot."]) as server:
        state = State(messages=[Message.user("Look")])
        await Agent(model=model_at(server), tools=[look]).run(state)

    assert server.requests[1].body["input"][-1]["output"][0]["type"] == "input_image"


@dataclass
class City:
    name: str
    people: int


@pytest.mark.parametrize("how", ["native", "tool", "prompt"])
@pytest.mark.parametrize("talked", [False, True])
async def test_ask_gets_its_type_whichever_way_the_model_has(how, talked):
    given = {"name": "Paris", "people": 2_100_000}
    answer = tool_call("give_answer", **given) if how == "tool" else json.dumps(given)
    bad = tool_call("give_answer", name="Paris") if how == "tool" else Reply([ThinkingBlock("Hm."), TextBlock("Paris")])
    before = [THINK_AND_READ, DONE] if talked else []
    async with ProviderServer([*before, bad, answer]) as server:
        agent = Agent(model=model_at(server, structured=how), tools=[read])
        state = State(messages=[Message.user("Look at Paris")])
        if talked:
            await agent.run(state)

        assert await agent.ask(state, "Which city?", returns=City) == City(**given)

    sent = server.requests[-1].body
    assert ("text" in sent) == (how == "native")
    if how == "native":
        assert sent["text"]["format"]["strict"]
    assert sent.get("tool_choice") == (
        {"type": "function", "name": "give_answer"} if how == "tool" else "none" if talked else None
    )


async def test_calls_whose_ids_openai_would_refuse_are_answered():
    long = ToolCall("functions.read:0/" + "x" * 90, "read", {"path": "a"})
    async with ProviderServer([long, "Done."]) as server:
        state = State(messages=[Message.user("Read a")])
        await Agent(model=model_at(server), tools=[read]).run(state)

    assert state.answer == "Done."


def thinking_of(organization):
    thought = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": f"gAAAA-{organization}"}
    call = {"type": "function_call", "id": "fc", "call_id": organization, "name": "read", "arguments": '{"path":"a"}'}
    items = [thought, {**call, "status": "completed"}]
    events = [
        {"type": "response.output_item.done", "output_index": index, "item": item} for index, item in enumerate(items)
    ]
    end = {"type": "response.completed", "response": {"status": "completed", "output": []}}
    return "".join([f"data: {json.dumps(event)}\n\n" for event in [*events, end]]).encode()


def thoughts_in(request):
    return [item["encrypted_content"] for item in request.body["input"] if item["type"] == "reasoning"]


async def test_thoughts_that_another_organization_was_given_are_left_out_from_then_on():
    """They are bound to it (litellm issue 21994): the request would fail for ever."""

    def of_b(answer):
        def checked(request):
            if any("-B" not in thought for thought in thoughts_in(request)):
                error = {"code": "invalid_encrypted_content", "message": "organization_id did not match"}
                return Fault(status=400, body={"error": error})
            return answer

        return checked

    emitted = []
    async with ProviderServer([thinking_of("A")], strict=False) as a, ProviderServer(strict=False) as b:
        b.add(*[of_b(thinking_of("B"))] * 2, of_b("Done."))
        messages = [Message.user("Hi")]
        for model in (model_at(a), *[model_at(b, retries=0)] * 2):
            reply = await model.respond(Request(messages=messages), emitted.append)
            results = [ToolResultBlock(call.id, [TextBlock("r")]) for call in reply.tool_calls]
            messages += [Message("assistant", reply.blocks), Message("tool", results)]

    assert reply.text == "Done."
    assert [thoughts_in(request) for request in b.requests] == [["gAAAA-A"], [], ["gAAAA-B"]]
    assert [event.kind for event in emitted if isinstance(event, ModelEvent)] == ["retry"]


async def test_thoughts_that_cannot_be_read_although_there_are_none_are_an_error():
    fault = Fault(status=400, body={"error": {"code": "invalid_encrypted_content", "message": "no"}})
    async with ProviderServer([fault]) as server:
        with pytest.raises(BadRequestError):
            await model_at(server).respond(REQUEST, ignore)


async def test_a_real_conversation_is_taken_by_the_captured_streams():
    """What llama.cpp sent is what its next request holds."""
    captured = [(STREAMS / f"llamacpp_{name}.sse").read_bytes() for name in ("tool", "result")]

    @tool
    async def get_weather(city: str) -> str:
        """Get the weather of a city."""
        return "Sunny, 20 degrees."

    async with ProviderServer(captured) as server:
        state = State(messages=[Message.user("What is the weather in Paris?")])
        await Agent(model=model_at(server, "smollm2"), tools=[get_weather]).run(state)

    assert state.answer == "The result is sunny."
    assert json.loads(server.requests[1].body["input"][1]["arguments"]) == {"city": "Paris"}

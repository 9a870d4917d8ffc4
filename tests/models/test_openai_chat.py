"""A Request as Chat Completions JSON."""

import base64
import gc
import json
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alpineagents import (
    File,
    Image,
    Message,
    RawBlock,
    Request,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResultBlock,
    ToolSpec,
)
from alpineagents.models._openai_chat import ChatWire
from alpineagents.models._sse import Event
from alpineagents.models._wire import Endpoint, Settings
from alpineagents.record import freeze
from alpineagents.testing._formats._chat_rules import problems

PNG = Image(b"\x89PNG\r\n\x1a\n" + b"x" * 8)
PDF = File(b"%PDF-1.7 x", name="report")
NOTES = File(b"first line", name="notes.txt")
CALL = ToolCall("c1", "read", {"path": "a"})
READ = ToolSpec("read", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}})
HI = Message.user("Hi")


def result(call_id, *content, is_error=False):
    blocks = [TextBlock(item) if isinstance(item, str) else item for item in content]
    return ToolResultBlock(call_id, blocks, is_error)


def tool(*results):
    return Message("tool", results)


def assistant(*blocks):
    return Message("assistant", [TextBlock(block) if isinstance(block, str) else block for block in blocks])


def wire(provider="here", **settings):
    return ChatWire(Endpoint(provider, "http://127.0.0.1/v1", "m"), Settings(**settings))


def encode(*messages, provider="here", settings=None, **request):
    body = wire(provider, **(settings or {})).encode(Request(messages=messages, **request))
    return json.loads(body)


def encode_messages(*messages, **request):
    """The messages, checked by the rules of a strict provider."""
    body = encode(*messages, **request)
    assert list(problems(body)) == []
    return body["messages"]


def test_a_request_streams_and_asks_for_usage():
    assert encode(HI) == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": "Hi"}],
    }


def test_the_system_prompt_comes_first_and_a_blank_one_not_at_all():
    assert encode_messages(HI, system="Be brief.")[0] == {"role": "system", "content": "Be brief."}
    assert encode_messages(HI, system=" \n") == encode_messages(HI)


def test_settings_are_sent_only_where_they_are_set():
    settings = {"max_tokens": 9, "temperature": 0.0, "stop": ("a", "b"), "seed": 0, "parallel_tool_calls": False}
    body = encode(HI, tools=(READ,), settings=settings)

    assert {key: body[key] for key in settings} == {**settings, "stop": ["a", "b"]}


def test_parallel_tool_calls_goes_with_tools_only():
    assert "parallel_tool_calls" not in encode(HI, settings={"parallel_tool_calls": True})


def test_openai_itself_gets_the_newer_name_of_the_output_limit():
    body = encode(HI, provider="openai", settings={"max_tokens": 9})

    assert body["max_completion_tokens"] == 9
    assert "max_tokens" not in body


def test_extra_body_adds_fields_and_puts_others_in_place():
    extra = freeze({"top_k": 3, "stream_options": None, "chat_template_kwargs": {"x": [1]}})
    body = encode(HI, settings={"extra_body": extra})

    assert (body["top_k"], body["stream_options"], body["chat_template_kwargs"]) == (3, None, {"x": [1]})


def test_tools_are_described_by_their_schema():
    bare = ToolSpec("now", "", {"type": "object"})
    body = encode(HI, tools=(READ, bare))

    function = {"name": "read", "description": "Read a file.", "parameters": dict(READ.input_schema)}
    assert body["tools"] == [
        {"type": "function", "function": function},
        {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}},
    ]
    assert list(problems(body)) == []


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("required", "required"),
        ("none", "none"),
        ("read", {"type": "function", "function": {"name": "read"}}),
    ],
)
def test_a_tool_choice_is_sent(choice, sent):
    body = encode(HI, tools=(READ,), tool_choice=choice)

    assert body["tool_choice"] == sent
    assert list(problems(body)) == []


def test_the_choice_auto_is_not_sent_nor_any_without_tools():
    """It is the default, and vLLM without its tool option refuses to be told so."""
    assert "tool_choice" not in encode(HI, tools=(READ,))
    assert "tool_choice" not in encode(HI, tool_choice="none")


def test_structured_output_is_strict_where_openai_takes_the_schema_as_strict():
    inner = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    whole = {**inner, "title": "My answer!", "properties": {"a": {"anyOf": [{"$ref": "#/$defs/I"}, {"type": "null"}]}}}
    schemas = {
        "strict": {**whole, "$defs": {"I": inner}},
        "loose inside": {**whole, "$defs": {"I": {**inner, "required": []}}},
        "loose": {"type": "object", "properties": {}},
    }

    formats = {name: encode(HI, returns=schema)["response_format"] for name, schema in schemas.items()}

    described = {"name": "My_answer_", "schema": schemas["strict"], "strict": True}
    assert formats["strict"] == {"type": "json_schema", "json_schema": described}
    assert "strict" not in formats["loose inside"]["json_schema"]
    assert formats["loose"]["json_schema"] == {"name": "answer", "schema": schemas["loose"]}


def test_user_text_is_a_plain_string():
    assert encode_messages(Message("user", [TextBlock("a"), TextBlock(" "), TextBlock("b")])) == [
        {"role": "user", "content": "a\n\nb"}
    ]


def test_attachments_are_parts():
    (message,) = encode_messages(Message.user("see", PNG, PDF, NOTES))

    png, pdf = base64.b64encode(PNG.data).decode(), base64.b64encode(PDF.data).decode()
    assert message["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{png}"}},
        {"type": "file", "file": {"filename": "report.pdf", "file_data": f"data:application/pdf;base64,{pdf}"}},
        {"type": "text", "text": "[notes.txt]\nfirst line"},
    ]


def test_a_pdf_keeps_a_name_that_says_so():
    (message,) = encode_messages(Message.user("see", File(PDF.data, name="a.PDF")))

    assert message["content"][1]["file"]["filename"] == "a.PDF"


def test_calls_without_text_have_null_content_never_an_empty_string():
    """A10: an empty string is refused by some servers, and read as an answer by others."""
    sent = encode_messages(HI, assistant("", "  ", CALL), tool(result("c1", "x")))

    function = {"name": "read", "arguments": '{"path":"a"}'}
    calls = [{"id": "c1", "type": "function", "function": function}]
    assert sent[1] == {"role": "assistant", "content": None, "tool_calls": calls}


def test_text_goes_with_its_calls():
    sent = encode_messages(HI, assistant("I look.", CALL), tool(result("c1", "x")))

    assert sent[1]["content"] == "I look."


def test_what_is_left_empty_is_left_out():
    """A10: a reply without blocks, or with blank ones only, is kept in history and not sent."""
    blank = Message("user", [TextBlock(" ")])

    assert encode_messages(HI, assistant(), assistant("", "\n"), blank) == [{"role": "user", "content": "Hi"}]


def test_results_are_one_message_each_in_order():
    second = ToolCall("c2", "read", {})
    sent = encode_messages(HI, assistant(CALL, second), tool(result("c1", "one", "two"), result("c2", "three")))

    assert sent[2:] == [
        {"role": "tool", "tool_call_id": "c1", "content": "one\ntwo"},
        {"role": "tool", "tool_call_id": "c2", "content": "three"},
    ]


@pytest.mark.parametrize("content", [[], [""], ["  \n"]])
def test_an_empty_result_says_so(content):
    sent = encode_messages(HI, assistant(CALL), tool(result("c1", *content)))

    assert sent[2]["content"] == "(empty)"


@pytest.mark.parametrize("together", [True, False])
def test_images_of_results_follow_behind_all_results_of_the_turn(together):
    """A14: tool messages are text, and nothing may come between the results. Never base64 as text."""
    second = ToolCall("c2", "shot", {})
    first_result, second_result = result("c1", "see", PNG), result("c2", PDF, NOTES)
    results = [tool(first_result, second_result)] if together else [tool(first_result), tool(second_result)]

    sent = encode_messages(HI, assistant(CALL, second), *results, Message.user("go on"))

    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool", "user"]
    assert sent[2]["content"] == "see\n(an image: it follows in a user message)"
    assert sent[3]["content"] == "(report: it follows in a user message)\n[notes.txt]\nfirst line"
    assert [part["type"] for part in sent[4]["content"]] == ["text", "image_url", "text", "file", "text"]
    assert sent[4]["content"][0]["text"] == "From the result of tool call c1:"
    assert sent[4]["content"][-1] == {"type": "text", "text": "go on"}


def test_what_the_person_says_in_a_row_is_one_message():
    """Gemma's and Mistral's chat templates refuse roles that don't alternate (vllm issue 6862), and so for ever."""
    quoted = Message.user('"two"\n')
    picture = Message("user", [TextBlock("look"), PNG])
    parts = [{"type": "text", "text": "Hi"}, {"type": "text", "text": "look"}]

    assert encode_messages(HI, quoted, Message.user("é")) == [{"role": "user", "content": 'Hi\n\n"two"\n\n\né'}]
    assert encode_messages(HI, picture, quoted)[0]["content"][:2] == parts
    assert encode_messages(HI, picture, quoted)[0]["content"][3:] == [{"type": "text", "text": '"two"\n'}]
    assert [message["role"] for message in encode_messages(HI, HI, assistant("x"), HI, HI)] == [
        *("user", "assistant", "user")
    ]


def test_arguments_that_were_malformed_go_back_as_an_empty_object():
    broken = ToolCall("c1", "read", None, '{"path":"/tm')
    sent = encode_messages(HI, assistant(broken), tool(result("c1", "cut off")))

    assert sent[1]["tool_calls"][0]["function"]["arguments"] == "{}"


def test_lone_surrogates_never_break_a_request():
    """A11: history may hold them in arguments, from where a model or a person put them."""
    call = ToolCall("c\ud83d", "read", {"p\ud83d": "\ud83d\ude00\ud83d"})
    sent = encode_messages(HI, assistant(call), tool(ToolResultBlock("c\ud83d", [TextBlock("x")])))

    assert sent[1]["tool_calls"][0]["id"] == sent[2]["tool_call_id"] == "c\ufffd"
    assert json.loads(sent[1]["tool_calls"][0]["function"]["arguments"]) == {"p\ufffd": "😀\ufffd"}


def test_integers_of_any_size_are_sent():
    sent = encode_messages(HI, assistant(ToolCall("c1", "read", {"n": 2**70})), tool(result("c1", "x")))

    assert json.loads(sent[1]["tool_calls"][0]["function"]["arguments"]) == {"n": 2**70}


def test_reasoning_goes_back_with_calls_in_the_field_it_came_in():
    """B21: DeepSeek refuses a tool turn whose reasoning_content is missing, even an empty one."""
    for raw, sent in [
        ({"field": "reasoning_content"}, {"reasoning_content": "So."}),
        ({"field": "reasoning"}, {"reasoning": "So."}),
        ({"reasoning_details": [{"type": "x"}]}, {"reasoning_details": [{"type": "x"}]}),
    ]:
        thought = ThinkingBlock("So.", provider="here", raw=raw)
        message = encode_messages(HI, assistant(thought, CALL), tool(result("c1", "x")))[1]
        assert {key: message[key] for key in sent} == sent
        assert set(message) == {"role", "content", "tool_calls", *sent}

    empty = ThinkingBlock("", provider="here", raw={"field": "reasoning_content"})
    assert encode_messages(HI, assistant(empty, CALL), tool(result("c1", "x")))[1]["reasoning_content"] == ""


@pytest.mark.parametrize(("host", "goes"), [("api.groq.com", False), ("api.deepseek.com", True), ("127.0.0.1", False)])
def test_reasoning_goes_to_no_other_model_but_to_deepseeks(host, goes):
    """Groq: "reasoning is not supported with this model" (vercel/ai issue 8057). DeepSeek demands it."""
    thought = {"choices": [{"delta": {"reasoning_content": "So."}}]}
    call = {"id": "c1", "function": {"name": "read", "arguments": "{}"}}
    end = {"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    url = f"https://{host}/v1"
    decoder = ChatWire(Endpoint(host, url, "thinker"), Settings()).decoder()
    decoder.feed([Event("", json.dumps(chunk).encode()) for chunk in (thought, end)])
    request = Request(messages=[HI, Message("assistant", decoder.reply().blocks), tool(result("c1", "x"))])
    same, other = (
        json.loads(ChatWire(Endpoint(host, url, model), Settings()).encode(request))["messages"][1]
        for model in ("thinker", "other")
    )

    assert same["reasoning_content"] == "So."
    assert (other.get("reasoning_content") == "So.") == goes


@pytest.mark.parametrize(
    ("host", "limit", "ids", "options"),
    [
        ("api.openai.com", "max_completion_tokens", 40, True),
        ("eu.api.openai.com", "max_completion_tokens", 40, True),
        ("x.openai.azure.com", "max_completion_tokens", 40, True),
        ("api.mistral.ai", "max_tokens", 9, False),
        ("api.groq.com", "max_tokens", 50, True),
        ("mistral.ai.example.com", "max_tokens", 50, True),
        ("notmistral.ai", "max_tokens", 50, True),
    ],
)
@pytest.mark.parametrize("provider", [None, "work"])
def test_the_host_says_whose_rules_there_are_whatever_the_provider_is_called(host, limit, ids, options, provider):
    endpoint = Endpoint(provider or host, f"https://{host}/v1", "m")
    long = ToolCall("c" * 50, "read", {})
    request = Request(messages=[HI, assistant(long), tool(result(long.id, "x"))])
    sent = json.loads(ChatWire(endpoint, Settings(max_tokens=5)).encode(request))

    assert sent[limit] == 5
    assert len(sent["messages"][1]["tool_calls"][0]["id"]) == ids
    assert ("stream_options" in sent) == options


@pytest.mark.parametrize("provider", ["openai", "deepseek", "mistral"])
def test_the_host_wins_over_the_name_of_the_provider(provider):
    endpoint = Endpoint(provider, "https://api.mistral.ai/v1", "m")

    assert "stream_options" not in json.loads(ChatWire(endpoint, Settings()).encode(Request(messages=[HI])))


@pytest.mark.parametrize("provider", ["mistral", "api.mistral.ai"])
def test_at_a_host_that_is_not_known_the_name_of_the_provider_says_whose_rules_there_are(provider):
    assert "stream_options" not in encode(HI, provider=provider)


def test_reasoning_goes_to_nobody_else_and_not_with_plain_answers():
    """Older DeepSeek models refuse it outside of tool turns, and newer ones ignore it there."""
    field = {"field": "reasoning_content"}
    elsewhere = ThinkingBlock("So.", provider="elsewhere", raw=field)
    unknown = ThinkingBlock("So.", provider="here", raw={"field": "content"})
    bare = ThinkingBlock("So.", provider="here")

    sent = encode_messages(HI, assistant(elsewhere, unknown, bare, CALL), tool(result("c1", "x")))
    plain = encode_messages(HI, assistant(ThinkingBlock("So.", provider="here", raw=field), "4"))

    assert set(sent[1]) == {"role", "content", "tool_calls"}
    assert plain[1] == {"role": "assistant", "content": "4"}


def test_a_thought_signature_goes_back_with_its_call_to_its_provider():
    """Gemini's OpenAI endpoint refuses the next request without it."""
    signature = {"extra_content": {"google": {"thought_signature": "Sg=="}}}
    second = ToolCall("c2", "read", {})
    message = assistant(CALL, RawBlock("here", signature), second, RawBlock("elsewhere", signature))

    calls = encode(HI, message)["messages"][1]["tool_calls"]

    assert calls[0]["extra_content"] == signature["extra_content"]
    assert "extra_content" not in calls[1]


def test_blocks_that_this_format_has_no_place_for_are_left_out():
    raw = RawBlock("here", {"id": "ws_1", "type": "web_search_call"})  # Of another format of the same provider.

    sent = encode_messages(HI, assistant(CALL, raw), tool(result("c1", "x")))
    assert sent[1]["tool_calls"][0]["id"] == "c1"
    assert encode_messages(HI, assistant(raw, PNG), Message("user", [raw])) == [{"role": "user", "content": "Hi"}]


def test_the_same_history_gives_the_same_bytes():
    messages = (HI, assistant("I look.", CALL), tool(result("c1", PNG)))
    request = Request(messages=messages, system="s", tools=(READ,))
    one = wire()

    assert one.encode(request) == one.encode(request) == wire().encode(request)


def test_a_message_is_encoded_once_and_forgotten_with_it():
    one = wire()
    message = Message.user("Hi")
    request = Request(messages=[message, message])
    [made] = set(map(id, one._encoded.of([message, message])))
    one.encode(request)

    assert [id(encoded) for encoded in one._encoded.of([message])] == [made]
    assert len(one._encoded) == 1
    del message, request
    gc.collect()
    assert len(one._encoded) == 0


def test_a_message_at_the_address_of_another_is_not_taken_for_it():
    """An address is used again as soon as a message is gone; the weak reference tells."""
    one = wire()
    for number in range(100):
        body = json.loads(one.encode(Request(messages=[Message.user(f"Hi {number}")])))
        assert body["messages"][0]["content"] == f"Hi {number}"


TEXTS = st.text(st.characters(codec=None, exclude_categories=()), max_size=5)  # Lone surrogates too.
ARGS = st.dictionaries(TEXTS, st.recursive(TEXTS | st.integers() | st.none(), st.lists, max_leaves=3), max_size=3)


@given(st.lists(st.lists(TEXTS.map(TextBlock) | st.just(PNG) | st.just(NOTES), max_size=3), max_size=4), ARGS)
def test_any_conversation_gives_what_a_strict_provider_takes(contents, args):
    calls = [ToolCall(f"c{number}", "read", args or None) for number in range(len(contents))]
    results = [ToolResultBlock(call.id, content) for call, content in zip(calls, contents, strict=True)]
    users = [Message("user", content) for content in contents]

    encode_messages(HI, assistant("", *calls), tool(*results), *users, assistant(*contents[0] if contents else ()))


def test_signed_reasoning_goes_back_to_the_model_that_wrote_it_and_to_no_other():
    """The other one refuses the signature, and with it the conversation, as people met it behind OpenRouter."""
    details = [{"type": "reasoning.text", "text": "So.", "signature": "SIG=="}]
    conversation = [HI, assistant(ThinkingBlock("So.", provider="here", raw={"reasoning_details": details}), CALL)]
    signed = assistant(ThinkingBlock("So.", provider="here", raw={"reasoning_details": details, "model": "m"}), CALL)
    results = tool(result("c1", "x"))

    def sent_to(model, *messages):
        body = ChatWire(Endpoint("here", "http://127.0.0.1/v1", model), Settings()).encode(Request(messages=messages))
        return json.loads(body)["messages"][1]

    assert sent_to("m", HI, signed, results)["reasoning_details"] == details
    assert set(sent_to("another", HI, signed, results)) == {"role", "content", "tool_calls"}
    assert (
        sent_to("another", *conversation, results)["reasoning_details"] == details
    )  # It was recorded without a model.


def test_deepseek_gets_reasoning_with_every_reply_of_whoever_wrote_it():
    """B21: it refuses the replies of others in a turn with tool calls where there is none, and an empty text."""
    field = {"field": "reasoning_content"}
    mine = ThinkingBlock("So.", provider="api.deepseek.com", raw=field)
    empty = ThinkingBlock("", provider="api.deepseek.com", raw=field)
    others = ThinkingBlock("Hm.", "SIG==", "anthropic", {"model": "m"})
    second = ToolCall("c2", "read", {})
    conversation = [
        *(HI, assistant(mine, CALL), tool(result("c1", "x")), assistant(others, second), tool(result("c2", "x"))),
        *(assistant(empty, "4"), HI, assistant(mine, "5"), HI, assistant(others)),
    ]
    wire = ChatWire(Endpoint("api.deepseek.com", "https://api.deepseek.com/v1", "m"), Settings())

    sent = json.loads(wire.encode(Request(messages=conversation)))["messages"]

    replies = [message for message in sent if message["role"] == "assistant"]
    assert [message["reasoning_content"] for message in replies] == ["So.", " ", " ", "So."]
    assert "Hm." not in json.dumps(sent)


@pytest.mark.parametrize("model", ["mistral-small", "mistralai/Ministral-3-8B", "devstral", "Codestral-25.01"])
@pytest.mark.parametrize("picture", [False, True])
def test_mistrals_models_speak_between_results_and_the_person(model, picture):
    """Their servers refuse a conversation with "Unexpected role 'user' after role 'tool'", wherever in it that is."""
    content = [TextBlock("x"), *([PNG] if picture else [])]
    results = tool(ToolResultBlock("c1", content))
    second = ToolCall("c2", "read", {})
    messages = [HI, assistant(CALL), results, HI, assistant(second), tool(ToolResultBlock("c2", content))]
    body = ChatWire(Endpoint("here", "http://127.0.0.1/v1", model), Settings()).encode(Request(messages=messages))

    sent = json.loads(body)
    roles = [role for role, _ in groupby(message["role"] for message in sent["messages"])]
    pictures = ["assistant", "user"] if picture else []
    assert list(problems(sent)) == []
    assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant", "tool", *pictures]
    assert sent["messages"][3]["content"] == "(I have seen the results.)"

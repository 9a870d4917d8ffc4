"""A Request as Messages API JSON, checked by the rules of a strict provider."""

import base64
import gc
import json

import attrs
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
from alpineagents.models._anthropic import Anthropic
from alpineagents.models._anthropic_models import traits_of
from alpineagents.testing._formats._anthropic_rules import problems
from alpineagents.testing._formats._anthropic_signature import signature, signed

PNG = Image(b"\x89PNG\r\n\x1a\n" + b"x" * 8)
PDF = File(b"%PDF-1.7 x", name="report")
NOTES = File(b"first line", name="notes.txt")
READ = ToolSpec("read", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}})
HI = Message.user("Hi")
SONNET_4_5, OPUS_4_6, HAIKU_5_5, SONNET_5_5, OPUS_5_5 = (
    "claude-sonnet-4-5",
    "claude-opus-4-6",
    "claude-haiku-5-5",
    "claude-sonnet-5-5",
    "claude-opus-5-5",
)
MODELS = [
    *("claude-3-haiku-20240307", "claude-3-7-sonnet-latest", "claude-opus-4-1-20250805", SONNET_4_5, OPUS_4_6),
    *("claude-opus-4-8", "claude-opus-5", "claude-fable-5-2", OPUS_5_5, SONNET_5_5, HAIKU_5_5, "glm-5"),
]


def possible(name, thinking):
    """Whether the model can be asked for this."""
    traits = traits_of(name)
    return traits.off is not None if thinking is False else traits.budget or thinking in (None, True)


def call(call_id, name="read", args=None):
    return ToolCall(call_id, name, args if args is not None else {"path": "a"})


def result(call_id, *content, is_error=False):
    blocks = [TextBlock(item) if isinstance(item, str) else item for item in content]
    return ToolResultBlock(call_id, blocks, is_error)


def tool(*results):
    return Message("tool", results)


def assistant(*blocks):
    return Message("assistant", [TextBlock(block) if isinstance(block, str) else block for block in blocks])


def thought(text="So.", *, model=SONNET_4_5, provider="anthropic", by=None):
    return ThinkingBlock(text, signature(text, by or model), provider, {"model": model})


def redacted(text="x", model=SONNET_4_5):
    return ThinkingBlock("", None, "anthropic", {"model": model, "redacted": signed(text, model)})


def body_of(model, *messages, **request):
    return json.loads(model._wire.encode(Request(messages=messages, **request)))


def encode(*messages, name=SONNET_4_5, settings=None, **request):
    """The request, checked by the rules of a strict provider."""
    model = Anthropic(name, api_key="k", **(settings or {}))
    body = body_of(model, *messages, **request)
    assert list(problems(body, model._target().headers)) == []
    return body


def encode_messages(*messages, **request):
    """The messages, without cache marks."""
    return without_marks(encode(*messages, **request)["messages"])


def without_marks(value):
    if isinstance(value, list):
        return [without_marks(item) for item in value]
    if isinstance(value, dict):
        return {key: without_marks(item) for key, item in value.items() if key != "cache_control"}
    return value


def text(text):
    return {"type": "text", "text": text}


def test_a_request_streams_and_has_an_output_limit():
    assert encode(HI, settings={"cache": False}) == {
        "model": SONNET_4_5,
        "max_tokens": 32_000,
        "stream": True,
        "messages": [{"role": "user", "content": [text("Hi")]}],
    }


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("claude-3-opus-20240229", 4_096),
        ("claude-3-5-sonnet-latest", 8_192),
        ("claude-3-7-sonnet-20250219", 32_000),
        ("claude-sonnet-4-20250514", 32_000),
        ("claude-opus-4@20250514", 32_000),
        ("anthropic/claude-opus-4.1", 32_000),
        ("us.anthropic.claude-haiku-4-5-20251001-v1:0", 32_000),
        (OPUS_4_6, 64_000),
        ("claude-fable-5", 64_000),
        ("claude-mythos-preview", 64_000),
        ("claude-opus-latest", 64_000),
        ("glm-5", 8_192),
    ],
)
def test_the_output_limit_is_by_the_models_family_unless_it_is_set(name, limit):
    assert encode(HI, name=name)["max_tokens"] == limit
    assert encode(HI, name=name, settings={"max_tokens": 9})["max_tokens"] == 9


def test_the_system_prompt_is_a_block_and_a_blank_one_is_left_out():
    body = encode(HI, system="Be brief.")

    assert without_marks(body["system"]) == [text("Be brief.")]
    assert "system" not in encode(HI, system=" \n")


def test_settings_are_sent_only_where_they_are_set():
    settings = {"temperature": 0.5, "stop": ("a", "b"), "effort": "low", "extra_body": {"top_k": 3, "max_tokens": 7}}
    body = encode(HI, name=OPUS_4_6, settings=settings)

    assert (body["temperature"], body["stop_sequences"], body["output_config"]) == (0.5, ["a", "b"], {"effort": "low"})
    assert (body["top_k"], body["max_tokens"]) == (3, 7)


WAYS = [(name, thinking) for name in MODELS for thinking in (None, False, True, 2_000) if possible(name, thinking)]


@pytest.mark.parametrize(("name", "thinking"), WAYS)
@pytest.mark.parametrize("choice", ["auto", "required", "read", "none"])
def test_every_model_gets_what_it_takes(name, thinking, choice):
    settings = {"thinking": thinking, "parallel_tool_calls": False, "max_tokens": 4_000}
    if traits_of(name).sampling:
        settings["temperature"] = 0.0
    encode(HI, name=name, settings=settings, tools=(READ,), tool_choice=choice, system="s")


@pytest.mark.parametrize(
    ("name", "thinking", "sent"),
    [
        (SONNET_4_5, None, None),
        (SONNET_4_5, False, None),
        (SONNET_4_5, True, {"type": "enabled", "budget_tokens": 16_000}),
        (SONNET_4_5, 2_000, {"type": "enabled", "budget_tokens": 2_000}),
        ("glm-5", True, {"type": "enabled", "budget_tokens": 4_096}),
        (OPUS_4_6, None, None),
        (OPUS_4_6, False, {"type": "disabled"}),
        (OPUS_4_6, True, {"type": "adaptive", "display": "summarized"}),
        (OPUS_4_6, 2_000, {"type": "enabled", "budget_tokens": 2_000}),
        ("claude-opus-4-7", True, {"type": "adaptive", "display": "summarized"}),
        ("claude-opus-5", None, None),
        ("claude-opus-5", False, {"type": "disabled"}),
        ("claude-fable-5", None, None),
        (SONNET_5_5, False, {"type": "between_tools"}),
        (HAIKU_5_5, False, {"type": "disabled"}),
    ],
)
def test_thinking_is_asked_for_in_the_models_own_way(name, thinking, sent):
    assert encode(HI, name=name, settings={"thinking": thinking}).get("thinking") == sent


@pytest.mark.parametrize("name", ["claude-fable-5-1", OPUS_5_5, SONNET_5_5, HAIKU_5_5])
@pytest.mark.parametrize("thinking", [None, True])
def test_thinking_bound_to_what_led_to_it_is_dropped_not_refused(name, thinking):
    """A compaction, or a step with other tools, changes what came before thinking that the history still has."""
    model = Anthropic(name, thinking=thinking)

    assert body_of(model, HI)["thinking"]["block_binding"] == {"prefix_mismatch_behavior": "drop_block"}
    assert model._target().headers["anthropic-beta"] == "thinking-binding-controls-2026-08-01"


def test_a_header_of_the_caller_without_the_controls_keeps_them_out():
    mine = Anthropic(OPUS_5_5, extra_headers={"Anthropic-Beta": "x"})
    both = Anthropic(OPUS_5_5, extra_headers={"anthropic-beta": "x,thinking-binding-controls-2026-08-01"})

    assert "thinking" not in body_of(mine, HI)
    assert "thinking" in body_of(both, HI)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        (SONNET_4_5, {"seed": 1}),
        (SONNET_5_5, {"temperature": 1.0}),
        ("claude-opus-4-7", {"thinking": 2_000}),
        (OPUS_5_5, {"thinking": False}),
        ("claude-fable-5", {"thinking": False}),
    ],
)
def test_a_setting_that_the_api_or_the_model_does_not_have_is_refused_when_the_model_is_made(name, settings):
    with pytest.raises(ValueError, match=min(settings)):
        Anthropic(name, **settings)


@pytest.mark.parametrize(("thinking", "limit"), [(1_000, None), (0, None), (4_000, 4_000), (True, 1_024)])
def test_a_budget_that_cannot_be_is_refused_when_the_model_is_made(thinking, limit):
    with pytest.raises(ValueError, match="thinking"):
        Anthropic(SONNET_4_5, thinking=thinking, max_tokens=limit)


def test_a_budget_above_the_default_limit_raises_it():
    body = encode(HI, settings={"thinking": 40_000})

    assert (body["thinking"]["budget_tokens"], body["max_tokens"]) == (40_000, 48_192)


def test_a_temperature_is_sent_only_where_it_is_taken():
    for name, thinking, sent in [
        (SONNET_4_5, None, True),
        (SONNET_4_5, True, False),
        (OPUS_4_6, False, True),
        (OPUS_4_6, True, False),
    ]:
        body = encode(HI, name=name, settings={"temperature": 0.0, "thinking": thinking})
        assert ("temperature" in body) == sent, name


@pytest.mark.parametrize(
    ("name", "options", "version"),
    [
        (SONNET_4_5, {}, "2026-10-21"),
        (SONNET_4_5, {"temperature": 0.0}, "2023-06-01"),
        (SONNET_4_5, {"extra_body": {"top_p": 0.5}}, "2023-06-01"),
        (SONNET_5_5, {"extra_body": {"top_p": 0.5}}, "2026-10-21"),
        ("glm-5", {}, "2023-06-01"),
    ],
)
def test_the_version_is_the_newest_that_takes_the_request(name, options, version):
    headers = Anthropic(name, api_key="k", **options)._target().headers

    assert (headers["anthropic-version"], headers["x-api-key"]) == (version, "k")
    assert "x-api-key" not in Anthropic(name, api_key="")._target().headers


def test_tools_are_described_by_their_schema():
    bare = ToolSpec("now", "", {})
    body = encode(HI, tools=(READ, bare))

    assert without_marks(body["tools"]) == [
        {"name": "read", "description": "Read a file.", "input_schema": dict(READ.input_schema)},
        {"name": "now", "input_schema": {"type": "object"}},
    ]


@pytest.mark.parametrize(
    ("choice", "parallel", "sent"),
    [
        ("auto", None, None),
        ("auto", True, None),
        ("auto", False, {"type": "auto", "disable_parallel_tool_use": True}),
        ("required", None, {"type": "any"}),
        ("required", False, {"type": "any", "disable_parallel_tool_use": True}),
        ("none", False, {"type": "none"}),
        ("read", None, {"type": "tool", "name": "read"}),
    ],
)
def test_a_tool_choice_is_sent(choice, parallel, sent):
    body = encode(HI, tools=(READ,), tool_choice=choice, settings={"parallel_tool_calls": parallel})

    assert body.get("tool_choice") == sent


def test_what_a_failed_call_gave_besides_text_follows_behind_all_results():
    """The API refuses it in the result: "all content must be type `text` if `is_error` is true"."""
    failed = [result("c1", TextBlock("no"), PNG, NOTES, is_error=True), result("c2", PNG, is_error=True)]
    conversation = HI, assistant(call("c1"), call("c2"), call("c3")), tool(*failed, result("c3", PNG)), HI

    sent = encode_messages(*conversation)[2]["content"]

    assert [block["type"] for block in sent[:3]] == ["tool_result"] * 3
    assert [block["content"] for block in sent[:2]] == [[text("no")], [text("(empty)")]]
    assert [part["type"] for part in sent[2]["content"]] == ["image"]
    kinds = [block["text"] if block["type"] == "text" else block["type"] for block in sent[3:]]
    told = [f"From the result of tool call {call_id}:" for call_id in ("c1", "c2")]
    assert kinds == [told[0], "image", "document", told[1], "image", "Hi"]


def test_a_conversation_with_calls_has_tools_even_where_none_may_be_called():
    """The API refuses it else: "Requests which include `tool_use` or `tool_result` blocks must define tools"."""
    conversation = HI, assistant(call("c1")), tool(result("c1", "x"))
    search = {"type": "web_search_20260209", "name": "web_search"}

    sent = encode(*conversation)
    assert len(sent["tools"]) == 1
    assert sent["tool_choice"] == {"type": "none"}
    assert "tools" not in encode(HI)
    assert "tools" not in encode(*conversation, name="smollm2")
    with_search = body_of(Anthropic(SONNET_4_5, extra_body={"tools": [search]}), *conversation)
    assert with_search["tools"] == [search]
    assert "tool_choice" not in with_search


def test_no_choice_is_sent_without_tools():
    assert "tool_choice" not in encode(HI, tool_choice="none")


@pytest.mark.parametrize("name", ["claude-mythos-preview", "claude-fable-5-1", OPUS_5_5, SONNET_5_5])
def test_a_model_that_cannot_be_made_to_call_a_tool_is_told_to_behind_the_cache_mark(name):
    for choice, words in [("required", "one of your tools"), ("read", "your tool read")]:
        body = encode(HI, name=name, tools=(READ,), tool_choice=choice)
        hi, demand = body["messages"][0]["content"]
        assert "tool_choice" not in body
        assert "cache_control" in hi
        assert demand == text(f"(Answer this by calling {words}.)")

    ended = encode(HI, assistant("Ho"), name=name, tools=(READ,), tool_choice="read")
    assert ended["messages"][-1] == {"role": "user", "content": [text("(Answer this by calling your tool read.)")]}


def test_a_forced_tool_turns_a_budget_off_and_leaves_adaptive_thinking():
    forced = {"tools": (READ,), "tool_choice": "required"}

    budgeted = encode(HI, settings={"thinking": True, "temperature": 0.5}, **forced)
    adaptive = encode(HI, name=OPUS_4_6, settings={"thinking": True}, **forced)

    assert ("thinking" in budgeted, budgeted["temperature"]) == (False, 0.5)
    assert adaptive["thinking"]["type"] == "adaptive"


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}, "additionalProperties": False}


def test_structured_output_is_native_beside_the_effort():
    body = encode(HI, returns=SCHEMA, settings={"effort": "low"}, name=OPUS_4_6)

    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": [], "additionalProperties": False}
    assert body["output_config"] == {"effort": "low", "format": {"type": "json_schema", "schema": schema}}


def test_consecutive_messages_of_one_role_are_one():
    sent = encode_messages(HI, Message.user("there"), assistant("Ho"), assistant("Hum"), Message.user("Bye"))

    assert sent == [
        {"role": "user", "content": [text("Hi"), text("there")]},
        {"role": "assistant", "content": [text("Ho"), text("Hum")]},
        {"role": "user", "content": [text("Bye")]},
    ]


def test_results_come_first_then_what_else_the_person_said():
    sent = encode_messages(
        HI,
        assistant("I look.", call("c1"), call("c2")),
        tool(result("c1", "one", "two")),
        tool(result("c2", "three", is_error=True)),
        Message.user("Well?"),
    )

    assert sent[1]["content"][1] == {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a"}}
    first = {"type": "tool_result", "tool_use_id": "c1", "content": [text("one"), text("two")]}
    second = {"type": "tool_result", "tool_use_id": "c2", "content": [text("three")], "is_error": True}
    assert sent[2] == {"role": "user", "content": [first, second, text("Well?")]}


def test_images_and_documents_are_native_in_messages_and_in_results():
    png, pdf = base64.b64encode(PNG.data).decode(), base64.b64encode(PDF.data).decode()
    parts = [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": png}},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": pdf},
            "title": "report",
        },
        {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": "first line"},
            "title": "notes.txt",
        },
    ]

    files = (PNG, PDF, NOTES)
    sent = encode_messages(Message.user("see", *files), assistant(call("c1")), tool(result("c1", *files)))

    assert sent[0]["content"] == [text("see"), *parts]
    assert sent[2]["content"][0]["content"] == parts


def test_an_empty_file_or_name_is_no_empty_text():
    sent = encode_messages(Message.user("see", File(b" ", name="a.txt"), File(b"x", name=" ")))

    assert sent[0]["content"][1] == text("[a.txt]\n(empty)")
    assert "title" not in sent[0]["content"][2]


@pytest.mark.parametrize("content", [[], [""], ["  \n"]])
def test_an_empty_result_says_so(content):
    sent = encode_messages(HI, assistant(call("c1")), tool(result("c1", *content)))

    assert sent[2]["content"][0]["content"] == [text("(empty)")]


def test_what_is_left_empty_is_left_out():
    """A reply without blocks, or with blank ones only, is kept in history and not sent."""
    blank = Message("user", [TextBlock(" ")])

    assert encode_messages(HI, assistant(), assistant("", "\n"), blank) == [{"role": "user", "content": [text("Hi")]}]
    assert encode_messages(blank) == [{"role": "user", "content": [text("(nothing said yet)")]}]


def test_the_person_speaks_first_and_last():
    """Newer models refuse to go on with words of their own, and all of them words that end with a space."""
    sent = encode_messages(assistant("Hello. "))

    assert sent == [
        {"role": "user", "content": [text("(nothing said yet)")]},
        {"role": "assistant", "content": [text("Hello. ")]},
        {"role": "user", "content": [text("(go on)")]},
    ]


def test_arguments_that_were_malformed_go_back_as_an_empty_object():
    sent = encode_messages(HI, assistant(ToolCall("c1", "read", None, '{"path":"/tm')), tool(result("c1", "cut off")))

    assert sent[1]["content"][0]["input"] == {}


def test_ids_and_names_are_made_valid_and_stay_pairs():
    """A conversation that another provider began has ids that the API refuses."""
    odd = ToolCall("call:1/é", "read file!", {})
    sent = encode_messages(HI, assistant(odd), tool(result("call:1/é", "x")))

    block, answer = sent[1]["content"][0], sent[2]["content"][0]
    assert block["name"] == "read_file_"
    assert block["id"] == answer["tool_use_id"]


def test_lone_surrogates_never_break_a_request():
    broken = ToolCall("c\ud83d", "read", {"p\ud83d": "\ud83d\ude00\ud83d", "n": 2**70})
    sent = encode_messages(HI, assistant(broken), tool(ToolResultBlock("c\ud83d", [TextBlock("x")])))

    assert sent[1]["content"][0]["input"] == {"p\ufffd": "😀\ufffd", "n": 2**70}


def test_thinking_goes_back_in_place_and_byte_for_byte():
    """B18: an altered or missing block is refused, and every later turn with it."""
    empty = thought("")
    sent = encode_messages(
        HI,
        assistant(thought("First."), call("c1"), redacted(), empty, call("c2")),
        tool(result("c1", "x"), result("c2", "y")),
        settings={"thinking": True},
    )

    kinds = [block["type"] for block in sent[1]["content"]]
    assert kinds == ["thinking", "tool_use", "redacted_thinking", "thinking", "tool_use"]
    assert sent[1]["content"][0] == {
        "type": "thinking",
        "thinking": "First.",
        "signature": signature("First.", SONNET_4_5),
    }
    assert sent[1]["content"][3]["thinking"] == ""


def test_thinking_goes_to_no_other_model_or_provider():
    elsewhere = [
        thought(model=OPUS_4_6),
        thought(provider="openai"),
        ThinkingBlock("So.", "Sig==", "anthropic"),
        ThinkingBlock("So.", None, "anthropic", {"model": SONNET_4_5}),  # Cut off: it was never signed.
        ThinkingBlock("So.", "Sig==", "anthropic", {"field": "reasoning"}),
        redacted(model=OPUS_4_6),
    ]
    sent = encode_messages(HI, assistant(*elsewhere, "4"), Message.user("Sure?"), settings={"thinking": True})

    assert sent[1]["content"] == [text("4")]


@pytest.mark.parametrize(
    ("name", "thinking", "sent"),
    [(SONNET_4_5, None, False), (OPUS_4_6, None, False), (OPUS_4_6, True, True), ("claude-opus-5", None, True)],
)
def test_thinking_goes_back_only_while_the_model_thinks(name, thinking, sent):
    mine = thought(model=name)
    body = encode(HI, assistant(mine, "4"), Message.user("Sure?"), name=name, settings={"thinking": thinking})

    assert ("thinking" in [block["type"] for block in body["messages"][1]["content"]]) == sent


def test_a_reply_of_thinking_only_is_not_sent():
    """B17: the limit came while it thought. The API refuses a message that ends with thinking."""
    cut_off = Message("assistant", [thought("Let me")], cut_off=True)

    sent = encode_messages(HI, cut_off, Message.user("Again."), settings={"thinking": True})

    assert sent == [{"role": "user", "content": [text("Hi"), text("Again.")]}]


TURN = [HI, assistant("I look.", call("c1")), tool(result("c1", "x"))]


def test_a_turn_that_another_model_began_goes_on_without_a_budget():
    """The API demands that such a turn begins with thinking, and there is none that could be sent."""
    settings = {"thinking": True}
    later = [*TURN, assistant(thought(), call("c2")), tool(result("c2", "y"))]

    assert "thinking" not in encode(*TURN, settings=settings)
    assert "thinking" not in encode(*TURN[1:], settings=settings)
    assert "thinking" not in encode(*later, settings=settings)
    assert "thinking" in encode(*TURN, assistant("It is x."), Message.user("Sure?"), settings=settings)
    assert "thinking" in encode(*TURN, assistant("It is x."), settings=settings)
    assert encode(*TURN, name=OPUS_4_6, settings=settings)["thinking"]["type"] == "adaptive"


def test_a_turn_that_began_with_thinking_goes_on_with_it():
    """Only its first reply has some: without interleaved thinking, none follows behind results."""
    begun = [HI, assistant(thought(), call("c1")), tool(result("c1", "x"))]
    begun += [assistant(call("c2")), tool(result("c2", "y"))]

    assert "thinking" in encode(*begun, settings={"thinking": True})


SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "a"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}


def test_raw_blocks_go_back_as_they_came_to_their_own_provider():
    sent = encode_messages(
        HI,
        assistant(RawBlock("anthropic", SEARCH), RawBlock("anthropic", FOUND), RawBlock("openai", {"type": "x"}), "4"),
        Message("user", [TextBlock("Sure?"), RawBlock("anthropic", SEARCH)]),
    )

    assert sent[1]["content"] == [SEARCH, FOUND, text("4")]
    assert sent[2]["content"] == [text("Sure?")]


def test_a_server_tool_whose_result_never_came_is_left_out():
    """The API refuses it, unless it is what the last reply was paused in."""
    sent = encode_messages(HI, assistant("I search.", RawBlock("anthropic", SEARCH)), Message.user("And?"))

    assert sent[1]["content"] == [text("I search.")]


def test_what_a_block_had_besides_goes_back_with_it():
    citation = {"type": "char_location", "cited_text": "x"}
    caller = {"type": "code_execution_20260120", "tool_id": "s1"}
    sent = encode_messages(
        HI,
        assistant(
            "It is x.",
            RawBlock("anthropic", {"extra": {"citations": [citation]}}),
            call("c1"),
            RawBlock("anthropic", {"extra": {"caller": caller}}),
            " ",
            RawBlock("anthropic", {"extra": {"citations": [citation]}}),
            call("c2"),
            RawBlock("elsewhere", {"extra": {"caller": caller}}),
        ),
        tool(result("c1", "x"), result("c2", "x")),
    )

    cited, first, second = sent[1]["content"]
    assert cited == {**text("It is x."), "citations": [citation]}
    assert first["caller"] == caller
    assert "caller" not in second


def test_pictures_in_replies_and_blocks_of_no_kind_are_left_out():
    sent = encode_messages(HI, assistant(PNG, RawBlock("anthropic", {"a": 1}), RawBlock("anthropic", [1]), "4"))

    assert sent[1]["content"] == [text("4")]


def marks(body):
    """Where the cache marks are: (message, block) or the field."""
    found = [name for name in ("tools", "system") if any("cache_control" in item for item in body.get(name, ()))]
    for number, message in enumerate(body["messages"]):
        found += [(number, index) for index, block in enumerate(message["content"]) if "cache_control" in block]
    return found


LONG = [HI, assistant("Ho", call("c1")), tool(result("c1", "x")), assistant("Hum"), Message.user("Bye")]


def test_tools_system_and_the_last_two_messages_of_the_person_have_a_cache_mark():
    body = encode(*LONG, tools=(READ, attrs.evolve(READ, name="write")), system="s")

    assert marks(body) == ["tools", "system", (2, 0), (4, 0)]
    assert "cache_control" not in body["tools"][0]
    assert body["messages"][4]["content"][0]["cache_control"] == {"type": "ephemeral"}


def test_a_growing_conversation_has_a_mark_where_the_request_before_ended():
    """There the API finds what it kept, however many blocks came since."""
    for length in range(1, len(LONG) + 1):
        if LONG[length - 1].role == "assistant":
            continue
        before = encode(*LONG[:length])
        after = encode(*LONG[:length], assistant("Yes."), Message.user("More."))
        assert marks(before)[-1] in marks(after)
        assert without_marks(after)["messages"][: len(before["messages"])] == without_marks(before)["messages"]


def test_what_stands_for_the_person_has_no_cache_mark():
    """It isn't there in the next request, and neither would be what was kept with it."""
    assert marks(encode(*LONG, assistant("Hum"))) == [(2, 0), (4, 0)]
    assert marks(encode(assistant("Ho"))) == []
    assert marks(encode(assistant("Ho"), HI)) == [(2, 0)]


def test_caching_can_be_switched_off():
    for body in (encode(*LONG, settings={"cache": False}), encode(*LONG, cache=False)):
        assert marks(body) == []


def test_the_same_history_gives_the_same_bytes():
    request = Request(messages=LONG, system="s", tools=(READ,))
    one, other = Anthropic(SONNET_4_5)._wire, Anthropic(SONNET_4_5)._wire

    assert one.encode(request) == one.encode(request) == other.encode(request)


def test_a_message_is_encoded_once_and_forgotten_with_it():
    wire = Anthropic(SONNET_4_5)._wire
    message = Message.user("Hi")
    request = Request(messages=[message, message])
    [made] = set(map(id, wire._encoded.of([message, message])))
    wire.encode(request)

    assert [id(encoded) for encoded in wire._encoded.of([message])] == [made]
    del message, request
    gc.collect()
    assert len(wire._encoded) == 0


def test_a_paused_reply_goes_back_unchanged_at_the_end():
    paused = assistant(thought("Hm."), "I search. ", RawBlock("anthropic", SEARCH), thought("So."))
    model = Anthropic(SONNET_4_5, thinking=True)

    body = json.loads(model._wire.continuing().encode(Request(messages=[HI, paused])))

    kinds = [block["type"] for block in body["messages"][-1]["content"]]
    assert kinds == ["thinking", "text", "server_tool_use", "thinking"]
    assert body["thinking"]["type"] == "enabled"
    assert marks(body) == [(0, 0)]


def test_a_paused_reply_without_thinking_goes_on_without_a_budget():
    """The API demands that the last reply begins with thinking where there is a budget."""
    model = Anthropic(SONNET_4_5, thinking=True)

    body = json.loads(model._wire.continuing().encode(Request(messages=[HI, assistant("Ho")])))

    assert "thinking" not in body


TEXTS = st.text(st.characters(codec=None, exclude_categories=()), max_size=5)  # Lone surrogates too.
ARGS = st.dictionaries(TEXTS, st.recursive(TEXTS | st.integers() | st.none(), st.lists, max_leaves=3), max_size=3)
PARTS = TEXTS.map(TextBlock) | st.sampled_from([PNG, PDF, NOTES, File(b"", name="")])
USERS = st.lists(PARTS, max_size=3).map(lambda blocks: Message("user", blocks))
EXTRAS = st.sampled_from(
    [
        thought(),
        thought(""),
        redacted(),
        thought(model=OPUS_4_6),
        ThinkingBlock("x", None, "local", {"field": "reasoning"}),
        RawBlock("anthropic", SEARCH),
        RawBlock("anthropic", FOUND),
        RawBlock("anthropic", {"extra": {}}),
        RawBlock("local", {"extra_content": {}}),
    ]
)


@st.composite
def conversations(draw):
    """Replies of any blocks, each with calls followed at once by their results, between messages of the person."""
    messages = []
    for turn in range(draw(st.integers(0, 5))):
        if draw(st.booleans()):
            messages.append(draw(USERS))
            continue
        blocks = draw(st.lists(TEXTS.map(TextBlock) | EXTRAS, max_size=4))
        calls = [ToolCall(f"c{turn}:{n}", draw(TEXTS), draw(ARGS | st.none())) for n in range(draw(st.integers(0, 2)))]
        if calls and draw(st.booleans()):
            calls.insert(1, draw(EXTRAS))
        messages.append(Message("assistant", [*blocks, *calls]))
        results = [
            ToolResultBlock(item.id, draw(st.lists(PARTS, max_size=2)), draw(st.booleans()))
            for item in calls
            if isinstance(item, ToolCall)
        ]
        if results:
            messages.append(Message("tool", results))
    return messages


@given(
    conversations(),
    st.sampled_from(WAYS),
    st.sampled_from(["auto", "required", "read", "none"]),
    st.booleans(),
)
def test_any_conversation_gives_what_a_strict_provider_takes(messages, way, choice, cache):
    name, thinking = way
    settings = {"thinking": thinking, "max_tokens": 4_000, "cache": cache}

    encode(*messages, name=name, settings=settings, tools=(READ,), tool_choice=choice, system="s")

"""A Request as JSON for Gemini."""

import base64
import gc
import json

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
    freeze,
)
from alpineagents.models._google_wire import GoogleWire
from alpineagents.models._wire import Endpoint, Settings
from alpineagents.testing._formats._google_rules import SIGNED_END, problems, thought_signature

NEW, OLD = "gemini-3-pro-preview", "gemini-2.5-flash"
PNG = Image(b"\x89PNG\r\n\x1a\n" + b"x" * 8)
GIF = Image(b"GIF89a" + b"x" * 8)
PDF = File(b"%PDF-1.7 x", name="report")
NOTES = File(b"first line", name="notes.txt")
CALL = ToolCall("c1", "read", {"path": "a"})
SECOND = ToolCall("c2", "shot", {})
READ = ToolSpec("read", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}})
NOW = ToolSpec("now", "", {"type": "object", "properties": {}})
HI = Message.user("Hi")
SKIP = "skip_thought_signature_validator"
SIGNED = thought_signature(NEW, {"path": "a"})
END = thought_signature(NEW, SIGNED_END)


def result(call_id, *content, is_error=False):
    blocks = [TextBlock(item) if isinstance(item, str) else item for item in content]
    return ToolResultBlock(call_id, blocks, is_error)


def tool(*results):
    return Message("tool", results)


def assistant(*blocks):
    return Message("assistant", [TextBlock(block) if isinstance(block, str) else block for block in blocks])


def signature(of, text=SIGNED, model=NEW, provider="google"):
    return RawBlock(provider, {"thoughtSignature": text, "of": of, "model": model})


def part(kept, model=NEW, provider="google"):
    return RawBlock(provider, {"part": kept, "model": model})


def wire(model=NEW, **settings):
    return GoogleWire(Endpoint("google", "http://127.0.0.1", model), Settings(**settings))


def encode(*messages, model=NEW, settings=None, **request):
    """The request's JSON, checked by the rules of a strict provider."""
    body = json.loads(wire(model, **(settings or {})).encode(Request(messages=messages, **request)))
    assert list(problems(body, model)) == []
    return body


def contents(*messages, **request):
    return encode(*messages, **request)["contents"]


def user(*parts):
    return {"role": "user", "parts": [{"text": item} if isinstance(item, str) else item for item in parts]}


def call_part(call=CALL, signed=SKIP):
    made = {"functionCall": {"id": call.id, "name": call.name, "args": dict(call.args or {})}}
    return made if signed is None else {**made, "thoughtSignature": signed}


def answer(call_id, name, response, **more):
    return {"functionResponse": {"id": call_id, "name": name, "response": response, **more}}


def inline(block):
    return {"inlineData": {"mimeType": block.media_type, "data": base64.b64encode(block.data).decode()}}


# ---- The request


def test_a_plain_request_is_its_contents_alone():
    assert encode(HI) == {"contents": [user("Hi")]}


def test_the_model_is_in_the_path_and_a_streamed_answer_asked_for_there():
    assert wire().path == f"/v1beta/models/{NEW}:streamGenerateContent?alt=sse"
    assert wire("models/gemini-x").path == "/v1beta/models/gemini-x:streamGenerateContent?alt=sse"
    assert wire("a/b:c?d é").path == "/v1beta/models/a%2Fb%3Ac%3Fd%20%C3%A9:streamGenerateContent?alt=sse"


def test_the_system_prompt_has_its_own_place_and_a_blank_one_none():
    assert encode(HI, system="Be brief.")["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    assert encode(HI, system=" \n") == encode(HI)


def test_extra_body_adds_fields_and_puts_others_in_place():
    extra = freeze({"safetySettings": [], "generationConfig": {"topK": 3}})
    body = encode(HI, settings={"extra_body": extra, "seed": 1})

    assert (body["safetySettings"], body["generationConfig"]) == ([], {"topK": 3})


def test_tools_are_declared_by_their_schema_and_one_without_parameters_has_none():
    assert encode(HI, tools=(READ, NOW))["tools"] == [
        {
            "functionDeclarations": [
                {"name": "read", "description": "Read a file.", "parametersJsonSchema": dict(READ.input_schema)},
                {"name": "now"},
            ]
        }
    ]


def test_tools_that_change_are_declared_anew():
    one = wire()
    for tools in ((READ,), (READ, NOW), (READ,), ()):
        body = json.loads(one.encode(Request(messages=[HI], tools=tools)))
        declared = body["tools"][0]["functionDeclarations"] if tools else body.get("tools", [])
        assert [item["name"] for item in declared] == [tool.name for tool in tools]


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", None),
        ("required", {"mode": "ANY"}),
        ("none", {"mode": "NONE"}),
        ("read", {"mode": "ANY", "allowedFunctionNames": ["read"]}),
    ],
)
def test_a_tool_choice_is_sent(choice, sent):
    body = encode(HI, tools=(READ,), tool_choice=choice)

    assert body.get("toolConfig", {}).get("functionCallingConfig") == sent


def test_a_tool_choice_without_tools_is_not_sent():
    assert encode(HI, tool_choice="none") == encode(HI)


@pytest.mark.parametrize(
    ("name", "sent"),
    [("read", "read"), ("1st", "_1st"), ("-x", "_-x"), ("a.b é", "a_b__"), ("x" * 70, "x" * 64), ("", "_")],
)
def test_names_are_sent_as_gemini_takes_them_everywhere(name, sent):
    spec = ToolSpec(name, "", {"type": "object"})
    body = encode(
        HI, assistant(ToolCall("c1", name, {})), tool(result("c1", "x")), HI, tools=(spec,), tool_choice=name or "auto"
    )

    assert body["tools"][0]["functionDeclarations"][0]["name"] == sent
    assert body["contents"][1]["parts"][0]["functionCall"]["name"] == sent
    assert body["contents"][2]["parts"][0]["functionResponse"]["name"] == sent
    if name:
        assert body["toolConfig"]["functionCallingConfig"]["allowedFunctionNames"] == [sent]


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def test_an_answer_is_held_to_its_schema():
    assert encode(HI, returns=SCHEMA, settings={"seed": 3})["generationConfig"] == {
        "seed": 3,
        "responseMimeType": "application/json",
        "responseJsonSchema": SCHEMA,
    }
    assert "generationConfig" not in encode(HI)


def test_a_schema_together_with_tools_that_may_not_be_called_goes_without_them_to_older_models():
    """Models before Gemini 3 refuse both at once, and NONE is as if there were no tools."""
    messages = [HI, assistant(CALL), tool(result("c1", "x")), Message.user("How many?")]
    options = {"tools": (READ,), "tool_choice": "none"}

    assert "tools" not in encode(*messages, model=OLD, returns=SCHEMA, **options)
    assert "toolConfig" not in encode(*messages, model=OLD, returns=SCHEMA, **options)
    assert "tools" in encode(*messages, model=OLD, **options)
    new = encode(*messages, model=NEW, returns=SCHEMA, **options)
    assert new["toolConfig"] == {"functionCallingConfig": {"mode": "NONE"}}
    assert new["generationConfig"]["responseJsonSchema"] == SCHEMA


# ---- Who speaks


def test_what_one_speaker_says_in_a_row_is_one_content():
    sent = contents(HI, Message.notice("now"), assistant("a"), assistant("b"), Message("user", [TextBlock("c"), PNG]))

    assert sent == [
        user("Hi", "[notice] now"),
        {"role": "model", "parts": [{"text": "a"}, {"text": "b"}]},
        user("c", inline(PNG)),
    ]


@pytest.mark.parametrize("messages", [[], [Message("user", [TextBlock(" ")])], [assistant()], [assistant(" ")]])
def test_a_conversation_in_which_nothing_is_said_says_so(messages):
    assert contents(*messages) == [user("(nothing said yet)")]


def test_the_person_speaks_first():
    assert contents(assistant("Hello.")) == [
        user("(nothing said yet)"),
        {"role": "model", "parts": [{"text": "Hello."}]},
    ]


def test_blank_text_is_left_out():
    message = Message("user", [TextBlock("a"), TextBlock(" \n"), TextBlock("b")])

    assert contents(message, assistant("", "x", "\t")) == [user("a", "b"), {"role": "model", "parts": [{"text": "x"}]}]


def test_attachments_are_inline_data_and_texts_are_text():
    assert contents(Message.user("see", PNG, PDF, NOTES, GIF)) == [
        user(
            "see",
            inline(PNG),
            inline(PDF),
            "[notes.txt]\nfirst line",
            "(an image that can't be shown: Gemini doesn't read image/gif)",
        )
    ]


# ---- Calls and their results


def test_results_come_right_behind_their_calls_in_one_content_and_in_their_order():
    for results in [
        [tool(result("c1", "one", "two"), result("c2", "three"))],
        [tool(result("c1", "one", "two")), tool(result("c2", "three"))],
        [tool(result("c2", "three")), tool(result("c1", "one", "two"))],
    ]:
        sent = contents(HI, assistant("I look.", CALL, SECOND), *results, Message.user("and?"))

        assert sent[1] == {"role": "model", "parts": [{"text": "I look."}, call_part(), call_part(SECOND, None)]}
        assert sent[2] == user(answer("c1", "read", {"result": "one\ntwo"}), answer("c2", "shot", {"result": "three"}))
        assert sent[3] == user("and?")


def test_a_result_says_whether_it_is_an_error():
    sent = contents(HI, assistant(CALL), tool(result("c1", "no such file", is_error=True)))

    assert sent[2] == user(answer("c1", "read", {"error": "no such file"}))


@pytest.mark.parametrize("content", [[], [""], ["  \n"]])
def test_an_empty_result_says_so(content):
    sent = contents(HI, assistant(CALL), tool(result("c1", *content)))

    assert sent[2] == user(answer("c1", "read", {"result": "(empty)"}))


def test_arguments_that_were_malformed_go_back_as_an_empty_object():
    sent = contents(HI, assistant(ToolCall("c1", "read", None, '{"path":"/tm')), tool(result("c1", "cut off")))

    assert sent[1]["parts"] == [call_part(ToolCall("c1", "read", {}))]


def test_pictures_of_results_are_in_them_from_gemini_3_on():
    results = tool(result("c1", "see", PNG), result("c2", PDF, NOTES, GIF))
    sent = contents(HI, assistant(CALL, SECOND), results, Message.user("go on"))

    assert sent[2] == user(
        answer("c1", "read", {"result": "see\n(an image: it is in this result)"}, parts=[inline(PNG)]),
        answer(
            "c2",
            "shot",
            {
                "result": "(report: it is in this result)\n[notes.txt]\nfirst line\n"
                "(an image that can't be shown: Gemini doesn't read image/gif)"
            },
            parts=[inline(PDF)],
        ),
    )
    assert sent[3] == user("go on")


@pytest.mark.parametrize("together", [True, False])
def test_pictures_of_results_follow_behind_all_results_of_the_turn_before_gemini_3(together):
    """A14: older models refuse them in results, and count the parts of the content."""
    first, second = result("c1", "see", PNG), result("c2", PDF)
    results = [tool(first, second)] if together else [tool(first), tool(second)]
    sent = contents(HI, assistant(CALL, SECOND), *results, Message.user("go on"), model=OLD)

    assert sent[2] == user(
        answer("c1", "read", {"result": "see\n(an image: it follows behind)"}),
        answer("c2", "shot", {"result": "(report: it follows behind)"}),
    )
    assert sent[3] == user(
        "From the result of tool call c1:",
        inline(PNG),
        "From the result of tool call c2:",
        inline(PDF),
        "go on",
    )


def test_two_calls_with_one_id_get_a_result_each():
    twin = ToolCall("c1", "shot", {})
    sent = contents(HI, assistant(CALL, twin), tool(result("c1", "one"), result("c1", "two")))

    assert sent[2] == user(answer("c1", "read", {"result": "one"}), answer("c1", "shot", {"result": "two"}))


def test_a_result_of_no_call_is_not_sent_nor_any_for_a_call_without_result():
    """A conversation has neither; the name of such a result isn't known, and the API says what it misses."""
    assert contents(HI, tool(result("c9", "x"))) == [user("Hi")]

    request = Request(messages=[HI, assistant(CALL, SECOND), tool(result("c2", "y"))])
    assert json.loads(wire().encode(request))["contents"][2] == user(answer("c2", "shot", {"result": "y"}))


def test_blocks_that_the_model_cannot_have_written_are_left_out():
    assert contents(HI, assistant("a", PNG, RawBlock("openai", {"type": "reasoning"})))[1]["parts"] == [{"text": "a"}]
    assert contents(Message("user", [TextBlock("Hi"), part({"text": "x"})])) == [user("Hi")]


# ---- Signatures


def test_a_signature_goes_back_on_exactly_the_part_that_had_it():
    sent = contents(
        HI,
        assistant("a", CALL, signature("call"), SECOND, "b"),
        tool(result("c1", "x"), result("c2", "y")),
        assistant("c", "d", signature("text", END)),
        HI,
        assistant("e", part({"text": "", "thoughtSignature": END})),
    )

    assert sent[1]["parts"] == [{"text": "a"}, call_part(signed=SIGNED), call_part(SECOND, None), {"text": "b"}]
    assert sent[3]["parts"] == [{"text": "c"}, {"text": "d", "thoughtSignature": END}]
    assert sent[5]["parts"] == [{"text": "e"}, {"text": "", "thoughtSignature": END}]


def test_a_blank_text_with_a_signature_goes_back_as_it_came():
    sent = contents(HI, assistant("a", "\n", signature("text", END)))

    assert sent[1]["parts"] == [{"text": "a"}, {"text": "\n", "thoughtSignature": END}]


@pytest.mark.parametrize(
    "kept",
    [
        signature("call", model="gemini-2.5-pro"),
        signature("call", provider="elsewhere"),
        signature("text"),
        RawBlock("google", {"thoughtSignature": 7, "of": "call", "model": NEW}),
        RawBlock("google", {"extra_content": {"google": {"thought_signature": "Sg=="}}}),
        RawBlock("google", ["x"]),
        RawBlock("google", {"part": "x", "model": NEW}),
    ],
    ids=["of another model", "of another provider", "of a text", "no text", "of Chat Completions", "a list", "no part"],
)
def test_a_signature_of_anybody_else_is_not_sent(kept):
    """The first call of a step must have one from Gemini 3 on: Google names a word for those that have none."""
    sent = contents(HI, assistant(CALL, kept, SECOND), tool(result("c1", "x"), result("c2", "y")))

    assert sent[1]["parts"] == [call_part(signed=SKIP), call_part(SECOND, None)]


def test_a_signature_belongs_to_what_stands_right_before_it():
    of_second = thought_signature(NEW, {})
    blocks = [signature("text"), "a", CALL, signature("text"), SECOND, signature("call", of_second), signature("call")]

    sent = contents(HI, assistant(*blocks), tool(result("c1", "x"), result("c2", "y")))

    assert sent[1]["parts"] == [{"text": "a"}, call_part(signed=SKIP), call_part(SECOND, of_second)]


def test_each_step_says_that_its_calls_have_no_signature():
    sent = contents(
        HI, assistant(CALL), tool(result("c1", "x")), assistant(SECOND), tool(result("c2", "y")), model="gemini-latest"
    )

    assert sent[1]["parts"] == [call_part()]
    assert sent[3]["parts"] == [call_part(SECOND)]


@pytest.mark.parametrize("model", [OLD, f"models/{OLD}", "gemini-1.5-pro", "gemini-2"])
def test_older_models_are_told_nothing_of_signatures_that_are_not_there(model):
    body = json.loads(wire(model).encode(Request(messages=[HI, assistant(CALL), tool(result("c1", "x"))])))

    assert body["contents"][1]["parts"] == [call_part(signed=None)]


def test_thoughts_go_back_unchanged_to_the_model_that_thought_them():
    """B18."""
    mine = {"provider": "google", "raw": {"model": NEW}}
    signed = thought_signature(NEW, "")
    thoughts = [ThinkingBlock("So.", **mine), ThinkingBlock("", signed, **mine)]

    assert contents(HI, assistant(*thoughts, "4"))[1]["parts"] == [
        {"text": "So.", "thought": True},
        {"text": "", "thought": True, "thoughtSignature": signed},
        {"text": "4"},
    ]


@pytest.mark.parametrize(
    "thought",
    [
        ThinkingBlock("So.", "c2ln", "google", {"model": OLD}),
        ThinkingBlock("So.", "c2ln", "elsewhere", {"model": NEW}),
        ThinkingBlock("So.", "c2ln", "google"),
        ThinkingBlock("So."),
    ],
)
def test_thoughts_go_to_nobody_else(thought):
    assert contents(HI, assistant(thought, "4"))[1]["parts"] == [{"text": "4"}]


def test_a_reply_of_thoughts_alone_is_no_turn():
    assert contents(HI, assistant(ThinkingBlock("So.", None, "google", {"model": NEW})), HI) == [user("Hi", "Hi")]


def test_parts_of_other_kinds_go_back_as_they_came_and_to_other_models_without_signature():
    code = {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": END}
    end = {"text": "", "thoughtSignature": END}
    message = assistant(part(code), part(end), "x", part(code, provider="elsewhere"))

    assert contents(HI, message)[1]["parts"] == [code, end, {"text": "x"}]
    del code["thoughtSignature"]
    assert contents(HI, message, model="gemini-4")[1]["parts"] == [code, {"text": "x"}]


# ---- Bytes


def test_lone_surrogates_never_break_a_request():
    """A11: history may hold them in arguments, from where a model or a person put them."""
    call = ToolCall("c\ud83d", "read", {"p\ud83d": "\ud83d\ude00\ud83d"})
    sent = contents(HI, assistant(call), tool(ToolResultBlock("c\ud83d", [TextBlock("x")])))

    assert sent[1]["parts"][0]["functionCall"] == {"id": "c\ufffd", "name": "read", "args": {"p\ufffd": "😀\ufffd"}}
    assert sent[2]["parts"][0]["functionResponse"]["id"] == "c\ufffd"


def test_integers_of_any_size_are_sent():
    sent = contents(HI, assistant(ToolCall("c1", "read", {"n": 2**70})), tool(result("c1", "x")))

    assert sent[1]["parts"][0]["functionCall"]["args"] == {"n": 2**70}


def test_the_same_history_gives_the_same_bytes():
    request = Request(messages=(HI, assistant("I look.", CALL), tool(result("c1", PNG))), system="s", tools=(READ,))
    one = wire()

    assert one.encode(request) == one.encode(request) == wire().encode(request)


def test_a_message_is_encoded_once_and_forgotten_with_it():
    one = wire()
    message = Message.user("Hi")
    request = Request(messages=[message, message])
    [made] = set(map(id, one._encoded.of([message, message])))
    one.encode(request)
    one.encode(request)

    assert [id(encoded) for encoded in one._encoded.of([message])] == [made]
    assert json.loads(one.encode(request))["contents"] == [user("Hi", "Hi")]
    assert len(one._encoded) == 1
    del message, request
    gc.collect()
    assert len(one._encoded) == 0


# ---- Anything


TEXTS = st.text(st.characters(codec=None, exclude_categories=()), max_size=5)  # Lone surrogates too.
ARGS = st.dictionaries(TEXTS, st.recursive(TEXTS | st.integers() | st.none(), st.lists, max_leaves=3), max_size=3)
CONTENT = st.lists(TEXTS.map(TextBlock) | st.sampled_from([PNG, GIF, PDF, NOTES]), max_size=3)
NAMES = st.sampled_from(["read", "1st", "a b", "", "x" * 70]) | TEXTS
MODELS = st.sampled_from([NEW, OLD, "gemini-flash-latest"])
OTHERS = st.sampled_from(
    [
        ThinkingBlock("So.", thought_signature(NEW, "So."), "google", {"model": NEW}),
        ThinkingBlock("So.", None, "google", {"model": OLD}),
        ThinkingBlock("So.", "c2ln", "anthropic"),
        part({"text": "", "thoughtSignature": END}),
        part({"executableCode": {"language": "PYTHON", "code": "1"}}),
        RawBlock("openai", {"type": "reasoning"}),
        signature("text", END),
    ]
)


@st.composite
def conversations(draw):
    """Well-formed ones: each reply with calls is followed at once by their results, in one message or in several."""
    messages = []
    for number in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["user", "assistant", "calls"]))
        if kind != "calls":
            messages.append(Message(kind, draw(CONTENT if kind == "user" else st.lists(TEXTS.map(TextBlock) | OTHERS))))
            continue
        calls = []
        blocks = draw(st.lists(TEXTS.map(TextBlock) | OTHERS, max_size=2))
        for place in range(draw(st.integers(1, 3))):
            args = draw(ARGS | st.none())
            calls.append(ToolCall(f"c{number}_{place}", draw(NAMES), args, None if args is not None else "{"))
            blocks += [calls[-1], *draw(st.lists(OTHERS, max_size=1))]
        results = [
            ToolResultBlock(call.id, draw(CONTENT), draw(st.booleans())) for call in draw(st.permutations(calls))
        ]
        together = draw(st.booleans())
        messages += [Message("assistant", blocks)]
        messages += [Message("tool", results)] if together else [Message("tool", [one]) for one in results]
    return messages


@given(conversations(), MODELS)
def test_any_conversation_gives_what_a_strict_provider_takes(messages, model):
    encode(*messages, model=model, system="s", tools=(READ, NOW))


@given(conversations(), MODELS)
def test_a_longer_conversation_begins_as_the_shorter_one_did(messages, model):
    """So that Google finds the beginning it has kept."""
    sent = [part for content in contents(*messages, HI, model=model) for part in content["parts"]]
    longer = [part for content in contents(*messages, HI, HI, model=model) for part in content["parts"]]

    assert longer[: len(sent)] == sent

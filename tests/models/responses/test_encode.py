"""A Request as the JSON of the Responses API."""

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
)
from alpineagents.models._responses_wire import ResponsesWire
from alpineagents.models._wire import Endpoint, Settings
from alpineagents.record import freeze
from alpineagents.testing._formats._responses_rules import problems
from alpineagents.testing._formats._responses_thoughts import encrypted

PNG = Image(b"\x89PNG\r\n\x1a\n" + b"x" * 8)
PDF = File(b"%PDF-1.7 x", name="report")
NOTES = File(b"first line", name="notes.txt")
CALL = ToolCall("c1", "read", {"path": "a"})
CLOSED = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
READ = ToolSpec("read", "Read a file.", {**CLOSED, "additionalProperties": False})
HI = Message.user("Hi")
SAID_HI = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
NOBODY = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "(nothing said yet)"}]}


def result(call_id, *content, is_error=False):
    blocks = [TextBlock(item) if isinstance(item, str) else item for item in content]
    return ToolResultBlock(call_id, blocks, is_error)


def tool(*results):
    return Message("tool", results)


def assistant(*blocks):
    return Message("assistant", [TextBlock(block) if isinstance(block, str) else block for block in blocks])


def thought(text, follower, *, model="m", provider="here", **fields):
    """A thinking block as the decoder makes it of what the scripted provider sent."""
    summary = [{"type": "summary_text", "text": text}]
    content = encrypted("m", text, follower)
    item = {"id": "rs_1", "type": "reasoning", "status": "completed", "summary": summary, "encrypted_content": content}
    return ThinkingBlock(text, provider=provider, raw={"model": model, "item": {**item, **fields}})


def sent_thought(text, follower):
    summary = [{"type": "summary_text", "text": text}]
    return {"type": "reasoning", "summary": summary, "encrypted_content": encrypted("m", text, follower)}


def said(*texts, **fields):
    content = [{"type": "output_text", "text": text} for text in texts]
    return {"type": "message", "role": "assistant", "content": content, **fields}


def wire(provider="here", model="m", **settings):
    return ResponsesWire(Endpoint(provider, "http://127.0.0.1/v1", model), Settings(**settings))


def encode(*messages, provider="here", model="m", settings=None, **request):
    return json.loads(wire(provider, model, **(settings or {})).encode(Request(messages=messages, **request)))


def encode_items(*messages, **request):
    """The items, checked by the rules of the strict provider."""
    body = encode(*messages, **request)
    assert list(problems(body)) == []
    return body["input"]


def test_a_request_streams_stores_nothing_and_asks_for_the_thoughts():
    assert encode(HI) == {
        "model": "m",
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "input": [SAID_HI],
    }


@pytest.mark.parametrize("model", ["gpt-4o", "openai/gpt-4.1-mini", "ft:gpt-4o:x", "chatgpt-4o-latest", "gpt-5-chat"])
def test_a_model_that_does_not_reason_is_not_asked_for_thoughts(model):
    """ "Encrypted content is not supported with this model" would be its answer."""
    assert "include" not in encode(HI, model=model)


@pytest.mark.parametrize("model", ["gpt-5", "gpt-5.6-sol", "o3", "o4-mini", "openai/gpt-oss-20b", "my-gpt-4"])
def test_any_other_model_is(model):
    assert "include" in encode(HI, model=model)


def test_the_system_prompt_goes_as_instructions_and_a_blank_one_not_at_all():
    assert encode(HI, system="Be brief.")["instructions"] == "Be brief."
    assert encode(HI, system=" \n") == encode(HI)


def test_settings_are_sent_only_where_they_are_set():
    settings = {"max_tokens": 99, "temperature": 0.0, "parallel_tool_calls": False}
    body = encode(HI, tools=(READ,), settings=settings)

    assert (body["max_output_tokens"], body["temperature"], body["parallel_tool_calls"]) == (99, 0.0, False)
    assert list(problems(body)) == []
    assert "parallel_tool_calls" not in encode(HI, settings=settings)


@pytest.mark.parametrize(
    ("settings", "reasoning"),
    [
        ({"effort": "low"}, {"effort": "low"}),
        ({"thinking": True}, {"summary": "auto"}),
        ({"thinking": True, "effort": "high"}, {"effort": "high", "summary": "auto"}),
        ({"thinking": False}, {"effort": "none"}),
        ({"thinking": False, "effort": "none"}, {"effort": "none"}),
        (
            {"effort": "low", "extra_body": freeze({"reasoning": {"summary": "detailed"}})},
            {"effort": "low", "summary": "detailed"},
        ),
    ],
)
def test_thinking_and_effort(settings, reasoning):
    body = encode(HI, settings=settings)

    assert body["reasoning"] == reasoning
    assert list(problems(body)) == []


def test_extra_body_adds_fields_and_puts_others_in_place():
    extra = freeze({"top_p": 0.5, "store": None, "text": {"verbosity": "low"}, "reasoning": None})
    body = encode(HI, settings={"extra_body": extra, "effort": "low"}, returns=READ.input_schema)

    assert (body["top_p"], body["store"], body["reasoning"]) == (0.5, None, None)
    assert body["text"]["verbosity"] == "low"
    assert body["text"]["format"]["name"] == "answer"
    assert encode(HI, settings={"extra_body": extra})["text"] == {"verbosity": "low"}


def test_a_conversation_has_one_cache_key_at_openai():
    def key(*messages, provider="openai", cache=True, **request):
        body = encode(*messages, provider=provider, settings={"cache": cache}, **request)
        assert list(problems(body)) == []
        return body.get("prompt_cache_key")

    more = (HI, assistant("Hello."), Message.user("Go on."))
    assert len(key(HI)) == 32
    assert key(HI) == key(*more)
    assert key(HI) != key(Message.user("Ho"))
    assert key(HI) != key(HI, system="Be brief.")
    assert key(HI, provider="here") is None
    assert key(HI, cache=False) is None
    assert encode(HI, provider="openai", cache=False).get("prompt_cache_key") is None


def test_tools_are_described_flat_and_strict_where_their_schema_allows():
    bare = ToolSpec("now", "", {"type": "object", "properties": {}, "additionalProperties": False})
    loose = ToolSpec("find", "Find.", {**READ.input_schema, "required": []})
    default = {"path": {"type": "string", "default": "."}}
    other = ToolSpec("list", "List.", {**READ.input_schema, "properties": default})
    body = encode(HI, tools=(READ, bare, loose, other))

    assert body["tools"][0] == {
        "type": "function",
        "name": "read",
        "description": "Read a file.",
        "parameters": dict(READ.input_schema),
        "strict": True,
    }
    assert body["tools"][1] == {
        "type": "function",
        "name": "now",
        "parameters": dict(bare.input_schema),
        "strict": True,
    }
    assert [described["strict"] for described in body["tools"]] == [True, True, False, False]
    assert list(problems(body)) == []


@pytest.mark.parametrize(
    ("choice", "sent"),
    [("required", "required"), ("none", "none"), ("read", {"type": "function", "name": "read"})],
)
def test_a_tool_choice_is_sent(choice, sent):
    body = encode(HI, tools=(READ,), tool_choice=choice)

    assert body["tool_choice"] == sent
    assert list(problems(body)) == []


def test_the_choice_auto_is_not_sent_nor_any_without_tools():
    assert "tool_choice" not in encode(HI, tools=(READ,))
    assert "tool_choice" not in encode(HI, tool_choice="none")


def test_an_answer_is_held_to_its_schema():
    schema = {**READ.input_schema, "title": "My answer!"}
    body = encode(HI, returns=schema)
    loose = encode(HI, returns={"type": "object"})

    described = {"type": "json_schema", "name": "My_answer_", "schema": schema, "strict": True}
    assert body["text"] == {"format": described}
    assert loose["text"]["format"]["strict"] is False
    assert list(problems(body)) == list(problems(loose)) == []


def test_a_user_message_has_a_part_for_each_block():
    (item,) = encode_items(Message("user", [TextBlock("see"), TextBlock(" "), PNG, PDF, NOTES]))

    png, pdf = base64.b64encode(PNG.data).decode(), base64.b64encode(PDF.data).decode()
    assert item["content"] == [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{png}", "detail": "auto"},
        {"type": "input_file", "filename": "report.pdf", "file_data": f"data:application/pdf;base64,{pdf}"},
        {"type": "input_text", "text": "[notes.txt]\nfirst line"},
    ]


def test_a_pdf_keeps_a_name_that_says_so():
    (item,) = encode_items(Message.user("see", File(PDF.data, name="a.PDF")))

    assert item["content"][1]["filename"] == "a.PDF"


def test_a_reply_is_items_in_its_order():
    """B19: nothing is moved, and nothing empty put in between."""
    second = ToolCall("c2", "read", {})
    sent = encode_items(
        HI,
        assistant("I look.", " ", CALL, "And there.", "Too.", second),
        tool(result("c1", "x"), result("c2", "y")),
    )

    assert sent[1:] == [
        said("I look."),
        {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"path":"a"}'},
        said("And there.", "Too."),
        {"type": "function_call", "call_id": "c2", "name": "read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "x"},
        {"type": "function_call_output", "call_id": "c2", "output": "y"},
    ]


def test_thoughts_go_back_encrypted_and_without_their_id_right_before_what_they_led_to():
    """B20: nothing is stored, so an id would be looked up in vain; and a ``status`` is no parameter there."""
    one, two = thought("One.", "message"), thought("Two.", "function_call")
    sent = encode_items(HI, assistant(one, "I look.", two, CALL), tool(result("c1", "x")))

    assert [item["type"] for item in sent] == [
        *("message", "reasoning", "message", "reasoning", "function_call", "function_call_output"),
    ]
    assert (sent[1], sent[3]) == (sent_thought("One.", "message"), sent_thought("Two.", "function_call"))


def test_several_thoughts_before_one_call_all_go_back():
    one, two = thought("One.", "function_call"), thought("Two.", "function_call")
    sent = encode_items(HI, assistant(one, two, CALL), tool(result("c1", "x")))

    assert sent[1:3] == [sent_thought("One.", "function_call"), sent_thought("Two.", "function_call")]


def test_thoughts_that_led_to_nothing_that_is_sent_are_not_sent_either():
    """B19: cut off while it thought, or a reply of blank text: both or none."""
    for reply in (assistant(thought("One.", None)), assistant(thought("One.", "message"), "", " \n")):
        assert encode_items(HI, reply) == [SAID_HI]
    cut = encode_items(HI, assistant(thought("One.", "message"), "Yes.", thought("Two.", None)))
    assert cut[1:] == [sent_thought("One.", "message"), said("Yes.")]


@pytest.mark.parametrize(
    "block",
    [
        thought("So.", "message", model="m2"),
        thought("So.", "message", provider="elsewhere"),
        thought("So.", "message", encrypted_content=None),
        thought("So.", "message", encrypted_content=""),
        ThinkingBlock("So.", provider="here"),
        ThinkingBlock("So.", provider="here", raw={"field": "reasoning_content"}),
        ThinkingBlock("So.", provider="here", raw={"model": "m", "item": ["x"]}),
        ThinkingBlock("So.", provider="here", raw="x"),
        ThinkingBlock("So.", "sig", provider="here"),
    ],
)
def test_other_thoughts_are_left_out(block):
    """Of another model or provider, of another format of the same provider, or without what can be decrypted."""
    sent = encode_items(HI, assistant(block, "4", CALL), tool(result("c1", "x")))

    assert sent[1] == said("4")
    assert [item["type"] for item in sent] == ["message", "message", "function_call", "function_call_output"]


def test_the_phase_of_a_message_goes_back_to_its_provider():
    """Without it, newer models take their own comments for the answer, and stop too soon."""
    commentary = RawBlock("here", {"type": "message", "phase": "commentary"})
    final = RawBlock("here", {"type": "message", "phase": "final_answer"})
    reply = assistant(commentary, "I look.", final, "Done.")

    assert encode_items(HI, reply)[1:] == [
        said("I look.", phase="commentary"),
        said("Done.", phase="final_answer"),
    ]
    assert encode_items(HI, reply, provider="elsewhere")[1:] == [said("I look.", "Done.")]


def test_a_phase_is_not_put_on_another_message():
    commentary = RawBlock("here", {"type": "message", "phase": "commentary"})
    sent = encode_items(HI, assistant(commentary, " ", CALL, "Done."), tool(result("c1", "x")))

    assert sent[2] == said("Done.")


def test_a_refusal_goes_back_as_one_to_its_provider():
    reply = assistant(RawBlock("here", {"type": "refusal"}), "I can't.", "Sorry.")

    content = [{"type": "refusal", "refusal": "I can't."}, {"type": "output_text", "text": "Sorry."}]
    assert encode_items(HI, reply)[1] == {"type": "message", "role": "assistant", "content": content}
    assert encode_items(HI, reply, provider="elsewhere")[1] == said("I can't.", "Sorry.")


def test_items_of_the_providers_own_tools_go_back_unchanged_and_in_place():
    search = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search"}}
    reply = assistant(thought("Hm.", "web_search_call"), RawBlock("here", search), "Sunny.")

    assert encode_items(HI, reply)[1:] == [sent_thought("Hm.", "web_search_call"), search, said("Sunny.")]
    assert encode_items(HI, reply, provider="elsewhere")[1:] == [said("Sunny.")]


def test_blocks_of_other_formats_of_the_same_provider_are_left_out():
    raw = [RawBlock("here", {"extra_content": {"x": 1}}), RawBlock("here", "x"), RawBlock("here", {"type": 1})]

    assert encode_items(HI, assistant("4", *raw)) == [SAID_HI, said("4")]
    assert encode_items(Message("user", [raw[0]]), HI) == [SAID_HI]


def test_what_is_left_empty_is_left_out():
    """A10: a reply without blocks, or with blank ones only, is kept in history and not sent."""
    blank = Message("user", [TextBlock(" ")])

    assert encode_items(HI, assistant(), assistant("", "\n"), blank) == [SAID_HI]


def test_a_conversation_that_begins_with_a_reply_or_is_empty_gets_a_line_first():
    assert encode_items(assistant("Hello.")) == [NOBODY, said("Hello.")]
    assert encode_items(Message("user", [TextBlock(" ")]), assistant("Hello.")) == [NOBODY, said("Hello.")]
    assert encode_items(Message("user", [TextBlock(" ")])) == [NOBODY]


def test_a_result_of_text_is_a_text():
    sent = encode_items(HI, assistant(CALL), tool(result("c1", "one", "two", NOTES)))

    assert sent[2]["output"] == "one\ntwo\n[notes.txt]\nfirst line"


@pytest.mark.parametrize("content", [[], [""], ["  \n"]])
def test_an_empty_result_says_so(content):
    sent = encode_items(HI, assistant(CALL), tool(result("c1", *content)))

    assert sent[2]["output"] == "(empty)"


def test_pictures_and_documents_are_parts_of_a_result():
    """A14: natively, never base64 as text."""
    sent = encode_items(HI, assistant(CALL), tool(result("c1", "see", " ", PNG, PDF, NOTES)))

    assert [part["type"] for part in sent[2]["output"]] == ["input_text", "input_image", "input_file", "input_text"]
    assert len(sent) == 3


def test_results_stand_before_what_else_is_in_their_message():
    mixed = Message("user", [TextBlock("go on"), result("c1", "x")])
    sent = encode_items(HI, assistant(CALL), mixed)

    assert [item["type"] for item in sent[2:]] == ["function_call_output", "message"]


def test_arguments_that_were_malformed_go_back_as_an_empty_object():
    broken = ToolCall("c1", "read", None, '{"path":"/tm')
    sent = encode_items(HI, assistant(broken), tool(result("c1", "cut off")))

    assert sent[1]["arguments"] == "{}"


def test_ids_and_names_that_openai_would_refuse_are_made_valid_and_stay_pairs():
    call = ToolCall("functions.read:0/" + "x" * 60, "read file?", {})
    other = ToolCall("functions.read:0/" + "x" * 60 + "y", "read", {})
    sent = encode_items(HI, assistant(call, other), tool(result(call.id, "x"), result(other.id, "y")))

    assert sent[1]["call_id"] == sent[3]["call_id"] != sent[2]["call_id"] == sent[4]["call_id"]
    assert all(len(item["call_id"]) <= 64 for item in sent[1:])
    assert sent[1]["name"] == "read_file_"


def test_lone_surrogates_never_break_a_request():
    """A11: history may hold them in arguments, from where a model or a person put them."""
    call = ToolCall("c\ud83d", "read", {"p\ud83d": "\ud83d\ude00\ud83d"})
    sent = encode_items(HI, assistant(call), tool(ToolResultBlock("c\ud83d", [TextBlock("x")])), system="s\ud83d")

    assert sent[1]["call_id"] == sent[2]["call_id"]
    assert json.loads(sent[1]["arguments"]) == {"p\ufffd": "😀\ufffd"}


def test_integers_of_any_size_are_sent():
    sent = encode_items(HI, assistant(ToolCall("c1", "read", {"n": 2**70})), tool(result("c1", "x")))

    assert json.loads(sent[1]["arguments"]) == {"n": 2**70}


def test_the_same_history_gives_the_same_bytes():
    messages = (HI, assistant(thought("So.", "message"), "I look.", CALL), tool(result("c1", PNG)))
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


TEXTS = st.text(st.characters(codec=None, exclude_categories=()), max_size=5)  # Lone surrogates too.
ARGS = st.dictionaries(TEXTS, st.recursive(TEXTS | st.integers() | st.none(), st.lists, max_leaves=3), max_size=3)
CONTENT = TEXTS.map(TextBlock) | st.sampled_from([PNG, PDF, NOTES])
ITEM = {"id": "ws_1", "type": "web_search_call", "status": "completed"}
SAID = st.one_of(
    TEXTS.map(TextBlock),
    ARGS.map(lambda args: ToolCall("?", "read", args or None)),
    st.sampled_from(
        [
            RawBlock("here", ITEM),
            RawBlock("elsewhere", ITEM),
            RawBlock("here", {"type": "refusal"}),
            RawBlock("here", {"type": "message", "phase": "commentary"}),
            ThinkingBlock("plain", provider="here"),
            thought("of another", "message", model="m2"),
            PNG,
        ]
    ),
    st.just("think"),
)


def follower_of(blocks):
    """The type of the item that a thought before these blocks leads to."""
    for block in blocks:
        if isinstance(block, ToolCall):
            return "function_call"
        if isinstance(block, TextBlock) and block.text.strip():
            return "message"
        if block == RawBlock("here", ITEM):
            return "web_search_call"
    return None


@st.composite
def conversations(draw):
    """Replies of any blocks, each call with its result, and what people say in between."""
    messages, calls = [HI], 0
    for drawn in draw(st.lists(st.lists(SAID, max_size=6), max_size=4)):
        blocks, results = [], []
        for number, block in enumerate(drawn):
            if isinstance(block, ToolCall):
                calls += 1
                block = ToolCall(f"c{calls}" * draw(st.sampled_from([1, 40])), block.name, block.args)
                results.append(ToolResultBlock(block.id, draw(st.lists(CONTENT, max_size=3))))
            if block == "think":
                block = thought("Hm.", follower_of([other for other in drawn[number + 1 :] if other != "think"]))
            blocks.append(block)
        messages.append(Message("assistant", blocks))
        if results:
            messages.append(Message("tool", results))
        if draw(st.booleans()):
            messages.append(Message("user", draw(st.lists(CONTENT, max_size=3))))
    return messages[draw(st.integers(0, 1)) :]


@given(conversations(), st.sampled_from([None, "Be brief.", " "]))
def test_any_conversation_gives_what_a_strict_provider_takes(messages, system):
    encode_items(*messages, system=system, tools=(READ,))
    encode_items(*messages, system=system, provider="openai", model="gpt-4o")

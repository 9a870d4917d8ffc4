"""Every stream in ``streams/`` gives the reply it should, in any split of its bytes.

The first line of each file says where its form comes from.
"""

import json

import pytest

from alpineagents import ProviderError, RawBlock, TextBlock, TextDelta, ThinkingBlock, ToolCall
from alpineagents.models._responses_stream import ResponsesDecoder
from alpineagents.models._sse import Event, SSEDecoder
from alpineagents.models._wire import Endpoint
from tests.models.corpus import StreamLaws, streams_beside

STREAMS = streams_beside(__file__)
ENDPOINT = Endpoint("here", "http://127.0.0.1/v1", "m")

READ_A, READ_B = ("read", {"path": "a"}), ("read", {"path": "b"})
COMMENTARY, FINAL = (("raw", {"type": "message", "phase": phase}) for phase in ("commentary", "final_answer"))
REFUSAL = ("raw", {"type": "refusal"})
SEARCH = {
    "id": "ws_1",
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search", "query": "weather Paris"},
}
USAGE = (75, 40, 64, 30)

# What a stream must give: blocks; the stop reason; flags; (input, output, cache read, thinking) tokens. A text is a
# text block, ("thinking", text, encrypted content) a thinking block, (name, args) a call. An error is its class and
# part of it.
EXPECTED: dict[str, object] = {
    "all_at_index_0": ([("thinking", "Hm.", "gAAAAABwhole"), READ_A, READ_B], "completed", "", USAGE),
    "all_at_index_0_done_in_the_end": ([READ_A, READ_B], "completed", "", USAGE),
    "another_text_in_the_item": (["Hello"], "completed", "", USAGE),
    "codex_empty_output": ([("thinking", "Hm.", "gAAAAABwhole"), READ_A], "completed", "", USAGE),
    "cr_only": (["é😀"], "completed", "", USAGE),
    "crlf_and_bom": (["é😀"], "completed", "", USAGE),
    "cut_after_text": ("BrokenStreamError", "before response.completed"),
    "cut_after_whole_call": ("BrokenStreamError", "before response.completed"),
    "deltas_and_a_bare_end": (["hello"], "completed", ""),
    "done_without_the_end": ("BrokenStreamError", "before response.completed"),
    "dones_without_deltas": ([("thinking", "Well.", "gAAAAABwhole"), "Hi", READ_A], "completed", "", USAGE),
    "error_after_the_end": (["Hi"], "completed", "", USAGE),
    "error_event_of_text": ("OverloadedError", "upstream went away"),
    "ids_that_change": (
        [("thinking", "Hm yes.", "gAAAAABwhole"), "Let me look.", READ_A, READ_B],
        "completed",
        "",
        USAGE,
    ),
    "kinds_of_no_arguments": (
        [
            *[(f"t{n}", {}) for n in range(5)],
            ("t5", {"a": [1]}),
            ("t6", None, "[1]"),
            ("t7", None, '{"a":'),
            ("t8", {}),
        ],
        "completed",
        "",
        USAGE,
    ),
    "line_separators": (["a\u2028\u2029\x85b\x7f"], "completed", "", USAGE),
    "litellm_message_never_opened": ([READ_A], "completed", "", (5, 3, 0, 0)),
    "llamacpp_reasoning_and_calls": (
        [("thinking", "I need the weather.", ""), READ_A, READ_B],
        "completed",
        "",
        (10, 9, 4, 0),
    ),
    "llamacpp_result": (["The result is sunny."], "completed", "", (280, 6, 0, 0)),
    "llamacpp_text": (
        ["Hello! I'm here to help with any kind of creative writing project. What can I help you with?"],
        "completed",
        "",
        (33, 23, 0, 0),
    ),
    "llamacpp_tool": ([("get_weather", {"city": "Paris"})], "completed", "", (233, 11, 0, 0)),
    "llamacpp_tool_cut_off": ([("get_weather", None, "{")], "completed", "", (233, 4, 232, 0)),
    "lone_surrogates": (
        [
            ("thinking", "\ufffd\ufffd!", None),
            "ok 😀 and \ufffd e\x01nd\ufffd",
            ("say", {"t": "\ufffd", "k\ufffd": "😀"}),
        ],
        "completed",
        "",
        USAGE,
    ),
    "more_in_the_item_than_in_its_pieces": (["Hello, world"], "completed", "", USAGE),
    "no_final_newline": (["Hi"], "completed", "", USAGE),
    "no_item_done": (["Hello there."], "completed", "", USAGE),
    "no_json": ("BrokenStreamError", "no JSON"),
    "only_the_end": ([("thinking", "Well.", "gAAAAABwhole"), "Hi", READ_A], "completed", "", USAGE),
    "open_responses_reasoning": ([("thinking", "Hm, well.", None), "Hi"], "completed", "", USAGE),
    "openai_cancelled": ("BrokenStreamError", "'cancelled'"),
    "openai_content_filter": (["Once"], "content_filter", "refusal", USAGE),
    "openai_cut_off_before_arguments": ([("delete_all", None, "")], "max_output_tokens", "cut_off", USAGE),
    "openai_cut_off_in_arguments": (
        [("read", {"path": "/a"}), ("read", None, '{"path":"/tm')],
        "max_output_tokens",
        "cut_off",
        USAGE,
    ),
    "openai_cut_off_in_reasoning": ([("thinking", "Let me think about", None)], "max_output_tokens", "cut_off", USAGE),
    "openai_cut_off_in_text": (["Once upon a "], "max_output_tokens", "cut_off", USAGE),
    "openai_error_event": ("ContextTooLongError", "exceeds the context window"),
    "openai_error_object": ("RateLimitError", "exceeded your current quota"),
    "openai_failed_after_text": ("OverloadedError", "had an error while processing"),
    "openai_failed_image_too_large": ("BadRequestError", "The image is too large"),
    "openai_failed_invalid_prompt": ("BadRequestError", "your prompt was flagged"),
    "openai_failed_rate_limit": ("RateLimitError", "Rate limit reached"),
    "openai_failed_without_error": ("OverloadedError", "doesn't say why"),
    "openai_parallel_calls": ([("thinking", "", "gAAAAABwhole"), READ_A, READ_B], "completed", "", USAGE),
    "openai_reasoning_and_call": (
        [("thinking", "**Reading** the file.\n\nThen I answer.", "gAAAAABwhole"), READ_A],
        "completed",
        "",
        USAGE,
    ),
    "openai_reasoning_message_and_call": (
        [("thinking", "First I look.", "gAAAAABwhole"), COMMENTARY, "Let me look.", READ_A],
        "completed",
        "",
        USAGE,
    ),
    "openai_refusal": ([REFUSAL, "I can't help with that."], "completed", "refusal", USAGE),
    "openai_text": (["Hello wörld 😀"], "completed", "", USAGE),
    "openai_two_reasoning_items": (
        [
            ("thinking", "One.", "gAAAAABone"),
            COMMENTARY,
            "Done.",
            ("thinking", "Two.", "gAAAAABtwo"),
            FINAL,
            "All of it.",
        ],
        "completed",
        "",
        USAGE,
    ),
    "openai_web_search": (
        [("thinking", "I search.", "gAAAAABwhole"), ("raw", SEARCH), "It is sunny."],
        "completed",
        "",
        USAGE,
    ),
    "openrouter_done": (["Coca-Cola"], "completed", "", USAGE),
    "openrouter_error_after_text": ("OverloadedError", "Upstream idle timeout"),
    "thoughts_told_twice": ([("thinking", "Hm yes.", "gAAAAABwhole"), "Hi"], "completed", "", USAGE),
    "told_twice": (["Hi there", READ_A], "completed", "", USAGE),
    "two_items_at_one_place": (["Hi", "Ho"], "completed", "", USAGE),
    "unknown_things": (
        [("raw", {"id": "zz_1", "type": "quantum_call", "status": "completed", "state": {"spin": [1, 2]}}), "Hi"],
        "completed",
        "",
        USAGE,
    ),
    "vllm_other_ids_in_the_end": ([READ_A, READ_B], "completed", "", USAGE),
    "vllm_reasoning_cut_off": (
        [("thinking", " I should say hello.", None), "Hello all"],
        "max_output_tokens",
        "cut_off",
        (7, 9, 0, 5),
    ),
}


def brief(block: object) -> object:
    match block:
        case TextBlock(text):
            return text
        case ThinkingBlock(text, None, "here", None):
            return ("thinking", text, None)
        case ThinkingBlock(text, None, "here", {"model": "m", "item": {"type": "reasoning"} as item}):
            return ("thinking", text, item.get("encrypted_content"))
        case ToolCall(_, name, None, raw_args):
            return (name, None, raw_args)
        case ToolCall(_, name, args, None):
            return (name, args)
        case RawBlock("here", raw):
            return ("raw", raw)
    raise AssertionError(block)


def document(**fields):
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]}
    call = {"type": "function_call", "call_id": "c", "name": "read", "arguments": "{}"}
    usage = {"input_tokens": 1, "input_tokens_details": {"cached_tokens": 1}, "output_tokens": 1}
    return {"object": "response", "status": "completed", "output": [message, call], "usage": usage, **fields}


THOUGHT = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}], "encrypted_content": "gAAA"}
WHOLE = document(error=None, model="m")
DOCUMENT = {**WHOLE, "output": [THOUGHT, *WHOLE["output"]]}


class TestStreams(StreamLaws):
    streams, expected, endpoint, document = STREAMS, EXPECTED, ENDPOINT, DOCUMENT
    decoder, brief = ResponsesDecoder, staticmethod(brief)
    words = ("message", "failed")


decode = TestStreams().decode


def without_whole_items(stream, name):
    """The stream without the events that say what an item, or a part of one, is in the end."""
    events = SSEDecoder().feed(stream)
    return [event for event in events if not event.name.endswith(name)]


@pytest.mark.parametrize("left_out", ["output_item.done", "output_item.added", ".done", ".added"])
@pytest.mark.parametrize("name", [name for name in EXPECTED if name.startswith("openai_") and "error" not in name])
def test_the_last_event_makes_up_for_what_a_server_leaves_out(name, left_out):
    """Both tell of the same items: whichever is there gives the same reply and the same deltas."""
    whole = ResponsesDecoder(ENDPOINT)
    deltas = whole.feed(SSEDecoder().feed(STREAMS[name]))
    decoder = ResponsesDecoder(ENDPOINT)

    shown = decoder.feed(without_whole_items(STREAMS[name], left_out))

    assert "".join(delta.text for delta in shown) == "".join(delta.text for delta in deltas)
    if whole.failure is None:
        assert decoder.reply() == whole.reply()


@pytest.mark.parametrize("name", ["openai_reasoning_message_and_call", "openai_refusal", "openai_web_search"])
def test_the_items_alone_give_the_same_reply_as_their_pieces(name):
    kept = ("output_item.done", "response.completed")
    decoder = ResponsesDecoder(ENDPOINT)
    events = [event for event in SSEDecoder().feed(STREAMS[name]) if event.name.endswith(kept)]

    shown = decoder.feed(events)

    reply, deltas = decode([STREAMS[name]])
    assert decoder.reply() == reply
    assert "".join(delta.text for delta in shown) == "".join(delta.text for delta in deltas)


def test_ids_of_calls_stay_and_missing_ones_are_made():
    ids = {
        "openai_parallel_calls": ["call_1", "call_2"],
        "vllm_other_ids_in_the_end": ["chatcmpl-tool-1", "chatcmpl-tool-2"],
        "llamacpp_reasoning_and_calls": ["call_L", "call_M"],
        "kinds_of_no_arguments": [*[f"call_{number}" for number in range(1, 9)], "fc_8"],
        "lone_surrogates": ["c\ufffd"],
    }
    for name, expected in ids.items():
        reply, _ = decode([STREAMS[name]])
        assert [call.id for call in reply.tool_calls] == expected


def test_the_model_is_named_as_the_provider_reports_it():
    assert decode([STREAMS["openai_text"]])[0].model == "gpt-5-2025-08-07"
    assert decode([STREAMS["vllm_reasoning_cut_off"]])[0].model == "gpt-oss"
    assert decode([STREAMS["deltas_and_a_bare_end"]])[0].model == ""


def test_encrypted_thoughts_are_those_of_the_whole_item_and_kept_with_their_model():
    """The beginning of them comes with ``output_item.added``, and isn't whole."""
    reply, _ = decode([STREAMS["openai_reasoning_and_call"]])

    summary = [
        {"type": "summary_text", "text": "**Reading** the file."},
        {"type": "summary_text", "text": "Then I answer."},
    ]
    item = {"id": "rs_0", "type": "reasoning", "encrypted_content": "gAAAAABwhole", "summary": summary}
    assert reply.blocks[0].raw == {"model": "m", "item": item}


def test_what_failed_says_what_it_cost_where_the_server_does():
    (*_, usage), _ = decode([STREAMS["openai_failed_rate_limit"]])
    (*_, none), _ = decode([STREAMS["openai_failed_after_text"]])

    assert (usage.input_tokens, usage.output_tokens, usage.requests) == (75, 40, 1)
    assert none is None


def test_encrypted_thoughts_that_only_the_last_event_has_are_taken():
    item = {"type": "reasoning", "id": "rs_1", "summary": []}
    events = [
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"output": [{**item, "encrypted_content": "gAAA"}]}},
    ]
    decoder = ResponsesDecoder(ENDPOINT)

    decoder.feed([Event("", json.dumps(event).encode()) for event in events])

    assert decoder.reply().blocks[0].raw["item"]["encrypted_content"] == "gAAA"


def test_items_that_only_the_last_event_has_stand_where_it_has_them():
    """But text that was shown stays before text that wasn't."""
    call = {"type": "function_call", "id": "fc", "call_id": "c", "name": "read", "arguments": "{}"}
    search = {"type": "web_search_call", "id": "ws", "status": "completed"}
    texts = [{"type": "message", "id": i, "content": [{"type": "output_text", "text": i}]} for i in ("new", "old")]
    events = [
        {"type": "response.output_item.done", "item": texts[1]},
        {"type": "response.output_item.done", "item": call},
        {"type": "response.completed", "response": {"output": [search, *texts, call]}},
    ]
    decoder = ResponsesDecoder(ENDPOINT)

    deltas = decoder.feed([Event("", json.dumps(event).encode()) for event in events])

    assert [brief(block) for block in decoder.reply().blocks] == [("raw", search), "old", ("read", {}), "new"]
    assert [delta.text for delta in deltas] == ["old", "new"]


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def test_arguments_nested_too_deep_are_none():
    call = {"type": "function_call", "call_id": "c", "name": "read", "arguments": {"a": "HERE"}}
    end = json.dumps({"type": "response.completed", "response": {"output": [call]}})
    decoder = ResponsesDecoder(ENDPOINT)

    decoder.feed([Event("", end.replace('"HERE"', "[" * 1_010 + "]" * 1_010).encode())])

    assert decoder.reply().tool_calls[0].args is None


def test_a_call_that_the_server_calls_incomplete_is_not_run_whatever_it_says_of_the_response():
    call = {"type": "function_call", "call_id": "c", "name": "read", "arguments": "{}", "status": "incomplete"}
    decoder, _ = of_document(document(output=[call]))

    assert decoder.reply().tool_calls == (ToolCall("c", "read", None, "{}"),)


def test_an_item_nested_too_deep_to_be_kept_is_left_out():
    deep = nested(300)
    odd = {"type": "quantum_call", "status": "completed", "state": deep}
    thought = {"type": "reasoning", "encrypted_content": "gAAA", "summary": [], "state": deep}
    end = {"type": "response.completed", "response": {"output": [odd, thought]}}
    decoder = ResponsesDecoder(ENDPOINT)

    decoder.feed([Event("", json.dumps(end).encode())])

    assert decoder.reply().blocks == ()


def of_document(body):
    decoder = ResponsesDecoder(ENDPOINT)
    deltas = decoder.feed_document(body if isinstance(body, bytes) else json.dumps(body).encode())
    return decoder, deltas


def test_a_document_is_an_answer():
    decoder, deltas = of_document(document(model="m1"))
    reply = decoder.reply()

    assert [brief(block) for block in reply.blocks] == ["Hi", ("read", {})]
    assert (reply.model, reply.stop_reason, reply.usage.cache_read_tokens) == ("m1", "completed", 1)
    assert deltas == [TextDelta("Hi")]
    assert decoder.complete


def test_a_document_can_be_incomplete():
    decoder, _ = of_document(document(status="incomplete", incomplete_details={"reason": "max_output_tokens"}))

    assert decoder.reply().cut_off


@pytest.mark.parametrize(
    ("details", "reason", "cut_off"),
    [
        ({"reason": "max_output_tokens"}, "max_output_tokens", True),
        ({"reason": "max_patience"}, "max_patience", True),
        ({"reason": 7}, "incomplete", True),
        (None, "incomplete", True),
        ({"reason": "content_filter"}, "content_filter", False),
    ],
)
def test_any_reason_for_an_incomplete_answer_is_kept(details, reason, cut_off):
    """B13: one that isn't documented, or none at all, is no crash."""
    decoder, _ = of_document(document(status="incomplete", incomplete_details=details))
    reply = decoder.reply()

    assert (reply.stop_reason, reply.cut_off, reply.refusal) == (reason, cut_off, not cut_off)


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (document(status="failed", error={"code": "server_error", "message": "no"}), "OverloadedError", "no"),
        (document(status="queued", output=[]), "BrokenStreamError", "'queued'"),
        ({"error": {"code": "rate_limit_exceeded", "message": "slow down"}}, "RateLimitError", "slow down"),
        ({"detail": "Not Found"}, "OverloadedError", "Not Found"),
        (b"<!doctype html><title>Welcome</title>", "ModelNotFoundError", "is the base URL right"),
        (b"nothing", "BrokenStreamError", "before response.completed"),
        (b"[1]", "BrokenStreamError", "before response.completed"),
    ],
)
def test_other_documents_are_errors(body, kind, text):
    decoder, deltas = of_document(body)

    with pytest.raises(ProviderError, match=text) as caught:
        decoder.reply()
    assert type(caught.value).__name__ == kind
    assert deltas == []

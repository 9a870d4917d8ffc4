"""Every stream in ``streams/`` gives the reply it should, in any split of its bytes.

The first line of each file says where its form comes from.
"""

import json

import pytest

from alpineagents import ProviderError, RawBlock, TextBlock, TextDelta, ThinkingBlock, ThinkingDelta, ToolCall
from alpineagents.models._anthropic_stream import MessagesDecoder
from alpineagents.models._sse import Event, SSEDecoder
from alpineagents.models._wire import Endpoint
from tests.models.corpus import StreamLaws, streams_beside

STREAMS = streams_beside(__file__)
ENDPOINT = Endpoint("anthropic", "https://api.anthropic.com", "m")

READ_A, READ_B = ("read", {"path": "a"}), ("read", {"path": "b"})
SHORT_USAGE = (25, 15, 0, 0, 0)
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "a"}}
FOUND = {
    "type": "web_search_result",
    "url": "https://a.example",
    "title": "A",
    "encrypted_content": "Enc==",
    "page_age": None,
}
RESULT = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [FOUND]}
CITATION = {
    "type": "web_search_result_location",
    "cited_text": "21",
    "url": "https://a.example",
    "title": "A",
    "encrypted_index": "Idx==",
}
GREETING = "Hello, I'm here to help with any creative writing project."

# What a stream must give: blocks; the stop reason; flags; (input, output, cache read, cache written, thinking) tokens,
# where they aren't those of most streams. A text is a text block, ("thinking", text, signature) and ("redacted", data)
# are thinking blocks, (name, args) is a call, a dict a RawBlock. An error is its class and part of its text.
EXPECTED: dict[str, tuple[object, ...]] = {
    "arguments_in_the_start": ([READ_A, "Done"], "tool_use", ""),
    "bom_and_crlf": (["é😀"], "end_turn", "", (25, 2, 0, 0, 0)),
    "cached": (["Hi"], "end_turn", "", (1203, 12, 1000, 200, 0)),
    "caller": (
        [
            ("read", {}),
            {"extra": {"caller": {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}}},
            ("read", {}),
        ],
        "tool_use",
        "",
    ),
    "compaction": ([{"type": "compaction", "content": "So far: nothing."}, "Hi"], "end_turn", ""),
    "context_window_exceeded": (["And so"], "model_context_window_exceeded", "cut_off"),
    "cr_only": (["é😀"], "end_turn", "", (25, 2, 0, 0, 0)),
    "cut_after_text": ("BrokenStreamError", "before the stop reason"),
    "cut_after_whole_call": ("BrokenStreamError", "before the stop reason"),
    "error_after_stop_reason": (["Hi"], "end_turn", ""),
    "error_after_text": ("OverloadedError", "(529): Overloaded"),
    "error_api": ("OverloadedError", "(500): Internal server error"),
    "error_event_of_text": ("OverloadedError", "upstream went away"),
    "error_first": ("OverloadedError", "(529): Overloaded"),
    "error_invalid": ("ContextTooLongError", "210000 tokens > 200000 maximum"),
    "error_rate_limit": ("RateLimitError", "would exceed your limit"),
    "interleaved_thinking": (
        [("thinking", "First a.", "Sig1=="), READ_A, ("thinking", "Then b.", "Sig2=="), READ_B],
        "tool_use",
        "",
    ),
    "line_separators": (["a\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1eb"], "end_turn", ""),
    "llamacpp_error": ("ContextTooLongError", "Context size has been exceeded"),
    "llamacpp_length": (["Once upon"], "max_tokens", "cut_off", (33, 2, 32, 0, 0)),
    "llamacpp_text": ([GREETING], "end_turn", "", (37, 14, 24, 0, 0)),
    "llamacpp_tool_any": ([("get_weather", {"city": "Paris"})], "tool_use", "", (220, 11, 0, 0, 0)),
    "llamacpp_tool_cut_off": ([("get_weather", None, '{"city')], "max_tokens", "cut_off", (233, 6, 0, 0, 0)),
    "llamacpp_tool_named": ([("add", {"a": 2, "b": 3})], "tool_use", "", (395, 15, 394, 0, 0)),
    "lone_surrogates": (
        [("thinking", "\ufffd", None), "ok 😀 and \ufffd end\ufffd", ("say", {"t": "\ufffd"})],
        "tool_use",
        "",
    ),
    "malformed_arguments": ([("read", None, '{"path": "a"'), ("read", None, "[1]")], "tool_use", ""),
    "max_tokens": (["Once upon"], "max_tokens", "cut_off", (25, 2, 0, 0, 0)),
    "max_tokens_before_arguments": ([("delete_all", None, "")], "max_tokens", "cut_off"),
    "max_tokens_in_arguments": (
        [("read", {"path": "/a"}), ("read", None, '{"path": "/tm')],
        "max_tokens",
        "cut_off",
    ),
    "max_tokens_in_a_block_that_never_ends": ([("delete_all", None, ""), READ_A], "max_tokens", "cut_off"),
    "max_tokens_in_arguments_in_the_start": (
        [READ_A, ("read", None, '{"path":"b"}')],
        "max_tokens",
        "cut_off",
    ),
    "max_tokens_in_the_last_of_calls": ([("now", {}), READ_A, ("delete_all", None, "")], "max_tokens", "cut_off"),
    "max_tokens_in_thinking": ([("thinking", "Let me", None)], "max_tokens", "cut_off"),
    "no_arguments": ([("now", {}), ("stop", {})], "tool_use", ""),
    "no_event_names": (["Hi"], "end_turn", ""),
    "no_json": ("BrokenStreamError", "no JSON"),
    "no_message_stop": (["Hi"], "end_turn", ""),
    "no_starts_and_no_indexes": ([("thinking", "So.", None), "Hi there"], "end_turn", ""),
    "no_stop_reason": (["Hi"], None, "", (25, 1, 0, 0, 0)),
    "parallel_calls": ([READ_A, READ_B], "tool_use", ""),
    "pause_turn": (["I search.", SEARCH], "pause_turn", ""),
    "redacted_thinking": (
        [
            ("thinking", "So.", "Sig1=="),
            ("redacted", "EmwKAhgBEgy3va3pzix/LafPsn4a"),
            ("thinking", "Thus.", "Sig2=="),
            "4",
        ],
        "end_turn",
        "",
    ),
    "refusal": ([], "refusal", "refusal", (25, 0, 0, 0, 0)),
    "refusal_after_call": (["First I ", ("mix", {"a": 1})], "refusal", "refusal"),  # The model takes the call out.
    "stop_sequence": (["One, "], "stop_sequence", "", (25, 3, 0, 0, 0)),
    "text": (["Hello!"], "end_turn", ""),
    "thinking": (
        [("thinking", "I need the GCD of 1071 and 462.", "EqQBCgIYAhIM1gbcDa9GJwZA"), "It is 21."],
        "end_turn",
        "",
    ),
    "thinking_omitted": (
        [("thinking", "", "EosnCkYICxIM=="), "It is 21."],
        "end_turn",
        "",
        (25, 70, 0, 0, 61),
    ),
    "tool_use": (
        ["Okay, let me check:", ("get_weather", {"location": "San Francisco, CA", "unit": "fahrenheit"})],
        "tool_use",
        "",
        (25, 89, 0, 0, 0),
    ),
    "unknown_things": (
        [{"type": "hologram", "frames": [1], "text": "ab", "depth": 3}, "Hi"],
        "thought_better_of_it",
        "",
    ),
    "usage_at_the_end_only": (["Hi"], "end_turn", "", (9, 2, 0, 0, 0)),
    "usage_zeroed": (["Hi"], "end_turn", "", (9, 2, 0, 0, 0)),
    "web_search": (
        ["I search.", SEARCH, RESULT, "It is 21.", {"extra": {"citations": [CITATION]}}],
        "end_turn",
        "",
        (10782, 510, 100, 0, 0),
    ),
}


def brief(block: object) -> object:
    match block:
        case TextBlock(text):
            return text
        case ThinkingBlock("", None, "anthropic", {"model": "m", "redacted": data}):
            return ("redacted", data)
        case ThinkingBlock(text, signature, "anthropic", {"model": "m", **rest}) if not rest:
            return ("thinking", text, signature)
        case ToolCall(_, name, None, raw_args):
            return (name, None, raw_args)
        case ToolCall(_, name, args, None):
            return (name, args)
        case RawBlock("anthropic", raw):
            return raw
    raise AssertionError(block)


DOCUMENT = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-5-5",
    "content": [
        {"type": "thinking", "thinking": "So.", "signature": "Sig=="},
        {"type": "text", "text": "Hi \ud83d"},
        {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a"}},
    ],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 25, "output_tokens": 15},
}


class TestStreams(StreamLaws):
    streams, expected, endpoint, document = STREAMS, EXPECTED, ENDPOINT, DOCUMENT
    decoder, brief = MessagesDecoder, staticmethod(brief)
    words = ("text",)
    counted = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "thinking_tokens")
    usual_tokens = SHORT_USAGE


decode = TestStreams().decode
summary = TestStreams().summary


def test_what_was_told_before_the_stream_broke_is_known():
    """G2: the tokens of an attempt that failed were paid for."""
    decoder = MessagesDecoder(ENDPOINT)
    assert decoder.usage() is None

    decoder.feed(SSEDecoder().feed(STREAMS["error_after_text"]))

    usage = decoder.usage()
    assert (usage.input_tokens, usage.output_tokens, usage.requests) == (25, 1, 1)


def test_nothing_matters_behind_the_stop_reason_with_its_usage():
    decoder = MessagesDecoder(ENDPOINT)
    events = SSEDecoder().feed(STREAMS["text"])

    decoder.feed(events[:-2])
    assert (decoder.finished, decoder.complete) == (False, False)
    decoder.feed(events[-2:-1])
    assert (decoder.finished, decoder.complete) == (True, True)


def test_what_comes_behind_the_stop_reason_changes_nothing():
    """Whether it is read in time is chance."""
    decoder = MessagesDecoder(ENDPOINT)
    late = [event for event in SSEDecoder().feed(STREAMS["tool_use"]) if b"content_block" in event.data]

    deltas = decoder.feed([*SSEDecoder().feed(STREAMS["no_message_stop"]), *late])

    assert decoder.reply().blocks == (TextBlock("Hi"),)
    assert deltas == [TextDelta("Hi")]


def test_whole_numbers_of_any_size_stay_what_they_are():
    call = {"type": "tool_use", "id": "a", "name": "pay", "input": {"wei": 123456789012345678901}}
    start = {"type": "content_block_start", "index": 0, "content_block": call}
    end = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}}
    decoder = MessagesDecoder(ENDPOINT)
    decoder.feed([Event("", json.dumps(event).encode()) for event in (start, end)])

    assert decoder.reply().tool_calls[0].args == {"wei": 123456789012345678901}


def test_what_comes_behind_an_error_changes_nothing():
    decoder = MessagesDecoder(ENDPOINT)

    decoder.feed([*SSEDecoder().feed(STREAMS["error_first"]), Event("", b"{"), *SSEDecoder().feed(STREAMS["text"])])

    with pytest.raises(ProviderError, match="Overloaded"):
        decoder.reply()


@pytest.mark.parametrize("data", [b'{"type":"message_start","message":1}', b'{"error":null}', b"[]", b"7"])
def test_events_that_say_nothing_are_passed_over(data):
    decoder = MessagesDecoder(ENDPOINT)

    decoder.feed([Event("", data), *SSEDecoder().feed(STREAMS["text"])])

    assert decoder.reply().text == "Hello!"


def test_ids_stay_and_missing_ones_are_made_from_the_position():
    nameless = STREAMS["parallel_calls"].replace(b'"id":"toolu_2",', b"")

    assert [call.id for call in decode([STREAMS["parallel_calls"]])[0].tool_calls] == ["toolu_1", "toolu_2"]
    assert [call.id for call in decode([nameless])[0].tool_calls] == ["toolu_1", "call_2"]


def test_the_model_is_named_as_the_provider_reports_it():
    reply, _ = decode([STREAMS["tool_use"]])

    assert reply.model == "claude-opus-4-6"


def test_an_error_in_the_stream_has_the_id_of_its_request():
    decoder = MessagesDecoder(ENDPOINT)

    decoder.feed(SSEDecoder().feed(STREAMS["error_first"]))

    assert decoder.failure.request_id == "req_011"
    assert decoder.complete


def test_a_whole_message_is_a_reply_too():
    """Some gateways answer a request for a stream with a document."""
    decoder = MessagesDecoder(ENDPOINT)
    deltas = decoder.feed_document(json.dumps(DOCUMENT).encode())

    expected = ([("thinking", "So.", "Sig=="), "Hi \ufffd", READ_A], "tool_use", "", SHORT_USAGE)
    assert summary(decoder.reply()) == expected
    assert deltas == [ThinkingDelta("So."), TextDelta("Hi "), TextDelta("\ufffd")]
    assert decoder.complete


def test_the_last_call_of_a_whole_message_that_was_cut_off_has_no_arguments():
    """Its ``input`` is what the server could read of it: by Anthropic's guide, an incomplete call."""
    calls = [{"type": "tool_use", "id": f"toolu_{path}", "name": "read", "input": {"path": path}} for path in "ab"]
    decoder = MessagesDecoder(ENDPOINT)
    decoder.feed_document(json.dumps({**DOCUMENT, "content": calls, "stop_reason": "max_tokens"}).encode())

    expected = ([READ_A, ("read", None, '{"path":"b"}')], "max_tokens", "cut_off", SHORT_USAGE)
    assert summary(decoder.reply()) == expected


@pytest.mark.parametrize(
    ("body", "kind", "part"),
    [
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Busy"}}, "OverloadedError", "(529): Busy"),
        ({"type": "error", "error": {"type": "authentication_error", "message": "bad"}}, "AuthError", "(401): bad"),
        ({"error": {"type": "not_found_error", "message": "model: x"}}, "ModelNotFoundError", "model: x"),
        (b"<!doctype html><title>Sign in</title>", "ModelNotFoundError", "is the base URL right?"),
        (b"", "BrokenStreamError", "before the stop reason"),
        (b"{", "BrokenStreamError", "before the stop reason"),
        ([], "BrokenStreamError", "before the stop reason"),
    ],
    ids=["overloaded", "key", "model", "page", "empty", "cut", "something else"],
)
def test_a_document_that_is_no_message_is_an_error(body, kind, part):
    decoder = MessagesDecoder(ENDPOINT)
    decoder.feed_document(body if isinstance(body, bytes) else json.dumps(body).encode())

    with pytest.raises(ProviderError) as caught:
        decoder.reply()
    assert (type(caught.value).__name__, caught.value.status) == (kind, 200)
    assert part in str(caught.value)


def test_what_no_history_can_hold_is_left_out():
    """A block nested so deep that no JSON parser of a store would take it."""
    deep = "[" * 400 + "]" * 400
    start = f'{{"type":"content_block_start","index":1,"content_block":{{"type":"abyss","x":{deep}}}}}'
    stream = STREAMS["text"].replace(b"event: message_delta", f"data: {start}\n\nevent: message_delta".encode())

    reply, _ = decode([stream])

    assert [brief(block) for block in reply.blocks] == ["Hello!"]

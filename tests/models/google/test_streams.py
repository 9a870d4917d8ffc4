"""Every stream in ``streams/`` gives the reply it should, in any split of its bytes.

The first line of each file says where its form comes from.
"""

import json

import pytest

from alpineagents import ProviderError, RawBlock, Reply, TextBlock, TextDelta, ThinkingBlock, ToolCall
from alpineagents.models._google_stream import GoogleDecoder
from alpineagents.models._sse import Event, SSEDecoder
from alpineagents.models._wire import Endpoint
from tests.models.corpus import StreamLaws, outcome_of, streams_beside

STREAMS = streams_beside(__file__)
MODEL = "gemini-3-pro-preview"
ENDPOINT = Endpoint("google", "http://127.0.0.1", MODEL)

READ_A, READ_B = ("read", {"path": "a"}), ("read", {"path": "b"})
SIGNED = ("signature", "U2ln", "call")
USAGE = (9, 37, 0, 25)
ONE_TOKEN = (9, 1, 0, 0)
EMPTY = {"text": ""}

# What a stream must give: blocks; the stop reason; flags; (input, output, cache read, thinking) tokens. A text is a
# text block, ("thinking", text, signature) a thinking block, ("signature", text, of) what keeps one, ("part", part)
# a part as it came, (name, args) a call. An error is its class and part of it.
EXPECTED: dict[str, object] = {
    "a_picture": (
        [
            "Here:",
            ("part", {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}, "thoughtSignature": "cGlj"}),
        ],
        "STOP",
        "",
        USAGE,
    ),
    "blocked_prompt": ([], "PROHIBITED_CONTENT", "refusal", (9, 0, 0, 0)),
    "bom_and_lf": (["é😀"], "STOP", "", (1, 2, 0, 0)),
    "call_in_pieces": (
        [
            (
                "read",
                None,
                '{"name":"read","id":"fc1","partialArgs":[{"jsonPath":"$.path","stringValue":"/tm"}],'
                '"willContinue":true}',
            )
        ],
        "STOP",
        "",
        USAGE,
    ),
    "calls_in_chunks": ([READ_A, SIGNED, READ_B], "STOP", "", USAGE),
    "calls_without_ids": ([("add", {"a": 1}), ("add", {"a": 2})], "STOP", "", (20, 8, 0, 0)),
    "code_execution": (
        [
            "I count.",
            ("part", {"executableCode": {"language": "PYTHON", "code": "print(1)"}}),
            ("part", {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}}),
            "One.",
        ],
        "STOP",
        "",
        USAGE,
    ),
    "cr_only": (["é😀"], "STOP", "", (1, 2, 0, 0)),
    "cut_after_text": ("BrokenStreamError", "before the finish reason"),
    "cut_after_whole_call": ("BrokenStreamError", "before the finish reason"),
    "done_at_the_end": (["Hi"], "STOP", "", ONE_TOKEN),
    "done_without_finish_reason": ("BrokenStreamError", "before the finish reason"),
    "empty_thought_with_signature": ([("thinking", "", "VGhvdWdodA=="), "Done."], "STOP", "", USAGE),
    "error_after_finish": (["Hi"], "STOP", "", ONE_TOKEN),
    "error_context": ("ContextTooLongError", "input token count (1048577)"),
    "error_event": ("OverloadedError", "The model is overloaded"),
    "error_event_of_json": ("RateLimitError", "slow down"),
    "error_event_of_text": ("OverloadedError", "upstream went away"),
    "error_internal_after_text": ("OverloadedError", "An internal error has occurred"),
    "error_null": (["Hi"], "STOP", "", ONE_TOKEN),
    "error_overloaded_first": ("OverloadedError", "The model is overloaded"),
    "error_rate_limit_in_a_list": ("RateLimitError", "it asks to wait 7 s"),
    "error_without_code": ("RateLimitError", "RESOURCE_EXHAUSTED"),
    "error_wrong_key": ("AuthError", "API key not valid"),
    "finish_reason_on_every_chunk": (["Hello"], "STOP", "", (9, 2, 0, 0)),
    "finish_reason_other": (["Well"], "OTHER", "", ONE_TOKEN),
    "finish_reason_unspecified": (["Hi there"], "STOP", "", (9, 2, 0, 0)),
    "kinds_of_no_arguments": (
        [*[(f"t{n}", {}) for n in range(5)], ("t5", {"a": [1]}), ("t6", None, "[1]"), ("t7", None, '{"a":')],
        "STOP",
        "",
        USAGE,
    ),
    "line_separators": (["a\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1eb"], "STOP", "", ONE_TOKEN),
    "lone_surrogates": (
        [
            ("thinking", "\ufffd", None),
            "ok 😀 and \ufffd end\ufffd",
            ("say", {"t": "\ufffd", "k\ufffd": "😀"}),
            "\ufffd \ufffd",
        ],
        "STOP",
        "",
        USAGE,
    ),
    "malformed_function_call": ("BrokenStreamError", "Malformed function call: print(default_api.read(path='a'))"),
    "malformed_function_call_after_text": ("BrokenStreamError", "'MALFORMED_FUNCTION_CALL'"),
    "malformed_response": ("BrokenStreamError", "'MALFORMED_RESPONSE'"),
    "max_tokens": (["Once upon"], "MAX_TOKENS", "cut_off", (9, 2, 0, 0)),
    "max_tokens_behind_a_call": ([READ_A, SIGNED, "And"], "MAX_TOKENS", "cut_off", USAGE),
    "max_tokens_in_thought": ([], "MAX_TOKENS", "cut_off", (9, 1000, 0, 1000)),
    "missing_thought_signature": ("BadRequestError", "'MISSING_THOUGHT_SIGNATURE'"),
    "no_json": ("BrokenStreamError", "no JSON"),
    "no_name_and_odd_ids": ([("", {"a": 1}), "x", ("part", {"functionCall": []})], "STOP", "", USAGE),
    "no_space_no_final_newline": (["Hi"], "STOP", "", ONE_TOKEN),
    "no_usage": (["Hi"], "STOP", ""),
    "one_call_twice": ([READ_A, SIGNED, READ_B], "STOP", "", USAGE),
    "other_candidates": (["one"], "STOP", "", (9, 2, 0, 0)),
    "pings_and_unknown_things": (["Hi"], "STOP", "", ONE_TOKEN),
    "prompt_feedback_without_block": (["Hi"], "STOP", "", ONE_TOKEN),
    "recitation": ([], "RECITATION", "refusal", (9, 0, 0, 0)),
    "safety_after_text": (["First you"], "SAFETY", "refusal", (9, 2, 0, 0)),
    "searches_by_the_server": (
        [
            (
                "part",
                {
                    "thoughtSignature": "c2ln",
                    "toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["F1"]}, "id": "nqh2j2zy"},
                },
            ),
            (
                "part",
                {
                    "thoughtSignature": "cmVz",
                    "toolResponse": {
                        "toolType": "GOOGLE_SEARCH_WEB",
                        "response": {"search_suggestions": "<div>"},
                        "id": "nqh2j2zy",
                    },
                },
            ),
            "Norris won.",
            ("signature", "dGV4dA==", "text"),
        ],
        "STOP",
        "",
        USAGE,
    ),
    "signature_alone": (["Hi", ("part", {**EMPTY, "thoughtSignature": "EvwjCvkj"})], "STOP", "", USAGE),
    "signature_behind_the_text": (
        ["Hello there", ("part", {**EMPTY, "thoughtSignature": "RW5kLg=="})],
        "STOP",
        "",
        USAGE,
    ),
    "signed_text": (["I don't know", ", sorry", ("signature", "EuIOCt8wnuepru", "text")], "STOP", "", USAGE),
    "signed_thought": ([("thinking", "Let me", None), ("thinking", " see.", "U2Vl"), "4"], "STOP", "", USAGE),
    "text": (["Hello wörld 😀"], "STOP", "", (9, 4, 0, 0)),
    "text_between_calls": (["First a.", READ_A, SIGNED, "Then b.", READ_B], "STOP", "", USAGE),
    "thoughts_and_parallel_calls": (
        [("thinking", "Two files.", None), READ_A, SIGNED, READ_B],
        "STOP",
        "",
        (9, 70, 0, 40),
    ),
    "thoughts_and_text": (
        [("thinking", "**Comparing**\n\n9.9 is more.", None), "9.9."],
        "STOP",
        "",
        (9, 29, 0, 25),
    ),
    "unexpected_tool_call_that_is_told": ([("no_such_tool", {"a": 1})], "UNEXPECTED_TOOL_CALL", "", ONE_TOKEN),
    "unexpected_tool_call": ("BrokenStreamError", "'UNEXPECTED_TOOL_CALL'"),
    "unknown_finish_reason": (["Hi", ("read", {})], "MOON_PHASE", "", ONE_TOKEN),
    "usage_behind_the_finish": (["Hi"], "STOP", "", (9, 4, 0, 3)),
    "usage_of_cache_and_tools": (["Hi"], "STOP", "", (111, 50, 64, 30)),
}


def brief(block: object) -> object:
    match block:
        case TextBlock(text):
            return text
        case ThinkingBlock(text, signature, "google", raw):
            assert raw == {"model": MODEL}
            return ("thinking", text, signature)
        case ToolCall(_, name, None, raw_args):
            return (name, None, raw_args)
        case ToolCall(_, name, args, None):
            return (name, args)
        case RawBlock("google", {"thoughtSignature": signature, "of": of, "model": model}):
            assert model == MODEL
            return ("signature", signature, of)
        case RawBlock("google", {"part": part, "model": model}):
            assert model == MODEL
            return ("part", part)
    raise AssertionError(block)


PARTS = [{"text": "a", "thought": True}, {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "s"}]
CANDIDATE = {"content": {"parts": PARTS, "role": "model"}, "finishReason": "STOP", "index": 0}
ERROR = {"code": 429, "status": "X", "details": [{"retryDelay": "7s", "reason": "R"}]}
DOCUMENT = [{"candidates": [CANDIDATE], "usageMetadata": {"promptTokenCount": 1}}, {"error": ERROR}]


class TestStreams(StreamLaws):
    streams, expected, endpoint, document = STREAMS, EXPECTED, ENDPOINT, DOCUMENT
    decoder, brief = GoogleDecoder, staticmethod(brief)
    words = ("STOP",)
    ends_with_the_body = True
    uncut = frozenset({"finish_reason_on_every_chunk"})

    def test_the_deltas_of_a_stream_are_its_text(self, answered):
        """And in its order."""
        reply, deltas = self.decode([self.streams[answered]])

        assert all(delta.text for delta in deltas)
        assert said((type(delta) is TextDelta, delta.text) for delta in deltas) == said(
            (type(block) is TextBlock, block.text)
            for block in reply.blocks
            if isinstance(block, TextBlock | ThinkingBlock)
        )


def said(pieces):
    """Texts and thoughts in order, each joined with what goes on with the same."""
    found = []
    for piece in pieces:
        if found and found[-1][0] == piece[0]:
            piece = (piece[0], found.pop()[1] + piece[1])
        found.append(piece)
    return [piece for piece in found if piece[1]]


decode = TestStreams().decode


def chunks_of(stream):
    """The chunks of a stream that has nothing else; none where it has."""
    try:
        chunks = [json.loads(event.data, strict=False) for event in SSEDecoder().feed(stream) if event.name != "ping"]
    except ValueError:
        return []
    return chunks if all(isinstance(chunk, dict) and "responseId" in chunk for chunk in chunks) else []


ARRAYS = {name: chunks for name, stream in STREAMS.items() if (chunks := chunks_of(stream))}


@pytest.mark.parametrize("name", ARRAYS)
def test_the_same_chunks_in_an_array_give_the_same(name):
    """What comes where ``alt=sse`` got lost on the way."""
    decoder = GoogleDecoder(ENDPOINT)

    deltas = decoder.feed_document(json.dumps(ARRAYS[name]).encode())

    outcome, (expected, expected_deltas) = outcome_of(decoder), decode([STREAMS[name]])
    assert len(ARRAYS) > 30
    assert deltas == expected_deltas
    assert outcome == expected or outcome[:2] == expected[:2]  # Errors have another body.


def test_one_document_is_an_answer_too():
    chunk = {"candidates": [{"content": {"parts": [{"text": "Hi"}]}, "finishReason": "STOP"}]}
    decoder = GoogleDecoder(ENDPOINT)

    assert decoder.feed_document(json.dumps(chunk).encode()) == [TextDelta("Hi")]
    assert decoder.reply().text == "Hi"


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (b"<!DOCTYPE html><title>Sign in</title>", "ModelNotFoundError", "Sign in - is the base URL right?"),
        (b'{"error":{"code":429,"message":"slow","status":"RESOURCE_EXHAUSTED"}}', "RateLimitError", "slow"),
        (b'[{"error":{"code":503,"message":"full","status":"UNAVAILABLE"}}]', "OverloadedError", "full"),
        (b'{"message":"no route"}', "OverloadedError", "no route"),
        (b'{"candidates":[]}', "BrokenStreamError", "before the finish reason"),
        (b'[{"candidates":[{"content":{"parts":[{"text":"a"}]}}]},', "BrokenStreamError", "before the finish reason"),
        (b"[]", "BrokenStreamError", "before the finish reason"),
        (b"", "BrokenStreamError", "before the finish reason"),
    ],
)
def test_a_document_that_is_no_answer_is_an_error(body, kind, text):
    decoder = GoogleDecoder(ENDPOINT)

    assert decoder.feed_document(body) == []
    outcome = outcome_of(decoder)
    assert outcome[0] == kind
    assert text in outcome[1]


def test_ids_stay_and_missing_ones_are_made_from_the_position():
    ids = {
        "calls_without_ids": ["call_1", "call_2"],
        "thoughts_and_parallel_calls": ["fc1", "fc2"],
        "one_call_twice": ["fc1", "fc1"],
        "no_name_and_odd_ids": ["call_1"],
    }
    for name, expected in ids.items():
        reply, _ = decode([STREAMS[name]])
        assert [call.id for call in reply.tool_calls] == expected


def test_the_model_is_named_as_the_provider_reports_it():
    assert decode([STREAMS["signed_text"]])[0].model == "gemini-3.5-flash"


def test_the_delay_that_an_error_asks_for_is_on_it():
    decoder = GoogleDecoder(ENDPOINT)
    decoder.feed(SSEDecoder().feed(STREAMS["error_rate_limit_in_a_list"]))

    assert decoder.failure.retry_after == 7


def test_tokens_of_an_answer_that_failed_are_known():
    for name in ("malformed_function_call_after_text", "cut_after_text", "error_internal_after_text"):
        decoder = GoogleDecoder(ENDPOINT)
        decoder.feed(SSEDecoder().feed(STREAMS[name]))
        assert decoder.usage().input_tokens == 9, name


@pytest.mark.parametrize(
    ("name", "finished", "complete"),
    [
        ("text", True, False),  # Usage may follow still.
        ("usage_behind_the_finish", True, True),
        ("finish_reason_on_every_chunk", False, False),  # Which one is the last only the end of the body says.
        ("blocked_prompt", True, True),
        ("done_at_the_end", True, True),
        ("done_without_finish_reason", False, False),
        ("cut_after_text", False, False),
        ("error_overloaded_first", False, True),
        ("malformed_function_call", False, True),
    ],
)
def test_a_stream_is_read_on_until_nothing_can_follow(name, finished, complete):
    decoder = GoogleDecoder(ENDPOINT)
    decoder.feed(SSEDecoder().feed(STREAMS[name]))

    assert (decoder.finished, decoder.complete) == (finished, complete)


def test_whole_numbers_of_any_size_stay_what_they_are():
    call = {"functionCall": {"name": "pay", "args": {"wei": 123456789012345678901}}}
    decoder = GoogleDecoder(ENDPOINT)
    chunk = {"candidates": [{"content": {"parts": [call]}, "finishReason": "STOP"}]}
    decoder.feed([Event("", json.dumps(chunk).encode())])

    assert decoder.reply().tool_calls[0].args == {"wei": 123456789012345678901}


PIECES = [{"text": "x"}, {"text": "x", "thought": True}, {"functionCall": {"name": "f"}}, {"inlineData": {}}]


@pytest.mark.parametrize("piece", PIECES, ids=str)
def test_content_behind_a_finish_reason_needs_another_one(piece):
    """Else an answer that is cut there would be taken as whole."""
    said = {"candidates": [{"content": {"parts": [{"text": "Good"}]}, "finishReason": "STOP"}]}
    more = {"candidates": [{"content": {"parts": [piece]}}]}
    decoder = GoogleDecoder(ENDPOINT)
    decoder.feed([Event("", json.dumps(chunk).encode()) for chunk in (said, more)])

    assert not decoder.finished
    with pytest.raises(ProviderError, match="before the finish reason"):
        decoder.reply()


def test_a_signature_behind_the_finish_reason_is_no_more_content():
    said = {"candidates": [{"content": {"parts": [{"text": "Good"}]}, "finishReason": "STOP"}]}
    signed = {"candidates": [{"content": {"parts": [{"text": "", "thoughtSignature": "c2ln"}]}}]}
    decoder = GoogleDecoder(ENDPOINT)
    decoder.feed([Event("", json.dumps(chunk).encode()) for chunk in (said, signed)])

    assert decoder.finished
    assert decoder.reply().text == "Good"


DEEP = 150
TOO_DEEP = 190


@pytest.mark.parametrize("depth", [DEEP, TOO_DEEP, 900, 1_010, 100_000])
def test_no_depth_crashes_the_decoder(depth):
    nested = b'{"a":' * depth + b"1" + b"}" * depth
    call = b'{"functionCall":{"name":"f","id":"c","args":%b}}' % nested
    part = b'{"executableCode":%b}' % nested
    stream = b'data: {"candidates":[{"content":{"parts":[%b,%b]},"finishReason":"STOP"}]}\n\n' % (call, part)

    outcome, _ = decode([stream])

    if depth == DEEP:
        assert [type(block) for block in outcome.blocks] == [ToolCall, RawBlock]
        assert outcome.tool_calls[0].args is not None
    elif isinstance(outcome, Reply):
        # No blank text: that would stand for no arguments, and the call would run.
        assert all(call.args is None and call.raw_args for call in outcome.tool_calls) or depth == TOO_DEEP
    else:
        assert outcome[0] == "BrokenStreamError"

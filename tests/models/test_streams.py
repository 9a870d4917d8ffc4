"""Every stream in ``streams/`` gives the reply it should, in any split of its bytes.

The first line of each file says where its form comes from.
"""

import json

import pytest

from alpineagents import ProviderError, RawBlock, TextBlock, ThinkingBlock, ToolCall
from alpineagents.models._openai_stream import ChatDecoder
from alpineagents.models._sse import Event
from alpineagents.models._wire import Endpoint
from tests.models.corpus import StreamLaws, streams_beside

STREAMS = streams_beside(__file__)
ENDPOINT = Endpoint("here", "http://127.0.0.1/v1", "m")

GREETING = "Hello, I'm here to help with any creative writing project."
TODAY = '{\n  "name": "Lena",\n  "age": 25,\n  "tags": [\n    "Lena",\n    "Lena-123"\n  ]\n}'
READ_A, READ_B = ("read", {"path": "a"}), ("read", {"path": "b"})
SIGNATURE = ("raw", {"extra_content": {"google": {"thought_signature": "Sg=="}}})
OPENAI_USAGE = (19, 10, 8, 4)

# What a stream must give: blocks; the stop reason; flags; (input, output, cache read, thinking) tokens. A text is a
# text block, ("thinking", text, field) a thinking block, (name, args) a call. An error is its class and part of it.
EXPECTED: dict[str, object] = {
    "azure_content_filter": (["Once"], "content_filter", "refusal"),
    "azure_filters": (["Fine."], "stop", ""),
    "bad_indexes": ([("read", {"p": "a"}), ("read", {"p": "b"}), ("stop", {})], "tool_calls", ""),
    "bom_and_crlf": (["é😀"], "stop", "", (1, 2, 0, 0)),
    "cr_only": (["é😀"], "stop", "", (1, 2, 0, 0)),
    "cut_after_text": ("BrokenStreamError", "before the finish reason"),
    "cut_after_whole_call": ("BrokenStreamError", "before the finish reason"),
    "cut_off_before_arguments": ([("delete_all", None, "")], "length", "cut_off"),
    "cut_off_in_arguments": ([("read", {"path": "/a"}), ("read", None, '{"path":"/tm')], "length", "cut_off"),
    "data_on_two_lines": (["é"], "stop", ""),
    "deepseek_call_without_reasoning": (
        [("thinking", "", "reasoning_content"), ("date", {})],
        "tool_calls",
        "",
        (16, 80, 10, 60),
    ),
    "deepseek_no_resources": ("OverloadedError", "insufficient_system_resource"),
    "deepseek_reasoning": (
        [("thinking", "9.9 > 9.11", "reasoning_content"), "9.9"],
        "stop",
        "",
        (16, 80, 10, 60),
    ),
    "done_without_finish_reason": ("BrokenStreamError", "before the finish reason"),
    "error_after_finish": (["Hi"], "stop", ""),
    "error_event_of_text": ("OverloadedError", "upstream went away"),
    "finish_reason_on_every_chunk": (["Good day"], "stop", "", (3, 2, 0, 0)),
    "gemini_call_in_pieces_without_index": ([("get_weather", {"location": "Sydney"}), SIGNATURE], "stop", ""),
    "gemini_calls_without_index": ([READ_A, SIGNATURE, READ_B], "stop", "", (100, 50, 0, 0)),
    "groq_tool_use_failed": ("BadRequestError", "Failed to call a function"),
    "groq_usage_in_x_groq": (["Hi"], "stop", "", (36, 2, 0, 0)),
    "kinds_of_no_arguments": (
        [*[(f"t{n}", {}) for n in range(5)], ("t5", {"a": [1]}), ("t6", None, "[1]"), ("t7", None, '{"a":')],
        "tool_calls",
        "",
    ),
    "line_separators": (["a\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1eb"], "stop", ""),
    "llamacpp_error_without_done": ("ContextTooLongError", "n_prompt_tokens 20031, n_ctx 2048"),
    "llamacpp_json_schema": ([TODAY], "stop", "", (33, 48, 32, 0)),
    "llamacpp_logprobs": (["\n# All"], "length", "cut_off"),
    "llamacpp_text": ([GREETING], "stop", "", (37, 14, 36, 0)),
    "llamacpp_text_without_usage": ([GREETING], "stop", ""),
    "llamacpp_tool_auto": ([("get_weather", {"city": "Paris", "unit": "Celsius"})], "tool_calls", ""),
    "llamacpp_tool_cut_off": ([("get_weather", None, '{"city": "')], "length", "cut_off"),
    "llamacpp_tool_one_required": (
        ["The number of people who can be made to the table with 2 and 3 is 6."],
        "stop",
        "",
        (36, 22, 35, 0),
    ),
    "llamacpp_tool_parallel": ([("add", {"a": 1, "b": 2})], "tool_calls", ""),
    "llamacpp_tool_required": ([("get_weather", {"city": "Paris", "unit": "c"})], "tool_calls", "", (399, 18, 398, 0)),
    "lone_surrogates": (
        [
            ("thinking", "\ufffd", "reasoning_content"),
            "ok 😀 and \ufffd end\ufffd",
            ("say", {"t": "\ufffd", "k\ufffd": "😀"}),
        ],
        "stop",
        "",
    ),
    "mistral_calls": ([READ_A, READ_B], "tool_calls", "", (118, 22, 0, 0)),
    "mistral_thinking_parts": ([("thinking", "It's a greeting", None), "Hello"], "stop", "", (10, 10, 0, 0)),
    "mixed_line_ends": (["é😀"], "stop", "", (1, 2, 0, 0)),
    "moonshot_usage_in_choice": (["pong"], "stop", "", (8, 1, 4, 0)),
    "no_final_newline": (["Hi"], "stop", ""),
    "no_json": ("BrokenStreamError", "no JSON"),
    "ollama_calls_all_index_0": (
        [("file_write", {"path": "hello.py"}), ("file_write", {"path": "world.py"})],
        "tool_calls",
        "",
        (200, 50, 0, 0),
    ),
    "ollama_calls_without_id": ([("add", {"a": 1}), ("add", {"a": 2})], "stop", ""),
    "ollama_calls_without_index": ([("add", {"a": 1}), ("add", {"a": 2})], "stop", ""),
    "ollama_cut_with_empty_finish_reasons": ("BrokenStreamError", "before the finish reason"),
    "ollama_empty_finish_reason_at_the_end": (["Done."], "", ""),
    "ollama_empty_finish_reasons": ([" if you"], "stop", ""),
    "ollama_reasoning": ([("thinking", "Let me see.", "reasoning"), "4"], "stop", ""),
    "one_id_for_two_calls": ([("read", {"p": letter}) for letter in "abcd"], "tool_calls", ""),
    "openai_error_after_text": ("OverloadedError", "had an error while processing"),
    "openai_error_first": ("RateLimitError", "Rate limit reached"),
    "openai_parallel_calls": (
        [("read", {"path": "a.txt"}), ("read", {"path": "b.txt"})],
        "tool_calls",
        "",
        OPENAI_USAGE,
    ),
    "openai_refusal": (["I can't help with that."], "stop", "refusal", OPENAI_USAGE),
    "openai_stop_with_call": ([READ_A], "stop", ""),
    "openai_text": (["Hello wörld 😀"], "stop", "", OPENAI_USAGE),
    "openrouter_comments": (["Hi there"], "stop", "", (5, 2, 1, 0)),
    "openrouter_error_after_text": ("OverloadedError", "disconnected unexpectedly"),
    "openrouter_error_in_choice": ("RateLimitError", "slow down"),
    "openrouter_reasoning_details": ([("thinking", "Thinking.", None), READ_A], "tool_calls", ""),
    "other_name_under_one_id": ([("read", {"p": "a"}), ("write", {"p": "b"})], "tool_calls", ""),
    "repeated_ids_and_names": ([("read", {"p": "abc"})], "tool_calls", ""),
    "sglang_abort": ("BrokenStreamError", "'abort'"),
    "surrogate_escapes_in_arguments": ([("say", {"t": "\ufffd"})], "tool_calls", ""),
    "unknown_finish_reason": (["Hi", ("read", {})], "eos", ""),
    "unknown_things": (["Hi"], "stop", ""),
    "usage_with_null_choices": (["Hi"], "stop", "", (3, 2, 0, 0)),
    "vllm_error_object": ("ContextTooLongError", "maximum context length"),
    "vllm_reasoning_and_calls": (
        [("thinking", "Need weather.", "reasoning_content"), ("get_weather", {"city": "Paris"})],
        "tool_calls",
        "",
        (155, 25, 0, 0),
    ),
    "vllm_text_on_the_finish_chunk": (["I am a"], "length", "cut_off"),
    "xai_usage_on_every_chunk": (["Coca-Cola"], "stop", "", (38, 33, 6, 30)),
}


def brief(block: object) -> object:
    match block:
        case TextBlock(text):
            return text
        case ThinkingBlock(text, None, "here", raw):
            return ("thinking", text, None if raw is None else raw.get("field"))
        case ToolCall(_, name, None, raw_args):
            return (name, None, raw_args)
        case ToolCall(_, name, args, None):
            return (name, args)
        case RawBlock("here", raw):
            return ("raw", raw)
    raise AssertionError(block)


MESSAGE = {"role": "assistant", "content": "Hi", "tool_calls": [{"id": "c", "function": {"arguments": "{}"}}]}
DOCUMENT = {
    "choices": [{"index": 0, "message": MESSAGE, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": 1}, "completion_tokens": 1},
    "error": None,
    "model": "m",
}


class TestStreams(StreamLaws):
    streams, expected, endpoint, document = STREAMS, EXPECTED, ENDPOINT, DOCUMENT
    decoder, brief = ChatDecoder, staticmethod(brief)
    words = ("stop",)
    ends_with_the_body = True
    uncut = frozenset({"finish_reason_on_every_chunk"})
    unspoiled = frozenset(name for name, stream in STREAMS.items() if len(stream) >= 3_000)


decode = TestStreams().decode


def test_whole_numbers_of_any_size_stay_what_they_are():
    """An id or an amount in wei: a float would be another one. As text, as an object, and nested."""
    number = 123456789012345678901
    in_text = {"index": 0, "id": "a", "function": {"name": "pay", "arguments": f'{{"wei":{number}}}'}}
    as_object = {"index": 1, "id": "b", "function": {"name": "pay", "arguments": {"data": [{"wei": -number}]}}}
    chunk = {"choices": [{"delta": {"tool_calls": [in_text, as_object]}, "finish_reason": "tool_calls"}]}
    decoder = ChatDecoder(ENDPOINT)
    decoder.feed([Event("", json.dumps(chunk).encode())])

    assert [call.args for call in decoder.reply().tool_calls] == [{"wei": number}, {"data": [{"wei": -number}]}]


@pytest.mark.parametrize(
    ("text", "args"),
    [
        ('"{\\"path\\": \\"a\\"}"', {"path": "a"}),
        ('"{}"', {}),
        ('"[1]"', None),
        ('"path"', None),
        ('"\\"{}\\""', None),
        ('"{"', None),
    ],
)
def test_arguments_that_were_written_as_text_once_more_are_read(text, args):
    """Some servers encode twice. A third time, nobody does."""
    called = {"tool_calls": [{"id": "a", "function": {"name": "read", "arguments": text}}]}
    chunk = {"choices": [{"delta": called, "finish_reason": "tool_calls"}]}
    decoder = ChatDecoder(ENDPOINT)
    decoder.feed([Event("", json.dumps(chunk).encode())])

    (call,) = decoder.reply().tool_calls
    assert (call.args, call.raw_args) == (args, None if args is not None else text)


def test_no_call_without_arguments_runs_where_the_limit_cut_the_reply_off():
    """B16: theirs may still have been to come, whichever call was the last to be heard of."""
    calls = [{"index": number, "id": f"c{number}", "function": {"name": "wipe", "arguments": ""}} for number in (0, 1)]
    chunk = {"choices": [{"delta": {"tool_calls": calls}, "finish_reason": "length"}]}
    decoder = ChatDecoder(ENDPOINT)
    decoder.feed([Event("", json.dumps(chunk).encode())])

    assert [(call.args, call.raw_args) for call in decoder.reply().tool_calls] == [(None, ""), (None, "")]


@pytest.mark.parametrize("at", ["reasoning_details", "tool_calls"])
def test_what_no_history_can_hold_is_left_out(at):
    deep = "[" * 300 + "]" * 300
    told = {
        "reasoning_details": '[{"type":"reasoning.text","text":"So.","more":@}]',
        "tool_calls": '[{"id":"a","extra_content":{"x":@},"function":{"name":"f","arguments":"{}"}}]',
    }[at].replace("@", deep)
    decoder = ChatDecoder(ENDPOINT)
    decoder.feed([Event("", f'{{"choices":[{{"delta":{{"{at}":{told}}},"finish_reason":"stop"}}]}}'.encode())])

    reply = decoder.reply()
    assert [type(block) for block in reply.blocks] == [ToolCall if at == "tool_calls" else ThinkingBlock]
    assert [block.raw for block in reply.blocks if isinstance(block, ThinkingBlock)] in ([], [None])


PIECES = [
    {"content": "x"},
    {"reasoning": "x"},
    {"reasoning_content": "x"},
    {"refusal": "x"},
    {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]},
]


@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: next(iter(piece)))
def test_content_behind_a_finish_reason_needs_another_one(piece):
    """Else an answer that is cut there would be taken as whole."""
    said = {"choices": [{"index": 0, "delta": {"content": "Good"}, "finish_reason": "stop"}]}
    more = {"choices": [{"index": 0, "delta": piece}]}
    decoder = ChatDecoder(ENDPOINT)
    decoder.feed([Event("", json.dumps(chunk).encode()) for chunk in (said, more)])

    assert not decoder.finished
    with pytest.raises(ProviderError, match="before the finish reason"):
        decoder.reply()


def test_ids_stay_and_missing_ones_are_made_from_the_position():
    ids = {
        "ollama_calls_without_id": ["call_1", "call_2"],
        "one_id_for_two_calls": ["call_0", "call_0", "call_3", "call_4"],
        "mistral_calls": ["D681PevKs", "9xYzAbCd1"],
    }
    for name, expected in ids.items():
        reply, _ = decode([STREAMS[name]])
        assert [call.id for call in reply.tool_calls] == expected


def test_the_model_is_named_as_the_provider_reports_it():
    reply, _ = decode([STREAMS["openai_text"]])
    assert reply.model == "gpt-4o-mini-2024-07-18"
    reply, _ = decode([STREAMS["azure_filters"]])
    assert reply.model == "gpt-4o-2024-11-20"


def test_reasoning_details_are_joined_and_kept_with_their_signature():
    reply, _ = decode([STREAMS["openrouter_reasoning_details"]])

    text = {"type": "reasoning.text", "text": "Thinking.", "format": "anthropic-claude-v1", "index": 0}
    encrypted = {
        "type": "reasoning.encrypted",
        "data": "ENC==",
        "id": "tool_0",
        "format": "google-gemini-v1",
        "index": 1,
    }
    assert reply.blocks[0].raw == {"reasoning_details": [{**text, "signature": "SIG=="}, encrypted], "model": "m"}

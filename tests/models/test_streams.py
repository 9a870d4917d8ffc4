"""Every stream in ``streams/`` gives the reply it should, in any split of its bytes.

The first line of each file says where its form comes from.
"""

import copy
import json
from collections.abc import Sequence
from itertools import cycle, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alpineagents import ProviderError, RawBlock, Reply, TextBlock, TextDelta, ThinkingBlock, ThinkingDelta, ToolCall
from alpineagents.models._openai_stream import ChatDecoder
from alpineagents.models._sse import Event, SSEDecoder
from alpineagents.models._wire import Endpoint

STREAMS = {path.stem: path.read_bytes() for path in sorted(Path(__file__).with_name("streams").glob("*.sse"))}
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


def decode(chunks: Sequence[bytes]) -> tuple[object, list[object]]:
    """The reply, or the error as (class, text, body), and the deltas."""
    sse, decoder = SSEDecoder(), ChatDecoder(ENDPOINT)
    deltas = [delta for chunk in chunks for delta in decoder.feed(sse.feed(chunk))]
    try:
        return decoder.reply(), deltas
    except ProviderError as error:
        return (type(error).__name__, str(error), error.body, error.status), deltas


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


def summary(reply: Reply) -> tuple[object, ...]:
    flags = " ".join(flag for flag in ("cut_off", "refusal") if getattr(reply, flag))
    usage = reply.usage
    tokens = (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.thinking_tokens)
    return ([brief(block) for block in reply.blocks], reply.stop_reason, flags, tokens)


def test_every_stream_says_where_its_form_comes_from_and_what_it_must_give():
    assert sorted(STREAMS) == sorted(EXPECTED)
    for name, stream in STREAMS.items():
        first = stream.removeprefix(b"\xef\xbb\xbf").splitlines()[0]
        assert first.startswith(b": "), name
        assert len(first) > 20, name


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_gives_what_it_must(name):
    outcome, _ = decode([STREAMS[name]])

    expected = EXPECTED[name]
    assert isinstance(expected, tuple)
    if isinstance(outcome, Reply):
        assert summary(outcome) == (*expected, (0, 0, 0, 0))[:4]
        assert outcome.usage.requests == 1
    else:
        kind, text, body, status = outcome
        assert (kind, status) == (expected[0], 200)
        assert expected[1] in text
        assert str(ENDPOINT) in text
        assert body


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_byte_by_byte_gives_the_same(name):
    stream = STREAMS[name]

    assert decode([bytes([byte]) for byte in stream]) == decode([stream])


@given(st.sampled_from(sorted(STREAMS)), st.data())
def test_any_split_of_any_stream_gives_the_same_reply_and_deltas(name, data):
    stream = STREAMS[name]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    bounds = [0, *cuts, len(stream)]

    split = decode([stream[start:end] for start, end in pairwise(bounds)])

    assert split == decode([stream])


@pytest.mark.parametrize("name", [name for name, expected in EXPECTED.items() if isinstance(expected[0], list)])
def test_the_deltas_of_a_stream_are_its_text(name):
    reply, deltas = decode([STREAMS[name]])

    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == reply.text
    thinking = "".join(block.text for block in reply.blocks if isinstance(block, ThinkingBlock))
    assert "".join(delta.text for delta in deltas if isinstance(delta, ThinkingDelta)) == thinking
    assert all(delta.text for delta in deltas)


@given(st.sampled_from(sorted(set(STREAMS) - {"finish_reason_on_every_chunk"})), st.data())
def test_a_stream_that_is_cut_gives_the_whole_reply_or_an_error(name, data):
    """Never a part of an answer (B4). What comes behind the finish reason, such as usage, may be lost."""
    stream = STREAMS[name]
    whole, _ = decode([stream])

    outcome, _ = decode([stream[: data.draw(st.integers(0, len(stream)))]])

    if isinstance(outcome, Reply):
        assert isinstance(whole, Reply)
        assert (outcome.blocks, outcome.stop_reason) == (whole.blocks, whole.stop_reason)
    else:
        assert outcome[0] == "BrokenStreamError" or outcome == whole


def test_whole_numbers_of_any_size_stay_what_they_are():
    """An id or an amount in wei: a float would be another one. As text, as an object, and nested."""
    number = 123456789012345678901
    in_text = {"index": 0, "id": "a", "function": {"name": "pay", "arguments": f'{{"wei":{number}}}'}}
    as_object = {"index": 1, "id": "b", "function": {"name": "pay", "arguments": {"data": [{"wei": -number}]}}}
    chunk = {"choices": [{"delta": {"tool_calls": [in_text, as_object]}, "finish_reason": "tool_calls"}]}
    decoder = ChatDecoder(ENDPOINT)
    decoder.feed([Event("", json.dumps(chunk).encode())])

    assert [call.args for call in decoder.reply().tool_calls] == [{"wei": number}, {"data": [{"wei": -number}]}]


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


# What a server may put in any place of its JSON, whatever belongs there.
DEEPEST = b"[" * 1_000 + b"]" * 1_000
WRONG = [
    "@deep",
    "@huge",
    None,
    True,
    0,
    -1,
    1.5,
    2**70,
    "",
    "x",
    "stop",
    "error",
    "null",
    "{}",
    [],
    {},
    [None],
    ["x"],
    [[]],
    {"a": 1},
]


def spoiled(data, places):
    """The JSON of an event or a document with other values in some places; each place is a choice among all."""
    try:
        document = json.loads(data)
    except ValueError:
        return data
    for place, value in places:
        holders = [(document, key) for key in keys_of(document)]
        for holder, key in holders:
            holders += [(holder[key], inner) for inner in keys_of(holder[key])]
        if holders:
            holder, key = holders[place % len(holders)]
            holder[key] = copy.deepcopy(WRONG[value])
    return json.dumps(document).encode().replace(b'"@deep"', DEEPEST).replace(b'"@huge"', b"1e999")


def keys_of(value):
    return list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []


PLACES = st.lists(st.tuples(st.integers(0, 1_000), st.integers(0, len(WRONG) - 1)), max_size=3)
SHORT = sorted(name for name, stream in STREAMS.items() if len(stream) < 3_000)


@given(st.sampled_from(SHORT), st.lists(PLACES, min_size=1, max_size=9))
def test_no_wrong_value_crashes_the_decoder(name, places):
    """Anything in any place of any event: the outcome is a reply or an error of ours."""
    events = SSEDecoder().feed(STREAMS[name])
    decoder = ChatDecoder(ENDPOINT)

    deltas = decoder.feed(
        [Event(event.name, spoiled(event.data, where)) for event, where in zip(events, cycle(places), strict=False)]
    )

    assert all(delta.text for delta in deltas)
    reply_or_error(decoder)


@given(PLACES)
def test_no_wrong_value_in_a_document_crashes_the_decoder(places):
    message = {"role": "assistant", "content": "Hi", "tool_calls": [{"id": "c", "function": {"arguments": "{}"}}]}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": 1}, "completion_tokens": 1}
    document = {"choices": [choice], "usage": usage, "error": None, "model": "m"}
    decoder = ChatDecoder(ENDPOINT)

    decoder.feed_document(spoiled(json.dumps(document), places))

    reply_or_error(decoder)


def reply_or_error(decoder):
    """Where it isn't finished, the end of the body may still have ended it."""
    whole = decoder.finished and decoder.failure is None
    try:
        reply = decoder.reply()
    except ProviderError as error:
        failure: str | None = str(error)
    else:
        failure = None
        assert isinstance(reply, Reply)
    assert failure is None or ("here, model 'm'" in failure and not whole)

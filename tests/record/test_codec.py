"""Entries and their JSON bytes: nothing is lost, nothing damaged gets through."""

from __future__ import annotations

import contextlib
import copy
import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alpineagents import (
    AgentInfo,
    ContextChange,
    ContextChangeEntry,
    ErrorEntry,
    Exchange,
    ExchangeEntry,
    ExtraDataEntry,
    Image,
    Message,
    MessageEntry,
    ModelEvent,
    ModelEventEntry,
    ModelReplyEntry,
    ModelRequestEntry,
    RawBlock,
    Reply,
    RunStartEntry,
    StateInfo,
    StopEntry,
    StoppedByBudget,
    StoppedByFinish,
    StoppedByUntil,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolOutcome,
    ToolResultEntry,
    Usage,
    freeze,
)
from alpineagents.record import FrozenDict, FrozenList
from alpineagents.record._codec import decode_entry, decode_history, decode_info, encode_entry, encode_info

from .strategies import ENTRIES, entries, json_values, state_infos

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
CALL = ToolCall("c1", "read", {"path": "a"})
REPLY = ModelReplyEntry(3, 1, NOW, Reply((TextBlock("hi"), CALL), "m", "stop", Usage(1, 2, cost=Decimal("0.5"))))


def types_of(value: object) -> object:
    """The exact types in a value, at every depth."""
    if attrs.has(type(value)):
        return type(value), {
            field.name: types_of(getattr(value, field.name))
            for field in attrs.fields(type(value))
            if field.name != "error"
        }
    if isinstance(value, dict):
        return type(value), {key: types_of(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value), [types_of(item) for item in value]
    return type(value)


@pytest.mark.parametrize("cls", ENTRIES, ids=lambda cls: cls.__name__)
def test_every_entry_comes_back_from_its_bytes_and_gives_the_same_bytes_again(cls):
    @settings(max_examples=30)
    @given(ENTRIES[cls])
    def law(entry):
        raw = encode_entry(entry)
        back = decode_entry(raw)

        assert back == entry
        assert back.at == entry.at
        assert getattr(back, "error", None) is None
        assert types_of(back) == types_of(entry)
        assert encode_entry(back) == raw

    law()


@given(state_infos)
def test_a_state_info_comes_back_from_its_bytes(info):
    raw = encode_info(info)

    assert decode_info(raw) == info
    assert encode_info(decode_info(raw)) == raw


@given(entries)
def test_an_entry_is_one_line_of_utf8_and_json_to_any_reader(entry):
    raw = encode_entry(entry)
    raw.decode()

    assert b"\n" not in raw
    assert b"\r" not in raw
    fields = json.loads(raw)
    assert (fields["seq"], fields["turn"], fields["kind"]) == (entry.seq, entry.turn, entry.kind)
    assert ("format" in fields) == (entry.seq == 0)


def extra(value: object) -> ExtraDataEntry:
    return ExtraDataEntry(0, 0, NOW, freeze({"x": value}))


@pytest.mark.parametrize(
    "value",
    [
        2**63 - 1,
        -(2**63),
        2**63,
        2**64 - 1,
        2**64,
        -(2**63) - 1,
        10**100,
        [2**200, {"a": -(2**200)}],
        "\ud83d",
        {"\udc00": "\ud83d"},
        [2**70, "\ud83d", "\u2028", "\x00"],
        "\u2028\u2029\x85\x0b\x1e",
        "a\x00b",
        "\ud83d\ude00",
        "\\ud83d",
        0.1 + 0.2,
        1e308,
        5e-324,
        -0.0,
        1.0,
        1e16,
        True,
        1,
    ],
    ids=ascii,
)
def test_numbers_and_text_that_json_libraries_stumble_over_are_kept_exactly(value):
    back = decode_entry(encode_entry(extra(value)))

    assert repr(back.content) == repr(freeze({"x": value}))
    assert encode_entry(back) == encode_entry(extra(value))


@pytest.mark.parametrize("digits", [4_300, 4_301, 20_000])
@pytest.mark.parametrize("sign", [1, -1])
def test_an_integer_of_any_length_that_was_frozen_can_be_saved(digits, sign):
    """Python refuses to turn more than 4,300 digits into text: what freeze takes, the codec has to write."""
    try:
        entry = extra(sign * 10 ** (digits - 1))
    except ValueError as error:
        assert digits > 4_300, error  # noqa: PT017  # only a longer one may be refused
        return

    assert decode_entry(encode_entry(entry)) == entry


def test_long_integers_are_exact_however_the_json_is_laid_out():
    """A file can be opened in an editor or a formatter, and a database may have an order of its own."""
    entry = extra(10**40 + 1)
    fields = json.loads(encode_entry(entry))
    backwards = dict(reversed(fields.items()))

    for laid_out in (json.dumps(fields), json.dumps(fields, sort_keys=True), json.dumps(backwards, indent=1)):
        assert decode_entry(laid_out.encode()) == entry


def test_lone_surrogates_in_args_ids_and_names_are_kept():
    call = ToolCall("id\ud83d", "name\udc00", {"k\ud83d": ["v\udc00", "\u2028", "\x00"]})
    entry = ToolResultEntry(1, 1, NOW, (TextBlock("x"),), call)

    assert decode_entry(encode_entry(entry)) == entry


PAIR = "halves \ud83d\ude00 of one character"
PAIRS = [
    ErrorEntry(1, 0, NOW, PAIR),
    ModelRequestEntry(1, 1, NOW, PAIR, (PAIR,)),
    ModelEventEntry(1, 0, NOW, ModelEvent(PAIR, PAIR)),
    ExchangeEntry(1, 0, NOW, "ask", Exchange(PAIR, PAIR)),
    ContextChangeEntry(1, 0, NOW, ContextChange(kind="compact", summary=PAIR)),
    ToolResultEntry(1, 1, NOW, (), ToolCall(PAIR, PAIR, {PAIR: PAIR}), decided_by=PAIR),
    ToolResultEntry(1, 1, NOW, (), ToolCall("c", "f", None, PAIR)),
    ModelReplyEntry(1, 1, NOW, Reply((ThinkingBlock("x", PAIR), RawBlock("p", PAIR)), PAIR, PAIR)),
    RunStartEntry(1, 0, NOW, AgentInfo(name=PAIR, model=PAIR)),
    StopEntry(1, 0, NOW, StoppedByUntil(PAIR)),
    ExtraDataEntry(1, 0, NOW, freeze({PAIR: PAIR})),
]


@pytest.mark.parametrize("entry", PAIRS, ids=lambda entry: entry.kind)
def test_halves_of_a_character_that_meet_in_a_text_are_the_same_live_and_loaded(entry):
    """JSON can't tell two halves from the character: what is recorded has to be the one or the other from the start."""
    raw = encode_entry(entry)

    assert decode_entry(raw) == entry
    assert encode_entry(decode_entry(raw)) == raw


def test_the_deepest_value_that_is_frozen_can_be_saved_and_loaded():
    value: object = "\ud83d"
    for _ in range(199):
        value = [value]

    for leaf in (value, json.loads(json.dumps(value).replace("\\ud83d", "x"))):
        for entry in (extra(leaf), StopEntry(1, 0, NOW, StoppedByFinish(leaf))):
            assert decode_entry(encode_entry(entry)) == entry


@pytest.mark.parametrize("microsecond", [0, 1, 500_000, 999_999])
def test_a_time_keeps_its_microseconds_and_is_utc(microsecond):
    for value in (1, 2**70):  # through orjson, and through json
        entry = attrs.evolve(extra(value), at=NOW.replace(microsecond=microsecond))
        raw = encode_entry(entry)
        back = decode_entry(raw)

        assert back.at == entry.at
        assert back.at.utcoffset() == timedelta(0)
        assert json.loads(raw)["at"].endswith("Z")


def test_a_time_of_another_zone_is_the_same_moment():
    at = NOW.astimezone(timezone(timedelta(hours=2)))

    assert decode_entry(encode_entry(attrs.evolve(extra(1), at=at))).at == NOW


def test_what_is_loaded_is_frozen():
    back = decode_entry(encode_entry(extra([{"a": [1]}])))

    assert type(back.content) is FrozenDict
    assert type(back.content["x"]) is FrozenList
    with pytest.raises(TypeError, match="read-only"):
        back.content["x"][0]["a"].append(2)


def test_an_exception_is_not_saved():
    entry = ErrorEntry(1, 0, NOW, "ValueError: x", "run", error=ValueError("x"))

    assert b"error" not in encode_entry(entry).replace(b'"kind":"error"', b"").replace(b"ValueError", b"")
    assert decode_entry(encode_entry(entry)).error is None


def test_what_is_at_its_default_is_left_out():
    raw = encode_entry(ToolResultEntry(1, 1, NOW, (TextBlock("x"),), CALL))

    assert set(json.loads(raw)) == {"seq", "kind", "turn", "at", "content", "call"}


def test_a_cost_is_text_and_an_unknown_one_null():
    raw = encode_entry(REPLY)

    assert json.loads(raw)["content"]["usage"]["cost"] == "0.5"
    unknown = attrs.evolve(REPLY, content=attrs.evolve(REPLY.content, usage=Usage(cost=None)))
    assert decode_entry(encode_entry(unknown)).content.usage.cost is None


def test_a_budget_in_dollars_can_be_saved():
    stop = StoppedByBudget("cost", Decimal("0.50"), Decimal("0.51"))

    back = decode_entry(encode_entry(StopEntry(1, 0, NOW, stop)))

    assert (back.content.what, back.content.limit, back.content.used) == ("cost", "0.50", "0.51")


@pytest.mark.parametrize(("data", "problem"), [(7, "7 is not base64 text"), ("?", "base64")])
def test_data_that_is_not_base64_is_refused_with_its_place(data, problem):
    picture = {"type": "image", "data": data}
    content = {"role": "user", "blocks": [picture]}
    fields = {"kind": "user", "seq": 0, "turn": 0, "at": "2026-12-01T21:49:20Z", "content": content}

    with pytest.raises(ValueError, match=rf"{problem}.*content.*blocks"):
        decode_entry(json.dumps(fields).encode())


def test_bytes_are_base64():
    entry = MessageEntry(1, 0, NOW, Message.user("x", Image(b"\x89PNG\r\n\x1a\n")))

    assert json.loads(encode_entry(entry))["content"]["blocks"][1] == {"type": "image", "data": "iVBORw0KGgo="}


# Other versions


def unknown_everywhere(value: object) -> object:
    if isinstance(value, dict):
        inner = {key: unknown_everywhere(item) for key, item in value.items()}
        return inner | {"from_the_future": {"a": [1]}}
    if isinstance(value, list):
        return [unknown_everywhere(item) for item in value]
    return value


@pytest.mark.parametrize(
    "entry",
    [
        REPLY,
        ModelRequestEntry(0, 1, NOW, "m", ("a",)),
        StopEntry(1, 0, NOW, StoppedByFinish("x")),
        ToolResultEntry(1, 1, NOW, (TextBlock("x"),), ToolCall("c", "f", None, "{"), ToolOutcome.ERROR),
    ],
    ids=lambda entry: entry.kind,
)
def test_fields_that_this_version_does_not_know_are_passed_over(entry):
    fields = json.loads(encode_entry(entry))
    args = copy.deepcopy(fields["content"]["blocks"][1]["args"]) if entry is REPLY else None
    fields = unknown_everywhere(fields)
    if args is not None:
        fields["content"]["blocks"][1]["args"] = args

    assert decode_entry(json.dumps(fields).encode()) == entry


@pytest.mark.parametrize("version", [2, 17])
def test_a_newer_format_is_refused_with_both_numbers(version):
    fields = json.loads(encode_entry(extra(1))) | {"format": version, "kind": "of the future"}
    info = json.loads(encode_info(StateInfo(id="x"))) | {"format": version}

    for decode, raw in ((decode_entry, fields), (decode_info, info)):
        with pytest.raises(ValueError, match=rf"format {version}\b.* up to 1\b"):
            decode(json.dumps(raw).encode())
    with pytest.raises(ValueError, match=rf"^entry 0: .*format {version}\b"):
        decode_history([json.dumps(fields).encode()])


@pytest.mark.parametrize("version", [0, -1, "1", None, [1], 1.5, True])
def test_a_format_that_is_no_version_is_refused_and_not_called_newer(version):
    fields = json.loads(encode_entry(extra(1))) | {"format": version}

    with pytest.raises(ValueError, match="format") as caught:
        decode_entry(json.dumps(fields).encode())
    assert "newer" not in str(caught.value)


# Damage


def changed(entry: object, path: list[object], value: object = ...) -> bytes:
    """The bytes of *entry* with the part at *path* replaced, or taken out."""
    fields = json.loads(encode_entry(entry))
    holder = fields
    for key in path[:-1]:
        holder = holder[key]
    if value is ...:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return json.dumps(fields).encode()


RESULT = ToolResultEntry(1, 1, NOW, (Image(b"\x89PNG\r\n\x1a\n"),), CALL)
STOP = StopEntry(1, 0, NOW, StoppedByFinish("x"))


@pytest.mark.parametrize(
    ("raw", "part"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b'{"seq": 1} x', "JSON"),
        (b"\xff\xfe", "JSON"),
        (b"[]", "object"),
        (b"null", "object"),
        (b"3", "object"),
        (b"{}", "kind"),
        (b"[" * 100_000, "JSON"),
        (changed(STOP, ["kind"], ["stop"]), "kind"),
        (changed(STOP, ["kind"], {}), "kind"),
        (changed(STOP, ["kind"], None), "kind"),
        (changed(STOP, ["seq"]), "seq"),
        (
            changed(ErrorEntry(1, 0, NOW, "x", usage=Usage(1, cost=None)), ["usage", "cost"], 0.5),
            "not a number as text",
        ),
        (changed(STOP, ["seq"], "1"), "seq"),
        (changed(STOP, ["seq"], 1.0), "seq"),
        (changed(STOP, ["turn"], None), "turn"),
        (changed(STOP, ["turn"], True), "turn"),
        (changed(STOP, ["at"]), "at"),
        (changed(STOP, ["at"], "yesterday"), "at"),
        (changed(STOP, ["at"], "2026-01-01T00:00:00"), "at"),
        (changed(STOP, ["at"], 1767225600), "at"),
        (changed(STOP, ["content"]), "content"),
        (changed(STOP, ["content"], "x"), "content"),
        (changed(STOP, ["content", "type"]), "content"),
        (changed(STOP, ["content", "type"], "other"), "other"),
        (changed(STOP, ["content", "type"], []), "content"),
        (changed(RESULT, ["content"], {}), "content"),
        (changed(RESULT, ["content"], None), "content"),
        (changed(RESULT, ["content", 0, "type"], "tool_call"), "tool_call"),
        (changed(RESULT, ["content", 0, "data"], "***"), "content"),
        (changed(RESULT, ["content", 0, "data"], "aGVsbG8="), "not a PNG"),
        (changed(RESULT, ["content", 0, "data"]), "data"),
        (changed(RESULT, ["call", "args"], [1]), "args"),
        (changed(RESULT, ["call", "id"], 3), "id"),
        (changed(RESULT, ["outcome"], "great"), "outcome"),
        (changed(RESULT, ["late"], 1), "late"),
        (changed(RESULT, ["child_ids"], [1]), "child_ids"),
        (changed(RESULT, ["full"], 3), "full"),
        (changed(REPLY, ["content", "usage", "cost"], "free"), "cost"),
        (changed(REPLY, ["content", "usage", "cost"], "NaN"), "cost"),
        (changed(REPLY, ["content", "usage", "cost"], "-Infinity"), "cost"),
        (changed(REPLY, ["content", "usage", "input_tokens"], "1"), "input_tokens"),
        (changed(REPLY, ["content", "blocks"], "hi"), "blocks"),
        (changed(REPLY, ["content", "blocks", 1, "args"], {"a": float("nan")}), "args"),
        (changed(MessageEntry(1, 0, NOW, Message.user("x")), ["content", "role"], "system"), "role"),
        (changed(extra(1), ["content"], [1]), "content"),
        (changed(extra(1), ["content", "x"], float("inf")), "content"),
    ],
)
def test_a_damaged_entry_is_a_value_error_that_names_the_part(raw, part):
    with pytest.raises(ValueError, match=part):
        decode_entry(raw)
    with pytest.raises(ValueError, match=r"^entry 1: "):
        decode_history([encode_entry(extra(1)), raw])


@pytest.mark.parametrize("raw", [b"", b"[]", b"null", b"3", b"{}", b'{"id": 3}', b'{"id": "x", "stopped": {}}'])
def test_a_damaged_state_info_is_a_value_error(raw):
    with pytest.raises(ValueError, match=r"StateInfo|JSON"):
        decode_info(raw)


def parts(value: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [found for key, item in inner for found in parts(item, (*path, key))]


@settings(max_examples=200)
@given(entries, st.data())
def test_whatever_is_put_in_the_place_of_a_part_is_read_or_a_value_error(entry, data):
    path = data.draw(st.sampled_from(parts(json.loads(encode_entry(entry)))))
    raw = changed(entry, list(path), data.draw(st.just(...) | json_values))

    try:
        back = decode_entry(raw)
    except ValueError:
        return
    assert decode_entry(encode_entry(back)) == back


@settings(max_examples=100)
@given(entries, st.data())
def test_bytes_cut_off_or_turned_over_are_read_or_a_value_error(entry, data):
    raw = bytearray(encode_entry(entry))
    at = data.draw(st.integers(0, len(raw) - 1))
    if data.draw(st.booleans()):
        del raw[at:]
    else:
        raw[at] = data.draw(st.integers(0, 255))

    with contextlib.suppress(ValueError):
        decode_entry(bytes(raw))

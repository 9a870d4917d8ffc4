"""Blocks, messages, usage and prices as values: what they accept, and how they behave as values."""

from __future__ import annotations

import base64
import copy
import pickle
from datetime import UTC, datetime
from decimal import Decimal

import attrs
import pytest
from hypothesis import given

from alpineagents import (
    Exchange,
    ExtraDataEntry,
    File,
    Image,
    Message,
    ModelReplyEntry,
    Price,
    RawBlock,
    Reply,
    StopEntry,
    StoppedByFinish,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolOutcome,
    ToolResultBlock,
    ToolResultEntry,
    Usage,
    freeze,
)
from alpineagents.record import FrozenDict, FrozenList

from .strategies import entries, texts, usages

NOW = datetime(2026, 1, 2, tzinfo=UTC)
PNG = b"\x89PNG\r\n\x1a\n" + b"x" * 10


# Text


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("plain", "plain"),
        ("ok \ud83d", "ok \ufffd"),
        ("\udc00 ok", "\ufffd ok"),
        ("\ud83d\ude00", "\U0001f600"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
        ("a\x00b", "a\x00b"),
        ("\u2028\U0001f600", "\u2028\U0001f600"),
    ],
)
def test_lone_surrogates_are_replaced_when_text_is_made_and_nothing_else_is(text, clean):
    assert TextBlock(text).text == clean
    assert Message.user(text).text == clean
    assert Message.assistant(text).text == clean
    assert Message.notice(text).text == f"[notice] {clean}"
    assert ThinkingBlock(text).text == clean


@given(texts)
def test_whatever_text_it_is_it_can_be_encoded_and_stays_what_it_was_where_it_could(text):
    clean = TextBlock(text).text

    clean.encode()
    assert TextBlock(clean).text == clean
    try:
        text.encode()
    except UnicodeEncodeError:
        assert clean != text
    else:
        assert clean == text


@pytest.mark.parametrize("make", [Message.user, Message.notice, Message.assistant, TextBlock])
@pytest.mark.parametrize("text", [None, 3, b"x", ["x"]])
def test_text_that_is_no_str_is_a_type_error(make, text):
    with pytest.raises(TypeError, match=f"must be str, not {type(text).__name__}"):
        make(text)


@pytest.mark.parametrize("text", ["", " ", "\n\t", "\u2003\u2028"])
@pytest.mark.parametrize("make", [Message.user, Message.notice, Message.assistant])
def test_a_message_without_anything_to_read_is_refused(make, text):
    with pytest.raises(ValueError, match="needs text"):
        make(text)


def test_a_blank_text_beside_an_image_is_left_out():
    message = Message.user(" \n", Image(PNG))

    assert message.blocks == (Image(PNG),)
    assert message.text == ""


# Messages


def test_the_three_ways_to_make_a_message():
    assert Message.user("hi") == Message("user", (TextBlock("hi"),))
    assert Message.assistant("hi") == Message("assistant", (TextBlock("hi"),))
    assert Message.notice("hi") == Message("user", (TextBlock("[notice] hi"),))
    assert not Message.user("hi").is_notice
    assert Message.notice("hi").is_notice


@pytest.mark.parametrize("text", ["hi", "[notice] hi", "[notice] [notice] hi", "[notice] [notice] [notice] hi"])
def test_a_notice_never_has_its_prefix_twice(text):
    assert Message.notice(text).text == "[notice] hi"
    assert Message.notice(Message.notice(text).text) == Message.notice(text)


@pytest.mark.parametrize("text", ["[notice] ", "[notice]  \n", "[notice] [notice] "])
def test_a_notice_of_nothing_but_its_prefix_is_blank(text):
    with pytest.raises(ValueError, match="needs text"):
        Message.notice(text)


def test_attachments_come_after_the_text_in_their_order():
    image, file = Image(PNG), File(b"hello", name="a.txt")

    assert Message.user("see", file, image).blocks == (TextBlock("see"), file, image)


@pytest.mark.parametrize("attachment", [b"x", "a.png", TextBlock("x"), None])
def test_only_images_and_files_can_be_attached(attachment):
    with pytest.raises(TypeError, match="Image or File"):
        Message.user("see", attachment)


def test_text_and_calls_of_a_message_are_gathered_from_its_blocks():
    call = ToolCall("c", "f", {})
    blocks = (TextBlock("a"), ThinkingBlock("hm"), call, TextBlock("b"), RawBlock("p", {}))

    for value in (Message("assistant", blocks), Reply(blocks)):
        assert value.text == "ab"
        assert value.tool_calls == (call,)


@pytest.mark.parametrize("role", ["system", "", None, "User"])
def test_a_role_that_is_none_of_the_three_is_refused(role):
    with pytest.raises(ValueError, match="role"):
        Message(role, (TextBlock("x"),))


@pytest.mark.parametrize("blocks", ["text", ["text"], [None], [{"text": "x"}], [TextBlock("a"), 3]])
def test_what_is_no_block_is_refused_when_the_message_is_made(blocks):
    """Else the codec is the first to stumble over it, when the State can't be saved any more."""
    with pytest.raises(TypeError, match="block"):
        Message("user", blocks)
    with pytest.raises(TypeError, match="block"):
        Reply(blocks)


@pytest.mark.parametrize("content", ["text", ["text"], [None], [ToolCall("c", "f", {})]])
def test_a_result_holds_text_images_and_files_only(content):
    with pytest.raises(TypeError, match=r"TextBlock|block"):
        ToolResultBlock("c", content)


# Images and files


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0rest", "image/jpeg"),
        (b"GIF87a rest", "image/gif"),
        (b"GIF89a rest", "image/gif"),
        (b"RIFF\x01\x02\x03\x04WEBPVP8 ", "image/webp"),
    ],
)
def test_the_type_of_an_image_is_found_in_its_bytes(data, media_type):
    assert Image(data).media_type == media_type
    assert Image(bytearray(data)) == Image(memoryview(data)) == Image(data)
    assert Image.from_base64(base64.b64encode(data).decode()) == Image(data)


@pytest.mark.parametrize(
    "data", [b"", b"x", b"\x89PNG", b"RIFF\x01\x02\x03\x04WAVE", b"<svg>", b"BM", b"%PDF-1.7", b"GIF8 is a word"]
)
def test_bytes_of_no_known_image_are_refused(data):
    with pytest.raises(ValueError, match="not a PNG, JPEG, GIF or WebP image"):
        Image(data)


@pytest.mark.parametrize("make", [Image, File])
@pytest.mark.parametrize("data", ["text", None, 3, [1]])
def test_data_that_is_not_bytes_is_a_type_error(make, data):
    with pytest.raises(TypeError, match="must be bytes"):
        make(data)


@pytest.mark.parametrize("make", [Image.from_base64, File.from_base64])
@pytest.mark.parametrize("text", ["a", "a*b=", "äöüß"])
def test_text_that_is_not_base64_is_a_value_error(make, text):
    with pytest.raises(ValueError, match="not base64"):
        make(text)


def test_images_and_files_are_read_from_paths(tmp_path):
    (tmp_path / "a.png").write_bytes(PNG)
    (tmp_path / "b.md").write_bytes("# Zürich".encode())

    assert Image.from_path(tmp_path / "a.png") == Image.from_path(str(tmp_path / "a.png")) == Image(PNG)
    assert File.from_path(str(tmp_path / "b.md")) == File("# Zürich".encode(), name="b.md")
    with pytest.raises(FileNotFoundError):
        Image.from_path(tmp_path / "none.png")


def test_the_type_of_a_file_is_found_in_its_bytes():
    assert File(b"%PDF-1.7 \xff").media_type == "application/pdf"
    assert File("Zürich".encode()).media_type == "text/plain"
    assert File(b"a,b", "text/csv", "a.csv").media_type == "text/csv"
    assert File(b"").media_type == "text/plain"


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (b"\xff\xfe\x00", None),
        (PNG, None),
        (PNG, "text/plain"),
        (b"\xff\xfe", "text/csv"),
        (b"hello", "application/pdf"),
        (b"hello", "application/zip"),
        (b"hello", ""),
    ],
)
def test_bytes_that_are_no_document_of_that_type_are_refused(data, media_type):
    with pytest.raises(ValueError, match=r"PDF|media_type"):
        File(data) if media_type is None else File(data, media_type)


# Tool calls


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"a": [{1}]}, r'args\["a"\]\[0\]: set is not JSON; use a list'),
        ({1: 2}, "args: key 1 is int"),
        ([1], "args must be a dict, not list"),
        ("{}", "args must be a dict, not str"),
        ({"a": float("nan")}, r'args\["a"\]: nan'),
    ],
)
def test_args_that_are_not_json_are_refused_whoever_makes_the_call(args, message):
    with pytest.raises(TypeError, match=message):
        ToolCall("c", "f", args)


def test_args_are_frozen_when_the_call_is_made():
    given_args = {"a": [1, (2,)]}
    call = ToolCall("c", "f", given_args)
    given_args["a"].append(3)

    assert call.args == {"a": [1, [2]]}
    assert type(call.args) is FrozenDict
    with pytest.raises(TypeError):
        call.args["a"] = 1
    assert ToolCall("c", "f", None, '{"a": ').args is None


# Usage and prices


def test_usage_adds_field_by_field():
    a = Usage(1, 2, 3, 4, 5, 6, Decimal("0.1"))

    assert a + Usage(10, 20, 30, 40, 50, 60, Decimal("0.2")) == Usage(11, 22, 33, 44, 55, 66, Decimal("0.3"))


@given(usages, usages, usages)
def test_usage_adds_in_any_order_and_an_unknown_cost_is_contagious_for_the_cost_alone(a, b, c):
    assert a + b == b + a
    total = a + b + c
    assert attrs.evolve(total, cost=None) == attrs.evolve(a + (b + c), cost=None)
    assert (total.cost is None) == any(usage.cost is None for usage in (a, b, c))
    assert total.input_tokens == a.input_tokens + b.input_tokens + c.input_tokens
    assert a + Usage() == a


def test_usage_adds_to_usage_only():
    with pytest.raises(TypeError):
        Usage() + 1


@pytest.mark.parametrize(
    ("price", "usage", "cost"),
    [
        (Price(3, 15), Usage(1_000_000, 1_000_000), "18"),
        (Price("0.25", "1.25"), Usage(1, 1), "0.0000015"),
        (Price(0.1, 0.2), Usage(1_000_000, 1_000_000), "0.3"),
        (Price(10, 0, 1), Usage(1_000_000, cache_read_tokens=400_000), "6.4"),
        (Price(10, 0, None, 20), Usage(1_000_000, cache_write_tokens=100_000), "11"),
        (Price(10, 0), Usage(1_000_000, cache_read_tokens=400_000, cache_write_tokens=100_000), "10"),
        (Price(1, 2), Usage(0, 1_000_000, thinking_tokens=900_000), "2"),
        (Price(1, 2), Usage(), "0"),
    ],
)
def test_a_price_is_per_million_tokens_and_exact(price, usage, cost):
    assert price.cost(usage) == Decimal(cost)


@pytest.mark.parametrize("bad", ["abc", None, "1,5"])
def test_a_price_that_is_no_number_is_the_callers_mistake(bad):
    with pytest.raises((TypeError, ValueError)):
        Price(bad, 1)


# As values


VALUES = [
    TextBlock("x"),
    Image(PNG),
    File(b"hello"),
    ToolResultBlock("c", (TextBlock("x"),)),
    ThinkingBlock("x", "sig", "p"),
    Message.user("x", Image(PNG)),
    Reply((TextBlock("x"),), "m", "stop", Usage(1)),
    Usage(1),
    Price(1, 2),
    StoppedByFinish("x"),
    Exchange("q", 1),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_are_frozen_slotted_hashable_and_equal_by_content(value):
    again = pickle.loads(pickle.dumps(value))

    assert again == value
    assert hash(again) == hash(value)
    assert again is not value
    with pytest.raises(AttributeError):
        setattr(value, attrs.fields(type(value))[0].name, "other")
    with pytest.raises(AttributeError):
        value.other = 1
    assert not hasattr(value, "__dict__")


def test_a_value_with_a_dict_in_it_has_no_hash():
    with pytest.raises(TypeError, match="unhashable"):
        hash(ToolCall("c", "f", {}))


@given(entries)
def test_an_entry_copied_however_deep_stays_frozen_and_equal(entry):
    assert copy.copy(entry) is entry
    deep = copy.deepcopy({"entries": [entry]})["entries"][0]

    assert deep == entry
    assert_still_frozen(deep)


@given(entries)
def test_an_entry_survives_pickling(entry):
    entry = attrs.evolve(entry, error=None) if hasattr(entry, "error") else entry

    back = pickle.loads(pickle.dumps(entry))

    assert back == entry
    assert back.at == entry.at
    assert_still_frozen(back)


def assert_still_frozen(value: object) -> None:
    assert type(value) not in (dict, list)
    if attrs.has(type(value)):
        for field in attrs.fields(type(value)):
            assert_still_frozen(getattr(value, field.name))
    elif isinstance(value, tuple | FrozenList):
        for item in value:
            assert_still_frozen(item)
    elif isinstance(value, FrozenDict):
        for item in value.values():
            assert_still_frozen(item)


def test_equality_of_entries_leaves_the_time_and_the_exception_out():
    call = ToolCall("c", "f", {})
    a = ToolResultEntry(0, 0, NOW, (), call, ToolOutcome.ABORTED, error=ValueError("a"))
    b = ToolResultEntry(0, 0, NOW.replace(year=2027), (), call, ToolOutcome.ABORTED)

    assert a == b
    assert a != attrs.evolve(a, seq=1)
    assert StopEntry(0, 0, NOW, StoppedByFinish(1)) != StopEntry(0, 0, NOW, StoppedByFinish(2))
    assert hash(StopEntry(0, 0, NOW, None)) == hash(StopEntry(0, 0, NOW.replace(year=2027), None))


@pytest.mark.parametrize("outcome", ToolOutcome)
def test_every_outcome_but_done_is_an_error_also_when_it_is_given_as_text(outcome):
    call = ToolCall("c", "f", {})

    for given_outcome in (outcome, str(outcome)):
        entry = ToolResultEntry(0, 0, NOW, (), call, given_outcome)
        assert entry.is_error == (outcome != "done")


LONG = "x" * 100_000
LONG_VALUES = [
    TextBlock(LONG),
    Image(PNG + LONG.encode()),
    File(LONG.encode()),
    ToolCall("c", "f", {"a": LONG}),
    ToolCall("c", "f", None, LONG),
    ToolResultBlock("c", (TextBlock(LONG),)),
    ThinkingBlock(LONG, LONG, "p", {"a": LONG}),
    RawBlock("p", {"a": LONG}),
    Message.user(LONG, Image(PNG + LONG.encode())),
    Reply((TextBlock(LONG),)),
    StoppedByFinish(LONG),
    Exchange(LONG, LONG),
    ModelReplyEntry(0, 1, NOW, Reply((TextBlock(LONG),))),
    ExtraDataEntry(0, 0, NOW, freeze({"a": LONG})),
]


@pytest.mark.parametrize("value", LONG_VALUES, ids=lambda value: type(value).__name__)
def test_the_repr_is_short_whatever_the_value_holds(value):
    assert len(repr(value)) < 2_000


def test_the_repr_of_an_image_shows_type_and_size_and_no_data():
    assert "image/png" in repr(Image(PNG))
    assert "18 B" in repr(Image(PNG))
    assert "xxxx" not in repr(Message.user("a", Image(PNG), File(b"xxxxx")))

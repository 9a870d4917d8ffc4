"""Every value class: its fields, and that it is frozen, slotted, short to look at, and the same after JSON."""

from __future__ import annotations

import ast
import copy
import enum
import itertools
import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import attrs
import pytest

import alpineagents
from alpineagents import (
    AgentInfo,
    ContextChange,
    ContextChangeEntry,
    Entry,
    ErrorEntry,
    Exchange,
    ExchangeEntry,
    ExtraDataEntry,
    File,
    Image,
    Message,
    MessageEntry,
    ModelEvent,
    ModelEventEntry,
    ModelReplyEntry,
    ModelRequestEntry,
    Price,
    RawBlock,
    Reply,
    Request,
    RunStartEntry,
    State,
    StateInfo,
    StopEntry,
    Stopped,
    StoppedByBudget,
    StoppedByFinish,
    StoppedByLimit,
    StoppedByPermission,
    StoppedByUntil,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolCall,
    ToolOutcome,
    ToolResultBlock,
    ToolResultEntry,
    ToolSpec,
    Usage,
    freeze,
)
from alpineagents.record._codec import decode_entry, decode_info, encode_entry, encode_info

AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
PNG = b"\x89PNG\r\n\x1a\n"
LONG = "long " * 20_000
CALL = ToolCall("c1", "read", {"path": "a"})
BASE = {"seq": 1, "turn": 1, "at": AT}

FIELDS: dict[type, dict[str, Any]] = {
    TextBlock: {"text": LONG},
    Image: {"data": PNG + LONG.encode()},
    File: {"data": LONG.encode(), "media_type": "text/csv", "name": "a.csv"},
    ToolCall: {"id": "c1", "name": "read", "args": {"path": LONG}, "raw_args": None},
    ToolResultBlock: {"call_id": "c1", "content": (TextBlock(LONG), Image(PNG)), "is_error": True},
    ThinkingBlock: {"text": LONG, "signature": LONG, "provider": "p", "raw": {"a": LONG}},
    RawBlock: {"provider": "p", "raw": [LONG, {"a": 1}]},
    Message: {"role": "assistant", "blocks": (TextBlock(LONG), CALL), "cut_off": True},
    Reply: {
        "blocks": (TextBlock(LONG),),
        "model": "m",
        "stop_reason": "length",
        "usage": Usage(1, 2, requests=1),
        "cut_off": True,
        "refusal": True,
    },
    Usage: {
        "input_tokens": 10,
        "output_tokens": 9,
        "cache_read_tokens": 3,
        "cache_write_tokens": 2,
        "thinking_tokens": 4,
        "requests": 1,
        "cost": Decimal("0.25"),
    },
    Price: {"input": Decimal(3), "output": Decimal(15), "cache_read": None, "cache_write": Decimal(4)},
    StoppedByUntil: {"name": LONG},
    StoppedByLimit: {"turns": 3},
    StoppedByFinish: {"answer": {"a": LONG}},
    StoppedByPermission: {"call": CALL, "permission": LONG},
    StoppedByBudget: {"what": "cost", "limit": "0.50", "used": "0.51"},
    Exchange: {"question": LONG, "answer": {"a": [LONG]}},
    ContextChange: {
        "kind": "compact",
        "messages": (Message.user(LONG),),
        "summary": LONG,
        "covers": 3,
        "cleared": ("c1", "c2"),
        "restored_to": 4,
        "tokens_before": 900,
        "tokens_after": 90,
        "usage": Usage(1, requests=1),
    },
    ModelEvent: {"kind": "retry", "text": LONG, "data": {"after": 1.5}},
    AgentInfo: {
        "name": "reader",
        "model": "fake/m",
        "system_sha256": "ab" * 32,
        "tools": ("a", "b"),
        "mcp_servers": ("m",),
    },
    StateInfo: {
        "id": "bug-1",
        "first_message": LONG,
        "created_at": AT,
        "updated_at": AT,
        "turn": 3,
        "stopped": StoppedByLimit(3),
        "finished": False,
        "parent_id": "other",
    },
    ToolSpec: {"name": "read", "description": LONG, "input_schema": {"type": "object"}},
    TextDelta: {"text": LONG},
    ThinkingDelta: {"text": LONG},
    Request: {
        "messages": (Message.user("x"),),
        "system": LONG,
        "tools": (),
        "tool_choice": "auto",
        "returns": {"type": "object"},
        "cache": False,
        "metadata": {"user": "u"},
    },
    MessageEntry: BASE | {"content": Message.user(LONG)},
    ModelRequestEntry: BASE | {"content": "fake/m", "tools": ("read",)},
    ModelReplyEntry: BASE | {"content": Reply((TextBlock(LONG),))},
    ModelEventEntry: BASE | {"content": ModelEvent("retry", LONG), "usage": Usage(1)},
    ToolResultEntry: BASE
    | {
        "content": (TextBlock(LONG),),
        "call": CALL,
        "outcome": ToolOutcome.ERROR,
        "child_ids": ("child",),
        "usage": Usage(1),
        "decided_by": "Allow()",
        "late": True,
        "full": (TextBlock(LONG),),
        "error": None,
    },
    ExchangeEntry: BASE | {"kind": "human", "content": Exchange("q", LONG), "usage": Usage(1)},
    ContextChangeEntry: BASE | {"content": ContextChange(kind="compact", summary=LONG)},
    RunStartEntry: BASE | {"content": AgentInfo(model="m"), "parent_id": "parent", "parent_call_id": "c1"},
    StopEntry: BASE | {"content": StoppedByFinish(LONG)},
    ExtraDataEntry: BASE | {"content": freeze({"a": LONG}), "removed": ("b",)},
    ErrorEntry: BASE | {"content": LONG, "action": "think", "call": CALL, "usage": Usage(1), "error": None},
}
"""Every class, with all its fields, in their order."""

ENTRIES = [cls for cls in get_args(Entry) if cls in FIELDS]
UNHASHABLE = {
    *(ToolCall, ThinkingBlock, RawBlock, Message, StoppedByFinish, StoppedByPermission, Exchange, ModelEvent),
    *(ToolSpec, Request, ModelEventEntry, ToolResultEntry, ExtraDataEntry, ErrorEntry),
}
"""Those that hold a dict or a list here, which have no hash."""


def made(cls: type, **other: object) -> Any:
    """A value of *cls*, with all its fields given by keyword."""
    return cls(**FIELDS[cls] | other)


each_class = pytest.mark.parametrize("cls", FIELDS, ids=lambda cls: cls.__name__)


# What they all share


@each_class
def test_a_value_is_made_by_keyword_and_has_just_these_fields(cls):
    value = made(cls)

    given = [field.name for field in attrs.fields(cls) if field.init]
    assert given == list(FIELDS[cls])
    for name, content in FIELDS[cls].items():
        assert getattr(value, name) == content


@each_class
def test_a_value_can_not_be_changed_and_takes_no_more_attributes(cls):
    value = made(cls)

    assert not hasattr(value, "__dict__")
    for name in (*FIELDS[cls], "other"):
        with pytest.raises(AttributeError):
            setattr(value, name, None)
        with pytest.raises(AttributeError):
            delattr(value, name)
    assert value == made(cls)


@each_class
def test_a_value_is_short_to_look_at_whatever_it_holds(cls):
    shown = repr(made(cls))

    assert shown.startswith(f"{cls.__name__}(")
    assert len(shown) < 3_000
    assert len(shown.splitlines()) == 1


def test_long_text_is_shown_by_its_beginning_and_length_and_anything_else_by_its_beginning():
    text, longer = "x" * 200, "x" * 201
    items, more = ["y" * 20] * 41 + ["y" * 12], ["y" * 20] * 41 + ["y" * 13]
    assert len(repr(items)) == 1_000

    assert repr(TextBlock(text)) == f"TextBlock(text={text!r})"
    assert repr(TextBlock(longer)) == f"TextBlock(text={text!r}... (201 characters))"
    assert repr(StoppedByFinish(items)) == f"StoppedByFinish(answer={items!r})"
    assert repr(StoppedByFinish(more)) == f"StoppedByFinish(answer={repr(more)[:1_000]}...)"
    assert repr(StoppedByLimit(3)) == "StoppedByLimit(turns=3)"


@each_class
def test_a_value_is_equal_to_one_of_equal_content_and_to_nothing_else(cls):
    value = made(cls)

    assert value == made(cls)
    assert value != tuple(FIELDS[cls].values())
    assert value != FIELDS[cls]
    assert value is not None
    assert value != attrs.make_class(cls.__name__, list(FIELDS[cls]))(**FIELDS[cls])


@each_class
def test_a_value_has_a_hash_where_its_content_has(cls):
    if cls in UNHASHABLE:
        with pytest.raises(TypeError, match="unhashable"):
            hash(made(cls))
    else:
        assert len({made(cls), made(cls)}) == 1


def test_values_without_a_dict_or_list_in_them_have_a_hash_though_others_of_the_class_have_none():
    for value in (
        ToolCall("c1", "read", None, '{"a'),
        ThinkingBlock("hm"),
        RawBlock("p", "x"),
        Message.user("x", Image(PNG)),
        StoppedByFinish(3),
        Exchange("q", "a"),
        ErrorEntry(0, 0, AT, "x"),
    ):
        assert hash(value) == hash(copy.copy(value)) == hash(pickle.loads(pickle.dumps(value)))


@each_class
def test_a_copy_however_deep_is_the_value_itself(cls):
    value = made(cls)

    assert copy.copy(value) is value
    assert copy.deepcopy(value) is value
    assert copy.deepcopy({"a": [value]})["a"][0] is value


@each_class
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickled_value_comes_back_equal_and_frozen(cls, protocol):
    value = made(cls)

    back = pickle.loads(pickle.dumps(value, protocol))

    assert back == value
    assert repr(back) == repr(value)
    with pytest.raises(AttributeError):
        setattr(back, next(iter(FIELDS[cls])), None)


def test_every_field_says_what_it_holds():
    """Below it, as a text of its own."""
    silent = []
    for path in (Path(alpineagents.__file__).parent / "record").glob("*.py"):
        for cls in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(cls, ast.ClassDef) and cls.name in alpineagents.record.__all__:
                for field, below in itertools.pairwise([*cls.body, ast.Pass()]):
                    if isinstance(field, ast.AnnAssign) and not ast.unparse(field.annotation).startswith("ClassVar"):
                        documented = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
                        silent += [] if documented else [f"{cls.name}.{ast.unparse(field.target)}"]

    assert silent == []


DEFAULTS: dict[type, dict[str, Any]] = {
    File: {"media_type": "text/plain", "name": "document"},
    ToolCall: {"raw_args": None},
    ToolResultBlock: {"is_error": False},
    ThinkingBlock: {"signature": None, "provider": None, "raw": None},
    Message: {"cut_off": False},
    Reply: {"model": "", "stop_reason": None, "usage": Usage(), "cut_off": False, "refusal": False},
    Usage: dict.fromkeys(FIELDS[Usage], 0),
    Price: {"cache_read": None, "cache_write": None},
    StoppedByFinish: {"answer": None},
    ContextChange: dict.fromkeys(("summary", "covers", "restored_to", "tokens_before", "tokens_after"))
    | {"messages": (), "cleared": (), "usage": Usage()},
    ModelEvent: {"text": "", "data": {}},
    AgentInfo: {"name": None, "model": "", "system_sha256": None, "tools": (), "mcp_servers": ()},
    StateInfo: dict.fromkeys(("first_message", "created_at", "updated_at", "stopped", "parent_id"))
    | {"turn": 0, "finished": False},
    Request: {"system": None, "tools": (), "tool_choice": "auto", "returns": None, "cache": True, "metadata": {}},
    ModelRequestEntry: {"tools": None},
    ModelEventEntry: {"usage": Usage()},
    ToolResultEntry: dict.fromkeys(("decided_by", "full", "error"))
    | {"outcome": "done", "child_ids": (), "usage": Usage(), "late": False},
    ExchangeEntry: {"usage": Usage()},
    RunStartEntry: {"parent_id": None, "parent_call_id": None},
    ExtraDataEntry: {"removed": ()},
    ErrorEntry: {"action": "run", "call": None, "usage": Usage(), "error": None},
}
"""What a field holds that was left out. All others have to be given."""


@each_class
def test_what_is_left_out_has_its_default_and_nothing_else_can_be_left_out(cls):
    defaults = DEFAULTS.get(cls, {})
    needed = {name: value for name, value in FIELDS[cls].items() if name not in defaults}

    value = cls(**needed)

    assert {name: getattr(value, name) for name in defaults} == defaults
    for name in needed:
        with pytest.raises(TypeError, match=name):
            cls(**{other: content for other, content in needed.items() if other != name})


# JSON


def holder(value: Any) -> Entry:
    """An entry that holds *value*: what is saved is entries."""
    match value:
        case TextBlock() | Image() | File():
            return made(ToolResultEntry, content=(value,))
        case ToolCall() | ToolResultBlock() | ThinkingBlock() | RawBlock():
            return made(ModelReplyEntry, content=Reply((value,)))
        case Message():
            return made(ContextChangeEntry, content=ContextChange(kind="import", messages=(value,)))
        case Reply():
            return made(ModelReplyEntry, content=value)
        case Usage():
            return made(ModelReplyEntry, content=Reply((), usage=value))
        case Exchange():
            return made(ExchangeEntry, content=value)
        case ContextChange():
            return made(ContextChangeEntry, content=value)
        case ModelEvent():
            return made(ModelEventEntry, content=value)
        case AgentInfo():
            return made(RunStartEntry, content=value)
        case _ if isinstance(value, get_args(Stopped)):
            return made(StopEntry, content=value)
        case _:
            assert isinstance(value, tuple(ENTRIES))
            return value


def types_of(value: object) -> object:
    """The exact types in a value, at every depth."""
    if attrs.has(type(value)):
        fields = [field.name for field in attrs.fields(type(value)) if field.name != "error"]
        return type(value), {name: types_of(getattr(value, name)) for name in fields}
    if isinstance(value, dict):
        return type(value), {(type(key), key): types_of(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value), [types_of(item) for item in value]
    return type(value)


def assert_saved_as_it_is(value: Any) -> None:
    if isinstance(value, StateInfo):
        back: Any = decode_info(encode_info(value))
    else:
        value = holder(value)
        back = decode_entry(encode_entry(value))
    assert back == value
    assert types_of(back) == types_of(value)


SAVED = [cls for cls in FIELDS if cls not in (Price, Request, TextDelta, ThinkingDelta, ToolSpec)]


@pytest.mark.parametrize("cls", SAVED, ids=lambda cls: cls.__name__)
def test_a_value_is_the_same_after_json(cls):
    assert_saved_as_it_is(made(cls))


class Text(str):
    """Text that says something else when it is asked for its text."""

    def __str__(self) -> str:
        return "something else"


class Word(enum.StrEnum):
    A = "a"


class OldWord(str, enum.Enum):  # noqa: UP042  # as it was written before StrEnum
    A = "a"


class Number(enum.IntEnum):
    ONE = 1


ODD = [
    *(None, True, 0, -1, 1.5, Number.ONE, 10**30, "", "x", Text("x"), Word.A, OldWord.A, b"x"),
    *("\ud83d", "\ud83d\ude00", float("nan"), Decimal("NaN"), Decimal("0.5"), AT, object(), [], ["x"], [1]),
    *(("a", Word.A), {}, {"a": 1}, {1}, Usage(), Message.user("x"), len),
]
FROM_OUTSIDE = [
    cls for cls in SAVED[: SAVED.index(AgentInfo) + 1] if cls not in (Image, StoppedByLimit, StoppedByPermission)
]
"""What users and their Models and tools make. Entries are made by the library."""


@pytest.mark.parametrize("cls", FROM_OUTSIDE, ids=lambda cls: cls.__name__)
def test_whatever_a_field_is_given_it_is_refused_or_the_same_after_json(cls):
    """Else a State runs, is saved, and can't be loaded any more; or it holds other types when it is."""
    refused = taken = 0
    for field in attrs.fields(cls):
        if not field.init or (cls, field.name) in LIBRARYS_OWN:
            continue
        for odd in ODD:
            try:
                value = made(cls, **{field.name: odd})
            except (TypeError, ValueError):
                refused += 1
                continue
            taken += 1
            assert_saved_as_it_is(value)

    assert refused
    assert taken


LIBRARYS_OWN = {(ContextChange, name) for name in ("messages", "covers", "restored_to", "tokens_before")}
LIBRARYS_OWN |= {(ContextChange, name) for name in ("tokens_after", "usage")}


@pytest.mark.parametrize("text", [Word.A, OldWord.A, Text("a")], ids=["StrEnum", "Enum", "str"])
def test_ids_and_names_of_a_subclass_of_str_are_plain_text(text):
    call = ToolCall(text, text, None, text)
    for value in (
        *(call.id, call.name, call.raw_args),
        *(ToolResultBlock(text, ()).call_id, ThinkingBlock("", text, text).signature, RawBlock(text, None).provider),
        *(Reply((), text, text).model, Reply((), text, text).stop_reason, Exchange(text, None).question),
        *(ModelEvent(text).kind, AgentInfo(name=text, tools=[text]).tools[0], StoppedByUntil(text).name),
        *(ModelRequestEntry(0, 1, AT, text, [text]).content, ModelRequestEntry(0, 1, AT, "m", [text]).tools[0]),
        *(ErrorEntry(0, 0, AT, text).content, made(ToolResultEntry, decided_by=text).decided_by),
        *(StoppedByPermission(CALL, text).permission, ContextChange(kind="compact", summary=text).summary),
    ):
        assert value == "a"
        assert type(value) is str


# Blocks


@pytest.mark.parametrize("make", [Image.from_base64, File.from_base64])
@pytest.mark.parametrize("text", ["aGVs*bG8=", "aGVs\nbG8=", " aGVsbG8=", "aGVsbG8", "data:text/plain;base64,aGVsbG8="])
def test_base64_is_one_piece_without_anything_else_in_it(make, text):
    with pytest.raises(ValueError, match="not base64"):
        make(text)


@pytest.mark.parametrize("media_type", [None, 3, b"text/csv", ["text/csv"]], ids=repr)
def test_a_media_type_that_is_no_text_is_a_type_error(media_type):
    with pytest.raises(TypeError, match="must be str"):
        File(b"a,b", media_type)


def test_the_type_of_an_image_can_not_be_said():
    with pytest.raises(TypeError):
        Image(PNG, "image/gif")
    with pytest.raises(TypeError):
        Image(data=PNG, media_type="image/png")


def test_files_are_made_from_base64_with_a_name():
    assert File.from_base64("JVBERi0xLjc=", name="a.pdf") == File(b"%PDF-1.7", "application/pdf", "a.pdf")
    assert File.from_base64("aGVsbG8=").name == "document"


def test_the_name_of_a_file_from_a_path_is_the_last_part_of_it(tmp_path):
    (tmp_path / "notes.txt").write_bytes(b"hello")

    assert File.from_path(tmp_path / "notes.txt").name == "notes.txt"


@pytest.mark.parametrize("shown", [Image(PNG + b"secret"), File(b"%PDF-secret", name="a.pdf")])
def test_the_repr_of_images_and_files_shows_type_and_size_and_never_their_data(shown):
    message = Message.user("see", shown)
    for value in (shown, message, made(MessageEntry, content=message), ToolResultBlock("c", (shown,))):
        assert shown.media_type in repr(value)
        assert f"{len(shown.data)} B" in repr(value)
        assert "secret" not in repr(value)


@pytest.mark.parametrize("is_error", [None, 0, 1, "yes"])
def test_whether_a_result_is_an_error_is_true_or_false(is_error):
    with pytest.raises(TypeError, match="not True or False"):
        ToolResultBlock("c", (), is_error)


# Messages


def test_only_what_your_code_said_is_a_notice_and_only_what_compact_left_a_summary():
    notice, summary = Message.notice("x").text, Message.summary("x").text

    for text in (notice, summary):
        assert not Message.assistant(text).is_notice
        assert not Message.assistant(text).is_summary
        assert not Message("user", (Image(PNG), TextBlock(text))).is_notice
    assert not Message.user("x [notice] y").is_notice
    assert not Message("user", (Image(PNG),)).is_notice
    assert not Message("user", ()).is_summary


def test_a_summary_and_a_notice_are_known_by_how_they_begin():
    assert Message.summary("x").is_summary
    assert Message.notice("x").is_notice
    assert not Message.summary("x").is_notice
    assert not Message.notice("x").is_summary


def test_a_notice_given_with_its_prefix_is_the_same_notice():
    assert Message.notice("[notice] [notice]  x").text == "[notice]  x"
    assert Message.notice("[notice]x").text == "[notice] [notice]x"


@pytest.mark.parametrize("make", [Message.user, Message.notice, Message.assistant])
def test_text_of_a_subclass_is_the_text_it_holds_as_a_plain_str(make):
    for text in (Text("x"), Word.A, OldWord.A):
        made_text = make(text).blocks[0].text
        assert type(made_text) is str
        assert made_text.removeprefix("[notice] ") == ("x" if isinstance(text, Text) else "a")


def test_a_role_of_a_subclass_is_plain_text():
    class Role(enum.StrEnum):
        USER = "user"

    assert type(Message(Role.USER, (TextBlock("x"),)).role) is str


# Usage


@pytest.mark.parametrize("field", [field.name for field in attrs.fields(Usage) if field.name != "cost"])
@pytest.mark.parametrize("count", [None, "1", 1.0, True, Decimal(1), Number.ONE], ids=repr)
def test_a_count_of_usage_is_an_int_and_the_field_is_named(field, count):
    with pytest.raises(TypeError, match=f"^{field} must be an int, not {type(count).__name__}"):
        Usage(**{field: count})


@pytest.mark.parametrize(("cost", "exact"), [(0.1, "0.1"), ("0.25", "0.25"), (3, "3"), (Decimal("1E-7"), "1E-7")])
def test_a_cost_is_exactly_what_was_written(cost, exact):
    usage = Usage(cost=cost)

    assert type(usage.cost) is Decimal
    assert str(usage.cost) == exact
    assert (usage + Usage(cost=Decimal(1))).cost == Decimal(exact) + 1


@pytest.mark.parametrize("cost", [float("nan"), "Infinity", Decimal("NaN"), Decimal("-Infinity"), "free", True, b"1"])
def test_a_cost_that_is_no_finite_number_is_refused(cost):
    with pytest.raises(ValueError, match="US dollars"):
        Usage(cost=cost)


def test_usage_of_nothing_is_zero_and_costs_nothing():
    assert Usage() == Usage(0, 0, 0, 0, 0, 0, Decimal(0))


def test_an_unknown_cost_is_unknown_in_every_sum_and_the_rest_adds_up():
    total = sum([Usage(1, cost=None), Usage(2, 1, cost=Decimal(1)), Usage(0, 0, 0, 0, 0, 3)], Usage())

    assert total == Usage(3, 1, requests=3, cost=None)


@pytest.mark.parametrize("usage", [None, {}, Decimal(1), (1, 2)], ids=repr)
def test_what_a_reply_used_is_a_usage(usage):
    with pytest.raises(TypeError, match="must be a Usage"):
        Reply((), usage=usage)


@pytest.mark.parametrize("name", ["cut_off", "refusal"])
@pytest.mark.parametrize("value", [None, 1, "length"], ids=repr)
def test_what_a_reply_says_of_its_end_is_true_or_false(name, value):
    with pytest.raises(TypeError, match="not True or False"):
        Reply((), **{name: value})
    with pytest.raises(TypeError, match="not True or False"):
        Message("assistant", (), value)


@pytest.mark.parametrize("name", ["input", "output", "cache_read", "cache_write"])
@pytest.mark.parametrize("price", [-1, "-0.01", float("nan"), "Infinity", "free", [], Decimal("sNaN")], ids=repr)
def test_a_price_is_a_number_of_dollars_from_zero_on(name, price):
    with pytest.raises(ValueError, match="US dollars"):
        made(Price, **{name: price})


def test_every_price_is_exact_however_it_is_written():
    price = Price(3, "0.25", 0.1, Decimal("1E-7"))

    assert [str(getattr(price, name)) for name in FIELDS[Price]] == ["3", "0.25", "0.1", "1E-7"]
    assert Price(0, 0).cost(Usage(10, 10)) == 0


@pytest.mark.parametrize(
    ("cls", "field"), [(ToolSpec, "input_schema"), (Request, "returns"), (Request, "metadata"), (ModelEvent, "data")]
)
def test_what_a_model_is_told_is_frozen_json(cls, field):
    given = {"a": [1, (2,)]}
    held = getattr(made(cls, **{field: given}), field)
    given["a"].append(3)

    assert held == {"a": [1, [2]]}
    with pytest.raises(TypeError, match="read-only"):
        held["a"].append(4)
    for wrong in ([], "x", {"a": {1}}):
        with pytest.raises(TypeError, match=r"must be a dict|set is not JSON"):
            made(cls, **{field: wrong})


# Outcomes, stops and changes


def test_the_outcomes_are_these_texts():
    assert list(ToolOutcome) == ["done", "error", "input_error", "aborted", "interrupted", "denied", "cancelled"]
    assert issubclass(ToolOutcome, enum.StrEnum)
    with pytest.raises(ValueError, match="great"):
        made(ToolResultEntry, outcome="great")


def test_what_can_stop_a_run_are_these_five():
    assert get_args(Stopped) == (
        StoppedByUntil,
        StoppedByLimit,
        StoppedByFinish,
        StoppedByPermission,
        StoppedByBudget,
    )


@pytest.mark.parametrize(
    ("cls", "field", "legal"),
    [
        (ContextChange, "kind", ["import", "compact", "clear_tool_results", "restore"]),
        (ExchangeEntry, "kind", ["ask", "human"]),
        (ErrorEntry, "action", ["think", "use_tools", "ask", "compact", "run"]),
    ],
    ids=["ContextChange", "ExchangeEntry", "ErrorEntry"],
)
def test_a_word_that_is_none_of_the_legal_ones_is_refused(cls, field, legal):
    for word in legal:
        assert getattr(made(cls, **{field: word}), field) == word
    for word in ("", "imports", None, 3):
        with pytest.raises(ValueError, match=f"{field} must be one of {', '.join(legal)}"):
            made(cls, **{field: word})


def test_the_messages_and_ids_of_a_change_are_tuples_whatever_they_were_given_in():
    messages, cleared = [Message.user("x")], ["c1"]

    change = ContextChange(kind="import", messages=messages, cleared=cleared)
    messages.clear()
    cleared.clear()

    assert (change.messages, change.cleared) == ((Message.user("x"),), ("c1",))


def test_the_names_of_an_agents_tools_and_servers_are_sorted_tuples():
    info = AgentInfo(tools=["write", "read", "add"], mcp_servers=(name for name in "ba"))

    assert (info.tools, info.mcp_servers) == (("add", "read", "write"), ("a", "b"))
    assert AgentInfo() == AgentInfo(name=None, model="", system_sha256=None, tools=(), mcp_servers=())
    for names in ("read", [3], None):
        with pytest.raises(TypeError):
            AgentInfo(tools=names)


# Entries


def test_each_class_of_entry_has_its_kind():
    kinds = {cls.__name__: made(cls).kind for cls in ENTRIES}

    assert kinds == {
        "MessageEntry": "user",
        "ModelRequestEntry": "model_request",
        "ModelReplyEntry": "model_reply",
        "ModelEventEntry": "model_event",
        "ToolResultEntry": "tool_result",
        "ExchangeEntry": "human",
        "ContextChangeEntry": "context_change",
        "RunStartEntry": "run_start",
        "StopEntry": "stop",
        "ExtraDataEntry": "extra_data",
        "ErrorEntry": "error",
    }
    assert made(MessageEntry, content=Message.notice("x")).kind == "notice"


@pytest.mark.parametrize("cls", ENTRIES, ids=lambda cls: cls.__name__)
def test_the_kind_of_an_entry_can_not_be_given_where_its_class_says_it(cls):
    if cls is not ExchangeEntry:
        with pytest.raises(TypeError, match="kind"):
            made(cls, kind="other")


@pytest.mark.parametrize("cls", ENTRIES, ids=lambda cls: cls.__name__)
def test_time_and_exception_of_an_entry_do_not_count_and_everything_else_does(cls):
    entry = made(cls)
    other = {"error": ValueError("x")} if "error" in FIELDS[cls] else {}

    again = made(cls, at=AT + timedelta(hours=1), **other)
    assert again == entry
    assert cls in UNHASHABLE or hash(again) == hash(entry)
    for name in FIELDS[cls]:
        if name not in ("at", "error"):
            assert changed(entry, name) != entry, name


def changed(entry: Any, name: str) -> Any:
    """The entry with another value in one field."""
    others: dict[tuple[type, str], object] = {
        (MessageEntry, "content"): Message.user("other"),
        (ModelReplyEntry, "content"): Reply(()),
        (ModelEventEntry, "content"): ModelEvent("other"),
        (ToolResultEntry, "content"): (),
        (ToolResultEntry, "outcome"): ToolOutcome.DENIED,
        (ToolResultEntry, "late"): False,
        (ToolResultEntry, "full"): None,
        (ExchangeEntry, "kind"): "ask",
        (ExchangeEntry, "content"): Exchange("q", "other"),
        (ContextChangeEntry, "content"): ContextChange(kind="restore"),
        (RunStartEntry, "content"): AgentInfo(name="other"),
        (StopEntry, "content"): None,
        (ExtraDataEntry, "content"): freeze({"other": 1}),
        (ErrorEntry, "action"): "run",
    }
    by_name: dict[str, object] = {
        "seq": 2,
        "turn": 2,
        "usage": Usage(2),
        "call": ToolCall("other", "read", {}),
        "tools": None,
        "child_ids": (),
        "removed": (),
    }
    return attrs.evolve(entry, **{name: others.get((type(entry), name), by_name.get(name, "other"))})


@pytest.mark.parametrize("cls", [ToolResultEntry, ErrorEntry])
def test_the_exception_of_an_entry_is_there_to_be_asked_for_and_not_shown(cls):
    error = ValueError("secret")
    entry = made(cls, error=error)

    assert entry.error is error
    assert "secret" not in repr(entry)
    assert b"secret" not in encode_entry(entry)


@pytest.mark.parametrize("digits", [0, 1, 500_000, 999_999])
def test_the_time_of_an_entry_is_utc_when_it_is_loaded_whatever_zone_it_was_written_in(digits):
    at = AT.replace(microsecond=digits)
    written = encode_entry(made(StopEntry, at=at.astimezone(timezone(timedelta(hours=-3.5)))))

    back = decode_entry(written)

    assert back.at == at
    assert back.at.tzinfo is UTC


def test_the_entries_of_a_state_have_utc_times_and_their_positions():
    state = State(messages=[Message.user("x")], extra_data={"a": 1})
    state.add_message(Message.notice("y"))
    state.finish(1)

    assert [entry.seq for entry in state.history] == [0, 1, 2, 3]
    assert {entry.at.tzinfo for entry in state.history} == {UTC}
    assert state.created_at is state.history[0].at
    assert state.updated_at is state.history[-1].at


@pytest.mark.parametrize("change", [lambda state: state.add_message(Message.user("x")), lambda state: state.finish(1)])
def test_states_that_did_the_same_at_other_times_are_equal(change: Callable[[State], object]):
    one, two = State(), State()
    for state in (one, two):
        change(state)

    assert one.history[0].at <= two.history[0].at
    assert one.history == two.history
    assert one.snapshot() == two.snapshot()


@pytest.mark.parametrize("notes", [{"a": [1]}, {"a": ({"b": 1},)}], ids=repr)
def test_a_note_is_frozen_whoever_makes_its_entry(notes):
    state = State(history=[ExtraDataEntry(0, 0, AT, notes, ["b"])])

    with pytest.raises(TypeError, match="read-only"):
        state.extra_data["a"].append(2)
    assert state.history[0].removed == ("b",)
    with pytest.raises(TypeError, match=r'^extra_data\["a"\]: set is not JSON'):
        ExtraDataEntry(0, 0, AT, {"a": {1}})

"""The table of what freezes and what doesn't, at every depth and in every kind of value, and what frozen values do."""

from __future__ import annotations

import copy
import dataclasses
import enum
import fractions
import ipaddress
import itertools
import json
import operator
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, MutableSequence, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Annotated, Any, NamedTuple
from uuid import UUID

import attrs
import orjson
import pydantic
import pytest
import typing_extensions

from alpineagents import Message, State, ToolCall, freeze
from alpineagents.record import FrozenDict, FrozenList
from alpineagents.record._codec import decode_history, encode_entry

from ..record.test_replay import calls_made_by

# Wrappers: each puts a value one level deeper, and adds a piece to its path.


@attrs.frozen
class Attrs:
    x: Any


@attrs.define
class OpenAttrs:
    x: Any = None


@dataclasses.dataclass
class Data:
    x: Any


@dataclasses.dataclass(slots=True)
class SlottedData:
    x: Any


class Model(pydantic.BaseModel):
    x: Any


class Computed(pydantic.BaseModel):
    """Pydantic writes it, not the library, since it says itself how."""

    x: Any

    @pydantic.computed_field
    @property
    def size(self) -> int:
        return 1


class Pair(NamedTuple):
    first: Any
    second: Any = 0


class Plain(enum.Enum):
    RED = "red"


class Word(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Flags(enum.IntFlag):
    A = 1
    B = 2


class RealEnum(float, enum.Enum):
    HALF = 0.5


class Whole64:
    """A number of another library that is no int."""

    def __int__(self) -> int:
        return 3

    __index__ = __int__


class Whole(int):
    """A whole number that is an int."""


class Float64(float):
    """A number of another library that is a float."""

    def __repr__(self) -> str:
        return f"float64({float.__repr__(self)})"


WRAPS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "list": (lambda x: [0, x], "[1]"),
    "tuple": (lambda x: (x,), "[0]"),
    "NamedTuple": (lambda x: Pair(0, x), "[1]"),
    "dict": (lambda x: {"k": x}, '["k"]'),
    "attrs": (Attrs, ".x"),
    "dataclass": (Data, ".x"),
    "slotted dataclass": (SlottedData, ".x"),
    "Pydantic": (lambda x: Model(x=x), ".x"),
}
CLASSES = {"attrs", "dataclass", "slotted dataclass", "Pydantic"}
in_each = pytest.mark.parametrize("wrap", WRAPS)
TWO_DEEP = list(itertools.product(WRAPS, repeat=2))


def wrapped(value: object, *wraps: str) -> tuple[Any, str]:
    """The value inside of *wraps*, the first outermost, and the path to it."""
    path = ""
    for name in reversed(wraps):
        wrap, piece = WRAPS[name]
        value, path = wrap(value), piece + path
    return value, path


def inner(frozen: Any, *wraps: str) -> Any:
    """What lies inside of *wraps* in a frozen value."""
    for name in wraps:
        frozen = frozen[{"[0]": 0, "[1]": 1, '["k"]': "k", ".x": "x"}[WRAPS[name][1]]]
    return frozen


def assert_plain(value: object) -> None:
    """The exact types of the JSON form, at every depth."""
    if type(value) is FrozenDict:
        assert {type(key) for key in value} <= {str}
        for item in value.values():
            assert_plain(item)
    elif type(value) is FrozenList:
        for item in value:
            assert_plain(item)
    else:
        assert value is None or type(value) in (bool, int, float, str)


# What is taken everywhere


TAKEN: dict[str, tuple[object, object]] = {
    "None": (None, None),
    "True": (True, True),
    "0": (0, 0),
    "a long int": (-(2**64), -(2**64)),
    "an int of 4300 digits": (10**4299, 10**4299),
    "the longest int": (10**4300 - 1, 10**4300 - 1),
    "-0.0": (-0.0, -0.0),
    "the least float": (5e-324, 5e-324),
    "a lone surrogate": ("x\ud83d", "x\ud83d"),
    "two halves of a character": ("\ud83d\ude00", "\U0001f600"),
    "NUL": ("\x00", "\x00"),
    "no text": ("", ""),
    "StrEnum": (Word.RED, "red"),
    "IntEnum": (Level.HIGH, 3),
    "IntFlag": (Flags.A | Flags.B, 3),
    "float Enum": (RealEnum.HALF, 0.5),
    "a float of another library": (Float64(1.5), 1.5),
    "NamedTuple": (Pair(1, (2,)), [1, [2]]),
    "empty": ([{}, [], ()], [{}, [], []]),
    "keys of a StrEnum": ({Word.RED: 1}, {"red": 1}),
    "no key": ({"": 1}, {"": 1}),
    "a key with a lone surrogate": ({"\udc00": 1}, {"\udc00": 1}),
}
taken = pytest.mark.parametrize("name", TAKEN)


@taken
def test_what_has_a_json_form_has_the_same_one_at_every_depth(name):
    given, frozen = TAKEN[name]

    for wraps in [(), *TWO_DEEP]:
        result = freeze(wrapped(given, *wraps)[0])

        assert repr(inner(result, *wraps)) == repr(frozen), wraps
        assert_plain(result)


@taken
def test_live_and_loaded_values_are_the_same(name):
    given, _ = TAKEN[name]
    state = State(extra_data={"x": given})
    state.finish(given)

    loaded = State(history=decode_history([encode_entry(entry) for entry in state.history]))

    assert repr(loaded.extra_data) == repr(state.extra_data)
    assert repr(loaded.answer) == repr(state.answer)
    for value in (state.answer, loaded.answer, state.extra_data, loaded.extra_data):
        assert_plain(value)


# What is taken inside a class only


IN_CLASS: dict[str, tuple[object, object]] = {
    "datetime": (datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), "2026-01-02T03:04:05.000006+00:00"),
    "datetime without a zone": (datetime(2026, 1, 2), "2026-01-02T00:00:00"),
    "date": (date(2026, 1, 2), "2026-01-02"),
    "time": (time(3, 4, 5), "03:04:05"),
    "Enum": (Plain.RED, "red"),
    "Enum of a list": (enum.Enum("Lists", {"A": [1, (2,)]}).A, [1, [2]]),
    "UUID": (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    "Path": (Path("a") / "b", "a/b"),
    "PurePosixPath": (PurePosixPath("/a"), "/a"),
    "PureWindowsPath": (PureWindowsPath("C:/a"), "C:\\a"),
    "Decimal": (Decimal("1.10"), "1.10"),
    "Decimal NaN": (Decimal("NaN"), "NaN"),
}
HINTS = dict.fromkeys(("datetime", "date", "time"), "x.isoformat()") | {"Enum": "x.value"}
HINTS |= dict.fromkeys(("UUID", "Path", "PurePosixPath", "PureWindowsPath", "Decimal"), "str(x)")
in_class = pytest.mark.parametrize("name", IN_CLASS)


@in_class
def test_values_with_one_obvious_text_are_taken_in_a_class_and_refused_bare(name):
    given, frozen = IN_CLASS[name]

    for wraps in [(), *TWO_DEEP]:
        value, path = wrapped(given, *wraps)
        if CLASSES.isdisjoint(wraps):
            with pytest.raises(TypeError) as caught:
                freeze(value, "x")
            assert str(caught.value) == f"x{path}: {type(given).__name__} is not JSON; use {HINTS[name.split()[0]]}"
        else:
            result = freeze(value, "x")
            assert inner(result, *wraps) == frozen, wraps
            assert_plain(result)


@attrs.frozen
class Sets:
    plain: set[int]
    frozen: frozenset[str]
    inside: dict[str, tuple[set[int], ...]]
    maybe: set[int] | None = None
    said_otherwise: Any = None


def test_sets_are_sorted_lists_only_in_fields_whose_type_says_set():
    letters = frozenset("qwertz")

    assert freeze(Sets({3, 1, 2}, letters, {"a": ({2, 1},)}, {9, 8})) == {
        "plain": [1, 2, 3],
        "frozen": sorted(letters),
        "inside": {"a": [[1, 2]]},
        "maybe": [8, 9],
        "said_otherwise": None,
    }
    for value, path in (({1}, ""), ([{1}], r"\[0\]"), ({"k": frozenset()}, r'\["k"\]')):
        with pytest.raises(TypeError, match=rf"^x\.said_otherwise{path}: (frozen)?set is not JSON; use a list$"):
            freeze(Sets(set(), frozenset(), {}, None, value), "x")


Tags = typing_extensions.TypeAliasType("Tags", set[str])  # type Tags = set[str], from Python 3.12 on


@dataclasses.dataclass
class Aliased:
    tags: Tags
    many: list[Tags]


def test_a_type_alias_of_a_set_says_set():
    assert freeze(Aliased({"b", "a"}, [{"d", "c"}])) == {"tags": ["a", "b"], "many": [["c", "d"]]}


def test_what_is_wrong_inside_a_set_is_named_by_its_place_in_it():
    with pytest.raises(TypeError, match=r"^x\.plain\[0\]: complex is not JSON"):
        freeze(Sets({1j}, frozenset(), {}), "x")


# What is refused everywhere


REFUSED: dict[str, tuple[object, type[Exception], str]] = {
    "nan": (float("nan"), TypeError, ": nan is not JSON; use None or text"),
    "inf": (float("inf"), TypeError, ": inf is not JSON; use None or text"),
    "-inf": (Float64("-inf"), TypeError, ": -inf is not JSON; use None or text"),
    "set": ({1}, TypeError, ": set is not JSON; use a list"),
    "frozenset": (frozenset(), TypeError, ": frozenset is not JSON; use a list"),
    "dict_keys": ({}.keys(), TypeError, ": dict_keys is not JSON; use a dict, list, str, number, bool or None"),
    "an iterator": (iter([1]), TypeError, ": list_iterator is not JSON; use a dict, list,"),
    "range": (range(2), TypeError, ": range is not JSON; use a dict, list,"),
    "a whole number that is no int": (Whole64(), TypeError, ": Whole64 is not JSON; use a dict, list,"),
    "an exception": (ValueError("x"), TypeError, ": ValueError is not JSON; use a dict, list,"),
    "a class": (int, TypeError, ": type is not JSON; use a dict, list,"),
    "a class of attrs": (Attrs, TypeError, ": type is not JSON; use a dict, list,"),
    "a key of None": ({None: 1}, TypeError, ": key None is NoneType, not str; write str(key)"),
    "a key of bool": ({True: 1}, TypeError, ": key True is bool, not str; write str(key)"),
    "a key of int": ({1: 1}, TypeError, ": key 1 is int, not str; write str(key)"),
    "a key of float": ({1.5: 1}, TypeError, ": key 1.5 is float, not str; write str(key)"),
    "a key of tuple": ({("a",): 1}, TypeError, ": key ('a',) is tuple, not str; write str(key)"),
    "a key of bytes": ({b"a": 1}, TypeError, ": key b'a' is bytes, not str; write str(key)"),
    "a key of Enum": ({Plain.RED: 1}, TypeError, ": key <Plain.RED: 'red'> is Plain, not str; write str(key)"),
    "a key of UUID": ({UUID(int=1): 1}, TypeError, ": key UUID('00000000-0000-0000-0000-000000000001')"[:40]),
    "an int of 4301 digits": (10**4300, ValueError, ": an integer of more than 4300 digits; use text"),
    "one below zero": (-(10**4300), ValueError, ": an integer of more than 4300 digits; use text"),
    "one of a class of its own": (Whole(10**4300), ValueError, ": an integer of more than 4300 digits; use text"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_json_form_is_refused_with_the_whole_path_and_what_to_write(name):
    value, kind, reason = REFUSED[name]

    for wraps in [(), *TWO_DEEP]:
        holder, path = wrapped(value, *wraps)
        with pytest.raises(kind) as caught:
            freeze(holder, "x")

        assert str(caught.value).startswith(f"x{path}{reason}")
        assert type(caught.value) is kind
        assert len(str(caught.value).splitlines()) == 1


def test_an_object_of_any_other_class_is_refused_with_what_json_has():
    with pytest.raises(TypeError) as caught:
        freeze(object(), "x")

    assert str(caught.value) == "x: object is not JSON; use a dict, list, str, number, bool or None"


def test_a_value_without_a_name_is_called_a_value():
    with pytest.raises(TypeError, match=r'^value\["a"\]: set is not JSON'):
        freeze({"a": {1}})


@pytest.mark.parametrize("value", [b"a", bytearray(b"a")], ids=["bytes", "bytearray"])
@in_each
def test_bytes_are_refused_with_the_way_to_write_them(value, wrap):
    holder, path = wrapped(value, wrap)

    with pytest.raises(TypeError) as caught:
        freeze(holder, "x")

    assert str(caught.value) == (
        f"x{path}: {type(value).__name__} is not JSON; use text, such as base64.b64encode(x).decode()"
    )


IN_PYDANTIC: dict[str, tuple[object, str]] = {
    "timedelta": (timedelta(1), "P1D"),
    "complex": (1j, "1j"),
    "Fraction": (fractions.Fraction(1, 2), "1/2"),
    "IPv4Address": (ipaddress.ip_address("192.0.2.1"), "192.0.2.1"),
    "AnyUrl": (pydantic.AnyUrl("http://example.com/"), "http://example.com/"),
    "SecretStr": (pydantic.SecretStr("hunter2"), "**********"),
}


@pytest.mark.parametrize("name", IN_PYDANTIC)
def test_what_pydantic_has_a_text_for_is_taken_in_its_models_and_refused_elsewhere(name):
    given, text = IN_PYDANTIC[name]

    for wraps in [(), *TWO_DEEP]:
        value, path = wrapped(given, *wraps)
        if wraps[-1:] == ("Pydantic",) or (wraps[:1] == ("Pydantic",) and CLASSES.isdisjoint(wraps[1:])):
            assert inner(freeze(value), *wraps) == text
        else:
            with pytest.raises(TypeError) as caught:
                freeze(value, "x")
            assert str(caught.value).startswith(f"x{path}: {name} is not JSON; use a dict, list, str,")


@pytest.mark.parametrize(
    ("key", "piece"),
    [
        ('say "hi"', r'["say \"hi\""]'),
        ("line\nbreak", r'["line\nbreak"]'),
        ("größe", '["größe"]'),
        ("", '[""]'),
        ("a.b[0]", '["a.b[0]"]'),
        ("k" * 5_000, f'["{"k" * 100}..."]'),
    ],
    ids=ascii,
)
def test_a_key_is_named_as_json_writes_it_and_cut_where_it_is_very_long(key, piece):
    with pytest.raises(TypeError) as caught:
        freeze({key: {1}}, "extra_data")

    assert str(caught.value) == f"extra_data{piece}: set is not JSON; use a list"


def test_a_long_path_is_shown_by_its_ends():
    value: object = {1}
    for n in range(50):
        value = [{f"k{n}": value}]

    with pytest.raises(TypeError) as caught:
        freeze(value, "x")

    assert str(caught.value) == ('x[0]["k49"][0]["k48"][0]["k47"][0]["k46"]...[0]["k0"]: set is not JSON; use a list')


def test_a_path_of_twenty_pieces_is_shown_whole():
    value: object = {1}
    for n in range(10):
        value = [{f"k{n}": value}]

    with pytest.raises(TypeError) as caught:
        freeze(value, "x")

    assert str(caught.value).startswith("x" + "".join(f'[0]["k{n}"]' for n in reversed(range(10))) + ": set")


def test_a_key_whose_repr_is_long_is_cut():
    with pytest.raises(TypeError) as caught:
        freeze({("a" * 100,): 1}, "x")

    assert str(caught.value) == f"x: key ('{'a' * 35}... is tuple, not str; write str(key)"


class Unshowable:
    def __repr__(self) -> str:
        raise ZeroDivisionError

    def __hash__(self) -> int:
        return 1


def test_a_key_that_can_not_be_shown_is_refused_as_any_other():
    with pytest.raises(TypeError, match=r"^x: key \(repr failed: ZeroDivisionError\) is Unshowable, not str"):
        freeze({Unshowable(): 1}, "x")


class Twin(str):
    """Text that is equal to itself alone."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


@pytest.mark.parametrize(
    "value",
    [{"\ud83d\ude00": 1, "\U0001f600": 2}, {"\U0001f600": 1, "\ud83d\ude00": 2}, {Twin("a"): 1, Twin("a"): 2}],
    ids=["halves first", "halves last", "a class of text"],
)
def test_two_keys_that_are_one_in_json_are_refused_and_neither_is_lost(value):
    assert len(value) == 2

    with pytest.raises(TypeError, match=r"^x\[0\]: two keys are .* as JSON"):
        freeze([value], "x")


def test_a_field_that_says_itself_how_it_is_written_is_written_so():
    class Shouting(pydantic.BaseModel):
        x: Annotated[str, pydantic.PlainSerializer(str.upper)]
        hidden: int = pydantic.Field(default=1, exclude=True)

    class Quiet(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="allow")
        x: Annotated[str, pydantic.Field(max_length=9)]
        hidden: int = pydantic.Field(default=1, exclude=True)

    assert freeze(Shouting(x="a")) == {"x": "A"}
    assert freeze(Quiet(x="a", more=[timedelta(1)])) == {"x": "a", "more": ["P1D"]}


def test_what_a_serializer_raises_comes_out():
    class Broken(pydantic.BaseModel):
        x: int = 1

        @pydantic.field_serializer("x")
        def write(self, x: int) -> int:
            raise ZeroDivisionError("boom")

    with pytest.raises(ValueError, match="boom"):
        freeze(Broken())


# Circles


def ring(wrap: str) -> object:
    """A value that holds itself through one of the wrappers."""
    held: list[object] = []
    held.append(WRAPS[wrap][0](held))
    return held


def pydantic_ring() -> object:
    value = Computed(x=None)
    value.x = [value]
    return value


def root_ring() -> object:
    value = pydantic.RootModel[Any](None)
    value.root = value
    return value


def root_ring_with_a_list() -> object:
    value = pydantic.RootModel[Any](None)
    value.root = [value]
    return value


class GivesItself:
    def model_dump(self) -> object:
        return self


class GivesItselfInAList:
    def model_dump(self) -> object:
        return [self]


def dict_ring() -> object:
    value: dict[str, object] = {}
    value["me"] = value
    return value


def attrs_ring() -> object:
    value = OpenAttrs()
    value.x = {"k": value}
    return value


def set_ring() -> object:
    @dataclasses.dataclass(eq=False)
    class Node:
        nodes: set[Any]

    value = Node(set())
    value.nodes.add(value)
    return value


def long_ring() -> object:
    """A circle of 300 lists."""
    first: list[object] = []
    last = first
    for _ in range(299):
        following: list[object] = []
        last.append(following)
        last = following
    last.append(first)
    return first


RINGS: dict[str, Callable[[], object]] = {wrap: lambda wrap=wrap: ring(wrap) for wrap in WRAPS}
RINGS |= {
    "a dict in itself": dict_ring,
    "attrs and dict": attrs_ring,
    "a set": set_ring,
    "Pydantic with a computed field": pydantic_ring,
    "a root": root_ring,
    "a root with a list": root_ring_with_a_list,
    "model_dump": GivesItself,
    "model_dump of a list": GivesItselfInAList,
}


@pytest.mark.parametrize("name", RINGS)
def test_a_circle_of_every_shape_is_a_value_error(name):
    with pytest.raises(ValueError, match=r"^x.*circular") as caught:
        freeze({"k": RINGS[name]()}, "x")
    assert len(str(caught.value)) < 2_000


def test_a_circle_that_is_longer_than_values_may_be_deep_is_a_value_error_too():
    with pytest.raises(ValueError, match="more than 200 deep"):
        freeze(long_ring())


def test_a_state_refuses_a_circle_and_records_nothing():
    state = State()
    value: list[object] = []
    value.append(value)

    with pytest.raises(ValueError, match=r"^answer\[0\].*circular"):
        state.finish(value)
    with pytest.raises(ValueError, match=r"^args\[\"a\"\].*circular"):
        ToolCall("c", "f", {"a": value})
    with pytest.raises(ValueError, match=r"^extra_data\[\"a\"\].*circular"):
        State(extra_data={"a": value})
    assert not len(state.history)


@in_each
def test_the_same_value_in_many_places_is_no_circle(wrap):
    shared = wrapped({"a": 1}, wrap)[0]

    frozen = freeze({"p": [shared, shared], "q": shared})

    assert frozen["p"][0] == frozen["p"][1] == frozen["q"]


# Depth


def nested(depth: int, wrap: str, leaf: object = 1) -> object:
    for _ in range(depth):
        leaf = WRAPS[wrap][0](leaf)
    return leaf


@pytest.mark.parametrize("wrap", ["NamedTuple", "slotted dataclass"])
def test_two_hundred_levels_of_any_kind_are_taken_and_one_more_is_a_value_error(wrap):
    assert_plain(freeze(nested(200, wrap)))

    with pytest.raises(ValueError, match=r"^x.*: nested more than 200 deep$"):
        freeze(nested(201, wrap), "x")


def test_levels_of_every_kind_count_alike():
    value: object = 1
    for wrap in itertools.islice(itertools.cycle(WRAPS), 200):
        value = WRAPS[wrap][0](value)

    assert_plain(freeze(value))
    for wrap in WRAPS:
        with pytest.raises(ValueError, match="nested more than 200 deep"):
            freeze(WRAPS[wrap][0](value))


@pytest.mark.parametrize("empty", [[], (), {}], ids=repr)
def test_an_empty_list_or_dict_is_a_level_too(empty):
    freeze(nested(199, "list", empty))

    with pytest.raises(ValueError, match="nested more than 200 deep"):
        freeze(nested(200, "list", empty))


def at_depth(frames: int, work: Callable[[], object]) -> object:
    """Do *work* that many calls further down the stack."""
    return work() if frames == 0 else at_depth(frames - 1, work)


def test_where_pythons_stack_ends_first_it_is_a_value_error_too():
    deep = nested(200, "Pydantic")

    with pytest.raises(ValueError, match=r"^x: nested too deep") as caught:
        at_depth(500, lambda: freeze(deep, "x"))

    assert isinstance(caught.value.__cause__, RecursionError)


DEEP = freeze(nested(200, "dict"))


def test_the_deepest_value_can_be_copied_compared_and_written():
    assert copy.deepcopy(DEEP) == DEEP
    assert pickle.loads(pickle.dumps(DEEP)) == DEEP
    assert json.loads(json.dumps(DEEP)) == orjson.loads(orjson.dumps(DEEP)) == DEEP
    assert len(repr(DEEP)) == 200 * len("{'k': }") + 1


def test_the_deepest_value_goes_wherever_a_state_keeps_values():
    state = State(extra_data=DEEP)
    state.finish(DEEP)
    with state.edit_extra_data() as data:
        data["more"] = 1

    again = State(history=state.history)

    assert again.answer == DEEP
    assert again.extra_data == DEEP | {"more": 1}
    assert ToolCall("c", "f", DEEP).args is DEEP


def test_a_frozen_value_that_is_held_many_times_is_looked_at_once():
    """Else each level doubles the cost."""

    def twice_at_each_level(levels: int) -> object:
        value = freeze([])
        for _ in range(levels):
            value = freeze([value, value])
        return value

    few, many = twice_at_each_level(8), twice_at_each_level(16)

    cost_of_few = calls_made_by(lambda: freeze({"a": few}))
    cost_of_many = calls_made_by(lambda: freeze({"a": many}))
    assert cost_of_many < 3 * cost_of_few


# Frozen dicts and lists


FROZEN_DICT = freeze({"a": [1, {"b": ()}], "c": None})
FROZEN_LIST = freeze([3, 1, 2])
DICT_READERS = {
    *("__class_getitem__", "__contains__", "__eq__", "__ge__", "__getitem__", "__gt__", "__iter__"),
    *("__le__", "__len__", "__lt__", "__ne__", "__or__", "__ror__", "__reversed__", "__repr__", "__sizeof__"),
    *("copy", "fromkeys", "get", "items", "keys", "values"),
}
DICT_MUTATORS = {
    *("__setitem__", "__delitem__", "__ior__", "clear", "pop", "popitem", "setdefault", "update"),
}
LIST_READERS = {
    *("__add__", "__class_getitem__", "__contains__", "__eq__", "__ge__", "__getitem__", "__gt__", "__iter__"),
    *("__le__", "__len__", "__lt__", "__mul__", "__ne__", "__repr__", "__reversed__", "__rmul__", "__sizeof__"),
    *("copy", "count", "index"),
}
LIST_MUTATORS = {
    *("__setitem__", "__delitem__", "__iadd__", "__imul__", "append", "clear", "extend", "insert", "pop"),
    *("remove", "reverse", "sort"),
}
NEITHER = {"__init__", "__new__", "__getattribute__", "__hash__", "__doc__"}


@pytest.mark.parametrize(
    ("plain", "frozen", "readers", "mutators"),
    [(dict, FROZEN_DICT, DICT_READERS, DICT_MUTATORS), (list, FROZEN_LIST, LIST_READERS, LIST_MUTATORS)],
    ids=["dict", "list"],
)
def test_every_method_that_dicts_and_lists_have_is_known_and_those_that_change_refuse(plain, frozen, readers, mutators):
    """A method that a new Python brings has to be looked at: it may be one that changes."""
    assert set(vars(plain)) - NEITHER == readers | mutators

    for name in mutators:
        for args in ((), (1,), (1, 2)):
            with pytest.raises(TypeError, match=r"recorded and read-only; change a copy: x = (dict|list)\(x\)$"):
                getattr(frozen, name)(*args)
        with pytest.raises(TypeError, match="read-only"):
            getattr(type(frozen), name)(frozen)


@pytest.mark.parametrize("change", [operator.ior, operator.iadd, operator.imul])
def test_augmented_operators_change_nothing(change):
    for frozen, operand in ((FROZEN_DICT, {"z": 1}), (FROZEN_LIST, [1]), (FROZEN_LIST, 2)):
        before = copy.deepcopy(frozen)
        with pytest.raises(TypeError):
            change(frozen, operand)
        assert frozen == before


@pytest.mark.parametrize("frozen", [FROZEN_DICT, FROZEN_LIST, freeze({}), freeze([])], ids=repr)
def test_frozen_values_have_no_hash_no_attributes_and_stay_what_they_are(frozen):
    with pytest.raises(TypeError, match="unhashable"):
        hash(frozen)
    with pytest.raises(AttributeError):
        frozen.note = 1
    with pytest.raises(TypeError):
        frozen.__class__ = dict
    assert not hasattr(frozen, "__dict__")


def test_frozen_values_are_to_python_what_plain_ones_are():
    assert isinstance(FROZEN_DICT, dict)
    assert isinstance(FROZEN_DICT, Mapping)
    assert isinstance(FROZEN_LIST, list)
    assert isinstance(FROZEN_LIST, Sequence)
    assert issubclass(FrozenDict, MutableMapping)
    assert issubclass(FrozenList, MutableSequence)
    assert {**FROZEN_DICT} == FROZEN_DICT
    assert [*FROZEN_LIST] == FROZEN_LIST
    assert sorted(FROZEN_LIST) == [1, 2, 3]
    assert list(reversed(FROZEN_LIST)) == [2, 1, 3]
    assert FROZEN_LIST < [4]
    assert FROZEN_DICT.get("z", 9) == 9
    assert dict.fromkeys(FROZEN_DICT) == {"a": None, "c": None}


@pytest.mark.parametrize("plain", [{"a": [1, {"b": []}], "c": None}, {"c": None, "a": [1, {"b": []}]}])
def test_frozen_dicts_equal_plain_ones_both_ways_whatever_their_order(plain):
    frozen = freeze(plain)

    assert plain == FROZEN_DICT == plain
    assert frozen == FROZEN_DICT
    assert frozen != plain | {"d": 1} != frozen


def test_a_frozen_list_equals_lists_and_no_tuple():
    assert [3, 1, 2] == FROZEN_LIST == freeze((3, 1, 2))
    assert FROZEN_LIST != (3, 1, 2)
    assert FROZEN_LIST != [3, 1]


def test_match_takes_frozen_values_apart():
    match FROZEN_DICT:
        case {"a": [int(one), {"b": []}], **rest}:
            assert (one, rest) == (1, {"c": None})
            assert type(rest) is dict
        case _:
            pytest.fail("no match")
    match FROZEN_LIST:
        case [first, *others]:
            assert (first, others) == (3, [1, 2])


def test_one_level_and_all_levels_are_copied_as_plain_values():
    for copied in (dict(FROZEN_DICT), copy.copy(FROZEN_DICT), FROZEN_DICT.copy(), FROZEN_DICT | {}, {} | FROZEN_DICT):
        assert type(copied) is dict
        assert copied["a"] is FROZEN_DICT["a"]
    deep = copy.deepcopy(FROZEN_DICT)
    assert [type(deep), type(deep["a"]), type(deep["a"][1]), type(deep["a"][1]["b"])] == [dict, list, dict, list]
    deep["a"][1]["b"].append("new")
    assert FROZEN_DICT == {"a": [1, {"b": []}], "c": None}
    assert type(copy.deepcopy(FROZEN_LIST)) is type(list(FROZEN_LIST)) is type(FROZEN_LIST[:]) is list


@pytest.mark.parametrize("write", [json.dumps, lambda value: orjson.dumps(value).decode(), str, repr])
def test_frozen_values_are_written_as_plain_ones(write):
    assert write(FROZEN_DICT) == write(copy.deepcopy(FROZEN_DICT))
    assert write(FROZEN_LIST) == write([3, 1, 2])
    assert json.dumps(FROZEN_DICT, sort_keys=True, indent=1) == json.dumps(copy.deepcopy(FROZEN_DICT), indent=1)


def everything_in(value: object) -> Iterator[object]:
    yield value
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from everything_in(item)


@pytest.mark.parametrize("frozen", [FROZEN_DICT, FROZEN_LIST, DEEP], ids=["dict", "list", "deep"])
def test_what_is_frozen_is_frozen_again_at_no_cost_and_stays_the_same_object_inside_others(frozen):
    assert freeze(frozen) is frozen
    for wrap, (around, _) in WRAPS.items():
        if frozen is not DEEP:
            assert inner(freeze(around(frozen)), wrap) is frozen
    for one in everything_in(frozen):
        assert freeze(one) is one


def test_values_in_a_state_are_frozen_once_and_shared():
    state = State(extra_data={"a": FROZEN_DICT})
    state.finish(FROZEN_LIST)

    assert state.extra_data["a"] is FROZEN_DICT
    assert state.answer is FROZEN_LIST
    assert state.history[0].content["a"] is FROZEN_DICT


def test_entries_stay_frozen_in_a_deep_copy_and_their_values_alone_do_not():
    state = State(messages=[Message.user("x")], extra_data={"a": [1]})

    entries = copy.deepcopy(list(state.history))
    alone = copy.deepcopy(state.history[1].content)

    with pytest.raises(TypeError, match="read-only"):
        entries[1].content["a"].append(2)
    alone["a"].append(2)
    assert state.extra_data == {"a": [1]}


@pytest.mark.parametrize("limit", [640, 0])
def test_an_integer_that_this_process_could_not_write_is_refused_before_it_is_recorded(limit):
    """PYTHONINTMAXSTRDIGITS; 0 is no limit, but whoever loads it may have one."""
    most = limit or 4_300
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(limit)
    try:
        assert freeze(10**most - 1) == 10**most - 1
        with pytest.raises(ValueError, match=f"an integer of more than {most} digits; use text"):
            freeze({"n": [10**most]})
    finally:
        sys.set_int_max_str_digits(before)

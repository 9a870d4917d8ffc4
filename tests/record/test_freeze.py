"""freeze(): what has a JSON form, what hasn't, and what may be done with the result."""

from __future__ import annotations

import copy
import dataclasses
import enum
import json
import pickle
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, NewType
from uuid import UUID

import attrs
import orjson
import pydantic
import pytest
from hypothesis import given

from alpineagents import Message, State, TextBlock, freeze
from alpineagents.record import FrozenDict, FrozenList

from .strategies import json_values


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class OldColour(str, enum.Enum):  # noqa: UP042  # as it was written before StrEnum
    RED = "red"


class Plain(enum.Enum):
    RED = "red"


class Text(str):
    def __str__(self) -> str:
        return "something else"


class Whole(int):
    def __int__(self) -> int:
        return -1


class Real(float):
    def __float__(self) -> float:
        return -1.0


class Point(NamedTuple):
    x: int
    y: int


@attrs.frozen
class Attrs:
    a: int
    b: tuple[str, ...] = ()


@dataclasses.dataclass
class Data:
    a: int
    b: Any = None


class Model(pydantic.BaseModel):
    a: int
    b: Any = None


Tags = NewType("Tags", set[str])


@dataclasses.dataclass
class Tagged:
    tags: Tags


@dataclasses.dataclass
class Rich:
    """What is taken inside a class only."""

    at: datetime
    day: date
    hour: time
    colour: Plain
    key: UUID
    path: Path
    price: Decimal
    tags: set[str]
    deep: dict[str, list[frozenset[int]]]
    maybe: Annotated[set[str] | None, "noted"]


RICH = Rich(
    at=datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    day=date(2026, 1, 2),
    hour=time(3, 4),
    colour=Plain.RED,
    key=UUID(int=1),
    path=Path("a/b"),
    price=Decimal("0.10"),
    tags={"b", "a", "c"},
    deep={"x": [frozenset({3, 1, 2})]},
    maybe=None,
)
RICH_FROZEN = {
    "at": "2026-01-02T03:04:05.000006+00:00",
    "day": "2026-01-02",
    "hour": "03:04:00",
    "colour": "red",
    "key": "00000000-0000-0000-0000-000000000001",
    "path": "a/b",
    "price": "0.10",
    "tags": ["a", "b", "c"],
    "deep": {"x": [[1, 2, 3]]},
    "maybe": None,
}


B = r"""(\.b|\["b"\])"""  # A Pydantic model may be walked, or taken apart by Pydantic.


def assert_plain(value: object) -> None:
    """The exact types of the JSON form, at every depth."""
    if type(value) is FrozenDict:
        for key, inner in value.items():
            assert type(key) is str
            assert_plain(inner)
    elif type(value) is FrozenList:
        for inner in value:
            assert_plain(inner)
    else:
        assert value is None or type(value) in (bool, int, float, str)


def nested(depth: int, wrap: Callable[[object], object], leaf: object = 1) -> object:
    for _ in range(depth):
        leaf = wrap(leaf)
    return leaf


WRAPS: list[Callable[[object], object]] = [
    lambda x: [x],
    lambda x: (x,),
    lambda x: {"k": x},
    lambda x: Data(1, x),
    lambda x: attrs.make_class("Made", ["x"])(x),
    lambda x: Model(a=1, b=x),
]
WRAP_IDS = ["list", "tuple", "dict", "dataclass", "attrs", "pydantic"]


@pytest.mark.parametrize(
    ("value", "frozen"),
    [
        (None, None),
        (True, True),
        (10**100, 10**100),
        (-0.5, -0.5),
        ("\x00\u2028\ud83d", "\x00\u2028\ud83d"),
        ([1, (2, [3])], [1, [2, [3]]]),
        ({"a": {"b": ()}}, {"a": {"b": []}}),
        (OrderedDict(a=1), {"a": 1}),
        (defaultdict(list, a=[1]), {"a": [1]}),
        (Point(1, 2), [1, 2]),
        (Attrs(1, ("x",)), {"a": 1, "b": ["x"]}),
        (Data(1, {"c": Attrs(2)}), {"a": 1, "b": {"c": {"a": 2, "b": []}}}),
        (Model(a=1, b=[Model(a=2)]), {"a": 1, "b": [{"a": 2, "b": None}]}),
        (pydantic.RootModel[int](3), 3),
        ([Colour.RED, OldColour.RED, Level.HIGH], ["red", "red", 3]),
        ({Colour.RED: Level.HIGH}, {"red": 3}),
        ([Text("a"), Whole(2), Real(1.5)], ["a", 2, 1.5]),
        ({Text("a"): {"b": (Text("c"),)}}, {"a": {"b": ["c"]}}),
        (Data(Level.HIGH, Point(Real(1.0), 2)), {"a": 3, "b": [1.0, 2]}),
        (RICH, RICH_FROZEN),
        ([RICH], [RICH_FROZEN]),
        (TextBlock("a"), {"text": "a"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_has_a_json_form_gets_it_in_exact_types_at_every_depth(value, frozen):
    result = freeze(value)

    assert result == frozen
    assert_plain(result)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("nan"), r"^x: nan is not JSON"),
        (float("inf"), r"^x: inf is not JSON"),
        ([Real("-inf")], r"^x\[0\]: -inf is not JSON"),
        ({"notes": {"tags": {1}}}, r'^x\["notes"\]\["tags"\]: set is not JSON; use a list'),
        (frozenset(), r"^x: frozenset is not JSON; use a list"),
        ([1, [datetime(2026, 1, 1)]], r"^x\[1\]\[0\]: datetime is not JSON; use x\.isoformat\(\)"),
        (date(2026, 1, 1), r"^x: date is not JSON; use x\.isoformat\(\)"),
        (time(1), r"^x: time is not JSON; use x\.isoformat\(\)"),
        (Plain.RED, r"^x: Plain is not JSON; use x\.value"),
        (UUID(int=1), r"^x: UUID is not JSON; use str\(x\)"),
        (PurePosixPath("a"), r"^x: PurePosixPath is not JSON; use str\(x\)"),
        (Decimal(1), r"^x: Decimal is not JSON; use str\(x\)"),
        (b"a", r"^x: bytes is not JSON; use text"),
        (bytearray(b"a"), r"^x: bytearray is not JSON; use text"),
        ({"a": [object()]}, r'^x\["a"\]\[0\]: object is not JSON; use'),
        (1j, r"^x: complex is not JSON"),
        (range(3), r"^x: range is not JSON"),
        (deque([1]), r"^x: deque is not JSON"),
        ({}.keys(), r"^x: dict_keys is not JSON"),
        (MappingProxyType({}), r"^x: mappingproxy is not JSON"),
        (timedelta(1), r"^x: timedelta is not JSON"),
        (Data, r"^x: type is not JSON"),
        (len, r"^x: builtin_function_or_method is not JSON"),
        ((i for i in ()), r"^x: generator is not JSON"),
        (State(), r"^x: State is not JSON"),
        ({1: 2}, r"^x: key 1 is int, not str; write str\(key\)"),
        ({"a": {None: 2}}, r'^x\["a"\]: key None is NoneType, not str'),
        ({Level.HIGH: 1}, r"^x: key .*HIGH.* is Level, not str"),
        (Data(1, {"set"}), r"^x\.b: set is not JSON; use a list"),
        (Data(1, [Attrs({1})]), r"^x\.b\[0\]\.a: set is not JSON; use a list"),
        (Data(1, timedelta(1)), r"^x\.b: timedelta is not JSON"),
        (Data(1, {2: 3}), r"^x\.b: key 2 is int, not str"),
        (Model(a=1, b=object()), rf"^x{B}: object is not JSON"),
        ([Data(1, Model(a=1, b=object()))], rf"^x\[0\]\.b{B}: object is not JSON"),
        (Model(a=1, b=float("nan")), rf"^x{B}: nan is not JSON"),
        (Model(a=1, b={1: 2}), rf"^x{B}: key 1 is int, not str"),
        (Model(a=1, b={1}), rf"^x{B}: set is not JSON; use a list"),
    ],
    ids=lambda value: value.replace("\\", "") if isinstance(value, str) else type(value).__name__,
)
def test_what_is_not_json_is_refused_with_the_path_and_what_to_write(value, message):
    with pytest.raises(TypeError, match=message):
        freeze(value, "x")


def test_a_field_without_a_value_is_refused_with_its_path():
    @attrs.define
    class Late:
        a: int = attrs.field(init=False)

    with pytest.raises(TypeError, match=r"^x\[0\]\.a: "):
        freeze([Late()], "x")


def test_a_set_in_a_field_whose_type_is_a_new_name_for_a_set_is_taken():
    assert freeze(Tagged({"b", "a"})) == {"tags": ["a", "b"]}


def test_a_hint_that_cannot_be_evaluated_does_not_matter():
    """Many libraries have classes that are generic for the type checker only."""

    @dataclasses.dataclass
    class Hinted:
        a: int[3] = 1  # type: ignore[type-arg]

    assert freeze(Hinted()) == {"a": 1}


@pytest.mark.parametrize("kind", [dataclasses.dataclass, attrs.define])
def test_sets_of_a_class_local_to_a_function_are_taken_by_the_text_of_the_hint(kind):
    class Local: ...

    @kind
    class Tagged:
        local: Local | None
        tags: set[str]

    assert freeze(Tagged(None, {"b", "a"})) == {"local": None, "tags": ["a", "b"]}


class Inner(pydantic.BaseModel):
    tags: set[str]


class Outer(pydantic.BaseModel):
    own: set[str]
    inner: Inner
    many: list[set[str]]


def test_sets_in_a_pydantic_model_are_sorted_at_every_depth():
    """Else the same value has another JSON form in the next process."""
    letters = set("qwertyuiopasdfghjkl")

    frozen = freeze(Outer(own=letters, inner=Inner(tags=letters), many=[letters]))

    in_order = sorted(letters)
    assert frozen == {"own": in_order, "inner": {"tags": in_order}, "many": [in_order]}


class Area(Outer):
    @pydantic.computed_field
    @property
    def size(self) -> int:
        return len(self.own)

    @pydantic.field_serializer("many")
    def shout(self, many: list[set[str]]) -> list[set[str]]:
        return [{letter.upper() for letter in letters} for letters in many]


def test_a_pydantic_model_that_says_how_it_is_written_keeps_its_word_and_its_sets_are_sorted_too():
    letters = set("qwertyuiopasdfghjkl")

    frozen = freeze(Area(own=letters, inner=Inner(tags=letters), many=[letters]))

    in_order = sorted(letters)
    assert (frozen["own"], frozen["inner"], frozen["size"]) == (in_order, {"tags": in_order}, len(letters))
    assert frozen["many"] == [[letter.upper() for letter in in_order]]


def test_a_pydantic_root_model_of_a_set_becomes_a_sorted_list():
    assert freeze(pydantic.RootModel[set[int]]({3, 1, 2})) == [1, 2, 3]


def test_a_set_of_values_that_do_not_compare_has_one_order():
    @dataclasses.dataclass
    class Mixed:
        items: set[Any]

    assert freeze(Mixed({1, "a", (2,)})) == freeze(Mixed({(2,), "a", 1}))


# Circles and depth


def test_a_circle_is_a_value_error_that_names_it():
    a: list[object] = []
    a.append({"b": a})
    data = Data(1)
    data.b = [data]
    model = Model(a=1)
    model.b = [model]

    for value in (a, data, model):
        with pytest.raises(ValueError, match=r"^x.*[Cc]ircular"):
            freeze({"k": value}, "x")


def test_the_same_value_twice_is_no_circle():
    shared = {"a": 1}
    assert freeze([shared, shared]) == [{"a": 1}, {"a": 1}]


@pytest.mark.parametrize("wrap", WRAPS, ids=WRAP_IDS)
@pytest.mark.parametrize("leaf", [1, "a", Colour.RED, Real(1.0)], ids=repr)
def test_two_hundred_levels_are_taken_and_one_more_is_a_value_error(wrap, leaf):
    freeze(nested(200, wrap, leaf))

    with pytest.raises(ValueError, match=r"^x.*nested more than 200 deep"):
        freeze(nested(201, wrap, leaf), "x")


@pytest.mark.parametrize("wrap", WRAPS[:5], ids=WRAP_IDS[:5])
def test_the_depth_of_what_is_frozen_already_counts(wrap):
    """Else a live State holds what no State can load: see the test of a notepad that holds itself."""
    inner = freeze(nested(150, wrap))
    freeze(nested(50, wrap, inner))

    with pytest.raises(ValueError, match="nested more than 200 deep"):
        freeze(nested(51, wrap, inner))


# What is frozen


LIST_MUTATIONS: dict[str, Callable[[Any], object]] = {
    "append": lambda x: x.append(1),
    "extend": lambda x: x.extend([1]),
    "insert": lambda x: x.insert(0, 1),
    "pop": lambda x: x.pop(),
    "remove": lambda x: x.remove(2),
    "clear": lambda x: x.clear(),
    "reverse": lambda x: x.reverse(),
    "sort": lambda x: x.sort(),
    "sort by a key": lambda x: x.sort(key=str, reverse=True),
    "item": lambda x: x.__setitem__(0, 1),
    "slice": lambda x: x.__setitem__(slice(0, 1), [1]),
    "del item": lambda x: x.__delitem__(0),
    "del slice": lambda x: x.__delitem__(slice(None)),
    "+=": lambda x: x.__iadd__([1]),
    "*=": lambda x: x.__imul__(2),
}
DICT_MUTATIONS: dict[str, Callable[[Any], object]] = {
    "item": lambda x: x.__setitem__("a", 1),
    "del item": lambda x: x.__delitem__("a"),
    "clear": lambda x: x.clear(),
    "pop": lambda x: x.pop("a"),
    "pop of a default": lambda x: x.pop("none", None),
    "popitem": lambda x: x.popitem(),
    "setdefault": lambda x: x.setdefault("b", 1),
    "update": lambda x: x.update(b=1),
    "update of nothing": lambda x: x.update(),
    "|=": lambda x: x.__ior__({"b": 1}),
}


@pytest.mark.parametrize("name", LIST_MUTATIONS)
def test_a_frozen_list_refuses_to_change_and_says_how_to_copy(name):
    frozen = freeze([3, 2, 1])

    with pytest.raises(TypeError, match=r"read-only.*list\(x\)"):
        LIST_MUTATIONS[name](frozen)

    assert frozen == [3, 2, 1]


@pytest.mark.parametrize("name", DICT_MUTATIONS)
def test_a_frozen_dict_refuses_to_change_and_says_how_to_copy(name):
    frozen = freeze({"a": [1]})

    with pytest.raises(TypeError, match=r"read-only.*dict\(x\)"):
        DICT_MUTATIONS[name](frozen)

    assert frozen == {"a": [1]}


def test_augmented_assignment_is_refused_at_every_depth():
    frozen = freeze({"a": [1], "b": {"c": 1}})

    with pytest.raises(TypeError):
        frozen["a"] += [2]
    with pytest.raises(TypeError):
        frozen["b"] |= {"d": 2}
    with pytest.raises(TypeError):
        del frozen["a"][:]

    assert frozen == {"a": [1], "b": {"c": 1}}


def test_no_attribute_can_be_set():
    for frozen in (freeze({}), freeze([])):
        with pytest.raises(AttributeError):
            frozen.x = 1


def test_what_makes_something_new_gives_plain_values():
    frozen = freeze({"a": [1, 2]})

    for made in (frozen | {"b": 1}, frozen.copy(), dict(frozen), copy.copy(frozen)):
        assert type(made) is dict
    for made in (frozen["a"] + [3], frozen["a"][:1], frozen["a"] * 2, frozen["a"].copy(), copy.copy(frozen["a"])):
        assert type(made) is list


def test_a_deep_copy_is_plain_and_changeable_all_the_way_down():
    frozen = freeze({"a": [{"b": [1]}]})

    made = copy.deepcopy(frozen)
    made["a"][0]["b"].append(2)
    inside = copy.deepcopy([frozen])
    inside[0]["a"].append(2)

    assert made == {"a": [{"b": [1, 2]}]}
    assert frozen == {"a": [{"b": [1]}]}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_comes_back_frozen(protocol):
    frozen = freeze({"a": [{"b": ()}, "\ud83d"]})

    back = pickle.loads(pickle.dumps(frozen, protocol))

    assert back == frozen
    assert_plain(back)


def test_frozen_values_are_dicts_and_lists_to_whoever_asks():
    frozen = freeze({"a": [1, 2]})

    assert isinstance(frozen, dict)
    assert isinstance(frozen["a"], list)
    match frozen:
        case {"a": [1, *rest]}:
            assert rest == [2]
        case _:
            pytest.fail("no match")
    assert json.dumps(frozen) == '{"a": [1, 2]}'
    assert orjson.dumps(frozen) == b'{"a":[1,2]}'
    assert frozen == {"a": [1, 2]} == frozen
    assert frozen["a"] == [1, 2] == frozen["a"]
    assert repr(frozen) == "{'a': [1, 2]}"


def test_what_is_frozen_already_is_returned_as_it_is():
    frozen = freeze({"a": [1]})

    assert freeze(frozen) is frozen
    assert freeze({"b": frozen})["b"] is frozen
    assert freeze(Data(1, frozen))["b"] is frozen


def test_freezing_changes_nothing_in_what_it_is_given():
    given_value = {"a": [1, {"b": (2,)}]}
    before = copy.deepcopy(given_value)

    frozen = freeze(given_value)
    given_value["a"].append(3)

    assert frozen == before | {"a": [1, {"b": [2]}]}


@given(json_values)
def test_freeze_agrees_with_json_and_freezing_again_changes_nothing(value):
    frozen = freeze(value)

    assert_plain(frozen)
    assert freeze(frozen) is frozen
    assert json.dumps(frozen) == json.dumps(value)
    assert freeze(json.loads(json.dumps(value))) == frozen
    assert copy.deepcopy(frozen) == frozen == pickle.loads(pickle.dumps(frozen))


# Where States freeze


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda state: state.finish({"a": {1}}), r'^answer\["a"\]: set'),
        (lambda state: State(extra_data={"a": [b""]}), r'^extra_data\["a"\]\[0\]: bytes'),
    ],
)
def test_a_state_names_the_value_and_records_nothing(change, path):
    state = State(messages=[Message.user("x")])

    with pytest.raises(TypeError, match=path):
        change(state)

    assert len(state.history) == 1
    assert not state.finished

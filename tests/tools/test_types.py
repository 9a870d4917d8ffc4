"""Types that JSON has none for: sets, tuples, times, paths, classes of other libraries, names for types."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypeVar
from uuid import UUID

import attrs
import pydantic
import pytest
import typing_extensions
from typing_extensions import TypeAliasType

from alpineagents import Json, ToolInputError, tool
from alpineagents.tools._misfit import read as read_with
from alpineagents.tools._schema import shape_of

from .calls import read

ID = UUID("12345678-1234-5678-1234-567812345678")
T = TypeVar("T")
UserId = NewType("UserId", str)
BigId = NewType("BigId", UserId)
Names = TypeAliasType("Names", "list[UserId]")
Twice = TypeAliasType("Twice", tuple[T, T], type_params=(T,))
Endless = TypeAliasType("Endless", "list[Endless]")
Growing = TypeAliasType("Growing", "list[Growing[list[T]]]", type_params=(T,))
Word = TypeAliasType("Word", UserId)
K = TypeVar("K")
Swapped = TypeAliasType("Swapped", tuple[K, T], type_params=(T, K))
Same = TypeAliasType("Same", T, type_params=(T,))
Always = TypeAliasType("Always", int, type_params=(T,))


class Spot(NamedTuple):
    """A place."""

    x: int
    y: float = 0.5


@attrs.frozen
class Key:
    id: int


@attrs.frozen
class Deep:
    names: list[str]


@attrs.frozen
class Chain:
    id: int
    following: Chain | None = None


@dataclasses.dataclass
class Changeable:
    id: int


def one(hint: Any) -> Any:
    """A tool with the parameter ``p`` of this type."""

    def f(p):
        return p

    f.__annotations__ = {"p": hint}
    return tool(f)


def schema(hint: Any) -> Any:
    return one(hint).input_schema["properties"]["p"]


INT = {"type": "integer"}
STR = {"type": "string"}


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (set[int], {"type": "array", "items": INT, "uniqueItems": True}),
        (frozenset[str], {"type": "array", "items": STR, "uniqueItems": True}),
        (tuple, {"type": "array", "items": {}}),
        (tuple[int, ...], {"type": "array", "items": INT}),
        (tuple[int, int], {"type": "array", "minItems": 2, "maxItems": 2, "items": INT}),
        (tuple[()], {"type": "array", "minItems": 0, "maxItems": 0, "items": {}}),
        (
            tuple[int, str, int],
            {
                "type": "array",
                "minItems": 3,
                "maxItems": 3,
                "prefixItems": [INT, STR, INT],
                "items": {"anyOf": [INT, STR]},
            },
        ),
        (date, STR | {"format": "date"}),
        (time, STR | {"format": "time"}),
        (datetime, STR | {"format": "date-time"}),
        (UUID, STR | {"format": "uuid"}),
        (Path, STR),
        (Json, {}),
        (UserId, STR),
        (Names, {"type": "array", "items": STR}),
        (Twice[int], {"type": "array", "minItems": 2, "maxItems": 2, "items": INT}),
        (dict[BigId, int], {"type": "object", "additionalProperties": INT}),
        (dict[Word, int], {"type": "object", "additionalProperties": INT}),
        (
            Spot,
            {
                "type": "object",
                "properties": {"x": INT, "y": {"type": "number", "default": 0.5}},
                "required": ["x"],
                "additionalProperties": False,
                "description": "A place.",
            },
        ),
    ],
)
def test_the_schema_of_a_type(hint: Any, expected: Any) -> None:
    assert schema(hint) == expected


@pytest.mark.parametrize(
    ("hint", "sent", "got"),
    [
        (set[int], [1, 2], {1, 2}),
        (set[int], [1, 1, "1"], {1}),
        (set[int], "[1, 2]", {1, 2}),
        (frozenset[str], ["a"], frozenset("a")),
        (set[tuple[int, str]], [[1, "a"]], {(1, "a")}),
        (set[Key], [{"id": 1}], {Key(1)}),
        (set[Chain], [{"id": 1}], {Chain(1)}),
        (set[frozenset[int] | None], [[1], None], {frozenset([1]), None}),
        (set[tuple[int, ...]], [[1], [1, 2]], {(1,), (1, 2)}),
        (tuple, [1, "a"], (1, "a")),
        (tuple[int, ...], [1, "2"], (1, 2)),
        (tuple[int, str], [1, "2"], (1, "2")),
        (tuple[int, str], '["1", "2"]', (1, "2")),
        (tuple[()], [], ()),
        (Twice[int], [1, 2], (1, 2)),
        (Twice[Twice[int]], [[1, 2], [3, 4]], ((1, 2), (3, 4))),
        (Swapped[int, str], ["a", 1], ("a", 1)),
        (Same[list[int]], [1], [1]),
        (Always[str], 1, 1),
        (Spot, {"x": 1}, Spot(1, 0.5)),
        (Spot, {"x": "1", "y": None}, Spot(1, 0.5)),
        (date, "2026-12-31", date(2026, 12, 31)),
        (date, " 20261231", date(2026, 12, 31)),
        (time, "23:59:59.5z", time(23, 59, 59, 500_000, UTC)),
        (time, "23:59", time(23, 59)),
        (datetime, "2026-12-31T23:59:59+01:00", datetime(2026, 12, 31, 22, 59, 59, tzinfo=UTC)),
        (datetime, "2026-12-31t23:59:59z", datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC)),
        (datetime, "2026-12-31 23:59", datetime(2026, 12, 31, 23, 59)),
        (timedelta, "P1DT2H30M", timedelta(days=1, hours=2, minutes=30)),
        (timedelta, "-P2W", -timedelta(weeks=2)),
        (timedelta, " pt1.5s ", timedelta(seconds=1.5)),
        (UUID, str(ID), ID),
        (UUID, f"{{{ID.hex.upper()}}}", ID),
        (UUID, ID.urn, ID),
        (Decimal, "1.10", Decimal("1.10")),
        (Decimal, " 1e3 ", Decimal("1e3")),
        (Decimal, 0.1, Decimal("0.1")),
        (Decimal, 3, Decimal(3)),
        (Path, "a/b.txt", Path("a/b.txt")),
        (PurePosixPath, "/a", PurePosixPath("/a")),
        (bytes, "aGk=", b"hi"),
        (bytes, "aG\nk", b"hi"),
        (bytes, "_-8", b"\xff\xef"),
        (str | date, "2026-12-31", date(2026, 12, 31)),
        (str | date, "soon", "soon"),
        (date | str, " 2026-12-31", " 2026-12-31"),
        (str | Path, "a", Path("a")),
        (datetime | date, "2026-12-31", date(2026, 12, 31)),
        (Path | UUID, str(ID), ID),
        (list[date] | list[time], ["23:59:59Z"], [time(23, 59, 59, tzinfo=UTC)]),
        (list[date] | list[Literal["soon"]], ["soon"], ["soon"]),
        (bytes | Literal[1, "now"], "aGk=", b"hi"),
        (tuple[int, str] | tuple[str, int], ["a", 1], ("a", 1)),
        (tuple[int] | tuple[int, int], [1, 2], (1, 2)),
        (set[int] | set[float], [1, 1], {1}),
    ],
)
def test_a_value_is_read(hint: Any, sent: Any, got: Any) -> None:
    value = read(one(hint), p=sent)["p"]

    assert value == got
    assert type(value) is type(got)


@pytest.mark.parametrize(
    ("hint", "repeated", "different"),
    [
        (set[int], [1, 1.0], [1, 2]),
        (set[Key], [{"id": 1}, {"id": 1}], [{"id": 1}, {"id": 2}]),
        (set[tuple[int, bool]], [[1, True], [1.0, True]], [[1, True], [1, False]]),
    ],
)
def test_a_set_read_strictly_has_no_repetitions(hint: Any, repeated: Any, different: Any) -> None:
    shape = shape_of(hint)

    assert len(read_with(shape, different, strict=True)) == 2
    assert len(read_with(shape, repeated)) == 1
    with pytest.raises(ToolInputError, match="expected array without repetitions"):
        read_with(shape, repeated, strict=True)


def test_json_arrives_frozen() -> None:
    value = read(one(Json), p={"a": [1]})["p"]

    assert value == {"a": [1]}
    with pytest.raises(TypeError, match="read-only"):
        value["a"] = 2


def test_json_that_is_nested_too_deep_to_be_kept_is_refused() -> None:
    value: Any = []
    for _ in range(250):
        value = [value]

    with pytest.raises(ToolInputError, match="wrong answer: expected a value that is nested less deep, got array"):
        read_with(shape_of(Json), value, what="answer")


@pytest.mark.parametrize(
    ("hint", "sent", "problem"),
    [
        (set[int], ["a"], 'p[0]: expected integer, got string "a"'),
        (set[int], 5, "p: expected array of integer, got integer 5"),
        (tuple[int, str], [1], "p: expected array of 2 items [integer, string], got array [1]"),
        (tuple[int], [1, 2], "p: expected array of 1 item [integer], got array [1, 2]"),
        (tuple[int, str], 5, "p: expected array of 2 items [integer, string], got integer 5"),
        (tuple[int, int], ["a", "b"], "- p[1]: expected integer"),
        (date, "2026-02-30", 'p: expected date like 2026-12-31, got string "2026-02-30"'),
        (date, 20261231, "p: expected date like 2026-12-31, got integer 20261231"),
        (time, "23", "p: expected time like 23:59:59Z"),
        (datetime, "2026-12-31", "p: expected date and time like 2026-12-31T23:59:59Z"),
        (timedelta, 90, "p: expected duration like P1DT2H30M or PT45S, got integer 90"),
        (timedelta, "P1Y", "p: expected duration"),
        (UUID, "x", "p: expected UUID"),
        (UUID, 5, "p: expected UUID"),
        (Decimal, "1,5", "p: expected decimal number as a string"),
        (Decimal, True, "p: expected decimal number as a string, got boolean true"),
        (bytes, "ä", "p: expected bytes in base64"),
        (bytes, 5, "p: expected bytes in base64"),
        (Path, 5, "p: expected path, got integer 5"),
        (list[float], "[1e999]", 'p: expected array of number, got string "[1e999]"'),
        (list[Json], "[-1e999]", "p: expected array, got string"),
        (Spot, {"x": 1, "z": 2}, "p.z: unknown, known: x, y"),
    ],
)
def test_what_has_no_reading_is_refused(hint: Any, sent: Any, problem: str) -> None:
    with pytest.raises(ToolInputError) as refusal:
        read(one(hint), p=sent)

    assert problem in str(refusal.value)


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        (set, "any value can't be in a set, it has no hash; use list"),
        (set[list[int]], "array of integer can't be in a set"),
        (set[dict[str, int]], "can't be in a set"),
        (set[set[int]], "can't be in a set"),
        (set[tuple[int, Any]], "can't be in a set"),
        (set[int | list[int]], "can't be in a set"),
        (set[Changeable], "object Changeable can't be in a set"),
        (set[Deep], "object Deep can't be in a set"),
        (list[int] | set[int], "can't be told apart in one union"),
        (list[int] | tuple[int, int], "can't be told apart"),
        (tuple[date, int] | tuple[str, int], "can't be told apart"),
        (set[str] | set[date], "can't be told apart"),
        (str | bytes, "string and bytes in base64 can't be told apart"),
        (Decimal | bytes, "can't be told apart"),
        (Literal["aGk="] | bytes, "can't be told apart"),
        (Path | PurePosixPath, "can't be told apart"),
        (list[str] | list[date], "can't be told apart"),
        (list[Path] | list[date], "can't be told apart"),
        (list[Literal["2026-12-31"]] | list[date], "can't be told apart"),
        (Any | date, "can't be told apart"),
        (Json | date, "can't be told apart"),
        (Endless, "the type Endless refers to itself; make it a class"),
        (Growing[int], "the type Growing refers to itself; make it a class"),
        (dict[Names, int], "isn't supported"),
        (Twice, "the type ~T isn't supported"),
        (Same, "the type ~T isn't supported"),
        (collections.namedtuple("Bare", "x"), "field Bare.x has no type hint"),
        (Callable[[int], str], "isn't supported"),
        (dict[int, str], "isn't supported"),
        (dict[str], "isn't supported"),  # type: ignore[type-arg]
        (type, "isn't supported"),
    ],
)
def test_what_can_not_work_is_refused_at_once(hint: Any, said: str) -> None:
    with pytest.raises(TypeError, match=f"tool 'f', parameter 'p'.*{said}"):
        one(hint)


def test_a_typed_dict_of_typing_extensions_is_one_too() -> None:
    class Span(typing_extensions.TypedDict):
        start: int
        end: typing_extensions.NotRequired[int]

    assert schema(Span)["required"] == ["start"]
    assert read(one(Span), p={"start": "1"}) == {"p": {"start": 1}}


def test_the_key_of_a_typed_dict_may_be_qualified_in_every_way() -> None:
    class Span(typing_extensions.TypedDict, total=False):
        start: typing_extensions.Required[typing_extensions.ReadOnly[int]]
        first: typing_extensions.ReadOnly[typing_extensions.Required[Annotated[int, "the first"]]]
        end: Annotated[typing_extensions.NotRequired[int], "the last"]
        name: typing_extensions.ReadOnly[str]

    told = schema(Span)

    assert told["required"] == ["start", "first"]
    assert told["properties"]["first"] == INT | {"description": "the first"}
    assert told["properties"]["end"] == INT | {"description": "the last"}
    assert read(one(Span), p={"start": "1", "first": 2}) == {"p": {"start": 1, "first": 2}}


class TestPydantic:
    class Order(pydantic.BaseModel):
        """An order."""

        number: int = pydantic.Field(alias="no", ge=1, description="Of the order.")
        items: list[str] = pydantic.Field(default_factory=list, max_length=2)
        price: Decimal = pydantic.Field(Decimal(1), gt=0)
        note: Annotated[str, pydantic.Field(pattern="^[a-z]+$")] = "none"

        @pydantic.field_validator("note")
        @classmethod
        def polite(cls, note: str) -> str:
            if note == "rude":
                raise ValueError("be polite")
            return note

    def test_a_model_is_a_class_like_others(self) -> None:
        told = schema(self.Order)

        assert told["description"] == "An order."
        assert told["required"] == ["no"]
        assert told["properties"]["no"] == {"type": "integer", "minimum": 1, "description": "Of the order."}
        assert told["properties"]["items"] == {"type": "array", "items": STR, "maxItems": 2}
        assert told["properties"]["note"] == STR | {"pattern": "^[a-z]+$", "default": "none"}
        assert read(one(self.Order), p={"no": "3", "price": 2.5})["p"] == self.Order(no=3, price=Decimal("2.5"))

    def test_what_it_checks_itself_is_said_with_its_place(self) -> None:
        with pytest.raises(ToolInputError) as refusal:
            read(one(list[self.Order]), p=[{"no": 1, "price": "-1", "note": "rude"}])

        assert str(refusal.value).splitlines()[1:] == [
            "- p[0].price: not a valid Order: Input should be greater than 0",
            "- p[0].note: not a valid Order: Value error, be polite",
        ]

    def test_its_dataclasses_are_classes_too(self) -> None:
        @pydantic.dataclasses.dataclass
        class Size:
            width: int = pydantic.Field(gt=0)
            area: int = pydantic.Field(0, init=False)

        assert schema(Size)["properties"] == {"width": {"type": "integer", "exclusiveMinimum": 0}}
        assert read(one(Size), p={"width": 2})["p"] == Size(width=2)

    @pytest.mark.parametrize(
        ("alias", "config", "key"),
        [
            ({"alias": "first-name"}, {}, "first-name"),
            ({"validation_alias": pydantic.AliasChoices(pydantic.AliasPath("a", 0), "b", "c")}, {}, "b"),
            ({"validation_alias": pydantic.AliasPath("a", 0)}, {"validate_by_name": True}, "name"),
            ({"alias": "b"}, {"validate_by_name": True}, "b"),
            ({"alias": "b"}, {"validate_by_name": True, "validate_by_alias": False}, "name"),
            ({}, {"alias_generator": str.upper}, "NAME"),
        ],
    )
    def test_the_key_of_a_field_is_one_that_the_model_reads(self, alias: Any, config: Any, key: str) -> None:
        class Person(pydantic.BaseModel):
            model_config = pydantic.ConfigDict(**config)
            name: int = pydantic.Field(**alias)

        class Pupil(Person): ...

        assert schema(Pupil)["required"] == [key]
        assert read(one(Pupil), p={key: "3"})["p"].name == 3

    def test_a_dataclass_of_its_has_aliases_too(self) -> None:
        @pydantic.dataclasses.dataclass
        class Size:
            width: int = pydantic.Field(alias="the width")

        assert read(one(Size), p={"the width": 2})["p"].width == 2

    def test_a_field_that_is_read_from_within_others_is_refused(self) -> None:
        class Person(pydantic.BaseModel):
            name: str = pydantic.Field(validation_alias=pydantic.AliasPath("names", 0))

        with pytest.raises(TypeError, match=r"Person.name is read from AliasPath\(.*; give it a plain alias"):
            one(Person)

    def test_a_constructor_of_its_own_has_to_fit(self) -> None:
        class Odd(pydantic.BaseModel):
            x: int

            def __init__(self, y: int) -> None:
                super().__init__(x=y)

        with pytest.raises(TypeError, match="Odd can't be made from its fields: missing a required argument: 'y'"):
            one(Odd)

    @pytest.mark.parametrize(
        ("hint", "expected"),
        [
            (pydantic.PositiveInt, {"type": "integer", "exclusiveMinimum": 0}),
            (pydantic.conint(ge=1, multiple_of=2), {"type": "integer", "minimum": 1, "multipleOf": 2}),
            (pydantic.constr(max_length=3), {"type": "string", "maxLength": 3}),
            (pydantic.conlist(int, min_length=1), {"type": "array", "items": INT, "minItems": 1}),
            (
                Annotated[str, pydantic.StringConstraints(min_length=1, pattern="a")],
                {"type": "string", "minLength": 1, "pattern": "a"},
            ),
        ],
    )
    def test_its_names_for_limited_types_are_known(self, hint: Any, expected: Any) -> None:
        assert schema(hint) == expected

    def test_a_model_that_is_not_whole_is_refused(self) -> None:
        class Later(pydantic.BaseModel):
            other: Missing  # type: ignore[name-defined]  # noqa: F821

        with pytest.raises(TypeError, match=r"Later isn't whole yet; define what it refers to"):
            one(Later)

    def test_a_root_model_is_refused(self) -> None:
        with pytest.raises(TypeError, match=r"RootModel\[int\] has no fields, only a root; use the type of that"):
            one(pydantic.RootModel[int])

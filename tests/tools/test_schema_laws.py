"""What the schema accepts structures, what it refuses is refused: for any type hint and any JSON."""

from __future__ import annotations

import base64
import dataclasses
import enum
import functools
import json
import re
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict, Union
from uuid import UUID

import annotated_types
import attrs
import jsonschema
import pydantic
import pytest
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st
from hypothesis_jsonschema import from_schema

from alpineagents import Json
from alpineagents._errors import ToolInputError
from alpineagents.tools._misfit import Reading, read
from alpineagents.tools._schema import schema_of, shape_of
from alpineagents.tools._strict import strict_schema


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 3


class Mixed(enum.Enum):
    ONE = 1
    HALF = 0.5
    YES = "yes"
    NONE = None


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.5


@attrs.frozen
class Filter:
    names: list[str]
    level: Level = Level.LOW
    by: dict[str, int] = attrs.Factory(dict)


class Options(TypedDict):
    deep: bool
    color: NotRequired[Color]


@dataclasses.dataclass
class Circle:
    radius: float
    kind: Literal["circle"] = "circle"


@dataclasses.dataclass
class Square:
    radius: int
    kind: Literal["square"] = "square"


@attrs.frozen
class Node:
    name: str
    children: list[Node] = attrs.Factory(list)
    parent: Node | Point | None = None


class Pair(NamedTuple):
    x: int
    y: list[str] = []  # noqa: RUF012  # a NamedTuple's default


@attrs.frozen
class Key:
    id: int
    tag: str = "t"


class Order(pydantic.BaseModel):
    name: str = pydantic.Field(alias="a", min_length=1, pattern="^[a-c]")
    count: int = pydantic.Field(1, ge=1, le=3)
    due: date | None = None


BOUNDED: list[Any] = [
    Annotated[int, annotated_types.Ge(0), annotated_types.Lt(5)],
    Annotated[int, annotated_types.MultipleOf(2)],
    Annotated[float, annotated_types.Gt(-1), annotated_types.Le(2.5)],
    Annotated[float, annotated_types.MultipleOf(0.5)],
    Annotated[str, annotated_types.Len(1, 2), "short"],
    Annotated[list[int], annotated_types.MinLen(1)],
    Annotated[set[int] | None, annotated_types.Len(1, 2)],
    Annotated[dict[str, int], annotated_types.MaxLen(1)],
    Annotated[int | str | None, annotated_types.Interval(gt=0, le=3)],
]
TEXTS: list[Any] = [date, time, datetime, timedelta, UUID, Decimal, Path, bytes]
LEAVES: list[Any] = [
    *(int, float, str, bool, None, Any, Json, Color, Level, Mixed, Point, Filter, Options, Node, Pair, Key, Order),
    *(Literal["a"], Literal["a", "b", 1], Literal[1, True, None], Literal["1", "true"], Circle | Square),
    *TEXTS,
    *BOUNDED,
]


def union_of(hints: list[Any]) -> Any:
    return Union.__getitem__(tuple(hints))


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = st.lists(st.tuples(st.sampled_from("abc"), inner), min_size=1, max_size=3, unique_by=lambda pair: pair[0])
    return st.one_of(
        inner.map(lambda hint: list[hint]),
        inner.map(lambda hint: set[hint]),
        inner.map(lambda hint: tuple[hint, ...]),
        st.lists(inner, max_size=3).map(lambda hints: tuple[tuple(hints)]),
        inner.map(lambda hint: dict[str, hint]),
        inner.map(lambda hint: union_of([hint, None])),
        st.lists(inner, min_size=2, max_size=3).map(union_of),
        fields.map(lambda pairs: dataclasses.make_dataclass("Made", pairs)),
        fields.map(lambda pairs: TypedDict("MadeDict", dict(pairs), total=False)),  # type: ignore[operator]
    )


MANY = settings(max_examples=max(300, settings.default.max_examples))
HINTS = st.recursive(st.sampled_from(LEAVES), containers, max_leaves=5)

UNION_MEMBERS = st.sampled_from(LEAVES) | HINTS

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-3, 3),
    st.integers(-3, 3).map(float),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=3),
    st.sampled_from(["a", "red", "yes", "1", "3.0", "-0.5", "true", "False", "null", "[]", "[1]", '{"x": 1}', "{}"]),
    st.sampled_from(
        ["2026-02-29", "2024-02-29", "2024-02-29T10:00:00Z", "2024-02-29 10:00", "10:00:00+01:00", "10:00"]
    ),
    st.sampled_from(["P1DT2H", "PT0.5S", "P", "p1d", "1.50", "1e3", "aGk=", "aGk", "a-_b", "a/b", "aGk=\n", "1\n"]),
    st.sampled_from(["12345678-1234-5678-1234-567812345678", "12345678123456781234567812345678"]),
)
KEYS = st.sampled_from(
    ["a", "b", "c", "x", "y", "deep", "color", "radius", "kind", "name", "children", "names", "level"]
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)


def scalars(kind: str | None) -> st.SearchStrategy[Any]:
    match kind:
        case "string":
            return st.text(max_size=3)
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
        case "integer" | "number":
            return st.integers(-9, 9) | st.integers(-9, 9).map(float)
        case _:
            return JSON


def text_of(schema: dict[str, Any]) -> st.SearchStrategy[str]:
    """Texts of a format or pattern."""
    match schema.get("format"):
        case "date":
            return st.dates().map(date.isoformat)
        case "time":
            return st.times(timezones=st.just(UTC)).map(time.isoformat)
        case "date-time":
            return st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat)
        case "uuid":
            return st.uuids().map(str)
        case _:
            return st.from_regex(schema["pattern"])


@st.composite
def fitting(draw: st.DrawFn, schema: dict[str, Any], root: dict[str, Any], depth: int = 0) -> Any:
    """Values that mostly fit *schema*: now and then something else stands in their place, or a key is missing."""
    if draw(st.integers(0, 9)) == 0:
        return draw(JSON)
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].removeprefix("#/$defs/")]
    if "anyOf" in schema:
        return draw(fitting(draw(st.sampled_from(schema["anyOf"])), root, depth + 1))
    if "enum" in schema:
        value = draw(st.sampled_from(schema["enum"]))
        return float(value) if type(value) is int and draw(st.booleans()) else value
    match schema.get("type"):
        case "array":
            prefix = schema.get("prefixItems", [])
            least, most = schema.get("minItems", 0), schema.get("maxItems", 2)
            size = least if depth > 3 else draw(st.integers(least, most))
            items = [*prefix, *[schema["items"]] * size][:size]
            return [draw(fitting(item, root, depth + 1)) for item in items]
        case "string" if "format" in schema or "pattern" in schema:
            return draw(SCALARS if draw(st.booleans()) else text_of(schema))
        case "object":
            value = {}
            for name, inner in schema.get("properties", {}).items():
                required = name in schema["required"] and draw(st.integers(0, 9)) > 0
                if required or (depth < 3 and draw(st.booleans())):
                    value[name] = draw(fitting(inner, root, depth + 1))
            if "additionalProperties" not in schema or schema["additionalProperties"]:
                for name in draw(st.sets(KEYS, max_size=2)):
                    value[name] = draw(fitting(schema.get("additionalProperties", {}), root, depth + 1))
            return value
        case kind:
            return draw(SCALARS if draw(st.integers(0, 3)) == 0 else scalars(kind))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, dict[str, Any], Any]:
    """A shape, its schema, and a value that may or may not fit."""
    try:
        shape = shape_of(draw(HINTS))
    except TypeError as error:
        if "can't be told apart" not in str(error) and "can't be in a set" not in str(error):
            raise
        reject()
    schema = schema_of(shape)
    value = draw(fitting(schema, schema))
    return shape, schema, json.dumps(value) if draw(st.integers(0, 9)) == 0 else value


def attempt(shape: Any, value: Any, *, strict: bool) -> tuple[bool, Any]:
    try:
        return True, read(shape, value, strict=strict)
    except ToolInputError:
        return False, None


class NotStrictError(Exception):
    """A value that only a forgiving reading gives."""


def dumped(value: Any) -> Any:
    """The JSON that a Python value came from."""
    match value:
        case enum.Enum():
            return value.value
        case datetime() | time():
            if value.tzinfo is None:
                raise NotStrictError
            return value.isoformat()
        case date():
            return value.isoformat()
        case timedelta():
            size = abs(value)
            sign = "-" if value < timedelta() else ""
            return f"{sign}P{size.days}DT{size.seconds}.{size.microseconds:06}S"
        case UUID() | Decimal() | Path():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case Order():
            return {"a": value.name, "count": value.count, "due": dumped(value.due)}
        case Pair():
            return {"x": value.x, "y": value.y}
        case dict():
            return {key: dumped(item) for key, item in value.items()}
        case list() | tuple() | set():
            return [dumped(item) for item in value]
    if dataclasses.is_dataclass(value):
        return {field.name: dumped(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if attrs.has(type(value)):
        return {field.name: dumped(getattr(value, field.name)) for field in attrs.fields(type(value))}
    return value


CLOCK = re.compile(r"(\d\d):(\d\d):(\d\d)(\.\d+)?([zZ]|[+-](\d\d):(\d\d))", re.ASCII)
FORMATS = jsonschema.FormatChecker(formats=())
"""RFC 3339, but for leap seconds and the year 0."""


@FORMATS.checks("date", raises=ValueError)
def is_date(text: object) -> bool:
    if not isinstance(text, str):
        return True
    match = re.fullmatch(r"(\d{4})-(\d\d)-(\d\d)", text, re.ASCII)
    return match is not None and bool(date(*map(int, match.groups())))


@FORMATS.checks("time")
def is_time(text: object) -> bool:
    if not isinstance(text, str):
        return True
    if not (match := CLOCK.fullmatch(text)):
        return False
    hour, minute, second, _, _, offset_hour, offset_minute = match.groups()
    return all(int(n or 0) < 24 for n in (hour, offset_hour)) and all(
        int(n or 0) < 60 for n in (minute, second, offset_minute)
    )


@FORMATS.checks("date-time", raises=ValueError)
def is_datetime(text: object) -> bool:
    if not isinstance(text, str):
        return True
    return text[10:11] in {"T", "t"} and is_date(text[:10]) and is_time(text[11:])


@FORMATS.checks("uuid")
def is_uuid(text: object) -> bool:
    return not isinstance(text, str) or bool(
        re.fullmatch(r"[\da-fA-F]{8}(-[\da-fA-F]{4}){3}-[\da-fA-F]{12}", text, re.ASCII)
    )


def accepts(schema: dict[str, Any], value: Any) -> bool:
    return jsonschema.Draft202012Validator(schema, format_checker=FORMATS).is_valid(value)


@MANY
@given(cases())
def test_strict_reading_takes_exactly_what_the_schema_accepts(case: tuple[Any, dict[str, Any], Any]) -> None:
    shape, schema, value = case
    jsonschema.Draft202012Validator.check_schema(schema)

    fits, _ = attempt(shape, value, strict=True)

    assert fits == accepts(schema, value)


def fitting_exactly(schema: dict[str, Any], root: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that *schema* accepts, made without a look at ours: scalars and arrays of them by hypothesis-jsonschema.

    Its release of today can't make objects with this hypothesis (it uses an internal class that has changed), and knows
    neither recursive references nor ``prefixItems``.
    """
    match schema:
        case {"$ref": str(reference)}:
            return st.deferred(lambda: fitting_exactly(root["$defs"][reference.removeprefix("#/$defs/")], root))
        case {"anyOf": choices}:
            return st.one_of([fitting_exactly(one, root) for one in choices])
        case {"properties": properties, "required": required}:
            made = {name: fitting_exactly(one, root) for name, one in properties.items()}
            optional = {name: one for name, one in made.items() if name not in required}
            return st.fixed_dictionaries({name: made[name] for name in required}, optional=optional)
        case {"type": "object"}:
            values = fitting_exactly(schema.get("additionalProperties", {}), root)
            most = schema.get("maxProperties", 2)
            return st.dictionaries(st.text(max_size=3), values, min_size=schema.get("minProperties", 0), max_size=most)
        case {"prefixItems": items}:
            return st.tuples(*[fitting_exactly(item, root) for item in items]).map(list)
        case {"type": "array", "items": items} if set(json.dumps(items).split('"')) & {"object", "$ref", "prefixItems"}:
            most = schema.get("maxItems", 2)
            unique = json.dumps if schema.get("uniqueItems") else None
            inner = fitting_exactly(items, root)
            return st.lists(inner, min_size=schema.get("minItems", 0), max_size=most, unique_by=unique)
        case {}:
            return JSON if not schema.keys() - {"description", "default"} else scalar(json.dumps(schema))
    raise AssertionError(schema)


@functools.cache
def scalar(schema: str) -> st.SearchStrategy[Any]:
    return from_schema({key: value for key, value in json.loads(schema).items() if key != "contentEncoding"})


@st.composite
def made_from_schemas(draw: st.DrawFn) -> tuple[Any, dict[str, Any], Any]:
    shape, schema, _ = draw(cases())
    return shape, schema, draw(fitting_exactly(schema, schema))


@settings(max_examples=200, suppress_health_check=list(HealthCheck))
@given(made_from_schemas())
def test_what_somebody_else_makes_from_the_schema_is_read(case: tuple[Any, dict[str, Any], Any]) -> None:
    shape, schema, value = case
    assume(accepts(schema, value))  # formats allow leap seconds, "$" a line break, and 1.0 repeats 1

    assert attempt(shape, value, strict=True)[0]


@settings(max_examples=200, suppress_health_check=list(HealthCheck))
@given(cases(), st.data())
def test_what_the_strict_form_accepts_is_read(case: tuple[Any, dict[str, Any], Any], data: st.DataObject) -> None:
    shape, schema, _ = case
    strict = strict_schema(schema)
    assume(strict is not None)
    assert strict is not None
    jsonschema.Draft202012Validator.check_schema(strict)
    value = data.draw(fitting(strict, strict))
    assume(accepts(strict, value))

    assert attempt(shape, value, strict=False)[0]


@MANY
@given(cases())
def test_forgiving_changes_nothing_about_what_fits(case: tuple[Any, dict[str, Any], Any]) -> None:
    shape, _, value = case
    fits, strictly = attempt(shape, value, strict=True)
    assume(fits)

    assert attempt(shape, value, strict=False) == (True, strictly)


@MANY
@given(cases())
def test_whatever_is_read_is_a_value_that_the_schema_accepts(case: tuple[Any, dict[str, Any], Any]) -> None:
    """So a forgiving reading is the reading of something that fits."""
    shape, schema, value = case
    fits, result = attempt(shape, value, strict=False)
    assume(fits)

    try:
        again = dumped(result)
    except NotStrictError:
        reject()

    assert accepts(schema, again)
    assert attempt(shape, again, strict=True) == (True, result)


@MANY
@given(cases())
def test_what_is_forgiven_is_put_right_for_who_judges_the_arguments(case: tuple[Any, dict[str, Any], Any]) -> None:
    """Permissions see JSON that fits the schema and that is read as the tool reads what came."""
    shape, schema, value = case
    fits, result = attempt(shape, value, strict=False)
    assume(fits)

    mended = shape.mended(value, Reading(forgives=True))

    assert attempt(shape, mended, strict=False) == (True, result)
    if accepts(schema, value):
        assert mended == value
    try:
        dumped(result)
    except NotStrictError:
        reject()
    assert accepts(schema, mended)


@pytest.mark.parametrize(
    ("hint", "sent", "mended"),
    [
        (int, "3", 3),
        (float, " 1.5", 1.5),
        (float, 1, 1),
        (bool, "True", True),
        (Literal["a", 1, None], "1", 1),
        (Level, "3", 3),
        (date, " 2026-01-01", "2026-01-01"),
        (time, "10:00", "10:00:00"),
        (datetime, "2026-01-01 10:00", "2026-01-01T10:00:00"),
        (timedelta, "pt90m", "P0DT5400.000000S"),
        (timedelta, " -p1d", "-P1DT0.000000S"),
        (UUID, "12345678123456781234567812345678", "12345678-1234-5678-1234-567812345678"),
        (Decimal, 2.5, "2.5"),
        (bytes, "aGk", "aGk="),
        (Path, "a", "a"),
        (list[int], '["1", 2.0]', [1, 2]),
        (set[int], [1, "1", 2], [1, 2]),
        (tuple[int, bool], '["1", "true"]', [1, True]),
        (dict[str, int], '{"a": "1"}', {"a": 1}),
        (Any, {"a": "1"}, {"a": "1"}),
        (Point, '{"x": "1", "y": null}', {"x": 1}),
        (Filter, {"names": "[]", "by": None, "level": "1"}, {"names": [], "level": 1}),
        (Circle | Square, {"radius": "1", "kind": "square"}, {"radius": 1, "kind": "square"}),
        (dataclasses.make_dataclass("Made", [("n", int | str, 1)]), {"n": None}, {}),
        (list[int] | None, "[1]", [1]),
        (list[int] | None, None, None),
        (Annotated[int, annotated_types.Ge(0)], "3", 3),
        (list[Annotated[int, "how many"]], ["3"], [3]),
        (
            Node,
            {"name": "a", "children": ['{"name": "b", "parent": null}']},
            {"name": "a", "children": [{"name": "b", "parent": None}]},
        ),
    ],
)
def test_what_is_put_right(hint: Any, sent: Any, mended: Any) -> None:
    shape = shape_of(hint)

    assert shape.mended(sent, Reading(forgives=True)) == mended


@MANY
@given(st.lists(UNION_MEMBERS, min_size=2, max_size=3), st.data())
def test_the_order_of_a_union_means_nothing(hints: list[Any], data: st.DataObject) -> None:
    try:
        one, two = shape_of(union_of(hints)), shape_of(union_of(hints[::-1]))
    except TypeError:
        reject()
    schema = schema_of(one)
    value = data.draw(fitting(schema, schema))

    (fits, result), (also_fits, other) = attempt(one, value, strict=False), attempt(two, value, strict=False)
    assert (fits, result, type(result)) == (also_fits, other, type(other))

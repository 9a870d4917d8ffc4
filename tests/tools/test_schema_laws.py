"""What the schema accepts structures, what it refuses is refused: for any type hint and any JSON."""

from __future__ import annotations

import dataclasses
import enum
import json
from typing import Any, Literal, NotRequired, TypedDict, Union

import attrs
import jsonschema
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from alpineagents._errors import ToolInputError
from alpineagents.tools._misfit import read
from alpineagents.tools._schema import schema_of, shape_of


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


LEAVES: list[Any] = [
    *(int, float, str, bool, None, Any, Color, Level, Mixed, Point, Filter, Options, Node),
    *(Literal["a"], Literal["a", "b", 1], Literal[1, True, None], Literal["1", "true"], Circle | Square),
]


def union_of(hints: list[Any]) -> Any:
    return Union.__getitem__(tuple(hints))


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = st.lists(st.tuples(st.sampled_from("abc"), inner), min_size=1, max_size=3, unique_by=lambda pair: pair[0])
    return st.one_of(
        inner.map(lambda hint: list[hint]),
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
            size = 0 if depth > 3 else draw(st.integers(0, 2))
            return [draw(fitting(schema.get("items", {}), root, depth + 1)) for _ in range(size)]
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
        if "can't be told apart" not in str(error):
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


def dumped(value: Any) -> Any:
    """The JSON that a Python value came from."""
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value):
        return {field.name: dumped(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if attrs.has(type(value)):
        return {field.name: dumped(getattr(value, field.name)) for field in attrs.fields(type(value))}
    if isinstance(value, dict):
        return {key: dumped(item) for key, item in value.items()}
    return [dumped(item) for item in value] if isinstance(value, list) else value


@MANY
@given(cases())
def test_strict_reading_takes_exactly_what_the_schema_accepts(case: tuple[Any, dict[str, Any], Any]) -> None:
    shape, schema, value = case
    jsonschema.Draft202012Validator.check_schema(schema)

    fits, _ = attempt(shape, value, strict=True)

    assert fits == jsonschema.Draft202012Validator(schema).is_valid(value)


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

    again = dumped(result)

    jsonschema.Draft202012Validator(schema).validate(again)
    assert attempt(shape, again, strict=True) == (True, result)


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

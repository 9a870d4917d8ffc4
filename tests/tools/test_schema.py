"""Parameters: what the model is told of them, and what becomes of what it sends."""

from __future__ import annotations

import dataclasses
import enum
from typing import Annotated, Any, Generic, Literal, NotRequired, Required, TypedDict, TypeVar

import attrs
import pytest

from alpineagents import ToolInputError, tool
from alpineagents.tools._misfit import read as read_with
from alpineagents.tools._schema import shape_of

from . import with_future_import, without_future_import
from .calls import read


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 1


@attrs.frozen
class Query:
    """What to look for.

    Attributes:
        words: All of them have to be there.
    """

    words: list[str]
    limit: int = 10
    _secret: str = "s"


class Span(TypedDict, total=False):
    start: Required[int]
    end: int


class Strict(TypedDict):
    start: int
    end: NotRequired[int]


@dataclasses.dataclass
class Node:
    name: str
    children: list[Node] = dataclasses.field(default_factory=list)


def one_parameter(hint: Any, **default: Any) -> Any:
    """A tool with the parameter ``p`` of this type."""

    def f(p):
        return p

    f.__annotations__ = {"p": hint}
    if default:
        f.__defaults__ = (default["default"],)
    return tool(f)


def schema(hint: Any) -> Any:
    return one_parameter(hint).input_schema["properties"]["p"]


POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 1}},
    "required": ["x"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (None, {"type": "null"}),
        (Any, {}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal[1, "b", None], {"enum": [1, "b", None]}),
        (Literal[Color.RED], {"type": "string", "enum": ["red"]}),
        (Color, {"type": "string", "enum": ["red", "blue"]}),
        (list, {"type": "array", "items": {}}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (dict, {"type": "object"}),
        (dict[str, Any], {"type": "object"}),
        (
            dict[str, list[str]],
            {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}},
        ),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Any | None, {}),
        (Annotated[int, "how many"], {"type": "integer", "description": "how many"}),
        (Annotated[int, 5], {"type": "integer"}),
        (Annotated[int, ["no hash"], "how many"], {"type": "integer", "description": "how many"}),
        (
            list[Annotated[int, "one of them"]],
            {"type": "array", "items": {"type": "integer", "description": "one of them"}},
        ),
        (Point, POINT),
        ("Point", POINT),
        (list["Point"], {"type": "array", "items": POINT}),
        (
            Span,
            {
                "type": "object",
                "properties": {"start": {"type": "integer"}, "end": {"type": "integer"}},
                "required": ["start"],
                "additionalProperties": False,
            },
        ),
    ],
)
def test_the_schema_of_a_type(hint: Any, expected: Any) -> None:
    assert schema(hint) == expected


def test_required_and_not_required_are_understood_in_strings_too() -> None:
    assert schema(Strict) == schema(Span)


def test_a_class_tells_what_its_docstring_says_of_it_and_of_its_fields() -> None:
    told = schema(Query)

    assert told["description"] == "What to look for."
    assert told["properties"]["words"]["description"] == "All of them have to be there."


def test_a_description_stands_beside_what_a_class_is() -> None:
    assert schema(Annotated[Point, "where"]) == POINT | {"description": "where"}


def test_a_recursive_class_is_defined_once_and_referred_to() -> None:
    one = one_parameter(Annotated[Node, "the root"])

    assert one.input_schema["properties"]["p"] == {"$ref": "#/$defs/Node", "description": "the root"}
    assert one.input_schema["$defs"]["Node"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}
    assert read(one, p={"name": "a", "children": [{"name": "b"}]}) == {"p": Node("a", [Node("b")])}


def test_two_recursive_classes_of_one_name_are_two_definitions() -> None:
    def make() -> Any:
        @dataclasses.dataclass
        class Node:
            inner: Node | None = None

        return Node

    @dataclasses.dataclass
    class Both:
        one: Node
        two: make()  # type: ignore[valid-type]
        three: make()  # type: ignore[valid-type]

    Both.__annotations__.update(two=make(), three=make())

    assert set(one_parameter(Both).input_schema["$defs"]) == {"Node", "Node_2", "Node_3"}


def test_classes_that_refer_to_each_other_can_be_read() -> None:
    @dataclasses.dataclass
    class File:
        name: str
        folder: Folder | None = None

    @dataclasses.dataclass
    class Folder:
        files: list[File]

    one = one_parameter(Folder)

    assert read(one, p={"files": [{"name": "a", "folder": {"files": []}}]}) == {"p": Folder([File("a", Folder([]))])}


def test_a_default_that_can_not_be_told_yet_is_not_told() -> None:
    @attrs.define
    class Chain:
        following: Chain | None = attrs.field(default={"following": None})

    assert "default" not in str(one_parameter(Chain).input_schema)


@pytest.mark.parametrize(
    ("default", "expected"),
    [
        (5, {"type": "integer", "default": 5}),
        (None, {"type": "integer"}),
        ("not an int", {"type": "integer"}),
        (object(), {"type": "integer"}),
    ],
)
def test_a_default_is_told_if_the_model_could_send_it(default: object, expected: Any) -> None:
    assert one_parameter(int, default=default).input_schema == {
        "type": "object",
        "properties": {"p": expected},
        "required": [],
        "additionalProperties": False,
    }


def test_the_default_of_an_enum_is_told_by_its_value() -> None:
    assert one_parameter(Color, default=Color.RED).input_schema["properties"]["p"]["default"] == "red"


def test_defaults_are_left_to_the_function() -> None:
    assert read(one_parameter(int, default=5)) == {}


def test_a_default_that_can_be_changed_is_fresh_in_each_call() -> None:
    one = one_parameter(list[int], default=[1])

    first, second = read(one)["p"], read(one)["p"]

    first.append(2)
    assert second == [1]


def test_null_means_the_default_where_there_is_one() -> None:
    assert read(one_parameter(int, default=5), p=None) == {}
    assert read(one_parameter(list[int], default=[1]), p=None) == {"p": [1]}
    assert read(one_parameter(Point), p={"x": 2, "y": None}) == {"p": Point(2, 1)}
    assert read(one_parameter(int | None, default=5), p=None) == {"p": None}
    with pytest.raises(ToolInputError, match="p: expected integer, got null"):
        read(one_parameter(int), p=None)


@pytest.mark.parametrize(
    ("hint", "sent", "got"),
    [
        (int, 3, 3),
        (int, 3.0, 3),
        (int, "3", 3),
        (int, " -3.0 ", -3),
        (float, 3, 3.0),
        (float, "2.5", 2.5),
        (float, "1e3", 1000.0),
        (bool, "true", True),
        (bool, "False", False),
        (Color, "red", Color.RED),
        (Literal[1, 2], 2.0, 2),
        (Literal[1, 2], "2", 2),
        (Literal[True, "yes"], "True", True),
        (list[int], "[1, 2]", [1, 2]),
        (list[int], ["1"], [1]),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (Point, '{"x": "3"}', Point(3)),
        (list[Point], '[{"x": 1}]', [Point(1)]),
        (int | None, "3", 3),
        (list[int] | None, "[1]", [1]),
        (list[int] | str, "[1]", "[1]"),
        (int | str, "3", "3"),
        (int | str, 3.0, 3),
        (int | float, 3, 3),
        (int | float, 3.0, 3.0),
        (float | int, 3, 3),
        (str | Color, "red", Color.RED),
        (str | Color, "green", "green"),
        (bool | int, True, True),
        (Point | Span, {"x": "1"}, Point(1)),
        (Point | Span, {"start": 1}, {"start": 1}),
        (Query, {"words": [], "secret": "t"}, Query([], secret="t")),
        (Annotated[int | str, "both"] | None, "3", "3"),
        (list[Annotated[int, "one"]], [1], [1]),
    ],
)
def test_what_has_one_reading_is_read(hint: Any, sent: Any, got: Any) -> None:
    value = read(one_parameter(hint), p=sent)["p"]

    assert value == got
    assert type(value) is type(got)


@pytest.mark.parametrize(
    ("hint", "sent", "problem"),
    [
        (int, True, "expected integer, got boolean true"),
        (int, 3.7, "expected integer, got number 3.7"),
        (int, "3.7", 'expected integer, got string "3.7"'),
        (int, "9" * 2000, 'expected integer, got string "999'),
        (int, "٣", "expected integer"),
        (float, True, "expected number, got boolean true"),
        (float, 10**400, "expected number, got integer 1000"),
        (float, "1e999", "expected number"),
        (float, "nan", "expected number"),
        (str, 3, "expected string, got integer 3"),
        (bool, 1, "expected boolean, got integer 1"),
        (bool, "yes", "expected boolean"),
        (None, "null", 'expected null, got string "null"'),
        (Literal["a", "b"], "c", 'expected one of "a", "b", got string "c"'),
        (Literal[1], True, "expected 1, got boolean true"),
        (Literal["1", 1], ["1"], 'expected one of "1", 1, got array'),
        (Color, "RED", 'expected one of "red", "blue", got string "RED"'),
        (list[int], "[1", 'expected array of integer, got string "[1"'),
        (list[int], '["a"]', "expected array of integer, got string"),
        (list[int], "[NaN]", "expected array of integer, got string"),
        (list[int], {"a": 1}, 'expected array of integer, got object {"a": 1}'),
        (dict[str, int], [1], "expected object whose values are integer, got array [1]"),
        (list, "x", "expected array, got"),
        (dict, "x", "expected object, got"),
        (int | None, "x", 'expected integer or null, got string "x"'),
        (int | float, "3", "expected integer or number, got string"),
        (Node, "x", 'expected object Node, got string "x"'),
        (list[Annotated[int, "one"]], "x", 'expected array of integer, got string "x"'),
    ],
)
def test_what_has_no_single_reading_is_refused(hint: Any, sent: Any, problem: str) -> None:
    with pytest.raises(ToolInputError) as refusal:
        read(one_parameter(hint), p=sent)

    assert str(refusal.value).startswith(f"wrong arguments: p: {problem}")


def test_every_problem_is_listed_with_its_place() -> None:
    @tool
    def f(count: int, where: list[Point], by: dict[str, bool], name: str) -> None: ...

    with pytest.raises(ToolInputError) as refusal:
        read(f, cuont=1, where=[{"x": 1}, {"x": "a", "z": 1}], by={"odd key": 1})

    assert str(refusal.value).splitlines() == [
        "wrong arguments, 6 problems:",
        "- count: missing, expected integer",
        '- where[1].x: expected integer, got string "a"',
        "- where[1].z: unknown, known: x, y",
        '- by["odd key"]: expected boolean, got integer 1',
        "- name: missing, expected string",
        "- cuont: unknown, did you mean 'count'?",
    ]


def test_a_message_stays_short_however_much_is_wrong() -> None:
    with pytest.raises(ToolInputError) as refusal:
        read(one_parameter(list[int]), p=["x" * 1000] * 1000)

    assert "and 950 more problems" in str(refusal.value)
    assert len(str(refusal.value)) < 10_000


def test_the_nearest_names_are_looked_for_only_where_they_are_told() -> None:
    @tool
    def f(name: str) -> None: ...

    with pytest.raises(ToolInputError) as refusal:
        read(f, name="n", **{f"name{number}": 1 for number in range(60)})

    assert str(refusal.value).count("did you mean 'name'?") == 50
    assert str(refusal.value).endswith("and 10 more problems")


def test_a_long_path_is_cut_in_a_message() -> None:
    value: Any = {"name": 5}
    for _ in range(90):
        value = {"name": "a", "children": [value]}

    with pytest.raises(ToolInputError) as refusal:
        read(one_parameter(Node), p=value)

    assert str(refusal.value).startswith("wrong arguments: p.children[0].children[0]")
    assert "..." in str(refusal.value)
    assert str(refusal.value).endswith(".children[0].name: expected string, got integer 5")
    assert len(str(refusal.value)) < 500


def test_a_long_value_or_key_is_cut_in_a_message() -> None:
    with pytest.raises(ToolInputError) as refusal:
        read(one_parameter(dict[str, int]), p={"k" * 1000: list(range(1000))})

    assert len(str(refusal.value)) < 250


def test_a_tool_without_parameters_takes_no_arguments() -> None:
    @tool
    def f() -> None: ...

    assert read(f) == {}
    with pytest.raises(ToolInputError, match="x: unknown, known: none"):
        read(f, x=1)


def test_a_json_bomb_is_refused() -> None:
    with pytest.raises(ToolInputError):
        read(one_parameter(list), p="[" * 100_000)


def test_what_is_nested_too_deep_is_refused() -> None:
    value: Any = {"name": "a"}
    for _ in range(2000):
        value = {"name": "a", "children": [value]}

    with pytest.raises(ToolInputError, match="wrong arguments: nested too deep"):
        read_with(shape_of(Node), value)


def test_a_value_that_is_no_json_is_refused() -> None:
    with pytest.raises(ToolInputError, match="wrong answer: expected integer, got a set"):
        read_with(shape_of(int), {1}, what="answer")


def test_what_a_function_gets_is_plain_and_can_be_changed() -> None:
    value = read(one_parameter(Any), p={"a": [1, {"b": []}]})["p"]

    value["a"][1]["b"].append(2)
    assert value == {"a": [1, {"b": [2]}]}
    assert type(value) is dict
    assert type(value["a"]) is list


def test_a_class_that_refuses_its_values_is_the_models_mistake() -> None:
    @dataclasses.dataclass
    class Even:
        n: int

        def __post_init__(self) -> None:
            if self.n % 2:
                raise ValueError(f"{self.n} is odd")

    with pytest.raises(ToolInputError, match=r"p\[0\]: not a valid Even: 3 is odd") as refusal:
        read(one_parameter(list[Even]), p=[{"n": 3}])
    assert refusal.value.__cause__ is None


def test_a_class_that_breaks_is_no_mistake_of_the_models() -> None:
    @dataclasses.dataclass
    class Broken:
        n: int

        def __post_init__(self) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        read(one_parameter(Broken), p={"n": 1})


class TestUnions:
    @dataclasses.dataclass
    class Circle:
        size: int
        kind: Literal["circle"] = "circle"

    @dataclasses.dataclass
    class Square:
        size: int
        kind: Literal["square"] = "square"

    @dataclasses.dataclass
    class Blob:
        size: int

    @dataclasses.dataclass
    class Lump:
        size: int

    def test_classes_are_told_apart_by_a_tag(self) -> None:
        one = one_parameter(self.Circle | self.Square)

        assert read(one, p={"size": 1, "kind": "square"}) == {"p": self.Square(1)}
        assert schema(self.Circle)["required"] == ["size", "kind"]

    def test_a_missing_tag_is_refused_only_where_it_matters(self) -> None:
        assert read(one_parameter(self.Circle), p={"size": 1}) == {"p": self.Circle(1)}
        with pytest.raises(ToolInputError, match="expected object Circle or object Square, got object"):
            read(one_parameter(self.Circle | self.Square), p={"size": 1})

    @pytest.mark.parametrize(
        ("size", "is_tagged", "fits"),
        [(1, True, True), ("1", True, True), (-1, True, False), (1, False, True)],
    )
    def test_the_work_grows_with_the_size_of_a_tree_whatever_is_wrong_with_it(
        self, size: object, is_tagged: bool, fits: bool
    ) -> None:
        """Each level of a union tries its members: without a memory the work would double at each, or worse."""
        tried: list[int] = []

        @attrs.frozen
        class Leaf:
            size: int

            def __attrs_post_init__(self) -> None:
                tried.append(self.size)
                if self.size < 0:
                    raise ValueError("too small")

        @attrs.frozen
        class Sum:
            of: Sum | Product | Leaf
            kind: Literal["sum"] = "sum"

        @attrs.frozen
        class Product:
            of: list[Sum | Product | Leaf]
            kind: Literal["product"] = "product"

        one = one_parameter(Sum | Product)
        value: Any = {"size": size}
        for level in range(12):
            kind = {"kind": ("sum", "product")[level % 2]} if is_tagged else {}
            value = {"of": [value] if level % 2 else value, **kind}

        if fits:
            assert isinstance(read(one, p=value)["p"], Product)
        else:
            with pytest.raises(ToolInputError):
                read(one, p=value)
        assert 1 <= len(tried) <= 10

    def test_what_is_wrong_is_said_for_the_class_that_was_meant(self) -> None:
        with pytest.raises(ToolInputError) as refusal:
            read(one_parameter(self.Circle | self.Square | None), p={"size": "big", "kind": "square"})

        assert str(refusal.value) == 'wrong arguments: p.size: expected integer, got string "big"'

    @pytest.mark.parametrize(
        "union",
        [
            Blob | Lump,
            Point | dict[str, int],
            list[Lump] | list[Blob],
            dict[str, Lump | None] | dict[str, Blob],
            list[Any] | list[Point],
            Color | Literal["red"],
            list[Color] | list[str],
        ],
    )
    def test_classes_that_nothing_tells_apart_are_refused_at_once(self, union: Any) -> None:
        with pytest.raises(TypeError, match=r"tool 'f', parameter 'p': .* can't be told apart in one union"):
            one_parameter(union)

    @pytest.mark.parametrize(
        "union",
        [list[int] | list[str], dict[str, int] | dict[str, str], Literal["a"] | Literal["a", "b"], list[Point] | Point],
    )
    def test_what_reads_the_same_either_way_needs_no_tag(self, union: Any) -> None:
        one_parameter(union)


T = TypeVar("T")


class Generics(Generic[T]):
    pass


@dataclasses.dataclass
class Holder:
    what: frozenset[complex]


class Bytes(enum.Enum):
    A = b"a"


class Tuples(enum.Enum):
    A = (1, 2)


class Nothing(enum.Enum):
    pass


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        (range, "the type range isn't supported; use str, int, float, bool, None, Any, Json, Literal"),
        (object, "the type object isn't"),
        (complex, "the type complex isn't"),
        (Generics[int], r"Generics\[int\] isn't"),
        (T, "the type ~T isn't"),
        (dict[int, str], r"the type dict\[int, str\] isn't"),
        (list[int, str], r"the type list\[int, str\] isn't"),  # type: ignore[type-arg]
        (Literal[b"x"], r"Literal\[b'x'\] isn't"),
        (Bytes, "Bytes isn't"),
        (Tuples, "Tuples isn't"),
        (Nothing, "Nothing isn't"),
        (Holder, r"field Holder.what: the type complex isn't"),
        (list[list[bytearray]], "the type bytearray isn't"),
        (set[int, str], r"the type set\[int, str\] isn't"),  # type: ignore[type-arg]
        ([int], r"the type \[<class 'int'>\] isn't"),
        (5, "the type 5 isn't"),
        ("Missing", "the name 'Missing' in the type hint 'Missing' isn't defined here; define or import it before"),
        ("list[Missing]", "the name 'Missing' in the type hint"),
        ("int +", "the type hint 'int \\+' can't be evaluated"),
        ("enum.Missing", "can't be evaluated: module 'enum' has no attribute 'Missing'"),
    ],
)
def test_a_type_that_is_not_supported_is_refused_at_once(hint: Any, said: str) -> None:
    with pytest.raises(TypeError, match=f"tool 'f', parameter 'p'.*{said}"):
        one_parameter(hint)


def test_a_class_that_can_not_be_made_from_its_fields_is_refused_at_once() -> None:
    @dataclasses.dataclass
    class Odd:
        n: int
        extra: dataclasses.InitVar[int]

    with pytest.raises(
        TypeError, match="parameter 'p': Odd can't be made from its fields: missing a required argument"
    ):
        one_parameter(Odd)


def test_a_field_without_a_type_is_refused_at_once() -> None:
    odd = attrs.make_class("Odd", ["n"])

    with pytest.raises(TypeError, match=r"parameter 'p', field Odd\.n has no type hint"):
        one_parameter(odd)


def test_a_field_typed_without_an_annotation_is_read() -> None:
    odd = attrs.make_class("Odd", {"n": attrs.field(type=int)})

    assert read(one_parameter(odd), p={"n": 1}) == {"p": odd(1)}


def test_fields_that_the_constructor_does_not_take_are_no_parameters() -> None:
    @dataclasses.dataclass
    class Half:
        n: int
        twice: int = dataclasses.field(init=False, default=0)

    @attrs.define
    class Other:
        n: int
        twice: int = attrs.field(init=False, default=0)

    assert list(schema(Half)["properties"]) == list(schema(Other)["properties"]) == ["n"]


def test_fields_of_a_base_class_are_there() -> None:
    @dataclasses.dataclass
    class Deep(Point):
        z: int = 0

    assert read(one_parameter(Deep), p={"x": 1, "z": 3}) == {"p": Deep(1, 1, 3)}


def test_a_nested_class_is_found_by_its_short_name() -> None:
    @dataclasses.dataclass
    class Outer:
        @dataclasses.dataclass
        class Inner:
            n: int

        inner: Inner

    assert read(one_parameter(Outer), p={"inner": {"n": 1}}) == {"p": Outer(Outer.Inner(1))}


@pytest.mark.parametrize("name", ["module_tool", "local_tool", "local_method_tool"])
def test_hints_that_are_strings_mean_what_the_types_mean(name: str) -> None:
    strings, types = getattr(with_future_import, name), getattr(without_future_import, name)
    if name != "module_tool":
        strings, types = strings(), types()

    assert strings.input_schema == types.input_schema


def test_a_name_that_only_a_function_that_has_returned_knew_is_refused_at_once() -> None:
    def make() -> Any:
        class Gone: ...

        def f(p: Gone) -> None: ...

        return f

    with pytest.raises(TypeError, match="tool 'f', parameter 'p': the name 'Gone'"):
        tool(make())

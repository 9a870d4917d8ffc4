"""``@tool``: what it makes of functions and methods, and what it refuses."""

from __future__ import annotations

import abc
import functools
import inspect
import re
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import attrs
import pytest

from alpineagents import FunctionTool, State, Tool, ToolCall, tool
from alpineagents.tools import tools_of

from .calls import context, read, text
from .with_future_import import module_tool


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers.

    Slowly.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


@tool
async def wait(minutes: float) -> str:
    return f"waited {minutes}"


class Box:
    """Something with tools."""

    def __init__(self, name: str) -> None:
        self.name = name

    @tool
    def open(self, wide: bool = False) -> str:
        """Open the box."""
        return f"{self.name} is open{' wide' if wide else ''}"

    @tool(name="weigh_it")
    async def weigh(self, /, unit: str) -> str:
        return f"{self.name} weighs 3 {unit}"

    @tool
    @staticmethod
    def kinds(of: str) -> list[str]:
        return [of]

    @staticmethod
    @tool
    def others(of: str) -> list[str]:
        return [of, of]

    @tool
    @classmethod
    def owner(cls, upper: bool) -> str:
        return cls.__name__.upper() if upper else cls.__name__

    def plain(self) -> None: ...


class SmallBox(Box):
    @tool
    def open(self, wide: bool = False) -> str:
        return "small: " + super().open(wide)

    @tool
    def close(self: SmallBox) -> str:
        return "closed"


def test_a_tool_still_runs_as_the_function() -> None:
    assert add(1, 2) == 3
    assert add(1, b=5) == 6


async def test_an_async_tool_still_runs_as_the_function() -> None:
    assert await wait(2) == "waited 2"


def test_a_tool_looks_like_the_function() -> None:
    assert add.__name__ == "add"
    assert add.__doc__ is not None
    assert add.__doc__.startswith("Add two")
    assert add.__wrapped__(1, 2) == 3
    assert list(inspect.signature(add).parameters) == ["a", "b"]
    assert add.__module__ == __name__
    assert repr(add) == "<tool add(a, b)>"


def test_the_model_is_told_name_description_and_parameters() -> None:
    assert isinstance(add, Tool)
    assert (add.name, add.description) == ("add", "Add two numbers.")
    assert add.input_schema == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "The first."},
            "b": {"type": "integer", "description": "The second.", "default": 1},
        },
        "required": ["a"],
        "additionalProperties": False,
    }


def test_without_a_docstring_the_description_is_the_name() -> None:
    @tool
    def read_all_files() -> None: ...

    @tool
    def _() -> None: ...

    assert (read_all_files.description, _.description) == ("read all files", "_")


def test_options_are_what_the_tool_has() -> None:
    @tool(name="sum-up", description="Sum.", parallel=False, timeout=3, abandon_on_cancel=False, max_result_bytes=100)
    def add(a: Annotated[int, "number"]) -> int:
        """Not this."""
        return a

    assert (add.name, add.description, add.parallel, add.timeout) == ("sum-up", "Sum.", False, 3)
    assert (add.abandon_on_cancel, add.max_result_bytes) == (False, 100)
    assert add.__name__ == "add"
    assert add.input_schema["properties"]["a"] == {"type": "integer", "description": "number"}


def test_only_a_sync_tool_leaves_a_thread_behind() -> None:
    assert (add.abandon_on_cancel, wait.abandon_on_cancel) == (True, False)


def test_keyword_only_parameters_are_parameters() -> None:
    @tool
    def f(*, a: int, b: str = "x") -> str:
        return f"{a}{b}"

    assert f.input_schema["required"] == ["a"]
    assert f(**read(f, a=1)) == "1x"


async def test_state_and_call_are_given_and_not_shown() -> None:
    @tool
    def f(state: State, n: int, call: Annotated[ToolCall, "which"]) -> str:
        return f"{state.id} {n} {call.id}"

    here = context(f)

    assert list(f.input_schema["properties"]) == ["n"]
    assert await f.call(read(f, n=1), here) == f"{here.state.id} 1 call-1"
    assert repr(f) == "<tool f(n, state, call)>"


async def test_state_and_call_are_known_by_hints_that_are_strings() -> None:
    assert list(module_tool.input_schema["properties"]) == ["place", "n", "m"]
    assert (await text(module_tool, place={"city": "Bern"})).startswith("Place(city='Bern', zip=None) ")


class TestMethods:
    def test_self_is_no_parameter(self) -> None:
        assert list(Box("b").open.input_schema["properties"]) == ["wide"]
        assert list(Box("b").weigh.input_schema["properties"]) == ["unit"]

    async def test_a_method_is_bound_to_its_object(self) -> None:
        assert Box("red").open(True) == "red is open wide"
        assert await text(Box("red").open, wide=True) == "red is open wide"
        assert await text(Box("red").weigh, unit="kg") == "red weighs 3 kg"

    def test_an_unbound_method_runs_as_the_function(self) -> None:
        assert Box.open(Box("red")) == "red is open"

    async def test_static_and_class_methods_are_bound_too(self) -> None:
        assert await text(Box("b").kinds, of="x") == '["x"]'
        assert await text(Box.kinds, of="x") == '["x"]'
        assert await text(Box("b").others, of="x") == '["x","x"]'
        assert await text(SmallBox.owner, upper=False) == "SmallBox"
        assert SmallBox("b").owner(True) == "SMALLBOX"

    def test_an_object_gives_all_its_tools_in_order(self) -> None:
        box = SmallBox("b")

        found = tools_of(box)

        assert [one.name for one in found] == ["open", "weigh_it", "kinds", "others", "owner", "close"]
        assert not any(isinstance(one, FunctionTool) and one.is_unbound for one in found)

    async def test_an_overriding_tool_takes_the_place_of_the_other(self) -> None:
        opened = tools_of(SmallBox("b"))[0]

        assert await text(opened) == "small: b is open"

    def test_a_tool_overridden_by_a_plain_method_is_none_any_more(self) -> None:
        class Shut(Box):
            def open(self) -> None:  # type: ignore[override]
                ...

        assert "open" not in [one.name for one in tools_of(Shut("b"))]

    def test_a_bound_method_can_be_made_a_tool(self) -> None:
        class Plain:
            def double(self, n: int) -> int:
                return 2 * n

        double = tool(Plain().double)

        assert double.input_schema["required"] == ["n"]
        assert double(4) == 8
        assert tools_of(double) == [double]

    def test_a_decorated_method_is_a_method(self) -> None:
        def traced(fn: Any) -> Any:
            @functools.wraps(fn)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                return fn(*args, **kwargs) + "!"

            return wrapper

        class Dog:
            @tool
            @traced
            def bark(self, word: str) -> str:
                return word

        assert list(Dog().bark.input_schema["properties"]) == ["word"]
        assert Dog().bark("wau") == "wau!"

    def test_a_method_of_a_class_that_attrs_makes_anew_can_use_super(self) -> None:
        @attrs.define
        class Chest(Box):
            locked: bool = True

            @tool
            def open(self, wide: bool = False) -> str:
                return "locked" if self.locked else super().open(wide)

        chest = Chest(locked=False)
        chest.name = "c"

        assert chest.open() == "c is open"

    def test_an_abstract_method_stays_abstract(self) -> None:
        class Source(abc.ABC):
            @tool
            @abc.abstractmethod
            def look_up(self, word: str) -> str: ...

        class Book(Source):
            @tool
            def look_up(self, word: str) -> str:
                return word

        assert [one.name for one in tools_of(Book())] == ["look_up"]
        with pytest.raises(TypeError, match="look_up"):
            Source()  # type: ignore[abstract]

    def test_a_method_without_its_object_is_refused_as_a_tool(self) -> None:
        assert repr(Box.open) == "<unbound tool open(wide)>"
        with pytest.raises(
            TypeError, match=r"open\(wide\)> is a method without its object; use .*: Box\(\.\.\.\)\.open"
        ):
            tools_of(Box.open)

    def test_a_class_is_refused_as_a_tool(self) -> None:
        with pytest.raises(TypeError, match=r"Box is a class; use an object of it: Box\(\.\.\.\)"):
            tools_of(Box)

    @pytest.mark.parametrize(
        ("item", "said"),
        [
            (len, "len is not a tool: decorate it"),
            (3, "int object is not .* methods"),
            ("add", r"'add' is a text and not a tool; put the function itself there: tools=\[read_file\]"),
        ],
    )
    def test_what_has_no_tools_is_refused(self, item: object, said: str) -> None:
        with pytest.raises(TypeError, match=said):
            tools_of(item)


class TestOtherCallables:
    async def test_a_partial_is_a_tool_of_what_is_left(self) -> None:
        def power(base: int, exponent: int, *, of: str = "x") -> str:
            """Raise."""
            return f"{of}{base**exponent}"

        one = tool(functools.partial(power, 2, of="y"))

        assert (one.name, one.description) == ("power", "Raise.")
        assert await text(one, exponent=3) == "y8"

    async def test_a_partial_of_an_async_function_is_awaited(self) -> None:
        async def power(base: int, exponent: int) -> int:
            return base**exponent

        assert await text(tool(functools.partial(power, 2)), exponent=3) == "8"

    async def test_an_object_that_can_be_called_is_a_tool(self) -> None:
        class Adder:
            def __call__(self, n: int) -> int:
                """Add one."""
                return n + 1

        class Waiter:
            async def __call__(self, n: int) -> int:
                return n + 2

        assert tool(name="adder")(Adder()).description == "Add one."
        assert await text(tool(name="adder")(Adder()), n=1) == "2"
        assert await text(tool(name="waiter")(Waiter()), n=1) == "3"
        with pytest.raises(TypeError, match="None can't be the name of a tool"):
            tool(Adder())

    async def test_what_a_sync_wrapper_returns_is_awaited(self) -> None:
        async def inner(n: int) -> int:
            return n + 1

        @tool
        @functools.wraps(inner)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return inner(*args, **kwargs)

        assert await text(wrapper, n=1) == "2"

    async def test_a_wrapper_that_collects_a_generator_is_a_tool(self) -> None:
        def collected(fn: Any) -> Any:
            @functools.wraps(fn)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                return list(fn(*args, **kwargs))

            return wrapper

        @tool
        @collected
        def count(n: int) -> Iterator[int]:
            yield from range(n)

        assert await text(count, n=3) == "[0,1,2]"


def positional_only(a: int, /) -> None: ...
def many(*args: int) -> None: ...
def named(**kwargs: int) -> None: ...
def no_hint(a) -> None: ...  # type: ignore[no-untyped-def]
def generator(n: int) -> Iterator[int]:
    yield n


async def async_generator(n: int) -> AsyncIterator[int]:
    yield n


def state_or_none(state: State | None) -> None: ...
def größe() -> None: ...


class Generator:
    def __call__(self, n: int) -> Iterator[int]:
        yield n


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        (positional_only, "tool 'positional_only', parameter 'a' is positional-only"),
        (many, "parameter 'args' is variadic positional; a model gives its arguments by name: write args: list"),
        (named, "parameter 'kwargs' is variadic keyword; a model gives its arguments by name: write kwargs: dict"),
        (no_hint, "tool 'no_hint', parameter 'a' has no type hint; write one: a: str"),
        (generator, "tool 'generator': a generator can't be a tool"),
        (async_generator, "tool 'async_generator': a generator can't"),
        (functools.partial(generator, 1), "a generator can't be a tool"),
        (state_or_none, "tool 'state_or_none', parameter 'state' always gets what it asks for; write state: State"),
        (
            größe,
            "'größe' can't be the name of a tool: letters, digits, _ and -, at most 64; give one by tool(name='...')",
        ),
        (lambda: None, "'<lambda>' can't be the name of a tool"),
        (len, "tool 'len', parameter 'obj' is positional-only; a model gives its arguments by name: leave out the"),
        (min, "tool 'min': its parameters can't be found out"),
        (int, "@tool is for functions and methods, not for <class 'int'>"),
        (5, "@tool is for functions and methods, not for 5"),
        ("f", "@tool is for functions and methods, not for 'f'; to name one: @tool(name='f')"),
        (add, "<tool add(a, b)> is a tool already"),
    ],
)
def test_what_can_not_be_a_tool_is_refused_at_once(fn: Any, said: str) -> None:
    with pytest.raises(TypeError, match=re.escape(said)):
        tool(fn)


def test_an_object_that_generates_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="a generator can't be a tool"):
        tool(name="g")(Generator())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": ""}, "'' can't be the name of a tool"),
        ({"name": "a b"}, "'a b' can't be"),
        ({"name": "a\n"}, "can't be the name"),
        ({"name": "a" * 65}, "can't be the name"),
        ({"name": 5}, "5 can't be the name"),
        ({"description": " "}, "tool 'f': description must be text (got ' ')"),
        ({"description": 5}, "description must be text"),
        ({"parallel": 1}, "parallel must be True or False (got 1)"),
        ({"abandon_on_cancel": None}, "abandon_on_cancel must be True or False"),
        ({"timeout": 0}, "timeout must be seconds, more than 0, or None (got 0)"),
        ({"timeout": -1.0}, "timeout must be"),
        ({"timeout": float("nan")}, "timeout must be"),
        ({"timeout": float("inf")}, "timeout must be"),
        ({"timeout": True}, "timeout must be"),
        ({"timeout": "30"}, "timeout must be"),
        ({"max_result_bytes": 0}, "max_result_bytes must be an int, more than 0 (got 0)"),
        ({"max_result_bytes": 1.5}, "max_result_bytes must be"),
    ],
)
def test_a_wrong_option_is_refused_at_once(options: dict[str, Any], said: str) -> None:
    def f() -> None: ...

    with pytest.raises(TypeError, match=re.escape(said)):
        tool(**options)(f)


async def test_running_a_function_tool_without_a_call_is_refused() -> None:
    with pytest.raises(TypeError, match=r"<tool add\(a, b\)> is run by call\(args, context\)"):
        await add.run({}, State())


def test_a_bad_tool_is_named_and_leaves_the_others_alone() -> None:
    with pytest.raises(TypeError, match="tool 'bad'"):

        @tool
        def bad(x: complex) -> None: ...

    assert add(1, 1) == 2

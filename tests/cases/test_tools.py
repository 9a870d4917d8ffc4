"""Failures of tools that users of other libraries met, each ruled out as a kind. Docstrings name it.

C12 is about tools that run subprocesses, and none comes with this library. What concerns it here: text that is no UTF-8
as a result, results that don't end, and what is left of a tool that timed out.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Optional

import jsonschema
import pydantic
import pytest
import trio
import trio.testing

from alpineagents import (
    Agent,
    File,
    Message,
    State,
    TextBlock,
    ToolCall,
    ToolError,
    tool,
)
from alpineagents.models._openai_schema import can_be_strict
from alpineagents.testing import FakeModel, tool_call

from ..run.runs import assert_whole, outcomes
from ..tools import with_future_import, without_future_import
from ..tools.calls import ending, read, text


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Inner:
    """Inside."""

    x: int = 1


@dataclasses.dataclass
class Node:
    name: str
    children: list[Node] = dataclasses.field(default_factory=list)


async def ran(tools: list[Any], *calls: Any) -> State:
    """A State whose first reply asks for *calls*, after its run."""
    state = State(messages=[Message.user("go")])
    await Agent(model=FakeModel([list(calls), "ok"]), tools=tools).run(state)
    assert_whole(state)
    return state


def told(state: State) -> list[str]:
    """What the model got for each call, in the order they were asked."""
    blocks = [block for message in state.messages if message.role == "tool" for block in message.blocks]
    return ["".join(getattr(part, "text", "") for part in block.content) for block in blocks]


# ---- C1: annotations that are strings


@pytest.mark.parametrize("name", ["module_tool", "local_tool", "local_method_tool"])
def test_annotations_as_strings_make_the_same_tool(name: str) -> None:
    """C1. At a module's top, inside a function, in a class inside a function."""
    strings, types = getattr(with_future_import, name), getattr(without_future_import, name)
    if name != "module_tool":
        strings, types = strings(), types()

    assert strings.input_schema == types.input_schema
    assert not {"state", "call"} & strings.input_schema["properties"].keys()


def test_a_name_that_can_not_be_resolved_is_said_at_once_and_no_parameter_is_dropped() -> None:
    """C1. Function, parameter and name are in the message."""

    def make() -> Any:
        class Local: ...

        def look(place: Local, n: Optional[int] = None) -> None: ...  # noqa: UP045

        return look

    with pytest.raises(TypeError, match="tool 'look', parameter 'place': the name 'Local' in the type hint"):
        tool(make())


# ---- C3: the strict form


def test_a_tool_with_a_map_is_not_strict_and_loses_nothing() -> None:
    """C3."""

    @tool(strict=True)
    def save(meta: dict[str, str], inner: Inner | None = None) -> None: ...

    assert save.input_schema["properties"]["meta"] == {"type": "object", "additionalProperties": {"type": "string"}}
    assert not can_be_strict(save.input_schema)
    assert read(save, meta={"a": "b"}) == {"meta": {"a": "b"}}


def test_every_level_of_a_strict_tool_is_closed_and_null_means_the_default() -> None:
    """C3. In unions and nested classes too."""

    @tool(strict=True)
    def save(inner: Inner | None = None, either: list[Inner] | Inner = (), n: int = 5) -> None: ...  # type: ignore[assignment]

    closed = {"type": "object", "description": "Inside.", "required": ["x"], "additionalProperties": False}
    nullable = closed | {"properties": {"x": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}}

    assert can_be_strict(save.input_schema)
    assert save.input_schema["required"] == ["inner", "either", "n"]
    assert save.input_schema["properties"]["inner"] == {"anyOf": [nullable, {"type": "null"}]}
    assert save.input_schema["properties"]["either"]["anyOf"][0] == {"type": "array", "items": nullable}
    assert read(save, inner={"x": None}, either=[{"x": 2}], n=None) == {"inner": Inner(1), "either": [Inner(2)]}


# ---- C4: lists and objects sent as text


@pytest.mark.parametrize(
    ("hint", "sent", "got"),
    [
        (list[int], "[1, 2]", [1, 2]),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (Inner, '{"x": 3}', Inner(3)),
        (list[Inner], '[{"x": 3}]', [Inner(3)]),
        (tuple[int, str], '[1, "a"]', (1, "a")),
        (list[str] | None, '["a"]', ["a"]),
        (list[str] | str, '["a"]', '["a"]'),  # text is what was asked for, too
        (str, "[1]", "[1]"),
    ],
)
def test_lists_and_objects_may_come_as_json_text(hint: Any, sent: str, got: Any) -> None:
    """C4. Only where a list or an object is wanted, and what came isn't one."""

    def f(p):
        return p

    f.__annotations__ = {"p": hint}

    assert read(tool(f), p=sent)["p"] == got


async def test_text_that_is_no_json_shows_the_first_error() -> None:
    """C4."""

    @tool
    async def add(ids: list[int]) -> None: ...

    state = await ran([add], tool_call("add", ids="[1, 2"), tool_call("add", ids='["a"]'))

    assert told(state) == [
        'wrong arguments: ids: expected array of integer, got string "[1, 2"',
        'wrong arguments: ids: expected array of integer, got string "[\\"a\\"]"',
    ]


# ---- C6: references


def test_what_is_not_recursive_stands_where_it_is_used_with_what_is_said_of_it() -> None:
    """C6."""

    @tool
    def paint(color: Color, inner: Annotated[Inner, "where"], more: Inner) -> None: ...

    properties = paint.input_schema["properties"]

    assert "$ref" not in str(paint.input_schema)
    assert properties["color"] == {"type": "string", "enum": ["red", "blue"]}
    assert properties["inner"]["description"] == "where"
    assert properties["more"]["description"] == "Inside."


def test_what_is_recursive_is_defined_at_the_root_and_the_schema_is_valid() -> None:
    """C6."""

    @tool
    def walk(start: Annotated[Node, "the root"], others: list[Node]) -> None: ...

    validator = jsonschema.Draft202012Validator(walk.input_schema)
    tree = {"name": "a", "children": [{"name": "b"}]}

    jsonschema.Draft202012Validator.check_schema(walk.input_schema)
    assert walk.input_schema["properties"]["start"] == {"$ref": "#/$defs/Node", "description": "the root"}
    assert validator.is_valid({"start": tree, "others": [tree]})
    assert not validator.is_valid({"start": tree, "others": [{"name": 1}]})
    assert read(walk, start=tree, others=[]) == {"start": Node("a", [Node("b")]), "others": []}


def test_a_bad_tool_is_reported_alone_and_by_name() -> None:
    """C6. When it is decorated, before any request."""
    with pytest.raises(TypeError, match="tool 'bad', parameter 'p': the type complex isn't supported"):

        @tool
        def bad(p: complex) -> None: ...

    @tool
    def good(p: int) -> None: ...

    assert Agent(model=FakeModel([]), tools=[good]).tool_map == {"good": good}


# ---- C7: tools that there are not


@pytest.mark.parametrize("name", ["nope", 'read" />', "functions.read", "read ", "", "x" * 10_000])
async def test_an_unknown_tool_is_an_error_result_that_names_those_there_are(name: str) -> None:
    """C7. The known ones of the same reply run."""

    @tool
    async def read(path: str) -> str:
        return f"content of {path}"

    state = await ran([read], ToolCall("1", name, {}), tool_call("read", path="a"))

    unknown, known = told(state)
    assert unknown.startswith("There is no tool ")
    assert unknown.endswith("Available: read.")
    assert ("Did you mean read?" in unknown) == ("read" in name)
    assert len(unknown) < 250
    assert known == "content of a"
    assert ("read", "done") in outcomes(state)
    assert state.answer == "ok"


async def test_of_many_tools_the_nearest_and_the_first_are_named() -> None:
    """C7. The message stays short enough for a model."""

    async def look() -> None: ...

    tools = [tool(name=f"look_up_{number}")(look) for number in range(300)]

    (said,) = told(await ran(tools, tool_call("lookup_299")))

    assert "Did you mean look_up_299? Available: look_up_0, look_up_1, " in said
    assert said.endswith(", look_up_99 and 200 more.")


async def test_a_tool_that_a_later_program_lacks_is_an_error_result() -> None:
    """C7. The State was left with the call pending; the next program has another tool."""

    @tool
    async def read_file(path: str) -> str: ...  # type: ignore[empty-body]

    @tool
    async def read_text(path: str) -> str: ...  # type: ignore[empty-body]

    state = State(messages=[Message.user("go")])
    await Agent(model=FakeModel([tool_call("read_file", path="a")]), tools=[read_file]).think(state)
    later = Agent(model=FakeModel(["ok"]), tools=[read_text])
    await later.use_tools(state)

    assert told(state) == ["There is no tool 'read_file'. Did you mean read_text? Available: read_text."]
    assert (await later.think(state)).text == "ok"


@pytest.mark.parametrize("raw", ["", "  ", None, "{}"])
async def test_no_arguments_can_be_said_in_several_ways(raw: str | None) -> None:
    """Beside C7: an empty text for a call without arguments."""

    @tool
    async def now() -> str:
        return "noon"

    call = ToolCall("1", "now", {} if raw == "{}" else None, raw)
    state = await ran([now], call)

    assert told(state) == ["noon"]


async def test_malformed_json_is_an_error_result_and_the_run_goes_on() -> None:
    """Beside C7."""

    @tool
    async def now(zone: str) -> str: ...  # type: ignore[empty-body]

    state = await ran([now], ToolCall("1", "now", None, '{"zone": '), ToolCall("2", "now", None, ""))

    assert told(state)[0].startswith('The arguments are not a JSON object; the tool did not run. They were: {"zone": ')
    assert told(state)[1] == "wrong arguments: zone: missing, expected string"


# ---- C8: results that are no JSON


class Unspeakable:
    def __str__(self) -> str:
        raise ZeroDivisionError

    __repr__ = __str__


class Model(pydantic.BaseModel):
    n: int
    at: datetime


def a_generator() -> Iterator[int]:
    yield 1


def giving(value: Any) -> Any:
    @tool
    async def give() -> Any:
        return value

    return give


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "(done)"),
        (Inner(2), '{"x":2}'),
        (Model(n=1, at=datetime(2026, 1, 2, tzinfo=UTC)), '{"n":1,"at":"2026-01-02T00:00:00+00:00"}'),
        ([Inner(2)], '[{"x":2}]'),
        ([TextBlock("a"), TextBlock("b")], "ab"),
    ],
)
async def test_a_result_has_a_json_form(value: Any, expected: str) -> None:
    """C8."""
    assert told(await ran([giving(value)], tool_call("give"))) == [expected]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"\xf0", "the result of tool give: bytes is not JSON"),
        (datetime(2026, 1, 2, tzinfo=UTC), "the result of tool give: datetime is not JSON"),
        ({"a": [{1}]}, r'the result of tool give\["a"\]\[0\]: set is not JSON; use a list'),
        ({"a": float("nan")}, r'the result of tool give\["a"\]: nan is not JSON'),
        (ValueError("x"), "ValueError is not JSON"),
        (a_generator(), "generator is not JSON"),
        (Unspeakable(), "Unspeakable is not JSON"),
        ([Unspeakable()], r"the result of tool give\[0\]: Unspeakable is not JSON"),
    ],
)
async def test_a_result_that_is_no_json_stops_the_run_and_names_tool_and_place(value: Any, said: str) -> None:
    """C8. What it left behind can be shown, whatever it is, and goes on."""
    state = State(messages=[Message.user("go")])
    agent = Agent(model=FakeModel([tool_call("give"), "ok"]), tools=[giving(value)])

    with pytest.raises(TypeError, match=said):
        await agent.run(state)

    assert_whole(state)
    assert "give" in str(state)
    assert repr(state)
    assert await agent.run(state) == "ok"


async def test_an_exception_that_can_not_be_shown_is_recorded_all_the_same() -> None:
    """C8. Nothing crashes inside the path of errors."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise ZeroDivisionError

        __repr__ = __str__

    class MuteForTheModel(ToolError):
        __str__ = __repr__ = Mute.__str__

    @tool
    async def fail() -> None:
        raise Mute

    @tool
    async def tell() -> None:
        raise MuteForTheModel

    assert told(await ran([tell], tool_call("tell"))) == ["MuteForTheModel"]
    state = State(messages=[Message.user("go")])
    with pytest.raises(Mute):
        await Agent(model=FakeModel([tool_call("fail")]), tools=[fail]).run(state)
    assert_whole(state)
    assert "Mute" in str(state)


# ---- C9: sync tools


async def test_sync_tools_run_at_the_same_time_and_hold_up_nobody() -> None:
    """C9. Each waits for the other, and for trio, which has to run meanwhile: one after another, none would end."""
    both = threading.Barrier(2, timeout=30)
    ticks: list[str] = []

    async def tick(name: str) -> None:
        await trio.lowlevel.checkpoint()
        ticks.append(name)

    @tool
    def meet(name: str) -> str:
        both.wait()
        trio.from_thread.run(tick, name)
        both.wait()
        return name

    state = await ran([meet], tool_call("meet", name="a"), tool_call("meet", name="b"))

    assert told(state) == ["a", "b"]
    assert sorted(ticks) == ["a", "b"]


async def test_whatever_can_be_called_is_known_for_sync_or_async() -> None:
    """C9. Partials, methods, objects with ``__call__``, functions that return something to await."""
    main = threading.get_ident()

    async def asynchronous(n: int) -> bool:
        return threading.get_ident() == main

    def synchronous(n: int) -> bool:
        return threading.get_ident() == main

    @functools.wraps(asynchronous)
    def returning(n: int) -> Any:
        return asynchronous(n)

    class Both:
        async def method(self, n: int) -> bool:
            return threading.get_ident() == main

        def other(self, n: int) -> bool:
            return threading.get_ident() == main

        async def __call__(self, n: int) -> bool:
            return threading.get_ident() == main

    on_trio = [asynchronous, functools.partial(asynchronous), returning, Both().method, Both()]
    in_thread = [synchronous, functools.partial(synchronous), Both().other]

    assert [await text(tool(name="f")(fn), n=1) for fn in on_trio] == ["true"] * 5
    assert [await text(tool(name="f")(fn), n=1) for fn in in_thread] == ["false"] * 3


# ---- C11: methods


class Box:
    @tool
    def open(self, wide: bool = False) -> str:
        return f"open{' wide' if wide else ''}"

    @tool
    @staticmethod
    def kinds(of: str) -> str:
        return of

    def close(self, how: str) -> str:
        return how


async def test_self_is_no_parameter_however_the_method_is_had() -> None:
    """C11."""
    power = tool(functools.partial(pow_of, 2))

    assert list(Box().open.input_schema["properties"]) == ["wide"]
    assert list(Box().kinds.input_schema["properties"]) == ["of"]
    assert list(tool(Box().close).input_schema["properties"]) == ["how"]
    assert list(power.input_schema["properties"]) == ["exponent"]
    assert await text(Box().open, wide=True) == "open wide"
    assert await text(tool(Box().close), how="softly") == "softly"
    assert await text(power, exponent=3) == "8"
    assert Agent(model=FakeModel([]), tools=[Box()]).tool_map.keys() == {"open", "kinds"}


def pow_of(base: int, exponent: int) -> int:
    return int(base**exponent)


def many(*args: int) -> None: ...
def named(**kwargs: int) -> None: ...
def positional(a: int, /) -> None: ...


@pytest.mark.parametrize("fn", [many, named, positional])
def test_parameters_that_no_name_reaches_are_refused_at_once(fn: Any) -> None:
    """C11."""
    with pytest.raises(TypeError, match=f"tool '{fn.__name__}', parameter '.*' is .*; a model gives its arguments by"):
        tool(fn)


def test_a_method_without_its_object_is_refused_by_the_agent() -> None:
    """C11."""
    with pytest.raises(TypeError, match=r"is a method without its object; use the method of an object: Box\(...\)"):
        Agent(model=FakeModel([]), tools=[Box.open])


async def test_keyword_only_parameters_are_parameters() -> None:
    """C11."""

    @tool
    async def f(*, a: int, b: str = "x") -> str:
        return f"{a}{b}"

    assert f.input_schema["required"] == ["a"]
    assert await text(f, a=1) == "1x"


# ---- C12: output that is no UTF-8, or never ends; what a tool that timed out leaves


async def test_text_that_is_no_utf_8_is_a_result_all_the_same() -> None:
    """C12. What ``errors="replace"`` and ``errors="surrogateescape"`` make of bytes."""
    raw = b"a\xf0b"
    replaced, escaped = raw.decode(errors="replace"), raw.decode(errors="surrogateescape")

    assert told(await ran([giving(replaced)], tool_call("give"))) == ["a\ufffdb"]
    assert told(await ran([giving(escaped)], tool_call("give"))) == ["a\ufffdb"]
    assert told(await ran([giving([escaped])], tool_call("give"))) == ['["a\ufffdb"]']


@pytest.mark.parametrize("result", [bytes, File])
async def test_bytes_that_are_no_text_are_refused_and_said_to_be_so(result: Any) -> None:
    """C12. They stop the run, as every mistake of a tool does; nothing guesses what they are."""

    @tool
    async def give() -> Any:
        return result(b"\xf0")

    with pytest.raises(
        (TypeError, ValueError), match=r"use text, such as base64|neither a PDF nor UTF-8 text: 1 bytes"
    ):
        await ran([give], tool_call("give"))


@pytest.mark.parametrize("character", ["\ufffd", "ü", "\U0001f600"])
@pytest.mark.parametrize("as_file", [False, True])
async def test_a_long_text_is_cut_between_characters_and_kept(character: str, as_file: bool) -> None:
    """C12."""
    whole = File((character * 1000).encode()) if as_file else TextBlock(character * 1000)

    @tool(max_result_bytes=100)
    async def give() -> Any:
        return whole

    result = await ending(give)

    (cut,) = result.content
    kept = cut.data.decode() if isinstance(cut, File) else cut.text  # type: ignore[union-attr]
    assert "bytes are missing here" in kept
    assert len(kept.encode()) <= 100
    assert result.full == (whole,)


async def test_an_output_without_end_is_held_to_the_limit() -> None:
    """C12. Of 40 MiB the model gets 64 KiB, and 16 MiB are kept."""
    result = await ending(giving("y\n" * (20 * 2**20)))

    for blocks, least, most in ((result.content, 0, 64 * 1024), (result.full or (), 15 * 2**20, 16 * 2**20)):
        (block,) = blocks
        assert isinstance(block, TextBlock)
        assert "bytes are missing here" in block.text
        assert least < len(block.text) <= most


async def test_a_tool_that_timed_out_has_cleaned_up_before_the_model_is_told(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """C12. Its ``finally`` blocks ran, and nothing it started runs on; other calls go on."""
    steps: list[str] = []

    async def child() -> None:
        try:
            await trio.sleep_forever()
        finally:
            steps.append("child ended")

    @tool(timeout=30)
    async def slow() -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(child)
        finally:
            with trio.move_on_after(5, shield=True):
                await trio.sleep(1)
                steps.append("cleaned up")

    @tool
    async def other() -> str:
        await trio.sleep(60)
        return "whole"

    def model(request: Any) -> Any:
        if len(request.messages) > 1:
            return "ok"
        return [tool_call("slow"), tool_call("other")]

    state = State(messages=[Message.user("go")])
    await Agent(model=FakeModel(model), tools=[slow, other]).run(state)

    assert steps == ["child ended", "cleaned up"]
    assert told(state) == ["(timed out after 30 s)", "whole"]
    assert trio.current_time() == 60


async def test_a_timeout_that_a_model_chooses_is_a_parameter_with_limits() -> None:
    """C12. ``timeout=-1`` never reaches the tool."""
    from annotated_types import Gt, Le

    @tool
    async def wait(seconds: Annotated[float, Gt(0), Le(60)]) -> None: ...

    state = await ran([wait], tool_call("wait", seconds=-1), tool_call("wait", seconds="600"))

    assert told(state) == [
        "wrong arguments: seconds: expected number (> 0, <= 60), got integer -1",
        'wrong arguments: seconds: expected number (> 0, <= 60), got string "600"',
    ]


def test_literals_and_optionals_of_the_first_case_are_read() -> None:
    """C1. ``n: Optional[int] = None, m: Literal["a", "b"] = "a"``."""

    @tool
    def f(n: Optional[int] = None, m: Literal["a", "b"] = "a") -> None: ...  # noqa: UP045

    assert read(f, n="3", m="b") == {"n": 3, "m": "b"}
    assert read(f, n=None, m=None) == {"n": None}

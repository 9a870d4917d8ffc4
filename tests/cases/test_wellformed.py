"""What a provider would refuse is refused by everything here that stands in for one: no test passes by its leniency.

The rules themselves: each kind of fault is refused, wherever in a conversation it stands, and each legal form is taken.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any, ClassVar

import httpx
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from alpineagents import (
    Agent,
    BadRequestError,
    Image,
    Message,
    OpenAICompatible,
    RawBlock,
    Request,
    State,
    TextBlock,
    ThinkingBlock,
    Tool,
    ToolCall,
    ToolResultBlock,
    ToolSpec,
)
from alpineagents.testing import FakeModel, ProviderServer, ReceivedRequest
from alpineagents.testing._formats._chat_rules import problems

from ..conversations import PNG, chat_bytes

Messages = list[dict[str, Any]]


def call(call_id: str, name: str = "read", arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def asking(*call_ids: str, text: str | None = None) -> dict[str, Any]:
    return {"role": "assistant", "content": text, "tool_calls": [call(call_id) for call_id in call_ids]}


def result(call_id: str, content: object = "x") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Hi"}
TEXT = {"role": "assistant", "content": "Hello."}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0="}}
PICTURE = {"role": "user", "content": [{"type": "text", "text": "see"}, IMAGE]}
FILE = {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}}

LEGAL: dict[str, Messages] = {
    "one message": [USER],
    "system first": [SYSTEM, USER],
    "developer first": [{**SYSTEM, "role": "developer"}, USER],
    "an answer": [USER, TEXT, USER],
    "two replies": [USER, TEXT, TEXT],
    "ending with a reply": [USER, TEXT],
    "a call": [USER, asking("a"), result("a")],
    "a call with text": [USER, asking("a", text="I look."), result("a")],
    "three calls": [USER, asking("a", "b", "c"), result("a"), result("b"), result("c")],
    "calls in turns": [USER, asking("a"), result("a"), asking("b", "c"), result("b"), result("c"), TEXT, USER],
    "calls behind a reply": [USER, TEXT, asking("a"), result("a"), USER],
    "a message behind the results": [USER, asking("a"), result("a"), USER],
    "pictures": [PICTURE],
    "a picture behind the results": [USER, asking("a", "b"), result("a"), result("b"), PICTURE],
    "a document": [{"role": "user", "content": [FILE]}],
    "a result in parts": [USER, asking("a"), result("a", [{"type": "text", "text": "x"}])],
    "a reply in parts": [USER, {"role": "assistant", "content": [{"type": "text", "text": "x"}]}],
    "reasoning goes back": [USER, {**asking("a"), "reasoning_content": ""}, result("a")],
    "NUL": [{"role": "user", "content": "a\x00b"}],
    "a pair of surrogates": [{"role": "user", "content": "\U0001f600"}],
    "as long as it may be": [USER, asking("a"), result("a", "x" * 10_485_760)],
    "arguments": [
        USER,
        {**asking("a"), "tool_calls": [call("a", arguments='{"path": [1, {"x": null}]}')]},
        result("a"),
    ],
}

TWO = [USER, asking("a", "b"), result("a"), result("b"), USER]
"""What the faults are put into."""


def calls_as(*calls: object) -> Messages:
    return [USER, {**asking("a"), "tool_calls": list(calls)}, result("a")]


ILLEGAL: dict[str, tuple[Messages, str]] = {
    # Results and their calls
    "no result at all": ([USER, asking("a")], "no tool message answers a"),
    "no result before the person": ([USER, asking("a"), USER], "no tool message answers a"),
    "no result before a reply": ([USER, asking("a"), TEXT], "no tool message answers a"),
    "no result before other calls": ([USER, asking("a"), asking("b"), result("b")], "no tool message answers a"),
    "the first result missing": ([USER, asking("a", "b"), result("b")], "must answer the next"),
    "the last result missing": ([USER, asking("a", "b"), result("a"), USER], "no tool message answers b"),
    "results in another order": ([USER, asking("a", "b"), result("b"), result("a")], "must answer the next"),
    "a result before its call": ([USER, result("a"), asking("a")], "must answer the next"),
    "a result without its call": ([USER, result("a")], "must answer the next"),
    "a result behind an answer": ([USER, TEXT, result("a")], "must answer the next"),
    "a result of another call": ([USER, asking("a"), result("b")], "must answer the next"),
    "a result of a call of an earlier turn": ([*TWO, asking("c"), result("c"), result("a")], "must answer the next"),
    "two results of one call": ([USER, asking("a"), result("a"), result("a")], "must answer the next"),
    "a result without an id": ([USER, asking("a"), {"role": "tool", "content": "x"}], "must answer the next"),
    "the person between call and result": ([USER, asking("a"), USER, result("a")], "no tool message answers a"),
    "a reply between call and result": ([USER, asking("a"), TEXT, result("a")], "no tool message answers a"),
    "a picture between two results": ([USER, asking("a", "b"), result("a"), PICTURE, result("b")], "answers b"),
    "the system between two results": ([USER, asking("a", "b"), result("a"), SYSTEM, result("b")], "answers b"),
    # Ids
    "an id twice in a reply": ([USER, asking("a", "a"), result("a"), result("a")], "two tool calls have one id"),
    "an id of a reply before": ([*TWO, asking("b"), result("b")], "a tool call before has the id b"),
    "an empty id": ([USER, asking(""), result("")], "needs an id"),
    "no id": (calls_as({"type": "function", "function": {"name": "read", "arguments": "{}"}}), "needs an id"),
    "an id that is no text": (calls_as({**call("a"), "id": 3}), "needs an id"),
    # Who speaks when
    "two messages of the person": ([USER, USER], "roles must alternate"),
    "two messages behind the results": ([USER, asking("a"), result("a"), PICTURE, USER], "roles must alternate"),
    "a reply first": ([TEXT, USER], "must be of the role 'user'"),
    "a reply behind the system": ([SYSTEM, TEXT, USER], "must be of the role 'user'"),
    "calls first": ([asking("a"), result("a"), USER], "must be of the role 'user'"),
    "nobody but the system": ([SYSTEM], "must be of the role 'user'"),
    "the system in the middle": ([USER, SYSTEM], "at the beginning"),
    # Text
    **{
        f"{role} says {content!r}": ([USER, {"role": role, "content": content}], "non-empty")
        for role in ("user", "assistant", "system")
        for content in ("", " ", "\n\t", None)
    },
    **{
        f"a result {content!r}": ([USER, asking("a"), result("a", content)], "non-empty")
        for content in ("", "  \n", None)
    },
    "calls with empty text": ([USER, asking("a", text=""), result("a")], "non-empty"),
    "calls with blank text": ([USER, asking("a", text=" "), result("a")], "non-empty"),
    "an empty text block": ([{"role": "user", "content": [{"type": "text", "text": ""}, IMAGE]}], "non-empty"),
    "a blank text block": ([{"role": "user", "content": [IMAGE, {"type": "text", "text": " "}]}], "non-empty"),
    "a text block without text": ([{"role": "user", "content": [{"type": "text", "text": None}]}], "non-empty"),
    "no blocks": ([{"role": "user", "content": []}], "too short - 'content'"),
    "a result without blocks": ([USER, asking("a"), result("a", [])], "too short - 'content'"),
    "half a character": ([{"role": "user", "content": "ok \ud83d"}], "half of a surrogate pair"),
    "half a character in a result": ([USER, asking("a"), result("a", "\udc00")], "half of a surrogate pair"),
    "half a character in an id": ([USER, asking("\ud83d"), result("\ud83d")], "half of a surrogate pair"),
    "too long a result": ([USER, asking("a"), result("a", "x" * 10_485_761)], "string too long"),
    "too long a text block": ([{"role": "user", "content": [{"type": "text", "text": "x" * 10_485_761}]}], "too long"),
    "a picture in a result": ([USER, asking("a"), result("a", [IMAGE])], "text only"),
    "a picture in a reply": ([USER, {"role": "assistant", "content": [IMAGE]}], "text only"),
    # Calls
    "no calls": ([USER, {**TEXT, "tool_calls": []}], "too short - 'tool_calls'"),
    "calls that are none": ([USER, {**TEXT, "tool_calls": None}], "too short - 'tool_calls'"),
    "calls that are no list": ([USER, {**TEXT, "tool_calls": {"a": 1}}], "too short - 'tool_calls'"),
    "a call that is no object": ([USER, {**TEXT, "tool_calls": ["a"]}], "needs an id"),
    "a call of the person": ([{**USER, "tool_calls": [call("a")]}, result("a")], "unknown field 'tool_calls'"),
    "a call of nothing": (calls_as({**call("a"), "function": None}), "function name None"),
    **{
        f"a call of {name!r}": (calls_as(call("a", name)), "invalid function name")
        for name in ("", "functions.read", "read file", "é", "x" * 65)
    },
    **{
        f"arguments {arguments!r}": (calls_as(call("a", arguments=arguments)), "JSON object")
        for arguments in ("", "[]", "null", '{"path":"/tm')
    },
}


def body_of(messages: Messages) -> dict[str, Any]:
    return {"model": "m", "messages": messages}


@pytest.mark.parametrize("messages", LEGAL.values(), ids=LEGAL)
def test_what_is_legal_is_taken(messages: Messages):
    assert list(problems(body_of(messages))) == []


@pytest.mark.parametrize(("messages", "problem"), ILLEGAL.values(), ids=map(ascii, ILLEGAL))
def test_each_fault_is_refused_and_said(messages: Messages, problem: str):
    assert any(problem in found for found in problems(body_of(messages)))


@given(
    st.integers(0, 2),
    st.sampled_from(["user", "assistant", "tool", "system", "wizard", None, 3]),
    st.sampled_from(["x", None, 3, [], [3], [{}], [{"type": "text", "text": 3}], {"text": "x"}]),
    st.sampled_from([None, 3, "x", [3], [{}], [{"function": "x"}], [{"id": [], "function": {"name": []}}]]),
)
def test_nonsense_is_a_problem_and_never_a_crash(number: int, role: object, content: object, calls: object):
    messages: list[Any] = [USER, TEXT, USER]
    messages[number] = {"role": role, "content": content, "tool_calls": calls}

    assert list(problems(body_of(messages)))


@pytest.mark.parametrize("messages", [None, "Hi", [], [None], ["Hi"], [USER, 3], [USER, []]])
def test_messages_that_are_none_are_a_problem_and_never_a_crash(messages: object):
    assert list(problems({"model": "m", "messages": messages}))


@pytest.mark.parametrize("name", ["", "functions.read", "read file", "x" * 65, None])
def test_a_tool_that_has_no_proper_name_is_refused(name: str | None):
    tools = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}]

    assert any("invalid function name" in found for found in problems({**body_of([USER]), "tools": tools}))


# Faults anywhere in a conversation of any shape

Shape = list[int]
"""How many calls each turn has; 0 is a plain answer."""

shapes = st.lists(st.integers(0, 3), min_size=1, max_size=5)


def conversation(shape: Shape) -> Messages:
    """A legal one: the person speaks, then each turn, with the person in between where an answer was plain."""
    messages: Messages = [SYSTEM, USER]
    for turn, calls in enumerate(shape):
        ids = [f"t{turn}c{number}" for number in range(calls)]
        messages += [asking(*ids), *map(result, ids)] if ids else [TEXT, USER]
    return messages


@given(shapes)
def test_a_conversation_of_any_shape_is_taken(shape: Shape):
    assert list(problems(body_of(conversation(shape)))) == []


def at(messages: Messages, role: str) -> list[int]:
    return [number for number, message in enumerate(messages) if message["role"] == role]


def drop_a_result(messages: Messages, draw: Callable[[list[int]], int]) -> None:
    del messages[draw(at(messages, "tool"))]


def double_a_result(messages: Messages, draw: Callable[[list[int]], int]) -> None:
    number = draw(at(messages, "tool"))
    messages.insert(number, messages[number])


def swap_two_results(messages: Messages, draw: Callable[[list[int]], int]) -> None:
    results = at(messages, "tool")
    number = draw([number for number in results if number + 1 in results])
    messages[number], messages[number + 1] = messages[number + 1], messages[number]


def move_a_result_behind_what_follows(messages: Messages, draw: Callable[[list[int]], int]) -> None:
    results = at(messages, "tool")
    number = draw([number for number in results if number + 1 < len(messages) and number + 1 not in results])
    messages[number], messages[number + 1] = messages[number + 1], messages[number]


def say_something_before_a_result(messages: Messages, draw: Callable[[list[int]], int]) -> None:
    messages.insert(draw(at(messages, "tool")), USER)


def drop_the_calls(messages: Messages, draw: Callable[[list[int]], int]) -> None:
    del messages[draw([number - 1 for number in at(messages, "tool") if messages[number - 1]["role"] != "tool"])]


def end_at_the_calls(messages: Messages, draw: Callable[[list[int]], int]) -> None:
    """A prefix that ends on an open call."""
    del messages[draw(at(messages, "tool")) :]


def begin_at_the_results(messages: Messages, draw: Callable[[list[int]], int]) -> None:
    """A kept part that begins with results of a call that was cut off."""
    del messages[: draw(at(messages, "tool"))]


def begin_at_a_reply(messages: Messages, draw: Callable[[list[int]], int]) -> None:
    del messages[: draw(at(messages, "assistant"))]


def use_an_id_again(messages: Messages, draw: Callable[[list[int]], int]) -> None:
    number = draw(at(messages, "tool"))
    call_id = messages[number]["tool_call_id"]
    messages += [asking(call_id), result(call_id)]


def blank_a_text(messages: Messages, draw: Callable[[list[int]], int]) -> None:
    number = draw([number for number, message in enumerate(messages) if message["content"] is not None])
    messages[number] = {**messages[number], "content": " \n"}


FAULTS = [
    drop_a_result,
    double_a_result,
    swap_two_results,
    move_a_result_behind_what_follows,
    say_something_before_a_result,
    drop_the_calls,
    end_at_the_calls,
    begin_at_the_results,
    begin_at_a_reply,
    use_an_id_again,
    blank_a_text,
]


@pytest.mark.parametrize("fault", FAULTS)
@given(shape=shapes, data=st.data())
def test_a_fault_anywhere_in_a_conversation_of_any_shape_is_refused(fault: Any, shape: Shape, data: st.DataObject):
    messages = copy.deepcopy(conversation([*shape, 2, 0]))

    fault(messages, lambda places: data.draw(st.sampled_from(places)))

    assert list(problems(body_of(messages)))


# Whoever stands in for a provider refuses them


@pytest.mark.parametrize(
    "name", ["a result without its call", "no result at all", "a reply first", "too long a result"]
)
async def test_the_server_refuses_them_as_a_provider_would_and_the_script_goes_on(name: str):
    messages, problem = ILLEGAL[name]
    async with ProviderServer(["Hello."]) as server, httpx.AsyncClient(trust_env=False) as client:
        url = f"{server.base_url}/chat/completions"
        refused = await client.post(url, json=body_of(messages))
        taken = await client.post(url, json=body_of([USER]))

    assert refused.status_code == 400
    assert problem in refused.json()["error"]["message"]
    assert taken.json()["choices"][0]["message"]["content"] == "Hello."


def test_half_a_character_in_the_bytes_is_refused():
    raw = json.dumps(body_of([USER])).encode().replace(b"Hi", b"Hi \xed\xa0\xbd")

    assert any("surrogate" in found for found in problems(json.loads(raw)))


async def test_a_refusal_is_a_bad_request_that_is_recorded_and_the_conversation_can_go_on():
    """Should the library ever build an ill-formed request, its user hears of it at once, and nothing else is lost."""
    state = State(messages=[Message.user("Hi")])
    async with ProviderServer(["Hello."]) as server:
        model = OpenAICompatible("m", base_url=server.base_url, extra_body={"messages": [TEXT]})
        with pytest.raises(BadRequestError, match="must be of the role 'user'"):
            await Agent(model=model).run(state)
        answer = await Agent(model=OpenAICompatible("m", base_url=server.base_url)).run(state)

    assert answer == "Hello."
    assert state.turn == 1


CALLS = Message("assistant", [ToolCall("a", "read", {}), ToolCall("b", "read", {})])
A, B = ToolResultBlock("a", [TextBlock("x")]), ToolResultBlock("b", [TextBlock("x")])
HI = Message.user("Hi")
RESULTS = Message("tool", [A, B])

ILL_FORMED: dict[str, list[Message]] = {
    "no results": [HI, CALLS],
    "no results before the person": [HI, CALLS, HI, RESULTS],
    "a result missing": [HI, CALLS, Message("tool", [A])],
    "another order": [HI, CALLS, Message("tool", [B, A])],
    "twice": [HI, CALLS, Message("tool", [A, B, B])],
    "in the person's message": [HI, CALLS, Message("user", [A, B])],
    "in two messages": [HI, CALLS, Message("tool", [A]), Message("tool", [B])],
    "results without calls": [HI, RESULTS],
    "results behind an answer": [HI, Message.assistant("Hello."), RESULTS],
    "results again": [HI, CALLS, RESULTS, RESULTS],
    "a tool message without results": [HI, CALLS, RESULTS, Message("tool", [TextBlock("x")])],
    "results in a reply": [HI, CALLS, Message("assistant", [A, B])],
    "an id twice": [HI, Message("assistant", [ToolCall("a", "read", {})] * 2), Message("tool", [A, A])],
    "an id again": [HI, CALLS, RESULTS, CALLS, RESULTS],
    "a call of the person": [Message("user", [ToolCall("a", "read", {})]), Message("tool", [A])],
}


@pytest.mark.parametrize("messages", ILL_FORMED.values(), ids=ILL_FORMED)
async def test_the_scripted_model_refuses_a_request_that_is_ill_formed(messages: list[Message]):
    model = FakeModel(["never"])

    with pytest.raises(AssertionError, match="malformed request"):
        await model.respond(Request(messages=messages), lambda event: None)

    assert model.requests == []
    assert model.remaining == 1


@pytest.mark.parametrize("messages", ILL_FORMED.values(), ids=ILL_FORMED)
def test_a_state_can_not_begin_with_a_conversation_that_is_ill_formed(messages: list[Message]):
    with pytest.raises(ValueError, match=r"call|results"):
        State(messages=messages)


@pytest.mark.parametrize("length", range(1, 6))
async def test_the_scripted_model_looks_at_every_message_of_every_request(length: int):
    """A conversation that it knows the beginning of is checked from there on, and another one from its start."""
    model = FakeModel(lambda request: "ok")
    good = [HI, CALLS, RESULTS, Message.assistant("Hello."), HI]
    await model.respond(Request(messages=good[:1]), lambda event: None)

    with pytest.raises(AssertionError, match="malformed request"):
        await model.respond(Request(messages=[*good[:length], RESULTS, CALLS]), lambda event: None)
    await model.respond(Request(messages=good), lambda event: None)


# What the library makes of any well-formed conversation

texts = st.sampled_from(["", " ", "\n", "x", "\x00", "ok \ud83d", "\U0001f600"])
text_blocks = texts.map(TextBlock)
pictures = st.just(Image(PNG))
thoughts = st.builds(ThinkingBlock, texts, provider=st.sampled_from(["here", "elsewhere", None]))
raws = st.builds(RawBlock, st.sampled_from(["here", "elsewhere"]), st.just({"type": "x"}))
said = st.lists(text_blocks | pictures | raws, max_size=3).map(lambda blocks: [HI.blocks[0], *blocks])
replied = st.lists(text_blocks | thoughts | raws, max_size=3)
results = st.lists(text_blocks | pictures, max_size=3)


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    messages = [Message("user", draw(said))]
    for turn in range(draw(st.integers(0, 4))):
        ids = [f"t{turn}c{number}" for number in range(draw(st.integers(0, 3)))]
        calls = [ToolCall(call_id, "read", {"path": draw(texts)}) for call_id in ids]
        messages.append(Message("assistant", [*draw(replied), *calls, *draw(replied)]))
        if ids:
            messages.append(Message("tool", [ToolResultBlock(call_id, draw(results)) for call_id in ids]))
        if draw(st.booleans()):
            messages.append(Message("user", draw(said)))
    return messages


@given(conversations(), st.sampled_from([None, "", " \n", "Be brief."]), st.booleans())
def test_a_well_formed_conversation_is_sent_as_a_provider_takes_it(messages, system, with_tools):
    tools = (ToolSpec("read", "Read.", {"type": "object"}),) if with_tools else ()
    state = State(messages=messages)

    body = json.loads(chat_bytes(Request(messages=state.messages, system=system, tools=tools)))

    assert list(problems(body)) == []


@pytest.mark.parametrize(
    "first", [Message.assistant("How can I help?"), Message("assistant", [ToolCall("a", "read", {})])]
)
@pytest.mark.parametrize("system", [None, "Be brief."])
async def test_a_conversation_that_starts_with_a_reply_is_sent_with_a_line_of_the_person_before_it(first, system):
    results = [Message("tool", [A])] if first.tool_calls else []
    state = State(messages=[first, *results, Message.user("Find the bug")])
    async with ProviderServer(["Found."]) as server:
        answer = await Agent(model=OpenAICompatible("m", base_url=server.base_url), system=system).run(state)

    assert answer == "Found."
    roles = [message["role"] for message in server.requests[0].body["messages"]]
    assert roles[1 if system else 0] == "user"
    assert len(state.messages) == 3 + len(results)  # what is put before it is no message of the State


@pytest.mark.parametrize(
    "name", ["functions.read", "read file", "läse", "x" * 65, "", "read\ud83d", "re\x00ad"], ids=ascii
)
async def test_a_call_of_a_name_that_no_tool_can_have_is_answered_and_can_be_sent_back(name: str):
    """A model makes names up; the history keeps what it said, and the request says it in a way a provider takes."""
    state = State(messages=[Message.user("Hi")])
    async with ProviderServer([ToolCall("a", name, {}), "Sorry."]) as server:
        answer = await Agent(model=OpenAICompatible("m", base_url=server.base_url)).run(state)

    assert answer == "Sorry."
    (entry,) = [entry for entry in state.history if entry.kind == "tool_result"]
    assert (entry.call.name, entry.outcome) == (name.replace("\ud83d", "\ufffd"), "input_error")


@pytest.mark.parametrize("name", ["files.read", "read file", "x" * 65])
async def test_a_tool_of_a_name_that_providers_refuse_is_refused_at_once_or_can_be_called(name: str):
    class Odd(Tool):
        description = "Read."
        input_schema: ClassVar = {"type": "object"}

        async def run(self, args: object, state: State) -> str:
            await trio.lowlevel.checkpoint()
            return "read"

    odd = Odd()
    odd.name = name
    try:
        Agent(model="ollama/none", tools=[odd])
    except ValueError:
        return
    state = State(messages=[Message.user("Hi")])

    def call_it(request: ReceivedRequest) -> ToolCall:
        return ToolCall("a", request.body["tools"][0]["function"]["name"], {})

    async with ProviderServer([call_it, "Done."]) as server:
        await Agent(model=OpenAICompatible("m", base_url=server.base_url), tools=[odd]).run(state)

    assert [entry.outcome for entry in state.history if entry.kind == "tool_result"] == ["done"]


@pytest.mark.parametrize(
    "message",
    [
        Message("user", []),
        Message("user", [TextBlock(" \n")]),
        Message("user", [RawBlock("elsewhere", {"type": "x"})]),
        Message("assistant", []),
        Message("assistant", [ThinkingBlock("hm")]),
    ],
    ids=["nothing", "blank text", "another provider's block", "an empty reply", "a reply of thoughts"],
)
async def test_messages_of_which_nothing_can_be_sent_are_refused_at_once_or_sent_as_something(message: Message):
    """A request without messages is one that every provider refuses."""
    try:
        state = State(messages=[message])
    except ValueError:
        return
    async with ProviderServer(["Hello."]) as server:
        assert await Agent(model=OpenAICompatible("m", base_url=server.base_url)).think(state)


async def test_two_ids_that_differ_in_half_a_character_only_are_still_two():
    """Half a character can't be sent, so what tells two calls apart must not be lost with it."""
    calls = [ToolCall("a\ud83d", "read", {}), ToolCall("a\ud83e", "read", {})]
    state = State(messages=[Message.user("Hi")])
    await Agent(model=FakeModel([calls, "Hello."])).run(state)
    state.add_message(Message.user("And?"))

    async with ProviderServer(["Hello."]) as server:
        await Agent(model=OpenAICompatible("m", base_url=server.base_url)).run(state)

    assert len({item["id"] for item in server.requests[0].body["messages"][1]["tool_calls"]}) == 2

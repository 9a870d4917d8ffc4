"""record_model: what a model answers is kept in a file, and comes from there the next time."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from alpineagents import (
    Agent,
    Image,
    Message,
    Model,
    ModelEvent,
    ProviderError,
    RateLimitError,
    Reply,
    Request,
    State,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ToolCall,
    Usage,
    tool,
)
from alpineagents.models import OpenAICompatible
from alpineagents.record import ThinkingDelta, ToolSpec
from alpineagents.testing import (
    FakeModel,
    Fault,
    ProviderServer,
    UnrecordedRequestError,
    record_model,
    tool_call,
)
from alpineagents.testing._cassette import cassette_mode

from ..conversations import PNG


class NeverAsked(Model):
    """Stands for a provider that must not be asked."""

    name = "here/large"

    async def respond(self, *_: Any) -> Reply:
        raise AssertionError("asked")

    def session(self) -> Any:
        raise AssertionError("connected")


class Talks(Model):
    """Tells all that a model can tell while it answers."""

    name = "here/large"

    async def respond(self, request: Request, emit: Any) -> Reply:
        await trio.lowlevel.checkpoint()
        emit(ThinkingDelta("hm"))
        emit(TextDelta("Hel"))
        emit(ModelEvent("retry", "again", {"restarted": True}))
        emit(TextDelta("Hel"))
        emit(TextDelta("lo"))
        blocks = (ThinkingBlock("hm", "sig", "here", {"a": 1}), TextBlock("Hello"), ToolCall("c1", "add", {"a": 2**70}))
        return Reply(blocks, "large-1", "stop", Usage(10, 5, cost="0.001", requests=2))


def asking(text: str = "hi", **fields: Any) -> Request:
    return Request(messages=(Message.user(text),), **fields)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tapes" / "a.json"


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def write(path: Path, text: str) -> None:
    path.parent.mkdir()
    path.write_text(text)


def replies(state: State) -> list[Any]:
    return [entry for entry in state.history if entry.kind == "model_reply"]


async def told_by(model: Model, request: Request) -> tuple[Any, list[Any]]:
    told: list[Any] = []
    return await model.respond(request, told.append), told


async def test_a_reply_comes_back_with_all_that_was_told(path: Path):
    recorded = await told_by(record_model(Talks(), path), asking())

    assert await told_by(record_model(NeverAsked(), path), asking()) == recorded
    assert await told_by(record_model(NeverAsked(), str(path), "replay"), asking()) == recorded


async def test_a_plain_reply_is_told_in_one_piece_and_takes_few_lines(path: Path):
    await told_by(record_model(FakeModel(["Hello.\nYou."]), path), asking())

    assert "told" not in text_of(path)
    assert (await told_by(record_model(NeverAsked(), path), asking()))[1] == [TextDelta("Hello.\nYou.")]
    assert text_of(path) == (
        '{\n"cassette": 1,\n"model": "fake/fake",\n"exchanges": [\n{\n  "id": "499003f6fb058439",\n  "request": {\n'
        '    "messages": [\n      {\n        "role": "user",\n        "blocks": [\n          {\n'
        '            "type": "text",\n            "text": "hi"\n          }\n        ]\n      }\n    ]\n  },\n'
        '  "reply": {\n    "blocks": [\n      {\n        "type": "text",\n        "text": "Hello.\\nYou."\n      }\n'
        '    ],\n    "model": "fake/fake",\n    "stop_reason": "stop",\n    "usage": {\n'
        '      "input_tokens": 10,\n      "output_tokens": 10,\n      "requests": 1\n    }\n  }\n}\n]\n}\n'
    )


async def test_a_growing_conversation_is_written_once(path: Path):
    @tool
    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    calls = [[ToolCall(f"c{n}", "add", {"a": n, "b": 1})] for n in range(20)]
    state = State(messages=[Message.user("Count, please."), Message.user("Now.", Image(PNG))])
    agent = Agent(model=record_model(FakeModel([*calls, "done"]), path), tools=[add], system="You count.")
    await agent.run(state)

    text = text_of(path)
    assert [text.count(each) for each in ("Count, please.", "You count.", '"Add."', '"image"')] == [1, 1, 1, 1]
    again = State(messages=[Message.user("Count, please."), Message.user("Now.", Image(PNG))])
    await agent.copy(model=record_model(NeverAsked(), path)).run(again)
    assert [e for e in again.history if e.kind == "model_reply"] == [
        e for e in state.history if e.kind == "model_reply"
    ]


@pytest.mark.parametrize(
    "error",
    [
        RateLimitError("slow down", status=429, request_id="r1", body="{}", provider="here", retry_after=3.5),
        ProviderError("?"),
        attrs.evolve,
    ],
    ids=["all", "plain", "with usage"],
)
async def test_a_provider_that_failed_fails_again(path: Path, error: Any):
    if error is attrs.evolve:
        error = ProviderError("?", status=500)
        error.usage = Usage(3, 0, cost="0.5", requests=2)
    model = record_model(FakeModel([error, "then"]), path)
    with pytest.raises(type(error)):
        await model.respond(asking(), lambda event: None)
    await model.respond(asking(), lambda event: None)

    model = record_model(NeverAsked(), path)
    with pytest.raises(ProviderError) as caught:
        await model.respond(asking(), lambda event: None)
    assert type(caught.value) is type(error)
    assert str(caught.value) == str(error)
    assert vars(caught.value) == vars(error)
    assert (await told_by(model, asking()))[0].text == "then"


async def test_other_exceptions_are_not_the_models_and_are_not_recorded(path: Path):
    model = record_model(FakeModel([KeyError("mine"), "b"]), path)
    with pytest.raises(KeyError):
        await model.respond(asking(), lambda event: None)
    await model.respond(asking(), lambda event: None)

    assert (await told_by(record_model(NeverAsked(), path), asking()))[0].text == "b"


async def test_a_cancelled_request_is_cancelled_again(path: Path, autojump_clock: Any):
    for model in (record_model(FakeModel(["a"], delay=10), path), record_model(NeverAsked(), path)):
        with trio.move_on_after(3) as scope:
            await model.respond(asking(), lambda event: None)
        assert scope.cancelled_caught
        assert trio.current_time() % 3 == 0


async def test_what_emit_raises_comes_out_of_a_replay(path: Path):
    await told_by(record_model(FakeModel(["a"]), path), asking())

    def refuse(event: Any) -> None:
        raise KeyError(event.text)

    with pytest.raises(KeyError):
        await record_model(NeverAsked(), path).respond(asking(), refuse)


async def test_equal_requests_get_their_replies_in_order_and_no_more(path: Path):
    model = record_model(FakeModel(["a", "b"]), path)
    for _ in range(2):
        await told_by(model, asking())
    model = record_model(NeverAsked(), path)

    assert [(await told_by(model, asking()))[0].text for _ in range(2)] == ["a", "b"]
    with pytest.raises(UnrecordedRequestError, match="has 2 replies to this request, and it is asked once more"):
        await told_by(model, asking())


REQUESTS = [
    asking(),
    asking("ho"),
    asking(system="s"),
    asking(tools=(ToolSpec("add", "Add.", {"type": "object"}),)),
    asking(tools=(ToolSpec("add", "Add two.", {"type": "object"}),)),
    asking(tools=(ToolSpec("add", "Add.", {"type": "object"}),), tool_choice="required"),
    asking(returns={"type": "object"}),
    Request(messages=(Message.user("hi"), Message.assistant("ho"))),
    Request(messages=(Message.user("hi", Image(PNG)),)),
]


async def test_a_request_is_found_by_all_that_a_model_is_sent(path: Path):
    model = record_model(FakeModel([str(number) for number in range(len(REQUESTS))]), path)
    for request in REQUESTS:
        await told_by(model, request)
    model = record_model(NeverAsked(), path)

    for number, request in reversed(list(enumerate(REQUESTS))):
        same = attrs.evolve(request, messages=list(request.messages), cache=False, metadata={"a": 1})
        assert (await told_by(model, same))[0].text == str(number)


async def test_a_request_that_is_not_there_is_shown_beside_the_nearest(path: Path):
    model = record_model(FakeModel(lambda request: "a"), path)
    texts = [f"Question {number}\nwith a second line" for number in range(300)]
    for text in texts:
        await told_by(model, asking(text, system="You answer."))
    model = record_model(NeverAsked(), path)

    with pytest.raises(UnrecordedRequestError) as caught:
        await told_by(model, asking("Question 250\nwith another line", system="You answer."))
    message = str(caught.value)
    assert message.startswith(f"{path} has no reply to this request; record it anew: pytest --agents-record")
    assert "   Question 250\n-  with a second line\n+  with another line" in message


async def test_without_a_file_replay_says_that_there_is_none(path: Path):
    with pytest.raises(UnrecordedRequestError, match=r"there is no cassette .*a.json; record it: "):
        await told_by(record_model(NeverAsked(), path, "replay"), asking())
    assert text_of(path) == ""


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"exchanges": [1]}', '{"exchanges": [{"id": "a", "request": {"after": "b"}}]}']
)
async def test_a_file_that_is_no_cassette_is_said_to_be_none(path: Path, text: str):
    write(path, text)

    with pytest.raises(ValueError, match=r"is no cassette .*; delete it, and record it anew"):
        await told_by(record_model(NeverAsked(), path), asking())


async def test_the_mode_is_taken_from_pytests_options_only_where_it_is_auto(path: Path):
    write(path, "not looked at")
    token = cassette_mode.set("record")
    try:
        model = record_model(FakeModel(["a"]), path)
        await told_by(model, asking())
    finally:
        cassette_mode.reset(token)
    await told_by(record_model(FakeModel(["b"]), path, "record"), asking())
    token = cassette_mode.set("record")
    try:
        assert (await told_by(record_model(NeverAsked(), path, "replay"), asking()))[0].text == "b"
        cassette_mode.set("replay")
        assert (await told_by(record_model(NeverAsked(), path), asking()))[0].text == "b"
    finally:
        cassette_mode.reset(token)


async def test_many_agents_at_once_share_a_cassette(path: Path, autojump_clock: Any):
    @tool
    async def note(text: str) -> str:
        """Note."""
        return text

    def answer(request: Request) -> Any:
        first = request.messages[0].text
        return tool_call("note", text=first) if len(request.messages) == 1 else f"done {first}"

    async def run_all(model: Model) -> dict[str, object]:
        agent, answers = Agent(model=model, tools=[note]), {}

        async def one(text: str) -> None:
            answers[text] = await agent.run(text)

        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(one, f"job {number}")
        return answers

    recorded = await run_all(record_model(FakeModel(answer, delay=0.1), path))

    assert await run_all(record_model(NeverAsked(), path)) == recorded
    assert len(json.loads(text_of(path))["exchanges"]) == 200


async def test_the_file_is_whole_after_every_reply(path: Path):
    model = record_model(FakeModel(lambda request: "a"), path)
    for number in range(5):
        await told_by(model, asking(str(number)))
        assert len(json.loads(text_of(path))["exchanges"]) == number + 1


async def test_two_models_that_record_to_one_file_are_told_to_be_one(path: Path):
    one, two = record_model(FakeModel(["a", "b"]), path), record_model(FakeModel(["c"]), path, "record")
    await told_by(one, asking())
    await told_by(two, asking("2"))

    with pytest.raises(RuntimeError, match="let the Agents share one model"):
        await told_by(one, asking("3 and more"))


async def test_a_real_model_streams_as_before_and_its_key_is_nowhere(path: Path):
    script = ["Hello, you.", Fault(status=429, headers={"retry-after": "0"}), tool_call("add", a=1), Fault(status=401)]
    key = "sk-secret-0123456789"

    async def ask(model: Model) -> list[Any]:
        found: list[Any] = []
        async with model.session():
            for text in ("one", "two", "three"):
                try:
                    found.append(await told_by(model, asking(text)))
                except ProviderError as error:
                    found.append((type(error), str(error), error.status))
        return found

    async with ProviderServer(script, api_key=key, chunk_size=7) as server:
        real = OpenAICompatible(
            "any", base_url=server.base_url, api_key=key, extra_headers={"X-Token": "another-secret"}
        )
        recorded = await ask(record_model(real, path))
        accepted = server.accepted
        assert len(recorded[0][1]) > 1
        assert recorded[1][1][0].kind == "retry"

        assert await ask(record_model(real, path)) == recorded
        assert server.accepted == accepted
    text = text_of(path) + repr(record_model(real, path))
    assert not re.search(f"{key}|another-secret|[Aa]uthorization|[Xx]-[Tt]oken|Bearer", text)


async def test_it_is_described_by_the_model_it_records(path: Path):
    real = FakeModel(name="a/b", context_window=9)
    model = record_model(real, path)

    assert (model.name, model.context_window, model.structured_output) == ("a/b", 9, False)
    assert repr(model).startswith("record_model(<alpineagents.testing._fake_model.FakeModel")


@given(
    st.lists(st.text(), max_size=4).map(lambda texts: tuple([TextBlock(text) for text in texts])),
    st.dictionaries(st.text(), st.integers() | st.text(st.characters(), max_size=3)),
)
def test_any_reply_comes_back(blocks: Any, args: Any):
    from tempfile import TemporaryDirectory

    reply = Reply((*blocks, ToolCall("c", "add", args)), "m", "stop", Usage(1, 1))

    async def there_and_back(folder: str) -> Reply:
        await told_by(record_model(FakeModel([reply]), Path(folder, "a.json")), asking())
        return (await told_by(record_model(NeverAsked(), Path(folder, "a.json")), asking()))[0]

    with TemporaryDirectory() as folder:
        assert trio.run(there_and_back, folder) == reply


def test_wrong_arguments_are_refused():
    with pytest.raises(TypeError, match="takes a Model, not str"):
        record_model("gpt-5", "a.json")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="mode must be"):
        record_model(FakeModel(), "a.json", "write")  # type: ignore[arg-type]


async def test_two_models_that_find_no_file_can_not_both_write_it(path: Path):
    one, two = record_model(FakeModel(["a"]), path), record_model(FakeModel(["b"]), path)
    async with one.session(), two.session():
        await told_by(one, asking())
        with pytest.raises(RuntimeError, match="let the Agents share one model"):
            await told_by(two, asking())


async def test_half_a_character_in_arguments_comes_back(path: Path):
    reply = Reply((ToolCall("c", "add", {"a": "\ud83d"}),), "m", "stop", Usage(1, 1))
    await told_by(record_model(FakeModel([reply]), path), asking())

    assert (await told_by(record_model(NeverAsked(), path), asking()))[0] == reply


@pytest.mark.parametrize("name", ["LaterError", "ToolError"])
async def test_an_error_of_a_later_version_is_a_provider_error(path: Path, name: str):
    with pytest.raises(RateLimitError):
        await told_by(record_model(FakeModel([RateLimitError("slow")]), path), asking())
    rewrite(path, "RateLimitError", name)

    with pytest.raises(ProviderError, match="slow") as caught:
        await told_by(record_model(NeverAsked(), path), asking())
    assert type(caught.value) is ProviderError


def rewrite(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text().replace(old, new))

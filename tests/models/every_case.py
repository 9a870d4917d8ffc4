"""Cases that hold for every provider, scripted or real. Each is a conversation that a user could have.

A case gets a function that makes its model. What the scripted provider answers stands with it; a real one is asked so
that it answers much the same, and what is checked holds for both.
"""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import attrs
import pytest
import trio

from alpineagents import (
    Agent,
    AuthError,
    CutOffError,
    File,
    Image,
    MemoryStore,
    Message,
    ModelNotFoundError,
    Reply,
    Reporter,
    State,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolError,
    ToolResultBlock,
    tool,
)
from alpineagents.testing import Fault, tool_call
from tests.models.every import Make, Provider
from tests.states import assert_replays

ODD = "a\u2028b\u2029c\x85d\x0be\x00f😀\u200b"
"""Characters that end lines for some, that end texts for others, or that take two of UTF-16."""
ODD_IDS = ("functions.look:0", "functions_look:0", "call|" + "x" * 54 + "é", "", "call|" + "x" * 54 + "è", "9")
"""As other providers, and code, give them: with all characters, too long, or nearly the same."""


# What the cases need


def _chunk(kind: bytes, data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")


def _red_square(size: int = 64) -> Image:
    head = size.to_bytes(4, "big") * 2 + b"\x08\x02\x00\x00\x00"  # 8 bits, RGB
    rows = zlib.compress((b"\x00" + b"\xff\x00\x00" * size) * size)
    return Image(b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", rows) + _chunk(b"IEND", b""))


def _page(text: str) -> File:
    drawn = f"BT /F1 36 Tf 72 700 Td ({text}) Tj ET".encode()
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R "
        b"/Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%b\nendstream" % (len(drawn), drawn),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    data, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(data))
        data += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    table = b"".join([b"%010d 00000 n \n" % place for place in places])
    end = b"xref\n0 6\n0000000000 65535 f \n%btrailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n"
    return File(data + end % (table, len(data)), name="page.pdf")


RED = _red_square()
PAGE = _page("The word is marmot")


class Shown(Reporter):
    """Keeps what was shown."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.thinking: list[str] = []

    def on_text(self, state: State, text: str) -> None:
        self.text.append(text)

    def on_thinking(self, state: State, text: str) -> None:
        self.thinking.append(text)


class Tools:
    """Tools that know what they were asked."""

    def __init__(self) -> None:
        self.looked: list[str] = []
        self.asked_the_time = 0

    @tool
    async def look(self, place: str) -> str:
        """Say how large a city is."""
        await trio.lowlevel.checkpoint()
        self.looked.append(place)
        return f"{place} is large"

    @tool
    async def clock(self) -> str:
        """Say what time it is."""
        await trio.lowlevel.checkpoint()
        self.asked_the_time += 1
        return "It is noon."

    @tool
    async def photo(self) -> list[Image | File | str]:
        """Return a picture and a document."""
        await trio.lowlevel.checkpoint()
        return ["Here they are.", RED, PAGE]

    @tool
    async def tidy_up(self) -> str:
        """Tidy up."""
        await trio.lowlevel.checkpoint()
        return ""

    @tool
    async def print_out(self, what: str) -> str:
        """Print something."""
        raise ToolError(f"no paper for {what}")


def asking(text: str, *attachments: Image | File) -> State:
    """A conversation that begins with a question."""
    return State(messages=[Message.user(text, *attachments)])


async def on(agent: Agent, state: State, text: str) -> Any:
    """Go on with a conversation."""
    state.add_message(Message.user(text))
    return await agent.run(state)


# The cases


@attrs.frozen
class Case:
    """A conversation, and what the scripted provider answers in it."""

    run: Callable[[Make, Provider], Awaitable[None]]
    script: Sequence[Any]


CASES: dict[str, Case] = {}


def case(*script: Any) -> Callable[[Any], Any]:
    """Make a function one of the cases."""

    def register(function: Any) -> Any:
        CASES[function.__name__] = Case(function, script)
        return function

    return register


def case_script(name: str) -> list[Any]:
    """What the scripted provider answers in a case."""
    return list(CASES[name].script)


@case("One two three four five six seven eight nine ten eleven twelve.")
async def text_comes_in_pieces_that_are_the_answer(make: Make, provider: Provider) -> None:
    shown, state = Shown(), asking("Count from one to sixty in English words, and write nothing else.")

    answer = await Agent(model=make(), reporter=shown).run(state)

    assert answer == state.messages[-1].text == "".join(shown.text)
    assert len(shown.text) > 1
    assert state.usage.requests == 1
    assert state.usage.input_tokens > 5
    assert state.usage.output_tokens > 5


@case(["I look. ", tool_call("look", place="Paris")], "Paris is large.")
async def a_tool_is_called_and_its_result_is_read(make: Make, provider: Provider) -> None:
    tools = Tools()
    state = asking("Use the tool to look at Paris. Then say in one sentence how large it is.")

    answer = await Agent(model=make(), tools=[tools]).run(state)

    assert tools.looked == ["Paris"]
    assert "large" in answer
    assert_replays(state)


@case([tool_call("look", place=place) for place in ("Paris", "Rome", "Oslo")], "All are large.")
async def three_calls_of_one_reply_have_their_results_in_order(make: Make, provider: Provider) -> None:
    tools = Tools()
    state = asking("Look at Paris, Rome and Oslo with the tool: call it three times at once. Then say you are done.")

    await Agent(model=make(), tools=[tools]).run(state)

    assert sorted(tools.looked) == ["Oslo", "Paris", "Rome"]
    calls = [call.id for message in state.messages for call in message.tool_calls]
    results = [
        block.call_id for message in state.messages for block in message.blocks if isinstance(block, ToolResultBlock)
    ]
    assert calls == results
    assert len(set(calls)) == 3


@case(tool_call("clock"), "It is noon.")
async def a_call_needs_no_arguments(make: Make, provider: Provider) -> None:
    tools = Tools()
    state = asking("What time is it? Use the tool.")

    answer = await Agent(model=make(), tools=[tools]).run(state)

    assert tools.asked_the_time == 1
    assert "noon" in answer.lower() or "12" in answer
    assert [dict(call.args) for message in state.messages for call in message.tool_calls] == [{}]


THOUGHTS = ("First I look at Paris.", "Then I look at Rome.", "Both are large.")


@case(
    Reply([ThinkingBlock(THOUGHTS[0]), TextBlock("I look."), tool_call("look", place="Paris")]),
    Reply([ThinkingBlock(THOUGHTS[1]), tool_call("look", place="Rome")]),
    Reply([ThinkingBlock(THOUGHTS[2]), TextBlock("Both are large.")]),
    "Yes.",
    "Yes, still.",
)
async def thoughts_are_shown_kept_saved_and_sent_back(make: Make, provider: Provider) -> None:
    shown, store = Shown(), MemoryStore()
    agent = Agent(model=make(**provider.thinking), tools=[Tools()], reporter=shown, store=store)
    state = asking("Look at Paris with the tool, and when you know how large it is, at Rome. Think about it first.")
    await agent.run(state)
    loaded = await store.load(state.id)

    await on(agent, loaded, "Sure?")
    await on(agent, await store.load(state.id), "Still?")

    thoughts = [block for message in state.messages for block in message.blocks if isinstance(block, ThinkingBlock)]
    assert thoughts or not provider.thinking
    assert "".join(shown.thinking).startswith("".join([block.text for block in thoughts]))
    assert_replays(loaded)


@case(
    Reply([TextBlock("Once upon a time there was a")], cut_off=True),
    "Hello.",
)
async def a_reply_that_was_cut_off_takes_the_next_prompt(make: Make, provider: Provider) -> None:
    """B17. A model that thinks may have been cut off before it said anything."""
    state = asking("Tell me a story of five hundred words.")

    try:
        await Agent(model=make(max_tokens=20)).run(state)
    except CutOffError:
        assert len(state.messages) == 1 or not state.messages[-1].text
    else:
        assert state.messages[-1].cut_off
        assert state.messages[-1].text
    answer = await on(Agent(model=make()), state, "Never mind. Say hello.")

    assert "hello" in answer.lower()
    assert not state.messages[-1].cut_off


@case(Fault(answer="Once upon a time " * 20, cut_after=5_000, stall=True), "Hello.")
async def the_conversation_goes_on_after_a_cancelled_request(make: Make, provider: Provider) -> None:
    scope = trio.CancelScope()

    class Cancels(Reporter):
        def on_text(self, state: State, text: str) -> None:
            scope.cancel()

    model, state = make(), asking("Tell me a story of five hundred words.")
    with scope:
        await Agent(model=model, reporter=Cancels()).run(state)
    assert scope.cancelled_caught
    assert [message.role for message in state.messages] == ["user"]
    assert state.usage.requests == 1

    answer = await on(Agent(model=model), state, "Never mind. Say hello.")

    assert "hello" in answer.lower()
    assert_replays(state)


@case()
async def a_wrong_key_is_its_own_error_and_never_shown(make: Make, provider: Provider) -> None:
    state, key = asking("Hi"), "wrong-key-0123456789abcdef"

    with pytest.raises(AuthError) as caught:
        await Agent(model=make(api_key=key)).run(state)

    assert provider.key_variable in str(caught.value)
    assert key not in f"{caught.value!r} {caught.value.body}"
    assert [entry.kind for entry in state.history][-1] == "error"


@case(Fault(status=404))
async def an_unknown_model_is_its_own_error(make: Make, provider: Provider) -> None:
    with pytest.raises(ModelNotFoundError, match="no-such-model-1"):
        await Agent(model=make(name="no-such-model-1")).run("Hi")


@case(tool_call("tidy_up"), tool_call("print_out", what="a page"), "It could not be printed.")
async def empty_results_and_errors_of_tools_are_told(make: Make, provider: Provider) -> None:
    state = asking("Tidy up with the tool. When that is done, print a page with the other, once. Then say how it went.")

    answer = await Agent(model=make(), tools=[Tools()]).run(state)

    outcomes = {entry.call.name: entry.outcome for entry in state.history if entry.kind == "tool_result"}
    assert outcomes == {"tidy_up": "done", "print_out": "error"}
    assert answer


@case("The picture is red, and the word is marmot.")
async def pictures_and_documents_are_seen(make: Make, provider: Provider) -> None:
    state = asking("Which colour has the picture, and which word is in the document?", RED, PAGE)

    answer = await Agent(model=make()).run(state)

    assert "red" in answer.lower()
    assert "marmot" in answer.lower()


@case(tool_call("photo"), "The picture is red, and the word is marmot.", "As I said.")
async def pictures_and_documents_in_results_are_seen(make: Make, provider: Provider) -> None:
    agent = Agent(model=make(), tools=[Tools()])
    state = asking("Get a picture and a document with the tool. Which colour is the one, which word is in the other?")

    answer = await agent.run(state)
    await on(agent, state, "Sure?")

    assert "red" in answer.lower()
    assert "marmot" in answer.lower()


@case(
    Reply([ThinkingBlock("Hm."), TextBlock("I look."), tool_call("look", place="Paris")]),
    "It is large.",
    "We looked at Paris, which is large.",
    "Paris.",
)
async def a_compacted_conversation_goes_on(make: Make, provider: Provider) -> None:
    agent = Agent(model=make(), tools=[Tools()])
    state = asking("Look at Paris with the tool.")
    await agent.run(state)

    await agent.compact(state)
    answer = await on(agent, state, "Which city was it? Answer in one word.")

    assert sum(message.is_summary for message in state.messages) == 1
    assert "Paris" in answer
    assert_replays(state)


@case(tool_call("look", place="Paris"), "It is large.", "Large.", "Paris.", "Still Paris.")
async def a_conversation_with_calls_goes_on_without_tools(make: Make, provider: Provider) -> None:
    """With an Agent that has none, in a question aside, and where none is shown."""
    model, state = make(), asking("Look at Paris with the tool, and say how large it is.")
    agent = Agent(model=model, tools=[Tools()])
    await agent.run(state)
    bare = Agent(model=model)

    answers = [await bare.ask(state, "How large is it?"), await on(bare, state, "Which city was it?")]
    state.add_message(Message.user("Which city was it, again?"))
    last = await agent.think(state, tools=[])

    assert all(answers)
    assert last.text
    assert not last.tool_calls


@case("Hello. ALPINE", tool_call("look", place="Paris"), "It is large. ALPINE")
async def the_system_prompt_is_followed(make: Make, provider: Provider) -> None:
    agent = Agent(model=make(), tools=[Tools()], system="End each answer to the person with the word ALPINE.")
    state = asking("Say hello.")

    answers = [await agent.run(state), await on(agent, state, "Look at Paris with the tool, then say how large it is.")]

    assert ["ALPINE" in answer for answer in answers] == [True, True]


@case("Done.", tool_call("look", place="Bern"), "Done again.")
async def calls_with_the_ids_of_others_are_taken(make: Make, provider: Provider) -> None:
    """B18: a conversation that another provider began."""
    calls = [ToolCall(call_id or "call", "look", {"place": "Paris"}) for call_id in ODD_IDS]
    results = [ToolResultBlock(call.id, [TextBlock("Paris is large")]) for call in calls]
    thoughts = ThinkingBlock("Hm.", "signed", "another", {"model": "m"})
    state = State(
        messages=[
            Message.user("Look at Paris."),
            Message("assistant", [thoughts, TextBlock("I look."), *calls]),
            Message("tool", results),
        ]
    )
    agent = Agent(model=make(), tools=[Tools()])

    await agent.run(state)
    answer = await on(agent, state, "Now look at Bern with the tool, then say: done.")

    assert "done" in answer.lower()
    assert_replays(state)


@case(tool_call("look", place=ODD), "Done.", "Done.")
async def odd_characters_do_no_harm(make: Make, provider: Provider) -> None:
    tools = Tools()
    agent = Agent(model=make(), tools=[tools], system=f"You are brief. {ODD}")
    state = asking(f"Look at this with the tool, then say: done. {ODD}", File(ODD.encode(), name=f"{ODD}\ud800.txt"))

    await agent.run(state)
    answer = await on(agent, state, f"Say: done. \ud83d\ude00 {ODD}\ud800")

    assert "done" in answer.lower()
    assert_replays(state)


@case(Reply([TextBlock("One, two, three, four, ")]))
async def a_text_can_end_the_reply(make: Make, provider: Provider) -> None:
    if not provider.stops:
        with pytest.raises(ValueError, match="stop"):
            make(stop="five")
        return

    answer = await Agent(model=make(stop="five")).run("Count from one to ten in English words, in lower case.")

    assert "our" in answer
    assert "five" not in answer


# From one provider to another

ELSEWHERE = (
    Reply([ThinkingBlock("Hm."), TextBlock("I look."), tool_call("look", place="Paris")]),
    Reply([ThinkingBlock("So."), TextBlock("Paris is large.")]),
    Reply([ThinkingBlock("Well."), tool_call("look", place="Rome")]),
    "Rome is large, too.",
)
"""What the scripted providers answer in turn: the first, the second, and the first again."""


async def goes_on_elsewhere(one: Agent, another: Agent) -> None:
    """Between a call and its result, and back, with the thoughts of each, and through a store."""
    store = MemoryStore()
    state = asking("Look at Paris with the tool. Then say in one sentence how large it is.")

    reply = await one.think(state)
    await one.use_tools(state)
    answer = await another.run(state)
    await store.save(state)
    loaded = await store.load(state.id)
    again = await on(one, loaded, "Now look at Rome with the tool, and say in one sentence how large that is.")

    assert [call.name for call in reply.tool_calls] == ["look"]
    assert "large" in answer
    assert "Rome" in again
    assert {call.args["place"] for message in loaded.messages for call in message.tool_calls} == {"Paris", "Rome"}
    assert_replays(loaded)


# Answers of a type


@dataclass
class Capital:
    city: str
    country: str


PARIS, ROME = Capital("Paris", "France"), Capital("Rome", "Italy")
ANSWERS: dict[str, tuple[Any, str, Any, Any]] = {
    "str": (str, "Which city is the capital of France? Answer in one word.", "Paris", None),
    "bool": (bool, "Is Paris in France?", True, {"answer": True}),
    "int": (int, "How many legs does a spider have?", 8, {"answer": 8}),
    "literal": (Literal["red", "green", "blue"], "Which colour has grass?", "green", {"answer": "green"}),
    "dataclass": (
        Capital,
        "Which city is the capital of France? Names in English.",
        PARIS,
        {"city": "Paris", "country": "France"},
    ),
    "list": (
        list[Capital],
        "Which are the capitals of France and of Italy, in this order? Names in English.",
        [PARIS, ROME],
        {"answer": [{"city": "Paris", "country": "France"}, {"city": "Rome", "country": "Italy"}]},
    ),
    "dict": (
        dict[str, int],
        'How many legs do these have? Answer with the keys "spider" and "ant".',
        {"spider": 8, "ant": 6},
        {"spider": 8, "ant": 6},
    ),
}
"""Types; a question, its answer, and that as the object that a model writes."""


async def asked(make: Make, kind: str) -> None:
    hint, question, answer, _ = ANSWERS[kind]
    state = asking("I will have a question.")

    given = await Agent(model=make()).ask(state, question, returns=hint)

    assert given == answer if hint is not str else answer in given
    assert len(state.messages) == 1
    assert_replays(state)

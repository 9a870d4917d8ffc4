"""The provider changes in the middle of a conversation, wherever it can: each takes what the others left."""

from __future__ import annotations

import itertools
import json
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from alpineagents import (
    Agent,
    MemoryStore,
    Message,
    RawBlock,
    Reply,
    Request,
    State,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    tool,
)
from alpineagents.record._codec import decode_history, encode_entry
from alpineagents.testing import FakeModel, ProviderServer, tool_call
from tests.conversations import example_share
from tests.models.every import (
    ANTHROPIC,
    CHAT,
    GOOGLE,
    KEY,
    OTHERS,
    PROVIDERS,
    RESPONSES,
    Direct,
    Provider,
    by_id,
    texts_in,
)
from tests.models.every_case import ELSEWHERE, Tools, goes_on_elsewhere
from tests.states import assert_replays


@tool
async def look(place: str) -> str:
    """Look."""
    await trio.lowlevel.checkpoint()
    return f"{place} is large"


ID_FORMS = ("call_{}", "functions.look:{}", "toolu_{}" + "x" * 60, "call|é{}", "")
"""Of ids as the providers give them, by number; one gives none."""
NAMES = ("look", "look", "functions.look", "has spaces " + "x" * 90)
"""Of tools, as models write them: there is only the first."""


@attrs.frozen
class Answer:
    """What a model answers."""

    thinks: bool
    text: str
    calls: list[tuple[str, str]]
    is_marked: bool
    """Whether something comes with it that only its provider can say."""

    def reply(self, thought: str, numbers: itertools.count[int], provider: Provider) -> Reply:
        blocks: list[Any] = []
        if self.is_marked and provider.model_class is ANTHROPIC.model_class:
            blocks.append(ThinkingBlock("", raw={"redacted": "hidden"}))
        if self.thinks:
            signed = self.is_marked and provider.model_class is GOOGLE.model_class
            blocks.append(ThinkingBlock(thought, "c2lnbmVk" if signed else None))
        if self.is_marked and provider.model_class is RESPONSES.model_class:
            blocks.append(RawBlock("local", {"type": "message", "phase": "commentary"}))
        blocks += [TextBlock(self.text)] if self.text else []
        for form, name in self.calls:
            number = next(numbers)
            blocks.append(ToolCall(form.format(number), name, {"place": f"place {number}"}))
        return Reply(blocks)


answers = st.builds(
    Answer,
    st.sampled_from([True, True, False]),
    st.sampled_from(["", " ", "I say. "]),
    st.lists(st.tuples(st.sampled_from(ID_FORMS), st.sampled_from(NAMES)), max_size=3),
    st.booleans(),
)
OTHER_STEPS = ("use_tools", "ask", "compact", "say", "clear", "save_and_load")
steps = st.sampled_from(["think"] * 8 + [*OTHER_STEPS]).flatmap(
    lambda what: st.tuples(st.just(what), st.integers(0, 2), answers if what == "think" else st.none())
)
everybody = st.sampled_from([*PROVIDERS, *OTHERS])
siblings = st.sampled_from(PROVIDERS).flatmap(
    lambda first: st.sampled_from([each for each in OTHERS if each.model_class is first.model_class]).map(
        lambda other: [first, other]
    )
)
casts = siblings | st.lists(everybody, min_size=2, max_size=3, unique=True)
"""Who takes part: few, so that each comes back; often two models of one class."""


class Conversation:
    """A State that some providers take turns with; each remembers what it sent."""

    def __init__(self, cast: list[Provider]) -> None:
        self.state = State(messages=[Message.user("go")])
        self.directs = {provider.id: Direct(provider) for provider in cast}
        self.numbers = itertools.count()
        self.authors: dict[str, tuple[object, str]] = {}
        """Who had which thought."""

    def agent(self, who: str, *script: Any) -> Agent:
        direct = self.directs[who]
        direct.fake = FakeModel(script)
        return Agent(model=direct, tools=[look], system="Be brief.")

    async def do(self, what: str, who: str, answer: Answer | None) -> None:
        """Do it, as far as it can be done now."""
        if self.state.pending_calls and what not in ("ask", "say"):
            await self.use_tools(who)
        await getattr(self, what)(who, *[answer] if answer else [])
        self.check_saving()

    async def think(self, who: str, answer: Answer) -> None:
        direct, thought = self.directs[who], f"thought {next(self.numbers)}"
        self.authors[thought] = author_of(direct)
        await self.agent(who, answer.reply(thought, self.numbers, direct.provider)).think(self.state)
        self.check_thoughts(direct)

    async def use_tools(self, who: str) -> None:
        await self.agent(who).use_tools(self.state)

    async def ask(self, who: str) -> None:
        assert await self.agent(who, "An aside.").ask(self.state, "How is it going?") == "An aside."
        self.check_thoughts(self.directs[who])

    async def compact(self, who: str) -> None:
        await self.agent(who, "So far, so good.").compact(self.state)
        self.check_thoughts(self.directs[who])

    async def say(self, who: str) -> None:
        self.state.add_message(Message.user(f"word {next(self.numbers)}"))

    async def clear(self, who: str) -> None:
        self.state.clear_tool_results(keep_last=1)

    async def save_and_load(self, who: str) -> None:
        store = MemoryStore()
        await store.save(self.state)
        loaded = await store.load(self.state.id)
        loaded.store, loaded.loaded = None, False  # No run of this State knows of the store, and Agents change.
        self.state = loaded

    def check_thoughts(self, direct: Direct) -> None:
        """Its own thoughts are in the request, where they are needed, and nobody else's."""
        sent = {text for text in texts_in(json.loads(direct.bodies[-1])) if text in self.authors}
        me = author_of(direct)
        strangers = {thought: self.authors[thought] for thought in sent if self.authors[thought] != me}
        assert not strangers, f"{direct.provider.id} was sent the thoughts of {strangers}"
        if direct.provider in (CHAT, GOOGLE, RESPONSES):
            before = self.state.messages[:-1] if self.state.messages[-1].role == "assistant" else self.state.messages
            mine = {
                block.text
                for message in before
                for block in message.blocks
                if isinstance(block, ThinkingBlock) and self.authors.get(block.text) == me and message.tool_calls
            }
            assert mine <= sent, f"{direct.provider.id} misses its thoughts"

    def check_saving(self) -> None:
        """The next request, to whomever, is the same to the byte from a State that was saved and loaded."""
        state = self.state
        loaded = State(history=decode_history([encode_entry(entry) for entry in state.history]))
        end = len(state.messages) - bool(state.pending_calls)
        for direct in self.directs.values():
            live = direct.model._wire.encode(Request(messages=state.messages[:end]))
            assert direct.model._wire.encode(Request(messages=loaded.messages[:end])) == live


def author_of(direct: Direct) -> tuple[object, str]:
    """Two models of one class and one name are one author."""
    return direct.provider.model_class, direct.name


@example_share(0.5)
@given(casts, st.lists(steps, min_size=6, max_size=14))
def test_whoever_goes_on_is_sent_what_it_takes(
    cast: list[Provider], done: list[tuple[str, int, Answer | None]]
) -> None:
    async def main() -> State:
        conversation = Conversation(cast)
        for what, who, answer in done:
            await conversation.do(what, cast[who % len(cast)].id, answer)
        return conversation.state

    state = trio.run(main)

    assert_replays(state)


@pytest.mark.parametrize("order", [*itertools.permutations(PROVIDERS)], ids=lambda order: "-".join(p.id for p in order))
async def test_in_any_order_each_reads_the_results_of_the_calls_of_the_one_before(order: list[Provider]) -> None:
    """Over sockets. Each thinks and calls, the next goes on with the results; then the first has its own again."""
    store = MemoryStore()
    state = State(messages=[Message.user("Look around")])
    async with ProviderServer(api_key=KEY) as server:
        agents = [Agent(model=each.at(server, **each.thinking), tools=[look]) for each in order]
        for number, agent in enumerate([*agents, agents[0]]):
            calls = [tool_call("look", place=f"{number}"), ToolCall(f"functions.look:{number}", "look", {"place": "x"})]
            server.add(Reply([ThinkingBlock(f"thought {number}"), TextBlock(f"Reply {number}."), *calls]))
            await agent.think(state)
            await agent.use_tools(state)
        await store.save(state)
        server.add("Done.", "Summary.", "Done.")
        await agents[0].think(state)
        await agents[1].compact(state)
        state.add_message(Message.user("And?"))
        await agents[2].think(state)

    sent = [{text for text in texts_in(request.body) if text.startswith("thought")} for request in server.requests]
    assert sent == [set(), set(), set(), set(), {"thought 0"}, {"thought 0", "thought 4"}, {"thought 1"}, set()]
    assert [
        text for text in ("Reply 0.", "Reply 1.", "Reply 2.", "Reply 3.") if text in texts_in(server.requests[5].body)
    ]
    assert_replays(state)


@pytest.mark.parametrize(("first", "second"), [*itertools.permutations(PROVIDERS, 2)], ids=by_id)
@pytest.mark.filterwarnings("ignore::alpineagents.ResumeWarning")
async def test_a_conversation_goes_on_elsewhere_and_comes_back(first: Provider, second: Provider) -> None:
    """Over sockets; the same as ``test_live`` does with the real ones."""
    async with ProviderServer(ELSEWHERE, api_key=KEY) as server:
        agents = [Agent(model=each.at(server, **each.thinking), tools=[Tools()]) for each in (first, second)]
        await goes_on_elsewhere(*agents)

    thoughts = [[text for text in texts_in(request.body) if text in ("Hm.", "So.")] for request in server.requests]
    assert thoughts == [[], [], ["Hm."], ["Hm."]]

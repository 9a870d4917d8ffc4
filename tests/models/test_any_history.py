"""What a model is sent is always well formed, to every provider: invariant 3 of the architecture, in the wires.

The histories are those that the tests of States make: cancelled, failing, late, restored, compacted, cleared, forked,
crashed. Each reply is one of some provider, with its thoughts and blocks; each request is made for all of them, and
checked by the strict rules of their formats.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import invariant

from alpineagents import (
    Agent,
    File,
    Image,
    Message,
    Model,
    RawBlock,
    Reply,
    Request,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResultBlock,
    ToolSpec,
)
from alpineagents.testing import FakeModel
from tests.conversations import PNG, example_share
from tests.models.every import OTHERS, PROVIDERS, Direct
from tests.models.every_case import ODD_IDS, PAGE
from tests.test_properties import Everything, steps
from tests.test_state_machine import StateMachine

EVERY = [Direct(provider) for provider in (*PROVIDERS, *OTHERS)]
"""Each made once: what a message became is used again, as in a program that runs on."""
SPEC = ToolSpec("look", "Look.", {"type": "object", "properties": {"place": {"type": "string"}}})


def every_provider_takes(request: Request) -> None:
    """Encode the request for each provider, and check it by the rules of the format."""
    for direct in EVERY:
        direct.bodies.clear()
        direct.format = direct.provider.format()  # Ids come twice here, so nobody knows which thoughts led to a call.
        direct.taken(request)


class AnyModel(Model):
    """Answers as a FakeModel does, each time as another provider would, with thoughts."""

    def __init__(self, script: Any, numbers: itertools.count[int]) -> None:
        self.fake = FakeModel(script)
        self.name = self.fake.name
        self._numbers = numbers

    async def respond(self, request: Request, emit: Any) -> Reply:
        every_provider_takes(request)
        reply = await self.fake.respond(request, emit)
        number = next(self._numbers)
        direct = EVERY[number % len(EVERY)]
        if direct.provider.id.startswith("google") and any(call.args is None for call in reply.tool_calls):
            return reply  # Google says nothing of a call that it can't read.
        if reply.blocks:
            reply = attrs.evolve(reply, blocks=[ThinkingBlock(f"thought {number}"), *reply.blocks])
        return direct.decoded(reply, direct.taken(request))


class EverythingForAll(Everything):
    """A State that anything is done to, with the replies of all providers."""

    def __init__(self, first: int) -> None:
        super().__init__()
        self.numbers = itertools.count(first)

    def agent(self, script: Any = ()) -> Agent:
        return Agent(model=AnyModel(script, self.numbers), tools=[self.stage])


@example_share(0.3)
@given(st.integers(0, len(EVERY) - 1), st.lists(steps, min_size=3, max_size=8))
def test_whatever_is_done_every_provider_takes_the_next_request(first: int, done: list[tuple[Any, ...]]) -> None:
    everything = EverythingForAll(first)
    try:
        for name, *args in done:
            everything.do(name, *args)
    finally:
        everything.stage.open_all()


class MessagesForAll(StateMachine):
    """The State's own machine: what it shows at any moment between turns can be sent to every provider."""

    @invariant()
    def every_provider_takes_the_messages(self) -> None:
        messages = self.state.messages
        shown = messages[:-1] if self.state.pending_calls else messages
        every_provider_takes(Request(messages=shown))


TestMessagesForAll = MessagesForAll.TestCase
TestMessagesForAll.settings = example_share(0.2, stateful_step_count=25)


# Conversations made by hand, with anything in them

texts = st.sampled_from(["", " \n", "Hi", "é\u2028\x00\ud83d", " ends with a space ", '{"a": 1}'])
attachments = st.sampled_from(
    [
        Image(PNG),
        Image(b"GIF89a" + PNG),
        Image(b"RIFF\0\0\0\0WEBP" + PNG),
        PAGE,
        File(b"", name=""),
        File(b" "),
        File("é".encode(), "text/markdown", "a.md"),
    ]
)
thoughts = st.builds(
    ThinkingBlock,
    texts,
    st.none() | st.just("c2lnbmVk"),
    st.none() | st.sampled_from(["local", "openai", "anthropic", "google", "elsewhere"]),
    st.sampled_from(
        [
            None,
            {"field": "reasoning_content"},
            {"reasoning_details": [{"type": "reasoning.text", "text": "Hm.", "signature": "s"}]},
            {"model": "m"},
            {"model": "m", "redacted": "c2VjcmV0"},
            {"model": "m", "item": {"type": "reasoning", "summary": [], "encrypted_content": "gAAAAAsecret"}},
            {"model": "m", "item": {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}},
        ]
    ),
)
OF_OPENAI = [{"extra_content": {}}, {"type": "message", "phase": "commentary"}, {"type": "refusal"}]
raws = st.one_of(
    st.builds(RawBlock, st.sampled_from(["local", "openai"]), st.sampled_from(OF_OPENAI)),
    st.builds(
        RawBlock,
        st.just("google"),
        st.sampled_from(
            [
                {"thoughtSignature": "c2lnbmVk", "of": "call", "model": "m"},
                {"part": {"text": "", "thoughtSignature": "c2lnbmVk"}, "model": "m"},
                {"part": {"executableCode": {"code": "1"}}, "model": "m"},
            ]
        ),
    ),
    st.builds(RawBlock, st.just("elsewhere"), st.sampled_from([None, 1, [], {"type": "text"}])),
)
CITED = RawBlock("anthropic", {"extra": {"citations": [{"type": "web_search_result_location"}]}})
names = st.sampled_from(["look", "", "has spaces", "9é", "x" * 100, "functions.look"])
arguments = st.sampled_from([None, {}, {"place": "\u2028\ud800"}, {"n": 2**70, "list": [None, 1.5]}])
said = st.builds(TextBlock, texts)
user = st.lists(said | attachments, min_size=1, max_size=3).map(lambda blocks: Message("user", blocks))


@st.composite
def conversations(draw: Any) -> list[Message]:
    """Messages in any order that a conversation can have, with one id for each call."""
    ids = itertools.chain(filter(None, ODD_IDS), (f"call_{number}" for number in itertools.count()))
    messages: list[Message] = []
    for is_reply in draw(st.lists(st.booleans(), min_size=1, max_size=5)):
        if not is_reply:
            messages.append(draw(user))
            continue
        blocks: list[Any] = []
        results: list[ToolResultBlock] = []
        for kind in draw(st.lists(st.sampled_from([said, thoughts, raws, "cited", "call", "call"]), max_size=5)):
            if kind == "cited":
                blocks += [draw(said), CITED]
                continue
            if kind != "call":
                blocks.append(draw(kind))
                continue
            call = ToolCall(next(ids), draw(names), draw(arguments), draw(st.none() | texts))
            content = draw(st.lists(said | attachments, max_size=2))
            blocks.append(call)
            results.append(ToolResultBlock(call.id, content, draw(st.booleans())))
        messages.append(Message("assistant", blocks))
        messages += in_one_or_more(results, draw(st.booleans()))
    return messages


def in_one_or_more(results: Sequence[ToolResultBlock], apart: bool) -> list[Message]:
    """The results, in a message of each or in one for all."""
    if apart or not results:
        return [Message("tool", [result]) for result in results]
    return [Message("tool", results)]


@given(conversations(), st.none() | texts, st.booleans(), st.sampled_from(["auto", "required", "none", "look"]))
def test_any_conversation_made_by_hand_is_taken(messages: Any, system: Any, has_tools: bool, choice: str) -> None:
    tools, tool_choice = ((SPEC,), choice) if has_tools else ((), "auto")

    every_provider_takes(Request(messages=messages, system=system, tools=tools, tool_choice=tool_choice))


@example_share(0.5)
@given(conversations(), conversations())
def test_what_is_known_of_a_message_does_not_change_what_is_sent(first: Any, second: Any) -> None:
    """Encoded once or anew, alone or behind others: the bytes are the same."""
    for direct in EVERY:
        fresh = direct.provider.made()._wire
        used = direct.provider.made()._wire
        used.encode(Request(messages=first))
        used.encode(Request(messages=second))

        assert used.encode(Request(messages=second)) == fresh.encode(Request(messages=second))
        assert used.encode(Request(messages=first)) == fresh.encode(Request(messages=first))
        assert json.loads(fresh.encode(Request(messages=first)))

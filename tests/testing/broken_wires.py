"""Wires that break one law each, and one that breaks none. Run by test_laws.py in a process of its own.

The honest one is ours for Chat Completions; the others spoil what it does.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

import attrs
import pytest

from alpineagents import Message, ProviderError, Reply, Request, TextBlock, TextDelta, ToolCall, Usage
from alpineagents.models._openai_chat import ChatWire
from alpineagents.models._wire import Endpoint, Settings
from alpineagents.testing import ReceivedRequest, WireLaws
from alpineagents.testing._formats._chat import ChatFormat

BROKEN: dict[type[HonestWire], list[str]] = {}
"""Each with the laws it must fail."""


def breaks(*laws: str) -> Any:
    def register(broken: type[HonestWire]) -> type[HonestWire]:
        BROKEN[broken] = [f"test_{law}" for law in laws]
        return broken

    return register


class Through:
    """A decoder that hands everything on."""

    def __init__(self, decoder: Any) -> None:
        self.inner = decoder

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class HonestWire:
    """Does what a wire must do."""

    decodes: type = Through

    def __init__(self) -> None:
        self.inner = ChatWire(Endpoint("here", "http://127.0.0.1/v1", "m"), Settings())
        self.endpoint = self.inner.endpoint
        self.path = self.inner.path

    def encode(self, request: Request) -> bytes:
        return self.inner.encode(request)

    def decoder(self, redacted: Any = str) -> Any:
        return self.decodes(self.inner.decoder(redacted))

    def failure(self, *given: Any) -> ProviderError:
        return self.inner.failure(*given)


@breaks("any_conversation_has_a_form")
class RefusesPictures(HonestWire):
    def encode(self, request):
        if any(type(block).__name__ == "Image" for message in request.messages for block in message.blocks):
            raise ProviderError("no pictures")
        return super().encode(request)


@breaks("any_conversation_has_a_form")
class SendsOthersThoughts(HonestWire):
    def encode(self, request):
        return json.dumps(json.loads(super().encode(request)) | {"all": repr(request)}).encode()


@breaks("tools_and_every_choice_of_one_have_a_form")
class LosesDescriptions(HonestWire):
    def encode(self, request):
        return super().encode(request).replace(b"Read a file.", b"")


@breaks("a_schema_has_a_form")
class KnowsNoSchema(HonestWire):
    def encode(self, request):
        assert request.returns is None, "returns isn't supported"
        return super().encode(request)


@breaks("all_that_is_said_is_in_it")
class LosesTheSystemPrompt(HonestWire):
    def encode(self, request):
        return super().encode(attrs.evolve(request, system=None))


@breaks("the_same_request_has_the_same_form")
class NumbersItsRequests(HonestWire):
    numbers = itertools.count()

    def encode(self, request):
        return json.dumps(json.loads(super().encode(request)) | {"number": next(self.numbers)}).encode()


@breaks("encoding_does_not_change_the_request")
class ChangesTheRequest(HonestWire):
    def encode(self, request):
        object.__setattr__(request, "system", "You are another.")
        return super().encode(request)


@breaks("its_path_goes_behind_a_base_url")
class HasNoSlash(HonestWire):
    def __init__(self):
        super().__init__()
        self.path = "chat/completions"


class TakesTheLastPiece(Through):
    def feed(self, events):
        deltas = self.inner.feed(events)
        return deltas[-1:]


@breaks("any_split_gives_the_same_answer", "the_deltas_are_the_reply")
class LosesDeltas(HonestWire):
    decodes = TakesTheLastPiece


class Doubles(Through):
    def feed(self, events):
        return [TextDelta(delta.text * 2) for delta in self.inner.feed(events)]


@breaks("the_deltas_are_the_reply")
class TellsTwice(HonestWire):
    decodes = Doubles


@breaks("answers_do_not_mix")
class HasOneDecoder(HonestWire):
    one = None
    fed = 0

    def decoder(self, redacted=str):
        wire = self

        class Shared(Through):
            def feed(self, events):
                wire.shared = [*getattr(wire, "shared", []), *events]
                return self.inner.feed(events)

            def reply(self):
                other = wire.inner.decoder()
                other.feed(wire.shared)
                wire.shared = []
                return other.reply()

        return Shared(self.inner.decoder(redacted))


class Believes(Through):
    finished = True

    def reply(self):
        try:
            return self.inner.reply()
        except ProviderError:
            return Reply((TextBlock("..."),))


@breaks("an_answer_that_breaks_off_is_none", "no_answer_is_none")
class TakesAPartForTheWhole(HonestWire):
    decodes = Believes


class Strict(Through):
    def feed(self, events):
        for event in events:
            if event.data != "[DONE]":
                json.loads(event.data)["choices"][:0]
        return self.inner.feed(events)


@breaks("feeding_never_raises", "what_is_unknown_is_passed_over")
class RaisesWhileItIsFed(HonestWire):
    decodes = Strict


class Parses(Through):
    def feed_document(self, body):
        json.loads(body)
        return self.inner.feed_document(body)


@breaks("a_body_that_is_no_stream_never_raises")
class BelievesThatABodyIsJson(HonestWire):
    decodes = Parses


class CountsWrong(Through):
    def usage(self):
        return Usage(1, 1_000)


@breaks("tokens_are_told_or_not")
class CountsBeforeItKnows(HonestWire):
    decodes = CountsWrong


@breaks("any_refusal_is_a_provider_error")
class ReadsErrorsAsJson(HonestWire):
    def failure(self, status, headers, body, retry_after):
        return ProviderError(json.loads(body)["error"]["message"], status=status, retry_after=retry_after)


@breaks("an_error_shows_no_more_than_it_may")
class DoesNotRedact(HonestWire):
    def decoder(self, redacted=str):
        return super().decoder()


def answers_of(wire: HonestWire) -> list[bytes]:
    body = json.loads(ChatWire(wire.endpoint, Settings()).encode(Request(messages=(Message.user("hi"),))))
    received = ReceivedRequest("POST", "/v1/chat/completions", {}, body)
    replies = [
        Reply((TextBlock("Hello, naïve 🐛 you."),), "m", "stop", Usage(10, 5)),
        Reply((TextBlock("I look."), ToolCall("c1", "read_file", {"path": "ü"})), "m"),
    ]
    return [b"".join(ChatFormat().events(reply, received)) for reply in replies]


def tests_of(kind: type[HonestWire]) -> type[WireLaws]:
    """The class a user would write."""

    class Tests(WireLaws):
        @pytest.fixture
        def wire(self) -> Any:
            return kind()

        @pytest.fixture
        def answers(self, wire: HonestWire) -> list[bytes]:
            return answers_of(wire)

    return Tests


TestHonestWire = tests_of(HonestWire)
globals().update({f"Test{kind.__name__}": tests_of(kind) for kind in BROKEN})

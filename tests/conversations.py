"""What the tests of conversations share: a Model that refuses what a provider would, and a look at what was sent."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

from hypothesis import settings

from alpineagents import Message, Model, Reply, Request
from alpineagents.models._openai_chat import ChatWire
from alpineagents.models._wire import Endpoint, Settings
from alpineagents.testing import FakeModel
from alpineagents.testing._formats._chat_rules import problems

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC")
"""A picture of one pixel."""


def example_share(share: float, **others: Any) -> settings:
    """Settings with a *share* of the profile's examples: for tests whose examples take long."""
    return settings(max_examples=max(int(settings.default.max_examples * share), 5), **others)


def chat_bytes(request: Request, provider: str = "here") -> bytes:
    """The request as Chat Completions JSON."""
    return ChatWire(Endpoint(provider, "http://127.0.0.1/v1", "m"), Settings()).encode(request)


def sent(messages: Sequence[Message], **request: Any) -> list[dict[str, Any]]:
    """The messages as a strict provider of Chat Completions gets them, and takes them."""
    body = json.loads(chat_bytes(Request(messages=messages, **request)))
    assert list(problems(body)) == []
    return body["messages"]


class StrictModel(Model):
    """Answers as a FakeModel does, and refuses what a provider of Chat Completions would, by the bytes it would get."""

    def __init__(self, script: Any = (), **settings: Any) -> None:
        self.fake = FakeModel(script, **settings)
        self.name = self.fake.name
        self.context_window = self.fake.context_window
        self.bodies: list[dict[str, Any]] = []
        """The JSON of every request."""
        self._wire = ChatWire(Endpoint("fake", "http://127.0.0.1/v1", "m"), Settings())

    async def respond(self, request: Request, emit: Any) -> Reply:
        body = json.loads(self._wire.encode(request))
        self.bodies.append(body)
        assert list(problems(body)) == [], body
        return await self.fake.respond(request, emit)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages of the last request."""
        return self.bodies[-1]["messages"]

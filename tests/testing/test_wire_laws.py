"""The laws of wires, for ours, over what a ProviderServer streams in their formats."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from alpineagents import Message, Reply, Request, TextBlock, ToolCall, Usage
from alpineagents.models._wire import Wire
from alpineagents.testing import ReceivedRequest, WireLaws

from ..models.every import ANTHROPIC, CHAT, GOOGLE, RESPONSES, Provider


class Ours(WireLaws):
    """A wire of ours, with answers that a ProviderServer streams."""

    provider: Provider

    @pytest.fixture
    def wire(self) -> Wire:
        return self.provider.made()._wire

    @pytest.fixture
    def answers(self, wire: Wire) -> Sequence[bytes]:
        return [b"".join(stream) for stream in streams(self.provider, wire)]


def streams(provider: Provider, wire: Wire) -> list[list[bytes]]:
    replies = [
        Reply((TextBlock("Hello, naïve 🐛\u2028 you."),), "m", "stop", Usage(10, 5)),
        Reply((TextBlock("I look."), ToolCall("c1", "read_file", {"path": "ü"}), ToolCall("c2", "list", {})), "m"),
        Reply((ToolCall("c1", "read_file", {"path": "a" * 300}),), "m"),
    ]
    body = json.loads(wire.encode(Request(messages=(Message.user("hi"),))))
    received = ReceivedRequest("POST", wire.path, {}, body)
    return [provider.format().events(reply, received) for reply in replies]


class TestAnthropic(Ours):
    provider = ANTHROPIC


class TestChat(Ours):
    provider = CHAT


class TestGoogle(Ours):
    provider = GOOGLE


class TestResponses(Ours):
    provider = RESPONSES

"""What the suites of all providers share: which there are, how each is made, and each without the sockets.

A new model class joins by one Provider in ``PROVIDERS``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

import attrs
import pytest

from alpineagents import Model, Reply, Request
from alpineagents.models import Anthropic, Google, OpenAI, OpenAICompatible
from alpineagents.models._http_model import HTTPModel
from alpineagents.models._sse import SSEDecoder
from alpineagents.testing import FakeModel, ProviderServer, ReceivedRequest
from alpineagents.testing._formats._anthropic import MessagesFormat
from alpineagents.testing._formats._chat import ChatFormat
from alpineagents.testing._formats._format import Format
from alpineagents.testing._formats._google import GoogleFormat
from alpineagents.testing._formats._responses import ResponsesFormat

pytest.register_assert_rewrite("tests.models.every_case")

KEY = "key-that-opens-the-server"
ENVIRONMENT = dict(os.environ)
"""As it was before fixtures took the keys out."""

Make: TypeAlias = Callable[..., HTTPModel]
"""Makes a model with these options more."""


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Provider:
    """A model class, and what tests must know to make its models and to read its requests."""

    id: str
    model_class: Callable[..., HTTPModel]
    format: Callable[[], Format]
    """The server's side; a new one knows nothing of what another has sent."""
    name: str
    """The model, at a ProviderServer."""
    url: Literal["origin", "base_url"]
    """What of a ProviderServer is the base URL."""
    options: dict[str, Any] = attrs.field(factory=dict)
    thinking: dict[str, Any] = attrs.field(factory=dict)
    """Options with which it thinks, and shows it where it can."""
    stops: bool = True
    """Whether it takes ``stop``."""
    with_temperature: str = ""
    """A model that takes a temperature, where this one takes none."""
    max_tokens_at: tuple[str, ...] = ("max_tokens",)
    """Where in a request the limit stands."""
    overloaded: bytes = b""
    """The event by which it gives up in the middle of a stream."""
    too_long: str = ""
    """How it says that a conversation doesn't fit."""
    refusal: Reply = attrs.field(factory=lambda: Reply([], refusal=True))
    """How it refuses without a word."""
    key_variable: str = ""
    live_name: str = ""
    live_name_variable: str = ""
    live_options: dict[str, Any] = attrs.field(factory=dict)
    """What the real provider's host says besides, and no other host does."""

    def __repr__(self) -> str:
        return self.id

    def at(self, server: ProviderServer, **options: Any) -> HTTPModel:
        """A model at *server*, with its key."""
        return self.made(**{"api_key": KEY, "base_url": getattr(server, self.url), **options})

    def made(self, **options: Any) -> HTTPModel:
        """A model; without a base URL at none, for tests that send nothing."""
        base_url = "http://127.0.0.1:1" if self.url == "origin" else "http://127.0.0.1:1/v1"
        every = {"name": self.name, "base_url": base_url, "api_key": KEY, **self.options, **options}
        return self.model_class(every.pop("name"), **every)

    @property
    def live_key(self) -> str:
        """The key of the real provider, empty where there is none."""
        return ENVIRONMENT.get(self.key_variable, "")

    def live(self, **options: Any) -> HTTPModel:
        """A small model at the real provider."""
        name = ENVIRONMENT.get(self.live_name_variable) or self.live_name
        return self.model_class(options.pop("name", name), **{"api_key": self.live_key, **self.live_options, **options})


CHAT = Provider(
    id="chat",
    model_class=OpenAICompatible,
    format=ChatFormat,
    name="deepseek-chat",
    url="base_url",
    overloaded=b'data: {"error":{"message":"Overloaded","type":"overloaded_error","code":503}}\n\n',
    too_long="This model's maximum context length is 128000 tokens. However, your messages resulted in 200000 tokens.",
    refusal=Reply([], stop_reason="content_filter"),
    key_variable="OPENAI_API_KEY",
    live_name="gpt-4.1-nano",
    live_name_variable="LIVE_CHAT_MODEL",
    live_options={"provider": "openai"},
)
ANTHROPIC = Provider(
    id="anthropic",
    model_class=Anthropic,
    format=MessagesFormat,
    name="claude-haiku-4-5",
    url="origin",
    thinking={"thinking": True},
    overloaded=b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n',
    too_long="prompt is too long: 210000 tokens > 200000 maximum",
    key_variable="ANTHROPIC_API_KEY",
    live_name="claude-haiku-4-5",
    live_name_variable="LIVE_ANTHROPIC_MODEL",
)
GOOGLE = Provider(
    id="google",
    model_class=Google,
    format=GoogleFormat,
    name="gemini-3.5-flash-lite",
    url="origin",
    thinking={"thinking": True},
    max_tokens_at=("generationConfig", "maxOutputTokens"),
    overloaded=b'data: {"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}\r\n\r\n',
    too_long="The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    key_variable="GEMINI_API_KEY",
    live_name="gemini-3.5-flash-lite",
    live_name_variable="LIVE_GOOGLE_MODEL",
)
RESPONSES = Provider(
    id="responses",
    model_class=OpenAI,
    format=ResponsesFormat,
    name="gpt-5",
    url="base_url",
    thinking={"thinking": True, "effort": "low"},
    stops=False,
    with_temperature="gpt-4.1",
    max_tokens_at=("max_output_tokens",),
    overloaded=b'event: error\ndata: {"type":"error","code":"server_is_overloaded","message":"Overloaded"}\n\n',
    too_long="Your input exceeds the context window of this model. Please adjust your input and try again.",
    key_variable="OPENAI_API_KEY",
    live_name="gpt-5.4-nano",
    live_name_variable="LIVE_OPENAI_MODEL",
)
PROVIDERS = (CHAT, ANTHROPIC, GOOGLE, RESPONSES)

OTHERS = (
    attrs.evolve(CHAT, id="chat-another", name="qwen3"),
    attrs.evolve(CHAT, id="chat-of-openai", name="gpt-5", options={"provider": "openai"}),
    attrs.evolve(CHAT, id="chat-of-mistral", name="mistral-small", options={"provider": "api.mistral.ai"}),
    attrs.evolve(CHAT, id="chat-of-deepseek", name="deepseek-v4-pro", options={"provider": "api.deepseek.com"}),
    attrs.evolve(ANTHROPIC, id="anthropic-thinking", options={"thinking": True}),
    attrs.evolve(ANTHROPIC, id="anthropic-newer", name="claude-opus-5-5", options={"thinking": True}),
    attrs.evolve(ANTHROPIC, id="anthropic-of-others", name="smollm2"),
    attrs.evolve(GOOGLE, id="google-older", name="gemini-2.5-flash"),
    attrs.evolve(RESPONSES, id="responses-another", name="gpt-5-mini"),
    attrs.evolve(RESPONSES, id="responses-of-openai", options={"provider": "openai"}),
    attrs.evolve(RESPONSES, id="responses-without-reasoning", name="gpt-4.1"),
)
"""More models of the same classes, for which a request looks different."""


def by_id(provider: Provider) -> str:
    """What a test's parameter is called."""
    return provider.id


# Without the sockets


class Direct(Model):
    """A provider without the sockets: what its wire encodes is checked as the provider would, what it answers decoded.

    It answers what a FakeModel would, in the provider's own form: with its signatures, its ids, its raw blocks.
    """

    def __init__(self, provider: Provider, script: Any = (), **options: Any) -> None:
        self.provider = provider
        self.fake = FakeModel(script)
        self.model = provider.made(**options)
        self.name = self.model.name
        self.structured_output = True
        self.bodies: list[bytes] = []
        """The JSON of every request."""
        self.format = provider.format()

    async def respond(self, request: Request, emit: Any) -> Reply:
        received = self.taken(request)
        return self.decoded(await self.fake.respond(request, emit), received)

    def taken(self, request: Request) -> ReceivedRequest:
        """The request as the provider gets it, and takes it."""
        body = self.model._wire.encode(request)
        self.bodies.append(body)
        target = self.model._target()
        url = urlsplit(target.url)
        received = ReceivedRequest(
            "POST", f"{url.path}?{url.query}".removesuffix("?"), target.headers, json.loads(body)
        )
        assert self.format.takes(received.path)
        problems = list(self.format.problems(received))
        assert not problems, f"{self.provider.id}: {problems}\n{body.decode()}"
        return received

    def decoded(self, reply: Reply, received: ReceivedRequest) -> Reply:
        """*reply* streamed in the provider's form, and read again."""
        decoder = self.model._wire.decoder()
        decoder.feed(SSEDecoder().feed(b"".join(self.format.events(reply, received))))
        return decoder.reply()


def values_at(body: Any, *names: str) -> Any:
    """What stands in a request at this path; None where nothing does."""
    for name in names:
        body = body.get(name) if isinstance(body, dict) else None
    return body


def texts_in(value: Any) -> Iterable[str]:
    """All texts in some JSON, at any depth, and those in JSON that stands in a text."""
    if isinstance(value, str):
        yield value
        if value[:1] in ("{", "["):
            try:
                yield from texts_in(json.loads(value))
            except ValueError:
                return
    elif isinstance(value, dict):
        for item in value.values():
            yield from texts_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts_in(item)

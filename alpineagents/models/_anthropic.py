"""Anthropic: a model behind Anthropic's Messages API, or a server that speaks it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, final

import attrs

from .._contracts import Emit
from ..record._blocks import Block, TextBlock, ThinkingBlock
from ..record._entries import ModelEvent
from ..record._frozen import FrozenDict
from ..record._messages import Message, Reply, Request, TextDelta, ThinkingDelta
from . import _settings as check
from ._anthropic_models import Traits, traits_of
from ._anthropic_schema import sendable_schema
from ._anthropic_stream import PAUSED
from ._anthropic_thinking import plan
from ._anthropic_wire import MessagesWire
from ._http_model import HTTPModel
from ._retry import tell_usage, usage_of
from ._structured import Structured
from ._wire import Endpoint, Settings, Wire

_VERSION: Final = "2026-10-21"
_VERSION_WITH_SAMPLING: Final = "2023-06-01"
"""The last that takes a temperature, and the one that other servers know."""
_SAMPLING: Final = ("temperature", "top_p", "top_k")
_BINDING_CONTROLS: Final = "thinking-binding-controls-2026-08-01"
_MOST_PAUSES: Final = 5


def _structured(model: HTTPModel) -> Structured:
    return "native" if traits_of(model.model).schemas else "tool"


@final
@attrs.frozen(eq=False, kw_only=True)
class Anthropic(HTTPModel):
    """A Claude model behind Anthropic's Messages API, or any model behind a server that speaks it.

    What a model takes is told from its name, as Anthropic's documentation has it of December 2026; of a model that
    isn't a Claude only what all of them take is used.

    A reply that the API pauses (``pause_turn``) is sent back to go on, up to five times, and is one reply. Thinking
    goes back to the model that wrote it, unchanged, and to no other.

    Args:
        name: The model's name at the server, such as ``"claude-sonnet-5-5"``.
        base_url: As in Anthropic's own SDK, without ``/v1``. ``None``: ``ANTHROPIC_BASE_URL``, else Anthropic's.
        api_key: ``None``: ``ANTHROPIC_API_KEY`` when a request is made; ``""``: none is sent. Never shown.
        provider: The first half of ``name``. ``None``: ``anthropic``.
        context_window: Tokens, input and output together; ``None``: as genai-prices knows it, where that is installed.
        price: ``None``: nothing for a local server; else as genai-prices knows it, where that is installed.
        max_tokens: Most tokens of a reply, thinking included. The API wants a number. ``None``: 64,000 for Claude 4.6
            and later; 32,000 for Claude 3.7 to 4.5; 8,192 for Claude 3.5 and models of others; 4,096 before. More
            where ``thinking`` alone is as much.
        temperature: 0 to 1; for models before Claude 4.7. Not sent while the model thinks: the API refuses it then.
        thinking: ``True``: it thinks before it answers, and shows what it can of it. A number, for models before
            Claude 4.7: the most tokens for that, 1,024 or more and fewer than ``max_tokens``. ``False``: it doesn't;
            Fable, Mythos and, from 5.5 on, Opus always think. ``None``: as the model does by itself. With a number,
            or before Claude 4.6, a request that forces a tool, or goes on with a turn that another model began, is
            sent without, as the API demands.
        effort: ``"low"``, ``"medium"``, ``"high"``, ``"xhigh"`` or ``"max"``, as far as the model knows them.
        stop: Texts that end a reply.
        seed: Refused: the API has none.
        parallel_tool_calls: ``False``: a reply holds one call at most.
        structured: How ``agent.ask`` gets an answer of its type: ``"native"`` by ``output_config.format``, and by a
            tool for types that it has no way to say, such as dicts with any keys; ``"tool"`` by a tool that must be
            called; ``"prompt"`` by words alone. Left out: native with Claude 4.5 and later, else by a tool.
        cache: Whether the API may keep tools, system prompt and conversation for the next request.
        extra_body: Fields added to every request, or put in place of its own.
        extra_headers: Headers added to every request, or put in place of its own; never shown.
        retries: How often a request that failed, and may pass, is sent again.
        max_wait: The longest wait before that, in seconds.
        timeout: How long a request may take.
        rate_limit: How many requests and tokens a minute, shared by all models that have the same object.

    Raises:
        TypeError: *name* or *base_url* isn't a ``str``.
        ValueError: *name* is empty, *base_url* isn't a base URL, a key or header holds what none can, or a setting is
            one that the API, or this model, doesn't have.

    Example:
        >>> Anthropic("claude-sonnet-5-5").name
        'anthropic/claude-sonnet-5-5'
    """

    _PROVIDER: ClassVar[str] = "anthropic"
    _URL: ClassVar[str] = "https://api.anthropic.com"
    _URL_VARIABLE: ClassVar[str] = "ANTHROPIC_BASE_URL"
    _URL_EXAMPLE: ClassVar[str] = "https://api.anthropic.com"
    _URL_PATH: ClassVar[str] = "/v1/messages"
    _KEY_VARIABLES: ClassVar[tuple[str, ...]] = ("ANTHROPIC_API_KEY",)

    structured: Structured = attrs.field(
        default=attrs.Factory(_structured, takes_self=True), validator=check.one_of("native", "tool", "prompt")
    )

    def _new_wire(self, endpoint: Endpoint, settings: Settings) -> Wire:
        traits = self._traits()
        if settings.seed is not None:
            raise ValueError(f"seed={settings.seed}: Anthropic's API has none; leave it out")
        if settings.temperature is not None and not traits.sampling:
            raise ValueError(
                f"temperature={settings.temperature:g}: {self.model} takes none, as no Claude from 4.7 on; leave it out"
            )
        return MessagesWire(endpoint, settings, traits, plan(settings, traits, may_bind=self._may_bind()))

    def _key_headers(self, key: str) -> dict[str, str]:
        traits = self._traits()
        samples = self.temperature is not None or any(name in (self.extra_body or {}) for name in _SAMPLING)
        newest = traits.is_claude and not (samples and traits.sampling)
        headers = {"anthropic-version": _VERSION if newest else _VERSION_WITH_SAMPLING}
        if traits.binds_thinking:
            headers["anthropic-beta"] = _BINDING_CONTROLS
        return {**headers, "x-api-key": key} if key else headers

    def _traits(self) -> Traits:
        return traits_of(self.model)

    def _may_bind(self) -> bool:
        """Whether the header with the controls for bound thinking is sent: the caller's own takes its place."""
        given = [value for name, value in self.extra_headers.items() if name.lower() == "anthropic-beta"]
        return not given or _BINDING_CONTROLS in given[-1]

    def _structured_by(self, schema: FrozenDict) -> Structured:
        if self.structured == "native" and sendable_schema(schema) is None:
            return "tool"
        return self.structured

    async def _exchange(self, request: Request, emit: Emit, wire: Wire) -> Reply:
        """Send *request*, and what came back as long as that was a reply that the API paused."""
        reply = await HTTPModel._exchange(self, request, emit, wire)
        if reply.stop_reason != PAUSED or not isinstance(wire, MessagesWire):
            return reply
        going_on = wire.continuing()
        for _ in range(_MOST_PAUSES):
            so_far = attrs.evolve(request, messages=(*request.messages, Message("assistant", reply.blocks)))
            try:
                emit(ModelEvent("continued", f"{self.name} paused its reply; it is asked to go on"))
                more = await HTTPModel._exchange(self, so_far, _telling_again(emit, reply.blocks), going_on)
            except BaseException as error:
                tell_usage(error, reply.usage + usage_of(error))
                raise
            reply = attrs.evolve(more, blocks=(*reply.blocks, *more.blocks), usage=reply.usage + more.usage)
            if reply.stop_reason != PAUSED:
                break
        return reply


def _telling_again(emit: Emit, blocks: Sequence[Block]) -> Emit:
    """Return an emit for what continues *blocks*: when a retry throws away what was shown, these are shown again."""

    def told(event: TextDelta | ThinkingDelta | ModelEvent) -> None:
        emit(event)
        if isinstance(event, ModelEvent) and event.data.get("restarted"):
            for block in blocks:
                if isinstance(block, TextBlock):
                    emit(TextDelta(block.text))
                elif isinstance(block, ThinkingBlock) and block.text:
                    emit(ThinkingDelta(block.text))

    return told

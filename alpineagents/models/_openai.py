"""OpenAI: a model behind OpenAI's Responses API."""

from __future__ import annotations

from typing import ClassVar, Final, final

import attrs

from .._contracts import Emit
from .._errors import BadRequestError
from ..record._entries import ModelEvent
from ..record._messages import Reply, Request
from ._http_model import HTTPModel
from ._log_lines import log_event
from ._responses_wire import ResponsesWire
from ._retry import tell_usage, usage_of
from ._wire import Endpoint, Settings, Wire

_UNREADABLE: Final = "invalid_encrypted_content"
"""OpenAI's code for thoughts that were encrypted for another organization, or project."""


@final
@attrs.frozen(eq=False, kw_only=True)
class OpenAI(HTTPModel):
    """A model of OpenAI's, behind its Responses API; or one behind a server that copies that API.

    Nothing is stored at OpenAI: the State has the conversation, and the model's thoughts come and go back encrypted.
    OpenAI caches the beginning of a conversation by itself.

    Args:
        name: The model's name, such as ``"gpt-5"``.
        base_url: As in OpenAI's own SDK, with ``/v1``. ``None``: ``OPENAI_BASE_URL``, else OpenAI's.
        api_key: ``None``: ``OPENAI_API_KEY`` when a request is made, whatever *base_url* is, as OpenAI's own SDK does;
            ``""``: none is sent. Never shown.
        provider: The first half of ``name``. ``None``: ``openai``, ``local`` or the server's host.
        context_window: Tokens, input and output together; ``None`` where unknown.
        price: ``None``: nothing for a local server; else as genai-prices knows it, where that is installed.
        max_tokens: Most tokens of a reply, thoughts included (OpenAI wants 16 or more); this and the following are
            left to the server where ``None``.
        temperature: 0 to 2. While a model reasons it takes only 1, its default: o1 to o4 and GPT-5 always do, GPT-5.1
            to 5.4 where an *effort* is set, later ones unless it is ``"none"``.
        thinking: ``True``: the thoughts' summary comes with the reply. ``False``: no thoughts, as ``effort="none"``,
            which models that always reason refuse.
        effort: ``"none"``, ``"minimal"``, ``"low"``, ``"medium"``, ``"high"``, ``"xhigh"`` or ``"max"``; which of them,
            depends on the model. GPT-4 and before have none.
        parallel_tool_calls: Whether a reply may hold several calls.
        structured: How ``agent.ask`` gets an answer of its type: ``"native"`` by ``text.format``, ``"tool"`` by a tool
            that must be called; ``"prompt"`` by words alone.
        cache: Whether OpenAI is told which requests have one beginning (``prompt_cache_key``), so that it finds more of
            them in its cache. ``False`` doesn't switch off the cache.
        extra_body: Fields added to every request, or put in place of its own; those in ``text`` and ``reasoning`` one
            by one.
        extra_headers: Headers added to every request; never shown.
        retries: How often a request that failed, and may pass, is sent again.
        max_wait: The longest wait before that, in seconds; where OpenAI asks for more, the error is raised at once.
        timeout: How long a request may take; a number of seconds is ``Timeout(total=...)``.
        rate_limit: How many requests and tokens a minute, shared by all models that have the same object.

    Raises:
        TypeError: *name* or *base_url* isn't a ``str``.
        ValueError: *name* is empty, *base_url* isn't a base URL, a key or header holds what none can, or a setting is
            one that this API doesn't have (``stop``, ``seed``, or a number of tokens for ``thinking``), or that the
            model refuses.

    Example:
        >>> OpenAI("gpt-5", effort="low").name
        'openai/gpt-5'
    """

    _PROVIDER: ClassVar[str] = "openai"
    _URL: ClassVar[str] = "https://api.openai.com/v1"
    _URL_VARIABLE: ClassVar[str] = "OPENAI_BASE_URL"
    _URL_EXAMPLE: ClassVar[str] = "https://api.openai.com/v1"
    _URL_PATH: ClassVar[str] = "/responses"
    _KEY_VARIABLES: ClassVar[tuple[str, ...]] = ("OPENAI_API_KEY",)
    _COPIED: ClassVar[bool] = True

    def _new_wire(self, endpoint: Endpoint, settings: Settings) -> Wire:
        _check(settings)
        return ResponsesWire(endpoint, settings)

    async def _exchange(self, request: Request, emit: Emit, wire: Wire) -> Reply:
        """Send *request*; once more, without thoughts, where they turn out to be another organization's."""
        try:
            return await HTTPModel._exchange(self, request, emit, wire)
        except BadRequestError as error:
            if _UNREADABLE not in (error.body or "") or not isinstance(wire, ResponsesWire):
                raise
            if not wire.leave_out_thoughts(request.messages):
                raise
            spent, status = usage_of(error), error.status
        text = f"{wire.endpoint} can't read thoughts that another organization was given; sent again without them"
        data = {"attempt": spent.requests + 1, "error": "BadRequestError", "wait": 0.0, "restarted": False}
        event = ModelEvent("retry", text, data)
        try:
            emit(event)
            log_event(wire.endpoint, event, status)
            reply = await HTTPModel._exchange(self, request, emit, wire)
        except BaseException as error:
            tell_usage(error, spent + usage_of(error))
            raise
        return attrs.evolve(reply, usage=spent + reply.usage)


def _check(settings: Settings) -> None:
    """Refuse what the Responses API has no field for: to drop it in silence would be to do something else."""
    for name in ("stop", "seed"):
        if getattr(settings, name) is not None:
            raise ValueError(
                f"{name}: OpenAI's Responses API has nothing of the kind (got {getattr(settings, name)!r:.80}); "
                f"OpenAICompatible has, or pass it on with extra_body={{{name!r}: ...}}"
            )
    thinking = settings.thinking
    if thinking is not None and not isinstance(thinking, bool):
        raise ValueError(
            f"thinking must be True, False or None: OpenAI takes no number of tokens (got {thinking!r:.80}); "
            "say effort='low', 'medium' or 'high'"
        )
    if thinking is False and settings.effort not in (None, "none"):
        raise ValueError(f"thinking=False and effort={settings.effort!r:.80} can't both be: leave one of them out")

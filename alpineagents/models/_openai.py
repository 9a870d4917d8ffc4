"""OpenAI: a model behind OpenAI's Responses API."""

from __future__ import annotations

from typing import ClassVar, final
from urllib.parse import urlsplit

import attrs

from . import _settings as check
from ._http_model import HTTPModel
from ._responses_wire import ResponsesWire
from ._wire import Endpoint, Settings, Wire


@final
@attrs.frozen(eq=False, kw_only=True)
class OpenAI(HTTPModel):
    """A model of OpenAI's, behind its Responses API; or one behind a server that copies that API.

    Nothing is stored at OpenAI: the State has the conversation, and the model's thoughts come and go back encrypted.
    OpenAI caches the beginning of a conversation by itself.

    Args:
        name: The model's name, such as ``"gpt-5"``.
        base_url: As in OpenAI's own SDK, with ``/v1``. ``None``: ``OPENAI_BASE_URL``, else OpenAI's.
        api_key: ``None``: ``OPENAI_API_KEY`` when a request is made; ``""``: none is sent. Never shown.
        provider: The first half of ``name``. ``None``: ``openai``, ``local`` or the server's host.
        context_window: Tokens, input and output together; ``None`` where unknown.
        price: ``None``: nothing for a local server; else as genai-prices knows it, where that is installed.
        max_tokens: Most tokens of a reply, thoughts included (OpenAI wants 16 or more); this and the following are
            left to the server where ``None``.
        temperature: 0 to 2. Models that reason refuse it.
        thinking: ``True``: the thoughts' summary comes with the reply. ``False``: no thoughts, as ``effort="none"``,
            which some models refuse.
        effort: ``"none"``, ``"minimal"``, ``"low"``, ``"medium"``, ``"high"``, ``"xhigh"`` or ``"max"``; which of them,
            depends on the model.
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
            one that this API doesn't have: ``stop``, ``seed``, or a number of tokens for ``thinking``.

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

    def _new_wire(self, endpoint: Endpoint, settings: Settings) -> Wire:
        _check(settings)
        return ResponsesWire(endpoint, settings)

    def _key_headers(self, key: str) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"} if key else {}

    def _provider_at(self, url: str) -> str:
        host = urlsplit(url).hostname or ""
        if host in check.LOCAL_HOSTS:
            return "local"
        return self._PROVIDER if url == self._URL else host


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

"""Google: a Gemini model by Google's Gemini API."""

from __future__ import annotations

from typing import ClassVar, final

import attrs

from ._google_wire import GoogleWire
from ._http_model import HTTPModel
from ._wire import Endpoint, Settings, Wire


@final
@attrs.frozen(eq=False, kw_only=True)
class Google(HTTPModel):
    """A Gemini model, by Google's Gemini API (``generateContent``).

    Google keeps the beginning of a conversation for the next request by itself: ``cache`` changes nothing.

    Args:
        name: The model's name, such as ``"gemini-2.5-flash"``.
        base_url: As in Google's own SDK, without ``/v1beta``. ``None``: ``GEMINI_BASE_URL``, else
            ``GOOGLE_GEMINI_BASE_URL``, else Google's.
        api_key: ``None``: ``GEMINI_API_KEY``, else ``GOOGLE_API_KEY``, when a request is made; ``""``: none is sent.
            Never shown, and never part of the URL.
        provider: The first half of ``name``. ``None``: ``google``.
        context_window: Tokens, input and output together; ``None``: as genai-prices knows it, where that is installed.
        price: ``None``: as genai-prices knows it, where that is installed; nothing for a local server.
        max_tokens: Most tokens of a reply, thinking included; this and the following are left to Google where ``None``.
        temperature: 0 to 2. Google advises to leave it for Gemini 3 and later.
        thinking: ``True``: the model's thoughts are shown, in summary. A number: the most tokens for them, for 2.5.
            ``False``: it shall not think, which some models of 2.5 can.
        effort: How much it thinks: ``"minimal"``, ``"low"``, ``"medium"`` or ``"high"``, as the model has it; for 2.5
            the tokens that Google takes for these words.
        stop: Texts that end a reply, at most 5.
        seed: For replies that repeat, as far as the model can.
        parallel_tool_calls: ``False`` is refused: the API has no such setting.
        structured: How ``agent.ask`` gets an answer of its type: ``"native"`` by ``responseJsonSchema``; ``"tool"`` by
            a tool that must be called; ``"prompt"`` by words alone.
        extra_body: Fields added to every request, or put in place of its own.
        extra_headers: Headers added to every request; never shown.
        retries: How often a request that failed, and may pass, is sent again.
        max_wait: The longest wait before that, in seconds; where Google asks for more, the error is raised at once.
        timeout: How long a request may take; a number of seconds is ``Timeout(total=...)``.
        rate_limit: A RateLimit, shared by all models that have the same object.

    Raises:
        TypeError: *name* or *base_url* isn't a ``str``.
        ValueError: *name* is empty, *base_url* isn't a base URL, a key or header holds what none can, or a setting
            is one that the API, or this model, doesn't have.

    Example:
        >>> Google("gemini-2.5-flash").name
        'google/gemini-2.5-flash'
    """

    _PROVIDER: ClassVar[str] = "google"
    _URL: ClassVar[str] = "https://generativelanguage.googleapis.com"
    _URL_VARIABLE: ClassVar[str] = "GEMINI_BASE_URL"
    _SDK_URL_VARIABLE: ClassVar[str] = "GOOGLE_GEMINI_BASE_URL"
    _URL_EXAMPLE: ClassVar[str] = "https://generativelanguage.googleapis.com"
    _URL_PATH: ClassVar[str] = "/v1beta"
    _KEY_VARIABLES: ClassVar[tuple[str, ...]] = ("GEMINI_API_KEY", "GOOGLE_API_KEY")

    def _new_wire(self, endpoint: Endpoint, settings: Settings) -> Wire:
        return GoogleWire(endpoint, settings)

    def _key_headers(self, key: str) -> dict[str, str]:
        return {"x-goog-api-key": key} if key else {}

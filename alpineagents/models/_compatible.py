"""OpenAICompatible: a model behind any server that speaks Chat Completions."""

from __future__ import annotations

from typing import ClassVar, final

import attrs

from ._http_model import HTTPModel
from ._openai_chat import ChatWire
from ._wire import Endpoint, Settings, Wire


@final
@attrs.frozen(eq=False, kw_only=True)
class OpenAICompatible(HTTPModel):
    """A model behind a server that speaks Chat Completions: llama.cpp, Ollama, vLLM, OpenRouter, Groq and many more.

    Args:
        name: The model's name at the server.
        base_url: As in OpenAI's own SDK, with ``/v1``. ``None``: ``OPENAI_BASE_URL``, else OpenAI's.
        api_key: ``None``: ``OPENAI_API_KEY`` when a request is made, whatever *base_url* is, as OpenAI's own SDK does;
            ``""``: none is sent. Never shown.
        provider: The first half of ``name``. ``None``: ``local``, ``openai`` or the server's host. At a host that isn't
            known, such as a proxy's, ``"openai"``, ``"mistral"`` or ``"deepseek"`` also says whose rules it has.
        context_window: Tokens, input and output together; ``None`` where unknown.
        price: ``None``: nothing for a local server; else as genai-prices knows it, where that is installed.
        max_tokens: Most tokens of a reply; this and the following are left to the server where ``None``.
        temperature: 0 to 2. OpenAI's own models take it, and *stop*, only while they don't reason: see ``OpenAI``.
        effort: ``reasoning_effort``: ``"low"``, ``"medium"``, ``"high"``, or what else the server knows. OpenAI's own
            models from GPT-5.6 on take tools in this format with ``"none"`` only, which is sent then where nothing is
            set here; with ``OpenAI`` they can reason.
        stop: Texts that end a reply.
        seed: For replies that repeat, as far as the server can.
        parallel_tool_calls: Whether a reply may hold several calls.
        structured: How ``agent.ask`` gets an answer of its type: ``"native"`` by ``response_format``, and by words
            too, since not all servers heed it; ``"tool"`` by a tool that must be called; ``"prompt"`` by words alone.
        extra_body: Fields added to every request, or put in place of its own.
        extra_headers: Headers added to every request; never shown.
        retries: How often a request that failed, and may pass, is sent again. One whose connection the server closed
            before any answer is sent once more besides.
        max_wait: The longest wait before that, in seconds; where the server asks for more, the error is raised at once.
        timeout: How long a request may take; a number of seconds is ``Timeout(total=...)``, ``None`` the defaults.
        rate_limit: A RateLimit, shared by all models that have the same object.

    Raises:
        TypeError: *name* or *base_url* isn't a ``str``.
        ValueError: *name* is empty, *base_url* isn't a base URL, a key or header holds what none can, ``thinking`` is
            set, for which Chat Completions has no field that all servers know, or a model of OpenAI's refuses a
            setting.

    Example:
        >>> OpenAICompatible("smollm2", base_url="http://127.0.0.1:8080/v1").name
        'local/smollm2'
    """

    _PROVIDER: ClassVar[str] = "openai"
    _URL: ClassVar[str] = "https://api.openai.com/v1"
    _URL_VARIABLE: ClassVar[str] = "OPENAI_BASE_URL"
    _URL_EXAMPLE: ClassVar[str] = "http://127.0.0.1:8080/v1"
    _URL_PATH: ClassVar[str] = "/chat/completions"
    _KEY_VARIABLES: ClassVar[tuple[str, ...]] = ("OPENAI_API_KEY",)
    _COPIED: ClassVar[bool] = True

    def _new_wire(self, endpoint: Endpoint, settings: Settings) -> Wire:
        if settings.thinking is not None:
            raise ValueError(
                "thinking: Chat Completions has no field for it that all servers know; use effort='low' or what this "
                "server has: extra_body={'chat_template_kwargs': {'enable_thinking': True}}"
            )
        return ChatWire(endpoint, settings)

    def _holds_to_schema(self) -> bool:
        return False  # Many servers let response_format pass and don't heed it.

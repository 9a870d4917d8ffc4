"""OpenAICompatible: a model behind any server that speaks Chat Completions."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, final
from urllib.parse import urlsplit

import attrs

from .._contracts import Emit, Model
from .._errors import ProviderError
from ..record._frozen import FrozenDict, freeze_dict
from ..record._messages import Price, Reply, Request, Usage
from ._http import exchange, open_session
from ._openai_chat import ChatSettings, ChatWire
from ._target import Target
from ._wire import Endpoint

OPENAI_URL = "https://api.openai.com/v1"
_FREE = Price(0, 0)
_SHORTEST_SECRET = 6
"""Characters. Shorter ones, such as "EMPTY", are no secrets, and taking them out would garble messages."""
_HOST = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?")
_LOCAL_HOSTS = frozenset(("localhost", "127.0.0.1", "::1", "0.0.0.0"))


def _base_url(value: str | None) -> str:
    url = value or os.environ.get("OPENAI_BASE_URL") or OPENAI_URL
    if not isinstance(url, str):
        raise TypeError(f"base_url must be str, not {type(url).__name__}")
    url = url.strip().rstrip("/")
    problem = _problem_of(url)
    if problem:
        shown = re.sub(r"[^/]*@", "...@", url.partition("?")[0])  # A password or a key stays out of errors.
        raise ValueError(f"base_url {shown!r}: {problem}; it looks like 'http://127.0.0.1:8080/v1'")
    return url


def _problem_of(url: str) -> str:
    """What keeps *url* from being a base URL; empty if nothing does."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # raises for a bad one
    except ValueError as error:
        return str(error)
    if parts.scheme not in ("http", "https"):
        return "it must begin with http:// or https://"
    host = parts.hostname or ""
    if (host.isascii() and ":" not in host and not _HOST.fullmatch(host)) or re.search(r"\s", url):
        return "it has no valid host"
    if parts.username is not None or parts.password is not None:
        return "a name or password in it would show in errors: use api_key= or extra_headers="
    if parts.query or parts.fragment:
        return "it can't have a query or fragment"
    if parts.path.endswith("/chat/completions"):
        return "leave /chat/completions off"
    return ""


def _provider(url: str) -> str:
    host = urlsplit(url).hostname or ""
    if host in _LOCAL_HOSTS:
        return "local"
    return "openai" if url == OPENAI_URL else host


def _key(value: str | None) -> str | None:
    if value is None:
        return None
    key = value.strip()  # Keys are read from files, which end with a line break.
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ValueError(f"api_key has characters that no key has (its length: {len(key)}); is it the right text?")
    return key


def _stop(value: str | Sequence[str] | None) -> tuple[str, ...] | None:
    return None if value is None else (value,) if isinstance(value, str) else tuple(value)


def _extra_body(value: Mapping[str, Any] | None) -> FrozenDict | None:
    return None if value is None else freeze_dict(value, "extra_body")


def _or_empty(value: str | None) -> str:
    return value or ""


def _headers(value: Mapping[str, str] | None) -> dict[str, str]:
    headers = dict(value or {})
    for name, text in headers.items():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
            raise ValueError(f"extra_headers: {name!r} is no header name")
        if type(text) is not str or not text.isascii() or not text.isprintable():
            raise ValueError(f"extra_headers: the value of {name!r} must be printable ASCII text")
    return headers


def _not_empty(model: object, field: object, value: str) -> None:
    if not isinstance(value, str):
        raise TypeError(f"name must be str, not {type(value).__name__}")
    if not value.strip():
        raise ValueError("name is empty: it is what the server calls the model, such as 'smollm2'")


@final
@attrs.frozen(eq=False, kw_only=True)
class OpenAICompatible(Model):
    """A model behind a server that speaks Chat Completions: llama.cpp, Ollama, vLLM, OpenRouter, Groq and many more.

    Args:
        name: The model's name at the server.
        base_url: As in OpenAI's own SDK, with ``/v1``. ``None``: ``OPENAI_BASE_URL``, else OpenAI's.
        api_key: ``None``: ``OPENAI_API_KEY`` when a request is made; ``""``: none is sent. Never shown.
        provider: The first half of ``name``. ``None``: ``local``, ``openai`` or the server's host.
        context_window: Tokens, input and output together; ``None`` where unknown.
        price: ``None``: nothing for a local server, else unknown.
        max_tokens: Most tokens of a reply; this and the following are left to the server where ``None``.
        temperature: 0 to 2.
        stop: Texts that end a reply.
        seed: For replies that repeat, as far as the server can.
        parallel_tool_calls: Whether a reply may hold several calls.
        extra_body: Fields added to every request, or put in place of its own.
        extra_headers: Headers added to every request; never shown.

    Raises:
        TypeError: *name* or *base_url* isn't a ``str``.
        ValueError: *name* is empty, *base_url* isn't a base URL, or a key or header holds what none can.

    Example:
        >>> OpenAICompatible("smollm2", base_url="http://127.0.0.1:8080/v1").name
        'local/smollm2'
    """

    model: str = attrs.field(alias="name", validator=_not_empty, repr=False, kw_only=False)
    """The model's name at the server."""
    base_url: str = attrs.field(default="", converter=_base_url)
    api_key: str | None = attrs.field(default=None, converter=_key, repr=False)
    provider: str = attrs.field(default="", converter=_or_empty)
    context_window: int | None = None
    price: Price | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    stop: tuple[str, ...] | None = attrs.field(default=None, converter=_stop)
    seed: int | None = None
    parallel_tool_calls: bool | None = None
    extra_body: FrozenDict | None = attrs.field(default=None, converter=_extra_body)
    extra_headers: Mapping[str, str] = attrs.field(default=None, converter=_headers, repr=False)
    name: str = attrs.field(init=False, default="")
    """``provider/model``"""
    _wire: ChatWire = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        provider = self.provider or _provider(self.base_url)
        settings = ChatSettings(
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            stop=self.stop,
            seed=self.seed,
            parallel_tool_calls=self.parallel_tool_calls,
            extra_body=self.extra_body,
        )
        endpoint = Endpoint(provider, self.base_url, self.model, "set OPENAI_API_KEY or pass api_key=")
        local = urlsplit(self.base_url).hostname in _LOCAL_HOSTS
        _set(self, "provider", provider)
        _set(self, "name", f"{provider}/{self.model}")
        _set(self, "price", _FREE if self.price is None and local else self.price)
        _set(self, "_wire", ChatWire(endpoint, settings))

    def session(self) -> AbstractAsyncContextManager[None]:
        """Return what keeps the connections open between requests."""
        return open_session(self.base_url)

    async def respond(self, request: Request, emit: Emit) -> Reply:
        """Send *request* and return the whole reply; its usage has a cost where the price is known.

        Given up as broken: no connection within 10 s, no byte of the answer within 600 s, or 120 s between two bytes.

        Checkpoint: yes. Cancelled: the request is given up and its connection closed.

        Raises:
            ProviderError: the server failed or couldn't be reached. No error shows the key; ``usage`` has what an
                attempt cost that failed.
        """
        try:
            reply = await exchange(self._wire, self._target(), request, emit)
        except ProviderError as error:
            if isinstance(error.usage, Usage):
                error.usage = self._priced(error.usage)
            raise
        return attrs.evolve(reply, usage=self._priced(reply.usage))

    def _target(self) -> Target:
        key = self.api_key if self.api_key is not None else _key(os.environ.get("OPENAI_API_KEY"))
        headers = {
            "accept": "text/event-stream, application/json",
            "accept-encoding": "identity",
            "content-type": "application/json",
            "user-agent": "alpineagents",
        }
        if key:
            headers["authorization"] = f"Bearer {key}"
        headers.update({name.lower(): value for name, value in self.extra_headers.items()})
        secrets = [key or "", *self.extra_headers.values()]
        return Target(
            endpoint=self._wire.endpoint,
            url=self.base_url + self._wire.path,
            headers=headers,
            secrets=tuple([secret for secret in secrets if len(secret) >= _SHORTEST_SECRET]),
        )

    def _priced(self, usage: Usage) -> Usage:
        """*usage* with its cost; None where the price isn't known, or the tokens aren't."""
        counted = usage.input_tokens or usage.output_tokens or self.price == _FREE
        return attrs.evolve(usage, cost=self.price.cost(usage) if self.price is not None and counted else None)


_set = object.__setattr__  # As attrs itself does it in a frozen class: for fields that depend on others.

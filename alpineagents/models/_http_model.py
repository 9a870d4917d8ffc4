"""What all models behind HTTP share: settings, key, price, and the way to the provider."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import ClassVar
from urllib.parse import urlsplit

import attrs

from .._contracts import Emit, Model
from .._errors import ProviderError
from ..record._frozen import FrozenDict
from ..record._messages import Price, Reply, Request, Usage
from . import _settings as check
from ._http import exchange, open_session
from ._prices import known_model
from ._structured import Structured, as_answer, structured
from ._target import Target
from ._wire import Endpoint, Settings, Wire

_SHORTEST_SECRET = 6
"""Characters. Shorter ones, such as "EMPTY", are no secrets, and taking them out would garble messages."""
_FREE = Price(0, 0)


def _checked_url(value: str | None, model: HTTPModel) -> str:
    url = value or os.environ.get(model._URL_VARIABLE) or model._URL
    return check.base_url(url, example=model._URL_EXAMPLE, path=model._URL_PATH)


@attrs.frozen(eq=False, kw_only=True)
class HTTPModel(Model):
    """A model behind HTTP. Its subclasses say in which format."""

    _PROVIDER: ClassVar[str]
    _URL: ClassVar[str]
    _URL_VARIABLE: ClassVar[str]
    _URL_EXAMPLE: ClassVar[str]
    _URL_PATH: ClassVar[str]
    """What comes behind the base URL, at its end."""
    _KEY_VARIABLES: ClassVar[tuple[str, ...]]

    model: str = attrs.field(alias="name", validator=check.model_name, repr=False, kw_only=False)
    """The model's name at the server."""
    base_url: str = attrs.field(default="", converter=attrs.Converter(_checked_url, takes_self=True))  # type: ignore[misc,call-overload]  # attrs' own types know no None
    api_key: str | None = attrs.field(default=None, converter=check.api_key, repr=False)
    provider: str = attrs.field(default="", converter=check.text)
    context_window: int | None = attrs.field(default=None, validator=check.at_least(1))
    price: Price | None = None
    max_tokens: int | None = attrs.field(default=None, validator=check.at_least(1))
    temperature: float | None = attrs.field(default=None, validator=check.at_least(0))
    thinking: bool | int | None = None
    effort: str | None = None
    stop: tuple[str, ...] | None = attrs.field(default=None, converter=check.stop)
    seed: int | None = None
    parallel_tool_calls: bool | None = None
    structured: Structured = attrs.field(default="native", validator=check.one_of("native", "tool", "prompt"))
    cache: bool = True
    extra_body: FrozenDict | None = attrs.field(default=None, converter=check.extra_body)
    extra_headers: Mapping[str, str] = attrs.field(default=None, converter=check.headers, repr=False)
    name: str = attrs.field(init=False, default="")
    """``provider/model``"""
    structured_output: bool = attrs.field(init=False, repr=False, default=False)
    _wire: Wire = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        provider = self.provider or self._provider_at(self.base_url)
        settings = Settings(
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            thinking=self.thinking,
            effort=self.effort,
            stop=self.stop,
            seed=self.seed,
            parallel_tool_calls=self.parallel_tool_calls,
            cache=self.cache,
            extra_body=self.extra_body,
        )
        hint = f"set {' or '.join(self._KEY_VARIABLES)} or pass api_key="
        window, price = known_model(provider, self.base_url, self.model)
        if urlsplit(self.base_url).hostname in check.LOCAL_HOSTS:
            price = _FREE
        _set(self, "provider", provider)
        _set(self, "name", f"{provider}/{self.model}")
        _set(self, "context_window", window if self.context_window is None else self.context_window)
        _set(self, "price", price if self.price is None else self.price)
        _set(self, "structured_output", self._holds_to_schema())
        _set(self, "_wire", self._new_wire(Endpoint(provider, self.base_url, self.model, hint), settings))

    @abstractmethod
    def _new_wire(self, endpoint: Endpoint, settings: Settings) -> Wire:
        """Return the format."""

    @abstractmethod
    def _key_headers(self, key: str) -> dict[str, str]:
        """Return the headers that carry the key, and what else the provider wants in every request."""

    def _provider_at(self, url: str) -> str:
        """Return the provider's name."""
        return self._PROVIDER

    def _holds_to_schema(self) -> bool:
        """Whether the provider holds an answer to its schema, so that the question needn't say it."""
        return self.structured != "prompt"

    def session(self) -> AbstractAsyncContextManager[None]:
        """Return what keeps the connections open between requests."""
        return open_session(self.base_url)

    async def respond(self, request: Request, emit: Emit) -> Reply:
        """Send *request* and return the whole reply; its usage has a cost where the price is known.

        Given up as broken: no connection within 10 s, no byte of the answer within 600 s, or 120 s between two bytes.

        Checkpoint: yes. Cancelled: the request is given up and its connection closed.

        Raises:
            ProviderError: the server failed or couldn't be reached. No error shows the key; ``usage`` has what the
                attempt cost that failed.
        """
        try:
            reply = await exchange(self._wire, self._target(), structured(request, self.structured), emit)
        except ProviderError as error:
            if isinstance(error.usage, Usage):
                error.usage = self._priced(error.usage)
            raise
        reply = attrs.evolve(reply, usage=self._priced(reply.usage))
        return reply if request.returns is None else as_answer(reply, self.structured)

    def _target(self) -> Target:
        key = self.api_key
        if key is None:
            found = (os.environ.get(variable) for variable in self._KEY_VARIABLES)
            key = check.api_key(next((value for value in found if value), None))
        headers = {
            "accept": "text/event-stream, application/json",
            "accept-encoding": "identity",
            "content-type": "application/json",
            "user-agent": "alpineagents",
            **self._key_headers(key or ""),
        }
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

"""What all models behind HTTP share: settings, key, price, and the way to the provider."""

from __future__ import annotations

import os
import re
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import ClassVar
from urllib.parse import urlsplit

import attrs

from .._contracts import Emit, Model
from .._errors import AuthError
from ..record._blocks import Block, ToolCall
from ..record._frozen import FrozenDict
from ..record._messages import Price, Reply, Request, Usage
from . import _settings as check
from ._http import exchange
from ._limits import RateLimit
from ._prices import known_model
from ._retry import Policy, tell_usage, usage_of
from ._sessions import open_session
from ._structured import Structured, as_answer, structured
from ._target import Target
from ._timeouts import Timeout, as_timeout
from ._wire import Endpoint, Settings, Wire

_SHORTEST_SECRET = 6
"""Characters. Shorter ones, such as "EMPTY", are no secrets, and taking them out would garble messages."""
_SCHEME = re.compile(r"(Basic|Bearer|Key|Token) +\S", re.IGNORECASE)
"""How a header begins that carries a secret behind a word: some servers repeat the secret alone."""
_FREE = Price(0, 0)


def _checked_url(value: str | None, model: HTTPModel) -> str:
    variables = (model._URL_VARIABLE, model._SDK_URL_VARIABLE)
    found = (os.environ.get(variable) for variable in variables if variable)
    url = value or next((url for url in found if url), model._URL)
    return check.base_url(url, example=model._URL_EXAMPLE, path=model._URL_PATH)


@attrs.frozen(eq=False, kw_only=True)
class HTTPModel(Model):
    """A model behind HTTP. Its subclasses say in which format."""

    _PROVIDER: ClassVar[str]
    _URL: ClassVar[str]
    _URL_VARIABLE: ClassVar[str]
    _SDK_URL_VARIABLE: ClassVar[str] = ""
    """What the provider's own SDK reads instead."""
    _URL_EXAMPLE: ClassVar[str]
    _URL_PATH: ClassVar[str]
    """What comes behind the base URL, at its end."""
    _KEY_VARIABLES: ClassVar[tuple[str, ...]]
    _COPIED: ClassVar[bool] = False
    """Whether others speak the format with models of their own, so that the host says whose they are."""

    model: str = attrs.field(alias="name", converter=check.model_name, repr=False, kw_only=False)
    """The model's name at the server."""
    base_url: str = attrs.field(default="", converter=attrs.Converter(_checked_url, takes_self=True))  # type: ignore[misc,call-overload]  # attrs' own types know no None
    api_key: str | None = attrs.field(default=None, converter=check.api_key, repr=False)
    provider: str = attrs.field(default="", converter=check.text)
    context_window: int | None = attrs.field(default=None, validator=check.whole(1))
    price: Price | None = attrs.field(default=None, validator=check.of_type(Price))
    max_tokens: int | None = attrs.field(default=None, validator=check.whole(1))
    temperature: float | None = attrs.field(default=None, validator=check.at_least(0))
    thinking: bool | int | None = attrs.field(default=None, validator=check.of_type(bool, int))
    effort: str | None = attrs.field(default=None, validator=check.of_type(str))
    stop: tuple[str, ...] | None = attrs.field(default=None, converter=check.stop)
    seed: int | None = attrs.field(default=None, validator=check.of_type(int))
    parallel_tool_calls: bool | None = attrs.field(default=None, validator=check.of_type(bool))
    structured: Structured = attrs.field(default="native", validator=check.one_of("native", "tool", "prompt"))
    cache: bool = attrs.field(default=True, validator=check.of_type(bool))
    extra_body: FrozenDict | None = attrs.field(default=None, converter=check.extra_body)
    extra_headers: Mapping[str, str] = attrs.field(default=None, converter=check.headers, repr=False)
    retries: int = 4
    """How often a request that failed, and may pass, is sent again."""
    max_wait: float = 120.0
    """The longest wait before that, in seconds; where the provider asks for more, the error is raised at once."""
    timeout: Timeout = attrs.field(default=None, converter=as_timeout)
    """How long a request may take; a number of seconds is ``Timeout(total=...)``, ``None`` the defaults."""
    rate_limit: RateLimit | None = None
    """Shared by all models that have the same object."""
    name: str = attrs.field(init=False, default="")
    """``provider/model``"""
    structured_output: bool = attrs.field(init=False, repr=False, default=False)
    _wire: Wire = attrs.field(init=False, repr=False)
    _policy: Policy = attrs.field(init=False, repr=False)

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
        policy = Policy(
            retries=self.retries,
            max_wait=self.max_wait,
            timeout=self.timeout,
            rate_limit=self.rate_limit,
            max_tokens=self.max_tokens,
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
        _set(self, "_policy", policy)
        endpoint = Endpoint(provider, self.base_url, self.model, hint, self._URL_EXAMPLE)
        _set(self, "_wire", self._new_wire(endpoint, settings))

    @abstractmethod
    def _new_wire(self, endpoint: Endpoint, settings: Settings) -> Wire:
        """Return the format."""

    def _key_headers(self, key: str) -> dict[str, str]:
        """Return the headers that carry the key, and what else the provider wants in every request."""
        return {"authorization": f"Bearer {key}"} if key else {}

    def _provider_at(self, url: str) -> str:
        """Return the provider's name."""
        if not self._COPIED or url == self._URL:
            return self._PROVIDER
        host = urlsplit(url).hostname or ""
        return "local" if host in check.LOCAL_HOSTS else host

    def _holds_to_schema(self) -> bool:
        """Whether the provider holds an answer to its schema, so that the question needn't say it."""
        return self.structured != "prompt"

    def session(self) -> AbstractAsyncContextManager[None]:
        """Return what keeps the connections open between requests."""
        return open_session(self.base_url)

    async def respond(self, request: Request, emit: Emit) -> Reply:
        """Send *request* and return the whole reply; its usage has a cost where the price is known.

        What fails and may pass is sent again, at most ``retries`` times: no connection, 408, 409, 429, 5xx, an answer
        that breaks off or stalls, also in the middle of it. Each time *emit* gets a ModelEvent ``retry``; where its
        data say ``restarted``, the text so far is thrown away.

        Checkpoint: yes. Cancelled: the request is given up and its connection closed.

        Raises:
            ProviderError: the server failed or couldn't be reached. No error shows the key; ``usage`` has what all
                attempts cost, as an exception of *emit* or a cancellation has it that comes out of here.
            ValueError: the key in the environment can't be one, or SSL_CERT_FILE names no certificates.
        """
        how = self.structured if request.returns is None else self._structured_by(request.returns)
        try:
            reply = await self._exchange(structured(request, how), emit, self._wire)
        except BaseException as error:
            tell_usage(error, self._priced_as_failed(usage_of(error)))
            if isinstance(error, AuthError) and not (self.extra_headers or self._key()):
                error.args = (f"{error} (no key was sent)",)
            raise
        name = reply.model or self.model  # Some servers name none.
        reply = attrs.evolve(reply, usage=self._priced(reply.usage), blocks=_kept(reply), model=name)
        return reply if request.returns is None else as_answer(reply, how)

    async def _exchange(self, request: Request, emit: Emit, wire: Wire) -> Reply:
        """Send *request* in the format of *wire*; retries included."""
        return await exchange(wire, self._target(), request, emit, self._policy)

    def _structured_by(self, schema: FrozenDict) -> Structured:
        """How an answer is held to *schema*."""
        return self.structured

    def _target(self) -> Target:
        try:
            key = self._key()
        except ValueError as error:
            raise error.with_traceback(None)  # noqa: B904  # Its frames hold what may be a key.
        headers = {
            "accept": "text/event-stream, application/json",
            "accept-encoding": "identity",
            "content-type": "application/json",
            "user-agent": "alpineagents",
            **self._key_headers(key),
        }
        headers.update({name.lower(): value for name, value in self.extra_headers.items()})
        secrets = [key, *self.extra_headers.values()]
        secrets += [value.partition(" ")[2].strip() for value in secrets if _SCHEME.match(value)]
        return Target(
            endpoint=self._wire.endpoint,
            url=self.base_url + self._wire.path,
            headers=headers,
            secrets=tuple([secret for secret in secrets if len(secret) >= _SHORTEST_SECRET]),
        )

    def _key(self) -> str:
        """The key, empty without one."""
        if self.api_key is not None:
            return self.api_key
        found = (os.environ.get(variable) for variable in self._KEY_VARIABLES)
        return check.api_key(next((value for value in found if value), None)) or ""

    def _priced_as_failed(self, usage: Usage) -> Usage:
        """*usage* of attempts that failed, with its cost: nothing where there was no answer that could cost any."""
        told = usage.input_tokens or usage.output_tokens or usage.cost is None
        return self._priced(usage) if told else usage

    def _priced(self, usage: Usage) -> Usage:
        """*usage* with its cost; None where the price isn't known, or the tokens of any attempt aren't."""
        counted = usage.cost is not None and (usage.input_tokens or usage.output_tokens)
        known = self.price is not None and (counted or self.price == _FREE)
        return attrs.evolve(usage, cost=self.price.cost(usage) if self.price is not None and known else None)


def _kept(reply: Reply) -> tuple[Block, ...]:
    """Its blocks, in any format without the calls where it is a refusal: behind a filter's cut, they must not run."""
    return tuple([block for block in reply.blocks if type(block) is not ToolCall]) if reply.refusal else reply.blocks


_set = object.__setattr__  # As attrs itself does it in a frozen class: for fields that depend on others.

"""What every wire format offers the transport, sans-IO: a request as bytes, a decoder of answers, errors as classes.

A Wire knows its provider's JSON and nothing of sockets; ``_http`` drives any of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias, final
from urllib.parse import urlsplit

import attrs

from .._errors import (
    AuthError,
    BadRequestError,
    ContextTooLongError,
    ModelNotFoundError,
    OverloadedError,
    ProviderError,
    RateLimitError,
)
from ..record._blocks import clean_text
from ..record._frozen import FrozenDict
from ..record._messages import Reply, Request, TextDelta, ThinkingDelta, Usage
from ._sse import Event

Delta: TypeAlias = TextDelta | ThinkingDelta
Redact: TypeAlias = Callable[[str], str]
"""Takes out of a text what no error may show, before it is shortened, which could cut a key in two."""

MAX_EXCERPT = 2_000
"""Characters of an answer's body that an error keeps."""


_HOSTS = (
    ("api.openai.com", "openai"),  # Also eu.api.openai.com and us.api.openai.com
    ("openai.azure.com", "openai"),
    ("cognitiveservices.azure.com", "openai"),
    ("anthropic.com", "anthropic"),
    ("deepseek.com", "deepseek"),
    ("mistral.ai", "mistral"),
)


def _house(endpoint: Endpoint) -> str:
    """By the host: what a provider is called is the caller's to choose. At a host that isn't known, by that name."""
    for place in (urlsplit(endpoint.base_url).hostname or "", endpoint.provider):
        for host, house in _HOSTS:
            if place in (host, house) or place.endswith(f".{host}"):
                return house
    return ""


@final
@attrs.frozen
class Endpoint:
    """Whom a request goes to: what error messages name."""

    provider: str
    base_url: str
    model: str
    key_hint: str = "pass api_key="
    """How to give this provider a key."""
    url_example: str = ""
    """What a base URL looks like there; empty where nobody knows."""
    house: str = attrs.field(init=False, repr=False, default=attrs.Factory(_house, takes_self=True))
    """Whose rules the server has, where it has some of its own: ``openai``, ``mistral`` and the like, or empty."""

    def __str__(self) -> str:
        return f"{self.provider}, model {self.model!r} at {self.base_url}"


@final
@attrs.frozen(kw_only=True)
class Settings:
    """What a request says besides the conversation; ``None`` leaves a field out."""

    max_tokens: int | None = None
    temperature: float | None = None
    thinking: bool | int | None = None
    """Whether the model shall think before it answers, or the most tokens for that."""
    effort: str | None = None
    """How much work goes into an answer, in the provider's words."""
    stop: tuple[str, ...] | None = None
    seed: int | None = None
    parallel_tool_calls: bool | None = None
    cache: bool = True
    """Whether the provider may keep the beginning of the conversation for the next request."""
    extra_body: FrozenDict | None = None
    """Fields added to the request, or put in place of its own."""


class Decoder(Protocol):
    """Turns one answer into deltas and a Reply. Never raises while it is fed: what fails is in ``failure``."""

    finished: bool
    """There is a whole reply, whatever becomes of the connection: the terminal marker came, and can be believed.

    Some servers put a finish reason on every chunk, or before all content. So one isn't believed before anything was
    said, nor once content came behind one: then only the end of the body says that the last one was the last.
    """
    complete: bool
    """Nothing that matters can follow."""
    failure: ProviderError | None
    """What the stream itself said went wrong."""

    def feed(self, events: Sequence[Event]) -> list[Delta]:
        """Take events and return what to show of them."""
        ...

    def feed_document(self, body: bytes) -> list[Delta]:
        """Take an answer that turned out to be no event stream: a JSON document, an HTML page, anything."""
        ...

    def usage(self) -> Usage | None:
        """Return the tokens spent, as far as the provider told; ``None`` where it hasn't."""
        ...

    def reply(self) -> Reply:
        """Return the reply: once ``finished``, or at the end of the body.

        Raises:
            BrokenStreamError: the terminal marker hasn't come, or content came behind it.
            ProviderError: ``failure``.
        """
        ...


class Wire(Protocol):
    """One provider format."""

    endpoint: Endpoint
    """Whom its requests go to."""
    path: str
    """Appended to the base URL."""

    def encode(self, request: Request) -> bytes:
        """Return the request's JSON."""
        ...

    def decoder(self, redacted: Redact = str) -> Decoder:
        """Return a new decoder for one answer, whose errors are *redacted*."""
        ...

    def failure(self, status: int, headers: Mapping[str, str], body: bytes, retry_after: float | None) -> ProviderError:
        """Return the error that an answer with this *status* stands for."""
        ...


@final
@attrs.frozen(kw_only=True)
class Complaint:
    """What an error body, or an error inside a stream, said."""

    message: str
    words: str = ""
    """Its code and its type."""
    status: int | None = None
    """The HTTP status it names itself."""


_CONTEXT_MARKS = (
    "context_length_exceeded",  # OpenAI, Groq, Cerebras, DeepSeek
    "exceed_context_size",  # llama.cpp
    "context length",  # vLLM, OpenRouter
    "context size",
    "context window",
    "maximum prompt length",  # xAI
    "prompt is too long",  # Anthropic
    "exceed context limit",  # Anthropic, input and max_tokens together
    "input is too long",
    "input token count",  # Gemini
    "reduce the length of the messages",  # Groq
    "too large for model with",  # Mistral
)
_STATUS_OF_WORDS = (
    ("rate_limit", 429),
    ("ratelimit", 429),
    ("quota", 429),
    ("too_many_requests", 429),
    ("overloaded", 529),
    ("unavailable", 503),
    ("insufficient_system_resource", 503),
    ("timeout", 504),
    ("authentication", 401),
    ("unauthorized", 401),
    ("api_key", 401),
    ("permission", 403),
    ("forbidden", 403),
    ("not_found", 404),
    ("notfound", 404),
    ("context", 400),
    ("invalid", 400),
    ("badrequest", 400),
    ("bad_request", 400),
    ("tool_use_failed", 400),
)


def stated_status(complaint: Complaint) -> int:
    """Return the HTTP status that *complaint* stands for by its own words; 500 where they say nothing."""
    if complaint.status is not None:
        return complaint.status
    words = complaint.words.lower()
    return next((status for word, status in _STATUS_OF_WORDS if word in words), 500)


def error_class(status: int, complaint: Complaint) -> type[ProviderError]:
    """Return the class of error for an answer with *status*."""
    words = f"{complaint.words} {complaint.message}".lower()
    if status in (401, 403) or "api_key_invalid" in words:  # The latter: Gemini, with 400
        return AuthError
    if status == 429:
        return RateLimitError
    if any(mark in words for mark in _CONTEXT_MARKS):
        return ContextTooLongError
    if status == 404 or "model_not_found" in words or "invalid_model" in words:
        return ModelNotFoundError
    if status == 408 or status >= 500:
        return OverloadedError
    return BadRequestError


def error_for(
    endpoint: Endpoint,
    complaint: Complaint,
    *,
    status: int | None,
    body: str,
    request_id: str | None = None,
    retry_after: float | None = None,
    redacted: Redact = str,
) -> ProviderError:
    """Return the error that *complaint* is.

    Args:
        endpoint: Who answered.
        complaint: What it said.
        status: HTTP status of the answer; ``None`` for an error inside a stream (HTTP 200), which names its own.
        body: The answer, or the event, it stood in.
        request_id: The provider's id of the request.
        retry_after: Seconds it asked to wait.
        redacted: Takes secrets out.
    """
    meant = stated_status(complaint) if status is None else status
    kind = error_class(meant, complaint)
    answered = f"answered {meant}" if status is not None else f"broke off its answer ({meant})"
    fix = _fix(kind, endpoint, retry_after)
    return kind(
        f"{endpoint} {answered}: {one_line(redacted(complaint.message))}" + (f" - {fix}" if fix else ""),
        status=200 if status is None else status,
        request_id=request_id,
        body=redacted(body)[:MAX_EXCERPT],
        provider=endpoint.provider,
        retry_after=retry_after,
    )


def error_of_answer(
    endpoint: Endpoint,
    complaint: Complaint,
    *,
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    retry_after: float | None,
) -> ProviderError:
    """Return the error that an answer with this *status* and *body* is; see ``error_for``."""
    return error_for(
        endpoint,
        complaint,
        status=status,
        body=body.decode(errors="replace"),
        request_id=headers.get("request-id") or headers.get("x-request-id"),  # The first: Anthropic
        retry_after=retry_after,
    )


def broken(
    kind: type[ProviderError], endpoint: Endpoint, what: str, last: bytes, redacted: Redact = str
) -> ProviderError:
    """Return the error that a stream's event, or its end, is.

    Args:
        kind: Its class.
        endpoint: Who answered.
        what: What it did, without secrets.
        last: The event.
        redacted: Takes secrets out.
    """
    body = redacted(last.decode(errors="replace"))[:MAX_EXCERPT]
    return kind(f"{endpoint} {what}", status=200, body=body, provider=endpoint.provider)


def no_json(data: bytes, redacted: Redact = str) -> str:
    """Say that an event is no JSON."""
    return f"sent an event that is no JSON: {one_line(repr(redacted(data.decode(errors='replace'))[:200]))}"


def _fix(kind: type[ProviderError], endpoint: Endpoint, retry_after: float | None) -> str:
    if kind is AuthError:
        return f"check the key and what it may do: {endpoint.key_hint}"
    if kind is ModelNotFoundError:
        example = endpoint.url_example
        like = f", which looks like {example!r}" if example not in ("", endpoint.base_url) else ""
        wrong_url = f"{endpoint.base_url} is not the API's base URL{like}"
        return f"either no model is called {endpoint.model!r} there, or {wrong_url}"
    if kind is ContextTooLongError:
        return "compact the State, await agent.compact(state), or take a model with a larger context window"
    if kind is RateLimitError and retry_after is not None:
        return f"it asks to wait {retry_after:g} s"
    return ""


def one_line(text: str, limit: int = 500) -> str:
    """Return *text* without line breaks, shortened to *limit* characters."""
    line = " ".join(clean_text(text).split()) or "(no message)"
    return line if len(line) <= limit else line[: limit - 3] + "..."


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds an answer asks to wait, by ``retry-after-ms`` or ``Retry-After`` (RFC 9110, section 10.2.3).

    Args:
        headers: The answer's; looked up in lower case.
        now: Seconds since 1970.

    Returns:
        Seconds >= 0; ``None`` where it doesn't ask, or asks for what isn't finite, is negative or can't be read.
    """
    milliseconds = not_negative(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1_000
    value = headers.get("retry-after")
    seconds = not_negative(value)
    if seconds is None and value:
        seconds = _until(value, now)
    return seconds


def not_negative(text: str | None) -> float | None:
    """Return the number that a header's value is, if it is one, finite and not below 0: Azure says -1 for no limit."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _until(date: str, now: float) -> float | None:
    from email.utils import parsedate_to_datetime  # 10 ms to import, and rarely needed

    try:
        return max(parsedate_to_datetime(date).timestamp() - now, 0.0)
    except (ValueError, TypeError, OverflowError):
        return None

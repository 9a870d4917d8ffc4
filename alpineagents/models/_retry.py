"""When a failed request is sent again, and how long to wait first: decisions only, no clock, no chance and no I/O."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any, final

import attrs

from .._errors import BrokenStreamError, OverloadedError, ProviderError, RateLimitError, UnreachableError
from ..record._messages import NO_USAGE, Usage
from ._limits import RateLimit
from ._timeouts import Timeout

PASSING = (RateLimitError, OverloadedError, BrokenStreamError, UnreachableError)
"""Errors that may be gone a little later, or elsewhere: the others are in the request, the key or the settings."""

FIRST_WAIT_SECONDS = 1.0
"""The longest wait before the second attempt; doubled for each one after."""
LONGEST_BACKOFF_SECONDS = 60.0

_REQUEST_AT_FAULT = re.compile(
    r"not supported|unsupported|(does not|doesn't) support"  # llama.cpp: "image input is not supported"
    r"|failed to parse|parse_error|json\.exception"  # llama.cpp: a body or a grammar that it can't read
    r"|jinja|chat template|roles must alternate"  # llama.cpp, vLLM: messages that the model's template refuses
    r"|invalid[ _](argument|type|value)",
    re.IGNORECASE,
)
"""What servers say with a 500 where the same request will fail again."""
_NO_CREDIT = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active")
"""OpenAI's codes for a 429 that only money mends."""


def _count(policy: Policy, field: attrs.Attribute[Any], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{field.name} must be int, not {type(value).__name__}")
    if value < 0:
        raise ValueError(f"{field.name} must be 0 or more (got {value})")


def _seconds(policy: Policy, field: attrs.Attribute[Any], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{field.name} must be seconds, not {type(value).__name__}")
    if not value >= 0:
        raise ValueError(f"{field.name} must be 0 seconds or more (got {value:g})")


def _rate_limit(policy: Policy, field: attrs.Attribute[Any], value: object) -> None:
    if value is not None and not isinstance(value, RateLimit):
        raise TypeError(f"rate_limit must be a RateLimit or None, not {type(value).__name__}: RateLimit(concurrent=8)")


@final
@attrs.frozen(kw_only=True)
class Policy:
    """What a model wants done about failures."""

    retries: int = attrs.field(default=4, validator=_count)
    """How often a request is sent again."""
    max_wait: float = attrs.field(default=120.0, validator=_seconds)
    """The longest wait before that, in seconds."""
    timeout: Timeout = attrs.field(factory=Timeout)
    rate_limit: RateLimit | None = attrs.field(default=None, validator=_rate_limit)
    max_tokens: int | None = None
    """Most tokens of a reply, to estimate a request for *rate_limit*."""


def may_pass(error: ProviderError, advice: str | None = None) -> bool:
    """Return whether the same request may succeed a little later.

    Args:
        error: How it failed.
        advice: The answer's ``x-should-retry`` header: ``"false"`` forbids it (by OpenAI's and Anthropic's own SDKs).
    """
    if advice == "false":
        return False
    body = error.body or ""
    if isinstance(error, RateLimitError):
        return not any(code in body for code in _NO_CREDIT)
    if isinstance(error, OverloadedError) and error.status in (200, 500):  # 200: inside a stream.
        return not (body.lstrip().startswith(("{", "[")) and _REQUEST_AT_FAULT.search(body))
    return isinstance(error, PASSING) or error.status == 409


def backoff(failures: int, draw: float) -> float:
    """Return the seconds to wait after so many *failures* when the server asked for none.

    Exponential, with full jitter: clients that failed together come back one by one.

    Args:
        failures: 1 after the first.
        draw: A random number from 0 to 1.
    """
    return draw * min(FIRST_WAIT_SECONDS * 2.0 ** min(failures - 1, 30), LONGEST_BACKOFF_SECONDS)


def usage_of(error: BaseException) -> Usage:
    """Return what an exception says was spent; nothing where it doesn't."""
    usage = getattr(error, "usage", None)
    return usage if isinstance(usage, Usage) else NO_USAGE


def tell_usage(error: BaseException, usage: Usage) -> None:
    """Have *error* say what was spent, if anything was: a cancelled request costs as well."""
    if usage != NO_USAGE:
        with suppress(AttributeError):  # An exception of somebody else's that takes no attributes.
            error.usage = usage  # type: ignore[attr-defined]

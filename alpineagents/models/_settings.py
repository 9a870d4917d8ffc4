"""What a model's constructor takes, checked and made one form: URLs, keys, headers, texts, limits."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any
from urllib.parse import urlsplit

import attrs

from ..record._frozen import FrozenDict, freeze_dict

LOCAL_HOSTS = frozenset(("localhost", "127.0.0.1", "::1", "0.0.0.0"))
_ENDPOINTS = ("/chat/completions", "/completions", "/responses", "/v1/messages", "/messages", "/models")
"""What follows a base URL, at any provider."""
_HOST = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?")


def base_url(value: object, *, example: str, path: str) -> str:
    """Return a base URL without a slash at its end.

    Args:
        value: As it was given.
        example: What such a URL looks like.
        path: What the library appends itself, so that it can't end with that, nor with how that begins.

    Raises:
        TypeError: it isn't a ``str``.
        ValueError: it is no base URL; the message shows no password.
    """
    if not isinstance(value, str):
        raise TypeError(f"base_url must be str, not {type(value).__name__}")
    url = value.strip().rstrip("/")
    if problem := _problem_of(url, path):
        shown = re.sub(r"[^/]*@", "...@", url.partition("?")[0])  # A password or a key stays out of errors.
        raise ValueError(f"base_url {shown!r}: {problem}; it looks like {example!r}")
    return url


def _problem_of(url: str, path: str) -> str:
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
    ours = [f"/{part}" for part in accumulate(path.strip("/").split("/"), "{}/{}".format)]
    found = next((end for end in (*ours[::-1], *_ENDPOINTS) if parts.path.endswith(end)), None)
    return f"leave {found} off" if found else ""


def api_key(value: str | None) -> str | None:
    """Return a key without the line break that files end with; ValueError where it can't be one."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"api_key must be str or None, not {type(value).__name__}")
    key = value.strip()
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ValueError(f"api_key has characters that no key has (its length: {len(key)}); is it the right text?")
    return key


def headers(value: Mapping[str, str] | None) -> dict[str, str]:
    """Return headers as a dict; TypeError for what is none, ValueError for what HTTP doesn't allow."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(f"extra_headers must be a dict or None, not {type(value).__name__}")
    found = dict(value)
    for name, text in found.items():
        if type(name) is not str or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
            raise ValueError(f"extra_headers: {name!r} is no header name")
        if type(text) is not str or not text.isascii() or not text.isprintable():
            raise ValueError(f"extra_headers: the value of {name!r} must be printable ASCII text")
    return found


def stop(value: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the texts that end a reply; TypeError or ValueError for what is no such text."""
    if value is None:
        return None
    try:
        texts = (value,) if isinstance(value, str) else tuple(value)
    except TypeError:
        raise TypeError(f"stop must be text, or a list of texts, not {type(value).__name__}") from None
    for text in texts:
        if type(text) is not str:
            raise TypeError(f"stop must be text, or a list of texts (got {text!r:.80} in it)")
    if "" in texts:
        raise ValueError("stop: an empty text would end every reply")
    return texts or None


def extra_body(value: Mapping[str, Any] | None) -> FrozenDict | None:
    """Return fields of a request, frozen."""
    return None if value is None else freeze_dict(value, "extra_body")


def text(value: str | None) -> str:
    """Return what a provider is called, empty for None."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"provider must be str or None, not {type(value).__name__}")
    return value or ""


def model_name(value: str) -> str:
    """Return a model's name; TypeError or ValueError for what can't be one."""
    if not isinstance(value, str):
        raise TypeError(f"name must be str, not {type(value).__name__}")
    if not value.strip():
        raise ValueError("name is empty: it is what the server calls the model, such as 'smollm2'")
    return value


def at_least(least: float) -> Callable[[object, attrs.Attribute[Any], Any], None]:
    """Return a validator for numbers of *least* or more, or None."""

    def check(model: object, field: attrs.Attribute[Any], value: Any) -> None:
        if value is None:
            return
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{field.name} must be a number, not {type(value).__name__}")
        if not least <= value < math.inf:
            raise ValueError(f"{field.name} must be {least:g} or more (got {value:g})")

    return check


def whole(least: int) -> Callable[[object, attrs.Attribute[Any], Any], None]:
    """Return a validator for ints of *least* or more, or None."""

    def check(model: object, field: attrs.Attribute[Any], value: Any) -> None:
        if value is None:
            return
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{field.name} must be an int, not {type(value).__name__}")
        if value < least:
            raise ValueError(f"{field.name} must be {least} or more (got {value})")

    return check


def of_type(*kinds: type) -> Callable[[object, attrs.Attribute[Any], Any], None]:
    """Return a validator for values of exactly one of these types, or None."""

    def check(model: object, field: attrs.Attribute[Any], value: Any) -> None:
        if value is not None and type(value) not in kinds:
            names = " or ".join(kind.__name__ for kind in kinds)
            raise TypeError(f"{field.name} must be {names} or None, not {type(value).__name__}")

    return check


def one_of(*words: str) -> Callable[[object, attrs.Attribute[Any], Any], None]:
    """Return a validator for one of these words."""

    def check(model: object, field: attrs.Attribute[Any], value: Any) -> None:
        if value not in words:
            raise ValueError(f"{field.name} must be one of {', '.join(map(repr, words))} (got {value!r:.80})")

    return check

"""A model from a string such as ``"anthropic/claude-sonnet-5"``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple

import attrs

from .._contracts import Model
from ..record._messages import Price

OLLAMA_URL: Final = "http://127.0.0.1:11434/v1"


class _Kind(NamedTuple):
    module: str
    """Imported when a model of this kind is made."""
    name: str
    defaults: Mapping[str, Any] = {}


# No key for Ollama: it wants none, and OPENAI_API_KEY is not its.
_OLLAMA: Final = {"base_url": OLLAMA_URL, "provider": "ollama", "price": Price(0, 0), "api_key": ""}
_KINDS: Final[Mapping[str, _Kind]] = {
    "anthropic": _Kind("_anthropic", "Anthropic"),
    "compatible": _Kind("_compatible", "OpenAICompatible"),
    "google": _Kind("_google", "Google"),
    "ollama": _Kind("_compatible", "OpenAICompatible", _OLLAMA),
    "openai": _Kind("_openai", "OpenAI"),
}
_NAMES: Final = ((r"claude-", "anthropic"), (r"gemini-", "google"), (r"gpt-|chatgpt-|o\d", "openai"))
"""How names begin that say whose model it is."""
_KNOWN: Final = (
    "'anthropic/NAME' or 'claude-...', 'openai/NAME', 'gpt-...' or 'o3...', 'google/NAME' or 'gemini-...',"
    " 'ollama/NAME', 'compatible/NAME' with base_url= or OPENAI_BASE_URL, and any other with base_url="
)


def resolve_model(model: str, **options: Any) -> Model:
    """Return the model that *model* names.

    Args:
        model: ``anthropic/NAME`` or ``claude-...``; ``openai/NAME``, ``gpt-...`` or ``o3...``; ``google/NAME`` or
            ``gemini-...``; ``ollama/NAME`` for Ollama on this machine; ``compatible/NAME`` for any server that speaks
            Chat Completions, with ``base_url=`` or ``OPENAI_BASE_URL``; with ``base_url=`` also any other name.
        **options: Arguments of ``Anthropic``, ``OpenAI``, ``Google`` or, for all others, ``OpenAICompatible``.

    Raises:
        TypeError: *model* isn't a ``str``, or there is no such option.
        ValueError: the string names no model that is known, or no server where one is needed, or an option has a wrong
            value.
    """
    if not isinstance(model, str):
        raise TypeError(f"model must be str, not {type(model).__name__}; known: {_KNOWN}")
    provider, slash, name = model.partition("/")
    if not slash:
        provider, name = next((kind for start, kind in _NAMES if re.match(start, model)), ""), model
    kind = _KINDS.get(provider)
    if kind is None and model and options.get("base_url"):  # A server of one's own may call its models anything.
        provider, name = "compatible", model
        kind = _KINDS[provider]
    if kind is None or not name:
        raise ValueError(f"unknown model {model!r}; known: {_KNOWN}")
    cls = getattr(import_module(f".{kind.module}", __package__), kind.name)
    known = [field.alias or field.name for field in attrs.fields(cls) if field.init][1:]
    if unknown := sorted(set(options) - set(known)):
        raise TypeError(f"unknown option {', '.join(unknown)}; {provider!r} has: {', '.join(known)}")
    if provider == "compatible" and not options.get("base_url") and not os.environ.get(cls._URL_VARIABLE):
        raise ValueError(  # and not sent to OpenAI: what is meant for a server of one's own stays there
            f"{model!r} doesn't say which server: set {cls._URL_VARIABLE}, or give base_url='http://127.0.0.1:8080/v1';"
            f" OpenAI's own are 'openai/{name}'"
        )
    found: Model = cls(name, **{**kind.defaults, **options})
    return found

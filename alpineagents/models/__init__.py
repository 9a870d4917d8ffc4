"""Who thinks: providers behind one request format."""

from typing import TYPE_CHECKING

from ._resolve import resolve_model

if TYPE_CHECKING:
    from ._anthropic import Anthropic
    from ._compatible import OpenAICompatible
    from ._fallback import Fallback
    from ._google import Google
    from ._limits import RateLimit
    from ._openai import OpenAI
    from ._timeouts import Timeout

__all__ = [
    "Anthropic",
    "Fallback",
    "Google",
    "OpenAI",
    "OpenAICompatible",
    "RateLimit",
    "Timeout",
    "resolve_model",
]

_LAZY = {
    "Anthropic": "_anthropic",
    "Fallback": "_fallback",
    "Google": "_google",
    "OpenAI": "_openai",
    "OpenAICompatible": "_compatible",
    "RateLimit": "_limits",
    "Timeout": "_timeouts",
}


def __getattr__(name: str) -> object:
    """Import a provider's format when its class is first named."""
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""A model from a string such as ``"ollama/qwen3"``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from .._contracts import Model
from ..record._messages import Price
from ._compatible import OpenAICompatible

OLLAMA_URL = "http://127.0.0.1:11434/v1"


def _ollama(name: str, options: Mapping[str, Any]) -> Model:
    # No key: OPENAI_API_KEY is not Ollama's, and it wants none.
    defaults = {"base_url": OLLAMA_URL, "provider": "ollama", "price": Price(0, 0), "api_key": ""}
    return OpenAICompatible(name, **{**defaults, **options})


def _compatible(name: str, options: Mapping[str, Any]) -> Model:
    return OpenAICompatible(name, **options)


_MAKERS: Mapping[str, Callable[[str, Mapping[str, Any]], Model]] = {"compatible": _compatible, "ollama": _ollama}
_KNOWN = "'ollama/NAME', or 'compatible/NAME' with base_url= or OPENAI_BASE_URL"


def resolve_model(model: str, **options: Any) -> Model:
    """Return the model that *model* names.

    Args:
        model: ``ollama/NAME`` for Ollama on this machine; ``compatible/NAME`` for any server that speaks Chat
            Completions, with ``base_url=`` or ``OPENAI_BASE_URL``.
        **options: Arguments of OpenAICompatible.

    Raises:
        TypeError: *model* isn't a ``str``, or there is no such option.
        ValueError: the string names no model that is known, or an option has a wrong value.
    """
    if not isinstance(model, str):
        raise TypeError(f"model must be str, not {type(model).__name__}; known: {_KNOWN}")
    kind, _, name = model.partition("/")
    maker = _MAKERS.get(kind)
    if maker is None or not name:
        raise ValueError(f"unknown model {model!r}; known: {_KNOWN}")
    known = [field.alias or field.name for field in attrs.fields(OpenAICompatible) if field.init][1:]
    if unknown := sorted(set(options) - set(known)):
        raise TypeError(f"unknown option {', '.join(unknown)}; {kind!r} has: {', '.join(known)}")
    return maker(name, options)

"""Who thinks: providers behind one request format."""

from ._compatible import OpenAICompatible
from ._resolve import resolve_model

__all__ = ["OpenAICompatible", "resolve_model"]

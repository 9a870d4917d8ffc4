"""Names and ids as a provider takes them. A model makes some up that no tool can have, and a State changes provider."""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256

_OTHER = re.compile(r"[^a-zA-Z0-9_-]")


def sendable_name(name: str, limit: int = 64) -> str:
    """Return a tool's name of letters, digits, ``_`` and ``-``, at most *limit* of them."""
    return _OTHER.sub("_", name)[:limit] or "_"


@lru_cache(maxsize=4_096)
def sendable_id(call_id: str, limit: int = 64, *, alphanumeric: bool = False) -> str:
    """Return a call's id as a provider takes it: the same for the same id, another for another.

    Providers repeat no id that they were sent, so there is no way back to go.

    Args:
        call_id: As the State has it.
        limit: The most characters, 9 or more.
        alphanumeric: Whether it may have only letters and digits, and exactly *limit* of them (Mistral: 9).
    """
    if alphanumeric:
        fits = len(call_id) == limit and call_id.isascii() and call_id.isalnum()
        return call_id if fits else _digest(call_id)[:limit]
    if 0 < len(call_id) <= limit and not _OTHER.search(call_id):
        return call_id
    return f"{_OTHER.sub('_', call_id)[: limit - 9]}_{_digest(call_id)[:8]}"


def _digest(text: str) -> str:
    return sha256(text.encode(errors="surrogatepass")).hexdigest()

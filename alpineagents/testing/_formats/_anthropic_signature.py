"""How the scripted Anthropic signs thinking, so that it knows its own again. The real one's way is nobody's business.

Invariant: a signature holds for one text and one model only, and is the same in every process.
"""

from __future__ import annotations

import base64
from hashlib import sha256


def signature(text: str, model: str) -> str:
    """Return the signature of thinking."""
    digest = sha256(f"{model}\n{text}".encode(errors="surrogatepass")).digest()
    return base64.b64encode(b"scripted:" + digest).decode()


def signed(text: str, model: str) -> str:
    """Return the data of redacted thinking."""
    return f"{base64.b64encode(text.encode()).decode()}.{signature(text, model)}"


def is_signed(data: str, model: str) -> bool:
    """Whether ``signed`` made *data* for *model*."""
    encoded, _, _ = data.partition(".")
    try:
        text = base64.b64decode(encoded, validate=True).decode()
    except ValueError:
        return False
    return data == signed(text, model)

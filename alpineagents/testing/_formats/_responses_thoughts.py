"""Encrypted thoughts, as the scripted provider makes them: it knows its own again, and whom they are for.

They aren't secret: JSON in base64, with a checksum that a client can't have made by accident.
"""

from __future__ import annotations

import base64
import json
from hashlib import sha256
from typing import Any, Final

_PREFIX: Final = "gAAAAA"
_SUM: Final = 12
"""Characters of the checksum."""


def encrypted(model: str, text: str, follower: str | None) -> str:
    """Return the ``encrypted_content`` of a reasoning item.

    Args:
        model: Who had the thought: no other model takes it back.
        text: The thought.
        follower: The type of the item it led to; ``None`` where it led to none.
    """
    thought = json.dumps([model, text, follower]).encode()
    return _PREFIX + base64.urlsafe_b64encode(thought).decode() + _checksum(thought)


def decrypted(content: Any) -> tuple[str, str, str | None] | None:
    """Return what ``encrypted`` was called with; None for what it didn't make."""
    if not isinstance(content, str) or not content.startswith(_PREFIX):
        return None
    try:
        thought = base64.urlsafe_b64decode(content[len(_PREFIX) : -_SUM])
    except ValueError:
        return None
    if not content.endswith(_checksum(thought)):
        return None
    model, text, follower = json.loads(thought)
    return model, text, follower


def _checksum(thought: bytes) -> str:
    return sha256(b"scripted" + thought).hexdigest()[:_SUM]

"""Where requests go, what they carry there, and the deadlines that are nobody's to set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import attrs

from ._wire import Endpoint

LINGER_SECONDS = 0.5
"""How long to read on after the terminal marker, for usage that comes behind it."""
DRAIN_SECONDS = 0.05
"""How long to read on when nothing can follow but the end: a connection read to its end can be used again."""
ERROR_BODY_SECONDS = 10.0
"""For the body of an error answer."""
CLOSE_SECONDS = 1.0
"""For closing connections in the end."""
KEEP_ALIVE_SECONDS = 30.0
"""How long a connection waits for the next request."""
MAX_ERROR_BODY = 64 * 1024
"""Bytes read of an error answer."""


@final
@attrs.frozen(kw_only=True)
class Target:
    """Where requests go and what they carry there."""

    endpoint: Endpoint
    url: str
    headers: Mapping[str, str] = attrs.field(repr=False)
    secrets: tuple[str, ...] = attrs.field(default=(), repr=False)
    """Texts that no error may show."""

    def redacted(self, text: str) -> str:
        """Return *text* without the secrets: some servers repeat the key they refuse."""
        for secret in self.secrets:
            text = text.replace(secret, "[secret]")
        return text

"""What a test harness is told of, and may refuse. In programs nobody has set any of it."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

may_connect: Final[ContextVar[Callable[[str, str], None] | None]] = ContextVar("alpineagents.may_connect", default=None)
"""Called with host and endpoint before a model connects, and raises where it may not."""

witness: Final[ContextVar[Callable[[object], None] | None]] = ContextVar("alpineagents.witness", default=None)
"""Called with each State that a run, or another action, begins or has ended with."""


def seen(state: object) -> None:
    """Tell the witness, if there is one, of *state*."""
    tell = witness.get()
    if tell is not None:
        tell(state)

"""Processes that crash, and who gives up waiting: what cancels the code of a simulation from outside."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final, final

import trio

from ..._errors import StoreError


class CrashedError(StoreError):
    """A store was called by a process that has crashed. Nobody is there to see it."""


@final
class Life:
    """A process, from its start to its end."""

    def __init__(self) -> None:
        self.scope: Final = trio.CancelScope()
        self.crashed = False
        """Whether it has ended, and only doesn't know it yet."""

    def crash(self) -> None:
        """End it at once: what it does from now on has no effect."""
        self.crashed = True
        self.scope.cancel()


life: Final[ContextVar[Life | None]] = ContextVar("alpineagents.simulation.life", default=None)
"""The process that this code runs in."""

patience: Final[ContextVar[trio.CancelScope | None]] = ContextVar("alpineagents.simulation.patience", default=None)
"""What is cancelled when whoever awaits this code gives up."""


def check_alive() -> None:
    """Raise CrashedError in a process that has crashed."""
    this = life.get()
    if this is not None and this.crashed:
        raise CrashedError("simulated: this process has crashed")

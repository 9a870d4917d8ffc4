"""Who watches and answers."""

from typing import TYPE_CHECKING

from ._inbox import Inbox
from ._several import Reporters

if TYPE_CHECKING:
    from ._terminal import Terminal

__all__ = ["Inbox", "Reporters", "Terminal"]


def __getattr__(name: str) -> object:
    """Import Terminal when it is first named: it needs rich, which not every program has."""
    if name == "Terminal":
        from ._terminal import Terminal

        return Terminal
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Who watches and answers."""

from ._inbox import Inbox

__all__ = ["Inbox"]

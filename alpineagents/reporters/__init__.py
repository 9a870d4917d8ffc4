"""Who watches and answers."""

from ._inbox import Inbox
from ._several import Reporters

__all__ = ["Inbox", "Reporters"]

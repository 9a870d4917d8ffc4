"""For asyncio programs: a Portal to a thread that runs trio, where Agents run."""

from ._portal import Portal
from ._stream import PortalIterator, PortalStream

__all__ = ["Portal", "PortalIterator", "PortalStream"]

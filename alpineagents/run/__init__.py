"""What happens: Agents, loops and runs."""

from ._agent import Agent
from ._compact import CompactIfFull, compact_if_full
from ._loops import Loop, default_loop, loop, waiting_for_user
from ._signals import stop_on_sigterm

__all__ = [
    "Agent",
    "CompactIfFull",
    "Loop",
    "compact_if_full",
    "default_loop",
    "loop",
    "stop_on_sigterm",
    "waiting_for_user",
]

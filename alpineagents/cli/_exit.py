"""What the end of a command means: its exit code, and the line that says what went wrong. They are made only here."""

from __future__ import annotations

from typing import Final

from .._errors import AlpineAgentsError, ModelNotFoundError
from ..record import Stopped, StoppedByBudget, StoppedByLimit, StoppedByPermission
from ..run._groups import leaves
from ..state._show import one_line, stop_reason

ANSWER: Final = 0
"""There is an answer; a command did what it was to do."""
ERROR: Final = 1
"""Something went wrong; ``replay`` found a difference; ``store check`` found damage."""
USAGE: Final = 2
"""The command line is wrong, a model unknown; ``replay`` couldn't replay."""
STOPPED: Final = 3
"""The run was stopped by a limit, a budget or a permission."""
INTERRUPTED: Final = 130
"""Ctrl+C: 128 and the number of the signal, as shells have it."""
TERMINATED: Final = 143
"""SIGTERM."""


class UsageError(ValueError):
    """The command line can't be meant like that; the message says how to write it."""


class StoppedEarly(AlpineAgentsError):  # no failure: the State is whole, and can run on
    """A run ended without an answer because of a limit, a budget or a permission."""


def code_of(error: BaseException) -> int:
    """Return the exit code of a command that *error* has ended."""
    if any(isinstance(leaf, KeyboardInterrupt) for leaf in leaves(error)):
        return INTERRUPTED
    match error:
        case UsageError() | ModelNotFoundError():
            return USAGE
        case StoppedEarly():
            return STOPPED
        case _:
            return ERROR


def line_of(error: BaseException) -> str:
    """Return what is printed of *error*: one line.

    What this library raises, and what a system call or a wrong value says, speaks for itself; of other classes, which
    come from a tool, an agent's own code or a bug, the name is the first thing to know.
    """
    if isinstance(error, StoppedEarly):
        return one_line(f"stopped: {error}")
    if isinstance(error, BaseExceptionGroup):
        return "error: " + "; ".join(dict.fromkeys(_told(leaf) for leaf in leaves(error)))
    return f"error: {_told(error)}"


def _told(error: BaseException) -> str:
    text = one_line(str(error))
    speaks = isinstance(error, AlpineAgentsError | UsageError | ImportError | OSError) or type(error) is ValueError
    if speaks and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def stopped_early(stopped: Stopped | None) -> str | None:
    """Return why a run has no answer, where a limit, a budget or a permission stopped it."""
    if isinstance(stopped, StoppedByLimit | StoppedByPermission | StoppedByBudget):
        return stop_reason(stopped)
    return None

"""Ctrl+C as something that a program is told of, without giving up that it ends a program that no longer listens."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

import trio

_MOST: Final = 3
"""So many Ctrl+C that nobody heeded end the program, whatever it does."""


@contextmanager
@trio.lowlevel.enable_ki_protection
def ctrl_c_calls(heed: Callable[[], object], last: Callable[[], object]) -> Iterator[None]:
    """Have each Ctrl+C call *heed* in the trio run, in a block in the main thread.

    Where code hangs that never gives the event loop its turn, *heed* is not called. Then the second Ctrl+C raises
    KeyboardInterrupt in that code, unless it is trio's own, and the third ends the process.

    Args:
        heed: Called as soon as trio has its turn. It must not raise.
        last: Called right before the process is ended, to set back what would stay.
    """
    token = trio.lowlevel.current_trio_token()
    unheeded = 0

    def listen() -> None:
        nonlocal unheeded
        unheeded = 0
        heed()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        nonlocal unheeded
        unheeded += 1
        if unheeded == 1:
            token.run_sync_soon(listen)
        elif unheeded < _MOST:
            if not trio.lowlevel.currently_ki_protected():
                raise KeyboardInterrupt
        else:
            last()
            end_by_ctrl_c()

    before = signal.signal(signal.SIGINT, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def end_by_ctrl_c() -> None:
    """End the process at once, as Ctrl+C does where nobody has taken it over: a shell sees exit code 130."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.raise_signal(signal.SIGINT)

"""Where a person's input comes from: a terminal whose keys are read one by one, or a pipe or file of lines.

Theory of operation: bytes are read when the descriptor is readable, by the task that wants them, without a thread. A
descriptor is never made non-blocking: that flag belongs to all who share the terminal, the shell too. A terminal's
settings are changed only while somebody is to type (``opened``). Ctrl+C stays a signal.

What is typed before and behind that is left to the terminal: it isn't thrown away when the settings change. Ctrl+Z sets
the terminal back and stops the program, and ``fg`` goes on. This needs the main thread, as only that hears of signals,
and nobody else who listens to SIGTSTP or SIGCONT. In the background (``bg``) it is stopped again, as all that want the
terminal. What ends a program at once, such as SIGTERM without ``stop_on_sigterm()``, leaves the terminal as it is.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeAlias, final

import trio

_MOST_BYTES: Final = 65_536
"""Read at a time, at most."""
_LOCAL_FLAGS: Final = 3
_CONTROL_CHARACTERS: Final = 6
"""Places in what ``termios.tcgetattr`` returns."""
_PASTE_ON: Final = b"\x1b[?2004h"
_PASTE_OFF: Final = b"\x1b[?2004l"
"""XTerm Control Sequences, "Bracketed Paste Mode": what is pasted stands between two marks."""
Settings: TypeAlias = "list[Any]"
"""As ``termios`` has them: numbers, and a list of control characters."""
_Call: TypeAlias = Callable[[], object]
_JOB_SIGNALS: Final = (signal.SIGTSTP, signal.SIGCONT)


@final
class Keyboard:
    """Input for one reader at a time.

    Args:
        fd: A file descriptor; ``None``: there is no input, as if it were at its end.
        shown_on: The descriptor of the terminal where what is typed is shown; ``None``: none is, so that *fd*, even if
            it is a terminal, is read by the line.
    """

    def __init__(self, fd: int | None, shown_on: int | None) -> None:
        self._fd = fd
        self._shown_on = shown_on
        self._wait = trio.CancelScope()  # That of the reader, if there is one.
        self.is_terminal = fd is not None and os.isatty(fd)
        """Whether a person types here; if not, it is a pipe or a file."""
        self.is_by_key = self.is_terminal and shown_on is not None and os.isatty(shown_on)
        """Whether keys are read one by one, for a ``LineEditor``; if not, lines, for a ``LineSplitter``."""

    @contextmanager
    @trio.lowlevel.enable_ki_protection
    def opened(self, on_resume: _Call | None = None, redraw: _Call | None = None) -> Iterator[None]:
        """Have keys come one by one, without echo, in a block; set the terminal back however it ends.

        Where input is read by the line there is nothing to set. Not a checkpoint.

        Args:
            on_resume: Called when the program goes on after Ctrl+Z, between any two steps of it, so that it may do
                little: others have written to the screen, and the next drawing must heed that.
            redraw: Called by trio soon after that.
        """
        if self._fd is None or self._shown_on is None or not self.is_by_key:
            yield
            return
        with _by_key(self._fd, self._shown_on, on_resume, redraw):
            yield

    async def read(self) -> bytes | None:
        """Return what there is to read, as soon as there is something; ``b""`` at the end.

        ``None``: ``read_ahead`` was called meanwhile, and may have left nothing.

        Checkpoint: yes. Cancelled: nothing was read.
        """
        if self._fd is None:
            await trio.lowlevel.checkpoint()
            return b""
        try:
            with trio.CancelScope() as self._wait:
                await _wait_readable(self._fd)
            if self._wait.cancel_called:  # There may be nothing left: reading would block.
                return None
            return os.read(self._fd, _MOST_BYTES)
        except OSError as error:
            if error.errno not in (errno.EIO, errno.EBADF):  # A terminal that was hung up; a closed descriptor.
                raise
            return b""

    def read_ahead(self) -> bytes:
        """Return what a person has typed so far, and leave nothing of it; ``b""`` if this is no terminal.

        Where input is read by the line, one that isn't whole is dropped.
        """
        if self._fd is None or not self.is_terminal:
            return b""
        with suppress(termios.error, OSError):  # It was hung up: the next read says so.
            self._wait.cancel()
            waiting = int.from_bytes(fcntl.ioctl(self._fd, termios.FIONREAD, bytes(4)), sys.byteorder)
            typed = os.read(self._fd, waiting) if waiting else b""
            if not self.is_by_key:
                termios.tcflush(self._fd, termios.TCIFLUSH)
            return typed
        return b""


async def _wait_readable(fd: int) -> None:
    """Wait until *fd* can be read, or is at its end. Checkpoint: yes."""
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):  # kqueue would wait at the end of a file.
            await trio.lowlevel.wait_readable(fd)
            return
    except PermissionError:  # epoll's way to say that it never blocks, as /dev/null.
        pass
    await trio.lowlevel.checkpoint()


@contextmanager
@trio.lowlevel.enable_ki_protection
def _by_key(fd: int, shown_on: int, on_resume: _Call | None, redraw: _Call | None) -> Iterator[None]:
    """Have keys come one by one in a block."""
    try:
        before = termios.tcgetattr(fd)
    except termios.error:  # It was hung up: the next read says so.
        yield
        return

    def change(settings: Settings, paste: bytes) -> None:
        with suppress(termios.error, OSError):  # as above
            termios.tcsetattr(fd, termios.TCSANOW, settings)
            os.write(shown_on, paste)

    def set_back() -> None:
        change(before, _PASTE_OFF)

    def set_keyed() -> None:
        change(_keyed(before), _PASTE_ON)

    try:
        set_keyed()
        with _job_control(set_keyed, set_back, on_resume, redraw):
            yield
    finally:
        set_back()


def _keyed(settings: Settings) -> Settings:
    """Return settings with which a key is read as soon as it is pressed, and isn't echoed; signals stay."""
    keyed = list(settings)
    characters = list(settings[_CONTROL_CHARACTERS])
    keyed[_LOCAL_FLAGS] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN)  # IEXTEN: Ctrl+V, Ctrl+O, ...
    characters[termios.VMIN], characters[termios.VTIME] = 1, 0
    keyed[_CONTROL_CHARACTERS] = characters
    return keyed


@contextmanager
@trio.lowlevel.enable_ki_protection
def _job_control(set_keyed: _Call, set_back: _Call, on_resume: _Call | None, redraw: _Call | None) -> Iterator[None]:
    """In a block, set a terminal back before Ctrl+Z stops the program, and set it again when the program goes on."""
    if threading.current_thread() is not threading.main_thread() or any(
        signal.getsignal(number) is not signal.SIG_DFL for number in _JOB_SIGNALS
    ):
        yield
        return
    token = trio.lowlevel.current_trio_token()

    def stop(number: int, frame: object) -> None:
        set_back()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.pthread_kill(threading.get_ident(), signal.SIGTSTP)  # It stops here.
        signal.signal(signal.SIGTSTP, stop)
        go_on(number, frame)  # Nobody could continue a program that has no shell: that isn't stopped.

    def go_on(_number: int, _frame: object) -> None:
        set_keyed()
        if on_resume is not None:
            on_resume()
        if redraw is not None:
            token.run_sync_soon(redraw, idempotent=True)

    signal.signal(signal.SIGTSTP, stop)
    signal.signal(signal.SIGCONT, go_on)
    try:
        yield
    finally:
        for number in _JOB_SIGNALS:
            signal.signal(number, signal.SIG_DFL)

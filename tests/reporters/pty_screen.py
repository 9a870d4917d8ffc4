"""A program in a real terminal, and what a person would see there.

::

    from tests.reporters.pty_screen import on_screen, python

    PROGRAM = '''
    name = input("Who? ")
    print(f"Hello {name}")
    '''


    def test_it_greets():
        with on_screen(python(PROGRAM), columns=40, lines=24) as screen:
            screen.wait_for("Who?")
            screen.send("Ada\r")  # Enter is \r; Ctrl+C is \x03, Ctrl+D \x04, Up \x1b[A
            screen.wait_for("Hello Ada")
            assert screen.exit_code() == 0  # waits for the end; -2: ended by SIGINT
        assert screen.lines == ["Who? Ada", "Hello Ada"]

What is on the screen is in ``lines`` (what is blank at the right and below is left off) and ``text``; with what has
scrolled off the top, ``all_lines``. ``wait_for`` and ``wait_until`` read until the screen is so, at most ``PATIENCE``
seconds, and fail with the screen as it was. ``screen.resize(40)``, ``screen.kill(signal.SIGTERM)``, ``screen.settings``
(those of ``termios``), ``screen.raw`` (all bytes that came), ``screen.emulator`` (pyte's, for colours and the cursor).

The program has none of this process's environment but PATH: no key of a provider, no NO_COLOR, no COLUMNS, no HOME.
What it needs is given as ``env=``. A terminal that reflows long lines when it is resized isn't imitated: they are cut
off, as in xterm.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import termios
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pyte
import pytest

PATIENCE: Final = 30.0
"""Seconds that a program may take until the screen is as a test expects it. The machine may be busy."""
ENVIRONMENT: Final = {
    "HOME": "/nonexistent",  # What writes there is found out.
    "LANG": "C.UTF-8",
    "PATH": os.environ.get("PATH", os.defpath),
    "PYTHONDONTWRITEBYTECODE": "1",
    "TERM": "xterm-256color",
}
ROOT: Final = Path(__file__).parents[2]
_SHELL: Final = Path(__file__).with_name("pty_shell.py")
_EVENT: Final = re.compile(rb"\x1b\]777;(\w+);(-?\d+)\x07")
_BEGINNING: Final = re.compile(rb"\x1b(\](7(7(7(;[^\x07]{0,20})?)?)?)?)?\Z")
"""That of an event which hasn't come whole."""


def python(program: str) -> list[str]:
    """Return the command that runs a program given as text."""
    return [sys.executable, "-c", textwrap.dedent(program)]


@contextmanager
def on_screen(
    command: Sequence[str],
    *,
    columns: int = 80,
    lines: int = 24,
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
) -> Iterator[Screen]:
    """Run *command* in a terminal of this size. It is killed at the end of the block, if it still runs then.

    Args:
        command: The program and its arguments.
        columns: Width in cells.
        lines: Height.
        env: What it finds in its environment, besides ``ENVIRONMENT``.
        cwd: Where it runs.
    """
    ours, theirs = os.openpty()
    commands_read, commands = os.pipe()
    try:
        termios.tcsetwinsize(ours, (lines, columns))
        os.set_blocking(ours, False)
        shell = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_SHELL), str(commands_read), *command],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            pass_fds=[commands_read],
            env={**ENVIRONMENT, **(env or {})},
            cwd=cwd,
            start_new_session=True,
        )
        os.close(commands_read)
        commands_read = -1
        screen = Screen(ours, theirs, commands, columns, lines)
        try:
            screen._wait_started()
            yield screen
        finally:
            os.close(commands)
            commands = -1
            try:
                screen._end()
            finally:
                shell.kill()
                shell.wait()
    finally:
        for fd in (ours, theirs, commands_read, commands):
            if fd != -1:
                os.close(fd)


class Screen:
    """What a person sees of a program, and the keyboard. Made by ``on_screen``."""

    def __init__(self, fd: int, slave: int, commands: int, columns: int, lines: int) -> None:
        self.emulator = _Emulator(columns, lines, fd)
        self.raw = b""
        """All that the program wrote so far, as it is."""
        self.pid = 0
        """Its process id."""
        self.before: list[Any] = termios.tcgetattr(slave)
        """The terminal's settings before it started."""
        self._stream = pyte.ByteStream(self.emulator)
        self._fd = fd
        self._slave = slave  # Held open, so that the settings can be read at any time.
        self._commands = commands
        self._unread = b""  # Bytes that may be the beginning of an event.
        self._code: int | None = None
        self._stops = 0
        self._stops_waited_for = 0

    @property
    def lines(self) -> list[str]:
        """What is on the screen, from the top; without what is blank at the right and below."""
        return _trimmed(self.emulator.display)

    @property
    def all_lines(self) -> list[str]:
        """What has scrolled off the top, and then ``lines``."""
        return _trimmed([*map(self._row, self.emulator.history.top), *self.emulator.display])

    @property
    def text(self) -> str:
        """The ``lines``, as one text."""
        return "\n".join(self.lines)

    @property
    def cursor(self) -> tuple[int, int]:
        """Row and column of the cursor, from 0."""
        return self.emulator.cursor.y, self.emulator.cursor.x

    @property
    def settings(self) -> list[Any]:
        """The terminal's settings now (``termios``); equal to ``before`` where a program has set all back."""
        return termios.tcgetattr(self._slave)

    def send(self, keys: str | bytes) -> None:
        """Type. What the program writes meanwhile is read."""
        left = keys.encode() if isinstance(keys, str) else keys
        last = time.monotonic() + PATIENCE
        while left:
            readable, writable, _ = select.select([self._fd], [self._fd], [], self._left(last, "reads what is typed"))
            if readable:
                self._read()
            if writable:
                try:
                    left = left[os.write(self._fd, left) :]
                except BlockingIOError:
                    continue

    def wait_for(self, text: str, *, in_all: bool = False) -> None:
        """Wait until *text* is on a line of the screen; with *in_all*, or of what has scrolled off."""
        self.wait_until(lambda: _has(self.all_lines if in_all else self.lines, text), f"shows {text!r}")

    def wait_gone(self, text: str) -> None:
        """Wait until *text* is on no line of the screen."""
        self.wait_until(lambda: not _has(self.lines, text), f"no longer shows {text!r}")

    def wait_until(self, condition: Callable[[], bool], what: str = "is as expected") -> None:
        """Wait until *condition* holds, which is looked at whenever something came. It may hold already."""
        last = time.monotonic() + PATIENCE
        while not condition():
            if self._code is not None:
                self._fail(f"the program ended with {self._code} before it {what}")
            self._pump(last, what)

    def wait_stopped(self) -> None:
        """Wait until the program is stopped by a signal, and this hasn't been waited for before."""
        self._stops_waited_for += 1
        self.wait_until(lambda: self._stops >= self._stops_waited_for, "is stopped")

    def resume(self) -> None:
        """Have a stopped program go on, in the foreground: ``fg``."""
        os.write(self._commands, b"\n")

    def exit_code(self) -> int:
        """Wait until the program has ended; return its exit code, or minus the number of the signal that ended it."""
        last = time.monotonic() + PATIENCE
        while self._code is None:
            self._pump(last, "ends")
        return self._code

    def resize(self, columns: int, lines: int | None = None) -> None:
        """Give the terminal another size; the program hears of it."""
        self.emulator.resize(lines or self.emulator.lines, columns)
        termios.tcsetwinsize(self._fd, (self.emulator.lines, columns))

    def kill(self, number: signal.Signals) -> None:
        """Send the program a signal, as ``kill`` does."""
        os.kill(self.pid, number)

    def _wait_started(self) -> None:
        last = time.monotonic() + PATIENCE
        while not self.pid:
            self._pump(last, "starts")

    def _pump(self, last: float, what: str) -> None:
        """Wait until something comes, and read it."""
        if select.select([self._fd], [], [], self._left(last, what))[0]:
            self._read()

    def _left(self, last: float, what: str) -> float:
        left = last - time.monotonic()
        if left <= 0:
            self._fail(f"for {PATIENCE:.0f} s the program has not been one that {what}")
        return left

    def _read(self) -> None:
        try:
            data = os.read(self._fd, 65536)
        except BlockingIOError:
            return
        parts = _EVENT.split(self._unread + data)
        beginning = _BEGINNING.search(parts[-1])
        self._unread = beginning[0] if beginning else b""
        parts[-1] = parts[-1].removesuffix(self._unread)
        for index in range(0, len(parts), 3):
            self.raw += parts[index]
            self._stream.feed(parts[index])
            if index + 2 < len(parts):
                self._happened(parts[index + 1], int(parts[index + 2]))

    def _happened(self, event: bytes, number: int) -> None:
        match event:
            case b"started":
                self.pid = number
            case b"stopped":
                self._stops += 1
            case b"ended":
                self._code = number

    def _end(self) -> None:
        if self.pid and self._code is None:
            with suppress(ProcessLookupError, PermissionError):  # It may have ended, and nobody has read of it.
                os.killpg(self.pid, signal.SIGKILL)
            self.exit_code()

    def _row(self, line: Mapping[int, pyte.screens.Char]) -> str:
        return "".join(line[column].data for column in range(max([*line, -1]) + 1))

    def _fail(self, why: str) -> None:
        shown = "\n".join(f"| {line}" for line in self.all_lines)
        pytest.fail(f"{why}; on its screen is\n{shown}", pytrace=False)


class _Emulator(pyte.HistoryScreen):
    """A terminal that answers when it is asked where its cursor is, and is resized as xterm is."""

    def __init__(self, columns: int, lines: int, fd: int) -> None:
        super().__init__(columns, lines, history=10_000)
        self._fd = fd

    def write_process_input(self, data: str) -> None:
        os.write(self._fd, data.encode())

    def resize(self, lines: int | None = None, columns: int | None = None) -> None:
        lines, columns = lines or self.lines, columns or self.columns
        for _ in range(self.cursor.y + 1 - lines):  # What no longer fits goes off the top.
            self.history.top.append(self.buffer[0])
            for row in range(1, self.lines):
                self.buffer[row - 1] = self.buffer[row]
            del self.buffer[self.lines - 1]
            self.cursor.y -= 1
        for row in range(lines, self.lines):
            self.buffer.pop(row, None)
        self.lines = lines
        super().resize(lines, columns)
        self.cursor.x = min(self.cursor.x, columns - 1)


def _trimmed(lines: Sequence[str]) -> list[str]:
    kept = [line.rstrip() for line in lines]
    while kept and not kept[-1]:
        kept.pop()
    return kept


def _has(lines: Sequence[str], text: str) -> bool:
    return text in "\n".join(lines)

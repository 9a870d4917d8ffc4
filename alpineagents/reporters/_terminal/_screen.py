"""Writes what is shown: in a terminal above a frame that stays at the bottom, elsewhere as plain lines.

Invariant of a terminal: the cursor is in the last line of the frame, or, where there is none, at the beginning of a
line of its own. The line of a text that streams is the frame's first until it is full.

There is no clock, thread or task; nothing is drawn but by ``show``. rich gives styles; its ``Live`` is made for a
thread and one renderable, and does not know where a line of text ends that is still coming. Each call is one write,
which blocks while the terminal takes nothing (Ctrl+S), and raises what the file raises, such as BrokenPipeError.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import StringIO
from typing import Final, TextIO, TypeAlias, final

import attrs
import trio
from rich.color import ColorSystem
from rich.console import Console
from rich.text import Text

from ._layout import fitted, permanent, style_of, styled, wrapped
from ._shown import EndOfText, Piece, Row, Shown, printable

_SIZE: Final = (80, 24)
"""Columns and lines of a terminal that doesn't tell."""
_PLAIN_WIDTH: Final = 100
"""Columns of what is no terminal."""
_CLEAR: Final = "\x1b[H\x1b[2J"
_ERASE_LINE: Final = "\x1b[2K"
_ERASE_BELOW: Final = "\x1b[J"
"""Control functions of ECMA-48: CUP and ED, EL, ED."""


@final
@attrs.frozen
class Bottom:
    """The frame's last lines: a question, and what is typed."""

    lines: tuple[Text, ...] = ()
    cursor: int | None = None
    """In the last line, in cells; ``None``: behind it."""


BottomOf: TypeAlias = Callable[[int, int], Bottom]
"""Returns the bottom for a width and most lines."""


@final
class Screen:
    """One file.

    Args:
        file: Where to write.
        is_live: Whether it is a terminal that can move its cursor.
        color: Whether text is styled.
        width: Columns, at most; ``None``: as many as the terminal has. Where it is none, text isn't wrapped then, and
            what is shortened has 100.
    """

    def __init__(self, file: TextIO, *, is_live: bool, color: bool, width: int | None) -> None:
        self.file = file
        self.is_live = is_live
        self._styles = Console(file=StringIO(), color_system="standard") if color else None
        self._width = width
        self._encoding = getattr(file, "encoding", None) or "utf-8"
        self._drawn: list[str] = []
        self._drawn_width = 0
        self._cursor: int | None = None
        self._tail = ""  # Of the text that streams, what is not yet a full line.
        self._tail_style = ""
        self._blanks = -1  # Empty lines that are shown if something follows; -1: no text streams.

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        if not self.is_live:
            return self._width or _PLAIN_WIDTH, _SIZE[1]
        columns, lines = 0, 0
        with suppress(OSError, ValueError):
            columns, lines = os.get_terminal_size(self.file.fileno())
        columns = columns or _SIZE[0]
        return min(columns, self._width or columns), lines or _SIZE[1]

    @property
    def room(self) -> int:
        """Lines that the frame has at most: one is left for what is shown for good."""
        return max(self.size[1] - 1, 1)

    def show(self, shown: Sequence[Shown], rows: Sequence[Row], bottom: BottomOf) -> None:
        """Write what is shown for good, and draw the frame where there is one."""
        width = self.size[0]
        lines = [line for what in shown for line in self._permanent(what, width)]
        if self.is_live:
            self._draw([self._styled(line) for line in lines], rows, bottom)
        elif lines:
            self._write("".join(f"{self._styled(line)}\n" for line in lines))

    def forget(self) -> None:
        """Draw the frame anew where the cursor is: something else was written since."""
        self._drawn, self._cursor = [], None

    def clear(self) -> None:
        """Empty the screen: Ctrl+L."""
        self._write(_CLEAR)
        self.forget()

    @trio.lowlevel.enable_ki_protection  # Else Ctrl+C could come between a frame and the memory of it.
    def _draw(self, lines: list[str], rows: Sequence[Row], bottom: BottomOf) -> None:
        (width, _), room = self.size, self.room
        below = bottom(width, room)
        above = [Text(self._tail.rstrip(" "), self._tail_style)] if self._tail else []
        middle = fitted(rows, width, room - len(above) - len(below.lines))
        frame = [self._styled(line) for line in (*above, *middle, *below.lines)][-room:]
        if not lines and frame == self._drawn and below.cursor == self._cursor:
            return
        is_alike = not lines and width == self._drawn_width and len(frame) == len(self._drawn) > 0
        parts = _changes(self._drawn, frame) if is_alike else _anew(self._drawn, lines, frame)
        if below.cursor is not None:
            parts.append("\r" + (f"\x1b[{below.cursor}C" if below.cursor else ""))
        self._write("".join(parts))
        self._drawn, self._drawn_width, self._cursor = frame, width, below.cursor

    def _permanent(self, what: Shown, width: int) -> list[Text]:
        """Return the lines that are full now; what streams may leave one in the frame."""
        match what:
            case Piece():
                return self._stream(what, width)
            case EndOfText():
                return self._end_stream()
            case _:
                text_width = width if self.is_live or self._width else sys.maxsize  # Whoever reads a file wraps it.
                return [*self._end_stream(), *permanent(what, width, text_width)]

    def _stream(self, piece: Piece, width: int) -> list[Text]:
        style = style_of(piece)
        full = self._end_stream() if self._blanks >= 0 and style != self._tail_style else []
        self._tail_style = style
        *whole, last = (self._tail + printable(piece.text)).split("\n")
        for line in whole:
            if line.strip():
                full += [*self._missing_blanks(), *styled([line], width, style)]
                self._blanks = 0
            elif self._blanks >= 0:
                self._blanks += 1
        *rows, self._tail = wrapped(last, width)
        if last.strip():
            full += self._missing_blanks()
            self._blanks = 0
        return [*full, *[Text(row, style) for row in rows]]

    def _missing_blanks(self) -> list[Text]:
        return [Text("")] * self._blanks

    def _end_stream(self) -> list[Text]:
        tail, self._tail, self._blanks = self._tail, "", -1
        return [Text(tail.rstrip(" "), self._tail_style)] if tail.strip() else []

    def _styled(self, text: Text) -> str:
        if self._styles is None:
            return text.plain
        return "".join(
            part.style.render(part.text, color_system=ColorSystem.STANDARD) if part.style else part.text
            for part in text.render(self._styles)
        )

    def _write(self, text: str) -> None:
        if self._encoding.lower().replace("-", "") != "utf8":
            text = text.encode(self._encoding, "replace").decode(self._encoding)
        self.file.write(text)
        self.file.flush()


def _anew(drawn: Sequence[str], lines: Sequence[str], frame: Sequence[str]) -> list[str]:
    """Return what puts *lines*, and *frame* below them, where the frame *drawn* is."""
    return [
        *_to_the_top(drawn),
        *(f"{_ERASE_LINE}{line}\n" for line in (*lines, *frame[:-1])),
        _ERASE_BELOW,
        *frame[-1:],
    ]


def _changes(drawn: Sequence[str], frame: Sequence[str]) -> list[str]:
    """Return what makes *frame* of as many lines of the frame *drawn*: lines that are the same aren't written."""
    parts = _to_the_top(drawn)
    for line, before in zip(frame[:-1], drawn[:-1], strict=True):
        parts.append("\n" if line == before else f"{_ERASE_LINE}{line}\n")
    return [*parts, f"{_ERASE_LINE}{frame[-1]}"]


def _to_the_top(drawn: Sequence[str]) -> list[str]:
    return ["\r", f"\x1b[{len(drawn) - 1}A"] if len(drawn) > 1 else ["\r"]

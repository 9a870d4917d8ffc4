"""Keys that were pressed, from the bytes that a terminal sends for them. Pure.

Keys without a meaning here, and answers of the terminal that nobody asked for, are dropped whole. A lone Escape can't
be told from the beginning of a key before the next byte is there, and no clock is asked: it goes with what comes next.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Generator, Iterable
from enum import Enum, auto
from itertools import groupby
from typing import Final, TypeAlias


class Key(Enum):
    """A key, by what it does."""

    BACKSPACE = auto()
    DELETE = auto()
    DELETE_OR_END = auto()
    DELETE_TO_BLANK = auto()
    DELETE_WORD_LEFT = auto()
    DELETE_WORD_RIGHT = auto()
    DOWN = auto()
    END = auto()
    ENTER = auto()
    HOME = auto()
    KILL_LEFT = auto()
    KILL_RIGHT = auto()
    LEFT = auto()
    NEWLINE = auto()
    REDRAW = auto()
    RIGHT = auto()
    UP = auto()
    WORD_LEFT = auto()
    WORD_RIGHT = auto()


Pressed: TypeAlias = Key | str
"""A key, or text to be inserted: typed or pasted."""

_CONTROLS: Final = {
    "\x01": Key.HOME,
    "\x02": Key.LEFT,
    "\x04": Key.DELETE_OR_END,
    "\x05": Key.END,
    "\x06": Key.RIGHT,
    "\x08": Key.BACKSPACE,
    "\n": Key.ENTER,  # A terminal makes a line feed of Enter, unless told otherwise; so do scripts.
    "\x0b": Key.KILL_RIGHT,
    "\x0c": Key.REDRAW,
    "\r": Key.ENTER,
    "\x0e": Key.DOWN,
    "\x10": Key.UP,
    "\x15": Key.KILL_LEFT,
    "\x17": Key.DELETE_TO_BLANK,
    "\x7f": Key.BACKSPACE,
}
_WITH_ALT: Final = {
    "\n": Key.NEWLINE,
    "\r": Key.NEWLINE,
    "\x08": Key.DELETE_WORD_LEFT,
    "\x7f": Key.DELETE_WORD_LEFT,
    "b": Key.WORD_LEFT,
    "d": Key.DELETE_WORD_RIGHT,
    "f": Key.WORD_RIGHT,
}
_LETTERS: Final = {
    "A": Key.UP,
    "B": Key.DOWN,
    "C": Key.RIGHT,
    "D": Key.LEFT,
    "F": Key.END,
    "H": Key.HOME,
    "M": Key.ENTER,  # of the keypad
    "c": Key.WORD_RIGHT,  # rxvt: with Ctrl
    "d": Key.WORD_LEFT,
}
"""What follows ``ESC O`` and, mostly, ``ESC [``."""
_NUMBERS: Final = {"1": Key.HOME, "3": Key.DELETE, "4": Key.END, "7": Key.HOME, "8": Key.END}
"""What stands between ``ESC [`` and ``~``."""
_BY_WORD: Final = {Key.LEFT: Key.WORD_LEFT, Key.RIGHT: Key.WORD_RIGHT, Key.DELETE: Key.DELETE_WORD_RIGHT}
"""With Alt or Ctrl."""

_ESCAPE: Final = "\x1b"
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SEQUENCE: Final = re.compile(r"\x1b\[[\x20-\x3f]*[\x40-\x7e]")
_PASTE_END: Final = "\x1b[201~"
_MOST_PARAMETERS: Final = 16
"""Characters; those of all keys that have a meaning are fewer."""

_Parser: TypeAlias = Generator[None, str, str]
"""Is sent a character at a time; returns the one that is not part of what it parsed, or ``""``."""


class KeyDecoder:
    """Bytes in, keys out; any split of the bytes gives the same keys."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._found: list[Pressed] = []
        self._parser = _keys(self._found)
        next(self._parser)

    def feed(self, data: bytes) -> list[Pressed]:
        """Return what was pressed, as far as *data* says. Bytes that aren't UTF-8 are U+FFFD."""
        for char in self._decoder.decode(data):
            self._parser.send(char)
        found = list(_joined(self._found))
        self._found.clear()
        return found


def _joined(found: Iterable[Pressed]) -> Iterable[Pressed]:
    """Join texts that follow each other."""
    for is_text, pressed in groupby(found, lambda item: isinstance(item, str)):
        if is_text:
            yield "".join(item for item in pressed if isinstance(item, str))
        else:
            yield from pressed


def _keys(found: list[Pressed]) -> _Parser:
    """Add to *found* what characters mean, forever."""
    unread = ""
    while True:
        char = unread or (yield)
        unread = ""
        if char == _ESCAPE:
            unread = yield from _escaped(found)
        elif char in _CONTROLS:
            found.append(_CONTROLS[char])
        elif char != "\t" and not _CONTROL.match(char):
            found.append(char)


def _escaped(found: list[Pressed]) -> _Parser:
    char = _ESCAPE
    while char == _ESCAPE:
        char = yield
    match char:
        case "[":
            return (yield from _control_sequence(found))
        case "O":
            return (yield from _keypad(found))
        case "]" | "P" | "X" | "^" | "_":
            return (yield from _string())
        case _ if char in _WITH_ALT:
            found.append(_WITH_ALT[char])
    return ""


def _control_sequence(found: list[Pressed]) -> _Parser:
    """``ESC [``, parameters, a final character (ECMA-48, 5.4)."""
    parameters = ""
    char = yield
    if char == "[":  # A function key of the Linux console: one more character.
        char = yield
        return char if _is_outside(char) else ""
    while "\x20" <= char <= "\x3f":
        parameters = (parameters + char)[:_MOST_PARAMETERS]
        char = yield
    if _is_outside(char):
        return char
    if (parameters, char) == ("200", "~"):
        return (yield from _paste(found))
    key = _key(parameters, char)
    if key is not None:
        found.append(key)
    return ""


def _key(parameters: str, final: str) -> Key | None:
    """Return the key of ``ESC [ parameters final`` (XTerm Control Sequences, "PC-Style Function Keys")."""
    numbers = parameters.split(";")
    match final, numbers:
        case ("u", ["13", *_]) | ("~", ["27", _, "13"]):  # Enter with Shift, Alt or Ctrl, where a terminal says so.
            return Key.NEWLINE if len(numbers) > 1 else Key.ENTER
        case "~", _:
            key = _NUMBERS.get(numbers[0])
        case _:
            key = _LETTERS.get(final) if final.isupper() and final != "M" else None
    with_alt_or_ctrl = len(numbers) > 1 and numbers[1].isdecimal() and int(numbers[1]) - 1 & 0b110
    return _BY_WORD.get(key, key) if key is not None and with_alt_or_ctrl else key


def _keypad(found: list[Pressed]) -> _Parser:
    """``ESC O``, maybe a modifier, a letter."""
    char = yield
    while "0" <= char <= "9" or char == ";":
        char = yield
    if _is_outside(char):
        return char
    if char in _LETTERS:
        found.append(_LETTERS[char])
    return ""


def _string() -> _Parser:
    """An answer of the terminal, up to its end or, as it may have been Alt with a key, any other control character."""
    char = yield
    while not _CONTROL.match(char) and char != "\n":
        char = yield
    return "" if char == "\x07" else char


def _paste(found: list[Pressed]) -> _Parser:
    """What is pasted, up to the end that the terminal marks."""
    pasted: list[str] = []
    while True:
        char = yield
        pasted.append(char)
        if char == "~" and "".join(pasted[-len(_PASTE_END) :]) == _PASTE_END:
            break
    text = "".join(pasted[: -len(_PASTE_END)])
    text = _SEQUENCE.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    found.append(_CONTROL.sub("", text))
    return ""


def _is_outside(char: str) -> bool:
    """Whether it can't be the last character of a sequence: the sequence was broken off."""
    return not "\x40" <= char <= "\x7e"

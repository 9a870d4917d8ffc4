"""A line that a person types and edits: bytes from the keyboard in, text and cursor out. Pure.

Invariant: ``0 <= cursor <= len(text)``. No key moves it into a character that is made of several, such as a letter and
its accent; behind what was just typed it is in any case.

There is one editor for all that is typed. Who puts a question keeps the half-typed line meanwhile, and what was typed
ahead goes on where the line before it ended::

    kept, editor.draft = editor.draft, Draft()
    edit = editor.feed(data)  # None: nothing but editing
    while edit is not None:
        ...
        edit = editor.feed(b"")  # the keys that came with it
    editor.draft = kept
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias, assert_never, final

import attrs
from rich.cells import get_character_cell_size

from ._keys import Key, KeyDecoder, Pressed

_JOINER: Final = "\u200d"
_SUBSTITUTES: Final = {"\n": "↵", "\t": " "}
"""What is shown for the two control characters that a line can have."""
_NARROW: Final = 8
"""Cells. Below this there is no room to mark that a line goes on."""


@final
@attrs.frozen
class Entered:
    """Enter was pressed."""

    text: str
    """The line, or lines: what was pasted, or typed with Alt+Enter, may have several."""


@final
@attrs.frozen
class EndOfInput:
    """Ctrl+D on an empty line, or nothing more can be read."""


@final
@attrs.frozen
class Redraw:
    """Ctrl+L: the screen is to be drawn anew."""


Edit: TypeAlias = Entered | EndOfInput | Redraw
"""What a key did besides editing."""


@final
@attrs.frozen
class Draft:
    """A line that is being typed."""

    text: str = ""
    cursor: int = 0
    """In characters (code points), from 0."""


@final
@attrs.frozen
class Shown:
    """The part of a line that fits a width."""

    text: str
    """Without control characters. A line break is shown as ``↵``, a part that is left off as ``…``."""
    cursor: int
    """Where the cursor is in it, in cells, from 0. It may be behind the text, but is in the width."""


@final
class LineEditor:
    """A line of text that keys edit, in the way of Emacs and readline, and those that were entered before it."""

    def __init__(self) -> None:
        self._keys = KeyDecoder()
        self._unread: deque[Pressed] = deque()
        self._entered: list[str] = []
        self._place = 0  # In _entered; len(_entered): the new line.
        self._new = ""  # The new line, while an older one is looked at.
        self._draft = Draft()

    @property
    def text(self) -> str:
        """What was typed so far."""
        return self._draft.text

    @property
    def cursor(self) -> int:
        """Where the next character goes: characters (code points) from the beginning."""
        return self._draft.cursor

    @property
    def draft(self) -> Draft:
        """The line and the cursor. Can be set: to another line, or an empty one."""
        return self._draft

    @draft.setter
    def draft(self, draft: Draft) -> None:
        self._place = len(self._entered)
        self._draft = Draft(draft.text, _boundary(draft.text, draft.cursor))

    def feed(self, data: bytes) -> Edit | None:
        """Edit as the keys say, up to the first that does more than that.

        Args:
            data: What came from the terminal, split anywhere; ``b""`` goes on with the keys behind the last Edit.

        Returns:
            What that key did, or ``None``: all keys are used up. Behind ``Entered`` the line is empty.
        """
        self._unread.extend(self._keys.feed(data))
        while self._unread:
            pressed = self._unread.popleft()
            if isinstance(pressed, str):
                self._draft = _inserted(self._draft, pressed)
            elif (edit := self._press(pressed)) is not None:
                return edit
        return None

    def end(self) -> Edit:
        """Return what is said when nothing more can be read."""
        return EndOfInput()

    def remember(self, text: str) -> None:
        """Let Up find a line that was entered. A blank one, and the same twice, isn't kept."""
        if text.strip() and self._entered[-1:] != [text]:
            self._entered.append(text)
        self._place = len(self._entered)

    def clear(self) -> None:
        """Forget the line and what was typed ahead. A paste that is under way goes on as one."""
        self._unread.clear()
        self.draft = Draft()

    def shown(self, width: int) -> Shown:
        """Return what is to be seen in *width* cells, at least 1: the line, or the part of it that the cursor is in."""
        return _window(self._draft, max(width, 1))

    def _press(self, key: Key) -> Edit | None:
        match key:
            case Key.ENTER:
                entered = Entered(self._draft.text)
                self.draft = Draft()
                return entered
            case Key.DELETE_OR_END if not self._draft.text:
                return EndOfInput()
            case Key.REDRAW:
                return Redraw()
            case Key.UP:
                self._look_at(self._place - 1)
            case Key.DOWN:
                self._look_at(self._place + 1)
            case _:
                self._draft = _edited(self._draft, key)
        return None

    def _look_at(self, place: int) -> None:
        if not 0 <= place <= len(self._entered):
            return
        if self._place == len(self._entered):
            self._new = self._draft.text
        self._place = place
        text = self._entered[place] if place < len(self._entered) else self._new
        self._draft = Draft(text, len(text))


def _edited(draft: Draft, key: Key) -> Draft:
    """Return what a key that only edits makes of a line."""
    text, cursor = draft.text, draft.cursor
    match key:
        case Key.ENTER | Key.REDRAW | Key.UP | Key.DOWN:
            raise AssertionError(f"{key} does more than edit")
        case Key.NEWLINE:
            return _inserted(draft, "\n")
        case Key.LEFT:
            return Draft(text, _left(text, cursor))
        case Key.RIGHT:
            return Draft(text, _right(text, cursor))
        case Key.WORD_LEFT:
            return Draft(text, _word_left(text, cursor))
        case Key.WORD_RIGHT:
            return Draft(text, _word_right(text, cursor))
        case Key.HOME:
            return Draft(text, 0)
        case Key.END:
            return Draft(text, len(text))
        case Key.BACKSPACE:
            return _without(text, _left(text, cursor), cursor)
        case Key.DELETE | Key.DELETE_OR_END:
            return _without(text, cursor, _right(text, cursor))
        case Key.DELETE_TO_BLANK:
            return _without(text, _blank_left(text, cursor), cursor)
        case Key.DELETE_WORD_LEFT:
            return _without(text, _word_left(text, cursor), cursor)
        case Key.DELETE_WORD_RIGHT:
            return _without(text, cursor, _word_right(text, cursor))
        case Key.KILL_LEFT:
            return _without(text, 0, cursor)
        case Key.KILL_RIGHT:
            return _without(text, cursor, len(text))
        case _:
            assert_never(key)


def _inserted(draft: Draft, new: str) -> Draft:
    return Draft(draft.text[: draft.cursor] + new + draft.text[draft.cursor :], draft.cursor + len(new))


def _without(text: str, start: int, end: int) -> Draft:
    text = text[:start] + text[end:]
    return Draft(text, _boundary(text, start))


def _boundary(text: str, place: int) -> int:
    """Return the first place from *place* on that is not inside a character."""
    place = min(max(place, 0), len(text))
    while _is_inside(text, place):
        place += 1
    return place


def _is_inside(text: str, place: int) -> bool:
    """Whether what stands at *place* is shown as a part of what stands before it."""
    return 0 < place < len(text) and (_cells(text[place]) == 0 or text[place - 1] == _JOINER)


def _left(text: str, place: int) -> int:
    place = max(place - 1, 0)
    while _is_inside(text, place):
        place -= 1
    return place


def _right(text: str, place: int) -> int:
    return _boundary(text, place + 1)


def _word_left(text: str, place: int) -> int:
    while place and not _is_of_word(text[_left(text, place)]):
        place = _left(text, place)
    while place and _is_of_word(text[_left(text, place)]):
        place = _left(text, place)
    return place


def _word_right(text: str, place: int) -> int:
    while place < len(text) and not _is_of_word(text[place]):
        place = _right(text, place)
    while place < len(text) and _is_of_word(text[place]):
        place = _right(text, place)
    return place


def _blank_left(text: str, place: int) -> int:
    while place and text[_left(text, place)].isspace():
        place = _left(text, place)
    while place and not text[_left(text, place)].isspace():
        place = _left(text, place)
    return place


def _is_of_word(char: str) -> bool:
    return char.isalnum() or char == "_"


def _cells(char: str) -> int:
    return 1 if char in _SUBSTITUTES else get_character_cell_size(char)


def _width(text: str) -> int:
    """Cells that *text* takes in a terminal that shows each code point by itself: none takes more."""
    return sum(map(_cells, text))


def _window(draft: Draft, width: int) -> Shown:
    text, cursor = draft.text, draft.cursor
    if _reach(text, 0, width - (cursor == len(text)), step=_right) == len(text):
        return Shown(_visible(text), _width(text[:cursor]))
    mark = "…" if width >= _NARROW else ""
    room = width - 2 * len(mark)
    end = _reach(text, cursor, max(room // 4, 1), step=_right)
    start = _reach(text, cursor, room - max(_width(text[cursor:end]), 1), step=_left)
    end = _reach(text, cursor, room - _width(text[start:cursor]), step=_right)
    before, after = mark if start else "", mark if end < len(text) else ""
    return Shown(before + _visible(text[start:end]) + after, len(before) + _width(text[start:cursor]))


def _reach(text: str, place: int, room: int, *, step: Callable[[str, int], int]) -> int:
    """Return how far one gets from *place*, character by character, in *room* cells."""
    while (following := step(text, place)) != place:
        room -= _width(text[min(place, following) : max(place, following)])
        if room < 0:
            break
        place = following
    return place


def _visible(text: str) -> str:
    return "".join(_SUBSTITUTES.get(char, char) for char in text)

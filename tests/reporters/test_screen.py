"""The Screen, byte by byte, against a terminal's emulator."""

from __future__ import annotations

from io import StringIO

import pyte
from hypothesis import given
from hypothesis import strategies as st
from pyte.modes import LNM
from rich.text import Text

from alpineagents.reporters._terminal._screen import Bottom, Screen
from alpineagents.reporters._terminal._shown import EndOfText, Piece, Printed, Row, Shown

WIDTH, LINES = 12, 24


def rows_of(words: list[str]) -> list[Row]:
    return [Row(0, None, word, "on") for word in words]


words = st.sampled_from(["a", "bc", "def"])
shown = st.lists(st.builds(Piece, st.text("ab \n", max_size=9)) | st.just(EndOfText()) | st.builds(Printed, words))
steps = st.lists(st.tuples(shown.map(lambda some: some[:3]), st.lists(words, max_size=3), st.none() | words))


class Seen:
    """A live Screen, and what is to be seen of it."""

    def __init__(self) -> None:
        self.file = StringIO()
        self.screen = Screen(self.file, is_live=True, color=False, width=WIDTH)
        self._emulator = pyte.HistoryScreen(WIDTH, LINES, history=10_000)
        self._emulator.set_mode(LNM)
        self._stream = pyte.Stream(self._emulator)

    def show(self, what: list[Shown], rows: list[str], typed: str | None) -> str:
        """Show it; return what was written."""
        before = len(self.file.getvalue())
        bottom = Bottom() if typed is None else Bottom((Text(typed),), len(typed))
        self.screen.show(what, rows_of(rows), lambda _width, _room: bottom)
        written = self.file.getvalue()[before:]
        self._stream.feed(written)
        return written

    @property
    def lines(self) -> list[str]:
        """All lines down to the cursor's."""
        top = ["".join(line[column].data for column in range(WIDTH)) for line in self._emulator.history.top]
        return [line.rstrip() for line in [*top, *self._emulator.display[: self._emulator.cursor.y + 1]]]


@given(steps)
def test_what_is_shown_for_good_stays_above_the_frame(all_steps):
    seen = Seen()
    above: list[str] = []

    for what, rows, typed in all_steps:
        seen.show(what, rows, typed)
        frame = [f"{row}: on" for row in rows] + ([] if typed is None else [typed])
        lines = seen.lines
        assert lines[len(lines) - len(frame) :] == frame
        kept = lines[: len(lines) - len(frame)]
        if not frame or kept[: len(above)] != above:  # The text that streams is the frame's first line.
            kept, above = kept[:-1], above[:-1]
        assert kept[: len(above)] == above
        above = kept


def test_a_piece_of_text_is_written_without_the_rows_below_it():
    seen = Seen()
    seen.show([Piece("One ")], ["a", "bc"], "typed")

    written = seen.show([Piece("two")], ["a", "bc"], "typed")
    assert "One two" in written
    assert "on" not in written
    assert seen.lines == ["One two", "a: on", "bc: on", "typed"]

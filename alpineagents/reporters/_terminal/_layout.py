"""What is shown, as lines of styled text of a width. Pure.

Widths are counted code point by code point: no terminal takes more cells for a text than that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Final, assert_never

from rich.cells import get_character_cell_size
from rich.text import Text

from ...record._blocks import ToolCall
from ...record._entries import ToolOutcome
from ...record._frozen import Json
from ...record._json import dumps
from ._shown import Ended, Label, Note, Piece, Printed, Row, Said, one_line, printable

_INDENT: Final = "  "
_MOST_INDENT: Final = 4
_BAR: Final = 10
"""Cells of a progress bar."""
_LEAST_SECONDS: Final = 1.0
"""A call that took less has nothing said about that."""
_MOST_CHARS: Final = 2_000
"""Of arguments are looked at: more are on no line."""


def cells(text: str) -> int:
    """Return how many cells *text*, without control characters, takes at most."""
    return len(text) if text.isascii() else sum(map(get_character_cell_size, text))


def cut(text: str, width: int) -> str:
    """Return *text* if it fits *width* cells, or its beginning and ``…``."""
    if cells(text) <= width:
        return text
    used, end = 1, 0
    while (used := used + get_character_cell_size(text[end])) <= width:
        end += 1
    return f"{text[:end]}…" if width > 0 else ""


def wrapped(line: str, width: int) -> list[str]:
    """Return a line as rows of at most *width* cells, broken at blanks where there are some. Never empty.

    The last row keeps the blanks at its end, as a word may follow; at most one of them is too many for *width*.

    Invariant: all rows but the last stay the same, whatever is added to the line.
    """
    rows: list[str] = []
    start = used = 0
    blank = -1  # The last place to break at: behind a blank.
    for place, char in enumerate(line):
        size = get_character_cell_size(char)
        while used + size > width and char != " " and place > start:
            end = blank if blank > start else place
            rows.append(line[start:end].rstrip(" "))
            start = end
            used = cells(line[start:place])
        used += size
        if char == " ":
            blank = place + 1
    return [*rows, line[start : len(line) - max(used - width - 1, 0)]]


def permanent(what: Label | Said | Note | Ended | Printed, width: int, text_width: int) -> list[Text]:
    """Return the lines of what is shown for good.

    Args:
        what: One of them.
        width: Most cells of a line that is shortened.
        text_width: Most cells of a line of text, which is wrapped.
    """
    match what:
        case Label(name):
            return [Text(f"{cut(name, max(width - 1, 1))}:", "bold")]
        case Said(text):
            return styled(printable(text).strip("\n").split("\n"), text_width, style_of(what))
        case Note(text, is_error, name):
            mark, style = ("!", "red") if is_error else ("-", "dim")
            who = f"{name}: " if name else ""
            return styled([f"{mark} {who}{one_line(text)}"], text_width, style)
        case Ended():
            return [_ended(what, width)]
        case Printed(text, is_typed):
            mark, style = ("> ", "bold") if is_typed else ("", "")
            return styled([mark + line for line in printable(text).split("\n")], text_width, style)
        case _:
            assert_never(what)


def style_of(text: Said | Piece) -> str:
    """Return the style of a reply's text."""
    return "dim italic" if text.is_thinking else ""


def styled(lines: Iterable[str], width: int, style: str) -> list[Text]:
    """Return *lines* wrapped."""
    return [Text(row.rstrip(" "), style) for line in lines for row in wrapped(line, width)]


def frame_row(row: Row, width: int) -> Text:
    """Return a line of the frame."""
    indent = _INDENT * min(row.depth, _MOST_INDENT)
    room = max(width - len(indent), 1)
    text = Text(indent[: width - 1])
    if row.call is None:
        status = row.status or "working"
        label = f"{row.name}: {status}" if row.name else status
        return text.append(cut(label, room), "cyan")
    bar = _bar(row)
    told = "".join(f" {part}" for part in (_amount(row), row.status) if part)
    head = shortened(row.call, max(room - cells(told) - len(bar) - 1, min(room, 12)))
    text.append(head, "cyan")
    if bar and cells(head) + len(bar) < room:
        text.append(" ").append(bar)
    return text.append(cut(told, room - (cells(text.plain) - len(indent))), "dim")


def fitted(rows: Sequence[Row], width: int, height: int) -> list[Text]:
    """Return the frame's lines, at most *height*: the first, and how many more there are."""
    if len(rows) <= height:
        return [frame_row(row, width) for row in rows]
    if height <= 0:
        return []
    shown = [frame_row(row, width) for row in rows[: height - 1]]
    return [*shown, Text(cut(f"and {len(rows) - height + 1} more", width), "dim")]


def shortened(call: ToolCall, width: int) -> str:
    """Return a call on one line: its name, and as much of the arguments as *width* cells have room for."""
    name = one_line(call.name)
    room = width - cells(name) - 2
    if room < 1:
        return cut(name, width)
    return f"{name}({cut(_arguments(call), room)})"


def _arguments(call: ToolCall) -> str:
    if call.args is None:
        return one_line((call.raw_args or "")[:_MOST_CHARS])
    parts: list[str] = []
    left = _MOST_CHARS
    for key, value in call.args.items():
        part = one_line(f"{key}={_value(value)}")
        parts.append(part)
        left -= len(part)
        if left < 0:
            break
    return ", ".join(parts)


def _value(value: Json) -> str:
    if isinstance(value, str):
        return dumps(value[:_MOST_CHARS]).decode("utf-8", "replace")
    return dumps(value).decode("utf-8", "replace")[:_MOST_CHARS]


def _ended(what: Ended, width: int) -> Text:
    is_done = what.outcome is ToolOutcome.DONE
    mark = "*" if is_done else "!"
    who = f"{what.name}: " if what.name else ""
    lead = f"{_INDENT * min(what.depth, _MOST_INDENT)}{mark} {who}"
    outcome = "" if is_done or what.outcome is ToolOutcome.ERROR else f" {what.outcome.value.replace('_', ' ')}"
    took = "" if what.seconds is None or what.seconds < _LEAST_SECONDS else f" ({seconds(what.seconds)})"
    room = max(width - cells(lead) - cells(outcome) - len(took), 1)
    result = f" -> {what.result}" if what.result else ""
    head = shortened(what.call, max(room - cells(result), room // 2))
    result = cut(result, room - cells(head))
    text = Text(f"{lead}{head}{outcome}", "cyan" if is_done else "red")
    text = Text.assemble(text, (result, "dim" if is_done else "red"), (took, "dim"))
    text.plain = cut(text.plain, width)
    return text


def seconds(value: float) -> str:
    """Return a time as people say it."""
    minutes, left = divmod(round(value), 60)
    return f"{value:.1f} s" if value < 60 else f"{minutes} min {left} s"


def _amount(row: Row) -> str:
    if row.done is None:
        return ""
    done = f"{row.done:,.10g}"
    return done if row.total is None else f"{done}/{row.total:,.10g}"


def _bar(row: Row) -> Text:
    """Return a bar; empty where it isn't known how far the call is."""
    if row.done is None or row.total is None or row.total <= 0:
        return Text()
    share = row.done / row.total
    full = round(min(max(share, 0), 1) * _BAR) if isfinite(share) else 0
    return Text.assemble(("━" * full, "green"), ("─" * (_BAR - full), "dim"))

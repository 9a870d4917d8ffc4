r"""What a Board gives to be shown, as values: text for good, and rows for as long as something is on. Pure.

Texts come from models, tools and people. Whoever writes them to a terminal has ``printable`` make them harmless first.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias, final

import attrs

from ...record._blocks import ToolCall
from ...record._entries import ToolOutcome

_CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal obeys, or can't be sent: control characters, those that turn the direction of text around (Unicode
Standard Annex 9), line separators, and halves of characters.
"""


def printable(text: str) -> str:
    r"""Return *text* with its lines, and nothing that a terminal would obey: an escape is shown as ``\x1b``."""
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text.replace("\r", "").replace("\t", "    "))


def one_line(text: str) -> str:
    """Return *text* on one line, as ``printable`` shows it."""
    return printable(" ".join(text.split()))


@final
@attrs.frozen
class Label:
    """Whose line it is. Several lines in a row of one Agent's text have one."""

    name: str


@final
@attrs.frozen
class Said:
    """Text of a reply, whole."""

    text: str
    is_thinking: bool = False


@final
@attrs.frozen
class Piece:
    """The next piece of the text that streams. Pieces in a row are one text."""

    text: str
    is_thinking: bool = False


@final
@attrs.frozen
class EndOfText:
    """The text that streams is over, or goes on on a new line."""


@final
@attrs.frozen
class Note:
    """A line about what happened."""

    text: str
    is_error: bool = False
    name: str = ""
    """Whose; empty where that is plain."""


@final
@attrs.frozen
class Ended:
    """A tool call that has its result."""

    call: ToolCall
    outcome: ToolOutcome
    result: str
    """The first line of it, or its size."""
    seconds: float | None
    """``None``: it didn't start."""
    name: str = ""
    """Whose; empty where that is plain."""
    depth: int = 0
    """0 for one of the Agent that the program runs, 1 for one of its subagent's, ..."""


@final
@attrs.frozen
class Printed:
    """Text of the program's own."""

    text: str
    is_typed: bool = False
    """Whether the person has typed it."""
    can_wait: bool = False
    """Whether it is shown when the text that streams is over, and not in the middle of it."""


Shown: TypeAlias = Label | Said | Piece | EndOfText | Note | Ended | Printed
"""What is shown for good, in this order."""


@final
@attrs.frozen
class Row:
    """A line of the frame: a tool call or an Agent that is on."""

    depth: int
    call: ToolCall | None
    """``None``: an Agent."""
    name: str
    """Of the Agent, or empty: it needs none; of the tool."""
    status: str = ""
    """What it does, and how much it has used; of a call, the text that it told last."""
    done: float | None = None
    """How far a call is; ``None`` where it hasn't told."""
    total: float | None = None
    """``None`` = unknown."""

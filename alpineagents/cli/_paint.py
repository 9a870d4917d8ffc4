"""Colours of a conversation, where standard output is a terminal that shall have some."""

from __future__ import annotations

import os
import sys
from typing import Final, final

import attrs

from ._talk import Piece

_STYLES: Final = {"person": "1", "call": "36", "result": "2", "error": "31", "note": "2"}
"""Kinds of pieces and their SGR parameters (ECMA-48, 8.3.117): bold, cyan, faint, red."""


@final
@attrs.frozen
class Paint:
    """Gives text its colour."""

    is_on: bool

    @classmethod
    def for_output(cls) -> Paint:
        """Return one for standard output: on for a terminal, unless ``NO_COLOR`` is set or it can't."""
        return cls(sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb")

    def piece(self, piece: Piece) -> str:
        """Return the text of a piece of a conversation."""
        return self.text(piece.kind, piece.text)

    def text(self, kind: str, text: str) -> str:
        """Return *text* as one of that kind. Each line is coloured for itself, as pagers show them."""
        if not self.is_on or kind not in _STYLES:
            return text
        return "\n".join(f"\x1b[{_STYLES[kind]}m{line}\x1b[0m" if line else line for line in text.split("\n"))

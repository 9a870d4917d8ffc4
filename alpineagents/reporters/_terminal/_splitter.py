"""Lines of input that nobody edits here: from a pipe, a file, or a terminal that edits itself. Pure.

Used like a ``LineEditor``, and says the same.
"""

from __future__ import annotations

import codecs
from collections import deque
from typing import final

from ._editor import Edit, EndOfInput, Entered


@final
class LineSplitter:
    """Bytes in, lines out. A line ends with a line feed, or a carriage return and one; the last needs none."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._whole: deque[str] = deque()
        self._parts: list[str] = []
        """Of the last line, which isn't whole yet."""

    def feed(self, data: bytes) -> Edit | None:
        """Return the next line, or ``None`` if there is no whole one. Bytes that aren't UTF-8 are U+FFFD.

        Args:
            data: What was read, split anywhere; ``b""`` goes on with the lines that are there.
        """
        first, *following = self._decoder.decode(data).split("\n")
        self._parts.append(first)
        for part in following:
            self._whole.append("".join(self._parts))
            self._parts = [part]
        return Entered(self._whole.popleft().removesuffix("\r")) if self._whole else None

    def clear(self) -> None:
        """Forget what was read, but for the bytes of a character that isn't whole."""
        self._whole.clear()
        self._parts.clear()

    def end(self) -> Edit:
        """Return the next line when nothing more can be read; ``EndOfInput`` behind the last."""
        self._parts.append(self._decoder.decode(b"", final=True))
        if self._whole:
            return Entered(self._whole.popleft().removesuffix("\r"))
        last, self._parts = "".join(self._parts), []
        return Entered(last.removesuffix("\r")) if last else EndOfInput()

"""Server-sent events, sans-IO: bytes in any split go in, events come out (WHATWG HTML, section 9.2.6).

Lines end at LF, CR and CRLF and at nothing else, so U+2028, U+0085 and their kind stay text. Lines are cut as bytes:
no UTF-8 character holds a CR or LF byte, so no character is ever cut in two, and the JSON parser takes bytes.

Why not httpx-sse (0.4.3): its package imports httpx, which a pure module must not; what decodes in it is private;
and once a stream had an ``id:`` it gives an empty event for every comment or ping, where the standard has none.
"""

from __future__ import annotations

from typing import NamedTuple, final

_BOM = b"\xef\xbb\xbf"


class Event(NamedTuple):
    """One event."""

    name: str
    """Of its ``event:`` line; empty without one."""
    data: bytes
    """Its ``data:`` lines, joined with LF."""


@final
class SSEDecoder:
    """Takes a stream apart. Linear in the bytes, whatever the chunks; an unterminated last event is dropped."""

    def __init__(self) -> None:
        self._start: bytes | None = b""  # What came so far of a BOM; None once that is settled.
        self._after_cr = False  # The last byte was a CR, so an LF now belongs to it.
        self._tail: list[bytes] = []  # Invariant: no line end in here.
        self._name = ""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[Event]:
        """Return the events that *chunk* completes."""
        if self._start is not None:
            chunk = self._without_bom(self._start + chunk)
        if self._after_cr or b"\r" in chunk:
            chunk = self._with_lf_only(chunk)
        head, newline, rest = chunk.rpartition(b"\n")
        if not newline:
            self._tail.append(rest)
            return []
        if self._tail:
            head = b"".join(self._tail) + head
        self._tail = [rest] if rest else []
        return self._lines(head.split(b"\n"))

    def _lines(self, lines: list[bytes]) -> list[Event]:
        events: list[Event] = []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
            elif line:
                self._other_field(line)
            else:
                if self._data:
                    events.append(Event(self._name, b"\n".join(self._data)))
                    self._data = []
                self._name = ""
        return events

    def _other_field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"event":
            self._name = value.removeprefix(b" ").decode(errors="replace")
        elif name == b"data":
            self._data.append(b"")

    def _without_bom(self, start: bytes) -> bytes:
        if len(start) < len(_BOM) and _BOM.startswith(start):
            self._start = start
            return b""
        self._start = None
        return start.removeprefix(_BOM)

    def _with_lf_only(self, chunk: bytes) -> bytes:
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        if chunk:
            self._after_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

"""Entries as the lines that ``print(state)`` shows."""

from __future__ import annotations

from ..record._entries import Entry
from ..state._show import LINE, describe, one_line


def entry_line(entry: Entry) -> str:
    """Return the line of one entry, such as ``[turn 1] tool_result read_file: 8 B``."""
    line = one_line(f"[turn {entry.turn}] {entry.kind} {describe(entry)}")
    return line if len(line) <= LINE else line[: LINE - 3] + "..."

"""Histories as snapshot files of syrupy: JSON that a person can read, without what doesn't count in equality."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from ..record._codec import encode_entry
from ..record._entries import Entry
from ._history import history_of

_WIDTH: Final = 100
"""Characters. What fits is one line, its name not counted, so that a diff is short and tells where it is."""


class HistoryExtension(SingleFileSnapshotExtension):
    """Keeps the history of a State, without times and positions."""

    _write_mode = WriteMode.TEXT
    file_extension = "json"

    def serialize(self, data: Any, **_: Any) -> str:
        """Return the text of the file for a State, a snapshot of one, or its history."""
        return _pretty([_fields(entry) for entry in history_of(data)]) + "\n"


def _fields(entry: Entry) -> dict[str, Any]:
    fields = json.loads(encode_entry(entry))
    return {name: value for name, value in fields.items() if name not in ("format", "seq", "at")}


def _pretty(value: Any, indent: str = "") -> str:
    line = json.dumps(value, ensure_ascii=False)
    if not value or not isinstance(value, dict | list) or len(indent) + len(line) <= _WIDTH:
        return line
    parts: Sequence[str]
    if isinstance(value, dict):
        parts = [
            f"{json.dumps(name, ensure_ascii=False)}: {_pretty(part, f'{indent}  ')}" for name, part in value.items()
        ]
    else:
        parts = [_pretty(part, f"{indent}  ") for part in value]
    inside = ",\n".join([f"{indent}  {part}" for part in parts])
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}\n{inside}\n{indent}{closing}"

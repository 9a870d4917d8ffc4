"""Which recorded request is most like one that wasn't recorded, as a diff. Pure."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from typing import Any, Final

from ._replaying._difference import unified

MOST_COMPARED: Final = 200
"""Requests of a cassette that are looked at, the last ones."""
LONGEST: Final = 300
"""Characters of a text that are shown: an image in base64 has many more."""


def nearest(request: dict[str, Any], recorded: Sequence[dict[str, Any]]) -> str:
    """Return the difference between *request* and the one of *recorded* that is most like it."""
    asked = _lines(request)
    best, ratio = _lines(recorded[-1]) if recorded else [], -1.0
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(asked)
    for other in recorded[-MOST_COMPARED:]:
        lines = _lines(other)
        matcher.set_seq1(lines)
        if matcher.quick_ratio() > ratio and (found := matcher.ratio()) > ratio:
            best, ratio = lines, found
    return unified(best, asked, ("recorded", "asked"))


def _lines(request: dict[str, Any]) -> list[str]:
    """Return a request as lines: its texts as they read, the rest as JSON."""
    lines: list[str] = []
    for name in ("system", "tool_choice", "returns", "tools"):
        if request.get(name) not in (None, [], "auto"):
            lines += _value(name, request[name])
    for message in request["messages"]:
        lines.append(f"{message['role']}:")
        for block in message["blocks"]:
            is_text = set(block) == {"type", "text"} and block["type"] == "text"
            lines += _value("", block["text"] if is_text else block)
    return lines


def _value(name: str, value: Any) -> list[str]:
    text = value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False)
    lines = [line if len(line) <= LONGEST else f"{line[:LONGEST]}..." for line in text.splitlines()]
    return [*([f"{name}:"] if name else []), *[f"  {line}" for line in lines]]

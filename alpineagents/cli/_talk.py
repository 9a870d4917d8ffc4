"""A conversation as text for a terminal, entry by entry. Pure.

What a person wrote begins with ``>``, what the model wrote stands as it is, a call begins with ``*`` and its result is
indented, what went wrong begins with ``!``, and what else happened with ``-``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from ..record import (
    ContextChangeEntry,
    Entry,
    ErrorEntry,
    ExchangeEntry,
    ExtraDataEntry,
    Message,
    MessageEntry,
    ModelReplyEntry,
    ModelRequestEntry,
    RunStartEntry,
    StopEntry,
    TextBlock,
    ToolCall,
    ToolResultEntry,
)
from ..record._blocks import Block
from ..state._show import describe, one_line, size

RESULT_LINES: Final = 8
"""How many lines are shown of a tool's result, unless all are."""

# Control characters but the line feed, and those that turn the order of the others around.
_CONTROLS: Final = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Piece(NamedTuple):
    """Some lines, and what they are: ``person``, ``model``, ``call``, ``result``, ``error`` or ``note``."""

    kind: str
    text: str


def pieces(entry: Entry, *, whole: bool = False) -> Iterator[Piece]:
    """Return what is shown of an entry; nothing of what only tells that something began.

    Args:
        entry: The entry.
        whole: Whether results are shown to their end.
    """
    match entry:
        case MessageEntry():
            yield from message(entry.content)
        case ModelReplyEntry():
            yield from _reply(entry.content.blocks)
        case ToolResultEntry():
            how = "" if not entry.is_error else f"{entry.outcome}, "
            late = ", late" if entry.late else ""
            yield Piece("call", f"* {entry.call.name}: {how}{size(entry.content)}{late}")
            text = "\n".join(block.text for block in entry.full or entry.content if isinstance(block, TextBlock))
            if text.strip():
                yield Piece("error" if entry.is_error else "result", _indented(_cut(text, whole)))
        case ContextChangeEntry() if entry.content.kind == "import":
            for each in entry.content.messages:
                yield from message(each)
        case ErrorEntry():
            yield Piece("error", f"! {one_line(entry.content)}")
        case ContextChangeEntry() | ExchangeEntry() | StopEntry():
            yield Piece("note", f"- {describe(entry)}")
        case RunStartEntry() | ModelRequestEntry() | ExtraDataEntry():
            return
        case _:
            yield Piece("note", f"- {describe(entry)}")


def message(content: Message) -> Iterator[Piece]:
    """Return what is shown of a message; nothing of results, which are for the model."""
    if content.role == "assistant":
        yield from _reply(content.blocks)
    if content.role != "user":
        return
    for block in content.blocks:
        if isinstance(block, TextBlock):
            yield Piece("person", "\n".join(f"> {line}" for line in printable(block.text).splitlines() or [""]))
        else:
            yield Piece("person", f"> ({type(block).__name__.lower()})")


def _reply(blocks: tuple[Block, ...]) -> Iterator[Piece]:
    for block in blocks:
        match block:
            case TextBlock() if block.text.strip():
                yield Piece("model", printable(block.text))
            case ToolCall():
                args = block.raw_args if block.args is None else ", ".join(f"{k}={v!r}" for k, v in block.args.items())
                yield Piece("call", f"* {one_line(f'{block.name}({args})')}")
            case _:
                pass


def printable(text: str) -> str:
    """Return *text* with its lines, and without what would do something to a terminal."""
    tabs = text.replace("\r\n", "\n").expandtabs(4)
    return _CONTROLS.sub("?", tabs).encode("utf-8", "replace").decode()


def _cut(text: str, whole: bool) -> str:
    lines = printable(text).splitlines()
    if whole or len(lines) <= RESULT_LINES + 1:
        return "\n".join(lines)
    return "\n".join([*lines[:RESULT_LINES], f"... and {len(lines) - RESULT_LINES} more lines"])


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())

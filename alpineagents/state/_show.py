"""A State as text: one line per entry, and one that says how it stands."""

from __future__ import annotations

import re
from typing import Final, assert_never

from ..record._blocks import File, Image, ResultBlock, TextBlock, ToolCall
from ..record._codec import unknown_parts
from ..record._entries import (
    ContextChangeEntry,
    Entry,
    ErrorEntry,
    ExchangeEntry,
    ExtraDataEntry,
    MessageEntry,
    ModelEventEntry,
    ModelReplyEntry,
    ModelRequestEntry,
    RunStartEntry,
    StopEntry,
    Stopped,
    StoppedByBudget,
    StoppedByFinish,
    StoppedByLimit,
    StoppedByPermission,
    StoppedByUntil,
    ToolResultEntry,
    UnknownEntry,
)
from ..record._snapshot import Snapshot

WIDTH = 100
"""Longest text shown of one value, in characters."""

LINE = 500
"""Longest line, in characters: a reply can have many calls, each of them shown."""


# Control characters, and those that turn the order of the others around (Unicode's bidirectional controls).
_CONTROLS: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def show(snapshot: Snapshot) -> str:
    """Return one line per entry, such as ``[turn 1] tool_result read_file: 8 B``, and a last one with how it stands."""
    lines = [_line(f"[turn {entry.turn}] {entry.kind} {describe(entry)}") for entry in snapshot.history]
    return "\n".join([*lines, standing(snapshot)])


def one_line(text: str) -> str:
    """Return *text* as one line that can be printed anywhere: what would do something to a terminal becomes a ?."""
    return _CONTROLS.sub("?", " ".join(text.split())).encode("utf-8", "replace").decode()


def _line(text: str) -> str:
    """One such line, cut where it is long."""
    line = one_line(text)
    return line if len(line) <= LINE else line[: LINE - 3] + "..."


def _repr(value: object) -> str:
    try:
        return repr(value)
    except ValueError:  # an integer of more digits than Python makes text of
        return f"({type(value).__name__} with a very long integer)"


def show_html(state_id: str, snapshot: Snapshot) -> str:
    """Return the same as a collapsible HTML table."""
    from html import escape  # only here, and slow to import

    rows = "".join(
        f"<tr><td>{e.turn}</td><td>{e.kind}</td><td style='text-align:left'>{escape(describe(e))}</td></tr>"
        for e in snapshot.history
    )
    return (
        f"<details><summary>State {escape(state_id)}: {snapshot.length} entries, {escape(standing(snapshot))}</summary>"
        f"<table><thead><tr><th>turn</th><th>kind</th><th>content</th></tr></thead><tbody>{rows}</tbody></table></details>"
    )


def standing(snapshot: Snapshot) -> str:
    """Say how the State stands, in one short line."""
    if snapshot.request_open:
        return "waiting for the model"
    if pending := snapshot.pending_calls:
        names = ", ".join(call.name for call in pending[:5])
        return f"{len(pending)} pending {'call' if len(pending) == 1 else 'calls'}: {_short(names)}"
    if snapshot.stopped is not None:
        return f"{'finished' if snapshot.finished else 'stopped'}: {_short(stop_reason(snapshot.stopped))}"
    return "empty" if not snapshot.length else "between turns"


def stop_reason(stopped: Stopped) -> str:
    """Say why a run stopped."""
    match stopped:
        case StoppedByUntil(name):
            return f"until {name}"
        case StoppedByLimit(turns):
            return f"limit of {turns} turns"
        case StoppedByFinish(answer):
            return "finish()" if answer is None else f"finish({_short(_repr(answer))})"
        case StoppedByPermission(call, permission):
            return f"{permission} refused {call.name}"
        case StoppedByBudget(what, limit, used):
            return f"budget of {what}: {'unknown' if used is None else used} of {limit}"
        case _:
            assert_never(stopped)


def describe(entry: Entry) -> str:
    """Say what an entry holds, in one line that can be printed anywhere."""
    new = unknown_parts(entry)
    return _line(f"{_content(entry)} (and of a newer version: {', '.join(new)})" if new else _content(entry))


def _content(entry: Entry) -> str:
    match entry:
        case MessageEntry():
            return _short(entry.content.text)
        case ModelRequestEntry():
            return entry.content
        case ModelReplyEntry():
            calls = [_call(call) for call in entry.content.tool_calls]
            return " ".join([*([_short(entry.content.text)] if entry.content.text else []), *calls])
        case ModelEventEntry():
            return _short(f"{entry.content.kind}: {entry.content.text}")
        case ToolResultEntry():
            outcome = "" if not entry.is_error else f" ({entry.outcome})"
            return f"{entry.call.name}{outcome}: {size(entry.content)}{' late' if entry.late else ''}"
        case ExchangeEntry():
            return _short(f"{entry.content.question} -> {_repr(entry.content.answer)}")
        case ContextChangeEntry():
            return _context_change(entry)
        case RunStartEntry():
            return f"{entry.content.name or 'agent'} with {entry.content.model}"
        case StopEntry():
            return "taken back" if entry.content is None else stop_reason(entry.content)
        case ExtraDataEntry():
            return ", ".join([*entry.content, *(f"-{key}" for key in entry.removed)])
        case ErrorEntry():
            return _short(entry.content)
        case UnknownEntry():
            return _short(f"(recorded by a newer version) {_repr(entry.content)}")
        case _:
            assert_never(entry)


def _context_change(entry: ContextChangeEntry) -> str:
    change = entry.content
    match change.kind:
        case "import":
            return f"import of {len(change.messages)} messages"
        case "compact":
            return f"compact: {_short(change.summary or '')}"
        case "clear_tool_results":
            return f"clear_tool_results: {len(change.cleared)} results"
        case "restore":
            return f"restore to entry {change.restored_to}"
        case _:
            assert_never(change.kind)


def _call(call: ToolCall) -> str:
    args = (
        call.raw_args if call.args is None else ", ".join(f"{key}={_repr(value)}" for key, value in call.args.items())
    )
    return f"{call.name}({_short(args or '')})"


def size(content: tuple[ResultBlock, ...]) -> str:
    """Return how much a result holds, such as ``8 B`` or ``12.3 KB and 1 image``."""
    text = sum(len(block.text.encode("utf-8", "replace")) for block in content if isinstance(block, TextBlock))
    others = [block for block in content if isinstance(block, Image | File)]
    named = f"{len(others)} {'attachment' if len(others) == 1 else 'attachments'}"
    parts = [_bytes(text)] if text or not others else []
    return " and ".join([*parts, *([named] if others else [])])


def _bytes(count: int) -> str:
    if count < 1_000:
        return f"{count} B"
    return f"{count / 1_000:.1f} KB" if count < 1_000_000 else f"{count / 1_000_000:.1f} MB"


def _short(text: str) -> str:
    line = _line(text)
    return line if len(line) <= WIDTH else line[: WIDTH - 3] + "..."

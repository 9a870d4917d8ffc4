"""Where a replay goes another way than the record, as a diff that a person can read."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, final

import attrs

from ...record._blocks import ResultBlock, TextBlock, ToolCall
from ...record._entries import (
    ContextChangeEntry,
    Entry,
    ErrorEntry,
    ExchangeEntry,
    ExtraDataEntry,
    MessageEntry,
    ModelReplyEntry,
    ModelRequestEntry,
    RunStartEntry,
    StopEntry,
    ToolOutcome,
    ToolResultEntry,
)
from ...state._show import describe, one_line

AROUND: Final = 3
"""Entries shown that come before a difference, and lines around one in a diff."""
MOST_LINES: Final = 200
"""Lines that a diff shows."""


@final
@attrs.frozen(kw_only=True)
class Difference:
    """Where today's code does something else than what was recorded."""

    seq: int
    """Position in the saved history."""
    turn: int
    """The turn it is in."""
    what: str
    """What differs, in a line."""
    then: tuple[str, ...] = ()
    """What was recorded, line by line."""
    now: tuple[str, ...] = ()
    """What the code does today, line by line."""
    before: tuple[str, ...] = ()
    """The entries before it, a line each."""
    error: BaseException | None = attrs.field(default=None, eq=False, repr=False)
    """The exception that today's code raised, where the difference is one."""

    @property
    def diff(self) -> str:
        """``then`` and ``now`` as a unified diff."""
        return unified(self.then, self.now, ("then", "now"))

    def __str__(self) -> str:
        where = f"entry {self.seq} (turn {self.turn}): {self.what}"
        return "\n".join([where, *[f"    {line}" for line in self.before], self.diff])


def unified(then: Sequence[str], now: Sequence[str], names: tuple[str, str]) -> str:
    """Return a unified diff of lines, shortened where it is very long."""
    lines = list(difflib.unified_diff(then, now, names[0], names[1], lineterm="", n=AROUND))
    if len(lines) > MOST_LINES:
        lines = [*lines[:MOST_LINES], f"({len(lines) - MOST_LINES} more lines)"]
    return "\n".join(lines)


def difference(
    history: Sequence[Entry], seq: int, new: Entry | None, *, says: str | None = None, ignore: Collection[str] = ()
) -> Difference:
    """Return the difference between entry *seq* of the record and what the code does in its place.

    Args:
        history: The record.
        seq: Position in it, at most its length.
        new: The entry that today's code makes; ``None`` where it makes none.
        says: What it does, where that is no entry.
        ignore: What isn't compared.
    """
    old = history[seq] if seq < len(history) else None
    nearest = old or new or history[-1]
    error = new.error if isinstance(new, ErrorEntry | ToolResultEntry) else None
    now = tuple(lines_of(new)) if new is not None else tuple((says or "the run ends").splitlines())
    return Difference(
        seq=seq,
        turn=nearest.turn,
        what=_what(old, new, says, ignore),
        then=tuple(lines_of(old)) if old is not None else ("the run ended",),
        now=now,
        before=tuple([_line(entry) for entry in history[max(seq - AROUND, 0) : seq]]),
        error=error,
    )


def _line(entry: Entry) -> str:
    return f"[turn {entry.turn}] {entry.kind} {describe(entry)}"


def _what(old: Entry | None, new: Entry | None, says: str | None, ignore: Collection[str]) -> str:
    if says is not None:
        return says.splitlines()[0]
    if new is None:
        return "the run ends here, and went on then"
    if old is None:
        return f"the run goes on here, and had ended then: {new.kind} {describe(new)}"
    if isinstance(new, ErrorEntry):
        return f"an exception is raised: {describe(new)}"
    if type(old) is not type(new):
        return f"then {old.kind}, now {new.kind}"
    return _same_kind(old, new, ignore)


def _same_kind(old: Entry, new: Entry, ignore: Collection[str]) -> str:
    if isinstance(old, RunStartEntry) and isinstance(new, RunStartEntry):
        same_system = "system" in ignore or old.content.system_sha256 == new.content.system_sha256
        same_tools = "tools" in ignore or old.content.tools == new.content.tools
        changed = [] if same_system else ["the system prompt"]
        return f"{' and '.join(changed if same_tools else [*changed, 'the tools'])} of every request"
    if isinstance(old, ToolResultEntry) and isinstance(new, ToolResultEntry) and old.call.id == new.call.id:
        refused = new.outcome is ToolOutcome.INPUT_ERROR and old.outcome is not ToolOutcome.INPUT_ERROR
        return f"the {'arguments' if refused else 'result'} of {old.call.name}"
    return _CHANGED.get(type(old), f"the {old.kind.replace('_', ' ')}")


_CHANGED: Final[Mapping[type, str]] = {
    ModelRequestEntry: "the tools that a request shows",
    StopEntry: "why the run stops",
    ExchangeEntry: "a question, or its answer",
    MessageEntry: "a message",
}


# Entries as lines


def lines_of(entry: Entry) -> Iterator[str]:
    """Yield all that an entry says, line by line, such that it can be printed anywhere."""
    for line in _lines(entry):
        yield "".join([char if char.isprintable() or char == "\t" else "?" for char in line])


def _lines(entry: Entry) -> Iterator[str]:
    match entry:
        case MessageEntry():
            yield f"{entry.kind}:"
            yield from _indented(entry.content.text)
            yield from [f"  {block!r}" for block in entry.content.blocks if not isinstance(block, TextBlock)]
        case ModelRequestEntry():
            yield "model_request"
            yield f"  tools: {'all' if entry.tools is None else ', '.join(entry.tools) or 'none'}"
        case ModelReplyEntry():
            yield "model_reply:"
            yield from _indented(entry.content.text)
            yield from [line for call in entry.content.tool_calls for line in call_lines(call)]
        case ToolResultEntry():
            yield f"tool_result {entry.call.name}: {entry.outcome}{' late' if entry.late else ''}"
            yield from call_lines(entry.call)
            yield from _content(entry.content)
        case ExchangeEntry():
            yield f"{entry.kind}:"
            yield from _indented(entry.content.question)
            yield from [f"  -> {line}" for line in json_lines(entry.content.answer)]
        case ContextChangeEntry():
            yield f"context_change {entry.content.kind}"
            yield from _indented(entry.content.summary or "")
            yield from [f"  cleared {call_id}" for call_id in entry.content.cleared]
        case RunStartEntry():
            yield "run_start"
            yield f"  system: {_hash(entry.content.system_sha256)}"
            yield from [f"  tool {name}" for name in entry.content.tools]
        case ExtraDataEntry():
            yield "extra_data"
            yield from [f"  {line}" for line in json_lines(entry.content)]
            yield from [f"  -{name}" for name in entry.removed]
        case ErrorEntry():
            yield f"error in {entry.action}:"
            yield from _indented(entry.content)
        case _:
            yield f"{entry.kind}: {describe(entry)}"


def _indented(text: str) -> list[str]:
    return [f"  {line}" for line in text.split("\n") if line.strip()]


def _content(content: tuple[ResultBlock, ...]) -> Iterator[str]:
    for block in content:
        yield from _indented(block.text) if isinstance(block, TextBlock) else [f"  {block!r}"]


def _hash(sha256: str | None) -> str:
    return "none" if sha256 is None else f"sha256 {sha256} (a history doesn't keep the text)"


def call_lines(call: ToolCall) -> list[str]:
    """Return a call, line by line."""
    if call.args is None:
        return [f"  call {one_line(call.name)}: {one_line(call.raw_args or '')}"]
    return [f"  call {one_line(call.name)}", *[f"    {line}" for line in json_lines(call.args)]]


def json_lines(value: object) -> list[str]:
    """Return a JSON value, line by line."""
    return json.dumps(value, indent=2, ensure_ascii=False).encode("utf-8", "replace").decode().split("\n")

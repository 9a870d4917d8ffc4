"""Which entry that is made now is the one that was recorded then, and which entries nobody in a run makes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, assert_never

from ...record._blocks import ResultBlock, TextBlock
from ...record._entries import (
    AgentInfo,
    ContextChange,
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
    StoppedByPermission,
    ToolOutcome,
    ToolResultEntry,
    UnknownEntry,
)
from ...state._closing import DID_NOT_RUN, MAY_HAVE_RUN

_EFFECTS: Final = (f" {MAY_HAVE_RUN}", f" {DID_NOT_RUN}")

CUT: Final = "Aborted: "
"""How the error begins that stands for a process that ended."""


def fits(new: Entry, old: Entry, ignore: Collection[str]) -> bool:
    """Return whether *new*, made by today's code, is what *old* recorded."""
    return type(new) is type(old) and _compared(new, ignore) == _compared(old, ignore)


def _compared(entry: Entry, ignore: Collection[str]) -> object:
    """Return what counts of an entry. What only counts tokens, or names who decided, doesn't."""
    match entry:
        case ModelRequestEntry():
            return None if "tools" in ignore else entry.tools
        case ToolResultEntry() if is_closed(entry):
            return entry.call.id, entry.outcome, [_without_effect(block) for block in entry.content]
        case ToolResultEntry():
            # What it says of wrong arguments names the tools that there are.
            says_tools = "tools" in ignore and entry.outcome is ToolOutcome.INPUT_ERROR
            return entry.call.id, entry.late, entry.outcome, None if says_tools else entry.content
        case ExchangeEntry() | UnknownEntry():
            return entry.kind, entry.content
        case ContextChangeEntry():
            return _change(entry.content)
        case RunStartEntry():
            return _agent(entry.content, ignore)
        case StopEntry():
            return _reason(entry.content)
        case ExtraDataEntry():
            return entry.content, entry.removed
        case ErrorEntry():
            return entry.action, entry.content
        case MessageEntry() | ModelReplyEntry() | ModelEventEntry():
            return entry.content
        case _:
            assert_never(entry)


def _without_effect(block: ResultBlock) -> str:
    """Return why a call was closed, without whether it had begun: calls begin in another order in a replay."""
    text = block.text if isinstance(block, TextBlock) else ""
    return next((text.removesuffix(effect) for effect in _EFFECTS if text.endswith(effect)), text)


def _change(change: ContextChange) -> object:
    """Without what counts tokens, and what they cost."""
    return change.kind, change.messages, change.summary, change.covers, change.cleared, change.restored_to


def _agent(info: AgentInfo, ignore: Collection[str]) -> object:
    """What requests have of it. The model's name isn't: any model can be given the same request."""
    system = None if "system" in ignore else info.system_sha256
    return system, () if "tools" in ignore else info.tools


def _reason(stopped: Stopped | None) -> object:
    match stopped:
        case StoppedByPermission(call):
            return "permission", call.id
        case StoppedByBudget(what, limit):
            return "budget", what, limit
        case _:
            return stopped


def is_from_outside(entry: Entry) -> bool:
    """Whether somebody beside a run may have made this: a person, other code, a thread that was left behind."""
    match entry:
        case MessageEntry() | ExtraDataEntry() | UnknownEntry():
            return True
        case StopEntry():
            return isinstance(entry.content, StoppedByFinish)
        case ToolResultEntry():
            return entry.late
        case ContextChangeEntry():
            return not is_by_model(entry)
        case _:
            return False


def is_beside(entry: Entry) -> bool:
    """Whether this may come while a run waits: a side question of a tool's, or of other code's, and how that ended."""
    if isinstance(entry, StopEntry):
        return isinstance(entry.content, StoppedByBudget)
    return isinstance(entry, ExchangeEntry) or (isinstance(entry, ErrorEntry) and entry.action == "ask")


def is_by_model(entry: Entry) -> bool:
    """Whether it is a compaction that a model wrote."""
    return (
        isinstance(entry, ContextChangeEntry)
        and entry.content.kind == "compact"
        and entry.content.tokens_before is not None
    )


def is_interrupt(entry: Entry) -> bool:
    """Whether it tells of a cancelled run, Ctrl+C, or exit."""
    return isinstance(entry, ErrorEntry) and entry.content in ("Cancelled", "KeyboardInterrupt", "SystemExit")


def is_closed(entry: Entry) -> bool:
    """Whether it is the result of a call that didn't get one by itself."""
    outcomes = (ToolOutcome.ABORTED, ToolOutcome.INTERRUPTED)
    return isinstance(entry, ToolResultEntry) and not entry.late and entry.outcome in outcomes


def goes_on(rest: Iterable[Entry]) -> bool:
    """Whether a run did more in these entries than to end."""
    return not all(is_from_outside(entry) or is_closed(entry) or _ends(entry) for entry in rest)


def _ends(entry: Entry) -> bool:
    if isinstance(entry, ErrorEntry):
        return entry.action == "run" or is_interrupt(entry)
    return isinstance(entry, StopEntry) and entry.content is not None

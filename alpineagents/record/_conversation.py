"""Conversations as lists of messages: what makes one well formed, and how it is made shorter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final, final

from .._errors import IllegalEntryError
from ._blocks import Block, TextBlock, ToolCall, ToolResultBlock, is_blank
from ._entries import ContextChange, ContextChangeEntry, Entry, ModelReplyEntry
from ._messages import Message

CLEARED: Final = "(cleared to keep the context small; the history keeps the whole result)"
"""What the model sees instead of a result that clear_tool_results took out."""

_CLEARED: Final = (TextBlock(CLEARED),)


@final
class Checker:
    """Checks a conversation message by message.

    Well formed means: each reply with calls is followed at once by one ``tool`` message with exactly one result per
    call, in the order of the calls; results stand nowhere else; no call id comes twice; calls stand in replies only.
    """

    def __init__(self) -> None:
        self.position = 0
        """How many messages were checked."""
        self._awaited: tuple[str, ...] = ()
        self._seen: set[str] = set()

    def fault_in(self, message: Message) -> str | None:
        """Return what is wrong with the next message, or ``None``."""
        where = f"messages[{self.position}]"
        given = tuple([block.call_id for block in message.blocks if type(block) is ToolResultBlock])
        asked = message.tool_calls
        if self._awaited and message.role != "tool":
            return f"{where}: call {self._awaited[0]!r} has no result before it"
        if given != self._awaited or (message.role == "tool" and not given):
            return f"{where}: results of {list(given)}, but the calls before it are {list(self._awaited)}"
        if asked and message.role != "assistant":
            return f"{where}: call {asked[0].id!r} in a message of role {message.role!r}"
        for call in asked:
            if call.id in self._seen:
                return f"{where}: call id {call.id!r} comes twice"
            self._seen.add(call.id)
        self._awaited = tuple([call.id for call in asked])
        self.position += 1
        return None

    def fault_at_end(self) -> str | None:
        """Return what is wrong if nothing follows, or ``None``."""
        return f"call {self._awaited[0]!r} has no result" if self._awaited else None


def first_fault(messages: Iterable[Message]) -> str | None:
    """Return what is wrong with a conversation, or ``None``; see ``Checker``."""
    checker = Checker()
    for message in messages:
        if fault := checker.fault_in(message):
            return fault
    return checker.fault_at_end()


def call_ids_of(entry: Entry) -> list[str]:
    """Return the ids of the calls that an entry brings."""
    if type(entry) is ModelReplyEntry:
        return [call.id for call in entry.content.tool_calls]
    if type(entry) is ContextChangeEntry:
        return [call.id for message in entry.content.messages for call in message.tool_calls]
    return []


def fault_in_saying(message: Message) -> str | None:
    """Return why neither a person nor the code can have said this, or ``None``."""
    if message.role != "user":
        return f"a message from the person or the code has role 'user', not {message.role!r}"
    readable = False
    for block in message.blocks:
        kind = type(block)
        if kind is ToolCall or kind is ToolResultBlock:
            return f"a message from the person or the code holds no {kind.__name__}"
        readable = readable or not is_blank(block)
    return None if readable else "a message needs text or an image: Message.user('Find the bug')"


def compacted(messages: Sequence[Message], change: ContextChange) -> list[Message]:
    """Return the first message from the person, the summary, and what the summary doesn't cover.

    Raises:
        IllegalEntryError: the summary of *change* is blank, or covers what it can't.
    """
    covers = len(messages) if change.covers is None else change.covers
    if not 0 <= covers <= len(messages):
        raise IllegalEntryError(f"the summary covers {covers} messages, but there are {len(messages)}")
    if covers < len(messages) and messages[covers].role == "tool":
        raise IllegalEntryError(f"the summary covers {covers} messages: calls, but not their results")
    if not change.summary or change.summary.isspace():
        raise IllegalEntryError("compact without a summary")
    people = (m for m in islice(messages, covers) if m.role == "user" and not m.is_notice and not m.is_summary)
    first = next(people, None)
    summary = Message.summary(change.summary)
    return [*([first] if first else []), summary, *messages[covers:]]


def clearable(messages: Sequence[Message], keep_last: int) -> tuple[str, ...]:
    """Return ids of the calls whose results are older than the last *keep_last* and not cleared yet."""
    blocks = [block for message in messages if message.role == "tool" for block in message.blocks]
    ids = [block.call_id for block in blocks if isinstance(block, ToolResultBlock) and block.content != _CLEARED]
    return tuple(ids[: len(ids) - keep_last] if keep_last < len(ids) else ())


def cleared(messages: Sequence[Message], call_ids: tuple[str, ...]) -> list[Message]:
    """Return *messages* with the results of these calls replaced by a line that says so.

    Raises:
        IllegalEntryError: one of these calls has no result among them.
    """
    left = set(call_ids)

    def clear(block: Block) -> Block:
        if not isinstance(block, ToolResultBlock) or block.call_id not in left:
            return block
        left.discard(block.call_id)
        return ToolResultBlock(block.call_id, _CLEARED, block.is_error)

    messages = [
        m if m.role != "tool" else Message("tool", tuple([clear(block) for block in m.blocks])) for m in messages
    ]
    if left:
        raise IllegalEntryError(f"no result of call {min(left)!r} to clear")
    return messages

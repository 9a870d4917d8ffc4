"""Keeping the context small: how full it is, and having the model write a summary."""

from __future__ import annotations

from typing import Final, Protocol

import attrs
import trio

from .._errors import OutputError
from ..record._entries import ContextChange
from ..record._messages import NO_USAGE, Message
from ..record._snapshot import Snapshot
from ..record._value import Value
from ..state import State
from ._ask import side_request
from ._setup import Setup, record_error, usage_of
from ._think import respond
from ._tokens import context_tokens, message_tokens

INSTRUCTIONS: Final = (
    "Write a summary of this conversation that can stand in its place: what was asked for, what was found out"
    " and decided, what was done (names of files, commands and values exactly), and what is still open."
    " Write only the summary."
)

LEAST_REPLACED: Final = 0.2
"""Which part of the messages a summary has to replace to be worth its request."""


@trio.lowlevel.enable_ki_protection
async def compact(setup: Setup, state: State, instructions: str | None) -> None:
    """Have the model summarise the messages, and put its summary in their place."""
    with state.acting("compact"):
        snap = state.snapshot_now()
        state.refuse_in_turn(snap, "compact", own=True)
        seen = list(snap.messages)
        if not seen:
            raise ValueError("compact: the State has no messages")
        before = context_tokens(setup, state)
        wish = INSTRUCTIONS if instructions is None else f"{INSTRUCTIONS}\n\n{instructions}"
        spent = NO_USAGE
        try:
            reply = await respond(setup, state, side_request(setup, [*seen, Message.user(wish)]), None)
            spent = reply.usage
            if reply.refusal or reply.cut_off or not reply.text.strip():
                what = "refused to write a summary" if reply.refusal else "wrote no whole summary"
                raise OutputError(f"{reply.model or setup.model.name} {what}; the messages stay as they are")
        except BaseException as error:
            record_error(state, error, "compact", usage=spent + usage_of(error))
            raise
        change = ContextChange(
            kind="compact", summary=reply.text, covers=len(seen), tokens_before=before, usage=reply.usage
        )
        state.change_context("compact", lambda snap: change, own=True)


def context_used(setup: Setup, state: State) -> float | None:
    """Return the fraction of the context window that the next request takes; None where the window is unknown."""
    window = setup.model.context_window
    return None if window is None else context_tokens(setup, state) / window


class Compacting(Protocol):
    """What ``CompactIfFull`` needs of an Agent."""

    def context_used(self, state: State) -> float | None:
        """Return the fraction of the context window in use."""
        ...

    async def compact(self, state: State, instructions: str | None = None) -> None:
        """Compact it."""


@attrs.frozen(eq=False, repr=False)
class CompactIfFull(Value):
    """A block of a loop: ``await compact_if_full(agent, state)`` compacts when the context is nearly full.

    Does nothing where the model's window is unknown, or where there is nothing yet that a summary could replace.
    """

    at: float = attrs.field(
        default=0.6, validator=attrs.validators.and_(attrs.validators.gt(0), attrs.validators.le(1))
    )
    """Fraction of the context window, in (0, 1]."""
    instructions: str | None = None
    """What the summary should look after, besides the usual."""

    async def __call__(self, agent: Compacting, state: State) -> None:
        """Compact if it is time. Checkpoint: only where it compacts."""
        used = agent.context_used(state)
        if used is not None and used > self.at and _can_shrink(state.snapshot_now()):
            await agent.compact(state, self.instructions)


def _can_shrink(snap: Snapshot) -> bool:
    """Whether a summary could replace enough: else compacting would go on at every turn, and make nothing smaller.

    What a compaction leaves in place, the first message and the summary before, doesn't count.
    """
    if snap.calls or snap.request_open:
        return False
    messages = list(snap.messages)
    people = (m for m in messages if m.role == "user" and not m.is_notice and not m.is_summary)
    first = next(people, None)
    if not any(message.role != "user" for message in messages):
        return False
    whole = sum(map(message_tokens, messages))
    fixed = sum([message_tokens(m) for m in messages if m is first or m.is_summary])
    return whole - fixed >= LEAST_REPLACED * whole


compact_if_full: Final = CompactIfFull()
"""``CompactIfFull`` with its defaults."""

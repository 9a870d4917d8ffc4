"""What ``agent.stream`` tells of: everything that happens in a run and its subagents, each event with its State."""

from __future__ import annotations

from typing import TypeAlias, final

import attrs

from ..record._blocks import ResultBlock, ToolCall
from ..record._entries import Entry, ToolOutcome
from ..record._frozen import Json
from ..record._messages import TextDelta, ThinkingDelta, Usage
from ..record._value import Value
from ..state import State


@final
@attrs.frozen(eq=False, repr=False)
class StreamedText(TextDelta):
    """A ``TextDelta`` with its State: a piece of a reply's text."""

    state: State
    """Whose reply it is."""


@final
@attrs.frozen(eq=False, repr=False)
class StreamedThinking(ThinkingDelta):
    """A ``ThinkingDelta`` with its State: a piece of a reply's reasoning."""

    state: State
    """Whose reply it is."""


@final
@attrs.frozen(eq=False, repr=False)
class ToolStart(Value):
    """A tool call starts."""

    state: State
    """Whose call it is."""
    call: ToolCall
    """The call."""


@final
@attrs.frozen(eq=False, repr=False)
class ToolProgress(Value):
    """A tool says how far it is; see ``Progress``."""

    state: State
    """Whose call it is."""
    call: ToolCall
    """The call."""
    done: float
    """How much is done."""
    total: float | None
    """Of how much; ``None`` = unknown."""
    text: str | None
    """What it is doing; ``None`` where it didn't say."""


@final
@attrs.frozen(eq=False, repr=False)
class ToolEnd(Value):
    """A tool call got its result, whichever way it ended. What its thread gives later is an ``EntryAdded`` only."""

    state: State
    """Whose call it is."""
    call: ToolCall
    """The call."""
    result: tuple[ResultBlock, ...]
    """What the model gets."""
    outcome: ToolOutcome
    """How the call ended."""


@final
@attrs.frozen(eq=False, repr=False)
class EntryAdded(Value):
    """Something was recorded. With a store it may not be saved yet: ``state.watch`` shows what is."""

    state: State
    """In which history."""
    entry: Entry
    """The entry."""


@final
@attrs.frozen(eq=False, repr=False)
class RunEnd(Value):
    """A run has ended, the streamed one or a subagent's. Nothing of this run comes after it.

    A late result that comes when its run is over is in the history alone.
    """

    state: State
    """Which State was run."""
    answer: Json
    """``state.answer`` at this moment."""
    error: BaseException | None
    """What comes out of the run; ``None`` where it ended normally."""
    usage: Usage
    """What this run used, with its subagents."""


Event: TypeAlias = StreamedText | StreamedThinking | ToolStart | ToolProgress | ToolEnd | EntryAdded | RunEnd
"""What a stream gives. ``isinstance(event, TextDelta)`` or ``match`` tells which; each has its ``state``."""

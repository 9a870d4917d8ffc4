"""What happened: the 11 classes of history entries, and the values they hold.

``at`` and ``error`` don't count in equality: two runs that did the same have equal histories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, ClassVar, Literal, TypeAlias, final

import attrs

from ._blocks import ResultBlock, ToolCall
from ._frozen import FrozenDict, Json, freeze, freeze_dict, joined, joined_or_none
from ._messages import NO_USAGE, Message, Reply, Usage
from ._value import Value


class ToolOutcome(StrEnum):
    """How a tool call ended."""

    DONE = "done"
    """The tool gave its result."""
    ERROR = "error"
    """The tool failed in a way the model should hear about."""
    INPUT_ERROR = "input_error"
    """The arguments were wrong; the tool didn't run."""
    ABORTED = "aborted"
    """An exception ended the run, or the process died. Its text says whether it may have had effects."""
    INTERRUPTED = "interrupted"
    """The run was cancelled. Its text says whether it may have had effects."""
    DENIED = "denied"
    """A permission refused it."""
    CANCELLED = "cancelled"
    """A refusal of another call stopped the turn."""


def _freeze_answer(answer: object) -> Json:
    return freeze(answer, "answer")


def _freeze_content(content: object) -> Json:
    return freeze(content, "content")


def _freeze_amount(amount: object) -> Json:
    return str(amount) if isinstance(amount, Decimal) else freeze(amount, "amount")


def _outcome(outcome: ToolOutcome | str) -> ToolOutcome:
    return outcome if type(outcome) is ToolOutcome else ToolOutcome(outcome)


def _freeze_data(data: object) -> FrozenDict:
    return data if type(data) is FrozenDict else freeze_dict(data, "data")


def _freeze_notes(notes: object) -> FrozenDict:
    return notes if type(notes) is FrozenDict else freeze_dict(notes, "extra_data")


def _names(names: Iterable[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        raise TypeError(f"names must be a list of text, not one text: [{names!r:.80}]")
    return tuple([joined(name) for name in names])


def _names_or_none(names: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if names is None else _names(names)


def _as_tuple(messages: Iterable[Message]) -> tuple[Message, ...]:
    return tuple(messages)


def _one_of(*legal: str) -> Callable[[object, attrs.Attribute[Any], object], None]:
    def check(_: object, field: attrs.Attribute[Any], value: object) -> None:
        if value not in legal:
            raise ValueError(f"{field.name} must be one of {', '.join(legal)}, not {value!r:.80}")

    return check


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(_names(names)))


@final
@attrs.frozen(eq=False, repr=False)
class StoppedByUntil(Value):
    """A loop's ``until`` function was true."""

    name: str = attrs.field(converter=joined)
    """The function's name."""


@final
@attrs.frozen(eq=False, repr=False)
class StoppedByLimit(Value):
    """A loop's ``limit`` was reached."""

    turns: int
    """How many turns that call of the loop had."""


@final
@attrs.frozen(eq=False, repr=False)
class StoppedByFinish(Value):
    """``finish(answer)`` was called. TypeError or ValueError where the answer has no JSON form: see ``freeze``."""

    answer: Json = attrs.field(default=None, converter=_freeze_answer)
    """Its answer in JSON form; ``None`` = none, what was there stays."""


@final
@attrs.frozen(eq=False, repr=False)
class StoppedByPermission(Value):
    """A permission refused a call and stopped the run."""

    call: ToolCall
    """The call that was refused."""
    permission: str = attrs.field(converter=joined)
    """The permission's ``repr``."""


@final
@attrs.frozen(eq=False, repr=False)
class StoppedByBudget(Value):
    """The run's budget was used up."""

    what: str = attrs.field(converter=joined)
    """``cost``, ``tokens``, ``requests`` or ``seconds``."""
    limit: Json = attrs.field(converter=_freeze_amount)
    """The most that could be used: a number, or US dollars as text, such as ``"0.50"``."""
    used: Json = attrs.field(converter=_freeze_amount)
    """What was used, in the same form."""


Stopped: TypeAlias = StoppedByUntil | StoppedByLimit | StoppedByFinish | StoppedByPermission | StoppedByBudget
"""Why a run is set to stop."""


@final
@attrs.frozen(eq=False, repr=False)
class Exchange(Value):
    """A side question and its answer. TypeError or ValueError where that has no JSON form: see ``freeze``."""

    question: str = attrs.field(converter=joined)
    """What was asked, of the model or of a person."""
    answer: Json = attrs.field(converter=_freeze_answer)
    """The answer in JSON form."""


@final
@attrs.frozen(kw_only=True, eq=False, repr=False)
class ContextChange(Value):
    """How ``messages`` were rewritten, and what replay needs to do it again."""

    kind: Literal["import", "compact", "clear_tool_results", "restore"] = attrs.field(
        validator=_one_of("import", "compact", "clear_tool_results", "restore")
    )
    """Which of them it was; ``import`` is ``State(messages=...)``."""
    messages: tuple[Message, ...] = attrs.field(default=(), converter=_as_tuple)
    """``import``: the messages the State began with."""
    summary: str | None = attrs.field(default=None, converter=joined_or_none)
    """``compact``: what stands for the messages taken out."""
    covers: int | None = None
    """``compact``: how many messages the summary covers; those behind them stay."""
    cleared: tuple[str, ...] = attrs.field(default=(), converter=_names)
    """``clear_tool_results``: ids of the calls whose results were cleared."""
    restored_to: int | None = None
    """``restore``: length of the history whose values came back."""
    tokens_before: int | None = None
    """About how many tokens the messages had; ``None`` where unknown."""
    tokens_after: int | None = None
    """About how many they have since; ``None`` where unknown."""
    usage: Usage = NO_USAGE
    """Of the request that wrote the summary."""


@final
@attrs.frozen(eq=False, repr=False)
class ModelEvent(Value):
    """Something a model adapter reported. TypeError where *data* is no dict of JSON values."""

    kind: str = attrs.field(converter=joined)
    """``retry``, ``fallback``, ``rate_limited``, or the adapter's own word."""
    text: str = attrs.field(default="", converter=joined)
    """What happened, in words for a person."""
    data: FrozenDict = attrs.field(factory=FrozenDict, converter=_freeze_data)
    """What happened, for a program."""


@final
@attrs.frozen(kw_only=True, eq=False, repr=False)
class AgentInfo(Value):
    """Which Agent a run had."""

    name: str | None = attrs.field(default=None, converter=joined_or_none)
    """The Agent's name; ``None`` where it has none."""
    model: str = attrs.field(default="", converter=joined)
    """``provider/name``"""
    system_sha256: str | None = attrs.field(default=None, converter=joined_or_none)
    """SHA-256 (FIPS 180-4) of the system prompt's UTF-8, 64 hex digits; ``None`` without one."""
    tools: tuple[str, ...] = attrs.field(default=(), converter=_sorted)
    """Names of its tools, sorted."""
    mcp_servers: tuple[str, ...] = attrs.field(default=(), converter=_sorted)
    """Names of its MCP servers, sorted."""


@attrs.frozen(eq=False, repr=False, init=False)
class EntryBase(Value):
    """What every entry has."""

    seq: int
    """Position in history, from 0."""
    turn: int
    """The State's turn with this entry applied."""
    at: datetime = attrs.field(eq=False)
    """When it was recorded, UTC, to the microsecond; never before the entry before it."""
    raw: bytes | None = attrs.field(init=False, default=None, eq=False, repr=False)
    """The JSON that it was loaded from, where this version doesn't know all of it; else ``None``."""

    def keep(self, raw: bytes) -> None:
        """Remember what it was loaded from."""
        object.__setattr__(self, "raw", raw)


@final
@attrs.frozen(eq=False, repr=False)
class MessageEntry(EntryBase):
    """``add_message``."""

    content: Message
    """The message."""

    @property
    def kind(self) -> Literal["user", "notice"]:
        """``notice`` for a message from code, else ``user``."""
        return "notice" if self.content.is_notice else "user"


@final
@attrs.frozen(eq=False, repr=False)
class ModelRequestEntry(EntryBase):
    """``think`` sends a request."""

    kind: ClassVar[Literal["model_request"]] = "model_request"
    content: str = attrs.field(converter=joined)
    """The model's name."""
    tools: tuple[str, ...] | None = attrs.field(default=None, converter=_names_or_none)
    """Names of the tools shown; ``None`` = all."""


@final
@attrs.frozen(eq=False, repr=False)
class ModelReplyEntry(EntryBase):
    """The model answered."""

    kind: ClassVar[Literal["model_reply"]] = "model_reply"
    content: Reply
    """The reply."""


@final
@attrs.frozen(eq=False, repr=False)
class ModelEventEntry(EntryBase):
    """The model adapter reported something, such as a retry."""

    kind: ClassVar[Literal["model_event"]] = "model_event"
    content: ModelEvent
    """What it reported."""
    usage: Usage = NO_USAGE
    """Spent on an attempt that was thrown away, and counted by no other entry."""


@final
@attrs.frozen(eq=False, repr=False)
class ToolResultEntry(EntryBase):
    """A tool call got its result, whichever way it ended."""

    kind: ClassVar[Literal["tool_result"]] = "tool_result"
    content: tuple[ResultBlock, ...]
    """What the model gets; ``content[0].text`` for plain text."""
    call: ToolCall
    """The call that it is the result of."""
    outcome: ToolOutcome = attrs.field(default=ToolOutcome.DONE, converter=_outcome)
    """How the call ended."""
    child_ids: tuple[str, ...] = ()
    """Ids of the States of the subagents that the call started."""
    usage: Usage = NO_USAGE
    """Of those subagents, what no earlier entry counted."""
    decided_by: str | None = attrs.field(default=None, converter=joined_or_none)
    """``repr`` of the permission that decided; ``None`` where none did."""
    late: bool = False
    """It came after the call had been closed; the model isn't sent it as the call's result."""
    full: tuple[ResultBlock, ...] | None = None
    """The whole result where the model gets a shortened one."""
    error: BaseException | None = attrs.field(default=None, eq=False, repr=False)
    """The exception that ended the call; not saved, so ``None`` after loading."""

    @property
    def is_error(self) -> bool:
        """True for every outcome except ``done``."""
        return self.outcome is not ToolOutcome.DONE


@final
@attrs.frozen(eq=False, repr=False)
class ExchangeEntry(EntryBase):
    """``ask`` or ``ask_human`` got an answer."""

    kind: Literal["ask", "human"] = attrs.field(validator=_one_of("ask", "human"))
    """Who was asked: the model, or a person."""
    content: Exchange
    """Question and answer."""
    usage: Usage = NO_USAGE
    """What the question cost, all tries included."""


@final
@attrs.frozen(eq=False, repr=False)
class ContextChangeEntry(EntryBase):
    """``State(messages=...)``, ``compact``, ``clear_tool_results`` or ``restore``."""

    kind: ClassVar[Literal["context_change"]] = "context_change"
    content: ContextChange
    """What changed."""


@final
@attrs.frozen(eq=False, repr=False)
class RunStartEntry(EntryBase):
    """A run started."""

    kind: ClassVar[Literal["run_start"]] = "run_start"
    content: AgentInfo
    """The Agent that runs it."""
    parent_id: str | None = None
    """For a subagent: id of the State whose tool call started it; else ``None``."""
    parent_call_id: str | None = None
    """For a subagent: id of that call; else ``None``."""


@final
@attrs.frozen(eq=False, repr=False)
class StopEntry(EntryBase):
    """The run was set to stop; ``content`` is ``None`` where an outer loop took an inner loop's stop back."""

    kind: ClassVar[Literal["stop"]] = "stop"
    content: Stopped | None
    """Why."""


@final
@attrs.frozen(eq=False, repr=False)
class ExtraDataEntry(EntryBase):
    """``State(extra_data=...)`` or ``edit_extra_data()`` changed something."""

    kind: ClassVar[Literal["extra_data"]] = "extra_data"
    content: FrozenDict = attrs.field(converter=_freeze_notes)
    """The top-level keys that changed, with their new values."""
    removed: tuple[str, ...] = attrs.field(default=(), converter=_names)
    """The top-level keys that are gone."""


@final
@attrs.frozen(eq=False, repr=False)
class ErrorEntry(EntryBase):
    """An exception was raised, such as ``"TimeoutError: took too long"``."""

    kind: ClassVar[Literal["error"]] = "error"
    content: str = attrs.field(converter=joined)
    """Name of the exception's class, and its text."""
    action: Literal["think", "use_tools", "ask", "compact", "run"] = attrs.field(
        default="run", validator=_one_of("think", "use_tools", "ask", "compact", "run")
    )
    """What was under way. One of ``think`` takes the open request back."""
    call: ToolCall | None = None
    """The tool call that raised it; ``None`` where it came from elsewhere."""
    usage: Usage = NO_USAGE
    """Tokens spent that no other entry counts."""
    error: BaseException | None = attrs.field(default=None, eq=False, repr=False)
    """The exception itself; not saved, so ``None`` after loading."""


@final
@attrs.frozen(eq=False, repr=False)
class UnknownEntry(EntryBase):
    """Something that a later version of this library recorded: this one keeps it, shows it, and passes over it."""

    kind: str
    """The later version's word for it."""
    content: Json = attrs.field(default=None, converter=_freeze_content)
    """What it holds, in JSON form."""


Entry: TypeAlias = (
    MessageEntry
    | ModelRequestEntry
    | ModelReplyEntry
    | ModelEventEntry
    | ToolResultEntry
    | ExchangeEntry
    | ContextChangeEntry
    | RunStartEntry
    | StopEntry
    | ExtraDataEntry
    | ErrorEntry
    | UnknownEntry
)
"""An entry of a State's history. Check ``kind``, or use ``isinstance`` or ``match``, to know its ``content``."""


@final
@attrs.frozen(kw_only=True, eq=False, repr=False)
class StateInfo(Value):
    """What a store lists of a State without loading it."""

    id: str
    """The name it is saved under."""
    first_message: str | None = None
    """Text of the first message from the person's side, shortened to 200 characters; ``None`` where there is none."""
    created_at: datetime | None = None
    """When its first entry was recorded, UTC."""
    updated_at: datetime | None = None
    """When its latest saved entry was recorded, UTC."""
    turn: int = 0
    """How many model replies there were."""
    stopped: Stopped | None = None
    """Why its last run stopped; ``None`` where none is over."""
    finished: bool = False
    """Whether ``finish`` was called."""
    parent_id: str | None = None
    """For a subagent: id of the State whose tool call started it; else ``None``."""

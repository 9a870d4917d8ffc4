"""Snapshot: all values of a State at one moment.

A Snapshot isn't changed once it is made. What it shares with other moments (history, messages, the results of an open
reply, the ids of calls) only ever grows behind its length.
"""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import Final, final

from ._blocks import ToolCall, ToolResultBlock
from ._conversation import call_ids_of
from ._entries import AgentInfo, Entry, MessageEntry, Stopped, ToolResultEntry
from ._frozen import FrozenDict, Json
from ._growing import Prefix
from ._messages import NO_USAGE, Message, Usage

_new: Final = object.__new__
NO_IDS: Final[frozenset[str]] = frozenset()


@final
class Snapshot:
    """All values of a State at one moment, its id aside. Only replay makes one, and only it uses the private fields."""

    __slots__ = (
        "_call_ids",
        "_entries",
        "_messages",
        "_messages_length",
        "_open_ids",
        "_results",
        "_results_length",
        "answer",
        "answer_is_given",
        "calls",
        "context_count",
        "created_at",
        "extra_data",
        "finished",
        "last_run",
        "late",
        "length",
        "parent_call_id",
        "parent_id",
        "request_open",
        "shown_tools",
        "stopped",
        "turn",
        "updated_at",
        "usage",
        "waiting",
        "waiting_length",
    )

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self.length: int = 0
        """Entries in the history."""
        self._messages: list[Message] = []
        self._messages_length = 0
        self._call_ids: dict[str, int] = {}
        """Every call id of the history, with the position of its reply."""
        self.calls: tuple[ToolCall, ...] = ()
        """The calls of the open reply, those with a result included; empty when no reply is open."""
        self._open_ids: frozenset[str] = NO_IDS
        self._results: dict[str, ToolResultBlock] = {}
        self._results_length = 0
        self.waiting: list[MessageEntry] = []
        """Messages that wait for a reply or for results, and their number in waiting_length."""
        self.waiting_length: int = 0
        self.request_open: bool = False
        """Whether a request has no reply yet."""
        self.shown_tools: tuple[str, ...] | None = None
        """Names of the tools that the last request showed; None = all."""
        self.turn: int = 0
        """Requests so far, those that failed and those gone back behind aside."""
        self.answer: Json = None
        """What ``agent.finish`` was given, else the text of the latest reply without calls."""
        self.answer_is_given: bool = False
        """Whether the answer is what ``agent.finish`` was given."""
        self.finished: bool = False
        """Whether ``agent.finish`` was called: no request can follow."""
        self.stopped: Stopped | None = None
        """Why the last run stopped; None while it runs, and before the first."""
        self.usage: Usage = NO_USAGE
        """Sum over all entries, those gone back behind included: they were paid for."""
        self.extra_data: FrozenDict = FrozenDict()
        """The code's own values."""
        self.created_at: datetime | None = None
        """Time of the first entry, UTC; None without entries."""
        self.updated_at: datetime | None = None
        """Time of the last entry, UTC; None without entries."""
        self.parent_id: str | None = None
        """Id of the State whose tool call made this one."""
        self.parent_call_id: str | None = None
        """Id of that tool call."""
        self.last_run: AgentInfo | None = None
        """The Agent of the latest run."""
        self.late: tuple[ToolResultEntry, ...] = ()
        """Results that came late and that the model hasn't been told of."""
        self.context_count: tuple[int, int] | None = None
        """Tokens of the conversation up to the last reply, as its provider counted them, and how many of the messages
        they cover; None where unknown.
        """

    @property
    def history(self) -> Prefix[Entry]:
        """All entries."""
        return Prefix(self._entries, self.length)

    @property
    def messages(self) -> Prefix[Message]:
        """What the model sees at the next request."""
        return Prefix(self._messages, self._messages_length)

    @property
    def pending_calls(self) -> tuple[ToolCall, ...]:
        """Calls of the open reply without a result."""
        if not self._results_length:
            return self.calls
        closed = set(islice(self._results, self._results_length))
        return tuple([call for call in self.calls if call.id not in closed])

    def is_pending(self, call_id: str) -> bool:
        """Whether the call of this id has no result yet."""
        if call_id not in self._open_ids:
            return False
        if len(self._results) == self._results_length:
            return call_id not in self._results
        return call_id not in set(islice(self._results, self._results_length))

    def knows_call(self, call_id: str) -> bool:
        """Whether the history has a call of this id."""
        position = self._call_ids.get(call_id, self.length)
        # A commit that was interrupted may have left an id behind: believe the entry.
        return position < self.length and call_id in call_ids_of(self._entries[position])

    def holds(self, entry: MessageEntry) -> bool:
        """Whether this message still waits to go into ``messages``."""
        return self.waiting_length > 0 and self.waiting[0].seq <= entry.seq

    def detached(self) -> Snapshot:
        """Return the same moment on lists of its own, for another State to grow."""
        new = self._copy()
        new._entries = self._entries[: self.length]
        new._messages = self._messages[: self._messages_length]
        new._call_ids = dict(self._call_ids)
        new._results = dict(self._results)
        new.waiting = self.waiting[: self.waiting_length]
        return new

    def _copy(self) -> Snapshot:
        new: Snapshot = _new(Snapshot)
        new._entries = self._entries
        new.length = self.length
        new._messages = self._messages
        new._messages_length = self._messages_length
        new._call_ids = self._call_ids
        new.calls = self.calls
        new._open_ids = self._open_ids
        new._results = self._results
        new._results_length = self._results_length
        new.waiting = self.waiting
        new.waiting_length = self.waiting_length
        new.request_open = self.request_open
        new.shown_tools = self.shown_tools
        new.turn = self.turn
        new.answer = self.answer
        new.answer_is_given = self.answer_is_given
        new.finished = self.finished
        new.stopped = self.stopped
        new.usage = self.usage
        new.extra_data = self.extra_data
        new.created_at = self.created_at
        new.updated_at = self.updated_at
        new.parent_id = self.parent_id
        new.parent_call_id = self.parent_call_id
        new.last_run = self.last_run
        new.late = self.late
        new.context_count = self.context_count
        return new

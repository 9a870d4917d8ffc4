"""The values of a State at one moment, and the properties that read them."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, final

from ..record._blocks import ToolCall
from ..record._entries import Entry, Stopped
from ..record._frozen import FrozenDict, Json
from ..record._growing import Prefix
from ..record._messages import Message, Usage
from ..record._snapshot import Snapshot


class Values:
    """The read-only properties that State and StateSnapshot share. Each reads one field; none searches."""

    __slots__ = ("_id", "_snap")

    _id: str
    _snap: Snapshot

    @property
    def id(self) -> str:
        """The name a store saves the State under."""
        return self._id

    @property
    def messages(self) -> Prefix[Message]:
        """What the model sees at the next ``think``."""
        return self._snap.messages

    @property
    def history(self) -> Prefix[Entry]:
        """Everything that happened, one entry each."""
        return self._snap.history

    @property
    def answer(self) -> Json:
        """The value given to ``finish``, else the text of the latest reply without tool calls, else ``None``."""
        return self._snap.answer

    @property
    def finished(self) -> bool:
        """Whether ``finish`` was called."""
        return self._snap.finished

    @property
    def stopped(self) -> Stopped | None:
        """Why this run is set to stop."""
        return self._snap.stopped

    @property
    def pending_calls(self) -> tuple[ToolCall, ...]:
        """Tool calls the model asked for that have no result yet."""
        return self._snap.pending_calls

    @property
    def turn(self) -> int:
        """How many model replies there were; one more while a request waits on the model."""
        return self._snap.turn

    @property
    def usage(self) -> Usage:
        """Tokens, requests and cost of every ``think``, ``ask`` and ``compact``, and of the subagents."""
        return self._snap.usage

    @property
    def extra_data(self) -> FrozenDict:
        """Your notepad, read-only; ``edit_extra_data`` changes it."""
        return self._snap.extra_data

    @property
    def created_at(self) -> datetime | None:
        """When the first entry was recorded, UTC; ``None`` for an empty history."""
        return self._snap.created_at

    @property
    def updated_at(self) -> datetime | None:
        """When the latest entry was recorded, UTC; ``None`` for an empty history."""
        return self._snap.updated_at

    @property
    def parent_id(self) -> str | None:
        """For a subagent: id of the State whose tool call started it."""
        return self._snap.parent_id

    @property
    def parent_call_id(self) -> str | None:
        """For a subagent: id of that call."""
        return self._snap.parent_call_id


@final
class StateSnapshot(Values):
    """The frozen value of a State at one moment. Equal to another whose history is equal."""

    __slots__ = ()

    def __init__(self, state_id: str, snapshot: Snapshot) -> None:
        object.__setattr__(self, "_id", state_id)
        object.__setattr__(self, "_snap", snapshot)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a StateSnapshot is frozen: {name} can't be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a StateSnapshot is frozen: {name} can't be deleted")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StateSnapshot):
            return NotImplemented
        return self._snap is other._snap or self.history == other.history

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # equality compares whole histories

    def __repr__(self) -> str:
        return f"<StateSnapshot {self._id}: {self._snap.length} entries, turn {self._snap.turn}>"

    def __copy__(self) -> StateSnapshot:
        return self

    def __deepcopy__(self, memo: object) -> StateSnapshot:
        return self

    def __reduce__(self) -> tuple[object, tuple[str, list[Entry]]]:
        return _rebuild, (self._id, list(self.history))


def _rebuild(state_id: str, history: list[Entry]) -> StateSnapshot:
    from ..record._replay import replay

    return StateSnapshot(state_id, replay(history))

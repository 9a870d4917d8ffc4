"""State: one conversation and its record, as its users see it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from types import NoneType
from typing import Final, NoReturn, SupportsIndex, cast, final, get_args

import trio

from .._hooks import witness
from ..record._blocks import ToolCall
from ..record._conversation import clearable, first_fault
from ..record._entries import (
    AgentInfo,
    ContextChange,
    ContextChangeEntry,
    Entry,
    EntryBase,
    ErrorEntry,
    Exchange,
    ExchangeEntry,
    ExtraDataEntry,
    MessageEntry,
    ModelEvent,
    ModelEventEntry,
    ModelReplyEntry,
    ModelRequestEntry,
    RunStartEntry,
    StopEntry,
    Stopped,
    StoppedByFinish,
    ToolResultEntry,
)
from ..record._frozen import FrozenDict, freeze_dict
from ..record._messages import Message, Reply
from ..record._replay import replay
from ..record._snapshot import Snapshot
from ._clock import new_id
from ._extra_data import ExtraDataEdit
from ._receipts import Receipt
from ._recorder import Recorder
from ._snapshot import StateSnapshot
from ._watch import Watch

_ID = r"[A-Za-z0-9_-]{1,128}"


@final
class State(Recorder):
    """One conversation with its record: the messages the model sees, everything that happened, the answer.

    Works in a plain script without an event loop, in tasks and in threads. Reading never changes anything; every
    change adds one entry to ``history``, from which all values are computed.

    Args:
        id: The name a store saves it under: 1 to 128 letters, digits, ``_`` and ``-``. Made up when left out, such
            that ids sort by age.
        messages: Messages to start from.
        extra_data: Your notepad to start from, JSON values.
        history: The history of another State, to rebuild it. Not together with *messages* or *extra_data*.

    Raises:
        TypeError: *messages* isn't an iterable of Message, or *extra_data* isn't JSON.
        ValueError: a bad *id*; a tool call without a result in *messages*; a *history* that can't have happened.

    Example:
        >>> state = State(messages=[Message.user("Find the bug in main.py")])
        >>> state.turn
        0
    """

    __slots__ = ("__weakref__",)

    def __init__(
        self,
        *,
        id: str | None = None,  # the name it has everywhere
        messages: Iterable[Message] | None = None,
        extra_data: dict[str, object] | None = None,
        history: Iterable[Entry] | None = None,
    ) -> None:
        snapshot = Snapshot()
        if history is not None:
            if messages is not None or extra_data is not None:
                raise ValueError("history has the messages and extra_data in it: State(history=other.history)")
            snapshot = replay(_entries(history))
        super().__init__(new_id() if id is None else _checked_id(id), snapshot)
        imported = _checked_messages(messages) if messages is not None else ()
        data = None if extra_data is None else freeze_dict(extra_data, "extra_data")
        if imported:
            change = ContextChange(kind="import", messages=imported)
            self.commit(lambda snap, at: ContextChangeEntry(snap.length, snap.turn, at, change))
        if data:
            self.commit(lambda snap, at: ExtraDataEntry(snap.length, snap.turn, at, data))
        if (tell := witness.get()) is not None:
            tell(self)

    def add_message(self, message: Message) -> Receipt:
        """Add a message from the person or a notice from your code.

        While the model is being waited on, or calls are pending, it goes into ``history`` at once and into
        ``messages`` right after the reply or the last result.

        Raises:
            TypeError: *message* isn't a Message.
            ValueError: it is a reply, or tool results, or holds nothing to read.
        """
        if not isinstance(message, Message):
            raise TypeError(
                f"add_message takes a Message, not {type(message).__name__}: state.add_message(Message.user('...'))"
            )
        if message.role != "user":
            raise ValueError(f"add_message takes messages from the person and notices, not role {message.role!r}")
        return Receipt(self, self.commit(lambda snap, at: MessageEntry(snap.length, snap.turn, at, message)))

    def finish(self, answer: object = None) -> Receipt:
        """End the State for good: the loop stops before its next turn. Only ``restore`` takes it back.

        Args:
            answer: Becomes ``state.answer`` in its JSON form, unless it is ``None``.

        Raises:
            TypeError: *answer* has no JSON form.
            ValueError: it holds itself, or is nested too deep; see ``freeze``.
        """
        stopped = StoppedByFinish(answer)
        return Receipt(self, self.commit(lambda snap, at: StopEntry(snap.length, snap.turn, at, stopped)))

    def edit_extra_data(self) -> ExtraDataEdit:
        """Return a block that gives you a copy of ``extra_data`` to change: ``with state.edit_extra_data() as data:``.

        When the block ends normally, what changed becomes one entry; if it raises, nothing changes. Editors take
        turns. In a trio task write ``async with``: it waits for its turn, and at the end for the store, without
        blocking the event loop.

        Raises:
            RuntimeError: inside another edit of the same State; or a plain ``with`` would have to wait in a thread
                that runs an event loop.
            TypeError: a value isn't JSON; the message names the key. Nothing changes.
            ValueError: a value holds itself, or is nested too deep. Nothing changes.
        """
        return ExtraDataEdit(self)

    def compact(self, summary: str) -> Receipt:
        """Replace ``messages`` by the first message from the person and *summary*. The history keeps everything.

        Raises:
            TypeError: *summary* isn't text.
            ValueError: it is blank; calls are pending; or a request, or another action on the messages, is on.
        """
        if not isinstance(summary, str):
            raise TypeError(f"summary must be str, not {type(summary).__name__}")
        if not summary.strip():
            raise ValueError(
                "the summary is blank; the model would know nothing of what was: state.compact('We found ...')"
            )
        return self.change_context("compact", lambda snap: ContextChange(kind="compact", summary=summary))

    def clear_tool_results(self, keep_last: int = 5) -> Receipt:
        """Replace the content of older tool results in ``messages`` by a line that says the history keeps them.

        Args:
            keep_last: How many of the latest results stay. Those cleared already don't count.

        Raises:
            TypeError: *keep_last* is no int.
            ValueError: it is negative; calls are pending; or a request is open.
        """
        _check_count("keep_last", keep_last)

        def change(snap: Snapshot) -> ContextChange | None:
            ids = clearable(snap.messages, keep_last)
            return ContextChange(kind="clear_tool_results", cleared=ids) if ids else None

        return self.change_context("clear_tool_results", change)

    def restore(self, snapshot: StateSnapshot) -> Receipt:
        """Go back, or forward again, to a snapshot of this State. The history keeps what was in between.

        Everything returns to the snapshot's value, except ``id``, ``usage``, ``history`` and ``updated_at``.

        Raises:
            TypeError: *snapshot* isn't a StateSnapshot.
            ValueError: its history isn't the beginning of this State's; it was taken in the middle of a turn; or this
                State is in the middle of one.
        """
        if not isinstance(snapshot, StateSnapshot):
            raise TypeError(
                f"restore takes a StateSnapshot, not {type(snapshot).__name__}: state.restore(state.snapshot())"
            )
        target = snapshot._snap
        if target.request_open or target.calls:
            raise ValueError("this snapshot was taken in the middle of a turn; take one between turns")
        if not target.history.prefix_of(self._snap.history):
            raise ValueError(
                f"this snapshot's history isn't the beginning of that of State {self._id}; it belongs to another State"
            )

        def make(snap: Snapshot, at: datetime) -> Entry:
            self.refuse_in_turn(snap, "restore")
            change = ContextChange(kind="restore", restored_to=target.length)
            return ContextChangeEntry(snap.length, target.turn, at, change)

        return Receipt(self, self.commit(make, restored=target))

    def change_context(
        self, name: str, change: Callable[[Snapshot], ContextChange | None], *, own: bool = False
    ) -> Receipt:
        """Record what *change* returns for the moment it is recorded in; ``None`` changes nothing.

        *own*: it is the end of the action that is on, not something in its way.
        """

        def make(snap: Snapshot, at: datetime) -> Entry | None:
            self.refuse_in_turn(snap, name, own=own)
            content = change(snap)
            return None if content is None else ContextChangeEntry(snap.length, snap.turn, at, content)

        return Receipt(self, self.commit(make))

    def refuse_in_turn(self, snap: Snapshot, name: str, *, own: bool = False) -> None:
        """Raise ValueError where *name* can't be done: in the middle of a turn, or of another change of messages."""
        if snap.calls:
            pending = snap.pending_calls
            raise ValueError(
                f"{name}: {len(pending)} tool calls are pending ({pending[0].name}); await agent.use_tools(state) first"
            )
        if snap.request_open:
            raise ValueError(f"{name}: a request waits on the model; call it before or after think")
        if self._action == "compact" and not own:
            raise ValueError(f"{name}: agent.compact is on; await it first")

    def snapshot(self) -> StateSnapshot:
        """Return the State's value at this moment; it never changes. O(1)."""
        return StateSnapshot(self._id, self._snap)

    def fork(self, id: str | None = None) -> State:  # the name it has everywhere
        """Return a new State with an equal history and an id of its own, in no store and not running.

        Args:
            id: As of ``State``; made up when left out.

        Raises:
            TypeError: *id* is no text.
            ValueError: a request waits on the model; or a bad *id*.
        """
        snap = self._snap
        if snap.request_open:
            raise ValueError("fork: a request waits on the model; fork before or after think")
        fork = State(id=id)
        fork._snap = snap.detached()
        fork._children = self._children and self._children.copy()
        fork.begun_calls = frozenset([call.id for call in snap.pending_calls])
        return fork

    def child(self, child_id: str) -> State:
        """Return the State of a subagent that a tool call of this one started, in this process.

        Raises:
            KeyError: no call of this State has started it; ``ToolResultEntry.child_ids`` has those that did.
            ValueError: it ran in another process; ``await state.load_child(child_id)`` opens it from the store.
        """
        if (found := self._known_child(child_id)) is not None:
            return found
        raise ValueError(
            f"subagent {child_id} of State {self._id} isn't in this process; with a store, open it from there:"
            f" await state.load_child({child_id!r})"
        )

    async def load_child(self, child_id: str) -> State:
        """Return the State of a subagent: from this process, else from the store of this State. Checkpoint: yes.

        Raises:
            KeyError: no call of this State has started it.
            ValueError: it ran in another process, and this State is in no store.
            StateNotFoundError: the store doesn't have it.
            CorruptStoreError: what is saved can't be read.
        """
        await trio.lowlevel.checkpoint()
        if (found := self._known_child(child_id)) is not None:
            return found
        if self.store is None:
            raise ValueError(
                f"subagent {child_id} of State {self._id} can't be opened: it isn't in this process, and this State is"
                " in no store; save both: Agent(..., store=FileStore('states'))"
            )
        return cast("State", await self.store.load(child_id))

    def _known_child(self, child_id: str) -> State | None:
        """Return the child if it is in this process; KeyError if there is no such child."""
        if self._children is not None and (found := self._children.get(child_id)) is not None:
            return cast("State", found)
        if not any(isinstance(entry, ToolResultEntry) and child_id in entry.child_ids for entry in self.history):
            raise KeyError(f"State {self._id} has no subagent {child_id!r}")
        return None

    def watch(self, after: int = 0) -> Watch:
        """Return an async iterator over the entries from position *after* on, live.

        With a store an entry is seen once it is durable. Ends when the State is finished and no run is on, or when it
        is closed: ``async with state.watch() as entries:``.

        Args:
            after: How many entries you have seen already.

        Raises:
            TypeError: *after* is no int.
            ValueError: it is negative.
        """
        _check_count("after", after)
        return Watch(self, after)

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            "a State isn't copied or pickled: two would have one id; write state.fork(), or keep state.snapshot()"
        )

    def __str__(self) -> str:
        from ._show import show  # loaded by who looks at a State; most programs don't

        return show(self._snap)

    def __repr__(self) -> str:
        from ._show import standing

        return f"<State {self._id}: {self._snap.length} entries, turn {self._snap.turn}, {standing(self._snap)}>"

    def _repr_html_(self) -> str:
        from ._show import show_html

        return show_html(self._id, self._snap)


def _check_count(name: str, count: object) -> None:
    if not isinstance(count, int) or isinstance(count, bool):
        raise TypeError(f"{name} must be an int, not {type(count).__name__}")
    if count < 0:
        raise ValueError(f"{name} must be 0 or more (got {count})")


def _checked_id(state_id: object) -> str:
    if not isinstance(state_id, str):
        raise TypeError(f"id must be str, not {type(state_id).__name__}")
    if not re.fullmatch(_ID, state_id):
        raise ValueError(f"id {state_id!r:.150}: use 1 to 128 letters, digits, _ and -, such as 'bug-1'")
    return str.__str__(state_id)


def _checked_messages(messages: object) -> tuple[Message, ...]:
    if isinstance(messages, str | bytes | Message) or not isinstance(messages, Iterable):
        raise TypeError(
            f"messages must be a list of Message, not {type(messages).__name__}: State(messages=[Message.user('...')])"
        )
    checked: list[Message] = []
    for message in messages:
        if not isinstance(message, Message):
            raise TypeError(
                f"messages[{len(checked)}] is a {type(message).__name__}; make it a Message: Message.user('...')"
            )
        checked.append(message)
    if fault := first_fault(checked):
        raise ValueError(fault)
    return tuple(checked)


_CONTENT: Final[dict[type, type | tuple[type, ...]]] = {
    MessageEntry: Message,
    ModelRequestEntry: str,
    ModelReplyEntry: Reply,
    ModelEventEntry: ModelEvent,
    ToolResultEntry: tuple,
    ExchangeEntry: Exchange,
    ContextChangeEntry: ContextChange,
    RunStartEntry: AgentInfo,
    StopEntry: (*get_args(Stopped), NoneType),
    ExtraDataEntry: FrozenDict,
    ErrorEntry: str,
}


def _entries(history: Iterable[object]) -> Iterator[Entry]:
    """Check what no type checker may have checked; replay checks how entries follow each other."""
    for position, given in enumerate(history):
        if not isinstance(given, EntryBase):
            raise TypeError(
                f"history[{position}] is a {type(given).__name__}, not an entry: State(history=other.history)"
            )
        entry = cast("Entry", given)
        if not isinstance(entry.content, _CONTENT.get(type(entry), object)) or not isinstance(entry.at, datetime):
            raise TypeError(
                f"history[{position}]: no {type(entry).__name__} has such a content or time: {entry!r:.200}"
            )
        if isinstance(entry, ToolResultEntry) and not isinstance(entry.call, ToolCall):
            raise TypeError(f"history[{position}]: its call is a {type(entry.call).__name__}, not a ToolCall")
        yield entry

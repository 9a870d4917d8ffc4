"""What a run is plugged into: Model, Tool, Store and Reporter, small enough to write your own."""

from __future__ import annotations

import builtins
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from types import EllipsisType
from typing import Any, Self, TypeAlias, final

import trio

from ._errors import CorruptStoreError, StateNotFoundError, StoreError
from ._tool_contract import CallKey as CallKey
from ._tool_contract import Hints as Hints
from ._tool_contract import OfCall as OfCall
from ._tool_contract import OnProgress as OnProgress
from ._tool_contract import Progress as Progress
from ._tool_contract import RecordLate as RecordLate
from ._tool_contract import Tool as Tool
from ._tool_contract import ToolContext as ToolContext
from .record._blocks import ResultBlock, ToolCall
from .record._entries import Entry, ModelEvent, StateInfo, ToolOutcome
from .record._messages import Price, Reply, Request, TextDelta, ThinkingDelta
from .record._snapshot import Snapshot
from .state import Recorder, State, close_after_crash

Emit: TypeAlias = Callable[[TextDelta | ThinkingDelta | ModelEvent], None]
"""How a Model tells what arrives while it arrives. A plain call; it never blocks."""


class Model(ABC):
    """Who thinks. A Model changes no State and makes no connection before its first request."""

    name: str
    """``provider/model``"""
    context_window: int | None = None
    """Tokens that fit, input and output together; ``None`` where unknown."""
    max_tokens: int | None = None
    """Most tokens that a reply has, thinking included; ``None`` where nothing limits it."""
    price: Price | None = None
    """``None`` where unknown."""
    structured_output: bool = False
    """Whether ``Request.returns`` is held to by the provider; else the schema is put in the question."""

    @abstractmethod
    async def respond(self, request: Request, emit: Emit) -> Reply:
        """Send *request* and return the whole reply.

        Checkpoint: yes. Cancelled: the request is given up and its connection closed.

        Raises:
            ProviderError: the provider failed or couldn't be reached.
        """

    def session(self) -> AbstractAsyncContextManager[None]:
        """Return what a run enters around all its requests, to keep connections open between them."""
        return nullcontext()


class Reporter:
    """Watches runs. Every method may be left out; they are called in order, on the thread that runs trio.

    An exception from one comes out of ``run``. Several watch as one with ``Reporters``.
    """

    def on_run_start(self, state: State, agent: Any) -> None:
        """A run starts."""

    def on_think_start(self, state: State) -> None:
        """A request goes to the model."""

    def on_text(self, state: State, text: str) -> None:
        """A piece of the reply's text arrived."""

    def on_thinking(self, state: State, text: str) -> None:
        """A piece of the reply's reasoning arrived."""

    def on_model_event(self, state: State, event: ModelEvent) -> None:
        """Something happened on the way to the reply: a retry, a wait, another model.

        Where ``event.data.get("restarted")`` is true, what on_text and on_thinking told of this reply is thrown away.
        """

    def on_reply(self, state: State, reply: Reply) -> None:
        """The whole reply is there."""

    def on_tool_start(self, state: State, call: ToolCall) -> None:
        """A tool starts."""

    def on_tool_progress(
        self, state: State, call: ToolCall, done: float, total: float | None, text: str | None
    ) -> None:
        """A tool that has a ``Progress`` tells how far it is: *done* of *total* (``None`` = unknown), and with what."""

    def on_tool_end(self, state: State, call: ToolCall, result: tuple[ResultBlock, ...], outcome: ToolOutcome) -> None:
        """A call got its result, whichever way: one that was refused, or cut short, may not have started."""

    def on_entry(self, state: State, entry: Entry) -> None:
        """Something was recorded in the history of a State that is run.

        A run tells of every entry from its ``run_start`` on, each once and in the order of the history: of one before
        any other method is called for its State, and soon where none is. Those are told, too, that other threads
        record, and those that say how the run ended; a result that comes when it is over isn't. With a store an entry
        may not be saved yet. Outside of a run, ``think`` and ``use_tools`` tell of what is recorded while they last.

        Where it raises, the run is cancelled, and is told as it ends of what is recorded then.
        """

    def hears_entries(self) -> bool:
        """Return whether ``on_entry`` is to be called, which takes a task per run. Here: whether a subclass has one.

        Asked when a run starts. Write it where yours passes on to others, of which perhaps none has one.
        """
        return getattr(self.on_entry, "__func__", None) is not Reporter.on_entry

    def on_run_end(self, state: State, error: BaseException | None) -> None:
        """A run ended; *error* is what comes out of it."""


class Store(ABC):
    """Where histories rest. A store does ``append``, ``read``, ``infos``, ``remove`` and ``lease``.

    The rest, ``save``, ``load``, ``list`` and so on, is written once, here, on top of those.
    """

    # What makes JSON of entries is imported where it is used: cattrs is a fifth of all that is imported, and a program
    # that saves nothing doesn't need it.

    lease_seconds: float | None = None
    """After how long a lease runs out that isn't renewed; ``None``: when its holder ends, however that happens."""
    poll_seconds: float = 0.5
    """How often ``watch`` looks, where the store can't be told."""
    times_closed: int = 0
    """How often ``aclose`` was called, where that closes something: who watches since before it gets a StoreError."""

    @abstractmethod
    async def append(self, state_id: str, first_seq: int, entries: Sequence[bytes], info: bytes) -> None:
        """Write *entries* durably, as one.

        Args:
            state_id: The State they belong to.
            first_seq: Position of the first of them. Entries that are there already are compared, not written again.
            entries: JSON objects, one per entry.
            info: A small JSON object, what ``infos`` returns for this State from now on.

        Raises:
            ConflictError: a gap before *first_seq*, or another entry at one of the positions.
            StoreError: it couldn't be written.
        """

    @abstractmethod
    async def read(self, state_id: str, after: int = 0) -> Sequence[bytes]:
        """Return the entries from position *after* on.

        Raises:
            StateNotFoundError: there is no such State.
            CorruptStoreError: they can't be read.
        """

    @abstractmethod
    async def infos(self, *, limit: int | None = None, before: str | None = None) -> Sequence[tuple[str, bytes]]:
        """Return ``(id, info)`` of the States, newest created first, without reading histories.

        Args:
            limit: At most this many.
            before: Only those listed behind the State of this id.
        """

    @abstractmethod
    async def remove(self, state_id: str) -> None:
        """Remove a State, not those of its subagents. One that isn't there is no error.

        Raises:
            RunningElsewhereError: somebody holds it.
        """

    @abstractmethod
    def lease(self, state_id: str) -> AbstractAsyncContextManager[None]:
        """Return what a run holds while it writes: one run of a State at a time.

        It may be left in another task, and another trio run, than it was entered in. While this store object holds it,
        ``append`` through another one is refused; and an ``append`` through this one once it is lost.

        Raises (when entered):
            RunningElsewhereError: somebody else holds it; the message says who, and since when, where that is known.
        """

    async def renew(self, state_id: str) -> None:
        """Make the lease that this object holds last another ``lease_seconds``.

        Raises:
            RunningElsewhereError: it ran out, and somebody else has it.
        """
        await trio.lowlevel.checkpoint()

    async def changed(self, state_id: str) -> None:
        """Return when it is worth looking whether *state_id* has new entries. Here: after ``poll_seconds``."""
        await trio.sleep(self.poll_seconds)

    def note_closing(self) -> None:
        """End who watches, with a StoreError: for an ``aclose`` that closes something."""
        self.times_closed += 1

    async def aclose(self) -> None:
        """Close connections, where the store keeps any; what is called after it opens new ones. Checkpoint: yes."""
        await trio.lowlevel.checkpoint()

    async def __aenter__(self) -> Self:
        await trio.lowlevel.checkpoint()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def watch(self, state_id: str, after: int = 0) -> StoreWatch:
        """Return an async iterator over the entries from position *after* on, as JSON, whoever writes them; endless.

        Raises (when iterated):
            StateNotFoundError: there is no such State, or not any more.
            StoreError: the store can't be read, or was closed since.
        """
        if after < 0:
            raise ValueError(f"after must be 0 or more (got {after})")
        return StoreWatch(self, state_id, after)

    async def delete(self, state_id: str, children: bool = False) -> None:
        """Remove a State. One that isn't there is no error. Checkpoint: yes.

        Args:
            state_id: Its id.
            children: Whether the States of its subagents, and of theirs, go with it. They go first, the deepest
                before the others: where that is cut short, the rest can be deleted in the same way.

        Raises:
            RunningElsewhereError: somebody holds one of them. Those before it are gone.
            StoreError: one couldn't be removed.
        """
        for each in [*reversed(await self._below(state_id)), state_id] if children else [state_id]:
            await self.remove(each)

    async def _below(self, state_id: str) -> builtins.list[str]:
        """Return ids of the subagents' States below this one, parents before their children."""
        children: dict[str | None, builtins.list[str]] = {}
        for info in await self.list():
            children.setdefault(info.parent_id, []).append(info.id)
        found = [state_id]
        known = {state_id}
        for parent in found:  # grows while it is walked
            new = [child for child in children.get(parent, []) if child not in known]
            found.extend(new)
            known.update(new)
        return found[1:]

    @trio.lowlevel.enable_ki_protection
    async def save(self, state: Recorder) -> None:
        """Write what this store doesn't hold yet of *state*, which is saved here from now on. Checkpoint: yes.

        Cancelled: what was being written may be there or not; the next save goes on from what is.

        Raises:
            ConflictError: this store has another State of this id.
            ValueError: a run saves *state* in another store.
            RunningElsewhereError: somebody else holds the State.
            StoreError: it couldn't be written; nothing is lost.
        """
        try:
            async with state.saving().leased(state.id, self):
                await self.write(state)
        finally:
            state.wake_waiters()  # also where it failed: a watcher has nothing to wait for then

    @asynccontextmanager
    @trio.lowlevel.enable_ki_protection
    async def holding(self, state: Recorder) -> AsyncIterator[None]:
        """Hold *state* here, as each run of it does. Whoever acts on one State object shares the lease.

        Raises:
            ValueError: this store has another State of this id; or *state* is held in another store.
            RunningElsewhereError: somebody else holds it.
        """
        held: list[int] = []

        async def check() -> None:
            held.append(await self._held_of(state))

        async with state.saving().leased(state.id, self, None if state.store is self else check):
            if state.store is not self:
                state.store, state.saved = self, held[0] if held else 0
            yield

    async def _held_of(self, state: Recorder) -> int:
        """Return how many entries this store has of *state*, which it may know from a save that was cut short."""
        if not await self.has(state.id):
            return 0
        raws = list(await self.read(state.id))
        from .record._codec import encode_entry

        if raws != [encode_entry(entry) for entry in state.history[: len(raws)]]:
            raise ValueError(
                f"{self!r} has a State {state.id} already; go on with that one: await store.load({state.id!r})"
            )
        return len(raws)

    @trio.lowlevel.enable_ki_protection
    async def write(self, state: Recorder) -> None:
        """Append what this store doesn't hold yet; for who holds the State. Checkpoint: where there is something."""
        async with state.saving().writing():
            snap = state.snapshot_now()
            start = state.saved if state.store is self else 0
            from .record._codec import encode_entry, encode_info

            entries = [encode_entry(entry) for entry in snap.history[start:]]
            if entries:
                await self.append(state.id, start, entries, encode_info(info_of(state.id, snap)))
            state.store, state.saved = self, snap.length
            state.wake_waiters()

    async def load(self, state_id: str) -> State:
        """Return the saved State, ready to run on. Checkpoint: yes.

        What a crash left open is closed: a request without a reply is taken back, a call that was running gets an
        ``aborted`` result. Those entries are saved with the next save.

        Raises:
            StateNotFoundError: there is no such State.
            CorruptStoreError: what is saved can't be read.
        """
        from .record._codec import decode_history

        raws = await self.read(state_id)
        try:
            state = State(id=state_id, history=decode_history(raws))
        except ValueError as error:
            raise CorruptStoreError(f"State {state_id} in {self!r} can't be loaded: {error}") from error
        state.store = self
        state.saved = len(raws)
        state.loaded = True
        close_after_crash(state)
        return state

    async def has(self, state_id: str) -> bool:
        """Return whether there is a State of this id. Checkpoint: yes."""
        try:
            await self.read(state_id, after=sys.maxsize)
        except StateNotFoundError:
            return False
        return True

    async def list(
        self, *, parent_id: str | EllipsisType | None = ..., limit: int | None = None, before: str | None = None
    ) -> Sequence[StateInfo]:
        """Return a StateInfo per saved State, the newest first, without loading any. Checkpoint: yes.

        A record that can't be read is left out, with a warning that names it.

        Args:
            parent_id: Only subagents of this State; ``None``: only those you started; left out: all.
            limit: At most this many.
            before: Only those listed behind the State of this id.
        """
        from .record._codec import decode_info

        if limit is not None and limit < 0:
            raise ValueError(f"limit must be 0 or more (got {limit})")
        asked = limit if parent_id is ... else None
        while True:
            raws = await self.infos(limit=asked, before=before)
            found: builtins.list[StateInfo] = []
            faults: builtins.list[str] = []
            for state_id, raw in raws:
                if len(found) == limit:
                    break
                try:
                    info = decode_info(raw)
                except ValueError as error:
                    faults.append(f"State {state_id} in {self!r} is left out of the list: {error}")
                    continue
                if parent_id is ... or info.parent_id == parent_id:
                    found.append(info)
            if asked is None or len(raws) < asked or len(found) == limit:
                break
            asked *= 2  # From the same place, not behind the last of these, which may be gone by then.
        for fault in faults:
            warnings.warn(fault, stacklevel=2)
        return found


@final
class StoreWatch(AsyncIterator[bytes]):
    """The entries of a saved State, those to come included; made by ``Store.watch``. Cancel it to end it."""

    def __init__(self, store: Store, state_id: str, after: int) -> None:
        self._store = store
        self._times_closed = store.times_closed
        self._state_id = state_id
        self._seen = after
        self._there: Sequence[bytes] = ()
        self._next = 0

    async def __anext__(self) -> bytes:
        await trio.lowlevel.checkpoint()
        while self._next >= len(self._there):
            if self._store.times_closed != self._times_closed:
                raise StoreError(f"{self._store!r} was closed meanwhile; watch State {self._state_id} anew")
            self._there, self._next = await self._store.read(self._state_id, self._seen), 0
            if not self._there:
                await self._store.changed(self._state_id)
        entry = self._there[self._next]
        self._next += 1
        self._seen += 1
        return entry


def info_of(state_id: str, snap: Snapshot) -> StateInfo:
    """Return what a store lists of a State at this moment."""
    first = next((message for message in snap.messages if message.role == "user"), None)
    return StateInfo(
        id=state_id,
        first_message=None if first is None else first.text[:200],
        created_at=snap.created_at,
        updated_at=snap.updated_at,
        turn=snap.turn,
        stopped=snap.stopped,
        finished=snap.finished,
        parent_id=snap.parent_id,
    )

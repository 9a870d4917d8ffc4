"""Editing a State's notepad: one editor at a time, in threads and tasks."""

from __future__ import annotations

import threading
import weakref
from contextvars import ContextVar
from types import TracebackType
from typing import Any, final

import trio

from ..record._entries import Entry, ExtraDataEntry
from ..record._frozen import FrozenDict, freeze_dict, same, thaw
from ._receipts import Receipt
from ._recorder import Recorder
from ._turns import Holder, Turns
from ._waiters import require_trio, runs_event_loop

_editing: ContextVar[tuple[weakref.ref[ExtraDataEdit], ...]] = ContextVar("alpineagents.editing", default=())


_NESTED = "this code is inside an edit of the same extra_data already; change the dict you have there"


@final
class ExtraDataEdit(Holder):
    """What ``edit_extra_data()`` returns: a block with a changeable copy of the notepad; it records what changed.

    Usable once: with ``with`` in threads and plain scripts, with ``async with`` in trio tasks. Entering waits for its
    turn, in order of arrival; leaving ``async with`` also waits until the change is saved.

    Raises (entering):
        RuntimeError: inside another edit of the same State, in a used one, under ``async with`` without trio, or where
            a plain ``with`` would block an event loop.

    Raises (leaving):
        TypeError, ValueError: something in the dict isn't JSON; see ``freeze``. Nothing changes.
        StoreError: ``async with``, and the store couldn't save it. It stays recorded.
    """

    __slots__ = ("_before", "_data", "_state", "_thread", "_used")

    def __init__(self, state: Recorder) -> None:
        self._state = state
        self._before = FrozenDict()
        self._data: dict[str, Any] = {}
        self._used = False
        self._thread: int | None = None
        """The thread that a plain ``with`` blocks."""

    @trio.lowlevel.enable_ki_protection
    def __enter__(self) -> dict[str, Any]:
        self._refuse_nesting()
        turns = self._state.editing_turns()
        try:
            self._thread = threading.get_ident()
            if not turns.take_nowait(self):
                if runs_event_loop():
                    raise RuntimeError(
                        "another edit of extra_data is open, and waiting for it here would block this thread's event"
                        " loop; write: async with state.edit_extra_data() as data:"
                    )
                self._refuse_to_wait_for_this_thread(turns)
                turns.take_blocking(self)
            return self._begin()
        except BaseException:  # Ctrl+C, in a plain script, can come anywhere in here
            turns.give_back(self)
            raise

    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> dict[str, Any]:
        require_trio("async with state.edit_extra_data()")
        self._refuse_nesting()
        await self._state.editing_turns().take(self)
        return self._begin()

    @trio.lowlevel.enable_ki_protection
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._end(failed=kind is not None)

    @trio.lowlevel.enable_ki_protection
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        entry = self._end(failed=kind is not None)
        if kind is None:
            await Receipt(self._state, entry)

    def _refuse_nesting(self) -> None:
        if self._used:
            raise RuntimeError("this edit was used already; call state.edit_extra_data() again")
        turns = self._state.editing_turns()
        around = [edit for place in _editing.get() if (edit := place()) is not None]
        if any(edit._state is self._state and turns.held_by(edit) for edit in around):
            raise RuntimeError(_NESTED)
        self._used = True

    def _refuse_to_wait_for_this_thread(self, turns: Turns) -> None:
        holder = turns.holder()
        if isinstance(holder, ExtraDataEdit) and holder._thread == self._thread:
            raise RuntimeError(_NESTED)

    def _begin(self) -> dict[str, Any]:
        _editing.set((*_editing.get(), weakref.ref(self)))
        self._before = self._state.snapshot_now().extra_data
        self._data = thaw(self._before)
        return self._data

    def _end(self, *, failed: bool) -> Entry | None:
        try:
            return None if failed else self._record()
        finally:
            self._data = {}
            _editing.set(tuple([place for place in _editing.get() if place() is not self]))
            self._state.editing_turns().give_back(self)

    def _record(self) -> Entry | None:
        after = freeze_dict(self._data, "extra_data")
        before = self._before
        changed = {key: value for key, value in after.items() if key not in before or not same(before[key], value)}
        removed = tuple([key for key in before if key not in after])
        if not changed and not removed:
            return None
        content = freeze_dict(changed)
        return self._state.commit(lambda snap, at: ExtraDataEntry(snap.length, snap.turn, at, content, removed))

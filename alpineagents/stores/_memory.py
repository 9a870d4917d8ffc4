"""MemoryStore: States kept in memory, as the bytes a file would hold."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from functools import partial
from typing import final

import attrs
import trio

from .._contracts import Store
from ._lease import Lease
from ._rules import (
    Listed,
    check_after,
    check_entries,
    check_no_gap,
    check_same,
    checked_id,
    created_at,
    info_fields,
    not_found,
    page,
    running_elsewhere,
)


@attrs.frozen
class _Saved:
    entries: list[bytes]
    info: bytes
    created_at: datetime


@final
class MemoryStore(Store):
    """A store for tests: what is saved is gone with the object.

    It keeps encoded entries, so that what is loaded has been through JSON. No method leaves the thread, so trio's
    ``autojump_clock`` works with it; every one is a checkpoint. May be used from several trio runs.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # Held without awaiting: several threads may each run trio.
        self._states: dict[str, _Saved] = {}
        self._leased: set[str] = set()

    def __repr__(self) -> str:
        return "MemoryStore()"

    async def append(self, state_id: str, first_seq: int, entries: Sequence[bytes], info: bytes) -> None:
        """Keep *entries*. Checkpoint: yes; cancelled there, nothing has changed.

        Raises:
            ConflictError: a gap before *first_seq*, or another entry at one of the positions. Nothing has changed.
            ValueError: an entry or *info* isn't a JSON object.
        """
        checked_id(state_id)
        check_entries(first_seq, entries)
        created = created_at(info_fields(info))
        await trio.lowlevel.checkpoint()
        with self._lock:
            saved = self._states.get(state_id)
            there = saved.entries if saved else []
            check_no_gap(state_id, self, first_seq, len(there))
            check_same(state_id, self, first_seq, entries, there[first_seq:])
            new = [bytes(entry) for entry in entries[len(there) - first_seq :]]
            if new:
                there.extend(new)
                self._states[state_id] = _Saved(there, bytes(info), created)

    async def read(self, state_id: str, after: int = 0) -> Sequence[bytes]:
        """Return the entries from position *after* on. Checkpoint: yes.

        Raises:
            StateNotFoundError: there is no such State.
        """
        checked_id(state_id)
        check_after(after)
        await trio.lowlevel.checkpoint()
        with self._lock:
            if state_id not in self._states:
                raise not_found(state_id, self, () if after else self._states)
            return self._states[state_id].entries[after:]

    async def infos(self, *, limit: int | None = None, before: str | None = None) -> Sequence[tuple[str, bytes]]:
        """Return ``(id, info)`` of the States, newest created first. Checkpoint: yes.

        Raises:
            StateNotFoundError: there is no State *before*.
        """
        await trio.lowlevel.checkpoint()
        with self._lock:
            found = [Listed(state_id, saved.info, saved.created_at) for state_id, saved in self._states.items()]
        return page(self, found, limit, before)

    async def remove(self, state_id: str) -> None:
        """Remove a State. One that isn't there is no error. Checkpoint: yes.

        Raises:
            RunningElsewhereError: somebody holds it.
        """
        checked_id(state_id)
        await trio.lowlevel.checkpoint()
        with self._lock:
            if state_id in self._leased:
                raise running_elsewhere(state_id, self)
            self._states.pop(state_id, None)

    def lease(self, state_id: str) -> AbstractAsyncContextManager[None]:
        """Return what a run holds while it writes. Entering is a checkpoint, leaving isn't.

        Raises (when entered):
            RunningElsewhereError: somebody else holds it.
        """
        checked_id(state_id)
        return Lease(partial(self._take, state_id), partial(self._leased.discard, state_id))

    async def _take(self, state_id: str) -> None:
        await trio.lowlevel.checkpoint()
        with self._lock:
            if state_id in self._leased:
                raise running_elsewhere(state_id, self)
            self._leased.add(state_id)

"""FileStore: a folder with one file per State, readable with any editor."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Final, final
from weakref import WeakValueDictionary

from .._contracts import Store
from ._folder import store_errors
from ._lease import Lease
from ._listing import listed_states
from ._log import StateLog
from ._rules import check_after, check_entries, checked_id, page
from ._threads import Threads

_MOST_REMEMBERED: Final = 1_000


@final
class FileStore(Store):
    """A store for one machine: in *folder* one ``STATE_ID.jsonl`` per State, one entry a line, only ever appended to.

    Every append is one write and one fdatasync; the first one to a log also syncs the folder. Files have mode 0600, a
    folder that has to be made 0700. A State that runs keeps its file open and locked (flock), so that no other process
    runs it too. Reading takes no lock.

    Args:
        folder: Where the logs are. Made when something is written; ``~`` is the home directory.
        fsync: False leaves it to the system when things reach the disk: what was saved survives a crash of the
            process, but not one of the machine.
        repair: Load a damaged log up to the damage, with a warning. The first append then moves the rest of it to
            ``STATE_ID.jsonl.damaged``.

    Example:
        >>> store = FileStore("runs")
        >>> state = await store.load("bug-1")
    """

    def __init__(self, folder: str | os.PathLike[str], *, fsync: bool = True, repair: bool = False) -> None:
        self.folder: Final = Path(folder).expanduser().absolute()
        self._fsync = fsync
        self._repair = repair
        self._reading, self._writing, self._leasing = Threads(), Threads(), Threads()
        self._lock = threading.Lock()
        # A log lives as long as somebody uses it; those used last also for what they know about their files.
        self._logs: WeakValueDictionary[str, StateLog] = WeakValueDictionary()
        self._recent: dict[str, StateLog] = {}

    def __repr__(self) -> str:
        return f"FileStore({str(self.folder)!r})"

    async def append(self, state_id: str, first_seq: int, entries: Sequence[bytes], info: bytes) -> None:
        """Write *entries* durably: one write, one fdatasync. Without a lease it holds one itself meanwhile.

        *info* counts only if one of the entries is new. Checkpoint: yes. Cancelled: the write is left to itself, in a
        thread; it happens or not, and what is appended next waits for it.

        Raises:
            ConflictError: a gap before *first_seq*, or another entry at one of the positions. Nothing has changed.
            CorruptStoreError: the log is damaged. Nothing has changed.
            RunningElsewhereError: somebody else holds the State.
            StoreError: it couldn't be written. What was written of it is cut off again.
            ValueError: an entry or *info* isn't a JSON object.
        """
        check_entries(first_seq, entries)
        await self._writing.run(self._log(state_id).append, first_seq, entries, info, abandon_on_cancel=True)

    async def read(self, state_id: str, after: int = 0) -> Sequence[bytes]:
        """Return the entries from position *after* on. A line whose writing was cut short isn't there.

        Checkpoint: yes. Cancelled: at once.

        Raises:
            StateNotFoundError: there is no such State; the message has ids that are nearly the same.
            CorruptStoreError: a line isn't the entry it should be, or the log is empty. The message has the file, the
                line and how many entries are readable. With ``repair`` that is a warning.
            StoreError: the file can't be read.
        """
        check_after(after)
        entries, damage = await self._reading.run(self._log(state_id).read, after, abandon_on_cancel=True)
        if damage is not None:
            warnings.warn(f"{damage}; the rest is left out", stacklevel=3)
        return entries

    async def infos(self, *, limit: int | None = None, before: str | None = None) -> Sequence[tuple[str, bytes]]:
        """Return ``(id, info)`` of the States, newest created first. Reads the last few KiB of each log.

        A log that is damaged there is left out, with a warning that names it. Checkpoint: yes. Cancelled: at once.

        Raises:
            StateNotFoundError: there is no State *before*.
            StoreError: the folder can't be read.
        """
        with store_errors("listed", self.folder):
            found, faults = await self._reading.run(listed_states, self.folder, abandon_on_cancel=True)
        for fault in faults:
            warnings.warn(fault, stacklevel=3)
        return page(self.folder, found, limit, before)

    async def remove(self, state_id: str) -> None:
        """Remove the log of a State. One that isn't there is no error.

        Checkpoint: yes. Cancelled: it waits until the file is gone.

        Raises:
            RunningElsewhereError: somebody holds the State.
            StoreError: the file can't be removed.
        """
        await self._leasing.run(self._log(state_id).delete)

    def lease(self, state_id: str) -> AbstractAsyncContextManager[None]:
        """Return what a run holds while it writes: a lock that other processes respect and that dies with this one.

        Entering is a checkpoint, and when cancelled waits until the file is open. Leaving is none and doesn't block: a
        write that was abandoned and still hangs keeps the lock until it ends.

        Raises (when entered):
            RunningElsewhereError: somebody else holds it.
            StoreError: the file can't be opened.
        """
        log = self._log(state_id)
        return Lease(partial(self._leasing.run, log.take_lease), log.end_lease)

    def _log(self, state_id: str) -> StateLog:
        """Return the one log of this id."""
        checked_id(state_id)
        with self._lock:
            log = self._logs.get(state_id)
            if log is None:
                log = self._logs[state_id] = StateLog(self.folder, state_id, sync=self._fsync, repair=self._repair)
            self._recent.pop(state_id, None)
            self._recent[state_id] = log
            if len(self._recent) > _MOST_REMEMBERED:
                del self._recent[next(iter(self._recent))]
        return log

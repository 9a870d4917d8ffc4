"""One State's log in one store object: who uses it, what is known of it, reading and appending. Runs in threads.

Appends queue at a lock that is held in the thread, so a write that was abandoned and still hangs can't mix with the
next one. The file stays open and locked as long as anybody uses it: the holder of the lease, and every write, also
one that outlives the lease under which it began.

Invariant: ``_known`` is what this object wrote or read itself, and is believed only while the file's stamp is the one
it had then. Nothing but a torn end found just now, under the lock, or this object's own failed write is ever cut off.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias, final

import attrs

from .._errors import ConflictError, CorruptStoreError, RunningElsewhereError
from ..record._codec import FORMAT
from ._folder import make_folder, read_all, store_errors, sync_file, sync_folder, write_all
from ._lines import WHOLE_INFO_EVERY, Info, Log, decode_log, encode_batch, encode_info, newer_format
from ._listing import state_ids
from ._locked import LockedFile, holder_of, open_locked
from ._rules import check_no_gap, check_same, info_fields, not_found, running_elsewhere

Stamp: TypeAlias = tuple[int, int, int]


@attrs.frozen
class _Known:
    """What a log's file held when it had this stamp."""

    stamp: Stamp
    length: int
    """Entries."""
    size: int
    """Bytes up to the end of the last entry."""
    lacks_newline: bool = False
    synced: bool = False
    """This object has synced the file, and its folder since the log has its name."""
    base: Info | None = None
    """The last whole info, if this object wrote it."""
    base_end: int = 0
    """Bytes up to the end of its batch."""


def _stamp(stat: os.stat_result) -> Stamp:
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


@final
class StateLog:
    """The log of one State. A store has at most one of these per State at a time."""

    def __init__(self, folder: Path, state_id: str, *, sync: bool, repair: bool) -> None:
        self._folder = folder
        self._state_id = state_id
        self._path = folder / f"{state_id}.jsonl"
        self._sync = sync
        self._repair = repair
        self._writing = threading.Lock()
        self._guard = threading.Lock()  # Held for moments, also by the task that ends a lease: no I/O but closing.
        self._file: LockedFile | None = None
        self._users = 0
        self._leased = False
        self._known: _Known | None = None
        self._seen: _Known | None = None
        """What was read last. Reading believes it without the lock; nothing is written by it."""
        self._failed: tuple[int, int, bytes] | None = None
        """In which file (its inode), from where on, and what of it a write that failed may have left."""

    # Who uses it

    def take_lease(self) -> None:
        """Begin a lease, which ``end_lease`` ends."""
        with store_errors("opened", self._path):
            self._use(lease=True).name_holder()

    def end_lease(self) -> None:
        """End the lease. Doesn't block: a write that still hangs closes the file when it ends."""
        self._unuse(lease=True)

    def _use(self, *, lease: bool = False, create: bool = True) -> LockedFile:
        with self._guard:
            if self._file is not None:
                if lease and self._leased:
                    raise self._held()
                self._leased |= lease
                self._users += 1
                return self._file
        if create:
            make_folder(self._folder, sync=self._sync)
        try:
            file = open_locked(self._path, create=create)
        except BlockingIOError:
            raise self._held() from None
        with self._guard:  # Only one opens it: the others were refused.
            self._file, self._users, self._leased = file, 1, lease
        return file

    def _held(self) -> RunningElsewhereError:
        return running_elsewhere(self._state_id, self._folder, holder_of(self._path))

    def _unuse(self, *, lease: bool = False) -> None:
        with self._guard:
            self._leased &= not lease
            self._users -= 1
            if not self._users and self._file is not None:
                self._file.close()
                self._file = None

    def delete(self) -> None:
        """Remove the log, if there is one."""
        with store_errors("deleted", self._path):
            try:
                file = self._use(lease=True, create=False)
            except FileNotFoundError:
                if self._sync and self._folder.exists():  # whoever removed it may have died before this
                    sync_folder(self._folder)
                return
            try:
                with self._writing:
                    self._known = self._failed = None
                    file.remove()
                    if self._sync:
                        sync_folder(self._folder)
            finally:
                self._unuse(lease=True)

    # Reading

    def read(self, after: int) -> tuple[Sequence[bytes], str | None]:
        """Return the entries from position *after* on, and what had to be left out if a damaged log may be repaired."""
        with store_errors("read", self._path):
            try:
                fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                raise not_found(self._state_id, self._folder, () if after else state_ids(self._folder)) from None
            try:
                stamp = _stamp(os.fstat(fd))
                if after >= stamp[1] > 0:  # No log has more entries than bytes.
                    return (), None
                if (new := self._new_since(fd, stamp, after)) is not None:
                    return new, None
                data = read_all(fd, stamp[1])
            finally:
                os.close(fd)
        log = self._decoded(data)
        if self._file is None and log.size == stamp[1] and not log.lacks_newline:
            self._known = _Known(stamp, len(log.entries), log.size)
        if log.damage is None and not log.lacks_newline:
            self._seen = _Known(stamp, len(log.entries), log.size)
        return log.entries[after:], self._damage(log)

    def _new_since(self, fd: int, stamp: Stamp, after: int) -> Sequence[bytes] | None:
        """Return the entries from *after* on by what was read last and what is behind it; None if that doesn't do.

        So who watches a long log doesn't read all of it each time.
        """
        seen = self._seen
        if seen is None or seen.stamp[0] != stamp[0] or after < seen.length or stamp[1] < seen.size:
            return None
        if stamp == seen.stamp:
            return ()
        log = decode_log(read_all(fd, stamp[1], seen.size), seen.length)
        if log.damage is not None:
            return None
        if not log.lacks_newline:
            self._seen = _Known(stamp, seen.length + len(log.entries), seen.size + log.size)
        return log.entries[after - seen.length :]

    def _decoded(self, data: bytes) -> Log:
        if version := newer_format(data.partition(b"\n")[0]):
            raise CorruptStoreError(
                f"{self._path} is in format {version}, but this version of alpineagents reads up to {FORMAT};"
                " install a newer one"
            )
        log = decode_log(data)
        if not log.entries:
            raise CorruptStoreError(f"{self._path}, line 1: {log.damage or 'no whole entry'}; nothing is readable")
        if log.damage and not self._repair:
            raise CorruptStoreError(f"{self._damage(log)}; FileStore(..., repair=True) loads those")
        return log

    def _damage(self, log: Log) -> str | None:
        if log.damage is None:
            return None
        length = len(log.entries)
        return f"{self._path}, line {length + 1}: {log.damage}; the {length} entries before it are readable"

    # Appending

    def append(self, first_seq: int, entries: Sequence[bytes], info: bytes) -> None:
        """Write what isn't there yet, and return when all of it is durable."""
        fields = info_fields(info)
        with self._writing, store_errors("written", self._path):
            file = self._use()
            try:
                self._append(file, first_seq, entries, fields)
            finally:
                self._unuse()

    def _append(self, file: LockedFile, first_seq: int, entries: Sequence[bytes], info: Info) -> None:
        self._cut_off_failed(file)
        known = self._known_of(file)
        check_no_gap(self._state_id, self._path, first_seq, known.length)
        if entries and first_seq < known.length:
            there = decode_log(read_all(file.fd, known.size)).entries
            check_same(self._state_id, self._path, first_seq, entries, there[first_seq:])
        new = entries[known.length - first_seq :]
        if new:
            known = self._written(file, known, new, info)
        elif known.synced or not known.length:
            return
        elif self._sync:
            sync_file(file.fd)
        if not known.synced:
            # Somebody else may have made the log and died before the folder was synced.
            if file.hidden:
                file.give_name()
            if self._sync:
                sync_folder(self._folder)
            known = attrs.evolve(known, synced=True)
        # Not if there is something to be cut off still: it would be from memory, not from what was found just now.
        self._known = known if known.stamp[1] == known.size else None

    def _cut_off_failed(self, file: LockedFile) -> None:
        """Cut off what couldn't be synced: it is seen in the cache, and Linux forgets that the disk hasn't got it.

        Where another process has appended behind it since, it stays: that was acknowledged.
        """
        if self._failed is not None:
            inode, start, data = self._failed
            stat = os.fstat(file.fd)
            left = stat.st_size - start
            if stat.st_ino == inode and 0 < left <= len(data) and os.pread(file.fd, left, start) == data[:left]:
                os.ftruncate(file.fd, start)
            self._failed = None

    def _known_of(self, file: LockedFile) -> _Known:
        """Return what the log holds; reads it only if somebody else has changed it."""
        stat = os.fstat(file.fd)
        if not stat.st_nlink:
            raise ConflictError(
                f"State {self._state_id}: {self._path} was deleted or replaced while it was being written;"
                f" the State is whole in memory: save it under an id of its own: state.fork()"
            )
        stamp = _stamp(stat)
        if self._known is not None and self._known.stamp == stamp:
            return self._known
        data = read_all(file.fd, stat.st_size)
        # One without its name may well be empty, or have been torn by our own first try.
        log = decode_log(data) if file.hidden else self._decoded(data)
        if log.damage:
            self._put_aside(data[log.size :])
            os.ftruncate(file.fd, log.size)
        return _Known(stamp, len(log.entries), log.size, log.lacks_newline)

    def _put_aside(self, damaged: bytes) -> None:
        """Keep what a repair cuts off, beside the log."""
        fd = os.open(f"{self._path}.damaged", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            write_all(fd, damaged)
            if self._sync:
                sync_file(fd)
                sync_folder(self._folder)
        finally:
            os.close(fd)

    def _written(self, file: LockedFile, known: _Known, entries: Sequence[bytes], info: Info) -> _Known:
        """Write *entries* and sync them. What a failure leaves of them is cut off, now or by the next append."""
        base = known.base if known.size - known.base_end < WHOLE_INFO_EVERY else None
        info_text = encode_info(info, base)
        data = encode_batch(entries, info_text)
        if known.lacks_newline:
            data = b"\n" + data
        self._known = None
        try:
            if known.stamp[1] != known.size:
                os.ftruncate(file.fd, known.size)
            write_all(file.fd, data)
            if self._sync:
                sync_file(file.fd)
        except OSError:
            self._failed = os.fstat(file.fd).st_ino, known.size, data
            with suppress(OSError):
                self._cut_off_failed(file)
            raise
        size = known.size + len(data)
        base, base_end = (info, size) if info_text.startswith(b"{") else (base, known.base_end)
        stamp = _stamp(os.fstat(file.fd))
        return _Known(stamp, known.length + len(entries), size, False, known.synced, base, base_end)

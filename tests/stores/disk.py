"""A disk below a FileStore: it records what is asked of it, refuses some of it, and shows what a power cut may leave.

The calls reach real files, but for the syncs, which only count. Beside them a page cache is simulated: what is written
is in the cache until a sync; a sync that fails forgets it, as Linux does: a later one that succeeds doesn't bring it to
the disk either. A power cut keeps what was synced, a beginning of the changes since, and the last of those torn.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import strategies as st

PAGE = 4_096


@attrs.define
class CachedFile:
    """One file: what its readers see, and what is on the disk."""

    seen: bytearray = attrs.Factory(bytearray)
    kept: bytes = b""
    changes: list[tuple[int, bytes | None]] = attrs.Factory(list)
    """Since the last sync: bytes at a place, or ``None`` for the end that was cut off there."""
    forgotten: set[int] = attrs.Factory(set)
    """Places whose bytes a failed sync has forgotten: readers see them, and no sync writes them."""

    def change(self, at: int, data: bytes | None) -> None:
        """Write *data*, or cut the end off."""
        _apply(self.seen, at, data)
        self.changes.append((at, data))
        self.forgotten -= {
            place for place in self.forgotten if place >= at and (data is None or place < at + len(data))
        }

    def sync(self) -> None:
        """Bring it to the disk."""
        kept = bytearray(self.seen)
        for at in self.forgotten:
            kept[at] = 0
        self.kept = bytes(kept)
        self.changes = []

    def fail_to_sync(self) -> None:
        """Forget what should have been brought there; some of it may be there all the same."""
        for at, data in self.changes:
            if data is not None:
                self.forgotten.update(range(at, min(at + len(data), len(self.seen))))


def _apply(content: bytearray, at: int, data: bytes | None) -> None:
    if data is None:
        del content[at:]
    else:
        content.extend(b"\0" * (at - len(content)))
        content[at : at + len(data)] = data


@attrs.define
class PageCache:
    """A folder's files, and its names, seen and kept."""

    files: dict[int, CachedFile] = attrs.Factory(dict)
    seen: dict[str, int] = attrs.Factory(dict)
    kept: dict[str, int] = attrs.Factory(dict)
    changes: list[tuple[str, str | None, int | None]] = attrs.Factory(list)
    """Names: (made, None, file), (moved from, moved to, None), (removed, None, None)."""

    def rename(self, change: tuple[str, str | None, int | None]) -> None:
        """Make, move or remove a name."""
        _rename(self.seen, change)
        self.changes.append(change)

    def sync_folder(self) -> None:
        """Bring the names to the disk."""
        self.kept = dict(self.seen)
        self.changes = []

    def after_a_power_cut(self, draw: Callable[[st.SearchStrategy], Any], *, holes: bool = False) -> dict[str, bytes]:
        """Return what is there: what was synced, and of the rest what *draw* says."""
        names = dict(self.kept)
        for change in self.changes[: draw(st.integers(0, len(self.changes)))]:
            _rename(names, change)
        return {name: self._left_of(self.files[number], draw, holes) for name, number in names.items()}

    def _left_of(self, file: CachedFile, draw: Callable[[st.SearchStrategy], Any], holes: bool) -> bytes:
        count = draw(st.integers(0, len(file.changes)))
        content = bytearray(file.kept)
        for position, (at, data) in enumerate(file.changes[:count]):
            if position < count - 1 or data is None:
                _apply(content, at, data)
                continue
            written = draw(st.integers(0, len(data)) | st.just(len(data)))
            allocated = draw(st.integers(written, len(data)) | st.just(written))
            torn = bytearray(data[:written] + b"\0" * (allocated - written))
            if holes:
                for page in draw(st.sets(st.integers(0, len(torn) // PAGE))):
                    torn[page * PAGE : (page + 1) * PAGE] = bytes(len(torn[page * PAGE : (page + 1) * PAGE]))
            _apply(content, at, bytes(torn))
        return bytes(content)


def _rename(names: dict[str, int], change: tuple[str, str | None, int | None]) -> None:
    match change:
        case (made, None, int(number)):
            names[made] = number
        case (old, str(new), _):
            names[new] = names.pop(old)
        case (removed, _, _):
            del names[removed]


@attrs.frozen
class Event:
    """One call that changes something, or a promise: what the test knows at that moment."""

    do: Callable[[PageCache], None]
    promise: object = None


SHORT = -1
"""A write that takes only half of what it was given; other calls do what they should."""
KILL = -2
"""The process is killed before the call."""

_faults = st.sampled_from([0, SHORT, KILL, errno.ENOSPC, errno.EIO])
faults = st.builds(
    lambda start, faults: dict(enumerate(faults, start)), st.integers(0, 20), st.lists(_faults, max_size=5)
)
"""What goes wrong, by the number of the call: nothing, SHORT, KILL or an errno."""


class Disk:
    """The calls that reach *folder* while ``in_place``; *faults* says at which of them what goes wrong.

    Without *stuck*, what a failed sync has forgotten can always be cut off.
    """

    def __init__(self, folder: Path, faults: Mapping[int, int] | None = None, *, stuck: bool = False) -> None:
        self.folder = folder
        self.faults = dict(faults or {})
        self.events: list[Event] = []
        self.calls = 0
        self.killed = False
        """The process that uses it is dead: its calls do nothing, until ``start_anew``."""
        self.stuck = stuck
        self._forgetful: set[int] = set()
        self._numbers: dict[int, int] = {}
        self._real = {name: getattr(os, name) for name in ("open", "write", "ftruncate", "rename", "unlink", "fsync")}

    def note(self, promise: object) -> None:
        """Note what the test knows from this moment on."""
        self.events.append(Event(lambda cache: None, promise))

    def start_anew(self) -> None:
        """Let another process use it."""
        self.killed = False

    def cache_at(self, moment: int) -> PageCache:
        """Return the page cache before the event of this number."""
        cache = PageCache()
        for event in self.events[:moment]:
            event.do(cache)
        return cache

    def in_place(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put it below what runs from here on."""
        for name in self._real:
            monkeypatch.setattr(os, name, getattr(self, f"_{name}"))
        monkeypatch.setattr(os, "fdatasync", self._fsync)

    def _fault(self) -> bool:
        """Count a call; raise the error that is due now, or return whether it shall do only half."""
        fault = KILL if self.killed else self.faults.get(self.calls, 0)
        self.calls += 1
        if fault == KILL:
            self.killed = True
            raise OSError(errno.EIO, "killed")
        if fault > 0:
            raise OSError(fault, os.strerror(fault))
        return fault == SHORT

    def _number(self, fd: int) -> int | None:
        return self._numbers.get(os.fstat(fd).st_ino)

    def _record(self, do: Callable[[PageCache], None]) -> None:
        self.events.append(Event(do))

    def _open(self, path: Any, flags: int, mode: int = 0o777, **rest: Any) -> int:
        makes = flags & os.O_CREAT and Path(path).parent == self.folder and not os.path.lexists(path)
        if makes:
            self._fault()
        fd: int = self._real["open"](path, flags, mode, **rest)
        if makes:
            number = len(self.events)
            self._numbers[os.fstat(fd).st_ino] = number

            def make(cache: PageCache) -> None:
                cache.files[number] = CachedFile()
                cache.rename((Path(path).name, None, number))

            self._record(make)
        return fd

    def _write(self, fd: int, data: Any) -> int:
        if (number := self._number(fd)) is None:
            return int(self._real["write"](fd, data))
        given = bytes(data)
        if self._fault():
            given = given[: len(given) // 2]
        at = os.fstat(fd).st_size
        if given:
            self._real["write"](fd, given)
            self._record(lambda cache: cache.files[number].change(at, given))
        return len(given)

    def _ftruncate(self, fd: int, size: int) -> None:
        if (number := self._number(fd)) is not None and os.fstat(fd).st_size != size:
            if self.stuck or self.killed or number not in self._forgetful:
                self._fault()
            self._forgetful.discard(number)
            self._record(lambda cache: cache.files[number].change(size, None))
        self._real["ftruncate"](fd, size)

    def _fsync(self, fd: int) -> None:
        if os.path.samestat(os.fstat(fd), os.stat(self.folder)):
            self._fault()
            self._record(PageCache.sync_folder)
        elif (number := self._number(fd)) is not None:
            try:
                self._fault()
            except OSError:
                if self.killed:
                    raise
                self._forgetful.add(number)
                self._record(lambda cache: cache.files[number].fail_to_sync())
                raise
            self._record(lambda cache: cache.files[number].sync())

    def _rename(self, old: Any, new: Any) -> None:
        if Path(old).parent == self.folder:
            self._fault()
            self._record(lambda cache: cache.rename((Path(old).name, Path(new).name, None)))
        self._real["rename"](old, new)

    def _unlink(self, path: Any, **rest: Any) -> None:
        is_there = Path(path).parent == self.folder and os.path.lexists(path)
        if is_there:
            self._fault()
        self._real["unlink"](path, **rest)
        if is_there:
            self._record(lambda cache: cache.rename((Path(path).name, None, None)))

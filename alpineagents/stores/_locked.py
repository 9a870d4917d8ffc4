"""A log's file, open for writing and locked against everybody else who goes through here.

The lock is a flock on the log itself, held as long as the file is open, gone when the process dies: children that it
forks don't keep it. Who holds a lease, and since when, stands beside it in ``.ID.lease``, for the error of those who
are refused; a process that dies leaves that behind, and it means nothing then. A log that isn't
there yet is begun as ``.ID.jsonl`` and gets its name when its first batch is written and synced: a log is never
seen empty, and a process that dies before leaves no State behind, only a hidden file that the next one takes over.

Invariant: whoever holds a LockedFile holds the only one for that log. A file can lose its name, by delete or by that
renaming, between being opened and being locked: then it is let go and the opening starts again.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, final
from weakref import WeakSet

from ._holder import decoded, this_process

_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC


@final
class LockedFile:
    """Made by ``open_locked``; whoever has it calls ``close``."""

    __slots__ = ("__weakref__", "_hidden_path", "_holder_path", "_path", "fd", "hidden")

    def __init__(self, path: Path, *, create: bool) -> None:
        self._path = path
        self._hidden_path = path.with_name(f".{path.name}")
        self._holder_path: Path | None = None
        self.hidden = False
        """The log hasn't got its name yet."""
        try:
            self.fd = os.open(path, _FLAGS)
        except FileNotFoundError:
            self.hidden = True
            self.fd = os.open(self._hidden_path, _FLAGS | (os.O_CREAT if create else 0), 0o600)
        _open_files.add(self)

    def lock(self) -> bool:
        """Lock it; False if it isn't the log's file any more.

        Raises:
            BlockingIOError: somebody else has it.
        """
        fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # In this order: a log that is deleted loses its hidden name first, see remove().
        is_stale = self.hidden and self._path.exists()
        if not self._has_its_name():
            return False
        if is_stale:  # The log got its name after we had looked for it, and then we created a second one.
            self._hidden_path.unlink()
        elif self.hidden:
            os.ftruncate(self.fd, 0)  # what a process left that died with its first batch
        return not is_stale

    def _has_its_name(self) -> bool:
        try:
            return os.path.samestat(os.stat(self._hidden_path if self.hidden else self._path), os.fstat(self.fd))
        except FileNotFoundError:
            return False

    def name_holder(self) -> None:
        """Say that this process holds it. Not durably, as the lock isn't; where it can't be said, it isn't."""
        self._holder_path = _holder_path(self._path)
        with suppress(OSError):
            fd = os.open(self._holder_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                os.write(fd, f"{time.time()} {this_process().encoded()}\n".encode())
            finally:
                os.close(fd)

    def give_name(self) -> None:
        """Let everybody see it."""
        os.rename(self._hidden_path, self._path)
        self.hidden = False

    def remove(self) -> None:
        """Delete the log. Its own name goes last: from then on others may begin a new one."""
        _holder_path(self._path).unlink(missing_ok=True)
        self._hidden_path.unlink(missing_ok=True)
        if not self.hidden:
            self._path.unlink()
        self.hidden = False

    def close(self) -> None:
        """Unlock and close it. What is to be kept was synced before: an error here loses nothing."""
        if self.fd < 0:  # in a child that was forked meanwhile
            return
        with suppress(OSError):
            if self._holder_path is not None:
                self._holder_path.unlink()
        with suppress(OSError):
            if self.hidden and self._has_its_name():
                self._hidden_path.unlink()
        with suppress(OSError):
            fcntl.flock(self.fd, fcntl.LOCK_UN)  # for children too that were forked by something else than Python
        self.let_go()

    def let_go(self) -> None:
        """Close it without unlocking: the lock is gone with the last one who has the file open."""
        fd, self.fd = self.fd, -1
        with suppress(OSError):
            os.close(fd)


def open_locked(path: Path, *, create: bool) -> LockedFile:
    """Open the log at *path* and lock it; with *create* also one that isn't there.

    Raises:
        BlockingIOError: somebody else holds it.
        FileNotFoundError: it isn't there, or with *create* its folder isn't.
    """
    while True:
        file = LockedFile(path, create=create)
        try:
            if file.lock():
                return file
        except BaseException:
            file.let_go()
            raise
        file.let_go()


def holder_of(path: Path) -> str | None:
    """Return who holds the lease of the log at *path*, and since when; None where that isn't known."""
    try:
        since, _, text = _holder_path(path).read_text(encoding="utf-8").partition(" ")
        age = max(0.0, time.time() - float(since))
    except (OSError, ValueError):
        return None
    holder = decoded(text)
    return None if holder is None or holder.is_gone() else f"{holder}, since {age:.0f} s"


def _holder_path(path: Path) -> Path:
    return path.with_name(f".{path.stem}.lease")


def _let_go_of_all() -> None:
    for file in list(_open_files):
        file.let_go()


# All that this process has open: a child that it forks has them too, and would keep the locks when this one is gone.
_open_files: Final[WeakSet[LockedFile]] = WeakSet()
os.register_at_fork(after_in_child=_let_go_of_all)

"""Folders and files on disk: making them, syncing them, and saying what went wrong with them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from .._errors import StoreError

_HINTS: Final = {
    errno.EACCES: "choose a folder that this user may write",
    errno.EPERM: "choose a folder that this user may write",
    errno.EROFS: "choose a folder that this user may write",
    errno.ENOTDIR: "choose a folder, not a file",
    errno.EEXIST: "choose a folder, not a file",
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EFBIG: "raise the limit on file sizes (ulimit -f)",
    errno.ENOLCK: "choose a folder on a local disk: files on this one can't be locked",
    errno.EOPNOTSUPP: "choose a folder on a local disk: files on this one can't be locked",
    errno.EMFILE: "raise the limit on open files (ulimit -n): every State that runs needs one",
}


@contextmanager
def store_errors(doing: str, path: Path) -> Iterator[None]:
    """Turn an OSError into a StoreError such as "/data/a.jsonl can't be written: No space left; free some space"."""
    try:
        yield
    except OSError as error:
        hint = _HINTS.get(error.errno or 0)
        reason = error.strerror or str(error)
        raise StoreError(f"{path} can't be {doing}: {reason}{f'; {hint}' if hint else ''}") from error


def make_folder(folder: Path, *, sync: bool) -> None:
    """Make *folder* and those above it where they are missing, each of mode 0700; with *sync*, durably."""
    if folder.is_dir():
        return
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing or [folder]):  # not makedirs: its mode is that of the last folder alone
        path.mkdir(mode=0o700, exist_ok=True)
    if sync:
        for path in missing:
            sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make durable which files *folder* has."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_file(fd: int) -> None:
    """Make durable what a file holds."""
    getattr(os, "fdatasync", os.fsync)(fd)  # macOS has only the other


def write_all(fd: int, data: bytes) -> None:
    """Write *data*, in one call unless the system takes only a part of it."""
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, memoryview(data)[written:])


def read_all(fd: int, size: int, start: int = 0) -> bytes:
    """Return the bytes of a file from *start* up to *size*, or what there is of them."""
    parts: list[bytes] = []
    at = start
    while at < size and (part := os.pread(fd, size - at, at)):
        parts.append(part)
        at += len(part)
    return b"".join(parts)

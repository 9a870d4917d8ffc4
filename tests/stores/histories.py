"""States to save, their entries as stores get them, and the files of a FileStore."""

from __future__ import annotations

from collections.abc import Sequence

from alpineagents import FileStore, State
from alpineagents._contracts import info_of
from alpineagents.record._codec import encode_info
from alpineagents.testing._laws._kit import (
    INFO,
    batches,
    conversation,
    encoded,
    entries_of,
    infos_of,
    put,
    raw,
    raws,
    reply,
    request,
    tool_result,
)

__all__ = [
    "INFO",
    "batches",
    "conversation",
    "encoded",
    "entries_of",
    "files_in",
    "info",
    "infos_of",
    "log_of",
    "put",
    "raw",
    "raws",
    "reply",
    "request",
    "tool_result",
    "write_log",
]


def info(state: State) -> bytes:
    """What a store lists of *state*."""
    return encode_info(info_of(state.id, state.snapshot_now()))


def log_of(store: FileStore, state_id: str = "bug-1") -> bytes:
    """The bytes of a log."""
    return (store.folder / f"{state_id}.jsonl").read_bytes()


def write_log(store: FileStore, data: bytes, state_id: str = "bug-1") -> None:
    """Let a log have these bytes."""
    store.folder.mkdir(exist_ok=True)
    (store.folder / f"{state_id}.jsonl").write_bytes(data)


def files_in(store: FileStore) -> Sequence[str]:
    """All that is in the store's folder."""
    return sorted(path.name for path in store.folder.iterdir()) if store.folder.exists() else []

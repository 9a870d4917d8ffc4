"""States to save, and their entries as stores get them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from alpineagents import (
    FileStore,
    Message,
    ModelReplyEntry,
    ModelRequestEntry,
    Reply,
    State,
    TextBlock,
    ToolCall,
    ToolResultEntry,
    Usage,
)
from alpineagents._contracts import Store, info_of
from alpineagents.record._codec import encode_entry, encode_info
from alpineagents.record._replay import Snapshot, fold

INFO = b'{"format":1,"id":"bug-1","created_at":"2026-01-02T03:04:05Z"}'


def raw(seq: int, **fields: object) -> bytes:
    """An entry as far as a store can tell."""
    return json.dumps({"seq": seq, **fields}, separators=(",", ":")).encode()


def raws(count: int, first: int = 0, **fields: object) -> list[bytes]:
    """Entries *first* to *first + count - 1*."""
    return [raw(seq, **fields) for seq in range(first, first + count)]


def conversation(state_id: str = "bug-1", *, turns: int = 2, text: str = "Find the bug.", result: str = "x") -> State:
    """A State after *turns* turns with a tool call each, and a last one without."""
    state = State(id=state_id, messages=[Message.user(text)])
    for turn in range(1, turns + 1):
        request(state)
        call = ToolCall(f"call_{turn}", "read_file", {"path": "main.py", "info": {"turn": turn}})
        reply(state, TextBlock("Let me look."), call)
        tool_result(state, call, result)
    request(state)
    reply(state, TextBlock("It is in line 1."))
    return state


def request(state: State) -> None:
    """Record that think asks."""
    state.commit(lambda snap, at: ModelRequestEntry(snap.length, snap.turn + 1, at, "fake/fake"))


def reply(state: State, *blocks: TextBlock | ToolCall) -> None:
    """Record what the model answers."""
    answer = Reply(blocks, usage=Usage(input_tokens=10, output_tokens=10, requests=1))
    state.commit(lambda snap, at: ModelReplyEntry(snap.length, snap.turn, at, answer))


def tool_result(state: State, call: ToolCall, text: str) -> None:
    """Record what a call gave."""
    state.commit(lambda snap, at: ToolResultEntry(snap.length, snap.turn, at, (TextBlock(text),), call))


def encoded(state: State) -> list[bytes]:
    """The entries of *state* as bytes."""
    return [encode_entry(entry) for entry in state.history]


def info(state: State) -> bytes:
    """What a store lists of *state*."""
    return encode_info(info_of(state.id, state.snapshot_now()))


def batches(state: State, size: int) -> Iterator[tuple[int, list[bytes], bytes]]:
    """What ``append`` gets when every *size* entries are saved."""
    snap = Snapshot()
    entries: list[bytes] = []
    for entry in state.history:
        snap = fold(snap, entry)
        entries.append(encode_entry(entry))
        if len(entries) == size or snap.length == len(state.history):
            yield snap.length - len(entries), entries, encode_info(info_of(state.id, snap))
            entries = []


async def put(store: Store, state: State, *, size: int = 2) -> None:
    """Save *state* in batches of *size* entries."""
    for first, entries, about in batches(state, size):
        await store.append(state.id, first, entries, about)


async def infos_of(store: Store) -> dict[str, object]:
    """What the store lists, by id."""
    return {state_id: json.loads(about) for state_id, about in await store.infos()}


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

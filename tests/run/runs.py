"""What the tests of runs share: how a State has to stand after one, what is saved of it, and stores that misbehave."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection

import trio

from alpineagents import MemoryStore, State, Store, StoreError
from alpineagents.record._conversation import first_fault

from ..states import assert_replays

UNKNOWN = "It may or may not have taken effect: check before you do it again."
NOT_BEGUN = "It had not begun."
"""What the model reads of a call that was cut short."""


def kinds(state: State) -> list[str]:
    return [entry.kind for entry in state.history]


def outcomes(state: State) -> list[tuple[str, str]]:
    """Name and outcome of each call, in the order they were closed."""
    return [(e.call.name, str(e.outcome)) for e in state.history if e.kind == "tool_result" and not e.late]


def errors(state: State) -> list[str]:
    return [entry.content for entry in state.history if entry.kind == "error"]


async def saved(store: Store, state_id: str) -> list[dict]:
    """The entries that the store holds at this moment, as JSON."""
    return [json.loads(raw) for raw in await store.read(state_id)]


async def saved_kinds(store: Store, state_id: str) -> list[str]:
    return [entry["kind"] for entry in await saved(store, state_id)]


def assert_whole(state: State) -> None:
    """Nothing is open, every call has one result, the conversation is well formed, and the history replays."""
    assert not state.pending_calls
    assert not state.snapshot_now().request_open
    asked = [call.id for e in state.history if e.kind == "model_reply" for call in e.content.tool_calls]
    closed = Counter(e.call.id for e in state.history if e.kind == "tool_result" and not e.late)
    late = Counter(e.call.id for e in state.history if e.kind == "tool_result" and e.late)
    assert closed == Counter(asked)
    assert not late or max(late.values()) == 1
    assert first_fault(state.messages) is None
    assert_replays(state)


def assert_told_what_began(state: State, begun: Collection[str]) -> None:
    """No call whose ``CallKey`` is in *begun* has a result which says that it had not begun."""
    for entry in state.history:
        if entry.kind == "tool_result" and f"{state.id}/{entry.call.id}" in begun:
            assert NOT_BEGUN not in entry.content[0].text


async def assert_saved(store: Store, state: State) -> State:
    """The store holds the whole of *state*, but for late results that came since; returns what it loads."""
    history = list(state.history)
    loaded = await store.load(state.id)
    held = list(loaded.history)
    assert held == history[: len(held)]
    assert all(e.kind == "tool_result" and e.late for e in history[len(held) :])
    return loaded


def tasks() -> int:
    """How many tasks this trio run has, all of them counted."""
    root = trio.lowlevel.current_root_task()
    assert root is not None
    count, queue = 0, [root]
    while queue:
        count += 1
        queue.extend(child for nursery in queue.pop().child_nurseries for child in nursery.child_tasks)
    return count


class CountingStore(MemoryStore):
    """Counts its writes."""

    def __init__(self) -> None:
        super().__init__()
        self.appends = 0

    async def append(self, state_id, first_seq, entries, info) -> None:
        self.appends += 1
        await super().append(state_id, first_seq, entries, info)


class FullStore(MemoryStore):
    """Its disk is full, as long as ``full`` says so: True, or for how many writes."""

    def __init__(self, full: bool | int = True) -> None:
        super().__init__()
        self.full = full
        self.refused = 0

    async def append(self, state_id, first_seq, entries, info) -> None:
        await trio.lowlevel.checkpoint()
        if self.full:
            self.full = self.full if self.full is True else self.full - 1
            self.refused += 1
            raise StoreError(f"{state_id} can't be written: No space left on device; free some space")
        await super().append(state_id, first_seq, entries, info)


class HungStore(MemoryStore):
    """Its writes hang while ``hung`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.hung = False
        self.let_go = trio.Event()

    async def append(self, state_id, first_seq, entries, info) -> None:
        if self.hung:
            await self.let_go.wait()
        await super().append(state_id, first_seq, entries, info)

"""What the laws are made of: how one is run, entries as a store gets them, and States to save."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import count
from typing import Any, Final, ParamSpec, cast

import trio

from ..._contracts import Store, info_of
from ..._errors import StateNotFoundError
from ...record._blocks import TextBlock, ToolCall
from ...record._codec import encode_entry, encode_info
from ...record._entries import AgentInfo, ModelReplyEntry, ModelRequestEntry, RunStartEntry, ToolResultEntry
from ...record._messages import Message, Reply, Usage
from ...record._replay import snapshots
from ...state import State

P = ParamSpec("P")

INFO: Final = b'{"format":1,"id":"bug-1","created_at":"2026-01-02T03:04:05Z"}'
"""An info as far as a store can tell."""

MOST_SECONDS: Final = 120
"""How long a law may take: a store that hangs fails."""


def law(test: Callable[P, Awaitable[None] | None]) -> Callable[P, None]:
    """Make a test of *test*, whose docstring says what a store must do: how it fails ends with that.

    An async one runs in a trio run of its own, so it needs no plugin, and none can get in its way.
    """

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def in_time() -> None:
            with trio.fail_after(MOST_SECONDS):
                await cast("Awaitable[None]", test(*args, **kwargs))

        try:
            if inspect.iscoroutinefunction(test):
                trio.run(in_time)
            else:
                test(*args, **kwargs)
        except BaseException as error:
            error.add_note(f"The law: {inspect.getdoc(test)}")
            raise

    return run


def leave_out(cls: type, laws: type, names: Iterable[str]) -> None:
    """Take those of *laws* out of *cls* that need one of the fixtures *names* which *cls* has set to ``None``."""
    absent = {name for name in names if getattr(cls, name) is None}
    for name in dir(laws):
        if name.startswith("test_") and absent.intersection(inspect.signature(getattr(laws, name)).parameters):
            setattr(cls, name, None)


# ---- Entries


def raw(seq: int, **fields: object) -> bytes:
    """An entry as far as a store can tell."""
    return json.dumps({"seq": seq, **fields}, separators=(",", ":")).encode()


def raws(count: int, first: int = 0, **fields: object) -> list[bytes]:
    """Entries *first* to *first + count - 1*."""
    return [raw(seq, **fields) for seq in range(first, first + count)]


async def entries_of(store: Store, state_id: str = "bug-1") -> list[bytes]:
    """What *store* has of a State; nothing where there is none."""
    try:
        return list(await store.read(state_id))
    except StateNotFoundError:
        return []


async def infos_of(store: Store) -> dict[str, Any]:
    """What *store* lists, by id, in its order."""
    return {state_id: json.loads(info) for state_id, info in await store.infos()}


async def cancelled_after(rounds: int, call: Callable[[], Awaitable[object]]) -> bool:
    """Await ``call()``, cancel it after so many rounds of trio's scheduler, and return whether that was too late."""
    has_ended = False

    async def run() -> None:
        nonlocal has_ended
        await call()
        has_ended = True
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        for _ in range(rounds):
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    return has_ended


def moments() -> Iterator[int]:
    """Numbers of rounds to cancel something after, without end: each of the first, then ever fewer."""
    yield from range(8)
    yield from (2**power for power in count(3))


def system_tasks() -> int:
    """How many tasks go on that belong to no nursery of the program's: trio's own, its main task, and hidden ones."""
    root = trio.lowlevel.current_root_task()
    return 0 if root is None else sum(len(nursery.child_tasks) for nursery in root.child_nurseries)


# ---- States


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


def subagent(state_id: str, parent_id: str) -> State:
    """A State that a call of another State started."""
    state = State(id=state_id, messages=[Message.user("Look into it.")])
    state.commit(lambda snap, at: RunStartEntry(snap.length, snap.turn, at, AgentInfo(), parent_id, "call_1"))
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


def batches(state: State, size: int) -> Iterator[tuple[int, list[bytes], bytes]]:
    """What ``append`` gets when every *size* entries are saved."""
    entries: list[bytes] = []
    for entry, snap in zip(state.history, snapshots(state.history), strict=True):
        entries.append(encode_entry(entry))
        if len(entries) == size or snap.length == len(state.history):
            yield snap.length - len(entries), entries, encode_info(info_of(state.id, snap))
            entries = []


async def put(store: Store, state: State, *, size: int = 2) -> None:
    """Save *state* in batches of *size* entries."""
    for first, entries, info in batches(state, size):
        await store.append(state.id, first, entries, info)

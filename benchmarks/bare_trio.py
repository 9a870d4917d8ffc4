"""The floor: an agent in bare trio. A list of frozen attrs entries, a nursery a turn; no schema, no framework."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import trio


@attrs.frozen
class Entry:
    seq: int
    kind: str
    data: dict[str, Any]


async def add(a: int, b: int) -> int:
    return a + b


async def slow(a: int, b: int) -> int:
    await trio.sleep(0.02)
    return a + b


async def agent(turns: int, calls: int, delay: float, fn: Callable[..., Awaitable[int]]) -> list[Entry]:
    """Run *turns* turns of *calls* calls each; the model takes *delay* seconds. Return the history."""
    log = [Entry(0, "user", {"text": "go"})]

    async def one(args: dict[str, int]) -> None:
        log.append(Entry(len(log), "result", {"value": await fn(**args)}))

    for turn in range(turns):
        await (trio.sleep(delay) if delay else trio.lowlevel.checkpoint())
        asked = [{"a": turn, "b": i} for i in range(calls)]
        log.append(Entry(len(log), "reply", {"calls": asked}))
        async with trio.open_nursery() as nursery:
            for args in asked:
                nursery.start_soon(one, args)
    await (trio.sleep(delay) if delay else trio.lowlevel.checkpoint())
    log.append(Entry(len(log), "reply", {"text": "done"}))
    return log

"""The floor: an agent in bare trio. A list of frozen attrs entries, a nursery a turn; no schema, nothing else."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs
import orjson
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


def add_sync(a: int, b: int) -> int:
    return a + b


def slow_sync(a: int, b: int) -> int:
    time.sleep(0.02)
    return a + b


def in_thread(fn: Callable[..., int]) -> Callable[..., Awaitable[int]]:
    """Return an async function that calls *fn* in a thread, as many at once as there are calls."""
    limiter = trio.CapacityLimiter(1_000)

    async def call(a: int, b: int) -> int:
        return await trio.to_thread.run_sync(fn, a, b, limiter=limiter)

    return call


Tool = Callable[..., Awaitable[int]]
ASYNC: tuple[Tool, Tool] = (add, slow)
SYNC: tuple[Tool, Tool] = (in_thread(add_sync), in_thread(slow_sync))


async def agent(turns: int, calls: int, delay: float, fn: Tool) -> list[Entry]:
    """Run *turns* turns of *calls* calls each; the model takes *delay* seconds. Return the history."""
    log = [Entry(0, "user", {"text": "go"})]

    async def one(args: dict[str, int]) -> None:
        log.append(Entry(len(log), "result", {"value": await fn(**args)}))

    for turn in range(turns):
        if delay:
            await trio.sleep(delay)
        else:
            await trio.lowlevel.checkpoint()
        asked = [{"a": turn, "b": i} for i in range(calls)]
        log.append(Entry(len(log), "reply", {"calls": asked}))
        async with trio.open_nursery() as nursery:
            for args in asked:
                nursery.start_soon(one, args)
    if delay:
        await trio.sleep(delay)
    else:
        await trio.lowlevel.checkpoint()
    log.append(Entry(len(log), "reply", {"text": "done"}))
    return log


async def saved(turns: int, path: Path) -> None:
    """Append and sync as often as an agent that saves has to, before the request and before the tool, and no more."""
    line = b'{"kind":"model_request","seq":2,"turn":1,"at":"2026-12-01T21:49:20.098825Z","content":"fake/fake"}\n'
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def append() -> None:
        os.write(file, line * 3)
        os.fdatasync(file)

    for _ in range(2 * turns):
        await trio.to_thread.run_sync(append)
    os.close(file)


async def streamed(url: str) -> int:
    """Take a stream apart as it comes: lines, and the JSON of each event. Return how many events there were."""
    import httpx  # 0.1 s, for this alone

    events, rest = 0, b""
    async with (
        httpx.AsyncClient(verify=False) as client,  # It's plain HTTP, and to read certificates takes 40 ms.
        client.stream("POST", url, json={"stream": True}) as response,
    ):
        async for chunk in response.aiter_bytes():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line.startswith(b"data: ") and line != b"data: [DONE]":
                    orjson.loads(line[6:])
                    events += 1
    return events

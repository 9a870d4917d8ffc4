"""W8: what does it cost an asyncio program that its Agents run in a Portal?

* a call that does nothing, 1 to 1,000 at the same time, beside ``asyncio.to_thread``: µs of wall time per call;
* a run of 5 turns (a think and an async tool each): in the Portal against under trio, one after the other, µs of CPU;
* a reply of 10,000 small pieces, iterated: the same, per piece.

Best and median of n; gc as it is by default. Law: a call costs no more where many are on at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from statistics import median
from time import perf_counter_ns, process_time_ns
from typing import Any, final

import ours
import trio
from machine import FLAT, describe, ratio

from alpineagents import Agent, Model, Reply, Request, TextBlock, TextDelta, aio

AT_ONCE = (1, 10, 100, 1_000)
CALLS, RUNS, TURNS, PIECES = 2_000, 100, 5, 10_000
ROUNDS = 7

Costs = dict[tuple[str, int], list[float]]


@final
class Talker(Model):
    """Answers with many small pieces, each in a turn of trio's loop."""

    name = "fake/talker"
    context_window = None

    async def respond(self, request: Request, emit: Any) -> Reply:
        for _ in range(PIECES):
            emit(TextDelta("word "))
            await trio.lowlevel.checkpoint()
        return Reply((TextBlock("word " * PIECES),), self.name, "stop", ours.USAGE)


async def nothing() -> None:
    """Do nothing, under trio."""


async def calls(call: Callable[[], Awaitable[None]], at_once: int) -> float:
    """Return the µs per call, *at_once* of them at the same time."""

    async def some() -> None:
        for _ in range(CALLS // at_once):
            await call()

    start = perf_counter_ns()
    await asyncio.gather(*[some() for _ in range(at_once)])
    return (perf_counter_ns() - start) / CALLS / 1_000


async def runs(run: Callable[..., Awaitable[Any]]) -> float:
    """Return the µs of CPU per run of 5 turns; *run* gets what is to be called, and its argument."""
    start = process_time_ns()
    for _ in range(RUNS):
        await run(ours.agent(ours.Counting(TURNS)).run, ours.conversation())
    return (process_time_ns() - start) / RUNS / 1_000


async def pieces(stream: Callable[[Agent, str], Any]) -> float:
    """Return the µs of CPU per piece of a reply that is iterated."""
    start = process_time_ns()
    async with stream(Agent(model=Talker()), "go") as events:
        async for _ in events:
            pass
    return (process_time_ns() - start) / PIECES / 1_000


async def under_asyncio(costs: Costs) -> None:
    async with aio.Portal() as portal:
        await calls(lambda: portal.run(nothing), 10)  # warm
        for at_once in AT_ONCE:
            costs.setdefault(("portal.run", at_once), []).append(await calls(lambda: portal.run(nothing), at_once))
            costs.setdefault(("asyncio.to_thread", at_once), []).append(
                await calls(lambda: asyncio.to_thread(lambda: None), at_once)
            )
        costs.setdefault(("run in a Portal", TURNS), []).append(await runs(portal.run))
        costs.setdefault(("stream in a Portal", PIECES), []).append(await pieces(portal.stream))


async def under_trio(costs: Costs) -> None:
    await runs(lambda fn, state: fn(state))  # warm
    costs.setdefault(("run under trio", TURNS), []).append(await runs(lambda fn, state: fn(state)))
    costs.setdefault(("stream under trio", PIECES), []).append(await pieces(Agent.stream))


def main() -> None:
    print(describe())
    costs: Costs = {}
    for _ in range(ROUNDS):
        trio.run(under_trio, costs)
        asyncio.run(under_asyncio(costs))
    print(f"{'':20}{'n':>8}{'best':>9}{'median':>9}  µs")
    for (name, n), values in sorted(costs.items()):
        print(f"{name:20}{n:>8,}{min(values):>9.1f}{median(values):>9.1f}")
    for kind, n in (("run", TURNS), ("stream", PIECES)):
        more = ratio(costs[f"{kind} in a Portal", n], costs[f"{kind} under trio", n])
        print(f"{kind} in a Portal / under trio: {more:.2f}")
    beside = [ratio(costs["portal.run", n], costs["asyncio.to_thread", n]) for n in AT_ONCE]
    print(f"portal.run / asyncio.to_thread, 1 to 1,000 at once: {', '.join(f'{value:.2f}' for value in beside)}")
    alone, crowded = min(costs["portal.run", 1]), min(costs["portal.run", AT_ONCE[-1]])
    assert crowded <= FLAT * alone, "a call costs more where many are on at the same time"


if __name__ == "__main__":
    main()

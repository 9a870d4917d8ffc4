"""W1: what does a turn cost, and does it grow with the run?

A turn is one think and one async tool; the model is a fake, there is no store. Unit: µs of CPU per turn (nothing
waits, so this is the wall time of an idle machine), best and median of n. Sizes: runs of 10 to 10,000 turns, with
garbage collection off and on. Floor: the same agent in bare trio, in between. Law: with gc off flat within 1.3x from
100 turns on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from statistics import median
from time import process_time_ns
from typing import Any

import bare_trio
import ours
import trio
from machine import FLAT, collecting, describe, growth, ratio

from alpineagents.testing import FakeModel

SIZES = (10, 100, 1_000, 10_000)
ROUNDS, MOST_ROUNDS = 3, 6
"""More than ROUNDS only while the law seems broken: on a busy machine the best of 3 may not be."""

Costs = dict[tuple[str, int, bool], list[float]]


async def bare(turns: int) -> None:
    log = await bare_trio.agent(turns, 1, 0, bare_trio.add)
    assert len(log) == 2 * turns + 2


async def with_model(turns: int) -> None:
    await _run(ours.Counting(turns), turns)


async def with_fake_model(turns: int) -> None:
    await _run(FakeModel(ours.Counting(turns).reply, context_window=10**9), turns)


async def _run(model: Any, turns: int) -> None:
    state = ours.conversation()
    answer = await ours.agent(model).run(state)
    assert answer == "done"
    assert state.turn == turns + 1


SIDES: dict[str, Callable[[int], Awaitable[None]]] = {
    "bare trio": bare,
    "ours": with_model,
    "ours, FakeModel": with_fake_model,
}


async def microseconds(side: Callable[[int], Awaitable[None]], turns: int, gc_on: bool) -> float:
    """Return the cost of a turn; short runs are repeated until there are 1,000 turns."""
    runs = max(1, 1_000 // turns)
    with collecting(gc_on):
        start = process_time_ns()
        for _ in range(runs):
            await side(turns)
        return (process_time_ns() - start) / runs / turns / 1_000


async def measure(costs: Costs) -> None:
    for turns in SIZES:
        for gc_on in (False, True):
            for name, side in SIDES.items():
                costs.setdefault((name, turns, gc_on), []).append(await microseconds(side, turns, gc_on))


def growth_of(costs: Costs, name: str, gc_on: bool) -> float:
    return growth(list(zip(*[costs[name, turns, gc_on] for turns in SIZES[1:]], strict=True)))


def law_holds(costs: Costs) -> bool:
    return all(growth_of(costs, name, gc_on=False) <= FLAT for name in SIDES)


async def main() -> None:
    print(describe())
    costs: Costs = {}
    for _ in range(3):
        await microseconds(with_model, 100, gc_on=False)  # warm
    for rounds in range(MOST_ROUNDS):
        if rounds >= ROUNDS and law_holds(costs):
            break
        await measure(costs)
    print(f"{'':18}{'gc':>4}{'turns':>8}{'best':>8}{'median':>8}  µs per turn")
    for (name, turns, gc_on), values in sorted(costs.items(), key=lambda item: (item[0][0], item[0][2], item[0][1])):
        gc = "on" if gc_on else "off"
        print(f"{name:18}{gc:>4}{turns:>8,}{min(values):>8.1f}{median(values):>8.1f}")
    for name in SIDES:
        off, on = growth_of(costs, name, gc_on=False), growth_of(costs, name, gc_on=True)
        print(f"{name:18} grows {off:.2f}x from 100 turns to 10,000 (gc on: {on:.2f}x)")
    ratios = [ratio(costs["ours", turns, False], costs["bare trio", turns, False]) for turns in SIZES]
    print(f"ours / bare trio, gc off: {', '.join(f'{value:.2f}' for value in ratios)}")
    assert law_holds(costs), "a turn of a long run costs more than one of a short run"


if __name__ == "__main__":
    trio.run(main)

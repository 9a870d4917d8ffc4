"""What the benchmarks share: the machine's name, gc on and off, and what to make of costs where the speed changes.

A shared machine is slow for minutes and then fast. So costs are compared within a round, where they were measured right
one after the other.
"""

from __future__ import annotations

import gc
import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Final

FLAT: Final = 1.3
"""A cost is flat when its largest value is at most this many times its smallest."""


def describe() -> str:
    """Return what the figures were measured on."""
    return f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores"


@contextmanager
def collecting(on: bool) -> Iterator[None]:
    """Run the block with cyclic garbage collection on (with the default thresholds) or off, from a clean start."""
    gc.collect()
    if not on:
        gc.disable()
    try:
        yield
    finally:
        gc.enable()


def growth(rounds: Sequence[Sequence[float]]) -> float:
    """Return how many times the smallest cost the largest is; *rounds* has the costs at all sizes, several times.

    What grows does so in each round and in the best of all rounds; nothing else does.
    """
    best: Sequence[float] = [min(costs) for costs in zip(*rounds, strict=True)]
    return min([max(costs) / min(costs) for costs in [best, *rounds]])


def ratio(costs: Sequence[float], floors: Sequence[float]) -> float:
    """Return the median of *costs* over *floors*, round by round."""
    return median([cost / floor for cost, floor in zip(costs, floors, strict=True)])

"""What the benchmarks share: the machine's name, gc on and off, and best of n with a law to hold."""

from __future__ import annotations

import gc
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
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


def spread(costs: list[float]) -> float:
    """Return how many times the smallest of *costs* the largest is."""
    return max(costs) / min(costs)

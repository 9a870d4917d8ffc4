"""What every side of a comparison uses: a timer, memory, and one line of JSON as its report. Standard library only.

A side is a script, ``b_NAME.py WORKLOAD SIZE [MODE]``, that runs in a fresh process of its own environment. The
workloads:

W1: SIZE turns (think and one tool), a stateless fake model, no store.
W2: SIZE agents at once, 5 turns each; the model takes 50 ms. The ideal is 0.30 s.
W6: one reply asks for SIZE tools of 20 ms. The ideal is 0.02 s.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import time
from typing import Any

TURNS = 5
THINK = 0.05
"""Seconds."""
WARM_TURNS = 20


def arguments() -> tuple[str, int, str]:
    """Return workload, size and mode; with ``GC=off`` in the environment turn garbage collection off."""
    if os.environ.get("GC") == "off":
        gc.disable()
    workload, size, *mode = sys.argv[1:]
    return workload, int(size), mode[0] if mode else "async"


def resident_kib() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * (resource.getpagesize() // 1024)


def peak_kib() -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))


class Measured:
    """A block whose time and memory are printed at its end, memory where the system tells."""

    def __init__(self, agents: int = 0) -> None:
        self.agents = agents

    def __enter__(self) -> None:
        gc.collect()
        self.memory = self.agents > 0 and sys.platform == "linux"
        if self.memory:
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")  # the peak starts again from what is resident now
            self.base = resident_kib()
        self.cpu, self.start = time.process_time(), time.perf_counter()

    def __exit__(self, kind: object, *_: object) -> None:
        seconds, cpu = time.perf_counter() - self.start, time.process_time() - self.cpu
        report: dict[str, Any] = {"seconds": seconds, "cpu": cpu}
        if self.memory:
            report["kib"] = (peak_kib() - self.base) / self.agents
        if kind is None:
            print(json.dumps(report), flush=True)

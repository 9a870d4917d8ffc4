"""What every side of a comparison uses: a timer, memory, and one line of JSON as its report. Standard library only.

A side is a script, ``b_NAME.py WORKLOAD SIZE [MODE]``, that runs in a fresh process of its own environment. The
workloads:

W1: SIZE turns (think and one tool), a stateless fake model, no store.
W2: SIZE agents at once, 5 turns each; the model takes 50 ms. The ideal is 0.30 s.
W4: as W1, saved durably in files; then the State is loaded. Bare trio: three lines appended and synced, twice a turn,
    in a worker thread, and orjson on what was written. A shared machine's disk is fast and slow by turns: CPU counts.
W5: one answer of SIZE small deltas, streamed in the Chat Completions format by a server in a process of its own, to an
    agent whose reporter gets each. Bare trio: httpx, lines, and orjson on each event.
W6: one reply asks for SIZE tools of 20 ms. The ideal is 0.02 s.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHAT = "/v1/chat/completions"

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
    """A block whose time and memory are printed at its end unless *quiet*, memory where the system tells."""

    def __init__(self, agents: int = 0, *, quiet: bool = False) -> None:
        self.agents = agents
        self.quiet = quiet
        self.report: dict[str, Any] = {}

    def __enter__(self) -> Measured:
        gc.collect()
        self.memory = self.agents > 0 and sys.platform == "linux"
        if self.memory:
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")  # the peak starts again from what is resident now
            self.base = resident_kib()
        self.cpu, self.start = time.process_time(), time.perf_counter()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        seconds, cpu = time.perf_counter() - self.start, time.process_time() - self.cpu
        self.report = {"seconds": seconds, "cpu": cpu}
        if self.memory:
            self.report["kib"] = (peak_kib() - self.base) / self.agents
        if kind is None and not self.quiet:
            print(json.dumps(self.report), flush=True)


@contextmanager
def folder() -> Iterator[Path]:
    """Yield a folder beside the checkout: what /tmp is made of may be no disk."""
    build = Path(__file__).parents[2] / "build"
    build.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=build) as name:
        yield Path(name)


def report_saved(saving: Measured, loading: Measured, place: Path) -> None:
    """Print what saving and loading took, and the bytes of the files in *place*."""
    size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    print(json.dumps({**saving.report, "bytes": size, "load": loading.report["cpu"]}), flush=True)

"""W2 and W6: what do many agents at once cost, and many tools at once?

W2: 100 to 10,000 agents at once, 5 turns each, think and one async tool; the model takes 50 ms, so the ideal is 0.30 s.
W6: one reply asks for 200 tools of 20 ms, async and in threads; the ideal is 0.02 s. Units: s of wall time, s of CPU,
KiB of memory per agent at the peak, best of n. With garbage collection off and on. Floor: the same in bare trio, in
between; each case runs in a fresh process (``peers/b_ours.py``, ``peers/b_bare_trio.py``). Law: with gc off the CPU
per agent, and the memory, are flat within 1.3x from 1,000 agents to 10,000.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from typing import Final, NamedTuple

sys.path.insert(0, str(Path(__file__).parent / "peers"))

from machine import FLAT, describe, growth, ratio
from run import BARE, OURS, SIDES, Case, once  # from the folder of the peers

SIZES = (100, 1_000, 10_000)
ROUNDS, MOST_ROUNDS = 2, 5
"""More than ROUNDS only while the law seems broken: on a busy machine the best of 2 may not be."""
MANY: Final = [Case("W2", size, "async") for size in SIZES]
TOOLS: Final = [Case("W6", 200, mode) for mode in ("async", "sync")]
IDEAL: Final = {"W2": 0.30, "W6": 0.02}
"""Seconds."""


class Measured(NamedTuple):
    """One case of one side, every round."""

    seconds: list[float]
    cpu: list[float]
    kib: list[float]


Results = dict[tuple[str, Case, bool], Measured]


def measure(results: Results) -> None:
    for case in MANY + TOOLS:
        for gc_on in (False, True):
            for name in (BARE, OURS):
                report = once(name, SIDES[name], sys.executable, case, gc_on=gc_on)
                seconds, cpu, kib = results[name, case, gc_on]
                seconds.append(report["seconds"])
                cpu.append(report["cpu"])
                kib.append(report.get("kib", 0.0))


def growth_of(results: Results, name: str, what: str, gc_on: bool) -> float:
    """Return how many times the least an agent costs at the worst size, from 1,000 on: of CPU, or of memory."""
    found = [(case, getattr(results[name, case, gc_on], what)) for case in MANY[1:]]
    per_agent = [[value / case.size if what == "cpu" else value for value in values] for case, values in found]
    return growth(list(zip(*per_agent, strict=True)))


def law_holds(results: Results) -> bool:
    return all(growth_of(results, OURS, what, gc_on=False) <= FLAT for what in ("cpu", "kib"))


def show(results: Results) -> None:
    print(f"{'':24}{'gc':>4}{'s':>9}{'/ ideal':>9}{'s CPU':>9}{'KiB':>7}   ours / bare trio: s, CPU, KiB")
    for case in MANY + TOOLS:
        for gc_on in (False, True):
            floor = results[BARE, case, gc_on]
            for name in (BARE, OURS):
                found = results[name, case, gc_on]
                seconds, cpu, kib = map(min, found)
                ideal = f"{seconds / IDEAL[case.workload]:9.1f}"
                memory = f"{kib:7.1f}" if kib else " " * 7
                ratios = [ratio(own, its) for own, its in zip(found, floor, strict=True) if its[0]]
                beside = "   " + ", ".join(f"{value:.2f}" for value in ratios) if name == OURS else ""
                gc = "on" if gc_on else "off"
                print(f"{case!s:15}{name:9}{gc:>4}{seconds:9.3f}{ideal}{cpu:9.3f}{memory}{beside}")


def main() -> None:
    print(describe())
    results: Results = defaultdict(lambda: Measured([], [], []))
    for rounds in range(MOST_ROUNDS):
        if rounds >= ROUNDS and law_holds(results):
            break
        measure(results)
    show(results)
    for name in (BARE, OURS):
        for gc_on in (False, True):
            cpu, kib = (growth_of(results, name, what, gc_on) for what in ("cpu", "kib"))
            print(f"{name:9} gc {'on ' if gc_on else 'off'} an agent's CPU grows {cpu:.2f}x, its memory {kib:.2f}x")
    assert law_holds(results), "one of many agents costs more than one of few"


if __name__ == "__main__":
    main()

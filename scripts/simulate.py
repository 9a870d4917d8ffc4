"""Runs the scenarios of scripts/scenarios.py under chance and faults, a seed after the other (``make simulate``).

    python scripts/simulate.py                               2,000 seeds of each of the three, on two cores
    python scripts/simulate.py chat_service --seeds 17       seed 17 alone, to see it fail again
    python scripts/simulate.py --seeds 0:200 --jobs 1

Prints seeds, steps, faults that came, per kind, and how often each invariant was checked. The exit code is 0 when all
went well; else the first failure of each scenario is told: its seed, the faults that it takes, and the conversation.
"""

from __future__ import annotations

import argparse
import functools
import operator
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import scenarios

from alpineagents.testing import SimulationError, SimulationReport, simulate

SEEDS = range(2_000)
CHUNK = 50
"""Seeds that a process takes at once."""


def played(name: str, seeds: range) -> SimulationReport | str:
    """Run a scenario; return its report, or what failed."""
    try:
        return simulate(getattr(scenarios, name), seeds)
    except SimulationError as error:
        return str(error)


def chunks(seeds: range) -> Iterator[range]:
    for start in range(0, len(seeds), CHUNK):
        yield seeds[start : start + CHUNK]


def run(names: list[str], seeds: range, jobs: int) -> bool:
    """Run all of them and say how it went; return whether all went well."""
    failed = False
    with ProcessPoolExecutor(jobs) as pool:
        for name in names:
            start = time.monotonic()
            parts = [pool.submit(played, name, part) for part in chunks(seeds)]
            reports: list[SimulationReport] = []
            for part in parts:
                outcome = part.result()
                if isinstance(outcome, str):
                    print(outcome)
                    failed = True
                    break
                reports.append(outcome)
            else:
                print(functools.reduce(operator.add, reports))
            for part in parts:
                part.cancel()
            print(f"in {time.monotonic() - start:.0f} s\n", flush=True)
    return not failed


def seeds_of(text: str) -> range:
    """Read ``17`` or ``0:200``."""
    first, colon, last = text.partition(":")
    return range(int(first), int(last) if colon else int(first) + 1)


def main() -> int:
    known = [scenario.__name__ for scenario in scenarios.SCENARIOS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", nargs="*", help=f"which of them (default: all): {', '.join(known)}")
    parser.add_argument("--seeds", type=seeds_of, default=SEEDS, help="one, or from and to (default: 0:2000)")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once (default: 2)")
    args = parser.parse_args()
    if unknown := set(args.scenario) - set(known):
        parser.error(f"no scenario {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return 0 if run(args.scenario or known, args.seeds, args.jobs) else 1


if __name__ == "__main__":
    sys.exit(main())

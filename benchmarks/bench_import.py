"""W3: what does ``import alpineagents`` cost beyond the packages that it stands on?

Unit: ms over a bare Python, wall and CPU, of fresh processes. Sizes: bare Python, the four packages that an import
needs, and ours, in turn, so that each round gives one ratio. Printed are medians over the rounds, the quartiles of the
ratio in brackets.
Floor: those four alone. Law: nothing heavy comes along.
"""

from __future__ import annotations

import os
import subprocess
import sys
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median, quantiles
from time import perf_counter
from typing import Final, NamedTuple

from machine import describe

ROUNDS: Final = 60
HEAVY: Final = {
    "asyncio",
    "dbos",
    "hypercorn",
    "httpx",
    "mcp",
    "opentelemetry",
    "psycopg",
    "pydantic",
    "rich",
    "sqlite3",
}
"""Modules that only who uses them should pay for."""

CASES: Final = {
    "bare Python": "pass",
    "trio, attrs, cattrs, orjson": "import trio, attrs, cattrs, orjson",
    "alpineagents": "import alpineagents",
}
ENVIRONMENT: Final = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""With bytecode files, which an installed package has."""


class Cost(NamedTuple):
    wall: float
    """Milliseconds."""
    cpu: float
    """Milliseconds, user and system."""


def once(code: str) -> Cost:
    """Run *code* in a fresh process."""
    before, start = getrusage(RUSAGE_CHILDREN), perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, env=ENVIRONMENT)
    wall, after = perf_counter() - start, getrusage(RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(wall * 1e3, cpu * 1e3)


def imported(code: str) -> set[str]:
    """Return the names of the modules that *code* imports."""
    report = f"import sys; before = set(sys.modules)\n{code}\nprint(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", report], check=True, env=ENVIRONMENT, capture_output=True, text=True)
    return set(done.stdout.split())


def main() -> None:
    print(describe())
    for code in CASES.values():
        once(code)  # writes the bytecode files
    costs: dict[str, list[Cost]] = {name: [] for name in CASES}
    for _ in range(ROUNDS):
        for name, code in CASES.items():
            costs[name].append(once(code))
    wall = {name: median(cost.wall for cost in values) for name, values in costs.items()}
    cpu = {name: median(cost.cpu for cost in values) for name, values in costs.items()}
    bare, floor, ours = CASES
    for name in (floor, ours):
        modules = len(imported(CASES[name]))
        print(f"{name:28}{wall[name] - wall[bare]:7.0f} ms wall{cpu[name] - cpu[bare]:7.0f} ms CPU{modules:6} modules")
    print(f"bare Python itself takes {wall[bare]:.0f} ms wall")
    for unit, kind in (("wall", 0), ("CPU", 1)):
        ratios = [
            (mine[kind] - alone[kind]) / (four[kind] - alone[kind])
            for alone, four, mine in zip(*costs.values(), strict=True)
            if four[kind] > alone[kind]
        ]
        low, middle, high = quantiles(ratios, n=4)
        print(f"ours / the four, {unit}: {middle:.2f} ({low:.2f} to {high:.2f})")
    heavy = HEAVY & imported(CASES[ours])
    assert not heavy, f"import alpineagents also imports {', '.join(sorted(heavy))}"


if __name__ == "__main__":
    main()

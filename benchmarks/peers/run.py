"""How do we compare with other libraries, side by side on this machine?

Every case runs in a fresh process, all sides in turn, several rounds; each library has an environment of its own
under ``build/peers``, made by pip at the first run. Workloads and units: ``common.py``, and ``W3``, ms that importing
the library takes beyond a bare Python. The figures are medians; the ratios ours / bare trio and ours / peer come
last. On a busy machine only the ratios mean something. To add a library: a script ``b_NAME.py`` and a line in PEERS.

    python benchmarks/peers/run.py [--quick] [--peers alpineagents_0_7] [--workloads W1,W2,W4] [--agents 1000,10000]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from time import perf_counter
from typing import Final, NamedTuple

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))

from machine import describe  # noqa: E402  # from the folder above

LONGEST, LONGEST_QUICK = 150.0, 60.0
"""Seconds after which a case is given up."""
LEFT_OUT: Final = {"PYTHONDONTWRITEBYTECODE", "PYTHONPATH"}
"""So that there are bytecode files, as an installed package has, and no library but that of the environment."""
ENVIRONMENT: Final = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}


class Side(NamedTuple):
    """A library: what pip installs, what a program imports, and how its tools can run."""

    requirement: str | None
    """One or several, with spaces between. ``None``: the environment that this runs in has it."""
    imports: str
    modes: tuple[str, ...] = ("async",)
    lacks: tuple[str, ...] = ()
    """Workloads that it can't do, or that nobody wrote for it."""

    def takes_part(self, case: Case) -> bool:
        """Whether it can run this; only W1 and W6 come in two modes, async and sync."""
        return case.workload not in self.lacks and (case.mode in self.modes or case.workload not in ("W1", "W6"))


OURS, BARE = "ours", "bare_trio"
SIDES: Final = {
    BARE: Side(None, "import trio, attrs, cattrs, orjson", ("async", "sync")),
    OURS: Side(None, "import alpineagents", ("async", "sync")),
}
PEERS: Final = {
    "alpineagents_0_7": Side("alpineagents==0.7.1", "import alpineagents", ("async", "sync")),
    "pydantic_ai": Side("pydantic-ai-slim==2.68.0", "import pydantic_ai", ("async", "sync"), lacks=("W5",)),
    "openai_agents": Side("openai-agents==0.24.0", "import agents", ("async", "sync"), lacks=("W5",)),
    "langgraph": Side(
        "langgraph==1.2.24 langgraph-checkpoint-sqlite==3.1.2",
        "import langgraph.prebuilt",
        ("async", "sync"),
        lacks=("W5",),
    ),
    "smolagents": Side("smolagents==1.26.0", "import smolagents", ("sync",), lacks=("W4", "W5")),
    "inspect_ai": Side("inspect-ai==0.3.285", "import inspect_ai.model, inspect_ai.tool", lacks=("W4", "W5")),
}


class Case(NamedTuple):
    workload: str
    size: int
    mode: str

    def __str__(self) -> str:
        return self.workload if self.workload == "W3" else f"{self.workload} {self.size:,} {self.mode}"


class Unit(NamedTuple):
    key: str
    """Of the report."""
    text: str
    factor: float = 1.0
    per_size: bool = False


UNITS: Final[dict[str, tuple[Unit, ...]]] = {
    "W1": (Unit("seconds", "µs per turn", 1e6, per_size=True), Unit("cpu", "µs CPU per turn", 1e6, per_size=True)),
    "W2": (Unit("seconds", "s"), Unit("cpu", "s CPU"), Unit("kib", "KiB per agent")),
    "W4": (
        Unit("seconds", "µs per turn", 1e6, per_size=True),
        Unit("cpu", "µs CPU per turn", 1e6, per_size=True),
        Unit("bytes", "bytes per turn", per_size=True),
        Unit("load", "µs CPU to load/turn", 1e6, per_size=True),
    ),
    "W5": (Unit("seconds", "µs per delta", 1e6, per_size=True), Unit("cpu", "µs CPU per delta", 1e6, per_size=True)),
    "W6": (Unit("seconds", "ms", 1e3), Unit("cpu", "ms CPU", 1e3)),
    "W3": (Unit("seconds", "ms", 1e3), Unit("cpu", "ms CPU", 1e3)),
}


def python_of(name: str, side: Side) -> str | None:
    """Return the interpreter of *side*'s environment, which is made if it isn't there; None if pip can't."""
    if side.requirement is None:
        return sys.executable
    folder = ROOT / "build" / "peers" / name
    python, stamp = folder / "bin" / "python", folder / "installed"
    if not stamp.exists() or stamp.read_text() != side.requirement:
        print(f"Installing {side.requirement} in {folder.relative_to(ROOT)} ...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        command = [str(python), "-m", "pip", "install", "--quiet", *side.requirement.split()]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            print(f"{name} is left out: {done.stderr.strip()}", flush=True)
            return None
        stamp.write_text(side.requirement)
    return str(python)


def cases(workloads: list[str], agents: list[int], quick: bool) -> list[Case]:
    found: list[Case] = []
    for workload in workloads:
        if workload == "W1":
            sizes = (10, 1_000) if quick else (10, 100, 1_000, 10_000)
            found += [Case("W1", size, mode) for size in sizes for mode in ("async", "sync")]
        elif workload == "W2":
            found += [Case("W2", size, "async") for size in agents]
        elif workload == "W4":
            found.append(Case("W4", 100 if quick else 1_000, "async"))
        elif workload == "W5":
            found.append(Case("W5", 2_000 if quick else 20_000, "async"))
        elif workload == "W6":
            found += [Case("W6", 200, mode) for mode in ("async", "sync")]
        else:
            found.append(Case("W3", 1, "async"))
    return found


def timed(python: str, code: str) -> dict[str, float]:
    """Return the seconds that a fresh process takes for *code*."""
    before, start = getrusage(RUSAGE_CHILDREN), perf_counter()
    subprocess.run([python, "-P", "-c", code], check=True, env=ENVIRONMENT)
    seconds, after = perf_counter() - start, getrusage(RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": seconds, "cpu": cpu}


def imported(python: str, side: Side) -> dict[str, float]:
    """Return what an import takes, beyond a bare Python: best of 5, interleaved."""
    timed(python, side.imports)  # writes the bytecode files
    pairs = [(timed(python, "pass"), timed(python, side.imports)) for _ in range(5)]
    return {
        key: min(whole[key] for _, whole in pairs) - min(bare[key] for bare, _ in pairs) for key in ("seconds", "cpu")
    }


def once(
    name: str, side: Side, python: str, case: Case, *, gc_on: bool = True, longest: float = LONGEST
) -> dict[str, float]:
    """Run a case in a fresh process and return its report; an empty one if it takes too long, or a peer fails."""
    if case.workload == "W3":
        return imported(python, side)
    command = [python, str(HERE / f"b_{name}.py"), case.workload, str(case.size), case.mode]
    path = os.pathsep.join([str(HERE), str(HERE.parent)])
    try:
        done = subprocess.run(
            command,
            env=ENVIRONMENT | {"PYTHONPATH": path, "GC": "on" if gc_on else "off"},
            capture_output=True,
            text=True,
            timeout=longest,
            check=False,
        )
    except subprocess.TimeoutExpired:
        print(f"\n{name}: {case} is given up after {longest:g} s", flush=True)
        return {}
    if done.returncode:
        failure = f"{name}: {case} failed:\n{done.stderr}"
        if side.requirement is None:
            raise SystemExit(failure)
        print(failure, flush=True)
        return {}
    report: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return report


def figure(unit: Unit, case: Case, reports: list[dict[str, float]]) -> float | None:
    """Return the median; None where something failed, or the side doesn't have this unit."""
    if not reports or any(unit.key not in report for report in reports):
        return None
    return median(report[unit.key] for report in reports) * unit.factor / (case.size if unit.per_size else 1)


def show(case: Case, reports: dict[str, list[dict[str, float]]]) -> None:
    units = UNITS[case.workload]
    print(f"\n{case!s:20}", *[f"{unit.text:>20}{'ours/it':>9}" for unit in units], sep="")
    ours = {unit: figure(unit, case, reports[OURS]) for unit in units}
    for name, found in reports.items():
        cells = [f"  {name:18}"]
        for unit in units:
            value, own = figure(unit, case, found), ours[unit]
            cells.append(" " * 20 if value is None else f"{value:>20,.4g}")
            cells.append(" " * 9 if value is None or own is None or name == OURS else f"{own / value:>9.2f}")
        print("".join(cells).rstrip(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--peers", default=",".join(PEERS), help="names, with commas between; '' for bare trio alone")
    parser.add_argument("--workloads", default="W1,W2,W4,W5,W6,W3")
    parser.add_argument("--agents", default="1000", help="sizes of W2")
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--quick", action="store_true", help="one round, fewer sizes: five minutes")
    wanted = parser.parse_args()
    rounds = wanted.rounds or (1 if wanted.quick else 3)
    longest = LONGEST_QUICK if wanted.quick else LONGEST
    sides = SIDES | {name: PEERS[name] for name in wanted.peers.split(",") if name}
    pythons = {name: python for name, side in sides.items() if (python := python_of(name, side)) is not None}
    print(describe(), f"{rounds} rounds", sep=", ")
    agents = [int(size) for size in wanted.agents.split(",")]
    for case in cases(wanted.workloads.split(","), agents, wanted.quick):
        reports: dict[str, list[dict[str, float]]] = defaultdict(list)
        for _ in range(rounds):
            for name, python in pythons.items():
                if sides[name].takes_part(case) and {} not in reports[name]:  # what failed once isn't tried again
                    reports[name].append(once(name, sides[name], python, case, longest=longest))
        show(case, reports)


if __name__ == "__main__":
    main()

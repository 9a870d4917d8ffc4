"""simulate(): a scenario run once per seed, under chance and faults that the seed decides, until one run fails."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from inspect import signature
from typing import Final, TypeAlias, final

import attrs
import trio

from .._hooks import witness
from ..run._groups import leaves, most_important, parts
from ..state import Recorder, error_text
from ._simulation._checks import Checks, hearing
from ._simulation._faults import FaultKind, Faults, InjectedFault, drawn
from ._simulation._order import repeatable, run, unshield
from ._simulation._steps import EndlessError, Steps
from ._simulation._watched import INVARIANTS, BrokenInvariantError
from ._simulation._world import Simulation
from ._source import counted

Scenario: TypeAlias = Callable[[Simulation], Awaitable[None]]

_LONGEST: Final = 90 * 24 * 3600.0
"""Seconds on the simulation's clock: a scenario that isn't done by then waits for what never comes."""
_MOST_STATES: Final = 3
"""Conversations that a failure shows."""


@final
@attrs.frozen(kw_only=True)
class SimulationReport:
    """What ``simulate`` has done. ``print`` it. Two of one scenario can be added, such as those of two processes."""

    scenario: str
    """The scenario's name."""
    seeds: int
    """Runs of the scenario."""
    steps: int
    """Steps of tasks in all of them."""
    states: int
    """States that were watched."""
    faults: Mapping[FaultKind, int]
    """Faults that came, per kind."""
    checks: Mapping[str, int]
    """How often each invariant was checked."""
    fingerprint: str
    """Tells all that was recorded, and in how many steps, apart from anything else: the same for the same seeds."""

    def __add__(self, other: SimulationReport) -> SimulationReport:
        """Return the report of both, one after the other."""
        return attrs.evolve(
            self,
            seeds=self.seeds + other.seeds,
            steps=self.steps + other.steps,
            states=self.states + other.states,
            faults={kind: self.faults[kind] + other.faults[kind] for kind in FaultKind},
            checks={name: self.checks[name] + other.checks[name] for name in INVARIANTS},
            fingerprint=sha256(f"{self.fingerprint} {other.fingerprint}".encode()).hexdigest(),
        )

    def __str__(self) -> str:
        faults = ", ".join(f"{kind} {count:,}" for kind, count in self.faults.items() if count)
        checks = [f"  {name}: {count:,}" for name, count in self.checks.items()]
        return "\n".join(
            [
                f"{self.scenario}: {self.seeds:,} seeds, {self.steps:,} steps, {self.states:,} States, all well",
                f"faults: {sum(self.faults.values()):,} ({faults or 'none'})",
                "invariants checked:",
                *checks,
            ]
        )


@final
class SimulationError(AssertionError):
    """A scenario failed: an invariant of the library doesn't hold, or the scenario itself raised something.

    The message says the seed, the faults that it takes, the conversation, and how to run it again. ``__cause__`` is
    what was raised.

    Attributes:
        seed: The seed.
        faults: The faults that the failure needs, in the order in which they came.
        states: The conversations, each as lines.
    """

    def __init__(self, message: str, seed: int, faults: tuple[InjectedFault, ...], states: tuple[str, ...]) -> None:
        super().__init__(message)
        self.seed: int = seed
        self.faults: tuple[InjectedFault, ...] = faults
        self.states: tuple[str, ...] = states


def simulate(
    scenario: Scenario,
    seeds: Iterable[int] = range(100),
    *,
    kinds: Collection[FaultKind] = tuple(FaultKind),
    faults: Iterable[InjectedFault] | None = None,
) -> SimulationReport:
    """Run *scenario* once per seed, each time with other faults and in another order, and check the library's promises.

    Each run has a clock that jumps where nobody works, one thread, no sockets; ids and times are counted. So a seed
    decides everything: what ``sim.random`` draws, how long models and stores take, in which order tasks run, and which
    faults come when. After every step of a task the States that have grown are checked: that replaying gives the same,
    that histories only grow, that conversations are well formed, that what is acknowledged is saved, that a run that
    ended has left nothing open, and that each call runs once and has one result.

    A seed that fails is run again with ever fewer faults, as long as it fails in the same way.

    Args:
        scenario: An async function of a ``Simulation``. It must get all its chance from ``sim.random``.
        seeds: Which runs. ``range(200)`` are two hundred; a single one to see it again: ``[17]``.
        kinds: Which kinds of faults may come; none: ``()``.
        faults: Exactly these faults in place of those of the seed, as a failure told them.

    Returns:
        What was done; ``print`` it.

    Raises:
        SimulationError: a run failed. Those behind it were not made.
        RuntimeError: called inside a trio run; call it in a plain test function.
        TypeError: *scenario* isn't a function of one argument.

    Example:
        >>> from alpineagents import Agent
        >>> async def greeting(sim: Simulation) -> None:
        ...     state = await sim.run(Agent(model=sim.model(lambda request: "hello"), store=sim.store), "hi")
        ...     assert state.answer == "hello"
        >>> simulate(greeting, seeds=range(20)).seeds
        20
    """
    __tracebackhide__ = True
    try:
        signature(scenario).bind(None)
    except (TypeError, ValueError):
        raise TypeError(
            f"scenario must be an async function of a Simulation, not {scenario!r:.80}: async def service(sim): ..."
        ) from None
    given = None if faults is None else tuple(faults)
    total = _Total()
    for seed in seeds:
        planned = drawn(seed, kinds) if given is None else given
        ended = _run_once(scenario, seed, planned)
        if ended.failure is not None:
            raise _told(scenario, seed, *_shrunk(scenario, seed, ended)) from ended.failure
        total.add(ended)
    return total.report(_name(scenario))


@attrs.frozen(kw_only=True, eq=False)
class _Ended:
    """One run of a scenario."""

    failure: BaseException | None
    faults: tuple[InjectedFault, ...]
    """Those that came."""
    steps: int
    checks: Counter[str]
    states: tuple[Recorder, ...]
    fingerprint: str


class _Total:
    """Sums over runs."""

    def __init__(self) -> None:
        self.seeds = 0
        self.steps = 0
        self.states = 0
        self.faults: Counter[FaultKind] = Counter()
        self.checks: Counter[str] = Counter()
        self.digest = sha256()

    def add(self, ended: _Ended) -> None:
        self.seeds += 1
        self.steps += ended.steps
        self.states += len(ended.states)
        self.faults.update(fault.kind for fault in ended.faults)
        self.checks.update(ended.checks)
        self.digest.update(f"{ended.steps} {ended.fingerprint}\n".encode())

    def report(self, name: str) -> SimulationReport:
        return SimulationReport(
            scenario=name,
            seeds=self.seeds,
            steps=self.steps,
            states=self.states,
            faults={kind: self.faults[kind] for kind in FaultKind},
            checks={name: self.checks[name] for name in INVARIANTS},
            fingerprint=self.digest.hexdigest(),
        )


def _run_once(scenario: Scenario, seed: int, planned: Sequence[InjectedFault]) -> _Ended:
    """Run *scenario* with these faults; what goes wrong in it is returned."""
    faults, checks = Faults(planned), Checks()
    steps = Steps(faults, checks)
    simulation = Simulation(seed, faults, checks)
    with repeatable(seed), counted(), hearing(checks.grown), _unwitnessed():
        run(lambda: _play(scenario, simulation, steps), steps)
        if steps.failure is None:
            try:
                checks.at_end()
            except BrokenInvariantError as error:
                steps.failure = error
    if isinstance(steps.failure, KeyboardInterrupt | SystemExit):
        raise steps.failure
    return _Ended(
        failure=steps.failure,
        faults=tuple(faults.came),
        steps=steps.count,
        checks=checks.counted,
        states=tuple(checks.states()),
        fingerprint=checks.fingerprint(),
    )


@contextmanager
def _unwitnessed() -> Iterator[None]:
    """Keep thousands of States from a test harness that would show each of them."""
    token = witness.set(None)
    try:
        yield
    finally:
        witness.reset(token)


async def _play(scenario: Scenario, simulation: Simulation, steps: Steps) -> None:
    """Await the scenario; what it raises, and what it leaves running, ends up in *steps*."""
    before = set(steps.tasks)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch_over, steps, name="watch over the simulation")
            with steps.scope:
                await scenario(simulation)
            nursery.cancel_scope.cancel()
    except BaseException as group:  # noqa: BLE001  # told to whoever called simulate
        steps.fail(most_important(parts(group)))
    left = [task.name for task in steps.tasks if task not in before]
    if left:
        steps.fail(EndlessError(f"when the scenario had ended, there still ran: {', '.join(left)}"))


async def _watch_over(steps: Steps) -> None:
    """End a scenario that waits for what never comes."""
    await trio.sleep(_LONGEST)
    waiting = [f"  {task.name}: {_place(task)}" for task in steps.tasks]
    steps.fail(EndlessError("\n".join(["it waits for what never comes; where its tasks are:", *waiting])))
    await trio.sleep(_LONGEST)
    for task in steps.tasks:
        unshield(task)
    await trio.sleep_forever()


def _place(task: trio.lowlevel.Task) -> str:
    """Say where a task waits: the innermost place that isn't trio's own."""
    places = [
        f"{frame.f_code.co_filename}:{line} in {frame.f_code.co_name}"
        for frame, line in task.iter_await_frames()
        if "/trio/" not in frame.f_code.co_filename
    ]
    return places[-1] if places else "in trio"


def _shrunk(scenario: Scenario, seed: int, failed: _Ended) -> tuple[_Ended, bool]:
    """Return the failure with as few faults as it takes, and whether it came again at all."""
    kind = _kind(failed)
    again = _run_once(scenario, seed, failed.faults)
    if _kind(again) != kind or again.fingerprint != failed.fingerprint:
        return failed, False
    best, tried = again, 0
    while tried < len(best.faults):
        fewer = best.faults[:tried] + best.faults[tried + 1 :]
        ended = _run_once(scenario, seed, fewer)
        if _kind(ended) == kind:
            best, tried = ended, 0
        else:
            tried += 1
    return best, True


def _kind(ended: _Ended) -> tuple[object, ...] | None:
    """Return what makes two failures the same."""
    if ended.failure is None:
        return None
    first = next(leaves(ended.failure))
    return type(first), first.invariant if isinstance(first, BrokenInvariantError) else _raised_at(first)


def _raised_at(error: BaseException) -> str:
    """Return file and line of the code that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def _told(scenario: Scenario, seed: int, ended: _Ended, repeats: bool) -> SimulationError:
    """Return what is raised for a failure."""
    if ended.failure is None:
        raise AssertionError("what hasn't failed is told as a failure")
    name, failures = _name(scenario), list(leaves(ended.failure))
    lines = [f"{name} failed with seed {seed}: {_text(failures[0])}"]
    lines += [f"and {_text(error)}" for error in failures[1:]]
    lines.append("faults that it takes:" if ended.faults else "without any fault")
    lines += [f"  {fault}" for fault in ended.faults]
    one = failures[0].state if isinstance(failures[0], BrokenInvariantError) else None
    shown = tuple([f"State {state.id}\n{state}" for state in ([one] if one else ended.states[-_MOST_STATES:])])
    lines += [text.replace("\n", "\n  ") for text in shown]
    if repeats:
        lines.append(f"again: simulate({name}, seeds=[{seed}], faults={list(ended.faults)})")
    else:
        lines.append("run again, it went another way: it has chance, time or an order from elsewhere than sim.random")
    return SimulationError("\n".join(lines), seed, ended.faults, shown)


def _text(error: BaseException) -> str:
    if isinstance(error, BrokenInvariantError):
        return f"broken invariant {error}"
    head, newline, rest = error_text(error).partition("\n")
    place = _raised_at(error)
    return f"{head}{f' ({place})' if place else ''}{newline}{rest}"


def _name(scenario: Scenario) -> str:
    return getattr(scenario, "__name__", None) or repr(scenario)

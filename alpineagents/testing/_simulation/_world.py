"""Simulation: what a scenario is given."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar, final

import trio

from ..._contracts import Model, Store, Tool
from ..._human import Human, Question
from ...record._entries import Entry
from ...record._messages import Message
from ...run import Agent
from ...run._agent import _as_tools
from ...state import Receipt, State
from .._fake_human import Answer, FakeHuman
from .._fake_model import FakeModel, Script
from ._checks import Checks
from ._fakes import SimulatedHuman, SimulatedModel, SimulatedTool
from ._faults import Faults
from ._lives import Life, life, patience
from ._store import SimulatedStore

T = TypeVar("T")

_MOST_LIVES: Final = 50
"""How often a process, or a run, is begun anew: more faults than a seed has."""
_PAUSE: Final = 1.0
"""Seconds until then, at most."""


@final
class Simulation:
    """What a scenario is given: chance, and everything that can fail. Made by ``simulate``.

    Example:
        >>> async def greeting(sim: Simulation) -> None:
        ...     agent = Agent(model=sim.model(lambda request: "hello"), store=sim.store)
        ...     state = await sim.run(agent, "hi")
        ...     assert state.answer == "hello"
    """

    def __init__(self, seed: int, faults: Faults, checks: Checks) -> None:
        self.seed: Final[int] = seed
        """Which one it is."""
        self.random: Final[random.Random] = random.Random(f"draws of {seed}")
        """Chance for the scenario: the same draws in the same order for the same seed."""
        self._chance: Final = random.Random(f"times of {seed}")
        self._faults: Final = faults
        self._checks: Final = checks
        self._store: Final = SimulatedStore(faults, checks, self._chance)

    @property
    def store(self) -> Store:
        """A durable store. It can be slow and fail, and a crash cuts off the process that it hits."""
        return self._store

    def model(self, answers: Model | Script, *, name: str = "fake/fake") -> Model:
        """Return a Model that answers like *answers*, after a while; it can fail.

        Args:
            answers: A Model, or the script of a FakeModel. A function of the Request is best: after a crash the same
                is asked again, and a list would be ahead of it.
            name: ``provider/model``, where *answers* is a script.
        """
        inner = answers if isinstance(answers, Model) else FakeModel(answers, name=name)
        return SimulatedModel(inner, self._faults, self._checks, self._chance)

    def tools(self, tools: Iterable[object]) -> list[Tool]:
        """Return *tools* such that they can fail; subagents as they are.

        A sync tool is called in the event loop's own thread, since the order of threads can't be repeated. So it must
        not block, and ``agent.run_sync`` doesn't work in it.

        Args:
            tools: As ``Agent`` takes them.
        """
        return [
            tool if tool.is_subagent else SimulatedTool(tool, self._faults, self._checks) for tool in _as_tools(tools)
        ]

    def human(self, answers: Human | Iterable[Answer] | Callable[[Question], object]) -> Human:
        """Return a Human who answers like *answers*, after a minute or after a night.

        Args:
            answers: A Human, or the script of a FakeHuman.
        """
        inner = answers if isinstance(answers, Human) else FakeHuman(answers)
        return SimulatedHuman(inner, self._faults, self._chance)

    def agent(self, agent: Agent, answers: Model | Script | None = None) -> Agent:
        """Return a copy of *agent* whose model, tools, store and person are this simulation's.

        Args:
            agent: Yours. Its subagents stay as they are: make them first, and give it those as tools.
            answers: What its model answers, as ``model`` takes it; ``None`` = what the agent's own model does.
        """
        return agent.copy(
            model=self.model(agent.model if answers is None else answers, name=agent.model.name),
            tools=self.tools(agent.tools),
            human=None if agent.human is None else self.human(agent.human),
            store=self.store,
        )

    async def run(self, agent: Agent, prompt_or_state: str | State) -> State:
        """Run *agent* to its end, as a service does: again, where whoever waited gave up, something failed or crashed.

        In ``process`` a crash ends that; elsewhere the run is a process of its own, and the State is loaded from the
        store after a crash. Who else acts on the State belongs into the same process: it can't know of another one.

        Args:
            agent: With the simulation's store, if a crash shall not lose everything.
            prompt_or_state: As ``agent.run`` takes it.

        Returns:
            The State at its end, which may be another object than the one that was given.

        Raises:
            Exception: what the run raised, unless it was a fault.
        """
        state = prompt_or_state
        if isinstance(state, str):
            state = State(messages=[Message.user(state)])
        if life.get() is not None:
            return await self._run(agent, state)
        first = list(state.history)
        lives = 0

        async def lived() -> State:
            nonlocal lives
            lives += 1
            return await self._run(agent, state if lives == 1 else await self._opened(state.id, first))

        return await self.process(lived)

    async def process(self, main: Callable[[], Awaitable[T]]) -> T:
        """Return what ``main()`` does: a process, started anew whenever it crashes or fails.

        What *main* has learned is gone then, but for what ``sim.store`` acknowledged: it loads that and goes on. What
        is outside of *main*, such as people who use the service, stays.

        Raises:
            RuntimeError: inside another process.
            Exception: what *main* raised, unless it was a fault.
        """
        if life.get() is not None:
            raise RuntimeError("process: this code is part of a process already; call it outside of that")
        for _ in range(_MOST_LIVES):
            this = Life()
            token = life.set(this)
            try:
                with this.scope:
                    result = await main()
                    if not this.crashed:  # else nobody has heard of it
                        return result
            except Exception as error:
                if not (this.crashed or self._faults.is_to_be_expected(error)):
                    raise
            finally:
                life.reset(token)
                self._checks.check_given_back(self._store.held_by(this))
            await self._pause()
        raise AssertionError(f"the process didn't come to its end in {_MOST_LIVES} lives")

    @contextmanager
    def impatience(self) -> Iterator[trio.CancelScope]:
        """Return a block that may be cancelled at any step: somebody who waits and gives up, such as a client.

        ``run`` has one around each try. Use it around ``agent.run`` where you don't use that.
        """
        with trio.CancelScope() as scope:
            token = patience.set(scope)
            try:
                yield scope
            finally:
                patience.reset(token)

    async def acknowledged(self, receipt: Receipt) -> None:
        """Await *receipt*, and hold the store to it: from now on the entry is there whenever the State is loaded.

        Checkpoint: yes.

        Raises:
            StoreError: it couldn't be saved.
            RuntimeError: it can't complete; see ``Receipt``.
        """
        await receipt
        state, entry = receipt._state, receipt._entry
        if entry is not None and state.store is self._store:
            self._checks.acknowledged(state, entry)

    async def _run(self, agent: Agent, state: State) -> State:
        """Run *state* until a run of it ends well."""
        for _ in range(_MOST_LIVES):
            try:
                with self.impatience() as scope:
                    if not state.finished:
                        await agent.run(state)
                if not scope.cancelled_caught:
                    return state
            except Exception as error:
                if not self._faults.is_to_be_expected(error):
                    raise
            await self._pause()
        raise AssertionError(f"State {state.id} didn't come to the end of a run in {_MOST_LIVES} tries")

    async def _opened(self, state_id: str, first: list[Entry]) -> State:
        """Return what the store has of a State; one that it doesn't have yet begins anew."""
        while True:
            try:
                if await self._store.has(state_id):
                    return await self._store.load(state_id)
                return State(id=state_id, history=first)
            except Exception as error:
                if not self._faults.is_to_be_expected(error):
                    raise
            await self._pause()

    async def _pause(self) -> None:
        await trio.sleep(self._chance.uniform(0, _PAUSE))

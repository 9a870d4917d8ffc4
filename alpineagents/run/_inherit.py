"""What a run, or another action, works with: its Agent's own settings, and those of the run around it.

A run inside a tool call is a subagent of the run that made the call. It takes reporter, human and store from there
unless it has its own, and is held to the budgets and the refusals of all runs above it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, TypeVar

import attrs
import trio

from .._hooks import seen
from ..state import State, parent_call
from ._keeper import keeping
from ._setup import Setup, as_store, first

T = TypeVar("T")

standing_in: Final[ContextVar[Callable[[Setup, State], Setup] | None]] = ContextVar(
    "alpineagents.standing_in", default=None
)
"""Puts stand-ins in place of what settings call outside: where a saved run is replayed."""


def inside(setup: Setup, state: State) -> Setup:
    """Return the settings of what begins here and isn't part of a run of *state* itself."""
    if (stand_ins := standing_in.get()) is not None:
        setup = stand_ins(setup, state)
    call = parent_call(state)
    above = None if call is None else call.run
    if call is None or not isinstance(above, Setup):
        return setup
    store = first(setup.store, as_store(state), above.store, as_store(call.state))
    return _inherited(attrs.evolve(setup, store=store), above)


def of_run(setup: Setup, state: State) -> Setup:
    """Return the settings of a run of *state* that begins here, with a purse where something has to be counted."""
    setup = inside(setup, state)
    if setup.budget is None and not setup.sinks:
        return setup
    from ._budget import Purse  # only for who has one

    return attrs.evolve(setup, purse=Purse(setup.budget, setup.purse))


def of_action(setup: Setup, state: State) -> Setup:
    """Return the settings of an action on *state*, which is in a run: those of the run, but for another Agent's own."""
    run = state.run_setup
    if run is setup or not isinstance(run, Setup):
        return setup
    if run.agent is setup.agent:
        return run
    if (stand_ins := standing_in.get()) is not None:
        setup = stand_ins(setup, state)
    if run.above is not None:
        setup = _inherited(setup, run.above)
    return _watched(attrs.evolve(setup, purse=run.purse), run)


def _inherited(setup: Setup, above: Setup) -> Setup:
    from ._tee import without_sinks  # only for who has subagents

    reporter = without_sinks(setup.reporter)
    if reporter is None:
        reporter = without_sinks(above.reporter)
    human = setup.human if setup.human is not None else above.human
    rules = setup.rules
    if rules is not None or above.rules is not None:
        from ..tools._permissions import inherited  # only for who has some

        rules = inherited(above.rules, rules, human)
    setup = attrs.evolve(setup, reporter=reporter, human=human, rules=rules, purse=above.purse, above=above)
    return _watched(setup, above)


def _watched(setup: Setup, by: Setup) -> Setup:
    """Return *setup* with the streams that follow *by*."""
    sinks = tuple([sink for sink in by.sinks if sink not in setup.sinks]) + setup.sinks
    if not sinks:
        return setup
    from ._tee import tee, without_sinks  # only for who streams

    return attrs.evolve(setup, sinks=sinks, reporter=tee(without_sinks(setup.reporter), sinks))


@trio.lowlevel.enable_ki_protection
async def acted(action: Callable[..., Awaitable[T]], setup: Setup, state: State, *args: Any) -> T:
    """Await ``action(setup, state, *args)``; outside a run with what a run puts around it: session and store."""
    if state.running:
        result = await action(of_action(setup, state), state, *args)
        if state.store is not None and state.keeper is None:  # the run that saves it has ended meanwhile
            await state.wait_saved(state.snapshot_now().length)
        return result
    effective = inside(setup, state)
    alone = partial(_alone, action, effective, state, *args)
    return await keeping(state, first(effective.store, as_store(state)), alone)


async def _alone(action: Callable[..., Awaitable[T]], setup: Setup, state: State, *args: Any) -> T:
    seen(state)
    async with setup.model.session():
        return await action(setup, state, *args)

"""What a run, or another action, works with: its Agent's own settings, and those of the run around it.

A run inside a tool call is a subagent of the run that made the call. It takes reporter, human and store from there
unless it has its own, and is held to the budgets and the refusals of all runs above it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import attrs
import trio

from .._contracts import Reporter
from .._hooks import seen
from ..state import State, parent_call
from ._groups import most_important
from ._keeper import keeping
from ._setup import Setup, as_store, first, is_recorded, record_error
from ._sync import refuse_without_trio

if TYPE_CHECKING:
    from ._telling import Teller

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
    if setup.reporter is not None and setup.reporter.hears_entries():
        setup = _telling(setup, state)
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
    setup = _watched(attrs.evolve(setup, purse=run.purse), run)
    if run.teller is not None and run.teller.reporter is _own_reporter(setup):
        return _told_by(setup, run.teller)  # else it would be told of what is done before what led to it
    return setup


def _inherited(setup: Setup, above: Setup) -> Setup:
    reporter = _own_reporter(setup)
    if reporter is None:
        reporter = _own_reporter(above)
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


def _own_reporter(setup: Setup) -> Reporter | None:
    """Return the Reporter itself, without what stands in its place."""
    if setup.teller is not None:
        return setup.teller.reporter
    from ._tee import without_sinks  # only for who has subagents, or a Reporter that hears entries

    return without_sinks(setup.reporter)


def _told_by(setup: Setup, teller: Teller) -> Setup:
    from ._tee import tee

    return attrs.evolve(setup, teller=teller, reporter=tee(teller, setup.sinks))


def _telling(setup: Setup, state: State) -> Setup:
    """Return *setup* with what tells its Reporter of all that is recorded in *state* from now on."""
    reporter = _own_reporter(setup)
    if reporter is None:
        raise AssertionError("nobody hears entries")
    from ._telling import Teller  # only for who hears them

    return _told_by(setup, Teller(reporter, state))


@trio.lowlevel.enable_ki_protection
async def acted(
    action: Callable[..., Awaitable[T]],
    setup: Setup,
    state: State,
    *args: Any,
    tells: Literal["think", "use_tools"] | None = None,
) -> T:
    """Await ``action(setup, state, *args)``; outside a run with what a run puts around it: session and store.

    *tells*: the action, where it is one that tells the Reporter what it does: then that is told of entries, too.
    """
    if state.running:
        effective = of_action(setup, state)
        if tells is not None and _needs_telling(effective):
            action = partial(_acted_telling, action, tells)
        result = await action(effective, state, *args)
        if state.store is not None and state.keeper is None:  # the run that saves it has ended meanwhile
            await state.wait_saved(state.snapshot_now().length)
        return result
    name = f"agent.{getattr(action, '__name__', 'run')}"
    refuse_without_trio(name, f"await portal.run({name}, state)")
    effective = inside(setup, state)
    if tells is not None and _needs_telling(effective):
        action = partial(_acted_telling, action, tells)
    alone = partial(_alone, action, effective, state, *args)
    return await keeping(state, first(effective.store, as_store(state)), alone)


async def _alone(action: Callable[..., Awaitable[T]], setup: Setup, state: State, *args: Any) -> T:
    seen(state)
    async with setup.model.session():
        return await action(setup, state, *args)


def _needs_telling(setup: Setup) -> bool:
    return setup.reporter is not None and setup.teller is None and setup.reporter.hears_entries()


async def _acted_telling(
    action: Callable[..., Awaitable[T]], name: Literal["think", "use_tools"], setup: Setup, state: State, *args: Any
) -> T:
    """Await the action, and tell its Reporter of what is recorded meanwhile. What ``on_entry`` raises is recorded."""
    setup, start = _telling(setup, state), state.snapshot_now().length
    if setup.teller is None:
        raise AssertionError("it was made just now")
    results: list[T] = []
    errors: list[BaseException] = []
    try:
        results.append(await setup.teller.during(partial(action, setup, state, *args)))
    except BaseException as error:  # noqa: BLE001  # raised again below
        errors.append(error)
    failures = setup.teller.end()
    for failure in [*filter(None, [setup.teller.failure]), *failures]:
        if not is_recorded(state, start, failure):
            record_error(state, failure, name)
    if errors or failures:
        raise most_important([*errors, *failures])
    return results[0]

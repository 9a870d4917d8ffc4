"""Loops: async functions that say what one turn does, and when to stop."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeAlias, final

import attrs
import trio

from ..record._entries import StopEntry, Stopped, StoppedByLimit, StoppedByUntil
from ..record._value import Value
from ..state import State
from ._compact import compact_if_full
from ._setup import Setup

Until: TypeAlias = Callable[[State], bool | Awaitable[bool]]
"""A stop rule: a plain or async function from State to bool."""

Body: TypeAlias = Callable[[Any, State], Awaitable[None]]
"""What one turn does: ``async def body(agent, state)``."""


def waiting_for_user(state: State) -> bool:
    """Whether it is the person's turn: the last of ``messages`` is a reply without calls, and no message waits."""
    snap = state.snapshot_now()
    if not len(snap.messages) or snap.waiting_length or snap.calls:
        return False
    last = snap.messages[-1]
    return last.role == "assistant" and not last.tool_calls


@final
@attrs.frozen(eq=False, repr=False)
class Loop(Value):
    """A body, run turn after turn until a rule stops it. Made with ``@loop``."""

    body: Body
    until: tuple[Until, ...]
    limit: int

    def copy(self, *, until: Until | Iterable[Until] | None = None, limit: int | None = None) -> Loop:
        """Return the same loop with other rules; what is left out stays."""
        return _loop(self.body, self.until if until is None else until, self.limit if limit is None else limit)

    async def __call__(self, agent: Any, state: State) -> None:
        """Run turns. Before each: a stop that is set, the ``until`` functions in order, the limit, the budget.

        Checkpoint: yes.
        """
        await trio.lowlevel.checkpoint()
        turns = 0
        while (stopped := await self._reason(state, turns)) is None:
            turns += 1
            returned: object = await self.body(agent, state)  # type: ignore[func-returns-value]  # checked, not assumed
            if returned is not None:
                raise TypeError(f"loop body {_name(self.body)} must return None, not {type(returned).__name__}")
            if isinstance(
                state.stopped, StoppedByUntil | StoppedByLimit
            ):  # a loop inside the body stopped: that's not ours
                _record_stop(state, None)
        if state.stopped is None:
            _record_stop(state, stopped)

    async def _reason(self, state: State, turns: int) -> Stopped | None:
        if state.stopped is not None:
            return state.stopped
        for rule in self.until:
            verdict: object = rule(state)
            if not isinstance(verdict, bool) and inspect.isawaitable(verdict):
                verdict = await verdict
            if not isinstance(verdict, bool):
                raise TypeError(f"until function {_name(rule)} must return a bool, not {type(verdict).__name__}")
            if verdict:
                return StoppedByUntil(_name(rule))
        if turns >= self.limit:
            return StoppedByLimit(turns)
        setup = state.run_setup
        return setup.purse.stop() if isinstance(setup, Setup) and setup.purse is not None else None


def _record_stop(state: State, stopped: Stopped | None) -> None:
    state.commit(lambda snap, at: None if snap.finished else StopEntry(snap.length, snap.turn, at, stopped))


def loop(*, until: Until | Iterable[Until], limit: int) -> Callable[[Body], Loop]:
    """Make a loop of a body: ``@loop(until=waiting_for_user, limit=20)`` on ``async def body(agent, state)``.

    Args:
        until: A function from State to bool, plain or async, or several: the loop stops when one is true.
        limit: The most turns of one call, 1 or more.

    Raises:
        TypeError: a rule isn't callable, the limit no int, the body no ``async def``.
        ValueError: no rule, or a limit below 1.
    """
    rules = _rules(until)
    _checked_limit(limit)
    return lambda body: _loop(body, rules, limit)


def _loop(body: Body, until: Until | Iterable[Until], limit: int) -> Loop:
    return Loop(checked_loop(body, "loop body"), _rules(until), _checked_limit(limit))


def _rules(until: Until | Iterable[Until]) -> tuple[Until, ...]:
    rules = (until,) if callable(until) else tuple(until)
    if not rules:
        raise ValueError("until needs a function: @loop(until=waiting_for_user, limit=20)")
    for rule in rules:
        if not callable(rule):
            raise TypeError(
                f"until takes functions, not {type(rule).__name__}: @loop(until=waiting_for_user, limit=20)"
            )
        if getattr(rule, "__name__", "") == "<lambda>":
            warnings.warn(
                "until is a lambda: a stop would be recorded under the name '<lambda>'; use a named function",
                stacklevel=3,
            )
    return rules


def _checked_limit(limit: object) -> int:
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise TypeError(f"limit must be an int, not {type(limit).__name__}: @loop(until=waiting_for_user, limit=20)")
    if limit < 1:
        raise ValueError(f"limit must be 1 or more (got {limit})")
    return limit


def checked_loop(body: object, what: str) -> Body:
    """Return *body* if it is an async function.

    Raises:
        TypeError: it isn't.
    """
    call = body if inspect.isfunction(body) or inspect.ismethod(body) else getattr(body, "__call__", None)  # noqa: B004  # its code is wanted
    if not inspect.iscoroutinefunction(inspect.unwrap(call) if callable(call) else call):
        raise TypeError(f"{what} {_name(body)} must be an async function: async def {_name(body)}(agent, state): ...")
    return body  # type: ignore[return-value]  # just checked


def _name(fn: object) -> str:
    return getattr(fn, "__name__", None) or type(fn).__name__


async def _default_body(agent: Any, state: State) -> None:
    if state.pending_calls:  # of a fork in mid-turn, or of a think before this run
        await agent.use_tools(state)
        return
    await compact_if_full(agent, state)
    await agent.think(state)
    if not state.finished:  # somebody may have finished it while the model was waited on
        await agent.use_tools(state)


default_loop: Final = Loop(_default_body, (waiting_for_user,), 50)
"""Until ``waiting_for_user``, at most 50 turns: ``compact_if_full``, ``think``, ``use_tools``. Calls that are pending
when it starts are run first, in a turn of their own.
"""

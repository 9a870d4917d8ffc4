"""The calls of one reply, each to its end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import attrs
import trio

from .._contracts import Tool, ToolContext
from .._errors import ToolError, ToolInputError
from ..record._blocks import ResultBlock, ToolCall
from ..record._entries import Entry, ToolOutcome, ToolResultEntry
from ..record._frozen import FrozenDict
from ..record._messages import NO_USAGE
from ..record._snapshot import Snapshot
from ..state import State, close_call, close_pending, current_calls, surrounded
from ..tools import Ending, failed, read_args, run_call
from ._groups import is_cancellation, is_interrupt, most_important, parts
from ._isolated import Isolated
from ._keeper import barrier
from ._setup import Setup, how_closed, is_recorded, record_error, refuse_finished, told_closed, why
from ._user_code import told

_MOST_NAMES = 100
"""Tools that the model is told of where it asked for one that there isn't."""


@attrs.define(eq=False, repr=False)
class _Planned:
    """A call that can run: its tool is there and its arguments are read."""

    call: ToolCall
    tool: Tool
    args: Any
    decided_by: str | None = None
    """``repr`` of the permission that allowed it."""
    has_begun: bool = False
    """Whether it may have had effects."""


@trio.lowlevel.enable_ki_protection
async def use_tools(setup: Setup, state: State) -> None:
    """Run the pending calls, each once."""
    with state.acting("use_tools"):
        refuse_finished(state, "use_tools")
        if setup.rules is not None:
            _refuse_without_human(setup)
        start = state.snapshot_now().length
        planned: list[_Planned] = []
        try:
            planned = _plan(setup, state)
            if setup.rules is not None:
                planned = await _permitted(setup, state, planned)
            if planned:
                await barrier(state)
            await _run_all(setup, state, planned)
        except BaseException as error:
            state.calls_began([one.call.id for one in planned if one.has_begun])
            if not is_recorded(state, start, error):
                record_error(state, error, "use_tools")
            if is_interrupt(error):
                _close_interrupted(setup, state, start, error)
            raise


def _close_interrupted(setup: Setup, state: State, start: int, error: BaseException) -> None:
    """Close what is pending, and tell the reporter. What that raises is recorded, and comes out if it is more."""
    failures = told_closed(setup, state, close_pending(state, *how_closed(why(setup, error))))
    for failure in failures:
        if not is_recorded(state, start, failure):
            record_error(state, failure, "use_tools")
    if failures:
        raise most_important([error, *failures])


def _refuse_without_human(setup: Setup) -> None:
    from ._permissions import refuse_without_human  # only for who has some

    refuse_without_human(setup)


async def _permitted(setup: Setup, state: State, planned: list[_Planned]) -> list[_Planned]:
    """Return the calls that may run."""
    from ._permissions import permitted  # only for who has some

    allowed = await permitted(setup, state, [(one.call, one.tool) for one in planned])
    return [attrs.evolve(one, decided_by=allowed[one.call.id]) for one in planned if one.call.id in allowed]


async def _run_all(setup: Setup, state: State, planned: list[_Planned]) -> None:
    if len(planned) == 1:
        await _alone(setup, state, planned[0])
    elif planned:
        await _together(setup, state, [one for one in planned if one.tool.parallel])
        for one in planned:
            if not one.tool.parallel:
                await _alone(setup, state, one)
    else:
        await trio.lowlevel.checkpoint()


def _plan(setup: Setup, state: State) -> list[_Planned]:
    """Read the arguments of all pending calls; those that can't run get their result at once."""
    planned: list[_Planned] = []
    snap = state.snapshot_now()
    for call in snap.pending_calls:
        try:
            tool = _find(setup, snap, call)
            planned.append(_Planned(call, tool, read_args(tool, _args(snap, call))))
        except ToolError as error:
            wrong = failed(error, setup.tool_map.get(call.name))
            _record(state, call, wrong)
            if setup.reporter is not None:
                told(setup.reporter.on_tool_end, state, call, wrong.content, wrong.outcome)
        except Exception as error:
            record_error(state, error, "use_tools", call=call)
            raise
    return planned


def _find(setup: Setup, snap: Snapshot, call: ToolCall) -> Tool:
    tool = setup.tool_map.get(call.name)
    if tool is not None and (snap.shown_tools is None or call.name in snap.shown_tools):
        return tool
    shown = list(setup.tool_map) if snap.shown_tools is None else snap.shown_tools
    import difflib  # only here, and slow to import

    parts = (call.name[:100], call.name[:100].rpartition(".")[2])  # some write functions.read_file
    near = [match for part in parts for match in difflib.get_close_matches(part, shown, n=1)]
    hint = f" Did you mean {near[0]}?" if near else ""
    more = f" and {len(shown) - _MOST_NAMES} more" if len(shown) > _MOST_NAMES else ""
    known = ", ".join(shown[:_MOST_NAMES]) or "none"
    raise ToolInputError(f"There is no tool {call.name!r:.100}.{hint} Available: {known}{more}.")


def _args(snap: Snapshot, call: ToolCall) -> Any:
    if call.args is not None:
        return call.args
    last = snap.messages[-1]
    if last.cut_off:
        raise ToolInputError(
            "The arguments were cut off by the output limit; the tool did not run. Send the call again, shorter."
        )
    if not (call.raw_args or "").strip():
        return FrozenDict()  # what some models send for no arguments
    raise ToolInputError(
        f"The arguments are not a JSON object; the tool did not run. They were: {(call.raw_args or '')[:300]}"
    )


async def _alone(setup: Setup, state: State, one: _Planned) -> None:
    try:
        await Isolated(_run_one(setup, state, one))
    except BaseException as error:
        _record_failure(state, one.call, error)
        raise


async def _together(setup: Setup, state: State, planned: Sequence[_Planned]) -> None:
    """Run calls at the same time. The first that fails cancels the others; what is finished stays."""
    if len(planned) < 2:
        for one in planned:
            await _alone(setup, state, one)
        return
    has_to_wait = len(planned) > setup.max_parallel_tools
    slots = trio.Semaphore(setup.max_parallel_tools)
    failures: list[BaseException] = []

    @trio.lowlevel.enable_ki_protection
    async def task(one: _Planned, has_slot: bool) -> None:
        try:
            await _run_one(setup, state, one, failures)
        except BaseException as error:
            if is_cancellation(error):
                raise
            _record_failure(state, one.call, error)
            failures.append(error)
            nursery.cancel_scope.cancel()
        finally:
            if has_slot:
                slots.release()

    def begin(one: _Planned, *, has_slot: bool) -> None:
        nursery.start_soon(task, one, has_slot, name=f"tool {one.call.name} {one.call.id}")

    try:
        async with trio.open_nursery() as nursery:
            for one in planned:
                if one.tool.is_subagent or not has_to_wait:
                    begin(one, has_slot=False)
            for one in planned:
                if has_to_wait and not one.tool.is_subagent:
                    try:  # here and not in the task, since trio starts tasks in any order
                        slots.acquire_nowait()
                    except trio.WouldBlock:
                        await slots.acquire()
                    await trio.lowlevel.checkpoint_if_cancelled()  # where another has just failed, no call begins
                    begin(one, has_slot=True)
    except BaseException as group:  # noqa: BLE001  # raised again below
        failures.extend(parts(group))
    if failures:
        raise most_important(failures)


async def _run_one(setup: Setup, state: State, one: _Planned, failures: Sequence[BaseException] = ()) -> None:
    """Run a call, in a context of its own.

    *failures*: what others have raised that run at the same time. The first is why they all are cancelled.
    """
    call, tool = one.call, one.tool
    if setup.reporter is not None:
        told(setup.reporter.on_tool_start, state, call)
    context = ToolContext(
        state,
        setup.agent,
        call,
        lambda content, outcome, error, full=None: _record_late(state, one, Ending(content, outcome, full, error)),
        None if setup.reporter is None else setup.reporter.on_tool_progress,
    )
    current_calls.set(surrounded(state, call.id, setup))
    one.has_begun = True
    try:
        ending = await run_call(tool, one.args, context)
    except BaseException as error:
        if tool.abandon_on_cancel and is_interrupt(error):
            # Its thread goes on; what it gives will be a late result.
            state.calls_began([call.id])
            close_call(state, call, *how_closed(failures[0] if failures else why(setup, error)))
            if unreported := told_closed(setup, state, [call]):
                raise most_important([error, *unreported])  # noqa: B904  # neither is the other's cause
        raise
    result = _record(state, call, ending, one.decided_by) or _result_of(state, call)
    if setup.reporter is not None:
        told(setup.reporter.on_tool_end, state, call, result.content, result.outcome)


def _record_failure(state: State, call: ToolCall, error: BaseException) -> None:
    if not is_interrupt(error):
        record_error(state, error, "use_tools", call=call)


def _record(state: State, call: ToolCall, ending: Ending, decided_by: str | None = None) -> ToolResultEntry | None:
    """Record how a call ended; None if it timed out, and meanwhile its thread has given its own result."""

    def make(snap: Snapshot, at: datetime) -> Entry | None:
        return _entry(state, snap, at, call, ending, decided_by, late=False) if snap.is_pending(call.id) else None

    entry = state.commit(make)
    return entry if isinstance(entry, ToolResultEntry) else None


def _result_of(state: State, call: ToolCall) -> ToolResultEntry:
    """Return what closed a call."""
    return next(
        entry
        for entry in reversed(state.history)
        if isinstance(entry, ToolResultEntry) and not entry.late and entry.call.id == call.id
    )


def _record_late(state: State, one: _Planned, ending: Ending) -> None:
    def make(snap: Snapshot, at: datetime) -> Entry | None:
        late = not snap.is_pending(one.call.id)
        if ending.outcome is ToolOutcome.INTERRUPTED and not late:
            return None  # no result of its own; whoever has given the call up is about to say why
        return _entry(state, snap, at, one.call, ending, one.decided_by, late=late)

    state.commit(make)


def _entry(
    state: State, snap: Snapshot, at: datetime, call: ToolCall, ending: Ending, decided_by: str | None, *, late: bool
) -> ToolResultEntry:
    content: tuple[ResultBlock, ...] = ending.content
    child_ids, usage = state.children_of(call.id)
    if late:  # its children ended with the call, whose entry counts them
        usage = NO_USAGE
    return ToolResultEntry(
        snap.length,
        snap.turn,
        at,
        content,
        call,
        ending.outcome,
        child_ids,
        usage,
        decided_by,
        late,
        ending.full,
        ending.error,
    )

"""One request, one reply."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import TYPE_CHECKING, Final, final

import attrs
import trio

from .._contracts import Emit, Model, Reporter, Tool
from .._errors import CutOffError
from ..record._blocks import Block, ToolCall, is_blank
from ..record._entries import (
    Entry,
    MessageEntry,
    ModelEvent,
    ModelEventEntry,
    ModelReplyEntry,
    ModelRequestEntry,
    ToolResultEntry,
)
from ..record._messages import NO_USAGE, Message, Reply, Request, TextDelta, ThinkingDelta, ToolSpec
from ..record._snapshot import Snapshot
from ..state import State, current_calls, surrounded, take_request_back
from ._keeper import barrier
from ._setup import Setup, record_error, refuse_finished, usage_of
from ._user_code import told

if TYPE_CHECKING:
    from ._budget import Spending

ANOTHER_REQUEST: Final = ("retry", "fallback", "continued")
"""Kinds of ModelEvents that tell of another request about to be sent."""


@trio.lowlevel.enable_ki_protection
async def think(setup: Setup, state: State, tools: Iterable[str | Tool] | None, tool_choice: str) -> Reply:
    """Send one request and record its reply."""
    specs, shown = _shown(setup, tools)
    _check_choice(tool_choice, specs)
    with state.acting("think"):
        refuse_finished(state, "think")
        _refuse_in_turn(state.snapshot_now())
        with _reserving(setup, state) as spending:
            _open_request(state, setup.model.name, shown)
            spent = NO_USAGE
            try:
                if setup.reporter is not None:
                    told(setup.reporter.on_think_start, state)
                request = Request(messages=state.messages, system=setup.system, tools=specs, tool_choice=tool_choice)
                token = current_calls.set(surrounded(state, None, setup))
                try:
                    answer = await _answer(setup, state, request, setup.reporter, spending)
                finally:
                    current_calls.reset(token)
                spent = answer.usage
                reply = with_unique_ids(state.snapshot_now(), answer)
                state.commit(lambda snap, at: ModelReplyEntry(snap.length, snap.turn, at, reply))
            except BaseException as error:
                record_error(state, error, "think", usage=spent + usage_of(error))
                raise
        if setup.reporter is not None:
            _report(setup.reporter, state, reply)
        if reply.cut_off and all(is_blank(block) for block in reply.blocks):
            cut_off = CutOffError(
                f"{reply.model or setup.model.name} reached its output limit before any text or tool call;"
                " give it more room (max_tokens=) or a smaller conversation: await agent.compact(state)"
            )
            record_error(state, cut_off, "think")
            raise cut_off
    return reply


def _report(reporter: Reporter, state: State, reply: Reply) -> None:
    try:
        told(reporter.on_reply, state, reply)
    except BaseException as error:
        record_error(state, error, "think")
        raise


async def respond(setup: Setup, state: State, request: Request, reporter: Reporter | None) -> Reply:
    """Ask the model, once what led here is durable; record its events, and report its deltas to *reporter*.

    Raises:
        BudgetError: the budget doesn't allow the request, or the next try of it.
    """
    with _reserving(setup, state) as spending:
        return await _answer(setup, state, request, reporter, spending)


def _reserving(setup: Setup, state: State) -> AbstractContextManager[Spending | None]:
    """Return a block that reserves what a request takes out of the run's purse; BudgetError where nothing is left."""
    if setup.purse is None:
        return _UNCOUNTED
    from ._budget import Spending  # loaded already by who made the purse
    from ._tokens import context_tokens

    return Spending(setup.purse, state, setup.model, context_tokens(setup, state) if setup.purse.weighs() else 0)


_UNCOUNTED: Final = nullcontext()


def _answer(
    setup: Setup, state: State, request: Request, reporter: Reporter | None, spending: Spending | None
) -> Awaitable[Reply]:
    """Return the request, to be awaited. Not async itself: a frame less for each of the many that wait for a model."""
    if spending is None:
        return _respond(setup, state, request, reporter, None)
    return _spend(setup, state, request, reporter, spending)


async def _spend(setup: Setup, state: State, request: Request, reporter: Reporter | None, spending: Spending) -> Reply:
    await barrier(state)  # where that fails nothing was sent, and what was reserved is given back
    try:
        reply = await _respond(setup, state, request, reporter, spending)
    except BaseException as error:
        spending.end(usage_of(error))
        raise
    spending.end(reply.usage)
    return reply


async def _respond(
    setup: Setup, state: State, request: Request, reporter: Reporter | None, spending: Spending | None
) -> Reply:
    await barrier(state)
    return await _reply_of(setup.model, request, _Emit(state, reporter, spending))


@trio.lowlevel.disable_ki_protection
async def _reply_of(model: Model, request: Request, emit: Emit) -> Reply:
    try:
        reply: object = await model.respond(request, emit)
    except TypeError as error:
        if error.__traceback__ is None or error.__traceback__.tb_next is not None:  # raised further in
            raise
        raise TypeError(
            f"{type(model).__name__}.respond must be async def respond(self, request, emit): ... ({error})"
        ) from error
    if not isinstance(reply, Reply):
        raise TypeError(f"{model.name}: respond must return a Reply, not {type(reply).__name__}")
    return reply


@final
class _Emit:
    """What the model tells of a reply while it comes. A class: with a closure each waiting agent had 250 bytes more."""

    __slots__ = ("_reporter", "_spending", "_state")

    def __init__(self, state: State, reporter: Reporter | None, spending: Spending | None) -> None:
        self._state = state
        self._reporter = reporter
        self._spending = spending

    def __call__(self, event: TextDelta | ThinkingDelta | ModelEvent) -> None:
        state, reporter = self._state, self._reporter
        if isinstance(event, ModelEvent):
            if self._spending is not None and event.kind in ANOTHER_REQUEST:
                self._spending.again(anew=event.kind == "continued" or bool(event.data.get("restarted")))
            state.commit(lambda snap, at: ModelEventEntry(snap.length, snap.turn, at, event))
            if reporter is not None:
                reporter.on_model_event(state, event)
        elif reporter is not None:
            if isinstance(event, TextDelta):
                reporter.on_text(state, event.text)
            else:
                reporter.on_thinking(state, event.text)


def _shown(setup: Setup, tools: object) -> tuple[tuple[ToolSpec, ...], tuple[str, ...] | None]:
    """Return the tools that a request shows, and their names; None for the names where it shows all."""
    if tools is None:
        return setup.tool_specs, None
    if isinstance(tools, str) or not isinstance(tools, Iterable):
        raise TypeError(f"tools must be a list of names, not {type(tools).__name__}: think(state, tools=['read_file'])")
    names: list[str] = []
    for tool in tools:
        if not isinstance(tool, str | Tool):
            raise TypeError(f"tools holds a {type(tool).__name__}; name tools: think(state, tools=['read_file'])")
        names.append(tool if isinstance(tool, str) else tool.name)
    for name in names:
        if name not in setup.tool_map:
            raise ValueError(f"tools: no tool {name!r}; the Agent has {', '.join(setup.tool_map) or 'none'}")
    return tuple([spec for spec in setup.tool_specs if spec.name in names]), tuple(names)


def _check_choice(choice: str, specs: tuple[ToolSpec, ...]) -> None:
    if choice in ("auto", "none"):
        return
    if choice == "required":
        if not specs:
            raise ValueError("tool_choice='required' needs a tool: Agent(tools=[...])")
        return
    if not any(spec.name == choice for spec in specs):
        names = ", ".join(spec.name for spec in specs) or "none"
        raise ValueError(
            f"tool_choice {choice!r}: use 'auto', 'required', 'none', or the name of a tool it is shown ({names})"
        )


def _refuse_in_turn(snap: Snapshot) -> None:
    if snap.calls:
        names = ", ".join(call.name for call in snap.pending_calls)
        raise ValueError(
            f"think: calls are pending ({names}), and each needs a result first: await agent.use_tools(state)"
        )
    if not len(snap.messages):
        raise ValueError("think: the State has no messages: state.add_message(Message.user('...'))")


def _open_request(state: State, model: str, shown: tuple[str, ...] | None) -> None:
    if state.snapshot_now().request_open:  # nobody waits for it any more: its process or task is gone
        take_request_back(state, "Aborted: the request was left without a reply")
    known = 0

    def make(snap: Snapshot, at: datetime) -> Entry | None:
        _refuse_in_turn(snap)
        if len(snap.late) > known:  # one came in between: the request would pass it over
            return None
        return ModelRequestEntry(snap.length, snap.turn + 1, at, model, shown)

    while True:
        known = tell_late_results(state, known)
        if state.commit(make) is not None:
            return


def tell_late_results(state: State, known: int) -> int:
    """Tell the model, by notices, of results that came after their calls were closed; of all but the first *known*.

    Returns:
        How many it has been told of, or needn't be, since the call is no longer among the messages.
    """
    snap = state.snapshot_now()
    for entry in snap.late[known:]:
        if any(call.id == entry.call.id for message in snap.messages for call in message.tool_calls):
            _tell(state, Message.notice(_late_text(entry)))
    return len(snap.late)


def _tell(state: State, notice: Message) -> None:
    state.commit(lambda snap, at: MessageEntry(snap.length, snap.turn, at, notice))


def _late_text(entry: ToolResultEntry) -> str:
    text = "".join([getattr(block, "text", f"({type(block).__name__})") for block in entry.content])
    return f"The call {entry.call.name} ({entry.call.id}), closed before, has ended after all ({entry.outcome}): {text}"


def with_unique_ids(snap: Snapshot, reply: Reply) -> Reply:
    """Return *reply* with call ids that are unique in the State; those that are already stay as they are.

    A call without an id gets one from its place in the history: the same history gives the same ids.
    """
    calls = reply.tool_calls
    ids = {call.id for call in calls}
    if len(ids) == len(calls) and all(map(_can_be_sent, ids)) and not any(map(snap.knows_call, ids)):
        return reply
    taken: set[str] = set()
    blocks: list[Block] = []
    for block in reply.blocks:
        if isinstance(block, ToolCall):
            block = _renamed(block, snap, taken)
            taken.add(block.id)
        blocks.append(block)
    return attrs.evolve(reply, blocks=tuple(blocks))


def _can_be_sent(call_id: str) -> bool:
    """Whether it is some text, and all of it: half a character would be lost on the way, and two ids be one."""
    return call_id != "" and (call_id.isascii() or call_id.encode("utf-8", "replace").decode() == call_id)


def _renamed(call: ToolCall, snap: Snapshot, taken: set[str]) -> ToolCall:
    base = call.id.encode("utf-8", "replace").decode() or f"call_{snap.length}_{len(taken)}"
    name, count = base, 1
    while name in taken or snap.knows_call(name):
        count += 1
        name = f"{base}_{count}"
    return call if name == call.id else attrs.evolve(call, id=name)

"""Models, tools and people of a simulation: those of the scenario, and they can fail."""

from __future__ import annotations

import inspect
import random
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, final

import attrs
import trio

from ..._contracts import Emit, Hints, Model, Tool, ToolContext
from ..._errors import ToolError
from ..._human import Human, Question
from ...record._blocks import Block, TextBlock, ToolCall
from ...record._entries import ModelRequestEntry
from ...record._frozen import FrozenDict
from ...record._messages import Reply, Request
from ...state import Recorder, State, current_calls
from ...tools import read_args
from ...tools._tool import FunctionTool, _given
from ._checks import Checks
from ._faults import FaultKind, Faults, provider_error

_THINKING: Final = 2.0
"""Seconds that a reply takes at most."""
_HANGING: Final = 600.0
_TOOL_HANGING: Final = 3600.0
_NIGHT: Final = 8 * 3600.0


class SimulatedError(Exception):
    """What a tool raises that fails in a simulation. It comes out of the run, as an error of the tool's own would."""


@final
class SimulatedModel(Model):
    """A Model that can fail. It takes up to two seconds for a reply."""

    def __init__(self, inner: Model, faults: Faults, checks: Checks, chance: random.Random) -> None:
        self.inner: Final = inner
        """The model that answers."""
        self.name = inner.name
        self.context_window = inner.context_window
        self.max_tokens = inner.max_tokens
        self.price = inner.price
        self.structured_output = inner.structured_output
        self._faults = faults
        self._checks = checks
        self._chance = chance
        self._requests = 0
        self._ids: list[str] = []

    def session(self) -> AbstractAsyncContextManager[None]:
        """Return that of the model that answers."""
        return self.inner.session()

    async def respond(self, request: Request, emit: Emit) -> Reply:
        """Return the reply of the model that answers, if nothing goes wrong. Checkpoint: yes."""
        self._check_written_ahead()
        fault = self._faults.comes(
            FaultKind.MODEL_FAILS, FaultKind.MODEL_HANGS, FaultKind.MODEL_IS_CUT_OFF, FaultKind.MODEL_REPEATS_IDS
        )
        self._requests += 1
        await trio.sleep(_HANGING if fault is FaultKind.MODEL_HANGS else self._chance.uniform(0, _THINKING))
        if fault is FaultKind.MODEL_FAILS:
            raise self._faults.raised(provider_error(self._requests))
        reply = await self.inner.respond(request, emit)
        if fault is FaultKind.MODEL_IS_CUT_OFF:
            reply = _cut_off(reply)
        if fault is FaultKind.MODEL_REPEATS_IDS:
            reply = _with_ids(reply, self._ids)
        self._ids += [call.id for call in reply.tool_calls]
        return reply

    def _check_written_ahead(self) -> None:
        around = current_calls.get()
        if not around or around[-1].call_id is not None:
            return
        state = around[-1].state
        if state.keeper is None:
            return
        last = next(entry.seq for entry in reversed(state.history) if isinstance(entry, ModelRequestEntry))
        self._checks.check_written_ahead(state, last, "a request was sent")


def _cut_off(reply: Reply) -> Reply:
    blocks: list[Block] = []
    for block in reply.blocks:
        if isinstance(block, TextBlock):
            blocks.append(TextBlock(block.text[: len(block.text) // 2]))
        else:
            blocks.append(block)
    last = blocks[-1] if blocks else None
    if isinstance(last, ToolCall):
        blocks[-1] = ToolCall(last.id, last.name, None, '{"half')
    return attrs.evolve(reply, blocks=tuple(blocks), stop_reason="max_tokens", cut_off=True)


def _with_ids(reply: Reply, ids: list[str]) -> Reply:
    """Return *reply* with ids that came before, or without any."""
    blocks: list[Block] = []
    for block in reply.blocks:
        blocks.append(attrs.evolve(block, id=ids[-1] if ids else "") if isinstance(block, ToolCall) else block)
    return attrs.evolve(reply, blocks=tuple(blocks))


@final
class SimulatedTool(Tool):
    """A tool that can fail. A sync one is called in the event loop's own thread: threads can't be repeated."""

    def __init__(self, inner: Tool, faults: Faults, checks: Checks) -> None:
        self.inner: Final = inner
        """The tool that does it."""
        self.name: str = inner.name
        self.description: str = inner.description
        self.input_schema = inner.input_schema
        self.parallel: bool = inner.parallel
        self.timeout: float | None = inner.timeout
        self.max_result_bytes: int = inner.max_result_bytes
        self.hints: Hints = inner.hints
        self.from_mcp: bool = inner.from_mcp
        self._faults = faults
        self._checks = checks

    def __repr__(self) -> str:
        return f"<simulated {self.inner!r}>"

    def hints_for(self, args: FrozenDict) -> Hints:
        """Return what the tool says of a call with these arguments."""
        return self.inner.hints_for(args)

    def read_args(self, args: FrozenDict) -> Any:
        """Return *args* as the tool takes them."""
        return read_args(self.inner, args)

    def answer_to(self, error: Exception) -> object:
        """Return what the tool makes of its own exceptions; one that is a fault stops the run."""
        if isinstance(error, SimulatedError):
            raise error
        return self.inner.answer_to(error)

    async def run(self, args: Any, state: State) -> object:
        """Not to be called: ``call`` knows more."""
        raise TypeError(f"{self!r} is run by call(args, context)")

    async def call(self, args: Any, context: ToolContext) -> object:
        """Do it, if nothing goes wrong. Checkpoint: yes."""
        state, call = context.state, context.call
        self._checks.runs(state, call.id)
        self._check_written_ahead(state, call.id)
        fault = self._faults.comes(
            FaultKind.TOOL_FAILS, FaultKind.TOOL_FAILS_LATE, FaultKind.TOOL_REFUSES, FaultKind.TOOL_HANGS
        )
        if fault is FaultKind.TOOL_HANGS:
            await trio.sleep(_TOOL_HANGING)
        if fault is FaultKind.TOOL_FAILS:
            raise self._faults.raised(SimulatedError(f"{self.name} failed before it had done anything"))
        if fault is FaultKind.TOOL_REFUSES:
            raise ToolError(f"simulated: {self.name} refuses")
        result = await self._inner_call(args, context)
        if fault is FaultKind.TOOL_FAILS_LATE:
            raise self._faults.raised(SimulatedError(f"{self.name} failed when it was done"))
        self._checks.ran(state, call.id)
        return result

    async def _inner_call(self, args: Any, context: ToolContext) -> object:
        inner = self.inner
        if not isinstance(inner, FunctionTool) or inner._plan.is_async:
            return await inner.call(args, context)
        await trio.lowlevel.checkpoint()
        if inner._plan.hidden:
            args = args | {name: _given(hidden, context) for name, hidden in inner._plan.hidden}
        result: object = inner._fn(**args)
        return await result if inspect.isawaitable(result) else result

    def _check_written_ahead(self, state: Recorder, call_id: str) -> None:
        position = state.snapshot_now()._call_ids.get(call_id)
        if state.keeper is not None and position is not None:
            self._checks.check_written_ahead(state, position, f"{self.name} ran")


@final
class SimulatedHuman(Human):
    """A person who takes a minute to answer, or sleeps over it."""

    def __init__(self, inner: Human, faults: Faults, chance: random.Random) -> None:
        self.inner: Final = inner
        """The person who answers."""
        self._faults = faults
        self._chance = chance

    async def ask(self, question: Question, returns: object) -> object:
        """Return the answer, some time later. Checkpoint: yes."""
        fault = self._faults.comes(FaultKind.PERSON_SLEEPS)
        await trio.sleep(self._chance.uniform(0, 60) if fault is None else _NIGHT)
        return await self.inner.ask(question, returns)

"""Asking the permissions about the calls of one reply, before any of them runs."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from math import inf
from typing import Final

import attrs
import trio

from .._contracts import Tool
from .._errors import NoHumanError, PermissionWarning, ToolError
from ..record._blocks import TextBlock, ToolCall
from ..record._entries import StoppedByPermission, ToolOutcome, ToolResultEntry
from ..record._frozen import FrozenDict
from ..state import State, close_stopped, closing, current_calls, error_text, surrounded
from ..tools import failed
from ..tools._by_human import DecideByHuman
from ..tools._permissions import Allowed, Denied, Permission, Rule, Verdict, checked_verdict, in_order
from ._groups import is_cancellation, is_interrupt
from ._setup import Setup, record_error
from ._user_code import told

UNDECIDED: Final = "(denied: no permission allows this call)"
"""What the model reads where nobody has decided."""


@attrs.frozen(eq=False, repr=False)
class _Decision:
    """What became of a call, and by which permission."""

    verdict: Verdict
    by: str | None
    error: ToolError | None = None
    approval: DecideByHuman | None = None
    """The permission, where it asked a person."""


def refuse_without_human(setup: Setup) -> None:
    """Raise NoHumanError where a person has to decide, and there is none."""
    for rule in setup.rules or ():
        one = rule.permission
        if isinstance(one, DecideByHuman) and one.human is None and rule.human is None and setup.human is None:
            raise NoHumanError(
                "permissions has DecideByHuman(), and there is nobody to ask: Agent(..., human=...),"
                " or DecideByHuman(human=...)"
            )


async def permitted(setup: Setup, state: State, asked: Sequence[tuple[ToolCall, Tool]]) -> dict[str, str | None]:
    """Ask about each call in order, and record what is refused.

    A refusal that stops the run closes all calls that are left, and then none may run. What a person has said of those
    is given back, whatever keeps them from running. Checkpoint: if a check is one.

    Args:
        setup: With the rules to ask.
        state: The conversation.
        asked: The calls whose arguments are read, each with its tool.

    Returns:
        The calls that may run, by id, each with the ``repr`` of the permission that decided.

    Raises:
        Exception: what a check raised, but ToolError. That call and those behind it stay pending.
    """
    rules = in_order(setup.rules or ())
    allowed: dict[str, str | None] = {}
    approved: list[tuple[DecideByHuman, ToolCall]] = []
    try:
        for call, tool in asked:
            decision = await _decided(setup, rules, state, call, tool)
            if decision is None:
                _refuse(setup, state, call, _Decision(Denied(UNDECIDED), None))
                warnings.warn(PermissionWarning(call.name), stacklevel=2)
            elif isinstance(decision.verdict, Allowed):
                allowed[call.id] = decision.by
                if decision.approval is not None:
                    approved.append((decision.approval, call))
            elif decision.verdict.stop:
                _give_back(state, approved)
                _refuse(setup, state, call, decision)
                return {}
            else:
                _refuse(setup, state, call, decision)
        await trio.lowlevel.checkpoint_if_cancelled()  # a check may have caught it: nothing starts any more
    except BaseException:
        _give_back(state, approved)
        raise
    return allowed


def _give_back(state: State, approved: list[tuple[DecideByHuman, ToolCall]]) -> None:
    while approved:
        permission, call = approved.pop(0)
        told(permission.give_back, state, call)


def _refuse(setup: Setup, state: State, call: ToolCall, decision: _Decision) -> None:
    """Record a refusal, all of it at once, and tell the reporter of each call that it closed."""
    verdict, start = decision.verdict, state.snapshot_now().length
    if isinstance(verdict, Allowed):
        raise AssertionError("an allowed call is refused")
    if verdict.stop:
        close_stopped(state, StoppedByPermission(call, decision.by or ""), verdict.reason)
    else:
        state.commit(closing(state, call, ToolOutcome.DENIED, verdict.reason, decision.by, decision.error))
    if setup.reporter is not None:
        for entry in state.history[start:]:
            if isinstance(entry, ToolResultEntry) and not entry.late:
                told(setup.reporter.on_tool_end, state, entry.call, entry.content, entry.outcome)


async def _decided(setup: Setup, rules: Sequence[Rule], state: State, call: ToolCall, tool: Tool) -> _Decision | None:
    """Ask one rule after the other. What a check starts is part of the call: its subagents, and what waits for it."""
    token = current_calls.set(surrounded(state, call.id, setup))
    try:
        # What was forgiven is put right, and a blank text stands for no arguments: a check judges what the tool gets.
        try:
            shown = attrs.evolve(call, args=tool.mended_args(call.args or FrozenDict()), raw_args=None)
        except ToolError as error:
            return _Decision(Denied(_text_of(error, tool)), None, error)
        for rule in rules:
            permission = _with_human(rule, setup)
            try:
                verdict = checked_verdict(permission, await _checked(permission, state, shown, tool))
            except ToolError as error:
                return _Decision(Denied(_text_of(error, tool)), _name_of(permission), error)
            if verdict is not None:
                approval = permission if isinstance(permission, DecideByHuman) else None
                return _Decision(verdict, _name_of(permission), approval=approval)
    except BaseException as error:
        if not is_interrupt(error):
            record_error(state, error, "use_tools", call=call)
        raise
    finally:
        current_calls.reset(token)
    return None


def _with_human(rule: Rule, setup: Setup) -> Permission:
    if isinstance(rule.permission, DecideByHuman) and rule.permission.human is None:
        return DecideByHuman(setup.human if rule.human is None else rule.human)
    return rule.permission


@trio.lowlevel.disable_ki_protection
async def _checked(permission: Permission, state: State, call: ToolCall, tool: Tool) -> object:
    """Return what ``check`` says; it may be the user's code, so Ctrl+C can interrupt it."""
    try:
        verdict: object = permission.check(state, call, tool)
        return await verdict if inspect.isawaitable(verdict) else verdict
    except (trio.Cancelled, BaseExceptionGroup) as error:
        if is_cancellation(error) and trio.current_effective_deadline() != -inf:
            raise RuntimeError(
                f"{_name_of(permission)} raised Cancelled without being cancelled: one of its cancel scopes had ended"
            ) from error
        raise


def _text_of(error: ToolError, tool: Tool) -> str:
    return "".join([block.text for block in failed(error, tool).content if isinstance(block, TextBlock)])


def _name_of(permission: Permission) -> str:
    try:
        return repr(permission)
    except Exception as failure:  # noqa: BLE001  # a record of a decision must not fail
        return f"{type(permission).__name__} ({error_text(failure)})"

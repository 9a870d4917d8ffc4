"""Asking a person in the middle of the work."""

from __future__ import annotations

from datetime import datetime
from typing import TypeVar

import trio

from .._errors import NoHumanError
from .._human import Question, answer_of
from ..record._blocks import ToolCall
from ..record._entries import Entry, Exchange, ExchangeEntry
from ..record._frozen import joined
from ..record._snapshot import Snapshot
from ..state import State, current_calls
from ..state._clock import new_id
from ._setup import Setup, refuse_finished
from ._user_code import unprotected

T = TypeVar("T")


@trio.lowlevel.enable_ki_protection
async def ask_human(setup: Setup, state: State, prompt: str, returns: type[T]) -> T:
    """Ask the Agent's human, and record question and answer."""
    text = joined(prompt)
    if not text.strip():
        raise ValueError("the question is blank: await agent.ask_human(state, 'Which file?')")
    from ..tools._answer import answer_shape, fitted_answer  # with the schema code: only for who asks

    answer_shape(returns)  # a type that none can be read as is refused before anybody is asked
    refuse_finished(state, "ask_human")
    if setup.human is None:
        raise NoHumanError("ask_human has nobody to ask: Agent(..., human=...)")
    question = Question(text, id=new_id(), state=state, call=_call_here(state))
    given = await unprotected(answer_of, setup.human, question, returns)
    try:
        answer, plain = fitted_answer(given, returns)
    except ValueError as error:
        raise ValueError(
            f"{type(setup.human).__name__} gave no {getattr(returns, '__name__', returns)}: {error}"
        ) from error

    def make(snap: Snapshot, at: datetime) -> Entry:
        return ExchangeEntry(snap.length, snap.turn, at, "human", Exchange(text, plain))

    state.commit(make)
    return answer  # type: ignore[no-any-return]  # the shape was made from returns


def _call_here(state: State) -> ToolCall | None:
    """Return the open call of *state* that this code is part of."""
    for around in reversed(current_calls.get()):
        if around.state is state and around.call_id is not None:
            return next((call for call in state.pending_calls if call.id == around.call_id), None)
    return None

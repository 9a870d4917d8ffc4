"""A person decides about a call: yes, no, or always."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal, TypeAlias, final

import attrs

from .._contracts import Tool
from .._errors import NoHumanError, WaitingForAnswerError
from .._human import Human, Question, answer_of
from ..record._blocks import ToolCall
from ..record._entries import Entry, Exchange, ExchangeEntry, ExtraDataEntry
from ..record._frozen import freeze_dict
from ..record._json import dumps
from ..record._snapshot import Snapshot
from ..record._value import Value
from ..state import Make, State
from ..state._clock import new_id
from ._permissions import Allowed, DecidePermission, Denied, Verdict

Approval: TypeAlias = Literal["yes", "no", "always"]
"""What a person can say about a call; ``always``: yes, and to every call of this tool for the rest of the State."""

ALWAYS_KEY: Final = "alpineagents.always"
"""Key of ``extra_data``: a list of the names of the tools that a person has allowed for the rest of the State."""

_NO: Final = "(denied by the user)"


def _is_human(_: object, field: attrs.Attribute[Human | None], value: object) -> None:
    if value is not None and not isinstance(value, Human):
        raise TypeError(f"human must be a Human, not {type(value).__name__}: subclass alpineagents.Human")


@final
@attrs.frozen(eq=False, repr=False)
class DecideByHuman(Value, DecidePermission):
    """Asks a person about each call: ``yes``, ``no``, or ``always`` for this tool for the rest of the State.

    The answer is recorded, and saved before the tool runs. What was allowed for the rest of the State stands in
    ``extra_data["alpineagents.always"]``.
    """

    human: Human | None = attrs.field(default=None, repr=False, validator=_is_human)  # as its repr is recorded
    """Whom to ask; ``None``: the Agent's ``human``."""

    async def check(self, state: State, call: ToolCall, tool: Tool) -> Verdict:
        """Ask, and record the answer. Checkpoint: unless the tool is allowed for the rest of the State.

        Cancelled: the question is taken back as the Human does it; nothing is recorded.

        Raises:
            NoHumanError: there is nobody to ask.
            ValueError: the answer is none of the three.
        """
        if call.name in always_allowed(state.snapshot_now()):
            return Allowed()
        if self.human is None:
            raise NoHumanError("DecideByHuman has nobody to ask: Agent(..., human=...), or DecideByHuman(human=...)")
        question = _question(state, _as_written(state, call))
        try:
            answer = approval(await answer_of(self.human, question, Approval))
        except WaitingForAnswerError as error:
            return Denied(f"(waiting for approval {error.question_id})", stop=True)
        exchange = Exchange(str(question), answer)

        def answered(snap: Snapshot, at: datetime) -> Entry:
            return ExchangeEntry(snap.length, snap.turn, at, "human", exchange)

        state.commit_all([answered, allowing_always(call.name)] if answer == "always" else [answered])
        return Denied(_NO) if answer == "no" else Allowed()

    def give_back(self, state: State, call: ToolCall) -> None:
        """Say that *call*, which was allowed here, did not run: a Human that keeps answers has this one count again."""
        if self.human is not None and call.name not in always_allowed(state.snapshot_now()):
            self.human.give_back(_question(state, _as_written(state, call)), "yes")


def _question(state: State, call: ToolCall) -> Question:
    return Question(approval_text(call), id=new_id(), state=state, call=call, is_approval=True)


def _as_written(state: State, call: ToolCall) -> ToolCall:
    """Return *call* as the model wrote it, which is what a person approves; checks see it put right."""
    return next((one for one in state.pending_calls if one.id == call.id), call)


def approval_text(call: ToolCall) -> str:
    """Return what a person is asked about a call: all of its arguments, since it is those that are approved."""
    args = dumps(call.args).decode() if call.args else "no arguments"
    return f"Allow {call.name} with {args}?"


def approval(answer: object) -> Approval:
    """Return one of the three answers.

    Raises:
        ValueError: it is none of them.
    """
    match answer.strip().lower() if isinstance(answer, str) else answer:
        case "yes":
            return "yes"
        case "no":
            return "no"
        case "always":
            return "always"
        case _:
            raise ValueError(f"answer 'yes', 'no' or 'always' (got {answer!r:.80})")


def always_allowed(snap: Snapshot) -> set[str]:
    """Return the names of the tools that are allowed for the rest of the State."""
    names = snap.extra_data.get(ALWAYS_KEY)
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()


def allowing_always(tool: str) -> Make:
    """Return what records that a tool is allowed for the rest of the State."""

    def make(snap: Snapshot, at: datetime) -> Entry:
        names = sorted({*always_allowed(snap), tool})
        return ExtraDataEntry(snap.length, snap.turn, at, freeze_dict({ALWAYS_KEY: names}))

    return make

"""What clients see of a conversation, as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from alpineagents import (
    Entry,
    ErrorEntry,
    MessageEntry,
    ModelReplyEntry,
    Question,
    State,
    StateInfo,
    StopEntry,
    TextBlock,
    ToolResultEntry,
)


def entry_view(entry: Entry) -> dict[str, object]:
    """Return an entry: of all of them ``seq``, ``kind``, ``turn`` and ``at``, of those that say something, what."""
    common: dict[str, object] = {"seq": entry.seq, "kind": entry.kind, "turn": entry.turn, "at": entry.at.isoformat()}
    match entry:
        case MessageEntry():
            return {**common, "text": entry.content.text}
        case ModelReplyEntry():
            calls = [{"id": call.id, "tool": call.name, "args": call.args} for call in entry.content.tool_calls]
            return {**common, "text": entry.content.text, "calls": calls}
        case ToolResultEntry():
            result = _text(entry.content)
            return {**common, "call": entry.call.id, "tool": entry.call.name, "outcome": entry.outcome, "text": result}
        case StopEntry():
            return {**common, "stopped": _name(entry.content)}
        case ErrorEntry():  # its class alone: the rest may tell what is nobody's business
            return {**common, "error": entry.content.partition(":")[0]}
        case _:
            return common


def state_view(state: State, *, running: bool) -> dict[str, object]:
    """Return how a conversation stands."""
    return {
        "id": state.id,
        "entries": state.saved,
        "running": running,
        "finished": state.finished,
        "stopped": _name(state.stopped),
        "answer": state.answer,
    }


def info_view(info: StateInfo) -> dict[str, object]:
    """Return a line of the list."""
    return {
        "id": info.id,
        "first_message": info.first_message,
        "created_at": _time(info.created_at),
        "updated_at": _time(info.updated_at),
        "turn": info.turn,
        "finished": info.finished,
    }


def question_view(question: Question) -> dict[str, object]:
    """Return what a person is asked, and where the answer goes."""
    call = question.call
    return {
        "id": question.id,
        "conversation": question.state.id,
        "question": str(question),
        "tool": None if call is None else call.name,
        "args": None if call is None else call.args,
        "answer_at": f"/conversations/{question.state.id}/approvals/{question.id}",
    }


def _text(blocks: Iterable[object]) -> str:
    return "\n".join([block.text for block in blocks if isinstance(block, TextBlock)])


def _name(stopped: object) -> str | None:
    return None if stopped is None else type(stopped).__name__.removeprefix("StoppedBy").lower()


def _time(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()

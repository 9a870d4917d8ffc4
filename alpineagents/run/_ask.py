"""A side question: the model answers it with the conversation in view, and the conversation doesn't show it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import orjson
import trio

from .._errors import OutputError, ToolInputError
from ..record._entries import Entry, Exchange, ExchangeEntry
from ..record._frozen import Json
from ..record._messages import NO_USAGE, Message, Reply, Request
from ..record._snapshot import Snapshot
from ..state import State
from ._setup import Setup, record_error, refuse_finished, usage_of
from ._think import respond

if TYPE_CHECKING:
    from ..tools._answer import AnswerShape

T = TypeVar("T")


@trio.lowlevel.enable_ki_protection
async def ask(setup: Setup, state: State, prompt: str, returns: type[T], retries: int) -> T:
    """Ask until the answer has the wanted type, and record question and answer."""
    question = Message.user(prompt)
    if retries < 0:
        raise ValueError(f"retries must be 0 or more (got {retries})")
    from ..tools._answer import answer_shape  # with the schema code: only for who asks

    shape = None if returns is str else answer_shape(returns)
    refuse_finished(state, "ask")
    messages = [*closed_messages(state.snapshot_now()), _with_schema(question, shape, setup.model.structured_output)]
    spent = NO_USAGE
    plain: Json = None
    try:
        for tries_left in range(retries, -1, -1):
            reply = await respond(setup, state, side_request(setup, messages, shape), None)
            spent += reply.usage
            try:
                answer, plain = _read(reply, shape)
            except ToolInputError as error:
                if not tries_left:
                    wanted = getattr(returns, "__name__", returns)
                    raise OutputError(f"{setup.model.name} gave no {wanted} in {retries + 1} tries: {error}") from error
                messages += _try_again(reply, error)
            else:
                break
    except BaseException as error:
        record_error(state, error, "ask", usage=spent + usage_of(error))
        if isinstance(error, OutputError):
            error.usage = spent
        raise

    def make(snap: Snapshot, at: datetime) -> Entry:
        return ExchangeEntry(snap.length, snap.turn, at, "ask", Exchange(prompt, plain), spent)

    state.commit(make)
    return answer  # type: ignore[no-any-return]  # the shape was made from returns


def closed_messages(snap: Snapshot) -> list[Message]:
    """Return the messages without an open reply at their end: a request must not hold calls without results."""
    return list(snap.messages[:-1] if snap.calls else snap.messages)


def side_request(setup: Setup, messages: list[Message], shape: AnswerShape | None = None) -> Request:
    """Return a request beside the conversation: no tool may be called, but those it has called must be known."""
    has_calls = any(message.tool_calls for message in messages)
    return Request(
        messages=tuple(messages),
        system=setup.system,
        tools=setup.tool_specs if has_calls else (),
        tool_choice="none" if has_calls else "auto",
        returns=None if shape is None else shape.schema,
    )


def _with_schema(question: Message, shape: AnswerShape | None, native: bool) -> Message:
    if shape is None or native:
        return question
    schema = orjson.dumps(shape.schema).decode()
    return Message.user(
        f"{question.text}\n\nAnswer with one JSON object that fits this JSON Schema, and nothing else:\n{schema}"
    )


def _read(reply: Reply, shape: AnswerShape | None) -> tuple[Any, Json]:
    """Return the answer and its JSON form."""
    if reply.refusal:
        raise OutputError(f"{reply.model} refused: {reply.text or reply.stop_reason}")
    if shape is None:
        return reply.text, reply.text
    return shape.read_text(reply.text)


def _try_again(reply: Reply, error: ToolInputError) -> list[Message]:
    said = [Message.assistant(reply.text)] if reply.text.strip() else []
    return [*said, Message.user(f"That is not what was asked for: {error}\nAnswer again, with the JSON object alone.")]

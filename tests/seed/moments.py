"""What the tests of the page share: tools, Agents that answer from a script, and States at a certain point.

A State is brought to its point by hand, entry by entry, where no run is needed: that works in a plain script, and for
what nothing in the library records yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from alpineagents import (
    Agent,
    Message,
    ModelReplyEntry,
    ModelRequestEntry,
    Reply,
    State,
    StateSnapshot,
    TextBlock,
    Tool,
    ToolCall,
    ToolError,
    ToolResultEntry,
    Usage,
    tool,
)
from alpineagents.testing import FakeModel

CALL = ToolCall("a", "add", {"a": 1, "b": 2})
OTHER_CALL = ToolCall("b", "add", {"a": 3, "b": 4})


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def picky(path: str) -> str:
    """Complain."""
    raise ToolError(f"no such file: {path}")


@tool
async def broken() -> str:
    """Fail as a bug does."""
    raise ZeroDivisionError("bug")


def agent(*script: Any, tools: tuple[Tool, ...] = (add, picky, broken), **settings: Any) -> Agent:
    """An Agent whose model gives these answers."""
    return Agent(model=FakeModel(script), tools=tools, **settings)


def texts(state: State | StateSnapshot) -> list[str]:
    return [message.text for message in state.messages]


def roles(state: State | StateSnapshot) -> list[str]:
    return [message.role for message in state.messages]


def said() -> State:
    """Somebody has said something."""
    return State(messages=[Message.user("go")])


def then(state: State, kind: Callable[..., Any], *values: Any, **fields: Any) -> State:
    """The State with one more entry in its history."""
    turn = state.turn + (kind is ModelRequestEntry)
    return State(history=[*state.history, kind(len(state.history), turn, state.updated_at, *values, **fields)])


def waiting() -> State:
    """A request waits on the model."""
    return then(said(), ModelRequestEntry, "fake/fake")


def replied(text: str = "hello") -> State:
    """The model has answered."""
    return then(waiting(), ModelReplyEntry, Reply((TextBlock(text),), usage=Usage(10, 10, requests=1)))


def asked(*calls: ToolCall) -> State:
    """The model has asked for calls, which nobody runs."""
    return then(waiting(), ModelReplyEntry, Reply(calls or (CALL,)))


def closed(state: State, call: ToolCall = CALL, outcome: str = "done", text: str = "3", **fields: Any) -> State:
    """A call has got its result."""
    return then(state, ToolResultEntry, (TextBlock(text),), call, outcome, **fields)


def answered() -> State:
    """A conversation with everything in it: a call, its result and the answer."""
    state = then(closed(asked()), ModelRequestEntry, "fake/fake")
    return then(state, ModelReplyEntry, Reply((TextBlock("It is 3."),)))


def edit(state: State, **values: Any) -> None:
    """Change the notepad."""
    with state.edit_extra_data() as data:
        data.update(values)


CHANGES: dict[str, Callable[[State], object]] = {
    "add_message": lambda state: state.add_message(Message.user("and now?")),
    "edit_extra_data": lambda state: edit(state, n=1),
    "clear_tool_results": lambda state: state.clear_tool_results(keep_last=0),
    "compact": lambda state: state.compact("They asked for a sum."),
    "finish": lambda state: state.finish("done"),
    "restore": lambda state: state.restore(state.snapshot()),
}
"""Every method that changes a State, with something to do."""

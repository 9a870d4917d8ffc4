"""Terminal: shows runs, and asks who sits there. A shell around a Board, a Screen and a Person."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from decimal import Decimal
from typing import Any, Final, TextIO, final

import attrs
import trio

from ..._blocks import Block
from ..._contracts import Reporter
from ..._human import Human, Question
from ...record._blocks import ResultBlock, TextBlock, ToolCall
from ...record._entries import (
    ContextChangeEntry,
    Entry,
    MessageEntry,
    ModelEvent,
    StoppedByUntil,
    ToolOutcome,
    ToolResultEntry,
)
from ...record._messages import Reply, Usage
from ...state import State
from ...state._show import describe, size, stop_reason
from ._board import Board
from ._layout import seconds
from ._person import Person
from ._screen import Screen
from ._shown import Printed, Row, one_line

_INTERVAL: Final = 0.05
"""Seconds between two drawings of a frame whose rows are the same ones."""
_MANY: Final = 100
"""With more States at once, their rows coming and going is no reason to draw the frame before that time."""
_SHORT: Final = 60
"""Characters of a result that are shown."""
_MOST: Final = 2_000
"""Characters of an error that are looked at: more are on no line."""


@final
@attrs.frozen
class _Beginning:
    """How a State stood when its run started."""

    usage: Usage
    turn: int
    at: float


@final
class Terminal(Reporter, Human):
    """Shows runs on a terminal as they happen, and asks the person who sits there.

    For a Reporter of any number of Agents, at once or one after another, and their Human. On a terminal, text streams,
    and what is on stays in a frame at the bottom: tools and their progress, subagents as a tree. Elsewhere, in a pipe
    or a file, there are plain lines. Whatever a model or a tool says, nothing that a terminal would obey is written.

    While several Agents run, the text of one streams; what the others have to show waits until its reply is over. Of
    subagents only calls are shown: what they answer is the result of a call. What is printed by other means than
    ``print`` while a frame is on garbles it.

    It writes when something happens, in the thread that runs trio, and there is no task or thread of its own. A
    terminal that takes nothing (Ctrl+S) holds up the program. Needs rich: ``pip install rich``. Not on Windows.

    Args:
        file: Where to write; ``None``: ``sys.stdout``, as it is when something is written.
        keyboard: Where answers and lines come from, a file with a descriptor; ``None``: ``sys.stdin``.
        color: Whether to use colours; ``None``: on a terminal, unless ``NO_COLOR`` is set or it can't.
        live: Whether there is a frame; ``None``: on a terminal, unless it can't move its cursor.
        thinking: Whether the model's reasoning is shown.
        width: Columns to use, at most; ``None``: all that the terminal has. Elsewhere text isn't wrapped then.

    Raises:
        ImportError: rich isn't installed.
        ValueError: *width* is less than 1.

    Example:
        >>> from alpineagents import Agent, Terminal
        >>> from alpineagents.testing import FakeModel
        >>> agent = Agent(model=FakeModel(["Hello, you."]), reporter=Terminal())
        >>> agent.run_sync("Hi")
        Hello, you.
        - done: 1 turn, 20 tokens
        'Hello, you.'
    """

    def __init__(
        self,
        *,
        file: TextIO | None = None,
        keyboard: TextIO | None = None,
        color: bool | None = None,
        live: bool | None = None,
        thinking: bool = False,
        width: int | None = None,
    ) -> None:
        if width is not None and width < 1:
            raise ValueError(f"width must be 1 column or more (got {width})")
        self._file = file
        self._keyboard = keyboard
        self._color = color
        self._live = live
        self._width = width
        self._board = Board(streams=False, thinking=thinking)
        self._person = Person(self._descriptors, self._say, self._redraw, self._anew)
        self._screen: Screen | None = None
        self._rows: list[Row] = []  # As they were last looked at.
        self._looked_at = float("-inf")
        self._beginnings: dict[str, _Beginning] = {}

    def print(self, text: str) -> None:
        """Show *text*, above the frame where there is one. Control characters in it are shown, not obeyed."""
        self._say(Printed(text))

    async def ask(self, question: Question, returns: object) -> object:
        """Ask the person, after those who were asked before; return the answer. Checkpoint: yes.

        On a terminal the question stays above the line that is typed; elsewhere it is a line, and its answer is read
        from the keyboard's next. What is no answer is asked again. Cancelled: the question is taken back.

        Raises:
            NoHumanError: the input ended before anybody answered. A call that is asked about is refused then.
        """
        return await self._person.ask(question, returns, self._board.name(question.state.id))

    def lines(self) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        r"""Return a block in which a person types lines, also while Agents work, and an async iterator over them.

        It ends with the input, or Ctrl+D on an empty line. A line has no ``\n`` at its end; what was pasted may have
        some inside. Questions are asked in between, and their answers are not among the lines. Ctrl+C interrupts.

        Raises (when entered):
            RuntimeError: another such block is open.

        Example::

            async with terminal.lines() as lines:
                async for line in lines:
                    state.add_message(Message.user(line))
        """
        return Block(self._person.listened_to())

    def on_run_start(self, state: State, agent: Any) -> None:
        self._beginnings[state.id] = _Beginning(state.usage, state.turn, trio.current_time())
        name = getattr(agent, "name", None) or ""
        self._board.start(state.id, name, state.parent_id, state.parent_call_id)
        self._update()

    def on_think_start(self, state: State) -> None:
        self._board.think(state.id)
        self._update()

    def on_text(self, state: State, text: str) -> None:
        self._prepare()
        self._board.say(state.id, text)
        self._update()

    def on_thinking(self, state: State, text: str) -> None:
        self._prepare()
        self._board.say(state.id, text, is_thinking=True)
        self._update()

    def on_model_event(self, state: State, event: ModelEvent) -> None:
        self._board.event(state.id, event.kind, event.text, is_restart=bool(event.data.get("restarted")))
        self._update()

    def on_reply(self, state: State, reply: Reply) -> None:
        self._board.reply(state.id, reply)
        self._update()

    def on_tool_start(self, state: State, call: ToolCall) -> None:
        self._board.start_call(state.id, call, trio.current_time())
        self._update()

    def on_tool_progress(
        self, state: State, call: ToolCall, done: float, total: float | None, text: str | None
    ) -> None:
        self._board.progress(state.id, call, done, total, text)
        self._update()

    def on_tool_end(self, state: State, call: ToolCall, result: tuple[ResultBlock, ...], outcome: ToolOutcome) -> None:
        self._board.end_call(state.id, call, _result(result, outcome), outcome, trio.current_time())
        self._update()

    def on_entry(self, state: State, entry: Entry) -> None:
        match entry:
            case MessageEntry() if entry.content.is_notice:
                self._board.note(state.id, entry.content.text)
            case ToolResultEntry() if entry.late:
                result = _result(entry.content, entry.outcome)
                self._board.note(state.id, f"{entry.call.name} has ended after all: {result}")
            case ContextChangeEntry() if entry.content.kind != "import":
                self._board.note(state.id, describe(entry))
            case _:
                return
        self._update()

    def on_run_end(self, state: State, error: BaseException | None) -> None:
        beginning = self._beginnings.pop(state.id, None)
        parts = [_how_it_ended(state, error)]
        if beginning is not None:
            parts.append(_spent(state, beginning, trio.current_time()))
        note = ": ".join([part for part in parts if part])
        self._board.end(state.id, note, is_error=isinstance(error, Exception))
        self._update()

    def _say(self, what: Printed) -> None:
        self._board.print(what)
        self._update()

    def _redraw(self) -> None:
        self._update(is_typed=True)

    def _anew(self, is_emptied: bool) -> None:
        """Have the next drawing begin on a screen that is emptied now, or below what others wrote there."""
        if self._screen is not None and is_emptied:
            self._screen.clear()
        elif self._screen is not None:
            self._screen.forget()

    def _update(self, *, is_typed: bool = False) -> None:
        """Show what is new; with *is_typed*, that is, too. A frame that is the same but for its numbers can wait."""
        screen = self._prepare()
        if screen is None:
            self._board.take()
            return
        if screen.is_live:
            self._person.print_long(screen.size[0], screen.room)
        shown = self._board.take()
        if screen.is_live and self._are_rows_due():
            self._rows = self._board.rows()
        elif not (shown or is_typed):
            return
        screen.show(shown, self._rows, self._person.bottom)

    def _are_rows_due(self) -> bool:
        """Return whether to look at what is on again: when rows come or go, but where there are too many to see."""
        if self._board.is_urgent and len(self._board) <= _MANY:
            self._board.is_urgent = False
            return True
        now = trio.current_time()
        if now - self._looked_at < _INTERVAL and self._looked_at <= now:  # Each trio run has a clock of its own.
            return False
        self._board.is_urgent = False
        self._looked_at = now
        return True

    def _prepare(self) -> Screen | None:
        """Return the screen for where output goes now; None: nowhere."""
        file: TextIO | None = sys.stdout if self._file is None else self._file
        if self._screen is None or self._screen.file is not file:
            self._screen = None if file is None else self._screen_of(file)
            self._board.streams = self._screen is not None and self._screen.is_live
        return self._screen

    def _screen_of(self, file: TextIO) -> Screen:
        is_terminal = file.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")
        color = is_terminal and not os.environ.get("NO_COLOR") if self._color is None else self._color
        live = is_terminal if self._live is None else self._live
        return Screen(file, is_live=live, color=color, width=self._width)

    def _descriptors(self) -> tuple[int | None, int | None]:
        """Return what is read, and the terminal on which what is typed is shown."""
        screen = self._prepare()
        shown_on = _descriptor(screen.file) if screen is not None and screen.is_live else None
        return _descriptor(sys.stdin if self._keyboard is None else self._keyboard), shown_on


def _descriptor(file: TextIO | None) -> int | None:
    try:
        return None if file is None else file.fileno()
    except (OSError, ValueError):  # closed, or no file
        return None


def _result(content: tuple[ResultBlock, ...], outcome: ToolOutcome) -> str:
    """Return a result in a few words: itself if it is short, else its beginning and size; an error as it is."""
    texts = [block.text for block in content if isinstance(block, TextBlock)]
    text = "\n".join(texts).strip()
    if text and outcome is not ToolOutcome.DONE:
        return one_line(text[:_MOST])
    first, _, rest = text.partition("\n")
    if not rest and len(first) <= _SHORT and len(texts) == len(content):
        return one_line(first)
    return f"{one_line(first[:_SHORT])}… ({size(content)})" if first else size(content)


def _how_it_ended(state: State, error: BaseException | None) -> str:
    match error:
        case None if state.stopped is None:
            return "done"
        case None if isinstance(state.stopped, StoppedByUntil) and state.stopped.name == "waiting_for_user":
            return "done"
        case None:
            return f"stopped by {stop_reason(state.stopped)}" if state.stopped is not None else "done"
        case trio.Cancelled():
            return "cancelled"
        case KeyboardInterrupt():
            return "interrupted"
        case _:
            return f"failed with {type(error).__name__}"  # Whoever gets the error says the rest.


def _spent(state: State, beginning: _Beginning, now: float) -> str:
    """Return turns, tokens, US dollars and seconds of a run."""
    used, before = state.usage, beginning.usage
    turns = state.turn - beginning.turn
    tokens = used.input_tokens + used.output_tokens - before.input_tokens - before.output_tokens
    parts = [f"{turns:,} {'turn' if turns == 1 else 'turns'}"]
    if tokens:
        parts.append(f"{tokens:,} tokens")
    if used.cost is not None and before.cost is not None and used.cost > before.cost:
        parts.append(_dollars(used.cost - before.cost))
    if now - beginning.at >= 1:
        parts.append(seconds(now - beginning.at))
    return ", ".join(parts)


def _dollars(cost: Decimal) -> str:
    return f"${cost:.2f}" if cost >= 1 else f"${cost:.4f}"

"""A person who is asked, one question at a time, and types lines, also while Agents work.

Theory of operation: what is typed is read by one of those who wait for it, whoever it is that it is for; when it is
there, or the reader gives up, the others go on. So no task is needed but theirs. A question goes before lines.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Final, Self, assert_never, final

import attrs
import trio
from rich.text import Text

from ..._human import Question
from ._editor import Draft, Edit, EndOfInput, Entered, LineEditor, Redraw
from ._keyboard import Keyboard
from ._layout import cut, styled
from ._questions import Answered, Prompt, prompt_for
from ._screen import Bottom
from ._shown import Printed, one_line
from ._splitter import LineSplitter

_MARK: Final = "> "


@final
@attrs.define(eq=False)
class _Asked:
    """A question that somebody waits for."""

    prompt: Prompt
    lines: tuple[str, ...]
    """What is shown of it."""
    hint: str
    """What may be typed, or why what was typed is no answer."""
    answer: Answered | None = None
    is_over: bool = False
    """Whether it is answered, or can't be any more."""
    is_printed: bool = False
    """Whether it is shown for good already."""

    @property
    def text(self) -> str:
        """Return what is shown of it for good."""
        return "\n".join([f"? {self.lines[0]}", *self.lines[1:]])


@final
class Person:
    """Who sits at the terminal.

    Args:
        keyboard: Returns the descriptors that are read and shown on now, as ``Keyboard`` has them.
        say: Shows text for good.
        redraw: Draws the frame.
        anew: Has the next drawing begin anew: on a screen that is emptied now (True), or below what others wrote.
    """

    def __init__(
        self,
        keyboard: Callable[[], tuple[int | None, int | None]],
        say: Callable[[Printed], None],
        redraw: Callable[[], None],
        anew: Callable[[bool], None],
    ) -> None:
        self._descriptors = keyboard
        self._say = say
        self._redraw = redraw
        self._anew = anew
        self._known: tuple[int | None, int | None] | None = None  # What the two below are for.
        self._keyboard = Keyboard(None, None)
        self._editor: LineEditor | LineSplitter = LineSplitter()
        self._uses = 0
        self._opened = ExitStack()
        self._asked: deque[_Asked] = deque()
        self._lines: deque[str] = deque()
        self._is_listening = False
        self._is_at_end = False
        self._kept = Draft()
        self._has_reader = False
        self._waiting = trio.lowlevel.ParkingLot()

    async def ask(self, question: Question, returns: object, who: str) -> object:
        """Ask, when those asked before are answered. Checkpoint: yes. Cancelled: it is no longer asked.

        Raises:
            NoHumanError: the input ended before it was answered. An approval is refused then.
        """
        prompt = prompt_for(question, returns)
        first, *rest = prompt.lines
        lines = (f"{one_line(who)} asks: {first}" if who else first, *rest)
        asked = _Asked(prompt, lines, _hint(prompt))
        with self._using():
            if not self._asked:
                self._set_aside()
                self._forget_typed()
            self._asked.append(asked)
            try:
                if self._asked[0] is asked:
                    self._put_first()
                self._redraw()
                await self._until(lambda: asked.is_over)
            finally:
                self._take_back(asked)
        return (asked.answer or prompt.at_end()).value

    @asynccontextmanager
    async def listened_to(self) -> AsyncIterator[AsyncIterator[str]]:
        """Give the lines that are typed in a block."""
        if self._is_listening:
            raise RuntimeError("somebody takes this Terminal's lines already: there can be one lines() at a time")
        with self._using():
            self._is_listening, self._is_at_end = True, False
            self._redraw()
            try:
                yield _Lines(self._next_line)
            finally:
                self._is_listening = False
                self._lines.clear()
                self._redraw()

    def bottom(self, width: int, room: int) -> Bottom:
        """Return the frame's last lines: the question that is on, and the line that is typed."""
        if not (isinstance(self._editor, LineEditor) and (self._asked or self._is_listening)):
            return Bottom()
        shown = self._editor.shown(max(width - len(_MARK), 1))
        mark = cut(_MARK, max(width - 1, 0))
        typed = Text(cut(mark + shown.text, width), "bold")
        question: list[Text] = []
        if self._asked:
            asked = self._asked[0]
            more = f" ({len(self._asked) - 1} more)" if len(self._asked) > 1 else ""
            question = styled([f"? {asked.lines[0]}", *asked.lines[1:]], width, "bold yellow")
            question += styled([f"{asked.hint}{more}"], width, "dim") if asked.hint or more else []
        question = question[max(len(question) - room + 1, 0) :]
        return Bottom((*question, typed), min(len(mark) + shown.cursor, width - 1))

    def print_long(self, width: int, room: int) -> None:
        """Show the question that is on for good if the frame has no room for it."""
        asked = self._asked[0] if self._asked else None
        if asked and not asked.is_printed and isinstance(self._editor, LineEditor):
            height = len(styled([*asked.lines, asked.hint], width, "")) + 1
            if height > room:
                self._print(asked)

    async def _next_line(self) -> str | None:
        """Return the next line; ``None`` at the end of input, or of the block. Checkpoint: yes."""
        await self._until(lambda: bool(self._lines) or self._is_at_end or not self._is_listening)
        return self._lines.popleft() if self._lines else None

    async def _until(self, is_done: Callable[[], bool]) -> None:
        """Read what is typed, or wait while another task does, until *is_done*. Checkpoint: yes."""
        await trio.lowlevel.checkpoint()
        while not is_done():
            if self._has_reader:
                await self._waiting.park()
                continue
            try:
                self._has_reader = True
                if (edit := await self._next_edit()) is not None:
                    self._heed(edit)
            finally:
                self._has_reader = False
                self._waiting.unpark_all()

    async def _next_edit(self) -> Edit | None:
        """Return what the next key does that does more than editing; ``None`` if another task has read it.

        Checkpoint: where nothing was typed ahead.
        """
        edit = self._editor.feed(b"")
        while edit is None:
            if (data := await self._keyboard.read()) is None:
                return None
            edit = self._editor.feed(data) if data else self._editor.end()
            self._redraw()
        return edit

    def _heed(self, edit: Edit) -> None:
        match edit:
            case Entered(text) if self._asked:
                self._answer(self._asked[0], text)
            case Entered(text):
                self._echo(text)
                self._lines.append(text)
                if isinstance(self._editor, LineEditor):
                    self._editor.remember(text)
            case EndOfInput() if self._asked:
                self._close(self._asked[0])
            case EndOfInput():
                self._is_at_end = True
            case Redraw():
                self._anew(True)
            case _:
                assert_never(edit)
        self._redraw()

    def _answer(self, asked: _Asked, text: str) -> None:
        answer = asked.prompt.read(text)
        if isinstance(answer, Answered):
            asked.answer = answer
            self._close(asked, text)
            return
        asked.hint = answer.reason
        if not self._keyboard.is_by_key:
            self._echo(text)
            self._say(Printed(answer.reason))

    def _close(self, asked: _Asked, typed: str | None = None) -> None:
        """End the question that is on, and put the next. First what must be so where writing fails."""
        asked.is_over = True
        self._asked.popleft()
        if self._asked:
            self._forget_typed()
        else:
            self._set_draft(self._kept)
        shown = [] if asked.is_printed else [asked.text]
        if typed is None:
            shown.append("(no answer)")
        elif self._is_echoing:
            shown.append(_MARK + typed.replace("\n", f"\n{_MARK}"))
        if shown:
            self._say(Printed("\n".join(shown), can_wait=True))
        if self._asked:
            self._put_first()

    def _put_first(self) -> None:
        """Put the question that is first now: where there is no frame, on lines of its own."""
        if not self._keyboard.is_by_key:
            self._print(self._asked[0])
            if self._asked[0].hint:
                self._say(Printed(self._asked[0].hint))

    def _take_back(self, asked: _Asked) -> None:
        """Ask no longer, where it isn't over."""
        if asked not in self._asked:
            return
        if asked is self._asked[0]:
            self._close(asked)
        else:
            self._asked.remove(asked)
        self._redraw()

    def _print(self, asked: _Asked) -> None:
        if not asked.is_printed:
            asked.is_printed = True
            self._say(Printed(asked.text))

    @property
    def _is_echoing(self) -> bool:
        """Whether to show what was typed: the terminal doesn't."""
        return self._keyboard.is_by_key or not self._keyboard.is_terminal

    def _echo(self, text: str) -> None:
        if self._is_echoing:
            self._say(Printed(text, is_typed=True, can_wait=True))

    def _set_aside(self) -> None:
        """Take what was typed so far as lines, where those are wanted; keep a half-typed one for later."""
        if self._is_listening and self._keyboard.is_terminal:
            edit = self._editor.feed(self._keyboard.read_ahead())
            while edit is not None:
                self._heed(edit)
                edit = self._editor.feed(b"")
            self._waiting.unpark_all()
        if isinstance(self._editor, LineEditor):
            self._kept = self._editor.draft

    def _forget_typed(self) -> None:
        """Forget what a person has typed so far.

        Before a question is seen, nothing is an answer to it: a "y" may have been for the one before, or for nothing
        here. What comes through a pipe was written as answers.
        """
        if self._keyboard.is_terminal:
            self._editor.feed(self._keyboard.read_ahead())
            self._editor.clear()

    def _set_draft(self, draft: Draft) -> None:
        if isinstance(self._editor, LineEditor):
            self._editor.draft = draft

    @contextmanager
    @trio.lowlevel.enable_ki_protection
    def _using(self) -> Iterator[None]:
        """Have the keyboard open in a block: from the first to the last of those that are on."""
        if not self._uses:
            if (descriptors := self._descriptors()) != self._known:
                self._known, self._keyboard = descriptors, Keyboard(*descriptors)
                self._editor = LineEditor() if self._keyboard.is_by_key else LineSplitter()
            self._opened.enter_context(self._keyboard.opened(lambda: self._anew(False), self._redraw))
        self._uses += 1
        try:
            yield
        finally:
            self._uses -= 1
            if not self._uses:
                self._opened.close()
                self._kept = Draft()
                self._set_draft(Draft())


@final
class _Lines:
    """What is typed, as an async iterator."""

    def __init__(self, following: Callable[[], Awaitable[str | None]]) -> None:
        self._following = following

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        if (line := await self._following()) is None:
            raise StopAsyncIteration
        return line


def _hint(prompt: Prompt) -> str:
    if not prompt.expects:
        return ""
    return f"Answer {prompt.expects}." if prompt.expects.startswith("yes") else f"Type {prompt.expects}."

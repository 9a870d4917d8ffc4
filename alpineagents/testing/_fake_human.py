"""A Human that answers from a script."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias, final

import trio

from .._human import Human, Question
from ._fake_model import ScriptEndedError

Answer: TypeAlias = "object | Callable[[Question], object | Awaitable[object]]"


@final
class FakeHuman(Human):
    """A Human that answers from a script, without a person.

    Args:
        script: The answers in the order of the questions, each a value, an exception to raise, or a plain or async
            function of the Question that returns one of these. A function instead of a list answers every question.
        delay: Seconds that each answer takes.

    Raises (when asked):
        ScriptEndedError: the script is at its end.

    Example:
        >>> human = FakeHuman(["yes", "no"])
        >>> human.remaining
        2
    """

    def __init__(self, script: Iterable[Answer] | Callable[[Question], object] = (), *, delay: float = 0.0) -> None:
        if isinstance(script, str):
            raise TypeError(f"script must be a list of answers, not one text: FakeHuman([{script!r:.80}])")
        self.delay = delay
        self.questions: list[Question] = []
        """Every question so far."""
        self._always = script if callable(script) else None
        self._script: deque[object] = deque() if callable(script) else deque(script)

    @property
    def remaining(self) -> int:
        """How many answers are left."""
        return len(self._script)

    async def ask(self, question: Question, returns: object) -> object:
        """Return the next answer. Checkpoint: yes."""
        self.questions.append(question)
        item = self._always or self._next(question)
        if self.delay:
            await trio.sleep(self.delay)
        else:
            await trio.lowlevel.checkpoint()
        if callable(item) and not isinstance(item, type):
            item = item(question)
            if inspect.isawaitable(item):
                item = await item
        if isinstance(item, BaseException):
            raise item
        return item

    def _next(self, question: Question) -> object:
        if not self._script:
            raise ScriptEndedError(
                f"FakeHuman was asked {len(self.questions)} times, and its script had {len(self.questions) - 1}"
                f" answers; the last question is: {str(question)[:200]!r}"
            )
        return self._script.popleft()

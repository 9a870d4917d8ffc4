"""Who answers questions, and what a question is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self, final

from .record._blocks import ToolCall
from .state import State


@final
class Question(str):
    """A question to a person: its text, and what it belongs to.

    Args:
        text: What is asked.
        id: What it is answered by; unique.
        state: The State that it is asked for.
        call: The tool call that it is about, or that asks it; ``None`` where a loop asks.
        is_approval: Whether it asks if *call* may run.
    """

    __slots__ = ("call", "id", "is_approval", "state")

    id: str
    """What it is answered by."""
    state: State
    """The State that it is asked for."""
    call: ToolCall | None
    """The tool call that it is about, or that asks it; ``None`` where a loop asks."""
    is_approval: bool
    """Whether it asks if ``call`` may run."""

    def __new__(
        cls, text: str, *, id: str, state: State, call: ToolCall | None = None, is_approval: bool = False
    ) -> Self:
        self = super().__new__(cls, text)
        self.id = id
        self.state = state
        self.call = call
        self.is_approval = is_approval
        return self


class Human(ABC):
    """A person that Agents can ask: ``Agent(..., human=...)``."""

    @abstractmethod
    async def ask(self, question: Question, returns: object) -> object:
        """Ask *question* and return the answer. Several may be asked at the same time, of many States.

        Checkpoint: yes. Cancelled: nobody waits for the answer any more.

        Args:
            question: The text, with the State and the tool call that it belongs to.
            returns: The type of the answer: ``str``, ``bool``, ``int``, a ``Literal``, an attrs class, a dataclass, ...

        Returns:
            An answer of that type, or its JSON form.

        Raises:
            WaitingForAnswerError: the answer comes later, and the run shall not wait for it.
        """

    def give_back(self, question: Question, answer: object) -> None:  # noqa: B027  # most have nothing to do
        """Take back an answer that allowed a call which did not run after all: a later refusal stopped the turn.

        Here nothing is done, and the person is asked about the same call again. Not a checkpoint.
        """


async def answer_of(human: Human, question: Question, returns: object) -> object:
    """Return what ``human.ask`` answers. Checkpoint: as that is. Raises TypeError where it isn't written so."""
    try:
        return await human.ask(question, returns)
    except TypeError as error:
        if error.__traceback__ is None or error.__traceback__.tb_next is not None:  # raised further in
            raise
        raise TypeError(
            f"{type(human).__name__}.ask must be async def ask(self, question, returns): ... ({error})"
        ) from error

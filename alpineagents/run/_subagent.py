"""An Agent as a tool: the model of another Agent gives it a task, and gets its answer."""

from __future__ import annotations

from typing import Annotated, Any, Final, final

from .._contracts import Tool
from .._errors import StoreError, ToolError, ToolInputError
from ..record._entries import StoppedByBudget, StoppedByLimit, StoppedByPermission
from ..record._frozen import FrozenDict
from ..record._messages import Message
from ..state import State, error_text
from ..tools import tool
from ._budget import budget_text
from ._run import run
from ._setup import Setup


@tool
async def _task(
    prompt: Annotated[str, "The task, with everything needed to do it: nothing else of this conversation is seen."],
) -> str:
    """What a subagent is asked to do: the schema and the reading of its one parameter come from here."""
    raise AssertionError("only the parameters are used")


@final
class Subagent(Tool):
    """An Agent in the ``tools`` of another. Each call runs it on a new State.

    Raises:
        ValueError: the Agent has no name or no description, which the model needs to know it by.
    """

    def __init__(self, setup: Setup, name: str | None, description: str | None) -> None:
        if name is None or description is None or not description.strip():
            missing = "name" if name is None else "description"
            raise ValueError(
                f"an Agent in tools= needs a {missing}, which the model knows it by:"
                " Agent(..., name='reader', description='Reads a file and answers questions about it.')"
            )
        self._setup: Final = setup
        self.name: str = name
        self.description: str = description
        self.input_schema = _task.input_schema
        self.is_subagent: bool = True

    def __repr__(self) -> str:
        return f"<subagent {self.name}>"

    def read_args(self, args: FrozenDict) -> Any:
        """Return the arguments as ``call`` takes them; ToolInputError says what is wrong with them."""
        given = _task.read_args(args)
        if not given["prompt"].strip():
            raise ToolInputError("prompt is blank: say what is to be done")
        return given

    async def run(self, args: Any, state: State) -> object:
        """Run the Agent on a new State and return what the model gets."""
        child = State(messages=[Message.user(args["prompt"])])
        try:
            answer = await run(self._setup, child)
        except Exception as error:
            if child.parent_id is None and _is_mistake(error):  # it hasn't started: this is for the caller to mend
                raise
            raise ToolError(f"({self.name} failed: {error_text(error)})") from error
        return _told(self.name, child, answer)


def _is_mistake(error: Exception) -> bool:
    """Whether it is the caller's, as far as one finds those before a run; a store that fails is nobody's."""
    return isinstance(error, TypeError | ValueError | Warning) and not isinstance(error, StoreError)


def _told(name: str, child: State, answer: object) -> object:
    """Return what the model above gets of a run that ended normally."""
    match child.stopped:
        case StoppedByLimit(turns):
            limit = "1 turn" if turns == 1 else f"{turns} turns"
            return _unfinished(answer, f"({name} stopped at its limit of {limit}, before it was done)")
        case StoppedByBudget() as stopped:
            return _unfinished(answer, f"({name} stopped before it was done: {budget_text(stopped)})")
        case StoppedByPermission(call):
            return f"({name} stopped: its call of {call.name} was refused)"
        case _:
            return answer


def _unfinished(answer: object, line: str) -> str:
    return f"{answer}\n\n{line}" if answer else line  # only ``finish`` can give an answer that is no text

"""A person and an Agent, taking turns on one State until the person leaves.

Two tasks: one takes what is typed and adds it to the State, whether the Agent works or not; the other has the Agent
run whenever there is something to answer. Ctrl+C cancels the run, not the task.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, final

import trio

from .._errors import ConflictError, RunningElsewhereError, StoreError
from ..record import Message
from ..run import Agent, waiting_for_user
from ..state import State
from ..state._show import one_line
from ._ctrl_c import ctrl_c_calls, end_by_ctrl_c
from ._exit import ANSWER, ERROR, INTERRUPTED, line_of

if TYPE_CHECKING:
    from ..reporters import Terminal

HELP: Final = (
    "/exit or Ctrl+D leaves. Ctrl+C stops what the agent does; pressed twice at the prompt, it leaves."
    " What you type while the agent works is read at its next step."
)
AGAIN: Final = "Enter on an empty line has the agent go on from here."
LEAVING: Final = "Leaving, as soon as what the agent does has ended. Ctrl+C again ends the program at once."
ELSEWHERE: Final = (
    "alpineagents tail shows what happens there. What you typed here since is not saved: type it again when you go on."
)
_COMMAND: Final = re.compile(r"/[a-z]+")


@final
class Conversation:
    """One visit: from the first line to leaving.

    Args:
        agent: With a store, and *terminal* as its reporter.
        state: What it goes on with.
        terminal: Where the person sits.
        set_back: Gives the terminal its settings back, for a program that ends without doing so.
    """

    def __init__(self, agent: Agent, state: State, terminal: Terminal, set_back: Callable[[], object]) -> None:
        self._agent = agent
        self._state = state
        self._terminal = terminal
        self._set_back = set_back
        self._code = ANSWER
        self._visit = trio.CancelScope()
        self._turn: trio.CancelScope | None = None  # of the run that is on
        self._has_news = trio.Event()
        self._is_warned = False  # that the next Ctrl+C leaves

    async def hold(self, greeting: Sequence[str], goes_on: bool) -> int:
        """Return the exit code when the person has left. The State is whole then, and saved.

        Args:
            greeting: Shown first: whoever reads it can type.
            goes_on: Whether the Agent begins, without waiting for a line.
        """
        if goes_on:
            self._has_news.set()
        with ctrl_c_calls(self._stop, self._set_back), self._visit:
            async with trio.open_nursery() as nursery:
                async with self._terminal.lines() as lines:
                    for text in greeting:
                        self._terminal.print(text)
                    nursery.start_soon(self._answer)
                    async for line in lines:
                        if not self._take(line):
                            break
                self._visit.cancel()
        return self._code

    def _take(self, line: str) -> bool:
        """Do what a line says; return whether the person stays."""
        self._is_warned = False
        word = line.strip()
        if word == "/exit":
            return False
        if word == "/help":
            self._terminal.print(HELP)
        elif _COMMAND.fullmatch(word):
            self._terminal.print(f"there is no {word}; {HELP}")
        elif word:
            self._state.add_message(Message.user(line))
            self._has_news.set()
        elif self._is_unanswered():
            self._has_news.set()
        return True

    def _is_unanswered(self) -> bool:
        state = self._state
        return len(state.messages) > 0 and not (waiting_for_user(state) or state.finished)

    async def _answer(self) -> None:
        """Have the Agent run whenever there is something to answer, until the State is finished."""
        while not self._state.finished:
            await self._has_news.wait()
            self._has_news = trio.Event()
            if self._is_unanswered():
                await self._run()
        self._terminal.print("The conversation is finished.")
        self._visit.cancel()

    async def _run(self) -> None:
        """Run once. What goes wrong is a line."""
        try:
            with trio.CancelScope() as self._turn:
                await self._agent.run(self._state)
        except (RunningElsewhereError, ConflictError) as error:
            self._give_up(error)
        except Exception as error:  # noqa: BLE001  # of a tool, the Agent's own code, the provider: all are shown
            self._terminal.print(line_of(error))
        except KeyboardInterrupt:  # a tool that hung without giving anybody a turn
            pass
        finally:
            was_stopped = self._turn is not None and self._turn.cancel_called
            self._turn = None
        if self._is_unanswered():
            if not (self._has_news.is_set() or self._visit.cancel_called):
                self._terminal.print(AGAIN)
        elif was_stopped:  # The answer is there: that Ctrl+C is one at the prompt.
            self._warn()

    def _give_up(self, error: StoreError) -> None:
        """Leave a State that somebody else writes: what is added to this copy of it can no longer be saved."""
        what = f"State {self._state.id} has been gone on with elsewhere"
        if isinstance(error, RunningElsewhereError):
            what, _, _advice = one_line(str(error)).partition("; ")  # which is for who writes Python
        self._terminal.print(f"error: {what}; {ELSEWHERE}")
        self._code = ERROR
        self._visit.cancel()

    def _warn(self) -> None:
        self._is_warned = True
        self._terminal.print("Ctrl+C again leaves.")

    def _stop(self) -> None:
        """Heed a Ctrl+C: stop the run; where none is on, leave at the second; where that takes too long, end."""
        if self._visit.cancel_called:
            self._set_back()
            end_by_ctrl_c()
        elif self._turn is not None and not self._turn.cancel_called:
            self._has_news = trio.Event()  # What was typed before is not to start the next run.
            self._turn.cancel()
        elif self._turn is None and not self._is_warned:
            self._warn()
        else:
            if self._turn is not None:
                self._terminal.print(LEAVING)
            self._code = INTERRUPTED
            self._visit.cancel()

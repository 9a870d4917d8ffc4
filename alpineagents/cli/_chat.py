"""``alpineagents chat``: a conversation that goes on after Ctrl+C, errors, a restart and a crash."""

from __future__ import annotations

import os
import shlex
import sys
import termios
from collections.abc import Callable
from typing import Annotated, Final

from cyclopts import Parameter

from .._contracts import Store
from ..state import State
from ._agent import agent_of
from ._conversation import Conversation
from ._exit import UsageError
from ._list import status
from ._options import MODEL_VARIABLES, STORE_VARIABLES, AgentOptions, StateId, StorePlace, ending
from ._place import as_saved, found_id, opened, store_name
from ._run import watching
from ._show import heading
from ._talk import message
from ._warn import warnings_told

_PASTE_OFF: Final = b"\x1b[?2004l"
"""XTerm Control Sequences, "Bracketed Paste Mode"."""

_REMINDED: Final = 4
"""How many messages are shown of a conversation that goes on."""

EPILOGUE: Final = ending(
    "alpineagents chat --model anthropic/claude-sonnet-5",
    "alpineagents chat --tools app.tools:read_file --system 'Be brief.'",
    "alpineagents chat --resume",
    "alpineagents chat --resume 01m8tyksx338",
    variables=(*MODEL_VARIABLES, *STORE_VARIABLES),
    codes="0 left with Ctrl+D or /exit, 1 error, 2 wrong command line or unknown model, 130 left with Ctrl+C,"
    " 143 ended by SIGTERM",
)


async def chat(
    id: StateId = None,
    /,
    *,
    resume: Annotated[
        bool, Parameter(name=["--resume", "-r"], help="Go on with a saved conversation: ID, or the one changed last.")
    ] = False,
    options: AgentOptions = AgentOptions(),  # noqa: B008  # frozen
    store: StorePlace = None,
) -> int:
    """Talk to an agent. The conversation is saved with every step, and goes on where it was with --resume.

    What you type while the agent works is read at its next step. Ctrl+C stops what it does; at the prompt, pressed
    twice, it leaves, as do Ctrl+D and /exit. An error is shown, and the conversation stays open.
    """
    from .. import Terminal  # rich comes with it

    if not (sys.stdin and sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("alpineagents chat needs a terminal to type at; without one use: alpineagents run")
    where = store_name(store)
    terminal = Terminal()
    async with opened(where, new=not (resume or id)) as place:
        state, goes_on = await _found(place, id) if resume or id else (State(), False)
        last_model = state.snapshot_now().last_run
        agent = agent_of(options, terminal, None if last_model is None else last_model.model)
        agent = agent.copy(store=place, reporter=watching(agent, terminal))
        greeting = [*_reminder(state), f"Talking to {agent.model.name}. Ctrl+C stops it, Ctrl+D leaves, /help."]
        try:
            with warnings_told(terminal.print):
                return await Conversation(agent, state, terminal, _set_back()).hold(greeting, goes_on)
        finally:
            if state.saved:
                print(f"To go on with this conversation:\n  {_command(state, options, store)}")


def _set_back() -> Callable[[], None]:
    """Return what gives the terminal the settings that it has now."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def set_back() -> None:
        termios.tcsetattr(terminal, termios.TCSANOW, before)
        os.write(sys.stdout.fileno(), _PASTE_OFF + b"\r\n")

    return set_back


async def _found(place: Store, given: str | None) -> tuple[State, bool]:
    """Return a saved State, and whether an answer was being worked on when its process went away."""
    state_id = await found_id(place, given)
    was_open = status(await as_saved(place, state_id)) == "open"
    state = await place.load(state_id)
    if state.finished:
        raise UsageError(f"State {state_id} is finished: nothing can be added; alpineagents show {state_id} shows it")
    return state, was_open


def _reminder(state: State) -> list[str]:
    """Return what was said last, so that it is known what goes on."""
    if not len(state.messages):
        return []
    said = [piece for each in state.messages[-_REMINDED:] for piece in message(each)]
    return [heading(state), *(piece.text for piece in said)]


def _command(state: State, options: AgentOptions, store: str | None) -> str:
    """Return what to type to go on with the same settings."""
    given = {
        "--store": store,
        "--agent": options.agent,
        "--model": options.model,
        "--system": options.system,
        "--limit": None if options.limit is None else str(options.limit),
        "--budget": options.budget,
    }
    words = ["alpineagents", "chat", "--resume", state.id]
    for name, value in given.items():
        words += [] if value is None else [name, value]
    for tool in options.tools:
        words += ["--tools", tool]
    return shlex.join([*words, *(["--yes"] if options.yes else [])])

"""``alpineagents run``: one prompt, one answer."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from .._contracts import Reporter
from ..record import Message, ModelReplyEntry, StoppedByPermission
from ..reporters import Reporters
from ..run import Agent
from ..state import State
from ._agent import NobodyToAsk, agent_of
from ._exit import StoppedEarly, UsageError, stopped_early
from ._options import MODEL_VARIABLES, RAN, STORE_VARIABLES, AgentOptions, StorePlace, ending
from ._place import opened, store_name
from ._warn import say_on_error, warnings_told

if TYPE_CHECKING:
    from .. import Terminal

EPILOGUE: Final = ending(
    'alpineagents run -m anthropic/claude-sonnet-5 "Name three rivers"',
    'git diff | alpineagents run - --system "Review this change"',
    'alpineagents run --agent app.agents:fixer --yes "Fix the bug" > answer.txt',
    variables=(*MODEL_VARIABLES, *STORE_VARIABLES),
    codes=RAN,
)


async def run(
    prompt: Annotated[
        str | None,
        Parameter(help="What to ask. - reads it from standard input, as does no PROMPT where that is no terminal."),
    ] = None,
    /,
    *,
    options: AgentOptions = AgentOptions(),  # noqa: B008  # frozen
    store: StorePlace = None,
) -> None:
    """Run an agent on a prompt, and print its answer.

    The answer goes to standard output. What happens meanwhile is shown where there is a terminal to show it on, and
    nothing else is ever printed to standard output. Ctrl+C and SIGTERM stop the run; what happened until then is saved.
    """
    text = await _prompt(prompt)
    terminal = _terminal()
    agent = agent_of(options, terminal if sys.stdin is not None and sys.stdin.isatty() else None)
    state = State(messages=[Message.user(text)])
    with warnings_told(say_on_error if terminal is None else terminal.print):
        async with opened(store_name(store), new=True) as place:
            await _ask(agent.copy(store=place, reporter=watching(agent, terminal)), state)


async def _prompt(given: str | None) -> str:
    """Return what to ask. Checkpoint: where it is read."""
    is_piped = sys.stdin is not None and not sys.stdin.isatty()
    text = given
    if given == "-" or (given is None and is_piped):
        text = await read_input()
    if text is None:
        raise UsageError('alpineagents run needs PROMPT, such as: alpineagents run "Name three rivers"')
    if not text.strip():
        raise UsageError("the prompt is blank")
    return text


async def read_input() -> str:
    """Return all of standard input. Checkpoint: yes, so that Ctrl+C and SIGTERM end the wait."""
    if sys.stdin is None:
        return ""
    from ..reporters._terminal._keyboard import Keyboard  # rich comes with it

    keyboard = Keyboard(sys.stdin.fileno(), None)
    chunks = []
    while chunk := await keyboard.read():
        chunks.append(chunk)
    return b"".join(chunks).decode("utf-8", "replace")


def _terminal() -> Terminal | None:
    """Return the terminal to show what happens on: that of standard output, or else of standard error."""
    file = next((file for file in (sys.stdout, sys.stderr) if file is not None and file.isatty()), None)
    if file is None:
        return None
    from .. import Terminal  # rich comes with it

    return Terminal(file=file)


def watching(agent: Agent, terminal: Terminal | None) -> Reporter | None:
    """Return who watches a run: the Agent's own reporter, and the terminal."""
    if terminal is None or agent.reporter is None:
        return terminal or agent.reporter
    return Reporters(agent.reporter, terminal)


async def _ask(agent: Agent, state: State) -> None:
    answer = await agent.run(state)
    if (reason := stopped_early(state.stopped)) is not None:
        raise StoppedEarly(f"{reason}; {_advice(state)}")
    if answer is not None and not (sys.stdout.isatty() and answer == _last_text(state)):
        print(answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False))


def _last_text(state: State) -> str:
    """Return what the model said last: on a terminal it has been seen as it came."""
    return next((entry.content.text for entry in reversed(state.history) if isinstance(entry, ModelReplyEntry)), "")


def _advice(state: State) -> str:
    """Return how to go on with a State that was stopped."""
    stopped = state.stopped
    if isinstance(stopped, StoppedByPermission) and stopped.permission == repr(NobodyToAsk()):
        return "--yes lets all calls run"
    return f"go on with: alpineagents chat --resume {state.id}"

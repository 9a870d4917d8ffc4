"""Options that several commands have, and what their help says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, TypeAlias

import attrs
from cyclopts import Parameter

PLACES: Final = (
    "a folder, a SQLite file such as runs.db, or postgresql://host/database (?schema=NAME for another schema)"
)

StorePlace: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--store",
        metavar="PLACE",
        help=f"Where States are saved: {PLACES}. Default: $ALPINEAGENTS_STORE, else"
        " $XDG_STATE_HOME/alpineagents/states, which is ~/.local/state/alpineagents/states where that is not set.",
    ),
]
"""The store of the commands that have a default one."""

NamedStore: TypeAlias = Annotated[str, Parameter(help=f"The store: {PLACES}.")]
"""The store of the commands that are told which."""

StateId: TypeAlias = Annotated[
    str | None,
    Parameter(help="The State's id, or enough of its beginning to be the only one. Default: the State changed last."),
]

ExactId: TypeAlias = Annotated[str, Parameter(help="The State's id.")]

SomeIds: TypeAlias = Annotated[str, Parameter(help="Ids of States. Default: all.")]


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class AgentOptions:
    """Which Agent a command runs, and what it may do."""

    model: Annotated[
        str | None,
        Parameter(
            name=["--model", "-m"],
            metavar="NAME",
            help="The model: anthropic/NAME, openai/NAME, google/NAME, ollama/NAME, or compatible/NAME for the server"
            " at $OPENAI_BASE_URL. Default: $ALPINEAGENTS_MODEL, or the model of --agent.",
        ),
    ] = None
    agent: Annotated[
        str | None,
        Parameter(
            name=["--agent", "-a"],
            metavar="MODULE:NAME",
            help="An Agent of yours, imported from the current directory. The options beside it replace"
            " its settings, and --tools adds to its tools.",
        ),
    ] = None
    system: Annotated[
        str | None, Parameter(name=["--system", "-s"], metavar="TEXT", help="The system prompt. Default: none.")
    ] = None
    tools: Annotated[
        tuple[str, ...],
        Parameter(
            name=["--tools", "-t"],
            metavar="MODULE:NAME",
            consume_multiple=False,
            help="Tools, imported from the current directory: a function (made a tool if it is none yet),"
            " an object with @tool methods, an Agent, or a list of those. May be given several times.",
        ),
    ] = ()
    yes: Annotated[
        bool,
        Parameter(
            name=["--yes", "-y"],
            help="Run every tool call without asking. Default: calls that change nothing (@tool(read_only=True)) run,"
            " you are asked about the others, and where nobody can be asked they are refused.",
        ),
    ] = False
    limit: Annotated[
        int | None,
        Parameter(
            metavar="TURNS",
            help="The most turns before it stops (exit code 3). Default: 50, or that of the Agent's loop.",
        ),
    ] = None
    budget: Annotated[
        str | None,
        Parameter(
            metavar="DOLLARS",
            help="The most US dollars to spend before it stops (exit code 3), such as 0.50. Default: no limit.",
        ),
    ] = None


MODEL_VARIABLES: Final = (
    ("ALPINEAGENTS_MODEL", "the model, where --model names none"),
    ("ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY", "keys of the providers"),
    ("OPENAI_BASE_URL", "a server that speaks OpenAI's formats"),
)
STORE_VARIABLES: Final = (("ALPINEAGENTS_STORE", "the store, where --store names none"),)

SIGNALS: Final = "130 interrupted by Ctrl+C, 143 ended by SIGTERM"
DONE: Final = f"0 done, 1 error, 2 wrong command line, {SIGNALS}"
RAN: Final = (
    f"0 answer, 1 error, 2 wrong command line or unknown model, 3 stopped by a limit or a permission, {SIGNALS}"
)


def ending(*lines: str, variables: Sequence[tuple[str, str]] = (), codes: str = DONE) -> str:
    """Return the end of a command's help.

    Args:
        *lines: How it is typed.
        variables: What it reads from the environment.
        codes: What its exit codes say.
    """
    parts = ["Examples:", *(f"  {line}" for line in lines)]
    if variables:
        parts += ["", "Environment:", *(f"  {name}\n      {what}" for name, what in variables)]
    return "\n".join([*parts, "", f"Exit codes: {codes}."])

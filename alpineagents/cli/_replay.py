"""``alpineagents replay``: a saved State, run again against today's code."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from typing import Any

from .._errors import AlpineAgentsError
from ..run import Agent
from ._store import _opened


def add_to(commands: Any) -> None:
    """Add the command."""
    replay = commands.add_parser(
        "replay",
        help="run a saved State again against today's code, and show the first difference",
        description="Run a saved State again against today's code. No model, tool, person or store is called: what was"
        " recorded answers. Exit code 0: the same; 1: it differs, and the first difference is shown; 2: it can't be"
        " replayed.",
    )
    replay.add_argument("store", metavar="STORE", help="a folder, a SQLite file such as runs.db, or postgresql://...")
    replay.add_argument("id", metavar="ID", help="the State's id")
    replay.add_argument("agent", metavar="MODULE:AGENT", help="the Agent, imported from the current directory")
    replay.add_argument(
        "--ignore",
        action="append",
        choices=["system", "tools"],
        default=[],
        help="what may differ: the system prompt, or which tools there are; may be given twice",
    )
    replay.set_defaults(command=replay_state)


async def replay_state(args: argparse.Namespace) -> int:
    """Replay a State and print what came of it. Return 0 where it is the same, 1 where it differs, 2 where it can't."""
    from ..testing import replay_run  # with the fakes and the rest: only for who replays

    try:
        agent = agent_called(args.agent)
        async with _opened(args.store) as store:
            state = await store.load(args.id)
        replay = await replay_run(state, agent, ignore=args.ignore)
    except (AlpineAgentsError, ImportError, OSError, TypeError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(replay)
    return 1 if replay.differs else 0


def agent_called(name: str) -> Agent:
    """Return the Agent that ``module:agent`` names, imported from the current directory first.

    Raises:
        ValueError: it isn't written like that.
        ImportError: there is no such module, or nothing of this name in it.
        TypeError: what is there is no Agent.
    """
    module, colon, path = name.partition(":")
    if not (module and colon and path):
        raise ValueError(f"{name!r} names no Agent; write MODULE:AGENT, such as app.agents:reader")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: object = import_module(module)
    except Exception as error:
        raise ImportError(f"{module} can't be imported: {type(error).__name__}: {error}") from error
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ImportError(f"{module} has no {path!r}; it is looked for from the current directory on") from None
    if not isinstance(found, Agent):
        raise TypeError(f"{name} is a {type(found).__name__}, not an Agent")
    return found

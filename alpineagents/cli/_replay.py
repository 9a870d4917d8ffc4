"""``alpineagents replay``: a saved State, run again against today's code."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from cyclopts import Parameter

from .._errors import AlpineAgentsError
from ._agent import agent_called
from ._exit import UsageError
from ._options import SIGNALS, ExactId, NamedStore, ending
from ._place import opened

EPILOGUE: Final = ending(
    "alpineagents replay runs.db bug-1 app.agents:fixer",
    "alpineagents replay runs.db bug-1 app.agents:fixer --ignore system",
    codes=f"0 the same, 1 it differs, 2 it can't be replayed, {SIGNALS}",
)


async def replay_state(
    store: NamedStore,
    id: ExactId,
    agent: Annotated[str, Parameter(name="MODULE:AGENT", help="The Agent, imported from the current directory.")],
    /,
    *,
    ignore: Annotated[
        tuple[Literal["system", "tools"], ...],
        Parameter(
            consume_multiple=False,
            help="What may differ: the system prompt, or which tools there are. May be given twice.",
        ),
    ] = (),
) -> int:
    """Run a saved State again against today's code, and show the first difference.

    No model, tool, person or store is called: what was recorded answers.
    """
    from ..testing import replay_run  # with the fakes and the rest: only for who replays

    try:
        found = agent_called(agent)
        async with opened(store) as where:
            state = await where.load(id)
        replay = await replay_run(state, found, ignore=ignore)
    except (AlpineAgentsError, ImportError, OSError, TypeError, ValueError) as error:
        raise UsageError(str(error)) from error  # with its exit code: 1 is a difference
    print(replay)
    return 1 if replay.differs else 0

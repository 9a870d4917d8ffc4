"""``alpineagents list``: the States of a store, as a table."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Final, assert_never

import attrs
from cyclopts import Parameter
from cyclopts.validators import Number

from .._contracts import Store
from .._errors import AlpineAgentsError
from ..record import (
    ErrorEntry,
    StateInfo,
    StoppedByBudget,
    StoppedByFinish,
    StoppedByLimit,
    StoppedByPermission,
    StoppedByUntil,
    ToolResultEntry,
    Usage,
)
from ..record._frozen import Json
from ..record._json import dumps
from ..state import State
from ..state._show import one_line
from ._options import STORE_VARIABLES, StorePlace, ending
from ._place import as_saved, is_missing, listed, opened, say_warnings, store_name

EPILOGUE: Final = ending(
    "alpineagents list",
    "alpineagents list --store runs.db --limit 100",
    "alpineagents list --json | jq -r 'select(.status == \"failed\") | .id'",
    variables=STORE_VARIABLES,
)

_HEADINGS: Final = ("id", "changed", "status", "turns", "tokens", "cost", "first message")
_NARROW: Final = 64
"""Columns of a terminal that is too narrow for turns, tokens and cost."""
_SHORT_ID: Final = 12
"""Characters of an id on a terminal; random ones are unique after ten (a time in ms). More where these are not."""


@attrs.frozen(kw_only=True)
class Row:
    """What is shown of a State."""

    info: StateInfo
    status: str
    usage: Usage | None
    """``None`` where the history can't be read."""

    def as_json(self) -> bytes:
        """Return it for other programs: times as ISO 8601, dollars as text, what is unknown as null."""
        info, usage = self.info, self.usage
        fields: dict[str, Json] = {
            "id": info.id,
            "parent_id": info.parent_id,
            "created_at": info.created_at.isoformat() if info.created_at else None,
            "updated_at": info.updated_at.isoformat() if info.updated_at else None,
            "status": self.status,
            "turns": info.turn,
            "input_tokens": usage.input_tokens if usage else None,
            "output_tokens": usage.output_tokens if usage else None,
            "cost": str(usage.cost) if usage and usage.cost is not None else None,
            "first_message": info.first_message,
        }
        return dumps(fields)


async def list_states(
    *,
    store: StorePlace = None,
    limit: Annotated[
        int, Parameter(name=["--limit", "-n"], validator=Number(gte=0), help="List at most so many. Default: 20.")
    ] = 20,
    all: Annotated[bool, Parameter(name=["--all", "-a"], help="List the States of subagents, too.")] = False,
    json: Annotated[bool, Parameter(help="Print a JSON object per line.")] = False,
) -> None:
    """List saved States, the newest first.

    The status is "your turn" where the agent has answered, "finished", "failed", "interrupted", what stopped it (limit,
    budget, permission), or "open": it is running, or its process is gone. Tokens are those read and written. A store
    that isn't there yet has no States.
    """
    where = store_name(store)
    if await is_missing(where):
        return
    async with opened(where) as place:
        rows = [await _row(place, info) for info in await listed(place, top=not all, limit=limit)]
    if json:
        sys.stdout.flush()
        sys.stdout.buffer.writelines(row.as_json() + b"\n" for row in rows)
    elif rows and sys.stdout.isatty():
        _print_table(rows)
    else:
        _print_plain(rows)


async def _row(store: Store, info: StateInfo) -> Row:
    try:
        state = await as_saved(store, info.id)
    except AlpineAgentsError as error:
        say_warnings([str(error)])
        return Row(info=info, status="damaged", usage=None)
    return Row(info=info, status=status(state), usage=state.usage)


def status(state: State) -> str:
    """Return how a State stands, in a word or two."""
    match state.stopped:
        case None:
            return _unstopped(state)
        case StoppedByFinish():
            return "finished"
        case StoppedByLimit():
            return "limit"
        case StoppedByBudget():
            return "budget"
        case StoppedByPermission():
            return "permission"
        case StoppedByUntil(name):
            return "your turn" if name == "waiting_for_user" else one_line(name)
        case _:
            assert_never(state.stopped)


def _unstopped(state: State) -> str:
    """Tell a run that an error has ended from one that is on, or whose process is gone."""
    # The results behind the error are of the calls that it has closed.
    last = next((entry for entry in reversed(state.history) if not isinstance(entry, ToolResultEntry)), None)
    if state.pending_calls or not isinstance(last, ErrorEntry):
        return "open"
    return "interrupted" if last.content.startswith(("KeyboardInterrupt", "Cancelled")) else "failed"


def _cells(row: Row, now: datetime) -> tuple[str, ...]:
    usage = row.usage
    changed = row.info.updated_at or row.info.created_at
    return (
        row.info.id,
        "-" if changed is None else age((now - changed).total_seconds()),
        row.status,
        str(row.info.turn),
        "?" if usage is None else count(usage.input_tokens + usage.output_tokens),
        "?" if usage is None else dollars(usage.cost),
        one_line(row.info.first_message or ""),
    )


def _print_plain(rows: list[Row]) -> None:
    """Print columns for other programs and for files: whole ids, no headings, two spaces between columns."""
    lines = [_cells(row, datetime.now(UTC)) for row in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(6)] if lines else []
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=False)]
        print("  ".join([*cells, line[6]]).rstrip())


def _print_table(rows: list[Row]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    names = short_ids([row.info.id for row in rows])
    lines = [_HEADINGS, *[(names[row.info.id], *_cells(row, datetime.now(UTC))[1:]) for row in rows]]
    console = Console(highlight=False)
    shown = [0, 1, 2, 6] if console.width < _NARROW else range(len(_HEADINGS))
    widths = [max(len(line[column]) for line in lines) for column in shown][:-1]
    room = max(1, console.width - sum(widths) - len(widths))  # of the last column, which is cut
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for column in shown:
        table.add_column(_HEADINGS[column], justify="right" if 3 <= column <= 5 else "left", no_wrap=True)
    for row, line in zip(rows, lines[1:], strict=True):
        cells = [Text(line[column]) for column in shown]
        cells[2].stylize("red" if row.status in ("failed", "damaged") else "")
        cells[-1].truncate(room, overflow="ellipsis")
        table.add_row(*cells)
    console.print(table)


def short_ids(ids: list[str]) -> dict[str, str]:
    """Return for each of *ids* a beginning that none of the others has."""
    short: dict[str, str] = {}
    for state_id in ids:
        shared = max([_common(state_id, other) for other in ids if other != state_id], default=0)
        short[state_id] = state_id[: max(_SHORT_ID, shared + 1)]
    return short


def _common(a: str, b: str) -> int:
    """Return how many characters two ids begin with in common."""
    return next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def age(seconds: float) -> str:
    """Return how long ago something was, such as ``3 min``."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"


def count(number: int) -> str:
    """Return a number of tokens in four characters or so."""
    if number < 10_000:
        return str(number)
    return f"{number / 1_000:.0f}k" if number < 10_000_000 else f"{number / 1_000_000:.0f}M"


def dollars(cost: Decimal | None) -> str:
    """Return an amount of US dollars; ``?`` where a price is unknown."""
    if cost is None:
        return "?"
    return f"${cost:.2f}" if cost == 0 or cost >= 1 else f"${cost:.4f}"

"""``alpineagents store``: what lies in a store, checked, copied and exported."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

import trio
from cyclopts import Parameter
from cyclopts.validators import Number

from .._contracts import Store, info_of
from .._errors import AlpineAgentsError, StoreError
from ..record import StateInfo
from ..record._codec import decode_info, encode_info
from ..state._show import one_line, stop_reason
from ._export import html, markdown
from ._options import PLACES, SIGNALS, ExactId, NamedStore, SomeIds, ending
from ._place import as_saved, listed, opened, replayed, say_warnings
from ._warn import say_on_error

BATCH: Final = 1_000
"""How many entries are copied at once."""

TRIES: Final = 5
"""How often ``check`` looks at a State that is written each time."""

STALE: Final = "the list says something else of it than its history; the next save of it sets that right"
UNLISTED: Final = "it isn't in the list"

EPILOGUES: Final = {
    "list": ending("alpineagents store list runs.db --limit 20"),
    "show": ending("alpineagents store show runs.db bug-1"),
    "copy": ending(
        "alpineagents store copy states runs.db",
        "alpineagents store copy runs.db postgresql://db/app bug-1 bug-2",
        codes=f"0 all copied, 1 some left out, 2 wrong command line, {SIGNALS}",
    ),
    "check": ending(
        "alpineagents store check runs.db",
        codes=f"0 all whole, 1 something is damaged, 2 wrong command line, {SIGNALS}",
    ),
    "export": ending(
        "alpineagents store export runs.db bug-1 > bug-1.jsonl",
        "alpineagents store export runs.db bug-1 --format html -o bug-1.html",
    ),
}

Limit: TypeAlias = Annotated[int | None, Parameter(validator=Number(gte=0), help="List at most so many. Default: all.")]
Top: TypeAlias = Annotated[bool, Parameter(help="Leave out the States of subagents.")]
Form: TypeAlias = Annotated[
    Literal["jsonl", "markdown", "html"],
    Parameter(
        name=["--format", "-f"], help="jsonl, the default, is what is saved, byte by byte; the others are for people."
    ),
]
Output: TypeAlias = Annotated[
    Path | None, Parameter(name=["--output", "-o"], help="The file to write. Default: standard output.")
]


async def list_states(store: NamedStore, /, *, limit: Limit = None, top: Top = False) -> None:
    """List the States of a store, the newest first, without reading their histories."""
    async with opened(store) as where:
        infos = await listed(where, top=top, limit=limit)
    width = max([len(info.id) for info in infos], default=0)
    for info in infos:
        changed = info.updated_at.strftime("%Y-%m-%d %H:%M") if info.updated_at else "-"
        how = "open" if info.stopped is None else stop_reason(info.stopped)
        first = one_line(info.first_message or "")
        print(f"{info.id:{width}}  {changed}  turn {info.turn:<4} {one_line(how):24.24}  {first:.60}".rstrip())


async def show_state(store: NamedStore, id: ExactId, /) -> None:
    """Show a State, a line per entry of its history."""
    async with opened(store) as where:
        print(await as_saved(where, id))


async def copy_states(
    source: Annotated[str, Parameter(help=f"The store to copy from: {PLACES}.")],
    target: Annotated[str, Parameter(help="The store to copy to, made where it isn't there yet.")],
    /,
    *ids: SomeIds,
) -> int:
    """Copy States to another store, byte by byte. Again copies only what is new.

    What can't be read, or has gone on differently in the other store, is left out, with a line on standard error that
    says so, and exit code 1.
    """
    states = entries = failed = 0
    async with opened(source) as whence, opened(target, new=True) as where:
        infos, faults = await _listed(whence)
        if not ids:
            failed = say_warnings(faults)
        for state_id in ids or infos:
            try:
                entries += await _copy(whence, where, state_id, infos.get(state_id))
                states += 1
            except StoreError as error:
                failed += 1
                say_on_error(f"{state_id}: {error}")
    print(f"{states} States, {entries} new entries" + (f"; {failed} couldn't be copied" if failed else ""))
    return 1 if failed else 0


async def _copy(source: Store, target: Store, state_id: str, listed: bytes | None) -> int:
    """Return how many entries *target* hasn't had."""
    raws = await source.read(state_id)
    info = info_of(state_id, replayed(state_id, raws).snapshot_now())
    if listed is None or not _says(listed, info):  # it isn't of this moment: somebody writes
        listed = encode_info(info)
    there = len(await target.read(state_id)) if await target.has(state_id) else 0
    for start in range(0, len(raws), BATCH):
        await target.append(state_id, start, raws[start : start + BATCH], listed)
    return max(0, len(raws) - there)


async def check_states(store: NamedStore, /, *ids: SomeIds) -> int:
    """Read everything, and say what is damaged."""
    async with opened(store) as where:
        infos, left_out = await _listed(where)
        checked = ids or tuple(infos)
        faults = await _faults(where, checked, infos)
    for state_id, fault in faults.items():
        print(f"{state_id}: {fault}")
    damaged = len(faults) + (0 if ids else say_warnings(left_out))
    print(f"{len(checked)} States checked, {damaged or 'none'} damaged")
    return 1 if damaged else 0


async def _faults(store: Store, ids: Sequence[str], infos: dict[str, bytes]) -> dict[str, str]:
    """Return what is wrong with each State, where something is.

    The list was read before the histories: a State that is written meanwhile differs, and is looked at once more.
    """
    faults: dict[str, str] = {}
    for _ in range(TRIES):
        suspects = {state_id: await _fault(store, state_id, infos.get(state_id)) for state_id in ids}
        before, (infos, _left_out) = infos, await _listed(store) if any(suspects.values()) else (infos, [])
        ids = []
        for state_id, fault in suspects.items():
            is_written = infos.get(state_id) != before.get(state_id)
            if fault is None or (is_written and state_id not in infos):  # whole, or deleted meanwhile
                continue
            if is_written and fault in (STALE, UNLISTED):
                ids = [*ids, state_id]
            else:
                faults[state_id] = fault
        if not ids:
            break
    return faults


async def _fault(store: Store, state_id: str, info: bytes | None) -> str | None:
    """Return what is wrong with a saved State, or None."""
    try:
        state = await as_saved(store, state_id)
    except (AlpineAgentsError, ValueError) as error:
        return str(error)
    if info is None:
        return UNLISTED
    try:
        decode_info(info)
    except ValueError as error:
        return str(error)
    return None if _says(info, info_of(state_id, state.snapshot_now())) else STALE


def _says(raw: bytes, info: StateInfo) -> bool:
    """Whether a store lists just that."""
    try:
        return decode_info(raw) == info
    except ValueError:
        return False


async def export_state(store: NamedStore, id: ExactId, /, *, form: Form = "jsonl", output: Output = None) -> None:
    """Write a State's history for other programs or for people."""
    async with opened(store) as where:
        if form == "jsonl":
            content = b"".join(raw + b"\n" for raw in await where.read(id))
        else:
            state = await as_saved(where, id)
            content = (markdown(state) if form == "markdown" else html(state)).encode("utf-8", "replace")
    if output is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
    else:
        await trio.Path(output).write_bytes(content)


async def _listed(store: Store) -> tuple[dict[str, bytes], list[str]]:
    """Return what *store* lists, and what it says of States that it had to leave out."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        infos = dict(await store.infos())
    return infos, [str(warning.message) for warning in caught]

"""``alpineagents store``: what lies in a store, checked, copied and exported."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import trio

from .._contracts import Store, info_of
from .._errors import AlpineAgentsError, StoreError
from ..record import StateInfo
from ..record._codec import decode_history, decode_info, encode_info
from ..state import State
from ..state._show import one_line, stop_reason
from ..stores import open_store
from ._export import html, markdown

BATCH: Final = 1_000
"""How many entries are copied at once."""

TRIES: Final = 5
"""How often ``check`` looks at a State that is written each time."""

STALE: Final = "the list says something else of it than its history; the next save of it sets that right"
UNLISTED: Final = "it isn't in the list"

Command = Callable[[argparse.Namespace], Awaitable[int]]


def add_to(commands: Any) -> None:
    """Add the subcommands."""
    store = commands.add_parser("store", help="list, show, check, copy and export what a store holds")
    verbs = store.add_subparsers(metavar="COMMAND", required=True)
    where = (
        "a folder, a SQLite file such as runs.db, or postgresql://host/database, with ?schema=NAME for another schema"
    )

    listing = _verb(verbs, "list", list_states, "list its States, the newest first")
    listing.add_argument("store", metavar="STORE", help=where)
    listing.add_argument("--limit", type=int, metavar="N", help="at most so many (default: all)")
    listing.add_argument("--top", action="store_true", help="leave out subagents")

    show = _verb(verbs, "show", show_state, "show a State, a line per entry")
    show.add_argument("store", metavar="STORE", help=where)
    show.add_argument("id", metavar="ID", help="the State's id")

    copy = _verb(verbs, "copy", copy_states, "copy States to another store, byte by byte; again only what is new")
    copy.add_argument("source", metavar="SRC", help=where)
    copy.add_argument("target", metavar="DST", help="the same")
    copy.add_argument("ids", metavar="ID", nargs="*", help="only these (default: all)")

    check = _verb(verbs, "check", check_states, "read everything and say what is damaged; exit code 1 if something is")
    check.add_argument("store", metavar="STORE", help=where)
    check.add_argument("ids", metavar="ID", nargs="*", help="only these (default: all)")

    export = _verb(verbs, "export", export_state, "write a State's history for other programs or for people")
    export.add_argument("store", metavar="STORE", help=where)
    export.add_argument("id", metavar="ID", help="the State's id")
    export.add_argument("--format", choices=["jsonl", "markdown", "html"], default="jsonl", help="default: jsonl")
    export.add_argument("-o", "--output", type=Path, metavar="FILE", help="where to (default: standard output)")


def _verb(verbs: Any, name: str, command: Command, what: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
    parser.set_defaults(command=command)
    return parser


async def list_states(args: argparse.Namespace) -> int:
    """``store list``."""
    async with _opened(args.store) as store:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            infos = await (store.list(parent_id=None, limit=args.limit) if args.top else store.list(limit=args.limit))
    _told([str(warning.message) for warning in caught])
    width = max([len(info.id) for info in infos], default=0)
    for info in infos:
        changed = info.updated_at.strftime("%Y-%m-%d %H:%M") if info.updated_at else "-"
        how = "open" if info.stopped is None else stop_reason(info.stopped)
        first = one_line(info.first_message or "")
        print(f"{info.id:{width}}  {changed}  turn {info.turn:<4} {one_line(how):24.24}  {first:.60}".rstrip())
    return 0


async def show_state(args: argparse.Namespace) -> int:
    """``store show``."""
    async with _opened(args.store) as store:
        print(await _as_saved(store, args.id))
    return 0


async def copy_states(args: argparse.Namespace) -> int:
    """``store copy``."""
    states = entries = failed = 0
    async with _opened(args.source) as source, _opened(args.target, new=True) as target:
        infos, faults = await _listed(source)
        if not args.ids:
            failed = _told(faults)
        for state_id in args.ids or infos:
            try:
                entries += await _copy(source, target, state_id, infos.get(state_id))
                states += 1
            except StoreError as error:
                failed += 1
                print(f"{state_id}: {error}", file=sys.stderr)
    print(f"{states} States, {entries} new entries" + (f"; {failed} couldn't be copied" if failed else ""))
    return 1 if failed else 0


async def _copy(source: Store, target: Store, state_id: str, listed: bytes | None) -> int:
    """Return how many entries *target* hasn't had."""
    raws = await source.read(state_id)
    info = info_of(state_id, _replayed(state_id, raws).snapshot_now())
    if listed is None or not _says(listed, info):  # it isn't of this moment: somebody writes
        listed = encode_info(info)
    there = len(await target.read(state_id)) if await target.has(state_id) else 0
    for start in range(0, len(raws), BATCH):
        await target.append(state_id, start, raws[start : start + BATCH], listed)
    return max(0, len(raws) - there)


async def check_states(args: argparse.Namespace) -> int:
    """``store check``."""
    async with _opened(args.store) as store:
        infos, left_out = await _listed(store)
        ids = args.ids or list(infos)
        faults = await _faults(store, ids, infos)
    for state_id, fault in faults.items():
        print(f"{state_id}: {fault}")
    damaged = len(faults) + (0 if args.ids else _told(left_out))
    print(f"{len(ids)} States checked, {damaged or 'none'} damaged")
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
        state = await _as_saved(store, state_id)
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


async def export_state(args: argparse.Namespace) -> int:
    """``store export``."""
    async with _opened(args.store) as store:
        if args.format == "jsonl":
            content = b"".join(raw + b"\n" for raw in await store.read(args.id))
        else:
            state = await _as_saved(store, args.id)
            content = (markdown(state) if args.format == "markdown" else html(state)).encode("utf-8", "replace")
    if args.output is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
    else:
        await trio.Path(args.output).write_bytes(content)
    return 0


async def _as_saved(store: Store, state_id: str) -> State:
    """Return a State as its history stands: unlike ``store.load``, what is open stays open, since it may be running."""
    return _replayed(state_id, await store.read(state_id))


def _replayed(state_id: str, raws: Sequence[bytes]) -> State:
    try:
        return State(id=state_id, history=decode_history(raws))
    except ValueError as error:
        raise StoreError(f"State {state_id} can't be read: {error}") from error


async def _listed(store: Store) -> tuple[dict[str, bytes], list[str]]:
    """Return what *store* lists, and what it says of States that it had to leave out."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        infos = dict(await store.infos())
    return infos, [str(warning.message) for warning in caught]


def _told(faults: Sequence[str]) -> int:
    """Print *faults*, without where in the code they come from; return how many there are."""
    for fault in faults:
        print(f"warning: {fault}", file=sys.stderr)
    return len(faults)


@asynccontextmanager
async def _opened(where: str, *, new: bool = False) -> AsyncIterator[Store]:
    """Open a store by its name, and close it."""
    store = open_store(where)
    place = getattr(store, "folder", None) or getattr(store, "path", None)
    if place is not None and not new:
        await _check_place(trio.Path(place))
    async with store:
        yield store


async def _check_place(place: trio.Path) -> None:
    """Raise StoreError for what no store was saved in: it would look like one that is empty."""
    if not await place.exists():
        raise StoreError(f"there is no {place}; name a folder or a file that a store was saved in")
    if await place.is_dir():
        names = [found.name for found in await place.iterdir()]
        if names and not any(".jsonl" in name for name in names):
            raise StoreError(f"{place} holds other files, and no State; name a folder that a store was saved in")

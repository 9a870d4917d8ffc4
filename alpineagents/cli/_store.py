"""``alpineagents store``: what lies in a store, checked, copied and exported."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import trio

from .._contracts import Store, info_of
from .._errors import AlpineAgentsError, StateNotFoundError, StoreError
from ..record._codec import decode_history, decode_info
from ..state import State, stop_reason
from ..stores import open_store
from ._export import html, markdown

BATCH: Final = 1_000
"""How many entries are copied at once."""

Command = Callable[[argparse.Namespace], Awaitable[int]]


def add_to(commands: Any) -> None:
    """Add the subcommands."""
    store = commands.add_parser("store", help="list, show, check, copy and export what a store holds")
    verbs = store.add_subparsers(metavar="COMMAND", required=True)
    where = "a folder, a SQLite file such as runs.db, or postgresql://host/database"

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
        with _warnings_shown():
            infos = await (store.list(parent_id=None, limit=args.limit) if args.top else store.list(limit=args.limit))
    width = max([len(info.id) for info in infos], default=0)
    for info in infos:
        changed = info.updated_at.strftime("%Y-%m-%d %H:%M") if info.updated_at else "-"
        how = "open" if info.stopped is None else stop_reason(info.stopped)
        first = " ".join((info.first_message or "").split())
        print(f"{info.id:{width}}  {changed}  turn {info.turn:<4} {how:24.24}  {first:.60}".rstrip())
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
        infos = dict(await source.infos())
        for state_id in args.ids or infos:
            try:
                entries += await _copy(source, target, state_id, infos)
                states += 1
            except StoreError as error:
                failed += 1
                print(f"{state_id}: {error}", file=sys.stderr)
    print(f"{states} States, {entries} new entries" + (f"; {failed} couldn't be copied" if failed else ""))
    return 1 if failed else 0


async def _copy(source: Store, target: Store, state_id: str, infos: dict[str, bytes]) -> int:
    """Return how many entries *target* hasn't had."""
    raws = await source.read(state_id)
    if (info := infos.get(state_id)) is None:
        raise StateNotFoundError(
            f"State {state_id} has no entry in the list of {source!r}, so it can't be copied whole"
        )
    there = len(await target.read(state_id)) if await target.has(state_id) else 0
    for start in range(0, len(raws), BATCH):
        await target.append(state_id, start, raws[start : start + BATCH], info)
    return max(0, len(raws) - there)


async def check_states(args: argparse.Namespace) -> int:
    """``store check``."""
    damaged = checked = 0
    async with _opened(args.store) as store:
        with _warnings_shown() as shown:
            infos = dict(await store.infos())
        for state_id in args.ids or infos:
            checked += 1
            if fault := await _fault(store, state_id, infos.get(state_id)):
                damaged += 1
                print(f"{state_id}: {fault}")
    damaged += len(shown)
    print(f"{checked} States checked, {damaged or 'none'} damaged")
    return 1 if damaged else 0


async def _fault(store: Store, state_id: str, info: bytes | None) -> str | None:
    """Return what is wrong with a saved State, or None."""
    try:
        state = await _as_saved(store, state_id)
        listed = None if info is None else decode_info(info)
    except (AlpineAgentsError, ValueError) as error:
        return str(error)
    if listed is None:
        return "it isn't in the list"
    if listed != info_of(state_id, state.snapshot_now()):
        return "the list says something else of it than its history; the next save of it sets that right"
    return None


async def export_state(args: argparse.Namespace) -> int:
    """``store export``."""
    async with _opened(args.store) as store:
        if args.format == "jsonl":
            content = b"".join(raw + b"\n" for raw in await store.read(args.id))
        else:
            state = await _as_saved(store, args.id)
            content = (markdown(state) if args.format == "markdown" else html(state)).encode("utf-8", "replace")
    if args.output is None:
        sys.stdout.buffer.write(content)
    else:
        await trio.Path(args.output).write_bytes(content)
    return 0


async def _as_saved(store: Store, state_id: str) -> State:
    """Return a State as its history stands: unlike ``store.load``, what is open stays open, since it may be running."""
    try:
        return State(id=state_id, history=decode_history(await store.read(state_id)))
    except ValueError as error:
        raise StoreError(f"State {state_id} can't be read: {error}") from error


@contextmanager
def _warnings_shown() -> Iterator[Sequence[warnings.WarningMessage]]:
    """Print warnings as lines, without where in the code they come from."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught
    for warning in caught:
        print(f"warning: {warning.message}", file=sys.stderr)


@asynccontextmanager
async def _opened(where: str, *, new: bool = False) -> AsyncIterator[Store]:
    """Open a store by its name, and close it."""
    store = open_store(where)
    place = getattr(store, "folder", None) or getattr(store, "path", None)
    if place is not None and not new and not await trio.Path(place).exists():
        raise StoreError(f"there is no {place}; name a folder or a file that a store was saved in")
    async with store:
        yield store

"""Where States are: which store a command uses, and which State an id on the command line means."""

from __future__ import annotations

import os
import warnings
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio

from .._contracts import Store
from .._errors import StateNotFoundError, StoreError
from ..record import StateInfo
from ..record._codec import decode_history
from ..state import State
from ..stores import open_store
from ._exit import UsageError
from ._warn import say_on_error

STORE_VARIABLE: Final = "ALPINEAGENTS_STORE"

_SHOWN: Final = 3
"""How many States are named where an id could mean several."""


def store_name(given: str | None) -> str:
    """Return the store to use: the one *given*, that of the environment, or the folder in the user's state directory.

    The last is ``$XDG_STATE_HOME/alpineagents/states``. By the XDG Base Directory Specification (0.8) that is
    ``~/.local/state`` where it is unset, empty, or not absolute.
    """
    if given is not None:
        return given
    if place := os.environ.get(STORE_VARIABLE):
        return place
    home = os.environ.get("XDG_STATE_HOME", "")
    base = Path(home) if home.startswith("/") else Path.home() / ".local" / "state"
    return str(base / "alpineagents" / "states")


@asynccontextmanager
async def opened(where: str, *, new: bool = False) -> AsyncIterator[Store]:
    """Open a store by its name, and close it.

    Args:
        where: Its name.
        new: Whether it may be one that isn't there yet.

    Raises:
        StoreError: nothing is there, or something that is no store.
        UsageError: the name is that of no store.
    """
    store, place = _named(where)
    if place is not None and not new:
        await _check_place(place)
    async with store:
        yield store


async def is_missing(where: str) -> bool:
    """Whether *where* names a folder or a file that isn't there. Checkpoint: yes."""
    _, place = _named(where)
    if place is None:
        await trio.lowlevel.checkpoint()
        return False
    return not await place.exists()


def _named(where: str) -> tuple[Store, trio.Path | None]:
    """Return the store of that name, and its folder or file; ``None`` where it is a server."""
    try:
        store = open_store(where)
    except ValueError as error:
        raise UsageError(str(error)) from error
    place = getattr(store, "folder", None) or getattr(store, "path", None)
    return store, None if place is None else trio.Path(place)


async def _check_place(place: trio.Path) -> None:
    """Raise StoreError for what no store was saved in: it would look like one that is empty."""
    if not await place.exists():
        raise StoreError(f"there is no {place}; name a folder or a file that a store was saved in")
    if await place.is_dir():
        names = [found.name for found in await place.iterdir()]
        if names and not any(".jsonl" in name for name in names):
            raise StoreError(f"{place} holds other files, and no State; name a folder that a store was saved in")


async def listed(store: Store, *, top: bool = False, limit: int | None = None) -> Sequence[StateInfo]:
    """Return what *store* lists, and say on standard error what it had to leave out. Checkpoint: yes.

    Args:
        store: The store.
        top: Leave out subagents.
        limit: At most so many, the newest created.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        infos = await (store.list(parent_id=None, limit=limit) if top else store.list(limit=limit))
    say_warnings([str(warning.message) for warning in caught])
    return infos


def say_warnings(faults: Sequence[str]) -> int:
    """Print *faults*, without where in the code they come from; return how many there are."""
    for fault in faults:
        say_on_error(f"warning: {fault}")
    return len(faults)


async def found_id(store: Store, given: str | None) -> str:
    """Return the id of the State that *given* means: that id, the only one that begins so, or for ``None`` the latest.

    Checkpoint: yes.

    Raises:
        StateNotFoundError: there is none.
        UsageError: several begin so.
    """
    infos = await listed(store, top=given is None)
    if given is None:
        if not infos:
            raise StateNotFoundError(f"there is no State in {store!r} yet")
        return max(infos, key=_changed).id
    matches = [info.id for info in infos if info.id.startswith(given)]
    if given in matches:
        return given
    if len(matches) > 1:
        shown = ", ".join(matches[:_SHOWN]) + (", ..." if len(matches) > _SHOWN else "")
        raise UsageError(f"{given!r:.80} is the beginning of {len(matches)} ids: {shown}")
    if not matches:
        return given  # What the list leaves out may be there, and else reading it says so.
    return matches[0]


def _changed(info: StateInfo) -> float:
    at = info.updated_at or info.created_at
    return at.timestamp() if at else 0.0


async def as_saved(store: Store, state_id: str) -> State:
    """Return a State as its history stands: unlike ``store.load``, what is open stays open, since it may be running."""
    return replayed(state_id, await store.read(state_id))


def replayed(state_id: str, raws: Sequence[bytes]) -> State:
    """Return the State of a saved history.

    Raises:
        StoreError: it can't be read.
    """
    try:
        return State(id=state_id, history=decode_history(raws))
    except ValueError as error:
        raise StoreError(f"State {state_id} can't be read: {error}") from error

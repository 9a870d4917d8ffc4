"""What every store checks, refuses and sorts in the same way. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

import attrs

from .._errors import ConflictError, RunningElsewhereError, StateNotFoundError
from ..record._json import loads

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_MOST_COMPARED: Final = 2_000  # ids, when looking for near ones: finding them takes 10 us each


def is_id(state_id: object) -> bool:
    """Whether this can be the id of a State."""
    return isinstance(state_id, str) and _ID.fullmatch(state_id) is not None


def checked_id(state_id: str) -> str:
    """Return *state_id*; ValueError if no State can have it, such as one that would lead out of a folder."""
    if not is_id(state_id):
        raise ValueError(f"state id {state_id!r:.150}: use 1 to 128 letters, digits, _ and -, such as 'bug-1'")
    return state_id


def check_entries(first_seq: int, entries: Sequence[bytes]) -> None:
    """Raise ValueError for what can't be an entry. Whether it is JSON all through is left to whoever made it."""
    if first_seq < 0:
        raise ValueError(f"first_seq must be 0 or more (got {first_seq})")
    for seq, entry in enumerate(entries, first_seq):
        if not looks_whole(entry) or b"\n" in entry:
            raise ValueError(f"entry {seq} is not a JSON object on one line: {entry[:80]!r}")


def check_after(after: int) -> None:
    """Raise ValueError for a position that can't be one."""
    if after < 0:
        raise ValueError(f"after must be 0 or more (got {after})")


def looks_whole(entry: bytes) -> bool:
    """Whether these bytes begin and end as a JSON object that isn't empty."""
    return entry.startswith(b'{"') and entry.endswith(b"}")


def info_fields(info: bytes) -> dict[str, Any]:
    """Return the fields of an info; ValueError if it isn't a JSON object."""
    try:
        fields = loads(info)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise ValueError(f"info must be a JSON object, not {info[:80]!r}")
    return fields


def check_no_gap(state_id: str, place: object, first_seq: int, length: int) -> None:
    """Raise ConflictError if entries are missing between the *length* that are there and *first_seq*."""
    if first_seq > length:
        raise ConflictError(
            f"State {state_id}: entry {first_seq} can't follow the {length} entries in {place}; what is between was"
            " deleted, or saved elsewhere: save it under an id of its own: state.fork()"
        )


def check_same(state_id: str, place: object, first_seq: int, entries: Sequence[bytes], there: Sequence[bytes]) -> None:
    """Raise ConflictError unless each of *entries*, as far as *there* goes, is what is there."""
    for seq, (new, old) in enumerate(zip(entries, there, strict=False), first_seq):
        if new != old:
            raise ConflictError(
                f"State {state_id}: {place} has another entry {seq}; somebody else wrote this State."
                f" Go on with theirs: store.load({state_id!r}), or give yours an id of its own: state.fork()"
            )


def running_elsewhere(state_id: str, place: object, who: str | None = None) -> RunningElsewhereError:
    """Return the error for a State that somebody else writes; *who* says which process, and since when."""
    return RunningElsewhereError(
        f"State {state_id} in {place} is held by another run or save"
        f"{', in this process or another one' if who is None else f': {who}'};"
        " wait until that has ended, or run a fork: state.fork()"
    )


def not_found(state_id: str, place: object, ids: Iterable[str] = ()) -> StateNotFoundError:
    """Return the error for a State that isn't there, with the ids nearest to its own."""
    import difflib  # only here, and slow to import

    near = difflib.get_close_matches(state_id, list(islice(ids, _MOST_COMPARED)), n=3, cutoff=0.8)
    hint = f"; near it: {', '.join(near)}" if near else ""
    return StateNotFoundError(f"no State {state_id} in {place}{hint}")


@attrs.frozen
class Listed:
    """One State in a list."""

    state_id: str
    info: bytes
    created_at: datetime


def created_at(fields: dict[str, Any]) -> datetime:
    """Return when a State was created by its info; the beginning of time where it doesn't say."""
    try:
        at = datetime.fromisoformat(fields["created_at"])
    except (KeyError, TypeError, ValueError):
        at = datetime.min
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def page(place: object, found: list[Listed], limit: int | None, before: str | None) -> list[tuple[str, bytes]]:
    """Return ``(id, info)`` of *found*, newest created first: at most *limit* of those behind the State *before*.

    By creation, not by change: what changes between two pages would come twice or never.

    Raises:
        StateNotFoundError: *before* isn't among them.
        ValueError: *limit* is negative.
    """
    if limit is not None and limit < 0:
        raise ValueError(f"limit must be 0 or more (got {limit})")
    found = sorted(found, key=lambda listed: (listed.created_at, listed.state_id), reverse=True)
    start = 0
    if before is not None:
        ids = [listed.state_id for listed in found]
        if before not in ids:
            raise not_found(before, place, ids)
        start = ids.index(before) + 1
    end = None if limit is None else start + limit
    return [(listed.state_id, listed.info) for listed in found[start:end]]

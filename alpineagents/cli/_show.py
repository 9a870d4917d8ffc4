"""``alpineagents show`` and ``alpineagents tail``: one conversation, as it is and as it goes on."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Final

from cyclopts import Parameter
from cyclopts.validators import Number

from ..record import ContextChange, ContextChangeEntry, Message
from ..record._codec import decode_entry, encode_entry
from ..record._json import dumps, loads
from ..state import State
from ..state._show import standing
from ._list import count, dollars
from ._options import STORE_VARIABLES, StateId, StorePlace, ending
from ._paint import Paint
from ._place import found_id, opened, replayed, store_name
from ._talk import pieces

SHOW_EPILOGUE: Final = ending(
    "alpineagents show",
    "alpineagents show bug-1 --store runs.db | less",
    "alpineagents show bug-1 --json | jq .kind",
    variables=STORE_VARIABLES,
)
TAIL_EPILOGUE: Final = ending(
    "alpineagents tail",
    "alpineagents tail bug-1 --store postgresql://db/app -n 100",
    "alpineagents tail bug-1 --json | jq .kind",
    variables=STORE_VARIABLES,
)


async def show(
    id: StateId = None,
    /,
    *,
    store: StorePlace = None,
    json: Annotated[bool, Parameter(help="Print the entries of the history as they are saved, one per line.")] = False,
    messages: Annotated[
        bool, Parameter(help="Print the messages that the model sees at its next turn, in JSON, one per line.")
    ] = False,
    whole: Annotated[bool, Parameter(help="Show the results of tools to their end.")] = False,
) -> None:
    """Show a conversation: what was said, which tools were called, what came of it, and how it stands."""
    async with opened(store_name(store)) as place:
        state_id = await found_id(place, id)
        raws = await place.read(state_id)
    if json:
        _write_lines(raws)
        return
    state = replayed(state_id, raws)
    if messages:
        _write_lines(_as_json(each) for each in state.messages)
        return
    paint = Paint.for_output()
    print(paint.text("note", heading(state)))
    for entry in state.history:
        for piece in pieces(entry, whole=whole):
            print(f"\n{paint.piece(piece)}" if piece.kind in ("person", "model") else paint.piece(piece))
    print(paint.text("note", f"\n{standing(state.snapshot_now())}"))


async def tail(
    id: StateId = None,
    /,
    *,
    store: StorePlace = None,
    last: Annotated[
        int,
        Parameter(
            name=["--last", "-n"],
            validator=Number(gte=0),
            help="How many of the entries that are there to show. Default: 10.",
        ),
    ] = 10,
    json: Annotated[bool, Parameter(help="Print the entries as they are saved, one per line.")] = False,
    whole: Annotated[bool, Parameter(help="Show the results of tools to their end.")] = False,
) -> None:
    """Follow a conversation while an agent, in whichever process, works on it.

    Each entry is printed when it is saved. It ends when the State is finished, and with Ctrl+C.
    """
    paint = Paint.for_output()
    async with opened(store_name(store)) as place:
        state_id = await found_id(place, id)
        raws = list(await place.read(state_id))
        for raw in raws[max(0, len(raws) - last) :]:
            _print_entry(raw, paint, json, whole)
        is_finishing = any(_finishes(raw) for raw in raws)
        following = place.watch(state_id, after=len(raws))
        while not (is_finishing and _is_over(replayed(state_id, raws))):
            raws.append(await anext(following))
            _print_entry(raws[-1], paint, json, whole)
            is_finishing = is_finishing or _finishes(raws[-1])


def _print_entry(raw: bytes, paint: Paint, json: bool, whole: bool) -> None:
    if json:
        _write_lines([raw])
        return
    for piece in pieces(decode_entry(raw), whole=whole):
        print(paint.piece(piece), flush=True)


def _write_lines(lines: Iterable[bytes]) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.writelines(line + b"\n" for line in lines)
    sys.stdout.buffer.flush()


def _finishes(raw: bytes) -> bool:
    """Whether it is the entry of a ``finish``."""
    return b'"kind":"stop"' in raw and b'"finish"' in raw


def _is_over(state: State) -> bool:
    """Whether nothing can follow: it is finished, and no call waits for its result."""
    return state.finished and not state.pending_calls


def heading(state: State) -> str:
    """Return a line about a State: which it is, and what it has used."""
    usage = state.usage
    used = f"{count(usage.input_tokens + usage.output_tokens)} tokens, {dollars(usage.cost)}"
    turns = f"{state.turn} {'turn' if state.turn == 1 else 'turns'}"
    return f"State {state.id}: {turns}, {used}"


def _as_json(message: Message) -> bytes:
    """Return a message as it is saved in entries that hold some."""
    change = ContextChange(kind="import", messages=(message,))
    entry = encode_entry(ContextChangeEntry(0, 0, datetime.now(UTC), change))
    return dumps(loads(entry)["content"]["messages"][0])

"""The one way from a store into worker threads and back.

Each store has threads of its own, and some that are kept free for what must not wait behind other calls: what hangs in
one store holds up no other one, and a store that is busy can still be closed, and its leases be kept and given back.
Sync tools that fill all of trio's own threads may wait for a store to save.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar, TypeVarTuple, Unpack, final
from weakref import WeakKeyDictionary

import trio

from .._threads import in_thread

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MOST_THREADS: Final = 40
"""How many calls of one kind a store has in threads at once, in one trio run."""


@final
class Threads:
    """Runs so many calls at once; the others queue in trio. Usable from several trio runs, each of which counts."""

    __slots__ = ("__weakref__", "_most")

    def __init__(self, most: int = MOST_THREADS) -> None:
        self._most = most

    async def run(self, fn: Callable[[Unpack[Ts]], T], *args: *Ts, abandon_on_cancel: bool = False) -> T:
        """Return ``fn(*args)``, called in a worker thread.

        Checkpoint: yes. Cancelled: it waits for *fn* to end and returns what that gives, unless *abandon_on_cancel*:
        then it raises Cancelled at once, and *fn* goes on unwatched. A write may be abandoned because appends are
        idempotent by seq: whether it happened or not, the next one with the same entries succeeds.
        """
        return await in_thread(fn, *args, abandon_on_cancel=abandon_on_cancel, limiter=self._limiter())

    def _limiter(self) -> trio.CapacityLimiter:
        limiters = _limiters.get()
        if limiters is None:
            limiters = WeakKeyDictionary()
            _limiters.set(limiters)
        limiter = limiters.get(self)
        if limiter is None:
            limiter = limiters[self] = trio.CapacityLimiter(self._most)
        return limiter


_limiters: trio.lowlevel.RunVar[WeakKeyDictionary[Threads, trio.CapacityLimiter] | None] = trio.lowlevel.RunVar(
    "alpineagents.stores", None
)

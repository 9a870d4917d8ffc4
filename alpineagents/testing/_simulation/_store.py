"""The store of a simulation: in memory, and it can fail."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, final

import trio

from ..._contracts import Store
from ..._errors import StoreError
from ...state import State
from ...stores._memory import MemoryStore
from ._checks import Checks
from ._faults import FaultKind, Faults
from ._lives import Life, check_alive, life

_SLOW: Final = 60.0
"""Seconds of a write that is slow."""
_LATENCY: Final = 0.01
"""Seconds that a write takes at most, before it is durable and again before it is acknowledged."""


@final
class _Held(AbstractAsyncContextManager[None]):
    """A lease, and which process has taken it."""

    def __init__(self, store: SimulatedStore, state_id: str, lease: AbstractAsyncContextManager[None]) -> None:
        self._store = store
        self._state_id = state_id
        self._lease = lease

    async def __aenter__(self) -> None:
        check_alive()
        await self._lease.__aenter__()
        self._store._held[self._state_id] = life.get()

    async def __aexit__(self, *_: object) -> None:
        await self._lease.__aexit__(None, None, None)
        del self._store._held[self._state_id]


@final
class SimulatedStore(Store):
    """A durable store in memory. What a process that has crashed does to it has no effect.

    A write takes a few milliseconds before it is durable, and a few until that is acknowledged.
    """

    def __init__(self, faults: Faults, checks: Checks, chance: random.Random) -> None:
        self._faults = faults
        self._checks = checks
        self._chance = chance
        self._inner = MemoryStore()
        self._held: dict[str, Life | None] = {}

    def __repr__(self) -> str:
        return "sim.store"

    async def append(self, state_id: str, first_seq: int, entries: Sequence[bytes], info: bytes) -> None:
        """Make *entries* durable. Checkpoint: yes."""
        fault = self._faults.comes(FaultKind.STORE_FAILS, FaultKind.STORE_FAILS_LATE, FaultKind.STORE_IS_SLOW)
        await trio.sleep(_SLOW if fault is FaultKind.STORE_IS_SLOW else self._chance.uniform(0, _LATENCY))
        check_alive()
        if fault is FaultKind.STORE_FAILS:
            raise self._faults.raised(StoreError("simulated: the disk is full; nothing was written"))
        await self._inner.append(state_id, first_seq, entries, info)
        self._checks.wrote(state_id, first_seq, list(entries))
        await trio.sleep(self._chance.uniform(0, _LATENCY))
        if fault is FaultKind.STORE_FAILS_LATE:
            raise self._faults.raised(StoreError("simulated: the disk has gone; it may or may not have been written"))

    async def read(self, state_id: str, after: int = 0) -> Sequence[bytes]:
        """Return the entries from position *after* on. Checkpoint: yes."""
        await self._reading()
        return await self._inner.read(state_id, after)

    async def infos(self, *, limit: int | None = None, before: str | None = None) -> Sequence[tuple[str, bytes]]:
        """Return ``(id, info)`` of the States, newest created first. Checkpoint: yes."""
        await self._reading()
        return await self._inner.infos(limit=limit, before=before)

    async def remove(self, state_id: str) -> None:
        """Remove a State. Checkpoint: yes."""
        await trio.sleep(self._chance.uniform(0, _LATENCY))
        check_alive()
        await self._inner.remove(state_id)
        self._checks.removed(state_id)

    def lease(self, state_id: str) -> AbstractAsyncContextManager[None]:
        """Return what a run holds while it writes."""
        return _Held(self, state_id, self._inner.lease(state_id))

    def held_by(self, process: Life) -> list[str]:
        """Return ids of the States whose leases were taken in *process* and not given back."""
        return [state_id for state_id, holder in self._held.items() if holder is process]

    async def load(self, state_id: str) -> State:
        """Return the saved State, once it is checked: whole, and with all that was acknowledged. Checkpoint: yes."""
        state = await super().load(state_id)
        self._checks.check_loaded(state)
        return state

    async def _reading(self) -> None:
        await trio.sleep(self._chance.uniform(0, _LATENCY))
        check_alive()
        if self._faults.comes(FaultKind.STORE_CANT_READ) is not None:
            raise self._faults.raised(StoreError("simulated: the disk can't be read"))

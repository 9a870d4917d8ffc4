"""Saving a State while it runs.

A keeper reads the State's memory channel and writes what has queued up as one batch, so many results that come
together cost one durable write. It writes when somebody waits for it, when an entry has lain for 20 ms, and at the
end. It lives in a nursery around that of the work, shielded, so that how the work ended is saved, too.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar, final

import trio

from .._contracts import Store
from .._errors import RunningElsewhereError, StoreError
from .._logs import STORES
from ..record._entries import Entry
from ..state import Recorder
from ._groups import most_important, parts

T = TypeVar("T")

LINGER: Final = 0.02
"""Seconds that an entry may lie before it is written."""

GRACE: Final = 5.0
"""Seconds that the last save may take once the work has ended."""


@final
class Keeper:
    """The reader of one running State's channel."""

    def __init__(self, state: Recorder, store: Store) -> None:
        self._state = state
        self._store = store
        self._token = trio.lowlevel.current_trio_token()
        self._send, self._receive = trio.open_memory_channel[Entry](math.inf)
        self._sent = state.saved
        self._wanted = trio.Event()
        self._scope = trio.CancelScope(shield=True)
        self._renewing = trio.CancelScope()
        self._closed = False
        self._attempts = 0
        self._lost = False  # Whether it was logged that the lease is.
        self.lease_seconds = store.lease_seconds
        self.failure: Exception | None = None
        """Why the last write failed; None once one succeeded."""

    def notice(self) -> None:
        """Have what was recorded moved to the channel. Safe in any thread and in signal handlers."""
        try:
            self._token.run_sync_soon(self._move, idempotent=True)
        except trio.RunFinishedError:
            return  # the run has just ended; the next save writes it

    def _move(self) -> None:
        if not self._closed:
            history = self._state.snapshot_now().history
            for seq in range(self._sent, len(history)):
                self._send.send_nowait(history[seq])
            self._sent = len(history)

    def _demand(self) -> None:
        if self.failure is not None:
            self._sent = self._state.saved  # what couldn't be written is sent again
        self._move()
        self._wanted.set()

    async def save(self, state: Recorder) -> None:
        """Return when everything recorded so far is durable. Callable in any trio run. Checkpoint: yes.

        Raises:
            StoreError: it couldn't be written.
        """
        length = state.snapshot_now().length
        attempt = self._attempts + 1
        with state.waiter() as waiter:
            if trio.lowlevel.current_trio_token() is self._token:
                self._demand()
            else:
                with contextlib.suppress(trio.RunFinishedError):  # then it is closed, too
                    self._token.run_sync_soon(self._demand)
            while state.saved < length and not self._closed:
                if self.failure is not None and self._attempts >= attempt:
                    raise self.failure
                await waiter.wait()
        await trio.lowlevel.checkpoint()

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Write until ``finish`` was called and nothing is left. Raises nothing: see ``failure``."""
        with self._scope:
            async for _ in self._receive:
                if not self._closed:
                    with trio.move_on_after(LINGER):
                        await self._wanted.wait()
                self._wanted = trio.Event()
                self._drain()
                await self._write()
            if self._state.saved < self._state.snapshot_now().length:
                await self._write()
        if self._scope.cancelled_caught:
            STORES.error(
                "State %s wasn't saved within %g s of the end of its run: %s", self._state.id, GRACE, self._unsaved()
            )
            self.failure = StoreError(
                f"State {self._state.id} couldn't be saved within {GRACE:g} s of the end of its run;"
                " it is whole in memory, and the next save writes it: await store.save(state)"
            )

    def _drain(self) -> None:
        while True:
            try:
                self._receive.receive_nowait()
            except (trio.WouldBlock, trio.EndOfChannel):
                return

    async def _write(self) -> None:
        try:
            await self._store.write(self._state)
        except Exception as error:  # noqa: BLE001  # whoever waits raises it
            if isinstance(error, RunningElsewhereError):
                self._note_loss()
            elif self.failure is None:
                STORES.warning("State %s can't be saved (%s): %s", self._state.id, _class(error), self._unsaved())
            self.failure = error
        else:
            if self.failure is not None:
                STORES.warning("State %s is saved again", self._state.id)
            self.failure = None
        self._attempts += 1
        self._state.wake_waiters()

    def _unsaved(self) -> str:
        return f"{self._state.snapshot_now().length - self._state.saved} entries are in memory only"

    def _note_loss(self) -> None:
        if not self._lost:
            self._lost = True
            STORES.warning("the lease of State %s in %s is lost", self._state.id, _class(self._store))

    async def keep_lease(self, seconds: float) -> None:
        """Renew a lease that runs out after *seconds*, until ``finish``.

        Raises:
            RunningElsewhereError: it is lost. So the run has to end: somebody else has gone on with the State.
        """
        with self._renewing:
            while True:
                await trio.sleep(seconds / 3)
                try:
                    await self._store.renew(self._state.id)
                except RunningElsewhereError:
                    self._note_loss()
                    raise
                except StoreError as error:  # it may be back before the lease runs out
                    STORES.warning(
                        "the lease of State %s can't be renewed (%s): tried again in %g s",
                        *(self._state.id, _class(error), seconds / 3),
                    )

    def finish(self) -> None:
        """Let ``run`` write what is left, within the grace period, and return."""
        self._move()
        self._closed = True
        self._renewing.cancel()
        self._send.close()
        self._wanted.set()
        self._scope.deadline = trio.current_time() + GRACE


async def keeping(state: Recorder, store: Store | None, work: Callable[[], Awaitable[T]]) -> T:
    """Await ``work()`` while *state* is saved to *store*, under its lease; without a store just await it.

    Raises:
        ValueError: the store has another State of this id already. Nothing was recorded.
        RunningElsewhereError: somebody else holds the State. Nothing was recorded.
        StoreError: the end couldn't be saved, and ``work`` raised nothing, or was cancelled; else it is a note on what
            that raised.
    """
    if store is None:
        return await work()
    async with store.holding(state):
        return await _kept(state, Keeper(state, store), work)


@trio.lowlevel.enable_ki_protection
async def _kept(state: Recorder, keeper: Keeper, work: Callable[[], Awaitable[T]]) -> T:
    results: list[T] = []
    errors: list[BaseException] = []
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keeper.run, name=f"keeper of {state.id}")
            if keeper.lease_seconds is not None:
                nursery.start_soon(keeper.keep_lease, keeper.lease_seconds, name=f"lease of {state.id}")
            try:
                with state.kept_by(keeper):
                    try:
                        results.append(await work())
                    finally:
                        keeper.finish()
            except BaseException as error:  # noqa: BLE001  # raised again below, when the keeper is done
                errors.append(error)
    except BaseException as group:  # noqa: BLE001  # raised again below
        errors.extend(parts(group))
    if keeper.failure is not None and not any(error is keeper.failure for error in errors):
        errors.append(keeper.failure)
    if errors:
        raise most_important(errors)
    return results[0]


async def barrier(state: Recorder) -> None:
    """Return when what led here is durable. Checkpoint: only where the State is being saved."""
    if state.keeper is not None:
        await state.wait_saved(state.snapshot_now().length)


def _class(value: object) -> str:
    """Its name is all that may be logged of an error: the text may quote contents."""
    return type(value).__name__

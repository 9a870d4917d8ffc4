"""The thread that runs trio for one asyncio event loop.

What asyncio asks for goes there with ``TrioToken.run_sync_soon``, what trio tells comes back with
``loop.call_soon_threadsafe``, both in their order: neither thread waits for the other, but for the join at the end.

An event loop can be closed under its Portal, and tells nobody. So the thread looks now and then whether that is so, or
the program is about to end, which waits for this thread alone; then it ends by itself, every State closed and saved.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial
from typing import Final, TypeVarTuple, Unpack, final

import trio

from ._waiting import shielded

Ts = TypeVarTuple("Ts")

LOOK_SECONDS: Final = 1.0
"""How often the thread looks whether its event loop is still there."""


@final
class TrioThread:
    """Runs trio from ``start`` to ``close``. Made in the event loop that it serves; used there, but for ``tell``."""

    def __init__(self) -> None:
        self.closing = False
        """Whether nothing new may begin."""
        self.error: BaseException | None = None
        """What has ended trio, which should have gone on."""
        self.at_end: set[Callable[[], None]] = set()
        """Called, in the event loop, when the thread has ended."""
        self._loop = _running_loop()
        self._home = threading.current_thread()  # where the event loop runs
        self._thread = threading.Thread(target=self._run, name="alpineagents.aio", daemon=False)
        self._begun = asyncio.Event()
        self._ended = asyncio.Event()
        self._stopped = trio.Event()
        self._scopes: set[trio.CancelScope] = set()
        self._token: trio.lowlevel.TrioToken | None = None
        self._nursery: trio.Nursery

    async def start(self) -> None:
        """Start, and return when trio runs. Cancelled, or where it doesn't come to run: nothing is left behind."""
        self._thread.start()
        cancelled = await shielded(self._begun)
        if cancelled is None and self.error is None:
            return
        later = await self.close()
        try:
            raise self.error or later or cancelled or AssertionError("neither cancelled nor failed")
        finally:
            del cancelled, later  # their tracebacks hold this frame

    async def close(self) -> asyncio.CancelledError | None:
        """Cancel what runs, and wait until all of it has ended; return a cancellation that came meanwhile."""
        self.stop()
        cancelled = await shielded(self._ended)
        self._thread.join()  # it has nothing left to do
        return cancelled

    def stop(self) -> None:
        """Have what runs cancelled, and let nothing new begin."""
        self.closing = True
        self.soon(self._stop)

    def is_here(self) -> bool:
        """Whether this code runs in the event loop that is served."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def spawn(self, fn: Callable[[], Awaitable[None]]) -> None:
        """Have trio run *fn*, which raises nothing, in a task with a copy of this context."""
        context = copy_context()
        self.soon(lambda: context.run(self._nursery.start_soon, fn))

    def soon(self, fn: Callable[[Unpack[Ts]], object], *args: *Ts) -> None:
        """Have ``fn(*args)`` called in the trio thread; where trio has ended it isn't. Safe in any thread."""
        if self._token is None:  # it never came to run
            return
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(fn, *args)

    @contextmanager
    def cancelling(self, scope: trio.CancelScope) -> Iterator[None]:
        """Have *scope* cancelled when this closes, or has by now. In the trio thread."""
        self._scopes.add(scope)
        if self._stopped.is_set():
            scope.cancel()
        try:
            yield
        finally:
            self._scopes.discard(scope)

    def tell(self, fn: Callable[[], object]) -> None:
        """Have ``fn()`` called in the event loop. In the trio thread."""
        try:
            self._loop.call_soon_threadsafe(fn)
        except RuntimeError:  # the loop was closed in mid-run: nobody is there to be told, or to close this
            self._stop()

    def report(self, message: str, error: BaseException) -> None:
        """Have the event loop's exception handler told of what nobody is left to raise. Safe in any thread."""
        report = partial(self._loop.call_exception_handler, {"message": message, "exception": error})
        if not self.is_here():  # the garbage collector works in whichever thread
            try:
                self._loop.call_soon_threadsafe(report)
            except RuntimeError:  # it is closed, so its handler may be called here
                report()
        else:
            report()

    def _run(self) -> None:
        try:
            trio.run(self._serve)
        except BaseException as error:  # noqa: BLE001  # every call raises it, and the end of the Portal's block
            self.error = error
        self.tell(self._end)

    async def _serve(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as self._nursery:
            self.tell(self._begun.set)
            while not self._stopped.is_set():
                with trio.move_on_after(LOOK_SECONDS):
                    await self._stopped.wait()
                if self._loop.is_closed() or self._program_ends():
                    self._stop()
            for scope in self._scopes:
                scope.cancel()

    def _program_ends(self) -> bool:
        """Whether Python waits for threads only, and not for that of the event loop."""
        return not threading.main_thread().is_alive() and (self._home.daemon or not self._home.is_alive())

    def _stop(self) -> None:
        self._stopped.set()

    def _end(self) -> None:
        self.closing = True
        self._ended.set()
        self._begun.set()
        for told in tuple(self.at_end):
            told()


def _running_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "a Portal is for asyncio programs, and no event loop of asyncio runs here; under trio nobody needs one:"
            " await agent.run(state)"
        ) from None

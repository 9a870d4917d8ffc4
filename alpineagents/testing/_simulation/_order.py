"""Running trio such that a seed says in which order tasks run: the only module that touches what trio keeps to itself.

trio runs what can run in batches, whose order it shuffles with a random generator of its own, ``trio._core._run._r``;
with ``_ALLOW_DETERMINISTIC_SCHEDULING`` it sorts each batch by the age of the tasks before, so that nothing is left to
chance but the generator (pytest-trio sets it for hypothesis). Both are put back afterwards; a test holds that they are
there and do that. What can't be repeated is refused meanwhile: threads, sockets, and the garbage collector's own time.
"""

from __future__ import annotations

import gc
import random
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, final

import trio
from trio import _socket as trio_socket
from trio._core import _run as trio_run

THREAD: Final = (
    "a thread was asked for in a simulation, where nothing would repeat; make the tool async, or hand it out by"
    " sim.tools([...]), which calls sync tools without one"
)
SOCKET: Final = "a socket was asked for in a simulation, where nothing would repeat; use sim.model(...) and sim.store"


@final
class _Chance(random.Random):
    """What trio draws its order from while a simulation is on."""


@contextmanager
def repeatable(seed: object) -> Iterator[None]:
    """Have *seed* decide the order of the tasks of trio runs in the block, and refuse what can't be repeated.

    Raises:
        RuntimeError: inside a trio run, or while another simulation is on in this process.
    """
    if trio.lowlevel.in_trio_run():
        raise RuntimeError(
            "simulate runs trio itself; call it from a plain function: def test_service(): simulate(...)"
        )
    if isinstance(trio_run._r, _Chance):
        raise RuntimeError("a simulation is on already in this process; run the other one after it")
    with ExitStack() as stack:
        stack.enter_context(_put(trio_run, "_r", _Chance(f"order of {seed}")))
        stack.enter_context(_put(trio_run, "_ALLOW_DETERMINISTIC_SCHEDULING", True))
        stack.enter_context(_put(trio.to_thread, "run_sync", _refuse_thread))
        stack.enter_context(_put(trio_socket._SocketType, "__init__", _refuse_socket))
        stack.enter_context(_collecting_later())
        yield


def run(main: Callable[[], Awaitable[None]], instrument: trio.abc.Instrument) -> None:
    """Run *main* under a clock that jumps whenever there is nothing to do."""
    from trio.testing import MockClock  # imports pytest

    trio.run(main, clock=MockClock(autojump_threshold=0), instruments=[instrument])


def unshield(task: trio.lowlevel.Task) -> None:
    """Take the shields from all that *task* is in, so that a cancellation gets through to it."""
    status: Any = task._cancel_status
    while status is not None:
        status._scope.shield = False
        status = status._parent


@contextmanager
def _put(owner: object, name: str, value: object) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def _collecting_later() -> Iterator[None]:
    """Keep the cyclic garbage collector out of it: what it finalizes, and when, depends on all that ran before."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


async def _refuse_thread(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError(THREAD)


def _refuse_socket(_: object, sock: socket.socket) -> None:
    sock.close()  # it was made before anybody could refuse it
    raise RuntimeError(SOCKET)

"""A pytest plugin: a test that leaves a trio task, a thread, a socket, an open file or a signal handler behind fails.

It is told what. Threads, sockets, files and handlers are looked at around a whole test, its fixtures included; the
tasks of its trio run around the test function. Not left behind is

* what a fixture of a wider scope opens: it is noted when that is set up. What ``outliving`` is told of, likewise;
* a thread that trio keeps for the next call, as long as it has none;
* what goes with its owner, which is garbage: a store closes its file then;
* what is about to end: the far end of a connection hears a moment later that it was closed;
* what stands in for something of its kind that is gone, such as the pipes of a server that was started again.

Sockets and files are seen where the system has ``/proc``.
"""

from __future__ import annotations

import functools
import gc
import os
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import pytest
import trio
from trio._core._thread_cache import THREAD_CACHE  # trio says nowhere else which of its threads are idle

FD: Final = "/proc/self/fd"
STANDARD: Final = {"0", "1", "2"}
"""Always open; pytest, which captures them, makes them now this and now that."""
SETTLE: Final = 2.0
"""Seconds that what is about to end may take. Only a test that leaves something behind waits so long."""


class Thing(NamedTuple):
    """Something that can be left behind."""

    kind: str
    identity: object
    """Equal for the same thing, looked at twice."""
    name: str


_OPEN: Final = pytest.StashKey[set[Thing]]()
"""What was there before the test, and what may outlive it."""
_TASKS: Final = pytest.StashKey[list[Thing]]()
"""The tasks that the running test has left behind."""


def threads() -> Iterator[Thing]:
    """The threads of this process that do something."""
    idle = {worker._thread for worker in tuple(THREAD_CACHE._idle_workers)}
    return (Thing("thread", thread, thread.name) for thread in threading.enumerate() if thread not in idle)


def files() -> Iterator[Thing]:
    """What this process has open: sockets, pipes, files."""
    for fd in os.listdir(FD) if os.path.isdir(FD) else ():
        if fd in STANDARD:
            continue
        try:
            target = os.readlink(f"{FD}/{fd}")
        except FileNotFoundError:  # that of the listing itself
            continue
        kind = target.partition(":")[0]  # socket:[1234], pipe:[1234], anon_inode:[eventpoll]
        yield Thing(kind if kind != target else "file", (fd, target), f"{target} (fd {fd})")


def handlers() -> Iterator[Thing]:
    """What this process does at signals that are Python's or the system's to heed: a later test may send itself one."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH):
        handler = signal.getsignal(number)
        if handler not in (signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler):
            yield Thing("signal handler", (number, handler), f"{handler} for {number.name}")


def things() -> set[Thing]:
    """Everything that a test could leave behind, its tasks aside."""
    return {*threads(), *files(), *handlers()}


def tasks() -> set[Thing]:
    """All tasks of this trio run."""
    root = trio.lowlevel.current_root_task()
    assert root is not None
    found = [root]
    for task in found:  # it grows meanwhile
        found.extend(child for nursery in task.child_nurseries for child in nursery.child_tasks)
    return {Thing("task", task, task.name) for task in found}


def left_behind(before: set[Thing], now: set[Thing]) -> list[Thing]:
    """Return what is there now and wasn't before, of the kinds of which there is more than before."""
    more = Counter(thing.kind for thing in now)
    more.subtract(thing.kind for thing in before)
    return sorted([thing for thing in now - before if more[thing.kind] > 0], key=lambda thing: (thing.kind, thing.name))


def told(left: list[Thing]) -> str:
    """Return what a test that left these behind is told."""
    lines = [f"  {thing.kind}: {thing.name}" for thing in left]
    return "\n".join(["the test left behind:", *lines])


def collected() -> list[Thing]:
    """Let go of what is garbage, and return what Python had to close then, though its owner should have."""
    warned: list[Thing] = []
    hook = sys.unraisablehook
    sys.unraisablehook = lambda unraisable: warned.append(Thing("unclosed", None, str(unraisable.exc_value)))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ResourceWarning)
            gc.collect()
    finally:
        sys.unraisablehook = hook
    return warned


@contextmanager
def outliving(config: pytest.Config) -> Iterator[None]:
    """Say that what is opened in the block may outlive the test: who opened it closes it."""
    before = things()
    yield
    config.stash[_OPEN] = config.stash.get(_OPEN, set()) | (things() - before)


def counting_tasks(fn: Callable[..., Awaitable[None]], left: list[Thing]) -> Callable[..., Awaitable[None]]:
    """Return a test function that adds the tasks that *fn* leaves behind to *left*."""

    @functools.wraps(fn)
    async def counted(*args: Any, **kwargs: Any) -> None:
        before = tasks()
        await fn(*args, **kwargs)
        last = time.monotonic() + SETTLE
        while (new := left_behind(before, tasks())) and time.monotonic() < last:
            await trio.lowlevel.checkpoint()
        left.extend(new)

    return counted


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    item.config.stash[_OPEN] = things()
    yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    left = item.config.stash.setdefault(_TASKS, [])
    left.clear()
    if isinstance(item, pytest.Function) and item.get_closest_marker("trio") is not None:
        of_hypothesis = getattr(item.obj, "hypothesis", None)
        if of_hypothesis is None:
            item.obj = counting_tasks(item.obj, left)
        elif not hasattr(of_hypothesis.inner_test, "_trio_test_runner_wrapped"):  # pytest-trio does it once, too
            of_hypothesis.inner_test = counting_tasks(of_hypothesis.inner_test, left)
    result = yield
    if left:
        pytest.fail(told(left), pytrace=False)
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    result = yield
    before = item.config.stash[_OPEN]
    getattr(item, "funcargs", {}).clear()  # pytest forgets them a moment later
    unclosed = collected() if left_behind(before, things()) else []
    last = time.monotonic() + SETTLE
    while (left := left_behind(before, things())) and time.monotonic() < last:
        time.sleep(0.001)
    if left := unclosed + left:
        pytest.fail(told(left), pytrace=False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    if fixturedef.scope == "function":
        return (yield)
    with outliving(request.config):
        return (yield)


def pytest_fixture_post_finalizer(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> None:
    if fixturedef.scope != "function":  # what it had is gone, and nothing that a test leaves behind stands in for it
        request.config.stash[_OPEN] &= things()

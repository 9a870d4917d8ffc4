"""tests/leaks.py: it fails the test that leaves something behind, says what it was, and no other test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[1]

HEADER = """
import contextlib, functools, os, signal, socket, threading, time, weakref
import pytest, trio
from hypothesis import given, settings, strategies
from tests.leaks import outliving

kept = []
"""

LEAVES = {
    "a task": (
        """
        async def test_it():
            trio.lowlevel.spawn_system_task(trio.sleep_forever)
        """,
        "task: trio.sleep_forever",
    ),
    "a task asleep under a clock that jumps": (
        """
        async def test_it(autojump_clock):
            trio.lowlevel.spawn_system_task(trio.sleep, 3600)
        """,
        "task: trio.sleep",
    ),
    "a task in the nursery of a fixture": (
        """
        @pytest.fixture
        async def server():
            async with trio.open_nursery() as nursery:
                yield nursery
                nursery.cancel_scope.cancel()

        async def test_it(server):
            server.start_soon(trio.sleep_forever)
        """,
        "task: trio.sleep_forever",
    ),
    "a task of an example": (
        """
        @settings(deadline=None)
        @given(strategies.integers(0, 3))
        async def test_it(number):
            if number == 0:
                trio.lowlevel.spawn_system_task(trio.sleep_forever)
        """,
        "task: trio.sleep_forever",
    ),
    "a thread": (
        """
        def test_it():
            threading.Thread(target=time.sleep, args=(60,), name="reader", daemon=True).start()
        """,
        "thread: reader",
    ),
    "a thread of trio that has a call": (
        """
        async def test_it():
            def work():
                time.sleep(60)
            with trio.move_on_after(0.01):
                await trio.to_thread.run_sync(work, abandon_on_cancel=True, thread_name="tool search")
        """,
        "thread: tool search",
    ),
    "a signal handler": (
        """
        def test_it():
            signal.signal(signal.SIGHUP, lambda *_: None)
        """,
        "for SIGHUP",
    ),
    "a socket": (
        """
        def test_it():
            kept.append(socket.socket())
        """,
        "socket: socket:[",
    ),
    "a socket that is garbage": (
        """
        def test_it():
            circle = [socket.socket()]
            circle.append(circle)
        """,
        "unclosed: unclosed <socket.socket",
    ),
    "a file": (
        """
        def test_it(tmp_path):
            kept.append(open(tmp_path / "log.txt", "w"))
        """,
        "/log.txt (fd ",
    ),
    "a file of a fixture": (
        """
        @pytest.fixture
        def log(tmp_path):
            return os.open(tmp_path / "log.txt", os.O_CREAT)

        def test_it(log):
            pass
        """,
        "/log.txt (fd ",
    ),
    "a pipe": (
        """
        def test_it():
            kept.append(os.pipe())
        """,
        "pipe: pipe:[",
    ),
    "an epoll": (
        """
        def test_it():
            import select
            kept.append(select.epoll())
        """,
        "anon_inode: anon_inode:[eventpoll]",
    ),
    "a file beside one that a wider fixture closes": (
        """
        @pytest.fixture(scope="module")
        def wide(tmp_path_factory):
            with open(tmp_path_factory.mktemp("wide") / "wide.txt", "w") as file:
                yield file

        def test_it(wide, tmp_path):
            kept.append(open(tmp_path / "log.txt", "w"))
        """,
        "/log.txt (fd ",
    ),
}

LEAVES_NOTHING = """
@pytest.fixture
async def server():
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        yield
        nursery.cancel_scope.cancel()


async def test_a_fixture_of_the_test_has_a_task(server):
    pass


async def test_a_task_is_about_to_end():
    @trio.lowlevel.spawn_system_task
    async def soon():
        for _ in range(100):
            await trio.lowlevel.checkpoint()


async def test_trio_keeps_its_threads():
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(trio.to_thread.run_sync, time.sleep, 0.01)


def test_a_thread_is_about_to_end():
    threading.Thread(target=time.sleep, args=(0.05,), name="reader").start()


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    with open(tmp_path_factory.mktemp("wide") / "log.txt", "w") as file, socket.socket():
        yield file


def test_the_first_user_of_a_wider_fixture(wide):
    pass


def test_the_last_user_of_a_wider_fixture(wide):
    pass


@functools.cache
def once():
    return socket.socket()


def test_something_is_said_to_outlive_it(request):
    with outliving(request.config):
        kept.append(once())


def test_a_server_is_started_again(request):
    once().close()
    once.cache_clear()
    kept.append(once())


def test_a_store_that_is_garbage_closes_its_file(tmp_path):
    class Store:
        def __init__(self):
            weakref.finalize(self, os.close, os.open(tmp_path / "runs.db", os.O_CREAT))
            self.me = self

    Store()


def test_what_is_printed_goes_elsewhere(capfd):
    os.write(1, b"x")
    with capfd.disabled():
        pass
"""


@pytest.fixture
def run(pytester: pytest.Pytester) -> Callable[..., pytest.RunResult]:
    """Runs test files under the plugin, which doesn't wait long for what is left behind."""

    def run(**files: str) -> pytest.RunResult:
        pytester.makeini(f"[pytest]\ntrio_mode = true\npythonpath = {ROOT}\n")
        pytester.makeconftest("import tests.leaks\n\ntests.leaks.SETTLE = 0.3")
        pytester.makepyfile(**{name: HEADER + dedent(text) for name, text in files.items()})
        return pytester.runpytest_subprocess("-q", "-p", "tests.leaks", "-p", "no:cacheprovider")

    return run


@pytest.mark.slow
def test_a_test_that_leaves_something_behind_fails_and_is_told_what(run: Callable[..., pytest.RunResult]) -> None:
    """All of them in one process: what one leaves isn't taken for the next one's, either."""
    names = [f"test_{number}" for number in range(len(LEAVES))]
    done = run(**dict(zip(names, [text for text, _ in LEAVES.values()], strict=True)))

    said = done.stdout.str()
    for name, (_, what) in zip(names, LEAVES.values(), strict=True):
        assert f" {name}.py::test_it - Failed: the " in said, said
        assert what in said, said
    tasks = len([name for name in LEAVES if name.startswith("a task")])
    done.assert_outcomes(failed=tasks, passed=len(LEAVES) - tasks, errors=len(LEAVES) - tasks)


@pytest.mark.slow
def test_a_test_that_leaves_nothing_behind_passes(run: Callable[..., pytest.RunResult]) -> None:
    run(test_it=LEAVES_NOTHING).assert_outcomes(passed=LEAVES_NOTHING.count("def test_"))

"""The pytest plugin of alpineagents: fixtures, no connections from tests, and failures that show the conversation.

pytest loads it in every project of an environment that has alpineagents installed. So it imports nothing of the
library before a test, or a test's module, has done so; and it stands beside the package, since whoever imports a module
of a package imports the package, too early for a project that says ``pythonpath``.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from trio.testing import MockClock

    from alpineagents import MemoryStore
    from alpineagents.testing import FakeModel, ProviderServer
    from alpineagents.testing._harness import Harness
    from alpineagents.testing._source import CountingSource

_HARNESS: pytest.StashKey[Harness] = pytest.StashKey()
_FAKE_MODEL: pytest.StashKey[FakeModel] = pytest.StashKey()

LIVE = "live: its models may connect to other machines than this one, which may cost money"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the plugin's options."""
    group = parser.getgroup("alpineagents")
    group.addoption(
        "--agents-record",
        action="store_true",
        help="Ask the real models behind record_model(), and save their replies. Tests may connect to other machines.",
    )
    group.addoption(
        "--agents-replay",
        action="store_true",
        help="Take all replies of record_model() from its files; a request that isn't there fails.",
    )
    parser.addini("agents_allowed_hosts", "Other hosts than this machine that models of tests may reach.", "linelist")


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark, and set the mode of cassettes."""
    config.addinivalue_line("markers", LIVE)
    mode = _cassettes(config)
    if mode is not None:
        from alpineagents.testing._cassette import cassette_mode

        _at_end(config).callback(cassette_mode.set, cassette_mode.get())
        cassette_mode.set(mode)


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say what happens to cassettes."""
    mode = _cassettes(config)
    return None if mode is None else f"alpineagents: cassettes: {mode}"


def _cassettes(config: pytest.Config) -> str | None:
    record, replay = config.getoption("--agents-record"), config.getoption("--agents-replay")
    if record and replay:
        raise pytest.UsageError("--agents-record and --agents-replay exclude each other")
    return "record" if record else "replay" if replay else None


def _at_end(config: pytest.Config) -> ExitStack:
    """Return a stack of what is undone at the end of the session."""
    stack = ExitStack()
    config.add_cleanup(stack.close)
    return stack


# ---- Around each test


def _begin(item: pytest.Item) -> None:
    """Have the session's harness know of this test, from when something has imported the library."""
    config = item.config
    harness = config.stash.get(_HARNESS, None)
    if harness is None:
        if "alpineagents" not in sys.modules:
            return
        from alpineagents.testing._harness import Harness

        hosts, records = config.getini("agents_allowed_hosts"), _cassettes(config) == "record"
        harness = config.stash[_HARNESS] = Harness(allowed_hosts=hosts, allow_all=records)
        _at_end(config).enter_context(harness.installed())
    harness.begin(item.nodeid, live=item.get_closest_marker("live") is not None)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Forget a test's States when all is said about it."""
    try:
        return (yield)
    finally:
        harness = item.config.stash.get(_HARNESS, None)
        if harness is not None:
            harness.end()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Look after a test from its first fixture on, which is ``frozen_ids`` where it is one."""
    _begin(item)
    names = getattr(item, "fixturenames", [])
    if "frozen_ids" in names:  # anyio runs async fixtures in the context that was current before the first of them
        names.remove("frozen_ids")
        names.insert(0, "frozen_ids")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that was otherwise right when its ``fake_model`` has answers left."""
    _begin(item)
    result = yield
    model = item.stash.get(_FAKE_MODEL, None)
    if model is not None and model.remaining:
        left = "an answer was" if model.remaining == 1 else f"{model.remaining} answers were"
        pytest.fail(f"fake_model: {left} never asked for; the next is: {model._script[0]!r:.200}", pytrace=False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Forget a test's States once nothing of it can fail: their errors hold frames, and those hold what it had open."""
    result = yield
    harness = item.config.stash.get(_HARNESS, None)
    if harness is not None:
        harness.end()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the conversations of a test that failed."""
    report = yield
    harness = item.config.stash.get(_HARNESS, None)
    if harness is not None and report.failed:
        report.sections.extend(harness.conversations())
    return report


# ---- Fixtures


@pytest.fixture
def fake_model(request: pytest.FixtureRequest) -> FakeModel:
    """A FakeModel to be given its answers: ``fake_model.add("Hello.")``. Answers left at the end fail the test."""
    from alpineagents.testing import FakeModel

    model = request.node.stash[_FAKE_MODEL] = FakeModel()
    return model


@pytest.fixture
def agent_store() -> MemoryStore:
    """An empty MemoryStore."""
    from alpineagents import MemoryStore

    return MemoryStore()


@pytest.fixture
def provider_server() -> ProviderServer:
    """A ProviderServer to be opened and given its answers: ``async with provider_server as server:``."""
    from alpineagents.testing import ProviderServer

    return ProviderServer()


@pytest.fixture
def agent_clock() -> MockClock:
    """A clock for pytest-trio that jumps when all tasks wait, unless one of them waits for a thread of the library."""
    from trio.testing import MockClock

    from alpineagents._threads import heed_threads

    return heed_threads(MockClock(autojump_threshold=0))


@pytest.fixture
def frozen_ids() -> Iterator[CountingSource]:
    """Ids and times that are the same each time the test runs."""
    from alpineagents.testing._source import counted

    if getattr(sys.modules.get("anyio.pytest_plugin"), "_current_runner", None) is not None:
        raise pytest.UsageError(
            "frozen_ids can't reach a test that runs where an async fixture of a wider scope does: anyio has started"
            ' it before; give that fixture scope="function"'
        )
    with counted() as source:
        yield source


@pytest.fixture
def history_snapshot(request: pytest.FixtureRequest, frozen_ids: CountingSource) -> Any:
    """A syrupy snapshot that a State, or its history, is compared with: ``assert state == history_snapshot``."""
    if not request.config.pluginmanager.has_plugin("syrupy"):
        raise pytest.UsageError("history_snapshot needs syrupy: pip install syrupy")
    from alpineagents.testing._syrupy import HistoryExtension

    return request.getfixturevalue("snapshot").use_extension(HistoryExtension)

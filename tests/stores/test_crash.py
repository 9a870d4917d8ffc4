"""Processes killed at random moments (scripts/crash.py): a few, and whether it would be seen if something were lost."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from alpineagents import FileStore, Message, State, TextBlock, ToolCall

from .histories import conversation, encoded, info, log_of, reply, request, write_log
from .postgres import Cluster, cluster

__all__ = ["cluster"]  # a fixture

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import crash

pytestmark = pytest.mark.slow


def assert_nothing_is_lost(where: str) -> None:
    report = crash.crash(where, kills=10, seed=1)

    assert report.lost == report.invalid == []
    assert report.kills == 10
    assert report.loads >= 20
    assert report.acknowledged > 100


def test_processes_killed_at_random_moments_lose_nothing_from_files(tmp_path: Path) -> None:
    assert_nothing_is_lost(str(tmp_path / "states"))


def test_processes_killed_at_random_moments_lose_nothing_from_sqlite(tmp_path: Path) -> None:
    assert_nothing_is_lost(str(tmp_path / "states.db"))


def test_processes_killed_at_random_moments_lose_nothing_from_postgres(cluster: Cluster) -> None:
    assert_nothing_is_lost(f"postgresql://postgres@127.0.0.1:{cluster.port}/postgres")


def test_the_command_line_says_per_store_what_came_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert crash.main(["files", "--kills", "2", "--seed", "3"]) == 0

    said = capsys.readouterr().out
    assert said.startswith("seed 3\nfiles: 2 kills, ")
    assert " 0 lost, 0 invalid States, " in said


# ---- What it sees


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[str]]:
    """The log of a State whose process was killed, and what that had said."""
    store = FileStore(tmp_path_factory.mktemp("killed"))
    with crash.breeding(str(store.folder)) as breeder:
        said = breeder.let_live("bug-1", 0, 150, 0.0)
    return log_of(store), said


@pytest.fixture
def told(killed: tuple[bytes, list[str]]) -> crash.Told:
    told = crash.Told("bug-1")
    told.add(killed[1])
    return told


@pytest.fixture
def report() -> crash.Report:
    return crash.Report()


async def test_what_is_all_there_is_no_fault(
    files: FileStore, killed: tuple[bytes, list[str]], told: crash.Told, report: crash.Report
) -> None:
    write_log(files, killed[0])

    await crash.look(str(files.folder), told, report, True)

    assert told.count >= 150
    assert report.lost == report.invalid == []
    assert (await files.load("bug-1")).answer == "done"


async def test_an_acknowledged_end_that_is_missing_is_seen(
    files: FileStore, killed: tuple[bytes, list[str]], told: crash.Told, report: crash.Report
) -> None:
    lines = killed[0].splitlines(keepends=True)
    write_log(files, b"".join(lines[: len(lines) // 2]))

    await crash.look(str(files.folder), told, report, False)

    missing = {lost.split()[1] for lost in report.lost}
    assert {"entry", "message", "note", "call"} <= missing
    assert any("requests" in lost for lost in report.lost)


async def test_an_acknowledged_state_that_is_missing_is_seen(
    files: FileStore, told: crash.Told, report: crash.Report
) -> None:
    await crash.look(str(files.folder), told, report, False)

    assert "all of it" in report.lost[0]


async def test_an_acknowledged_entry_that_has_changed_is_seen(
    files: FileStore, killed: tuple[bytes, list[str]], told: crash.Told, report: crash.Report
) -> None:
    write_log(files, killed[0].replace(b"slow ", b"SLOW ", 1))

    await crash.look(str(files.folder), told, report, False)

    assert len(report.lost) == 1


async def test_a_beginning_that_has_changed_a_call_that_ran_twice_and_one_that_never_did_are_seen(
    files: FileStore, killed: tuple[bytes, list[str]], told: crash.Told, report: crash.Report
) -> None:
    write_log(files, killed[0])
    told.entries = [b"{}"]
    first, second = list(told.ran)[:2]
    told.ran[first] += 1
    del told.ran[second]

    await crash.look(str(files.folder), told, report, False)

    assert report.invalid == [
        "bug-1: what was saved before isn't a beginning of it",
        f"bug-1: call {first} ran 2 times",
        f"bug-1: call {second} has a result and didn't run",
    ]


async def test_a_state_that_is_not_whole_is_seen() -> None:
    open_request = State(messages=[Message.user("go")])
    request(open_request)
    open_call = State(messages=[Message.user("go")])
    request(open_call)
    reply(open_call, TextBlock("Let me look."), ToolCall("a", "look", {}))

    assert list(crash.faults_of(conversation())) == []
    assert list(crash.faults_of(open_request)) == ["a request is open"]
    assert len(list(crash.faults_of(open_call))) == 3


async def test_a_process_that_fails_by_itself_is_an_error(files: FileStore) -> None:
    await files.append("bug-1", 0, encoded(conversation())[1:2], info(conversation()))

    with (
        crash.breeding(str(files.folder)) as breeder,
        pytest.raises(AssertionError, match="the process failed by itself"),
    ):
        breeder.let_live("bug-1", 0, 10, 0.0)

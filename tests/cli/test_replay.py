"""``alpineagents replay``, as typed in a shell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import trio

from alpineagents import Agent, FileStore, Message, State, tool
from alpineagents.cli import main
from alpineagents.testing import FakeModel, tool_call

ROOT = Path(__file__).parents[2]
CODE = '''
from alpineagents import Agent, Model, tool

class Refuses(Model):
    name = "here/large"
    async def respond(self, request, emit):
        raise AssertionError("asked")

@tool
async def read(name: str) -> str:
    """Read a file."""
    raise AssertionError("called")

class agents:
    same = Agent(model=Refuses(), tools=[read], system="You read.")

other = agents.same.copy(system="You write.")
number = 1
'''


@tool
async def read(name: str) -> str:
    """Read a file."""
    return "x = 1"


async def fill(folder: Path) -> None:
    store = FileStore(folder)
    agent = Agent(
        model=FakeModel([tool_call("read", name="a.py"), "Short."]), tools=[read], system="You read.", store=store
    )
    await agent.run(State(id="bug-1", messages=[Message.user("Read a.py")]))
    await store.save(State(id="idle", messages=[Message.user("hi")]))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    trio.run(fill, tmp_path / "runs")
    (tmp_path / "app_for_replay.py").write_text(CODE)
    (tmp_path / "app_that_fails.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    return tmp_path


def run(capfd: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    code = main(["replay", *map(str, args)])
    return code, *capfd.readouterr()


def test_the_same_is_exit_code_0(folder, capfd):
    before = (folder / "runs" / "bug-1.jsonl").read_bytes()

    assert run(capfd, "runs", "bug-1", "app_for_replay:agents.same") == (
        0,
        "State bug-1: the same, 8 entries in 1 run\n",
        "",
    )
    assert (folder / "runs" / "bug-1.jsonl").read_bytes() == before


def test_a_difference_is_exit_code_1_and_is_shown(folder, capfd):
    code, out, err = run(capfd, "runs", "bug-1", "app_for_replay:other")

    assert (code, err) == (1, "")
    assert out.startswith("State bug-1 differs at entry 1 (turn 0): the system prompt of every request\n")
    assert "--- then\n+++ now\n" in out
    assert run(capfd, "runs", "bug-1", "app_for_replay:other", "--ignore", "system")[0] == 0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["runs", "bug-1", "app_for_replay"], "'app_for_replay' names no Agent; write MODULE:AGENT"),
        (["runs", "bug-1", "no_such_module:agent"], "no_such_module can't be imported: ModuleNotFoundError"),
        (["runs", "bug-1", "app_that_fails:agent"], "app_that_fails can't be imported: ZeroDivisionError: division"),
        (["runs", "bug-1", "app_for_replay:agents.old"], "app_for_replay has no 'agents.old'"),
        (["runs", "bug-1", "app_for_replay:number"], "app_for_replay:number is a int, not an Agent"),
        (["runs", "bug-2", "app_for_replay:other"], "no State bug-2"),
        (["runs", "idle", "app_for_replay:other"], "State idle has no run of an Agent named None"),
        (["none", "bug-1", "app_for_replay:other"], "/none; name a folder"),
    ],
)
def test_what_can_not_be_replayed_is_exit_code_2_and_one_line(folder, capfd, args, message):
    code, out, err = run(capfd, *args)

    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1


def test_it_works_from_the_current_directory_in_a_process_of_its_own(folder):
    command = [sys.executable, "-m", "alpineagents", "replay", "runs", "bug-1", "app_for_replay:agents.same"]
    done = subprocess.run(
        command, cwd=folder, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "State bug-1: the same, 8 entries in 1 run\n", "")


def test_the_current_directory_is_looked_in_wherever_the_program_lies(folder, capfd, monkeypatch):
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    sys.modules.pop("app_for_replay", None)

    assert run(capfd, "runs", "bug-1", "app_for_replay:agents.same")[0] == 0
    assert sys.path[0] == ""


def test_the_help_says_what_it_does(capfd):
    code, out, _ = run(capfd, "--help")

    assert code == 0
    assert "MODULE:AGENT" in out

"""The demo of a team as a new user runs it: on scripted models, and on the real local one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from alpineagents import FileStore

ROOT = Path(__file__).parents[2]
TEAM = ROOT / "examples" / "research_team.py"


def demo(store: Path, *options: str | Path) -> str:
    """Run the demo and return what it printed."""
    command = [sys.executable, "-W", "error", str(TEAM), "--store", str(store), *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr
    return done.stdout


async def check_saved(folder: Path, subagents: int) -> None:
    """The store has the lead's State and, below it, those of its subagents."""
    store = FileStore(folder)
    [lead] = await store.list(parent_id=None)
    children = await store.list(parent_id=lead.id)
    assert len(children) == subagents
    state = await store.load(lead.id)
    assert {i for e in state.history if e.kind == "tool_result" for i in e.child_ids} == {c.id for c in children}


def test_ten_subagents_read_real_files_at_once_and_the_lead_puts_it_together(tmp_path: Path):
    printed = demo(tmp_path)

    assert printed.startswith("models: fake/lead leads, fake/reader reads")
    assert "10 subagents, 10 at once" in printed
    assert "-> read_file('saving.md')" in printed
    assert "is done: saving.md: A store saves the history of a State" in printed
    answer = printed.partition("answer: ")[2]
    assert "saving.md: A store saves the history of a State" in answer
    assert "tokens: 220 read, 220 written, in 22 requests" in printed
    trio.run(check_saved, tmp_path, 10)


def test_a_folder_of_ones_own_with_fewer_files(tmp_path: Path):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "number one.md").write_text("# One\n\nThis file is about the number one. It is small.")

    printed = demo(tmp_path / "states", "--folder", tmp_path / "files")

    assert "\n1 subagent, in " in printed
    assert "number one.md: This file is about the number one." in printed


@pytest.mark.local
def test_the_team_runs_on_the_real_local_model(tmp_path: Path):
    """So small a model can't plan for a team, so a program does; it reads and writes itself."""
    printed = demo(tmp_path, "--local")

    assert printed.startswith("models: local/smollm2")
    assert "10 subagents, 10 at once" in printed
    assert len(re.findall(r"reader \d+ -> read_file\('.*\.md'\)", printed)) == 10
    assert re.search(r"answer: .*[a-z]{3}", printed, re.DOTALL)
    read, written = map(int, re.findall(r"tokens: (\d+) read, (\d+) written", printed)[-1])
    assert read > 1000
    assert written > 100
    trio.run(check_saved, tmp_path, 10)

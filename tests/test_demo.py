"""The demo as a new user runs it: on the scripted model, and on the real local one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

QUICKSTART = Path(__file__).parents[1] / "examples" / "quickstart.py"


def demo(store: Path, *options: str, home: Path | None = None) -> str:
    """Run the demo and return what it printed."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OPENAI")}
    if home is not None:
        environment |= {"HOME": str(home), "XDG_CACHE_HOME": str(home)}
    command = [sys.executable, "-W", "error", str(QUICKSTART), "--store", str(store), *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr
    return done.stdout


def test_the_demo_runs_tools_on_real_files_and_goes_on_in_a_second_process(tmp_path: Path):
    printed = demo(tmp_path / "states", home=tmp_path / "home")

    assert printed.startswith("model: fake/scripted")
    assert "-> list_files()" in printed
    assert "-> read_file(name='saving.md')" in printed
    assert "answer: In short: A store saves the history of a State" in printed
    assert "answer: It says: A store saves" in printed
    (state_id,) = {path.stem for path in (tmp_path / "states").iterdir()}
    assert re.search(rf"process \d+ loaded {state_id}: 11 entries", printed)
    assert "[turn 2] tool_result read_file: " in printed
    assert "tokens: 40 read, 40 written, in 4 requests" in printed


@pytest.mark.local
@pytest.mark.parametrize("format", ["chat", "messages", "responses"])
def test_the_demo_runs_on_the_real_local_model_with_streaming(tmp_path: Path, format: str):
    """The tool runs because the model asked for it, and the text is the model's."""
    printed = demo(tmp_path / "states", "--local", "--format", format)

    assert printed.startswith(f"model: {'anthropic' if format == 'messages' else 'local'}/smollm2")
    assert "-> read_file(name='saving.md')" in printed
    assert "<- read_file: done" in printed
    answers = re.findall(r"^answer: (.+?)^history of ", printed, re.MULTILINE | re.DOTALL)
    assert len(answers) == 2
    for answer in answers:  # what so small a model says differs from one processor to the next
        assert re.search(r"[a-z]{3}", answer)
        assert printed.count(answer.strip()) >= 2  # streamed, then shown
    read, written = map(int, re.findall(r"tokens: (\d+) read, (\d+) written", printed)[-1])
    assert read > 100
    assert written > 10

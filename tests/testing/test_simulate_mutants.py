"""The scenarios of ``make simulate``: all well as the library is, and not where a bug is put into it on purpose.

The bugs are patches in ``tests/mutants``. Where one doesn't apply any more, the code it changes has moved on: make it
anew, for the bug that its first line describes.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MUTANTS = sorted((ROOT / "tests" / "mutants").glob("*.patch"))
SCENARIOS = ("chat_service", "research_team", "flaky_everything")


def simulated(tree: Path, scenario: str, seeds: str) -> subprocess.CompletedProcess[str]:
    """Run a scenario over the library in *tree*."""
    command = [sys.executable, "scripts/simulate.py", scenario, "--seeds", seeds, "--jobs", "1"]
    code = f"import runpy, sys; sys.path[:0] = [{str(tree)!r}, 'scripts']; sys.argv = {command[1:]!r};"
    code += "runpy.run_path('scripts/simulate.py', run_name='__main__')"
    return subprocess.run([sys.executable, "-c", code], cwd=tree, capture_output=True, text=True, check=False)


def copied(tree: Path) -> Path:
    for folder in ("alpineagents", "scripts"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return tree


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_library_keeps_its_promises(scenario: str, tmp_path: Path):
    done = simulated(copied(tmp_path), scenario, "0:15")

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"{scenario}: 15 seeds, [\d,]+ steps, [\d,]+ States, all well", done.stdout)
    assert re.search(r"faults: \d+ \(", done.stdout)
    assert len(re.findall(r"^  \d .*: [1-9][\d,]*$", done.stdout, re.MULTILINE)) == 6


def test_there_are_the_three_mutants():
    assert [path.stem for path in MUTANTS] == [
        "leave_a_call_open_on_cancel",
        "record_a_result_twice",
        "save_after_acknowledging",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda path: path.stem)
def test_a_bug_is_found(mutant: Path, tmp_path: Path):
    """Within 200 seeds; and the library without it does well with the seed that found it."""
    scenario = "research_team"  # the quickest; the others find them, too
    patch = shutil.which("patch")
    if patch is None:
        pytest.skip("needs patch(1)")
    sound, broken = copied(tmp_path / "sound"), copied(tmp_path / "broken")
    applied = subprocess.run(
        [patch, "-p1", "--batch", "-i", str(mutant)], cwd=broken, capture_output=True, text=True, check=False
    )
    assert applied.returncode == 0, applied.stdout

    done = simulated(broken, scenario, "0:200")

    assert done.returncode == 1, done.stdout + done.stderr
    found = re.search(rf"{scenario} failed with seed (\d+): broken invariant (\d)", done.stdout)
    assert found, done.stdout + done.stderr
    assert int(found[1]) < 200
    without = simulated(sound, scenario, found[1])
    assert without.returncode == 0, without.stdout

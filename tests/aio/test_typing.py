"""portal.run, stream and iterate have the types of what they are given."""

from __future__ import annotations

import subprocess
import sys

import pytest

from .kit import ROOT


@pytest.mark.slow
def test_a_type_checker_knows_what_a_portal_returns_and_what_it_refuses():
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "tests/aio/typed.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

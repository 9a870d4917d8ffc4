"""The example service under load, in a smaller size than ``make load-test``; and what it prints to try."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from ..stores.postgres import Schema, cluster, schema
from .kit import ROOT, process

__all__ = ["cluster", "schema"]  # fixtures

SIZE = ["--conversations", "30", "--messages", "3", "--streams", "8", "--pause", "0.3", "--word", "0.01"]


async def load_test(store: str, log: Path) -> str:
    """Run it, and return what it printed."""
    command = [sys.executable, "-m", "examples.service.load_test", *SIZE, "--store", store, "--log", str(log)]
    done = await trio.run_process(command, cwd=ROOT, capture_stdout=True, capture_stderr=True, check=False)
    printed = done.stdout.decode()
    assert done.returncode == 0, printed + done.stderr.decode()
    return printed


def assert_kept(printed: str) -> None:
    assert re.search(r"conversations  30, not answered 0$", printed, re.MULTILINE)
    assert re.search(r"messages acknowledged  90, lost 0, doubled 0$", printed, re.MULTILINE)
    assert re.search(r"acknowledging a message  p50 [\d.]+ ms, p99 [\d.]+ ms$", printed, re.MULTILINE)
    assert re.search(r"so a message costs  p50 [\d.]+, p99 [\d.]+ appends$", printed, re.MULTILINE)
    assert printed.count("SIGTERM") == 3  # two in the middle, one at the end
    assert printed.count("SIGKILL") == 1


@pytest.mark.slow
async def test_stops_and_a_kill_in_the_middle_lose_and_double_nothing_in_sqlite(tmp_path: Path) -> None:
    assert_kept(await load_test(str(tmp_path / "s.db"), tmp_path / "log"))


@pytest.mark.slow
async def test_stops_and_a_kill_in_the_middle_lose_and_double_nothing_in_postgresql(
    tmp_path: Path, schema: Schema
) -> None:
    store = f"postgresql://postgres@127.0.0.1:{schema.cluster.port}/postgres?schema={schema.name}"
    assert_kept(await load_test(store, tmp_path / "log"))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
async def test_the_lines_that_it_prints_work_as_printed(tmp_path: Path) -> None:
    async with process(str(tmp_path / "s.db"), "--fake-delay", "0") as service:
        start, follow, approvals = re.findall(r"^  (curl .*)$", service.said, re.MULTILINE)
        started = await trio.run_process(["sh", "-c", start], capture_stdout=True)
        follower = await trio.lowlevel.open_process(["sh", "-c", f"exec {follow}"], stdout=subprocess.PIPE)
        assert follower.stdout is not None
        followed = b""
        with trio.fail_after(60):
            async with follower.stdout:
                while b"waiting for approval" not in followed:
                    followed += await follower.stdout.receive_some()
        follower.kill()
        await follower.wait()
        asked = await trio.run_process(["sh", "-c", approvals], capture_stdout=True)
        again = await trio.run_process(["sh", "-c", start], capture_stdout=True)

    assert re.fullmatch(rb'\{"id":"talk-\w+","seq":0\}\n', started.stdout)
    assert again.stdout == started.stdout
    assert b"id: 0\nevent: user\n" in followed
    assert b'"question":"Allow refund with {\\"order\\":7}?"' in asked.stdout

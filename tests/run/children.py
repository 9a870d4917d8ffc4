"""Other processes that run agents."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio

ROOT = Path(__file__).parents[2]

HEADER = """
import os, signal, sys, threading
import trio
from alpineagents import *
from alpineagents.testing import FakeModel, tool_call

def say(text):
    os.write(1, f"{text}\\n".encode())

folder, *args = sys.argv[1:]
store = FileStore(folder)
"""


class Child:
    """A running process; what it says comes line by line."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self._said = b""

    async def line(self) -> str | None:
        """Wait for its next line; ``None`` when it says nothing more."""
        assert self.process.stdout is not None
        while b"\n" not in self._said:
            chunk = await self.process.stdout.receive_some()
            if not chunk:
                return None
            self._said += chunk
        line, _, self._said = self._said.partition(b"\n")
        return line.decode()

    async def rest(self) -> list[str]:
        """All lines it says until it ends."""
        lines = []
        while (line := await self.line()) is not None:
            lines.append(line)
        return lines

    async def line_with(self, text: str) -> str:
        """Wait for a line that has *text*."""
        lines = []
        while (line := await self.line()) is not None:
            if text in line:
                return line
            lines.append(line)
        raise AssertionError(f"the process ended without saying {text!r}: {lines}")


@asynccontextmanager
async def running(command: Sequence[object], *, home: Path | None = None) -> AsyncIterator[Child]:
    """Run a process during the block; kill it at the end if it is still there."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OPENAI")}
    if home is not None:
        environment |= {"HOME": str(home), "XDG_CACHE_HOME": str(home)}
    process = await trio.lowlevel.open_process(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=environment | {"PYTHONUNBUFFERED": "1"},
    )
    try:
        with trio.fail_after(60):
            yield Child(process)
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            assert process.stdout is not None
            await process.stdout.aclose()


def script(text: str, folder: Path, *args: object) -> list[object]:
    """The command for a Python process that has ``store``, a FileStore on *folder*, and runs *text*."""
    return [sys.executable, "-c", HEADER + text, folder, *args]

"""Other processes that use a FileStore."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio

import alpineagents

ROOT = Path(alpineagents.__file__).parents[1]

HEADER = """
import json, sys
import trio
from alpineagents import *
folder, state_id, *args = sys.argv[1:]
store = FileStore(folder)

def say(text):
    print(text, flush=True)

async def main():
"""


def command(body: str, store: alpineagents.FileStore, *args: object) -> list[str]:
    """A Python process that runs *body*, the lines of an async function that has ``store`` and ``state_id``."""
    lines = "".join(f"    {line}\n" for line in body.strip("\n").splitlines())
    script = f"{HEADER}{lines}\ntrio.run(main)\n"
    return [sys.executable, "-c", script, str(store.folder), "bug-1", *map(str, args)]


class Child:
    """A running process; what it says comes line by line."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self._said = b""

    async def line(self) -> str:
        """Wait for its next line."""
        assert self.process.stdout is not None
        while b"\n" not in self._said:
            chunk = await self.process.stdout.receive_some()
            assert chunk, f"the process ended after saying {self._said!r}"
            self._said += chunk
        line, _, self._said = self._said.partition(b"\n")
        return line.decode()

    async def tell(self, text: str = "") -> None:
        """Give it a line."""
        assert self.process.stdin is not None
        await self.process.stdin.send_all(f"{text}\n".encode())


@asynccontextmanager
async def child(body: str, store: alpineagents.FileStore, *args: object) -> AsyncIterator[Child]:
    """Run a process during the block; kill it at the end if it is still there."""
    run = partial(
        trio.run_process,
        command(body, store, *args),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        check=False,
        cwd=ROOT,
    )
    async with trio.open_nursery() as nursery:
        process: trio.Process = await nursery.start(run)
        try:
            with trio.fail_after(60):
                yield Child(process)
        finally:
            process.kill()


async def run_to_end(body: str, store: alpineagents.FileStore, *args: object) -> str:
    """Run a process and return what it said; an error if it failed."""
    with trio.fail_after(120):
        done = await trio.run_process(command(body, store, *args), capture_stdout=True, cwd=ROOT)
    return done.stdout.decode()

"""Other processes that use a SQLiteStore."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from .children import ROOT, Child

HEADER = """
import json, sys
import trio
from alpineagents import *
from alpineagents.stores._sqlite import SQLiteStore
path, *args = sys.argv[1:]
store = SQLiteStore(path)

def say(text):
    print(text, flush=True)

async def main():
"""


def command(body: str, path: Path, *args: object) -> list[str]:
    """A Python process that runs *body*, the lines of an async function that has ``store`` and ``args``."""
    lines = "".join(f"    {line}\n" for line in body.strip("\n").splitlines())
    return [sys.executable, "-c", f"{HEADER}{lines}\ntrio.run(main)\n", str(path), *map(str, args)]


@asynccontextmanager
async def child(body: str, path: Path, *args: object) -> AsyncIterator[Child]:
    """Run a process during the block; kill it at the end if it is still there."""
    process = await trio.lowlevel.open_process(
        command(body, path, *args), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    try:
        with trio.fail_after(60):
            yield Child(process)
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            assert process.stdin is not None
            assert process.stdout is not None
            await process.stdin.aclose()
            await process.stdout.aclose()


async def run_to_end(body: str, path: Path, *args: object) -> str:
    """Run a process and return what it said; an error if it failed."""
    with trio.fail_after(120):
        done = await trio.run_process(command(body, path, *args), capture_stdout=True, cwd=ROOT)
    return done.stdout.decode()

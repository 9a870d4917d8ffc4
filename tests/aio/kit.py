"""What the tests of aio share: a place in trio code that asyncio code knows of, and looks at what is left."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import trio

from alpineagents import Agent, Message, State, ToolResultEntry, tool
from alpineagents.testing import FakeModel, tool_call

from .. import leaks

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
LONG = 60.0
"""Seconds after which a test that hangs fails."""


def run(main: Coroutine[Any, Any, T], *, debug: bool = False) -> T:
    """Run *main* as an asyncio program; at its end only its own task is left."""

    async def bounded() -> T:
        async with asyncio.timeout(LONG):
            result = await main
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result

    return asyncio.run(bounded(), debug=debug)


class Gate:
    """A place in trio code: asyncio code waits until it is ``reached``, and has it opened by ``portal.run``."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.ending = asyncio.Event()
        """Set when ``wait_when_cancelled`` was cancelled."""
        self.was_cancelled = False
        self._loop = asyncio.get_running_loop()
        self._open: trio.Event | None = None
        self._token: trio.lowlevel.TrioToken

    async def wait(self) -> str:
        return await self._wait(self.reached)

    async def wait_when_cancelled(self) -> None:
        """Wait to be cancelled, and then, shielded, for the gate."""
        self._loop.call_soon_threadsafe(self.reached.set)
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await self._wait(self.ending)

    async def _wait(self, told: asyncio.Event) -> str:
        self._open = trio.Event()
        self._token = trio.lowlevel.current_trio_token()
        self._loop.call_soon_threadsafe(told.set)
        try:
            await self._open.wait()
        except trio.Cancelled:
            self.was_cancelled = True
            raise
        return "opened"

    def open(self) -> None:
        assert self._open is not None
        self._open.set()

    def open_from_outside(self) -> None:
        """Open it where no Portal can be asked to any more."""
        assert self._open is not None
        self._token.run_sync_soon(self._open.set)


def waiting_agent(gate: Gate, **settings: Any) -> Agent:
    """Return an Agent that calls a tool, which waits at *gate*, and answers "done"."""

    @tool
    async def wait() -> str:
        """Wait."""
        return await gate.wait()

    return Agent(model=FakeModel([tool_call("wait"), "done"]), tools=[wait], **settings)


def conversation(text: str = "go") -> State:
    return State(messages=[Message.user(text)])


def outcomes(state: State) -> list[str]:
    """Return how its tool calls ended."""
    return [entry.outcome.value for entry in state.history if isinstance(entry, ToolResultEntry)]


def assert_closed(state: State) -> None:
    """Nobody works on it, nothing is open, and its history can be gone on with."""
    assert not state.running
    assert not state.pending_calls
    assert not state.snapshot_now().request_open
    assert State(history=state.history).messages == state.messages


def trio_tasks() -> int:
    """Return how many tasks the trio run has. Call it by ``portal.run``."""
    return len(leaks.tasks())


def script(code: str, *args: object) -> subprocess.Popen[str]:
    """Start a program, for a test that waits for what it prints."""
    return subprocess.Popen(
        [sys.executable, "-u", "-X", "dev", "-W", "error", "-c", code, *map(str, args)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

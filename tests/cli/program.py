"""The program as a person or a script starts it: a process of its own, a home of its own, no keys."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from alpineagents.cli import main

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "alpineagents"]

APP = '''
"""Agents and tools as people have them."""

from alpineagents import Agent, Budget, DenyByName, DecideByHuman, State, tool
from alpineagents.testing import FakeHuman, FakeModel, tool_call

calls = []


@tool(read_only=True)
def read_file(path: str) -> str:
    """Read a file."""
    return "\\n".join(f"line {number}" for number in range(20))


@tool
def write_file(path: str) -> str:
    """Write a file."""
    calls.append(path)
    return "written"


@tool
def end(state: State) -> str:
    """End the conversation."""
    state.finish({"answer": 42})
    return "ended"


@tool
def fail() -> str:
    """Fail."""
    raise RuntimeError("it is\\nbroken")


@tool
def leave() -> str:
    """End the program."""
    raise SystemExit(7)


@tool
async def press() -> str:
    """Press Ctrl+C."""
    raise KeyboardInterrupt


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def undocumented(thing):
    return thing


both = [read_file, write_file]
number = 1

greeter = Agent(model=FakeModel(["Hello."] * 9), name="greeter")
reader = Agent(model=FakeModel([tool_call("read_file", path="a.py"), "It is long."]), tools=[read_file])
writer = Agent(model=FakeModel([tool_call("write_file", path="a.py"), "Done."]), tools=[write_file])
asks_somebody = writer.copy(
    model=FakeModel([tool_call("write_file", path="a.py"), "Asked."]),
    permissions=[DecideByHuman()],
    human=FakeHuman(["yes"]),
)
careful = writer.copy(
    model=FakeModel([tool_call("write_file", path="a.py"), "Not allowed."]),
    permissions=[DenyByName("write_*"), DecideByHuman()],
)
ender = Agent(model=FakeModel([tool_call("end"), "unused"]), tools=[end])
breaker = Agent(model=FakeModel([tool_call("fail")] * 2), tools=[fail])
interrupter = Agent(model=FakeModel([tool_call("press")]), tools=[press])
leaver = Agent(model=FakeModel([tool_call("leave")]), tools=[leave])
looper = Agent(model=FakeModel([tool_call("read_file", path="a.py")] * 60), tools=[read_file])
spender = looper.copy(budget=Budget(requests=1))
adder = Agent(model=FakeModel([tool_call("add", a=1, b=2), "Three."]))
wordy = Agent(model=FakeModel(["x" * 200_000]))


async def turn(agent, state):
    await agent.think(state)


own_loop = greeter.copy(loop=turn)
'''


def environment(home: Path, **variables: str) -> dict[str, str]:
    """Return what a process gets: nothing of this one's settings."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "XDG_STATE_HOME": str(home / "state"),
        "PYTHONPATH": str(ROOT),
        "TERM": "xterm-256color",
        "LC_ALL": "C.UTF-8",
        **variables,
    }


def run_program(
    home: Path, *args: object, input: str | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run it to its end, in its home."""
    return subprocess.run(
        [*COMMAND, *map(str, args)],
        cwd=home,
        env=environment(home, **(env or {})),
        input=input,
        stdin=subprocess.DEVNULL if input is None else None,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


class Here:
    """The same in this process: what it prints and returns. Its app is a module of a name of its own."""

    def __init__(self, home: Path, app: str, capfd: pytest.CaptureFixture[str]) -> None:
        self.home = home
        self.app = app
        self.states = home / "state" / "alpineagents" / "states"
        self._capfd = capfd

    def __call__(self, *args: object) -> tuple[int, str, str]:
        code = main([str(arg).replace("app:", f"{self.app}:") for arg in args])
        return code, *self._capfd.readouterr()

    def agent(self, name: str, *args: object) -> tuple[int, str, str]:
        """Run a prompt on an Agent of the app."""
        return self("run", "--agent", f"app:{name}", *args, "Go on")


def lines(text: str | bytes) -> Sequence[str]:
    """Return the lines of an output."""
    return (text if isinstance(text, str) else text.decode()).splitlines()

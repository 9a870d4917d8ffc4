"""What a run leaves in the log: a line when it has ended, and one for what couldn't be saved; never contents."""

from __future__ import annotations

import logging
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
import trio
import trio.testing

from alpineagents import (
    Agent,
    Budget,
    DecidePermission,
    Denied,
    MemoryStore,
    Message,
    RunningElsewhereError,
    SQLiteStore,
    State,
    StoreError,
    loop,
    tool,
    waiting_for_user,
)
from alpineagents.testing import FakeModel, tool_call

from ..tree.test_budget_laws import all_states
from .runs import FullStore, HungStore

ROOT = Path(__file__).parents[2]
Lines = Callable[[str], list[str]]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    """What was logged so far with this logger, each line with its level."""
    caplog.set_level(logging.DEBUG, logger="alpineagents")
    return lambda name: [f"{r.levelname} {r.getMessage()}" for r in caplog.records if r.name == f"alpineagents.{name}"]


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def endless() -> None:
    """Never end."""
    await trio.sleep_forever()


@tool
async def finish(state: State) -> None:
    """Finish."""
    state.finish("so")


def asked() -> State:
    return State(id="s-1", messages=[Message.user("go")])


# Runs


async def test_a_run_is_one_line_with_what_it_used(lines: Lines, autojump_clock):
    model = FakeModel([tool_call("add", a=1, b=2), "done"], delay=1.5)
    await Agent(model=model, tools=[add], name="adder").run(asked())

    assert lines("run") == [
        "INFO run of s-1 answered: agent='adder' model=fake/fake turns=2 requests=2 input_tokens=20 output_tokens=20"
        " seconds=3.000"
    ]


async def test_each_run_of_a_state_counts_for_itself(lines: Lines, autojump_clock):
    state = asked()
    agent = Agent(model=FakeModel([tool_call("add", a=1, b=2), "one", "two"]), tools=[add])
    await agent.run(state)
    state.add_message(Message.user("more"))
    await agent.run(state)

    assert lines("run")[1] == (
        "INFO run of s-1 answered: model=fake/fake turns=1 requests=1 input_tokens=10 output_tokens=10 seconds=0.000"
    )


async def test_a_subagent_is_a_line_that_names_its_parent(lines: Lines):
    part = Agent(model=FakeModel(["part"]), name="part", description="Does a part.")
    state = asked()
    await Agent(model=FakeModel([tool_call("part", prompt="x"), "done"]), tools=[part]).run(state)
    child = all_states(state)[1]

    inner, outer = lines("run")
    assert inner.startswith(f"INFO run of {child.id} answered: agent='part' ")
    assert inner.endswith(" parent=s-1")
    assert "parent" not in outer
    assert "requests=3" not in inner
    assert " requests=3 " in outer  # a subagent's count for who called it


async def _raise(error: BaseException) -> None:
    raise error


def _body(error: BaseException):
    @loop(until=waiting_for_user, limit=1)
    async def body(agent, state):
        await _raise(error)

    return body


async def _plain(agent, state):
    """A loop that stops without saying why."""
    await agent.think(state)


def enough(state: State) -> bool:
    """A stop rule with a name."""
    return state.turn > 0


class Never(DecidePermission):
    """Refuses everything, and stops the run."""

    def check(self, state, call, tool):
        return Denied("secret reason", stop=True)


TURNS = Agent(model=FakeModel([])).loop
ENDINGS = {
    "answered": {},
    "stopped by enough": {"loop": TURNS.copy(until=[enough])},
    "stopped by its limit of 1 turn": {"loop": TURNS.copy(limit=1)},
    "stopped by its budget (requests)": {"budget": Budget(requests=1)},
    "stopped by a permission (a call of add was refused)": {"permissions": [Never()]},
    "finished": {"model": FakeModel([tool_call("finish")])},
    "ended": {"loop": _plain},
    "failed (ZeroDivisionError)": {"loop": _body(ZeroDivisionError("secret text"))},
    "failed (ExceptionGroup of OSError, KeyError)": {
        "loop": _body(ExceptionGroup("secret text", [OSError("a"), KeyError("b"), OSError("c")]))
    },
    "interrupted (KeyboardInterrupt)": {"loop": _body(KeyboardInterrupt())},
    "interrupted (SystemExit)": {"loop": _body(SystemExit("secret text"))},
    "cancelled": {"model": FakeModel([tool_call("endless")])},
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_the_line_says_how_it_ended(lines: Lines, ending: str, autojump_clock):
    given = {"model": FakeModel([tool_call("add", a=1, b=2), "done"]), **ENDINGS[ending]}
    with trio.move_on_after(1):
        try:
            await Agent(tools=[add, endless, finish], **given).run(asked())
        except BaseException as error:
            if isinstance(error, trio.Cancelled):
                raise

    (line,) = lines("run")
    assert line.startswith(f"INFO run of s-1 {ending}: model=fake/fake turns=")
    assert "secret" not in line


async def test_one_that_another_holds_did_not_start(lines: Lines):
    store = MemoryStore()
    async with store.lease("s-1"):
        with pytest.raises(RunningElsewhereError):
            await Agent(model=FakeModel(["done"]), store=store).run(asked())

    (line,) = lines("run")
    assert line.startswith("INFO run of s-1 didn't start (RunningElsewhereError): model=fake/fake turns=0 requests=0 ")


async def test_one_that_is_cancelled_before_it_starts_says_so(lines: Lines, autojump_clock):
    class Busy(MemoryStore):
        @asynccontextmanager
        async def lease(self, state_id):
            await trio.sleep_forever()
            yield

    with trio.move_on_after(2):
        await Agent(model=FakeModel(["done"]), store=Busy()).run(asked())

    (line,) = lines("run")
    assert line.startswith("INFO run of s-1 cancelled before it started: ")
    assert line.endswith(" seconds=2.000")


async def test_a_run_that_goes_back_counts_no_turns_below_zero(lines: Lines):
    state = asked()
    await Agent(model=FakeModel(["one"])).run(state)
    before = state.snapshot()
    state.add_message(Message.user("more"))
    await Agent(model=FakeModel(["two"])).run(state)
    state.add_message(Message.user("and more"))

    @loop(until=waiting_for_user, limit=1)
    async def back(agent, state):
        state.restore(before)

    await Agent(model=FakeModel([]), loop=back).run(state)

    assert " turns=0 " in lines("run")[-1]


async def test_a_streamed_run_is_one_line_too(lines: Lines):
    async with Agent(model=FakeModel(["done"])).stream(asked()) as run:
        async for _ in run:
            pass

    assert len(lines("run")) == 1


# Where nobody reads it


async def test_nothing_is_made_where_nobody_reads_it(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING, logger="alpineagents.run")
    await Agent(model=FakeModel(["done"])).run(asked())

    assert not caplog.records


SILENT = """
import sys
import trio
from alpineagents import Agent, Fallback, MemoryStore, Message, RateLimitError, RunningElsewhereError, State, StoreError
from alpineagents.testing import FakeModel

class Bad(MemoryStore):
    lease_seconds = 0.3

    async def append(self, *given):
        await trio.lowlevel.checkpoint()
        raise StoreError("full")

    async def renew(self, state_id):
        raise RunningElsewhereError("lost")

async def main():
    model = Fallback(FakeModel([RateLimitError("slow down")]), FakeModel(["hello"], delay=0.5))
    for store in (None, Bad()):
        try:
            await Agent(model=model, store=store).run("hi")
        except StoreError:
            pass

trio.run(main)
"""


def test_a_program_that_sets_nothing_up_prints_nothing():
    """Not even warnings, which logging prints on its own where nobody handles them."""
    done = subprocess.run([sys.executable, "-c", SILENT], cwd=ROOT, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_program_that_sets_logging_up_gets_the_lines():
    """As docs say it: basicConfig is enough."""
    setup = "import logging; logging.basicConfig(level='INFO', format='%(name)s %(message)s')\n"
    done = subprocess.run([sys.executable, "-c", setup + SILENT], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    names = [line.split()[0] for line in done.stderr.splitlines()]
    assert names == ["alpineagents.models", "alpineagents.run", "alpineagents.stores", "alpineagents.run"]


# Saving


class Leased(MemoryStore):
    """Its leases run out, and renewing them goes as the script has it; then well."""

    lease_seconds = 30.0

    def __init__(self, *script: Exception | None) -> None:
        super().__init__()
        self.script = list(script)

    async def renew(self, state_id: str) -> None:
        await trio.lowlevel.checkpoint()
        if self.script and (error := self.script.pop(0)) is not None:
            raise error


async def test_a_lost_lease_is_one_line(lines: Lines, autojump_clock):
    store = Leased(None, RunningElsewhereError("secret"))
    with pytest.raises(RunningElsewhereError):
        await Agent(model=FakeModel([tool_call("endless")]), tools=[endless], store=store).run(asked())

    assert lines("stores") == ["WARNING the lease of State s-1 in Leased is lost"]
    assert lines("run")[0].startswith("INFO run of s-1 failed (RunningElsewhereError): ")


async def test_a_lease_that_is_lost_at_a_write_is_one_line(lines: Lines, autojump_clock):
    class Refuses(MemoryStore):
        async def append(self, *given):
            raise RunningElsewhereError("secret")

    with pytest.raises(RunningElsewhereError):
        await Agent(model=FakeModel(["done"]), store=Refuses()).run(asked())

    assert lines("stores") == ["WARNING the lease of State s-1 in Refuses is lost"]


async def test_a_lease_that_another_process_took_is_one_line(lines: Lines, tmp_path: Path):
    """A real one: the row that says who has it says another."""
    path = tmp_path / "s.db"

    @tool
    def hand_over() -> None:
        """Do as if somebody else had taken the lease when it had run out."""
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE leases SET token = 'another'")

    model = FakeModel([tool_call("hand_over"), "done"])
    async with SQLiteStore(path) as store:
        with pytest.raises(RunningElsewhereError):
            await Agent(model=model, tools=[hand_over], store=store).run(asked())

    assert lines("stores") == ["WARNING the lease of State s-1 in SQLiteStore is lost"]


async def test_a_lease_that_cannot_be_renewed_is_a_line_each_time(lines: Lines, autojump_clock):
    store = Leased(StoreError("secret"), StoreError("secret"))
    with trio.move_on_after(35):
        await Agent(model=FakeModel([tool_call("endless")]), tools=[endless], store=store).run(asked())

    line = "WARNING the lease of State s-1 can't be renewed (StoreError): tried again in 10 s"
    assert lines("stores") == [line, line]


async def test_what_cannot_be_saved_is_a_line_until_it_can(lines: Lines, autojump_clock):
    """Not one for each try: a full disk is tried every 20 ms."""
    state, store = asked(), FullStore(full=False)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Agent(model=FakeModel([tool_call("endless")]), tools=[endless], store=store).run, state)
        await trio.sleep(1)
        for store.full in (True, False, True, False):
            for number in range(3):
                state.add_message(Message.user(f"secret {number}"))
                await trio.sleep(1)
        nursery.cancel_scope.cancel()

    assert store.refused >= 6
    assert (
        lines("stores")
        == [
            "WARNING State s-1 can't be saved (StoreError): 1 entries are in memory only",
            "WARNING State s-1 is saved again",
        ]
        * 2
    )


async def test_what_is_not_saved_in_the_grace_period_is_an_error(lines: Lines, autojump_clock):
    state, store = asked(), HungStore()

    async def hang(request):
        store.hung = True
        return "done"

    with pytest.raises(StoreError):
        await Agent(model=FakeModel([hang]), store=store).run(state)

    assert lines("stores") == [
        "ERROR State s-1 wasn't saved within 5 s of the end of its run: 2 entries are in memory only"
    ]

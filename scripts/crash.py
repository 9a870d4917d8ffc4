"""Kills processes that run agents, at random moments, and looks at what is in their store (``make crash``).

Each process runs an agent with three tools at once while messages arrive, and says what is acknowledged: entries that
a watcher saw, messages and notes that were awaited, requests that reached the model, tools that ran. After its SIGKILL
the State is loaded: nothing acknowledged may be missing, the State must be whole, what was there before must be a
beginning of it, and a run must go on with it to its end. Several processes are killed on one State, one after another.

    python scripts/crash.py files sqlite postgres
    python scripts/crash.py postgresql://localhost/test --kills 50 --seed 7

``postgres`` starts a server for it, which needs ``initdb`` and ``pg_ctl``.

Processes are forked from one that has imported everything, so that a kill costs a fraction of a second.
"""

from __future__ import annotations

import argparse
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from hashlib import sha256
from pathlib import Path
from typing import NoReturn

import attrs
import trio

from alpineagents import (
    Agent,
    ConflictError,
    Message,
    ModelReplyEntry,
    Request,
    State,
    StateNotFoundError,
    Store,
    Tool,
    ToolCall,
    ToolResultEntry,
    default_loop,
    tool,
)
from alpineagents.record._codec import decode_history, encode_entry
from alpineagents.record._conversation import first_fault
from alpineagents.stores._open import open_store
from alpineagents.testing import FakeModel, tool_call

KILLS_PER_STATE = 5
MOST_LINES = 300
"""Lines that a process says at most before it is killed; they take a few tenths of a second."""
MOST_DELAY = 0.01
"""Seconds at most between the last of them and the kill."""
MOST_SECONDS = 60.0
"""How long a process may say nothing."""
MOST_SHOWN = 20


# ---- The process that is killed


def say(text: str) -> None:
    """Tell the parent, in one write, which can't be torn."""
    os.write(1, f"{text}\n".encode())


@tool
async def slow(call: ToolCall, n: int) -> str:
    """Take some turns of the event loop."""
    for _ in range(n):
        await trio.lowlevel.checkpoint()
    say(f"ran {call.id}")
    return f"slow {n}"


@tool
def threaded(call: ToolCall, n: int) -> str:
    """Run in a thread."""
    say(f"ran {call.id}")
    return f"threaded {n}"


@tool
async def noting(call: ToolCall, state: State, n: int) -> str:
    """Save a note, then end."""
    async with state.edit_extra_data() as data:
        data[f"note {n}"] = n
    say(f"noted {n}")
    say(f"ran {call.id}")
    return f"noted {n}"


async def work(store: Store, state_id: str, number: int) -> None:
    """Run the State until the end comes from outside."""
    first = number * 1_000_000  # Whatever is counted is told apart from what earlier processes counted.
    asked = 0

    def answer(_: Request) -> list[str | ToolCall]:
        nonlocal asked
        asked += 1
        say(f"asked {asked}")
        n = first + asked
        return [tool_call("slow", n=n % 7), tool_call("threaded", n=n), tool_call("noting", n=n)]

    async def talk(state: State) -> None:
        for n in range(first, first + 1_000_000):
            await state.add_message(Message.user(f"message {n} " + "ü" * (n % 40)))
            say(f"heard {n}")

    async def watch(state: State) -> None:
        async for entry in state.watch():
            say(f"saved {entry.seq} {digest(encode_entry(entry))}")

    if await store.has(state_id):
        state = await store.load(state_id)
    else:
        state = State(id=state_id, messages=[Message.user("go")])
        await store.save(state)  # from here on, what is awaited is saved
    agent = Agent(
        model=FakeModel(answer),
        tools=[slow, threaded, noting],
        store=store,
        name="worker",
        loop=default_loop.copy(limit=1_000_000),
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, state)
        nursery.start_soon(agent.run, state)
        nursery.start_soon(talk, state)


def digest(entry: bytes) -> str:
    """What tells an entry apart, in short."""
    return sha256(entry).hexdigest()[:16]


def be_killed(where: str, state_id: str, number: int) -> NoReturn:
    """Be the process that works until it is killed."""
    try:
        trio.run(work, open_store(where), state_id, number)
    except BaseException:  # noqa: BLE001  # it is told, and nothing goes on
        traceback.print_exc()
        say("failed")
    os._exit(1)


def breed(where: str) -> None:
    """Fork a process for each ``run ID NUMBER`` on standard input, and kill it at ``kill``."""
    warnings.simplefilter("error")
    open_store(where)  # imports what it needs
    child = 0
    for line in sys.stdin:
        match line.split():
            case ["run", state_id, number]:
                child = os.fork()
                if not child:
                    be_killed(where, state_id, int(number))
            case ["kill"]:
                os.kill(child, signal.SIGKILL)
                say(f"killed {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}")
                child = 0
            case _:
                raise ValueError(line)
    if child:
        os.kill(child, signal.SIGKILL)


class Breeder:
    """The process that processes are forked from."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._said = b""

    def let_live(self, state_id: str, number: int, lines: int, delay: float) -> list[str]:
        """Let a process work, kill it that many lines and then seconds later, and return all that it said."""
        said: list[str] = []
        self._tell(f"run {state_id} {number}")
        while len(said) < lines:
            said += self._lines(MOST_SECONDS)
            if "failed" in said:
                raise AssertionError(f"the process failed by itself: {said[-5:]}")
        end = time.monotonic() + delay
        while (left := end - time.monotonic()) > 0:
            said += self._lines(left, silent=True)
        self._tell("kill")
        while not said or not said[-1].startswith("killed "):
            said += self._lines(MOST_SECONDS)
        if said.pop() != f"killed {-signal.SIGKILL}":
            raise AssertionError(f"the process had ended before: {said[-5:]}")
        return said

    def _tell(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n".encode())
        self.process.stdin.flush()

    def _lines(self, seconds: float, *, silent: bool = False) -> list[str]:
        """Wait for something to be said, and return its whole lines."""
        assert self.process.stdout is not None
        fd = self.process.stdout.fileno()
        if not select.select([fd], [], [], seconds)[0]:
            if silent:
                return []
            raise AssertionError(f"the process said nothing for {seconds:.0f} s")
        chunk = os.read(fd, 2**16)
        if not chunk:
            raise AssertionError("the process that others are forked from ended")
        *lines, self._said = (self._said + chunk).split(b"\n")
        return [line.decode() for line in lines]


@contextmanager
def breeding(where: str) -> Iterator[Breeder]:
    """Have a Breeder during the block."""
    command = [sys.executable, __file__, "--breed", where]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        try:
            yield Breeder(process)
        finally:
            process.kill()


# ---- What is looked at


@attrs.define
class Report:
    """What came of the kills on one store."""

    kills: int = 0
    loads: int = 0
    acknowledged: int = 0
    """Things that the processes were told are saved."""
    lost: list[str] = attrs.Factory(list)
    """Those that weren't."""
    invalid: list[str] = attrs.Factory(list)
    """What is wrong with loaded States."""
    seconds: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.kills} kills, {self.loads} loads, {self.acknowledged:,} acknowledged things, {len(self.lost)} lost,"
            f" {len(self.invalid)} invalid States, {self.seconds:.0f} s"
        )


@attrs.define
class Told:
    """What the processes have said of one State, and what was saved of it when it was looked at last."""

    state_id: str
    saved: dict[int, str] = attrs.Factory(dict)
    heard: set[str] = attrs.Factory(set)
    noted: set[str] = attrs.Factory(set)
    ran: Counter[str] = attrs.Factory(Counter)
    asked: int = 0
    entries: list[bytes] = attrs.Factory(list)

    def add(self, said: Sequence[str]) -> None:
        """Take in what one process said."""
        asked = 0
        for line in said:
            match line.split():
                case ["saved", seq, entry]:
                    self.saved[int(seq)] = entry
                case ["heard", n]:
                    self.heard.add(n)
                case ["noted", n]:
                    self.noted.add(n)
                case ["ran", call_id]:
                    self.ran[call_id] += 1
                case ["asked", n]:
                    asked = int(n)
                case _:
                    raise ValueError(line)
        self.asked += asked

    @property
    def count(self) -> int:
        """How much of it was acknowledged."""
        return len(self.saved) + len(self.heard) + len(self.noted) + len(self.ran) + self.asked

    def lost(self, entries: Sequence[bytes], state: State) -> Iterator[str]:
        """Yield what was acknowledged and isn't there."""
        for seq, entry in self.saved.items():
            if seq >= len(entries) or digest(entries[seq]) != entry:
                yield f"entry {seq}"
        texts = {message.text.split()[1] for message in state.messages if message.text.startswith("message ")}
        yield from (f"message {n}" for n in self.heard - texts)
        yield from (f"note {n}" for n in self.noted if state.extra_data.get(f"note {n}") != int(n))
        calls = {call.id for e in state.history if isinstance(e, ModelReplyEntry) for call in e.content.tool_calls}
        yield from (f"call {call_id}, which ran," for call_id in self.ran.keys() - calls)
        requests = sum(entry.kind == "model_request" for entry in state.history)
        if requests < self.asked:
            yield f"{self.asked - requests} of {self.asked} requests"

    def wrong(self, entries: Sequence[bytes], state: State) -> Iterator[str]:
        """Yield what can't be so."""
        if list(entries[: len(self.entries)]) != self.entries:
            yield "what was saved before isn't a beginning of it"
        yield from (f"call {call_id} ran {times} times" for call_id, times in self.ran.items() if times > 1)
        done = [e.call.id for e in state.history if isinstance(e, ToolResultEntry) and e.outcome == "done"]
        yield from (f"call {call_id} has a result and didn't run" for call_id in done if call_id not in self.ran)
        yield from faults_of(state)


def faults_of(state: State) -> Iterator[str]:
    """Yield why a State isn't whole."""
    if state.pending_calls:
        yield f"calls are open: {state.pending_calls}"
    if state.snapshot_now().request_open:
        yield "a request is open"
    if fault := first_fault(state.messages):
        yield f"the conversation is malformed: {fault}"
    asked = [call.id for e in state.history if isinstance(e, ModelReplyEntry) for call in e.content.tool_calls]
    closed = [e.call.id for e in state.history if isinstance(e, ToolResultEntry) and not e.late]
    if Counter(asked) != Counter(closed):
        yield f"calls and results differ: {(Counter(asked) - Counter(closed)) + (Counter(closed) - Counter(asked))}"
    raws = [encode_entry(entry) for entry in state.history]
    replayed = State(id=state.id, history=decode_history(raws))
    if replayed.snapshot() != state.snapshot() or [encode_entry(entry) for entry in replayed.history] != raws:
        yield "replayed, it is another one"


def idle_tools() -> list[Tool]:
    """The worker's tools, for who must not call them."""

    async def unwanted(n: int) -> str:
        raise AssertionError(f"{n} must not run again")

    return [tool(name=name, description="x")(unwanted) for name in ("slow", "threaded", "noting")]


async def look(where: str, told: Told, report: Report, go_on: bool) -> None:
    """Load the State, and compare it with what was acknowledged; with *go_on* run it to its end."""
    store = open_store(where)
    try:
        try:
            async with store.lease(told.state_id):  # From here on nothing comes any more from who was killed.
                entries = list(await store.read(told.state_id))
                state, again = await store.load(told.state_id), await store.load(told.state_id)
        except StateNotFoundError:
            if told.count:
                report.lost.append(f"{told.state_id}: all of it, {told.count} things")
            return
        report.loads += 2
        report.lost += [f"{told.state_id}: {lost}" for lost in told.lost(entries, state)]
        report.invalid += [f"{told.state_id}: {wrong}" for wrong in told.wrong(entries, state)]
        if again.snapshot() != state.snapshot():
            report.invalid.append(f"{told.state_id}: loading twice gives two States")
        if told.state_id not in [info.id for info in await store.list()]:
            report.invalid.append(f"{told.state_id}: it isn't listed")
        told.entries = entries
        if go_on:
            await finish(store, state, told, report)
    finally:
        if hasattr(store, "aclose"):
            await store.aclose()


async def finish(store: Store, state: State, told: Told, report: Report) -> None:
    """Run the State to the end that an Agent gives it, and compare that with what is saved."""
    before = [encode_entry(entry) for entry in state.history]
    agent = Agent(model=FakeModel(["done"]), tools=idle_tools(), store=store, name="worker")
    try:
        answer = await agent.run(state)
    except ConflictError as error:
        report.invalid.append(f"{told.state_id}: can't be gone on with: {error}")
        return
    loaded = await store.load(told.state_id)
    report.loads += 1
    after = list(await store.read(told.state_id))
    if answer != "done" or loaded.snapshot() != state.snapshot() or after[: len(before)] != before:
        report.invalid.append(f"{told.state_id}: gone on with, it isn't what is saved")
    report.invalid += [f"{told.state_id}: gone on with, {fault}" for fault in faults_of(loaded)]
    told.entries = after


def crash(where: str, *, kills: int, seed: int) -> Report:
    """Kill processes that work in the store *where*, and return what came of it."""
    chance = random.Random(seed)
    report = Report()
    start = time.monotonic()
    told = Told("")
    with breeding(where) as breeder:
        for kill in range(kills):
            number = kill % KILLS_PER_STATE
            if not number:
                told = Told(f"crash-{seed}-{kill // KILLS_PER_STATE}")
            lines, delay = chance.randrange(MOST_LINES), chance.uniform(0, MOST_DELAY)
            before = told.count
            told.add(breeder.let_live(told.state_id, number, lines, delay))
            report.kills += 1
            report.acknowledged += told.count - before
            is_last = number == KILLS_PER_STATE - 1 or kill == kills - 1
            trio.run(look, where, told, report, is_last or chance.random() < 0.5)
    report.seconds = time.monotonic() - start
    return report


# ---- From the command line


@contextmanager
def in_folder(name: str) -> Iterator[str]:
    """Have a place for a store of files."""
    with tempfile.TemporaryDirectory(prefix="alpineagents-crash-") as folder:
        yield str(Path(folder, name))


@contextmanager
def on_a_server(_: str) -> Iterator[str]:
    """Have a PostgreSQL server, that of the tests."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.stores.postgres import Cluster

    cluster = Cluster()
    try:
        cluster.start()
        yield f"postgresql://postgres@127.0.0.1:{cluster.port}/postgres"
    finally:
        cluster.remove()


PLACES: dict[str, Callable[[str], AbstractContextManager[str]]] = {
    "files": lambda _: in_folder("states"),
    "sqlite": lambda _: in_folder("states.db"),
    "postgres": on_a_server,
}


def main(args: Sequence[str]) -> int:
    """Do what the command line says; return 1 if anything was lost."""
    parser = argparse.ArgumentParser(description="Kill processes that run agents; look at what is in their store.")
    named = ", ".join(PLACES)
    parser.add_argument("stores", nargs="*", default=[*PLACES], help=f"{named}, or a store's URL or path")
    parser.add_argument("--kills", type=int, default=300, help="how many processes to kill per store")
    parser.add_argument("--seed", type=int, help="of the random moments; a new one where it is left out")
    parser.add_argument("--breed", metavar="STORE", help=argparse.SUPPRESS)
    given = parser.parse_args(args)
    if given.breed:
        breed(given.breed)
        return 0
    seed = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    has_failed = False
    for store in given.stores:
        with PLACES.get(store, nullcontext)(store) as where:
            report = crash(where, kills=given.kills, seed=seed)
            print(f"{store}: {report}", flush=True)
            for fault in (report.lost + report.invalid)[:MOST_SHOWN]:
                print(f"  {fault}")
            has_failed |= bool(report.lost or report.invalid)
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

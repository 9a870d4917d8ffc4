"""Several processes on one SQLite file, and processes that are killed."""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path

import pytest
import trio

from alpineagents import Agent, Message, RunningElsewhereError, State, tool
from alpineagents.record._codec import encode_entry
from alpineagents.stores._sqlite import SQLiteStore
from alpineagents.testing import FakeModel, tool_call

from ..run.children import HEADER, Child, running
from ..run.runs import assert_saved, assert_whole, outcomes
from ..states import assert_replays
from .histories import INFO, conversation, encoded, infos_of, raws
from .sqlite_children import child, run_to_end
from .sqlite_files import rows


@pytest.fixture
def store(tmp_path: Path) -> SQLiteStore:
    """A store whose file isn't there yet."""
    return SQLiteStore(tmp_path / "new" / "s.db")


# ---- Writing at once


MANY = """
me, tasks, appends = int(args[0]), int(args[1]), int(args[2])
say("ready")
sys.stdin.readline()

async def write(task):
    for seq in range(appends):
        entry = json.dumps({"seq": seq, "by": [me, task]}, separators=(",", ":")).encode()
        await store.append(f"state-{me}-{task}", seq, [entry], b'{"turn":%d}' % seq)

async with trio.open_nursery() as nursery:
    for task in range(tasks):
        nursery.start_soon(write, task)
say("done")
"""


async def write_at_once(path: Path, processes: int, tasks: int, appends: int) -> None:
    """Let so many processes begin at once, on a file that isn't there yet, and check what is in it afterwards."""

    async def run(me: int, is_ready: trio.Event) -> None:
        async with child(MANY, path, me, tasks, appends) as other:
            assert await other.line() == "ready"
            is_ready.set()
            await go.wait()
            await other.tell()
            assert await other.line() == "done"

    go = trio.Event()
    async with trio.open_nursery() as nursery:
        ready = [trio.Event() for _ in range(processes)]
        for me, is_ready in enumerate(ready):
            nursery.start_soon(run, me, is_ready)
        for is_ready in ready:
            await is_ready.wait()
        go.set()

    store = SQLiteStore(path)
    assert len(await infos_of(store)) == processes * tasks
    for me in range(processes):
        for task in range(tasks):
            found = [json.loads(entry) for entry in await store.read(f"state-{me}-{task}")]
            assert found == [{"seq": seq, "by": [me, task]} for seq in range(appends)]
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]
    assert not [path for path in store.path.parent.iterdir() if path.name.startswith(".")]


@pytest.mark.slow
async def test_two_processes_with_twenty_tasks_each_write_a_new_file_at_once(store: SQLiteStore) -> None:
    """Case E3: all 800 entries are there, and none was refused because the file was locked."""
    await write_at_once(store.path, processes=2, tasks=20, appends=20)


@pytest.mark.slow
async def test_many_processes_make_a_new_file_at_once(store: SQLiteStore) -> None:
    for number in range(2):
        await write_at_once(store.path.with_name(f"{number}.db"), processes=6, tasks=2, appends=1)


# ---- Leases


HOLD = """
async with store.lease("bug-1"):
    say("held")
    await trio.to_thread.run_sync(sys.stdin.readline)
say("free")
sys.stdin.readline()
"""


async def test_a_state_leased_by_another_process_is_refused_until_that_ends(store: SQLiteStore) -> None:
    await store.append("bug-1", 0, raws(1), INFO)
    async with child(HOLD, store.path) as other:
        assert await other.line() == "held"
        held_by = (
            rf"State bug-1 in .*s\.db is held by .*: process {other.process.pid} on {os.uname().nodename}, since \d"
        )
        for refused in (
            store.lease("bug-1").__aenter__(),
            store.append("bug-1", 1, raws(1, 1), INFO),
            store.delete("bug-1"),
        ):
            with pytest.raises(RunningElsewhereError, match=held_by):
                await refused
        assert list(await store.read("bug-1")) == raws(1), "reading needs no lease"

        await other.tell()
        assert await other.line() == "free"

        async with store.lease("bug-1"):
            await store.append("bug-1", 1, raws(1, 1), INFO)
    assert list(await store.read("bug-1")) == raws(2)


async def test_the_lease_of_a_killed_process_is_free_at_once(store: SQLiteStore) -> None:
    async with child(HOLD.replace('("bug-1")', '("bug-1"), store.lease("bug-2")'), store.path) as other:
        assert await other.line() == "held"
        other.process.kill()
        await other.process.wait()

        async with store.lease("bug-1"):
            await store.append("bug-1", 0, raws(1), INFO)
        await store.append("bug-2", 0, raws(1), INFO)
    assert rows(store.path, "SELECT * FROM leases") == []


async def test_what_one_process_saved_another_one_loads_and_goes_on_with(store: SQLiteStore) -> None:
    state = conversation()
    await store.save(state)

    said = await run_to_end(
        """
state = await store.load("bug-1")
await state.add_message(Message.user("Thank you."))
say(state.id)
""",
        store.path,
    )

    assert said == "bug-1\n"
    loaded = await store.load("bug-1")
    assert [message.text for message in loaded.messages][-2:] == ["It is in line 1.", "Thank you."]
    assert encoded(loaded)[: len(state.history)] == encoded(state)


FIGHT = """
me, rounds = int(args[0]), int(args[1])
while rounds:
    try:
        async with store.lease("bug-1"):
            length = len(await store.read("bug-1")) if await store.has("bug-1") else 0
            entries = [b'{"seq":%d,"by":%d}' % (seq, me) for seq in range(length, length + 3)]
            await store.append("bug-1", length, entries[:1], b'{"turn":1}')
            await store.append("bug-1", length + 1, entries[1:], b'{"turn":1}')
            rounds -= 1
    except RunningElsewhereError:
        await trio.lowlevel.checkpoint()
"""


@pytest.mark.slow
async def test_processes_that_fight_for_a_state_take_turns(store: SQLiteStore) -> None:
    async with trio.open_nursery() as nursery:
        for me in range(3):
            nursery.start_soon(run_to_end, FIGHT, store.path, me, 10)

    entries = [json.loads(entry) for entry in await store.read("bug-1")]
    assert [entry["seq"] for entry in entries] == list(range(3 * 10 * 3))
    assert all(entries[at]["by"] == entries[at + 1]["by"] == entries[at + 2]["by"] for at in range(0, len(entries), 3))
    assert rows(store.path, "SELECT * FROM leases") == []


# ---- Killed processes


COUNT = """
state = await store.load("bug-1") if await store.has("bug-1") else State(id="bug-1")
say(len(state.messages))
while True:
    await store.save(state)
    await state.add_message(Message.user(f"message {len(state.messages)} " + "x" * 3_000))
    say(len(state.messages))
"""


@pytest.mark.slow
async def test_what_a_killed_process_had_saved_is_there(store: SQLiteStore) -> None:
    saved = 0
    for kill_after in (1, 2, 3, 5, 8, 13):
        async with child(COUNT, store.path) as other:
            for _ in range(kill_after):
                count = int(await other.line())
                assert count >= saved
                saved = count
            other.process.kill()
        if saved:
            messages = (await store.load("bug-1")).messages
            assert len(messages) >= saved
            assert [message.text.split()[1] for message in messages] == [str(number) for number in range(len(messages))]
    assert saved >= 20


AGENT_HEADER = HEADER.replace("FileStore(folder)", "SQLiteStore(folder)").replace(
    "from alpineagents.testing", "from alpineagents.stores._sqlite import SQLiteStore\nfrom alpineagents.testing"
)

AGENT = """
marks = open(args[0], "ab", buffering=0)

@tool
async def work(call: ToolCall, state: State, n: int) -> str:
    "Save a note, then end."
    async with state.edit_extra_data() as data:
        data[f"note{n}"] = n
    say(f"noted {n}")
    marks.write(f"{call.id}\\n".encode())
    return f"did {n}"

@tool
def hang(n: int) -> str:
    "Never end."
    say(f"hangs {n}")
    threading.Event().wait()

asked = 0

def answer(request):
    global asked
    asked += 1
    say(f"asked {asked}")
    return [tool_call("work", n=asked), tool_call("hang" if str(asked) in args[1:] else "work", n=asked + 1_000)]

async def main():
    state = State(id="bug-1", messages=[Message.user("go")])
    agent = Agent(model=FakeModel(answer), tools=[work, hang], store=store, name="worker",
                  loop=default_loop.copy(limit=1_000))
    await agent.run(state)

trio.run(main)
"""


def run_agent(store: SQLiteStore, marks: Path, *hangs_in_turn: int) -> list[object]:
    """The command for a process that runs an agent."""
    return [sys.executable, "-c", AGENT_HEADER + AGENT, store.path, marks, *hangs_in_turn]


def agent_like(store: SQLiteStore, script: object) -> Agent:
    async def unwanted(n: int) -> str:
        raise AssertionError(f"{n} must not run again")

    tools = [tool(name=name, description="x")(unwanted) for name in ("work", "hang")]
    return Agent(model=FakeModel(script), tools=tools, store=store, name="worker")


async def killed(other: Child) -> list[str]:
    """Kill a process and return what else it had said."""
    other.process.kill()
    await other.process.wait()
    return await other.rest()


async def test_a_state_whose_process_was_killed_in_a_tool_call_goes_on(store: SQLiteStore, tmp_path: Path) -> None:
    async with running(run_agent(store, tmp_path / "marks", 2)) as other:
        await other.line_with("hangs 1002")
        await other.line_with("noted 2")
        with pytest.raises(RunningElsewhereError, match=f"process {other.process.pid} on "):
            await agent_like(store, ["mine"]).run(await store.load("bug-1"))
        await killed(other)

    state = await store.load("bug-1")

    assert outcomes(state)[:2] == [("work", "done"), ("work", "done")]
    assert ("hang", "aborted") in outcomes(state)
    assert state.extra_data["note2"] == 2
    assert_whole(state)
    assert await agent_like(store, ["it may have been done"]).run(state) == "it may have been done"
    assert_whole(state)
    await assert_saved(store, state)
    assert [info.id for info in await store.list()] == ["bug-1"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
async def test_a_process_killed_at_any_moment_has_lost_nothing_it_acknowledged(
    store: SQLiteStore, tmp_path: Path, seed: int
) -> None:
    marks = tmp_path / "marks"
    async with running(run_agent(store, marks)) as other:
        said = [await other.line() or "" for _ in range(random.Random(seed).randrange(1, 120))]
        said += await killed(other)
    assert other.process.returncode == -9, said

    state = await store.load("bug-1")

    assert rows(store.path, "PRAGMA integrity_check") == [("ok",)]
    assert_replays(state)
    assert_whole(state)
    for word, what in (line.split() for line in said):
        if word == "noted":
            assert state.extra_data[f"note{what}"] == int(what)
        else:
            assert sum(entry.kind == "model_request" for entry in state.history) >= int(what)
    ran = marks.read_text().split()
    calls = {call.id for entry in state.history if entry.kind == "model_reply" for call in entry.content.tool_calls}
    assert calls >= set(ran)
    assert len(set(ran)) == len(ran), "nothing ran twice"
    before = [encode_entry(entry) for entry in state.history]
    assert await agent_like(store, ["done"]).run(state) == "done"
    assert [encode_entry(entry) for entry in state.history][: len(before)] == before
    assert (await assert_saved(store, state)).snapshot() == state.snapshot()


async def test_many_agents_save_in_one_file(store: SQLiteStore) -> None:
    @tool
    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    async def run(number: int) -> None:
        state = State(id=f"bug-{number}", messages=[Message.user("go")])
        agent = Agent(model=FakeModel([tool_call("add", a=1, b=number), "done"]), tools=[add], store=store)
        assert await agent.run(state) == "done"
        assert (await store.load(state.id)).snapshot() == state.snapshot()

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(run, number)

    assert len(await store.list()) == 20
    assert rows(store.path, "SELECT * FROM leases") == []

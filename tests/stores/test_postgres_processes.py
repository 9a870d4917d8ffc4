"""PostgresStore: several processes, processes that die, and agents whose server goes away."""

from __future__ import annotations

import json
import random
from functools import partial

import pytest
import trio

from alpineagents import (
    Agent,
    Message,
    PostgresStore,
    RunningElsewhereError,
    State,
    StoreError,
    default_loop,
    tool,
)
from alpineagents.record._codec import encode_entry
from alpineagents.testing import FakeModel, tool_call

from ..run.children import running
from ..run.runs import assert_saved, assert_whole, outcomes
from ..states import assert_replays
from .histories import INFO, raws
from .postgres import Schema, cluster, postgres, schema, script

__all__ = ["cluster", "postgres", "schema"]  # fixtures

HOLD = """
async def main():
    async with store.lease("bug-1"):
        await store.append("bug-1", 0, [b'{"seq":0}'], b'{}')
        say(os.getpid())
        await trio.sleep_forever()

trio.run(main)
"""


async def test_of_two_processes_one_has_the_state_until_it_is_killed(postgres: PostgresStore, schema: Schema) -> None:
    async with running(script(HOLD, schema)) as other:
        pid = await other.line()
        held = rf"State bug-1 in database .* is held by another run or save: process {pid} on .*, since \d+ s; wait"
        for act in (
            postgres.lease("bug-1").__aenter__,
            partial(postgres.append, "bug-1", 1, raws(1, 1), INFO),
            partial(postgres.remove, "bug-1"),
        ):
            with pytest.raises(RunningElsewhereError, match=held):
                await act()
        assert list(await postgres.read("bug-1")) == raws(1), "reading needs no lease"

        other.process.kill()
        await other.process.wait()
        async with postgres.lease("bug-1"):
            await postgres.append("bug-1", 1, raws(1, 1), INFO)

    assert list(await postgres.read("bug-1")) == raws(2)


async def test_the_lease_of_a_process_on_another_machine_is_free_when_it_ran_out(
    postgres: PostgresStore, schema: Schema
) -> None:
    async with running(script(HOLD, schema)) as other:
        await other.line()
        schema.sql('UPDATE {schema}.leases SET holder = replace(holder, \'"machine":"\', \'"machine":"not-\')')
        other.process.kill()
        await other.process.wait()
        with pytest.raises(RunningElsewhereError, match="on not-"):
            await postgres.append("bug-1", 1, raws(1, 1), INFO)

        schema.expire("bug-1")

        await postgres.append("bug-1", 1, raws(1, 1), INFO)


START = """
async def main():
    await store.append(args[0], 0, [b'{"seq":0}'], b'{}')

trio.run(main)
"""


@pytest.mark.slow
async def test_processes_that_start_at_once_make_the_tables_once(postgres: PostgresStore, schema: Schema) -> None:
    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(run_to_end, script(START, schema, f"bug-{number}"))

    assert {state_id for state_id, _ in await postgres.infos()} == {"bug-0", "bug-1", "bug-2"}


async def run_to_end(command: list[object]) -> None:
    async with running(command) as child:
        said = await child.rest()
        await child.process.wait()
    assert child.process.returncode == 0, said


FIGHT = """
me, rounds = int(args[0]), int(args[1])

async def main():
    global rounds
    while rounds:
        try:
            async with store.lease("bug-1"):
                length = len(await store.read("bug-1")) if await store.has("bug-1") else 0
                entries = [b'{"seq":%d,"by":%d}' % (seq, me) for seq in range(length, length + 3)]
                await store.append("bug-1", length, entries, b'{"turn":1}')
                rounds -= 1
        except RunningElsewhereError:
            await trio.lowlevel.checkpoint()

trio.run(main)
"""


@pytest.mark.slow
async def test_processes_that_fight_for_a_state_take_turns(postgres: PostgresStore, schema: Schema) -> None:
    async with trio.open_nursery() as nursery:
        for me in range(3):
            nursery.start_soon(run_to_end, script(FIGHT, schema, me, 20))

    entries = [json.loads(entry) for entry in await postgres.read("bug-1")]
    assert [entry["seq"] for entry in entries] == list(range(3 * 20 * 3))
    assert all(entries[at]["by"] == entries[at + 1]["by"] == entries[at + 2]["by"] for at in range(0, len(entries), 3))
    assert schema.sql("SELECT * FROM {schema}.leases") == []


# ---- Agents


@tool
async def look(n: int) -> str:
    """Look at a thing."""
    return f"saw {n}"


@tool
def write(path: str) -> str:
    """Write a file."""
    raise AssertionError(f"{path} must not be written again")


@tool
async def noting(n: int) -> str:
    """Save a note."""
    raise AssertionError(f"{n} must not be noted again")


async def test_an_agent_saves_and_another_process_goes_on(postgres: PostgresStore, schema: Schema) -> None:
    agent = Agent(model=FakeModel([tool_call("look", n=1), "done"]), tools=[look], store=postgres, name="worker")
    state = State(id="bug-1", messages=[Message.user("go")])
    assert await agent.run(state) == "done"
    assert schema.sql("SELECT * FROM {schema}.leases") == []
    await assert_saved(postgres, state)

    await run_to_end(
        script(
            """
async def main():
    state = await store.load("bug-1")
    state.add_message(Message.user("again"))
    agent = Agent(model=FakeModel(["gone on"]), store=store, name="worker")
    assert await agent.run(state) == "gone on"

trio.run(main)
""",
            schema,
        )
    )

    loaded = await postgres.load("bug-1")
    assert loaded.answer == "gone on"
    assert [encode_entry(entry) for entry in loaded.history][: len(state.history)] == [
        encode_entry(entry) for entry in state.history
    ]


BLOCKED = """
@tool
def write(path: str) -> str:
    "Write a file, and then hang."
    say(f"in {path}")
    threading.Event().wait()

async def main():
    state = State(id="bug-1", messages=[Message.user("go")])
    await Agent(model=FakeModel([tool_call("write", path="a")]), tools=[write], store=store, name="worker").run(state)

trio.run(main)
"""


async def test_a_process_killed_during_a_tool_call_leaves_a_state_that_goes_on_at_once(
    postgres: PostgresStore, schema: Schema
) -> None:
    async with running(script(BLOCKED, schema)) as child:
        assert await child.line() == "in a"
        state = await postgres.load("bug-1")
        before = list(state.history)
        agent = Agent(model=FakeModel(["mine"]), tools=[write], store=postgres, name="worker")
        with pytest.raises(RunningElsewhereError, match=f"process {child.process.pid} on"):
            await agent.run(state)
        assert list(state.history) == before
        child.process.kill()
        await child.process.wait()

        assert outcomes(state) == [("write", "aborted")]
        assert await agent.run(state) == "mine"

    assert_whole(state)
    await assert_saved(postgres, state)


BUSY = """
asked = 0

@tool
async def noting(call: ToolCall, state: State, n: int) -> str:
    "Save a note, then end."
    async with state.edit_extra_data() as data:
        data[f"note{n}"] = n
    say(f"noted {n}")
    return f"noted {n}"

def answer(request):
    global asked
    asked += 1
    say(f"asked {asked}")
    return [tool_call("noting", n=asked)]

async def talk(state):
    for n in range(1_000):
        await state.add_message(Message.user(f"message {n}"))
        say(f"heard {n}")

async def main():
    state = State(id="bug-1", messages=[Message.user("go")])
    await store.save(state)
    agent = Agent(model=FakeModel(answer), tools=[noting], store=store, name="worker",
                  loop=default_loop.copy(limit=1_000))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.run, state)
        nursery.start_soon(talk, state)

trio.run(main)
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
async def test_a_process_killed_at_any_moment_has_lost_nothing_it_acknowledged(
    postgres: PostgresStore, schema: Schema, seed: int
) -> None:
    lines = random.Random(seed).randrange(1, 120)
    async with running(script(BUSY, schema)) as child:
        said = [await child.line() for _ in range(lines)]
        child.process.kill()
        await child.process.wait()
        said += await child.rest()

    state = await postgres.load("bug-1")

    assert_replays(state)
    assert_whole(state)
    texts = {message.text for message in state.messages}
    for line in said:
        word, _, what = (line or "").partition(" ")
        match word:
            case "heard":
                assert f"message {what}" in texts
            case "noted":
                assert state.extra_data[f"note{what}"] == int(what)
            case "asked":
                assert sum(entry.kind == "model_request" for entry in state.history) >= int(what)
    before = [encode_entry(entry) for entry in state.history]
    agent = Agent(model=FakeModel(["done"]), tools=[noting], store=postgres, name="worker")
    assert await agent.run(state) == "done"
    assert [encode_entry(entry) for entry in state.history][: len(before)] == before
    assert (await assert_saved(postgres, state)).snapshot() == state.snapshot()


async def test_a_run_whose_server_stops_ends_with_the_error_and_the_next_save_writes_all(
    postgres: PostgresStore, schema: Schema
) -> None:
    @tool
    async def pull_the_plug() -> str:
        """Stop the server."""
        schema.cluster.stop()
        return "done"

    state = State(id="bug-1", messages=[Message.user("go")])
    agent = Agent(
        model=FakeModel([tool_call("pull_the_plug"), "never asked"]), tools=[pull_the_plug], store=postgres, name="a"
    )
    with pytest.raises(StoreError, match="Connection refused"):
        await agent.run(state)
    assert_whole(state)
    assert outcomes(state) == [("pull_the_plug", "done")]
    schema.cluster.start()
    assert len(await postgres.read("bug-1")) < len(state.history)

    await postgres.save(state)

    assert (await assert_saved(postgres, state)).snapshot() == state.snapshot()
    assert len(await postgres.read("bug-1")) == len(state.history)
    assert await agent.copy(model=FakeModel(["now"])).run(state) == "now"


async def test_a_run_goes_on_over_a_restart_of_the_server(postgres: PostgresStore, schema: Schema) -> None:
    @tool
    async def restart() -> str:
        """Restart the server."""
        schema.cluster.restart()
        return "done"

    model = FakeModel([tool_call("restart"), [tool_call("restart"), tool_call("look", n=1)], "done"])
    state = State(id="bug-1", messages=[Message.user("go")])

    assert await Agent(model=model, tools=[restart, look], store=postgres, name="a").run(state) == "done"

    await assert_saved(postgres, state)
    assert schema.sql("SELECT * FROM {schema}.leases") == []


async def test_a_run_that_lost_its_lease_ends_and_writes_over_nobody(postgres: PostgresStore, schema: Schema) -> None:
    other = schema.store()

    @tool
    async def oversleep() -> str:
        """Let somebody else go on with the State."""
        schema.expire("bug-1")
        theirs = await other.load("bug-1")
        theirs.add_message(Message.user("I go on"))
        await other.save(theirs)
        return "done"

    state = State(id="bug-1", messages=[Message.user("go")])
    agent = Agent(model=FakeModel([tool_call("oversleep"), "never asked"]), tools=[oversleep], store=postgres, name="a")
    with pytest.raises(RunningElsewhereError, match=r"ran out, and somebody else has had it; .*store\.load"):
        await agent.run(state)

    assert_whole(state)
    saved = await other.load("bug-1")
    assert saved.messages[-1].text == "I go on"
    assert_whole(saved)


async def test_many_agents_share_a_few_connections(schema: Schema) -> None:
    store = schema.store(max_connections=2)
    states = [State(id=f"bug-{number}", messages=[Message.user("go")]) for number in range(30)]

    async def run(state: State) -> None:
        model = FakeModel([tool_call("look", n=1), [tool_call("look", n=2), tool_call("look", n=3)], "done"])
        agent = Agent(model=model, tools=[look], store=store, name="a", loop=default_loop.copy(limit=5))
        assert await agent.run(state) == "done"

    async with trio.open_nursery() as nursery:
        for state in states:
            nursery.start_soon(run, state)

    for state in states:
        await assert_saved(store, state)

"""kill -9 at any moment: what was acknowledged is in the store, the State is whole, and a run goes on with it."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest

from alpineagents import Agent, FileStore, Message, State, tool
from alpineagents.record._codec import encode_entry
from alpineagents.testing import FakeModel

from ..states import assert_replays
from .children import ROOT, running, script
from .runs import assert_saved, assert_whole, errors, outcomes

BLOCKED = """
@tool
def write(path: str) -> str:
    "Write a file, and then hang."
    say(f"in {path}")
    threading.Event().wait()

@tool
async def quick() -> str:
    "End at once."
    return "quick as ever"

async def main():
    state = State(id="bug-1", messages=[Message.user("go")])
    calls = [tool_call("quick"), tool_call("write", path="a")]
    agent = Agent(model=FakeModel([calls]), tools=[write, quick], store=store, name="worker")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.run, state)
        while len(state.pending_calls) != 1:
            await trio.lowlevel.checkpoint()
        async with state.edit_extra_data() as data:
            data["quick"] = "is saved"
        say("saved")

trio.run(main)
"""


@tool
def write(path: str) -> str:
    """Write a file."""
    raise AssertionError(f"{path} must not be written again")


@tool
async def quick() -> str:
    """End at once."""
    raise AssertionError("must not run again")


def agent_like(store: FileStore, script: object) -> Agent:
    return Agent(model=FakeModel(script), tools=[write, quick], store=store, name="worker")


async def test_a_process_killed_during_a_tool_call_leaves_a_state_that_is_whole_and_goes_on(tmp_path: Path):
    store = FileStore(tmp_path)
    async with running(script(BLOCKED, tmp_path)) as child:
        said = {await child.line(), await child.line()}
        assert said == {"in a", "saved"}
        child.process.kill()
        await child.process.wait()

    state = await store.load("bug-1")

    assert outcomes(state) == [("quick", "done"), ("write", "aborted")]
    aborted = [e for e in state.history if e.kind == "tool_result"][-1]
    assert "may or may not have taken effect" in aborted.content[0].text
    assert state.extra_data == {"quick": "is saved"}
    assert_whole(state)
    assert (await store.load("bug-1")).snapshot() == state.snapshot(), "loading twice gives the same"
    agent = agent_like(store, ["it may have been written"])
    assert await agent.run(state) == "it may have been written"
    told = agent.model.requests[0].messages[-1]
    assert [block.content[0].text.split(":")[0] for block in told.blocks] == ["quick as ever", "(aborted"]
    assert_whole(state)
    await assert_saved(store, state)


THINKING = """
async def slow(request):
    say("asked")
    await trio.sleep_forever()

state = State(id="bug-1", messages=[Message.user("go")])
trio.run(Agent(model=FakeModel([slow]), store=store, name="worker").run, state)
"""


async def test_a_process_killed_while_the_model_thinks_leaves_a_request_that_is_taken_back(tmp_path: Path):
    store = FileStore(tmp_path)
    async with running(script(THINKING, tmp_path)) as child:
        await child.line_with("asked")
        child.process.kill()
        await child.process.wait()

    state = await store.load("bug-1")

    assert state.turn == 0
    assert [entry.kind for entry in state.history] == ["context_change", "run_start", "model_request", "error"]
    assert errors(state)[0].startswith("Aborted: the process ended")
    assert_whole(state)
    agent = Agent(model=FakeModel(["here I am"]), store=store, name="worker")
    assert await agent.run(state) == "here I am"
    await assert_saved(store, state)


async def test_the_demo_killed_in_its_tool_call_can_be_gone_on_with(tmp_path: Path):
    docs, states, home = tmp_path / "docs", tmp_path / "states", tmp_path / "home"
    docs.mkdir()
    home.mkdir()
    os.mkfifo(docs / "a.md")  # who opens it to read waits for a writer
    command = [sys.executable, ROOT / "examples" / "quickstart.py", "--folder", docs, "--store", states]
    async with running(command, home=home) as child:
        assert (await child.line() or "").startswith("model: fake/scripted")
        await child.line_with("-> read_file")
        child.process.kill()
        await child.process.wait()
    store = FileStore(states)
    (info,) = await store.list()

    state = await store.load(info.id)

    assert outcomes(state) == [("list_files", "done"), ("read_file", "aborted")]
    assert_whole(state)
    (docs / "a.md").unlink()
    (docs / "a.md").write_text("# Title\n\nLoading is easy. Text.\n")
    async with running([*command, "--resume", info.id], home=home) as child:
        said = await child.rest()
        await child.process.wait()
    assert child.process.returncode == 0, said
    resumed = await store.load(info.id)
    assert list(resumed.history)[: len(state.history)] == list(state.history)
    assert resumed.answer
    assert_whole(resumed)


BUSY = """
marks = open(args[0], "ab", buffering=0)

def mark(call):
    marks.write(f"{call.id}\\n".encode())
    say(f"ran {call.id}")

@tool
async def slow(call: ToolCall, n: int) -> str:
    "Take some turns of the event loop."
    for _ in range(n):
        await trio.lowlevel.checkpoint()
    mark(call)
    return f"slow {n}"

@tool
def threaded(call: ToolCall, n: int) -> str:
    "Run in a thread."
    mark(call)
    return f"threaded {n}"

@tool
async def noting(call: ToolCall, state: State, n: int) -> str:
    "Save a note, then end."
    async with state.edit_extra_data() as data:
        data[f"note{n}"] = n
    say(f"noted {n}")
    mark(call)
    return f"noted {n}"

asked = 0

def answer(request):
    global asked
    asked += 1
    say(f"asked {asked}")
    return [tool_call("slow", n=asked % 7), tool_call("threaded", n=asked), tool_call("noting", n=asked)]

async def talk(state):
    for n in range(1_000):
        await state.add_message(Message.user(f"message {n}"))
        say(f"heard {n}")

async def main():
    state = State(id="bug-1", messages=[Message.user("go")])
    await store.save(state)
    say("saved")
    agent = Agent(model=FakeModel(answer), tools=[slow, threaded, noting], store=store, name="worker",
                  loop=default_loop.copy(limit=1_000))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.run, state)
        nursery.start_soon(talk, state)

trio.run(main)
"""


async def killed_after(tmp_path: Path, lines: int) -> tuple[list[str], list[str]]:
    """Run the busy child, kill it after so many lines; return what it said and which calls it ran."""
    marks = tmp_path / "marks"
    async with running(script(BUSY, tmp_path / "states", marks)) as child:
        said = [await child.line() for _ in range(lines)]
        child.process.kill()
        await child.process.wait()
        said += await child.rest()
    assert child.process.returncode == -9, said
    return [line for line in said if line], marks.read_text().split() if marks.exists() else []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
async def test_a_process_killed_at_any_moment_has_lost_nothing_it_acknowledged(tmp_path: Path, seed: int):
    said, ran = await killed_after(tmp_path, random.Random(seed).randrange(1, 250))
    store = FileStore(tmp_path / "states")

    state = await store.load("bug-1")

    # 1: replayed, it is the same.
    assert_replays(state)
    assert (await store.load("bug-1")).snapshot() == state.snapshot(), "loading twice gives the same"
    # 3: the conversation is well formed, and nothing is open.
    assert_whole(state)
    # 4: what was acknowledged is there; what led to a tool or a request was there before it.
    texts = {message.text for message in state.messages}
    for line in said:
        word, _, what = line.partition(" ")
        match word:
            case "heard":
                assert f"message {what}" in texts
            case "noted":
                assert state.extra_data[f"note{what}"] == int(what)
            case "asked":
                assert sum(entry.kind == "model_request" for entry in state.history) >= int(what)
    calls = {call.id for e in state.history if e.kind == "model_reply" for call in e.content.tool_calls}
    assert calls >= set(ran)
    done = {e.call.id for e in state.history if e.kind == "tool_result" and str(e.outcome) == "done"}
    assert done <= set(ran), "a result is there only of what ran"
    assert len(set(ran)) == len(ran), "and nothing ran twice"
    # 2: the history only grows, and a run goes on with it.
    before = [encode_entry(entry) for entry in state.history]
    again = Agent(model=FakeModel(["done"]), tools=_tools(), store=store, name="worker")
    assert await again.run(state) == "done"
    assert [encode_entry(entry) for entry in state.history][: len(before)] == before
    assert_whole(state)
    assert (await assert_saved(store, state)).snapshot() == state.snapshot()


def _tools() -> list:
    async def unwanted(n: int) -> str:
        raise AssertionError(f"{n} must not run again")

    return [tool(name=name, description="x")(unwanted) for name in ("slow", "threaded", "noting")]


async def test_a_process_that_ends_while_nothing_was_acknowledged_leaves_no_state_or_a_whole_one(tmp_path: Path):
    async with running(script(BUSY, tmp_path / "states", tmp_path / "marks")) as child:
        child.process.kill()
        await child.process.wait()
    store = FileStore(tmp_path / "states")
    if await store.has("bug-1"):
        assert_whole(await store.load("bug-1"))
    state = State(id="bug-2", messages=[Message.user("go")])
    assert await Agent(model=FakeModel(["x"]), store=store).run(state) == "x"


@pytest.mark.parametrize("phase", ["model", "tool"])
async def test_a_state_is_not_gone_on_with_while_its_process_lives(tmp_path: Path, phase: str):
    """Loading it shows a whole State all the same; only running it is refused."""
    text = THINKING if phase == "model" else BLOCKED
    async with running(script(text, tmp_path)) as child:
        await child.line_with("asked" if phase == "model" else "saved")
        store = FileStore(tmp_path)
        state = await store.load("bug-1")
        assert_whole(state)
        before = list(state.history)

        with pytest.raises(ValueError, match="is held by another run"):
            await agent_like(store, ["mine"]).run(state)

        assert list(state.history) == before

"""Failures of saving and resuming that users of other libraries met, each ruled out as a kind. Docstrings name it."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import attrs
import pytest
import trio
from pydantic import BaseModel

from alpineagents import (
    Agent,
    FileStore,
    MemoryStore,
    Message,
    SQLiteStore,
    State,
    Store,
    default_loop,
    loop,
    tool,
    waiting_for_user,
)
from alpineagents.testing import FakeModel, tool_call

from ..run.runs import assert_saved, assert_whole
from ..states import assert_replays, values

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["memory", "files", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "memory":
        return MemoryStore()
    return FileStore(tmp_path / "runs") if request.param == "files" else SQLiteStore(tmp_path / "runs.db")


@tool
async def look(path: str, lines: int = 3) -> str:
    """Look into a file."""
    await trio.lowlevel.checkpoint()
    return f"{path}\n" + "    a line of code, as long as they are\n" * lines


def log_of(store: FileStore, state_id: str = "bug-1") -> Path:
    return store.folder / f"{state_id}.jsonl"


# ---- E1: what follows a torn line


async def test_a_state_goes_on_after_its_last_line_was_torn_anywhere(tmp_path: Path) -> None:
    """Case E1. The next record isn't glued to the fragment: it is there at the next load, as is all before it."""
    store = FileStore(tmp_path, fsync=False)
    state = State(id="bug-1", messages=[Message.user("Find the bug. ü")])
    await Agent(model=FakeModel([tool_call("look", path="a.py"), "In line 1."]), tools=[look], store=store).run(state)
    whole = log_of(store).read_bytes()
    start = whole.rindex(b"\n", 0, -1) + 1
    assert json.loads(whole[start:])["kind"] == "stop"

    for cut in range(start, len(whole) + 1):
        log_of(store).write_bytes(whole[:cut])
        kept = len(state.history) - (cut < len(whole) - 1)  # lacking only its newline it is whole

        loaded = await FileStore(tmp_path, fsync=False).load("bug-1")
        assert list(loaded.history)[:kept] == list(state.history)[:kept]
        await loaded.add_message(Message.user("And then?"))

        again = await FileStore(tmp_path).load("bug-1")
        assert again.snapshot() == loaded.snapshot()
        assert again.messages[-1].text == "And then?"
        assert log_of(store).read_bytes().startswith(whole[:start])
        assert all(json.loads(line) for line in log_of(store).read_bytes().split(b"\n")[:-1])
        assert_whole(again)


async def test_a_record_is_written_by_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case E1. So that a crash of the process tears nothing: either the call was made or it wasn't."""
    store = FileStore(tmp_path)
    state = State(id="bug-1")
    await store.save(state)
    calls: Counter[str] = Counter()
    write = os.write

    def counted(fd: int, data: bytes) -> int:
        calls[os.readlink(f"/proc/self/fd/{fd}").rpartition("/")[2]] += 1
        return write(fd, data)

    monkeypatch.setattr(os, "write", counted)
    for number in range(1, 6):
        await state.add_message(Message.user(f"message {number} " + "x" * 50_000))

    assert calls[".bug-1.jsonl"] + calls["bug-1.jsonl"] == 5


# ---- E4: what is stored doesn't depend on classes


@dataclasses.dataclass
class Verdict:
    guilty: bool
    lines: list[int]


@attrs.define
class Evidence:
    file: str
    verdict: Verdict


class Report(BaseModel):
    title: str
    pages: int


async def test_what_is_stored_names_no_class_of_the_program_or_the_library(store: Store) -> None:
    """Case E4. A class that moves, gets another name or another field changes nothing about what was saved."""
    evidence = Evidence("a.py", Verdict(True, [1, 2]))

    @tool
    async def judge(path: str) -> Evidence:
        """Judge a file."""
        await trio.lowlevel.checkpoint()
        return evidence

    @loop(until=waiting_for_user, limit=1)
    async def once(agent: Agent, state: State) -> None:
        await agent.think(state)
        await agent.use_tools(state)
        await agent.ask(state, "Which lines?", returns=Verdict)
        state.finish(evidence)

    model = FakeModel([tool_call("judge", path="a.py"), '{"guilty": true, "lines": [1, 2]}'])
    state = State(id="bug-1", messages=[Message.user("Judge a.py")])
    with state.edit_extra_data() as data:
        data["report"] = Report(title="Bug", pages=3)
    await Agent(model=model, tools=[judge], store=store, loop=once).run(state)

    text = b"".join(await store.read("bug-1")).decode()
    for name in ("Verdict", "Evidence", "Report", "test_stores", "tests.", "alpineagents", "__", "py/", "!!python"):
        assert name not in text
    types = {value for entry in await store.read("bug-1") for value in _types(json.loads(entry))}
    assert types == {"text", "tool_call", "finish"}, "names of the format, not of classes"
    loaded = await store.load("bug-1")
    assert loaded.answer == {"file": "a.py", "verdict": {"guilty": True, "lines": [1, 2]}}
    assert loaded.extra_data == {"report": {"title": "Bug", "pages": 3}}
    assert values(loaded) == values(state)


def _types(value: object) -> list[str]:
    if isinstance(value, dict):
        own = [value["type"]] if isinstance(value.get("type"), str) else []
        return own + [found for part in value.values() for found in _types(part)]
    if isinstance(value, list):
        return [found for part in value for found in _types(part)]
    return []


PROGRAM = """
import sys
from dataclasses import dataclass
from alpineagents import Agent, FileStore, Message, State
from alpineagents.testing import FakeModel
import trio

@dataclass
class Answer:
    line: int
    certain: bool

async def main():
    state = State(id="bug-1", messages=[Message.user("Find the bug")])
    state.finish(Answer(7, True))
    await FileStore(sys.argv[1]).save(state)

trio.run(main)
"""


async def test_what_one_program_saved_another_one_loads_that_has_none_of_its_classes(tmp_path: Path) -> None:
    """Case E4. The value is all there: not None, and not an error about a module that is gone."""
    (tmp_path / "program_of_last_year.py").write_text(PROGRAM)
    command = [sys.executable, "program_of_last_year.py", "states"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    await trio.to_thread.run_sync(lambda: subprocess.run(command, check=True, cwd=tmp_path, env=environment))
    (tmp_path / "program_of_last_year.py").unlink()

    state = await FileStore(tmp_path / "states").load("bug-1")

    assert state.answer == {"line": 7, "certain": True}
    assert_replays(state)


class Opaque:
    pass


@pytest.mark.parametrize("value", [{1, 2}, Opaque(), b"bytes", float("nan"), {1: "a"}, [0, {"deep": {"er": Opaque()}}]])
async def test_a_value_that_can_not_be_stored_is_refused_when_it_is_recorded(store: Store, value: object) -> None:
    """Case E4. At once, by an error that names its place; what is stored is as it was, and never None in its place."""
    state = State(id="bug-1", messages=[Message.user("go")], extra_data={"kept": 1})
    await store.save(state)
    before = list(await store.read("bug-1"))

    with pytest.raises(TypeError, match=r"^answer"):
        state.finish({"found": value})
    with pytest.raises(TypeError, match=r"extra_data\[.notes.\]"):
        async with state.edit_extra_data() as data:
            data["notes"] = value
    await store.save(state)

    assert list(await store.read("bug-1")) == before
    assert (await store.load("bug-1")).extra_data == {"kept": 1}


async def test_a_tool_result_that_can_not_be_stored_is_an_error_the_model_reads(store: Store) -> None:
    """Case E4. The record says what was wrong, also after loading."""

    @tool
    async def odd() -> object:
        """Return something odd."""
        await trio.lowlevel.checkpoint()
        return {"tags": {1, 2}}

    state = State(id="bug-1", messages=[Message.user("go")])
    with pytest.raises(TypeError, match="set"):
        await Agent(model=FakeModel([tool_call("odd"), "I see."]), tools=[odd], store=store).run(state)

    loaded = await assert_saved(store, state)
    assert any("set" in str(entry.content) for entry in loaded.history if entry.kind in ("tool_result", "error"))
    assert_whole(loaded)


# ---- E5: what is stored grows with what happened


async def run_turns(store: Store, state_id: str, turns: int) -> State:
    state = State(id=state_id, messages=[Message.user("Look into each file.")])
    script = [*(tool_call("look", path=f"{number}.py") for number in range(turns - 1)), "All are fine."]
    agent = Agent(model=FakeModel(script), tools=[look], store=store, loop=default_loop.copy(limit=turns))
    await agent.run(state)
    assert state.turn == turns
    return state


@pytest.mark.slow
async def test_200_turns_take_the_room_of_their_entries(tmp_path: Path) -> None:
    """Case E5. A file of at most 1.2 times the entries: no step writes what was there before."""
    store = FileStore(tmp_path, fsync=False)

    await run_turns(store, "bug-1", 200)

    entries = await store.read("bug-1")
    assert log_of(store).stat().st_size <= 1.2 * sum(len(entry) + 1 for entry in entries)
    assert os.listdir(tmp_path) == ["bug-1.jsonl"]


@pytest.mark.slow
async def test_what_a_database_takes_grows_with_the_turns_and_not_with_their_square(tmp_path: Path) -> None:
    """Case E5. Four times the turns take at most four times the room, and some."""
    sizes = {}
    for turns in (50, 200):
        folder = tmp_path / f"{turns}"
        async with SQLiteStore(folder / "states.db", synchronous="NORMAL") as store:
            await run_turns(store, "bug-1", turns)
            length = sum(len(entry) for entry in await store.read("bug-1"))
        sizes[turns] = sum(path.stat().st_size for path in folder.iterdir()) / length

    assert sizes[200] <= 1.1 * sizes[50]
    assert sizes[200] <= 2


async def test_a_fork_is_a_state_of_its_own_with_its_own_history(store: Store) -> None:
    """Case E5. Forking copies once, when it is saved; afterwards neither grows with the other."""
    state = await run_turns(store, "bug-1", 5)
    before = list(await store.read("bug-1"))
    fork = state.fork(id="bug-1b")
    fork.add_message(Message.user("Another way."))
    agent = Agent(model=FakeModel(["Other."]), tools=[look], store=store)

    await agent.run(fork)

    assert list(await store.read("bug-1")) == before
    forked = list(await store.read("bug-1b"))
    assert forked[: len(before)] == before
    assert len(forked) > len(before)
    await store.delete("bug-1")
    assert (await store.load("bug-1b")).snapshot() == fork.snapshot(), "it needs nothing of where it came from"

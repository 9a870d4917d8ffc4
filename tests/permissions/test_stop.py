"""A refusal that stops the run: recorded as one, and whole again where a crash tore it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from alpineagents import (
    Agent,
    AllowByDefault,
    Denied,
    FileStore,
    MemoryStore,
    Message,
    State,
    StoppedByFinish,
    StoppedByPermission,
    default_loop,
    loop,
    waiting_for_user,
)
from alpineagents.record._codec import decode_entry

from ..run.runs import assert_whole, kinds
from .agents import Decide, Deny, Tools, an_agent, call, results

STOP = Denied("stop it", stop=True)


def stopping(name: str = "write") -> list[Any]:
    return [Deny(lambda one: STOP if one.name == name else None, "stopper"), AllowByDefault()]


def test_the_refused_call_is_denied_and_all_others_are_cancelled() -> None:
    tools = Tools()
    state = State(messages=[Message.user("go")])
    calls = [call("read"), call("read", n="x"), call("write"), call("delete")]

    an_agent(tools, [calls], stopping()).run_sync(state)

    assert tools.ran == []
    assert [(name, outcome) for name, outcome, *_ in results(state)] == [
        ("read", "cancelled"),
        ("read", "input_error"),
        ("write", "denied"),
        ("delete", "cancelled"),
    ]
    assert results(state)[2][2:] == ("stop it", "Deny(stopper)")
    assert "the refusal of write stopped the turn" in results(state)[0][2]
    assert state.stopped == StoppedByPermission(calls[2], "Deny(stopper)")
    assert not state.finished
    assert_whole(state)


def test_calls_behind_it_are_not_asked_about() -> None:
    tools = Tools()
    decide = Decide(lambda one: STOP if one.name == "write" else None)

    an_agent(tools, [[call("write"), call("delete")]], [decide]).run_sync("go")

    assert decide.asked == ["write"]


def test_the_run_can_go_on_later() -> None:
    tools = Tools()
    state = State(messages=[Message.user("go")])
    agent = an_agent(tools, [[call("write")], "Then not."], stopping())
    agent.run_sync(state)

    assert agent.run_sync(state) == "Then not."
    assert_whole(state)


def test_it_ends_loops_within_loops() -> None:
    turns: list[str] = []

    @loop(until=waiting_for_user, limit=5)
    async def outer(agent: Agent, state: State) -> None:
        turns.append("outer")
        await default_loop(agent, state)

    state = State(messages=[Message.user("go")])
    an_agent(Tools(), [[call("write")]], stopping(), loop=outer).run_sync(state)

    assert turns == ["outer"]
    assert isinstance(state.stopped, StoppedByPermission)


def test_a_state_that_somebody_finished_meanwhile_stays_finished() -> None:
    state = State(messages=[Message.user("go")])

    def finish(_: object) -> Denied:
        state.finish("enough")
        return STOP

    an_agent(Tools(), [[call("write"), call("read")]], [Deny(finish)]).run_sync(state)

    assert state.stopped == StoppedByFinish("enough")
    assert [outcome for _, outcome, *_ in results(state)] == ["denied", "cancelled"]
    assert_whole(state)


async def test_a_store_gets_all_of_it_in_one_write() -> None:
    batches: list[list[str]] = []

    class Watched(MemoryStore):
        async def append(self, state_id: str, first_seq: int, entries: Any, info: Any) -> None:
            batches.append([decode_entry(raw).kind for raw in entries])
            await super().append(state_id, first_seq, entries, info)

    await an_agent(Tools(), [[call("read"), call("write")]], stopping(), store=Watched()).run("go")

    (batch,) = [batch for batch in batches if "stop" in batch or "tool_result" in batch]
    assert batch[-3:] == ["stop", "tool_result", "tool_result"]


@pytest.mark.parametrize("kept", range(1, 5))
def test_what_a_torn_file_has_of_a_stop_is_completed_when_it_is_loaded(tmp_path: Path, kept: int) -> None:
    store = FileStore(tmp_path)
    state = State(id="torn", messages=[Message.user("go")])
    an_agent(Tools(), [[call("read"), call("write"), call("delete")]], stopping(), store=store).run_sync(state)
    start = kinds(state).index("stop")
    assert kinds(state)[start:] == ["stop", *["tool_result"] * 3]
    (log,) = [path for path in tmp_path.rglob("*") if path.is_file() and b'"stop"' in path.read_bytes()]
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[: start + kept]))

    loaded = trio.run(store.load, "torn")

    whole = [(name, outcome, by) for name, outcome, _, by in results(state)]
    assert [(name, outcome, by) for name, outcome, _, by in results(loaded)] == whole
    assert loaded.stopped == state.stopped
    assert_whole(loaded)

"""The example service is stopped, killed and started again: nothing acknowledged is lost, and what ran goes on."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from alpineagents import MemoryStore, Message, SQLiteStore, State, Store, StoreError
from alpineagents.testing import FakeModel
from examples.service.desk import desk
from examples.service.fake_model import FakeDesk
from examples.service.runs import RESTS, wants_run
from examples.service.service import Service

from .kit import ROOT, Client, Gate, answered, client_of, process, serving, start


async def test_a_run_that_a_stop_cut_short_goes_on_at_the_next_start() -> None:
    gate = Gate()
    store = MemoryStore()
    async with serving(store, FakeModel(gate), finish_seconds=0) as (client, service):
        await start(client, "a", "one")
        await gate.reached(1)
        service.stopping.set()
        await service.ended.wait()
    cut = (await store.load("a")).history[-1]
    gate.open()
    async with serving(store, FakeModel(gate)) as (client, _):
        said = await answered(client, "a")

    assert (cut.kind, cut.content) == ("error", "Cancelled")
    assert said == "re: one"
    assert gate.asked == [["one"], ["one"]]


async def test_a_run_that_is_nearly_done_is_let_finish() -> None:
    gate = Gate()
    store = MemoryStore()
    async with serving(store, FakeModel(gate), finish_seconds=60) as (client, service):
        await start(client, "a", "one")
        await gate.reached(1)
        service.stopping.set()
        gate.open()
    state = await store.load("a")

    assert state.answer == "re: one"
    assert not wants_run(state)


async def test_what_waits_for_its_turn_is_run_by_the_next_process() -> None:
    gate = Gate()
    store = MemoryStore()
    names = ["a", "b", "c"]
    async with serving(store, FakeModel(gate), at_once=1, finish_seconds=0) as (client, _):
        for name in names:
            await start(client, name, f"to {name}")
        await gate.reached(1)
    gate.open()
    async with serving(store, FakeModel(gate), at_once=1) as (client, _):
        said = [await answered(client, name) for name in names]

    assert said == ["re: to a", "re: to b", "re: to c"]


async def say(client: Client, name: str, key: str, message: str) -> None:
    """Send a message as any client does: again while the service says so."""
    with trio.fail_after(60):
        while True:
            answer = await client.post(f"/conversations/{name}/messages", key=key, message=message)
            if answer.status_code == 202:
                return
            assert answer.status_code == 503, answer.text


async def test_a_message_for_a_conversation_that_another_process_holds_is_turned_away_for_a_while(
    tmp_path: Path,
) -> None:
    """It isn't there then, and is there once when the client has sent it again."""
    path = tmp_path / "s.db"
    async with serving(SQLiteStore(path), retry_seconds=0.01) as (client, _), SQLiteStore(path) as other:
        await start(client, "a", "one")
        await answered(client, "a")
        async with other.lease("a"):
            held = await client.post("/conversations/a/messages", key="2", message="two")
        await say(client, "a", "2", "two")
        await answered(client, "a")
        entries = await client.history("a")

    assert (held.status_code, held.headers["retry-after"]) == (503, "1")
    assert "with the same Idempotency-Key" in held.json()["error"]
    assert [entry["text"] for entry in entries if entry["kind"] == "user"] == ["one", "two"]


async def test_a_conversation_that_another_process_has_gone_on_with_is_read_anew(tmp_path: Path) -> None:
    """Its history, how it stands, and before something is added to it."""
    path = tmp_path / "s.db"
    here, there = (serving(SQLiteStore(path), retry_seconds=0.01) for _ in range(2))
    async with here as (client, _), there as (other, _):
        await start(client, "a", "one")
        await answered(client, "a")
        await say(other, "a", "2", "two")
        said = await answered(other, "a")
        standing = await client.get("/conversations/a")
        seen = await client.history("a")
        await say(client, "a", "3", "three")
        await answered(client, "a")
        entries = await client.history("a")

    assert standing["answer"] == said
    assert [entry["text"] for entry in seen if entry["kind"] == "user"] == ["one", "two"]
    assert [entry["text"] for entry in entries if entry["kind"] == "user"] == ["one", "two", "three"]


async def test_a_stream_of_a_conversation_that_another_process_has_gone_on_with_ends(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """The client comes back then, and gets what is new."""
    path = tmp_path / "s.db"
    here, there = (Service(SQLiteStore(path), partial(desk, FakeDesk(0))) for _ in range(2))
    async with here.open(), there.open():
        state, _ = await here.start("a", "one", "1")
        while here.is_running(state):
            await trio.lowlevel.checkpoint()
        before = await here.is_current(state)
        same = await there.find("a")
        await there.say(same, "two", "2")
        after = await here.is_current(state)

    assert before
    assert not after


async def test_two_processes_that_are_asked_for_the_same_new_conversation_have_it_once(tmp_path: Path) -> None:
    """A client that had no answer from the one has sent it to the other, while the first was still at it."""
    path = tmp_path / "s.db"
    names = [f"c{number}" for number in range(10)]
    here, there = (serving(SQLiteStore(path), retry_seconds=0.01) for _ in range(2))
    async with here as (client, _), there as (other, _):

        async def begin(who: Client, name: str) -> None:
            with trio.fail_after(60):
                while True:
                    answer = await who.post("/conversations", key="1", id=name, message=f"to {name}")
                    if answer.status_code == 202:
                        return
                    assert answer.status_code == 503, answer.text

        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(begin, client, name)
                nursery.start_soon(begin, other, name)
        with trio.fail_after(60):
            for name in names:
                for who in (client, other):
                    while (await who.get(f"/conversations/{name}"))["answer"] is None:
                        pass
        kinds = [[entry["kind"] for entry in await client.history(name)] for name in names]

    assert [(each.count("user"), each.count("model_reply")) for each in kinds] == [(1, 1)] * 10


class Moody(Store):
    """A store whose disk is full, now and then."""

    def __init__(self) -> None:
        self._store = MemoryStore()
        self.is_full = False
        self.refused = 0

    async def append(self, state_id: str, first_seq: int, entries: Sequence[bytes], info: bytes) -> None:
        if self.is_full:
            self.refused += 1
            await trio.lowlevel.checkpoint()
            raise StoreError("no space left on the device")
        await self._store.append(state_id, first_seq, entries, info)

    async def read(self, state_id: str, after: int = 0) -> Sequence[bytes]:
        return await self._store.read(state_id, after)

    async def infos(self, *, limit: int | None = None, before: str | None = None) -> Sequence[tuple[str, bytes]]:
        return await self._store.infos(limit=limit, before=before)

    async def remove(self, state_id: str) -> None:
        await self._store.remove(state_id)

    def lease(self, state_id: str) -> AbstractAsyncContextManager[None]:
        return self._store.lease(state_id)


async def test_a_message_that_could_not_be_saved_is_there_once_when_it_is_sent_again() -> None:
    store = Moody()
    async with serving(store, retry_seconds=0.01) as (client, _):
        await start(client, "a", "one")
        await answered(client, "a")
        store.is_full = True
        refused = [await client.post("/conversations/a/messages", key="2", message="two") for _ in range(2)]
        refused.append(await client.post("/conversations", key="1", id="b", message="one"))
        store.is_full = False
        taken = [
            await client.post("/conversations/a/messages", key="2", message="two"),
            await client.post("/conversations", key="1", id="b", message="one"),
        ]
        said = [await answered(client, name) for name in "ab"]
        texts = [[entry["text"] for entry in await client.history(name) if entry["kind"] == "user"] for name in "ab"]

    assert [answer.status_code for answer in refused] == [503, 503, 503]
    assert "no space" not in refused[0].text
    assert [answer.status_code for answer in taken] == [202, 202]
    assert said == ["You said: two", "You said: one"]
    assert texts == [["one", "two"], ["one"]]


async def test_a_run_that_could_not_be_saved_runs_again_when_it_can() -> None:
    gate = Gate()
    store = Moody()
    async with serving(store, FakeModel(gate), retry_seconds=0.01) as (client, _):
        await start(client, "a", "one")
        await gate.reached(1)
        store.is_full = True
        gate.open()
        with trio.fail_after(60):
            while store.refused < 3:
                await trio.lowlevel.checkpoint()
        store.is_full = False
        said = await answered(client, "a")

    assert said == "re: one"


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_a_process_that_is_stopped_or_killed_in_the_middle_goes_on_where_it_was(
    tmp_path: Path, how: signal.Signals
) -> None:
    """The model takes a minute for a word, so none of the first process's runs ends."""
    store = str(tmp_path / "s.db")
    names = [f"c{number}" for number in range(20)]
    async with process(store, "--fake-delay", "60") as first, client_of(first.address) as client:
        for name in names:
            await start(client, name, f"to {name}")
        await client.until(names[-1], "model_request")
        began = trio.current_time()
        code = await first.stop(how)
        seconds = trio.current_time() - began
    async with process(store, "--fake-delay", "0") as second, client_of(second.address) as client:
        said = [await answered(client, name) for name in names]
        texts = [[entry["text"] for entry in await client.history(name) if entry["kind"] == "user"] for name in names]
        ended = await second.stop()

    assert code == (0 if how == signal.SIGTERM else -signal.SIGKILL)
    assert seconds < 10
    assert ended == 0
    assert said == [f"You said: to {name}" for name in names]
    assert texts == [[f"to {name}"] for name in names]


@pytest.mark.slow
async def test_a_client_that_reads_nothing_does_not_hold_a_stop(tmp_path: Path) -> None:
    """Its stream is full, and what a server sends can't be cancelled."""
    options = ("--fake-delay", "0", "--stop-seconds", "4")
    async with process(str(tmp_path / "s.db"), *options) as service, client_of(service.address) as client:
        await start(client, "a")
        port = int(service.address.rpartition(":")[2])
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            deaf.connect(("127.0.0.1", port))
            deaf.sendall(b"GET /conversations/a/events HTTP/1.1\r\nHost: service\r\n\r\n")
            for number in range(100):
                path = "/conversations/a/messages"
                assert (await client.post(path, message=f"{number} {'x' * 60_000}")).status_code == 202
            await answered(client, "a")
            began = trio.current_time()
            code = await service.stop()
            seconds = trio.current_time() - began

    assert code == 0
    assert 3 < seconds < 9  # four, and what a busy machine adds


@pytest.mark.slow
def test_a_port_that_is_taken_is_said_in_a_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "examples.service", "--port", port, "--store", str(tmp_path / "s.db")]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 1
    assert done.stderr == (
        f"error: can't listen at 127.0.0.1:{port}: Address already in use; try --port 0, which takes a free one\n"
    )


def resting() -> State:
    state = State()
    state.add_message(Message.user("hello"))
    with state.edit_extra_data() as data:
        data[RESTS] = 1
    return state


def test_a_state_wants_a_run_when_somebody_waits_for_the_model() -> None:
    empty, asked, finished, rests = State(), State(), State(), resting()
    asked.add_message(Message.user("hello"))
    finished.add_message(Message.user("hello"))
    finished.finish("bye")
    asked_again = State(history=rests.history)
    asked_again.add_message(Message.user("again"))

    assert [wants_run(state) for state in (empty, asked, finished, rests, asked_again)] == [
        False,
        True,
        False,
        False,
        True,
    ]

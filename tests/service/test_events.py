"""The example service's event streams: nothing is lost over a reconnect, and nothing comes twice."""

from __future__ import annotations

import gc
import weakref
from functools import partial

import pytest
import trio
import trio.testing

from alpineagents import MemoryStore, SQLiteStore, State
from alpineagents.testing import FakeModel
from examples.service import conversations, events
from examples.service.desk import desk
from examples.service.fake_model import FakeDesk
from examples.service.service import Service

from .kit import Gate, answered, serving, start


async def test_who_is_cut_off_after_each_event_gets_all_of_them_once() -> None:
    """Each time it comes back with the id of the last one, and is cut off after the next."""
    seen: list[int] = []
    async with serving(MemoryStore()) as (client, _):
        await start(client, "a", "where is order 8?")
        last: int | None = None
        kind = ""
        with trio.fail_after(60):
            while kind != "stop":
                async with client.events("a", last) as stream:
                    event = await stream.next()
                    while event is not None and event.id is None:
                        event = await stream.next()
                assert event is not None
                last, kind = event.id, event.kind
                seen.append(event.data["seq"])
                assert event.id == event.data["seq"]
        entries = await client.history("a")

    assert seen == list(range(len(entries)))


async def test_an_event_is_what_the_history_has() -> None:
    async with serving(MemoryStore()) as (client, _):
        await start(client, "a", "where is order 8?")
        await answered(client, "a")
        told = [event.data for event in await client.until("a", "stop") if event.id is not None]
        entries = await client.history("a")

    assert told == entries
    assert entries[5]["text"] == "order 8: two cups, 12 EUR, on its way"


async def test_text_comes_while_the_model_writes_it_without_an_id() -> None:
    gate = Gate()
    model = FakeDesk(0)
    respond = model.respond

    async def gated(request, emit):  # type: ignore[no-untyped-def]
        await gate(request)
        return await respond(request, emit)

    model.respond = gated  # type: ignore[method-assign]
    async with serving(MemoryStore(), model) as (client, _):
        await start(client, "a", "hello there")
        with trio.fail_after(60):
            async with client.events("a") as stream:
                while (event := await stream.next()) is not None and event.kind != "model_request":
                    pass
                gate.open()
                told = []
                while (event := await stream.next()) is not None and event.kind != "stop":
                    told.append(event)

    assert [(event.id, event.data["text"]) for event in told[:-1]] == [
        (None, "You"),
        (None, " said:"),
        (None, " hello"),
        (None, " there"),
    ]
    assert told[-1].kind == "model_reply"
    assert told[-1].data["text"] == "You said: hello there"


async def test_the_stream_of_a_finished_conversation_ends() -> None:
    async with serving(MemoryStore()) as (client, _):
        await start(client, "a")
        await answered(client, "a")
        with trio.fail_after(60):
            async with client.events("a") as stream:
                await client.post("/conversations/a/finish")
                found = []
                while (event := await stream.next()) is not None:
                    found.append(event)
        back = await client.http.get("/conversations/a/events", headers={"Last-Event-ID": str(found[-1].id)})

    assert found[-1].data["stopped"] == "finish"
    assert back.status_code == 204


async def test_streams_end_when_the_service_stops() -> None:
    gate = Gate()
    async with serving(MemoryStore(), FakeModel(gate), finish_seconds=0) as (client, service):
        await start(client, "a")
        await gate.reached(1)
        async with client.events("a") as stream:
            await stream.next()
            service.stopping.set()
            with trio.fail_after(60):
                while await stream.next() is not None:
                    pass


async def test_a_silent_stream_says_that_it_is_alive_and_ends_when_another_process_has_the_conversation(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A beat every 15 seconds of silence: what a proxy in between needs to keep the connection."""
    state = State(id="a")
    sent: list[bytes] = []
    times: list[float] = []

    async def send(message):  # type: ignore[no-untyped-def]
        sent.append(message.get("body", b""))
        times.append(trio.current_time())

    service = Service(MemoryStore(), partial(desk, FakeDesk(0)))
    is_current = [True, True, False]

    async def ask(_: State) -> bool:
        await trio.lowlevel.checkpoint()
        return is_current.pop(0)

    stream = events.EventStream(state, 0, service.live_text, trio.Event(), ask)
    began = trio.current_time()
    await stream({"type": "http"}, trio.sleep_forever, send)

    assert sent == [b"", b"retry: 1000\n\n", b": still here\n\n", b": still here\n\n", b""]
    assert [round(time - began) for time in times] == [0, 0, 15, 30, 45]


async def test_the_model_writes_on_while_clients_go_away() -> None:
    """What a Reporter raises would end the run."""
    service = Service(MemoryStore(), partial(desk, FakeDesk(0)))
    state = State(id="a")

    async def receive() -> dict[str, str]:
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        return {"type": "http.disconnect"}

    async def send(message: object) -> None:
        await trio.lowlevel.checkpoint()

    async def write() -> None:
        while True:
            service.live_text.on_text(state, "word ")
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        for _ in range(100):  # trio runs tasks in an order of its own each time
            stream = events.EventStream(state, 0, service.live_text, trio.Event(), service.is_current)
            await stream({"type": "http"}, receive, send)
        nursery.cancel_scope.cancel()


async def test_a_conversation_that_nobody_uses_leaves_memory_and_is_the_same_object_until_then(
    autojump_clock: trio.testing.MockClock,
) -> None:
    service = Service(MemoryStore(), partial(desk, FakeDesk(0)))
    async with service.open():
        state, _ = await service.start("a", "hello", "1")
        while service.is_running(state):
            await trio.lowlevel.checkpoint()
        assert await service.find("a") is state
        history = state.history[:]
        gone = weakref.ref(state)
        del state
        await trio.sleep(2 * conversations.KEEP_SECONDS + 1)
        gc.collect()
        was_gone = gone() is None
        again = await service.find("a")

    assert was_gone
    assert again.history == history


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_who_follows_keeps_a_conversation_in_memory(
    kind: str, tmp_path: object, autojump_clock: trio.testing.MockClock
) -> None:
    store = MemoryStore() if kind == "memory" else SQLiteStore(f"{tmp_path}/s.db")
    service = Service(store, partial(desk, FakeDesk(0)))
    async with service.open():
        state, _ = await service.start("a", "hello", "1")
        while service.is_running(state):
            await trio.lowlevel.checkpoint()
        gone = weakref.ref(state)
        async with trio.open_nursery() as nursery:
            watch = state.watch(len(state.history))
            del state
            nursery.start_soon(watch.__anext__)
            await trio.sleep(3 * conversations.KEEP_SECONDS)
            gc.collect()
            assert await service.find("a") is gone()
            nursery.cancel_scope.cancel()

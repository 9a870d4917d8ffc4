"""The example service over HTTP: what it does, and what it answers to mistakes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from alpineagents import MemoryStore, ProviderError, Request, SQLiteStore, ToolCall
from alpineagents.testing import FakeModel, tool_call
from examples.service.app import make_app
from examples.service.desk import desk
from examples.service.fake_model import FakeDesk
from examples.service.service import Service

from .kit import Gate, answered, serving, start


async def test_a_message_is_answered_and_both_are_in_the_history() -> None:
    async with serving(MemoryStore()) as (client, _):
        begun = await client.post("/conversations", message="hello")
        name = begun.json()["id"]
        said = await answered(client, name)
        entries = await client.history(name)
        standing = await client.get(f"/conversations/{name}")

    assert begun.status_code == 202
    assert begun.headers["location"] == f"/conversations/{name}"
    assert said == "You said: hello"
    assert [entry["seq"] for entry in entries] == list(range(len(entries)))
    assert entries[begun.json()["seq"]]["text"] == "hello"
    assert (standing["answer"], standing["entries"], standing["stopped"]) == (said, len(entries), "until")


async def test_what_is_acknowledged_is_in_the_store(tmp_path: Path) -> None:
    """Asked through another connection to it, while the model hasn't said anything yet."""
    gate = Gate()
    async with serving(SQLiteStore(tmp_path / "s.db"), FakeModel(gate)) as (client, _):
        await start(client, "a", "first")
        await gate.reached(1)
        seq = (await client.post("/conversations/a/messages", message="second")).json()["seq"]
        async with SQLiteStore(tmp_path / "s.db") as other:
            saved = await other.read("a")
        gate.open()

    assert b'"second"' in saved[seq]


async def test_a_message_sent_again_with_its_key_is_there_once(tmp_path: Path) -> None:
    async with serving(SQLiteStore(tmp_path / "s.db")) as (client, _):
        first = [await client.post("/conversations", key="1", id="a", message="hello") for _ in range(3)]
        path = "/conversations/a/messages"
        second = [await client.post(path, key="2", message="more") for _ in range(3)]
        other = await client.post(path, key="2", message="other")
        await answered(client, "a")
    async with serving(SQLiteStore(tmp_path / "s.db")) as (client, _):  # a new process knows the keys, too
        second.append(await client.post(path, key="2", message="more"))
        entries = await client.history("a")

    assert {answer.status_code for answer in first + second} == {202}
    assert len({answer.json()["seq"] for answer in first}) == len({answer.json()["seq"] for answer in second}) == 1
    assert [entry["text"] for entry in entries if entry["kind"] == "user"] == ["hello", "more"]
    assert other.status_code == 422
    assert "take a new one for each" in other.json()["error"]


async def test_a_message_sent_many_times_at_once_is_there_once(tmp_path: Path) -> None:
    answers: list[httpx.Response] = []
    async with serving(SQLiteStore(tmp_path / "s.db")) as (client, _):

        async def post() -> None:
            answers.append(await client.post("/conversations", key="1", id="a", message="hello"))

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(post)
        await answered(client, "a")
        entries = await client.history("a")

    assert [answer.status_code for answer in answers] == [202] * 8
    assert [entry["kind"] for entry in entries].count("user") == 1


async def test_a_message_that_comes_during_a_run_is_taken_up_by_it() -> None:
    gate = Gate()
    async with serving(MemoryStore(), FakeModel(gate)) as (client, _):
        await start(client, "a", "one")
        await gate.reached(1)
        accepted = await client.post("/conversations/a/messages", message="two")
        gate.open()
        said = await answered(client, "a")
        kinds = [entry["kind"] for entry in await client.history("a")]

    assert accepted.status_code == 202
    assert gate.asked == [["one"], ["one", "two"]]
    assert said == "re: two"
    assert kinds.count("run_start") == 1


async def test_a_message_that_comes_in_the_turn_that_stops_a_run_is_answered_by_the_next() -> None:
    """The run stops at a question, after the model was asked and before it has seen the message."""
    gate = Gate()
    model = FakeModel([gated(gate, tool_call("refund", order=7)), lambda request: f"re: {request.messages[-1].text}"])
    async with serving(MemoryStore(), model) as (client, _):
        await start(client, "a", "please refund order 7")
        await gate.reached(1)
        accepted = await client.post("/conversations/a/messages", message="are you there?")
        gate.open()
        said = await answered(client, "a")

    assert accepted.status_code == 202
    assert said == "re: are you there?"


def gated(gate: Gate, item: ToolCall) -> Callable[[Request], Awaitable[ToolCall]]:
    """Return an answer that waits at the gate first."""

    async def respond(request: Request) -> ToolCall:
        await gate(request)
        return item

    return respond


async def test_so_many_run_at_once_and_the_others_wait_for_their_turn() -> None:
    gate = Gate()
    names = [f"c{number}" for number in range(6)]
    async with serving(MemoryStore(), FakeModel(gate), at_once=2) as (client, _):
        for name in names:
            await start(client, name)
        await gate.reached(2)
        running = [(await client.get(f"/conversations/{name}"))["running"] for name in names]
        gate.open()
        for name in names:
            await answered(client, name)

    assert all(running)
    assert gate.most_at_work == 2


async def test_a_client_that_goes_away_stops_nothing() -> None:
    gate = Gate()
    async with serving(MemoryStore(), FakeModel(gate)) as (client, _):
        await start(client, "a")
        await client.until("a", "model_request")  # and hangs up
        gate.open()
        said = await answered(client, "a")

    assert said == "re: hello"


async def test_a_cancelled_run_stays_cancelled_until_the_next_message() -> None:
    gate = Gate()
    store = MemoryStore()
    async with serving(store, FakeModel(gate)) as (client, _):
        await start(client, "a", "one")
        await gate.reached(1)
        cancelled = await client.post("/conversations/a/cancel")
        again = await client.post("/conversations/a/cancel")
        await client.until("a", "error")
    async with serving(store, FakeModel(gate)) as (client, _):  # nor does the next process run it
        await client.get("/approvals")  # it has looked at all of them by then
        resting = await client.get("/conversations/a")
        gate.open()
        await client.post("/conversations/a/messages", message="two")
        said = await answered(client, "a")

    assert cancelled.json() == {"cancelled": True}
    assert again.json() == {"cancelled": False}
    assert not resting["running"]
    assert gate.asked == [["one"], ["one", "two"]]
    assert said == "re: two"


async def test_a_run_that_fails_waits_for_the_next_message_and_its_error_is_named_without_its_text() -> None:
    model = FakeModel([ProviderError("the key sk-123 is wrong"), "back again"])
    async with serving(MemoryStore(), model) as (client, _):
        await start(client, "a")
        failed = (await client.until("a", "error"))[-1].data
        other = await start(client, "b")
        await answered(client, "b")
        entries = await client.history("a")

    assert failed["error"] == "ProviderError"
    assert "sk-123" not in str(entries)
    assert other == 0


async def test_the_list_comes_in_pages_the_newest_first() -> None:
    async with serving(MemoryStore()) as (client, _):
        for number in range(5):
            await start(client, f"c{number}", f"message {number}")
        pages: list[Any] = []
        before: dict[str, str] = {}
        while True:
            page = await client.get("/conversations", limit=2, **before)
            pages.append([info["id"] for info in page["conversations"]])
            if page["next_before"] is None:
                break
            before = {"before": page["next_before"]}

    assert pages == [["c4", "c3"], ["c2", "c1"], ["c0"]]


async def test_a_history_comes_in_pages() -> None:
    async with serving(MemoryStore()) as (client, _):
        await start(client, "a")
        await answered(client, "a")
        whole = await client.history("a")
        page = await client.get("/conversations/a/history", after=1, limit=2)

    assert [entry["seq"] for entry in page["entries"]] == [1, 2]
    assert page["next_after"] == 3
    assert page["entries"] == whole[1:3]


async def test_a_finished_conversation_takes_no_message() -> None:
    async with serving(MemoryStore()) as (client, _):
        await start(client, "a")
        await answered(client, "a")
        finished = await client.post("/conversations/a/finish")
        refused = await client.post("/conversations/a/messages", message="more")
        events = await client.http.get("/conversations/a/events", headers={"Last-Event-ID": "1000"})

    assert finished.json()["finished"]
    assert refused.status_code == 409
    assert "POST /conversations begins another" in refused.json()["error"]
    assert events.status_code == 204  # so an EventSource doesn't come back


JSON = {"Content-Type": "application/json"}
LONG = JSON | {"Idempotency-Key": "k" * 201}


@pytest.mark.parametrize(
    ("method", "path", "content", "headers", "status", "says"),
    [
        ("GET", "/nothing", b"", {}, 404, "GET /conversations is a beginning"),
        ("PUT", "/conversations", b"", {}, 405, "PUT isn't for /conversations"),
        ("GET", "/conversations/b", b"", {}, 404, "no such conversation"),
        ("GET", "/conversations/b%20d", b"", {}, 404, "no such conversation"),
        ("GET", "/conversations/b/events", b"", {}, 404, "no such conversation"),
        ("POST", "/conversations/b/messages", b'{"message": "x"}', JSON, 404, "no such conversation"),
        ("POST", "/conversations", b'{"id": "a", "message": "x"}', JSON, 409, "POST /conversations/a/messages"),
        ("POST", "/conversations", b'{"id": "b d", "message": "x"}', JSON, 422, "letters, digits, _ and -"),
        ("POST", "/conversations", b'{"message": "x"}', JSON | {"Idempotency-Key": "k"}, 422, "choose the id"),
        ("POST", "/conversations/a/messages", b"message=x", {}, 415, "Content-Type: application/json"),
        ("POST", "/conversations/a/messages", b"{", JSON, 422, 'send {"message": "..."}'),
        ("POST", "/conversations/a/messages", b"[]", JSON, 422, 'send {"message": "..."}'),
        ("POST", "/conversations/a/messages", b"\xff", JSON, 422, "no JSON"),
        ("POST", "/conversations/a/messages", b"[" * 60_000, JSON, 422, "no JSON"),
        ("POST", "/conversations/a/messages", b'{"text": "x"}', JSON, 422, 'send {"message": "..."}'),
        ("POST", "/conversations/a/messages", b'{"message": " "}', JSON, 422, "isn't blank"),
        ("POST", "/conversations/a/messages", b'{"message": 1}', JSON, 422, "must be a text"),
        (
            "POST",
            "/conversations/a/messages",
            b'{"message": "x"}',
            JSON | {"Idempotency-Key": "k" * 201},
            422,
            "1 to 200",
        ),
        ("POST", "/conversations/a/messages", b" " * 70_000, JSON, 413, "65536 bytes"),
        ("GET", "/conversations?limit=101", b"", {}, 422, "limit must be a number from 1 to 100"),
        ("GET", "/conversations?before=b", b"", {}, 404, "no such conversation"),
        ("GET", "/conversations/a/history?after=x", b"", {}, 422, "after must be a number"),
        ("GET", "/conversations/a/events", b"", {"Last-Event-ID": "x"}, 422, "the last event that you have"),
        ("GET", "/conversations/a/history?limit=0", b"", {}, 422, "limit must be a number from 1 to 1000"),
        ("GET", "/conversations/a/events", b"", {"Last-Event-ID": "-1"}, 422, "the last event that you have"),
        ("GET", "/conversations/a/events", b"", {"Last-Event-ID": "1000"}, 422, "none of a's: the last event is"),
        ("POST", "/conversations/a/approvals/x", b'{"answer": "yes"}', JSON, 404, "GET /approvals lists them"),
    ],
)
async def test_a_mistake_is_answered_with_what_is_right(
    method: str, path: str, content: bytes, headers: dict[str, str], status: int, says: str
) -> None:
    async with serving(MemoryStore()) as (client, _):
        await start(client, "a")
        answer = await client.http.request(method, path, content=content, headers=headers)

    assert answer.status_code == status, answer.text
    assert says in answer.json()["error"]


@pytest.mark.parametrize(
    ("path", "content_type"),
    [
        ("/conversations/a/cancel", "application/json"),
        ("/conversations/b/messages", "application/json"),
        ("/conversations/a/messages", "text/plain"),
    ],
)
async def test_a_request_whose_body_comes_late_is_answered_when_it_is_there_and_keeps_its_connection(
    path: str, content_type: str
) -> None:
    """Also where the answer doesn't depend on the body: a server that answers before has to hang up."""
    head = f"POST {path} HTTP/1.1\r\nHost: service\r\nContent-Type: {content_type}\r\nContent-Length: 2\r\n\r\n"
    async with serving(MemoryStore()) as (client, _):
        await start(client, "a")
        url = client.http.base_url
        async with await trio.open_tcp_stream(url.host, url.port or 0) as stream:
            await stream.send_all(head.encode())
            await client.get("/health")
            await stream.send_all(b"{}")
            got = b""
            with trio.fail_after(60):
                while b"}\n" not in got:
                    got += await stream.receive_some()
                await stream.send_all(b"GET /health HTTP/1.1\r\nHost: service\r\n\r\n")
                answer = await stream.receive_some()

    assert answer.startswith(b"HTTP/1.1 200")


async def test_health_is_ok_until_it_stops_and_then_lets_nobody_in() -> None:
    """Without a server around it: that would have closed the connection, unless a request is under way."""
    service = Service(MemoryStore(), partial(desk, FakeDesk(0)))
    transport = httpx.ASGITransport(make_app(service))
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as http:
        before = await http.get("/health")
        service.stopping.set()
        after = await http.get("/health")

    assert before.json() == {"status": "ok"}
    assert after.status_code == 503
    assert (after.headers["retry-after"], after.headers["connection"]) == ("1", "close")

"""The example service, in the test's own trio run or as a process, behind a real socket."""

from __future__ import annotations

import logging
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import httpx
import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from hypercorn.typing import Framework

from alpineagents import Model, Request, Store
from examples.service.app import make_app
from examples.service.client import Event, Events, open_events
from examples.service.desk import desk
from examples.service.fake_model import FakeDesk
from examples.service.service import Service

ROOT = Path(__file__).parents[2]


class Gate:
    """A model's answers, each of which waits until it is let through."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.at_work = 0
        self.most_at_work = 0
        self._opened = trio.Event()
        self._knocks = trio.Event()

    async def __call__(self, request: Request) -> str:
        """Wait, and answer with the last message."""
        texts = [message.text for message in request.messages if message.role == "user"]
        self.asked.append(texts)
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        self._knocks.set()
        self._knocks = trio.Event()
        try:
            await self._opened.wait()
        finally:
            self.at_work -= 1
        return f"re: {texts[-1]}"

    def open(self) -> None:
        """Let all through, from now on."""
        self._opened.set()

    async def reached(self, count: int) -> None:
        """Wait until so many requests have come."""
        with trio.fail_after(60):
            while len(self.asked) < count:
                await self._knocks.wait()


class Client:
    """Somebody who uses the service."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def post(self, path: str, key: str | None = None, **body: str) -> httpx.Response:
        """Post a JSON object."""
        return await self.http.post(path, json=body, headers={} if key is None else {"Idempotency-Key": key})

    async def get(self, path: str, **query: object) -> Any:
        """Get an answer's JSON."""
        answer = await self.http.get(path, params=cast("Any", query))
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def history(self, name: str) -> list[dict[str, Any]]:
        """A whole history."""
        found: list[dict[str, Any]] = (await self.get(f"/conversations/{name}/history"))["entries"]
        return found

    @asynccontextmanager
    async def events(self, name: str, last: int | None = None) -> AsyncIterator[Events]:
        """Follow a conversation."""
        async with open_events(str(self.http.base_url).rstrip("/"), name, last) as events:
            assert events.status == 200
            yield events

    async def until(self, name: str, kind: str, last: int | None = None, *, comes_back: bool = False) -> list[Event]:
        """Return the events up to the first of a kind.

        *comes_back*: as a browser does, when the stream ends because the State was loaded anew meanwhile.
        """
        found: list[Event] = []
        with trio.fail_after(60):
            while True:
                async with self.events(name, last) as events:
                    while (event := await events.next()) is not None:
                        found.append(event)
                        if event.kind == kind:
                            return found
                        last = last if event.id is None else event.id
                if not comes_back:
                    raise AssertionError(f"the stream ended: {found}")


@asynccontextmanager
async def client_of(address: str) -> AsyncIterator[Client]:
    """Yield a client of a service."""
    async with httpx.AsyncClient(base_url=address, timeout=60, trust_env=False) as http:
        yield Client(http)


@asynccontextmanager
async def serving(store: Store, model: Model | None = None, **options: Any) -> AsyncIterator[tuple[Client, Service]]:
    """Run the service in the test's trio run while the block lasts; then it stops as by a signal."""
    service = Service(store, partial(desk, model or FakeDesk(0)), **options)
    config = Config()
    config.bind = [f"fd://{socket.create_server(('127.0.0.1', 0)).detach()}"]
    config.errorlog = logging.getLogger("hypercorn")
    app = cast("Framework", make_app(service))
    async with trio.open_nursery() as nursery:
        start = partial(serve, app, config, shutdown_trigger=service.stopping.wait)
        (address,) = await nursery.start(start)
        try:
            async with client_of(address) as client:
                yield client, service
        finally:
            service.stopping.set()


class Process:
    """The service as a process of its own."""

    def __init__(self, process: trio.Process, said: str) -> None:
        self.process = process
        self.said = said
        """What it has printed: lines to try."""
        self.address = said.partition("listens at ")[2].partition(",")[0]

    async def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Send it a signal and return its exit code."""
        self.process.send_signal(how)
        return await self.process.wait()


@asynccontextmanager
async def process(store: str, *options: str) -> AsyncIterator[Process]:
    """Start it, on a free port; at the end of the block it is killed if it still runs."""
    command = [sys.executable, "-W", "error", "-m", "examples.service", "--port", "0", "--store", store, *options]
    child = await trio.lowlevel.open_process(command, cwd=ROOT, stdout=subprocess.PIPE)
    assert child.stdout is not None
    try:
        said = b""
        with trio.fail_after(60):
            while b"Ctrl+C" not in said:
                chunk = await child.stdout.receive_some()
                assert chunk, "the service doesn't start"
                said += chunk
        yield Process(child, said.decode())
    finally:
        with trio.CancelScope(shield=True):
            if child.returncode is None:
                child.kill()
            await child.wait()
            await child.stdout.aclose()


async def answered(client: Client, name: str, *, comes_back: bool = False) -> str:
    """Wait for a reply without calls behind the last message, and return it; *comes_back* as in ``until``."""
    last: int | None = None
    with trio.fail_after(60):
        while True:
            events = await client.until(name, "stop", last, comes_back=comes_back)
            last = events[-1].id
            entries = await client.history(name)
            asked = max([entry["seq"] for entry in entries if entry["kind"] in ("user", "notice")])
            replies = [entry for entry in entries[asked:] if entry["kind"] == "model_reply" and not entry["calls"]]
            if replies:
                return str(replies[-1]["text"])


async def start(client: Client, name: str, text: str = "hello") -> int:
    """Begin a conversation; return the message's seq."""
    answer = await client.post("/conversations", id=name, message=text)
    assert answer.status_code == 202, answer.text
    return int(answer.json()["seq"])

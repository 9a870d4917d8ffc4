"""examples/fastapi_app.py on uvicorn, in a process of its own, over HTTP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from .kit import LONG, ROOT

SERVED = """
import uvicorn
from alpineagents import SQLiteStore, tool
from alpineagents.testing import FakeModel
from fastapi_app import create_app

async def answer(request):
    last = request.messages[-1].text
    if last == "fail":
        raise ValueError("a secret")
    if last == "wait":
        await trio.sleep_forever()
    return f"{len(request.messages)} messages, last: {last}"

import socket, trio
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
app = create_app(FakeModel(answer), SQLiteStore("chats.db"))
config = uvicorn.Config(app, ws="none", log_level="error", timeout_graceful_shutdown=1)
uvicorn.Server(config).run([listening])
"""


@contextmanager
def service(folder: Path, logged: str = "") -> Iterator[httpx.Client]:
    """Start it, and stop it by SIGTERM, as a service manager does."""
    server = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", SERVED],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'examples'}{os.pathsep}{ROOT}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        assert port, server.communicate()[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=LONG) as client:
            yield client
        server.send_signal(signal.SIGTERM)
        _, errors = server.communicate(timeout=LONG)
    finally:
        server.kill()
        server.communicate()
    assert errors.rstrip().endswith(logged) if logged else not errors
    assert server.returncode == -signal.SIGTERM


def events(client: httpx.Client, chat: str, count: int, after: int | None = None) -> list[tuple[int, dict[str, str]]]:
    """Return the next *count* events."""
    found: list[tuple[int, dict[str, str]]] = []
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    with client.stream("GET", f"/chat/{chat}/events", headers=headers) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        number = -1
        for line in response.iter_lines():
            if line.startswith("id: "):
                number = int(line[4:])
            if line.startswith("data: "):
                found.append((number, json.loads(line[6:])))
            if len(found) == count:
                break
    return found


@pytest.mark.slow
def test_a_chat_is_held_followed_and_gone_on_with_after_a_restart(tmp_path: Path):
    with service(tmp_path) as client:
        begun = client.post("/chat", json={"text": "Hello"})
        chat = begun.json()["id"]
        first = events(client, chat, 2)
        client.post(f"/chat/{chat}", json={"text": "More"})
        second = events(client, chat, 2, after=first[-1][0])
        assert client.post("/chat/unknown", json={"text": "Hello"}).status_code == 404
        assert client.post(f"/chat/{chat}", json={"text": "wait"}).status_code == 202
    with service(tmp_path) as client:
        client.post(f"/chat/{chat}", json={"text": "Again"})
        everything = events(client, chat, 8)

    assert begun.status_code == 202
    assert [data for _, data in first] == [{"user": "Hello"}, {"model_reply": "1 messages, last: Hello"}]
    assert [data for _, data in second] == [{"user": "More"}, {"model_reply": "3 messages, last: More"}]
    assert everything[:4] == first + second
    assert [data for _, data in everything[4:]] == [
        {"user": "wait"},
        {"error": "try again"},
        {"user": "Again"},
        {"model_reply": "6 messages, last: Again"},
    ]


@pytest.mark.slow
def test_what_cannot_be_answered_is_told_and_goes_to_the_log(tmp_path: Path):
    with service(tmp_path, "ValueError: a secret") as client:
        assert client.post("/chat", json={"text": " "}).status_code == 422
        chat = client.post("/chat", json={"text": "fail"}).json()["id"]
        assert [data for _, data in events(client, chat, 2)] == [{"user": "fail"}, {"error": "try again"}]
        client.post(f"/chat/{chat}", json={"text": "Hello"})
        assert events(client, chat, 4)[-1][1] == {"model_reply": "2 messages, last: Hello"}


@pytest.mark.slow
def test_a_client_that_goes_away_stops_nothing(tmp_path: Path):
    with service(tmp_path) as client:
        chat = client.post("/chat", json={"text": "Hello"}).json()["id"]
        events(client, chat, 1)
        rest = events(client, chat, 2)

    assert rest[1][1] == {"model_reply": "1 messages, last: Hello"}

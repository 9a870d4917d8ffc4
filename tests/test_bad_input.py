"""What goes wrong at the edges gives one clear error that names the thing and the fix, and loses nothing recorded."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest
import trio

from alpineagents import (
    Agent,
    AuthError,
    CorruptStoreError,
    FileStore,
    Message,
    ModelNotFoundError,
    OpenAICompatible,
    ProviderError,
    State,
    StoreError,
)
from alpineagents.testing import FakeModel, Fault, ProviderServer

from .states import assert_replays

QUICKSTART = Path(__file__).parents[1] / "examples" / "quickstart.py"


def closed_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


async def failed_run(model: OpenAICompatible, error: type[ProviderError]) -> tuple[str, State]:
    state = State(messages=[Message.user("hello")])
    with pytest.raises(error) as caught:
        await Agent(model=model).run(state)
    assert state.turn == 0
    assert [entry.kind for entry in state.history] == ["context_change", "run_start", "model_request", "error"]
    assert_replays(state)
    assert await Agent(model=FakeModel(["hi"])).run(state) == "hi"
    return str(caught.value), state


def test_a_url_that_is_none_is_refused_when_the_model_is_made():
    with pytest.raises(ValueError, match=r"localhost:8080.*http://127\.0\.0\.1:8080/v1"):
        OpenAICompatible("m", base_url="localhost:8080")


async def test_a_refused_connection_names_the_url_and_asks_whether_the_server_runs():
    url = f"http://127.0.0.1:{closed_port()}/v1"
    message, _ = await failed_run(OpenAICompatible("m", base_url=url, retries=0), ProviderError)
    assert url in message
    assert "running" in message


async def test_a_url_that_is_not_the_apis_names_the_url():
    async with ProviderServer([Fault(status=404, body="<html>Not Found</html>")]) as server:
        wrong = server.base_url.removesuffix("/v1") + "/api"
        message, _ = await failed_run(OpenAICompatible("m", base_url=wrong), ModelNotFoundError)
    assert wrong in message


async def test_a_401_names_the_server_and_the_key_to_set_but_not_the_key():
    async with ProviderServer(["hi"], api_key="right-key-1234567") as server:
        model = OpenAICompatible("m", base_url=server.base_url, api_key="wrong-key-7654321")
        message, state = await failed_run(model, AuthError)
    assert "api_key" in message
    assert "7654321" not in message + str(state) + repr(list(state.history))


async def test_a_404_names_the_model():
    async with ProviderServer([Fault(status=404)]) as server:
        message, _ = await failed_run(OpenAICompatible("no-such-model", base_url=server.base_url), ModelNotFoundError)
    assert "no-such-model" in message


async def test_a_folder_that_cannot_be_written_is_named_and_the_state_stays_whole(tmp_path: Path):
    (tmp_path / "file").write_text("not a folder")
    folder = tmp_path / "file" / "states"
    state = State(messages=[Message.user("hello")])

    with pytest.raises(StoreError, match=str(folder)):
        await Agent(model=FakeModel(["hi"]), store=FileStore(folder)).run(state)

    assert_replays(state)
    good = FileStore(tmp_path / "states")
    assert await Agent(model=FakeModel(["hi"]), store=good).run(state) == "hi"
    assert (await good.load(state.id)).snapshot() == state.snapshot()


async def test_a_broken_saved_file_names_file_and_line_and_is_left_as_it_is(tmp_path: Path):
    store = FileStore(tmp_path)
    state = State(id="chat", messages=[Message.user("hello")])
    await Agent(model=FakeModel(["hi"]), store=store).run(state)
    log = tmp_path / "chat.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    broken = b"".join([lines[0], b"#!\n", *lines[2:]])
    log.write_bytes(broken)

    with pytest.raises(CorruptStoreError, match=r"chat\.jsonl") as caught:
        await FileStore(tmp_path).load("chat")

    assert "line 2" in str(caught.value)
    assert log.read_bytes() == broken


@pytest.mark.parametrize("case", ["refused", "not found", "no folder", "broken file"])
async def test_the_demo_prints_one_line_that_names_the_thing_and_exits_with_1(case: str, tmp_path: Path):
    async with ProviderServer([Fault(status=404)]) as server:
        (tmp_path / "file").write_text("x")
        (tmp_path / "chat.jsonl").write_text("{}\n")
        url = f"http://127.0.0.1:{closed_port()}/v1" if case == "refused" else server.base_url
        store = tmp_path / "file" / "s" if case == "no folder" else tmp_path
        resume = ["--resume", "chat"] if case == "broken file" else []
        done = await trio.run_process(
            [sys.executable, QUICKSTART, "--model", "qwen9", "--base-url", url, "--store", store, *resume],
            env={**os.environ, "OPENAI_API_KEY": "sk-secret-123456"},
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
    named = {"refused": url, "not found": "qwen9", "no folder": str(store), "broken file": "chat.jsonl"}[case]
    error = done.stderr.decode()

    assert done.returncode == 1
    assert error.startswith("error: ")
    assert named in error
    assert len(error.strip().splitlines()) == 1
    assert "Traceback" not in error
    assert "sk-secret" not in error + done.stdout.decode()

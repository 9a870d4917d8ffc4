"""``alpineagents doctor``: is everything there that a run needs."""

from __future__ import annotations

import re
import sys
import tomllib
from functools import partial
from importlib import metadata

import pytest
import trio

from alpineagents import FileStore, MemoryStore
from alpineagents.cli import _doctor
from alpineagents.testing import Fault, ProviderServer

from ..stores.postgres import cluster
from .program import COMMAND, ROOT, environment

__all__ = ["cluster"]  # the fixture

SECRET = "sk-proj-0123456789abcdef"


def marks(out: str) -> dict[str, str]:
    """The lines by what they begin with, each under its text."""
    return {line[4:]: line[:2] for line in out.splitlines()}


def test_with_a_key_and_a_store_all_is_well(here, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("ALPINEAGENTS_MODEL", "gpt-5")

    code, out, err = here("doctor", "--offline")

    found = marks(out)
    assert (code, err) == (0, "")
    assert set(found.values()) == {"ok", "--"}
    assert f"trio {metadata.version('trio')}" in out
    assert found["OPENAI_API_KEY is set"] == "ok"
    assert found["ANTHROPIC_API_KEY is not set"] == "--"
    assert found["ALPINEAGENTS_MODEL names the default model: openai/gpt-5"] == "ok"
    assert found["api.openai.com was not tried (--offline)"] == "--"
    assert found[f"the store {here.states} can be written"] == "ok"
    assert trio.run(FileStore(here.states).list) == []


def test_no_part_of_a_key_is_shown(here, monkeypatch):
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.setenv(name, SECRET)

    out = "".join(here("doctor", "--offline")[1:])

    assert not any(SECRET[at : at + 4] in out for at in range(len(SECRET) - 3))


def test_a_server_that_is_not_there_is_named(here, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")

    code, out, _ = here("doctor")

    assert code == 1
    assert "!!  127.0.0.1:1 can't be reached: " in out


def test_without_anybody_to_ask_it_says_what_to_set(here):
    code, out, _ = here("doctor")

    assert code == 1
    assert "!!  there is no provider to ask: set ANTHROPIC_API_KEY or " in out


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("OPENAI_API_KEY", "two\nlines-of-a-key", "OPENAI_API_KEY: api_key has characters that no key has"),
        ("ALPINEAGENTS_MODEL", "nobody/nothing", "ALPINEAGENTS_MODEL: unknown model 'nobody/nothing'"),
        ("OPENAI_BASE_URL", "not a url", "base_url"),
    ],
)
def test_a_setting_that_is_wrong_is_named(here, monkeypatch, name, value, said):
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    monkeypatch.setenv(name, value)

    code, out, _ = here("doctor", "--offline")

    assert code == 1
    (line,) = [line for line in out.splitlines() if line.startswith("!!")]
    assert said in line
    assert "lines-of" not in out


def test_a_store_that_can_not_be_written_is_named(here, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    (here.home / "file").write_text("x")

    code, out, _ = here("doctor", "--offline", "--store", "file/states")

    assert code == 1
    assert "!!  the store file/states can't be written: " in out
    assert out.rstrip().endswith("; name another with --store")


def test_a_password_in_the_name_of_a_store_is_not_shown(here, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)

    code, out, _ = here("doctor", "--offline", "--store", "postgresql://me:hidden@127.0.0.1:1/app")

    assert code == 1
    assert "!!  the store 127.0.0.1:1/app can't be written" in out
    assert "hidden" not in out


@pytest.mark.slow
def test_a_database_is_tried_too(here, monkeypatch, cluster):
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    cluster.sql("CREATE DATABASE doctor")

    code, out, _ = here("doctor", "--offline", "--store", f"postgresql://postgres@127.0.0.1:{cluster.port}/doctor")

    assert (code, out.splitlines()[-1].startswith("ok")) == (0, True)


async def test_a_provider_that_does_not_answer_is_given_up(autojump_clock):
    async def hang(stream):
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, hang, 0, host="127.0.0.1"))
        port = listener.socket.getsockname()[1]
        finding = await _doctor._reached(f"http://127.0.0.1:{port}")
        nursery.cancel_scope.cancel()

    assert finding.how == "bad"
    assert finding.text.endswith(" did not answer in 5 s; is the network, or the server, up?")


async def test_a_store_that_does_not_answer_is_given_up(autojump_clock, monkeypatch):
    class Hanging(MemoryStore):
        async def append(self, *args):
            await trio.sleep_forever()

    monkeypatch.setattr(_doctor, "open_store", lambda where: Hanging())

    assert (await _doctor._written("runs")).text == "the store runs did not answer in 15 s"


async def test_a_provider_is_reached_whatever_it_answers_and_without_a_key(home):
    async with ProviderServer([Fault(status=500)]) as server:
        done = await trio.run_process(
            [*COMMAND, "doctor"],
            env=environment(home, OPENAI_BASE_URL=server.base_url, OPENAI_API_KEY=SECRET),
            capture_stdout=True,
            check=False,
        )

    out = done.stdout.decode()
    assert re.search(rf"ok  {server.origin.removeprefix('http://')} answers \(\d\.\d\d s, HTTP \d+\)", out), out
    assert all(SECRET not in str(request) for request in server.requests)
    assert done.returncode == 0


async def test_an_answer_and_a_connection_that_is_refused():
    async with ProviderServer([Fault(status=500)]) as server:
        finding = await _doctor._reached(server.base_url)
        assert (finding.how, finding.text.partition(" (")[0]) == (
            "good",
            f"{server.origin.removeprefix('http://')} answers",
        )

    finding = await _doctor._reached(server.base_url)
    assert finding.how == "bad"
    assert finding.text.endswith("; look at the network, HTTPS_PROXY and the URL")


async def test_a_provider_that_can_not_be_reached_is_bad(home):
    async with ProviderServer() as server:
        url = server.base_url
    done = await trio.run_process(
        [*COMMAND, "doctor"],
        env=environment(home, OPENAI_BASE_URL=url),
        capture_stdout=True,
        check=False,
    )

    assert done.returncode == 1
    assert f"!!  {url.split('/')[2]} can't be reached: ".encode() in done.stdout


def test_the_packages_are_those_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    def names(requirements):
        return {re.match(r"[\w-]+", requirement)[0] for requirement in requirements}

    assert set(_doctor._NEEDED) == names(project["dependencies"])
    extras = {name: names(packages) for name, packages in project["optional-dependencies"].items()}
    assert extras.pop("http2") == {"httpx"}
    assert extras == {name: set(packages) for name, packages in _doctor._EXTRAS.items() if name != "http2"}


def test_what_is_not_installed_is_said_with_how_to_install_it(here, monkeypatch):
    def version(name):
        if name in ("mcp", "h2", "alpineagents"):
            raise metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(_doctor, "version", version)

    out = here("doctor", "--offline")[1]

    assert "--  alpineagents is run from its source\n" in out
    assert "--  extra mcp is not installed; where you want it: pip install mcp\n" in out
    assert f"Python {sys.version.split()[0]}" in out

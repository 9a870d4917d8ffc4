"""test_live.py doesn't rot: what it would ask of real providers is asked of scripted ones, over its own way.

By what says where the providers are: the keys and the base URLs in the environment.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio

from alpineagents.testing import ProviderServer, tool_call
from tests.models import every, test_live
from tests.models.every import ANTHROPIC, KEY, PROVIDERS, Provider, by_id
from tests.models.every_case import ANSWERS, CASES, ELSEWHERE, case_script

ROOT = Path(__file__).parents[2]
EASY = "text_comes_in_pieces_that_are_the_answer"

each_provider = pytest.mark.parametrize("provider", PROVIDERS, ids=by_id)


def environment_at(server: ProviderServer) -> dict[str, str]:
    """The keys of all providers, and where they are."""
    keys = {provider.key_variable: KEY for provider in PROVIDERS}
    urls = dict.fromkeys(("ANTHROPIC_BASE_URL", "GEMINI_BASE_URL"), server.origin)
    return {**keys, **urls, "OPENAI_BASE_URL": server.base_url}


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that makes a server what the environment means."""

    def set_all(server: ProviderServer) -> None:
        for name, value in environment_at(server).items():
            monkeypatch.setenv(name, value)
            monkeypatch.setitem(every.ENVIRONMENT, name, value)

    return set_all


@pytest.mark.parametrize("name", CASES)
@each_provider
async def test_each_case_runs(provider: Provider, name: str, at: Any) -> None:
    async with ProviderServer(case_script(name), api_key=KEY) as server:
        at(server)
        await test_live.test_case(provider, name)

    assert server.requests or (name == "a_text_can_end_the_reply" and not provider.stops)


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("how", ["native", "tool", "prompt"])
@each_provider
async def test_each_question_runs(provider: Provider, how: str, kind: str, at: Any) -> None:
    written = ANSWERS[kind][3]
    by_tool = how == "tool" or (provider is ANTHROPIC and kind == "dict" and how == "native")
    text = "Paris" if written is None else json.dumps(written)
    answer = tool_call("give_answer", **written) if by_tool and written is not None else text
    async with ProviderServer([answer], api_key=KEY) as server:
        at(server)
        await test_live.test_ask_gets_its_type(provider, how, kind)

    assert len(server.requests) == 1


@pytest.mark.filterwarnings("ignore::alpineagents.ResumeWarning")
@pytest.mark.parametrize(("first", "second"), list(pairwise((*PROVIDERS, PROVIDERS[0]))))
async def test_each_change_of_provider_runs(first: Provider, second: Provider, at: Any) -> None:
    async with ProviderServer(ELSEWHERE, api_key=KEY) as server:
        at(server)
        await test_live.test_a_conversation_goes_from_one_to_another_between_calls_and_results(first, second)

    assert len(server.requests) == len(ELSEWHERE)


async def test_the_command_runs_them() -> None:
    """As a person would say it, with the keys set."""
    async with ProviderServer(case_script(EASY) * len(PROVIDERS), api_key=KEY) as server:
        command = [sys.executable, "-m", "pytest", "-q", "-m", "live", "tests/models/test_live.py", "-k", EASY]
        run = await trio.run_process(
            command, cwd=ROOT, env={**os.environ, **environment_at(server)}, capture_stdout=True, check=False
        )

    told = run.stdout.decode()
    assert run.returncode == 0, told
    assert f"{len(PROVIDERS)} passed" in told
    assert len(server.requests) == len(PROVIDERS)


def test_without_keys_all_are_skipped_and_say_which_key_is_missing() -> None:
    without = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "live", "tests/models/test_live.py"],
        cwd=ROOT,
        env=without,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert run.returncode == 0, run.stdout
    assert "passed" not in run.stdout
    for provider in PROVIDERS:
        assert f"not in the environment: {provider.key_variable}" in run.stdout

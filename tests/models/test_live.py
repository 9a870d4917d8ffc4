"""The cases of every provider against the real ones: ``pytest -m live``. It costs some cents; off by default.

Each provider is skipped unless its key is in the environment (ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY). Its
model is a small one, or what LIVE_ANTHROPIC_MODEL, LIVE_OPENAI_MODEL, LIVE_CHAT_MODEL or LIVE_GOOGLE_MODEL names.
"""

from __future__ import annotations

from itertools import chain, permutations
from typing import Any

import pytest

from alpineagents import Agent
from tests.models.every import ENVIRONMENT, PROVIDERS, Provider, by_id
from tests.models.every_case import ANSWERS, CASES, Tools, asked, goes_on_elsewhere

pytestmark = pytest.mark.live

FROM_OUTSIDE = (
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "GEMINI_BASE_URL"),
)


@pytest.fixture(autouse=True)
def environment(no_settings_from_outside: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What says how to reach the providers is as it was; other tests want none of it."""
    for name in chain.from_iterable((name, name.lower()) for name in FROM_OUTSIDE):
        if name in ENVIRONMENT:
            monkeypatch.setenv(name, ENVIRONMENT[name])


def with_key(*providers: Provider) -> Any:
    """A parameter, skipped where a key is missing."""
    missing = sorted({each.key_variable for each in providers if not each.live_key})
    skip = pytest.mark.skipif(bool(missing), reason=f"not in the environment: {', '.join(missing)}")
    return pytest.param(*providers, id="-to-".join(map(by_id, providers)), marks=skip)


each_provider = pytest.mark.parametrize("provider", [with_key(each) for each in PROVIDERS])
each_pair = pytest.mark.parametrize(("first", "second"), [with_key(*pair) for pair in permutations(PROVIDERS, 2)])


@pytest.mark.parametrize("name", CASES)
@each_provider
async def test_case(provider: Provider, name: str) -> None:
    await CASES[name].run(provider.live, provider)


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("how", ["native", "tool", "prompt"])
@each_provider
async def test_ask_gets_its_type(provider: Provider, how: str, kind: str) -> None:
    await asked(lambda **options: provider.live(structured=how, **options), kind)


@each_pair
@pytest.mark.filterwarnings("ignore::alpineagents.ResumeWarning")
async def test_a_conversation_goes_from_one_to_another_between_calls_and_results(
    first: Provider, second: Provider
) -> None:
    await goes_on_elsewhere(
        Agent(model=first.live(**first.thinking), tools=[Tools()]),
        Agent(model=second.live(**second.thinking), tools=[Tools()]),
    )

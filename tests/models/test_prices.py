"""What models cost and read, where genai-prices knows it; None, not a guess, where it doesn't."""

import sys

import pytest

from alpineagents import Price
from alpineagents.models import OpenAICompatible
from alpineagents.models._prices import known_model


@pytest.fixture(autouse=True)
def afresh():
    known_model.cache_clear()
    yield
    known_model.cache_clear()


def test_a_known_model_has_its_price_and_window():
    model = OpenAICompatible("gpt-5")

    assert model.price is not None
    assert 0 < model.price.input < model.price.output
    assert model.price.cache_read is not None
    assert model.price.cache_read < model.price.input
    assert model.context_window is not None
    assert model.context_window >= 128_000


def test_the_base_url_says_whose_model_it_is():
    assert OpenAICompatible("deepseek-chat", base_url="https://api.deepseek.com/v1").price is not None
    assert OpenAICompatible("gpt-5", base_url="https://gateway.example/v1").price is None


def test_of_a_price_that_grows_with_the_prompt_the_base_is_taken():
    _, price = known_model("google", "", "gemini-2.5-pro")

    assert price is not None
    assert price.input < 2


@pytest.mark.parametrize("name", ["no-such-model", ""])
def test_an_unknown_model_has_neither(name):
    assert known_model("openai", "", name) == (None, None)


def test_what_the_program_says_goes_before_what_is_known():
    model = OpenAICompatible("gpt-5", price=Price(1, 2), context_window=1_000)

    assert (model.price, model.context_window) == (Price(1, 2), 1_000)


def test_without_the_package_nothing_is_known(monkeypatch):
    monkeypatch.setitem(sys.modules, "genai_prices.data_snapshot", None)

    assert OpenAICompatible("gpt-5").price is None
    assert OpenAICompatible("gpt-5").context_window is None

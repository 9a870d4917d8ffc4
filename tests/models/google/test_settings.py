"""Settings as ``generationConfig``, and those that Gemini doesn't have."""

import json

import pytest

from alpineagents import Message, Request
from alpineagents.models._google import Google
from alpineagents.models._google_settings import generation_config
from alpineagents.models._google_wire import GoogleWire
from alpineagents.models._wire import Endpoint, Settings
from alpineagents.testing._formats._google_rules import problems

NEW, OLD = "gemini-3-flash-preview", "gemini-2.5-flash"


def config(model=NEW, **settings):
    """As it is sent, checked by the rules of a strict provider."""
    wire = GoogleWire(Endpoint("google", "http://127.0.0.1", model), Settings(**settings))
    body = json.loads(wire.encode(Request(messages=[Message.user("Hi")])))
    assert list(problems(body, model)) == []
    return body.get("generationConfig")


def test_settings_are_sent_only_where_they_are_set():
    assert config() is None
    assert config(max_tokens=9, temperature=0.0, stop=("a", "b"), seed=0) == {
        "maxOutputTokens": 9,
        "temperature": 0.0,
        "stopSequences": ["a", "b"],
        "seed": 0,
    }
    assert config(stop=()) is None


@pytest.mark.parametrize(
    ("model", "settings", "sent"),
    [
        (NEW, {"thinking": True}, {"includeThoughts": True}),
        (NEW, {"thinking": 512}, {"thinkingBudget": 512, "includeThoughts": True}),
        (NEW, {"effort": "low"}, {"thinkingLevel": "LOW"}),
        (NEW, {"effort": "HIGH", "thinking": True}, {"thinkingLevel": "HIGH", "includeThoughts": True}),
        ("gemini-flash-latest", {"effort": "minimal"}, {"thinkingLevel": "MINIMAL"}),
        (OLD, {"thinking": True}, {"thinkingBudget": -1, "includeThoughts": True}),
        (OLD, {"thinking": 512}, {"thinkingBudget": 512, "includeThoughts": True}),
        (OLD, {"thinking": 0}, {"thinkingBudget": 0}),
        (OLD, {"thinking": False}, {"thinkingBudget": 0}),
        (OLD, {"effort": "low"}, {"thinkingBudget": 1_024}),
        (OLD, {"effort": "Medium", "thinking": True}, {"thinkingBudget": 8_192, "includeThoughts": True}),
    ],
)
def test_how_much_it_thinks_is_said_as_the_model_takes_it(model, settings, sent):
    assert config(model, **settings) == {"thinkingConfig": sent}


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        (NEW, {"parallel_tool_calls": False}, "parallel_tool_calls=False: Gemini has no such setting"),
        (NEW, {"stop": ("a",) * 6}, r"at most 5 texts \(got 6\)"),
        (NEW, {"thinking": False}, "thinking=False: gemini-3-flash-preview always thinks"),
        (NEW, {"thinking": 0}, "always thinks"),
        (NEW, {"thinking": 512, "effort": "low"}, "Gemini takes one of them"),
        (OLD, {"thinking": False, "effort": "low"}, "take one of them"),
        (OLD, {"effort": "extreme"}, r"effort must be one of 'minimal', 'low', 'medium', 'high' .* \(got 'extreme'\)"),
    ],
)
def test_a_setting_that_would_be_dropped_is_refused_when_the_model_is_made(model, settings, message):
    with pytest.raises(ValueError, match=message):
        Google(model, **settings)


def test_calls_side_by_side_are_what_gemini_does_anyway():
    assert generation_config(NEW, Settings(parallel_tool_calls=True)) == {}
    assert Google(NEW, parallel_tool_calls=True).parallel_tool_calls is True

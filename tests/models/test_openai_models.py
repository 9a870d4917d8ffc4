"""What OpenAI's models refuse is refused when the model is made: what is sent, they take.

The provider's side (``testing/_formats/_openai_model_rules``) is written as a list, ours as rules of thumb on names.
"""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest

from alpineagents import Agent, BadRequestError, Message, OpenAI, OpenAICompatible, Request, ToolSpec
from alpineagents.testing import ProviderServer
from alpineagents.testing._formats._chat_rules import problems as chat_problems
from alpineagents.testing._formats._responses_rules import problems as responses_problems

NEVER = ("gpt-4.1-mini", "gpt-4o", "openai/gpt-4o", "gpt-5-chat-latest")
IF_TOLD_TO = ("gpt-5.1", "gpt-5.2-2025-12-11", "gpt-5.3-codex", "gpt-5.4-nano")
UNLESS_TOLD_NOT_TO = ("gpt-5.5", "gpt-5.6-luna", "gpt-6-sol")
ALWAYS = (
    *("o3", "o4-mini", "gpt-5", "gpt-5-2025-08-07", "openai/gpt-5-mini", "gpt-5-pro", "gpt-5.1-codex-max"),
    *("gpt-5.2-chat-latest", "gpt-5.2-codex", "gpt-5.5-pro", "gpt-6-astra", "gpt-6.1-sol"),
)
OTHERS = ("smollm2", "openai/gpt-oss-20b", "my-gpt-5")
NAMES = (*NEVER, *IF_TOLD_TO, *UNLESS_TOLD_NOT_TO, *ALWAYS, *OTHERS)
EFFORTS = (None, "none", "low")
LOCAL = "http://127.0.0.1:9/v1"
READ = ToolSpec("read", "Read.", {"type": "object", "properties": {}, "additionalProperties": False})
HI = Request(messages=[Message.user("Hi")])
HI_WITH_TOOLS = Request(messages=[Message.user("Hi")], tools=[READ])


def sent(model: Any, request: Request = HI) -> Any:
    """The request's JSON."""
    return json.loads(model._wire.encode(request))


def responses(name: str, **settings: Any) -> OpenAI:
    return OpenAI(name, base_url=LOCAL, **settings)


def chat(name: str, **settings: Any) -> OpenAICompatible:
    return OpenAICompatible(name, base_url=LOCAL, provider="openai", **settings)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_sent_by_responses_is_taken(name: str) -> None:
    made = 0
    for temperature, effort, thinking in product((None, 0.5, 1), EFFORTS, (None, True, False)):
        try:
            model = responses(name, temperature=temperature, effort=effort, thinking=thinking)
        except ValueError:
            continue
        made += 1
        assert list(responses_problems(sent(model, HI_WITH_TOOLS))) == [], (temperature, effort, thinking)
    assert made >= 6


@pytest.mark.parametrize("name", NAMES)
def test_what_is_sent_by_chat_completions_is_taken(name: str) -> None:
    made = 0
    for temperature, effort, stop in product((None, 0.5, 1), EFFORTS, (None, "END")):
        try:
            model = chat(name, temperature=temperature, effort=effort, stop=stop, max_tokens=9)
        except ValueError:
            continue
        made += 1
        assert list(chat_problems(sent(model))) == [], (temperature, effort, stop)
    assert made >= 4


@pytest.mark.parametrize("name", [*NEVER, *IF_TOLD_TO, *OTHERS])
@pytest.mark.parametrize("make", [responses, chat])
def test_a_model_that_reasons_only_if_told_to_takes_a_temperature(name: str, make: Any) -> None:
    assert sent(make(name, temperature=0))["temperature"] == 0


@pytest.mark.parametrize("name", [*IF_TOLD_TO, *UNLESS_TOLD_NOT_TO])
@pytest.mark.parametrize("make", [responses, chat])
def test_so_does_one_that_is_told_not_to(name: str, make: Any) -> None:
    assert sent(make(name, temperature=0, effort="none"))["temperature"] == 0


@pytest.mark.parametrize(
    ("name", "settings", "problem"),
    [
        ("gpt-5", {"temperature": 0.5}, "temperature=0.5: gpt-5 takes none while it reasons; leave it out$"),
        ("gpt-5.6-sol", {"temperature": 0}, "temperature=0: gpt-5.6-sol takes none .* or say effort='none'$"),
        ("gpt-5.4", {"temperature": 0, "effort": "low"}, "gpt-5.4 takes none while it reasons"),
        ("o3", {"effort": "none"}, "effort='none': o3 always reasons; effort='low' makes it reason less"),
        ("gpt-4.1", {"effort": "low"}, "effort='low': gpt-4.1 doesn't reason; leave effort out"),
    ],
)
@pytest.mark.parametrize("make", [responses, chat])
def test_what_a_model_refuses_is_refused_when_it_is_made(
    make: Any, name: str, settings: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        make(name, **settings)


@pytest.mark.parametrize(
    ("name", "problem"),
    [("gpt-5", "thinking=False: gpt-5 always reasons"), ("gpt-4.1", "thinking=True: gpt-4.1 doesn't reason")],
)
def test_thinking_that_it_has_no_choice_about_is_refused(name: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        responses(name, thinking=name == "gpt-4.1")


def test_stop_is_refused_where_the_model_reasons() -> None:
    with pytest.raises(ValueError, match=r"stop: gpt-5 takes none while it reasons \(got \('END',\)\)"):
        chat("gpt-5", stop="END")


@pytest.mark.parametrize("make", [responses, chat])
def test_what_it_does_anyway_is_not_sent(make: Any) -> None:
    assert "temperature" not in sent(make("gpt-5", temperature=1))
    assert {"reasoning", "reasoning_effort"}.isdisjoint(sent(make("gpt-4.1", effort="none")))


@pytest.mark.parametrize("make", [responses, chat])
def test_who_knows_better_can_pass_it_on(make: Any) -> None:
    assert sent(make("gpt-5", extra_body={"temperature": 0}))["temperature"] == 0


def test_at_other_servers_of_chat_completions_a_name_says_nothing() -> None:
    """OpenRouter leaves out what a model doesn't take; a server of one's own may have any model under any name."""
    model = OpenAICompatible("openai/gpt-5", base_url="https://openrouter.ai/api/v1", temperature=0, stop="END")

    assert (sent(model)["temperature"], sent(model)["stop"]) == (0, ["END"])


@pytest.mark.parametrize("name", ["gpt-5.6-luna", "gpt-6-sol"])
def test_tools_are_sent_to_newer_models_by_chat_completions_without_reasoning(name: str) -> None:
    """ "To use function tools, use /v1/responses or set reasoning_effort to 'none'": even where none was set."""
    model = chat(name)

    assert sent(model, HI_WITH_TOOLS)["reasoning_effort"] == "none"
    assert list(chat_problems(sent(model, HI_WITH_TOOLS))) == []
    assert "reasoning_effort" not in sent(model)
    assert "reasoning_effort" not in sent(chat("gpt-5.5"), HI_WITH_TOOLS)


async def test_what_is_passed_on_and_refused_is_the_providers_error() -> None:
    async with ProviderServer(["never"]) as server:
        model = OpenAI("gpt-5", base_url=server.base_url, extra_body={"temperature": 0})
        with pytest.raises(BadRequestError, match="'temperature' is not supported with this model"):
            await Agent(model=model).run("Hi")


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"model": "gpt-5", "temperature": 0}, "'temperature' does not support 0 with this model"),
        ({"model": "openai/o3", "top_p": 0.1}, "'top_p' does not support 0.1 with this model"),
        ({"model": "gpt-5", "stop": ["x"]}, "Unsupported parameter: 'stop'"),
        ({"model": "gpt-5.4", "reasoning_effort": "low", "logprobs": True}, "Unsupported parameter: 'logprobs'"),
        ({"model": "gpt-5.4", "max_tokens": 9}, "Use 'max_completion_tokens'"),
        ({"model": "gpt-4.1", "reasoning_effort": "low"}, "Unsupported parameter: 'reasoning_effort'"),
        ({"model": "o3", "reasoning_effort": "none"}, "does not support 'none'"),
        ({"model": "gpt-5.6", "tools": 1}, "Function tools with reasoning_effort are not supported for gpt-5.6"),
        ({"model": "gpt-5.4", "tools": 1, "reasoning_effort": "low"}, "Function tools with reasoning_effort"),
    ],
)
def test_the_scripted_chat_completions_refuse_as_openai_does(body: dict[str, Any], problem: str) -> None:
    tools = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]
    with_tools = {"tools": tools} if "tools" in body else {}
    found = list(chat_problems({"messages": [{"role": "user", "content": "Hi"}], **body, **with_tools}))

    assert len(found) == 1
    assert problem in found[0]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"model": "gpt-5", "temperature": 1}, "Unsupported parameter: 'temperature'"),
        ({"model": "gpt-5.6", "top_p": 0.1}, "Unsupported parameter: 'top_p'"),
        ({"model": "gpt-5.1", "temperature": 0, "reasoning": {"effort": "low"}}, "Unsupported parameter"),
        ({"model": "gpt-5", "reasoning": {"effort": "none"}}, "'reasoning.effort' does not support 'none'"),
        ({"model": "gpt-5-chat-latest", "reasoning": {"effort": "low"}}, "'reasoning' is not supported"),
    ],
)
def test_the_scripted_responses_refuse_as_openai_does(body: dict[str, Any], problem: str) -> None:
    found = list(responses_problems({"input": [{"role": "user", "content": "Hi"}], **body}))

    assert len(found) == 1
    assert problem in found[0]

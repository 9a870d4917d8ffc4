"""The Agent that a command line describes."""

from __future__ import annotations

import pytest

from alpineagents.cli._agent import agent_of
from alpineagents.cli._exit import UsageError
from alpineagents.cli._options import AgentOptions
from alpineagents.testing import FakeHuman


@pytest.fixture(autouse=True)
def no_settings(here):
    return here


@pytest.mark.parametrize("name", ["openai/gpt-5", "anthropic/claude-sonnet-5", "google/gemini-2.5-flash"])
def test_a_conversation_goes_on_with_the_model_that_it_had(name):
    assert agent_of(AgentOptions(), None, name).model.name == name


def test_a_model_of_another_server_is_found_where_that_is_named(monkeypatch):
    with pytest.raises(UsageError, match="no model is named"):
        agent_of(AgentOptions(), None, "local/qwen3")

    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    model = agent_of(AgentOptions(), None, "local/qwen3").model
    assert (model.name, model.base_url) == ("local/qwen3", "http://127.0.0.1:1/v1")


def test_what_is_named_comes_before_the_model_that_it_had(monkeypatch):
    assert agent_of(AgentOptions(model="gpt-5"), None, "openai/gpt-4o").model.name == "openai/gpt-5"
    monkeypatch.setenv("ALPINEAGENTS_MODEL", "openai/o3")
    assert agent_of(AgentOptions(), None, "openai/gpt-4o").model.name == "openai/o3"


def test_where_there_is_a_terminal_the_person_decides(here):
    human = FakeHuman([])

    agent = agent_of(AgentOptions(model="gpt-5", system="Be brief."), human)

    assert (agent.human, agent.system) == (human, "Be brief.")
    assert [repr(permission) for permission in agent.permissions] == [
        "AllowByReadOnly(trust_mcp=False)",
        "DecideByHuman()",
    ]
    assert agent_of(AgentOptions(model="gpt-5", yes=True), human).permissions is None

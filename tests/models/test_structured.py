"""An answer held to a schema: by the provider, by a tool that must be called, or by words in the question."""

import json
from dataclasses import dataclass

import pytest

from alpineagents import Agent, Message, OutputError, State, tool
from alpineagents.models import OpenAICompatible
from alpineagents.testing import ProviderServer, tool_call


@dataclass
class City:
    name: str
    people: int


PARIS = City("Paris", 2_100_000)
AS_TEXT = json.dumps({"name": "Paris", "people": 2_100_000})


@tool
async def look(place: str) -> str:
    """Look."""
    return f"{place} is large"


def given(answer):
    return tool_call("give_answer", **answer)


@pytest.mark.parametrize(
    ("how", "answer"),
    [
        ("native", AS_TEXT),
        ("prompt", AS_TEXT),
        ("tool", given({"name": "Paris", "people": 2_100_000})),
        ("tool", ["I give it.", given({"name": "Paris", "people": 2_100_000})]),
        ("tool", AS_TEXT),
    ],
    ids=["native", "prompt", "tool", "tool with words before it", "tool that isn't called"],
)
@pytest.mark.parametrize("talked", [False, True], ids=["first", "after a tool call"])
async def test_ask_gets_its_type_whichever_way_the_model_has(how, answer, talked):
    before = [tool_call("look", place="Paris"), "Large."] if talked else []
    async with ProviderServer([*before, answer]) as server:
        agent = Agent(model=OpenAICompatible("m", base_url=server.base_url, structured=how), tools=[look])
        state = State(messages=[Message.user("Look at Paris")])
        if talked:
            await agent.run(state)

        assert await agent.ask(state, "Which city?", returns=City) == PARIS

    sent = server.requests[-1].body
    names = [spec["function"]["name"] for spec in sent.get("tools", ())]
    assert ("response_format" in sent) == (how == "native")
    assert ("give_answer" in names) == (how == "tool")
    assert sent.get("tool_choice") == (
        {"type": "function", "function": {"name": "give_answer"}} if how == "tool" else "none" if talked else None
    )
    assert not state.pending_calls


async def test_arguments_that_do_not_fit_are_asked_for_again():
    wrong, right = given({"name": "Paris"}), given({"name": "Paris", "people": 2_100_000})
    async with ProviderServer([wrong, right]) as server:
        agent = Agent(model=OpenAICompatible("m", base_url=server.base_url, structured="tool"))

        assert await agent.ask(State(), "Which city?", returns=City) == PARIS

    assert "people" in server.requests[1].body["messages"][-1]["content"]


async def test_arguments_that_are_no_json_are_an_answer_that_does_not_fit():
    async with ProviderServer([given({})] * 1) as server:
        agent = Agent(model=OpenAICompatible("m", base_url=server.base_url, structured="tool"))

        with pytest.raises(OutputError, match="gave no City in 1 tries"):
            await agent.ask(State(), "Which city?", returns=City, retries=0)


def test_another_word_is_refused_when_the_model_is_made():
    with pytest.raises(ValueError, match="structured must be one of 'native', 'tool', 'prompt'"):
        OpenAICompatible("m", base_url="http://127.0.0.1/v1", structured="json")
